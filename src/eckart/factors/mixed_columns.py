"""MixedColumns: a Gaussian of the scores of a table's columns, and how each column becomes scores
and is had back from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.factors.checks import names, numbers, value

SOLVABLE = 1e14
"""Sum of w^2 / noise, about the condition of the equations of a code: beyond it float64 has no
digit left of them."""


@dataclass(frozen=True, eq=False)
class MixedColumns:
    """Scores y = mean + W z + noise, z ~ N(0, I): ``weights`` W (scores x k), ``mean``, ``noise``
    (variances); ``described`` has an entry of plain values for each part of a column, ``tables``
    the arrays of some, ``trees`` those of forests beside the Gaussian; ``aside`` says of columns
    that say nothing why, and what their gaps become.

    >>> f = MixedColumns(2, np.ones((2, 1)), np.zeros(2), np.ones(2))
    >>> f.k, f.n
    (1, 2)
    """

    n: int
    weights: np.ndarray
    mean: np.ndarray
    noise: np.ndarray
    described: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    aside: dict[str, Any] = field(default_factory=dict)
    columns: np.ndarray | None = None
    trees: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def k(self) -> int:
        return self.weights.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.weights.dtype

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        arrays = {"weights": self.weights, "mean": self.mean, "variances": self.noise}
        arrays |= {f"columns.{name}": array for name, array in self.tables.items()}
        arrays |= {f"trees.{name}": array for name, array in self.trees.items()}
        return arrays, {"n": self.n, "described": self.described, "aside": self.aside}

    @classmethod
    def from_state(
        cls,
        arrays: dict[str, np.ndarray],
        values: dict[str, Any],
        rows: np.ndarray | None,
        columns: np.ndarray | None,
    ) -> MixedColumns:
        tables = {
            name.removeprefix("columns."): a
            for name, a in arrays.items()
            if name.startswith("columns.")
        }
        trees = {
            name.removeprefix("trees."): a
            for name, a in arrays.items()
            if name.startswith("trees.")
        }
        w, mean, noise = (arrays[name] for name in ("weights", "mean", "variances"))
        return cls(
            values["n"],
            w,
            mean,
            noise,
            values["described"],
            tables,
            values["aside"],
            columns,
            trees,
        )

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        value("n", self.n, 1, whole=True)
        numbers("weights", self.weights, (None, None), dtype=np.float64)
        numbers("mean", self.mean, (len(self.weights),), dtype=np.float64)
        numbers("noise", self.noise, (len(self.weights),), 1e-300, dtype=np.float64)
        with np.errstate(over="ignore", divide="ignore"):
            share = float((self.weights**2 / self.noise[:, None]).sum())
        if not share < SOLVABLE:
            raise FileError(
                f"the sum of w^2 / noise must be less than {SOLVABLE:g}, got {share:.3g}: the codes "
                "of these weights and noise cannot be solved for"
            )
        names(self.columns, self.n, "columns", distinct=True)
        if (
            self.columns is None
            or not isinstance(self.described, list)
            or not isinstance(self.aside, dict)
        ):
            raise FileError("columns, described or aside are not those of a table")
        for name, array in self.tables.items():
            numbers(name, array, (None, None), dtype=np.float64)
