"""Skip-gram steps: runs of pieces on threads that share the tables without locks, or blocks of
samples that share no word."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.engines.cpu.buffers import aligned_zeros
from eckart.engines.protocol.words import (
    LISTEN,
    PairEvidence,
    Pieces,
    WindowRule,
    rounds_of,
    runs_of,
    turn,
)
from eckart.loading import lazy
from eckart.scheduler import run_lanes

pool = lazy("eckart.engines.cpu.native.pool")
window_kernels = lazy("eckart.engines.cpu.words.window_kernels")

RUN = 2**13
"""Words of a run of threads that share the tables, about: some 10 ms, so that handing it out costs
little and the last ones end together."""

APART = 64
"""Words for each thread that shares the tables: a step changes about six rows, so with fewer words
most steps would meet another's and be lost."""


class WindowSteps:
    """window_table and pair_step on ``threads`` threads; numba is loaded when they are called."""

    threads: int

    def window_table(self, rows: np.ndarray) -> np.ndarray:
        """One more row, and columns up to whole cache lines."""
        per_line = 64 // rows.itemsize
        out = aligned_zeros((len(rows) + 1, -(-rows.shape[1] // per_line) * per_line), rows.dtype)
        out[:-1, : rows.shape[1]] = rows
        return out

    def pair_step(
        self,
        pieces: Pieces,
        x: np.ndarray,
        y: np.ndarray,
        part: tuple[int, int],
        rule: WindowRule,
        *,
        rates: tuple[float, float],
        seed: int,
        together: bool = True,
    ) -> PairEvidence:
        work = _Work.of(pieces, part, rule, rates, seed)
        strata, rounds = rounds_of(pieces, part, rule)
        if together or strata == 1:
            apart = max(1, (len(x) - 1) // APART)
            return _windows(work, x, y, min(self.threads, apart) if together else 1)
        return PairEvidence.sum(_blocks(work, runs, x, y, strata, self.threads) for runs in rounds)


class _Work(NamedTuple):
    """What the kernels are given: the corpus, the rule, the seed; the first piece and the rate at
    each piece from there; the longest piece."""

    corpus: tuple[np.ndarray, ...]
    rule: tuple[Any, ...]
    seed: np.uint64
    part: tuple[int, int]
    rates: np.ndarray
    longest: int

    @classmethod
    def of(
        cls,
        pieces: Pieces,
        part: tuple[int, int],
        rule: WindowRule,
        rates: tuple[float, float],
        seed: int,
    ) -> _Work:
        bounds = pieces.bounds[part[0] : part[1] + 1]
        passed = (bounds - bounds[0]) / max(int(bounds[-1] - bounds[0]), 1)
        corpus = (pieces.ids, pieces.bounds, pieces.keep, pieces.chance, pieces.alias)
        how = (rule.window, rule.drawn, np.float32(rule.weight), rule.bias, rule.columns)
        falling = rates[0] + (rates[1] - rates[0]) * passed
        return cls(corpus, how, np.uint64(seed), part, falling, int(np.diff(bounds).max(initial=0)))

    def rate(self, piece: int) -> float:
        return float(self.rates[piece - self.part[0]])


def _windows(work: _Work, x: np.ndarray, y: np.ndarray, threads: int) -> PairEvidence:
    """Window after window, the threads sharing the tables (or one thread alone)."""
    runs = runs_of(work.corpus[1], *work.part, words=RUN)
    found = [PairEvidence(0.0, 0, 0)] * len(runs)
    groups = (work.rule[1] + 6) // 6

    def step(_: None, i: int, scratch: dict) -> None:
        if not scratch:
            scores = np.zeros((2, groups, 2, 8), np.float32)
            scratch["steps"] = (np.empty(work.longest, np.int32), scores[0], scores[1])
        a, b = runs[i]
        rates = work.rate(a), work.rate(b)
        found[i] = PairEvidence(
            *window_kernels.train_pieces(
                work.corpus, a, b, x, y, work.rule, rates, work.seed, scratch["steps"]
            )
        )

    run_lanes(range(len(runs)), [None] * max(2 * threads, 1), step, threads)
    return PairEvidence.sum(found)


def _blocks(
    work: _Work, runs: list, x: np.ndarray, y: np.ndarray, strata: int, threads: int
) -> PairEvidence:
    """A round: samples of all runs by blocks, then blocks that share no word side by side."""
    (_, bounds, *_), (window, drawn, *_) = work.corpus, work.rule
    most = np.array([(bounds[b] - bounds[a]) * 2 * window * (1 + drawn) for a, b in runs])
    begins = np.cumsum(most) - most
    samples = np.empty(
        (int(most.sum()), 2), np.int32
    )  # as many as there can be; pages that are not written take no memory
    ends, pairs = (
        np.empty((len(runs), strata * strata + 1), np.int64),
        np.zeros(len(runs), np.int64),
    )

    def draw(_: None, r: int, scratch: dict) -> None:
        if not scratch:
            scratch["own"] = (
                np.empty(work.longest, np.int32),
                np.empty((int(most.max()), 2), np.int32),
            )
        (a, b), place = runs[r], (samples, begins[r], ends[r])
        pairs[r] = window_kernels.draw_samples(
            work.corpus, a, b, work.rule, work.seed, scratch["own"], strata, place
        )

    run_lanes(range(len(runs)), [None] * len(runs), draw, threads)
    losses, rates = np.zeros(strata * strata), np.array([work.rate(a) for a, _ in runs], np.float32)

    code = pool.address_of(window_kernels.step_block, (samples, ends, 0, x, y, work.rule, rates))
    for t in range(strata):
        given = np.array(turn(strata, t)), code, samples, ends, x, y, work.rule, rates, losses
        pool.run_parts(window_kernels.block_part, strata, given, threads)
    return PairEvidence(float(losses.sum()), int(pairs[::LISTEN].sum()), int(pairs.sum()))
