"""The one reading of data for every command: how a file is written, which part of it is wanted, and
the same again for a saved model."""

from __future__ import annotations

import atexit
import re
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.options import CellOptions, TableOptions, TextOptions, TripleOptions
from eckart.errors import FileError, InputError, invalid
from eckart.index.alike import unknown_column
from eckart.io.read import read
from eckart.io.tables.columns import TableHead, head_of, is_prose
from eckart.io.tables.csv_file import NULLS
from eckart.io.tables.frames import titles
from eckart.io.tables.long_tables import Long
from eckart.io.tables.missing import Marks, unmark
from eckart.io.tables.other_files import images_in, read_images
from eckart.io.tables.triples import observed
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.matrix_blocks import of_each_part

SAMPLE_ROWS = 5000
"""Rows that pictures show: more would lie on top of one another."""


@dataclass
class Table:
    """The data, the labels that colour its map, and the height and width of rows that are
    images."""

    matrix: Any
    labels: np.ndarray | None = None
    image: tuple[int, int] | None = None

    def sample(self) -> tuple[Any, Any]:
        """Evenly spaced rows for pictures, with their labels (the first rows of a stream); None for
        sparse data too wide to show."""
        if self.matrix.shape[1] > 20_000:
            return None, None
        chosen = self._shown()
        if isinstance(self.matrix, Dense) and not self.matrix.in_memory:
            values = np.asarray(next(self.matrix.stream.blocks(SAMPLE_ROWS)))
            return values, None if self.labels is None else self.labels[: len(values)]
        if isinstance(self.matrix, Dense):
            values = np.asarray(self.matrix.array[chosen])
        else:
            part = self.matrix.to_scipy()[chosen]
            values = part.toarray()
            if isinstance(self.matrix, Observed):
                part.data = np.ones_like(part.data)
                values = np.where(part.toarray() > 0, values, np.nan)
        return values, None if self.labels is None else self.labels[chosen]

    def sample_names(self) -> list[str]:
        """What the rows of ``sample`` are called: by their ids where they have some, else by where
        they stand in the data."""
        chosen = self._shown()
        return (
            [f"row {at}" for at in chosen]
            if self.matrix.rows is None
            else list(map(str, self.matrix.rows[chosen]))
        )

    def _shown(self) -> np.ndarray:
        """Positions of the rows that pictures show: of a stream the first."""
        if isinstance(self.matrix, Dense) and not self.matrix.in_memory:
            return np.arange(SAMPLE_ROWS)
        count = int(self.matrix.shape[0] or 0)
        return np.unique(np.linspace(0, count - 1, min(count, SAMPLE_ROWS)).astype(int))


