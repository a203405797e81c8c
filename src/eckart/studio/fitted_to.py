"""Whether rows look like those of a fit: a model keeps means and variances of its columns, and data
in other units or not scaled as they were differ in them.

With means m, variances v of the fit and m', v' of the rows, a warning where sum (m' - m)^2 > sum v,
or sum v' is 4 times sum v or a quarter of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.factors import Basis, Components, MixedColumns, Network
from eckart.report.mixtures import _covariances, means_of
from eckart.studio.opened import Opened, OpenedRows

COMPARED = ("reduce", "mixture", "table", "network")
"""Rooms whose models keep means and variances."""
LOOKED_AT = 2000
"""Rows that are compared: their means are within a few hundredths of a deviation of those of
all."""
FAR = 4.0
"""Ratio of variances: deviations twice as large are another unit or another population."""


def unlike(opened: Opened, rows: OpenedRows) -> str | None:
    """What differs between the rows of a file and those of the fit, in words; None where nothing
    does, or the model keeps nothing to compare with."""
    at = np.unique(np.linspace(0, max(0, rows.count - 1), min(rows.count, LOOKED_AT)).astype(int))
    found = _both(opened, rows, at)
    if found is None or not len(at):
        return None
    names, values, mean, variance = found
    known = ~np.isnan(values).all(axis=0)
    if not known.any() or not (size := float(variance[known].sum())) > 0:
        return None
    here, spread = (
        np.nanmean(values[:, known], axis=0),
        float(np.nanvar(values[:, known], axis=0).sum()),
    )
    away = (here - mean[known]) ** 2
    if away.sum() <= size and (len(at) < 2 or size / FAR <= spread <= size * FAR):
        return None
    j = int(np.argmax(away))
    column = np.asarray(names, object)[known][j]
    # what centering leaves is rounding
    before = 0.0 if mean[known][j] ** 2 <= 1e-12 * size else mean[known][j]
    return (
        f"{rows.file} is not what the model was fitted to, or not scaled as it was: "
        f"{column} has the mean {here[j]:.4g} here and had {before:.4g} "
        "at the fit, and the deviation of all columns together is "
        f"{np.sqrt(spread):.4g} here and was {np.sqrt(size):.4g}"
    )


def _both(
    opened: Opened, rows: OpenedRows, at: np.ndarray
) -> tuple[list[Any], np.ndarray, np.ndarray, np.ndarray] | None:
    """Names of columns, values of some rows, and means and variances of the fit, in the same
    units."""
    f, model = opened.factors, opened.model
    if isinstance(f, MixedColumns):
        parts = [
            p
            for p in model.parts_
            if not p.cycle and not p.discrete and not p.linked and p.kind in ("number", "integer")
        ]
        cells = rows.matrix.take(at)
        columns = [
            np.array([np.nan if v is None else float(v) for v in cells.column(p.name).to_pylist()])
            for p in parts
        ]
        scaled = [(c - p.offset) / p.scale for c, p in zip(columns, parts)]
        return (
            (
                [p.name for p in parts],
                np.column_stack(scaled),
                np.zeros(len(parts)),
                np.ones(len(parts)),
            )
            if parts
            else None
        )
    names = opened.column_names()
    if isinstance(f, Basis):
        if not f.centered:
            return None
        scale = getattr(model, "scale_", None)
        return (
            names,
            rows.dense(at) / (1.0 if scale is None else scale),
            np.asarray(f.mean),
            np.full(f.n, f.total / f.degrees / f.n),
        )
    if isinstance(f, Network):
        return (
            names,
            rows.dense(at),
            np.broadcast_to(f.mean, f.n),
            np.broadcast_to(np.square(f.spread), f.n),
        )
    if (
        isinstance(f, Components)
        and (means := means_of(model)) is not None
        and (covariances := _covariances(model)) is not None
    ):
        centre = f.weights @ means
        inside = np.array([np.diagonal(c) for c in covariances])
        return names, rows.dense(at), centre, f.weights @ (inside + (means - centre) ** 2)
    return None
