"""What the engine holds of a matrix: the host's copy (made when asked for), and tensors on the
device, made once.

Dense rows lie on the device whole where they fit in ``SHARE`` of its free memory; larger data
stream through two pinned buffers, the copy of one block under way while the block before it is
worked on.

Stored entries on a device: where they stand, which several matrices may share, their numbers,
and rows of about the same length side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.arrays import NUMPY, fetched, torch_dtype
from eckart.engines.cuda.kernels.products import ProductPieces
from eckart.engines.host import Host
from eckart.engines.protocol import GapsFound, refuse_bad
from eckart.engines.row_blocks import jobs
from eckart.matrix import Dense

SHARE = 0.6
"""Share of the free memory of the device that dense rows may take: the rest is for blocks, factors
and products."""


class RoomLeft:
    """Bytes that may be worked on at once; halved where a device ran out of memory.

    On a GPU a block of dense rows is large enough that starting a product costs nothing against it,
    and a chunk of gathered rows fills the device with a sixteenth of its memory (what is made of a
    chunk takes some times its size); blocks of CPU tensors fit in cache.
    """

    def __init__(self, device: torch.device):
        self.block, self.chunk = 2**22, 2**24
        if device.type == "cuda":
            self.block, self.chunk = (
                2**27,
                max(2**30, torch.cuda.get_device_properties(device).total_memory // 16),
            )

    def smaller(self) -> None:
        self.block, self.chunk = self.block // 4, self.chunk // 4


class DeviceMatrix:
    """A placed matrix (see ``engines.protocol.placed``); all but what the protocol names is for the
    engine alone."""

    def __init__(
        self,
        make: Callable[[], Host],
        facts: Any,
        device: torch.device,
        room: RoomLeft,
        other: DeviceMatrix | None = None,
    ):
        self._make, self._facts, self.device, self.room, self._other = (
            make,
            facts,
            device,
            room,
            other,
        )
        self.kept: dict[Any, Any] = {}
        self.checked = facts.kind != "dense"

    @classmethod
    def of(cls, host: Host, device: torch.device, room: RoomLeft) -> DeviceMatrix:
        return cls(lambda: host, host, device, room)

    @classmethod
    def of_rows(cls, rows: torch.Tensor, x: DeviceMatrix) -> DeviceMatrix:
        """Dense rows that were made on the device and are known to be finite, with the weights of
        the rows of x."""

        def fetch() -> Host:
            return Host(Dense(fetched(rows)), x.host.weights, checked=True)

        facts = SimpleNamespace(
            kind="dense",
            rows=None,
            columns=None,
            shape=tuple(rows.shape),
            dtype=NUMPY[rows.dtype],
            nnz=rows.numel(),
            weighted=x.weighted,
        )
        made = cls(fetch, facts, x.device, x.room)
        made.__dict__.update(resident=rows.contiguous(), weights=x.weights, checked=True)
        return made

    @classmethod
    def with_entries(
        cls, x: DeviceMatrix, data: torch.Tensor, weights: torch.Tensor | None
    ) -> DeviceMatrix:
        """The entries of x with other numbers and weights of their own; where they stand is shared,
        and rows have no weights."""

        def fetch() -> Host:
            own = None if weights is None else fetched(weights)
            return Host(
                replace(x.host.matrix, data=fetched(data)),
                None,
                own,
                checked=True,
                turn=x.host.turn,
            )

        return cls._at_places(
            x,
            fetch,
            EntryArrays(x.entries.places, data, weights, x.room),
            None,
            kind=x.kind,
            weighted=weights is not None,
        )

    @classmethod
    def zero_filled(cls, x: DeviceMatrix, fetch: Callable[[], Host]) -> DeviceMatrix:
        """The same entries and weights; what is not stored is zero."""
        return cls._at_places(x, fetch, x.entries, x.weights, kind="counts", weighted=x.weighted)

    @classmethod
    def _at_places(
        cls,
        x: DeviceMatrix,
        fetch: Callable[[], Host],
        entries: EntryArrays,
        weights: torch.Tensor | None,
        **facts: Any,
    ) -> DeviceMatrix:
        same = ("rows", "columns", "shape", "dtype", "nnz", "counts", "column_counts")
        known = SimpleNamespace(**{name: getattr(x, name) for name in same}, **facts)
        made = cls(fetch, known, x.device, x.room)
        made.__dict__.update(entries=entries, weights=weights)
        return made

    @cached_property
    def host(self) -> Host:
        """The matrix on the host, for primitives of the CPU engine."""
        return self._make()

    kind = property(lambda self: self._facts.kind)
    rows = property(lambda self: self._facts.rows)
    columns = property(lambda self: self._facts.columns)
    shape = property(lambda self: self._facts.shape)
    dtype = property(lambda self: self._facts.dtype)
    nnz = property(lambda self: self._facts.nnz)
    counts = property(lambda self: self._facts.counts)
    column_counts = property(lambda self: self._facts.column_counts)
    weighted = property(lambda self: self._facts.weighted)

    @cached_property
    def T(self) -> DeviceMatrix:
        """The columns' view: transposed on the device; on the host only if a primitive of the CPU
        engine asks for it."""
        if self._other is not None:
            return self._other
        turned = DeviceMatrix(lambda: self.host.T, _Turned(self), self.device, self.room, self)
        return turned

    def tensor(self, array: Any, dtype: Any = None) -> torch.Tensor:
        return to_device(array, self.device, dtype)

    @cached_property
    def weights(self) -> torch.Tensor | None:
        """One number for each row, in float64."""
        w = self._facts.weights if self._other is None else None
        return None if w is None else self.tensor(w, np.float64)

    @cached_property
    def entries(self) -> EntryArrays:
        """Compressed rows on the device."""
        if self._other is not None:
            return self._other.entries.turned(self._other.weights)
        m, w = self._facts.matrix, self._facts.entry_weights
        places = Places(
            self.tensor(m.indptr, np.int64), self.tensor(m.indices, np.int64), m.shape[1]
        )
        return EntryArrays(
            places,
            self.tensor(m.data, m.dtype),
            None if w is None else self.tensor(w, m.dtype),
            self.room,
        )

    def kept_ridges(self, rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The ridge of every row and of its bias under a rule, in float64, made once for all
        matrices with entries at these places."""
        kept = self.entries.places.kept
        if ("ridges", rule) not in kept:
            kept["ridges", rule] = tuple(
                self.tensor(a, np.float64) for a in rule.ridges(self.counts)
            )
        return kept["ridges", rule]

    def blocks(self, watch: Any = None) -> Iterator[tuple[int, torch.Tensor]]:
        """(first row, rows on the device in working precision), in order, checked by the first pass
        over them."""
        total = self.shape[0]
        for start, block in self._placed_blocks():
            yield start, block
            if watch is not None:
                watch("rows read", start + len(block), total)
        self.checked = True

    def _placed_blocks(self) -> Iterator[tuple[int, torch.Tensor]]:
        resident = self.resident
        if resident is None:
            for start, block in self._streamed(self.block_rows):
                if not self.checked and not bool(torch.isfinite(block.sum())):
                    _refuse(block, start)
                yield start, block
            return
        step = self.block_rows
        for a in range(0, len(resident), step):
            yield a, resident[a : a + step]

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return max(128, self.room.block // max(1, self.shape[1] * self.dtype.itemsize))

    @cached_property
    def resident(self) -> torch.Tensor | None:
        """All dense rows on the device, or None where they have no room there or come as a
        stream."""
        whole = self.whole()
        if whole is not None:
            try:
                self._look(whole)
            except GapsFound:
                # for those who take rows with gaps: they need not travel again
                self.kept["whole"] = whole
                raise
        return whole

    @property
    def given(self) -> torch.Tensor | None:
        """Dense rows that came on the device."""
        there = getattr(
            getattr(getattr(self._facts, "matrix", None), "values", None), "tensor", None
        )
        return there if there is not None and there.device.type == self.device.type else None

    def whole(self) -> torch.Tensor | None:
        """The same, not looked at: NaN may stand in them."""
        if "whole" in self.kept:
            return self.kept.pop("whole")
        values = self._facts.matrix.values
        if self.given is not None:
            return self.given.to(torch_dtype(self.dtype)).contiguous()
        if not isinstance(values, np.ndarray):
            return None
        if not self.fits(values.size):
            return None
        if self.device.type == "cpu":
            return torch.from_numpy(np.array(values, self.dtype, order="C"))
        whole = torch.empty(values.shape, dtype=torch_dtype(self.dtype), device=self.device)
        for start, block in self._streamed(self.block_rows):
            whole[start : start + len(block)].copy_(block)
        return whole

    def fits(self, numbers: int) -> bool:
        """Whether so many numbers of these rows may lie on the device."""
        return (
            self.device.type != "cuda"
            or numbers * self.dtype.itemsize <= SHARE * torch.cuda.mem_get_info(self.device)[0]
        )

    def _look(self, whole: torch.Tensor) -> None:
        """Refuse NaN and infinities of resident rows, once: a sum for each block, and one answer
        for all of them."""
        step = self.block_rows
        sums = [whole[a : a + step].sum() for a in range(0, len(whole), step)]
        if sums and not bool(torch.isfinite(torch.stack(sums)).all()):
            for a, found in zip(range(0, len(whole), step), sums):
                if not bool(torch.isfinite(found)):
                    _refuse(whole[a : a + step], a)
        self.checked = True

    def _streamed(self, rows: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Blocks from the host; on a GPU through two pinned buffers, the next copy under way while
        a block is worked on."""
        source = (
            (start, fetch({}))
            for start, _, fetch in jobs(replace(self._facts, checked=True), rows=rows)
        )
        if self.device.type == "cpu":
            yield from (
                (start, torch.from_numpy(np.ascontiguousarray(block))) for start, block in source
            )
            return
        side, main = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        pinned: list[Any] = [None, None]
        copied: list[Any] = [None, None]
        waiting: tuple[int, torch.Tensor, Any] | None = None
        for turn, (start, block) in enumerate(source):
            at = turn % 2
            if copied[at] is not None:
                copied[at].synchronize()  # the copy out of this buffer is done
            if pinned[at] is None or pinned[at].numel() < block.size:
                pinned[at] = torch.empty(
                    block.size, dtype=torch_dtype(block.dtype), pin_memory=True
                )
            own = pinned[at][: block.size].view(block.shape)
            own.copy_(torch.from_numpy(np.ascontiguousarray(block)))
            with torch.cuda.stream(side):
                there = own.to(self.device, non_blocking=True)
                copied[at] = torch.cuda.Event()
                copied[at].record(side)
            if waiting is not None:
                yield self._arrived(waiting, main)
            waiting = (start, there, copied[at])
        if waiting is not None:
            yield self._arrived(waiting, main)

    @staticmethod
    def _arrived(waiting: tuple[int, torch.Tensor, Any], main: Any) -> tuple[int, torch.Tensor]:
        start, block, event = waiting
        main.wait_event(event)
        block.record_stream(main)
        return start, block


class _Turned:
    """What the columns' view says of itself without a transpose on the host."""

    def __init__(self, held: DeviceMatrix):
        self.kind, self.rows, self.columns, self.dtype = (
            held.kind,
            held.columns,
            held.rows,
            held.dtype,
        )
        self.shape, self.nnz, self.weighted = held.shape[::-1], held.nnz, held.weighted
        self._held = held

    @property
    def counts(self) -> np.ndarray:
        return self._held.column_counts

    @property
    def column_counts(self) -> np.ndarray:
        return self._held.counts


def _refuse(block: torch.Tensor, start: int) -> None:
    """``refuse_bad``, for which the one row comes to the host that it is about."""
    for bad in (torch.isinf(block), torch.isnan(block)):
        rows = bad.any(1).long()
        found, at = torch.stack([rows.amax(), rows.argmax()]).tolist()
        if found:
            refuse_bad(fetched(block[at : at + 1]), start + at)


def refuse_infinite(rows: torch.Tensor, start: int = 0) -> None:
    """Raise for the first infinity; NaN may stand in the rows."""
    if bool(torch.isinf(rows).any()):
        _refuse(rows, start)


def to_device(array: Any, device: torch.device, dtype: Any = None) -> torch.Tensor:
    """An array of the host or of the engine, on the device."""
    tensor = getattr(array, "tensor", None)
    if not isinstance(tensor, torch.Tensor):
        host = np.asarray(array)
        if not host.flags.writeable:
            host = host.copy()
        tensor = torch.from_numpy(np.ascontiguousarray(host))
    # moved first: what is cast there is not moved twice as wide; memory of the host has been read
    # when the call returns, and the device is not waited for
    tensor = tensor.to(device, non_blocking=True)
    return tensor if dtype is None else tensor.to(torch_dtype(dtype))


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
