"""The small matrices of many rows, and their solutions (see ``ridge``): made and solved by kernels,
by batches of padded rows, or by conjugate gradients.

a bias by its Schur complement: with a = sum_j w v_j, s = sum_j w + m_i:   G - a a^T / s,   r - a
(sum_j q) / s
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from eckart.engines.cuda.arrays import squares
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.held import MOST_ROWS, Chunk
from eckart.engines.cuda.kernels.ridge import (
    Descents,
    Halved,
    grams,
    split_moments,
    weighted_images,
)
from eckart.engines.cuda.kernels.systems import SOLVED, solved_blocks
from eckart.engines.cuda.triangles import Known, Triangle, row_sums


class System(NamedTuple):
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

    def narrow(self, more: int) -> System:
        """In float32 with ``more`` columns that have nothing to do with the others: rows of an even
        length are multiplied faster."""
        base = (
            None
            if self.base is None
            else torch.block_diag(
                self.base, torch.eye(more, dtype=self.base.dtype, device=self.base.device)
            )
        )
        prior, noise = (None if a is None else widened(a, more) for a in (self.prior, self.noise))
        return self._replace(base=base, prior=prior, noise=noise)

    def of_empty(
        self, rows: torch.Tensor, k: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows without entries: (P + l I)^-1 h, and draws about it. A ridge depends on the number
        of entries alone, so that one matrix serves all of them."""
        lower = torch.linalg.cholesky(self.shift(rows[:1], k, torch.float64))[0]
        h = (
            torch.zeros((len(rows), k), dtype=torch.float64, device=rows.device)
            if self.prior is None
            else self.prior[rows].double()
        )
        u = torch.cholesky_solve(h.T, lower).T
        part = -0.5 * (u * h).sum()
        if self.noise is not None:
            u = (
                u
                + torch.linalg.solve_triangular(lower.T, self.noise[rows].double().T, upper=True).T
            )
        return u.to(dtype), part


def widened(a: torch.Tensor, more: int) -> torch.Tensor:
    """In float32, with columns of zeros beside."""
    return torch.nn.functional.pad(a.float(), (0, more))


SLACK = 2**-4
"""What rounding to float32 may move a draw by, in standard deviations, by a bound that is far from
reached (tests find a thousandth of it)."""

NARROW = ("cuda",)
"""Devices on which float32 is worth it: tensor cores multiply it five times as fast as float64."""


def drawn_in_float32(facts: Known, v: torch.Tensor, system: System) -> bool:
    """Whether draws may be made in float32. Rounding changes G by E, ||E|| <= eps ||G||, and a draw
    u by G^-1 E u, which is eps ||G|| ||G^-1/2|| ||u|| standard deviations at the most. ||G|| is
    bounded by its trace, E ||u||^2 is about tr P^-1, and ||G^-1|| <= ||P^-1|| <= tr(P^-8)^1/8."""
    if (
        v.dtype != torch.float64
        or v.device.type not in NARROW
        or system.noise is None
        or system.base is None
        or system.bias_ridge is not None
    ):
        return False
    lower, info = torch.linalg.cholesky_ex(system.base)
    inverse = torch.cholesky_inverse(lower)
    size = inverse.trace()
    fourth = torch.linalg.matrix_power(inverse / size, 4)
    spread = size * torch.linalg.matrix_norm(fourth) ** 0.25
    w, e, each = facts.flat()[0], facts.entries, (v * v).sum(1)[facts.entries.indices]
    most = (
        row_sums(e, each if w is None else w * each).amax() if len(each) else spread.new_zeros(())
    )
    bound = (most + system.base.trace()) * (spread * size).sqrt()
    return float(torch.where(info == 0, bound, torch.inf)) * torch.finfo(torch.float32).eps <= SLACK


