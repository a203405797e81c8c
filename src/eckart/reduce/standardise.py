"""Columns in units of their own standard deviations, and how far apart these are.

Components follow variance, and variance has the unit of its column squared: a column in milligrams
outweighs the same column in kilograms by 10^12. Dividing every column by its standard deviation s_j
(divisor: the weight of its observed entries) turns the covariance into the correlations, which do
not depend on units. A column whose spread is that of rounding is left as it is.

Entries whose squares leave the range of their precision: the problem is solved for the data
times a power of two, which costs no digit, and the answer brought back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.engines.protocol import Engine, Moments
from eckart.errors import InputError
from eckart.factors import Basis
from eckart.fit import Fit, on_data
from eckart.matrix import SQUARABLE, Dense, Matrix, RowBlocks

APART = 10.0
"""Standard deviations this many times apart are usually those of different units: one column then
has a hundred times the variance of another."""
FEW = 0.5
"""... and where they are, few columns hold most of the variance: their effective number (sum v)^2 /
sum v^2 is at most this share of them. Pixels of images differ as much, those at the edge being
almost constant, but the variance is spread over many of them."""


@dataclass(frozen=True)
class Units:
    """Standard deviations of columns: the positions of the largest and the smallest (above
    rounding), their ratio, and the share of the largest in the total variance.

    >>> units = Units.of(np.array([0.1, 300.0, 2.0]), np.zeros(3), 1e-16)
    >>> units.largest, round(units.ratio), units.differ
    (1, 3000, True)
    """

    largest: int
    smallest: int
    ratio: float
    share: float
    effective: float
    columns: int

    @classmethod
    def of(cls, deviations: np.ndarray, mean: np.ndarray, eps: float) -> Units | None:
        """None where fewer than two columns vary."""
        varies = np.flatnonzero(above_rounding(deviations, mean, eps))
        if len(varies) < 2:
            return None
        s = deviations[varies] / deviations[varies].max()
        v = s * s
        at = varies[int(s.argmax())], varies[int(s.argmin())]
        return cls(
            int(at[0]),
            int(at[1]),
            float(1 / s.min()),
            float(1 / v.sum()),
            float(v.sum() ** 2 / (v @ v)),
            len(varies),
        )

    @property
    def differ(self) -> bool:
        """Whether the columns seem to have different units, so that the largest decides the
        components."""
        return self.ratio >= APART and self.effective <= FEW * self.columns

    def plan(self, names: np.ndarray | None) -> dict[str, Any]:
        """For the plan of a fit."""
        name = [int(j) if names is None else str(names[j]) for j in (self.largest, self.smallest)]
        return {
            "ratio": self.ratio,
            "largest": name[0],
            "smallest": name[1],
            "share of the largest": self.share,
            "differ": self.differ,
        }


def in_words(units: dict[str, Any]) -> str:
    """One sentence about columns whose units differ, from the plan."""
    return (
        f"standard deviations of columns differ by a factor of {units['ratio']:,.3g}, "
        f"from {units['smallest']!r} to {units['largest']!r}, which has "
        f"{100 * units['share of the largest']:.3g} % of all variance: components "
        "mostly show the columns with large numbers; "
        "scale=True (--scale) gives every column the same weight"
    )


def above_rounding(deviations: np.ndarray, mean: np.ndarray, eps: float) -> np.ndarray:
    """Whether a column varies by more than rounding of entries of its mean's size can explain."""
    return deviations > 8 * eps * np.abs(mean)


def scale_of(x: Matrix, weights: np.ndarray | None, engine: Engine) -> np.ndarray:
    """s_j of each column, 1 where it does not vary; one pass over the rows, over what is observed
    of them."""
    if isinstance(x, Dense) and not x.in_memory and not x.stream.rereadable:
        raise InputError(
            "scale=True needs rows that can be read twice, first for the standard deviations, "
            "got an iterator that can be read once only. Pass a list of blocks or a file, or "
            "call partial_fit on each block."
        )

    def measured(placed: Any) -> np.ndarray:
        if placed.kind == "observed":
            seen = engine.seen_columns(placed)
            return divisors(
                np.sqrt(seen.square / np.maximum(seen.seen, 1)), seen.mean, placed.dtype
            )
        m = engine.column_moments(placed)
        return divisors(np.sqrt(m.square / m.weight), m.mean, placed.dtype)

    with engine.at_work(), np.errstate(over="ignore"):
        s = on_data(engine, x, measured, weights)
    if not np.isfinite(s).all():
        j = int(np.argmax(~np.isfinite(s)))
        raise InputError(
            f"column {j} of X must have smaller units for scale=True, got entries too large to "
            "square. Divide it by a constant."
        )
    return s


def divisors(deviations: np.ndarray, mean: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Standard deviations to divide by, 1 for columns that do not vary."""
    return np.where(above_rounding(deviations, mean, float(np.finfo(dtype).eps)), deviations, 1.0)


def divided(x: Matrix, s: np.ndarray) -> Matrix:
    """The same matrix with column j divided by s_j; rows of a stream as they are read."""
    if not isinstance(x, Dense):
        return replace(x, data=(x.data / s[x.indices]).astype(x.dtype, copy=False))
    if x.in_memory:
        return Dense(_divide(x.array, s, x.dtype), x.rows, x.columns)
    return Dense(DividedBlocks(x.stream, s, x.dtype), x.rows, x.columns)


def divided_moments(m: Moments, s: np.ndarray) -> Moments:
    """The statistic of rows whose column j is divided by s_j: D^-1 S D^-1 times D g is D^-1 S g, so
    the probe stays a check."""
    return Moments(
        m.rows, m.weight, m.mean / s, m.scatter / s / s[:, None], m.probe * s, m.probed / s
    )


class DividedBlocks:
    """Row blocks whose column j is divided by s_j."""

    def __init__(self, stream: RowBlocks, s: np.ndarray, dtype: np.dtype):
        self._stream, self._s, self._dtype = stream, s, dtype

    @property
    def columns(self) -> np.ndarray | None:
        return self._stream.columns

    @property
    def rereadable(self) -> bool:
        return self._stream.rereadable

    @property
    def shape(self) -> tuple[int | None, int]:
        return self._stream.shape

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        return (
            _divide(np.asarray(block), self._s, self._dtype) for block in self._stream.blocks(rows)
        )


def _divide(values: np.ndarray, s: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.divide(values, s, dtype=dtype, casting="unsafe")


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
