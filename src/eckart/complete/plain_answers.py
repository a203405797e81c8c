"""How a fit does beside the answers that need no factors, on entries it was fitted to: a lower
bound of what it would show elsewhere.

A fit that is no better than the mean even there says nothing. One that is better may still be worse
on other entries: ``ALS`` hides some where it chooses its ridge, and tells the errors on these.
"""

from __future__ import annotations

import numpy as np

from eckart.complete.biases import BiasSums, balanced, ridged
from eckart.factors import LowRank
from eckart.fit import Fit
from eckart.matrix import Observed
from eckart.matrix_blocks import parts_of
from eckart.terms import loss_from

LOOKED_AT = 100_000
"""Entries that are compared, evenly over all."""
BIASES_UP_TO, DAMPING, STEPS = 2_000_000, 3.0, 20
"""Entries up to which biases are computed, their ridge, and steps of conjugate gradients."""


def own_errors(fit: Fit, x: Observed) -> dict[str, float]:
    """Mean squared errors of the model, of biases and of the mean; nothing for entries in parts,
    and where all are the same."""
    f = fit.factors
    if not isinstance(f, LowRank) or parts_of(x) is not None or not x.nnz:
        return {}
    at = np.unique(np.linspace(0, x.nnz - 1, min(x.nnz, LOOKED_AT)).astype(np.int64))
    rows, columns = np.searchsorted(x.indptr, at, side="right") - 1, x.indices[at]
    values, s = x.data[at].astype(np.float64), f.at(rows, columns).astype(np.float64)
    kept = fit.plan.get("loss")
    guess = s if kept is None else loss_from(kept).mean(s)
    mean = float(x.data.mean(dtype=np.float64))
    unit = float(np.abs(values - mean).max(initial=0.0))
    if not unit > 0:
        return {}

    def error(prediction: np.ndarray | float) -> float:
        return float(np.mean(((values - prediction) / unit) ** 2)) * unit**2

    errors = {"entries": len(at), "model": error(guess)}
    if x.nnz <= BIASES_UP_TO:
        everywhere = np.repeat(np.arange(x.shape[0]), x.row_counts())
        sums = BiasSums.of(everywhere, x.indices, x.data - mean, x.shape)  # type: ignore[arg-type]
        b, c, _ = balanced(
            sums,
            ridged(x.row_counts(), DAMPING, False),
            ridged(x.column_counts(), DAMPING, False),
            STEPS,
        )
        errors["biases"] = error(mean + b[rows] + c[columns])
    return errors | {"mean": error(mean)}
