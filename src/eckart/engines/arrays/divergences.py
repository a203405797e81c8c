"""Multiplicative steps of non-negative factorization under any beta-divergence, Kullback-Leibler's
(b = 1) and least squares among them:

    u <- u p^power,   p the positive root of   l2 u p^2 + (down + l1) p = up

Formulas and limits are those of ``protocol.divergences``. Kullback-Leibler steps run in the
precision of the data; the powers of the others, objectives and violations are in float64.

Cells of a matrix against the other factor H of X ~ W H^T: all cells of some dense rows, or the
stored entries alone, behind the same four products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eckart.engines.protocol import BetaRule, BetaSums, Descent, KlRule, KlSums, Pass
from eckart.engines.protocol.parts import LOWEST, no_zeros

LEAST = 1e-10
"""Share of a row below which a multiplicative step does not take a component, so that it can come
back."""
TINY = 1e-37
"""Denominators at the least: above it a float32 is normal."""


class ArrayDivergences:
    """The family ``divergences``, and the multiplicative half of ``parts``."""

    lib: Any
    _cross_pass: Any

    def kl_rows(
        self, x: Any, other: Any, start: Any, rule: KlRule, mass: Any, *, steps: int = 1
    ) -> Descent:
        """Value and violations are promised: a loop that does not ask for them lets the next half
        sweep begin at once."""
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        h, u = lib.array(other, start.dtype), lib.array(start)
        down = lib.array(mass, start.dtype)[None]
        if x.kind == "dense":
            found = [
                _kl_steps(lib, cells, u[at], down, rule, steps)
                for at, _, cells in cells_of(lib, x, h)
            ]
            return Descent(*self._descended(start, x, found))
        e = lib.entries(x)
        if x.kind == "observed":
            down = lib.product(e, xp.ones_like(e.data) if e.weights is None else e.weights, h)
        made = lib.kl_entries(x, h, u, down, rule, steps)
        if made is None:
            made = _kl_steps(lib, StoredCells(lib, e, h), u, down, rule, steps)
        return Descent(*self._descended(start, x, [made]))

    def kl_sums(self, x: Any, left: Any, right: Any, valued: bool = True) -> KlSums:
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        u, v = lib.array(left, x.dtype), lib.array(right, x.dtype)
        up, value = lib.zeros(*v.shape), lib.zeros(1)
        for at, w, cells in cells_of(lib, x, v, zeros=True):
            a = cells.a
            least = xp.clip(1e-30 * a.sum(axis=1, keepdims=True), TINY, None)
            ratio = a / xp.maximum(cells.at(u[at]), least)
            heavy = u[at] if lib.row_weights(x) is None else u[at] * lib.like(w, u)[:, None]
            up = up + ratio.T @ heavy
            if valued:
                logs = xp.log(xp.clip(ratio, 1e-30, None)) - 1
                value = value + w @ lib.wide((a * logs).sum(axis=1))
        return KlSums(lib.tall(up), lib.promise(value)[0])

    def kl_step(
        self, right: Any, sums: KlSums, mass: Any, totals: np.ndarray, rule: KlRule
    ) -> Descent:
        lib, u = self.lib, self.lib.given(right)
        up, total = lib.given(sums.up), lib.given(totals)
        down = lib.given(mass) + lib.xp.zeros_like(u)
        least = _least(lib, total, down + rule.l1)
        new, own, kkt = _step(lib, u, up, down, least, rule, total)
        found = [(new, own + (u * down).sum(axis=1), kkt)]
        return Descent(*self._descended(right, None, found, more=float(sums.value)))

    def beta_size(self, x: Any, beta: float) -> float:
        lib, size = self.lib, 0.0
        for at, w, cells in cells_of(lib, lib.placed(x), None, zeros=True):
            size += float(w @ size_of_rows(lib, cells, beta, at.start))
        return size

    def beta_rows(
        self,
        x: Any,
        other: Any,
        start: Any,
        rule: BetaRule,
        mass: np.ndarray,
        *,
        steps: int = 1,
    ) -> Descent:
        lib = self.lib
        x, h, u, mass = lib.placed(x), lib.given(other), lib.given(start), lib.given(mass)
        found = [
            beta_steps(lib, cells, u[at], mass, rule, steps)
            for at, _, cells in cells_of(lib, x, h, zeros=True)
        ]
        return Descent(*self._descended(start, x, found))

    def beta_sums(self, x: Any, left: Any, right: Any, beta: float) -> BetaSums:
        """Columns are rows of the transpose: of blocks of dense rows, or of the entries."""
        lib = self.lib
        x, u, h = lib.placed(x), lib.given(left), lib.given(right)
        sums = BetaSums(np.zeros(tuple(h.shape)), np.zeros(tuple(h.shape)), np.zeros(len(h)), 0.0)
        stored, weights = x.kind == "observed", lib.row_weights(x)
        for at, _, cells in cells_of(lib, x.T if stored else x, u, zeros=True):
            w = None if weights is None else weights[at]
            turned = cells if stored else transposed(cells, w, u[at])
            sums = sums.merge(BetaSums(*beta_sums_of(lib, turned, h, beta)))
        return sums

    def beta_step(self, right: Any, sums: BetaSums, mass: np.ndarray, rule: BetaRule) -> Descent:
        lib, u = self.lib, self.lib.given(right)
        up, down, total = (lib.given(a) for a in (sums.up, sums.down, sums.totals))
        least = _least(lib, total, lib.given(mass) + lib.xp.zeros_like(u))
        found = [_step(lib, u, up, down, least, rule)]
        return Descent(*self._descended(right, None, found, more=sums.value))

    def multiplied_rows(self, gram: np.ndarray, pull: Any, start: Any, l1: float = 0.0) -> Descent:
        lib, g = self.lib, self.lib.given(gram)
        found = [multiply(lib, g, lib.array(pull), l1, lib.array(start))]
        return Descent(*self._descended(start, None, found))

    def multiplied_pass(
        self, x: Any, right: Any, left: Any, gram: np.ndarray, l1: float = 0.0
    ) -> Pass:
        lib, g = self.lib, self.lib.given(gram)
        return self._cross_pass(x, right, left, lambda p, u: multiply(lib, g, p, l1, u))

    def _descended(
        self,
        like: Any,
        x: Any,
        found: list[tuple[Any, Any, Any]],
        promised: bool = True,
        *extra: Any,
        more: float = 0.0,
    ) -> tuple[Any, ...]:
        """(rows, value and violations of each) of blocks as a record: rows in the precision that
        they came in, sums with the weights of the rows of x. Sums that are not ``promised`` come
        with those ``beside`` them, by one copy."""
        lib, old = self.lib, self.lib.array(like)
        if not found:  # no rows
            return (like, more, 0.0, *lib.host(*extra))
        joined = zip(*found)
        new, value, kkt = (lib.xp.concat(list(a)) if len(found) > 1 else a[0] for a in joined)
        both = lib.xp.stack([value, kkt])
        w = None if x is None else lib.row_weights(x)
        level = both.sum(axis=1) if w is None else both @ w
        if more:
            level = level + more * lib.wide(lib.arange(2) == 0)
        rows = lib.tall(lib.like(new, old))
        if promised:
            return (rows, *lib.promise(level))
        if not extra:
            return (rows, *level.tolist())
        (value, kkt), *others = lib.host(level, *extra)
        return (rows, float(value), float(kkt), *others)


def _kl_steps(
    lib: Any, cells: Any, u: Any, down: Any, rule: KlRule, steps: int
) -> tuple[Any, Any, Any]:
    """up_c = sum_j w_j a_j h_jc / s_j, s = H u, and down = sum_j w_j h_j; the value is
    sum w (a log(a / s) - a) + down.u with the penalties."""
    xp, heavy = lib.xp, cells.a if cells.v is None else cells.v * cells.a
    down = down + xp.zeros_like(u)
    total = lib.like(cells.sums(heavy), u)
    floor = cells.each(xp.clip(1e-30 * total, TINY, None))

    def sums(u: Any, first: bool) -> tuple[Any, Any, Any]:
        ratio = cells.a / xp.maximum(cells.at(u), floor)
        up = cells.pull(ratio if cells.v is None else cells.v * ratio)
        if not (first and rule.valued):
            return up, down, None
        logs = xp.log(xp.clip(ratio, 1e-30, None)) - 1
        value = lib.wide(cells.sums(heavy * logs)) + lib.wide(u * down).sum(axis=1)
        return up, down, value

    mass = down + rule.l1
    least = _least(lib, total, mass)
    return _steps(lib, _floored(lib, u, least, mass), sums, least, mass, rule, steps, total)


def beta_steps(
    lib: Any, cells: Any, u: Any, mass: Any, rule: BetaRule, steps: int
) -> tuple[Any, Any, Any]:
    """Steps of some rows, from equal shares where a row is zero; value and violations of each
    before the first."""
    xp = lib.xp
    total = cells.sums(cells.a if cells.v is None else cells.a * cells.v)
    least = _least(lib, total, mass + xp.zeros_like(u))
    some = (u > 0).any(axis=1)[:, None]
    u = xp.where(some, xp.maximum(u, least), least / (LEAST * u.shape[1]))

    floor = _lowest(lib, cells)

    def sums(u: Any, first: bool) -> tuple[Any, Any, Any]:
        return _beta_sums(lib, cells, u, rule.beta, floor, first)

    return _steps(lib, u, sums, least, mass, rule, steps)


def _steps(
    lib: Any,
    u: Any,
    sums: Callable[[Any, bool], tuple[Any, Any, Any]],
    least: Any,
    mass: Any,
    rule: Any,
    steps: int,
    total: Any = None,
) -> tuple[Any, Any, Any]:
    """Rows after the steps, value and violations of each before the first; a row that moves by less
    than a share ``tol`` of its mass stays."""
    xp, going = lib.xp, None
    value = kkt = lib.zeros(u.shape[0])
    for step in range(steps):
        up, down, own = sums(u, step == 0)
        new, penalties, violated = _step(lib, u, up, down, least, rule, total)
        if step == 0:
            value, kkt = penalties if own is None else own + penalties, violated
        if step + 1 == steps:
            return new if going is None else xp.where(going[:, None], new, u), value, kkt
        moved = (xp.abs(new - u) * mass).sum(axis=1) > rule.tol * (new * mass).sum(axis=1)
        u = new if going is None else xp.where(going[:, None], new, u)
        going = moved if going is None else going & moved
        if step % lib.asks == lib.asks - 1 and not bool(going.any()):
            break
    return u, value, kkt


def _step(
    lib: Any, u: Any, up: Any, down: Any, least: Any, rule: Any, total: Any = None
) -> tuple[Any, Any, Any]:
    """Rows after a step; their penalties l1 sum u + l2/2 |u|^2 and violations
    m sum_c min(u_c d_c / m, 1 - up_c / d_c)^2 before it, with d = down + l1 + l2 u and
    m = max(u.d, total); total is u.up where none is given."""
    xp, first, wide = lib.xp, down + rule.l1, lib.wide(u)
    slope = first + rule.l2 * u
    part = wide * lib.wide(slope)
    mass = (wide * up).sum(axis=1) if total is None else lib.wide(total)
    size = xp.maximum(part.sum(axis=1), mass)[:, None]
    short = xp.minimum(_ratio(lib, part, size), 1 - lib.wide(_ratio(lib, up, slope)))
    short = xp.clip(short, -1.0, None)
    kkt = size[:, 0] * (short * short).sum(axis=1)
    bend = first + (xp.sqrt(first * first + 4 * rule.l2 * u * up) if rule.l2 else first)
    root = _ratio(lib, 2 * up, bend)
    new = u * (root if rule.power == 1 else root**rule.power)
    own = (rule.l1 * wide + 0.5 * rule.l2 * wide * wide).sum(axis=1)
    return _floored(lib, new, least, first), own, kkt


def _lowest(lib: Any, cells: Any) -> Any:
    """What s = u.h is at the least at each cell: a share LOWEST of the mean of its row."""
    xp, a = lib.xp, cells.a
    if cells.v is None:
        mean = cells.sums(a) / xp.clip(cells.sums(xp.ones_like(a)), 1.0, None)
    else:
        known = cells.v > 0
        count = xp.clip(cells.sums(lib.wide(known)), 1.0, None)
        mean = cells.sums(xp.where(known, a, 0.0)) / count
    return cells.each(xp.clip(LOWEST * mean, 1e-150, None))


def _beta_sums(
    lib: Any, cells: Any, u: Any, b: float, least: Any, valued: bool
) -> tuple[Any, Any, Any]:
    """num = sum v a s^(b - 2) h, den = sum v s^(b - 1) h and, where asked for, the divergence of
    each row; s is not below ``least``."""
    xp, a, v = lib.xp, cells.a, cells.v
    s = xp.maximum(cells.at(u), least)
    rest = 1 / (s * s) if b == 0 else s ** (b - 2)  # a power of -2 costs ten times a division
    rest, each = rest if v is None else v * rest, None
    if valued:
        some, heavy = a > 0 if v is None else (a > 0) & (v > 0), 1.0 if v is None else v
        if b in (0, 1):
            ratio = xp.where(some, a / s, 1.0)
            log = xp.log(ratio)
            each = heavy * (ratio - log - 1) if b == 0 else heavy * (a * log - a + s)
        else:
            own = xp.where(some, xp.where(some, a, 1.0) ** b, 0.0)
            each = (heavy * own + rest * s * ((b - 1) * s - b * a)) / (b * (b - 1))
    up, down = cells.pull(rest * a), cells.pull(rest * s)
    return up, down, None if each is None else cells.sums(each)


def beta_sums_of(
    lib: Any, cells: Any, h: Any, beta: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """num, den, the weighted sum and the divergence of columns, given as rows of the transpose."""
    up, down, value = _beta_sums(lib, cells, h, beta, _lowest(lib, cells), True)
    total = cells.sums(cells.a if cells.v is None else cells.a * cells.v)
    *sums, value = lib.host(up, down, total, value.sum())
    return (*sums, float(value))


def transposed(cells: Any, w: Any, u: Any) -> DenseCells:
    """Cells of rows as those of columns against the rows of W; the weights of rows (None: ones) are
    in those of the cells."""
    v = cells.v
    if w is not None:
        v = w[:, None] + 0.0 * cells.a if v is None else w[:, None] * v
    return DenseCells(cells.a.T, None if v is None else v.T, u)


def size_of_rows(lib: Any, cells: Any, beta: float, first: int) -> Any:
    """sum_j v_j a_j^beta of each row, over cells > 0; a zero is refused where beta <= 0."""
    xp, a = lib.xp, lib.wide(cells.a)
    some, v = a > 0, xp.ones_like(a) if cells.v is None else lib.wide(cells.v)
    if beta <= 0:
        bad = lib.fetch(~some & (v > 0))
        if bad.any():
            i, j = cells.position(int(np.argmax(bad)))
            raise no_zeros(first + i, j, beta)
    return cells.sums(xp.where(some, xp.where(some, a, 1.0) ** beta * v, 0.0))


def multiply(lib: Any, gram: Any, pull: Any, l1: float, start: Any) -> tuple[Any, Any, Any]:
    """u p / (G u + l1) for every row; 1/2 u^T G u - (p - l1).u and the violations before it."""
    xp, p = lib.xp, lib.wide(pull)
    size = xp.linalg.diagonal(gram)
    inverse = _ratio(lib, xp.ones_like(size), size)
    least = LEAST * p * inverse
    u = xp.maximum(lib.wide(start), least)
    down = u @ gram + l1
    value = 0.5 * (u * (down + l1 - 2 * p)).sum(axis=1)
    kkt = xp.minimum(u, (down - p) * inverse) ** 2 @ size
    return xp.maximum(u * _ratio(lib, p, down), least), value, kkt


def _least(lib: Any, total: Any, down: Any) -> Any:
    """A share LEAST of a row, as the entry of u that makes it: LEAST total_i / down_ic."""
    return LEAST * total[:, None] * _ratio(lib, lib.xp.ones_like(down), down)


def _floored(lib: Any, u: Any, least: Any, down: Any) -> Any:
    """u, at least that; zero for a component that has no mass."""
    return lib.xp.where(down > 0, lib.xp.maximum(u, least), 0.0)


def _ratio(lib: Any, a: Any, b: Any) -> Any:
    """a / b, zero where b is not positive."""
    some = b > 0
    return lib.xp.where(some, a / lib.xp.where(some, b, 1.0), 0.0)


FILLED = 2**20
"""Cells of sparse rows that are filled with zeros at once: 8 MB in float64."""


class DenseCells:
    """All cells of some rows: values a and weights v (None: ones), rows x n, against H (n x k)."""

    def __init__(self, a: Any, v: Any, h: Any):
        self.a, self.v, self.h = a, v, h

    def at(self, u: Any) -> Any:
        """u_i.h_j at the cells."""
        return u @ self.h.T

    def pull(self, r: Any) -> Any:
        """sum_j r_ij h_j of every row."""
        return r @ self.h

    def sums(self, r: Any) -> Any:
        """sum_j r_ij of every row."""
        return r.sum(axis=1)

    def each(self, t: Any) -> Any:
        """Numbers of rows, for their cells."""
        return t[:, None]

    def position(self, index: int) -> tuple[int, int]:
        return divmod(index, self.a.shape[1])


class StoredCells:
    """The same of stored entries alone, one after another."""

    def __init__(self, lib: Any, e: Any, h: Any):
        self.lib, self.e, self.h = lib, e, h
        cast = (lambda a: lib.like(a, h)) if h is not None else lib.wide
        self.a, self.v = cast(e.data), None if e.weights is None else cast(e.weights)

    def at(self, u: Any) -> Any:
        return self.lib.dots(self.e, u, self.h)

    def pull(self, r: Any) -> Any:
        return self.lib.product(self.e, r, self.h)

    def sums(self, r: Any) -> Any:
        return self.lib.row_sums(self.e, r)

    def each(self, t: Any) -> Any:
        return t[self.e.row_of]

    def position(self, index: int) -> tuple[int, int]:
        return int(self.e.row_of[index]), int(self.e.indices[index])


class StoredMatrix:
    """A sparse matrix as an operand of @."""

    def __init__(self, lib: Any, x: Any):
        self.lib, self.x = lib, x

    def __matmul__(self, v: Any) -> Any:
        e = self.lib.entries(self.x)
        return self.lib.product(e, e.data, v)

    @property
    def T(self) -> StoredMatrix:
        return StoredMatrix(self.lib, self.x.T)


def weights_of(lib: Any, x: Any, at: slice, rows: int) -> Any:
    """Weights of some rows in float64, ones where there are none."""
    w = None if x is None else lib.row_weights(x)
    return lib.zeros(rows) + 1.0 if w is None else w[at]


def dense_rows(lib: Any, x: Any, copies: int = 1) -> Iterator[tuple[slice, Any, Any]]:
    """(which, their weights, rows in the precision of the data), so few that some copies of them
    stay in cache; the first pass refuses NaN and infinities."""
    for start, block in lib.checked_blocks(x, copies * x.shape[1] * x.dtype.itemsize):
        at = slice(start, start + block.shape[0])
        yield at, weights_of(lib, x, at, block.shape[0]), block


def cells_of(lib: Any, x: Any, h: Any, zeros: bool = False) -> Iterator[tuple[slice, Any, Any]]:
    """(which rows, their weights, their cells): blocks of dense rows, or all stored entries at
    once. With ``zeros`` rows of counts are filled."""
    rows, n = x.shape
    if x.kind == "dense":
        for at, w, block in dense_rows(lib, x, copies=4):
            yield at, w, DenseCells(block if h is None else lib.like(block, h), None, h)
        return
    e = lib.entries(x)
    if x.kind == "observed" or not zeros:
        yield slice(0, rows), weights_of(lib, x, slice(None), rows), StoredCells(lib, e, h)
        return
    step = max(1, FILLED // n)
    for first in range(0, rows, step):
        at = slice(first, min(first + step, rows))
        w = weights_of(lib, x, at, at.stop - first)
        yield at, w, filled_cells(lib, e, h, at, n)


def filled_cells(lib: Any, e: Any, h: Any, at: slice, n: int) -> DenseCells:
    """All n cells of some rows of stored entries, zeros where nothing is stored."""
    here = lib.rows_of(e, at.start, at.stop)
    where, made = here.row_of * n + here.indices, list[Any]()
    for each in (here.data, here.weights):
        numbers = None if each is None else lib.wide(each) if h is None else lib.like(each, h)
        shape = at.stop - at.start, n
        made.append(None if numbers is None else _placed(lib, numbers, where, shape))
    return DenseCells(made[0], made[1], h)


def _placed(lib: Any, numbers: Any, where: Any, shape: tuple[int, int]) -> Any:
    """Numbers at their places, zeros elsewhere."""
    out = lib.like(lib.zeros(shape[0] * shape[1]), numbers)
    out[where] = numbers
    return out.reshape(shape)
