"""CSV files through pyarrow: header, delimiter, decimal mark and missing cells are found from the
first lines, large files stay row blocks.

What the first lines of a CSV file say of it: the mark between cells, that of decimals, and
whether there is a header.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eckart.errors import FileError, InputError, invalid
from eckart.io.tables.encodings import encoding_of, opened, text_bytes, undecodable
from eckart.io.tables.frames import arrow_columns, arrow_dtype, hold, titles
from eckart.io.tables.row_blocks import ArrowBlocks
from eckart.io.tables.written_numbers import Written, plain_batches, written
from eckart.loading import arrow_csv, pa
from eckart.matrix import Dense
from eckart.scheduler import in_order, resolve_threads

BLOCK_BYTES = 4 * 2**20
"""How much of a file is read at a time."""

RANGE_BYTES = 4 * 2**20
"""How much of a long file a thread parses at a time: some 20 ms, and little memory for 16 of
them."""

PROSE = 5
"""Words from which a text is prose."""
LOOKED_AT = 2000
"""Cells of a column of text that tell whether they are numbers written for people."""

LONG_MARK = "\x1f"
"""What a delimiter of several characters, such as ``::``, becomes on the way to pyarrow: the unit
separator of ASCII."""


@dataclass(frozen=True)
class CsvLayout:
    """How a CSV file is to be read: what its first lines say where the caller did not."""

    file: Path
    delimiter: str
    headed: bool
    options: dict[str, Any]
    only_line: str | None
    """The text of a file of one line, which pyarrow reads only when the line ends."""
    encoding: str
    decimal_said: bool

    @classmethod
    def of(
        cls,
        file: Path,
        delimiter: str | None,
        decimal: str | None,
        header: bool | None,
        number: int | None = None,
        block: int = BLOCK_BYTES,
        encoding: str | None = None,
    ) -> CsvLayout:
        """``number`` is the position of a column whose first cell tells names from numbers;
        ``block`` bytes are read at a time."""
        encoding, decimal_said = encoding_of(file, encoding), decimal is not None
        lines = first_lines(file, encoding)
        tabs = file.name.lower().endswith((".tsv", ".tsv.gz"))
        mark = delimiter or (
            "\t" if tabs else likely_mark(lines, "." if decimal is None else decimal)
        )
        decimal = likely_decimal(file, mark, encoding) if decimal is None else decimal
        check_marks(mark, decimal)
        if (wide := lines[0].count(mark) + 1) > MOST_COLUMNS:
            raise FileError(
                f"{file} must have at most {MOST_COLUMNS:,} columns in a text file, got {wide:,}. "
                "Save the table as .npy or .parquet."
            )
        headed = has_header(lines, mark, decimal, number) if header is None else header
        if headed and len(lines) == 1:
            raise FileError(f"{file} is empty: it has a header and no row")
        longest = 8 * max(len(line) for line in lines)
        options: dict[str, Any] = {
            "read_options": arrow_csv.ReadOptions(
                autogenerate_column_names=not headed, block_size=min(max(block, longest), 2**30)
            ),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=mark if len(mark) == 1 else LONG_MARK
            ),
            "convert_options": arrow_csv.ConvertOptions(decimal_point=decimal, null_values=NULLS),
        }
        if len(lines) > 1 and len(mark) == 1:  # else the text is made UTF-8 on the way to pyarrow
            options["read_options"].encoding = encoding
        return cls(
            file,
            mark,
            headed,
            options,
            lines[0] if len(lines) == 1 else None,
            encoding,
            decimal_said,
        )

    def schema(self) -> Any:
        """Names and types as the first block shows them."""
        try:
            with arrow_csv.open_csv(self._source(), **self.options) as reader:
                return reader.schema
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise self._refused(error, []) from None

    @property
    def gaps(self) -> list[str]:
        """Cells that stand for a missing entry."""
        return list(self.options["convert_options"].null_values)

    def ways(self, schema: Any, names: list[str], sure: bool | None = None) -> dict[str, Written]:
        """Which of these columns are texts that are numbers written for people, and how, from their
        first cells; ``sure``: as if decimals were known."""
        texts = [name for name in names if pa.types.is_string(schema.field(name).type)]
        if not texts:
            return {}
        convert, gaps = self.options["convert_options"], set(self.gaps)
        convert.include_columns, convert.column_types = texts, dict.fromkeys(texts, pa.string())
        with arrow_csv.open_csv(self._source(), **self.options) as reader:
            head = next(iter(reader)).slice(0, LOOKED_AT)
        convert.include_columns, convert.column_types = [], {}
        decimal, found = convert.decimal_point, dict[str, Written]()
        for name in texts:
            cells = [cell for cell in head.column(name).to_pylist() if cell.strip() not in gaps]
            if (way := written(cells, decimal, True)) is None:
                continue
            sure = (
                sure
                or self.decimal_said
                or decimal == ","
                or points_are_decimal(self.file, self.delimiter, self.encoding)
            )
            if sure or written(cells, decimal, False) is not None:
                found[name] = way
        return found

    def batches(
        self,
        columns: list[str],
        kinds: dict[str, Any],
        names: list[str],
        ways: dict[str, Written] | None = None,
    ) -> Iterator[Any]:
        """Record batches of these columns, of these types where given; ``names`` are those of all
        columns, ``ways`` tell how some are written."""
        if ways:
            kinds = kinds | dict.fromkeys(ways, pa.string())
            yield from plain_batches(
                self.batches(columns, kinds, names), ways, self.gaps, self.line, self.file
            )
            return
        self.options["convert_options"].include_columns = columns
        self.options["convert_options"].column_types = kinds
        try:
            if len(cuts := self._cuts()) > 2:
                yield from self._side_by_side(cuts, names)
                return
            with arrow_csv.open_csv(self._source(), **self.options) as reader:
                yield from reader
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise self._refused(error, names) from None

    def _cuts(self) -> list[int]:
        """Where a long file may be cut, at ends of lines; nowhere inside unless every end of a line
        is the end of a row in plain bytes."""
        size, read = self.file.stat().st_size, self.options["read_options"]
        quoted = self.options["parse_options"].newlines_in_values or len(self.delimiter) > 1
        if (
            quoted
            or self.file.suffix.lower() == ".gz"
            or read.encoding.lower() not in ("utf8", "utf-8")
        ):
            return [0, size]
        cuts = [0]
        with self.file.open("rb") as raw:
            if not raw.readline().strip():  # the header is not in the first line
                return [0, size]
            while cuts[-1] + RANGE_BYTES < size:
                raw.seek(cuts[-1] + RANGE_BYTES)
                raw.readline()
                cuts.append(raw.tell())
        return [*cuts, size] if cuts[-1] < size else cuts

    def _side_by_side(self, cuts: list[int], names: list[str]) -> Iterator[Any]:
        """Ranges of bytes parsed on all cores, handed over in their order; every column has the
        type that the first block shows."""
        convert = self.options["convert_options"]
        wanted = set(convert.include_columns)  # asked once: it makes a new list each time
        shown = {f.name: f.type for f in self.schema() if f.name in wanted}
        convert.column_types = shown | convert.column_types
        others = {name: value for name, value in self.options.items() if name != "read_options"}

        def parsed(span: tuple[int, int]) -> Any:
            with self.file.open("rb") as raw:
                raw.seek(span[0])
                text = raw.read(span[1] - span[0])
            read = arrow_csv.ReadOptions(
                column_names=names,
                skip_rows=int(self.headed and span[0] == 0),
                block_size=len(text) + 1,
                use_threads=False,
            )
            return arrow_csv.read_csv(io.BytesIO(text), read_options=read, **others)

        for table in in_order(itertools.pairwise(cuts), parsed, resolve_threads(None)):
            yield from table.to_batches()

    def _refused(self, error: Exception, names: list[str]) -> FileError:
        """pyarrow's complaint with the line, which it tells only when it reads with one thread."""
        self.options["read_options"].use_threads = False
        try:
            with arrow_csv.open_csv(self._source(), **self.options) as reader:
                for _ in reader:
                    pass
        except Exception as again:
            error = again
        finally:
            self.options["read_options"].use_threads = True
        return _bad_csv(self, error, names)

    def _source(self) -> Any:
        if self.only_line is not None:
            text = self.only_line.encode() + b"\n"
            return pa.py_buffer(
                text
                if len(self.delimiter) == 1
                else text.replace(self.delimiter.encode(), LONG_MARK.encode())
            )
        if len(self.delimiter) == 1:
            return self.file
        return pa.PythonFile(_OneMark(self.file, self.delimiter.encode(), self.encoding), mode="r")

    def line(self, row: int) -> int:
        """The line, counted from 1, on which a row of data stands."""
        left = row + self.headed
        with opened(self.file, "rt", encoding=self.encoding, errors="replace", newline="\n") as raw:
            for number, text in enumerate(raw, 1):
                if text.strip("\r\n"):
                    if left == 0:
                        return number
                    left -= 1
        return row + self.headed + 1

    def first_text(self, schema: Any, names: list[str]) -> str:
        """Where the first of these columns that is no number holds its first text, in words."""
        at = next(
            (
                i
                for i, name in enumerate(schema.names)
                if name in names and str(schema.field(i).type) == "string"
            ),
            None,
        )
        if at is None:
            return ""
        decimal, row = self.options["convert_options"].decimal_point, 0
        with arrow_csv.open_csv(self._source(), **self.options) as reader:
            for batch in reader:
                for cell in batch.column(at).to_pylist():
                    if cell is not None and not is_number(str(cell).strip(), decimal):
                        text = str(cell).strip()
                        prose = " Texts are explained by eckart explain FILE --text COLUMN."
                        return (
                            f" The first text is {text[:40]!r} at line {self.line(row)}."
                            f"{prose * (len(text.split()) >= PROSE)}"
                        )
                    row += 1
        return ""

    def refuse_blank_lines(self) -> None:
        """A blank line between the rows of one column may be a missing value or nothing: say
        which."""
        blank = None
        with opened(self.file, "rt", encoding=self.encoding, errors="replace", newline="\n") as raw:
            seen = False
            for number, text in enumerate(raw, 1):
                if text.strip():
                    if blank is not None and seen:
                        raise FileError(
                            f"{self.file} has a blank line between the rows of its one "
                            f"column, line {blank}; "
                            "write NaN where a value is missing, or take the line out"
                        )
                    seen = True
                elif seen and blank is None:
                    blank = number


