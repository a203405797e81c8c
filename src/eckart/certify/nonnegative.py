"""Evidence about a non-negative factorization A ~ W H, measured at the returned point.

The first-order conditions are u >= 0, gradient >= 0 and u x gradient = 0 for every entry u of W and H, that is min(u, gradient) = 0. The residual is the size
of that minimum over all entries of a factor, each in units of its curvature (``engines.cpu.parts.kernels``), against sqrt(2 F), F the objective, or a
hundredth of the size of A where the fit is better than that. It does not change with the units of A or with the scale that W and H may pass to each
other. Squared, it is about the share of F that one more step could still take off. The problem is not convex: the point is stationary, another one
may be better (restarts tell).

``sides`` is one of ``explain.parts.sides``.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check

SQUARE_LIMIT, KL_LIMIT = 1e-2, 2e-2


def certify_parts(
    sides: Any, left: np.ndarray, right: np.ndarray, trace: Any, loss: str, notes: tuple[str, ...] = ()
) -> Certificate:
    """The certificate of W = ``left`` and H = ``right``^T on the data of ``sides``."""
    rows, columns = (half(left, right, still=True) for half in (sides.rows, sides.columns))
    data = sides.loss(left, right)
    value = data + sides.cost_left(left) + sides.cost_right(right)
    limit = KL_LIMIT if loss == "kl" else SQUARE_LIMIT
    meaning = "size of min(entry, gradient) against the misfit"
    lowest = min(float(left.min(initial=0.0)), float(right.min(initial=0.0)))
    finite = np.isfinite(value) and np.isfinite(left).all() and np.isfinite(right).all()
    checks = [
        Check("residual of W", rows.residual, limit, meaning),
        Check("residual of H", columns.residual, limit, meaning),
        Check("negative part", -lowest, 0.0, "size of the most negative entry"),
        Check("finite", 0.0 if finite else 1.0, 0.0, "the factors and the objective are finite numbers"),
    ]
    facts: dict[str, Any] = {"objective": value, "data term": data, "stopped": trace.reason.value}
    if loss != "kl" and sides.totals.square > 0:
        facts["relative error"] = float(np.sqrt(2 * data / sides.totals.square))
    elif sides.totals.total > 0:
        facts["divergence per unit of mass"] = data / sides.totals.total
    dead = int(np.sum(~((left > 0).any(axis=0) & (right > 0).any(axis=0))))
    if dead:
        facts["components that are zero"] = dead
    problem = f"non-negative factorization, {'Kullback-Leibler divergence' if loss == 'kl' else 'least squares'}"
    return with_trace(Certificate(problem, "stationary", tuple(checks), facts, notes), sides, trace, left.dtype)


def with_trace(certificate: Certificate, sides: Any, trace: Any, dtype: Any) -> Certificate:
    """The certificate with its check of the trace made anew."""
    checks = [check for check in certificate.checks if check.name != "never rises"]
    if len(trace.values) > 1:
        scale = max(*map(abs, trace.values), sides.scale) or 1.0
        rise = max(max(b - a for a, b in itertools.pairwise(trace.values)), 0.0) / scale
        rounding = 50 * float(np.finfo(dtype).eps)
        checks.append(Check("never rises", rise, rounding, "largest rise of the objective between sweeps, relative"))
    return replace(certificate, checks=tuple(checks))