@dataclass(frozen=True)
class Reading:
    """How a file is to be read: as triples (three columns by name or position), as a table of
    numbers, or as text."""

    rows: str | int | None = None
    columns: str | int | None = None
    values: str | int | None = None
    duplicates: str = "error"
    index: str | int | None = None
    only: list[str] | None = None
    exclude: tuple[str, ...] = ()
    labels: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    missing: tuple[str, ...] = ()
    text: str | int | None = None
    lines: bool | None = None
    split: str | None = None
    encoding: str = "utf-8"
    undecodable: str = "error"
    quotes: bool = True

    @property
    def long(self) -> bool:
        return self.rows is not None

    @property
    def of_tables(self) -> str | None:
        """The encoding of tables, of which the first bytes may tell another than the usual one."""
        return None if self.encoding == "utf-8" else self.encoding

    @property
    def names(self) -> tuple[str, str, str]:
        """What rows, columns and values are called in tables that are written."""
        given = (self.rows if self.long else self.index, self.columns, self.values)
        return tuple(
            g if isinstance(g, str) else d for g, d in zip(given, ("row", "column", "value"))
        )  # type: ignore[return-value]

    def observed(self, file: str, shell: Any = None) -> Observed:
        """The observed entries of a file: triples, or a wide table with gaps."""
        how: dict[str, Any] = {
            "delimiter": self.delimiter,
            "header": self.header,
            "missing": self.missing,
            "encoding": self.of_tables,
        }
        if self.long:
            try:
                return self._triples(file, shell)
            except InputError as error:
                raise type(error)(_in_shell_words(str(error))) from None
        return observed(file, columns=self.wanted(file, shell), index=self.index, **how)  # type: ignore[arg-type]

    def _triples(self, file: str, shell: Any = None) -> Observed:
        """The observations of a file in long form; lines without an id or a value are left out,
        which is said, as are ids that look like none."""
        marks, gone = Marks.of(self.missing), dict[str, int]()
        # events have no values that could differ
        counted = self.values is None and self.duplicates == "error"
        found = Long(
            self.rows,
            self.columns,
            self.values,
            "sum" if counted else self.duplicates,
            self.delimiter,
            None,
            self.header,
            None,
            ("", *marks.words),
            lambda count, first: gone.update({first: count}),
            self.of_tables,  # by place: a file beyond memory is read twice
        ).read(file)
        if gone and shell is not None:
            many = sum(gone.values())
            lines = "1 observation is" if many == 1 else f"{many:,} observations are"
            shell.note(
                f"{lines} left out: an id or the value is missing, first at {next(iter(gone))}"
            )
        again = (
            int(sum(of_each_part(found, _total))) - found.nnz
            if counted and shell is not None
            else 0
        )
        if again:
            shell.note(f"{again:,} of {found.nnz + again:,} lines repeat a pair: they are counted")
        for axis, labels, name in (
            ("row", found.rows, self.names[0]),
            ("column", found.columns, self.names[1]),
        ):
            odd = next(
                (
                    word
                    for word in NULLS
                    if labels is not None and labels.dtype == object and word in labels
                ),
                None,
            )
            if odd is not None and shell is not None:
                shell.note(
                    f"the {axis} {odd!r} is taken for an id of {name}; say --missing "
                    f"{_quoted(odd)} if it stands for none"
                )
        return unmark(found, marks.numbers)  # type: ignore[return-value]  # a matrix of the kind that came

    def table(
        self,
        file: str,
        shell: Any = None,
        words: list[str] | None = None,
        image: tuple[int, int] | None = None,
    ) -> Table:
        """Numbers as they are; ``words`` name the columns of a file that has no names. Columns that
        hold none are left out, which is said."""
        if Path(file).is_dir() and images_in(file):
            values, names, size = read_images(file, image, *([] if shell is None else [shell.note]))
            return Table(Dense(values, names), None, size)
        columns = self.wanted(file, shell)
        how = {
            "delimiter": self.delimiter,
            "header": self.header,
            "missing": self.missing,
            "encoding": self.of_tables,
        }
        matrix = read(file, columns=columns, index=self.index, **how)  # type: ignore[arg-type]
        _tell_repeated(matrix.rows, self.index, shell)
        if words is not None:
            if len(words) != matrix.shape[1]:
                raise invalid(
                    "--vocabulary",
                    f"{len(words)} words",
                    f"{matrix.shape[1]}, one for each column of {file}",
                )
            matrix = replace(matrix, columns=titles(words))
        if self.labels is None:
            return Table(matrix)
        id_rows = read(file, columns=columns or _few(matrix), index=self.labels, **how).rows  # type: ignore[arg-type]
        if id_rows is None:
            raise InputError(
                f"--labels {self.labels} needs a table small enough to hold and with named columns"
            )
        return Table(matrix, id_rows)

    def wanted(self, file: str, shell: Any = None) -> list[str] | None:
        """The columns to read: those of --only, or all that hold numbers but for --exclude, the
        index and the labels; None for all there are."""
        if self.only is not None:
            return [name for name in self.only if name not in self.exclude]
        head = head_of(
            file, self.delimiter, self.header, Marks.of(self.missing).words, encoding=self.of_tables
        )
        if head is None:
            if self.exclude:
                raise InputError(
                    f"--exclude {','.join(self.exclude)} came, but {file} has no column "
                    "names; leave it out"
                )
            return None
        names = [c.name for c in head.columns]
        for name in (*self.exclude, *(n for n in (self.index, self.labels) if isinstance(n, str))):
            if name not in names:
                raise unknown_column(name, names, file)
        aside = {*self.exclude, self.index, self.labels} | ({""} if names[0] == "" else set())
        rest = [c for c in head.columns if c.name not in aside]
        words = [c for c in rest if c.kind != "number"]
        odd = next((c for c in words if c.odd is not None), None)
        if odd is not None:
            raise InputError(
                f"column {odd.name!r} of {file} holds {odd.odd!r} among numbers; say "
                f"--missing {_quoted(str(odd.odd))} if that stands for a "
                f"missing entry, or --exclude {_quoted(odd.name)}"
            )
        kept = [c.name for c in rest if c.kind == "number"]
        if not kept:
            if dressed := next((c for c in words if c.like is not None), None):
                raise InputError(
                    f"no column of {file} holds plain numbers ({_columns_shown(words)}); "
                    f"{_plainly(dressed.like)}"
                )
            prose = next(
                (f" {_quoted(c.name)}" for c in words if is_prose(head.rows.column(c.name))),
                " for a column of text",
            )
            raise InputError(
                f"no column of {file} holds numbers ({_columns_shown(words)}); say eckart "
                f"explain {file} --text{prose}, or --rows, --columns and --values for "
                "triples"
            )
        if words and shell is not None:
            first = next((c.name for c in words if c.kind in ("text", "row number")), None)
            hint = (
                f"; --index {_quoted(first)} or --labels {_quoted(first)} keeps a "
                "column beside the numbers"
                if first
                else ""
            )
            shell.note(f"left out of {called(file)}: {_columns_shown(words)}{hint}")
            if prose := next((c.name for c in words if is_prose(head.rows.column(c.name))), None):
                shell.note(
                    f"{prose} holds texts: eckart explain {called(file)} --text "
                    f"{_quoted(prose)} explains them by topics"
                )
            if dressed := next((c for c in words if c.like is not None), None):
                shell.note(
                    f"{dressed.name} would be read as numbers without their marks: "
                    f"{_plainly(dressed.like)}"
                )
        return (
            kept if len(kept) < len(names) - (names[0] == "") - (self.index is not None) else None
        )

    def head(self, file: str) -> TableHead | None:
        return head_of(
            file, self.delimiter, self.header, Marks.of(self.missing).words, encoding=self.of_tables
        )

    def of_text(self) -> dict[str, Any]:
        """The arguments of ``corpus`` and ``Documents``."""
        names = (
            "text",
            "index",
            "lines",
            "split",
            "encoding",
            "delimiter",
            "header",
            "quotes",
            "undecodable",
        )
        return {name: getattr(self, name) for name in names}

    def plan(self, x: Any) -> dict[str, Any]:
        """What a model remembers of its source; what is usual is not kept."""
        default = Reading()
        rules = getattr(x, "rules", None)
        ids = ("rows", "columns", "values", "index") if isinstance(x, Observed) else ()
        kept = {
            n: list(v) if isinstance(v, tuple) else v
            for n, v in vars(self).items()
            if v != getattr(default, n) and n not in (*ids, "only", "exclude", "labels")
        }
        if isinstance(x, Observed):
            names = {
                n: getattr(self, n)
                for n in (("rows", "columns", "values") if self.long else ("index",))
            }
            given_options = names if self.long or self.index else {}
            return {"names": given_options} | ({"read": kept} if kept else {})
        if isinstance(x, Counts) and rules is not None:
            return {"text": kept | {"rules": rules}}
        return {("text" if rules is not None else "read"): kept} if kept else {}


