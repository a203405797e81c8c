"""Rows against thin matrices on a device: ``arrays.dense``, and where products of many columns cost
more than reading them, halves of rows (``halves``). Sparse rows go by padded buckets of rows of
about the same length (``stored``).

Tall thin arrays on a device: inner and outer products, orthonormal bases, triangles.

Arrays of NumPy are answered by one of NumPy, and are the CPU engine's work: the way to the device
and back would cost more than their products.

Rows with gaps under a Gaussian of low rank on a device (``arrays.gaps``). The CPU engine takes
over where the noise is so small that rounding hides it and M has no Cholesky factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eckart.engines.arrays.dense import ArrayDense, ArrayThin, answer, centre, joined_means
from eckart.engines.arrays.gaps import ArrayGaps
from eckart.engines.cuda.arrays import WORTH_SPLITTING, DeviceArray, add_square, all_fetched
from eckart.engines.cuda.halves import HalfSums, Halves, columns_of, scatter_of
from eckart.engines.cuda.held import DeviceMatrix, padded_rows
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.products import entry_sums, row_products
from eckart.engines.protocol import (
    ColumnMoments,
    GapCodes,
    GapStatistics,
    Keeper,
    Moments,
    SeenColumns,
)
from eckart.trace import Watcher, silent

KEPT = 0.25
"""Share of the free memory of the device that halves of rows may take and keep."""
MANY = 2**24
"""Entries from which halves pay: they are made by a pass over the rows."""


class DeviceDense(ArrayDense):
    """Dense and sparse rows against thin matrices."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any
    twins: Any

    def moments(
        self, x: Any, probe: np.ndarray, watch: Watcher = silent, keeper: Keeper | None = None
    ) -> Moments:
        """Many columns go by halves (see there)."""
        x = self.held(x)
        if x.kind != "dense" or keeper is not None:
            return self.on_cpu("moments", x, probe, watch, keeper)
        if self._splits(x) and x.shape[0]:
            return self._split_moments(x, probe, watch)
        return super().moments(x, probe, watch)

    def _splits(self, x: DeviceMatrix) -> bool:
        """Whether these rows are worth halves: float32, with so many columns that products cost
        more than reading them."""
        few = x.dtype != np.float32 or x.shape[1] < WORTH_SPLITTING
        return not few and usable(torch.empty(0, device=self.device))

    def _split_moments(self, x: DeviceMatrix, probe: np.ndarray, watch: Watcher) -> Moments:
        g, found, rows = self.tensor(probe, np.float64), None, 0
        for start, block in self._whole(x, watch):
            own = scatter_of(
                block, None if x.weights is None else x.weights[start : start + len(block)], g
            )
            found = own if found is None else found.merge(own, g)
            rows += len(block)
        assert found is not None
        mean, probed = found.mean.cpu().numpy(), found.probed.cpu().numpy()
        return Moments(
            rows, float(found.weight), mean, self.twins.copy(found.scatter), probe, probed
        )

    def _whole(self, x: DeviceMatrix, watch: Watcher) -> Any:
        """(first row, rows): all at once where they lie on the device."""
        if x.resident is None:
            yield from x.blocks(watch)
            return
        yield 0, x.resident
        watch("rows read", len(x.resident), len(x.resident))

    def column_moments(self, x: Any, watch: Watcher = silent) -> ColumnMoments:
        x = self.held(x)
        if not x.shape[0] or not usable(torch.empty(0, device=self.device)):
            return super().column_moments(x, watch)
        if x.kind == "counts" and x.weights is None:
            return self._sparse_column_moments(x)
        if x.kind != "dense":
            return super().column_moments(x, watch)
        parts, rows = [], 0
        for start, block in self._whole(x, watch):
            w = None if x.weights is None else x.weights[start : start + len(block)]
            found = self._columns(x) if w is None and block is x.resident else columns_of(block, w)
            parts.append((found.weight, found.mean, found.square))
            rows += len(block)
        each, means, squares = (torch.stack(list(part)) for part in zip(*parts))
        total, mean, apart = joined_means(each, means)
        weight, mean, square = all_fetched(total, mean, squares.sum(0) + each @ apart**2)
        return ColumnMoments(rows, float(weight), mean, square)

    def _columns(self, x: DeviceMatrix) -> HalfSums:
        """Of resident rows without weights, summed once."""
        if "columns" not in x.kept:
            x.kept["columns"] = columns_of(x.resident, None)  # type: ignore[arg-type]
        return x.kept["columns"]

    def _sparse_column_moments(self, x: DeviceMatrix) -> ColumnMoments:
        """By the sums of rows of the transpose, for which there is a kernel."""
        e, rows = x.T.entries, x.shape[0]
        wide = e.data.double()
        mean = entry_sums(e.pieces, wide) / max(rows, 1)
        square = entry_sums(e.pieces, (wide - mean[e.row_of]) ** 2)
        square += (rows - e.counts) * mean * mean
        return ColumnMoments(rows, float(rows), mean.cpu().numpy(), square.cpu().numpy())

    def gram_times(
        self,
        x: Any,
        v: Any,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
        rough: bool = False,
    ) -> np.ndarray:
        x = self.held(x, weights)
        halves = self._halves(x) if x.kind == "dense" else None
        if halves is None:
            return super().gram_times(x, v, mean, None, implicit)
        at = None if mean is None else self.tensor(mean, np.float64)
        product = halves.rough_gram_times if rough else halves.gram_times
        found = product(self.tensor(v, x.dtype), at, x.weights)
        return answer(self.lib, self.lib.array(found, x.dtype), v)

    def _halves(self, x: DeviceMatrix) -> Halves | None:
        """Those of resident rows, made once where there is room beside them."""
        if "halves" not in x.kept:
            whole = x.resident if self._splits(x) else None
            if whole is not None and whole.numel() < MANY:
                whole = None
            if (
                whole is not None
                and whole.is_cuda
                and 4 * whole.numel() > KEPT * torch.cuda.mem_get_info(self.device)[0]
            ):
                whole = None
            x.kept["halves"] = None if whole is None else Halves.of(whole, self._columns(x))
        return x.kept["halves"]

    def row_gram(self, x: Any, mean: np.ndarray | None) -> np.ndarray:
        x = self.held(x)
        if x.kind != "dense" or x.resident is None:
            return self.on_cpu("row_gram", x, mean)
        near, left = centre(self.lib, x, mean)
        c = x.resident if near is None else x.resident - near
        c = c if left is None else c.double() - left
        total = torch.zeros((len(c),) * 2, dtype=torch.float64, device=self.device)
        add_square(total, c.T.contiguous())
        return total.cpu().numpy()


