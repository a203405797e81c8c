"""What the first lines of a CSV file say of it: the mark between cells, that of decimals, and
whether there is a header."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from eckart.errors import FileError, invalid
from eckart.io.tables.encodings import opened, undecodable

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