def heavy_rows(
    gathered: torch.Tensor, w: torch.Tensor | None, q: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """sqrt(w) v and q / sqrt(w) (0 where w is 0), so that one array gives both the matrix and the
    right-hand side."""
    if w is None:
        return gathered, q
    root = w.sqrt()
    gathered.mul_(root[:, :, None])
    return gathered, torch.where(root > 0, q / root, 0.0)


PANEL = 192
"""Columns of a square that are made together: three of them for some hundred columns leave a third
of its products out."""


def lower_squares(rows: torch.Tensor) -> torch.Tensor:
    """R^T R of a batch, of which the lower triangle is promised."""
    if rows.dtype == torch.float32:
        return squares(rows)
    k = rows.shape[2]
    out = rows.new_empty(len(rows), k, k)
    for p in range(0, k, PANEL):
        torch.bmm(rows[:, :, p:].mT, rows[:, :, p : p + PANEL], out=out[:, p:, p : p + PANEL])
    return out


def solved(
    chunk: Chunk,
    gathered: torch.Tensor,
    w: torch.Tensor | None,
    y: torch.Tensor,
    q: torch.Tensor,
    system: System,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """Codes, biases and the sum of the values of a chunk; None where a matrix is not positive
    definite, even in float64."""
    k = gathered.shape[2] - (system.bias_ridge is not None)
    constant = (q.double() * y.double()).sum()
    seen = chunk.seen if w is None else w
    heavy, pulls = heavy_rows(gathered, w, q)
    heavy = chunk.pieces(heavy)
    gram = chunk.whole(torch.bmm(heavy.mT, heavy) if system.noise is None else lower_squares(heavy))
    rhs = chunk.whole(torch.bmm(heavy.mT, pulls.reshape(len(heavy), -1, 1)))[:, :k, 0]
    side = None if system.bias_ridge is None else gram[:, k, :k]
    sums = q.sum(1, dtype=torch.float64), seen.sum(1, dtype=torch.float64)
    found = _in_time(chunk.rows, gram[:, :k, :k], rhs, side, sums, system)
    return None if found is None else (*found[:2], 0.5 * constant - found[2])


def drawn(
    chunk: Chunk, matrix: torch.Tensor, r: torch.Tensor, system: System
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draws of the rows of a chunk from their whole matrices and right-hand sides, what solutions
    take off 1/2 sum q y, and whether a matrix is not positive definite: a number of the device, so
    that the host prepares the next chunk at once."""
    assert system.noise is not None
    lower = Triangle.of(matrix)
    noise = system.noise[chunk.rows].to(lower.lower.dtype)
    half = lower.forward(r.to(noise.dtype)[:, :, None])
    return (
        lower.backward(half + noise[:, :, None])[:, :, 0],
        0.5 * (half * half).sum(dtype=torch.float64),
        lower.failed(),
    )


def _in_time(
    rows: torch.Tensor,
    gram: torch.Tensor,
    rhs: torch.Tensor,
    side: torch.Tensor | None,
    sums: tuple[torch.Tensor, torch.Tensor],
    system: System,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """Solved in working precision, or in float64 where a matrix is not positive definite in it;
    codes, biases, and what their values take off 1/2 sum q y."""
    for wide in (False, True):
        g, r = (a.double() if wide else a for a in (gram, rhs))
        s = side.double() if wide and side is not None else side
        found = _factored(rows, g, r, s, *sums, system)
        if found is not None:
            u, b, gain = found
            return u.to(rhs.dtype), None if b is None else b.to(rhs.dtype), 0.5 * gain.sum()
    return None


def _factored(
    rows: torch.Tensor,
    gram: torch.Tensor,
    r: torch.Tensor,
    side: torch.Tensor | None,
    pull: torch.Tensor,
    weight: torch.Tensor,
    system: System,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """``side`` is sum_j w v_j, ``pull`` sum_j q and ``weight`` sum_j w of each row: what the bias
    needs."""
    b: Any = None
    inverse: Any = None
    a = gram if system.base is None else gram + system.base.to(gram.dtype)
    a = a.clone() if a is gram else a
    a.diagonal(dim1=1, dim2=2).add_(system.ridge[rows].to(a.dtype)[:, None])
    if system.prior is not None:
        r = r + system.prior[rows]
    if side is not None:
        assert system.bias_ridge is not None
        slack = weight + system.bias_ridge[rows]
        inverse = torch.where(slack > 0, 1.0 / slack, 0.0)
        a = a - (side * inverse.to(a.dtype)[:, None])[:, :, None] * side[:, None, :]
        r = r - side * (pull * inverse).to(a.dtype)[:, None]
    lower = Triangle.of(a)
    if bool(lower.failed()):
        return None
    right = lower.forward(r[:, :, None])
    if system.noise is not None:
        right = torch.cat([right, system.noise[rows].to(a.dtype)[:, :, None]], 2)
    found = lower.backward(right)
    u = found[:, :, 0]
    if system.noise is None:
        rest = r - torch.bmm(a, found)[:, :, 0]
        gain = (u.double() * (r + rest).double()).sum(1)
    else:  # the value of a draw is not asked for, and its matrix may be a lower triangle
        gain = (u.double() * r.double()).sum(1)
        u = u + found[:, :, 1]
    if side is not None:
        b = (pull - (side * u).sum(1, dtype=torch.float64)) * inverse
        gain = gain + pull * pull * inverse
    return u, b, gain


class NormalMoments(NamedTuple):
    """Of some rows: sum_j w v v^T, sum_j q v, sum_j w v (None without biases), sum_j q and sum_j
    w."""

    gram: torch.Tensor
    rhs: torch.Tensor
    side: torch.Tensor | None
    pull: torch.Tensor
    weight: torch.Tensor


def moments(
    facts: Known, v: torch.Tensor, w: torch.Tensor | None, q: torch.Tensor, biased: bool, step: int
) -> Iterator[tuple[slice, NormalMoments]]:
    """Ranges of rows and their moments: by one walk over the entries where all weigh the same and
    columns are few, else by one for each of them."""
    e = facts.entries
    if w is None and v.shape[1] <= SOLVED:
        halves = Halved.of(v)
        for first, last, entry, pieces in e.ranges(step):
            gram, rhs, side, pull = split_moments(pieces, e.indices, q, halves, entry)
            at = slice(first, last)
            yield (
                at,
                NormalMoments(gram, rhs, side if biased else None, pull, e.counts[at].double()),
            )
        return
    rhs, side = entry_product(e, q, v), None
    if biased:
        side = entry_product(e, torch.ones_like(q) if w is None else w, v)
    pull, weight = row_sums(e, q), e.counts.double() if w is None else row_sums(e, w)
    for first, last, entry, pieces in e.ranges(step):
        at = slice(first, last)
        own = None if side is None else side[at]
        yield (
            at,
            NormalMoments(
                grams(pieces, e.indices, w, v, entry), rhs[at], own, pull[at], weight[at]
            ),
        )


def kernel_solved(
    facts: Known, v: torch.Tensor, system: System
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """All rows, some at a time, their matrices by a kernel; None where one is not positive
    definite, even in float64."""
    e, k = facts.entries, v.shape[1]
    w, y, q = facts.flat()
    biased = system.bias_ridge is not None
    left, bias = v.new_empty(len(e.counts), k), v.new_empty(len(e.counts)) if biased else None
    value = 0.5 * (q.double() * y.double()).sum()
    for at, own in moments(
        facts, v, w, q, biased, max(1, min(MOST_ROWS, e.room.chunk // (4 * (k + 1) ** 2)))
    ):
        found = None
        if k <= SOLVED and system.noise is None:
            found = _by_blocks(at, own, system)
        if found is None:
            rows = torch.arange(at.start, at.stop, device=v.device)
            found = _in_time(rows, own.gram, own.rhs, own.side, (own.pull, own.weight), system)
        if found is None:
            return None
        left[at] = found[0]
        if bias is not None:
            assert found[1] is not None
            bias[at] = found[1]
        value -= found[2]
    return left, bias, value


def _by_blocks(
    at: slice, own: NormalMoments, system: System
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor] | None:
    """What ``_in_time`` gives, by a kernel that keeps each matrix to itself; None where a pivot is
    not positive."""
    r, side, inverse = own.rhs, own.side, torch.zeros_like(own.pull)
    if system.prior is not None:
        r = r + system.prior[at]
    if side is not None:
        assert system.bias_ridge is not None
        slack = own.weight + system.bias_ridge[at]
        inverse = torch.where(slack > 0, 1.0 / torch.where(slack > 0, slack, 1.0), 0.0)
        r = r - side * (own.pull * inverse).to(r.dtype)[:, None]
    base = None if system.base is None else system.base.to(r.dtype).contiguous()
    numbers = (system.ridge[at].to(r.dtype), inverse.to(r.dtype))
    u, gain, pivots = solved_blocks(own.gram, r.contiguous(), side, base, *numbers)
    if not bool((pivots > 0).all()):
        return None
    b = None
    if side is not None:
        b = ((own.pull - (side * u).sum(1, dtype=torch.float64)) * inverse).to(r.dtype)
        gain = gain + own.pull * own.pull * inverse
    return u, b, 0.5 * gain.sum()


def images_by_conjugate_gradients(
    facts: Known, v: torch.Tensor, system: System, start: torch.Tensor, steps: int
) -> tuple[torch.Tensor, None, torch.Tensor]:
    """All rows at once, G d by a kernel; rows without entries are zero."""
    e = facts.entries
    w, y, q = facts.flat()
    ridge = system.ridge.to(v.dtype)
    base = None if system.base is None else system.base.to(v.dtype)
    u = torch.where(e.counts[:, None] > 0, start, 0.0)
    image, rhs = weighted_images(e.pieces, e.indices, w, v, u, q)
    assert rhs is not None
    way = Descents.of(u, rhs)
    way.advance(image, None if base is None else u @ base, ridge, first=True)
    for _ in range(steps):
        image, _ = weighted_images(e.pieces, e.indices, w, v, way.d)
        way.advance(image, None if base is None else way.d @ base, ridge)
    gain = (way.u * (rhs + way.rest)).sum(dtype=torch.float64)
    return way.u, None, 0.5 * ((q.double() * y.double()).sum() - gain)


def conjugate_gradients(
    apply: Any, rhs: torch.Tensor, u: torch.Tensor, steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes after some steps from u, each of which lowers the objective of its row; a row that
    has arrived stays. And u.(r + rest) of each row."""
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


def by_conjugate_gradients(
    chunk: Chunk,
    gathered: torch.Tensor,
    w: torch.Tensor | None,
    y: torch.Tensor,
    q: torch.Tensor,
    system: System,
    u: torch.Tensor,
    steps: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of a chunk, their gathered rows of V at hand."""
    constant = (q.double() * y.double()).sum(1)
    heavy, pulls = heavy_rows(gathered, w, q)
    heavy = chunk.pieces(heavy)
    ridge = system.ridge[chunk.rows].to(u.dtype)[:, None]
    base = None if system.base is None else system.base.to(u.dtype)
    share = len(heavy) // len(u)  # pieces of a row

    def apply(d: torch.Tensor) -> torch.Tensor:
        each = d if share == 1 else d.repeat_interleave(share, 0)
        image = (
            chunk.whole(torch.bmm(heavy.mT, torch.bmm(heavy, each[:, :, None])))[:, :, 0]
            + ridge * d
        )
        return image if base is None else image + d @ base

    rhs = chunk.whole(torch.bmm(heavy.mT, pulls.reshape(len(heavy), -1, 1)))[:, :, 0]
    u, gain = conjugate_gradients(apply, rhs, u, steps)
    return u, 0.5 * (constant - gain).sum()
