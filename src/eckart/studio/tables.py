"""Data files as the page shows them: columns with their kinds and gaps, a sample, and pages of
tables with millions of rows.

A table is read once into Arrow columns and kept while its file stays as it is; files above
``LARGEST`` are shown by their first rows. Arrays and sparse matrices have columns without names,
texts are documents, images are rows of grey values.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.reading import Reading
from eckart.errors import EckartError, FileError
from eckart.io.read import read
from eckart.io.tables.columns import head_of
from eckart.io.tables.other_files import images_in, read_images
from eckart.io.text.documents import Documents, holds_text
from eckart.loading import pa, pc
from eckart.matrix import Dense
from eckart.serve.problems import Problem

SAMPLE, EXAMPLES, LONGEST = 50, 3, 300
"""Rows of the sample; examples of a column; characters of a cell that are sent."""
LARGEST = 2 * 2**30
"""Bytes of a file up to which all of its rows are held; beyond, its first ones."""
FEW_LABELS = 20
"""Different values up to which a column of text names groups."""
MOST_COLUMNS = 2000
"""Columns whose facts are sent."""


@dataclass(eq=False)
class Sheet:
    """A data file. ``rows`` is an Arrow table of all rows (of the first ones where ``whole`` is
    False), None for texts."""

    path: Path
    reading: Reading
    kind: str
    rows: Any = None
    whole: bool = True
    image: tuple[int, int] | None = None
    orders: dict[tuple[str, bool], Any] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[dict[str, Any]]:
        """Name, kind, gaps and extent of each column."""
        if self.rows is None:
            return []
        head = (
            head_of(
                str(self.path),
                self.reading.delimiter,
                self.reading.header,
                encoding=self.reading.of_tables,
            )
            if self.kind == "table"
            else None
        )
        kinds = {c.name: c for c in head.columns} if head else {}
        return [
            _facts(self.rows.column(j), name, kinds.get(name))
            for j, name in enumerate(self.rows.column_names[:MOST_COLUMNS])
        ]

    @property
    def gaps(self) -> tuple[int, int]:
        """How many cells there are, and how many of them are empty: of all columns."""
        if self.rows is None:
            return 0, 0
        return self.rows.num_rows * self.rows.num_columns, sum(
            c.null_count for c in self.rows.columns
        ) + self._nan()

    def card(self) -> dict[str, Any]:
        """What the page shows first."""
        rows, (cells, missing) = self.rows, self.gaps
        return {
            "kind": self.kind,
            "rows": rows.num_rows if rows is not None and self.whole else None,
            "bytes": _size(self.path),
            "columns": self.columns,
            "columns_total": 0 if rows is None else rows.num_columns,
            "gaps_from": 0 if rows is None else rows.num_rows,
            "gaps_total": {"cells": cells, "missing": missing},
            "sample": None if rows is None else _page(rows.slice(0, SAMPLE)),
            "documents": self._documents() if rows is None else None,
            "image": self.image and dict(zip(("height", "width"), self.image)),
        }

    def page(
        self, first: int, count: int, sort: str | None = None, down: bool = False
    ) -> dict[str, Any]:
        """Some rows, in the order of the file or of a column."""
        if self.rows is None:
            raise Problem(
                422,
                f"{self.path.name} must be a table, got texts. The documents are in GET /api/data.",
            )
        total = self.rows.num_rows
        at = None if sort is None else self.order(sort, down)[first : first + count]
        part = self.rows.slice(first, count) if at is None else self.rows.take(at)
        return {"rows_total": total, "first": first, "order": sort, "whole": self.whole} | _page(
            part
        )

    def order(self, column: str, down: bool) -> np.ndarray:
        """Positions in the order of a column, missing ones last; kept, since scrolling asks
        again."""
        if column not in self.rows.column_names:
            raise Problem(422, f"sort must be a column of {self.path.name}, got {column[:80]!r}")
        key = column, down
        if key not in self.orders:
            way = "descending" if down else "ascending"
            found = pc.sort_indices(self.rows.column(column), sort_keys=[("", way)])
            while len(self.orders) >= 4:  # each is 8 bytes a row
                self.orders.pop(next(iter(self.orders)))
            self.orders[key] = found.to_numpy()
        return self.orders[key]

    def _nan(self) -> int:
        floats = [c for c in self.rows.columns if pa.types.is_floating(c.type)]
        return sum(_nan_count(c) for c in floats)

    def _documents(self) -> dict[str, Any]:
        found = list(itertools.islice(Documents(str(self.path), **self.reading.of_text()), SAMPLE))
        shown = [{"id": cell(name), "text": text[: 4 * LONGEST]} for name, text in found]
        return {"count_seen": len(found), "examples": shown}


def naming(sheet: Sheet) -> dict[str, str | None]:
    """The columns of text that name rows (``index``: all are different) and groups of them
    (``labels``: few are)."""
    seen = min(sheet.rows.num_rows, 2000)
    texts = [c for c in sheet.columns if c["kind"] == "text" and not c["gaps"] and c["odd"] is None]
    index = next((c["name"] for c in texts if c["distinct"] == seen and seen > 2), None)
    labels = next(
        (c["name"] for c in texts if 2 <= c["distinct"] <= min(FEW_LABELS, seen // 3)), None
    )
    return {"index": index, "labels": labels}


def open_sheet(path: Path, reading: Reading | None = None) -> Sheet:
    """A file (or folder) of data, read; what cannot be is refused in the words of the reader."""
    reading = reading or Reading()
    try:
        return _opened(path, reading)
    except EckartError as error:
        raise Problem(422, " ".join(str(error).split())) from None
    except (OSError, MemoryError) as error:
        raise Problem(422, f"{path.name} cannot be read: {error}") from None


def _opened(path: Path, reading: Reading) -> Sheet:
    if path.is_dir():
        if not images_in(path):
            return Sheet(path, reading, "texts")
        values, names, size = read_images(path)
        return Sheet(path, reading, "images", _of_array(values, names), image=size)
    if path.stat().st_size == 0:
        raise FileError(f"{path.name} is empty (0 bytes)")
    whole = path.stat().st_size <= LARGEST
    head = head_of(
        str(path), reading.delimiter, reading.header, whole=whole, encoding=reading.of_tables
    )
    if head is not None and not (
        path.suffix.lower() == ".txt" and reading.delimiter is None and _is_prose(head)
    ):
        return Sheet(path, reading, "table", head.rows, whole)
    if path.suffix.lower() in (".npy", ".npz", ".mtx") or path.name.lower().endswith(".mtx.gz"):
        return _of_numbers(path, reading, whole)
    if holds_text(str(path)):
        return Sheet(path, reading, "texts")
    raise FileError(
        f"{path.name} must be .csv, .parquet, .npy, .txt or the like, got no data that eckart reads"
    )


def _is_prose(head: Any) -> bool:
    """Whether what could be read as a table is lines of text: a table in a .txt file has several
    columns, and numbers in some."""
    return len(head.columns) < 2 or not any(
        c.kind in ("number", "row number") for c in head.columns
    )


def _of_numbers(path: Path, reading: Reading, whole: bool) -> Sheet:
    x = read(str(path))
    most = (x.shape[0] or 0) if whole else SAMPLE
    if isinstance(x, Dense):
        most = min(most, max(SAMPLE, LARGEST // (8 * max(1, x.shape[1]))))
        return Sheet(
            path, reading, "array", _of_array(np.asarray(x.array[:most])), most == x.shape[0]
        )
    dense = x.to_scipy()[: min(SAMPLE, x.shape[0]), :200].toarray()
    return Sheet(path, reading, "sparse", _of_array(dense), False)


def _of_array(values: np.ndarray, names: Any = None) -> Any:
    """Numbers as an Arrow table whose columns are called x0, x1, ... as everywhere in eckart."""
    columns = {
        f"x{j}": np.ascontiguousarray(values[:, j])
        for j in range(min(values.shape[1], MOST_COLUMNS))
    }
    return pa.table(({} if names is None else {"file": [str(n) for n in names]}) | columns)


def _facts(cells: Any, name: str, facts: Any) -> dict[str, Any]:
    numbers = pa.types.is_floating(cells.type) or pa.types.is_integer(cells.type)
    head = cells.slice(0, 2000)
    found: dict[str, Any] = {
        "name": name,
        "kind": facts.kind if facts else "number" if numbers else "text",
        "odd": facts.odd if facts else None,
        "gaps": cells.null_count + (_nan_count(cells) if pa.types.is_floating(cells.type) else 0),
        "distinct": len(set(map(str, head.to_pylist()))),
        "examples": [cell(v) for v in head.drop_null().slice(0, EXAMPLES).to_pylist()],
    }
    if numbers and len(cells):
        kept = cells if pa.types.is_integer(cells.type) else pc.filter(cells, pc.is_finite(cells))
        ends = pc.min_max(kept).as_py()
        found |= {
            "least": cell(ends["min"]),
            "most": cell(ends["max"]),
            "mean": cell(pc.mean(kept).as_py()),
        }
    return found


def _nan_count(cells: Any) -> int:
    return int(pc.sum(pc.is_nan(cells).cast("int64")).as_py() or 0)


def _page(rows: Any) -> dict[str, Any]:
    columns = [rows.column(j).to_pylist() for j in range(min(rows.num_columns, MOST_COLUMNS))]
    lines = [[cell(v) for v in line] for line in zip(*columns)] if columns else []
    return {"columns": rows.column_names[:MOST_COLUMNS], "rows": lines}


def cell(value: Any) -> Any:
    """A cell as JSON holds it; long texts are cut."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, np.generic):
        return cell(value.item()) if value.dtype.kind != "M" else str(value)
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _size(path: Path) -> int:
    return (
        sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
        if path.is_dir()
        else path.stat().st_size
    )
