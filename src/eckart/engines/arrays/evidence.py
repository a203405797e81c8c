"""Low rank met at the stored entries: what a certificate of a ridge problem is made of, in float64.

R = w (y - u_i.v_j) at the entries, the negative gradient of the data term by B = U V^T
(implicit feedback: R = q - w u_i.v_j, q = w + shift)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.ridge import ArrayRidge, entry_numbers
from eckart.engines.protocol import Evidence, EvidenceSums, RidgeRule


class ArrayEntries(ArrayRidge):
    """Of the family ``entries`` what ridge problems ask for."""

    lib: Any

    def evidence_rows(
        self,
        x: Any,
        left: Any,
        right: Any,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: Any = None,
        other: Any = None,
        weights: Any = None,
        spread: float = 0.0,
    ) -> Evidence:
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        e, u, v = lib.entries(x), lib.given(left), lib.given(right)
        w, y, q = entry_numbers(lib, x, rule, mean=mean, weights=weights, bias=own, offset=other)
        s = lib.dots(e, u, v)
        r = q - w * s
        ridge, slack = (lib.given(a) for a in rule.ridges(x.counts))
        sums = dict.fromkeys(EvidenceSums._fields, lib.zeros())
        if rule.alpha:
            whole, z = spread + w, spread * s - r
            inverse = xp.where(whole > 0, 0.5 / xp.where(whole > 0, whole, 1.0), 0.0)
            sums["value"] = 0.5 * (q - 2 * q * s + w * s * s).sum()
            sums["zero"], sums["dots"] = 0.5 * q.sum(), (s * s).sum()
            sums["square"], sums["cross"] = (z * z * inverse).sum(), 2 * (z * q * inverse).sum()
            sums["constant"] = (q * q * inverse - 0.5 * q).sum()
        else:
            rest, bare = y - s, lib.wide(e.data) - mean
            sums["value"] = sums["square"] = 0.5 * (w * rest * rest).sum()
            sums["linear"], sums["zero"] = (bare * r).sum(), 0.5 * (w * bare * bare).sum()
        pull, row_sum = lib.product(e, r, v), lib.row_sums(e, r)
        push = ridge[:, None] * u
        push = push + spread * (u @ (v.T @ v)) if spread else push
        slope = push - pull
        if rule.nonnegative:
            slope = xp.where(u > 0, slope, xp.clip(slope, None, 0.0))
        for name, a in (("slope", slope), ("pull", pull), ("push", push)):
            sums[name] = (a * a).sum()
        if own is not None:
            push = slack * lib.given(own).reshape(-1)
            rise, free = push - row_sum, slack <= 0
            for name, a in (("bias_slope", rise), ("bias_pull", row_sum), ("bias_push", push)):
                sums[name] = (a * a).sum()
            cost = xp.where(free, 0.0, row_sum * row_sum / xp.where(free, 1.0, slack))
            endless = (free & (row_sum != 0)).any()
            sums["bias_cost"] = xp.where(endless, np.inf, cost.sum())
        numbers = lib.host(*sums.values())
        kind = lib.array(right)
        return Evidence(
            lib.tall(lib.like(pull, kind)),
            lib.tall(lib.like(row_sum, kind)),
            EvidenceSums(*(float(a) for a in numbers)),
        )

    def residual_gram(
        self,
        x: Any,
        left: Any,
        right: Any,
        v: Any,
        q: Any,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: Any = None,
        other: Any = None,
        spread: float = 0.0,
    ) -> Any:
        """Two products with the entries, M V and M^T (q M V)."""
        lib = self.lib
        x = lib.placed(x)
        e, u, h = lib.entries(x), lib.given(left), lib.given(right)
        w, _, pulled = entry_numbers(lib, x, rule, mean=mean, bias=own, offset=other)
        r = pulled - w * lib.dots(e, u, h)
        block = lib.given(v)
        image = lib.product(e, r, block)
        image = image - spread * (u @ (h.T @ block)) if spread else image
        heavy = lib.given(q).reshape(-1, 1) * image
        found = lib.product_t(e, r, heavy)
        found = found - spread * (h @ (u.T @ heavy)) if spread else found
        return lib.tall(lib.like(found, lib.array(v)))

    def offset_times(
        self,
        x: Any,
        v: Any,
        mean: float,
        own: Any,
        other: Any,
        row_scale: Any = None,
        column_scale: Any = None,
    ) -> Any:
        lib = self.lib
        x = lib.placed(x)
        e, block = lib.entries(x), lib.given(v)
        y = lib.wide(e.data) - mean
        if own is not None:
            y = y - lib.given(own).reshape(-1)[e.row_of]
        if other is not None:
            y = y - lib.given(other).reshape(-1)[e.indices]
        if column_scale is not None:
            y = y * lib.given(column_scale).reshape(-1)[e.indices]
        found = lib.product(e, y, block)
        if row_scale is not None:
            found = lib.given(row_scale).reshape(-1, 1) * found
        return lib.tall(lib.like(found, lib.array(v)))

    def sampled(self, x: Any, left: Any, right: Any) -> Any:
        lib = self.lib
        u, v = lib.array(left), lib.array(right)
        return lib.tall(lib.dots(lib.entries(lib.placed(x)), u, v))

    def residual(self, x: Any, data: Any, left: Any, right: Any) -> tuple[Any, float]:
        lib = self.lib
        e, a = lib.entries(lib.placed(x)), lib.array(data)
        rest = lib.wide(a) - lib.dots(e, lib.given(left), lib.given(right))
        return lib.tall(lib.like(rest, a)), float(rest @ rest)

    def entry_times(self, x: Any, data: Any, v: Any) -> Any:
        lib = self.lib
        return lib.tall(lib.product(lib.entries(lib.placed(x)), lib.array(data), lib.array(v)))
