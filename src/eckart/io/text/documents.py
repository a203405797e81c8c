"""Documents out of anything that holds text: files, folders, columns of tables, lists. One (name,
text) at a time, in order, never all at once.

    folder, pattern   each file is a document (a table or a JSONL file gives each of its rows); its
    name is its path below the folder
    .txt, .md ...     each line is a document, unless ``lines=False``; with ``split=`` what stands
    between lines that begin with it
    .jsonl, .ndjson   each line is an object (``text=`` names its member) or a string
    .csv, .tsv, .parquet, .arrow, frames, Arrow tables    each row; ``text=`` names the column,
    ``index=`` the one of names
    dictionary        name: text
    iterable          texts, or (name, text) pairs

Text files may be compressed (.gz). A text that is absent (None, NaN, an empty cell) is an empty
document: it keeps its row. Bytes that do not decode are refused with their offset, or
(``undecodable="replace"``) become U+FFFD, which ends a word, and are counted.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import json
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import chain, islice
from numbers import Real
from pathlib import Path
from typing import Any

from eckart.errors import FileError, InputError, InputTypeError, invalid, written
from eckart.index.alike import unknown_column
from eckart.io.tables.csv_file import CsvLayout
from eckart.io.tables.encodings import first_undecodable
from eckart.io.tables.frames import (
    ARROW_FILES,
    arrow_batches,
    arrow_head,
    is_arrow,
    is_frame,
    record_batches,
)
from eckart.io.text.shards import record_mark, records
from eckart.loading import pa

LINES = (".txt", ".text", ".md", ".rst")
JSON_LINES = (".jsonl", ".ndjson")
TABLES = (".csv", ".tsv")
READABLE = (*LINES, *JSON_LINES, *TABLES, *ARROW_FILES)
REPLACEMENT = "\ufffd"

Document = tuple[Any, str]
"""A name (None where there is none) and a text."""


@dataclass(frozen=True)
class Documents:
    """Documents of a source, read anew each time they are iterated over (a one-shot iterator is
    read once).

    >>> list(Documents({"a": "one text", "b": None}))
    [('a', 'one text'), ('b', '')]
    """

    source: Any
    text: str | int | None = None
    index: str | int | None = None
    lines: bool | None = None
    encoding: str = "utf-8"
    delimiter: str | None = None
    header: bool | None = None
    quotes: bool = True
    undecodable: str = "error"
    split: str | None = None
    _replaced: list[int] = field(default_factory=lambda: [0], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.undecodable not in ("error", "replace"):
            raise invalid("undecodable", self.undecodable, "'error' or 'replace'")
        if self.split is not None and not (isinstance(self.split, str) and self.split.strip()):
            raise invalid(
                "split",
                self.split,
                "the beginning of the lines that divide documents, such as '</DOC>' or '%%'",
            )
        try:
            codecs.lookup(self.encoding)
        except (LookupError, TypeError, ValueError):
            raise invalid(
                "encoding", self.encoding, "the name of an encoding, such as 'utf-8' or 'latin-1'"
            ) from None

    @property
    def replaced(self) -> int:
        """How many replacement characters stand for undecodable bytes, in what the last iteration
        has read."""
        return self._replaced[0]

    def __iter__(self) -> Iterator[Document]:
        source = self.source
        self._replaced[0] = 0
        if isinstance(source, (str, os.PathLike)):
            yield from self._path(os.fspath(source))
        elif is_arrow(source):
            yield from self._batches(record_batches(source), source.schema, "the Arrow table")
        elif is_frame(source):
            yield from self._frame(source)
        elif isinstance(source, dict):
            self._no_columns("a dictionary of texts")
            yield from ((name, text_of(text, name)) for name, text in source.items())
        elif hasattr(source, "index") and hasattr(source, "to_numpy"):  # a pandas Series
            yield from (
                (name, text_of(text, name))
                for name, text in zip(source.index.tolist(), source.tolist())
            )
        elif isinstance(source, Iterable) and not isinstance(source, bytes):
            self._no_columns("a list of texts")
            yield from _listed(source)
        else:
            raise InputTypeError(
                "documents must be a path, a table, or a list of texts, got a "
                f"{type(source).__name__}"
            )

    def record_mark(self) -> str | None:
        """The line that divides the records of a single text file, where it is written so and
        ``split`` is not said; None otherwise."""
        if self.split is not None or not isinstance(self.source, (str, os.PathLike)):
            return None
        file = Path(self.source)
        return (
            record_mark(self._lines(file))
            if os.path.isfile(file) and _kind(file) in LINES
            else None
        )

    def texts(self) -> Iterator[str]:
        """The texts without their names."""
        return (text for _, text in self)

    def _no_columns(self, what: str) -> None:
        for name, value in (("text", self.text), ("index", self.index)):
            if value is not None:
                raise InputError(
                    f"{name}={value!r} came, but {what} has no columns; leave it out, "
                    "or pass a table"
                )

    def _path(self, path: str) -> Iterator[Document]:
        file = Path(path)
        if path and os.path.isdir(file):
            found = sorted(f for f in file.rglob("*") if f.is_file() and _kind(f) in READABLE)
            if not found:
                raise FileError(
                    f"{path} must be a folder of text files, files that end in {', '.join(LINES)}, got "
                    "none"
                )
            return self._files(found, file)
        if path and os.path.exists(file):
            return self._file(file, self.lines is not False, None)
        if glob.has_magic(path):
            found = [Path(f) for f in sorted(glob.glob(path, recursive=True)) if os.path.isfile(f)]
            if not found:
                raise FileError(f"{path} matches no file")
            return self._files(found, None)
        raise FileError(_absent(path))

    def _files(self, files: list[Path], below: Path | None) -> Iterator[Document]:
        for file in files:
            name = file.relative_to(below).as_posix() if below is not None else file.name
            yield from self._file(file, self.lines is True, name)

    def _file(self, file: Path, lines: bool, name: str | None) -> Iterator[Document]:
        """One file; ``name`` is what it is called among others, None where it is alone."""
        kind = _kind(file)
        try:
            if file.stat().st_size == 0:
                if name is not None and kind not in ARROW_FILES and not lines:
                    yield name, ""  # an empty document among others
                    return
                raise FileError(f"{file} must hold text, got an empty file (0 bytes)")
            if kind in ARROW_FILES:
                schema, _ = arrow_head(file)
                wanted = [c for c in self._columns(schema, file) if c is not None]
                yield from _named(self._batches(arrow_batches(file, wanted), schema, file), name)
            elif kind in TABLES or (self.delimiter is not None and kind not in JSON_LINES):
                yield from _named(self._csv(file), name)
            elif kind in JSON_LINES:
                yield from _named(self._json_lines(file), name)
            elif self.split is not None:
                self._no_columns(str(file))
                yield from _named(records(self._lines(file), self.split), name)
            elif lines:
                self._no_columns(str(file))
                yield from _named(((None, line) for line in self._lines(file)), name)
            else:
                yield file.name if name is None else name, "".join(self._lines(file, keep=True))
        except (OSError, EOFError, zlib.error) as error:
            raise FileError(f"{file} cannot be read: {error}") from None

    def _lines(self, file: Path, keep: bool = False) -> Iterator[str]:
        """Decoded lines; bytes that do not decode are refused with their offset, or replaced and
        counted."""
        wide = codecs.lookup(self.encoding).name.startswith(("utf-16", "utf-32"))
        if wide:
            yield from self._decoded(file, keep)
            return
        seen = 0
        with (gzip.open if file.suffix.lower() == ".gz" else open)(file, "rb") as raw:
            for line in raw:
                begin, seen = seen, seen + len(line)
                if begin == 0 and line.startswith(codecs.BOM_UTF8):
                    line = line[3:]
                text = self._decode(line, file, begin)
                yield text if keep else text.rstrip("\r\n")

    def _decoded(self, file: Path, keep: bool) -> Iterator[str]:
        with (gzip.open if file.suffix.lower() == ".gz" else open)(file, "rb") as raw:
            data = raw.read()
        yield from self._decode(data, file, 0).splitlines(keepends=keep)

    def _decode(self, data: bytes, file: Path, offset: int) -> str:
        """The text of bytes that begin at ``offset`` of a file."""
        try:
            return data.decode(self.encoding)
        except UnicodeDecodeError as error:
            if self.undecodable == "error":
                raise _undecodable(
                    file, self.encoding, offset + error.start, data[error.start]
                ) from None
        text = data.decode(self.encoding, "replace")
        self._replaced[0] += text.count(REPLACEMENT) - data.decode(self.encoding, "ignore").count(
            REPLACEMENT
        )
        return text

    def _json_lines(self, file: Path) -> Iterator[Document]:
        member = self.text
        for number, line in enumerate(self._lines(file), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise FileError(
                    f"line {number} of {file} must be one JSON object, got something else ({error})"
                ) from None
            if isinstance(row, str):
                yield None, row
                continue
            if not isinstance(row, dict):
                raise FileError(
                    f"line {number} of {file} must be an object with a text, or a text, got a "
                    f"{type(row).__name__}"
                )
            if member is None:
                member = _only(
                    [k for k, v in row.items() if isinstance(v, str)], list(row), self.index, file
                )
            for name in (member, self.index):
                if name is not None and name not in row:
                    raise unknown_column(name, row, f"line {number} of {file}")
            yield (
                (None if self.index is None else row[self.index]),
                text_of(row[member], f"line {number}"),
            )

    def _csv(self, file: Path) -> Iterator[Document]:
        if self.undecodable == "replace" and first_undecodable(file, self.encoding) is not None:
            with tempfile.TemporaryDirectory() as folder:  # pyarrow reads clean text only
                clean = Path(folder) / Path(file.name.removesuffix(".gz")).name
                with clean.open("w", encoding="utf-8", newline="") as out:
                    out.writelines(self._lines(file, keep=True))
                yield from replace(self, source=clean, encoding="utf-8")._csv(clean)
            return
        yield from self._clean_csv(file)

    def _clean_csv(self, file: Path) -> Iterator[Document]:
        try:
            layout = CsvLayout.of(file, self.delimiter, ".", self.header, encoding=self.encoding)
            layout.options["parse_options"].newlines_in_values = self.quotes
            layout.options["parse_options"].quote_char = '"' if self.quotes else False
            schema = layout.schema()
            column, index = self._columns(schema, file)
            wanted = [column] + ([index] if index is not None else [])
            batches = layout.batches(wanted, {column: pa.large_string()}, schema.names)
            yield from self._batches(batches, None, file, (column, index))
        except FileError as error:
            bad = first_undecodable(file, self.encoding) if self.undecodable == "error" else None
            if bad is not None:
                raise _undecodable(file, self.encoding, *bad) from None
            do = "; say quotes=False if quotation marks are part of the text" if self.quotes else ""
            raise FileError(f"{error}{do}") from None

    def _columns(self, schema: Any, where: Any) -> tuple[Any, Any]:
        """Names of the column of text and of the one of names."""
        names = schema.names
        texts = [
            f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)
        ]
        index = _located(names, self.index, where)
        if self.text is None:
            return _only(texts, names, index, where), index
        return _located(names, self.text, where), index

    def _batches(
        self, batches: Iterable[Any], schema: Any, where: Any, columns: Any = None
    ) -> Iterator[Document]:
        column, index = self._columns(schema, where) if columns is None else columns
        seen = 0
        for batch in batches:
            texts = batch.column(batch.schema.get_field_index(column)).to_pylist()
            names = (
                [None] * len(texts)
                if index is None
                else batch.column(batch.schema.get_field_index(index)).to_pylist()
            )
            yield from (
                (n, text_of(t, f"row {seen + i}")) for i, (n, t) in enumerate(zip(names, texts))
            )
            seen += len(texts)

    def _frame(self, frame: Any) -> Iterator[Document]:
        names = list(frame.columns)
        index = _located(names, self.index, "the frame")
        if self.text is None:
            texts = [
                c for c in names if any(isinstance(v, str) for v in frame[c].head(100).to_list())
            ]
            column = _only(texts, names, index, "the frame")
        else:
            column = _located(names, self.text, "the frame")
        texts = frame[column].to_list()
        labels = frame[index].to_list() if index is not None else [None] * len(texts)
        if index is None and hasattr(frame, "index"):
            labels = frame.index.tolist()
        yield from ((n, text_of(t, f"row {i}")) for i, (n, t) in enumerate(zip(labels, texts)))


def documents(source: Any, **how: Any) -> Documents:
    """Documents as they are, or made of a source.

    >>> [text for _, text in documents(["first", ("named", "second")])]
    ['first', 'second']
    """
    return replace(source, **how) if isinstance(source, Documents) else Documents(source, **how)


def holds_text(path: str) -> bool:
    """Whether a path is a folder or a file of text by its ending, not a table."""
    return os.path.isdir(path) or _kind(Path(path)) in (*LINES, *JSON_LINES)


def _kind(file: Path) -> str:
    """The ending that says what a file holds."""
    return (Path(file.stem) if file.suffix.lower() == ".gz" else file).suffix.lower()


def _named(rows: Iterator[Document], name: str | None) -> Iterator[Document]:
    """Rows of a file among others are called after it."""
    if name is None:
        return rows
    return ((f"{name}:{i}" if own is None else own, text) for i, (own, text) in enumerate(rows, 1))


def _listed(source: Iterable[Any]) -> Iterator[Document]:
    if getattr(source, "ndim", 1) == 0:
        raise InputTypeError(
            "documents must be a path, a table, or a list of texts, got a "
            f"{type(source).__name__} without dimensions"
        )
    rows = iter(source)
    head = list(islice(rows, 1))
    pairs = bool(head) and isinstance(head[0], (tuple, list))
    for i, row in enumerate(chain(head, rows)):
        if isinstance(row, (tuple, list)) and len(row) == 2:
            yield row[0], text_of(row[1], i)
        elif pairs or isinstance(row, (tuple, list)):
            raise InputTypeError(
                f"document {i} must be a text or a pair of name and text, got {str(row)[:40]!r}"
            )
        else:
            yield None, text_of(row, i)


def text_of(value: Any, at: Any) -> str:
    """A text as it is, one that is missing as an empty one; what else document ``at`` may be is
    refused."""
    if isinstance(value, str):
        return value
    if (
        value is None
        or (isinstance(value, Real) and value != value)
        or type(value).__name__ in ("NAType", "NaTType")
    ):
        return ""
    raise InputTypeError(
        f"document {at!r} must be a text (str), got a {type(value).__name__} "
        f"({written(value)[:30]})"
    )


def _located(names: list[Any], want: str | int | None, where: Any) -> Any:
    """A column by its name, or by its position."""
    if want is None or want in names:
        return want
    if isinstance(want, int) and 0 <= want < len(names):
        return names[want]
    raise unknown_column(want, names, where)


def _only(texts: list[Any], names: list[Any], index: Any, where: Any) -> Any:
    """The column of text that was not named: the one called text, or the only one there is."""
    left = [name for name in texts if name != index]
    if "text" in left:
        return "text"
    if len(left) != 1:
        candidates_named = (
            f"the text columns {', '.join(map(str, left[:8]))}"
            if left
            else f"no text among {names[:8]}"
        )
        raise InputError(
            f"one column of {where} must hold the text, got {candidates_named}. Say which with text=."
        )
    return left[0]


def _absent(path: str) -> str:
    folder = Path(path).parent
    near = (
        get_close_matches(Path(path).name, os.listdir(folder), 3)
        if path and os.path.isdir(folder)
        else []
    )
    return f"{path or 'an empty path'} does not exist" + (
        f"; near ones are {', '.join(near)}" if near else ""
    )


def _undecodable(file: Path, encoding: str, offset: int, byte: int) -> FileError:
    return FileError(
        f"{file} is not {encoding} text: byte 0x{byte:02x} at offset {offset} cannot be "
        "decoded; save it as UTF-8, say encoding=, or "
        "undecodable='replace'"
    )
