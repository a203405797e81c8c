"""Rows against thin matrices on a device: ``arrays.dense``, and where products of many columns cost
more than reading them, halves of rows (``halves``). Sparse rows go by padded buckets of rows of
about the same length (``stored``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eckart.engines.arrays.dense import ArrayDense, answer, centre, joined_means
from eckart.engines.cuda.arrays import WORTH_SPLITTING, add_square, all_fetched
from eckart.engines.cuda.halves import HalfSums, Halves, columns_of, scatter_of
from eckart.engines.cuda.held import DeviceMatrix
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.products import entry_sums, row_products
from eckart.engines.cuda.stored import padded_rows
from eckart.engines.protocol import ColumnMoments, Keeper, Moments
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
