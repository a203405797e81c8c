"""Rows under a mixture of a family whose log density is linear in the entries
(``protocol.mixtures.Linear``), on a device, in float64.

    log p(x, z) = log weights_z + sum over seen entries of (A_zj x_j + B_zj) + c(x),      sums of w
    q x_j and of w q over the rows that see j

All logs are one product of the rows, all sums another; sparse rows, and rows with gaps, go by their
entries. Other families, and streams of rows with gaps, are the CPU engine's.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from eckart.engines.protocol.mixtures import TINY, Posteriors
from eckart.matrix import Observed


class DeviceFamilies:
    """Rows under a mixture of a linear family."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any

    def check_family(self, x: Any, family: Any) -> None:
        """What is not as it should be is looked for by the CPU engine, whose words name it; a
        family that takes all finite numbers needs a look alone."""
        x = self.held(x)
        if x.kind == "dense" and not hasattr(family, "check"):
            try:
                for _ in x.blocks():
                    pass
                return
            except GapsFound:
                if not getattr(family, "gaps", False):
                    raise
        if not hasattr(family, "linear") or not self._sound(x, family):
            self.on_cpu("check_family", x, family)

    def _sound(self, x: Held, family: Any) -> bool:
        """Whether all entries are where the family wants them; no where one is NaN."""
        low, high = family.within

        def inside(part: torch.Tensor) -> torch.Tensor:
            return ((part >= low) & (part <= high) & torch.isfinite(part)).all()

        try:
            found = (
                [inside(block) for _, block in x.blocks()]
                if x.kind == "dense"
                else [inside(x.entries.data)]
            )
        except GapsFound:
            return False
        return x.kind != "observed" and bool(found) and bool(torch.stack(found).all())

    def family_statistics(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> tuple[float, float, np.ndarray, Any]:
        """Dense rows block by block; shares of sparse ones are held for all rows, since sums go by
        columns."""
        x = self.held(x)
        rows = self._by_entries(x) if hasattr(family, "linear") else None
        if rows is None:
            return self.on_cpu("family_statistics", x, family, weights, parameters)
        x, sums = rows, None
        for part in self._family_shares(x, family, weights, parameters, x.weights):
            own = _sums(x, *part)
            sums = own if sums is None else [a + b for a, b in zip(sums, own)]
        if sums is None:
            return self.on_cpu("family_statistics", x, family, weights, parameters)
        weight, bound, counts, entries, seen = all_fetched(*sums)
        return (
            float(weight),
            float(bound),
            counts,
            family.summed(entries, np.broadcast_to(seen, entries.shape), counts),
        )

    def family_posteriors(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> Posteriors:
        x = self.held(x)
        rows = self._by_entries(x) if hasattr(family, "linear") else None
        found = (
            []
            if rows is None
            else [
                part[1:3] for part in self._family_shares(rows, family, weights, parameters, None)
            ]
        )
        if not found:
            return self.on_cpu("family_posteriors", x, family, weights, parameters)
        return Posteriors(*(fetched(torch.cat(list(each))) for each in zip(*found)))

    def _by_entries(self, x: Held) -> Held | None:
        """Rows with NaN as rows of the entries that are seen, made once; none where they come as a
        stream, which has no room as a whole."""
        if x.kind != "dense":
            return x
        if "seen" not in x.kept:
            try:
                if x.resident is None and not x.checked:
                    for _ in x.blocks():  # looked through once
                        pass
                x.kept["seen"] = x
            except GapsFound:
                x.kept.pop("whole", None)
                inside = isinstance(x.host.matrix.values, np.ndarray)
                seen = (
                    Observed.from_nan(x.host.matrix.values.astype(x.dtype, copy=False))
                    if inside
                    else None
                )
                x.kept["seen"] = (
                    None if seen is None else Held.of(Host(seen, x.host.weights), x.device, x.room)
                )
        return x.kept["seen"]

    def _family_shares(
        self, x: Held, family: Any, weights: np.ndarray, parameters: Any, heavy: torch.Tensor | None
    ) -> Iterator[tuple[Any, ...]]:
        """(rows, log p of each, shares times weights, the weights) of some rows at a time; of
        sparse ones of all, and None in the place of the rows."""
        model = family.linear(parameters)
        slope = self.tensor(np.ascontiguousarray(model.entries.T), np.float64)
        level = (
            None
            if model.seen is None
            else self.tensor(np.ascontiguousarray(model.seen.T), np.float64)
        )
        start = self.tensor(np.log(np.maximum(weights, TINY)), np.float64)
        if x.kind != "observed" and level is not None:
            start = start + level.sum(0)
        if x.kind != "dense":
            logs = entry_product(x.entries, x.entries.data.double(), slope) + start
            if x.kind == "observed" and level is not None:
                logs += entry_product(
                    x.entries, torch.ones_like(x.entries.data, dtype=torch.float64), level
                )
            if model.counted:
                logs += self._coefficient(x)[:, None]
            yield None, *normalised(logs, heavy), heavy
            return
        for first, block in x.blocks():
            wide = block.double()
            logs = wide @ slope + start
            if model.counted:
                logs += (torch.lgamma(wide.sum(1) + 1) - torch.lgamma(wide + 1).sum(1))[:, None]
            w = None if heavy is None else heavy[first : first + len(block)]
            yield wide, *normalised(logs, w), w

    def _coefficient(self, x: Held) -> torch.Tensor:
        """log (sum x)! - sum log x_j! of every sparse row, made once."""
        if "coefficient" not in x.kept:
            e = x.entries
            own = row_sums(e, torch.lgamma(e.data.double() + 1))
            x.kept["coefficient"] = torch.lgamma(row_sums(e, e.data.double()) + 1) - own
        return x.kept["coefficient"]


def _sums(
    x: Held,
    wide: torch.Tensor | None,
    loglik: torch.Tensor,
    q: torch.Tensor,
    w: torch.Tensor | None,
) -> list[torch.Tensor]:
    """sum w, sum w log p, and of every component sum q, sum q x_j and sum q over the rows that see
    j (one number where all rows see all columns)."""
    counts = q.sum(0)
    if wide is not None:
        entries, seen = q.T @ wide, counts[:, None]
    else:
        entries, seen = entry_product(x.T.entries, x.T.entries.data.double(), q).T, counts[:, None]
        if x.kind == "observed":
            seen = entry_product(
                x.T.entries, torch.ones_like(x.T.entries.data, dtype=torch.float64), q
            ).T
    if w is None:
        return [loglik.new_full((), len(loglik)), loglik.sum(), counts, entries, seen]
    return [w.sum(), torch.where(w > 0, w * loglik, 0.0).sum(), counts, entries, seen]
