"""Components of a mixture: p(x) = sum_z weights_z p(x; theta_z), what a mixture fit leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.errors import FileError


@dataclass(frozen=True, eq=False)
class Components:
    """Weights of k components and the parameters of their family.

    ``family`` is the name of the component family, ``parameters`` its arrays by name (one slice for each component along the first axis, or shared by
    all); ``n`` is the number of columns of the data.

    >>> Components(np.array([0.25, 0.75]), "bernoulli", {"means": np.array([[0.1], [0.9]])}, 1).k
    2
    """

    weights: np.ndarray
    family: str
    parameters: dict[str, np.ndarray] = field(repr=False)
    n: int
    columns: np.ndarray | None = None

    @property
    def k(self) -> int:
        return len(self.weights)

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        arrays = {"weights": self.weights} | {f"parameter.{name}": a for name, a in self.parameters.items()}
        return arrays, {"family": self.family, "n": self.n}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], values: dict[str, Any], rows: Any, columns: Any) -> Components:
        mark = "parameter."
        parameters = {name.removeprefix(mark): a for name, a in arrays.items() if name.startswith(mark)}
        return cls(arrays["weights"], values["family"], parameters, values["n"], columns)

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        if self.weights.ndim != 1 or not self.k or self.weights.dtype.kind != "f":
            raise FileError("weights are not a vector of numbers")
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all() and abs(self.weights.sum() - 1) < 1e-3):
            raise FileError("weights are not probabilities")
        if not isinstance(self.family, str) or type(self.n) is not int or self.n < 1:
            raise FileError(f"family={self.family!r}, n={self.n!r} came, wanted a name and a number of columns")
        for name, array in self.parameters.items():
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                raise FileError(f"{name} are not finite numbers")
        if self.columns is not None and self.columns.shape != (self.n,):
            raise FileError(f"{self.columns.size} labels came for {self.n} columns")
