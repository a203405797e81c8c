"""GloVe by AdaGrad, entry by entry, as its authors do it.

Words are dealt to classes, and the entries to blocks by the classes of their two words. Blocks that share no word run at the same time (Gemulla et al.
2011), so threads need no locks, lose no update, and change no bit. The entries of a block stand in a random order; the rounds of blocks come in a new
one every epoch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.engines.protocol import GloveTable


class AdaState(NamedTuple):
    """[vector, bias, G, 1 / sqrt(G)] of words and contexts after whole epochs, the loss after each, and the seed of all random choices."""

    own: np.ndarray
    other: np.ndarray
    losses: list[float]
    seed: int

    @property
    def k(self) -> int:
        return self.own.shape[1] // 3 - 1

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Vectors, contexts and their biases."""
        k = self.k
        pieces = self.own[:, :k], self.other[:, :k], self.own[:, k], self.other[:, k]
        u, v, b, c = (np.ascontiguousarray(part) for part in pieces)
        return u, v, b, c

    def pack(self) -> dict[str, np.ndarray]:
        """For a checkpoint."""
        return {"own": self.own, "other": self.other, "losses": np.array(self.losses), "seed": np.array([self.seed])}

    @classmethod
    def unpack(cls, a: dict[str, np.ndarray]) -> AdaState:
        return cls(a["own"].copy(), a["other"].copy(), a["losses"].tolist(), int(a["seed"][0]))


def start(n: int, k: int, rng: np.random.Generator) -> AdaState:
    """Small uniform numbers, (-1/2 .. 1/2) / k, and G = 1."""
    seed = int(rng.integers(2**62))
    stream = np.random.default_rng(seed)

    def table() -> np.ndarray:
        out = np.ones((n, 3 * (k + 1)), np.float32)
        out[:, : k + 1] = (stream.random((n, k + 1)) - 0.5) / k
        return out

    return AdaState(table(), table(), [], seed)


def epoch(table: GloveTable, s: AdaState, rate: float, engine: Any) -> AdaState:
    """One step for each entry; the state that came stays as it was."""
    own, other = s.own.copy(), s.other.copy()
    order = np.random.default_rng([s.seed, len(s.losses)]).permutation(table.strata)
    engine.glove_step(table, own, other, rate, order)
    loss = engine.glove_loss(table, own, other) / max(1, len(table.rows))
    return AdaState(own, other, [*s.losses, loss], s.seed)
