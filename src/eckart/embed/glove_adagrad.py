"""GloVe by AdaGrad, entry by entry, as its authors do it.

Words are dealt to classes, and the entries to blocks by the classes of their two words. Blocks that
share no word run at the same time (Gemulla et al. 2011), so threads need no locks, lose no update,
and change no bit. The entries of a block stand in a random order; the rounds of blocks come in a
new one every epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.pairs import GloveProblem
from eckart.engines.protocol import GloveTable, Tall

NAME, METHOD = "AdaGrad epochs", "AdaGrad, blocks without a common word in parallel"
PATIENCE = 3
"""Epochs without a gain after which it stops. Biases are learned first, and vectors begin near a
saddle: the loss stands still or rises before they grow."""


class AdaState(NamedTuple):
    """[vector, bias, G, 1 / sqrt(G)] of words and contexts after whole epochs, the loss after each,
    and the seed of all random choices."""

    own: Tall
    other: Tall
    losses: list[float]
    seed: int


def start(p: GloveProblem, k: int, engine: Any, rng: np.random.Generator) -> AdaState:
    """Small uniform numbers, (-1/2 .. 1/2) / k, and G = 1."""
    seed, n = int(rng.integers(2**62)), p.x.shape[1]
    stream = np.random.default_rng(seed)

    def table() -> Tall:
        out = np.ones((n, 3 * (k + 1)), np.float32)
        out[:, : k + 1] = (stream.random((n, k + 1)) - 0.5) / k
        return engine.take(out)

    return AdaState(table(), table(), [], seed)


def stepper(
    p: GloveProblem, s: AdaState, engine: Any, rate: float
) -> Callable[[AdaState], AdaState]:
    """The step of an epoch over entries that are dealt to blocks once."""
    table = engine.glove_table(p.x, s.seed)
    return lambda state: epoch(p, table, state, rate, engine)


def epoch(p: GloveProblem, table: GloveTable, s: AdaState, rate: float, engine: Any) -> AdaState:
    """One step for each entry; the state that came stays as it was."""
    order = np.random.default_rng([s.seed, len(s.losses)]).permutation(table.strata)
    own, other = engine.glove_step(table, s.own, s.other, rate, order)
    return AdaState(
        own, other, [*s.losses, p.loss(0.5 * engine.glove_loss(table, own, other))], s.seed
    )


def parts(s: AdaState, engine: Any) -> tuple[np.ndarray, ...]:
    """Vectors, contexts and their biases."""
    k = s.own.shape[1] // 3 - 1
    own, other = engine.get(s.own), engine.get(s.other)
    return tuple(
        np.ascontiguousarray(part) for part in (own[:, :k], other[:, :k], own[:, k], other[:, k])
    )


def pack(s: AdaState, engine: Any) -> dict[str, np.ndarray]:
    """For a checkpoint."""
    sides = {"own": engine.get(s.own), "other": engine.get(s.other)}
    return sides | {"losses": np.array(s.losses), "seed": np.array([s.seed])}


def unpack(a: dict[str, np.ndarray], engine: Any) -> AdaState:
    return AdaState(
        engine.take(a["own"]), engine.take(a["other"]), a["losses"].tolist(), int(a["seed"][0])
    )
