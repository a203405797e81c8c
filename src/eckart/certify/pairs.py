"""Evidence about skip-gram vectors, measured on counts of pairs N_wv, never on what the solver remembered.

With scores s_wv = <zeta_w, z_v> + b_v, the words' pairs N_w = sum_v N_wv, noise q and r negatives, the loss of a pair is

    negative    ( sum_wv N_wv softplus(-s_wv) + r sum_wv N_w q_v softplus(s_wv) ) / sum N
    softmax     - sum_wv N_wv ( s_wv - log sum_u exp s_wu ) / sum N

Every cell alone is best at s_wv = log N_wv / (r N_w q_v), which is PMI - log r where q are the words' shares (for the softmax at log N_wv / N_w). The loss
there is a lower bound for vectors of any length:

    gap         loss - lower bound; what the rank and the training cost
    gradient    || d loss / d zeta || over the sizes of its two halves, which cancel at a stationary point

Both are measured on rows w: all of them, or the most frequent ones and a sample of the others that stands for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, xlogy

from eckart.certify.certificate import Certificate, Check
from eckart.factors import Embedding
from eckart.matrix import Counts
from eckart.trace import StopReason, Trace

ALL, OFTEN, OTHERS = 1024, 384, 384
"""Rows up to which all are measured; else the most frequent ones, and others drawn at random."""
ROWS = 64
GRADIENT = {"stochastic": 0.05, "exact": 1e-2}


class Pairs(NamedTuple):
    """The problem: counts of pairs, the noise shares q (sum 1), r, and which loss."""

    counts: Counts
    noise: np.ndarray
    negatives: float
    loss: str = "negative"


class Measured(NamedTuple):
    """Mean loss of a pair, its lower bound, the loss without vectors, and the relative gradient."""

    loss: float
    bound: float
    start: float
    gradient: float
    rows: int


def measure(p: Pairs, f: Embedding, seed: int = 0) -> Measured:
    """Loss, bound and gradient on the rows of a fixed sample."""
    context = f.vectors if f.context is None else f.context
    total = np.asarray(p.counts.to_scipy().sum(axis=1)).ravel()
    chosen, stands_for = _sample(total, seed)
    rule = _softmax if p.loss == "softmax" else _negative
    sums, sizes = np.zeros(3), np.zeros(3)
    for part in _parts(len(chosen)):
        at, weight = chosen[part], stands_for[part]
        scores = f.vectors[at] @ context.T
        if f.context_bias is not None:
            scores += f.context_bias
        rows = _Rows.of(p.counts, at)
        values, plus, minus = rule(p, rows, scores, total[at])
        sums += [float(weight @ v) for v in values]
        up, down = (weight[:, None] * (side @ context).astype(np.float64) for side in (plus, minus))
        sizes += [float(np.sum(side * side)) for side in (up, down, up - down)]
    pairs = max(float(stands_for @ total[chosen]), 1e-300)
    pull, push, both = np.sqrt(sizes)
    gradient = float(both / (pull + push)) if pull + push > 0 else 0.0
    loss, bound, start = (float(s / pairs) for s in sums)
    return Measured(loss, bound, start, gradient, len(chosen))


def certify_pairs(p: Pairs, f: Embedding, *, solver: str, trace: Trace, facts: dict[str, Any]) -> Certificate:
    """Is this a stationary point, how far is its loss from what no vectors can beat, and from no vectors at all?"""
    m = measure(p, f)
    checks = [
        Check(
            "gradient", m.gradient, GRADIENT[solver], "size of the gradient of the words' vectors, over its two halves"
        ),
        Check("loss over start", m.loss - m.start, 0.0, "loss minus the loss without vectors"),
    ]
    if trace.reason is StopReason.INTERRUPTED:
        checks.append(Check("interrupted", 1, 0, "the fit was interrupted before its end"))
    known = {
        "loss of a pair": m.loss,
        "lower bound": m.bound,
        "gap": m.loss - m.bound,
        "loss without vectors": m.start,
        "rows measured": m.rows,
    }
    what = "softmax" if p.loss == "softmax" else f"{p.negatives:g} negatives"
    problem = f"skip-gram ({what}): {f.n} words, {f.k} numbers each"
    note = (
        "the lower bound is the loss of the best score for each pair by itself (shifted PMI), which no vectors can beat"
    )
    return Certificate(problem, "stationary", tuple(checks), known | facts, (note,))


class _Rows(NamedTuple):
    """Entries of some rows of the counts: which of these rows, which column, and how many."""

    row: np.ndarray
    column: np.ndarray
    seen: np.ndarray
    rows: int

    @classmethod
    def of(cls, x: Counts, at: np.ndarray) -> _Rows:
        spans = [slice(x.indptr[w], x.indptr[w + 1]) for w in at]
        row = np.repeat(np.arange(len(at)), [s.stop - s.start for s in spans])
        columns, seen = (np.concatenate([side[s] for s in spans]) for side in (x.indices, x.data))
        return cls(row, columns, seen, len(at))

    def sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.row, values, self.rows)

    def add(self, values: np.ndarray, to: np.ndarray) -> np.ndarray:
        """``to`` with the values at the entries."""
        to[self.row, self.column] += values.astype(to.dtype)
        return to


Sides = tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]
"""Loss, lower bound and loss without vectors of each row; and the two halves of the gradient of its scores."""


def _negative(p: Pairs, rows: _Rows, s: np.ndarray, total: np.ndarray) -> Sides:
    seen, at = rows.seen, (rows.row, rows.column)
    away = p.negatives * total[:, None] * p.noise
    small = np.exp(-np.abs(s))
    soft = np.log1p(small) + np.maximum(s, 0)
    value = rows.sums(seen * (soft[at] - s[at])) + np.einsum("wv,wv->w", away, soft, dtype=np.float64)
    noise, both = away[at], seen + away[at]
    bound = rows.sums(xlogy(both, both) - xlogy(seen, seen) - xlogy(noise, noise))
    # without vectors the best single score has sigma = 1 / (1 + r)
    start = total * (np.log1p(p.negatives) + p.negatives * np.log1p(1.0 / p.negatives))
    sigma = np.where(s >= 0, 1, small) / (1 + small)
    minus = (away * sigma).astype(s.dtype)
    return (value, bound, start), rows.add(seen * (1.0 - sigma[at]), np.zeros_like(s)), minus


def _softmax(p: Pairs, rows: _Rows, s: np.ndarray, total: np.ndarray) -> Sides:
    seen, at = rows.seen, (rows.row, rows.column)
    norm = logsumexp(s, axis=1, keepdims=True)
    value = rows.sums(seen * (norm[rows.row, 0] - s[at]))
    bound = -rows.sums(xlogy(seen, seen / total[rows.row]))
    start = -rows.sums(xlogy(seen, p.noise[rows.column]))
    return (value, bound, start), rows.add(seen, np.zeros_like(s)), (total[:, None] * np.exp(s - norm)).astype(s.dtype)


def _sample(total: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and how many rows each stands for."""
    n = len(total)
    if n <= ALL:
        return np.arange(n), np.ones(n)
    order = np.argsort(-total, kind="stable")
    others = np.random.default_rng(seed).choice(order[OFTEN:], OTHERS, replace=False)
    weights = np.concatenate([np.ones(OFTEN), np.full(OTHERS, (n - OFTEN) / OTHERS)])
    return np.concatenate([order[:OFTEN], others]), weights


def _parts(count: int) -> Iterator[slice]:
    return (slice(a, min(a + ROWS, count)) for a in range(0, count, ROWS))
