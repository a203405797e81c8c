"""Entries whose squares leave the range of their precision: the problem is solved for the data
times a power of two, which costs no digit, and the answer brought back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eckart.engines.protocol import Engine
from eckart.errors import InputError
from eckart.factors import Basis
from eckart.fit import Fit
from eckart.matrix import SQUARABLE, Dense, Matrix


def lost(total: float, x: Matrix) -> bool:
    """Whether squares overflowed, or are so small that they may have vanished."""
    low, high = (1e-25, 1e25) if x.dtype == np.float32 else (1e-150, 1e150)
    return not low <= total <= high


def power_of_two(x: Matrix, placed: Any, engine: Engine) -> float:
    """What brings the largest entry near one; 1 where all entries are zero."""
    if isinstance(x, Dense) and not x.in_memory and not x.stream.rereadable:
        raise InputError(
            "X is an iterator whose entries are too large or too small to square; "
            "multiply them by a constant first"
        )
    largest = engine.largest(placed)
    if largest == 0.0 or not np.isfinite(largest) or 1e-10 <= largest <= 1e10:
        return 1.0
    return float(
        2.0 ** min(-np.floor(np.log2(largest)), 1023.0)
    )  # the largest power of two: entries below the normal range ask for more


def in_range(
    x: Matrix, placed: Any, b: Basis, engine: Engine
) -> tuple[Any, Basis, tuple[str, ...]]:
    """Data and a basis times the power of two that brings the entries where they can be squared,
    and a note of it; both as they are where they can be."""
    low, high = SQUARABLE[x.dtype]
    largest = engine.largest(placed)
    if largest == 0.0 or not np.isfinite(largest) or low <= largest <= high:
        return placed, b, ()
    factor = power_of_two(x, placed, engine)
    basis = _times(b, factor)
    if not all(
        np.isfinite(part).all() for part in (basis.mean, basis.scatter, basis.total, basis.noise)
    ):
        raise InputError(
            "X must be the data that the model was fitted to, got entries near "
            f"{1 / factor:.0e}, far smaller than the model"
        )
    return engine.scaled(placed, factor), basis, (_note(x, factor),)


def unscaled(fit: Fit, factor: float, x: Matrix) -> Fit:
    """The fit of the data times ``factor`` as one of x."""
    basis = _times(fit.factors, 1 / factor)
    if not np.isfinite(basis.total) or (basis.total == 0 and fit.factors.total > 0):
        raise InputError(
            f"X has entries near {1 / factor:.0e}, whose variance is beyond the range "
            f"of float64; multiply X by {factor:.0e} first"
        )
    notes = (*fit.certificate.notes, _note(x, factor))
    return Fit(
        basis, replace(fit.certificate, notes=notes), fit.trace, fit.plan | {"scale": factor}
    )


def _times(b: Basis, factor: float) -> Basis:
    """The basis of the data times ``factor``."""
    with np.errstate(over="ignore", under="ignore"):
        mean = (b.mean.astype(np.float64) * factor).astype(b.mean.dtype)
        return replace(
            b,
            mean=mean,
            **{name: getattr(b, name) * factor * factor for name in ("scatter", "total", "noise")},
        )


def _note(x: Matrix, factor: float) -> str:
    return (
        f"measured on the data times 2^{int(np.log2(factor))}, because squares of its entries "
        f"leave the range of {x.dtype.name}"
    )
