"""Components of a mixture: p(x) = sum_z weights_z p(x; theta_z), what a mixture fit leaves
behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.factors.checks import covariances, names, numbers


@dataclass(frozen=True, eq=False)
class Components:
    """Weights of k components and the parameters of their family.

    ``family`` is the name of the component family, ``parameters`` its arrays by name (one slice for
    each component along the first axis, or shared by all); ``n`` is the number of columns of the
    data.

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
        arrays = {"weights": self.weights} | {
            f"parameter.{name}": a for name, a in self.parameters.items()
        }
        return arrays, {"family": self.family, "n": self.n}

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], values: dict[str, Any], rows: Any, columns: Any
    ) -> Components:
        mark = "parameter."
        parameters = {
            name.removeprefix(mark): a for name, a in arrays.items() if name.startswith(mark)
        }
        return cls(arrays["weights"], values["family"], parameters, values["n"], columns)

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        numbers("weights", self.weights, (None,), 0.0, 1.0 + 1e-9)
        if not self.k or abs(self.weights.sum() - 1) > 1e-3:
            raise FileError("weights are not probabilities that add up to 1")
        if not isinstance(self.family, str) or type(self.n) is not int or self.n < 1:
            raise FileError(
                f"family and n must be a name and a number of columns, got {self.family!r} and "
                f"{self.n!r}"
            )
        names(self.columns, self.n, "columns")
        shapes = self._shapes()
        if self.parameters.keys() != shapes.keys():
            raise FileError(
                f"parameters must be {', '.join(shapes)} for {self.family}, got "
                f"{', '.join(self.parameters)}"
            )
        for name, array in self.parameters.items():
            positive = (
                name in ("spread", "probabilities", "length")
                and len(shapes[name]) < 3
                and self.family != "gaussian tied"
            )
            most = 1.0 + 1e-9 if self.family == "bernoulli" or name == "probabilities" else None
            numbers(name, array, shapes[name], 0.0 if positive or most else None, most)
        if self.family == "multinomial" and (
            np.abs(self.parameters["probabilities"].sum(axis=1) - 1).max() > 1e-3
            or self.parameters["length"][0] > 2**53
        ):
            raise FileError("probabilities do not add up to 1, or length is no number of draws")
        if self.family in ("gaussian full", "gaussian tied"):
            covariances("spread", self.parameters["spread"])
        elif (
            self.family.startswith("gaussian")
            and "spread" in shapes
            and not (self.parameters["spread"] > 0).all()
        ):
            raise FileError("spread must hold positive variances, got 0")

    def _shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The arrays of a family that files know."""
        k, n = self.k, self.n
        family, _, kind = self.family.partition(" ")
        if self.family == "bernoulli":
            return {"means": (k, n)}
        if self.family == "multinomial":
            return {"probabilities": (k, n), "length": (1,)}
        spread = {
            "full": (k, n, n),
            "tied": (n, n),
            "diag": (k, n),
            "spherical": (k,),
            "unit": None,
            "factor": (k, n),
        }
        if family != "gaussian" or kind not in spread:
            raise FileError(
                f"family must be gaussian, bernoulli or multinomial, got {self.family!r}"
            )
        found: dict[str, Any] = {"means": (k, n)} | (
            {} if kind == "unit" else {"spread": spread[kind]}
        )
        return found | ({"loadings": (k, n, None), "origin": (n,)} if kind == "factor" else {})
