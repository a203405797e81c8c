"""One small ridge problem for every row, on a device: buckets of rows of about the same length, a batched product and a batched Cholesky factor each.

    G_i = sum_j w v_j v_j^T + P + l_i I,      r_i = sum_j q v_j + h_i,      value = 1/2 (sum_j q y - u.(r + rest)),   rest = r - G u

A bias is taken out by its Schur complement: with a = sum_j w v_j, s = sum_j w + m_i: G - a a^T / s, r - a (sum_j q) / s. Large ranks go by conjugate
gradients, where G is never formed. Rows that need signs or the solution of least norm are the CPU engine's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from eckart.engines.cuda.arrays import DeviceArray
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.held import MOST_ROWS, Chunk, Entries, Held, padded_rows
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.ridge import SOLVED, WIDEST, eliminated, grams, weighted_images
from eckart.engines.cuda.sampled import at_entries
from eckart.engines.protocol import RidgeRule, RowSolution


class Known(NamedTuple):
    """The numbers of the formula for every entry: arrays on the device or None, as in ``cpu.entries.entry``."""

    entries: Entries
    weights: torch.Tensor | None
    own: torch.Tensor | None
    other: torch.Tensor | None
    bias: torch.Tensor | None
    offset: torch.Tensor | None
    mean: float
    rule: RidgeRule

    def at(self, chunk: Chunk) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """w (None: all one), y and q of the entries of a chunk; y and q are zero where nothing stands, and so is w."""
        a = chunk.numbers(self.entries.data)
        if self.rule.alpha:
            w = self.rule.alpha * a
            return w, chunk.seen.to(a.dtype), torch.where(w > 0, w + self.rule.shift, 0.0)
        w = None if self.weights is None else chunk.numbers(self.weights)
        for each in (
            None if self.own is None else self.own[chunk.rows][:, None] if len(self.own) > 1 else self.own,
            None if self.other is None else self.other[chunk.columns],
        ):
            if each is not None:
                w = each * chunk.seen if w is None else w * each
        y = a - self.mean
        if self.bias is not None:
            y = y - self.bias[chunk.rows][:, None]
        if self.offset is not None:
            y = y - self.offset[chunk.columns]
        y = torch.where(chunk.seen, y, 0.0)
        return w, y, y if w is None else w * y

    def flat(self) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """The same of all entries, in row order."""
        a, e = self.entries.data, self.entries
        if self.rule.alpha:
            w = self.rule.alpha * a
            return w, torch.ones_like(a), torch.where(w > 0, w + self.rule.shift, 0.0)
        w = self.weights
        for each in (
            None if self.own is None else self.own[e.row_of] if len(self.own) > 1 else self.own.expand(len(a)),
            None if self.other is None else self.other[e.indices],
        ):
            if each is not None:
                w = each if w is None else w * each
        y = a - self.mean if self.mean else a
        if self.bias is not None:
            y = y - self.bias[e.row_of]
        if self.offset is not None:
            y = y - self.offset[e.indices]
        return w, y, y if w is None else w * y


class DeviceRidge:
    """One small ridge problem for every row."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any

    def known(
        self, x: Held, dtype: Any, rule: RidgeRule | None = None, mean: float = 0.0, weights: Any = None, **given: Any
    ) -> Known:
        """The record for the entries of a placed matrix; without ``weights`` its own are taken. Numbers of columns get one more, for absent entries."""
        w = x.entries.weights if weights is None else self.tensor(weights, dtype)
        flat: dict[str, Any] = dict.fromkeys(("own", "other", "bias", "offset"))
        flat |= {name: self.tensor(a, dtype).reshape(-1) for name, a in given.items() if a is not None}
        for name in ("other", "offset"):
            if flat[name] is not None:
                flat[name] = torch.nn.functional.pad(flat[name], (0, 1))
        return Known(x.entries, w, mean=float(mean), rule=rule or RidgeRule(0.0), **flat)

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
        base: np.ndarray | None = None,
        prior: Any = None,
        noise: Any = None,
        start: Any = None,
        cg_steps: int = 0,
    ) -> RowSolution:
        x = self.held(x)
        given: dict[str, Any] = {"offset": offset, "weights": weights, "own": own, "other": other, "base": base}
        given |= {"mean": mean, "prior": prior, "noise": noise, "start": start, "cg_steps": cg_steps}
        if rule.nonnegative or (rule.l2 <= 0 and base is None):
            return self.on_cpu("ridge_rows", x, right, rule, **given)
        v, dtype = self.tensor(right), right.dtype
        k = v.shape[1]
        own = np.array([own]) if isinstance(own, float) else own
        facts = self.known(x, dtype, rule, mean, weights, own=own, other=other, offset=offset)
        ridge, bias_ridge = x.kept_ridges(rule)
        system = _System(
            None if base is None else self.tensor(base, np.float64),
            None if prior is None else self.tensor(prior, dtype).reshape(-1, k).expand(len(ridge), k),
            None if noise is None else self.tensor(noise, dtype),
            ridge,
            bias_ridge if rule.bias else None,
        )
        left = torch.zeros((len(ridge), k), dtype=v.dtype, device=self.device)
        bias = torch.zeros(len(ridge), dtype=v.dtype, device=self.device) if rule.bias else None
        value = torch.zeros((), dtype=torch.float64, device=self.device)
        begun: Any = None if start is None else self.tensor(start, dtype)
        small = cg_steps > 0 and begun is not None and not rule.bias and prior is None and noise is None
        part: Any
        if usable(v) and (k <= WIDEST if small else v.dtype == torch.float32):
            found = (
                _images_by_conjugate_gradients(facts, v.contiguous(), system, begun, cg_steps)
                if small
                else _kernel_solved(facts, v.contiguous(), system)
            )
            if found is None:
                return self.on_cpu("ridge_rows", x, right, rule, **given)
            left, bias, value = found
            return RowSolution(DeviceArray(left), None if bias is None else DeviceArray(bias), float(value))
        below = padded_rows(v, rule.bias)
        for chunk in facts.entries.chunks(k + rule.bias, 0 if small else 2 * (k + 1) ** 2):
            w, y, q = facts.at(chunk)
            gathered = below[chunk.columns]
            if small:
                u, part = _by_conjugate_gradients(chunk, gathered, w, y, q, system, begun[chunk.rows], cg_steps)
                left[chunk.rows] = u
            else:
                found = _solved(chunk, gathered, w, y, q, system)
                if found is None:
                    return self.on_cpu("ridge_rows", x, right, rule, **given)
                left[chunk.rows], part = found[0], found[2]
                if bias is not None:
                    assert found[1] is not None
                    bias[chunk.rows] = found[1]
            value += part
        if prior is not None or noise is not None:
            empty = (x.entries.counts == 0).nonzero()[:, 0]
            if len(empty):
                left[empty], part = system.of_empty(empty, k, v.dtype)
                value += part
        return RowSolution(DeviceArray(left), None if bias is None else DeviceArray(bias), float(value))

    def bias_rows(self, x: Any, rule: RidgeRule, offset: Any, weights: Any = None, *, mean: float = 0.0) -> DeviceArray:
        x = self.held(x)
        facts = self.known(x, x.dtype, None, mean, weights, offset=offset)
        w, _, q = facts.flat()
        ridge = x.kept_ridges(rule)[1]
        weight = (facts.entries.counts if w is None else row_sums(facts.entries, w)) + ridge
        found = torch.where(weight > 0, row_sums(facts.entries, q) / torch.where(weight > 0, weight, 1.0), 0.0)
        return DeviceArray(found.to(facts.entries.data.dtype))

    def ridge_penalty(self, x: Any, rule: RidgeRule, factor: Any, bias: Any) -> float:
        x = self.held(x)
        ridge, bias_ridge = x.kept_ridges(rule)
        total = ridge @ (self.tensor(factor, np.float64) ** 2).sum(1)
        if bias is not None:
            total = total + bias_ridge @ self.tensor(bias, np.float64).reshape(-1) ** 2
        return 0.5 * float(total)

    def misfit_rows(self, x: Any, left: Any, right: Any, *, offset: Any = None, other: Any = None) -> DeviceArray:
        x = self.held(x)
        u, v = self.tensor(left, right.dtype), self.tensor(right)
        facts = self.known(x, right.dtype, offset=offset, other=other)
        w, y, _ = facts.flat()
        d = (y - at_entries(facts.entries, u, v)).double()
        return DeviceArray(row_sums(facts.entries, d * d if w is None else d * d * w)[:, None])


