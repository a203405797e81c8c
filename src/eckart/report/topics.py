"""The page of a topic model: its topics, how near they are, how well they predict words, and
documents that show what each is about."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart import plots
from eckart.explain.topics.judge import coherence, topic_diversity
from eckart.matrix import Counts, Matrix
from eckart.plots.topics import distributions
from eckart.report.html import Report
from eckart.report.tables import Excerpts, row_name, some_rows, texts_at

SHOWN, WORDS, OWN, EXAMPLES = 12, 10, 6, 2
"""Topics drawn as bars; words of each; words that set it apart; documents shown of each."""


def topics_page(
    model: Any, x: Matrix, title: str, held_out: Any = None, excerpts: Excerpts = None
) -> Report:
    """All but the evidence."""
    p, sizes, names = distributions(model)
    tokens = float(np.sum(getattr(x, "data", 0.0)))
    page = Report(
        title,
        f"{x.shape[0]:,} documents, {x.shape[1]:,} words in the vocabulary, "
        f"{tokens:,.0f} words of text; {type(model).__name__} with {len(p)} topics",
    )
    page.holds(model.fit_.certificate)
    page.section("Topics")
    page.pictures(
        (
            plots.topic_words(model, words=8),
            f"The most probable words of the {min(SHOWN, len(p))} largest topics, each "
            "on its own scale; beside the name, its share of all words",
        )
    )
    if len(p) > 1:
        page.pictures(
            (
                plots.topic_map(model),
                "Topics as circles, areas by share: near ones use the same words "
                "(Jensen-Shannon distances, scaled to the plane)",
            )
        )
    npmi = (
        coherence(model, x, min(WORDS, p.shape[1]))
        if isinstance(x, Counts) and p.shape[1] > 1
        else None
    )
    page.table(
        [
            "topic",
            "share",
            *([] if npmi is None else ["coherence"]),
            "most probable words",
            "words that set it apart",
        ],
        [
            [
                f"{z + 1}",
                f"{sizes[z]:.1%}",
                *([] if npmi is None else [f"{npmi[z]:.3f}"]),
                ", ".join(str(w) for w in names[np.argsort(-p[z], kind="stable")[:WORDS]]),
                ", ".join(str(names[j]) for j in telling(p, sizes, z)[:OWN]),
            ]
            for z in np.argsort(-sizes, kind="stable")
        ],
    )
    if npmi is not None:
        page.text(
            f"Coherence: NPMI of the {min(WORDS, p.shape[1])} most probable words, "
            f"{np.nanmean(npmi):.3f} on average; 1 where they only occur together, 0 "
            "where they meet by chance, -1 where they never meet. "
            f"{topic_diversity(model):.0%} of the top words of all topics are different."
        )
    page.text(
        "Words set a topic apart when they are probable in it and rare elsewhere: log "
        "p(w|z) and log p(w|z)/p(w) count alike."
    )
    _examples(page, model, x, sizes, excerpts)
    if held_out is not None:
        _held_out(page, held_out)
    return page


def telling(p: np.ndarray, sizes: np.ndarray, z: int, balance: float = 0.5) -> np.ndarray:
    """Words by relevance to topic z: balance log p(w|z) + (1 - balance) log p(w|z)/p(w), with p(w)
    = sum_z p(z) p(w|z).

    >>> p = np.array([[0.6, 0.4, 0.0], [0.6, 0.0, 0.4]])
    >>> telling(p, np.array([0.5, 0.5]), 1).tolist()[0]
    2

    Reference: Sievert and Shirley (2014).
    """
    tiny = np.finfo(float).tiny
    overall = np.maximum(sizes @ p, tiny)
    inside = np.log(np.maximum(p[z], tiny))
    return np.argsort(-(inside - (1.0 - balance) * np.log(overall)), kind="stable")


def _held_out(page: Report, held: Any) -> None:
    page.section("How well are unseen words predicted?")
    page.verdict(held.verdict, held.useful)
    page.table(
        ["answer", "perplexity of held-out words"],
        [[who, float(v)] for who, v in held.perplexities.items()],
    )
    page.text(
        "Measured with a fit of its own, on documents kept from it: half of the words "
        "of each are shown, the other half is predicted."
    )


def _examples(page: Report, model: Any, x: Matrix, sizes: np.ndarray, excerpts: Excerpts) -> None:
    part, at = some_rows(x)
    shares = np.asarray(model.transform(part), float)
    total = shares.sum(axis=1, keepdims=True)
    shares = shares / np.where(total > 0, total, 1.0)
    empty = np.diff(part.indptr) == 0 if hasattr(part, "indptr") else np.zeros(len(shares), bool)
    shares[empty] = 0.0
    best = {
        int(z): np.argsort(-shares[:, z], kind="stable")[:EXAMPLES]
        for z in np.argsort(-sizes, kind="stable")[:20]
    }
    texts = texts_at(excerpts, at[np.unique(np.concatenate(list(best.values())))])
    rows = []
    for z, found in best.items():
        for i in found:
            if shares[i, z] > 0:
                texts_shown = [texts.get(int(at[i]), "")] if texts else []
                rows.append(
                    [str(z + 1), f"{shares[i, z]:.0%}", row_name(x, int(at[i])), *texts_shown]
                )
    page.section("Documents that show what a topic is about")
    page.table(
        ["topic", "its share of the document", "document", *(["how it begins"] if texts else [])],
        rows,
    )