def entry_product(entries: Any, data: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """R V for the sparse R with ``data`` at the entries: sum_j r_ij v_j of every row, by a kernel,
    or by padded buckets."""
    if usable(v):
        return row_products(entries.pieces, entries.indices, data.to(v.dtype), v)
    out = v.new_zeros(len(entries.counts), v.shape[1])
    if not v.shape[1]:
        return out
    below = padded_rows(v)
    for chunk in entries.chunks(v.shape[1]):
        gathered = chunk.pieces(below[chunk.columns])
        r = chunk.numbers(data).reshape(len(gathered), 1, -1)
        out[chunk.rows] = chunk.whole(torch.bmm(r, gathered))[:, 0]
    return out


WIDE = 512
"""Columns from which the eigenvectors of a symmetric matrix are found sooner on the device."""

APART = 1e-4
"""Share of a column's square that must be left of it beside all others, so that its direction is
right to the square root of this times rounding."""


class DeviceThin(ArrayThin):
    """Products of tall thin arrays."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    twins: Any

    def _here(self, *arrays: Any) -> bool:
        """Whether an array lies on the device, or a copy of it does."""
        return any(isinstance(a, DeviceArray) or self.twins.find(a) is not None for a in arrays)

    def _like(self, found: torch.Tensor, *sources: Any) -> Any:
        """On the host where all sources are, with the tensor kept for as long as that copy lives:
        it need not travel back."""
        return (
            DeviceArray(found)
            if any(isinstance(a, DeviceArray) for a in sources)
            else self.twins.copy(found)
        )

    def inner(self, q: Any, w: Any, weights: Any = None) -> np.ndarray:
        if not self._here(q, w):
            return self.on_cpu("inner", q, w, weights)
        return super().inner(q, w, weights)

    def outer(self, q: Any, s: np.ndarray, plus: Any = None, scale: float = 1.0) -> Any:
        if not self._here(q, plus):
            return self.on_cpu("outer", q, s, plus, scale)
        a = self.tensor(q)
        out = a @ self.tensor(s, q.dtype)
        if plus is not None:
            out.add_(self.tensor(plus, q.dtype), alpha=scale)
        return self._like(out, q, plus)

    def triangle(self, v: Any) -> np.ndarray:
        return super().triangle(v) if self._here(v) else self.on_cpu("triangle", v)

    def write_columns(self, into: Any, first: int, columns: Any) -> None:
        if isinstance(into, np.ndarray):
            self.on_cpu("write_columns", into, first, columns)
        else:
            super().write_columns(into, first, columns)

    def orth(self, v: Any, against: Any = None) -> Any:
        """By V L^-T with V^T V = L L^T in float64, twice, without a wait; by eigenvalues where
        columns nearly depend on one another."""
        if not self._here(v, against):
            return self.on_cpu("orth", v, against)
        a = self.tensor(v)
        size = float(a.abs().max()) if a.numel() else 0.0
        if size == 0.0 or not np.isfinite(size):
            return v[:, :0]
        q = None if against is None or not against.shape[1] else self.tensor(against, v.dtype)
        found = _by_triangles(a / size, q)
        if found is None:
            found = super().orth(v, against).tensor
        return self._like(found, v, against)

    def covariance(
        self, scatter: np.ndarray, weight: float, mean: np.ndarray | None = None
    ) -> np.ndarray:
        """Kept on the device beside its copy on the host, where the scatter is."""
        if not self._here(scatter):
            return self.on_cpu("covariance", scatter, weight, mean)
        return super().covariance(scatter, weight, mean)

    def is_below(self, c: np.ndarray, q: np.ndarray, r: np.ndarray, bound: float) -> bool:
        if not self._here(c):
            return self.on_cpu("is_below", c, q, r, bound)
        return super().is_below(c, q, r, bound)

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """By the device for large matrices; where its method fails, by the CPU engine, whose
        methods always answer. The library fails too where PyTorch keeps all memory of the device
        for itself, so that is given back first."""
        for _ in range(2 if self.device.type == "cuda" and len(c) >= WIDE and k else 0):
            try:
                values, vectors = torch.linalg.eigh(self.tensor(c, np.float64))
                return values.flip(0)[:k].cpu().numpy(), vectors[:, -k:].flip(1).cpu().numpy()
            except torch.linalg.LinAlgError:
                torch.cuda.empty_cache()
        return self.on_cpu("eigh_top", c, k)


def _by_triangles(a: torch.Tensor, q: torch.Tensor | None) -> torch.Tensor | None:
    """An orthonormal basis by two triangles; None where a column is mostly in the span of others,
    or of q."""
    size = (a.double() ** 2).sum(0)
    worst = []
    for _ in range(2):
        if q is not None:
            a = a - q @ (q.double().T @ a.double()).to(a.dtype)
        wide = a.double()
        lower, info = torch.linalg.cholesky_ex(wide.T @ wide)
        # what is left of every column beside the others, against its length before
        worst += [torch.where(info == 0, (lower.diagonal() ** 2 / size).min(), 0.0)]
        a = torch.linalg.solve_triangular(lower, wide.T, upper=False).T.to(a.dtype)
        size = torch.ones_like(size)
    left = torch.stack(worst).cpu()
    return a.contiguous() if bool(left[0] > APART) and bool(left[1] > 0.5) else None


class DeviceGaps(ArrayGaps):
    """Statistics, codes and expected entries of rows that are seen in part."""

    on_cpu: Any
    held: Any

    def seen_columns(self, x: Any) -> SeenColumns:
        x = self.held(x)
        return super().seen_columns(x) if x.kind == "observed" else self.on_cpu("seen_columns", x)

    def largest(self, x: Any) -> float:
        x = self.held(x)
        if x.kind == "dense":
            return self.on_cpu("largest", x)
        return float(x.entries.data.abs().amax()) if x.nnz else 0.0

    def gap_statistics(
        self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapStatistics:
        x = self.held(x)
        found = super().gap_statistics(x, w, mean, noise)
        if not np.isfinite(found.loglik):
            return self.on_cpu("gap_statistics", x, w, mean, noise)
        return found

    def gap_codes(self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        x = self.held(x)
        found = super().gap_codes(x, w, mean, noise)
        if not bool(torch.isfinite(found.loglik.tensor.sum())):
            return self.on_cpu("gap_codes", x, w, mean, noise)
        return found

    def gap_expect(
        self, x: Any, u: np.ndarray, gain: np.ndarray, mean: np.ndarray, noise: float
    ) -> Any:
        x = self.held(x)
        found = super().gap_expect(x, u, gain, mean, noise)
        if not bool(torch.isfinite(found.tensor.sum())):
            return self.on_cpu("gap_expect", x, u, gain, mean, noise)
        return found
