"""Embedding: a vector for each word (or item), what skip-gram, PMI and GloVe leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.factors.checks import Stored, names, numbers


@dataclass(frozen=True, eq=False)
class Embedding(Stored):
    """``vectors`` is n x k: zeta_w of word w as the one looked at; ``context`` n x k: z_v of word v
    as the one beside it, where the model has both.

    The score of a pair is <zeta_w, z_v> + bias_w + context_bias_v; ``counts`` tells how often each
    word was seen, ``columns`` are the words.

    >>> pair = Embedding(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[3.0, 0.0], [1.0, 1.0]]))
    >>> pair.scores(np.array([0, 1]), np.array([1, 1])).tolist(), pair.n, pair.k
    ([3.0, 1.0], 2, 2)
    """

    vectors: np.ndarray
    context: np.ndarray | None = None
    bias: np.ndarray | None = None
    context_bias: np.ndarray | None = None
    counts: Any = None
    columns: Any = None

    @property
    def k(self) -> int:
        return self.vectors.shape[1]

    @property
    def n(self) -> int:
        return len(self.vectors)

    def scores(self, words: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """<zeta_w, z_v> + bias_w + context_bias_v for pairs of positions."""
        other = self.vectors if self.context is None else self.context
        out = np.einsum("pk,pk->p", self.vectors[words], other[contexts])
        if self.bias is not None:
            out = out + self.bias[words]
        return out if self.context_bias is None else out + self.context_bias[contexts]

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        v = self.vectors
        numbers("vectors", v, (None, None))
        for name, shape in {
            "context": v.shape,
            "bias": (self.n,),
            "context_bias": (self.n,),
        }.items():
            if getattr(self, name) is not None:
                numbers(name, getattr(self, name), shape, dtype=v.dtype)
        c = self.counts
        if c is not None and (
            c.shape != (self.n,)
            or c.dtype.kind not in "iuf"
            or not (np.isfinite(c) & (c >= 0)).all()
        ):
            raise FileError("counts are not numbers >= 0, one for each vector")
        names(self.columns, self.n, "vectors", distinct=True)
        if self.columns is not None and len({isinstance(word, str) for word in self.columns}) > 1:
            raise FileError("labels of vectors are texts in part only")
