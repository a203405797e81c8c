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
    """The family ``entries``."""

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
        ridge, slack = lib.ridges(x, rule)
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
        e, block = lib.entries(x), lib.array(v, x.dtype)
        y = lib.wide(e.data) - mean
        if own is not None:
            y = y - lib.given(own).reshape(-1)[e.row_of]
        if other is not None:
            y = y - lib.given(other).reshape(-1)[e.indices]
        if column_scale is not None:
            y = y * lib.given(column_scale).reshape(-1)[e.indices]
        found = lib.product(e, y, block)
        if row_scale is not None:
            found = lib.like(lib.given(row_scale).reshape(-1, 1), found) * found
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

    def by_columns(self, x: Any, data: Any) -> Any:
        lib = self.lib
        return lib.tall(lib.array(data)[lib.entries(lib.placed(x)).by_columns])

    def entry_times(self, x: Any, data: Any, v: Any) -> Any:
        lib = self.lib
        return lib.tall(lib.product(lib.entries(lib.placed(x)), lib.array(data), lib.array(v)))

    def entry_times_t(self, x: Any, t_data: Any, y: Any) -> Any:
        return self.entry_times(self.lib.placed(x).T, t_data, y)

    def top_columns(
        self, left: Any, right: Any, n: int, offset: Any = None, excluded: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        lib = self.lib
        u, v = lib.array(left), lib.array(right, left.dtype)
        shift = None if offset is None else lib.array(offset, left.dtype)

        def scores(rows: slice) -> Any:
            found = u[rows] @ v.T
            return found if shift is None else found + shift

        return best_of_rows(lib, scores, u.shape[0], v.shape[0], n, excluded)


def best_of_rows(
    lib: Any, scores: Any, rows: int, columns: int, n: int, excluded: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (-1 where there are fewer) and numbers of the n best of each row of what ``scores``
    gives of some rows, best first; ``excluded``: see ``top_columns``."""
    found, n, step = [], min(n, columns), max(1, lib.scores // max(1, columns))
    if excluded is not None:
        indptr, indices, of = (np.asarray(each) for each in excluded)
    for a in range(0, max(1, rows), step):
        here = slice(a, min(rows, a + step))
        part = scores(here)
        if excluded is not None:
            first = indptr[of[here]].astype(np.int64)
            counts = indptr[of[here] + 1] - first
            at = np.repeat(np.arange(len(counts)), counts)
            place = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts - first, counts)
            hidden = lib.there(at, np.int64), lib.there(indices[place], np.int64)
            part[hidden] = -np.inf
        best, order = _leading(lib, part, n)
        found.append((lib.xp.where(best == -np.inf, -1, order), best))
    return tuple(lib.fetch(lib.xp.concat(list(each))) for each in zip(*found))  # type: ignore[return-value]


def _leading(lib: Any, scores: Any, n: int) -> tuple[Any, Any]:
    """The n largest of each row, falling, of equal ones the lower columns first.

    Which of several equal ones a selection takes is not said. So every row whose last value occurs
    beyond the list, and the order of equal ones inside it, is settled by a stable sort: of the list
    alone, or of the whole row where a tie reaches over its end.
    """
    xp = lib.xp
    order = xp.sort(lib.leading(scores, n))
    order = order[0] if isinstance(order, tuple) else order  # PyTorch says from where, too
    found = lib.along(scores, order)
    turn = xp.argsort(-found, stable=True)
    found, order = lib.along(found, turn), lib.along(order, turn)
    if not n:
        return found, order
    last = found[:, -1:]
    reaching = (scores == last).sum(axis=1) > (found == last).sum(axis=1)
    if bool(reaching.any()):
        whole = xp.argsort(-scores[reaching], stable=True)[:, :n]
        order[reaching], found[reaching] = whole, lib.along(scores[reaching], whole)
    return found, order
