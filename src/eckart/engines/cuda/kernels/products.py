"""Sparse rows against thin matrices: a program walks over the entries of a row in their order, so
that sums have one order and nothing lies in between.

    row_products   out_i = sum_j r_ij v_j               entry_dots   s_ij = u_i . v_j at the stored
    entries

Rows longer than ``PIECE`` are cut into pieces, whose sums are added in their order by a second
kernel.

Cholesky factors of many small matrices and their inverses in one launch: a warp takes a matrix
of up to 64 columns, as blocks of 16.

    S_pp = C_p C_p^T,   L_ip = S_ip C_p^-T,   S_ij <- S_ij - L_ip L_jp^T,      X_pp = C_p^-1,   X_ip
    = -C_i^-1 sum_{p<=j<i} L_ij X_jp

Products are three of TF32 for one of float32. From a pivot on that is not positive, numbers are not
numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

PIECE = 1024
"""Entries that one program walks over: long enough that its start costs little, short enough that a
few long rows do not keep the device waiting."""
STEP = 16
"""Entries that a program gathers at once."""
WIDTH = 128
"""Columns of V that a program takes at the most."""


class ProductPieces(NamedTuple):
    """Where pieces of rows begin and end among the entries, the row of each, and the line of the
    result that it writes: its row, or one behind all rows where the row has several; then these
    rows with the first and last of their lines."""

    first: torch.Tensor
    last: torch.Tensor
    row: torch.Tensor
    line: torch.Tensor
    long_rows: torch.Tensor
    long_first: torch.Tensor
    long_last: torch.Tensor
    rows: int
    lines: int

    @classmethod
    def of(cls, indptr: torch.Tensor, limit: int = PIECE) -> ProductPieces:
        return cls.cut(indptr[:-1], indptr.diff(), limit)

    @classmethod
    def cut(cls, starts: torch.Tensor, counts: torch.Tensor, limit: int = PIECE) -> ProductPieces:
        """Of rows that begin at ``starts``."""
        rows, device = len(starts), starts.device
        each = torch.clamp((counts + limit - 1) // limit, min=1)
        ends = each.cumsum(0)
        total = int(ends[-1]) if rows else 0
        row = torch.repeat_interleave(torch.arange(rows, device=device), each, output_size=total)
        number = torch.arange(total, device=device) - (ends - each)[row]
        first = starts[row] + number * limit
        last = torch.minimum(first + limit, (starts + counts)[row])
        several = each > 1
        extra = torch.where(several, each, 0).cumsum(0)
        line = torch.where(several[row], rows + (extra - each)[row] + number, row)
        long_rows = several.nonzero()[:, 0]
        long_last = rows + extra[long_rows]
        lines = rows + (int(extra[-1]) if rows else 0)
        return cls(
            first, last, row, line, long_rows, long_last - each[long_rows], long_last, rows, lines
        )


@jit
def _row_products(
    first, last, line, indices, data, right, out, k, STEP: tl.constexpr, WIDTH: tl.constexpr
):
    piece = tl.program_id(0)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(first + piece), tl.load(last + piece)
    total = tl.zeros([STEP, WIDTH], dtype=right.dtype.element_ty)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        r = tl.load(data + at, mask=seen, other=0.0)
        v = tl.load(
            right + j[:, None] * k + columns[None, :],
            mask=seen[:, None] & inside[None, :],
            other=0.0,
        )
        total += r[:, None] * v
    tl.store(out + tl.load(line + piece) * k + columns, tl.sum(total, 0), mask=inside)


@jit
def _entry_sums(first, last, line, numbers, out, STEP: tl.constexpr):
    piece = tl.program_id(0)
    total = tl.zeros([STEP], dtype=tl.float64)
    begin, end = tl.load(first + piece), tl.load(last + piece)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        total += tl.load(numbers + at, mask=at < end, other=0.0).to(tl.float64)
    tl.store(out + tl.load(line + piece), tl.sum(total, 0))


def entry_sums(pieces: ProductPieces, numbers: torch.Tensor) -> torch.Tensor:
    """Sums of numbers at the entries of every row, in float64."""
    out = torch.empty((pieces.lines, 1), dtype=torch.float64, device=numbers.device)
    if pieces.rows:
        _entry_sums[(len(pieces.first),)](
            pieces.first, pieces.last, pieces.line, numbers.contiguous(), out, STEP=128, num_warps=1
        )
        join(pieces, out)
    return out[: pieces.rows, 0]


@jit
def _joined(rows, first, last, out, k, LINES: tl.constexpr, WIDTH: tl.constexpr):
    """The lines of a long row, added in a fixed order in float64: so many sums, then these."""
    at = tl.program_id(0)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < k
    total = tl.zeros([LINES, WIDTH], dtype=tl.float64)
    end = tl.load(last + at)
    for begin in range(tl.load(first + at), end, LINES):
        line = begin + tl.arange(0, LINES)
        some = tl.load(
            out + line[:, None] * k + columns[None, :],
            mask=(line < end)[:, None] & inside[None, :],
            other=0.0,
        )
        total += some.to(tl.float64)
    tl.store(
        out + tl.load(rows + at) * k + columns,
        tl.sum(total, 0).to(out.dtype.element_ty),
        mask=inside,
    )


def row_products(
    pieces: ProductPieces, indices: torch.Tensor, data: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """R V for sparse R with ``data`` at the entries; rows without entries are zero."""
    right, k, rows = right.contiguous(), right.shape[1], pieces.rows
    out = right.new_empty(pieces.lines, k)
    if not rows or not k:
        return out[:rows]
    width = min(WIDTH, power_of_two(k))
    across = -(-k // width)
    _row_products[(len(pieces.first), across)](
        pieces.first,
        pieces.last,
        pieces.line,
        indices,
        data.contiguous(),
        right,
        out,
        k,
        STEP=STEP,
        WIDTH=width,
        num_warps=2 if width <= 64 else 4,
    )
    join(pieces, out)
    return out[:rows]


def join(pieces: ProductPieces, out: torch.Tensor) -> None:
    """Lines of rows that were cut, added into the row; ``out`` is lines x k."""
    k = out.shape[1]
    if len(pieces.long_rows):
        width = min(128, power_of_two(k))
        _joined[(len(pieces.long_rows), -(-k // width))](
            pieces.long_rows,
            pieces.long_first,
            pieces.long_last,
            out,
            k,
            LINES=max(8, 512 // width),
            WIDTH=width,
        )


@jit
def _entry_dots(
    first, last, row, indices, left, right, out, k, STEP: tl.constexpr, WIDTH: tl.constexpr
):
    piece = tl.program_id(0)
    begin, end, i = tl.load(first + piece), tl.load(last + piece), tl.load(row + piece)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        total = tl.zeros([STEP], dtype=right.dtype.element_ty)
        for c in range(0, k, WIDTH):
            columns = c + tl.arange(0, WIDTH)
            inside = columns < k
            u = tl.load(left + i * k + columns, mask=inside, other=0.0)
            v = tl.load(
                right + j[:, None] * k + columns[None, :],
                mask=seen[:, None] & inside[None, :],
                other=0.0,
            )
            total += tl.sum(v * u[None, :], 1)
        tl.store(out + at, total, mask=seen)


def entry_dots(
    pieces: ProductPieces, indices: torch.Tensor, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """u_i.v_j at every stored entry."""
    out, k = right.new_zeros(len(indices)), right.shape[1]
    if len(indices) and k:
        width = min(128, power_of_two(k))
        _entry_dots[(len(pieces.first),)](
            pieces.first,
            pieces.last,
            pieces.row,
            indices,
            left.contiguous(),
            right.contiguous(),
            out,
            k,
            STEP=max(STEP, 2048 // width),
            WIDTH=width,
            num_warps=2,
        )
    return out


SIZE, WIDEST = 16, 64
"""Columns of a block, and of a matrix at the most."""


@jit
def _load(matrix, stride, n, i, j, SIZE: tl.constexpr):
    """Block (i, j), with ones on the diagonal beyond n; of blocks on the diagonal the lower
    triangle is read."""
    row, column = i * SIZE + tl.arange(0, SIZE), j * SIZE + tl.arange(0, SIZE)
    up, down = tl.maximum(row[:, None], column[None, :]), tl.minimum(row[:, None], column[None, :])
    a = tl.load(matrix + up * stride + down, mask=up < n, other=0.0)
    return tl.where(row[:, None] == column[None, :], tl.where(row[:, None] < n, a, 1.0), a)


@jit
def _store(lowers, inverses, lower, inverse, n, i, j, SIZE: tl.constexpr):
    """Block (i, j) of both."""
    row, column = i * SIZE + tl.arange(0, SIZE), j * SIZE + tl.arange(0, SIZE)
    at, mask = row[:, None] * n + column[None, :], (row < n)[:, None] & (column < n)[None, :]
    tl.store(lowers + at, lower, mask=mask)
    tl.store(inverses + at, inverse, mask=mask)


@jit
def _root(a, SIZE: tl.constexpr):
    """C and C^-1 of a block: rows are taken off one another, and the same ones off the identity."""
    lanes = tl.arange(0, SIZE)
    down, across = lanes[:, None], lanes[None, :]
    inverse = tl.where(down == across, 1.0, 0.0)
    lower = tl.zeros([SIZE, SIZE], dtype=tl.float32)
    for j in range(0, SIZE):
        column = tl.sum(tl.where(across == j, a, 0.0), 1)
        pivot = tl.sum(tl.where(lanes == j, column, 0.0), 0)
        scale = tl.where(pivot > 0, 1.0, float("nan")) / tl.sqrt(pivot)
        below = tl.where(lanes > j, column * scale, 0.0)
        own = tl.sum(tl.where(down == j, inverse, 0.0), 0) * scale
        lower = tl.where(
            across == j, (below + tl.where(lanes == j, pivot * scale, 0.0))[:, None], lower
        )
        row = tl.sum(tl.where(down == j, a, 0.0), 0) * scale
        a -= below[:, None] * row[None, :]
        inverse = tl.where(down == j, own[None, :], inverse - below[:, None] * own[None, :])
    return lower, inverse


@jit
def _dot(a, b):
    return tl.dot(a, b, input_precision="tf32x3")


@jit
def _roots(
    matrices, batch_stride, stride, lowers, inverses, n, SIZE: tl.constexpr, N: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64)
    s, low, inv = matrices + i * batch_stride, lowers + i * n * n, inverses + i * n * n
    zero = tl.zeros([SIZE, SIZE], dtype=tl.float32)
    c0, x0 = _root(_load(s, stride, n, 0, 0, SIZE), SIZE)
    _store(low, inv, c0, x0, n, 0, 0, SIZE)
    if N > 1:
        t0 = tl.trans(x0)
        l10 = _dot(_load(s, stride, n, 1, 0, SIZE), t0)
        c1, x1 = _root(_load(s, stride, n, 1, 1, SIZE) - _dot(l10, tl.trans(l10)), SIZE)
        x10 = -_dot(x1, _dot(l10, x0))
        _store(low, inv, l10, x10, n, 1, 0, SIZE)
        _store(low, inv, c1, x1, n, 1, 1, SIZE)
        _store(low, inv, zero, zero, n, 0, 1, SIZE)
    if N > 2:
        t1 = tl.trans(x1)
        l20 = _dot(_load(s, stride, n, 2, 0, SIZE), t0)
        l21 = _dot(_load(s, stride, n, 2, 1, SIZE) - _dot(l20, tl.trans(l10)), t1)
        rest = _load(s, stride, n, 2, 2, SIZE) - _dot(l20, tl.trans(l20)) - _dot(l21, tl.trans(l21))
        c2, x2 = _root(rest, SIZE)
        x20 = -_dot(x2, _dot(l20, x0) + _dot(l21, x10))
        x21 = -_dot(x2, _dot(l21, x1))
        _store(low, inv, l20, x20, n, 2, 0, SIZE)
        _store(low, inv, l21, x21, n, 2, 1, SIZE)
        _store(low, inv, c2, x2, n, 2, 2, SIZE)
        for j in tl.static_range(2):
            _store(low, inv, zero, zero, n, j, 2, SIZE)
    if N > 3:
        l30 = _dot(_load(s, stride, n, 3, 0, SIZE), t0)
        l31 = _dot(_load(s, stride, n, 3, 1, SIZE) - _dot(l30, tl.trans(l10)), t1)
        l32 = _load(s, stride, n, 3, 2, SIZE) - _dot(l30, tl.trans(l20)) - _dot(l31, tl.trans(l21))
        l32 = _dot(l32, tl.trans(x2))
        rest = _load(s, stride, n, 3, 3, SIZE) - _dot(l30, tl.trans(l30)) - _dot(l31, tl.trans(l31))
        c3, x3 = _root(rest - _dot(l32, tl.trans(l32)), SIZE)
        x30 = -_dot(x3, _dot(l30, x0) + _dot(l31, x10) + _dot(l32, x20))
        x31 = -_dot(x3, _dot(l31, x1) + _dot(l32, x21))
        x32 = -_dot(x3, _dot(l32, x2))
        _store(low, inv, l30, x30, n, 3, 0, SIZE)
        _store(low, inv, l31, x31, n, 3, 1, SIZE)
        _store(low, inv, l32, x32, n, 3, 2, SIZE)
        _store(low, inv, c3, x3, n, 3, 3, SIZE)
        for j in tl.static_range(3):
            _store(low, inv, zero, zero, n, j, 3, SIZE)


def roots(matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """L and L^-1 of every matrix of a batch in float32, of which the lower triangle is read."""
    batch, n = matrices.shape[:2]
    if matrices.stride(2) != 1:
        matrices = matrices.contiguous()
    lower, inverse = (matrices.new_empty(batch, n, n) for _ in range(2))
    if batch:
        _roots[(batch,)](
            matrices,
            matrices.stride(0),
            matrices.stride(1),
            lower,
            inverse,
            n,
            SIZE=SIZE,
            N=-(-n // SIZE),
            num_warps=1,
        )
    return lower, inverse