class _OneMark(io.RawIOBase):
    """A file in which a delimiter of several characters is replaced by one that no text holds, as
    it is read."""

    def __init__(self, file: Path, mark: bytes, encoding: str = "utf-8"):
        self._raw, self._mark, self._rest, self._ready = opened(file), mark, b"", b""
        self._decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._ready:
            chunk = self._raw.read(BLOCK_BYTES if size < 0 else max(size, 1))
            if self._decoder is not None and chunk:
                chunk = self._decoder.decode(chunk).encode()
                if not chunk:  # a part of a character
                    continue
            if LONG_MARK.encode() in chunk:
                raise FileError(
                    f"{self._raw.name} holds the control character {LONG_MARK!r}; it "
                    "cannot be read with delimiter="
                )
            text = (self._rest + chunk).replace(self._mark, LONG_MARK.encode())
            # the start of a mark may stand at the end of a chunk
            held = next(
                (
                    k
                    for k in range(len(self._mark) - 1, 0, -1)
                    if chunk and text.endswith(self._mark[:k])
                ),
                0,
            )
            self._ready, self._rest = text[: len(text) - held], text[len(text) - held :]
            if not chunk:
                break
        out, self._ready = (
            (self._ready, b"") if size < 0 else (self._ready[:size], self._ready[size:])
        )
        return out

    def close(self) -> None:
        self._raw.close()
        super().close()


