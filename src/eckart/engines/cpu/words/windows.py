"""Skip-gram steps as part of ``CpuEngine``: runs of pieces on threads that share the tables without locks, or one run after another."""

from __future__ import annotations

import itertools

import numpy as np

from eckart.engines.protocol.windows import PairEvidence, Pieces, WindowRule
from eckart.scheduler import run_lanes

RUN = 2**14
"""Words of a run, about."""
SPREAD = 1_000_003


class SkipGramPrimitives:
    """pair_step on ``threads`` threads; numba is loaded when it is called."""

    threads: int

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
        from eckart.engines.cpu.words.window_kernels import train_pieces

        runs = _runs(pieces.bounds, *part)
        whole = max(int(pieces.bounds[part[1]] - pieces.bounds[part[0]]), 1)
        found = [PairEvidence(0.0, 0, 0)] * len(runs)

        def rate(piece: int) -> float:
            return rates[0] + (rates[1] - rates[0]) * float(pieces.bounds[piece] - pieces.bounds[part[0]]) / whole

        def step(lane: int, i: int, scratch: dict) -> None:
            if "kept" not in scratch:
                longest = int(np.diff(pieces.bounds).max(initial=0))
                groups = (rule.drawn + 6) // 6
                scratch["kept"] = np.empty(longest, np.int32)
                scratch["scores"] = np.zeros((2, groups, 2, 8), np.float32)
            a, b = runs[i]
            found[i] = PairEvidence(
                *train_pieces(
                    pieces.ids, pieces.bounds, a, b, pieces.keep, pieces.chance, pieces.alias, x, y, rule.window, rule.drawn, np.float32(rule.weight),
                    (rate(a), rate(b)), np.uint64(seed), rule.bias, scratch["kept"], scratch["scores"][0], scratch["scores"][1],
                )
            )  # fmt: skip

        threads = self.threads if together else 1
        run_lanes(range(len(runs)), list(range(max(2 * threads, 1))), step, threads)
        out = PairEvidence(0.0, 0, 0)
        for each in found:
            out = out.merge(each)
        return out


def _runs(bounds: np.ndarray, first: int, last: int) -> list[tuple[int, int]]:
    """Ranges of pieces of about RUN words."""
    at = [first]
    while at[-1] < last:
        next_ = int(np.searchsorted(bounds, bounds[at[-1]] + RUN))
        at.append(min(max(next_, at[-1] + 1), last))
    return list(itertools.pairwise(at))
