"""Skip-gram steps: runs of pieces on threads that share the tables without locks, or blocks of samples that share no word."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.protocol.windows import LISTEN, PairEvidence, Pieces, WindowRule, rounds_of, runs_of, turn
from eckart.scheduler import run_lanes

RUN = 2**13
"""Words of a run of threads that share the tables, about: some 10 ms, so that handing it out costs little and the last ones end together."""


class WindowSteps:
    """window_table and pair_step on ``threads`` threads; numba is loaded when they are called."""

    threads: int

    def window_table(self, rows: np.ndarray) -> np.ndarray:
        """One more row, and columns up to whole cache lines."""
        per_line = 64 // rows.itemsize
        shape = len(rows) + 1, -(-rows.shape[1] // per_line) * per_line
        raw = np.zeros(shape[0] * shape[1] + per_line, rows.dtype)
        skip = (-raw.ctypes.data % 64) // raw.itemsize
        out = raw[skip : skip + shape[0] * shape[1]].reshape(shape)
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
        corpus = (pieces.ids, pieces.bounds, pieces.keep, pieces.chance, pieces.alias)
        how = (rule.window, rule.drawn, np.float32(rule.weight), rule.bias, rule.columns)
        longest = int(np.diff(pieces.bounds[part[0] : part[1] + 1]).max(initial=0))
        words = pieces.bounds[part[0] : part[1] + 1] - pieces.bounds[part[0]]
        falling = rates[0] + (rates[1] - rates[0]) * words / max(int(words[-1]), 1)
        strata, rounds = rounds_of(pieces, part, rule)
        if together or strata == 1:
            return self._windows(corpus, part, x, y, how, falling, seed, longest, together)
        return PairEvidence.sum(
            self._blocks(corpus, runs, x, y, how, falling[[a - part[0] for a, _ in runs]], seed, longest, strata)
            for runs in rounds
        )

    def _windows(
        self, corpus: Any, part: Any, x: Any, y: Any, how: Any, falling: Any, seed: int, longest: int, together: bool
    ) -> PairEvidence:
        """Window after window, the threads sharing the tables (or one thread alone)."""
        from eckart.engines.cpu.words.window_kernels import train_pieces

        runs = runs_of(corpus[1], *part, RUN)
        found = [PairEvidence(0.0, 0, 0)] * len(runs)
        groups = (how[1] + 6) // 6

        def step(_: None, i: int, scratch: dict) -> None:
            if not scratch:
                scores = np.zeros((2, groups, 2, 8), np.float32)
                scratch["steps"] = (np.empty(longest, np.int32), scores[0], scores[1])
            a, b = runs[i]
            two = (falling[a - part[0]], falling[b - part[0]])
            found[i] = PairEvidence(*train_pieces(corpus, a, b, x, y, how, two, np.uint64(seed), scratch["steps"]))

        threads = self.threads if together else 1
        run_lanes(range(len(runs)), [None] * max(2 * threads, 1), step, threads)
        return PairEvidence.sum(found)

    def _blocks(
        self, corpus: Any, runs: Any, x: Any, y: Any, how: Any, rates: Any, seed: int, longest: int, strata: int
    ) -> PairEvidence:
        """A round: samples of all runs by blocks, then blocks that share no word side by side."""
        from eckart.engines.cpu.words.window_kernels import draw_samples, step_block

        bounds = corpus[1]
        most = np.array([(bounds[b] - bounds[a]) * 2 * how[0] * (1 + how[1]) for a, b in runs])
        begins = np.cumsum(most) - most
        samples = np.empty((int(most.sum()), 2), np.int32)  # as many as there can be; pages that are not written take no memory
        ends, pairs = np.empty((len(runs), strata * strata + 1), np.int64), np.zeros(len(runs), np.int64)

        def draw(_: None, r: int, scratch: dict) -> None:
            if not scratch:
                scratch["own"] = np.empty(longest, np.int32), np.empty((int(most.max()), 2), np.int32)
            more = (*scratch["own"], strata, samples, begins[r], ends[r])
            pairs[r] = draw_samples(corpus, *runs[r], how, np.uint64(seed), *more)

        run_lanes(range(len(runs)), [None] * len(runs), draw, self.threads)
        losses, rates = np.zeros(strata * strata), rates.astype(np.float32)

        def step(_: None, block: int, scratch: dict) -> None:
            losses[block] = step_block(samples, ends, block, x, y, how, rates)

        for t in range(strata):
            run_lanes(turn(strata, t), [None] * strata, step, self.threads)
        return PairEvidence(float(losses.sum()), int(pairs[::LISTEN].sum()), int(pairs.sum()))
