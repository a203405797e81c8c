"""The report of an embedding: words and their neighbours, a map, the vocabulary, and how well the
vectors say which words stand together."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart import plots
from eckart.embed.pairs import pairs_of
from eckart.embed.sequences import Sequences
from eckart.io.text.tokens import ENGLISH
from eckart.matrix import Counts
from eckart.report.html import Report

PICTURED, LISTED, NEAR, MAPPED, RANKS = 8, 24, 8, 80, 15
"""Words whose neighbours are drawn; listed; neighbours of each; words on the map; frequent words in
the table."""
MOST_WORDS = 5_000_000
"""Words of the corpus up to which pairs are counted for a picture."""


def embed_report(model: Any, source: Any = None, *, name: str = "", words: Any = None) -> Report:
    """A page for a fitted ``SkipGram``, ``PMI`` or ``GloVe``.

    ``source`` is what it was fitted to (``Sequences`` or co-occurrences): facts about the text, and
    scores of pairs beside what they should be. ``words`` are those whose neighbours are shown; by
    default the most frequent that are no function words of English.
    """
    v, fit = model.vectors_, model.fit_
    shown = telling(v) if words is None else list(words)
    page = Report(
        f"Embed: {name}" if name else "Embed",
        f"{len(v):,} words as vectors of {v.k} numbers, by {type(model).__name__}",
    )
    page.holds(fit.certificate)
    _neighbours(page, v, shown)
    _map(page, v, shown if words is not None else telling(v, MAPPED))
    _vocabulary(page, v, source)
    page.section("Evidence").certificate(fit.certificate)
    _fit_pictures(page, model, source)
    return page.computed(fit, ("singular values",))


def telling(vectors: Any, n: int = LISTED) -> list[Any]:
    """The first ``n`` (most frequent) words that are no function words of English, no numbers and
    no single letters; any words where these are too few.

    >>> from eckart import Vectors
    >>> telling(Vectors(["the", "7", "x", "sea", "of", "ship"], np.eye(6)), 2)
    ['sea', 'ship']
    """
    order = (
        range(len(vectors))
        if vectors.counts is None
        else np.argsort(-vectors.counts, kind="stable")
    )
    ranked = [vectors.words[i] for i in order]
    says = [
        w
        for w in ranked
        if not isinstance(w, str) or (len(w) > 1 and w not in ENGLISH and not w.isdigit())
    ]
    return (says if len(says) >= min(n, 2) else ranked)[:n]


def _neighbours(page: Report, v: Any, shown: list[Any]) -> None:
    page.section("Words and their neighbours")
    if len(v) < 2:
        page.text("The vocabulary has one word, which has no neighbour.")
        return
    page.pictures(
        (
            plots.plot_neighbours(v, shown[:PICTURED], n=NEAR),
            "The nearest words with their cosines, all on one scale",
        )
    )
    rows = [
        [str(word), ", ".join(str(near) for near, _ in found), float(found[0][1]) if found else ""]
        for word, found in zip(shown, v.neighbours(shown, NEAR))
    ]
    page.table(["word", "its neighbours, the nearest first", "largest cosine"], rows)


def _map(page: Report, v: Any, shown: list[Any]) -> None:
    if len(shown) < 3:
        return
    page.section("A map of words")
    page.pictures(
        (
            plots.plot_map(v, shown),
            f"{len(shown)} words on the two principal components of their directions: "
            "what lies close together points the same way, as far as a plane can show",
        )
    )


def _vocabulary(page: Report, v: Any, source: Any) -> None:
    page.section("Text and vocabulary")
    if isinstance(source, Sequences):
        page.table(
            ["of the text", ""],
            [[what, f"{number:,}"] for what, number in corpus_facts(source).items()],
        )
    lengths = np.linalg.norm(v.vectors.astype(np.float64), axis=1)
    total = None if v.counts is None else max(float(v.counts.sum()), 1.0)
    header = [
        "rank",
        "word",
        *([] if total is None else ["count", "share"]),
        "length of its vector",
    ]
    rows = []
    for i in [*range(min(RANKS, len(v))), *(r - 1 for r in _decades(len(v)))]:
        seen = [] if total is None else [f"{v.counts[i]:,.0f}", f"{v.counts[i] / total:.2%}"]
        rows.append([f"{i + 1:,}", str(v.words[i]), *seen, float(lengths[i])])
    page.table(header, rows)


def corpus_facts(s: Sequences) -> dict[str, int]:
    """What a text came to, in numbers."""
    lengths = np.diff(s.pointers)
    facts = {
        "sentences": len(s),
        "sentences of fewer than two words of the vocabulary": int((lengths < 2).sum()),
        "longest sentence": int(lengths.max(initial=0)),
        "words read": s.words_read,
        "words outside of the vocabulary, left out": s.words_dropped,
        "words kept": s.n_tokens,
        "different words kept": len(s.words),
    }
    return facts | ({"characters for bytes that were no text": s.replaced} if s.replaced else {})


def _decades(n: int) -> list[int]:
    """Ranks 20, 50, 100, 200, ... and the last one."""
    ranks = [m * 10**p for p in range(1, 8) for m in (2, 5, 10)]
    return [r for r in ranks if RANKS < r < n] + ([n] if n > RANKS else [])


def _fit_pictures(page: Report, model: Any, source: Any) -> None:
    kind, trace = type(model).__name__, model.fit_.trace
    pictures: list[tuple[Any, str]] = []
    if kind == "PMI":
        pictures.append(
            (
                plots.plot_singular_values(model),
                "Singular values of the matrix of pointwise mutual information",
            )
        )
    elif len(trace) > 1:
        pictures.append((plots.plot_loss(model), f"{trace.quantity.capitalize()}, pass by pass"))
    counts = _pairs(model, source)
    if counts is not None and kind == "SkipGram" and model.loss == "negative":
        pictures.append(
            (
                plots.plot_pmi_optimum(model, counts),
                "Scores of pairs against their best values (shifted pointwise mutual "
                "information); a sample in which frequent pairs are more probable",
            )
        )
    if counts is not None and kind == "GloVe":
        pictures.append(
            (
                plots.plot_log_counts(model, counts),
                "Scores of pairs against the logarithms of their counts, sampled by weight",
            )
        )
    if pictures:
        page.pictures(*pictures)


def _pairs(model: Any, source: Any) -> Counts | None:
    """The pairs that the model learned from, where they are there or can be counted quickly."""
    if isinstance(source, Counts):
        return source
    if not isinstance(source, Sequences) or source.n_tokens > MOST_WORDS or len(source.words) < 2:
        return None
    if type(model).__name__ == "SkipGram":
        return model._pairs(source, MOST_WORDS)
    return pairs_of(model, source).n if type(model).__name__ == "GloVe" else None