def reading_of(*groups: Any, plan: dict[str, Any] | None = None, shell: Any = None) -> Reading:
    """The options of a command; what is not said is taken from the plan of a model."""
    kept: dict[str, Any] = {}
    for part in ("names", "read", "text"):
        given_options = (plan or {}).get(part)
        kept |= (
            {n: v for n, v in given_options.items() if n in Reading.__dataclass_fields__}
            if isinstance(given_options, dict)
            else {}
        )
    kept["missing"] = tuple(kept.get("missing", ()))
    given: dict[str, Any] = {}
    long = any(isinstance(g, TripleOptions) for g in groups)
    for group in groups:
        given_options = vars(group)
        if isinstance(group, CellOptions):
            given["delimiter"] = {"tab": "\t", "\\t": "\t"}.get(
                group.delimiter or "", group.delimiter
            )
            given["header"], given["encoding"] = (
                (False if group.no_header else None),
                group.encoding,
            )
            given["missing"] = (
                tuple(m.strip() for part in group.missing or () for m in part.split(",")) or None
            )
        elif isinstance(group, TableOptions):
            if group.columns is not None and not long and shell is not None:
                shell.note(
                    f"--columns {group.columns} is taken as --only {group.columns}, "
                    "which is its name here"
                )
            only = group.only if group.only is not None or long else group.columns
            given["only"], given["exclude"] = _list(only), tuple(_list(group.exclude) or ()) or None
            given["index"], given["labels"] = _place(group.index), group.labels
        elif isinstance(group, TripleOptions):
            given |= {n: _place(given_options[n]) for n in ("rows", "columns", "values")} | {
                "duplicates": group.duplicates
            }
        elif isinstance(group, TextOptions):
            given |= {n: given_options[n] for n in ("lines", "encoding", "undecodable")} | {
                "text": _place(group.text)
            }
            given["quotes"], given["split"] = (
                (False if group.no_quotes else None),
                group.split_documents,
            )
    given = {name: value for name, value in given.items() if value is not None}
    if long:
        _check_triples(given, kept)
    return Reading(**kept | given)


