"""One small ridge problem for every row, in float64.

Row i has entries j with weights w, targets y and pulls q = w y (implicit feedback: w = alpha a,
y = 1, q = w + shift). Codes u and a bias b minimise

    1/2 sum_j w (y_j - b - u.v_j)^2 + 1/2 u^T (P + l_i I) u - h_i.u + 1/2 m_i b^2

Moments     G = sum_j w v v^T,   r = sum_j q v,   a = sum_j w v,   p = sum_j q,   s = sum_j w + m_i
Bias        b = (p - a.u) / s at any u; without it   A = G + P + l_i I - a a^T / s,
            c = r + h_i - a p / s
Value       1/2 sum_j q y - 1/2 gain,   gain = u.(2 c - A u) + p^2 / s

The triangles of all G are one product of the stored weights with the products v_a v_b of every
column, and their right-hand sides another, so that rows need neither padding nor an order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eckart.engines.protocol import PrecisionDraws, RidgeRule, RowSolution
from eckart.rng import streams

RANK = 1e-11
"""Eigenvalues below this share of the largest count as zero."""
SWEEPS, STILL = 200, 1e-6
"""Coordinate descent: sweeps at the most, and the share of the largest code by which none may move
in the last one."""
PAIRS = 2**27
"""Bytes of the products v_a v_b of all columns that are made at once."""
FEW_ROWS = 2**16
"""Rows of a factor that are looked at in double precision at a time: there may be millions."""
ASKED = 4
"""Sweeps between two questions whether a row still moves."""


class ArrayRidge:
    """The family ``ridge``."""

    lib: Any

    def ridge_rows(
        self,
        x: Any,
        right: Any,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        offset: Any = None,
        weights: Any = None,
        own: Any = None,
        other: Any = None,
        base: Any = None,
        prior: Any = None,
        noise: Any = None,
        start: Any = None,
        cg_steps: int = 0,
    ) -> RowSolution:
        """The minimum itself, however many steps of conjugate gradients are asked for: a solution
        costs less than the products of a step."""
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        e, v = lib.entries(x), lib.given(right)
        nothing = v.shape[1] == 0
        if nothing:  # no factors: one that is zero, and left out of what is returned
            v, base, prior, noise, start = xp.zeros_like(v[:, :0].sum(axis=1))[:, None], *[None] * 4
        w, y, q = entry_numbers(
            lib, x, rule, mean=mean, offset=offset, weights=weights, own=own, other=other
        )
        ridge, slack = lib.ridges(x, rule)
        base = None if base is None else lib.given(base)
        rows, k = len(x.counts), v.shape[1]
        prior = None if prior is None else lib.given(prior).reshape(-1, k)
        noise = None if noise is None else lib.given(noise)
        start = None if start is None else lib.given(start)
        found, gain = [], lib.zeros()
        (first, second), size = lib.triangle(k), k * (k + 1) // 2
        order = lib.arange(k)
        diagonal = order * (order + 3) // 2  # where G_aa stands among the numbers of a triangle
        larger, smaller = (f(order[:, None], order) for f in (xp.maximum, xp.minimum))
        square = (larger * (larger + 1) // 2 + smaller).reshape(-1)
        common = None if base is None else base[first, second]
        for at, packed, rhs in _moments(lib, e, w, q, v, rows, rule.bias):
            a, c, bias = packed[:, :size], rhs[:, :k], None
            a = a + common if common is not None else a
            a[:, diagonal] = a[:, diagonal] + ridge[at][:, None]
            if prior is not None:
                c = c + (prior if prior.shape[0] == 1 else prior[at])
            # before the bias is taken out, which leaves rounding errors of this size
            level = xp.amax(a[:, diagonal], axis=1)
            if rule.bias:
                side, pull, s = packed[:, size : size + k], rhs[:, k], packed[:, -1] + slack[at]
                inverse = xp.where(s > 0, 1 / xp.where(s > 0, s, 1.0), 0.0)
                scaled = side * inverse[:, None]
                a = a - scaled[:, first] * side[:, second]
                c = c - scaled * pull[:, None]
                gain = gain + (pull * pull * inverse).sum()
            a = a[:, square].reshape(-1, k, k)
            back: Any = None if noise is None else lib.roots_of(a, 0.0, True)[1]
            if rule.nonnegative:
                floor = 16 * np.finfo(right.dtype).eps * level
                u = _descend(lib, a, c, None if start is None else start[at], floor)
            elif back is not None:  # as many draws as there are sweeps: one root does for both
                u = (back.mT @ (back @ c[:, :, None]))[:, :, 0]
            else:
                u = _solve(lib, a, c, rule.l2 > 0 or base is not None)
            rest = c - (a @ u[:, :, None])[:, :, 0]
            gain = gain + (u * (c + rest)).sum()
            if noise is not None:
                u = u + (back.mT @ noise[at][:, :, None])[:, :, 0]
            if rule.bias:
                bias = (pull - (side * u).sum(axis=1)) * inverse
            found.append((u, bias))
        kind = lib.array(right)
        left = lib.like(xp.concat([each[0] for each in found]), kind)
        left = left[:, :0] if nothing else left
        biases = None
        if rule.bias:
            biases = lib.tall(lib.like(xp.concat([each[1] for each in found]), kind))
        return RowSolution(lib.tall(left), biases, 0.5 * float((q * y).sum() - gain))

    def bias_rows(
        self, x: Any, rule: RidgeRule, offset: Any, weights: Any = None, *, mean: float = 0.0
    ) -> Any:
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        e = lib.entries(x)
        w, _, q = entry_numbers(lib, x, None, mean=mean, offset=offset, weights=weights)
        mass = lib.row_sums(e, w) + lib.ridges(x, rule)[1]
        found = xp.where(mass > 0, lib.row_sums(e, q) / xp.where(mass > 0, mass, 1.0), 0.0)
        return lib.tall(lib.like(found, e.data))

    def ridge_penalty(self, x: Any, rule: RidgeRule, factor: Any, bias: Any) -> float:
        lib = self.lib
        (ridge, slack), f = lib.ridges(lib.placed(x), rule), lib.array(factor)
        total = lib.zeros()
        for a in range(0, f.shape[0], FEW_ROWS):
            part = lib.wide(f[a : a + FEW_ROWS])
            total = total + ridge[a : a + FEW_ROWS] @ (part * part).sum(axis=1)
        if bias is not None:
            total = total + slack @ lib.given(bias).reshape(-1) ** 2
        return 0.5 * float(total)

    def misfit_rows(
        self, x: Any, left: Any, right: Any, *, offset: Any = None, other: Any = None
    ) -> Any:
        lib = self.lib
        x = lib.placed(x)
        e = lib.entries(x)
        w, y, _ = entry_numbers(lib, x, None, offset=offset, other=other)
        rest = y - lib.dots(e, lib.given(left), lib.given(right))
        return lib.tall(lib.row_sums(e, w * rest * rest)[:, None])

    def pair_rows(
        self, one: Any, two: Any, first: np.ndarray, second: np.ndarray
    ) -> tuple[Any, Any]:
        lib, xp = self.lib, self.lib.xp
        x, y = lib.given(one)[first], lib.given(two)[second]
        design = xp.concat([x[:, :-1] + y[:, :-1], xp.ones_like(x[:, :1])], axis=1)
        both = x[:, -1] + y[:, -1] + (x[:, :-1] * y[:, :-1]).sum(axis=1)
        return lib.tall(design), lib.tall(both[:, None])

    def precision_rows(
        self,
        seed: tuple[int, ...],
        misfit: Any,
        counts: Any,
        shape: float,
        scale: float,
        floor: float,
    ) -> PrecisionDraws:
        """Drawn on the host, from the same streams on every engine."""
        lib = self.lib
        misfit, counts = lib.fetch(lib.array(misfit)), lib.fetch(lib.array(counts))
        p = np.empty_like(misfit)
        for rows, rng in streams(seed, len(p)):
            half = 0.5 * (shape / scale + misfit[rows])
            p[rows] = rng.gamma(0.5 * (shape + counts[rows])) / half
        p = np.clip(p, floor, 1.0 / floor)
        logs = np.log(p)
        sums = float(p.sum()), float(logs.sum()), float((counts * logs).sum())
        return PrecisionDraws(lib.tall(lib.given(p)), *sums)


def entry_numbers(
    lib: Any,
    x: Any,
    rule: RidgeRule | None,
    *,
    mean: float = 0.0,
    offset: Any = None,
    weights: Any = None,
    own: Any = None,
    other: Any = None,
    bias: Any = None,
) -> tuple[Any, Any, Any]:
    """w, y and q of every entry in row order, in float64; ``own`` and ``other`` weigh rows and
    columns, ``bias`` and ``offset`` are taken off their entries."""
    e, xp = lib.entries(x), lib.xp
    a = lib.wide(e.data)
    if rule is not None and rule.alpha:
        w = rule.alpha * a
        return w, xp.ones_like(a), xp.where(w > 0, w + rule.shift, 0.0)
    w = e.weights if weights is None else weights
    w = xp.ones_like(a) if w is None else lib.given(w).reshape(-1)
    if own is not None:
        own = lib.given(own).reshape(-1)
        w = w * (own if own.shape[0] == 1 else own[e.row_of])
    if other is not None:
        w = w * lib.given(other).reshape(-1)[e.indices]
    y = a - mean
    if bias is not None:
        y = y - lib.given(bias).reshape(-1)[e.row_of]
    if offset is not None:
        y = y - lib.given(offset).reshape(-1)[e.indices]
    return w, y, w * y


def _moments(
    lib: Any, e: Any, w: Any, q: Any, v: Any, rows: int, biased: bool
) -> Iterator[tuple[slice, Any, Any]]:
    """(which rows, the lower triangle of sum_j w f f^T row by row, sum_j q f) with f = v, or (v, 1)
    where there are biases."""
    f = lib.xp.concat([v, lib.xp.ones_like(v[:, :1])], axis=1) if biased else v
    i, j = lib.triangle(f.shape[1])
    step = max(1, lib.room // (32 * f.shape[1] ** 2))
    # products of so many columns of V at once; those of few factors and columns are made once
    several = max(1, PAIRS // (8 * max(1, f.shape[0])))
    ends = range(0, i.shape[0], several)
    pairs = [f[:, i] * f[:, j]] if len(ends) == 1 else []
    for first in range(0, max(rows, 1), step):
        at = slice(first, min(first + step, rows))
        part, here = e, slice(None)
        if step < rows:
            part, here = lib.rows_of(e, at.start, at.stop), slice(*e.indptr[[first, at.stop]])
        products = pairs or (f[:, i[a : a + several]] * f[:, j[a : a + several]] for a in ends)
        packed = [lib.product(part, w[here], each) for each in products]
        packed = packed[0] if len(packed) == 1 else lib.xp.concat(packed, axis=1)
        yield at, packed, lib.product(part, q[here], f)


def _solve(lib: Any, a: Any, c: Any, penalised: bool) -> Any:
    """The minimum of 1/2 u^T A u - c.u that has the least norm. Without a penalty small eigenvalues
    decide about it: Q diag(1 / e) Q^T c over the eigenvalues e that are not zero."""
    xp = lib.xp
    if penalised:
        try:
            return xp.linalg.solve(a, c[:, :, None])[:, :, 0]
        except xp.linalg.LinAlgError:  # a penalty that rounding hides
            pass
    values, vectors = xp.linalg.eigh(a)
    some = values > RANK * xp.amax(xp.abs(values), axis=1)[:, None]
    inverse = xp.where(some, 1 / xp.where(some, values, 1.0), 0.0)
    return (vectors @ (inverse[:, :, None] * (vectors.mT @ c[:, :, None])))[:, :, 0]


def _descend(lib: Any, a: Any, c: Any, start: Any, floor: Any) -> Any:
    """Coordinate descent on 1/2 u^T A u - c.u over u >= 0; a coordinate whose curvature is not
    above ``floor`` stays zero."""
    xp, d = lib.xp, lib.xp.linalg.diagonal(a)
    bent = d > floor[:, None]
    inverse = xp.where(bent, 1 / xp.where(bent, d, 1.0), 0.0)
    u = xp.zeros_like(c) if start is None else xp.where(bent & (start > 0), start, 0.0)
    slope = (a @ u[:, :, None])[:, :, 0] - c
    for sweep in range(SWEEPS):
        before = lib.copied(u)
        for j in range(u.shape[1]):
            new = xp.clip(u[:, j] - slope[:, j] * inverse[:, j], 0.0, None)
            slope = slope + (new - u[:, j])[:, None] * a[:, j]
            u[:, j] = new
        if sweep % ASKED == ASKED - 1:
            moved = xp.amax(xp.abs(u - before), axis=1)
            if not bool((moved > STILL * xp.amax(u, axis=1)).any()):
                break
    return u
