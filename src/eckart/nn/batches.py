"""Rows of a matrix as tensors: centred, scaled to unit size, gaps at 0 with a mask beside them.

x' = (x - mean) / spread. The spread is one number for all columns, so that squared errors keep
their proportions; a column that was never observed has spread 0: it enters as 0, leaves as its
mean, and counts nowhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Matrix, Observed, row_parts

BLOCK_BYTES = 2**25
"""Bytes of the float64 numbers that are looked at together."""
Index = Any
"""Positions of rows: an array, or a tensor on the device that holds the rows."""


class RowBatch(NamedTuple):
    """Scaled rows, which entries are observed (None: all), and the target beside them (None: the
    rows themselves)."""

    x: torch.Tensor
    seen: torch.Tensor | None = None
    y: torch.Tensor | None = None


@dataclass(frozen=True)
class ColumnScale:
    """Mean and spread of the columns, and how many entries of a row are observed on average."""

    mean: np.ndarray
    spread: np.ndarray
    per_row: float

    def apply(self, values: np.ndarray) -> np.ndarray:
        """(x - mean) / spread, NaN kept."""
        return (values - self.mean) * np.divide(
            1.0, self.spread, out=np.zeros_like(self.spread), where=self.spread > 0
        )


def whole(matrix: Matrix) -> Dense | Observed | Counts:
    """The matrix in memory; a stream is read. Infinities are refused with their place."""
    if isinstance(matrix, Dense):
        kind = matrix.dtype
        parts = (
            [np.asarray(p.values) for p in row_parts(matrix) if isinstance(p, Dense)]
            if not matrix.in_memory
            else [matrix.array]
        )
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        values = values if values.dtype == kind else values.astype(kind)
        if np.isinf(values).any():
            i, j = np.argwhere(np.isinf(values))[0]
            raise InputError(
                f"X must hold finite numbers, got inf at row {i}, column {j}. Replace it or mark it "
                "NaN (not observed)."
            )
        return Dense(values, matrix.rows, matrix.columns)
    if not np.isfinite(matrix.data).all():
        at = int(np.argmax(~np.isfinite(matrix.data)))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        raise InputError(
            f"X must hold finite numbers, got {matrix.data[at]} at row {row}, column "
            f"{int(matrix.indices[at])}"
        )
    return matrix


def scale_of(matrix: Matrix, centered: bool = True) -> ColumnScale:
    """Mean over the observed entries of each column, and the root mean square around it over all of
    them."""
    sums, squares = (
        (_dense_sums, _dense_square)
        if isinstance(matrix, Dense)
        else (_sparse_sums, _sparse_square)
    )
    count, total = sums(matrix)
    never = count == 0
    mean = total / np.maximum(count, 1)
    mean[never] = total.sum() / max(count.sum(), 1)
    mean = mean if centered else np.zeros(len(mean))
    size = float(np.sqrt(squares(matrix, mean) / max(count.sum(), 1)))
    tiny = 1e-12 * float(np.abs(mean).max(initial=0.0))
    spread = np.where(never, 0.0, size if size > tiny else 1.0)
    return ColumnScale(mean, spread, float(count.sum()) / max(1, int(matrix.shape[0] or 1)) or 1.0)


def block_rows(n: int) -> int:
    """Rows of n numbers in one block of float64: 16384, fewer where they are wide.

    >>> block_rows(10), block_rows(10**5), block_rows(10**9)
    (16384, 41, 1)
    """
    return max(1, min(16384, BLOCK_BYTES // (8 * max(1, n))))


def _dense_sums(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """Number and sum of the observed entries of each column."""
    n = matrix.shape[1]
    count, total = np.zeros(n), np.zeros(n)
    for part in row_parts(matrix, block_rows(n)):
        values, seen = _filled(np.asarray(part.values))  # type: ignore[union-attr]
        count += len(values) if seen is None else seen.sum(axis=0)
        total += values.sum(axis=0, dtype=np.float64)
    return count, total


def _dense_square(matrix: Any, mean: np.ndarray) -> float:
    """sum (x_ij - mean_j)^2 over the observed entries."""
    square = 0.0
    for part in row_parts(matrix, block_rows(matrix.shape[1])):
        values, seen = _filled(np.asarray(part.values))  # type: ignore[union-attr]
        away = values - mean if seen is None else np.where(seen, values - mean, 0.0)
        square += float(np.einsum("ij,ij->", away, away, dtype=np.float64))
    return square


def _filled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """A block with gaps at 0, and the mask of what is observed (None: all)."""
    seen = ~np.isnan(values) if values.dtype.kind == "f" else None
    if seen is None or seen.all():
        return values, None
    return np.where(seen, values, 0.0), seen


def _sparse_sums(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """Number and sum of the entries of each column, from the stored ones; entries of ``Counts``
    that are not stored are zeros and count too."""
    n = matrix.n_columns
    stored, total = np.zeros(n), np.zeros(n)
    for at, values in _entries(matrix):
        stored += np.bincount(at, minlength=n)
        total += np.bincount(at, values, minlength=n)
    return (stored if isinstance(matrix, Observed) else np.full(n, float(matrix.shape[0]))), total


def _sparse_square(matrix: Any, mean: np.ndarray) -> float:
    """sum (x_ij - mean_j)^2 over the stored entries, and mean_j^2 for each zero of ``Counts`` that
    is not stored."""
    square, zeros = 0.0, np.full(len(mean), float(matrix.shape[0]))
    for at, values in _entries(matrix):
        away = values - mean[at]
        square += float(away @ away)
        zeros -= np.bincount(at, minlength=len(mean))
    return square if isinstance(matrix, Observed) else square + float(zeros @ mean**2)


def _entries(matrix: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns and values of the stored entries, in blocks."""
    size = BLOCK_BYTES // 8
    for a in range(0, matrix.nnz, size):
        yield matrix.indices[a : a + size], matrix.data[a : a + size]