def _check_triples(given: dict[str, Any], kept: dict[str, Any]) -> None:
    """Refuse half a question; an index means that there are no triples."""
    names = ("rows", "columns", "values")
    if "index" in given and any(n in given for n in names):
        raise InputError(
            f"--index {given['index']} is for a wide table, --rows, --columns and --values are "
            "for triples. Give one of them."
        )
    if given.get("duplicates", "error") not in ("error", "last", "mean", "sum"):
        raise invalid("--duplicates", given["duplicates"], "last, mean or sum")
    if "index" in given:
        for name in names:
            kept.pop(name, None)
    given_options = {n: (kept | given).get(n) for n in names}
    for name in ("rows", "columns"):
        if any(part is not None for part in given_options.values()) and given_options[name] is None:
            came = ", ".join(f"--{n} {v}" for n, v in given_options.items() if v is not None)
            raise InputError(
                f"--{name} must be given too, the columns that hold row ids and column ids, got "
                f"{came}"
            )
    if given_options["rows"] is not None:
        kept.pop("index", None)
    elif given.get("duplicates", "error") != "error":
        raise invalid(
            "--duplicates",
            given["duplicates"],
            "--rows and --columns beside it: only triples can repeat a cell",
        )


def _total(x: Observed) -> float:
    return float(x.data.sum(dtype=np.float64))


STANDARD_INPUT = "standard input"


