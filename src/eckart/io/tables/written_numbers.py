"""Columns of numbers that are written for people: thousands apart (1,234.5; 1 234; 1'234), or with
a per cent sign (12 %, which is read as 12).

A column is read so when all its cells are written the same way and can mean one thing only:

- every cell has a per cent sign, or none has;
- one mark divides thousands, never the decimal mark of the file, and every number of four digits or
  more has it;
- a comma or a point is taken for that mark only where something says that it does not stand before
  decimals: two of them in a number (1,234,567), both marks in one (1,234.5), decimals of the other
  kind elsewhere in the file, or ``decimal=``. A file in which 1,234 is all there is stays unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from eckart.errors import FileError
from eckart.loading import pa, pc

SPACES = " \u00a0\u2009\u202f"
APOSTROPHES = "'\u2019"
FOR_THE_EYE = re.compile(
    r"[-+(]?\s?[$€£¥]?\s?[-+]?\d+(?:[,.'’\s]\d{3})*(?:[.,]\d+)?\s?(?:%|[$€£¥]|[A-Z]{3})?\)?"
)
"""A number with marks between thousands, a currency or a per cent sign, as spreadsheets write
it."""


class Written(NamedTuple):
    """How the numbers of a column are written: the marks between thousands (any of these
    characters, or none), that of decimals, and a per cent sign."""

    thousands: str
    decimal: str
    percent: bool

    @property
    def pattern(self) -> str:
        """What all cells look like."""
        groups = (
            f"[1-9][0-9]{{0,2}}(?:[{self.thousands}][0-9]{{3}})+|[0-9]{{1,3}}"
            if self.thousands
            else "[0-9]+"
        )
        return rf"^[+-]?(?:{groups})(?:{re.escape(self.decimal)}[0-9]+)?" + (
            rf"[{SPACES}]?%$" if self.percent else "$"
        )

    def plain(self, cells: Any, gaps: Sequence[str]) -> Any:
        """An Arrow array of texts as numbers, without a value where a cell is one of ``gaps``; None
        where a cell is written otherwise."""
        cells = pc.utf8_trim_whitespace(cells)
        cells = pc.if_else(
            pc.is_in(cells, value_set=pa.array(gaps, cells.type)),
            pa.scalar(None, cells.type),
            cells,
        )
        if pc.all(pc.match_substring_regex(cells, self.pattern)).as_py() is False:
            return None
        bare = pc.replace_substring_regex(cells, f"[%{SPACES}{self.thousands}]", "")
        return pc.cast(pc.replace_substring(bare, self.decimal, "."), pa.float64())


def written(cells: Iterable[str], decimal: str, sure: bool) -> Written | None:
    """How the numbers of these cells are written; None where they are no such numbers or could mean
    two things. ``sure``: the decimal mark is known.

    >>> written(["1,234", "56"], ".", True), written(["1,234", "56"], ".", False), written(["7 %", "12.5 %"], ".", False)
    (Written(thousands=',', decimal='.', percent=False), None, Written(thousands='', decimal='.', percent=True))
    """
    texts = [cell.strip() for cell in cells]
    if not texts or not all(FOR_THE_EYE.fullmatch(text) for text in texts):
        return None
    percent = all(text.endswith("%") for text in texts)
    bare = [text.rstrip(f"%{SPACES}") for text in texts] if percent else texts
    for thousands in ("", SPACES, APOSTROPHES, "," if decimal == "." else "."):
        way = Written(thousands, decimal, percent)
        if not (thousands or percent) or not all(re.fullmatch(way.pattern, text) for text in texts):
            continue
        if thousands in (",", "."):
            decided = any(
                text.count(thousands) > 1 or (thousands in text and decimal in text)
                for text in bare
            )
            return way if decided or sure else None
        return way
    return None


def plain_batches(
    batches: Iterable[Any], ways: dict[str, Written], gaps: Sequence[str], line: Any, file: Any
) -> Iterator[Any]:
    """The batches of a file with the numbers of these columns; a cell that is written otherwise is
    refused with its line."""
    row = 0
    for batch in batches:
        for name, way in ways.items():
            at = batch.schema.get_field_index(name)
            found = way.plain(batch.column(at), gaps)
            if found is None:
                cells = batch.column(at).to_pylist()
                odd = next(
                    i
                    for i, cell in enumerate(cells)
                    if cell.strip() not in gaps and not re.fullmatch(way.pattern, cell.strip())
                )
                raise FileError(
                    f"column {name!r} of {file} must hold numbers that are all written as in its first "
                    f"rows, got {cells[odd]!r} at line {line(row + odd)}"
                )
            batch = batch.set_column(at, name, found)
        row += batch.num_rows
        yield batch
