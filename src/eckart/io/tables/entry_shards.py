"""Observations that do not fit in memory: an external sort into shards of rows and shards of
columns on the disk, read again in every sweep.

Two passes over the table: the ids of both sides and how often each occurs, then the triples as
positions, written to the files of their range of rows. Every range is sorted on its own, which
makes a shard of rows; turned, it has a piece for each range of columns, whose entries are sorted
already. A shard of columns is the pieces of all ranges of rows, which are laid side by side when it
is read: it is never written as a whole. So an entry is written three times, and nothing but a few
ranges is held.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eckart.errors import FileError, InputError
from eckart.index.compress import index_dtype
from eckart.index.ids import Place
from eckart.index.sides import PositionFinder, Side, Tally
from eckart.matrix import Observed
from eckart.matrix_blocks import ObservedParts, even_cuts
from eckart.scheduler import give_back

SHARD_SHARE = 32
"""A shard takes at most this fraction of the memory: two are held while one is worked on, a third
in pieces, and threads sort two at a time, each of which takes four times its size."""
LEAST_SHARD = 2**20
"""Bytes of a shard at the least: smaller files cost more to open than to read."""
DEALT = 2**21
"""Triples that are dealt to the files of their ranges at a time, at the most: a file then grows by
tens of kilobytes or more at once."""
TRIPLE_BYTES = 64
"""Memory of a triple while it is dealt: as ids, as positions, in order of its range, and the next
ones beside it."""

Block = tuple[Any, Any, Any, Place]


@dataclass(frozen=True, eq=False)
class ShardParts:
    """Parts of the rows of an Observed matrix; ``turned`` has the columns, as rows of the
    transpose, in so many ``pieces`` each."""

    folder: Path
    side: str
    lengths: list[int]
    entries: list[int]
    n_columns: int
    dtype: np.dtype
    token: str
    turned: Any = None
    pieces: int = 1

    kind = "observed"
    room = 0.0
    """Bytes of shards that an engine may keep: the disk is read in every pass, and what the system
    has cached comes from there."""

    def load(self, part: int) -> Observed:
        from eckart.index import counting

        rows, count = self.lengths[part], self.entries[part]
        sizes = self._read("lengths", part, np.dtype(np.int32), self.pieces * rows).reshape(
            self.pieces, rows
        )
        indices = self._read("indices", part, index_dtype(self.n_columns), count)
        data = self._read("data", part, self.dtype, count)
        indptr = np.concatenate([[0], np.cumsum(sizes.sum(axis=0, dtype=np.int64))])
        if int(indptr[-1]) != count:
            raise FileError(
                f"{_file(self.folder, self.side, part, 'lengths')} was changed; read "
                "the table again"
            )
        if self.pieces > 1:
            indices, data = counting.side_by_side(sizes, indptr, indices, data)
        return Observed(indptr, indices, data, self.n_columns)

    def _read(self, what: str, part: int, dtype: np.dtype, count: int) -> np.ndarray:
        file = _file(self.folder, self.side, part, what)
        try:
            found = np.fromfile(file, dtype) if count else np.empty(0, dtype)
        except OSError as error:
            raise FileError(
                f"a shard of the data cannot be read ({error}); read the table again"
            ) from None
        if len(found) != count:
            raise FileError(f"{file} ended early; read the table again")
        return found


def _file(folder: Path, side: str, part: int, what: str) -> Path:
    return folder / f"{side}-{part:05d}-{what}"


def sharded(
    blocks: Callable[[], Iterator[Block]],
    names: tuple[str, str, str],
    numbers: Callable[..., np.ndarray],
    memory: float,
    folder: Any = None,
    duplicates: str = "error",
    blanks: tuple[str, ...] | None = None,
) -> ObservedParts:
    """The observations that ``blocks()`` gives (twice), in shards under ``folder`` (None: a
    temporary one), removed with the last matrix that reads them."""
    rows, columns = (Tally(name, blanks, memory / SHARD_SHARE) for name in names[:2])
    dtype: np.dtype | None = None
    for row_ids, column_ids, values, at in ahead(blocks()):
        if len(row_ids):
            own = np.dtype(np.float64) if values is None else numbers(values[:1], at).dtype
            dtype = own if dtype is None else np.promote_types(dtype, own)
            rows.take(row_ids, at)
            columns.take(column_ids, at)
    if dtype is None:
        raise InputError("the table must have at least one row, got none")
    place = Path(tempfile.mkdtemp(prefix="eckart-shards-", dir=folder))
    table = _Table(
        blocks, names, numbers, rows.side(), columns.side(), dtype, memory, duplicates, blanks
    )
    try:
        parts = _written(place, table)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    give_back()
    return _matrix(parts, table.rows.labels, table.columns.labels)


def divided(
    x: ObservedParts, do: Callable[[Observed, int], Iterable[Observed]], number: int
) -> list[ObservedParts]:
    """The entries of shards in so many matrices of the same shape, shards again: ``do(part, b)``
    divides those of part b. They lie beside the first ones, the transpose too, which memory would
    not hold."""
    whole, made = x.parts, list[_ShardWriter]()
    try:
        for _ in range(number):
            place = Path(tempfile.mkdtemp(prefix="eckart-shards-", dir=whole.folder.parent))
            made.append(
                _ShardWriter(place, whole.lengths, whole.turned.lengths, x.shape, whole.dtype)
            )
        for b in range(len(whole.lengths)):
            for writer, part in zip(made, do(whole.load(b), b), strict=True):
                writer.add(part)
    except BaseException:
        for writer in made:
            shutil.rmtree(writer.place, ignore_errors=True)
        raise
    give_back()
    return [_matrix(writer.parts(), x.rows, x.columns) for writer in made]


def _matrix(parts: ShardParts, rows: Any, columns: Any) -> ObservedParts:
    x = ObservedParts(parts, rows, columns)
    weakref.finalize(parts, shutil.rmtree, parts.folder, ignore_errors=True)
    return x


class _ShardWriter:
    """Shards of rows, and of columns, under a folder, as the ranges of rows come."""

    def __init__(
        self,
        place: Path,
        lengths: list[int],
        lengths_t: list[int],
        shape: tuple[int, int],
        dtype: np.dtype,
    ):
        self.place, self.lengths, self.lengths_t = place, lengths, lengths_t
        self.shape, self.dtype = shape, dtype
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.cuts_t = np.concatenate([[0], np.cumsum(lengths_t)])
        self.entries: list[int] = []
        self.entries_t = np.zeros(len(lengths_t), np.int64)

    def turned(self, x: Observed, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A range of rows by columns; rows are counted from the start of the matrix there."""
        from eckart.index import counting

        n, m = self.shape
        out = np.empty(m + 1, np.int64), np.empty(x.nnz, index_dtype(n)), np.empty_like(x.data)
        counting.flip(x.indptr, x.indices, x.data, *out, int(self.starts[number]))
        return out

    def add(self, x: Observed, turned: tuple[np.ndarray, ...] | None = None) -> None:
        """The next range of rows."""
        b = len(self.entries)
        indptr, at, values = self.turned(x, b) if turned is None else turned
        self.entries.append(x.nnz)
        _add(
            self.place,
            "rows",
            b,
            lengths=x.row_counts().astype(np.int32),
            indices=x.indices.astype(index_dtype(self.shape[1]), copy=False),
            data=x.data,
        )
        for c, (first, last) in enumerate(pairwise(self.cuts_t)):
            piece = slice(indptr[first], indptr[last])
            lengths = np.diff(indptr[first : last + 1]).astype(np.int32)
            _add(self.place, "columns", c, lengths=lengths, indices=at[piece], data=values[piece])
            self.entries_t[c] += piece.stop - piece.start

    def parts(self) -> ShardParts:
        (n, m), entries = self.shape, self.entries
        token = f"{self.place.name} {sum(entries)}"
        turned = ShardParts(
            self.place,
            "columns",
            self.lengths_t,
            self.entries_t.tolist(),
            n,
            self.dtype,
            token,
            None,
            len(entries),
        )
        return ShardParts(self.place, "rows", self.lengths, entries, m, self.dtype, token, turned)


