"""Take out of the observed entries what rows and columns explain alone, and put it back into every
prediction.

The normalised matrix x and the matrix a are related, entry by entry, by

    a_ij = mean + c_j + t_j (b_i + s_i x_ij)

c, t: column offsets and scales; b, s: row offsets and scales; what is absent counts as 0 or 1. All
sums run over observed entries only.

by="global"  mean = the mean of all entries
by="column"  mean, and c_j = sum_i (a_ij - mean) / max(1, count_j): mean + c_j is the column's mean
(the default for ratings)
by="row"     mean, and b_i the same for rows
by="both"    columns first, then rows of what is left
by="bias"    mean, and b, c together: the minimiser of  sum (a_ij - mean - b_i - c_j)^2 + l2 (sum
b_i^2 + sum c_j^2)
by=None      nothing

``scale=True`` also divides by the standard deviation (divisor: the count) of each column, each row,
or all entries; a column or row without spread, or with fewer than two entries, has scale 1. An
empty row or column has offset 0 and scale 1, so it is predicted by the mean of what is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.complete.biases import BiasSums, balanced, ridged
from eckart.engines import engine_named
from eckart.errors import InputTypeError, invalid
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of, parts_of, with_values
from eckart.optim.tangent import Sampling

KINDS = ("column", "row", "both", "bias", "global", None)


@dataclass(frozen=True, eq=False)
class Normaliser:
    """The numbers in  a_ij = mean + c_j + t_j (b_i + s_i x_ij): ``column_offset`` c,
    ``column_scale`` t, ``row_offset`` b, ``row_scale`` s, in
    double precision; None = absent. ``l2``, ``l2_by_count`` and ``residual`` belong to by="bias".

    >>> normaliser, x = normalise(Observed.from_nan(np.array([[1.0, 4.0], [3.0, np.nan]])), "column")
    >>> (normaliser.mean + normaliser.column_offset).tolist(), x.data.tolist()
    ([2.0, 4.0], [-1.0, 0.0, 1.0])
    >>> normaliser.invert(x.data, [0, 0, 1], x.indices).tolist()
    [1.0, 4.0, 3.0]
    """

    by: str | None
    shape: tuple[int, int]
    mean: float = 0.0
    row_offset: np.ndarray | None = None
    column_offset: np.ndarray | None = None
    row_scale: np.ndarray | None = None
    column_scale: np.ndarray | None = None
    l2: float = 0.0
    l2_by_count: bool = False
    residual: float | None = None

    def apply(self, observed: Observed) -> Observed:
        """x = ((a - mean - c_j) / t_j - b_i) / s_i at the observed entries, for the rows that the
        normaliser was fitted to."""
        _check(observed, self.shape[1])
        if (self.row_offset is not None or self.row_scale is not None) and observed.shape[
            0
        ] != self.shape[0]:
            raise invalid(
                "observed",
                f"{observed.shape[0]} rows",
                f"the {self.shape[0]} rows of the fit",
                "use for_rows(observed)",
            )
        rows = self.row_offset, self.row_scale
        none = np.zeros(observed.shape[0]), np.ones(observed.shape[0])
        known = [absent if a is None else a for a, absent in zip(rows, none)]
        own = None if all(a is None for a in rows) else np.column_stack(known)
        return with_values(
            observed, partial(_applied, replace(self, row_offset=None, row_scale=None)), rows=own
        )

    def apply_columns(self, observed: Observed) -> Observed:
        """The part that needs no row, (a - mean - c_j) / t_j, for any rows."""
        _check(observed, self.shape[1])
        return _with(observed, self._less_columns(observed))

    def new_rows(self, observed: Observed) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Offsets and scales for rows that the fit has not seen, columns as they are: for the rows
        of the fit, those of the fit."""
        _check(observed, self.shape[1])
        if self.row_offset is None:
            return None, None
        values = self._less_columns(observed)
        rows, counts = _rows(observed), observed.row_counts()
        if self.by == "bias":
            ridge = ridged(counts, self.l2, self.l2_by_count)
            return np.bincount(rows, values, len(counts)) / ridge, None
        size = np.abs(observed.data) / (
            1.0 if self.column_scale is None else self.column_scale[observed.indices]
        )
        return _moments(values, rows, counts, self.row_scale is not None, size, observed.dtype)

    def for_rows(self, observed: Observed) -> Normaliser:
        """The normaliser of these new rows: same columns, row offsets and scales by
        ``new_rows``."""
        offset, scale = self.new_rows(observed)
        return replace(self, shape=observed.shape, row_offset=offset, row_scale=scale)

    def invert(self, values: Any, rows: Any, columns: Any) -> np.ndarray:
        """mean + c_j + t_j (b_i + s_i values), in the precision of the values.

        ``rows`` and ``columns`` are positions that broadcast with ``values``: one of each for a
        list of entries, ``rows[:, None]`` and ``columns`` for a block.
        """
        values = np.asarray(values)
        precision = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        rows, columns = (
            _positions("rows", rows, self.shape[0]),
            _positions("columns", columns, self.shape[1]),
        )
        try:
            shape = np.broadcast_shapes(values.shape, rows.shape, columns.shape)
        except ValueError:
            came = f"shapes {rows.shape} and {columns.shape}"
            raise invalid(
                "rows, columns",
                came,
                f"positions that broadcast with values of shape {values.shape}",
            ) from None
        out = np.array(np.broadcast_to(values, shape), dtype=np.float64)
        for array, at, apply in (
            (self.row_scale, rows, np.multiply),
            (self.row_offset, rows, np.add),
            (self.column_scale, columns, np.multiply),
            (self.column_offset, columns, np.add),
        ):
            if array is not None:
                apply(out, array[at], out=out)
        out += self.mean
        return out.astype(precision, copy=False)

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, from which ``from_state`` makes the same normaliser."""
        state = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        return arrays, {
            name: value for name, value in state.items() if name not in arrays and value is not None
        }

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> Normaliser:
        """The inverse of ``to_state``; ``values`` may have been through JSON."""
        state: dict[str, Any] = {"by": None, **values, **arrays, "shape": tuple(values["shape"])}
        return cls(**state)

    def _less_columns(self, observed: Observed) -> np.ndarray:
        values = observed.data.astype(np.float64)
        values -= self.mean
        if self.column_offset is not None:
            values -= self.column_offset[observed.indices]
        if self.column_scale is not None:
            values /= self.column_scale[observed.indices]
        return values


def _applied(columns: Normaliser, observed: Observed, rows: np.ndarray | None = None) -> Observed:
    """x of some rows by the part that needs none, ``columns``, and the offsets and scales of
    ``rows``."""
    values = columns._less_columns(observed)
    if rows is not None:
        offset, scale = np.repeat(rows, observed.row_counts(), axis=0).T
        values = (values - offset) / scale
    return _with(observed, values)


@held
def normalise(
    observed: Observed,
    by: str | None = "column",
    *,
    scale: bool = False,
    l2: float = 5.0,
    l2_by_count: bool = False,
    iterations: int = 1000,
    engine: Any = None,
) -> tuple[Normaliser, Observed]:
    """Fit a Normaliser to the observed entries; return it and the normalised matrix (same entries,
    labels and precision).

    Parameters
    ----------
    by : "column" (default), "row", "both", "bias", "global" or None; the module's docstring defines
        them
    scale : divide by standard deviations too; not for "bias" and None
    l2 : ridge of by="bias"; pulls the offsets of rows and columns with few entries towards 0
    l2_by_count : multiply l2 by each row's and column's count
    iterations : limit for by="bias"; ``Normaliser.residual`` says how far it came
    engine : works on a matrix in parts, whose columns or rows cannot be scaled

    >>> a = Observed.from_nan(np.array([[5.0, 3.0, np.nan], [4.0, np.nan, 1.0]]))
    >>> normaliser, x = normalise(a, "bias", l2=1.0)
    >>> normaliser.mean, normaliser.row_offset.round(3).tolist(), normaliser.column_offset.round(3).tolist()
    (3.25, [0.286, -0.514], [0.909, -0.268, -0.868])
    """
    _check(observed)
    if by not in KINDS:
        raise invalid("by", by, ", ".join(map(repr, KINDS)))
    if scale and by in ("bias", None):
        raise invalid(
            "scale", scale, f"False with by={by!r}", "choose 'column', 'row', 'both' or 'global'"
        )
    if not (isinstance(l2, (int, float, np.number)) and 0 <= l2 < np.inf):
        raise invalid("l2", l2, "a number >= 0")
    if (
        isinstance(iterations, bool)
        or not isinstance(iterations, (int, np.integer))
        or iterations < 1
    ):
        raise invalid("iterations", iterations, "an int >= 1")
    if by is None:
        return Normaliser(None, observed.shape), observed
    if parts_of(observed) is not None:
        if scale:
            raise invalid(
                "scale",
                scale,
                "False for data in parts (shards or a Dask collection)",
                "divide the values by their deviations before they are read",
            )
        fitted = _of_parts(
            observed,
            by,
            engine_named() if engine is None else engine,
            float(l2),
            l2_by_count,
            iterations,
        )
        return fitted, fitted.apply(observed)
    mean = float(observed.data.mean(dtype=np.float64)) if observed.nnz else 0.0
    fitted = Normaliser(by, observed.shape, mean)
    values, size = fitted._less_columns(observed), np.abs(observed.data)
    columns, counts = observed.indices, observed.column_counts()
    if by == "global":
        if scale:
            where, all_of_them = np.zeros(observed.nnz, dtype=np.int64), np.array([observed.nnz])
            spread = _moments(values, where, all_of_them, True, size, observed.dtype)[1]
            assert spread is not None
            fitted = replace(fitted, column_scale=np.repeat(spread, observed.n_columns))
    elif by == "bias":
        sums = BiasSums.of(_rows(observed), columns, values, observed.shape)
        of_rows, of_columns = (
            ridged(number, float(l2), l2_by_count) for number in (observed.row_counts(), counts)
        )
        b, c, residual = balanced(sums, of_rows, of_columns, iterations)
        fitted = replace(
            fitted,
            row_offset=b,
            column_offset=c,
            l2=float(l2),
            l2_by_count=bool(l2_by_count),
            residual=residual,
        )
    if by in ("column", "both"):
        offset, spread = _moments(values, columns, counts, scale, size, observed.dtype)
        fitted = replace(fitted, column_offset=offset, column_scale=spread)
    if by in ("row", "both"):
        values = fitted._less_columns(observed)
        size = size if fitted.column_scale is None else size / fitted.column_scale[columns]
        offset, spread = _moments(
            values, _rows(observed), observed.row_counts(), scale, size, observed.dtype
        )
        fitted = replace(fitted, row_offset=offset, row_scale=spread)
    return fitted, fitted.apply(observed)


def _moments(
    values: np.ndarray,
    where: np.ndarray,
    counts: np.ndarray,
    scale: bool,
    size: np.ndarray,
    precision: np.dtype,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean and, if asked for, standard deviation of the values in each group; the mean's rounding
    is corrected by a second pass.

    A spread that rounding of entries of magnitude ``size`` can explain is none.
    """
    number = np.maximum(counts, 1)
    offset = np.bincount(where, values, len(counts)) / number
    left = values - offset[where]
    correction = np.bincount(where, left, len(counts)) / number
    offset += correction
    if not scale:
        return offset, None
    left -= correction[where]
    top = float(np.abs(left).max(initial=0.0)) or 1.0
    left /= top
    spread = top * np.sqrt(np.bincount(where, left * left, len(counts)) / number)
    floor = 8 * np.finfo(precision).eps * np.bincount(where, size, len(counts)) / number
    return offset, np.where((counts < 2) | (spread <= floor), 1.0, spread)


