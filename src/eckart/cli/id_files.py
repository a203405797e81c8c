"""Ids in files: lists and pairs of them, titles that stand for them, and entries in the ids of a
model."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.reading import Reading
from eckart.errors import FileError, InputError, invalid
from eckart.index.alike import unknown_column
from eckart.index.ids import Ids
from eckart.index.labels import Labels
from eckart.io.tables.columns import head_of
from eckart.io.tables.csv_file import NULLS, first_lines
from eckart.io.tables.encodings import encoding_of, ending_of
from eckart.io.tables.frames import ARROW_FILES, arrow_batches, arrow_head
from eckart.io.tables.long_tables import TEXT_FILES, Long
from eckart.loading import pa
from eckart.matrix import Observed
from eckart.query.ids import parse_ids


def for_model(x: Observed, row_ids: Labels | None, column_ids: Labels) -> Observed:
    """Entries out of a file with the labels of a model, whatever kind the file wrote them in; with
    ``row_ids`` in its rows and their order too."""
    if x.columns is not None and column_ids.labels is not None:
        x = replace(x, columns=parse_ids(x.columns, column_ids))
    if row_ids is None:
        return x
    if x.rows is None or row_ids.labels is None:
        if x.shape[0] != row_ids.size:
            raise InputError(
                f"the data must have {row_ids.size} rows as in the model, got {x.shape[0]}"
            )
        return x
    at = row_ids.indices_of(parse_ids(x.rows, row_ids))
    if len(at) == row_ids.size and bool((at == np.arange(len(at))).all()):
        return replace(x, rows=row_ids.labels)
    i = np.repeat(at, x.row_counts())
    return Observed.from_codes(
        i, x.indices, x.data, (row_ids.size, x.n_columns), row_ids.labels, x.columns
    )


def pairs_in(file: str, source: Reading) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row ids and column ids of a file of pairs, block by block, in the order of the file."""
    if not source.long:
        raise invalid(
            "--pairs", file, "--rows and --columns beside it: the columns that hold the ids"
        )
    blanks = tuple(NULLS) if Path(file).suffix.lower() not in ARROW_FILES else None
    table = Long(
        source.rows,
        source.columns,
        None,
        "last",
        source.delimiter,
        ".",
        source.header,
        encoding=source.of_tables,
    )
    seen = 0
    for rows, columns, _, at in table._blocks(file):
        out = []
        for ids, name in ((rows, source.names[0]), (columns, source.names[1])):
            side = Ids(f"column {name!r}", blanks)
            side.take(ids, at)
            codes, labels = side.finish(at)
            out.append(labels[codes])
        seen += len(out[0])
        yield out[0], out[1]
    if not seen:
        raise FileError(f"{file} must have at least one row, a pair of ids, got none")


def ids_in(file: str, name: str, labels: Labels) -> np.ndarray:
    """The ids of a file: its column of that name, or the first one; a text file without such a name
    is one id a line."""
    path = Path(file)
    if path.suffix.lower() in ARROW_FILES:
        schema = arrow_head(path)[0]
        kept = name if name in schema.names else schema.names[0]
        column = pa.chunked_array(
            [batch.column(0) for batch in arrow_batches(path, [kept])], schema.field(kept).type
        )
        ids: Any = (
            column.to_numpy()
            if pa.types.is_temporal(column.type)
            else np.array(column.to_pylist(), object)
        )
    else:
        ids = np.array(_first_cells(path, name), object)
    if not len(ids):
        raise FileError(f"{file} must have at least one row, one id a line, got none")
    return parse_ids(ids, labels)


def _first_cells(path: Path, name: str) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as text:
            lines = [
                line for line in csv.reader(text) if line and any(cell.strip() for cell in line)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    head = [cell.strip() for cell in lines[0]] if lines else []
    at = head.index(name) if name in head else 0
    return [line[at].strip() for line in lines[1 if name in head else 0 :] if len(line) > at]


class Titles:
    """Titles of ids, out of ``FILE:ID:TITLE``: a table and the columns that hold the ids and their
    titles, by name or position."""

    def __init__(self, spec: str, labels: Labels, source: Reading | None = None):
        file, *names = spec.rsplit(":", 2)
        if len(names) != 2 or not all((file, *names)):
            raise invalid("--titles", spec, "FILE:ID:TITLE, such as movies.csv:movieId:title")
        table, picked = side_table(file, names, f"--titles {spec}", source)
        ids, texts = (table.column(name).to_pylist() for name in picked)
        self.of = {_key(i): str(t) for i, t in zip(parse_ids(ids, labels), texts) if t is not None}

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """The title of each id; the id itself where the table has none."""
        out = np.empty(len(ids), object)
        out[:] = [self.of.get(_key(i), str(i)) for i in ids]
        return out


def _key(i: Any) -> Any:
    return i.item() if isinstance(i, np.generic) else i


def side_table(
    file: str, columns: list[str], came: str, source: Reading | None = None
) -> tuple[Any, list[str]]:
    """A table beside the data, and the names of these of its columns, which are given by name or
    position.

    It is written as the data are (--delimiter, --no-header, --encoding) where its first line can be
    so divided, else as it seems.
    """
    if not Path(file).is_file():
        raise FileError(f"{came} came, but {file} does not exist")
    mark, how = (
        None if source is None else source.delimiter,
        {"encoding": None if source is None else source.of_tables},
    )
    if (
        mark is not None
        and ending_of(Path(file)) in TEXT_FILES
        and mark in first_lines(Path(file), encoding_of(Path(file), how["encoding"]))[0]
    ):
        how["delimiter"] = mark
    head = head_of(file, whole=True, **how)  # type: ignore[arg-type]
    if (
        head is not None
        and all(name.isdigit() for name in columns)
        and not set(columns) <= set(head.rows.column_names)
    ):
        head = head_of(file, header=False, whole=True, **how)  # type: ignore[arg-type]
    if head is None:
        raise FileError(
            f"{file} must be a table with columns: .csv, .tsv, .dat, .parquet, .arrow, .xlsx or "
            ".jsonl"
        )
    names = head.rows.column_names
    picked = [
        names[int(c)]
        if (c not in names or not head.named) and c.isdigit() and int(c) < len(names)
        else c
        for c in columns
    ]
    for name in picked:
        if name not in names:
            raise unknown_column(name, names, file, f"{came}: column {name!r}")
    return head.rows, picked
