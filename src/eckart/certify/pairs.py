"""Evidence about skip-gram vectors, measured on counts of pairs N_wv, never on what the solver
remembered.

With scores s_wv = <zeta_w, z_v> + b_v, the words' pairs N_w = sum_v N_wv, noise q and r negatives,
the loss of a pair is

    negative    ( sum_wv N_wv softplus(-s_wv) + r sum_wv N_w q_v softplus(s_wv) ) / sum N
    softmax     - sum_wv N_wv ( s_wv - log sum_u exp s_wu ) / sum N

Every cell alone is best at s_wv = log N_wv / (r N_w q_v), which is PMI - log r where q are the
words' shares (for the softmax at log N_wv / N_w). The loss there is a lower bound for vectors of
any length:

    gap         loss - lower bound; what the rank and the training cost
    chance      the least loss of scores s_wv = c_v that know nothing of w: as above, with sum_w
    N_wv for N_wv. Vectors with a larger loss have learned
                nothing about which words stand together
    gradient    || d loss / d zeta || over the sizes of its two halves, which cancel at a stationary
    point

Both are measured on rows w: all of them, or the most frequent ones and a sample of the others that
stands for the rest.

Evidence about GloVe vectors, measured at the returned point on the co-occurrences.

With the residual d = log N - <zeta_w, z_v> - b_w - c_v at the pairs that were seen and R = f d, the
loss is J = sum f d^2 over pairs (given as a mean), and the gradient of J / 2 (with the ridge L) is
L zeta - R z for the words, M z - R^T zeta for the contexts, minus the row and column sums of R for
the biases.

Its size is given relative to that of the parts that cancel in it: R z against the same sum with f
(log N - b - c) in the place of R, the sums of R against those of f |log N|, whichever is larger. 1
is far away (also near the saddle at zeta = z = 0), 0 is critical. The problem is not convex: a
stationary point is what can be proven.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from eckart.certify.certificate import Certificate, Check, finite, never_rises, roundings
from eckart.engines.protocol import Engine, Placed, RidgeRule, ScoreRule, Tall
from eckart.factors import Embedding
from eckart.matrix import Counts, Observed
from eckart.trace import StopReason, Trace

ALL, OFTEN, OTHERS = 1024, 384, 384
"""Rows up to which all are measured; else the most frequent ones, and others drawn at random."""
CHANCE = "loss over chance"
"""The check that vectors know more than how often each word comes."""
GRADIENT = {"stochastic": 0.05, "exact": 1e-2}
"""Limits: steps on single pairs stray around the point that an exact solver goes to."""


class PairWeights(NamedTuple):
    """The problem: counts of pairs, the noise shares q (sum 1), r, and which loss."""

    counts: Counts
    noise: np.ndarray
    negatives: float
    loss: str = "negative"


class MeasuredPairs(NamedTuple):
    """Mean loss of a pair, its lower bound, the loss without vectors, that of words independent of
    each other, and the relative gradient."""

    loss: float
    bound: float
    start: float
    chance: float
    gradient: float
    rows: int


def measure(p: PairWeights, f: Embedding, engine: Engine, seed: int = 0) -> MeasuredPairs:
    """Loss, bound and gradient on the rows of a fixed sample."""
    context = f.vectors if f.context is None else f.context
    csr = p.counts.to_scipy()
    chosen, stands_for = _sample(np.asarray(csr.sum(axis=1)).ravel(), seed)
    rows = csr[chosen]
    x = engine.put(Counts(rows.indptr, rows.indices, rows.data, f.n), stands_for)
    rule = ScoreRule(p.noise, p.negatives, p.loss == "softmax")
    e = engine.pair_scores(x, f.vectors[chosen], context, f.context_bias, rule)
    pairs, (pull, push, both) = max(e.pairs, 1e-300), np.sqrt([e.pull, e.push, e.both])
    gradient = float(both / (pull + push)) if pull + push > 0 else 0.0
    return MeasuredPairs(
        e.loss / pairs,
        e.bound / pairs,
        e.start / pairs,
        _chance(rows, stands_for, p),
        gradient,
        len(chosen),
    )


def _chance(rows: Any, weights: np.ndarray, p: PairWeights) -> float:
    """The least loss of a pair for scores that depend on the other word alone."""
    near = weights @ rows.astype(np.float64)
    total = max(float(near.sum()), 1e-300)
    if p.loss == "softmax":
        return float(-xlogy(near, near / total).sum() / total)
    away = p.negatives * total * p.noise
    both = near + away
    return float((xlogy(both, both) - xlogy(near, near) - xlogy(away, away)).sum() / total)


def certify_pairs(
    p: PairWeights,
    f: Embedding,
    engine: Engine,
    *,
    solver: str,
    trace: Trace,
    facts: dict[str, Any],
) -> Certificate:
    """Is this a stationary point, how far is its loss from what no vectors can beat, and is it
    lower than that of words independent of each other?"""
    m = measure(p, f, engine)
    checks = [
        Check(
            "gradient",
            m.gradient,
            GRADIENT[solver],
            "size of the gradient of the words' vectors, over its two halves",
        ),
        Check(
            CHANCE,
            m.loss - m.chance,
            0.0,
            "loss minus the least loss of scores that do not know the word looked at",
        ),
    ]
    if trace.reason is StopReason.INTERRUPTED:
        checks.append(Check("interrupted", 1, 0, "the fit was interrupted before its end"))
    known = {
        "loss of a pair": m.loss,
        "lower bound": m.bound,
        "gap": m.loss - m.bound,
        "loss without vectors": m.start,
        "loss by chance": m.chance,
        "rows measured": m.rows,
    }
    what = "softmax" if p.loss == "softmax" else f"{p.negatives:g} negatives"
    problem = f"skip-gram ({what}): {f.n} words, {f.k} numbers each"
    note = (
        "the lower bound is the loss of the best score for each pair by itself (shifted PMI), "
        "which no vectors can beat"
    )
    return Certificate(problem, "stationary", tuple(checks), known | facts, (note,))


def _sample(total: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and how many rows each stands for."""
    n = len(total)
    if n <= ALL:
        return np.arange(n), np.ones(n)
    order = np.argsort(-total, kind="stable")
    others = np.random.default_rng(seed).choice(order[OFTEN:], OTHERS, replace=False)
    weights = np.concatenate([np.ones(OFTEN), np.full(OTHERS, (n - OFTEN) / OTHERS)])
    return np.concatenate([order[:OFTEN], others]), weights