def local(file: str, usual: str = ".csv") -> str:
    """The path of the data; what comes from standard input (-) is kept in a file until the command
    ends."""
    if file != "-":
        return file
    data = sys.stdin.buffer.read()
    if not data:
        raise FileError(
            "standard input must hold data, got nothing. Write the name of a file instead of -."
        )
    magic = {
        b"PAR1": ".parquet",
        b"\x93NUMPY": ".npy",
        b"ARROW1": ".arrow",
        b"PK\x03\x04": ".npz",
        b"{": ".jsonl",
    }
    ending = next((end for start, end in magic.items() if data.startswith(start)), usual)
    folder = tempfile.mkdtemp(prefix="eckart-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / f"{STANDARD_INPUT}{ending}"
    path.write_bytes(data)
    return str(path)


def called(file: str) -> str:
    """The data's name for people: the file as it was given, or standard input."""
    return STANDARD_INPUT if Path(file).stem == STANDARD_INPUT else file


def described(file: str, x: Any) -> str:
    """The data in a line."""
    file = called(file)
    n = "unknown" if x.shape[0] is None else f"{x.shape[0]:,}"
    if hasattr(x, "words_read"):
        kept = x.words_read - x.words_dropped
        return (
            f"{file}: {n} documents, {x.shape[1]:,} words in the vocabulary, {kept:,} of "
            f"{x.words_read:,} words of text kept"
        )
    words = {Dense: "", Counts: f", {getattr(x, 'nnz', 0):,} counts"}.get(type(x))
    if words is None:
        words = (
            f", {x.nnz:,} observed ({100 * x.nnz / max(1, x.shape[0] * x.shape[1]):.3g}% of all "
            "cells)"
        )
    return f"{file}: {n} rows x {x.shape[1]:,} columns{words}"


def facts(file: str, x: Any) -> dict[str, Any]:
    """The data for --json."""
    given_options = {
        "file": file,
        "rows": x.shape[0],
        "columns": x.shape[1],
        "kind": type(x).__name__,
    }
    return given_options | {
        n: getattr(x, n) for n in ("nnz", "words_read", "words_dropped") if hasattr(x, n)
    }


def fitting(fitted: Any, model: Any, data: str, reading: Reading) -> Matrix:
    """A table in the columns of a saved model, by their names where the file has names."""
    names = fitted.fit_.factors.columns
    named = names is not None and all(isinstance(n, str) for n in names)
    head = reading.head(data) if named else None
    if head is not None and head.named:
        reading, named = replace(reading, only=reading.only or list(names)), False
    matrix: Matrix = reading.table(data).matrix
    if matrix.shape[1] != fitted.n_features_in_:
        raise InputError(
            f"{data} must have the {fitted.n_features_in_} columns of {model}, got "
            f"{matrix.shape[1]}. Choose them with --only."
        )
    return replace(matrix, columns=names) if named and matrix.columns is None else matrix


def _tell_repeated(ids: np.ndarray | None, name: Any, shell: Any) -> None:
    """Ids that name more than one row: a person who looks one up finds several."""
    if shell is None or ids is None or name is None:
        return
    often = [(one, count) for one, count in Counter(ids.tolist()).most_common() if count > 1]
    if often:
        more = f" ({len(often):,} ids come more than once)" if len(often) > 1 else ""
        shell.note(
            f"--index {name} names several rows alike: {often[0][0]} stands "
            f"{often[0][1]} times{more}; each stays a row of its own"
        )


def _few(matrix: Matrix) -> list[str] | None:
    """One column is enough to read the labels beside it."""
    return None if matrix.columns is None else [str(matrix.columns[0])]


def _list(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",")] if text else None


def _place(text: str | None) -> str | int | None:
    """A column by its name, or by its position where it is written as a number."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def _in_shell_words(line: str) -> str:
    """An error of a table in long form with what a person in the shell can do."""
    line = re.sub(
        r"[Ss]ay duplicates=(.*)", lambda m: "Say --duplicates " + m[1].replace("'", ""), line
    )
    none = re.search(r"an id, got '(\S+)' at .*(Drop the entries that have none)", line)
    return (
        line
        if none is None
        else line.replace(none[2], f"Say --missing {none[1]} to leave such lines out")
    )


def _quoted(text: str) -> str:
    return text if text.replace("_", "").replace("-", "").isalnum() else "'" + text + "'"


def _plainly(like: str | None) -> str:
    """What to do about numbers with marks for the eye."""
    like = like or ""
    return (
        f"save the file with plain digits, {re.sub('[^0-9.-]', '', like.replace(',', ''))} for "
        f"{like!r}"
    )


def _columns_shown(columns: list[Any]) -> str:
    more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
    return ", ".join(c.description for c in columns[:8]) + more
