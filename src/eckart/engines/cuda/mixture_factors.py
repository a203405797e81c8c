"""Rows under Gaussians with factor covariances, S = W W^T + diag(s), on a device, in float64; no n
x n matrix is formed.

With D the 0/1 mask of what a row sees, y = x - origin, d = D (y - (m - origin)) and V = diag(1/s)
W,

    M = I + W^T D V,   code z = M^-1 V^T d with covariance M^-1,   log |S| = sum D log s + log |M|,
    d^T S^-1 d = |d - D W z|^2_{1/s} + |z|^2

All M of some rows are one product of masks with the n x r(r+1)/2 products w_ja w_jb / s_j; complete
rows share one. What is missing is expected to be W z + m, so that the sums of ``FactorStatistics``
over rows that miss a column are moments of the codes of these rows, by one product as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from eckart.engines.cuda.held import Held
from eckart.engines.cuda.mixture_gaps import rows_with_gaps
from eckart.engines.cuda.triangles import roots_of
from eckart.engines.protocol import GapsFound
from eckart.engines.protocol.mixtures import LOG_2PI, Gaussians


class Factors:
    """Components; ``logs`` keeps codes of its rows for what follows."""

    def __init__(self, theta: Gaussians, there: Any):
        self.gaps = False
        assert theta.loadings is not None
        assert theta.origin is not None
        self.loadings, self.spread, self.origin = (
            there(theta.loadings),
            there(theta.spread),
            there(theta.origin),
        )
        self.shifts, self.log_weights = there(theta.means - theta.origin), there(theta.log_weights)
        self.level = self.spread.log() + LOG_2PI
        r = self.loadings.shape[2]
        self.pairs = torch.tril_indices(r, r, device=self.spread.device)
        self.products = self.loadings[:, :, self.pairs[0]] * self.loadings[:, :, self.pairs[1]]

    def rows_at_once(self, room: int) -> int:
        """So many that masks, deviations, matrices and, of all components, codes and their
        covariances have room."""
        k, n, r = self.loadings.shape
        return max(1, room // (8 * (8 * n + 5 * r * r + k * (r * r + r + 2))))

    def logs(self, rows: torch.Tensor) -> torch.Tensor:
        """rows x k. Rows without a gap share the matrix of a component."""
        y = rows.double() - self.origin
        self.seen = (~torch.isnan(y)).double() if self.gaps else None
        self.y = y if self.seen is None else torch.nan_to_num(y)
        found = [self._posterior(z) for z in range(len(self.spread))]
        self.codes, self.inverses = [each[1] for each in found], [each[2] for each in found]
        return torch.stack([each[0] for each in found], 1)

    def _posterior(self, z: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """log weight + log density, codes, and the packed M^-1 of each row, or of all."""
        w, s, seen = self.loadings[z], self.spread[z], self.seen
        r = w.shape[1]
        packed = (
            (self.products[z] / s[:, None]).sum(0)[None]
            if seen is None
            else seen @ (self.products[z] / s[:, None])
        )
        m = packed.new_empty(len(packed), r, r)
        m[:, self.pairs[0], self.pairs[1]] = packed
        m[:, self.pairs[1], self.pairs[0]] = packed
        m.diagonal(dim1=1, dim2=2).add_(1.0)
        root, back = roots_of(m)
        inverse = torch.bmm(back.mT, back)
        d = self.y - self.shifts[z]
        d = d if seen is None else d * seen
        pulled = d @ (w / s[:, None])
        codes = (
            pulled @ inverse[0] if seen is None else torch.bmm(inverse, pulled[:, :, None])[:, :, 0]
        )
        rest = d - (codes @ w.T if seen is None else seen * (codes @ w.T))
        square = (rest * rest) @ (1 / s) + (codes * codes).sum(1)
        level = self.level[z].sum() if seen is None else seen @ self.level[z]
        logdet = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
        return (
            self.log_weights[z] - 0.5 * (level + logdet + square),
            codes,
            inverse[:, self.pairs[0], self.pairs[1]],
        )

    def sums(self, _: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """counts, second, cross and square of the rows that ``logs`` has seen."""
        found = [self._sums(z, q[:, z : z + 1]) for z in range(len(self.spread))]
        return tuple(torch.stack(list(each)) for each in zip(*found))

    def _sums(self, z: int, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        codes, y, r = self.codes[z], self.y, self.codes[z].shape[1]
        one = torch.cat([codes, torch.ones_like(q)], 1)
        heavy = q * one
        # packed E[a a^T], a = (z, 1): the lower triangle of the codes' moments, then the codes and
        # 1, which are its last row
        moments = torch.cat(
            [codes[:, self.pairs[0]] * codes[:, self.pairs[1]] + self.inverses[z], one], 1
        )
        second = self._unpacked((q * moments).sum(0)[None], r)[0]
        cross, square = y.T @ heavy, (q * y * y).sum(0)
        if self.seen is not None:  # y is zero where nothing is seen
            gone = 1 - self.seen
            missing = self._unpacked((q * gone).T @ moments, r)
            with_shift = torch.cat([self.loadings[z], self.shifts[z][:, None]], 1)
            lifted = torch.bmm(missing, with_shift[:, :, None])[:, :, 0]
            cross = cross + lifted
            square = square + (lifted * with_shift).sum(1) + self.spread[z] * missing[:, r, r]
        return second[r, r], second, cross, square

    def _unpacked(self, packed: torch.Tensor, r: int) -> torch.Tensor:
        """Symmetric (r + 1) x (r + 1) matrices from their lower triangles by rows."""
        at = torch.tril_indices(r + 1, r + 1, device=packed.device)
        out = packed.new_empty(len(packed), r + 1, r + 1)
        out[:, at[0], at[1]] = packed
        out[:, at[1], at[0]] = packed
        return out

    def expected(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """E[x | seen] and its variances at missing entries, under the components together."""
        twice = torch.where(self.pairs[0] == self.pairs[1], 1.0, 2.0).double()
        mean, square = torch.zeros_like(self.y), torch.zeros_like(self.y)
        for z in range(len(self.spread)):
            guess = self.shifts[z] + self.codes[z] @ self.loadings[z].T
            variance = self.spread[z] + (self.inverses[z] * twice) @ self.products[z].T
            mean += q[:, z : z + 1] * guess
            square += q[:, z : z + 1] * (variance + guess * guess)
        return self.origin + mean, (square - mean * mean).clamp(min=0.0)


def factor_rows(
    x: Held, theta: Gaussians, there: Any, watch: Any
) -> Iterator[tuple[Factors, torch.Tensor, slice]]:
    """Components, rows and their numbers; nothing for a stream of rows with gaps."""
    parts = Factors(theta, there)
    step = parts.rows_at_once(x.room.chunk)
    if x.kind == "dense" and "gaps" not in x.kept:
        try:
            if x.resident is None and not x.checked:
                for _ in x.blocks(watch):  # looked through before a row is given away
                    pass
            for start, block in x.blocks(watch):
                for a in range(0, len(block), step):
                    part = block[a : a + step]
                    yield parts, part, slice(start + a, start + a + len(part))
            return
        except GapsFound:
            x.kept["gaps"] = True
    whole = rows_with_gaps(x)
    parts.gaps = True
    for a in range(0, 0 if whole is None else len(whole), step):
        yield parts, whole[a : a + step], slice(a, a + step)  # type: ignore[index]
