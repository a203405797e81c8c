"""Skip-gram by stochastic steps: the corpus is passed several times while the rate falls to nearly nothing.

    eta_t = eta_0 + (eta_end - eta_0) t / T       t of T words

Two words of a window share their noise: ``drawn`` words that weigh r / drawn each, so that the expectation is that of r negatives. (Noise that a whole window
shares is faster still, but it makes the words of a window alike: related words come nearer, similar ones do not.)
Threads share the tables without locks (``together``), or take the steps in an order by which the same bits come out for any number of them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.protocol.windows import PairEvidence, Pieces, WindowRule
from eckart.io.models.levels import NOTHING, Memory, resumed_trace
from eckart.trace import StopReason, Trace, Watcher, silent

PART_WORDS = 2**20
"""Words between two points at which the state can be kept."""


@dataclass(frozen=True)
class Training:
    """Numbers of a training: see ``SkipGram``."""

    k: int
    window: int
    negatives: int
    drawn: int
    epochs: int
    rate: float
    last_rate: float
    bias: bool
    together: bool


def drawn_for(negatives: int) -> int:
    """Noise words that are drawn: the negatives, or a few more, so that they and the word fill whole groups of six.

    >>> [drawn_for(r) for r in (1, 5, 15)]
    [5, 5, 17]
    """
    return 6 * -(-(negatives + 1) // 6) - 1


def train(
    pieces: Pieces,
    t: Training,
    *,
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[np.ndarray, np.ndarray, Trace]:
    """Inputs and outputs (n rows, the bias behind the vectors) and the mean loss of each epoch; an interrupt keeps the present state."""
    n, columns = pieces.n, t.k + int(t.bias)
    done, told, trace = 0, PairEvidence(0.0, 0, 0), resumed_trace("loss of a pair")
    seed = int(rng.integers(2**62))
    first = np.ones((n, columns), np.float32)
    first[:, : t.k] = (rng.random((n, t.k), np.float32) - np.float32(0.5)) / np.float32(t.k)
    both = first, np.zeros_like(first)
    if (kept := memory.last()) is not None:
        both, seed, done = (kept["x"], kept["y"]), int(kept["seed"]), int(kept["done"])
        told, trace = PairEvidence(*kept["told"]), resumed_trace("loss of a pair", kept["trace"])
    x, y = (engine.window_table(np.ascontiguousarray(side[:n, :columns])) for side in both)
    rule = WindowRule(t.window, t.drawn, t.negatives / t.drawn, columns, t.k if t.bias else -1)
    parts = _parts(pieces.bounds)
    trace.reason = StopReason.MAX_ITER
    total = t.epochs * max(int(pieces.bounds[-1] - pieces.bounds[0]), 1)
    try:
        for step in range(done, t.epochs * len(parts)):
            tables = {"x": lambda: engine.get(x), "y": lambda: engine.get(y)}
            state = {"seed": seed, "done": step, "told": list(told), "trace": [trace.values, trace.seconds]}
            memory.offer(tables | state)
            epoch, at = divmod(step, len(parts))
            begin = epoch * (total // t.epochs)
            rates = tuple(t.rate + (t.last_rate - t.rate) * (begin + int(pieces.bounds[p])) / total for p in parts[at])
            now = engine.pair_step(
                pieces, x, y, parts[at], rule, rates=rates, seed=(seed + epoch) % 2**63, together=t.together
            )
            told = told.merge(now)
            if at == len(parts) - 1:
                trace.add(told.loss / max(told.heard, 1))
                told = PairEvidence(0.0, 0, 0)
            watch("words", begin + int(pieces.bounds[parts[at][1]]), total)
    except KeyboardInterrupt:
        if not len(trace) and not told.heard:  # before there is an answer
            raise
        trace.reason = StopReason.INTERRUPTED
    return engine.get(x)[:n, :columns], engine.get(y)[:n, :columns], trace


def _parts(bounds: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of pieces of about PART_WORDS words; one empty range where there is no piece."""
    cuts = np.arange(bounds[0], bounds[-1], PART_WORDS)
    at = [*np.searchsorted(bounds, cuts).tolist(), len(bounds) - 1]
    return [(a, b) for a, b in itertools.pairwise(at) if b > a] or [(0, 0)]
