"""Low rank met at the stored entries, as part of ``CpuEngine``; numba is loaded when the first of these is called."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.host import Host, place
from eckart.engines.protocol import LossSums, RidgeRule, RowSolution, ThresholdSums


class SampledPrimitives:
    """sampled, residual, by_columns, entry_times, entry_times_t on ``threads`` threads."""

    threads: int

    def sampled(self, x: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        from eckart.engines.cpu.entries.sampled import sampled

        return sampled(_pattern(x, self.threads), left, right, self.threads)

    def residual(self, x: Any, data: np.ndarray, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
        from eckart.engines.cpu.entries.sampled import residual

        return residual(_pattern(x, self.threads), data, left, right, self.threads)

    def by_columns(self, x: Any, data: np.ndarray) -> np.ndarray:
        from eckart.engines.cpu.entries.sampled import by_columns

        return by_columns(_pattern(x, self.threads), data, self.threads)

    def entry_times(self, x: Any, data: np.ndarray, v: np.ndarray) -> np.ndarray:
        from eckart.engines.cpu.entries.sampled import residual_times

        return residual_times(_pattern(x, self.threads), data, v, self.threads)

    def entry_times_t(self, x: Any, t_data: np.ndarray, y: np.ndarray) -> np.ndarray:
        from eckart.engines.cpu.entries.sampled import residual_times_t

        return residual_times_t(_pattern(x, self.threads), t_data, y, self.threads)


class LossPrimitives:
    """linearised, loss_sums, threshold_sums, shortened_rows, augmented, slice_rows on ``threads`` threads."""

    threads: int
    normal: Any

    def linearised(self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, **at: Any) -> tuple[Host, float]:
        from eckart.engines.cpu.entries.losses import linearised

        return linearised(place(x), loss, left, right, self.threads, **at)

    def loss_sums(self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, **at: Any) -> LossSums:
        from eckart.engines.cpu.entries.losses import loss_sums

        return loss_sums(place(x), loss, left, right, self.threads, **at)

    def threshold_sums(self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, **at: Any) -> ThresholdSums:
        from eckart.engines.cpu.entries.losses import threshold_sums

        return threshold_sums(place(x), loss, left, right, self.threads, **at)

    def shortened_rows(
        self,
        x: Any,
        loss: Any,
        right: np.ndarray,
        rule: RidgeRule,
        left: np.ndarray,
        new: np.ndarray,
        *,
        own: np.ndarray | None = None,
        new_own: np.ndarray | None = None,
        **at: Any,
    ) -> RowSolution:
        from eckart.engines.cpu.entries.losses import shortened_rows

        return shortened_rows(place(x), loss, right, rule, left, new, self.threads, own=own, new_own=new_own, **at)


    def augmented(
        self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, noise: Any, **at: Any
    ) -> Host:
        from eckart.engines.cpu.entries.losses import augmented

        if isinstance(noise, tuple):
            noise = self.normal(noise, (x.nnz, 1), np.float64)
        return augmented(place(x), loss, left, right, noise, self.threads, **at)

    def slice_rows(
        self,
        x: Any,
        loss: Any,
        left: np.ndarray,
        right: np.ndarray,
        point: np.ndarray,
        centre: np.ndarray,
        drawn: np.ndarray,
        noise: np.ndarray,
        **at: Any,
    ) -> np.ndarray:
        from eckart.engines.cpu.entries.losses import slice_rows

        return slice_rows(place(x), loss, left, right, point, centre, drawn, noise, self.threads, **at)


def _pattern(x: Any, threads: int) -> Any:
    """Where the entries of x stand; kept with a placed matrix, its columns found when they are asked for."""
    from eckart.engines.cpu.entries.sampled import Pattern

    if not isinstance(x, Host):
        return Pattern(x, threads)
    if "pattern" not in x.kept:
        x.kept["pattern"] = Pattern(x.matrix, threads)
    return x.kept["pattern"]