def _of_parts(
    observed: Any, by: str, engine: Any, l2: float, l2_by_count: bool, iterations: int
) -> Normaliser:
    """Of a matrix in parts: sums of rows and columns are products of the entries with ones."""
    pattern, facts, (n, m) = Sampling(observed, engine), facts_of(observed), observed.shape
    counts, counts_t = pattern.x.counts, pattern.x.column_counts
    ones = np.ones((n, 1)), np.ones((m, 1))
    fitted = Normaliser(by, (n, m), facts.total / max(facts.entries, 1))
    values = pattern.values(1.0, np.float64) - pattern.at(fitted.mean * ones[0], ones[1])
    if by == "bias":
        where = pattern.at(*ones)
        sums = BiasSums(
            lambda c: pattern.times(where, c[:, None])[:, 0],
            lambda b: pattern.times_t(where, b[:, None])[:, 0],
            pattern.times(values, ones[1])[:, 0],
            pattern.times_t(pattern.by_columns(values), ones[0])[:, 0],
        )
        b, c, residual = balanced(
            sums, ridged(counts, l2, l2_by_count), ridged(counts_t, l2, l2_by_count), iterations
        )
        fitted = replace(
            fitted,
            row_offset=b,
            column_offset=c,
            l2=l2,
            l2_by_count=bool(l2_by_count),
            residual=residual,
        )
    if by in ("column", "both"):
        fitted = replace(
            fitted,
            column_offset=pattern.times_t(pattern.by_columns(values), ones[0])[:, 0]
            / np.maximum(counts_t, 1),
        )
        values = values - pattern.at(ones[0], fitted.column_offset[:, None])  # type: ignore[index]
    if by in ("row", "both"):
        fitted = replace(
            fitted, row_offset=pattern.times(values, ones[1])[:, 0] / np.maximum(counts, 1)
        )
    return fitted


