"""Cholesky factors of many positive definite matrices at once, and systems that are solved with them.

    A = L L^T by columns of blocks:   S = A_{j.., j} - L_{j.., <j} L_{j, <j}^T,    L_jj L_jj^T = S_j,    L_{>j, j} = S_{>j} L_jj^-T

Libraries factor a batch of matrices of some hundred columns many times slower than one product of the same size takes: here all but the blocks on the
diagonal is products. Triangles are solved by the inverses of these blocks, whose condition is that of a block and not that of the matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.triangles import WIDEST, factor, invert


class Triangle(NamedTuple):
    """L + s I: its lower triangle (what stands above the diagonal is no part of it), the inverses of its blocks on the diagonal, and L's own blocks."""

    lower: torch.Tensor
    inverses: tuple[torch.Tensor, ...]
    blocks: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, a: torch.Tensor) -> Triangle:
        """The Cholesky factor of each matrix of a batch, of which the lower triangle is read."""
        n = a.shape[1]
        lower, inverses, blocks = torch.empty_like(a), [], []
        for j in range(0, n, WIDEST):
            end = min(n, j + WIDEST)
            s = a[:, j:, j:end]
            if j:
                s = torch.baddbmm(s, lower[:, j:, :j], lower[:, j:end, :j].mT, alpha=-1)
            own = _factor(s[:, : end - j])
            inverse = _invert(own, 0.0)
            lower[:, j:end, j:end] = own
            if end < n:
                lower[:, end:, j:end] = torch.bmm(s[:, end - j :], inverse.mT)
            blocks.append(own)
            inverses.append(inverse)
        return cls(lower, tuple(inverses), tuple(blocks))

    def plus(self, shift: float) -> Triangle:
        """L + shift I."""
        return self._replace(inverses=tuple(_invert(own, shift) for own in self.blocks))

    def failed(self) -> torch.Tensor:
        """Whether a pivot was not positive, as a tensor: what follows such a pivot is not a number."""
        ends = [own[:, -1, -1] for own in self.blocks]
        return ~torch.isfinite(torch.stack(ends)).all() if ends else torch.zeros((), dtype=torch.bool)

    def forward(self, right: torch.Tensor) -> torch.Tensor:
        """L^-1 R of every matrix."""
        out = torch.empty_like(right, memory_format=torch.contiguous_format)
        for inverse, j in zip(self.inverses, range(0, right.shape[1], WIDEST)):
            end = j + inverse.shape[1]
            own = right[:, j:end]
            if j:
                own = torch.baddbmm(own, self.lower[:, j:end, :j], out[:, :j], alpha=-1)
            out[:, j:end] = torch.bmm(inverse, own)
        return out

    def backward(self, right: torch.Tensor) -> torch.Tensor:
        """L^-T R of every matrix."""
        out = torch.empty_like(right, memory_format=torch.contiguous_format)
        n = right.shape[1]
        for inverse, j in reversed(list(zip(self.inverses, range(0, n, WIDEST)))):
            end = j + inverse.shape[1]
            own = right[:, j:end]
            if end < n:
                own = torch.baddbmm(own, self.lower[:, end:, j:end].mT, out[:, end:], alpha=-1)
            out[:, j:end] = torch.bmm(inverse.mT, own)
        return out


def _factor(a: torch.Tensor) -> torch.Tensor:
    if usable(a):
        return factor(a)
    lower, info = torch.linalg.cholesky_ex(a)
    return torch.where((info == 0)[:, None, None], lower, torch.nan)


def _invert(lower: torch.Tensor, plus: float) -> torch.Tensor:
    if usable(lower):
        return invert(lower, plus)
    eye = torch.eye(lower.shape[1], dtype=lower.dtype, device=lower.device)
    return torch.linalg.solve_triangular(lower + plus * eye, eye.expand_as(lower), upper=False)