def read_csv(
    file: Path,
    columns: list[str] | None,
    index: str | None,
    delimiter: str | None,
    decimal: str | None,
    header: bool | None,
    held: int,
    words: tuple[str, ...] = (),
    encoding: str | None = None,
) -> Dense:
    """A CSV file of at most ``held`` bytes as an array, a larger one as row blocks; ``words`` are
    more cells that stand for a missing entry."""
    layout = CsvLayout.of(file, delimiter, decimal, header, encoding=encoding)
    layout.options["convert_options"].null_values = [*NULLS, *words]
    schema = layout.schema()
    header_names = schema.names
    if (
        index is None
        and layout.headed
        and header_names[0] == ""
        and "" not in (columns or [])
        and len(header_names) > 1
    ):
        index = ""
    if (
        columns is None
        and layout.headed
        and len(header_names) > 1
        and header_names[-1] == ""
        and pa.types.is_null(schema.field(len(header_names) - 1).type)
    ):
        # every row ends in a comma, the header too: no column
        columns = [name for name in header_names[:-1] if name != index]
    names, index = arrow_columns(schema, columns, index, file)
    ways = layout.ways(schema, names)
    for name in ways:
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.float64()))
    try:
        dtype = arrow_dtype(schema, names, file)
    except InputError as error:
        unsure = next(iter(layout.ways(schema, names, sure=True)), None)
        other = (
            "or save the file with another delimiter"
            if layout.delimiter == ","
            else "or decimal=','"
        )
        do = (
            ""
            if unsure is None
            else f" Column {unsure!r} may have decimals there, or thousands apart: say "
            f"decimal='.', {other}"
        )
        raise InputError(f"{error}{layout.first_text(schema, names)}{do}") from None
    if len(header_names) == 1:
        layout.refuse_blank_lines()
    if index is not None and pa.types.is_binary(schema.field(index).type):
        raise undecodable(file, layout.encoding)
    kinds = {
        n: schema.field(n).type if pa.types.is_boolean(schema.field(n).type) else pa.float64()
        for n in names
    }
    wanted = names + ([index] if index is not None else [])
    shown = titles(names) if layout.headed else None
    if text_bytes(file) > held:
        blocks = ArrowBlocks(
            names,
            shown,
            dtype,
            None,
            lambda: layout.batches(wanted, kinds, header_names, ways),
            [file],
        )
        return Dense(blocks, columns=shown)
    values, labels = hold(layout.batches(wanted, kinds, header_names, ways), names, index, dtype)
    return Dense(values, labels, shown)


