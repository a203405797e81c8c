"""Topics: p(w|z) for k topics over a vocabulary, what a topic model leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eckart.errors import FileError


@dataclass(frozen=True, eq=False)
class Topics:
    """``counts`` is k x n: (expected) counts of word w in topic z, the prior's pseudo-counts included; ``words`` its rows, normalised.

    ``prior`` holds the Dirichlet parameters alpha of the documents' shares (zeros for pLSA), ``sizes`` the share of all tokens in each topic.

    >>> Topics(np.array([[1.0, 3.0]]), np.array([0.1]), np.array([1.0])).words.tolist()
    [[0.25, 0.75]]
    """

    counts: np.ndarray
    prior: np.ndarray
    sizes: np.ndarray
    columns: np.ndarray | None = None

    @property
    def k(self) -> int:
        return len(self.counts)

    @property
    def n(self) -> int:
        return self.counts.shape[1]

    @cached_property
    def words(self) -> np.ndarray:
        """p(w|z), k x n, in the precision of the counts."""
        totals = self.counts.sum(axis=1, keepdims=True, dtype=np.float64)
        return (self.counts / np.where(totals > 0, totals, 1.0)).astype(self.counts.dtype)

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        return {"counts": self.counts, "prior": self.prior, "sizes": self.sizes}, {}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], values: dict[str, Any], rows: Any, columns: Any) -> Topics:
        return cls(arrays["counts"], arrays["prior"], arrays["sizes"], columns)

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        if self.counts.ndim != 2 or self.counts.dtype not in (np.float32, np.float64):
            raise FileError("counts are not a matrix of float32 or float64")
        for name, array in (("counts", self.counts), ("prior", self.prior), ("sizes", self.sizes)):
            if array.dtype.kind != "f" or not (np.isfinite(array).all() and (array >= 0).all()):
                raise FileError(f"{name} are not finite numbers >= 0")
        if self.prior.shape != (self.k,) or self.sizes.shape != (self.k,):
            raise FileError("counts, prior and sizes do not fit together")
        if self.columns is not None and self.columns.shape != (self.n,):
            raise FileError(f"{self.columns.size} labels came for {self.n} columns")
