"""Factors as a model file holds them: arrays by the names of their fields, and plain values beside
them. Labels are the file's own matter."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from eckart.errors import FileError

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