def row_sums(entries: Entries, numbers: torch.Tensor) -> torch.Tensor:
    """sum_j of numbers at the entries, for every row, in float64."""
    one = torch.ones((entries.n, 1), dtype=torch.float64, device=numbers.device)
    return entry_product(entries, numbers.double(), one)[:, 0]


class _System(NamedTuple):
    """What the matrices of all rows have in common, and the ridges."""

    base: torch.Tensor | None
    prior: torch.Tensor | None
    noise: torch.Tensor | None
    ridge: torch.Tensor
    bias_ridge: torch.Tensor | None

    def shift(self, rows: torch.Tensor, k: int, dtype: torch.dtype) -> torch.Tensor:
        """P + l_i I of some rows, as what is added to their matrices."""
        eye = torch.eye(k, dtype=dtype, device=rows.device)
        out = self.ridge[rows].to(dtype)[:, None, None] * eye
        return out if self.base is None else out + self.base.to(dtype)

    def of_empty(self, rows: torch.Tensor, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows without entries: (P + l I)^-1 h, and draws about it."""
        lower = torch.linalg.cholesky(self.shift(rows, k, torch.float64))
        h = (
            torch.zeros((len(rows), k), dtype=torch.float64, device=rows.device)
            if self.prior is None
            else self.prior[rows].double()
        )
        u = torch.cholesky_solve(h[:, :, None], lower)[:, :, 0]
        part = -0.5 * (u * h).sum()
        if self.noise is not None:
            u = u + torch.linalg.solve_triangular(lower.mT, self.noise[rows].double()[:, :, None], upper=True)[:, :, 0]
        return u.to(dtype), part


def _heavy(gathered: torch.Tensor, w: torch.Tensor | None, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """sqrt(w) v and q / sqrt(w) (0 where w is 0), so that one array gives both the matrix and the right-hand side."""
    if w is None:
        return gathered, q
    root = w.sqrt()
    gathered.mul_(root[:, :, None])
    return gathered, torch.where(root > 0, q / root, 0.0)


def _solved(
    chunk: Chunk, gathered: torch.Tensor, w: torch.Tensor | None, y: torch.Tensor, q: torch.Tensor, system: _System
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """Codes, biases and the sum of the values of a chunk; None where a matrix is not positive definite, even in float64."""
    k = gathered.shape[2] - (system.bias_ridge is not None)
    constant = (q.double() * y.double()).sum(1)
    seen = chunk.seen if w is None else w
    heavy, pulls = _heavy(gathered, w, q)
    heavy = chunk.pieces(heavy)
    gram = chunk.whole(torch.bmm(heavy.mT, heavy))
    rhs = chunk.whole(torch.bmm(heavy.mT, pulls.reshape(len(heavy), -1, 1)))[:, :k, 0]
    side = None if system.bias_ridge is None else gram[:, :k, k]
    sums = q.sum(1, dtype=torch.float64), seen.sum(1, dtype=torch.float64)
    return _in_time(chunk.rows, gram[:, :k, :k], rhs, side, sums, constant, system)


def _in_time(
    rows: torch.Tensor,
    gram: torch.Tensor,
    rhs: torch.Tensor,
    side: torch.Tensor | None,
    sums: tuple[torch.Tensor, torch.Tensor],
    constant: torch.Tensor,
    system: _System,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """Solved in working precision, or in float64 where a matrix is not positive definite in it."""
    for wide in (False, True):
        g, r = (a.double() if wide else a for a in (gram, rhs))
        s = side.double() if wide and side is not None else side
        found = _factored(rows, g, r, s, *sums, system)
        if found is not None:
            u, b, gain = found
            return u.to(rhs.dtype), None if b is None else b.to(rhs.dtype), 0.5 * (constant - gain).sum()
    return None


def _factored(
    rows: torch.Tensor,
    gram: torch.Tensor,
    r: torch.Tensor,
    side: torch.Tensor | None,
    pull: torch.Tensor,
    weight: torch.Tensor,
    system: _System,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """``side`` is sum_j w v_j, ``pull`` sum_j q and ``weight`` sum_j w of each row: what the bias needs."""
    b: Any = None
    inverse: Any = None
    a = gram + system.shift(rows, r.shape[1], gram.dtype)
    if system.prior is not None:
        r = r + system.prior[rows]
    if side is not None:
        assert system.bias_ridge is not None
        slack = weight + system.bias_ridge[rows]
        inverse = torch.where(slack > 0, 1.0 / slack, 0.0)
        a = a - (side * inverse.to(a.dtype)[:, None])[:, :, None] * side[:, None, :]
        r = r - side * (pull * inverse).to(a.dtype)[:, None]
    lower, info = torch.linalg.cholesky_ex(a)
    if bool(info.any()):
        return None
    u = torch.linalg.solve_triangular(lower, r[:, :, None], upper=False)
    u = torch.linalg.solve_triangular(lower.mT, u, upper=True)[:, :, 0]
    rest = r - torch.bmm(a, u[:, :, None])[:, :, 0]
    gain = (u.double() * (r + rest).double()).sum(1)
    if system.noise is not None:
        u = u + torch.linalg.solve_triangular(lower.mT, system.noise[rows].to(a.dtype)[:, :, None], upper=True)[:, :, 0]
    if side is not None:
        b = (pull - (side * u).sum(1, dtype=torch.float64)) * inverse
        gain = gain + pull * pull * inverse
    return u, b, gain


def _kernel_solved(
    facts: Known, v: torch.Tensor, system: _System
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """All rows, some at a time, their matrices by a kernel; None where one is not positive definite, even in float64."""
    e, k = facts.entries, v.shape[1]
    w, y, q = facts.flat()
    rhs = entry_product(e, q, v)
    side = None
    if system.bias_ridge is not None:
        side = entry_product(e, torch.ones_like(q) if w is None else w, v)
    constant, pull = row_sums(e, q.double() * y.double()), row_sums(e, q)
    weight = e.counts.double() if w is None else row_sums(e, w)
    left, bias = torch.empty_like(rhs), None if side is None else torch.empty_like(rhs[:, 0])
    value = torch.zeros((), dtype=torch.float64, device=v.device)
    for first, last, entry, pieces in e.ranges(max(1, min(MOST_ROWS, e.room.chunk // (4 * (k + 1) ** 2)))):
        at, gram = slice(first, last), grams(pieces, e.indices, w, v, entry)
        own = None if side is None else side[at]
        found = None
        if k <= SOLVED and system.noise is None:
            found = _eliminated(at, gram, rhs[at], own, pull[at], weight[at], constant[at], system)
        if found is None:
            rows = torch.arange(first, last, device=v.device)
            found = _in_time(rows, gram, rhs[at], own, (pull[at], weight[at]), constant[at], system)
        if found is None:
            return None
        left[at] = found[0]
        if bias is not None:
            assert found[1] is not None
            bias[at] = found[1]
        value += found[2]
    return left, bias, value


def _eliminated(
    at: slice,
    gram: torch.Tensor,
    r: torch.Tensor,
    side: torch.Tensor | None,
    pull: torch.Tensor,
    weight: torch.Tensor,
    constant: torch.Tensor,
    system: _System,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """What ``_in_time`` gives, by a kernel that keeps each matrix to itself; None where a pivot is not positive."""
    inverse = torch.zeros_like(pull)
    if system.prior is not None:
        r = r + system.prior[at]
    if side is not None:
        assert system.bias_ridge is not None
        slack = weight + system.bias_ridge[at]
        inverse = torch.where(slack > 0, 1.0 / torch.where(slack > 0, slack, 1.0), 0.0)
        r = r - side * (pull * inverse).to(r.dtype)[:, None]
    base = None if system.base is None else system.base.to(r.dtype).contiguous()
    numbers = (system.ridge[at].to(r.dtype), inverse.to(r.dtype))
    u, gain, pivots = eliminated(gram, r.contiguous(), side, base, *numbers)
    if not bool((pivots > 0).all()):
        return None
    b = None
    if side is not None:
        b = ((pull - (side * u).sum(1, dtype=torch.float64)) * inverse).to(r.dtype)
        gain = gain + pull * pull * inverse
    return u, b, 0.5 * (constant - gain).sum()


def _images_by_conjugate_gradients(
    facts: Known, v: torch.Tensor, system: _System, start: torch.Tensor, steps: int
) -> tuple[torch.Tensor, None, torch.Tensor]:
    """All rows at once, G d by a kernel; rows without entries are zero."""
    e = facts.entries
    w, y, q = facts.flat()
    ridge = system.ridge.to(v.dtype)[:, None]
    base = None if system.base is None else system.base.to(v.dtype)

    def apply(d: torch.Tensor) -> torch.Tensor:
        image = weighted_images(e.pieces, e.indices, w, v, d) + ridge * d
        return image if base is None else image + d @ base

    u, rest = conjugate_gradients(apply, entry_product(e, q, v), torch.where(e.counts[:, None] > 0, start, 0.0), steps)
    return u, None, 0.5 * ((q.double() * y.double()).sum() - rest.sum())


def conjugate_gradients(
    apply: Any, rhs: torch.Tensor, u: torch.Tensor, steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes after some steps from u, each of which lowers the objective of its row; a row that has arrived stays. And u.(r + rest) of each row."""
    r = rhs - apply(u)
    d, rr = r, (r.double() ** 2).sum(1)
    first = rr
    for _ in range(steps):
        image = apply(d)
        along = (d.double() * image.double()).sum(1)
        going = (rr > 1e-14 * first) & (along > 0)
        step = torch.where(going, rr / along, 0.0).to(u.dtype)[:, None]
        u, r = u + step * d, r - step * image
        new = (r.double() ** 2).sum(1)
        turn = torch.where(going, new / rr, 0.0).to(u.dtype)[:, None]
        d, rr = r + turn * d, torch.where(going, new, 0.0)
    return u, (u.double() * (rhs + r).double()).sum(1)


def _by_conjugate_gradients(
    chunk: Chunk,
    gathered: torch.Tensor,
    w: torch.Tensor | None,
    y: torch.Tensor,
    q: torch.Tensor,
    system: _System,
    u: torch.Tensor,
    steps: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of a chunk, their gathered rows of V at hand."""
    constant = (q.double() * y.double()).sum(1)
    heavy, pulls = _heavy(gathered, w, q)
    heavy = chunk.pieces(heavy)
    ridge = system.ridge[chunk.rows].to(u.dtype)[:, None]
    base = None if system.base is None else system.base.to(u.dtype)
    share = len(heavy) // len(u)  # pieces of a row

    def apply(d: torch.Tensor) -> torch.Tensor:
        each = d if share == 1 else d.repeat_interleave(share, 0)
        image = chunk.whole(torch.bmm(heavy.mT, torch.bmm(heavy, each[:, :, None])))[:, :, 0] + ridge * d
        return image if base is None else image + d @ base

    rhs = chunk.whole(torch.bmm(heavy.mT, pulls.reshape(len(heavy), -1, 1)))[:, :, 0]
    u, gain = conjugate_gradients(apply, rhs, u, steps)
    return u, 0.5 * (constant - gain).sum()
