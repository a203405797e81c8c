"""Low rank met at the stored entries, as part of ``CpuEngine``; numba is loaded when the first of these is called."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.host import Host


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


def _pattern(x: Any, threads: int) -> Any:
    """Where the entries of x stand; kept with a placed matrix, its columns found when they are asked for."""
    from eckart.engines.cpu.entries.sampled import Pattern

    if not isinstance(x, Host):
        return Pattern(x, threads)
    if "pattern" not in x.kept:
        x.kept["pattern"] = Pattern(x.matrix, threads)
    return x.kept["pattern"]
