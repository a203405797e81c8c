"""Half sweeps of non-negative factorization on a device: coordinate by coordinate for all rows at
once, and multiplicative steps by buckets of rows.

Formulas and limits are those of ``protocol.parts``; sums that a certificate uses are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.arrays import DeviceArray, all_fetched, promised
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.held import Held
from eckart.engines.cuda.kernels import divergence, usable
from eckart.engines.cuda.known import row_sums
from eckart.engines.cuda.nonnegative import coordinates
from eckart.engines.cuda.sampled import at_entries
from eckart.engines.cuda.stored import padded_rows
from eckart.engines.protocol import CrossSums, Descent, FactorSums, KlRule, KlSums, Pass, SignSums
from eckart.engines.protocol.parts import Totals

LEAST = 1e-10
"""Share of a row below which a multiplicative step does not take a component, so that it can come
back."""


class DeviceParts:
    """Half sweeps of non-negative factorization."""

    back: Any
    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any
    twins: Any

    def _weights(self, x: Any) -> torch.Tensor | None:
        return None if x is None else self.held(x).weights

    def totals(self, x: Any) -> Totals:
        """Rows on the device; a negative entry is looked for by the CPU engine, whose words name
        it."""
        x = self.held(x)
        if x.kind != "dense":
            return self._entry_totals(x)
        if x.resident is None:
            return self.on_cpu("totals", x)
        rows, n = x.resident.shape
        w, parts = x.weights, []
        for start, block in x.blocks():
            if not bool((block >= 0).all()):
                return self.on_cpu("totals", x)
            wide = block.double()
            heavy = None if w is None else w[start : start + len(block)]
            square = (wide * wide).sum(1)
            parts.append(
                (wide.sum(0), square.sum()) if heavy is None else (heavy @ wide, heavy @ square)
            )
        if not parts:
            return self.on_cpu("totals", x)
        columns, square = (torch.stack(list(each)).sum(0).cpu().numpy() for each in zip(*parts))
        weight = float(rows) if w is None else float(w.sum())
        return Totals(rows, weight, weight * n, float(columns.sum()), float(square), columns)

    def _entry_totals(self, x: Held) -> Totals:
        e, (rows, n) = x.entries, x.shape
        each = e.data.double()
        heavy = each if e.weights is None else e.weights.double() * each
        if x.weights is not None:
            heavy = heavy * x.weights[e.row_of]
        w = x.weights if x.weights is not None else each.new_ones(rows)
        least = each.amin() if len(each) else each.new_zeros(())
        numbers = torch.stack(
            [least, w.sum(), w @ e.counts.double(), heavy.sum(), (heavy * each).sum()]
        )
        least, weight, seen, total, square = numbers.tolist()
        if least < 0:
            return self.on_cpu("totals", x)
        return Totals(rows, weight, seen if x.kind == "observed" else weight * n, total, square)

    def zero_filled(self, x: Any) -> Held:
        x = self.held(x)
        return (
            Held.zero_filled(x, lambda: self.back.zero_filled(x.host))
            if x.kind == "observed"
            else x
        )

    def as_rows(self, tall: Any, x: Any) -> Held:
        x = self.held(x)
        return (
            Held.of_rows(tall.tensor, x)
            if isinstance(tall, DeviceArray)
            else self.on_cpu("as_rows", tall, x)
        )

    def factor_mass(self, factor: Any, x: Any = None) -> DeviceArray:
        """Stays on the device, where the other side's steps take it."""
        f, w = self.tensor(factor), self._weights(x)
        return DeviceArray(f.sum(0, dtype=torch.float64) if w is None else w @ f.double())

    def factor_sums(self, factor: Any, x: Any = None) -> FactorSums:
        f, w = self.tensor(factor, np.float64), self._weights(x)
        heavy = f if w is None else w[:, None] * f
        if not f.numel():
            return self.on_cpu("factor_sums", factor, x)
        mass, square, most, least = all_fetched(heavy.sum(0), f.T @ heavy, f.amax(0), f.min())
        return FactorSums(mass, square, float(least), most)

    def sign_sums(self, factor: Any, x: Any = None) -> SignSums:
        f, w = self.tensor(factor, np.float64), self._weights(x)
        if not len(f):
            return self.on_cpu("sign_sums", factor, x)
        both = torch.stack([f.clamp(min=0), (-f).clamp(min=0)])
        squares = (both * both).sum(1) if w is None else torch.einsum("i,sic->sc", w, both * both)
        return SignSums(*all_fetched(squares, both.amax(1)))

    def rectified(
        self, factor: Any, scale: np.ndarray, least: float = 0.0, fill: float = 0.0
    ) -> DeviceArray:
        out = self.tensor(factor) * self.tensor(np.asarray(scale), factor.dtype)
        return DeviceArray(torch.where(out > least, out, fill))

    def projected_rows(self, pull: Any, inverse: np.ndarray, l1: float) -> DeviceArray:
        found = (self.tensor(pull, np.float64) - l1) @ self.tensor(inverse, np.float64)
        return DeviceArray(found.clamp_(min=0).to(self.tensor(pull).dtype))

    def leap(self, new: Any, old: Any, stride: float) -> DeviceArray:
        a = self.tensor(new)
        return DeviceArray(
            torch.add(a, a - self.tensor(old, new.dtype), alpha=stride).clamp_(min=0)
        )

    def cleaned(self, factor: Any, mass: np.ndarray, share: float) -> DeviceArray:
        f = self.tensor(factor)
        part = f * self.tensor(mass, factor.dtype)
        return DeviceArray(torch.where(part > share * part.sum(1, keepdim=True), f, 0.0))

    def hals_rows(
        self,
        gram: np.ndarray,
        pull: Any,
        start: Any,
        l1: float = 0.0,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        """Rows do not stop one by one: those of a program stop together; without a kernel a
        coordinate is moved in all rows at once, and none stops."""
        g, p = self.tensor(gram, np.float64), self.tensor(pull, start.dtype)
        new, level = coordinates(g, p, l1, self.tensor(start), sweeps, None, shrink)
        return Descent(DeviceArray(new), *level.tolist())

    def hals_pass(
        self,
        x: Any,
        right: Any,
        left: Any,
        gram: np.ndarray,
        l1: float,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Pass:
        x = self.held(x)
        g, v, u = (
            self.tensor(gram, np.float64),
            self.tensor(right, x.dtype),
            self.tensor(left, x.dtype),
        )
        if x.kind != "dense":
            new, level = coordinates(
                g, entry_product(x.entries, x.entries.data, v), l1, u, sweeps, x.weights, shrink
            )
            heavy = new if x.weights is None else new * x.weights.to(new.dtype)[:, None]
            cross, square = (
                entry_product(x.T.entries, x.T.entries.data, heavy),
                new.double().T @ heavy.double(),
            )
            return Pass(DeviceArray(new), self._cross_sums(level, cross.double(), square))
        cross = torch.zeros(v.shape, dtype=torch.float64, device=self.device)
        square = torch.zeros_like(g)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        out = []
        for start, block in x.blocks():
            part = slice(start, start + len(block))
            w = None if x.weights is None else x.weights[part]
            new, level = coordinates(g, block @ v, l1, u[part], sweeps, w, shrink)
            heavy = new if w is None else new * w.to(new.dtype)[:, None]
            cross += block.T @ heavy
            square += new.double().T @ heavy.double()
            total += level
            out.append(new)
        return Pass(
            DeviceArray(torch.cat(out) if out else u), self._cross_sums(total, cross, square)
        )

    def _cross_sums(
        self, level: torch.Tensor, cross: torch.Tensor, square: torch.Tensor
    ) -> CrossSums:
        """The cross sums are kept on the device beside their copy: the other side's sweep takes
        them there."""
        host = self.twins.copy(cross)
        (value, kkt), whole = all_fetched(level, square)
        return CrossSums(float(value), float(kkt), host, whole)

    def kl_rows(
        self, x: Any, other: Any, start: Any, rule: KlRule, mass: Any, *, steps: int = 1
    ) -> Descent:
        """Value and violations are promised: a loop that does not ask for them lets the next half
        sweep begin at once."""
        x = self.held(x)
        h, u = self.tensor(other), self.tensor(start)
        down = self.tensor(mass, other.dtype)
        if x.kind == "dense":
            return self._kl_dense(x, h, u, down, rule, steps)
        e = x.entries
        if usable(h):
            new, both = self._kl_by_kernels(x, h.contiguous(), u.contiguous(), down, rule, steps)
            return Descent(
                DeviceArray(new), *promised(both.sum(1) if x.weights is None else both @ x.weights)
            )
        new = torch.zeros_like(u)
        below, total = padded_rows(h), torch.zeros(2, dtype=torch.float64, device=self.device)
        for chunk in e.chunks(h.shape[1]):
            a = chunk.numbers(e.data)
            w = chunk.seen.to(a.dtype) if e.weights is None else chunk.numbers(e.weights)
            gathered = below[chunk.columns]
            own = (
                torch.bmm(w[:, None], gathered)[:, 0]
                if x.kind == "observed"
                else down.expand(len(a), -1)
            )
            pieces = chunk.pieces(gathered)

            def scores(u: torch.Tensor, gathered: torch.Tensor = gathered) -> torch.Tensor:
                return torch.bmm(gathered, u[:, :, None])[:, :, 0]

            def pulled(
                r: torch.Tensor, chunk: Any = chunk, pieces: torch.Tensor = pieces
            ) -> torch.Tensor:
                return chunk.whole(torch.bmm(r.reshape(len(pieces), 1, -1), pieces))[:, 0]

            found, value, kkt = _kl_steps(scores, pulled, w * a, a, u[chunk.rows], own, rule, steps)
            heavy = 1.0 if x.weights is None else x.weights[chunk.rows]
            new[chunk.rows] = found
            total += torch.stack([(heavy * value).sum(), (heavy * kkt).sum()])
        self._kl_empty(x, u, new, down, rule, total)
        return Descent(DeviceArray(new), *promised(total))

    def _kl_dense(
        self,
        x: Held,
        h: torch.Tensor,
        u: torch.Tensor,
        down: torch.Tensor,
        rule: KlRule,
        steps: int,
    ) -> Descent:
        """Where every entry is there: blocks of rows by products with the other factor."""
        total, out = torch.zeros(2, dtype=torch.float64, device=self.device), []
        for start, block in x.blocks():
            part, a = slice(start, start + len(block)), block.to(u.dtype)
            found, value, kkt = _kl_steps(
                lambda u: u @ h.T,
                lambda r: r @ h,
                a,
                a,
                u[part],
                down.expand(len(a), -1),
                rule,
                steps,
            )
            both = torch.stack([value, kkt])
            total += both.sum(1) if x.weights is None else both @ x.weights[part]
            out.append(found)
        return Descent(DeviceArray(torch.cat(out) if out else u), *promised(total))

    def _kl_by_kernels(
        self,
        x: Held,
        h: torch.Tensor,
        u: torch.Tensor,
        down: torch.Tensor,
        rule: KlRule,
        steps: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All rows after the steps; value and violations of each before."""
        e, mass = x.entries, down.contiguous()
        if ("totals", h.dtype) not in x.kept:
            x.kept["totals", h.dtype] = row_sums(
                e, e.data if e.weights is None else e.weights * e.data
            ).to(h.dtype)
        if x.kind == "observed":
            mass = entry_product(
                e, torch.ones_like(e.data) if e.weights is None else e.weights, h
            ).contiguous()
        return divergence.kl_steps(e, x.kept["totals", h.dtype], h, u, mass, rule, steps, LEAST)

    def _kl_empty(
        self,
        x: Held,
        u: torch.Tensor,
        new: torch.Tensor,
        down: torch.Tensor,
        rule: KlRule,
        total: torch.Tensor,
    ) -> None:
        """Rows without entries: one step takes all of them to zero; the mass that they had counts
        before it."""
        empty = x.entries.empty
        if not len(empty):
            return
        own = torch.zeros_like(down) if x.kind == "observed" else down
        nothing = torch.zeros(len(empty), dtype=u.dtype, device=u.device)
        old = _floored(u[empty], own.expand(len(empty), -1), nothing, rule)
        found, value, kkt = _multiplied(
            old, torch.zeros_like(old), own.expand(len(empty), -1), nothing, rule
        )
        heavy = 1.0 if x.weights is None else x.weights[empty]
        new[empty] = found
        total += torch.stack([(heavy * value).sum(), (heavy * kkt).sum()])

    def kl_sums(self, x: Any, left: Any, right: Any, valued: bool = True) -> KlSums:
        x = self.held(x)
        if x.kind != "dense":
            return self.on_cpu("kl_sums", x, left, right, valued)
        u, v = self.tensor(left, x.dtype), self.tensor(right, x.dtype)
        up = torch.zeros(v.shape, dtype=torch.float64, device=self.device)
        value = torch.zeros((), dtype=torch.float64, device=self.device)
        for start, block in x.blocks():
            part = u[start : start + len(block)]
            w = None if x.weights is None else x.weights[start : start + len(block), None]
            least = (1e-30 * block.sum(1, keepdim=True)).clamp_(min=1e-37)
            ratio = block / torch.maximum(part @ v.T, least)
            if valued:
                each = block.double() * (torch.where(block > 0, ratio, 1.0).double().log() - 1)
                value += (each if w is None else w * each).sum()
            up += ratio.T @ (part if w is None else part * w.to(part.dtype))
        return KlSums(DeviceArray(up), promised(value[None])[0])  # both are for kl_step

    def kl_step(
        self, right: Any, sums: KlSums, mass: Any, totals: np.ndarray, rule: KlRule
    ) -> Descent:
        u = self.tensor(right, np.float64)
        up, down, each = (self.tensor(a, np.float64) for a in (sums.up, mass, totals))
        new, value, kkt = _multiplied(u, up, down.expand(len(u), -1), each, rule)
        level = torch.stack([float(sums.value) + value.sum(), kkt.sum()])
        return Descent(DeviceArray(new.to(self.tensor(right).dtype)), *promised(level))

    def square_error(self, x: Any, left: Any, right: Any) -> float:
        x = self.held(x)
        u, v = self.tensor(left, np.float64), self.tensor(right, np.float64)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        if x.kind == "observed":
            e = x.entries
            rest = e.data.double() - at_entries(e, u, v)
            rest = rest * rest if e.weights is None else rest * rest * e.weights.double()
            return float((rest if x.weights is None else rest * x.weights[e.row_of]).sum())
        if x.kind != "dense":
            return self.on_cpu("square_error", x, left, right)
        for start, block in x.blocks():
            part = slice(start, start + len(block))
            rest = ((block.double() - u[part] @ v.T) ** 2).sum(1)
            total += (rest if x.weights is None else rest * x.weights[part]).sum()
        return float(total)


def _kl_steps(
    scores: Callable[[torch.Tensor], torch.Tensor],
    pulled: Callable[[torch.Tensor], torch.Tensor],
    heavy: torch.Tensor,
    a: torch.Tensor,
    start: torch.Tensor,
    down: torch.Tensor,
    rule: KlRule,
    steps: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Multiplicative steps of some rows, given what makes s_j = u.h_j at their entries and sum_j
    r_j h_j; value and violations of each row before the first. A row that moves no more stays."""
    total = heavy.sum(1)
    u = _floored(start, down, total, rule)
    least = (1e-30 * total).clamp(min=1e-37)[:, None]
    value = kkt = torch.zeros(len(u), dtype=torch.float64, device=u.device)
    going = torch.ones_like(total, dtype=torch.bool)
    for s in range(steps):
        at = torch.maximum(scores(u), least)
        up = pulled(heavy / at)
        new, own, violated = _multiplied(u, up, down, total, rule)
        if s == 0:
            each = heavy.double() * (torch.where(a > 0, a / at, 1.0).double().log() - 1)
            value, kkt = each.sum(1) + own, violated
        moved = ((new - u).abs() * (down + rule.l1)).sum(1)
        u = torch.where(going[:, None], new, u)
        going = going & (moved > rule.tol * total)
        if s % divergence.ASKED == divergence.ASKED - 1 and s + 1 < steps and not bool(going.any()):
            break
    return u, value, kkt


def _multiplied(
    u: torch.Tensor, up: torch.Tensor, mass: torch.Tensor, total: torch.Tensor, rule: KlRule
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """u r with r = up / (mass + l1); for each row the part of the objective that is not a sum over
    entries, and the violations, before it."""
    down = mass + rule.l1
    slope = down + rule.l2 * u
    wide = u.double()
    value = (wide * (down + 0.5 * rule.l2 * u).double()).sum(1)
    size = torch.maximum((wide * slope.double()).sum(1), total.double())
    rest = 1 - torch.where(slope > 0, up / slope, 0.0).double()
    bent = torch.minimum(
        wide * slope.double() / torch.where(size > 0, size, 1.0)[:, None], rest
    ).clamp(min=-1)
    kkt = torch.where(size > 0, size * (bent * bent).sum(1), 0.0)
    r = 2 * up / (down + (down * down + 4 * rule.l2 * u * up).sqrt()).clamp(min=1e-37)
    return _floored(u * (r**1.75 if rule.fast else r), mass, total, rule), value, kkt


def _floored(
    u: torch.Tensor, mass: torch.Tensor, total: torch.Tensor, rule: KlRule
) -> torch.Tensor:
    """u with a share of at least LEAST for every component that has mass; zero for one that has
    none."""
    down = mass + rule.l1
    return torch.where(
        down > 0, torch.maximum(u, LEAST * total[:, None] / torch.where(down > 0, down, 1.0)), 0.0
    )
