"""Evidence about GloVe vectors, measured at the returned point on the co-occurrences.

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

from typing import NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate, Check, finite, never_rises, roundings
from eckart.engines.protocol import Engine, Placed, RidgeRule, Tall
from eckart.factors import Embedding
from eckart.matrix import Observed
from eckart.trace import Trace

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
