"""Rows of scores with gaps, as part of ``CpuEngine``; numba is loaded when the first of these is called."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol.tables import FactorRule, FilledMoments
from eckart.scheduler import lanes_for, run_lanes

CHUNK = 2**16
"""Numbers in the complete rows of a part: they stay in cache for the product that sums them up, and small tables have one part."""


class Patterns(NamedTuple):
    """Rows in the order of their gaps: those of pattern p are order[starts[p]] to order[starts[p + 1]]. Parts are ranges of patterns."""

    order: np.ndarray
    starts: np.ndarray
    parts: list[tuple[int, int]]

    @classmethod
    def of(cls, indptr: np.ndarray, indices: np.ndarray, n: int) -> Patterns:
        rows = len(indptr) - 1
        mask = np.zeros((rows, -(-max(n, 1) // 64) * 64), bool)  # whole words: one number for a row of up to 64 columns, compared at once
        mask[np.repeat(np.arange(rows), np.diff(indptr)), indices] = True
        bits = np.packbits(mask, axis=1).view(np.uint64)
        _, of, count = np.unique(bits[:, 0] if bits.shape[1] == 1 else bits.view(f"V{8 * bits.shape[1]}")[:, 0], return_inverse=True, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(count)])
        cuts = np.searchsorted(starts, np.arange(0, rows, max(64, CHUNK // max(n, 1))), side="left")
        cuts = np.unique(np.append(cuts, len(count)))
        return cls(np.argsort(of, kind="stable"), starts, [(int(a), int(b)) for a, b in itertools.pairwise(cuts)])


class TablePrimitives:
    """The primitives of ``protocol.tables`` on ``threads`` threads."""

    threads: int

    def filled_moments(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        *,
        width: np.ndarray | None = None,
        codes: np.ndarray | None = None,
    ) -> tuple[FilledMoments, np.ndarray]:
        from eckart.engines.cpu.tables.kernels import Scheme, Seen, filled_patterns

        x = place(x)
        m, (n, k) = x.matrix, factors.shape
        if "patterns of gaps" not in x.kept:
            x.kept["patterns of gaps"] = Patterns.of(m.indptr, m.indices, n)
        order, starts, parts = x.kept["patterns of gaps"]
        w, mean, noise = (np.ascontiguousarray(a, np.float64) for a in (factors, mean, noise))
        d = np.full(n, np.inf) if width is None else np.asarray(width, np.float64)
        start = np.zeros((len(order), k)) if codes is None else np.ascontiguousarray(codes, np.float64)
        out = np.empty((len(order), k))
        seen = Seen(m.indptr, m.indices, np.asarray(m.data, np.float64), order, starts)
        scaled = w / noise[:, None]
        system = np.eye(k) + scaled.T @ w  # M of a complete row
        to_codes = np.linalg.solve(system, scaled.T).T
        precision = np.diag(1.0 / noise) - scaled @ to_codes.T
        whole = float(np.linalg.slogdet(system)[1] + np.log(noise).sum())
        scheme = Scheme(w, scaled, precision, whole, mean, noise, d, start)
        lanes = [
            (np.zeros(n), np.zeros((n, n)), np.zeros((n, n)), np.zeros(1), np.zeros(n))
            for _ in range(lanes_for(len(parts), 16 * n * n))
        ]

        def step(lane: tuple[np.ndarray, ...], part: tuple[int, int], scratch: dict) -> None:
            first, products, spread, loglik, wild = lane
            begin, end = starts[part[0]], starts[part[1]]
            away = np.empty((end - begin, n))
            logs = filled_patterns(seen, scheme, *part, away, spread, wild)
            codes = away @ to_codes  # the code of a row is linear in its scores: that of its expected ones
            out[order[begin:end]] = codes
            # the square of what is seen is that of the complete row, whose gaps make it least
            square = (away * away).sum(axis=0) @ (1.0 / noise) - np.vdot(away @ scaled, codes)
            loglik -= 0.5 * (logs + square)
            full = away + mean
            first += full.sum(axis=0)
            products += full.T @ full

        run_lanes(parts, lanes, step, self.threads)
        first, products, spread, loglik, wild = (np.sum(each, axis=0) for each in zip(*lanes))
        second = products + spread + np.tril(spread, -1).T
        return FilledMoments(first, second, float(loglik[0]), wild), out

    def factor_steps(
        self, cov: np.ndarray, factors: np.ndarray, noise: np.ndarray, rule: FactorRule
    ) -> tuple[np.ndarray, np.ndarray]:
        from eckart.engines.cpu.tables.factor_steps import factor_loop

        w, own = np.array(factors.T, np.float64, order="C"), np.array(noise, np.float64)
        numbers = np.array([rule.rows, rule.l2, rule.degrees, rule.least], np.float64)
        factor_loop(w, own, np.ascontiguousarray(cov, np.float64), numbers, np.asarray(rule.more, np.float64), rule.steps, rule.still)
        return np.ascontiguousarray(w.T), own