class _Table(NamedTuple):
    """What is known of a table after the first pass."""

    blocks: Callable[[], Iterator[Block]]
    names: tuple[str, str, str]
    numbers: Callable[..., np.ndarray]
    rows: Side
    columns: Side
    dtype: np.dtype
    memory: float
    duplicates: str
    blanks: tuple[str, ...] | None

    def triples(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Positions of rows and columns, and values, block by block."""
        room = self.memory / SHARD_SHARE
        row_of = PositionFinder(self.rows, "row", self.names[0], self.blanks, room)
        column_of = PositionFinder(self.columns, "column", self.names[1], self.blanks, room)
        for rows, columns, values, at in self.blocks():
            if not len(rows):
                continue
            i, j = row_of.codes(rows, at), column_of.codes(columns, at)
            a = (
                np.ones(len(i), self.dtype)
                if values is None
                else self.numbers(values, at).astype(self.dtype, copy=False)
            )
            if not np.isfinite(a).all():
                p = int((~np.isfinite(a)).argmax())
                where = (
                    f"{at(p)} (row {self.rows.labels[i[p]]}, column {self.columns.labels[j[p]]})"
                )
                raise InputError(
                    f"{self.names[2]} must hold a finite number, got {a[p]} at {where}. Drop the "
                    "entries that have none."
                )
            yield i, j, a


def _written(place: Path, t: _Table) -> ShardParts:
    from eckart.index import counting

    total, n, m = int(t.rows.counts.sum()), len(t.rows.labels), len(t.columns.labels)
    shards = max(
        1, -(-total * (4 + t.dtype.itemsize) // max(LEAST_SHARD, int(t.memory / SHARD_SHARE)))
    )
    cuts, cuts_t = even_cuts(t.rows.counts, shards), even_cuts(t.columns.counts, shards)
    owner = np.repeat(np.arange(len(cuts) - 1, dtype=np.int32), np.diff(cuts))
    most = int(np.clip(t.memory / TRIPLE_BYTES, 1, DEALT))
    for found in ahead(_joined(t.triples(), most)):
        _deal(place, cuts, *counting.dealt(found[0], owner, len(cuts) - 1, *found[1:]))
    made = _ShardWriter(place, np.diff(cuts).tolist(), np.diff(cuts_t).tolist(), (n, m), t.dtype)

    def sorting(b: int) -> Callable[[], tuple[Observed, Any]]:
        def work() -> tuple[Observed, Any]:
            x = _sorted(place, t, b, int(cuts[b]), int(cuts[b + 1]))
            return x, made.turned(x, b)

        return work

    for x, turned in in_order(map(sorting, range(len(cuts) - 1)), os.cpu_count() or 1):
        made.add(x, turned)
    return made.parts()


def _sorted(place: Path, t: _Table, b: int, first: int, last: int) -> Observed:
    """A range of rows in order."""
    m = len(t.columns.labels)
    kinds = (("row", index_dtype(last - first)), ("column", index_dtype(m)), ("value", t.dtype))
    i, j, a = (_taken(place, b, what, dtype) for what, dtype in kinds)
    return Observed.from_codes(
        i,
        j,
        a,
        (last - first, m),
        t.rows.labels[first:last],
        t.columns.labels,
        t.duplicates,
        None,
        lambda p: "some line",
        t.names[2],
    )


def _joined(
    triples: Iterator[tuple[np.ndarray, ...]], most: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Blocks put together, up to so many triples, and cut where one has more."""
    held: list[tuple[np.ndarray, ...]] = []
    size = 0
    for block in triples:
        for a in range(0, len(block[0]), most):
            part = tuple(each[a : a + most] for each in block)
            if size + len(part[0]) > most and held:
                yield tuple(np.concatenate(each) for each in zip(*held))
                held, size = [], 0
            held.append(part)
            size += len(part[0])
    if held:
        yield tuple(np.concatenate(each) for each in zip(*held))


def in_order(tasks: Iterable[Callable[[], Any]], threads: int) -> Iterator[Any]:
    """Answers of tasks in their order, while threads work on as many further ones."""
    with ThreadPoolExecutor(threads) as pool:
        coming: deque[Any] = deque()
        for task in tasks:
            coming.append(pool.submit(task))
            if len(coming) > threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The items, the next of them made on a thread while one is worked on."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def _deal(
    place: Path,
    cuts: np.ndarray,
    starts: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
) -> None:
    """Triples added to the files of their range, rows counted from its start, in the order they
    came."""
    for b, (a, z) in enumerate(pairwise(starts)):
        if a < z:
            own = (rows[a:z] - cuts[b]).astype(index_dtype(int(cuts[b + 1] - cuts[b])))
            _add(place, "raw", b, row=own, column=columns[a:z], value=values[a:z])


def _add(place: Path, side: str, part: int, **arrays: np.ndarray) -> None:
    for what, array in arrays.items():
        if len(array):
            with open(_file(place, side, part, what), "ab") as file:
                array.tofile(file)


def _taken(place: Path, part: int, what: str, dtype: np.dtype) -> np.ndarray:
    """The triples of a range, whose file is not needed any more."""
    file = _file(place, "raw", part, what)
    if not file.exists():
        return np.empty(0, dtype)
    found = np.fromfile(file, dtype)
    file.unlink()
    return found
