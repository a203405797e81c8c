"""Observations (row id, column id, value) to compressed rows: what cannot be used is refused by its
place, its row and its column."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError, invalid
from eckart.index.compress import RULES, compress, first_repeat, merge
from eckart.index.ids import Ids, Place
from eckart.index.labels import Labels, shown


def floating(dtype: Any) -> np.dtype:
    """The precision in which entries of ``dtype`` are worked on: float32 stays float32, all else is
    float64."""
    kind = np.dtype(dtype)
    return np.dtype(np.float32) if kind.kind == "f" and kind.itemsize <= 4 else np.dtype(np.float64)


def sizes(shape: Any, row_labels: Any, column_labels: Any) -> tuple[int | None, int | None]:
    """Rows and columns as the caller fixed them, by shape or by labels; None where the ids say."""
    if shape is not None and (
        not isinstance(shape, (tuple, list))
        or len(shape) != 2
        or not all(
            size is None or (isinstance(size, (int, np.integer)) and size >= 0) for size in shape
        )
    ):
        raise invalid("shape", shape, "two sizes, such as (943, 1682)")
    out: list[int | None] = []
    for name, size, labels in zip(
        ("row", "column"), shape or (None, None), (row_labels, column_labels)
    ):
        if labels is not None and size is not None and len(labels) != size:
            raise invalid(f"{name}_labels", f"{len(labels)} labels", f"{size}, as shape= says")
        out.append(len(labels) if labels is not None else None if size is None else int(size))
    return out[0], out[1]


def placed(
    axis: str, ids: Any, size: int | None, fixed: Any
) -> tuple[np.ndarray, np.ndarray | None]:
    """Positions of the ids of one side ("row" or "column"), and its labels."""
    side = Ids(axis + "s")
    side.take(ids)
    if fixed is None:
        if size is None and len(ids) == 0:
            raise InputError(
                f"{axis}s must hold at least one observation, got none. Say shape= for a matrix "
                "without any."
            )
        return side.finish() if size is None else (side.finish_positions(size), None)
    labels = Labels(fixed, len(fixed), axis)
    if labels.repeats is not None:
        raise InputError(
            f"{axis}_labels must differ, got "
            f"{shown(labels.names([labels.repeats.argmax()])[0])} more than once"
        )
    return side.finish_in(labels), labels.labels


def assemble(
    rows: np.ndarray,
    columns: np.ndarray,
    values: Any,
    shape: tuple[int | None, int | None],
    row_labels: np.ndarray | None,
    column_labels: np.ndarray | None,
    duplicates: str,
    dtype: Any,
    at: Place,
    name: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """indptr, indices, data and the number of columns, with one finite value a place."""
    if duplicates not in RULES:
        raise invalid("duplicates", duplicates, "one of " + ", ".join(map(repr, RULES)))
    n, m = (
        (0 if labels is None else len(labels)) if size is None else int(size)
        for size, labels in zip(shape, (row_labels, column_labels))
    )
    ones = values is None
    data = np.ones(len(rows), dtype or np.float64) if ones else as_numbers(values, dtype, name, at)
    for axis, codes, size in (("rows", rows, n), ("columns", columns, m)):
        if len(codes) != len(data):
            raise InputError(
                f"{axis} and {name} must have as many values, got {len(codes)} ids and {len(data)} "
                "values"
            )
        if len(codes) and not (codes.min() >= 0 and codes.max() < size):
            raise InputError(
                f"{axis} must have positions of 0 to {size - 1}, got {codes.min()} to {codes.max()}"
            )

    def place(i: int, j: int) -> str:
        i_shown, j_shown = (
            shown(k if labels is None else labels[k])
            for k, labels in ((i, row_labels), (j, column_labels))
        )
        return f"row {i_shown}, column {j_shown}"

    if not np.isfinite(data).all():
        p = int((~np.isfinite(data)).argmax())
        raise InputError(
            f"{name} must hold finite numbers, got {data[p]} at {at(p)} "
            f"({place(rows[p], columns[p])}). Drop the entries that have none."
        )
    kept = compress(rows, columns, data, (n, m))
    if duplicates == "error":
        twice = first_repeat(kept[0], kept[1])
        if twice is not None:
            p, q = np.flatnonzero((rows == twice[0]) & (columns == twice[1]))[:2]
            advice = (
                "duplicates='sum' to count them" if ones else "duplicates='last', 'mean' or 'sum'"
            )
            raise InputError(
                f"each entry must have one value, got {place(*twice)} at {at(p)} and again at "
                f"{at(q)}. Say {advice}."
            )
    else:
        kept = merge(*kept, duplicates)
        if not np.isfinite(kept[2]).all():
            raise InputError(
                f"the {duplicates} of repeated {name} must be a finite number, got one beyond "
                f"{data.dtype}. Rescale them."
            )
    return *kept, m


def as_numbers(values: Any, dtype: Any, name: str, at: Place) -> np.ndarray:
    """Values as float32 or float64."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must be a list of numbers, got {array.ndim} dimensions")
    if array.dtype.kind == "c":
        raise InputError(
            f"Complex data not supported: {name} must hold real numbers, got complex ones"
        )
    if dtype is not None and np.dtype(dtype) not in (np.float32, np.float64):
        raise invalid("dtype", dtype, "float32 or float64")
    if array.dtype.kind not in "fiubO":
        raise InputError(f"{name} must hold numbers, got {array.dtype}")
    try:
        with np.errstate(over="ignore"):
            return array.astype(
                floating(array.dtype) if dtype is None else np.dtype(dtype), copy=False
            )
    except (TypeError, ValueError, OverflowError):
        p = next(i for i, x in enumerate(array) if not is_number(x))
        raise InputError(
            f"{name} must hold a number, got {array[p]!r} at {at(p)}. Drop the entries that "
            "have none."
        ) from None


def is_number(x: Any) -> bool:
    """Whether x is a number, or words for one."""
    try:
        float(x)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
