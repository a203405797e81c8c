"""What the array primitives need of PyTorch: rows that lie on a device or stream through it,
kernels of the device where they were measured to pay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from eckart.engines.arrays.divergences import LEAST
from eckart.engines.arrays.gaps import rows_by_gaps
from eckart.engines.arrays.numpy import NumpyLibrary, raised_root
from eckart.engines.cuda.arrays import (
    DeviceArray,
    Twins,
    add_square,
    all_fetched,
    fetched,
    promised,
    torch_dtype,
)
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.entries import at_entries
from eckart.engines.cuda.formulas import Numbers
from eckart.engines.cuda.held import (
    DeviceMatrix,
    EntryArrays,
    Places,
    RoomLeft,
    refuse_infinite,
    to_device,
)
from eckart.engines.cuda.kernels import divergence, usable
from eckart.engines.cuda.kernels.coordinates import descend
from eckart.engines.cuda.kernels.squares import MOST, shared
from eckart.engines.cuda.nonnegative import row_moments, settled
from eckart.engines.cuda.triangles import Known, roots_of, row_sums
from eckart.engines.host import Host
from eckart.engines.protocol import GapsFound, RidgeRule
from eckart.trace import Watcher, silent

KEPT = 0.25
"""Share of the free memory of the device that the features of rows may take and keep."""
SPLITS = 64
"""Parts of the rows whose sums are made side by side, then added in their order: k x features alone
would leave most of a GPU idle."""
FEW = 0.02
"""Share of stored entries below which rows are not made whole: what lies on the device would be
fifty times what came."""


class TorchLibrary:
    """PyTorch on one device."""

    xp: Any = torch
    asks = divergence.ASKED
    adds_runs = False
    hardly = 0.02
    """A product in float64 makes some fifty multiply-adds in the time in which a number is
    fetched."""
    least_rows = 1
    scores = 2**28
    """A gigabyte in float32."""
    piece = 2**25
    """Entries whose formulas are worked out at once."""

    def __init__(self, device: torch.device, bytes_at_once: RoomLeft, twins: Twins, back: Any):
        self.device, self.bytes_at_once, self.twins, self.back = device, bytes_at_once, twins, back
        self._numpy = NumpyLibrary()

    @property
    def room(self) -> int:
        return self.bytes_at_once.chunk

    def placed(self, x: Any) -> DeviceMatrix:
        if isinstance(x, DeviceMatrix):
            return x
        host = x if isinstance(x, Host) else self.back.put(x)
        return DeviceMatrix.of(host, self.device, self.bytes_at_once)

    def there(self, a: Any, dtype: Any = np.float64) -> torch.Tensor:
        return self.given(np.ascontiguousarray(a), dtype)

    def given(self, a: Any, dtype: Any = np.float64) -> torch.Tensor:
        if isinstance(a, torch.Tensor):
            return a if dtype is None else a.to(torch_dtype(dtype))
        twin = self.twins.find(a)
        return to_device(a if twin is None else DeviceArray(twin), self.device, dtype)

    def array(self, a: Any, dtype: Any = None) -> torch.Tensor:
        return self.given(a, dtype)

    def like(self, a: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return a.to(other.dtype)

    def copied(self, a: torch.Tensor) -> torch.Tensor:
        return a.clone(memory_format=torch.contiguous_format)

    def normal(self, seed: Any, shape: tuple[int, ...]) -> torch.Tensor:
        return self.given(self._numpy.normal(seed, shape))

    def promise(self, numbers: torch.Tensor) -> list[Any]:
        return promised(numbers)

    def twin(self, a: torch.Tensor) -> np.ndarray:
        return self.twins.copy(a)

    def host(self, *arrays: torch.Tensor) -> list[np.ndarray]:
        return all_fetched(*arrays)

    def fetch(self, a: torch.Tensor) -> np.ndarray:
        return fetched(a)

    def tall(self, a: torch.Tensor) -> DeviceArray:
        return DeviceArray(a)

    def wide(self, a: torch.Tensor) -> torch.Tensor:
        return a.double()

    def zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def arange(self, count: int) -> torch.Tensor:
        return torch.arange(count, device=self.device)

    def eye(self, n: int) -> torch.Tensor:
        return torch.eye(n, dtype=torch.float64, device=self.device)

    def triangle(self, n: int) -> Any:
        return torch.tril_indices(n, n, device=self.device)

    def width(self, columns: int) -> int:
        """A multiple of 16: products are twice as fast where rows begin at such places."""
        return -(-columns // 16) * 16

    def may_keep(self, x: DeviceMatrix, size: int) -> bool:
        if self.whole(x) is None:
            return False
        free = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else np.inf
        return size <= KEPT * free

    def row_weights(self, x: DeviceMatrix) -> torch.Tensor | None:
        return x.weights

    def complete(self, x: DeviceMatrix) -> bool:
        if x.kind != "dense":
            return x.kind == "counts" or x.nnz == x.shape[0] * x.shape[1]  # type: ignore[operator]
        if "complete" not in x.kept:
            try:
                if x.resident is None and not x.checked:
                    for _ in x.blocks():
                        pass
                x.kept["complete"] = True
            except GapsFound:
                x.kept["complete"] = False
        return x.kept["complete"]

    def whole(self, x: DeviceMatrix) -> torch.Tensor | None:
        """All rows on the device; None where they have no room or come as a stream. Made once."""
        if x.kind == "dense" and self.complete(x):
            return x.resident
        if "rows with gaps" not in x.kept:
            if x.kind == "dense":
                whole = x.whole()
                if whole is not None:
                    refuse_infinite(whole)
            else:
                whole, cells = None, x.shape[0] * x.shape[1]  # type: ignore[operator]
                if x.fits(cells) and x.nnz >= FEW * cells:
                    whole = self._filled(x, 0, x.shape[0])  # type: ignore[arg-type]
            x.kept["rows with gaps"] = whole
        return x.kept["rows with gaps"]

    def _filled(self, x: DeviceMatrix, start: int, stop: int) -> torch.Tensor:
        """Some sparse rows as dense ones, NaN where an entry is missing."""
        e = x.entries
        out = torch.full(
            (stop - start, x.shape[1]),
            torch.nan if x.kind == "observed" else 0.0,
            dtype=e.data.dtype,
            device=self.device,
        )
        ends = slice(int(x.counts[:start].sum()), int(x.counts[:stop].sum()))
        out[e.row_of[ends] - start, e.indices[ends]] = e.data[ends]
        return out

    def row_blocks(
        self, x: DeviceMatrix, row: int, watch: Watcher = silent
    ) -> Iterator[tuple[int, torch.Tensor]]:
        step = max(1, self.room // max(1, row))
        for start, block in self._blocks(x, step):
            for a in range(0, max(1, block.shape[0]), step):
                yield start + a, block[a : a + step]
            watch("reading rows", start + block.shape[0], x.shape[0])

    def _blocks(self, x: DeviceMatrix, step: int) -> Iterator[tuple[int, torch.Tensor]]:
        whole = self.whole(x)
        if whole is not None:
            yield 0, whole
        elif x.kind != "dense":
            rows: Any = x.shape[0]
            yield from ((a, self._filled(x, a, min(a + step, rows))) for a in range(0, rows, step))
        elif self.complete(x):
            yield from x.blocks()
        else:
            for start, block in x._streamed(min(step, x.block_rows)):
                block = block.to(self.device)
                refuse_infinite(block, start)
                yield start, block

    def stored(self, x: DeviceMatrix) -> torch.Tensor:
        return x.entries.data

    def checked_blocks(self, x: DeviceMatrix, row: int) -> Iterator[tuple[int, torch.Tensor]]:
        """In blocks of the device's own size, whatever a row takes."""
        yield from x.blocks()

    def entries(self, x: DeviceMatrix) -> EntryArrays:
        return x.entries

    def rows_of(self, e: EntryArrays, first: int, last: int) -> EntryArrays:
        a, b = e.indptr[[first, last]].tolist()
        places = Places(e.indptr[first : last + 1] - a, e.indices[a:b], e.n)
        return EntryArrays(
            places, e.data[a:b], None if e.weights is None else e.weights[a:b], e.room
        )

    def some_rows(self, e: EntryArrays, chosen: torch.Tensor) -> EntryArrays:
        ends, here = e.counts[chosen].cumsum(0), chosen[e.row_of]
        places = Places(torch.cat([ends.new_zeros(1), ends]), e.indices[here], e.n)
        w = None if e.weights is None else e.weights[here]
        return EntryArrays(places, e.data[here], w, e.room)

    def product(self, e: EntryArrays, numbers: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return entry_product(e, numbers.to(v.dtype), v)

    def product_t(self, e: EntryArrays, numbers: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        data = e.data_by_columns if numbers is e.data else numbers.to(y.dtype)[e.by_columns]
        turned = EntryArrays(e.places.turned, data, None, e.room)
        return entry_product(turned, turned.data, y)

    def dots(self, e: EntryArrays, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return at_entries(e, u, v)

    def row_sums(self, e: EntryArrays, numbers: torch.Tensor) -> torch.Tensor:
        """On a GPU a count by bins would add in any order."""
        if numbers.is_cuda:
            return row_sums(e, numbers)
        return torch.bincount(e.row_of, numbers.double(), len(e.counts))

    def formulas(self, do: Callable[..., Any], a: torch.Tensor, s: torch.Tensor) -> Any:
        return [each.tensor for each in do(Numbers(a), Numbers(s))]

    def chance(self, z: torch.Tensor) -> torch.Tensor:
        return torch.special.ndtr(z)

    def ridges(self, x: DeviceMatrix, rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return x.kept_ridges(rule)

    def with_entries(
        self, x: DeviceMatrix, data: torch.Tensor, weights: torch.Tensor | None
    ) -> DeviceMatrix:
        return DeviceMatrix.with_entries(x, data, weights)

    def leading(self, scores: torch.Tensor, n: int) -> torch.Tensor:
        return torch.topk(scores, n, dim=1)[1]

    def along(self, a: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        return a.gather(1, order)

    @property
    def chunk(self) -> int:
        return self.bytes_at_once.chunk

    def stored_rows(self, x: DeviceMatrix, first: int, last: int) -> tuple[Any, Any, Any]:
        """Cut by what the host knows of the rows: the device is not waited for."""
        e, bounds = x.entries, x.host.matrix.indptr
        here = slice(int(bounds[first]), int(bounds[last]))
        return e.row_of[here] - first, e.indices[here], e.data[here]

    def by_gaps(self, x: DeviceMatrix) -> tuple[DeviceMatrix, bool]:
        """Where many rows have the same gaps."""
        if "rows by gaps" not in x.kept:
            m, weights, _ = rows_by_gaps(x.host)
            together = m is not x.host.matrix
            host = Host(m, weights, checked=True)
            found = DeviceMatrix.of(host, x.device, x.room) if together else x
            x.kept["rows by gaps"] = found, together
        return x.kept["rows by gaps"]

    def gap_order(self, x: DeviceMatrix) -> torch.Tensor | None:
        order = rows_by_gaps(x.host)[2]
        return None if order is None else self.given(order, np.int64)

    def inverses(self, m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        root, back = roots_of(m)
        return torch.bmm(back.mT, back), 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)

    def solved(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve_ex(a, b)[0]

    def sums_at(self, numbers: torch.Tensor, places: torch.Tensor, count: int) -> torch.Tensor:
        return self.zeros(count).index_add(0, places, numbers)

    def plus_square(self, total: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """In its place."""
        add_square(total, rows)
        return total

    def triangle_of(self, v: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(v, mode="r")[1]

    def is_definite(self, a: torch.Tensor) -> bool:
        return int(torch.linalg.cholesky_ex(a)[1]) == 0

    def zero_filled(self, x: DeviceMatrix) -> DeviceMatrix:
        return DeviceMatrix.zero_filled(x, lambda: self.back.zero_filled(x.host))

    def as_rows(self, tall: Any, x: DeviceMatrix) -> DeviceMatrix:
        return DeviceMatrix.of_rows(self.array(tall), x)

    def descend(
        self,
        gram: torch.Tensor,
        pull: torch.Tensor,
        l1: float,
        start: torch.Tensor,
        sweeps: int,
        shrink: float,
    ) -> Any:
        return descend(gram, pull, l1, start, sweeps, shrink) if usable(start) else None

    def descend_entries(
        self,
        x: DeviceMatrix,
        h: torch.Tensor,
        start: torch.Tensor,
        slope: torch.Tensor,
        curvature: torch.Tensor,
        l1: float,
        l2: float,
        sweeps: int,
    ) -> Any:
        """By a matrix for each row: a launch for every coordinate of all entries would take
        longer."""
        new = (start.double() - slope / curvature.clamp(min=1e-30)).clamp(min=0)
        new = new.to(start.dtype)  # that is all for rows without entries
        e, none = x.entries, (None,) * 4
        facts = Known(e, e.weights, *none, 0.0, RidgeRule(0.0))
        for rows, own in row_moments(facts, h, False):
            own.gram.diagonal(dim1=1, dim2=2).add_(l2)
            inverse = 1 / own.gram.diagonal(dim1=1, dim2=2).double().clamp(min=1e-30)
            pull, start_factor = own.rhs.double() - l1, start[rows].double()
            new[rows] = settled(own.gram, pull, start_factor, inverse, sweeps).to(start.dtype)
        return new

    def kl_entries(
        self,
        x: DeviceMatrix,
        h: torch.Tensor,
        u: torch.Tensor,
        down: torch.Tensor,
        rule: Any,
        steps: int,
    ) -> Any:
        if not usable(h):
            return None
        e, name = x.entries, ("totals", h.dtype)
        if name not in x.kept:
            heavy = e.data if e.weights is None else e.weights * e.data
            x.kept[name] = row_sums(e, heavy).to(h.dtype)
        mass = (down if x.kind == "observed" else down[0]).contiguous()
        new, both = divergence.kl_steps(
            e, x.kept[name], h.contiguous(), u.contiguous(), mass, rule, steps, LEAST
        )
        return new, *both

    def picked(self, x: DeviceMatrix, rows: np.ndarray | None) -> np.ndarray:
        """Rows that came on the device are picked there; others are on the host already."""
        if x.given is None or rows is None:
            return self._numpy.picked(x.host, rows)
        there = self.given(rows[rows < len(x.given)], np.int64)
        return fetched(x.given[there]).astype(x.dtype, copy=False)

    def squared_distances(self, rows: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return ((rows[:, None] - c) ** 2).sum(2)

    def entry_product(
        self, x: DeviceMatrix, v: torch.Tensor, *, ones: bool = False, transposed: bool = False
    ) -> torch.Tensor:
        e = (x.T if transposed else x).entries
        data = e.data.double()
        return entry_product(e, torch.ones_like(data) if ones else data, v)

    def log_factorial(self, a: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(a + 1.0)

    def log_gamma(self, a: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(a)

    def digamma(self, a: torch.Tensor) -> torch.Tensor:
        return torch.digamma(a)

    def stacked(self, *numbers: torch.Tensor) -> torch.Tensor:
        return torch.stack(numbers)

    def stored_log_factorials(self, x: DeviceMatrix) -> torch.Tensor:
        return row_sums(x.entries, self.log_factorial(x.entries.data.double()))

    def cross(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        even = left.shape[0] // SPLITS * SPLITS
        found = left[even:].T @ right[even:]
        if even:
            parts = (a[:even].reshape(SPLITS, even // SPLITS, -1) for a in (left, right))
            found += torch.bmm(next(parts).mT, next(parts)).sum(0)
        return found

    def unique_rows(self, words: torch.Tensor) -> torch.Tensor:
        return torch.unique(words, dim=0, return_inverse=True)[1]

    def roots_of(self, s: torch.Tensor, least: float, careful: bool) -> tuple[Any, Any]:
        """On the device without a wait, not numbers where there is no root; ``careful`` repairs
        those on the host."""
        if not careful:
            return roots_of(s)
        root = self.given(np.array([raised_root(each, least) for each in fetched(s)]))
        return root, torch.linalg.inv(root)

    def shares_of(
        self, logs: torch.Tensor, w: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if usable(logs) and logs.shape[1] <= MOST:
            return shared(logs.contiguous(), w)
        q = logs.softmax(1)
        return logs.logsumexp(1), q if w is None else q * w[:, None]
