"""Ridge problems of rows with fewer entries than columns, solved among their entries.

With P + l I = L L^T for all rows and B = sqrt(w) V L^-T of the n entries of a row, G = L (I + B^T
B) L^T, and with K = I + B B^T = M M^T (n x n)

    u = L^-T s,     s = h' + B^T K^-1 (q' - B h'),       h' = L^-1 h,   q' = sqrt(w) y
    draws           s + z - B^T M^-T (M + I)^-1 B z,     because (I - B^T M^-T (M + I)^-1 B) times
    its transpose is (I + B^T B)^-1

so that neither G nor its factor is made: 2 n^2 k operations instead of 2 n k^2 + k^3 / 3. The root
of G^-1 that draws take is another than R^-1 with R triangular: draws are other ones from the same
distribution.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.arrays import squares
from eckart.engines.cuda.normal_equations import System, heavy_rows, widened
from eckart.engines.cuda.stored import Chunk
from eckart.engines.cuda.triangles import Triangle

FROM = 128
"""Columns from which a row with few entries goes this way: below, its matrix is small enough for
one program."""
SHARE = 0.75
"""Entries for each column up to which it costs less: operations are equal at 1, and the steps
around them are fewer at n x n."""


class Dual(NamedTuple):
    """L^-1 of what all rows share, h' of every row (or None) and the noise (or None); ``scale`` is
    sqrt(1 / l_i) where rows share nothing but I."""

    inverse: torch.Tensor | None
    scale: torch.Tensor | None
    prior: torch.Tensor | None
    noise: torch.Tensor | None

    @classmethod
    def of(cls, system: System, k: int, dtype: torch.dtype) -> Dual | None:
        """None where the ridges differ beside a matrix, where there is a bias, or where the columns
        are few."""
        if (
            k < FROM
            or dtype != torch.float64
            or system.bias_ridge is not None
            or not len(system.ridge)
        ):
            return None
        if system.base is None:
            scale = system.ridge.rsqrt()
            if not bool(torch.isfinite(scale).all()):
                return None
            return cls(
                None,
                scale,
                None if system.prior is None else system.prior * scale[:, None],
                system.noise,
            )
        low, high = torch.aminmax(system.ridge)
        eye = torch.eye(k, dtype=dtype, device=system.base.device)
        lower, info = torch.linalg.cholesky_ex(system.base + low * eye)
        if bool((low != high) | (info != 0)):
            return None
        inverse = torch.linalg.solve_triangular(lower, eye, upper=False)
        prior = system.prior
        if prior is not None:
            one = prior.stride(0) == 0  # one row for all
            prior = ((prior[:1] if one else prior) @ inverse.T).expand(len(prior), k)
        return cls(inverse, None, prior, system.noise)

    def takes(self, length: int, k: int) -> bool:
        return length <= SHARE * k

    def rows(self, v: torch.Tensor) -> torch.Tensor:
        """V L^-T, whose rows are gathered."""
        return v if self.inverse is None else v @ self.inverse.T

    def narrow(self, more: int) -> Dual:
        """In float32, with columns of zeros (``System.narrow``)."""
        scale, prior, noise = (
            None if self.scale is None else self.scale.float(),
            self.prior,
            self.noise,
        )
        return self._replace(
            scale=scale,
            prior=None if prior is None else widened(prior, more),
            noise=None if noise is None else widened(noise, more),
        )

    def back(self, s: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """L^-T s."""
        if self.inverse is None:
            return s * self.scale[rows][:, None]  # type: ignore[index]
        return s[:, : len(self.inverse)].to(self.inverse.dtype) @ self.inverse

    def solved(
        self,
        chunk: Chunk,
        gathered: torch.Tensor,
        w: torch.Tensor | None,
        y: torch.Tensor,
        q: torch.Tensor,
        matrix: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Codes, the sum of the values (without the noise), and whether a matrix failed; ``matrix``
        is K where it is known."""
        constant = (q * y).sum(dtype=torch.float64)
        b, pulls = heavy_rows(gathered, w, q)
        if self.scale is not None:
            b = b * self.scale[chunk.rows][:, None, None]
        if matrix is None:
            matrix = squares(b, across=True)
            matrix.diagonal(dim1=1, dim2=2).add_(1.0)
        lower = Triangle.of(matrix)
        s = b.new_zeros(len(b), b.shape[2]) if self.prior is None else self.prior[chunk.rows]
        noise = None if self.noise is None else self.noise[chunk.rows]
        known = torch.stack([s] if noise is None else [s, noise], 2)
        seen = torch.bmm(b, known)
        right = lower.forward(pulls[:, :, None] - seen[:, :, :1])
        if noise is not None:
            right = torch.cat([right, -lower.plus(1.0).forward(seen[:, :, 1:])], 2)
        known = known + torch.bmm(b.mT, lower.backward(right))
        u = known[:, :, 0]
        image = torch.bmm(b, known[:, :, :1])[:, :, 0]
        pairs = ((2, image, pulls), (2, u, s), (-1, u, u), (-1, image, image))
        gain = sum(sign * (one * two).sum(dtype=torch.float64) for sign, one, two in pairs)
        return self.back(known.sum(2), chunk.rows), 0.5 * (constant - gain), lower.failed()
