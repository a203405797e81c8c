"""A loss met at the stored entries, by its own formulas (``eckart.terms``) on pieces of the
entries.

    s = mean + b_i + c_j + u_i.v_j,      target s - g / c and weight w c of an entry

An engine may make s its own way and work on pieces side by side (``_over_entries``); a new loss
needs no code of its own there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.engines.protocol import LossSums, RidgeRule, RowSolution, ThresholdSums
from eckart.engines.protocol.entries import FLATTEST, HALVES

Work = Callable[[Any, slice, Any], tuple[Any, ...]]
"""Of the loss, the entries and their s: sums."""


class ArrayLosses:
    """The family ``losses``."""

    lib: Any
    normal: Any

    def linearised(self, x: Any, loss: Any, left: Any, right: Any, **at: Any) -> tuple[Any, float]:
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        e = lib.entries(x)
        target, weights = xp.empty_like(e.data), xp.empty_like(e.data)

        def do(own: Any, here: slice, s: Any) -> tuple[Any, ...]:
            value, g, c = lib.formulas(own.parts, e.data[here], s)
            c, w = xp.clip(c, FLATTEST, None), _part(e.weights, here)
            target[here] = s - g / c
            weights[here] = c if w is None else c * w
            return (_sum(lib, value, w),)

        (value,) = self._over_entries(x, loss, left, right, at, do, target)
        return lib.with_entries(x, target, weights), float(value)

    def loss_sums(
        self, x: Any, loss: Any, left: Any, right: Any, *, shrink: float | None = None, **at: Any
    ) -> LossSums:
        lib = self.lib
        x = lib.placed(x)
        e = lib.entries(x)

        def do(own: Any, here: slice, s: Any) -> tuple[Any, ...]:
            def parts(a: Any, s: Any) -> list[Any]:
                g = own.gradient(a, s)
                dual = [] if shrink is None else [own.conjugate(a, shrink * g)]
                return [own.value(a, s), g, *dual]

            found = lib.formulas(parts, lib.wide(e.data[here]), lib.wide(s))
            return tuple(_sum(lib, each, _part(e.weights, here)) for each in found)

        sums = self._over_entries(x, loss, left, right, at, do)
        return LossSums(*map(float, sums), *([0.0] if shrink is None else []))

    def threshold_sums(self, x: Any, loss: Any, left: Any, right: Any, **at: Any) -> ThresholdSums:
        lib = self.lib
        x = lib.placed(x)
        e = lib.entries(x)

        def do(own: Any, here: slice, s: Any) -> tuple[Any, ...]:
            a, wide, w = lib.wide(e.data[here]), lib.wide(s), _part(e.weights, here)
            w = lib.xp.ones_like(a) if w is None else lib.wide(w)
            return w @ own.value(a, wide), *own.by_thresholds(a, wide, w)

        value, gradient, bend = self._over_entries(x, loss, left, right, at, do)
        return ThresholdSums(float(value), gradient, bend)

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
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        u, v = (lib.array(a, x.dtype) for a in (left, new))
        b, d = (
            xp.zeros_like(u[:, 0]) if a is None else lib.array(a, x.dtype).reshape(-1)
            for a in (own, new_own)
        )
        ridges = lib.ridges(x, rule)
        values = lib.zeros(x.nnz)

        def cost(codes: Any, bias: Any) -> Any:
            """Loss and penalty of every row, in float64."""
            self._values(x, loss, codes, right, at | {"own": bias}, values)
            square = (lib.wide(codes) ** 2).sum(axis=1)
            penalty = 0.5 * (ridges[0] * square + ridges[1] * lib.wide(bias) ** 2)
            return lib.row_sums(lib.entries(x), values) + penalty

        before, share, went, bias = cost(u, b), xp.ones_like(b), v, d
        for _ in range(HALVES):
            after = cost(went, bias)
            worse = ~(after <= before)
            if not bool(worse.any()):
                break
            share = xp.where(worse, share / 2, share)
            went = xp.where(worse[:, None], u + share[:, None] * (v - u), went)
            bias = xp.where(worse, b + share * (d - b), bias)
        else:
            went, bias = xp.where(worse[:, None], u, went), xp.where(worse, b, bias)
            after = xp.where(worse, before, after)
        own_bias = None if own is None else lib.tall(bias)
        return RowSolution(lib.tall(went), own_bias, float(after.sum()))

    def augmented(self, x: Any, loss: Any, left: Any, right: Any, noise: Any, **at: Any) -> Any:
        lib = self.lib
        x = lib.placed(x)
        if isinstance(noise, tuple):
            noise = self.normal(noise, (x.nnz, 1), np.float64)
        e, z = lib.entries(x), lib.given(noise).reshape(-1)
        latent = lib.xp.empty_like(e.data)

        def do(own: Any, here: slice, s: Any) -> tuple[Any, ...]:
            latent[here] = own.latent(lib.wide(e.data[here]), lib.wide(s), lib.chance(z[here]))
            return ()

        self._over_entries(x, loss, left, right, at, do, latent)
        return lib.with_entries(x, latent, e.weights)

    def slice_rows(
        self,
        x: Any,
        loss: Any,
        left: Any,
        right: Any,
        point: Any,
        centre: Any,
        drawn: Any,
        noise: Any,
        **at: Any,
    ) -> Any:
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        bound = lib.entries(self.linearised(x, loss, point, right, **at)[0])
        values = lib.zeros(x.nnz)

        def advantage(codes: Any) -> Any:
            """log density - log q of every row."""

            def gap(here: slice, wide: Any) -> Any:
                miss = lib.wide(bound.data[here]) - wide
                return 0.5 * lib.wide(bound.weights[here]) * miss * miss

            self._values(x, loss, codes, right, at, values, gap)
            return lib.row_sums(bound, values)

        u, middle, end = (lib.given(a) for a in (left, centre, drawn))
        chances, way, turn = lib.chance(lib.given(noise)), u - middle, end - middle
        level, angle = advantage(u) + xp.log(chances[:, 0]), 2 * np.pi * chances[:, 1]
        low, high, waiting = angle - 2 * np.pi, angle, angle == angle
        for t in range(2, chances.shape[1] + 1):
            trial = middle + way * xp.cos(angle)[:, None] + turn * xp.sin(angle)[:, None]
            done = waiting & (advantage(trial) > level)
            u = xp.where(done[:, None], trial, u)
            waiting = waiting & ~done
            if t == chances.shape[1] or not bool(waiting.any()):
                break
            low, high = xp.where(angle < 0, angle, low), xp.where(angle < 0, high, angle)
            angle = low + (high - low) * chances[:, t]
        return lib.tall(u)

    def _values(
        self,
        x: Any,
        loss: Any,
        codes: Any,
        right: Any,
        at: dict[str, Any],
        out: Any,
        less_than: Callable[[slice, Any], Any] | None = None,
    ) -> None:
        """Weighted losses of all entries in float64 into ``out``, or what they are less than some
        numbers; a step or a trial that went too far may have an infinite one."""
        lib = self.lib
        e = lib.entries(x)

        def do(own: Any, here: slice, s: Any) -> tuple[Any, ...]:
            wide = lib.wide(s)
            with np.errstate(over="ignore"):
                (value,) = lib.formulas(
                    lambda a, s: [own.value(a, s)], lib.wide(e.data[here]), wide
                )
                value = value if e.weights is None else value * lib.wide(e.weights[here])
                out[here] = value if less_than is None else less_than(here, wide) - value
            return ()

        self._over_entries(x, loss, codes, right, at, do)

    def _over_entries(
        self,
        x: Any,
        loss: Any,
        left: Any,
        right: Any,
        at: dict[str, Any],
        do: Work,
        room: Any = None,
    ) -> list[Any]:
        """``do`` of pieces of the entries, one after another, and its sums over all of them;
        ``room`` may be used for s."""
        lib, e = self.lib, self.lib.entries(x)
        each, at = steep_losses(lib, x, loss, at)
        s = natural_parameters(lib, x, left, right, **at)
        sums: tuple[Any, ...] | None = None
        for a in range(0, max(1, e.data.shape[0]), lib.piece):
            here = slice(a, min(a + lib.piece, e.data.shape[0]))
            found = do(each(here), here, s[here])
            sums = found if sums is None else tuple(p + q for p, q in zip(sums, found))
        return lib.host(*sums) if sums else []


def steep_losses(
    lib: Any, x: Any, loss: Any, at: dict[str, Any]
) -> tuple[Callable[[slice], Any], dict[str, Any]]:
    """The loss of some entries: itself, or with the steepness of their rows and columns; and where
    s stands without these."""
    rest = {name: a for name, a in at.items() if name not in ("row_steep", "column_steep")}
    rows, columns = at.get("row_steep"), at.get("column_steep")
    if rows is None and columns is None:
        return lambda here: loss, rest
    e = lib.entries(x)
    steep = lib.wide(lib.xp.ones_like(e.data))
    if rows is not None:
        steep = steep * lib.given(rows).reshape(-1)[e.row_of]
    if columns is not None:
        steep = steep * lib.given(columns).reshape(-1)[e.indices]
    return lambda here: loss.steeper(steep[here]), rest


def natural_parameters(
    lib: Any, x: Any, left: Any, right: Any, mean: float = 0.0, own: Any = None, other: Any = None
) -> Any:
    """s at the entries, in the precision of x."""
    e = lib.entries(x)
    s = lib.dots(e, lib.array(left, x.dtype), lib.array(right, x.dtype)) + mean
    if own is not None:
        s = s + lib.array(own, x.dtype).reshape(-1)[e.row_of]
    return s if other is None else s + lib.array(other, x.dtype).reshape(-1)[e.indices]


def _part(weights: Any, here: slice) -> Any:
    return None if weights is None else weights[here]


def _sum(lib: Any, values: Any, w: Any) -> Any:
    wide = lib.wide(values)
    return wide.sum() if w is None else wide @ lib.wide(w)
