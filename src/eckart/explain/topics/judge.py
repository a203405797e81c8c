"""How good are topics? One judge for every model: it asks for p(w|z) and documents only, so that
all are measured alike.

document completion   fold the seen half of a document in, theta <- (counts by topic + prior) / sum,
50 times from equal shares; score the other half:
                      perplexity = exp(- sum_w c_w log sum_z theta_z p(w|z) / sum_w c_w)
NPMI                  log(p(v, w) / (p(v) p(w))) / -log p(v, w) with p the shares of documents that
hold a word, or both; the mean over the pairs of a
                      topic's top words; -1 for words that never meet, 1 for words that only occur
                      together
diversity             the share of different words among the top words of all topics
alignment             the pairing of two models' topics with the largest total overlap sum_w
sqrt(p(w|z) q(w|z)) (Hungarian method)
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.arguments import held, numbers
from eckart.engines import engine_named
from eckart.errors import InputError, invalid
from eckart.explain.topics.documents import as_counts, whole_numbers
from eckart.factors import Topics
from eckart.io.models.checkpoint import Checkpoint, parameters_of, resumed
from eckart.io.read import read
from eckart.io.text.shards import pieces
from eckart.matrix import Counts
from eckart.rng import generator
from eckart.trace import StopReason

FLOOR = 1e-12
"""The least probability of a word that is scored."""


@dataclass(frozen=True)
class Completion:
    """``log_likelihood``: mean log p of a scored word; ``perplexity``: exp of minus that;
    ``words``: how many were scored."""

    log_likelihood: float
    words: float

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.log_likelihood))


@held
def split_tokens(X: Any, share: float = 0.5, random_state: Any = None) -> tuple[Counts, Counts]:
    """Two halves of the same documents: each token goes to the first with probability ``share``,
    else to the second.

    Counts that are not whole numbers are not cut: their entries go to one half as they are.

    >>> seen, scored = split_tokens([[4.0, 0.0, 2.0], [0.0, 8.0, 1.0]], random_state=0)
    >>> (seen.to_scipy() + scored.to_scipy()).toarray().tolist()
    [[4.0, 0.0, 2.0], [0.0, 8.0, 1.0]]
    """
    if not 0 < share < 1:
        raise invalid("share", share, "a number between 0 and 1")
    x = as_counts(read(X), "split_tokens")
    rng = generator(random_state)
    if whole_numbers(x):
        first = rng.binomial(x.data.astype(np.int64), share).astype(x.data.dtype)
    else:
        first = np.where(rng.random(x.nnz) < share, x.data, x.data.dtype.type(0))
    return _kept(x, first), _kept(x, x.data - first)


@held
def document_completion(
    words: Any,
    seen: Any,
    scored: Any,
    *,
    prior: Any = 0.1,
    steps: int = 50,
    n_threads: int | None = None,
    engine: Any = "auto",
) -> Completion:
    """Held-out likelihood by document completion, the same for every model.

    Parameters
    ----------
    words : p(w|z), topics x words; rows are floored at 1e-12 and normalised
    seen, scored : two halves of the same documents (``split_tokens``)
    prior : pseudo-counts of the topics when the seen half is folded in, a number or one for each
        topic
    steps : updates of the shares
    n_threads, engine : most threads to use; the engine by name

    >>> p = [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    >>> round(document_completion(p, [[3.0, 1.0, 0.0]], [[1.0, 1.0, 0.0]], prior=1e-9).perplexity, 4)
    2.0
    """
    a, b = (
        as_counts(read(seen), "document_completion"),
        as_counts(read(scored), "document_completion"),
    )
    if a.shape != b.shape:
        raise InputError(
            f"seen and scored must be two halves of the same documents, got shapes {a.shape} "
            f"and {b.shape}"
        )
    p = np.maximum(numbers("words", words, "p(w|z), topics x words"), FLOOR)
    if p.ndim != 2 or p.shape[1] != a.shape[1] or not len(p):
        raise InputError(f"words must have shape (topics, {a.shape[1]}), got {p.shape}")
    if not np.isfinite(p.sum()):
        raise InputError(
            "words must hold p(w|z), topics x words, got NaN, infinity or numbers beyond the range"
        )
    phi = np.ascontiguousarray((p / p.sum(axis=1, keepdims=True)).T)
    on, k = engine_named(engine, n_threads), len(p)
    alpha = numbers("prior", prior, f"a number >= 0, or {k} of them")
    if alpha.shape not in ((), (1,), (k,)) or not (np.isfinite(alpha) & (alpha >= 0)).all():
        raise invalid("prior", prior, f"a number >= 0, or {k} of them")
    if steps < 1:
        raise invalid("steps", steps, "an int >= 1")
    alpha = np.broadcast_to(alpha, (k,))
    with on.at_work():
        shares = on.topic_fold(on.put(a), phi, alpha, np.full(k, 1.0 / k), steps=steps)
        value, total = on.topic_scores(on.put(b), phi, shares, 1e-300)
    if not total > 0:
        raise InputError(
            "scored must have at least one token, got none. Give more or longer documents."
        )
    return Completion(value / total, total)


@held
def top_words(topics: Topics | np.ndarray, n: int = 10, by: str = "probability") -> list[list[Any]]:
    """The n first words of each topic by p(w|z), or by lift p(w|z) / p(w) among words worth at
    least a token; positions where words have no names.

    >>> t = Topics(np.array([[8.0, 1.0, 1.0], [8.0, 0.0, 2.0]]), np.ones(2), np.array([0.5, 0.5]), np.array(["the", "cat", "dog"], object))
    >>> top_words(t, 1), top_words(t, 1, by="lift")
    ([['the'], ['the']], [['cat'], ['dog']])
    """
    if by not in ("probability", "lift"):
        raise invalid("by", by, "'probability' or 'lift'")
    if n < 1:
        raise invalid("n", n, "an int >= 1")
    if not isinstance(topics, Topics) and (np.ndim(topics) != 2 or not np.size(topics)):
        raise InputError(f"topics must be p(w|z), topics x words, got shape {np.shape(topics)}")
    t = (
        topics
        if isinstance(topics, Topics)
        else Topics(
            np.asarray(topics, float), np.zeros(len(topics)), np.full(len(topics), 1 / len(topics))
        )
    )
    p = t.words.astype(np.float64)
    if by == "lift":
        whole = t.sizes @ p
        p = np.where(t.counts >= 1, p / np.where(whole > 0, whole, 1.0), p * 1e-12)
    order = np.argsort(-p, axis=1, kind="stable")[:, :n]
    return [[int(j) if t.columns is None else t.columns[j] for j in row] for row in order]


@held
def coherence(topics: Any, X: Any, n: int = 10) -> np.ndarray:
    """NPMI of each topic: the mean over the pairs of its n most probable words, from the documents
    that hold them.

    Only documents x top words are looked at, block after block, so that ``X`` may be an iterable of
    sparse blocks larger than memory.

    Parameters
    ----------
    topics : a fitted topic model, ``Topics``, p(w|z), or lists of words (or their positions)
    X : documents x words, or an iterable of such blocks

    >>> coherence([[0, 1], [0, 2]], [[1.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 1.0]]).tolist()
    [1.0, -1.0]
    """
    tops, columns = _tops(topics, n)
    every = sorted({w for top in tops for w in top}, key=str)
    at = {w: i for i, w in enumerate(every)}
    meet, documents = np.zeros((len(every), len(every))), 0
    for block in (as_counts(block, "coherence") for block in pieces(X) or [read(X)]):
        names = block.columns if columns is None else columns
        held = block.to_scipy()[:, _positions(every, names)].tocsc()
        held.data = (held.data > 0).astype(np.float64)
        meet += (held.T @ held).toarray()
        documents += block.shape[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        joint = meet / max(documents, 1)
        p = np.diag(joint)
        npmi = np.log(joint / np.outer(p, p)) / -np.log(joint)
    npmi[joint >= 1] = 1.0
    npmi[meet == 0] = -1.0
    out = []
    for top in tops:
        i = np.array([at[w] for w in top])
        pairs = npmi[np.ix_(i, i)][np.triu_indices(len(i), 1)]
        out.append(float(pairs.mean()) if len(pairs) else np.nan)
    return np.array(out)


@held
def topic_diversity(topics: Any, n: int = 25) -> float:
    """The share of different words among the n most probable words of all topics.

    >>> topic_diversity([["cat", "dog"], ["cat", "fish"]])
    0.75
    """
    tops, _ = _tops(topics, n)
    said = [w for top in tops for w in top]
    return len(set(said)) / max(1, len(said))


def align_topics(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """For each topic of ``a`` the topic of ``b`` that it is paired with (-1 where b has fewer), and
    their overlap sum_w sqrt(p q), from 0 to 1.

    >>> align_topics([[0.9, 0.1], [0.2, 0.8]], [[0.2, 0.8], [0.9, 0.1]])
    (array([1, 0]), array([1., 1.]))
    """
    from scipy.optimize import linear_sum_assignment

    p, q = (np.sqrt(_distributions(m)) for m in (a, b))
    if p.shape[1] != q.shape[1]:
        raise InputError(
            f"the models must have the same vocabulary, got {p.shape[1]} and {q.shape[1]} words"
        )
    overlap = np.minimum(p @ q.T, 1.0)
    rows, columns = linear_sum_assignment(-overlap)
    partner, value = np.full(len(p), -1), np.zeros(len(p))
    partner[rows], value[rows] = columns, overlap[rows, columns]
    return partner, value


@held
def select_topics(
    model: Any,
    X: Any,
    n_components: Sequence[int],
    *,
    held_out: float = 0.2,
    n: int = 10,
    random_state: Any = 0,
    checkpoint: Any = None,
) -> list[dict[str, Any]]:
    """The number of topics by what it predicts: for each candidate, perplexity on held-out
    documents, NPMI, diversity and seconds, best first.

    ``held_out`` is the share of documents that no model is fitted to; their tokens are split in
    halves once, the same for every candidate. With ``checkpoint``, the name of a file, candidates
    that were judged are kept there, and the fit at work in a file beside it; the same call resumes
    from them after a crash, with the same bits.

    >>> from eckart import LDA
    >>> rng = np.random.default_rng(0)
    >>> x = np.vstack([rng.multinomial(60, p, 60) for p in ([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5])])
    >>> select_topics(LDA(random_state=0, max_iter=30), x, [1, 2])[0]["n_components"]
    2
    """
    from sklearn.base import clone

    x = as_counts(read(X), "select_topics")
    tried, model = [int(k) for k in n_components], clone(model)
    keeps = "checkpoint" in model.get_params()
    if keeps:
        model.set_params(checkpoint=None)
    about = parameters_of(model) | {
        "model": type(model).__name__,
        "tried": tried,
        "held_out": held_out,
        "words": n,
        "split by": random_state,
    }
    file = Checkpoint.of_call(checkpoint, "select_topics", x, about)
    with resumed(file, random_state) as (memory, rng):
        out = rng.random(x.shape[0]) < held_out
        if not 0 < out.sum() < len(out):
            raise invalid(
                "held_out", held_out, f"a share that leaves documents on both sides of {len(out)}"
            )
        train, test = _rows(x, np.flatnonzero(~out)), _rows(x, np.flatnonzero(out))
        seen, scored = split_tokens(test, random_state=rng)
        table = memory.last() or []
    for k in tried[len(table) :]:
        memory.offer(table)
        begin = time.perf_counter()
        seed_option = (
            {"checkpoint": f"{os.fspath(checkpoint)}.candidate-{len(table)}"}
            if keeps and checkpoint is not None
            else {}
        )
        fitted = clone(model).set_params(n_components=int(k), **seed_option).fit(train)
        # no candidate is judged by half a fit
        if fitted.fit_.trace.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        seconds = time.perf_counter() - begin
        t = fitted.fit_.factors
        judged = document_completion(
            t.words, seen, scored, prior=np.maximum(t.prior, 1e-3), engine=fitted._engine()
        )
        npmi = float(np.nanmean(coherence(t, test, n))) if t.n > 1 else float("nan")
        row = {
            "n_components": int(k),
            "perplexity": judged.perplexity,
            "npmi": npmi,
            "diversity": topic_diversity(t),
        }
        table.append(row | {"seconds": round(seconds, 3)})
    memory.end()
    return sorted(table, key=lambda r: r["perplexity"])


def _kept(x: Counts, data: np.ndarray) -> Counts:
    """The same documents with other counts; zeros are dropped."""
    held = data > 0
    ends = np.concatenate([[0], np.cumsum(held)])
    return replace(x, indptr=ends[x.indptr], indices=x.indices[held], data=data[held])


def _rows(x: Counts, rows: np.ndarray) -> Counts:
    part = x.to_scipy()[rows]
    return Counts(
        part.indptr,
        part.indices,
        part.data,
        x.n_columns,
        None if x.rows is None else x.rows[rows],
        x.columns,
    )


def _distributions(model: Any) -> np.ndarray:
    """p(w|z) in float64 of a model, its factors, or an array."""
    model = getattr(getattr(model, "fit_", None), "factors", model)
    p = numbers(
        "topics", model.words if isinstance(model, Topics) else model, "p(w|z), topics x words"
    )
    if p.ndim != 2 or not (np.isfinite(p) & (p >= 0)).all():
        raise InputError(f"topics must be finite shares >= 0, topics x words, got shape {p.shape}")
    return p / np.maximum(p.sum(axis=1, keepdims=True), 1e-300)


def _tops(topics: Any, n: int) -> tuple[list[list[Any]], np.ndarray | None]:
    """Top words as lists, with the names of columns that they are said in (None: those of the
    data)."""
    topics = getattr(getattr(topics, "fit_", None), "factors", topics)
    if isinstance(topics, Topics) or (isinstance(topics, np.ndarray) and topics.dtype.kind == "f"):
        plain = replace(topics, columns=None) if isinstance(topics, Topics) else topics
        return top_words(plain, n), None
    if n < 1:
        raise invalid("n", n, "an int >= 1")
    lists = (
        isinstance(topics, Iterable)
        and not isinstance(topics, (str, bytes, dict))
        and getattr(topics, "ndim", 1) != 0
    )
    tops = (
        [list(top)[:n] if isinstance(top, (list, tuple, np.ndarray)) else [] for top in topics]
        if lists
        else []
    )
    if not tops or not all(tops):
        raise invalid("topics", topics, "a topic model, p(w|z), or a list of words for each topic")
    return tops, None


def _positions(words: list[Any], names: np.ndarray | None) -> list[int]:
    if all(isinstance(w, (int, np.integer)) for w in words):
        return [int(w) for w in words]
    if names is None:
        raise InputError(
            f"topics hold names such as {words[0]!r}, but X has no column names; give "
            "positions, or a table with names"
        )
    at = {name: j for j, name in enumerate(names)}
    missing = [w for w in words if w not in at]
    if missing:
        raise InputError(
            f"the word {missing[0]!r} of a topic is no column of X ({len(missing)} of "
            f"{len(words)} words are not)"
        )
    return [at[w] for w in words]
