"""Tables in long form, one observation a row: three columns (row id, column id, value) become an
Observed matrix, block by block.

Files are never held as text: each block adds a 32-bit code for either id and its value, and is let
go.
"""

from __future__ import annotations

import glob
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError, InputTypeError, invalid
from eckart.index.alike import unknown_column
from eckart.index.compress import RULES
from eckart.index.entries import as_numbers, floating
from eckart.index.ids import Ids, Place
from eckart.io.dask.known import is_collection
from eckart.io.sql.answers import QueryAnswer
from eckart.io.sql.databases import is_address, is_database, shown
from eckart.io.tables.csv_file import NULLS, CsvLayout
from eckart.io.tables.encodings import ending_of, text_bytes
from eckart.io.tables.frames import (
    ARROW_FILES,
    arrow_batches,
    arrow_head,
    arrow_pattern,
    is_arrow,
    is_frame,
    record_batches,
)
from eckart.io.tables.memory import memory_of
from eckart.io.tables.other_files import OTHER_TABLES
from eckart.loading import pa, pc
from eckart.matrix import Observed

BATCH_ROWS = 2**20
"""Rows of a Parquet file that are read at a time."""

BATCH_BYTES = 2**24
"""Bytes of a CSV file that are read at a time."""

ENTRY_BYTES = 64
"""Memory of an observation while a table is read and fitted: two codes and a value, twice while
they are sorted, and rows and columns of the matrix."""

TEXT_FILES = (".csv", ".tsv", ".txt", ".dat")

Block = tuple[Any, Any, Any, Place]
"""Row ids, column ids, values (or None) and words for the place of each."""


