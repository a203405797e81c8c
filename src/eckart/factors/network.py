"""Network: the weights of a trained network and the description it is built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.factors.checks import names, numbers, value


@dataclass(frozen=True, eq=False)
class Network:
    """A map x -> out(mean' + spread' net((x - mean) / spread)), its weights as named arrays and its
    layers as plain values.

    ``architecture`` is JSON: which layers, how wide (see ``nn.architecture``). ``mean`` and
    ``spread`` (n each) centre and scale the input; a column that was never observed has spread 0.
    ``k`` is the size of the code (of the output, for a classifier or regressor). ``extras`` are
    arrays that belong to the output: offset and scale of a regressor's targets. ``classes`` are the
    labels of a classifier.

    >>> net = Network({"encoder.0.weight": np.ones((1, 2), np.float32)}, {"kind": "coder"}, np.zeros(2), np.ones(2), 1)
    >>> net.n, net.k, net.size
    (2, 1, 2)
    """

    weights: dict[str, np.ndarray] = field(repr=False)
    architecture: dict[str, Any]
    mean: np.ndarray = field(repr=False)
    spread: np.ndarray = field(repr=False)
    k: int
    columns: np.ndarray | None = None
    rows: int = 0
    classes: np.ndarray | None = None
    extras: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        return len(self.mean)

    @property
    def size(self) -> int:
        """How many weights there are."""
        return sum(w.size for w in self.weights.values())

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        arrays = {"mean": self.mean, "spread": self.spread}
        arrays |= {f"weight.{name}": a for name, a in self.weights.items()}
        arrays |= {f"extra.{name}": a for name, a in self.extras.items()}
        classes = None
        if self.classes is not None:
            kind = self.classes.dtype.kind
            classes = {
                "dtype": "O" if kind == "O" else self.classes.dtype.str,
                "values": self.classes.tolist(),
            }
        return arrays, {
            "architecture": self.architecture,
            "k": self.k,
            "rows": self.rows,
            "classes": classes,
        }

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], values: dict[str, Any], rows: Any, columns: Any
    ) -> Network:
        weights, extras = (
            {name.removeprefix(mark): a for name, a in arrays.items() if name.startswith(mark)}
            for mark in ("weight.", "extra.")
        )
        kept = values["classes"]
        classes = None if kept is None else _labels(kept)
        more = (columns, values["rows"], classes, extras)
        return cls(
            weights, values["architecture"], arrays["mean"], arrays["spread"], values["k"], *more
        )

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        if not isinstance(self.architecture, dict) or not isinstance(
            self.architecture.get("kind"), str
        ):
            raise FileError(
                f"architecture must be the description of a network, got {self.architecture!r}"
            )
        value("k", self.k, 0, whole=True)
        value("rows", self.rows, 0, whole=True)
        numbers("mean", self.mean, (None,))
        numbers("spread", self.spread, (self.n,), 0.0)
        for name, array in {**self.weights, **self.extras}.items():
            numbers(name, array, (None,) * array.ndim)
        names(self.columns, self.n, "columns")
        if self.classes is not None:
            names(self.classes, self.k, "classes", distinct=True)


def _labels(kept: dict[str, Any]) -> np.ndarray:
    """Class labels of a file: numbers, truth values or texts, in their order."""
    kind = np.dtype(kept["dtype"])
    if kind.kind not in "biufUO":
        raise FileError(f"classes must be numbers or texts, got kind {kept['dtype']!r}")
    return np.array(kept["values"], dtype=kind)
