"""Rows under a mixture of any family, samples of rows and their groups, in float64.

A family whose log density is linear in the entries (``protocol.mixtures.Linear``):

    log p(x, z) = log weights_z + sum over observed entries of (A_zj x_j + B_zj) + c(x),
    sums of w q x_j and of w q over the rows that see j

All logs are one product of the rows, all sums another; sparse rows go by their entries. Any other
family answers for itself, some rows at a time, on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from eckart.engines.protocol import GapsFound, refuse_bad
from eckart.engines.protocol.mixtures import (
    DIAGONAL,
    TINY,
    Gaussians,
    GaussianStatistics,
    GroupSums,
    Posteriors,
    raw_to_statistics,
)


class ArraySamples:
    """Families, distances and groups."""

    lib: Any

    def check_family(self, x: Any, family: Any) -> None:
        """What is not as it should be is looked for on the host, in the words of the family; where
        all is well the host hears one answer."""
        lib = self.lib
        x = lib.placed(x)
        if x.kind == "dense" and not hasattr(family, "check"):
            # an infinity is refused by the look itself
            if lib.complete(x) or getattr(family, "gaps", False):
                return
        elif hasattr(family, "linear") and self._sound(x, family):
            return
        for start, rows in lib.row_blocks(x, 8 * x.shape[1]):
            block = lib.fetch(rows)
            try:
                refuse_bad(block, start)
            except GapsFound:
                if not getattr(family, "gaps", False):
                    raise
            if hasattr(family, "check"):
                family.check(block, start)

    def _sound(self, x: Any, family: Any) -> bool:
        """Whether all entries are where the family wants them; no where one is missing or not a
        number."""
        lib, xp = self.lib, self.lib.xp
        if x.kind == "observed":
            return False
        low, high = family.within

        def inside(part: Any) -> Any:
            return ((part >= low) & (part <= high) & xp.isfinite(part)).all()

        found = (
            [inside(rows) for _, rows in lib.row_blocks(x, 8 * x.shape[1])]
            if x.kind == "dense"
            else [inside(lib.stored(x))]
        )
        return bool(xp.stack(found).all())

    def family_statistics(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> tuple[float, float, np.ndarray, Any]:
        lib = self.lib
        x = lib.placed(x)
        linear, w, sums, own = hasattr(family, "linear"), lib.row_weights(x), None, None
        for logs, rows, at in self._family_logs(x, family, weights, parameters):
            heavy = None if w is None else w[at]
            loglik, q = lib.shares_of(logs, heavy)
            more = self._linear_sums(x, rows, q) if linear else ()
            found = *weighed(lib, loglik, heavy), q.sum(axis=0), *more
            sums = found if sums is None else tuple(a + b for a, b in zip(sums, found))
            if not linear:
                block = family.statistics(lib.fetch(lib.wide(rows)), lib.fetch(q))
                own = block if own is None else own.merge(block)
        weight, bound, counts, *entries = lib.host(*sums)  # type: ignore[misc]
        if linear:
            total, seen = entries
            own = family.summed(total, np.broadcast_to(seen, total.shape), counts)
        return float(weight), float(bound), counts, own

    def family_posteriors(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> Posteriors:
        lib = self.lib
        parts = self._family_logs(lib.placed(x), family, weights, parameters)
        found = [lib.shares_of(logs) for logs, _, _ in parts]
        return Posteriors(*(lib.fetch(lib.xp.concat(list(each))) for each in zip(*found)))

    def _family_logs(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> Iterator[tuple[Any, Any, slice]]:
        """(log weight + log density, rows, which) of some rows at a time; of sparse rows of all,
        and None in the place of the rows."""
        lib, xp = self.lib, self.lib.xp
        logs = np.log(np.maximum(weights, TINY))
        if not hasattr(family, "linear"):
            for start, rows in lib.row_blocks(x, 8 * x.shape[1] * (1 + len(weights))):
                block = lib.fetch(lib.wide(rows))
                own = lib.there(logs + family.log_prob(block, parameters))
                yield own, rows, slice(start, start + len(block))
            return
        model, first = family.linear(parameters), lib.there(logs)
        slope = lib.there(model.entries.T)
        level = None if model.seen is None else lib.there(model.seen.T)
        every = x.kind != "observed" and (x.kind != "dense" or lib.complete(x))
        if every and level is not None:
            first, level = first + level.sum(axis=0), None
        if x.kind != "dense":
            found = lib.entry_product(x, slope) + first
            if level is not None:
                found = found + lib.entry_product(x, level, ones=True)
            if model.counted:
                found = found + self._coefficients(x)[:, None]
            yield found, None, slice(None)
            return
        for start, block in lib.row_blocks(x, 8 * (2 * x.shape[1] + len(weights))):
            rows = lib.wide(block)
            observed = None if every else ~xp.isnan(rows)
            whole = rows if observed is None else xp.where(observed, rows, 0.0)
            found = whole @ slope + first
            if level is not None and observed is not None:
                found = found + lib.wide(observed) @ level
            if model.counted:
                own = lib.log_factorial(whole).sum(axis=1)
                found = found + (lib.log_factorial(whole.sum(axis=1)) - own)[:, None]
            yield found, rows, slice(start, start + rows.shape[0])

    def _coefficients(self, x: Any) -> Any:
        """log (sum x)! - sum log x_j! of every sparse row, made once."""
        if "coefficients" not in x.kept:
            one = self.lib.zeros(x.shape[1], 1) + 1.0
            total = self.lib.entry_product(x, one)[:, 0]
            found = self.lib.log_factorial(total) - self.lib.stored_log_factorials(x)
            x.kept["coefficients"] = found
        return x.kept["coefficients"]

    def _linear_sums(self, x: Any, rows: Any, q: Any) -> tuple[Any, Any]:
        """sum q x_j, and sum q over the rows that see j (one number where all rows see all
        columns)."""
        lib, xp = self.lib, self.lib.xp
        counts = q.sum(axis=0)[:, None]
        if rows is None:
            if x.kind == "observed":
                counts = lib.entry_product(x, q, ones=True, transposed=True).T
            return lib.entry_product(x, q, transposed=True).T, counts
        if lib.complete(x):
            return q.T @ rows, counts
        observed = ~xp.isnan(rows)
        return q.T @ xp.where(observed, rows, 0.0), q.T @ lib.wide(observed)

    def rows_at(self, x: Any, rows: np.ndarray | None = None) -> np.ndarray:
        return self.lib.picked(self.lib.placed(x), rows)

    def gap_patterns(self, x: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        lib, n = self.lib, x.shape[1]
        blocks = lib.row_blocks(lib.placed(x), n)
        packed = np.concatenate([np.packbits(~np.isnan(lib.fetch(b)), axis=1) for _, b in blocks])
        _, first, which = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(which.ravel()))
        observed = np.unpackbits(packed[first], axis=1, count=n).astype(bool)
        return list(zip(np.split(order, ends[:-1]), observed))

    def distances(self, x: Any, centres: np.ndarray) -> Any:
        """From the deviations themselves: a row that is a centre is at no distance from it."""
        c = self.lib.there(centres)
        parts = self._complete(x, 8 * c.shape[0] * c.shape[1])
        found = [self.lib.squared_distances(rows, c) for rows, _ in parts]
        return self.lib.tall(self.lib.xp.concat(found))

    def nearest(self, x: Any, centres: np.ndarray) -> Any:
        c = self.lib.there(centres)
        found = [self._nearest(rows, c) for rows, _ in self._complete(x, 16 * c.shape[1])]
        return self.lib.tall(self.lib.xp.concat(found))

    def group_sums(self, x: Any, centres: np.ndarray) -> GroupSums:
        lib, sums = self.lib, None
        c, w = lib.there(centres), lib.row_weights(lib.placed(x))
        groups = lib.arange(c.shape[0])
        for rows, at in self._complete(x, 16 * c.shape[1]):
            q = lib.wide(self._nearest(rows, c)[:, None] == groups)
            q = q if w is None else q * w[at][:, None]
            own = q.sum(axis=0), q.T @ rows
            sums = own if sums is None else tuple(a + b for a, b in zip(sums, own))
        return GroupSums(*lib.host(*sums))  # type: ignore[misc]

    def _nearest(self, rows: Any, c: Any) -> Any:
        """The number of the nearest centre of each row, the first of those as near."""
        return (0.5 * (c * c).sum(axis=1) - rows @ c.T).argmin(axis=1)

    def share_statistics(self, x: Any, shares: Any, kind: str) -> GaussianStatistics:
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        q, w = lib.given(shares), lib.row_weights(x)
        q = q if w is None else q * w[:, None]
        counts, k, n = q.sum(axis=0), q.shape[1], x.shape[1]
        sums = lib.zeros(k, n)
        for rows, at in self._complete(x, 16 * n):
            sums = sums + q[at].T @ rows
        means = sums / xp.where(counts > 0, counts, 1.0)[:, None]
        shift = xp.zeros_like(means)
        scatter = lib.zeros(k, n) if kind in DIAGONAL else lib.zeros(k, n, n)
        for rows, at in self._complete(x, 24 * k * n):
            apart = rows - means[:, None]
            heavy = apart * q[at].T[:, :, None]
            shift = shift + heavy.sum(axis=1)
            own = (heavy * apart).sum(axis=1) if kind in DIAGONAL else heavy.mT @ apart
            scatter = scatter + own
        weight = lib.zeros() + float(q.shape[0]) if w is None else w.sum()
        weight, counts, means, shift, scatter = lib.host(weight, counts, means, shift, scatter)
        raw = SimpleNamespace(
            counts=counts, seen=None, shift=shift, weight=float(weight), bound=0.0
        )
        raw.scatter = scatter.sum(axis=0) if kind == "tied" else scatter
        even = np.full(len(counts), 1.0 / len(counts))
        return raw_to_statistics(Gaussians(kind, even, means, np.empty(0)), raw)

    def _complete(self, x: Any, row: int) -> Iterator[tuple[Any, slice]]:
        """(rows in float64, which) of rows without missing entries."""
        lib = self.lib
        x = lib.placed(x)
        complete = lib.complete(x)
        for start, rows in lib.row_blocks(x, row):
            if not complete:
                refuse_bad(lib.fetch(rows), start)
            yield lib.wide(rows), slice(start, start + rows.shape[0])


def weighed(lib: Any, loglik: Any, w: Any) -> tuple[Any, Any]:
    """sum w and sum w log p of some rows; a row without weight may have any density."""
    if w is None:
        return lib.zeros() + float(loglik.shape[0]), loglik.sum()
    return w.sum(), lib.xp.where(w > 0, w * loglik, 0.0).sum()
