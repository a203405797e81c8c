"""What complete, recommend and certify share: files into observed entries, words into ids, and the names by which a model calls its sides."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError, wrong
from eckart.index.ids import Ids
from eckart.index.labels import Labels
from eckart.io.tables.csv_file import NULLS
from eckart.io.tables.frames import ARROW_FILES, arrow_batches, arrow_head
from eckart.io.tables.long_tables import Long
from eckart.io.tables.triples import observed
from eckart.matrix import Observed


@dataclass(frozen=True)
class Source:
    """How observations are written in a file: as triples, the three columns by name or position, or as a wide table with empty cells."""

    rows: str | int | None = None
    columns: str | int | None = None
    values: str | int | None = None
    index: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    duplicates: str = "error"

    @property
    def long(self) -> bool:
        return self.rows is not None

    @property
    def names(self) -> tuple[str, str, str]:
        """What rows, columns and values are called in tables that are written."""
        rows = self.rows if self.long else self.index
        given = (rows, self.columns, self.values)
        return tuple(g if isinstance(g, str) else d for g, d in zip(given, ("row", "column", "value")))  # type: ignore[return-value]

    def load(self, file: str) -> Observed:
        """The observed entries of a file."""
        how: dict[str, Any] = {"delimiter": self.delimiter, "header": self.header}
        if not self.long:
            return observed(file, index=self.index, **how)
        return observed(
            file, rows=self.rows, columns=self.columns, values=self.values, duplicates=self.duplicates, **how
        )

    def plan(self) -> dict[str, Any]:
        """What a model remembers of its source, for its plan."""
        if not self.long:
            return {"names": {"index": self.index} if self.index else {}}
        names = {"rows": self.rows, "columns": self.columns, "values": self.values}
        how = {"delimiter": self.delimiter, "header": self.header}
        kept = {name: value for name, value in how.items() if value is not None}
        kept |= {} if self.duplicates == "error" else {"duplicates": self.duplicates}
        return {"names": names} | ({"read": kept} if kept else {})


def source_of(
    rows: str | None,
    columns: str | None,
    values: str | None,
    index: str | None = None,
    delimiter: str | None = None,
    no_header: bool = False,
    duplicates: str | None = None,
    plan: dict[str, Any] | None = None,
) -> Source:
    """The options of a command as a Source; what is not said is taken from the plan of a model."""
    kept = plan or {}
    names, how = (part if isinstance(part, dict) else {} for part in (kept.get("names"), kept.get("read")))
    told = {
        name: _place(given) if given is not None else names.get(name)
        for name, given in (("rows", rows), ("columns", columns), ("values", values))
    }
    if index is not None and any(part is not None for part in (rows, columns, values)):
        raise InputError(
            f"--index {index} came beside --rows, --columns or --values, wanted one of them: a wide table has an index, triples have rows"
        )
    for name in ("rows", "columns"):
        if any(part is not None for part in told.values()) and told[name] is None:
            came = ", ".join(f"--{n} {v}" for n, v in told.items() if v is not None)
            raise InputError(f"{came} came without --{name}, wanted the columns that hold row ids and column ids")
    if duplicates is not None and duplicates not in ("error", "last", "mean", "sum"):
        raise wrong("--duplicates", duplicates, "last, mean or sum")
    if duplicates not in (None, "error") and told["rows"] is None:
        raise wrong("--duplicates", duplicates, "--rows and --columns beside it: only triples can repeat a cell")
    if index is not None:
        told = {}
    header = how.get("header")
    return Source(
        **told,
        index=names.get("index") if index is None and not told.get("rows") else index,
        delimiter={"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter) or how.get("delimiter"),
        header=False if no_header else header,
        duplicates=duplicates or how.get("duplicates", "error"),
    )


def _place(text: str) -> str | int:
    """A column by its name, or by its position where it is written as a number."""
    return int(text) if text.isascii() and text.isdigit() else text


def as_kind(ids: Any, labels: Labels) -> np.ndarray:
    """Ids out of a shell or a text file as the kind of the labels: integers, text, dates; what cannot be one of them is refused by name."""
    ids = np.asarray(ids)
    if labels.kind == "text":
        return _objects(ids, str)
    if labels.kind == "ids":
        return _objects(ids, lambda x: _likely(x, labels))
    texts = ids.dtype.kind in "OU" and any(isinstance(x, str) for x in ids.tolist())
    if not texts:
        return ids
    wanted, convert = ("a date", _date) if labels.kind == "dates" else ("an integer", _integer)
    if labels.kind == "positions":
        wanted = f"a position of 0 to {labels.size - 1}"
    try:
        return np.array([convert(x) for x in ids.tolist()])
    except (ValueError, OverflowError):
        bad = next(x for x in ids.tolist() if not _converts(x, convert))
        told = "the model has no labels there" if labels.kind == "positions" else f"the labels are {labels.kind}"
        raise InputError(f"{labels.axis} {bad!r} came, wanted {wanted}: {told}") from None


def _objects(ids: np.ndarray, convert: Any) -> np.ndarray:
    out = np.empty(len(ids), object)
    out[:] = [convert(x) for x in ids.tolist()]
    return out


def _likely(text: Any, labels: Labels) -> Any:
    """Among labels of mixed kinds, the one that is written like the text."""
    for convert in (lambda x: x, int, float):
        try:
            found = convert(text)
            if not labels.unknown(np.array([found], object))[0]:
                return found
        except (ValueError, TypeError, InputError):
            continue
    return text


def _integer(x: Any) -> int:
    return int(x.strip()) if isinstance(x, str) else int(x)


def _date(x: Any) -> np.datetime64:
    moment = np.datetime64(x.strip() if isinstance(x, str) else x)
    if np.isnat(moment):
        raise ValueError(x)
    return moment


def _converts(x: Any, convert: Any) -> bool:
    try:
        convert(x)
    except (ValueError, OverflowError):
        return False
    return True


def for_model(x: Observed, row_ids: Labels | None, column_ids: Labels) -> Observed:
    """Entries out of a file with the labels of a model, whatever kind the file wrote them in; with ``row_ids`` in its rows and their order too."""
    if x.columns is not None and column_ids.labels is not None:
        x = replace(x, columns=as_kind(x.columns, column_ids))
    if row_ids is None:
        return x
    if x.rows is None or row_ids.labels is None:
        if x.shape[0] != row_ids.size:
            raise InputError(f"the data has {x.shape[0]} rows, wanted {row_ids.size} as in the model")
        return x
    at = row_ids.indices_of(as_kind(x.rows, row_ids))
    if len(at) == row_ids.size and bool((at == np.arange(len(at))).all()):
        return replace(x, rows=row_ids.labels)
    i = np.repeat(at, x.row_counts())
    return Observed.from_codes(i, x.indices, x.data, (row_ids.size, x.n_columns), row_ids.labels, x.columns)


def pairs_in(file: str, source: Source) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row ids and column ids of a file of pairs, block by block, in the order of the file."""
    if not source.long:
        raise wrong("--pairs", file, "--rows and --columns beside it: the columns that hold the ids")
    blanks = tuple(NULLS) if Path(file).suffix.lower() not in ARROW_FILES else None
    table = Long(source.rows, source.columns, None, "last", source.delimiter, ".", source.header)
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
        raise FileError(f"{file} has no row, wanted at least one pair of ids")


def ids_in(file: str, name: str, labels: Labels) -> np.ndarray:
    """The ids of a file: its column of that name, or the first one; a text file without such a name is one id a line."""
    path = Path(file)
    if path.suffix.lower() in ARROW_FILES:
        import pyarrow as pa

        schema = arrow_head(path)[0]
        kept = name if name in schema.names else schema.names[0]
        column = pa.chunked_array([batch.column(0) for batch in arrow_batches(path, [kept])], schema.field(kept).type)
        ids: Any = column.to_numpy() if pa.types.is_temporal(column.type) else np.array(column.to_pylist(), object)
    else:
        ids = np.array(_first_cells(path, name), object)
    if not len(ids):
        raise FileError(f"{file} has no id, wanted one a line")
    return as_kind(ids, labels)


def _first_cells(path: Path, name: str) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as text:
            lines = [line for line in csv.reader(text) if line and any(cell.strip() for cell in line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    head = [cell.strip() for cell in lines[0]] if lines else []
    at = head.index(name) if name in head else 0
    return [line[at].strip() for line in lines[1 if name in head else 0 :] if len(line) > at]
