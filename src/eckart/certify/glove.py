"""Evidence about GloVe vectors, measured at the returned point on the co-occurrences.

With the residual d = log N - <zeta_w, z_v> - b_w - c_v at the pairs that were seen and R = f d, the loss is J = sum f d^2 over pairs (given as a mean), and the
gradient of J / 2 (with the ridge L) is L zeta - R z for the words, M z - R^T zeta for the contexts, minus the row and column sums of R for the biases.

Its size is given relative to that of the parts that cancel in it: R z against the same sum with f (log N - b - c) in the place of R, the sums of R
against those of f |log N|, whichever is larger. 1 is far away (also near the saddle at zeta = z = 0), 0 is critical.
The problem is not convex: a stationary point is what can be proven.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.engines.protocol import RidgeRule
from eckart.factors import Embedding
from eckart.matrix import Counts, Observed
from eckart.trace import Trace

GRADIENT_LIMIT = 0.02


class GloveProblem(NamedTuple):
    """log N at the pairs that were seen and the weights f, by rows and by columns, and the ridge."""

    x: Observed
    xt: Observed
    weights: np.ndarray
    weights_t: np.ndarray
    rule: RidgeRule

    def loss(self, data: float) -> float:
        """The mean of f d^2 over pairs, of half its sum."""
        return 2.0 * data / max(1, self.x.nnz)


def certify_glove(
    p: GloveProblem, f: Embedding, engine: Any, trace: Trace, objective: list[float] | None = None
) -> Certificate:
    """The certificate of an embedding; ``objective`` (with the ridge, after each half sweep of ALS) must never rise."""
    assert f.context is not None
    assert f.bias is not None
    assert f.context_bias is not None
    sides = (
        (p.x, p.weights, f.vectors, f.context, f.bias, f.context_bias),
        (p.xt, p.weights_t, f.context, f.vectors, f.context_bias, f.bias),
    )
    data, sizes = 0.0, np.zeros((2, 2))  # squares of gradients and of their parts: of the vectors, of the biases
    for x, weights, own, other, bias, beside in sides:
        seen = engine.evidence_rows(x, own, other, p.rule, own=bias, other=beside, weights=weights)
        data = seen.value
        ridge, bias_ridge = p.rule.ridges(x.row_counts())
        sizes[0, 0] += np.sum((ridge[:, None] * own - seen.pull.astype(np.float64)) ** 2)
        sizes[1, 0] += np.sum((bias_ridge * bias - seen.row_sum) ** 2)
        target = weights * (x.data - np.repeat(bias, x.row_counts()) - beside[x.indices])
        sizes[0, 1] += np.sum(engine.times(Counts(x.indptr, x.indices, target, x.n_columns), other, None) ** 2.0)
        pull = np.bincount(np.repeat(np.arange(x.shape[0]), x.row_counts()), np.abs(weights * x.data), x.shape[0])
        sizes[1, 1] += np.sum(pull**2)
    slope = float(np.sqrt(np.max(sizes[:, 0] / np.maximum(sizes[:, 1], 1e-30))))
    checks = [
        Check("relative gradient", slope, GRADIENT_LIMIT, "size of the gradient against the parts that cancel in it"),
        Check("finite", 0.0 if np.isfinite(data) else 1.0, 0.0, "the loss is a finite number"),
    ]
    if objective and len(objective) > 1:
        rise = max(max(b - a for a, b in itertools.pairwise(objective)), 0.0) / max(_zero(p), abs(objective[0]), 1e-30)
        rounding = 50 * float(np.finfo(f.vectors.dtype).eps)
        checks.append(Check("never rises", rise, rounding, "largest rise of the objective at a half sweep, relative"))
    total = float(p.weights.sum(dtype=np.float64))
    facts = {
        "loss": p.loss(data),
        "weighted residual": float(np.sqrt(2.0 * data / total)) if total > 0 else 0.0,
        "pairs": p.x.nnz,
        "stopped": trace.reason.value,
    }
    problem = "fit log counts: min sum f(N) (log N - <zeta, z> - b - c)^2 over the pairs that were seen"
    return Certificate(problem, "stationary", tuple(checks), facts)


def _zero(p: GloveProblem) -> float:
    """The objective at zero."""
    return 0.5 * float(np.sum(p.weights * np.square(p.x.data, dtype=np.float64)))