GRADIENT_LIMIT = 0.02
"""As for other factors fitted by alternating least squares (``stationary``): what is left to gain
is about its square."""


class GloveProblem(NamedTuple):
    """log N at the pairs that were seen with the weights f, placed; the ridge; and sums of the
    entries: of f, of f (log N)^2 / 2 (the objective at zero), and of the squares of the rows' and
    of the columns' sums of f |log N|."""

    x: Placed
    rule: RidgeRule
    total: float
    zero: float
    pull: tuple[float, float]

    @classmethod
    def of(cls, x: Observed, weights: np.ndarray, rule: RidgeRule, engine: Engine) -> GloveProblem:
        size = np.abs(weights * x.data)
        rows = np.bincount(np.repeat(np.arange(x.shape[0]), x.row_counts()), size, x.shape[0])
        columns = np.bincount(x.indices, size, x.n_columns)
        zero = 0.5 * float(np.sum(weights * np.square(x.data, dtype=np.float64)))
        placed = engine.put(x, entry_weights=weights)
        return cls(
            placed,
            rule,
            float(weights.sum(dtype=np.float64)),
            zero,
            (float(rows @ rows), float(columns @ columns)),
        )

    def loss(self, data: float) -> float:
        """The mean of f d^2 over pairs, of half its sum."""
        return 2.0 * data / max(1, self.x.nnz)


def certify_glove(
    p: GloveProblem,
    f: Embedding,
    engine: Engine,
    trace: Trace,
    objective: list[float] | None = None,
) -> Certificate:
    """The certificate of an embedding; ``objective`` (with the ridge, after each half sweep of ALS)
    must never rise."""
    assert f.context is not None
    assert f.bias is not None
    assert f.context_bias is not None
    # squares of gradients and of their parts: of the vectors, of the biases
    data, sizes = 0.0, np.zeros((2, 2))
    u, v, b, c = (engine.take(part) for part in (f.vectors, f.context, f.bias, f.context_bias))
    nothing = engine.take(np.zeros_like(f.vectors))
    sides = ((p.x, u, v, b, c, f.bias), (p.x.T, v, u, c, b, f.context_bias))
    for i, (x, own, other, bias, other_bias, numbers) in enumerate(sides):
        seen = engine.evidence_rows(x, own, other, p.rule, own=bias, other=other_bias)
        data = seen.value
        ridge, bias_ridge = p.rule.ridges(x.counts)
        sizes[0, 0] += _square(engine, own, seen.pull, ridge)
        sizes[1, 0] += np.sum((bias_ridge * numbers - engine.get(seen.row_sum)) ** 2)
        target = engine.evidence_rows(x, nothing, other, p.rule, own=bias, other=other_bias).pull
        sizes[0, 1] += _square(engine, own, target, 0.0 * ridge)
        sizes[1, 1] += p.pull[i]
    slope = float(np.sqrt(np.max(sizes[:, 0] / np.maximum(sizes[:, 1], 1e-30))))
    checks = [
        Check(
            "relative gradient",
            slope,
            GRADIENT_LIMIT,
            "size of the gradient against the parts that cancel in it",
        ),
        finite(data, "loss"),
    ]
    if objective:
        checks += never_rises(
            objective, roundings(f.vectors.dtype), scale=max(p.zero, abs(objective[0]), 1e-30)
        )
    facts = {
        "loss": p.loss(data),
        "weighted residual": float(np.sqrt(2.0 * data / p.total)) if p.total > 0 else 0.0,
        "pairs": p.x.nnz,
        "stopped": trace.reason.value,
    }
    problem = (
        "fit log counts: min sum f(N) (log N - <zeta, z> - b - c)^2 over the pairs that were seen"
    )
    return Certificate(problem, "stationary", tuple(checks), facts)


def _square(engine: Engine, u: Tall, pull: Tall, ridge: np.ndarray) -> float:
    """sum_i ||l_i u_i - pull_i||^2, multiplied out; the weights are float64, so that what cancels
    does so in float64."""
    parts = ((u, u, ridge**2), (u, pull, -2.0 * ridge), (pull, pull, np.ones(len(ridge))))
    return max(float(sum(np.trace(engine.inner(a, b, engine.take(w))) for a, b, w in parts)), 0.0)
