"""What counts as a table of numbers: arrays of any kind, masked arrays and nested lists, or one
clear error."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError, InputTypeError
from eckart.matrix import Dense, Observed, floating, wrong_ndim


def numeric(values: np.ndarray) -> np.ndarray:
    """A two-dimensional array of real numbers, or one clear error."""
    if values.dtype.kind == "c":
        raise InputError(
            "Complex data not supported: X must hold real numbers, got complex ones. Pass "
            "X.real, or X.real and X.imag side by side."
        )
    if values.ndim != 2:
        raise wrong_ndim(values.ndim)
    if values.dtype.kind in "OUS":
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            for i, row in enumerate(values):
                for j, value in enumerate(row):
                    _entry(value, i, j, error)
    if values.dtype.kind not in "fiub":
        raise InputTypeError(
            f"X must hold numbers, got {values.dtype}. Convert dates or text to numbers first."
        )
    return values


def from_masked(source: np.ma.MaskedArray) -> Dense | Observed:
    """A masked entry is unknown, whatever stands under the mask."""
    filled = masked_values(source)
    return Observed.from_nan(filled) if np.ma.is_masked(source) else Dense(filled)


def masked_values(source: np.ma.MaskedArray) -> np.ndarray:
    """A masked array with NaN at every masked entry."""
    kept = source
    if source.dtype.kind in "OUS":
        kept = np.ma.array(
            np.where(np.ma.getmaskarray(source), np.nan, np.ma.getdata(source).astype(object))
        )
    values = numeric(np.ma.getdata(kept))
    values = values.astype(floating(values.dtype))
    values[np.ma.getmaskarray(source)] = np.nan
    return values


def from_nested(source: Any) -> np.ndarray:
    """Nested lists, or an object that NumPy can turn into an array."""
    try:
        return numeric(np.asarray(source))
    except InputError:
        raise
    except ValueError as error:
        sizes = [len(row) if hasattr(row, "__len__") else -1 for row in source]
        odd = next((i for i, size in enumerate(sizes) if size != sizes[0]), None)
        if odd is None:
            raise InputError(f"X is not a table of numbers ({error})") from None
        raise InputError(
            f"X must have {max(sizes[0], 1)} cells in every row as at row 0, got "
            f"{max(sizes[odd], 1)} at row {odd}. Give each row the same length."
        ) from None


def _entry(value: Any, i: int, j: int, error: Exception) -> None:
    value = value.item() if isinstance(value, np.generic) else value
    try:
        float(value)
    except TypeError as reason:
        raise InputTypeError(
            f"X must hold numbers, got {value!r} at row {i}, column {j} ({reason})"
        ) from None
    except OverflowError:
        raise InputError(
            f"X has a number at row {i}, column {j} that is too large for float64; rescale it"
        ) from None
    except ValueError:
        raise InputError(
            f"X must hold numbers, got {value!r} at row {i}, column {j}. Drop or encode that "
            "column."
        ) from error