def _bad_csv(layout: CsvLayout, error: Exception, names: list[str]) -> FileError:
    """pyarrow's complaint with the column by name."""
    file = layout.file
    words = " ".join(str(error).replace(LONG_MARK, layout.delimiter).split())
    words = re.sub(
        r"Row #(\d+):", lambda row: f"line {layout.line(int(row[1]) - 1 - layout.headed)}:", words
    )
    found = re.search(
        r"In CSV column #(\d+):(?: line (\d+):)? CSV conversion error to ([^:]+): "
        r"invalid value (.*)",
        words,
    )
    if found and int(found[1]) < len(names):
        at = f" at line {found[2]}" if found[2] else ""
        wanted = {"double": "numbers only", "bool": "true and false only"}.get(
            found[3], f"{found[3]} as in the rows before it"
        )
        return FileError(
            f"column {names[int(found[1])]!r} of {file} must hold {wanted}, got {found[4]}{at}"
        )
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in words:
        return undecodable(file, layout.encoding)
    return FileError(
        f"{file} cannot be read as CSV: {words}; every row needs the same number of "
        "cells of one kind"
    )


NULLS = ["", "NA", "NaN", "nan", "null", "None", "N/A", "n/a", "NULL", "#N/A", "<NA>"]
"""Cells of a CSV file that stand for a missing entry: what R, pandas, databases and spreadsheets
write."""
NULLS_IN_TEXT = [word for word in NULLS if word != "None"]
"""The same in a column of words, in which "None" is an answer as often as a gap."""


LONGEST_LINE = 16 * 2**20
"""Characters of a line: 200,000 columns of 80 characters."""
MOST_COLUMNS = 200_000
"""Of a text table. Each column takes some 14 kB while a file is read (measured: 1.4 GB at 100,000),
however few its rows."""


def first_lines(file: Path, encoding: str = "utf-8", most: int = 2) -> list[str]:
    """The first lines that are not blank, as text."""
    lines: list[str] = []
    encoding = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
    try:
        with opened(file, "rt", encoding=encoding, newline="") as raw:
            while len(lines) < most and (line := raw.readline(LONGEST_LINE)):
                if len(line) == LONGEST_LINE:
                    raise FileError(
                        f"{file} must have a line for each row, got a line of more than {LONGEST_LINE:,} "
                        "characters. See --delimiter and line ends."
                    )
                if line.strip():
                    lines.append(line)
    except UnicodeError:  # "utf-16" without its mark included
        raise undecodable(file, encoding) from None
    if not lines:
        raise FileError(f"{file} is empty: it has no row")
    if "\0" in "".join(lines):
        raise FileError(
            f"{file} is not text: it holds zero bytes; save it as UTF-8 text, or say "
            "its encoding ('utf-16-le' has such bytes)"
        )
    return lines


