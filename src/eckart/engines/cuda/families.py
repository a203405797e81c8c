"""Rows under a mixture of a family whose log density is linear in the entries (``protocol.mixtures.Linear``), on a device, in float64.

    log p(x, z) = log weights_z + sum over seen entries of (A_zj x_j + B_zj) + c(x),      sums of w q x_j and of w q over the rows that see j

All logs are one product of the rows, all sums another; sparse rows, and rows with gaps, go by their entries. Other families are the CPU engine's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.arrays import all_fetched, fetched
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.held import Held
from eckart.engines.cuda.known import row_sums
from eckart.engines.cuda.mixtures import normalised
from eckart.engines.host import Host
from eckart.engines.protocol import GapsFound
from eckart.engines.protocol.mixtures import TINY, Linear, Posteriors
from eckart.matrix import Observed


class DeviceFamilies:
    """Rows under a mixture of a linear family."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any

    def check_family(self, x: Any, family: Any) -> None:
        """What is not as it should be is looked for by the CPU engine, whose words name it."""
        x = self.held(x)
        if not hasattr(family, "linear") or not self._sound(x, family):
            self.on_cpu("check_family", x, family)

    def _sound(self, x: Held, family: Any) -> bool:
        """Whether all entries are where the family wants them; no where one is NaN."""
        low, high = family.within
        try:
            parts = [block for _, block in x.blocks()] if x.kind == "dense" else [x.entries.data]
        except GapsFound:
            return False
        inside = [((part >= low) & (part <= high) & torch.isfinite(part)).all() for part in parts]
        return x.kind != "observed" and bool(inside) and bool(torch.stack(inside).all())

    def family_statistics(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> tuple[float, float, np.ndarray, Any]:
        x = self.held(x)
        if not hasattr(family, "linear"):
            return self.on_cpu("family_statistics", x, family, weights, parameters)
        x = self._by_entries(x)
        loglik, q = self._family_shares(x, family, weights, parameters)
        if x.weights is None:
            weight, bound = loglik.new_full((), len(loglik)), loglik.sum()
        else:
            weight, bound = x.weights.sum(), torch.where(x.weights > 0, x.weights * loglik, 0.0).sum()
        counts = q.sum(0)
        entries = _sums(x, q)
        seen = counts[:, None].expand_as(entries)
        if x.kind == "observed":
            seen = entry_product(x.T.entries, torch.ones_like(x.T.entries.data, dtype=torch.float64), q).T
        weight, bound, counts, entries, seen = all_fetched(weight, bound, counts, entries, seen)
        return float(weight), float(bound), counts, family.summed(entries, seen, counts)

    def family_posteriors(self, x: Any, family: Any, weights: np.ndarray, parameters: Any) -> Posteriors:
        x = self.held(x)
        if not hasattr(family, "linear"):
            return self.on_cpu("family_posteriors", x, family, weights, parameters)
        loglik, q = self._family_shares(self._by_entries(x), family, weights, parameters, False)
        return Posteriors(fetched(loglik), fetched(q))

    def _by_entries(self, x: Held) -> Held:
        """Rows with NaN as rows of the entries that are seen, made once."""
        if x.kind != "dense":
            return x
        if "seen" not in x.kept:
            try:
                x.kept["seen"] = x if x.resident is not None or x.checked else self._streamed(x)
            except GapsFound:
                seen = Observed.from_nan(np.asarray(self.on_cpu("rows_at", x)))
                x.kept["seen"] = Held.of(Host(seen, x.host.weights), x.device, x.room)
        return x.kept["seen"]

    @staticmethod
    def _streamed(x: Held) -> Held:
        """Rows that do not lie on the device, looked through once."""
        for _ in x.blocks():
            pass
        return x

    def _family_shares(
        self, x: Held, family: Any, weights: np.ndarray, parameters: Any, weighted: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """log p of each row, and its shares, times its weight where asked for."""
        model = family.linear(parameters)
        logs = self._logs(x, model) + self.tensor(np.log(np.maximum(weights, TINY)), np.float64)
        return normalised(logs, x.weights if weighted else None)

    def _logs(self, x: Held, model: Linear) -> torch.Tensor:
        slope = self.tensor(np.ascontiguousarray(model.entries.T), np.float64)
        level = None if model.seen is None else self.tensor(np.ascontiguousarray(model.seen.T), np.float64)
        logs = _times(x, slope)
        if level is not None and x.kind == "observed":
            logs += entry_product(x.entries, torch.ones_like(x.entries.data, dtype=torch.float64), level)
        elif level is not None:
            logs += level.sum(0)
        return logs + self._coefficient(x)[:, None] if model.counted else logs

    def _coefficient(self, x: Held) -> torch.Tensor:
        """log (sum x)! - sum log x_j! of every row, made once."""
        if "coefficient" not in x.kept:
            if x.kind == "dense":
                blocks = [block.double() for _, block in x.blocks()]
                parts = [torch.lgamma(b.sum(1) + 1) - torch.lgamma(b + 1).sum(1) for b in blocks]
                x.kept["coefficient"] = torch.cat(parts)
            else:
                e = x.entries
                own = row_sums(e, torch.lgamma(e.data.double() + 1))
                x.kept["coefficient"] = torch.lgamma(row_sums(e, e.data.double()) + 1) - own
        return x.kept["coefficient"]


def _times(x: Held, m: torch.Tensor) -> torch.Tensor:
    """X m in float64."""
    if x.kind != "dense":
        return entry_product(x.entries, x.entries.data.double(), m)
    return torch.cat([block.double() @ m for _, block in x.blocks()])


def _sums(x: Held, q: torch.Tensor) -> torch.Tensor:
    """sum_t q_tz x_tj, k x n."""
    if x.kind != "dense":
        return entry_product(x.T.entries, x.T.entries.data.double(), q).T
    total = q.new_zeros(q.shape[1], x.shape[1])
    for start, block in x.blocks():
        total += q[start : start + len(block)].T @ block.double()
    return total
