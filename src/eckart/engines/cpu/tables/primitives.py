"""Rows of scores with gaps, as part of ``CpuEngine``; numba is loaded when the first of these is
called."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from eckart.engines.arrays.tables import ArrayTables
from eckart.engines.cpu.small import SMALL, or_arrays, or_arrays_on_factor
from eckart.engines.host import place
from eckart.engines.protocol.series import FactorRule, FilledMoments
from eckart.scheduler import lanes_for, run_lanes

CHUNK = 2**16
"""Numbers in the complete rows of a part: they stay in cache for the product that sums them up, and
small tables have one part."""


def _parts(starts: np.ndarray, n: int) -> list[tuple[int, int]]:
    """Ranges of patterns."""
    cuts = np.searchsorted(
        starts, np.arange(0, starts[-1], max(64, CHUNK // max(n, 1))), side="left"
    )
    return list(itertools.pairwise(np.unique(np.append(cuts, len(starts) - 1)).tolist()))


def _placed(
    x: Any,
    factors: np.ndarray,
    mean: np.ndarray,
    noise: np.ndarray,
    width: np.ndarray | None,
    codes: np.ndarray | None,
    weights: np.ndarray | None,
) -> tuple[Any, list[tuple[int, int]], Any, np.ndarray]:
    """Rows by their gaps, ranges of patterns, the model as kernels take it, and the matrix that
    makes codes of complete rows."""
    from eckart.engines.cpu.tables.kernels import Scheme, Seen, complete_rows

    x = place(x)
    m, (n, k) = x.matrix, factors.shape
    if "patterns of gaps" not in x.kept:
        seen = Seen.of(m.indptr, m.indices, m.data, n)
        x.kept["patterns of gaps"] = seen, _parts(seen.starts, n)
    seen, parts = x.kept["patterns of gaps"]
    w, own = (np.ascontiguousarray(a, np.float64) for a in (factors, noise))
    scaled, to_codes, precision, whole = complete_rows(w, own, seen.scores.shape[1])
    d, start, middle = np.zeros(0), np.zeros((0, k)), np.zeros(seen.scores.shape[1])
    middle[:n] = mean
    if width is not None:
        d, start = (
            np.asarray(width, np.float64),
            np.zeros((len(seen.order), k))
            if codes is None
            else np.ascontiguousarray(codes, np.float64),
        )
    times = np.zeros(0) if weights is None else np.asarray(weights, np.float64)[seen.order]
    return seen, parts, Scheme(w, scaled, precision, whole, middle, own, d, start, times), to_codes


class TablePrimitives(ArrayTables):
    """The primitives of ``protocol.tables`` on ``threads`` threads."""

    # Time of arrays over that of kernels, 20,000 rows of 40 scores, gaps of their own, 5 factors,
    # one thread of an AMD EPYC: filled_moments 15, left_out_rows 4.8; factor_steps of 100 x 8 9.7.
    threads: int

    @or_arrays(ArrayTables)
    def filled_moments(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        *,
        width: np.ndarray | None = None,
        codes: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> tuple[FilledMoments, np.ndarray]:
        from eckart.engines.cpu.tables.kernels import filled_patterns

        seen, parts, scheme, to_codes = _placed(x, factors, mean, noise, width, codes, weights)
        (n, k), (rows, wide) = factors.shape, seen.scores.shape
        out, most = (
            np.empty((rows, k)),
            max((seen.starts[b] - seen.starts[a] for a, b in parts), default=0),
        )
        lanes = [
            (np.zeros(n), np.zeros((wide, wide)), np.zeros((n, n)), np.zeros(1), np.zeros(n))
            for _ in range(lanes_for(len(parts), 16 * n * n))
        ]

        def step(lane: tuple[np.ndarray, ...], part: tuple[int, int], scratch: dict) -> None:
            total, products, spread, logs, wild = lane
            if "room" not in scratch:
                scratch["room"] = np.empty((most, wide))
            begin, end = seen.starts[part[0]], seen.starts[part[1]]
            away = scratch["room"][: end - begin]
            logs += filled_patterns(seen, scheme, *part, away, total, spread, wild)
            out[seen.order[begin:end]] = (
                away @ to_codes
            )  # the code of a row is linear in its scores: that of its expected ones
            products += (
                away * scheme.times[begin:end, None] if len(scheme.times) else away
            ).T @ away

        run_lanes(parts, lanes, step, self.threads)
        total, products, spread, logs, wild = (
            (np.sum(each, axis=0) for each in zip(*lanes)) if len(lanes) > 1 else lanes[0]
        )
        products = products[:n, :n]
        # the square of what is seen is that of the complete row, whose gaps make it least
        loglik = -0.5 * float(logs[0] + np.vdot(scheme.precision[:, :n], products))
        first = total + (scheme.times.sum() if len(scheme.times) else rows) * mean
        second = products + spread + spread.T + np.outer(total, mean) + np.outer(mean, first)
        second.ravel()[:: n + 1] -= spread.ravel()[:: n + 1]
        return FilledMoments(first, second, loglik, wild), out

    @or_arrays(ArrayTables)
    def left_out_rows(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        parts: np.ndarray,
        *,
        width: np.ndarray | None = None,
        codes: np.ndarray | None = None,
    ) -> np.ndarray:
        from eckart.engines.cpu.tables.kernels import filled_patterns, left_out_patterns

        seen, ranges, scheme, _ = _placed(x, factors, mean, noise, width, codes, None)
        (n, _), (rows, wide) = factors.shape, seen.scores.shape
        out, bounds = np.empty((rows, n)), np.ascontiguousarray(parts, np.int64)

        def step(_: None, part: tuple[int, int], scratch: dict) -> None:
            away = np.empty((seen.starts[part[1]] - seen.starts[part[0]], wide))
            filled_patterns(seen, scheme, *part, away, np.zeros(n), np.zeros((n, n)), np.zeros(n))
            left_out_patterns(seen, scheme, bounds, *part, away, out)

        run_lanes(ranges, [None] * len(ranges), step, self.threads)
        return out

    @or_arrays_on_factor(ArrayTables, lambda cov, w, noise, rule: rule.rows * len(w), SMALL)
    def factor_steps(
        self, cov: np.ndarray, factors: np.ndarray, noise: np.ndarray, rule: FactorRule
    ) -> tuple[np.ndarray, np.ndarray]:
        from eckart.engines.cpu.registers.mixtures import padded
        from eckart.engines.cpu.tables.factor_steps import factor_loop

        (n, k), own = factors.shape, np.array(noise, np.float64)
        w, c = np.zeros((-(-k // 4) * 4, padded(n))), np.zeros((n, padded(n)))
        w[:k, :n], c[:, :n] = factors.T, cov
        numbers = np.array([rule.rows, rule.l2, rule.degrees, rule.least], np.float64)
        factor_loop(
            k, w, own, c, numbers, np.asarray(rule.more, np.float64), rule.steps, rule.still
        )
        return np.ascontiguousarray(w[:k, :n].T), own
