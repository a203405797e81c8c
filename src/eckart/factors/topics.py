"""Topics: p(w|z) for k topics over a vocabulary, what a topic model leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eckart.errors import FileError
from eckart.factors.checks import Stored, names, numbers
from eckart.notebook import table


@dataclass(frozen=True, eq=False)
class Topics(Stored):
    """``counts`` is k x n: (expected) counts of word w in topic z, the prior's pseudo-counts
    included; ``words`` its rows, normalised.

    ``prior`` holds the Dirichlet parameters alpha of the documents' shares (zeros for pLSA),
    ``sizes`` the share of all tokens in each topic.

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

    def _repr_html_(self) -> str:
        """The topics with their shares and their ten most probable words."""
        called = np.arange(self.n) if self.columns is None else self.columns
        best = [
            " ".join(str(called[j]) for j in np.argsort(-row, kind="stable")[:10])
            for row in self.words
        ]
        rows = [(z, float(size), words) for z, (size, words) in enumerate(zip(self.sizes, best))]
        return table(("topic", "share", "words"), rows)

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        numbers("counts", self.counts, (None, None), 0.0)
        if not self.counts.size:
            raise FileError(
                f"counts must have at least a topic and a word, got shape {self.counts.shape}"
            )
        numbers("prior", self.prior, (self.k,), 0.0)
        numbers("sizes", self.sizes, (self.k,), 0.0)
        names(self.columns, self.n, "columns")
