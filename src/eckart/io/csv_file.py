"""CSV files through pyarrow: header, delimiter and missing cells are found from the first lines, large files stay row blocks."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from eckart.errors import FileError, wrong
from eckart.io.frames import arrow_columns, arrow_dtype, hold, titles
from eckart.io.sources import ArrowBlocks
from eckart.matrix import Dense

NULLS = ["", "NA", "NaN", "nan", "null", "None", "N/A"]
"""Cells of a CSV file that stand for a missing entry."""


def read_csv(
    file: Path,
    columns: list[str] | None,
    index: str | None,
    delimiter: str | None,
    decimal: str,
    header: bool | None,
    held: int,
) -> Dense:
    """A CSV file of at most ``held`` bytes as an array, a larger one as row blocks."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    lines = _first_lines(file)
    mark = delimiter or ("\t" if file.suffix.lower() == ".tsv" else _sniff(lines, decimal))
    _check_marks(mark, decimal)
    headed = _has_header(lines, mark, decimal) if header is None else header
    if headed and len(lines) == 1:
        raise FileError(f"{file} is empty: it has a header and no row")
    longest = 8 * max(len(line) for line in lines)
    options: dict[str, Any] = {
        "read_options": arrow_csv.ReadOptions(
            autogenerate_column_names=not headed, block_size=min(max(4 * 2**20, longest), 2**30)
        ),
        "parse_options": arrow_csv.ParseOptions(delimiter=mark),
        "convert_options": arrow_csv.ConvertOptions(decimal_point=decimal, null_values=NULLS),
    }
    # pyarrow cannot read one line that does not end
    source: Any = pa.py_buffer(lines[0].encode() + b"\n") if len(lines) == 1 else file
    try:
        with arrow_csv.open_csv(source, **options) as reader:
            schema = reader.schema
            told = schema.names
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _bad_csv(file, error, []) from None
    if index is None and headed and told[0] == "" and "" not in (columns or []) and len(told) > 1:
        index = ""
    names, index = arrow_columns(schema, columns, index, file)
    dtype = arrow_dtype(schema, names, file)
    if index is not None and pa.types.is_binary(schema.field(index).type):
        raise FileError(f"column {index!r} of {file} is not UTF-8 text; save the file as UTF-8")
    convert = options["convert_options"]
    convert.include_columns = names + ([index] if index is not None else [])
    convert.column_types = {
        n: schema.field(n).type if pa.types.is_boolean(schema.field(n).type) else pa.float64() for n in names
    }

    def batches() -> Any:
        try:
            with arrow_csv.open_csv(source, **options) as reader:
                yield from reader
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise _bad_csv(file, error, told) from None

    shown = titles(names) if headed else None
    if file.stat().st_size > held:
        return Dense(ArrowBlocks(names, shown, dtype, None, batches), columns=shown)
    values, labels = hold(batches(), names, index, dtype)
    return Dense(values, labels, shown)


def _first_lines(file: Path) -> list[str]:
    """The first two lines that are not blank, as text."""
    lines: list[str] = []
    try:
        with file.open(encoding="utf-8-sig", newline="") as raw:
            while len(lines) < 2 and (line := raw.readline()):
                if line.strip():
                    lines.append(line)
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from None
    if not lines:
        raise FileError(f"{file} is empty: it has no row")
    if "\0" in "".join(lines):
        raise FileError(f"{file} is not text: it holds zero bytes; save it as UTF-8 text")
    return lines


def _check_marks(delimiter: str, decimal: str) -> None:
    for name, mark in (("delimiter", delimiter), ("decimal", decimal)):
        if not isinstance(mark, str) or len(mark) != 1 or not mark.isascii() or mark in '\n\r"':
            raise wrong(name, mark, "one character")
    if delimiter == decimal:
        raise wrong("delimiter", delimiter, f"another character than decimal={decimal!r}")


def _has_header(lines: list[str], delimiter: str, decimal: str) -> bool:
    """Names are what is not a number; the count 0, 1, 2 ... is how pandas names columns, unless the next line is whole numbers too."""
    cells, *rest = [_cells(line, delimiter) for line in lines]
    if any(not _is_number(cell, decimal) for cell in cells):
        return True
    labelled = cells[0] == "" and len(cells) > 2
    counting = cells[labelled:] == [str(i) for i in range(len(cells) - labelled)] and len(cells) > 1
    return bool(counting and rest and (labelled or not all(re.fullmatch(r"[+-]?\d+", cell) for cell in rest[0])))


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error:
        return [cell.strip(' "\r\n') for cell in line.split(delimiter)]


def _bad_csv(file: Path, error: Exception, names: list[str]) -> FileError:
    """pyarrow's complaint with the column by name."""
    words = " ".join(str(error).split())
    found = re.search(
        r"In CSV column #(\d+):(?: Row #(\d+):)? CSV conversion error to (\w+): invalid value (.*)", words
    )
    if found and int(found[1]) < len(names):
        at = f" at line {found[2]}" if found[2] else ""
        wanted = {"double": "numbers only", "bool": "true and false only"}.get(
            found[3], f"{found[3]} as in the rows before it"
        )
        return FileError(f"column {names[int(found[1])]!r} of {file} has {found[4]}{at}, wanted {wanted}")
    if isinstance(error, UnicodeDecodeError):
        return FileError(f"{file} is not UTF-8 text ({error.reason}); save it as UTF-8")
    return FileError(f"{file} cannot be read as CSV: {words}; every row needs the same number of cells of one kind")


def _sniff(lines: list[str], decimal: str) -> str:
    """The mark that stands outside quotes as often in the second line as in the first, and most often."""
    bare = [re.sub(r'"[^"]*"', "", line) for line in lines]
    marks = [mark for mark in ",;\t|" if mark != decimal]
    return max(marks, key=lambda mark: (len({line.count(mark) for line in bare} - {0}) == 1, bare[0].count(mark)))


def _is_number(cell: str, decimal: str) -> bool:
    if cell in NULLS:
        return True
    try:
        float(cell.replace(decimal, "."))
    except ValueError:
        return False
    return True
