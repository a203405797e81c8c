"""Squares of rows of one matrix V that are gathered again and again, on tensor cores: V as pairs of
half-precision numbers (see ``halves``).

    s v = h + l / 2048,      s^2 sum_j v_j v_j^T = sum_j h h^T + (h l^T + l h^T) / 2048

with one power of two s for all columns, that brings the largest number to 2^14: numbers down to
2^-28 of it keep all 22 bits. A gathered pair is as large as the number, and nothing is split after
it was gathered.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.halves import LOW, TOP, product
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.squares import add_up
from eckart.engines.cuda.stored import Chunk


class Paired(NamedTuple):
    """Rows of h beside l (an even number of columns) with a row of zeros below, and 1 / s^2."""

    pairs: torch.Tensor
    back: torch.Tensor

    @classmethod
    def of(cls, v: torch.Tensor) -> Paired:
        most = v.abs().amax() if v.numel() else v.new_zeros(())
        scale = torch.exp2((TOP - torch.frexp(most).exponent).clamp(-60, 60).float())
        scaled = torch.nn.functional.pad(v.float() * scale, (0, 0, 0, 1))
        high = scaled.half()
        return cls(torch.cat([high, ((scaled - high.float()) * LOW).half()], 1), 1.0 / scale**2)

    def down(self, chunk: Chunk, base: torch.Tensor | None, ridge: torch.Tensor) -> torch.Tensor:
        """sum_j v_j v_j^T + P + l_i I of the rows of a chunk, of which the lower triangle is
        promised."""
        pairs = chunk.pieces(self._gathered(chunk))
        k = pairs.shape[2] // 2
        high = pairs[:, :, :k]
        whole, cross = (chunk.whole(product(high.mT, other)) for other in (high, pairs[:, :, k:]))
        return self._added(whole, cross, base, ridge[chunk.rows])

    def across(self, chunk: Chunk) -> torch.Tensor:
        """I + (v_j . v_j') of the entries of each row of a chunk, of which the lower triangle is
        promised."""
        pairs = self._gathered(chunk)
        k = pairs.shape[2] // 2
        high, low = pairs[:, :, :k], pairs[:, :, k:]
        return self._added(
            product(high, high.mT),
            product(high, low.mT),
            None,
            torch.ones(len(pairs), device=pairs.device),
        )

    def _gathered(self, chunk: Chunk) -> torch.Tensor:
        """rows x length x 2 k, moved in pieces of 8 bytes."""
        return self.pairs.view(torch.int64)[chunk.columns].view(torch.float16)

    def _added(
        self,
        whole: torch.Tensor,
        cross: torch.Tensor,
        base: torch.Tensor | None,
        ridge: torch.Tensor,
    ) -> torch.Tensor:
        if usable(whole):
            return add_up(
                whole,
                cross,
                self.back,
                None if base is None else base.float().contiguous(),
                ridge.float(),
            )
        out = (whole + (cross + cross.mT) / LOW) * self.back
        out = out if base is None else out + base.float()
        out.diagonal(dim1=1, dim2=2).add_(ridge.float()[:, None])
        return out
