"""Rows with gaps under x_i ~ N(mean, W W^T + noise I), on a device, in float64 throughout.

    M_i = W^T S_i W + noise I,      E[z_i] = M_i^-1 W^T S_i (x_i - mean),      Cov[z_i] = noise
    M_i^-1,      S_i = diag(which entries of row i are seen)

With S the 0/1 mask of some rows and P the n x k(k+1)/2 matrix of products w_jr w_js, all M_i are
one product S P, and the sums over the rows that see a column one product S^T E, E being the packed
second moments of the codes: twice N n k^2 multiply-adds, nearly all of the work. Rows with the same
gaps stand together and share M and its inverse. The CPU engine takes over where the noise is so
small that rounding hides it and M has no Cholesky factor, and where hardly an entry is seen: masks
are zeros almost everywhere then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from eckart.engines.cpu.dense.gaps import rows_by_gaps
from eckart.engines.cuda.arrays import DeviceArray, all_fetched, torch_dtype
from eckart.engines.cuda.held import DeviceMatrix
from eckart.engines.cuda.known import row_sums
from eckart.engines.cuda.stored import MOST_ROWS
from eckart.engines.cuda.triangles import roots_of
from eckart.engines.host import Host
from eckart.engines.protocol import GapCodes, GapStatistics, SeenColumns

FEW = 0.02
"""Share of seen entries below which masks do not pay: a product in float64 makes some fifty
multiply-adds in the time in which a number is fetched."""


class DeviceGaps:
    """Statistics, codes and expected entries of rows that are seen in part."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any
    twins: Any

    def seen_columns(self, x: Any) -> SeenColumns:
        x = self.held(x)
        if x.kind != "observed":
            return self.on_cpu("seen_columns", x)
        e = x.T.entries
        wide, count = e.data.double(), e.counts
        mean = row_sums(e, wide) / count.clamp(min=1)
        seen, mean, square = all_fetched(count, mean, row_sums(e, (wide - mean[e.row_of]) ** 2))
        return SeenColumns(seen.astype(np.int64), mean, square)

    def largest(self, x: Any) -> float:
        x = self.held(x)
        if x.kind == "dense":
            return self.on_cpu("largest", x)
        return float(x.entries.data.abs().amax()) if x.nnz else 0.0

    def gap_statistics(
        self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapStatistics:
        x = self.held(x)
        if _hardly_seen(x):
            return self.on_cpu("gap_statistics", x, w, mean, noise)
        rows, together = self._by_gaps(x)
        model = self._model(w, mean, noise)
        n, k = model.w.shape
        packed = model.w.new_zeros(n, model.pairs.shape[1])
        sums: list[torch.Tensor] = []
        for block in _blocks(rows, k, together):
            found = model.add(block, packed)
            sums = [total.add_(more) for total, more in zip(sums, found)] if sums else list(found)
        ends, square, second, loglik = sums
        square, second, loglik = all_fetched(square, second, loglik)
        if not np.isfinite(loglik):
            return self.on_cpu("gap_statistics", x, w, mean, noise)
        gram = packed.new_empty(n, k + 1, k + 1)
        gram[:, model.pairs[0], model.pairs[1]] = packed
        gram[:, model.pairs[1], model.pairs[0]] = packed
        gram[:, :k, k] = gram[:, k, :k] = ends[:, :k]
        gram[:, k, k] = ends[:, k]
        # both are kept on the device beside their copies: gap_solve takes them there
        columns = self.twins.copy(gram), self.twins.copy(ends[:, k + 1 :].contiguous())
        whole = np.zeros((k + 1, k + 1))
        r, c = np.tril_indices(k + 1)
        whole[r, c] = whole[c, r] = second
        return GapStatistics(float(loglik), *columns, square, whole)

    def gap_solve(self, stats: GapStatistics) -> tuple[np.ndarray, np.ndarray]:
        gram, cross, square = (
            self.tensor(a, np.float64) for a in (stats.gram, stats.cross, stats.square)
        )
        size = gram.shape[1]
        ridge = 1e-12 / size * gram.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
        eye = torch.eye(size, dtype=gram.dtype, device=gram.device)
        a = torch.linalg.solve_ex(gram + ridge * eye, cross[:, :, None])[0][:, :, 0]
        image = torch.bmm(gram, a[:, :, None])[:, :, 0]
        found, misfit = all_fetched(a, square + (a * (image - 2 * cross)).sum(1))
        return found, misfit

    def gap_codes(self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        x = self.held(x)
        if _hardly_seen(x):
            return self.on_cpu("gap_codes", x, w, mean, noise)
        model = self._model(w, mean, noise)
        found = [model.posterior(block)[:3] for block in _blocks(x, model.w.shape[1])]
        codes, loglik, misfit = (torch.cat(list(each)) for each in zip(*found))
        if not bool(torch.isfinite(loglik.sum())):
            return self.on_cpu("gap_codes", x, w, mean, noise)
        return GapCodes(DeviceArray(codes), DeviceArray(loglik), DeviceArray(misfit))

    def gap_expect(
        self, x: Any, u: np.ndarray, gain: np.ndarray, mean: np.ndarray, noise: float
    ) -> Any:
        x = self.held(x)
        if _hardly_seen(x):
            return self.on_cpu("gap_expect", x, u, gain, mean, noise)
        basis, model = (
            self.tensor(u, np.float64),
            self._model(np.asarray(u, np.float64) * gain, mean, noise),
        )
        out = []
        for block in _blocks(x, model.w.shape[1]):
            z = model.posterior(block)[0]
            expected = (1 - block.mask) * (z @ model.w.T)
            out.append((block.values - block.mask * model.mean + expected) @ basis)
        whole = torch.cat(out)
        if not bool(torch.isfinite(whole.sum())):
            return self.on_cpu("gap_expect", x, u, gain, mean, noise)
        return DeviceArray(whole.to(torch_dtype(x.dtype)))

    def _model(self, w: np.ndarray, mean: np.ndarray, noise: float) -> _Model:
        there = self.tensor(np.ascontiguousarray(w), np.float64)
        pairs = torch.tril_indices(w.shape[1], w.shape[1], device=self.device)
        return _Model(
            there,
            self.tensor(np.asarray(mean), np.float64),
            noise,
            pairs,
            there[:, pairs[0]] * there[:, pairs[1]],
        )

    def _by_gaps(self, x: DeviceMatrix) -> tuple[DeviceMatrix, bool]:
        """The rows in an order in which those with the same gaps stand together, made once, and
        whether many do."""
        if "rows by gaps" not in x.kept:
            m, weights = rows_by_gaps(x.host)
            together = m is not x.host.matrix
            found = (
                DeviceMatrix.of(Host(m, weights, checked=True), x.device, x.room) if together else x
            )
            x.kept["rows by gaps"] = found, together
        return x.kept["rows by gaps"]


@dataclass(frozen=True)
class _Block:
    """Some rows: a mask of what is seen, its values, zero elsewhere, and weights or None; where
    rows with the same gaps stand together, the first row of each run of them, and the run of every
    row."""

    mask: torch.Tensor
    values: torch.Tensor
    weights: torch.Tensor | None
    runs: tuple[torch.Tensor, torch.Tensor] | None


@dataclass(frozen=True)
class _Model:
    w: torch.Tensor
    mean: torch.Tensor
    noise: float
    pairs: torch.Tensor
    products: torch.Tensor

    def posterior(self, block: _Block) -> tuple[torch.Tensor, ...]:
        """E[z], log-likelihood and misfit of each row, and the packed M^-1 of each; not numbers
        where M has no Cholesky factor."""
        mask, k = block.mask, self.w.shape[1]
        first, run = block.runs or (slice(None), slice(None))
        kinds = mask[first]
        m = mask.new_empty(len(kinds), k, k)
        packed = kinds @ self.products
        m[:, self.pairs[0], self.pairs[1]] = packed
        m[:, self.pairs[1], self.pairs[0]] = packed
        m.diagonal(dim1=1, dim2=2).add_(self.noise)
        root, back = roots_of(m)
        inverse = torch.bmm(back.mT, back)
        logdet = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
        centered = block.values - mask * self.mean
        z = torch.bmm(inverse[run], (centered @ self.w)[:, :, None])[:, :, 0]
        # |x|^2 - b^T M^-1 b = |x - W z|^2 + noise |z|^2, the least over all z: an error of z counts
        # squared, and nothing cancels where the noise is small
        rest = centered - mask * (z @ self.w.T)
        misfit = (rest * rest).sum(1)
        seen = mask.sum(1)
        loglik = -0.5 * (
            seen * np.log(2 * np.pi)
            + logdet[run]
            + (seen - k) * np.log(self.noise)
            + misfit / self.noise
            + (z * z).sum(1)
        )
        return z, loglik, misfit, inverse[:, self.pairs[0], self.pairs[1]][run]

    def add(self, block: _Block, packed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Over these rows, for every column: packed moments of the codes, added to ``packed``;
        codes, count, and the same times the values side by side; squares. The packed moments of (z,
        1) and the log-likelihood of all of them."""
        z, loglik, _, inverse = self.posterior(block)
        one = z.new_ones(len(z), 1)
        om = one if block.weights is None else block.weights[:, None]
        moments = om * (z[:, self.pairs[0]] * z[:, self.pairs[1]] + self.noise * inverse)
        codes = om * torch.cat([z, one], 1)
        ends = torch.cat([block.mask.T @ codes, block.values.T @ codes], 1)
        square = (om * block.values * block.values).sum(0)
        # the last row of a lower triangle is its end
        second = torch.cat([moments.sum(0), codes.sum(0)])
        packed.addmm_(block.mask.T, moments)
        return ends, square, second, (om[:, 0] * loglik).sum()


def _hardly_seen(x: DeviceMatrix) -> bool:
    rows, n = x.shape
    return not rows or x.nnz < FEW * rows * n


def _blocks(x: DeviceMatrix, k: int, together: bool = False) -> Iterator[_Block]:
    """All rows, so many at a time that masks, values, matrices and moments have room; ``together``:
    with their runs, which are found once."""
    e, bounds = x.entries, x.host.matrix.indptr
    rows, n = x.shape
    step = max(1, min(MOST_ROWS, x.room.chunk // (8 * (8 * n + 6 * k * k + 1))))
    for a in range(0, rows, step):
        b = min(rows, a + step)
        part = slice(int(bounds[a]), int(bounds[b]))
        at = e.row_of[part] - a, e.indices[part]
        mask = torch.zeros(b - a, n, dtype=torch.float64, device=x.device)
        values = torch.zeros_like(mask)
        mask[at] = 1.0
        values[at] = e.data[part].double()
        runs = None
        if together:
            if ("runs", a, b) not in x.kept:
                x.kept["runs", a, b] = _runs(mask)
            runs = x.kept["runs", a, b]
        yield _Block(mask, values, None if x.weights is None else x.weights[a:b], runs)


def _runs(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first row of each run of equal rows, and the run of every row."""
    new = torch.nn.functional.pad((mask[1:] != mask[:-1]).any(1), (1, 0), value=True)
    return new.nonzero()[:, 0], new.long().cumsum(0) - 1