def _rows(observed: Observed) -> np.ndarray:
    """The row of each entry."""
    return np.repeat(np.arange(observed.shape[0]), observed.row_counts())


def _with(observed: Observed, values: np.ndarray) -> Observed:
    """The same entries with other values, in the precision of the old."""
    return replace(observed, data=values.astype(observed.dtype, copy=False))


def _positions(name: str, positions: Any, size: int) -> np.ndarray:
    at = np.asarray(positions)
    if at.size == 0:
        return at.astype(np.int64)
    if at.dtype.kind not in "iu":
        raise invalid(name, f"an array of {at.dtype}", "integer positions")
    low, high = int(at.min()), int(at.max())
    if low < 0 or high >= size:
        raise invalid(name, low if low < 0 else high, f"positions from 0 to {size - 1}")
    return at


def _check(observed: Any, n_columns: int | None = None) -> None:
    if not isinstance(observed, Observed):
        came = type(observed).__name__
        raise InputTypeError(
            f"observed must be Observed, got {came!r}. Make one with eckart.read(..., "
            "absent='unknown')."
        )
    if n_columns is not None and observed.n_columns != n_columns:
        raise invalid(
            "observed", f"{observed.n_columns} columns", f"the {n_columns} columns of the fit"
        )
    if parts_of(observed) is not None:
        return  # engines look at them
    bad = ~np.isfinite(observed.data)
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(observed.indptr, at, side="right")) - 1
        value = float(observed.data[at])
        raise invalid(
            "observed",
            value,
            "finite entries",
            f"correct row {row}, column {int(observed.indices[at])}",
        )
