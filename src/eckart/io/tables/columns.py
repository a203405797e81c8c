"""What the columns of a table file hold, found from its first rows: numbers, dates, text, or
numbers with a word among them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from eckart.errors import FileError
from eckart.io.tables.csv_file import CsvLayout
from eckart.io.tables.encodings import ending_of
from eckart.io.tables.frames import ARROW_FILES, arrow_batches, arrow_head, arrow_pattern
from eckart.io.tables.long_tables import TEXT_FILES
from eckart.io.tables.other_files import OTHER_TABLES
from eckart.io.tables.written_numbers import FOR_THE_EYE
from eckart.loading import pa

HEAD_ROWS = 2000
"""Rows from which the kinds are found: enough to meet a word among numbers and repeats among ids, in
a few milliseconds."""


class ShownColumn(NamedTuple):
    """``kind`` is "number", "row number" (a first column that only counts), "empty" (of a file that
    was seen whole), "date" or "text"; ``odd`` is a word that stands among cells that are mostly
    numbers, ``like`` a cell of texts that are all numbers for the eye: 1,234 or $5 or 7 %."""

    name: str
    kind: str
    odd: str | None = None
    like: str | None = None

    @property
    def description(self) -> str:
        """Name and kind in words."""
        return (
            f"{self.name} "
            f"({self.kind if self.like is None else f'numbers written like {self.like!r}'})"
        )


class TableHead(NamedTuple):
    """The columns of a file and its first rows (an Arrow table); ``named`` tells whether the file
    has names."""

    columns: list[ShownColumn]
    rows: Any
    named: bool


def head_of(
    file: str,
    delimiter: str | None = None,
    header: bool | None = None,
    words: Sequence[str] = (),
    whole: bool = False,
    encoding: str | None = None,
) -> TableHead | None:
    """None where a file has no columns of several kinds (arrays, sparse matrices, folders);
    ``whole`` gives all its rows."""
    file = arrow_pattern(file)
    path = Path(file if os.path.exists(file) else next(iter(sorted(glob.glob(file))), file))
    ending = ending_of(path)
    if not os.path.isfile(path) or path.stat().st_size == 0:
        return None
    if ending in ARROW_FILES:
        rows, named = _arrow_rows(path, whole), True
    elif ending in OTHER_TABLES:
        rows, named = OTHER_TABLES[ending](path), True
    elif (ending in TEXT_FILES or delimiter is not None) and ending not in (".npy", ".npz", ".mtx"):
        rows, named = _csv_rows(path, delimiter, header, words, whole, encoding)
    else:
        return None
    rows = rows if whole else rows.slice(0, HEAD_ROWS)
    columns = [_column(rows.column(j), name, words) for j, name in enumerate(rows.column_names)]
    if named and 0 < rows.num_rows < HEAD_ROWS:
        columns = [
            c._replace(kind="empty") if rows.column(j).null_count == rows.num_rows else c
            for j, c in enumerate(columns)
        ]
    if named and len(columns) > 1 and _counts(rows.column(0)):
        columns[0] = columns[0]._replace(kind="row number")
    return TableHead(columns, rows, named)


def _arrow_rows(path: Path, whole: bool) -> Any:
    schema, _ = arrow_head(path)
    batches = arrow_batches(path, schema.names, HEAD_ROWS)
    return pa.Table.from_batches(batches if whole else islice(batches, 1), schema)


def _csv_rows(
    path: Path,
    delimiter: str | None,
    header: bool | None,
    words: Sequence[str],
    whole: bool,
    encoding: str | None,
) -> tuple[Any, bool]:
    layout = CsvLayout.of(path, delimiter, None, header, encoding=encoding)
    layout.options["convert_options"].null_values = [
        *layout.options["convert_options"].null_values,
        *words,
    ]
    layout.options["parse_options"].newlines_in_values = whole
    schema = layout.schema()
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        at = [j + 1 for j, name in enumerate(names) if name == twice]
        description = "have no name" if twice == "" else f"are called {twice!r}"
        title = ". If the first line is a title, take it out." if twice == "" else ". Rename one."
        raise FileError(
            f"columns of {path} must have names that differ: columns {at[0]} and {at[1]} {description} "
            f"(first line){title}"
        )
    ways, gaps = layout.ways(schema, names), layout.gaps
    batches = layout.batches(names, {}, names)
    table = pa.Table.from_batches(batches if whole else islice(batches, 1), schema)
    for name, way in ways.items():
        if (found := way.plain(table.column(name), gaps)) is not None:
            table = table.set_column(names.index(name), name, found)
    return table, layout.headed


def _counts(cells: Any) -> bool:
    """Whether a column is 0, 1, 2 ... or 1, 2, 3 ... and so says nothing but where a row stands; a
    few rows may do so by chance."""
    if not pa.types.is_integer(cells.type) or len(cells) < 10 or cells.null_count:
        return False
    first = cells[0].as_py()
    return first in (0, 1) and cells.to_pylist() == list(range(first, first + len(cells)))


def _column(cells: Any, name: str, words: Sequence[str]) -> ShownColumn:
    t, kind = pa.types, cells.type
    if t.is_temporal(kind):
        return ShownColumn(name, "date")
    if any(
        test(kind) for test in (t.is_floating, t.is_integer, t.is_boolean, t.is_decimal, t.is_null)
    ):
        return ShownColumn(name, "number")
    if not (t.is_string(kind) or t.is_large_string(kind)):
        return ShownColumn(name, "text")
    texts = [cell for cell in cells.to_pylist() if cell is not None and cell not in words]
    odd = [cell for cell in texts if not _is_number(cell)]
    if odd and all(FOR_THE_EYE.fullmatch(cell.strip()) for cell in texts):
        return ShownColumn(name, "text", None, odd[0])
    # numbers with a word here and there: most cells are numbers
    return ShownColumn(name, "text", odd[0] if odd and 2 * len(odd) < len(texts) else None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


PROSE_WORDS = 8
"""Words from which a cell is a text: names, titles and levels have fewer, sentences as many."""


def is_prose(cells: Any) -> bool:
    """Whether most cells of a column are sentences."""
    texts = [cell for cell in cells.slice(0, 200).to_pylist() if isinstance(cell, str)]
    return 2 * sum(len(text.split()) >= PROSE_WORDS for text in texts) > len(texts)
