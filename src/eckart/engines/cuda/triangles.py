"""Cholesky factors of many positive definite matrices at once, and systems that are solved with
them.

    A = L L^T by columns of blocks:   S = A_{j.., j} - L_{j.., <j} L_{j, <j}^T,    L_jj L_jj^T =
    S_j,    L_{>j, j} = S_{>j} L_jj^-T

Libraries factor a batch of matrices of some hundred columns many times slower than products of the
same size take, and small ones well: here all but blocks of ``SMALL`` columns is products (in
float32 a kernel takes whole blocks). Triangles are solved by the inverses of the blocks on the
diagonal, whose condition is that of a block and not that of the matrix.

The numbers of a ridge problem at the entries: weight w, target y and q = w y of each, as
``protocol.ridge`` says.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.held import Chunk, EntryArrays
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.products import WIDEST, entry_sums, roots
from eckart.engines.protocol import RidgeRule

SMALL = 32
"""Columns up to which the library factors and inverts: 4,000 matrices of 32 columns take 0.36 ms on
an H200, of 64 columns 1.5, of 128 columns 6."""
BLOCK = 64
"""Columns of a block whose inverse is made: wider ones cost more than their products gain."""


class Triangle(NamedTuple):
    """L + s I: its lower triangle (what stands above the diagonal is no part of it), and the
    inverses of its blocks on the diagonal."""

    lower: torch.Tensor
    inverses: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, a: torch.Tensor) -> Triangle:
        """The Cholesky factor of each matrix of a batch, of which the lower triangle is read."""
        n = a.shape[1]
        lower, inverses = torch.empty_like(a), []
        for j in range(0, n, BLOCK):
            end = min(n, j + BLOCK)
            s = a[:, j:, j:end]
            if j:
                s = torch.baddbmm(s, lower[:, j:, :j], lower[:, j:end, :j].mT, alpha=-1)
            own, inverse = roots_of(s[:, : end - j])
            lower[:, j:end, j:end] = own
            if end < n:
                torch.bmm(s[:, end - j :], inverse.mT, out=lower[:, end:, j:end])
            inverses.append(inverse)
        return cls(lower, tuple(inverses))

    def plus(self, shift: float) -> Triangle:
        """L + shift I."""
        ends = zip(self.inverses, range(0, self.lower.shape[1], BLOCK))
        blocks = [self.lower[:, j : j + len(i[0]), j : j + len(i[0])] for i, j in ends]
        return self._replace(inverses=tuple(_inverted(own, shift) for own in blocks))

    def failed(self) -> torch.Tensor:
        """Whether a pivot was not positive, as a tensor: what follows such a pivot is not a
        number."""
        return ~torch.isfinite(torch.stack([i[:, -1].sum() for i in self.inverses])).all()

    def forward(self, right: torch.Tensor) -> torch.Tensor:
        """L^-1 R of every matrix."""
        out = torch.empty_like(right, memory_format=torch.contiguous_format)
        for inverse, j in zip(self.inverses, range(0, right.shape[1], BLOCK)):
            end = j + inverse.shape[1]
            own = right[:, j:end]
            if j:
                own = torch.baddbmm(own, self.lower[:, j:end, :j], out[:, :j], alpha=-1)
            torch.bmm(inverse, own, out=out[:, j:end])
        return out

    def backward(self, right: torch.Tensor) -> torch.Tensor:
        """L^-T R of every matrix."""
        out = torch.empty_like(right, memory_format=torch.contiguous_format)
        n = right.shape[1]
        for inverse, j in reversed(list(zip(self.inverses, range(0, n, BLOCK)))):
            end = j + inverse.shape[1]
            own = right[:, j:end]
            if end < n:
                own = torch.baddbmm(own, self.lower[:, end:, j:end].mT, out[:, end:], alpha=-1)
            torch.bmm(inverse.mT, own, out=out[:, j:end])
        return out


def _half(n: int) -> int:
    """Where a block is cut in two, at a multiple of ``SMALL``."""
    return -(-n // (2 * SMALL)) * SMALL


def roots_of(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """L and L^-1 of each matrix; not numbers from a pivot on that is not positive."""
    n = a.shape[1]
    if a.dtype == torch.float32 and n <= WIDEST and usable(a):
        return roots(a)
    if n <= SMALL:
        lower, info = torch.linalg.cholesky_ex(a)
        lower = torch.where((info == 0)[:, None, None], lower, torch.nan)
        return lower, _inverted(lower, 0.0)
    h = _half(n)
    lower = torch.empty_like(a, memory_format=torch.contiguous_format)
    first, back = roots_of(a[:, :h, :h])
    side = torch.bmm(a[:, h:, :h], back.mT, out=lower[:, h:, :h])
    second, rest = roots_of(torch.baddbmm(a[:, h:, h:], side, side.mT, alpha=-1))
    lower[:, :h, :h], lower[:, h:, h:] = first, second
    return lower, _joined(back, rest, side)


def _joined(back: torch.Tensor, rest: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
    """The inverse of a triangle from those of its two blocks on the diagonal and the block
    below."""
    h, n = back.shape[1], back.shape[1] + rest.shape[1]
    inverse = back.new_empty(len(back), n, n)
    inverse[:, :h, :h], inverse[:, h:, h:], inverse[:, :h, h:] = back, rest, 0.0
    torch.bmm(rest, torch.bmm(side, back).neg_(), out=inverse[:, h:, :h])
    return inverse


def _inverted(lower: torch.Tensor, plus: float) -> torch.Tensor:
    """(L + plus I)^-1 of lower triangles."""
    n = lower.shape[1]
    if n <= SMALL:
        eye = torch.eye(n, dtype=lower.dtype, device=lower.device)
        return torch.linalg.solve_triangular(
            lower + plus * eye if plus else lower, eye.expand_as(lower), upper=False
        )
    h = _half(n)
    return _joined(
        _inverted(lower[:, :h, :h], plus), _inverted(lower[:, h:, h:], plus), lower[:, h:, :h]
    )


class Known(NamedTuple):
    """The numbers of the formula for every entry: arrays on the device or None, as in
    ``cpu.entries.entry``."""

    entries: EntryArrays
    weights: torch.Tensor | None
    own: torch.Tensor | None
    other: torch.Tensor | None
    bias: torch.Tensor | None
    offset: torch.Tensor | None
    mean: float
    rule: RidgeRule

    @property
    def even(self) -> bool:
        """Whether every entry weighs one."""
        return (
            self.weights is None and self.own is None and self.other is None and not self.rule.alpha
        )

    def evenly(self) -> tuple[Known, torch.Tensor | None]:
        """Where every entry has one weight w: the same without it, and sqrt(w), with which V and y
        are to be multiplied."""
        alone = (
            self.own is not None
            and len(self.own) == 1
            and self.weights is None
            and self.other is None
        )
        if not alone or self.rule.alpha:
            return self, None
        return self._replace(own=None), self.own.sqrt()  # type: ignore[union-attr]

    def at(self, chunk: Chunk) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """w (None: all one), y and q of the entries of a chunk; y and q are zero where nothing
        stands, and so is w."""
        a = chunk.numbers(self.entries.data)
        if self.rule.alpha:
            w = self.rule.alpha * a
            return w, chunk.seen.to(a.dtype), torch.where(w > 0, w + self.rule.shift, 0.0)
        w = None if self.weights is None else chunk.numbers(self.weights)
        for each in (
            None
            if self.own is None
            else self.own[chunk.rows][:, None]
            if len(self.own) > 1
            else self.own,
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
            None
            if self.own is None
            else self.own[e.row_of]
            if len(self.own) > 1
            else self.own.repeat(len(a)),
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


def row_sums(entries: EntryArrays, numbers: torch.Tensor) -> torch.Tensor:
    """sum_j of numbers at the entries, for every row, in float64."""
    if usable(numbers):
        return entry_sums(entries.pieces, numbers)
    one = torch.ones((entries.n, 1), dtype=torch.float64, device=numbers.device)
    return entry_product(entries, numbers.double(), one)[:, 0]
