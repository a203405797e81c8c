"""Ridge problems of rows and the evidence about them, as part of ``CpuEngine``; numba is loaded when the first of them is called."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.cpu.dense.thin import parts_of
from eckart.engines.host import place
from eckart.engines.protocol import Evidence, PrecisionDraws, RidgeRule, RowSolution
from eckart.rng import streams
from eckart.scheduler import run_lanes


class RidgePrimitives:
    """The families ``ridge`` and ``entries`` on ``threads`` threads."""

    threads: int

    def ridge_rows(self, x: Any, right: np.ndarray, rule: RidgeRule, **more: Any) -> RowSolution:
        from eckart.engines.cpu.ridge.schedule import ridge_rows

        return ridge_rows(place(x), right, rule, threads=self.threads, **more)

    def bias_rows(
        self,
        x: Any,
        rule: RidgeRule,
        offset: np.ndarray | None,
        weights: np.ndarray | None = None,
        *,
        mean: float = 0.0,
    ) -> np.ndarray:
        from eckart.engines.cpu.ridge.schedule import bias_rows

        return bias_rows(place(x), rule, x.dtype, self.threads, offset=offset, weights=weights, mean=mean)

    def ridge_penalty(self, x: Any, rule: RidgeRule, factor: np.ndarray, bias: np.ndarray | None) -> float:
        from eckart.engines.cpu.ridge.schedule import ridges

        ridge, bias_ridge = ridges(place(x), rule)
        parts = parts_of(*factor.shape)
        sums = [np.zeros(1) for _ in parts]

        def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
            rows = slice(*part)
            total += ridge[rows] @ np.einsum("ij,ij->i", factor[rows], factor[rows], dtype=np.float64)
            if bias is not None:
                total += bias_ridge[rows] @ np.square(bias[rows], dtype=np.float64)

        run_lanes(parts, sums, step, self.threads)
        return 0.5 * float(np.sum(sums))

    def misfit_rows(self, x: Any, left: np.ndarray, right: np.ndarray, **more: Any) -> np.ndarray:
        from eckart.engines.cpu.entries.evidence import misfit_rows

        return misfit_rows(place(x), left, right, self.threads, **more)

    def pair_rows(
        self, one: np.ndarray, two: np.ndarray, first: np.ndarray, second: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        from eckart.engines.cpu.entries.pairs import pair_rows

        return pair_rows(one, two, first, second, self.threads)

    def precision_rows(
        self, seed: tuple[int, ...], misfit: np.ndarray, counts: np.ndarray, shape: float, scale: float, floor: float
    ) -> PrecisionDraws:
        out, items = np.empty_like(misfit), list(streams(seed, len(misfit)))
        sums = [np.zeros(3) for _ in items]

        def step(total: np.ndarray, item: tuple[slice, np.random.Generator], scratch: dict) -> None:
            rows, rng = item
            p = rng.gamma(0.5 * (shape + counts[rows])) / (0.5 * (shape / scale + misfit[rows]))
            np.clip(p, floor, 1.0 / floor, out=out[rows])
            logs = np.log(out[rows])
            total += out[rows].sum(), logs.sum(), np.vdot(counts[rows], logs)

        run_lanes(items, sums, step, self.threads)
        return PrecisionDraws(out, *map(float, np.sum(sums, axis=0)))

    def evidence_rows(
        self,
        x: Any,
        left: np.ndarray,
        right: np.ndarray,
        rule: RidgeRule,
        *,
        own: np.ndarray | None = None,
        other: np.ndarray | None = None,
        spread: float = 0.0,
        **more: Any,
    ) -> Evidence:
        from eckart.engines.cpu.entries.evidence import evidence_rows

        here: dict[str, Any] = {"own": own, "other": other, "spread": spread, "threads": self.threads}
        return evidence_rows(place(x), left, right, rule, **here, **more)

    def residual_gram(
        self,
        x: Any,
        left: np.ndarray,
        right: np.ndarray,
        v: np.ndarray,
        q: np.ndarray,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: np.ndarray | None = None,
        other: np.ndarray | None = None,
        spread: float = 0.0,
    ) -> np.ndarray:
        from eckart.engines.cpu.entries.entry import entries_of
        from eckart.engines.cpu.entries.residual_gram import residual_gram

        x = place(x)
        e = entries_of(x, right.dtype, rule, bias=own, offset=other, mean=mean)
        return residual_gram(x, e, left, right, v, q, spread, self.threads)

    def offset_times(
        self, x: Any, v: np.ndarray, mean: float, own: Any, other: Any, row_scale: Any = None, column_scale: Any = None
    ) -> np.ndarray:
        from eckart.engines.cpu.entries.evidence import offset_times

        return offset_times(place(x), v, row_scale, column_scale, self.threads, mean=mean, bias=own, offset=other)

    def top_columns(
        self, left: np.ndarray, right: np.ndarray, n: int, offset: np.ndarray | None = None, excluded: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        from eckart.engines.cpu.entries.top import top_columns

        return top_columns(left, right, n, offset, excluded, self.threads)
