"""A loss met at the stored entries, on a device, by the loss's own formulas (``formulas``). Losses
whose formulas ask for more than arithmetic (grades with thresholds), and entries with a steepness
of their own, are the CPU engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from eckart.engines.cuda.arrays import DeviceArray
from eckart.engines.cuda.formulas import Numbers
from eckart.engines.cuda.held import DeviceMatrix
from eckart.engines.cuda.known import row_sums
from eckart.engines.cuda.sampled import at_entries
from eckart.engines.protocol import LossSums, RidgeRule, RowSolution
from eckart.engines.protocol.losses import FLATTEST, HALVES

PIECE = 2**25
"""Entries whose formulas are worked out at once."""


class DeviceLosses:
    """Losses at the stored entries."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any

    def linearised(
        self, x: Any, loss: Any, left: Any, right: Any, **at: Any
    ) -> tuple[DeviceMatrix, float]:
        x = self.held(x)
        e = x.entries
        try:
            s = self._parameters(x, left, right, **at)
            value, g, c = _formulas(loss.parts, e.data, s)
        except TypeError:
            found, value = self.on_cpu("linearised", x, loss, left, right, **at)
            return self.held(found), value
        c = c.clamp(min=FLATTEST)
        total = value.double().sum() if e.weights is None else value.double() @ e.weights.double()
        return DeviceMatrix.with_entries(
            x, s - g / c, c if e.weights is None else c * e.weights
        ), float(total)

    def loss_sums(
        self, x: Any, loss: Any, left: Any, right: Any, *, shrink: float | None = None, **at: Any
    ) -> LossSums:
        x = self.held(x)
        a, w = x.entries.data.double(), x.entries.weights

        def parts(a: Numbers, s: Numbers) -> list[Numbers]:
            g = loss.gradient(a, s)
            return [loss.value(a, s), g] + (
                [] if shrink is None else [loss.conjugate(a, shrink * g)]
            )

        try:
            found = _formulas(parts, a, self._parameters(x, left, right, **at).double())
        except TypeError:
            return self.on_cpu("loss_sums", x, loss, left, right, shrink=shrink, **at)
        sums = torch.stack(
            [each.sum() if w is None else each @ w.double() for each in found]
        ).tolist()
        return LossSums(*sums, *([0.0] if shrink is None else []))

    def shortened_rows(
        self,
        x: Any,
        loss: Any,
        right: Any,
        rule: RidgeRule,
        left: Any,
        new: Any,
        *,
        own: Any = None,
        new_own: Any = None,
        **at: Any,
    ) -> RowSolution:
        x = self.held(x)
        u, v = self.tensor(left, x.dtype), self.tensor(new, x.dtype)
        b, d = (
            u.new_zeros(len(u)) if a is None else self.tensor(a, x.dtype).reshape(-1)
            for a in (own, new_own)
        )
        try:
            before = self._row_costs(x, loss, u, right, b, rule, **at)
        except TypeError:
            return self.on_cpu(
                "shortened_rows", x, loss, right, rule, left, new, own=own, new_own=new_own, **at
            )
        share, went, next_bias, after = torch.ones_like(b), v, d, before
        for _ in range(HALVES):
            after = self._row_costs(x, loss, went, right, next_bias, rule, **at)
            worse = ~(after <= before)
            if not bool(worse.any()):
                break
            share = torch.where(worse, share / 2, share)
            went = torch.where(worse[:, None], u + share[:, None] * (v - u), went)
            next_bias = torch.where(worse, b + share * (d - b), next_bias)
        else:
            went, next_bias, after = (
                torch.where(worse[:, None], u, went),
                torch.where(worse, b, next_bias),
                torch.where(worse, before, after),
            )
        return RowSolution(
            DeviceArray(went), None if own is None else DeviceArray(next_bias), float(after.sum())
        )

    def _parameters(
        self,
        x: DeviceMatrix,
        left: Any,
        right: Any,
        mean: float = 0.0,
        own: Any = None,
        other: Any = None,
        row_steep: Any = None,
        column_steep: Any = None,
    ) -> torch.Tensor:
        """s at the entries, in the precision of x."""
        if row_steep is not None or column_steep is not None:
            raise TypeError("entries have a steepness of their own")
        e = x.entries
        s = at_entries(e, self.tensor(left, x.dtype), self.tensor(right, x.dtype)) + mean
        if own is not None:
            s += self.tensor(own, x.dtype).reshape(-1)[e.row_of]
        if other is not None:
            s += self.tensor(other, x.dtype).reshape(-1)[e.indices]
        return s

    def _row_costs(
        self,
        x: DeviceMatrix,
        loss: Any,
        left: torch.Tensor,
        right: Any,
        bias: torch.Tensor,
        rule: RidgeRule,
        **at: Any,
    ) -> torch.Tensor:
        """Loss and penalty of every row, in float64."""
        e, (ridge, bias_ridge) = x.entries, x.kept_ridges(rule)
        s = self._parameters(x, DeviceArray(left), right, own=DeviceArray(bias), **at).double()
        (value,) = _formulas(lambda a, s: [loss.value(a, s)], e.data.double(), s)
        rows = row_sums(e, value if e.weights is None else value * e.weights.double())
        return (
            rows + 0.5 * ridge * (left.double() ** 2).sum(1) + 0.5 * bias_ridge * bias.double() ** 2
        )


def _formulas(
    do: Callable[[Numbers, Numbers], Iterable[Numbers]], a: torch.Tensor, s: torch.Tensor
) -> list[torch.Tensor]:
    """What ``do`` makes of values and natural parameters, some entries at a time: a formula makes
    several arrays on its way."""
    cuts = range(0, max(1, len(a)), PIECE)
    parts = [
        [each.tensor for each in do(Numbers(a[i : i + PIECE]), Numbers(s[i : i + PIECE]))]
        for i in cuts
    ]
    return parts[0] if len(parts) == 1 else [torch.cat(list(each)) for each in zip(*parts)]