@dataclass(frozen=True)
class Long:
    """Which columns of a table hold the ids and the values, by name or by position, and how a CSV
    file is written.

    Observations with an id or a value among the words of ``missing`` are left out ("" is an empty
    cell, None or NaN), and ``left_out`` is called with how many and where the first stands, for every
    block in which there are some.
    """

    rows: Any
    columns: Any
    values: Any = None
    duplicates: str = "error"
    delimiter: str | None = None
    decimal: str | None = None
    header: bool | None = None
    memory: float | None = None
    missing: tuple[str, ...] = ()
    left_out: Callable[[int, str], None] | None = None
    encoding: str | None = None

    def picked(self, names: list[Any], where: Any) -> list[int]:
        """Positions of the three columns (two without values)."""
        asked = [("rows", self.rows), ("columns", self.columns)]
        if self.values is not None:
            asked.append(("values", self.values))
        found = [_located(names, name, want, where) for name, want in asked]
        if len(set(found)) < len(found):
            raise InputError(
                f"rows, columns and values must be different columns of {where}, got {self.rows!r}, "
                f"{self.columns!r} and {self.values!r}"
            )
        return found

    def read(self, source: Any) -> Observed:
        """All triples of a source."""
        if self.duplicates not in RULES:
            raise invalid("duplicates", self.duplicates, "one of " + ", ".join(map(repr, RULES)))
        if is_collection(source):
            from eckart.io.dask.long import observed_frame

            return observed_frame(source, self)
        path = arrow_pattern(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else None
        blanks = (
            tuple(NULLS)
            if path is not None and Path(path).suffix.lower() not in ARROW_FILES
            else None
        )
        if path is not None and self._entries(path) * ENTRY_BYTES > (
            room := memory_of(self.memory)
        ):
            from eckart.io.tables.entry_shards import sharded

            names = _named(self.rows), _named(self.columns), _named(self.values)
            return sharded(
                lambda: self._blocks(source),
                names,
                lambda part, at: numbers(part, self.values, at),
                room,
                None,
                self.duplicates,
                blanks,
            )
        sides = Ids(_named(self.rows), blanks), Ids(_named(self.columns), blanks)
        values: list[np.ndarray] = []
        starts, places, seen = [], [], 0
        for rows, columns, part, at in self._blocks(source):
            sides[0].take(rows, at)
            sides[1].take(columns, at)
            if part is not None:
                values.append(numbers(part, self.values, at))
            starts.append(seen)
            places.append(at)
            seen += len(rows)
        if not seen:
            raise InputError(f"{path or 'the table'} must have at least one row, got none")

        def place(p: int) -> str:
            i = bisect_right(starts, p) - 1
            return places[i](int(p) - starts[i])

        data = None if self.values is None else np.concatenate(values)
        del values
        i, rows = sides[0].finish(place)
        j, columns = sides[1].finish(place)
        name = _named(self.values)
        return Observed.from_codes(
            i, j, data, (len(rows), len(columns)), rows, columns, self.duplicates, None, place, name
        )

    def _entries(self, path: str) -> float:
        """How many observations the files hold: exactly where they say so, else about a line for
        every 16 bytes."""
        files = [path] if os.path.exists(path) else sorted(glob.glob(path))
        found = 0.0
        for file in map(Path, files):
            if file.is_file() and file.stat().st_size:
                found += (
                    arrow_head(file)[1]
                    if file.suffix.lower() in ARROW_FILES
                    else text_bytes(file) / 16
                )
        return found

    def _blocks(self, source: Any) -> Iterator[Block]:
        return (
            map(self._present, self._all_blocks(source))
            if self.missing
            else self._all_blocks(source)
        )

    def _present(self, block: Block) -> Block:
        """The observations of a block of which nothing is missing."""
        *parts, at = block
        gone = np.zeros(len(parts[0]), bool)
        for part in parts:
            gone |= False if part is None else _absent(part, self.missing)
        if not gone.any():
            return block
        if self.left_out is not None:
            self.left_out(int(gone.sum()), at(int(gone.argmax())))
        kept = np.flatnonzero(~gone)
        rows, columns, values = (None if part is None else _taken(part, kept) for part in parts)
        return rows, columns, values, lambda p: at(int(kept[p]))

    def _all_blocks(self, source: Any) -> Iterator[Block]:
        if isinstance(source, QueryAnswer):
            yield from self._from_arrow(source.batches(), source.name)
        elif isinstance(source, (str, os.PathLike)):
            yield from self._from_path(os.fspath(source))
        elif is_arrow(source):
            yield from self._from_arrow(record_batches(source), "the table")
        elif is_frame(source):
            names = list(source.columns)
            part = source.iloc if hasattr(source, "iloc") else source
            yield self._from_columns(names, lambda j: part[:, j], "the table")
        elif isinstance(source, dict):
            yield self._from_columns(list(source), lambda j: list(source.values())[j], "the table")
        elif isinstance(source, np.ndarray):
            names = list(source.dtype.names or range(source.shape[1] if source.ndim == 2 else 0))
            yield self._from_columns(
                names,
                lambda j: source[names[j]] if source.dtype.names else source[:, j],
                "the array",
            )
        elif isinstance(source, (list, tuple)) and source and isinstance(source[0], (list, tuple)):
            yield self._from_tuples(source)
        elif hasattr(source, "__iter__") and not isinstance(source, (bytes, set)):
            for k, part in enumerate(source):
                if isinstance(part, (str, bytes)) or not hasattr(part, "__len__"):
                    raise _no_table(part)
                for *block, at in self._all_blocks(part):
                    yield *block, lambda p, at=at, k=k: f"{at(p)} (table {k})"  # type: ignore[misc]
        else:
            raise _no_table(source)

    def _from_columns(self, names: list[Any], column: Any, where: str) -> Block:
        parts = [column(j) for j in self.picked(names, where)]
        for part, name in zip(parts, (self.rows, self.columns, self.values)):
            if len(part) != len(parts[0]):
                raise InputError(
                    f"{name!r} and {self.rows!r} must have as many entries, got {len(part)} and "
                    f"{len(parts[0])}"
                )
        return (
            parts[0],
            parts[1],
            parts[2] if len(parts) > 2 else None,
            lambda p: f"row {p} of {where}",
        )

    def _from_tuples(self, source: Any) -> Block:
        width = len(source[0])
        odd = next((i for i, part in enumerate(source) if len(part) != width), None)
        if odd is not None:
            raise InputError(
                f"the list must have {width} cells in every row as at row 0, got {len(source[odd])} "
                f"at row {odd}. Give each row the same length."
            )
        return self._from_columns(
            list(range(width)), lambda j: [part[j] for part in source], "the list"
        )

    def _from_path(self, path: str) -> Iterator[Block]:
        path = arrow_pattern(path)
        if is_address(path) or is_database(path):
            raise InputError(
                f"{shown(path)} is a database and needs a query. Say sql='select ... from ...'."
            )
        if not path or not os.path.exists(path):
            files = sorted(glob.glob(path)) if glob.has_magic(path) else []
            if not files:
                raise FileError(
                    f"{path or 'an empty path'} "
                    + ("matches no file" if glob.has_magic(path) else "does not exist")
                )
        else:
            files = [path]
        for name in files:
            file = Path(name)
            ending = ending_of(file)
            if file.is_dir():
                raise FileError(
                    f"{name} must be a file, got a folder. Write {name}/*.parquet to read all files in "
                    "it."
                )
            if file.stat().st_size == 0:
                raise FileError(f"{name} is empty (0 bytes)")
            if ending in ARROW_FILES:
                names = arrow_head(file)[0].names
                kept = [names[j] for j in self.picked(names, file)]
                yield from self._from_arrow(arrow_batches(file, kept, BATCH_ROWS), str(file), kept)
            elif ending in TEXT_FILES or self.delimiter is not None:
                yield from self._from_csv(file)
            elif ending in OTHER_TABLES:
                yield from self._from_arrow(record_batches(OTHER_TABLES[ending](file)), name)
            else:
                raise FileError(
                    f"{name} must end in .csv, .tsv, .dat, .parquet, .arrow or .feather, got "
                    f"{ending or 'nothing'!r}. Say delimiter= if it is text."
                )

    def _from_csv(self, file: Path) -> Iterator[Block]:
        by_name = any(isinstance(name, str) for name in (self.rows, self.columns, self.values))
        number = self.values if isinstance(self.values, int) else None
        headed = True if by_name and self.header is None else self.header
        layout = CsvLayout.of(
            file, self.delimiter, self.decimal, headed, number, BATCH_BYTES, self.encoding
        )
        layout.options["convert_options"].null_values = [*NULLS, *self.missing]
        schema = layout.schema()
        names = schema.names
        kept = [
            names[j] for j in self.picked(names if layout.headed else list(range(len(names))), file)
        ]
        kinds = dict(zip(kept, (*[pa.dictionary(pa.int32(), pa.string())] * 2, pa.float64())))
        start, ways = 0, layout.ways(schema, kept[2:])
        for batch in layout.batches(kept, kinds, names, ways):
            parts = [batch.column(batch.schema.get_field_index(name)) for name in kept]

            def at(p: int, start: int = start) -> str:
                return f"line {layout.line(start + p)} of {file}"

            yield parts[0], parts[1], parts[2] if len(parts) > 2 else None, at
            start += batch.num_rows

    def _from_arrow(
        self, batches: Iterator[Any], where: str, kept: list[str] | None = None
    ) -> Iterator[Block]:
        start = 0
        for batch in batches:
            names = batch.schema.names
            found = (
                self.picked(names, where) if kept is None else [names.index(name) for name in kept]
            )
            parts = [batch.column(j) for j in found]

            def at(p: int, start: int = start) -> str:
                return f"row {start + p} of {where}"

            yield parts[0], parts[1], parts[2] if len(parts) > 2 else None, at
            start += batch.num_rows


def _absent(part: Any, words: tuple[str, ...]) -> np.ndarray:
    """Where a column holds one of the words; with "" among them also where it holds nothing."""
    if hasattr(part, "to_arrow") and not is_arrow(part):
        part = part.to_arrow()
    if not is_arrow(part):
        return np.fromiter(
            (
                v.strip() in words if isinstance(v, str) else "" in words and _nothing(v)
                for v in part
            ),
            bool,
            len(part),
        )
    kind = part.type.value_type if pa.types.is_dictionary(part.type) else part.type
    gone = (
        np.asarray(pc.is_null(part, nan_is_null=pa.types.is_floating(kind)))
        if "" in words
        else np.zeros(len(part), bool)
    )
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        said = pc.utf8_trim_whitespace(part.cast(kind))
        gone |= np.asarray(pc.fill_null(pc.is_in(said, value_set=pa.array(words, kind)), False))
    return gone


def _nothing(value: Any) -> bool:
    """Whether a cell of a frame or a list is None, NaN, or pandas' word for them."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, (float, np.floating)) and bool(value != value))
    )


def _taken(part: Any, kept: np.ndarray) -> Any:
    """The cells of a column at these places."""
    if hasattr(part, "to_arrow") and not is_arrow(part):
        part = part.to_arrow()
    if is_arrow(part):
        return part.take(pa.array(kept))
    if hasattr(part, "iloc"):
        return part.iloc[kept]
    return part[kept] if isinstance(part, np.ndarray) else [part[p] for p in kept]


def numbers(part: Any, name: Any, at: Place) -> np.ndarray:
    """A column of values in working precision; what is missing is NaN."""
    if hasattr(part, "to_arrow") and not is_arrow(part):
        part = part.to_arrow()
    if not is_arrow(part):
        return as_numbers(part, None, _named(name), at)
    t = pa.types
    if t.is_dictionary(part.type):
        part = part.cast(part.type.value_type)
    if not any(
        test(part.type)
        for test in (t.is_floating, t.is_integer, t.is_boolean, t.is_decimal, t.is_null)
    ):
        raise InputError(
            f"{_named(name)} must hold numbers, got {part.type} at {at(0)}. Choose another with "
            "values=."
        )
    if not (t.is_floating(part.type) or t.is_integer(part.type)):
        part = part.cast(pa.int8() if t.is_boolean(part.type) else pa.float64())
    array = part.to_numpy(zero_copy_only=False) if isinstance(part, pa.Array) else part.to_numpy()
    small = part.type in (pa.float32(), pa.float16())
    return array.astype(floating(np.float32 if small else np.float64), copy=False)


def _located(names: list[Any], axis: str, want: Any, where: Any) -> int:
    """Position of one column, asked for by its name or, where no column has that name, by its
    position."""
    if not isinstance(want, (str, int, tuple)) or isinstance(want, bool):
        raise invalid(
            axis,
            want,
            "the name of one column (or its position) because rows= is given",
            "read one value column at a time",
        )
    if names.count(want) > 1:
        raise InputError(
            f"columns of {where} must have names that differ, got {want!r} {names.count(want)} "
            "times. Rename it."
        )
    if want in names:
        return names.index(want)
    if isinstance(want, int) and 0 <= want < len(names):
        return want
    raise unknown_column(want, names, where, f"{axis}={want!r}")


def _named(name: Any) -> str:
    return f"column {name!r}"


def _no_table(source: Any) -> InputTypeError:
    return InputTypeError(
        "X must be a table in long form: a file, a frame, a dictionary of arrays or a list "
        f"of tuples, got a {type(source).__name__}"
    )
