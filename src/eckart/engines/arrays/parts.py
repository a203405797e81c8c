"""Non-negative factorization X ~ W H: sums of a factor, changes of it, and half sweeps of least
squares by coordinate descent,

    u_c <- max(0, u_c - (G u - p)_c / G_cc),   c = 1..k, again and again.

Formulas and limits are those of ``protocol.parts``. Products run in the precision of the data;
objectives and violations are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.engines.arrays.divergences import (
    ArrayDivergences,
    StoredMatrix,
    cells_of,
    dense_rows,
    weights_of,
)
from eckart.engines.protocol import CrossSums, Descent, FactorSums, Pass, SignSums, Totals
from eckart.errors import InputError

Step = Callable[[Any, Any], tuple[Any, Any, Any]]
"""(pull, rows) to new rows, and objective and violations of each before."""


class ArrayParts(ArrayDivergences):
    """The family ``parts``; its multiplicative steps are those of ``divergences``."""

    lib: Any

    def totals(self, x: Any) -> Totals:
        lib = self.lib
        x = lib.placed(x)
        if x.kind != "dense":
            return self._entry_totals(x)
        rows, n = 0, x.shape[1]
        sums = [lib.zeros(), lib.zeros(), lib.zeros(n), lib.zeros()]
        for _, w, block in dense_rows(lib, x):
            wide = lib.wide(block)
            rows += block.shape[0]
            own = w.sum(), w @ (wide * wide).sum(axis=1), w @ wide
            sums = [*(a + b for a, b in zip(sums, own)), sums[3] + lib.wide(block < 0).sum()]
        weight, square, columns, below = lib.host(*sums)
        if below:
            for at, _, block in dense_rows(lib, x):
                refuse_negative(lib.fetch(block), at.start)
        weight = float(weight)
        total = float(columns.sum())
        return Totals(rows, weight, weight * n, total, float(square), columns)

    def _entry_totals(self, x: Any) -> Totals:
        lib, (rows, n) = self.lib, x.shape
        e = lib.entries(x)
        each, w = lib.wide(e.data), weights_of(lib, x, slice(None), rows)
        heavy = each if e.weights is None else lib.wide(e.weights) * each
        heavy = heavy if lib.row_weights(x) is None else heavy * w[e.row_of]
        below = lib.wide(each < 0).sum()
        sums = below, w.sum(), w @ lib.wide(e.counts), heavy.sum(), (heavy * each).sum()
        below, weight, observed, total, square = lib.xp.stack(sums).tolist()
        if below:
            data = lib.fetch(e.data)
            at = int(np.argmax(data < 0))
            raise negative(data[at], int(e.row_of[at]), int(e.indices[at]))
        cells = observed if x.kind == "observed" else weight * n
        return Totals(rows, weight, cells, total, square)

    def zero_filled(self, x: Any) -> Any:
        x = self.lib.placed(x)
        return self.lib.zero_filled(x) if x.kind == "observed" else x

    def as_rows(self, tall: Any, x: Any) -> Any:
        return self.lib.as_rows(tall, self.lib.placed(x))

    def factor_mass(self, factor: Any, x: Any = None) -> Any:
        f, w = self._factor(factor, x)
        return self.lib.tall(f.sum(axis=0) if w is None else w @ f)

    def factor_sums(self, factor: Any, x: Any = None) -> FactorSums:
        f, w = self._factor(factor, x)
        k = f.shape[1]
        if not f.shape[0]:
            return FactorSums(np.zeros(k), np.zeros((k, k)), np.inf, np.full(k, -np.inf))
        xp, heavy = self.lib.xp, f if w is None else w[:, None] * f
        sums = heavy.sum(axis=0), f.T @ heavy, xp.amax(f, axis=0), f.min()
        mass, square, most, least = self.lib.host(*sums)
        return FactorSums(mass, square, float(least), most)

    def sign_sums(self, factor: Any, x: Any = None) -> SignSums:
        f, w = self._factor(factor, x)
        if not f.shape[0]:
            return SignSums(*np.zeros((2, 2, f.shape[1])))
        xp = self.lib.xp
        both = xp.stack([xp.clip(f, 0.0, None), xp.clip(-f, 0.0, None)])
        squares = both * both if w is None else both * both * w[:, None]
        return SignSums(*self.lib.host(squares.sum(axis=1), xp.amax(both, axis=1)))

    def _factor(self, factor: Any, x: Any) -> tuple[Any, Any]:
        """A factor in float64 and the weights of its rows."""
        lib = self.lib
        return lib.given(factor), None if x is None else lib.row_weights(lib.placed(x))

    def rectified(
        self, factor: Any, scale: np.ndarray, least: float = 0.0, fill: float = 0.0
    ) -> Any:
        out = self.lib.array(factor) * self.lib.array(scale, factor.dtype)
        return self.lib.tall(self.lib.xp.where(out > least, out, fill))

    def sprinkled(self, factor: Any, size: float, seed: int) -> Any:
        f = self.lib.array(factor)
        small = size * self.lib.xp.abs(self.lib.normal(seed, factor.shape))
        return self.lib.tall(self.lib.xp.where(f > 0, f, self.lib.like(small, f)))

    def projected_rows(self, pull: Any, inverse: np.ndarray, l1: float) -> Any:
        p = self.lib.array(pull)
        found = (self.lib.wide(p) - l1) @ self.lib.given(inverse)
        return self.lib.tall(self.lib.like(self.lib.xp.clip(found, 0.0, None), p))

    def leap(self, new: Any, old: Any, stride: float) -> Any:
        a = self.lib.array(new)
        b = self.lib.array(old, new.dtype)
        step = a - b  # in its place: each array more costs as much as the arithmetic
        step *= stride
        step += a
        return self.lib.tall(self.lib.xp.clip(step, 0.0, None))

    def cleaned(self, factor: Any, mass: np.ndarray, share: float) -> Any:
        f = self.lib.array(factor)
        part = f * self.lib.array(mass, factor.dtype)
        some = part > share * part.sum(axis=1, keepdims=True)
        return self.lib.tall(self.lib.xp.where(some, f, 0.0))

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
        lib, u = self.lib, self.lib.array(start)
        p = lib.array(pull, start.dtype)
        if p.shape != u.shape:
            raise ValueError(f"pull is {tuple(p.shape)}, start {tuple(u.shape)}")
        g, how = lib.given(gram), (sweeps, shrink)
        return Descent(*self._descended(start, None, [descend(lib, g, p, l1, u, *how)], False))

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
        lib, g = self.lib, self.lib.given(gram)
        return self._cross_pass(
            x, right, left, lambda p, u: descend(lib, g, p, l1, u, sweeps, shrink)
        )

    def _cross_pass(self, x: Any, right: Any, left: Any, step: Step) -> Pass:
        """step(X V, W) of blocks of rows, and X^T D W, W^T D W of the new rows."""
        lib = self.lib
        x = lib.placed(x)
        v, u = lib.array(right, x.dtype), lib.array(left, x.dtype)
        k, found = v.shape[1], []
        cross, square = lib.zeros(*v.shape), lib.zeros(k, k)
        blocks: Any = dense_rows(lib, x)
        if x.kind != "dense":
            rows = slice(0, x.shape[0])
            blocks = [(rows, weights_of(lib, x, rows, u.shape[0]), StoredMatrix(lib, x))]
        for at, w, block in blocks:
            new, value, kkt = step(block @ v, u[at])
            new = lib.like(new, u)
            heavy = new if lib.row_weights(x) is None else new * lib.like(w, new)[:, None]
            cross = cross + block.T @ heavy
            square = square + lib.wide(new).T @ lib.wide(heavy)
            found.append((new, value, kkt))
        new, *levels = self._descended(left, x, found, False, square)
        value, kkt, whole = levels
        return Pass(new, CrossSums(value, kkt, lib.twin(cross), whole))

    def hals_seen(
        self,
        x: Any,
        other: Any,
        start: Any,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        """Objective and violations from the residuals themselves. No row stops early."""
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        u, h, e = lib.array(start), lib.array(other, start.dtype), lib.entries(x)
        wide = lib.wide(u)
        rest = lib.wide(e.data) - lib.wide(lib.dots(e, u, h))
        w = None if e.weights is None else lib.wide(e.weights)
        heavy = rest if w is None else w * rest
        value = 0.5 * lib.row_sums(e, heavy * rest)
        value = value + (l1 * wide + 0.5 * l2 * wide * wide).sum(axis=1)
        slope = l1 + l2 * wide - lib.wide(lib.product(e, lib.like(heavy, h), h))
        ones = xp.ones_like(rest) if w is None else w
        curvature = lib.wide(lib.product(e, lib.like(ones, h), h * h)) + l2
        least = xp.minimum(wide, slope / xp.clip(curvature, 1e-30, None))
        kkt = (curvature * least * least).sum(axis=1)
        new = u
        if sweeps:
            new = lib.descend_entries(x, h, u, slope, curvature, l1, l2, sweeps)
            if new is None:
                new = _descend_entries(lib, e, h, u, rest, w, curvature, l1, l2, sweeps)
        return Descent(*self._descended(start, x, [(new, value, kkt)]))

    def square_error(self, x: Any, left: Any, right: Any) -> float:
        """Of counts by their entries, and what is expected of all cells."""
        lib = self.lib
        x, u, h = lib.placed(x), lib.given(left), lib.given(right)
        total = lib.zeros()
        for at, w, cells in cells_of(lib, x, h):
            s = cells.at(u[at])
            rest = cells.a * (cells.a - 2 * s) if x.kind == "counts" else (cells.a - s) ** 2
            total = total + w @ cells.sums(rest if cells.v is None else rest * cells.v)
            if x.kind == "counts":
                total = total + ((u.T @ (u * w[:, None])) * (h.T @ h)).sum()
        return float(total)


def descend(
    lib: Any, gram: Any, pull: Any, l1: float, start: Any, sweeps: int, shrink: float
) -> tuple[Any, Any, Any]:
    """Rows after coordinate descent on 1/2 u^T G u - (p - l1).u over u >= 0; objective and
    violations of each before it. ``gram`` is in float64. Rows stop together, and on a device, which
    would be waited for, not at all."""
    found = lib.descend(gram, pull, l1, start, sweeps, shrink)
    if found is not None:
        return found
    xp = lib.xp
    diagonal = xp.linalg.diagonal(gram)
    wide, p, inverse = lib.wide(start), lib.wide(pull) - l1, 1 / xp.clip(diagonal, 1e-30, None)
    slope = wide @ gram - p
    value = 0.5 * (wide * (slope - p)).sum(axis=1)
    kkt = xp.minimum(wide, slope * inverse) ** 2 @ diagonal
    # by columns: a coordinate of all rows lies together in memory
    u, target = lib.copied(start.T), lib.copied((pull - l1).T)
    g, inverse, first = lib.like(gram, start), lib.like(inverse, start), None
    stops = shrink > 0 and lib.asks == 1
    for _ in range(sweeps):
        before = lib.copied(u) if stops else u
        for c in range(u.shape[0]):
            u[c] = xp.clip(u[c] - (g[c] @ u - target[c]) * inverse[c], 0.0, None)
        if stops:
            change = ((u - before) ** 2).sum(axis=0)
            first = change if first is None else first
            if not bool((change > shrink * first).any()):
                break
    return lib.copied(u.T), value, kkt


def _descend_entries(
    lib: Any,
    e: Any,
    h: Any,
    start: Any,
    rest: Any,
    w: Any,
    curvature: Any,
    l1: float,
    l2: float,
    sweeps: int,
) -> Any:
    """The same for rows that see different entries, by their residuals r = a - u.h, so that no row
    needs a matrix of its own:

    g_c = l1 + l2 u_c - sum_j w_j r_j h_jc,   d = max(0, u_c - g_c / G_cc) - u_c,   u_c += d,
    r_j -= d h_jc
    """
    xp, wide = lib.xp, lib.wide(h)
    u, inverse = lib.copied(lib.wide(start).T), (1 / xp.clip(curvature, 1e-30, None)).T
    for _ in range(sweeps):
        for c in range(u.shape[0]):
            each = wide[:, c][e.indices]
            heavy = rest * each if w is None else w * rest * each
            slope = l1 + l2 * u[c] - lib.row_sums(e, heavy)
            new = xp.clip(u[c] - slope * inverse[c], 0.0, None)
            rest = rest - (new - u[c])[e.row_of] * each
            u[c] = new
    return u.T


def refuse_negative(block: np.ndarray, first: int) -> None:
    """Raise for the first entry below zero."""
    if block.min(initial=0) < 0:
        i, j = np.argwhere(block < 0)[0]
        raise negative(block[i, j], first + int(i), int(j))


def negative(value: float, row: int, column: int) -> InputError:
    return InputError(
        f"Negative values in data passed to NMF: X must hold numbers >= 0, got {value} at "
        f"row {row}, column {column}. Shift or clip them, or use PCA."
    )
