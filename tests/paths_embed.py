"""Runs of embeddings that are written down; interrupts of all fits, and parameters that nobody
gave."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import eckart
from eckart import (
    PMI,
    GloVe,
    SkipGram,
    SoftImpute,
    Vectors,
)
from paths_base import case, several


@case
def interrupts() -> Any:
    """The first, second or fourth time that a fit tells how far it is, it is interrupted: what has
    an answer returns it, what has none raises."""
    from recorded_paths import use_listener
    from resumable_fits import FITS, holes, of

    class Impatient:
        def __init__(self, after: int):
            self.left = after

        def stage(self, stage: str, done: float, total: float | None) -> None:
            if not stage.startswith("compiling"):
                self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

        def value(self, trace: Any) -> None: ...

        def stopping(self) -> bool:
            return False

    out: dict[str, Any] = {}
    more = {
        "SoftImpute, tau open": (of(SoftImpute, tol=1e-2), holes),
        "SoftImpute logistic": (
            of(SoftImpute, loss="logistic", tau=0.5),
            lambda: np.where(np.isnan(holes()), np.nan, holes() > 0.3),
        ),
        "SoftImpute logistic, tau open": (
            of(SoftImpute, loss="logistic"),
            lambda: np.where(np.isnan(holes()), np.nan, holes() > 0.3),
        ),
        "SoftImpute proximal": (of(SoftImpute, tau=0.5, method="proximal"), holes),
    }
    for name, (make, data) in (FITS | more).items():
        if name.startswith(
            (
                "TimeFactors",
                "MixedTable",
                "NMF sketch",
                "LDA gibbs numpy",
                "BayesianMF of",
                "PCA gaps",
                "GaussianMixture of",
            )
        ):
            continue
        for after in (1, 4):
            model = make(n_threads=1)
            try:
                with use_listener(Impatient(after)):
                    model.fit(data())
                out[f"{name} {after}"] = [
                    model.fit_.trace.reason,
                    len(model.fit_.trace),
                    len(model.fit_.trace.seconds),
                    model.certificate_.holds,
                ]
            except KeyboardInterrupt:
                out[f"{name} {after}"] = "KeyboardInterrupt"
    return out


@case
def defaults() -> Any:
    """Parameters that nobody gave: a change of one changes what everybody gets."""
    from eckart.registry import SAVED

    return {
        name: {p: str(v) for p, v in getattr(eckart, name)().get_params(deep=False).items()}
        for name in SAVED
    }


def sentences() -> list[list[str]]:
    rng = np.random.default_rng(21)
    names = np.array([a + b for a in "klmn" for b in "aeiou"])
    themes = rng.dirichlet(np.full(20, 0.4), 3)
    return [list(rng.choice(names, 9, p=themes[i % 3])) for i in range(60)]


@case
def words_by_options() -> Any:
    x = sentences()

    def ask(m):
        return [
            m.vectors_.neighbours("ka", 3),
            m.transform([["ka", "le"], ["mo"]]),
            m.certify(x).to_dict(),
        ]

    return several(
        pmi=(PMI(3, min_count=1, shift=2.0), x, ask),
        plain=(PMI(3, min_count=2, kind="pmi", smoothing=1.0), x, ask),
        both=(PMI(3, min_count=1, add_context=True, window=2), x, ask),
        exponent=(PMI(2, min_count=1, exponent=1.0), x, ask),
        glove=(GloVe(3, min_count=1, max_iter=5, tol=0.0), x, ask),
        glove_steps=(GloVe(3, min_count=1, solver="adagrad", max_iter=4), x, ask),
        glove_x=(GloVe(2, min_count=1, n_max=3.0, power=0.5, max_iter=4, tol=0.0), x, ask),
        skip=(SkipGram(3, min_count=1, sample=1e-2, max_iter=2, deterministic=True), x, ask),
        skip_exact=(SkipGram(2, min_count=1, solver="exact", negatives=3, max_iter=8), x, ask),
        softmax=(SkipGram(2, min_count=1, loss="softmax", bias=True, max_iter=8), x, ask),
        skip_lists=(
            SkipGram(
                2, min_count=1, negatives=2, window=2, sample=None, max_iter=2, deterministic=True
            ),
            x,
            ask,
        ),
    )


@case
def words_thinned() -> Any:
    from eckart.embed.skipgram import thinned

    read = eckart.sequences(sentences(), min_count=1)
    long = eckart.sequences(sentences() * 5, min_count=1)
    keep = np.linspace(0.3, 1.0, len(read.words))
    return [
        [t.ids, t.pointers, len(t)]
        for t in (thinned(read, keep, 10**6), thinned(read, keep, 100), thinned(long, keep, 1000))
    ]


@case
def sequences_and_pairs() -> Any:
    from eckart.embed.sequences import keep_probability

    x = sentences()
    read = eckart.sequences(x, min_count=8)
    out: list[Any] = [
        read.words,
        read.counts,
        len(read),
        read.n_tokens,
        read.words_read,
        read.words_dropped,
        read.sentence(0),
        read.sentence(59),
        keep_probability(read.counts, 1e-2),
    ]
    few_ = eckart.sequences([" ".join(s) for s in x], max_words=7)
    out += [few_.words, few_.counts, few_.n_tokens]
    for options in (
        {"window": 2},
        {"window": 3, "weighting": "flat"},
        {"window": 3, "sides": "right"},
        {"window": 4, "weighting": "linear"},
    ):
        try:
            out.append(eckart.cooccurrence(read, **options))
        except Exception as error:
            out.append(str(error))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "words.txt"
        file.write_text("\n".join(" ".join(s) for s in x))
        cached = [eckart.sequences(str(file), min_count=2, cache=folder) for _ in range(2)]
        out += [[c.words, c.counts, c.ids, c.pointers] for c in cached]
    return out


@case
def questions_to_vectors() -> Any:
    rng = np.random.default_rng(22)
    names = [a + b for a in "klmn" for b in "aeiou"]
    v = Vectors(names, rng.standard_normal((20, 4)), counts=np.arange(20, 0, -1))
    out: list[Any] = [
        v.neighbours("ka", 3),
        v.neighbours(["ka", "le", "??"], 2, missing="skip"),
        v.neighbours(["ka", "??"], 2, missing="zeros"),
        v.neighbours(rng.standard_normal((2, 4)), 2),
    ]
    out += [
        v.neighbours("ka", 3, min_count=10),
        v.neighbours("ka", 3, among=["le", "mo", "ni"]),
        v.neighbours("ka", 3, without=lambda w: w.startswith("k")),
    ]
    out += [
        v.analogy("ka", "ke", "la", 3),
        v.analogy("ka", "ke", "la", 3, "multiply"),
        v.analogy(["ka", "??"], ["ke", "ko"], ["la", "lo"], 2, missing="skip"),
        v.similarity("ka", "le"),
    ]
    out += [
        v.similarity([("ka", "le"), ("ka", "??")], missing="skip"),
        v.similarity([("ka", "??")], missing="zeros"),
        v.odd_one_out(["ka", "le", "mo"]),
        v.odd_one_out(["ka", "le", "mo", "??"], missing="skip"),
    ]
    out += [
        v.mean("ka le ka ??"),
        v.mean(["ka", "le"], {"le": 3.0}),
        v.mean(["ka", "le"], "sif"),
        v.mean(["ka", "??"], missing="zeros"),
        v.mean(["ka", "le"], np.arange(20.0)),
        v.mean("??"),
        v.mean(["ka", "le"], unit=True),
    ]
    for which in (None, ["ka", "le", "mo", "ni"]):
        m = v.map(which, n=6)
        out += [m.words, m.xy, m.share if hasattr(m, "share") else 0]
    for unknown in ("kaa", "KA", "zzz"):
        try:
            v.neighbours(unknown)
        except eckart.InputError as error:
            out.append(str(error))
    return [
        *out,
        v.get(["ka", "??"], "zeros"),
        "ka" in v,
        "??" in v,
        v["le"],
        repr(v),
        len(v),
        v._repr_html_(),
    ]
