"""Evidence about a non-negative factorization A ~ W H, measured at the returned point.

The first-order conditions are u >= 0, gradient >= 0 and u x gradient = 0 for every entry u of W and
H, that is min(u, gradient) = 0. The residual is the size of that minimum over all entries of a
factor, each in units of its curvature (``engines.protocol.parts.Descent``), against sqrt(2 F), F
the objective, or a hundredth of the size of A where the fit is better than that. It does not change
with the units of A or with the scale that W and H may pass to each other. Squared, it is about the
share of F that one more step could still take off. The problem is not convex: the point is
stationary, another one may be better (restarts tell).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate, Check, never_rises, roundings
from eckart.engines.protocol import FactorSums, Totals
from eckart.trace import Trace

SQUARE_LIMIT, KL_LIMIT = 1e-2, 2e-2
"""Squared: one more step would take off about a ten-thousandth of F, and four of them for KL and
the other divergences."""


class MeasuredFactors(NamedTuple):
    """What was measured at W and H: the objective and its part that comes from the data, the
    residual of each factor, and the sums of both.

    ``residuals`` of W and, where it was measured, of H. ``scale`` is the size of the numbers whose
    rounding the objective carries.
    """

    loss: str
    objective: float
    data: float
    residuals: tuple[float, ...]
    factors: tuple[FactorSums, FactorSums]
    totals: Totals
    scale: float
    dtype: np.dtype
    beta: float = 2.0


def certify_parts(m: MeasuredFactors, trace: Trace, notes: tuple[str, ...] = ()) -> Certificate:
    """The certificate of what was measured."""
    limit = SQUARE_LIMIT if m.loss == "frobenius" else KL_LIMIT
    meaning = "size of min(entry, gradient) against the misfit"
    lowest = min(0.0, *(f.least for f in m.factors))
    finite = np.isfinite(m.objective) and all(np.isfinite(f.square).all() for f in m.factors)
    checks = [
        *(
            Check(f"residual of {name}", size, limit, meaning)
            for name, size in zip("WH", m.residuals)
        ),
        Check("negative part", -lowest, 0.0, "size of the most negative entry"),
        Check(
            "finite",
            0.0 if finite else 1.0,
            0.0,
            "the factors and the objective are finite numbers",
        ),
    ]
    facts: dict[str, Any] = {
        "objective": m.objective,
        "data term": m.data,
        "stopped": trace.reason.value,
    }
    if m.loss == "frobenius" and m.totals.square > 0:
        facts["relative error"] = float(np.sqrt(2 * m.data / m.totals.square))
    elif m.loss == "beta":
        facts["divergence of an entry"] = m.data / max(m.totals.cells, 1.0)
    elif m.totals.total > 0:
        facts["divergence per unit of mass"] = m.data / m.totals.total
    dead = int(np.sum(~((m.factors[0].most > 0) & (m.factors[1].most > 0))))
    if dead:
        facts["components that are zero"] = dead
    losses = {"kl": "Kullback-Leibler divergence", "frobenius": "least squares"}
    named = "Itakura-Saito divergence" if m.beta == 0 else f"beta-divergence with beta = {m.beta:g}"
    problem = f"non-negative factorization, {losses.get(m.loss, named)}"
    return with_trace(Certificate(problem, "stationary", tuple(checks), facts, notes), m, trace)


def with_trace(certificate: Certificate, m: MeasuredFactors, trace: Trace) -> Certificate:
    """The certificate with its check of the trace made anew."""
    checks = [check for check in certificate.checks if check.name != "never rises"]
    checks += never_rises(trace.values, roundings(m.dtype), m.scale, "between sweeps")
    return replace(certificate, checks=tuple(checks))
