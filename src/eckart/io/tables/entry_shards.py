"""Observations that do not fit in memory: an external sort into shards of rows and shards of columns on the disk, read again in every sweep.

Two passes over the table: the ids of both sides and how often each occurs, then the triples as positions, written to a file for each range of rows. Every range
is sorted on its own, which makes a shard of rows, and its entries go on to a file for each range of columns, which makes the shards of columns. A shard is one
file of pointers, indices and values; nothing else of the entries is held.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError
from eckart.index.compress import index_dtype
from eckart.index.counting import dealt
from eckart.index.ids import Place
from eckart.index.labels import Labels
from eckart.index.sides import Side, Sides, numbered
from eckart.matrix import Observed
from eckart.matrix_blocks import ObservedParts, even_cuts
from eckart.merging import Tree

SHARD_SHARE = 16
"""A shard takes at most this fraction of the memory: two are held while one is worked on, and sorting one takes four times its size."""
LEAST_SHARD = 2**20
"""Bytes of a shard at the least: smaller files cost more to open than to read."""

Block = tuple[Any, Any, Any, Place]


@dataclass(frozen=True, eq=False)
class ShardParts:
    """Parts of the rows of an Observed matrix, one file each; ``turned`` has the columns, as rows of the transpose."""

    folder: Path
    side: str
    lengths: list[int]
    entries: list[int]
    n_columns: int
    dtype: np.dtype
    token: str
    turned: Any = None

    kind = "observed"
    room = 0.0
    """Bytes of shards that an engine may keep: the disk is read in every pass, and what the system has cached comes from there."""

    def load(self, part: int) -> Observed:
        rows, count = self.lengths[part], self.entries[part]
        try:
            with open(_file(self.folder, self.side, part), "rb") as file:
                indptr = np.fromfile(file, np.int64, rows + 1)
                indices = np.fromfile(file, index_dtype(self.n_columns), count)
                data = np.fromfile(file, self.dtype, count)
        except OSError as error:
            raise FileError(f"a shard of the data cannot be read ({error}); read the table again") from None
        if len(data) != count:
            raise FileError(f"{_file(self.folder, self.side, part)} ended early; read the table again")
        return Observed(indptr, indices, data, self.n_columns)


def _file(folder: Path, side: str, part: int) -> Path:
    return folder / f"{side}-{part:05d}"


def sharded(
    blocks: Callable[[], Iterator[Block]], names: tuple[str, str, str], numbers: Callable[..., np.ndarray], memory: float, folder: Any = None,
    duplicates: str = "error", blanks: tuple[str, ...] | None = None,
) -> ObservedParts:  # fmt: skip
    """The observations that ``blocks()`` gives (twice), in shards under ``folder`` (None: a temporary one), removed with the last matrix that reads them."""
    tree: Any = Tree()
    for rows, columns, values, at in blocks():
        if len(rows):
            dtype = np.dtype(np.float64) if values is None else numbers(values[:1], at).dtype
            tree.add(Sides(Side.of(names[0], rows, at, blanks), Side.of(names[1], columns, at, blanks), dtype))
    sides = tree.total()
    if sides is None:
        raise InputError("the table has no row, wanted at least one observation")
    place = Path(tempfile.mkdtemp(prefix="eckart-shards-", dir=folder))
    try:
        parts = _written(place, blocks, sides, names, numbers, memory, duplicates, blanks)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    x = ObservedParts(parts, sides.rows.labels, sides.columns.labels)
    weakref.finalize(parts, shutil.rmtree, place, ignore_errors=True)
    return x


def _written(
    place: Path, blocks: Callable[[], Iterator[Block]], sides: Sides, names: tuple[str, str, str], numbers: Callable[..., np.ndarray],
    memory: float, duplicates: str, blanks: tuple[str, ...] | None,
) -> ShardParts:  # fmt: skip
    total, dtype = int(sides.rows.counts.sum()), sides.dtype
    n, m = len(sides.rows.labels), len(sides.columns.labels)
    shards = max(1, -(-total * (4 + dtype.itemsize) // max(LEAST_SHARD, int(memory / SHARD_SHARE))))
    cuts, cuts_t = even_cuts(sides.rows.counts, shards), even_cuts(sides.columns.counts, shards)
    row_ids, column_ids = Labels(sides.rows.labels, n, "row"), Labels(sides.columns.labels, m, "column")
    triple = np.dtype(
        [
            ("row", np.int32 if n < 2**31 else np.int64),
            ("column", np.int32 if m < 2**31 else np.int64),
            ("value", dtype),
        ]
    )
    owner, owner_t = (np.repeat(np.arange(len(c) - 1, dtype=np.int32), np.diff(c)) for c in (cuts, cuts_t))

    def triples() -> Iterator[np.ndarray]:
        for rows, columns, values, at in blocks():
            found = np.empty(len(rows), triple)
            found["row"] = numbered(row_ids, names[0], rows, at, blanks)
            found["column"] = numbered(column_ids, names[1], columns, at, blanks)
            found["value"] = 1.0 if values is None else numbers(values, at)
            bad = np.flatnonzero(~np.isfinite(found["value"]))
            if len(bad):
                p = int(bad[0])
                shown = sides.rows.labels[found["row"][p]], sides.columns.labels[found["column"][p]]
                where = f"{at(p)} (row {shown[0]}, column {shown[1]})"
                raise InputError(f"{names[2]} has {found['value'][p]} at {where}, wanted a finite number; drop the entries that have none")
            yield found

    def by_rows() -> Iterator[Observed]:
        for b, (first, last) in enumerate(pairwise(cuts)):
            found = _taken(place, "raw", b, triple)
            yield Observed.from_codes(
                found["row"] - first, found["column"], found["value"], (int(last - first), m), sides.rows.labels[first:last], sides.columns.labels,
                duplicates, None, lambda p: "some line", names[2],
            )  # fmt: skip

    def by_columns() -> Iterator[Observed]:
        for b, (first, last) in enumerate(pairwise(cuts_t)):
            found = _taken(place, "back", b, triple)
            yield Observed.from_codes(found["column"] - first, found["row"], found["value"], (int(last - first), n))

    for found in ahead(triples()):
        _dealt(place, "raw", found, found["row"], owner, len(cuts) - 1)
    entries = []
    for b, x in enumerate(ahead(by_rows())):
        entries.append(_kept(place, "rows", b, x))
        back = np.empty(x.nnz, triple)
        back["row"] = np.repeat(np.arange(cuts[b], cuts[b + 1]), x.row_counts())
        back["column"], back["value"] = x.indices, x.data
        _dealt(place, "back", back, back["column"], owner_t, len(cuts_t) - 1)
    entries_t = [_kept(place, "columns", b, x) for b, x in enumerate(ahead(by_columns()))]
    token = f"{place.name} {total}"
    turned = ShardParts(place, "columns", np.diff(cuts_t).tolist(), entries_t, n, dtype, token)
    return ShardParts(place, "rows", np.diff(cuts).tolist(), entries, m, dtype, token, turned)


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The items, the next of them made on a thread while one is worked on."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def _dealt(place: Path, name: str, found: np.ndarray, keys: np.ndarray, owner: np.ndarray, ranges: int) -> None:
    """Triples added to the file of their range, in the order they came."""
    starts, out = dealt(keys, owner, ranges, found.view(np.uint32).reshape(len(found), found.itemsize // 4))
    for b, (a, z) in enumerate(pairwise(starts)):
        if a < z:
            with open(_file(place, name, b), "ab") as file:
                out[a:z].tofile(file)


def _taken(place: Path, name: str, part: int, dtype: np.dtype) -> np.ndarray:
    """The triples of a range, whose file is not needed any more."""
    file = _file(place, name, part)
    if not file.exists():
        return np.empty(0, dtype)
    found = np.fromfile(file, dtype)
    file.unlink()
    return found


def _kept(place: Path, side: str, part: int, x: Observed) -> int:
    with open(_file(place, side, part), "wb") as file:
        for array in (
            x.indptr.astype(np.int64, copy=False),
            x.indices.astype(index_dtype(x.n_columns), copy=False),
            x.data,
        ):
            array.tofile(file)
    return x.nnz
