"""Rows against thin matrices on a device.

Blocks of rows are multiplied in working precision and summed over blocks in float64; the square of
the rows is made as ``arrays.square`` says. Sums run in the order of the blocks. Sparse rows go by
padded buckets of rows of about the same length (``held.Entries``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.arrays import WORTH_SPLITTING, DeviceArray, add_square, fetched
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


class DeviceDense:
    """Dense and sparse rows against thin matrices."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any
    twins: Any

    def moments(
        self, x: Any, probe: np.ndarray, watch: Watcher = silent, keeper: Keeper | None = None
    ) -> Moments:
        """Each block about its own mean; the spread of these means is added at the end, in one
        product. Many columns go by halves (see there)."""
        x = self.held(x)
        if x.kind != "dense" or keeper is not None:
            return self.on_cpu("moments", x, probe, watch, keeper)
        if self._splits(x) and x.shape[0]:
            return self._split_moments(x, probe, watch)
        n, g = x.shape[1], self.tensor(probe, np.float64)
        scatter, probed = (
            torch.zeros((n, n), dtype=torch.float64, device=self.device),
            torch.zeros_like(g),
        )
        weights: list[Any] = []
        means: list[Any] = []
        rests: list[Any] = []  # blocks are centered at a rounded mean: what is left of it
        rows = 0
        for start, block in x.blocks(watch):
            w = None if x.weights is None else x.weights[start : start + len(block)]
            weight, mean = _mean(block, w)
            near = mean.to(block.dtype)
            centered = block - near
            if w is not None:
                centered = centered * w.sqrt().to(block.dtype)[:, None]
            wide = centered.double()
            add_square(scatter, centered)
            probed += wide.T @ (wide @ g)
            weights.append(weight)
            means.append(mean)
            rests.append(mean - near)
            rows += len(block)
        if not rows:
            return Moments.empty(n, probe)
        each, at = torch.stack(weights), torch.stack(means)
        total = each.sum()
        mean = at[0] + (each @ (at - at[0])) / total
        apart = at - mean
        for sign, spread in ((1.0, apart), (-1.0, torch.stack(rests))):
            heavy = sign * each[:, None] * spread
            scatter.addmm_(spread.T, heavy)
            probed += heavy.T @ (spread @ g)
        found = [a.cpu().numpy() for a in (mean, scatter, probed)]
        return Moments(rows, float(total), found[0], found[1], probe, found[2])

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
        if x.kind == "counts" and x.weights is None:
            return self._sparse_column_moments(x)
        if x.kind != "dense":
            return self.on_cpu("column_moments", x, watch)
        parts = []
        rows = 0
        for start, block in self._whole(x, watch):
            w = None if x.weights is None else x.weights[start : start + len(block)]
            if usable(block):
                found = (
                    self._columns(x) if w is None and block is x.resident else columns_of(block, w)
                )
                parts.append((found.weight, found.mean, found.square))
                rows += len(block)
                continue
            weight, mean = _mean(block, w)
            apart = block.double() - mean
            apart *= apart
            parts.append((weight, mean, apart.sum(0) if w is None else w @ apart))
            rows += len(block)
        if not rows:
            return ColumnMoments(0, 0.0, np.zeros(x.shape[1]), np.zeros(x.shape[1]))
        each, at, squares = (torch.stack(list(part)) for part in zip(*parts))
        total = each.sum()
        mean = at[0] + (each @ (at - at[0])) / total
        spread = squares.sum(0) + each @ (at - mean) ** 2
        return ColumnMoments(rows, float(total), mean.cpu().numpy(), spread.cpu().numpy())

    def _columns(self, x: DeviceMatrix) -> HalfSums:
        """Of resident rows without weights, summed once."""
        if "columns" not in x.kept:
            x.kept["columns"] = columns_of(x.resident, None)  # type: ignore[arg-type]
        return x.kept["columns"]

    def _sparse_column_moments(self, x: DeviceMatrix) -> ColumnMoments:
        """Absent entries are zeros: about the mean of a column they add its square for each of
        them."""
        e, rows = x.T.entries, x.shape[0]
        wide, one = e.data.double(), torch.ones((e.n, 1), dtype=torch.float64, device=self.device)

        def summed(numbers: torch.Tensor) -> torch.Tensor:
            return (
                entry_sums(e.pieces, numbers)
                if usable(numbers)
                else entry_product(e, numbers, one)[:, 0]
            )

        mean = summed(wide) / max(rows, 1)
        square = summed((wide - mean[e.row_of]) ** 2) + (rows - e.counts) * mean * mean
        return ColumnMoments(rows, float(rows), mean.cpu().numpy(), square.cpu().numpy())

    def times(self, x: Any, v: Any, mean: np.ndarray | None) -> DeviceArray:
        x = self.held(x)
        v = self.tensor(v, x.dtype)
        if x.kind == "observed":
            return self.on_cpu("times", x, DeviceArray(v), mean)
        if x.kind == "counts":
            y = entry_product(x.entries, x.entries.data, v)
            return DeviceArray(
                y if mean is None else y - (self.tensor(mean, np.float64) @ v.double()).to(v.dtype)
            )
        near, left = self._center(x, mean)
        out: list[torch.Tensor] = []
        for _, block in x.blocks():
            y = (block if near is None else block - near) @ v
            out.append(y if left is None else y - left @ v)
        return DeviceArray(torch.cat(out) if out else v.new_zeros(0, v.shape[1]))

    def times_t(self, x: Any, y: Any, mean: np.ndarray | None) -> np.ndarray:
        x = self.held(x)
        y = self.tensor(y, x.dtype)
        if x.kind == "observed":
            return self.on_cpu("times_t", x, DeviceArray(y), mean)
        if x.kind == "counts":
            total = entry_product(x.T.entries, self._by_columns(x), y).double()
            if mean is not None:
                total -= torch.outer(self.tensor(mean, np.float64), y.double().sum(0))
            return fetched(total.to(y.dtype))
        total = torch.zeros((x.shape[1], y.shape[1]), dtype=torch.float64, device=self.device)
        near, left = self._center(x, mean)
        for start, block in x.blocks():
            part = y[start : start + len(block)]
            total += (block if near is None else block - near).T @ part
            if left is not None:
                total -= torch.outer(left, part.sum(0))
        return total.to(y.dtype).cpu().numpy()

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
        block = self.tensor(v, np.float64 if x.kind == "observed" else x.dtype)
        if x.kind != "dense":
            return self._answer(self._sparse_gram_times(x, block, mean), v)
        halves = self._halves(x)
        if halves is not None:
            at = None if mean is None else self.tensor(mean, np.float64)
            found = (halves.rough_gram_times if rough else halves.gram_times)(block, at, x.weights)
            return self._answer(found.to(block.dtype), v)
        total = torch.zeros(block.shape, dtype=torch.float64, device=self.device)
        w = None if x.weights is None else x.weights.to(block.dtype)[:, None]
        # implicit: raw entries, and the whole mean is what is left over
        near, left = (
            (None, self.tensor(mean, x.dtype))
            if implicit and mean is not None
            else self._center(x, mean)
        )
        for start, rows in x.blocks():
            c = rows if near is None else rows - near
            y = c @ block
            if left is not None:
                y -= left @ block
            if w is not None:
                y *= w[start : start + len(rows)]
            total += c.T @ y
            if left is not None:
                total -= torch.outer(left.double(), y.double().sum(0))
        return self._answer(total.to(block.dtype), v)

    def _answer(self, found: torch.Tensor, given: Any) -> Any:
        """Where the block lies that was multiplied: on the device, or on the host."""
        return DeviceArray(found) if isinstance(given, DeviceArray) else fetched(found)

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

    def _sparse_gram_times(
        self, x: DeviceMatrix, v: torch.Tensor, mean: np.ndarray | None
    ) -> torch.Tensor:
        """X^T diag(w) (X V) by two products of entries, then the mean; from entries that are
        unknown nothing is taken off."""
        data, turned = x.entries.data, self._by_columns(x)
        if x.kind == "observed" and mean is not None:
            data = data.double() - self.tensor(mean, np.float64)[x.entries.indices]
            turned = data[x.entries.by_columns]
        y = entry_product(x.entries, data, v)
        if x.weights is not None:
            y *= x.weights.to(v.dtype)[:, None]
        total = entry_product(x.T.entries, turned, y)
        if mean is None or x.kind == "observed":
            return total
        m = self.tensor(mean, np.float64)
        weight = float(x.shape[0]) if x.weights is None else float(x.weights.sum())
        # sum_i w_i x_i = weight mean, so that both cross terms are weight mean mean^T V
        return (total.double() - weight * torch.outer(m, m @ v.double())).to(v.dtype)

    def _by_columns(self, x: DeviceMatrix) -> torch.Tensor:
        """The values of the entries in the order of columns, without the weights."""
        return x.T.entries.data

    def misfit(self, x: Any, u: np.ndarray, mean: np.ndarray) -> Any:
        x = self.held(x)
        if x.kind != "dense":
            return self.on_cpu("misfit", x, u, mean)
        basis, at = self.tensor(u, np.float64), self.tensor(mean, np.float64)
        out = []
        for _, block in x.blocks():
            c = block.double() - at
            c -= (c @ basis) @ basis.T
            out.append((c * c).sum(1))
        return DeviceArray(torch.cat(out) if out else basis.new_zeros(0))

    def row_gram(self, x: Any, mean: np.ndarray | None) -> np.ndarray:
        x = self.held(x)
        if x.kind != "dense" or x.resident is None:
            return self.on_cpu("row_gram", x, mean)
        near, left = self._center(x, mean)
        c = x.resident if near is None else x.resident - near
        c = c if left is None else c.double() - left
        total = torch.zeros((len(c),) * 2, dtype=torch.float64, device=self.device)
        add_square(total, c.T.contiguous())
        return total.cpu().numpy()

    def _center(
        self, x: DeviceMatrix, mean: np.ndarray | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The mean in working precision, and what that rounded off; nothing where there is none."""
        if mean is None:
            return None, None
        near = np.asarray(mean, x.dtype)
        left = np.asarray(mean - near, x.dtype)
        return self.tensor(near), self.tensor(left) if left.any() else None


def _mean(block: torch.Tensor, w: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight of some rows and their mean (0 where they weigh nothing), in float64."""
    if w is None:
        weight = torch.full((), float(len(block)), dtype=torch.float64, device=block.device)
        return weight, block.mean(0, dtype=torch.float64)
    weight = w.sum()
    return weight, (w @ block.double()) / torch.where(weight > 0, weight, 1.0)


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
