"""Ridge problems of rows, as part of ``CpuEngine``; numba is loaded when the first of them is
called."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.cpu.dense.thin import parts_of
from eckart.engines.cpu.small import later, or_arrays
from eckart.engines.host import Host, place
from eckart.engines.protocol import PrecisionDraws, RidgeRule
from eckart.rng import streams
from eckart.scheduler import run_lanes

PRODUCTS = 96
"""Products of two factors at stored entries that go with each number of a small matrix: 10,000
ratings and 17 factors, 30,000 and 10. There a fit by arrays takes .1 s longer than by kernels that
are loaded, which takes .5 s (one thread of an AMD EPYC)."""


def _for_kernels(engine: Any, x: Host, right: np.ndarray, rule: RidgeRule, **more: Any) -> bool:
    """Whether a small matrix asks for more work than that: with many factors, in every one of some
    hundred draws, or coordinate by coordinate; or whether it is a block of larger data, whose
    factors come in another basis (``turned_once``)."""
    if more.get("turned") is not None:
        return True
    # 10,000 ratings: 2.3 s by kernels, 5.4 by arrays for the default draws of BayesianMF
    if rule.nonnegative or more.get("noise") is not None:
        return engine.small < float("inf")
    return x.nnz * right.shape[1] ** 2 > PRODUCTS * engine.small


class RidgePrimitives(ArrayEntries):
    """The family ``ridge`` on ``threads`` threads."""

    threads: int

    ridge_rows = or_arrays(ArrayEntries, unless=_for_kernels)(later("ridge.schedule", "ridge_rows"))
    bias_rows = or_arrays(ArrayEntries)(later("ridge.schedule", "bias_rows"))

    @or_arrays(ArrayEntries)
    def ridge_penalty(
        self, x: Any, rule: RidgeRule, factor: np.ndarray, bias: np.ndarray | None
    ) -> float:
        from eckart.engines.cpu.ridge.schedule import ridges

        ridge, bias_ridge = ridges(place(x), rule)
        parts = parts_of(*factor.shape)
        sums = [np.zeros(1) for _ in parts]

        def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
            rows = slice(*part)
            total += ridge[rows] @ np.einsum(
                "ij,ij->i", factor[rows], factor[rows], dtype=np.float64
            )
            if bias is not None:
                total += bias_ridge[rows] @ np.square(bias[rows], dtype=np.float64)

        run_lanes(parts, sums, step, self.threads)
        return 0.5 * float(np.sum(sums))

    def precision_rows(
        self,
        seed: tuple[int, ...],
        misfit: np.ndarray,
        counts: np.ndarray,
        shape: float,
        scale: float,
        floor: float,
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
