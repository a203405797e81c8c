"""Sparse rows against thin matrices: a program walks over the entries of a row in their order, so
that sums have one order and nothing lies in between.

    row_products   out_i = sum_j r_ij v_j               entry_dots   s_ij = u_i . v_j at the stored
    entries

Rows longer than ``PIECE`` are cut into pieces, whose sums are added in their order by a second
kernel.
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
