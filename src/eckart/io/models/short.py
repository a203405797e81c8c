"""Large arrays in fewer bytes, where nothing is lost: as single precision, or as one byte for a
number and an exponent for each row.

Grades, counts and draws have fewer digits than double precision has. An array whose numbers are all
of single precision is written so; one whose rows are whole multiples q 2^e of a power of two, -127
<= q <= 127, is written as q and e. Reading gives the very numbers back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import FileError

LARGE = 2**20
"""Bytes from which an array is looked at."""
EXPONENT = ".exponent"


def steps_of(a: np.ndarray) -> np.ndarray:
    """2^e of every row, so that its largest number is 64 to 127 (128, rounded) of them; rows x
    1."""
    most = np.abs(a).max(axis=1, initial=0.0, keepdims=True)
    return np.ldexp(a.dtype.type(1.0), np.frexp(most)[1] - 7)


def shorten(arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays as they are written, and the precision of those that were shortened, by name."""
    found, precisions = dict(arrays), {}
    for name, a in arrays.items():
        if a.dtype.kind != "f" or a.nbytes <= LARGE or a.ndim == 0:
            continue
        if (short := _bytes(a)) is not None:
            found[name], found[name + EXPONENT] = short
        elif a.dtype == np.float64 and _single(a[:1]) and _single(a):
            found[name] = a.astype(np.float32)
        else:
            continue
        precisions[name] = str(a.dtype)
    return found, precisions


def lengthen(arrays: dict[str, np.ndarray], precisions: Any) -> dict[str, np.ndarray]:
    """The inverse of ``shorten``."""
    found = dict(arrays)
    if (
        not isinstance(precisions, dict)
        or not set(precisions.values()) <= {"float32", "float64"}
        or not precisions.keys() <= arrays.keys()
    ):
        raise FileError(f"short must be the precision of arrays by name, got {precisions!r}")
    for name, dtype in precisions.items():
        a = arrays[name].astype(np.dtype(dtype))
        exponent = found.pop(name + EXPONENT, None)
        found[name] = a if exponent is None else np.ldexp(a, exponent)
    return found


def _bytes(a: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    if a.ndim != 2 or a.shape[1] < 8 or not _whole(a[:1]) or not _whole(a):
        return None
    step = steps_of(a)
    return (a / step).astype(np.int8), (np.frexp(step)[1] - 1).astype(np.int16)


def _whole(a: np.ndarray) -> bool:
    with np.errstate(all="ignore"):
        q = a / steps_of(a)
    return bool((q == np.rint(q)).all() and (np.abs(q) <= 127).all())


def _single(a: np.ndarray) -> bool:
    with np.errstate(all="ignore"):  # what is beyond single precision is not the same
        return np.array_equal(a, a.astype(np.float32))