def check_marks(delimiter: str, decimal: str) -> None:
    for name, mark, most in (("delimiter", delimiter, 4), ("decimal", decimal, 1)):
        long = (
            isinstance(mark, str) and 1 < len(mark) <= most and not any(c.isalnum() for c in mark)
        )
        if (
            not isinstance(mark, str)
            or not (len(mark) == 1 or long)
            or not mark.isascii()
            or set(mark) & set('\n\r"')
        ):
            raise invalid(
                name, mark, "one character" + (", or several such as '::'" if most > 1 else "")
            )
    if delimiter == decimal:
        raise invalid("delimiter", delimiter, f"another character than decimal={decimal!r}")


def has_header(lines: list[str], delimiter: str, decimal: str, number: int | None) -> bool:
    """Names are what is not a number; the count 0, 1, 2 ... is how pandas names columns, unless the
    next line is whole numbers too."""
    cells, *rest = [_cells(line, delimiter) for line in lines]
    if number is not None and number < len(cells):
        return not is_number(cells[number], decimal)
    if any(not is_number(cell, decimal) for cell in cells):
        return True
    labelled = cells[0] == "" and len(cells) > 2
    counting = cells[labelled:] == [str(i) for i in range(len(cells) - labelled)] and len(cells) > 1
    return bool(
        counting
        and rest
        and (labelled or not all(re.fullmatch(r"[+-]?\d+", cell) for cell in rest[0]))
    )


def _cells(line: str, delimiter: str) -> list[str]:
    if len(delimiter) > 1:
        return [cell.strip() for cell in line.split(delimiter)]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error:
        return [cell.strip(' "\r\n') for cell in line.split(delimiter)]


def likely_mark(lines: list[str], decimal: str) -> str:
    """The mark that stands outside quotes as often in the second line as in the first, and most
    often."""
    bare = [re.sub(r'"[^"]*"', "", line) for line in lines]
    if (
        all(re.search(r"[^:]::[^:]", line) for line in bare)
        and len({line.count("::") for line in bare}) == 1
    ):  # as MovieLens writes its tables
        return "::"
    marks = [mark for mark in ",;\t|" if mark != decimal]
    return max(
        marks,
        key=lambda mark: (len({line.count(mark) for line in bare} - {0}) == 1, bare[0].count(mark)),
    )


DECIMAL_LINES = 200
"""Lines in which decimals are looked for: measurements that are all whole in so many of them hardly
have any."""


def likely_decimal(file: Path, delimiter: str, encoding: str = "utf-8") -> str:
    """A comma where cells of the first lines hold numbers with one, none has a point, and they are
    not all groups of thousands (``1,234``); else a point."""
    if delimiter == ",":
        return "."
    cells = _first_cells(file, delimiter, encoding)
    if any(re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})+,\d+(\s?%)?", cell) for cell in cells):  # 1.234,5
        return "." if points_are_decimal(file, delimiter, encoding) else ","
    commas = [cell for cell in cells if re.fullmatch(r"[+-]?\d+,\d+([eE][+-]?\d+|\s?%)?", cell)]
    points = any(re.fullmatch(r"[+-]?\d*\.\d+([eE][+-]?\d+|\s?%)?", cell) for cell in cells)
    return (
        ","
        if not points
        and any(not re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}(\s?%)?", cell) for cell in commas)
        else "."
    )


def points_are_decimal(file: Path, delimiter: str, encoding: str = "utf-8") -> bool:
    """Whether a cell of the first lines has a point that cannot stand between thousands, as 1.234
    might: 3.14, 0.125 or 1,234.5."""
    sure = re.compile(
        r"[+-]?(\d{1,3}(,\d{3})+\.\d+|(?![1-9]\d{0,2}\.\d{3}(\s?%)?$)\d*\.\d+([eE][+-]?\d+)?)(\s?%)?"
    )
    return any(sure.fullmatch(cell) for cell in _first_cells(file, delimiter, encoding))


def _first_cells(file: Path, delimiter: str, encoding: str) -> set[str]:
    return {
        cell
        for line in first_lines(file, encoding, DECIMAL_LINES)
        for cell in _cells(line, delimiter)
    }


def is_number(cell: str, decimal: str) -> bool:
    if cell in NULLS:
        return True
    try:
        float(cell.replace(decimal, "."))
    except ValueError:
        return False
    return True
