"""What factors out of a file must satisfy before anything is computed with them: a file may hold
anything under a right checksum.

Factors as a model file holds them: arrays by the names of their fields, and plain values beside
them. Labels are the file's own matter.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from eckart.errors import FileError

FLOATS = (np.float32, np.float64)


def numbers(
    name: str,
    array: Any,
    shape: tuple[int | None, ...],
    low: float | None = None,
    high: float | None = None,
    dtype: Any = None,
) -> None:
    """Refuse all but finite numbers of this shape (None: any length) between these limits;
    ``dtype`` where it must be one, else float32 or float64.

    >>> numbers("mean", np.zeros(2), (3,))
    Traceback (most recent call last):
    eckart.errors.FileError: mean must have shape (3,), got (2,)
    """
    if not isinstance(array, np.ndarray) or array.dtype not in (
        FLOATS if dtype is None else (dtype,)
    ):
        came = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise FileError(
            f"{name} must hold {'float32 or float64' if dtype is None else np.dtype(dtype)}, "
            f"got {came}"
        )
    if array.ndim != len(shape) or any(
        size is not None and size != came for size, came in zip(shape, array.shape)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise FileError(
            f"{name} must have shape ({wanted}{',' if len(shape) == 1 else ''}), got {array.shape}"
        )
    if not np.isfinite(array).all():
        raise FileError(f"{name} must hold finite numbers, got NaN or infinity")
    if (low is not None and (array < low).any()) or (high is not None and (array > high).any()):
        limits = f">= {low:g}" if high is None else f"from {low:g} to {high:g}"
        raise FileError(
            f"{name} must hold numbers {limits}, got numbers from {array.min():g} to "
            f"{array.max():g}"
        )


def value(name: str, number: Any, low: float | None = None, whole: bool = False) -> None:
    """Refuse all but one finite number, not below ``low``."""
    kinds = (int,) if whole else (int, float)
    if (
        isinstance(number, bool)
        or not isinstance(number, kinds)
        or not np.isfinite(number)
        or (low is not None and number < low)
    ):
        wanted = "a whole number" if whole else "a finite number"
        raise FileError(f"{name}={number!r} is not {wanted}{'' if low is None else f' >= {low:g}'}")


def names(labels: np.ndarray | None, size: int, side: str, distinct: bool = False) -> None:
    """Refuse labels that are not one for each; ids, by which something is looked up, must be
    ``distinct``."""
    if labels is None:
        return
    if labels.shape != (size,):
        raise FileError(f"{labels.size} labels came for {size} {side}")
    if labels.dtype == object and any(isinstance(label, (dict, list)) for label in labels):
        raise FileError(f"labels of {side} must be texts or numbers, got lists")
    if distinct and (len(set(labels.tolist())) != size or None in labels.tolist()):
        raise FileError(f"labels of {side} are not distinct ids")


def covariances(name: str, array: np.ndarray) -> None:
    """Refuse square matrices, one or a stack, that are not symmetric and positive definite."""
    size = np.abs(array).max(axis=(-2, -1), keepdims=True)
    if not (np.abs(array - np.swapaxes(array, -1, -2)) <= 1e-6 * size).all():
        raise FileError(f"{name} are not symmetric")
    try:
        np.linalg.cholesky(array)
    except np.linalg.LinAlgError:
        raise FileError(f"{name} are not positive definite") from None


LABELS = ("rows", "columns")


class Stored:
    """A dataclass whose fields are arrays (or None), the plain ``VALUES``, and labels."""

    VALUES: ClassVar[tuple[str, ...]] = ()

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        own: dict[str, Any] = {name: getattr(self, name) for name in _arrays(self)}
        return {name: a for name, a in own.items() if a is not None}, {
            name: getattr(self, name) for name in self.VALUES
        }

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], values: dict[str, Any], rows: Any, columns: Any
    ) -> Self:
        """The inverse of ``to_state``; what is missing, or does not fit, ends in an error here or
        in ``check``.

        Parameters
        ----------
        arrays, values : what ``to_state`` gave
        rows, columns : labels, or None

        Returns
        -------
        Self
            The same factors.
        """
        if not isinstance(values, dict) or values.keys() != set(cls.VALUES):
            raise FileError(
                f"factors must hold the values {', '.join(cls.VALUES) or 'none'}, got {values!r}"
            )  # a mean that is not there is not 0
        kept = {name: arrays[name] for name in _arrays(cls) if name in arrays}
        labels = {"rows": rows, "columns": columns}
        return cls(
            **{name: labels[name] for name in _names(cls) if name in LABELS}, **kept, **values
        )


def _names(kind: Any) -> list[str]:
    return [f.name for f in fields(kind) if f.name not in kind.VALUES]


def _arrays(kind: Any) -> list[str]:
    return [name for name in _names(kind) if name not in LABELS]
