"""Stored entries on a device: where they stand, which several matrices may share, their numbers,
and rows of about the same length side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.kernels.products import ProductPieces


class Places:
    """Where the entries of compressed rows with n columns stand: ``indptr`` and ``indices``
    (int64), and what follows from them alone, made once."""

    def __init__(self, indptr: torch.Tensor, indices: torch.Tensor, n: int):
        self.indptr, self.indices, self.n, self.device = indptr, indices, n, indices.device
        self.kept: dict[Any, Any] = {}

    @cached_property
    def counts(self) -> torch.Tensor:
        return self.indptr.diff()

    @cached_property
    def row_of(self) -> torch.Tensor:
        """The row of every entry."""
        rows = torch.arange(len(self.counts), device=self.device)
        return torch.repeat_interleave(rows, self.counts, output_size=len(self.indices))

    @cached_property
    def empty(self) -> torch.Tensor:
        """Rows without entries."""
        return (self.counts == 0).nonzero()[:, 0]

    @cached_property
    def pieces(self) -> ProductPieces:
        """Rows and pieces of long rows, for kernels."""
        return ProductPieces.of(self.indptr)

    def ranges(self, step: int) -> list[tuple[int, int, int, ProductPieces]]:
        """(first row, last row, its first entry, pieces) of ``step`` rows at a time."""
        if ("ranges", step) not in self.kept:
            found, rows = [], len(self.counts)
            for a in range(0, rows, step):
                own = self.indptr[a : a + step + 1]
                found.append((a, min(rows, a + step), int(own[0]), ProductPieces.of(own - own[0])))
            self.kept["ranges", step] = found
        return self.kept["ranges", step]

    def lines(self, limit: int) -> tuple[ProductPieces, torch.Tensor, torch.Tensor]:
        """Pieces of at most so many entries, and of every row the first and last of the lines that
        its pieces write."""
        if ("lines", limit) not in self.kept:
            pieces = ProductPieces.of(self.indptr, limit)
            first = torch.arange(pieces.rows, device=self.device)
            last = first + 1
            first[pieces.long_rows], last[pieces.long_rows] = pieces.long_first, pieces.long_last
            self.kept["lines", limit] = (pieces, first, last)
        return self.kept["lines", limit]

    @cached_property
    def by_columns(self) -> torch.Tensor:
        """Positions of the entries in the order of columns, rows ascending in each."""
        return torch.argsort(self.indices, stable=True)

    @cached_property
    def turned(self) -> Places:
        """Those of the transpose."""
        counts = torch.bincount(self.indices, minlength=self.n)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Places(indptr, self.row_of[self.by_columns], len(self.counts))

    @cached_property
    def buckets(self) -> list[tuple[int, torch.Tensor]]:
        """(length, rows of at most this length, more than the one before): rows without entries are
        in none."""
        counts = self.counts.cpu().numpy()
        found, low = [], 0
        for high in _lengths(int(counts.max(initial=0))):
            rows = np.flatnonzero((counts > low) & (counts <= high))
            if len(rows):
                found.append((high, torch.from_numpy(rows).to(self.device)))
            low = high
        return found


class EntryArrays:
    """Entries at their places: ``data``, ``weights`` or None."""

    def __init__(self, places: Places, data: torch.Tensor, weights: torch.Tensor | None, room: Any):
        self.places, self.data, self.weights, self.room = places, data, weights, room

    indptr = property(lambda self: self.places.indptr)
    indices = property(lambda self: self.places.indices)
    n = property(lambda self: self.places.n)
    counts = property(lambda self: self.places.counts)
    row_of = property(lambda self: self.places.row_of)
    empty = property(lambda self: self.places.empty)
    pieces = property(lambda self: self.places.pieces)
    by_columns = property(lambda self: self.places.by_columns)
    ranges = property(lambda self: self.places.ranges)
    lines = property(lambda self: self.places.lines)

    @cached_property
    def data_by_columns(self) -> torch.Tensor:
        """The numbers in the order of columns, for products with the transpose."""
        return self.data[self.by_columns]

    def turned(self, row_weights: torch.Tensor | None) -> EntryArrays:
        """The transpose; weights of rows weigh the entries of the columns' view."""
        order, w = self.by_columns, self.weights
        if row_weights is not None:
            heavy = row_weights.to(self.data.dtype)[self.row_of]
            w = heavy if w is None else w * heavy
        return EntryArrays(
            self.places.turned, self.data[order], None if w is None else w[order], self.room
        )

    def chunks(self, width: int, extra: int | Callable[[int], int] = 0) -> Iterator[Chunk]:
        """The buckets in pieces that fit into the room for chunks, for gathers of ``width`` columns
        and ``extra`` numbers a row (which may depend on its length)."""
        for length, rows in self.places.buckets:
            numbers = length * max(1, width) + (extra(length) if callable(extra) else extra)
            step = max(1, min(MOST_ROWS, self.room.chunk // (self.data.element_size() * numbers)))
            for a in range(0, len(rows), step):
                yield Chunk(self, rows[a : a + step], length)


MOST_ROWS = 65535
"""Matrices that batched routines of CUDA libraries take at once."""
PIECE = 4096
"""Entries of a row multiplied at once: products of few long rows would leave most of a GPU idle."""


def _lengths(longest: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to ``PIECE``, its multiples beyond: at most a third of a bucket
    is padding."""
    length = 1
    while length < longest:
        yield length
        if length >= PIECE:
            length = -(-(length * 3) // (2 * PIECE)) * PIECE
        else:
            length = (
                length * 3 // 2
                if length & (length - 1) == 0 and length > 1
                else (length * 4 // 3 if length > 2 else length + 1)
            )
    if longest:
        yield length


class Chunk:
    """Rows of about the same length, padded: ``at`` where their entries stand, ``seen`` whether
    they do, ``columns`` with n where nothing stands."""

    def __init__(self, entries: EntryArrays, rows: torch.Tensor, length: int):
        self.rows, self.length = rows, length
        steps = torch.arange(length, device=rows.device)
        self.seen = steps < entries.counts[rows][:, None]
        self.at = torch.where(self.seen, entries.indptr[rows][:, None] + steps, 0)
        self.columns = torch.where(self.seen, entries.indices[self.at], entries.n)

    def numbers(self, flat: torch.Tensor) -> torch.Tensor:
        """Numbers of the entries, zero where nothing stands."""
        return torch.where(
            self.seen, flat[self.at], torch.zeros((), dtype=flat.dtype, device=flat.device)
        )

    def store(self, numbers: torch.Tensor, out: torch.Tensor) -> None:
        """Numbers of the entries to their places in row order; ``out`` has one place more, for what
        does not stand there."""
        out[torch.where(self.seen, self.at, len(out) - 1)] = numbers

    def pieces(self, gathered: torch.Tensor) -> torch.Tensor:
        """rows x length x k as (rows pieces) x piece x k."""
        if self.length <= PIECE:
            return gathered
        return gathered.reshape(-1, PIECE, gathered.shape[2])

    def whole(self, products: torch.Tensor) -> torch.Tensor:
        """Products of pieces, summed to those of rows."""
        return (
            products
            if self.length <= PIECE
            else products.reshape(len(self.rows), -1, *products.shape[1:]).sum(1)
        )


def padded_rows(right: torch.Tensor, ones: bool = False) -> torch.Tensor:
    """V with a row of zeros below (what an absent entry gathers) and, where asked, a column of ones
    beside it."""
    m, k = right.shape
    out = right.new_zeros(m + 1, k + ones)
    out[:m, :k] = right
    if ones:
        out[:m, k] = 1
    return out