class Source(Protocol):
    """Anything that gives batches of rows by position. ``index`` puts positions where the rows lie,
    so that taking them waits for nothing."""

    def __len__(self) -> int: ...

    def index(self, at: np.ndarray) -> Index: ...

    def take(self, at: Index) -> RowBatch: ...


def pieces(at: Index, count: int) -> list[Index]:
    """Positions in ``count`` runs, whose lengths differ by one at most.

    >>> [p.tolist() for p in pieces(np.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    short, more = divmod(len(at), count)
    cuts = np.cumsum([0] + [short + 1] * more + [short] * (count - more))
    return [at[a:b] for a, b in itertools.pairwise(cuts.tolist())]


class RowsPart:
    """Some of the rows, seen as rows of their own."""

    def __init__(self, rows: Source, at: np.ndarray):
        self.rows, self.at = rows, rows.index(at)

    def __len__(self) -> int:
        return len(self.at)

    def index(self, at: np.ndarray) -> Index:
        return self.at[self.rows.index(at)]

    def take(self, at: Index) -> RowBatch:
        return self.rows.take(at)


class NetworkRows:
    """Rows ready for a network; ``take`` gives those at some positions as a batch on the device.

    Dense data are held scaled, sparse and observed data as they are: a batch is filled in when it
    is taken.
    """

    def __init__(self, matrix: Matrix, scale: ColumnScale, place: Any, y: np.ndarray | None = None):
        self.place, self.scale, self.matrix = place, scale, matrix
        self.gaps = isinstance(matrix, Observed) or bool((scale.spread == 0).any())
        self.x: torch.Tensor | None = None
        self.seen: torch.Tensor | None = None
        if isinstance(matrix, Dense):
            self._hold(np.asarray(matrix.values))
        else:
            self.csr = matrix.to_scipy()
        self.y = None if y is None else self._keep(torch.as_tensor(y))

    def __len__(self) -> int:
        return int(self.matrix.shape[0] or 0)

    def index(self, at: np.ndarray) -> Index:
        """Positions as a tensor beside the rows, or as they are where batches are filled in."""
        return at if self.x is None else torch.as_tensor(at, device=self.x.device)

    def all(self) -> RowBatch:
        """Every row, in order."""
        return self.take(self.index(np.arange(len(self))))

    def take(self, at: Index) -> RowBatch:
        """The rows at these positions."""
        if self.x is None:
            x, seen = self._fill(np.asarray(at))
        else:
            x = self._move(self.x[at])
            seen = None if self.seen is None else self._move(self.seen[at])
        y = None if self.y is None else self._move(self.y[at])
        return RowBatch(x, seen, y)

    def _hold(self, values: np.ndarray) -> None:
        kind = np.float64 if self.place.dtype == torch.float64 else np.float32
        out, gaps = np.empty(values.shape, kind), False
        step = block_rows(values.shape[1])
        for a in range(0, len(values), step):
            out[a : a + step] = self.scale.apply(values[a : a + step])
        seen = ~np.isnan(out)
        gaps = not seen.all() or self.gaps
        if gaps:
            seen[:, self.scale.spread == 0] = False
            out[~seen] = 0.0
            self.seen = self._keep(torch.as_tensor(seen))
        self.gaps = gaps
        self.x = self._keep(torch.as_tensor(out))

    def _fill(self, at: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        part = self.csr[at]
        values = np.zeros(part.shape)
        seen = np.zeros(part.shape, bool) if isinstance(self.matrix, Observed) else None
        rows = np.repeat(np.arange(len(at)), np.diff(part.indptr))
        values[rows, part.indices] = part.data
        values = self.scale.apply(values)
        if seen is not None:
            seen[rows, part.indices] = True
            values[~seen] = 0.0
        kind = self.place.dtype
        mask = None if seen is None else torch.as_tensor(seen).to(self.place.device)
        return torch.as_tensor(values).to(self.place.device, kind), mask

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the device where all rows have room there, else beside the CPU."""
        return tensor.to(self.place.device) if self.place.cuda and self.place.resident else tensor

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        """A batch on the device. From the CPU it leaves through pinned memory, so that the copy
        waits for nothing."""
        if not self.place.cuda:
            return tensor
        if not tensor.is_cuda:
            tensor = tensor.pin_memory()
        return tensor.to(self.place.device, non_blocking=True)
