"""Tables out: as Parquet, Arrow, CSV or NumPy files and workbooks, block by block, under a
temporary name until complete."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, MissingError
from eckart.io.models.whole_files import check_place, replacing
from eckart.loading import pa, pc, pq

ENDINGS = (".parquet", ".arrow", ".csv", ".xlsx", ".npy")
SHEET = (2**20, 2**14)
"""Rows and columns that a sheet of a workbook has room for."""
FORMULAS = r"^[=+\-@\t\r]"
"""How a cell begins that a spreadsheet would calculate."""
escape_formulas: ContextVar[bool] = ContextVar("escape_formulas", default=False)
"""Whether texts in CSV files that begin like a formula get an apostrophe before them (``eckart
--escape-formulas``)."""


def write_table(
    path: Any, names: list[str], blocks: Iterator[tuple[np.ndarray, Any]], label: str = "row"
) -> int:
    """Write blocks of (values, row labels or None) with column names; returns the number of
    rows."""
    target = check_target(path)
    ending = target.suffix.lower()
    with replacing(target) as name:
        return (
            _write_npy(name, blocks)
            if ending == ".npy"
            else _write_arrow(name, ending, names, blocks, label)
        )


def write_long(path: Any, names: Sequence[str], blocks: Iterator[tuple[Any, ...]]) -> int:
    """Write blocks of columns (NumPy or Arrow arrays of one length, one for each name) as a table
    in long form; returns the number of rows."""
    target = check_target(path, long=True)
    if len(set(names)) < len(names):
        raise FileError(f"column names must differ, got {', '.join(map(repr, names))}. Rename one.")
    rows = 0
    with replacing(target) as name, _Writer(name, target.suffix.lower()) as out:
        for block in blocks:
            columns = [
                c if isinstance(c, (pa.Array, pa.ChunkedArray)) else _arrow(c) for c in block
            ]
            out.write(pa.table(columns, names=list(names)))
            rows += len(columns[0])
    return rows


def label_array(labels: Any) -> Any:
    """Labels as one Arrow array, text where they are mixed; ``take`` of positions makes a column of
    them."""
    return _label_column(labels, None, "labels")


def check_target(path: Any, long: bool = False) -> Path:
    """Refuse an ending or a folder that cannot be written, before any work is done; ``long`` tables
    have columns of several kinds."""
    target = Path(path)
    if long and target.suffix.lower() == ".npy":
        raise FileError(
            f"{target} must end in .parquet, .arrow, .csv or .xlsx for a table of ids and "
            "values, got an ending for one array of numbers"
        )
    if target.suffix.lower() not in ENDINGS:
        raise FileError(f"{target} must end in one of {', '.join(ENDINGS)}, got {target.suffix!r}")
    if target.suffix.lower() == ".xlsx" and find_spec("openpyxl") is None:
        raise MissingError(
            f"{target} is a workbook, which needs openpyxl: pip install 'eckart[xlsx]'; "
            "or write .csv"
        )
    return check_place(target)


def _write_npy(name: str, blocks: Iterator[tuple[np.ndarray, Any]]) -> int:
    """The header is written again when the number of rows is known: NumPy leaves room for it to
    grow."""
    rows, first = 0, None
    with open(name, "wb") as out:
        for values, _ in blocks:
            first = values if first is None else first
            if not rows:
                _npy_header(out, 0, first)
            out.write(np.ascontiguousarray(values, first.dtype).data)
            rows += len(values)
        if first is None:
            raise FileError("at least one row is needed to write, got none")
        out.seek(0)
        _npy_header(out, rows, first)
    return rows


def _npy_header(out: Any, rows: int, like: np.ndarray) -> None:
    about = {
        "descr": np.lib.format.dtype_to_descr(like.dtype),
        "fortran_order": False,
        "shape": (rows, *like.shape[1:]),
    }
    np.lib.format.write_array_header_1_0(out, about)


class _Writer:
    """Arrow tables of one schema into a file, the kind of which its ending says."""

    def __init__(self, name: str, ending: str):
        self.name, self.ending = name, ending
        self.file: Any = None

    def __enter__(self) -> _Writer:
        return self

    def write(self, table: Any) -> None:
        from pyarrow import csv

        if self.ending == ".csv" and escape_formulas.get():
            table = _escaped(table)
        if self.file is None:
            kinds = {
                ".parquet": pq.ParquetWriter,
                ".csv": csv.CSVWriter,
                ".arrow": pa.ipc.new_file,
                ".xlsx": _Workbook,
            }
            self.file = kinds[self.ending](self.name, table.schema)
        self.file.write_table(table)

    def __exit__(self, *error: Any) -> None:
        if self.file is not None:
            self.file.close()


class _Workbook:
    """One sheet, a line for each row below the names. No text of the data becomes a formula."""

    def __init__(self, name: str, schema: Any):
        from openpyxl import Workbook

        self.name, self.book, self.rows = name, Workbook(write_only=True), 1
        self.sheet = self.book.create_sheet("eckart")
        if len(schema.names) > SHEET[1]:
            raise FileError(
                f"a workbook must have at most {SHEET[1]:,} columns, got {len(schema.names):,}. "
                "Write .parquet or .csv."
            )
        self.sheet.append([self._cell(one) for one in schema.names])

    def write_table(self, table: Any) -> None:
        self.rows += table.num_rows
        if self.rows > SHEET[0]:
            raise FileError(
                f"a workbook must have at most {SHEET[0]:,} lines, got {self.rows:,}. Write "
                ".parquet or .csv."
            )
        for line in zip(*(column.to_pylist() for column in table.columns)):
            self.sheet.append([self._cell(value) for value in line])

    def close(self) -> None:
        self.book.save(self.name)

    def _cell(self, value: Any) -> Any:
        """A value as a sheet holds it: what is no finite number, text, yes or no, or time without a
        zone is written as text, NaN is an empty cell."""
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

        if value is None or value != value:
            return None
        if (
            isinstance(value, (datetime.date, datetime.time))
            and getattr(value, "tzinfo", None) is None
        ):
            return value
        if isinstance(value, (bool, int, float)) and abs(value) < float("inf"):
            return value
        cell = WriteOnlyCell(self.sheet, ILLEGAL_CHARACTERS_RE.sub("\ufffd", str(value)))
        cell.data_type = "s"
        return cell


def _escaped(table: Any) -> Any:
    """The table with an apostrophe before every text, names of columns included, that a spreadsheet
    would calculate."""
    texts = [pa.types.is_string(c.type) or pa.types.is_large_string(c.type) for c in table.columns]
    columns = [
        pc.replace_substring_regex(c, f"({FORMULAS})", r"'\1") if text else c
        for c, text in zip(table.columns, texts)
    ]
    return pa.table(
        columns,
        names=[f"'{name}" if re.match(FORMULAS, name) else name for name in table.column_names],
    )


def _write_arrow(
    name: str, ending: str, names: list[str], blocks: Iterator[tuple[np.ndarray, Any]], label: str
) -> int:
    rows, kind = 0, None
    with _Writer(name, ending) as out:
        for values, labels in blocks:
            columns = [] if labels is None else [_label_column(labels, kind, label)]
            kind = columns[0].type if columns else None
            columns += [
                pa.array(np.ascontiguousarray(values[:, j])) for j in range(values.shape[1])
            ]
            out.write(pa.table(columns, names=([] if labels is None else [label]) + names))
            rows += len(values)
    return rows


def _arrow(values: Any) -> Any:
    values = np.asarray(values)
    return label_array(values) if values.dtype.kind == "O" else pa.array(values)


def _label_column(labels: Any, kind: Any, name: str) -> Any:
    """Row labels of one kind: that of the first block, text where they are mixed."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iuM":
        return pa.array(labels, type=kind)
    values = [v.item() if isinstance(v, np.generic) else v for v in labels]
    try:
        return pa.array(values, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        if kind is None or pa.types.is_string(kind):
            return pa.array([None if v is None else str(v) for v in values], pa.string())
        odd = next((v for v in values if not _fits(v, kind)), values[0])
        raise FileError(
            f"labels of {name!r} must be of one kind, got {odd!r} after labels of type {kind}"
        ) from None


def _fits(value: Any, kind: Any) -> bool:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True
