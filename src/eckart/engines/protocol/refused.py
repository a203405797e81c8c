"""Errors met at a part of a matrix, as data: they cross processes, and the first in the order of
rows is the one that is raised."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from eckart.engines.protocol.placed import GapsFound
from eckart.errors import EckartError, InputError


class Place(NamedTuple):
    """Where a block stands: its number among the parts, its first row and its rows."""

    number: int
    first: int
    rows: int


class Refused(NamedTuple):
    """An error met at a block, as data: it crosses processes, and the first in the order of rows is
    the one that counts."""

    gaps: bool
    text: str
    row: int = 0
    column: int = 0

    def error(self) -> EckartError:
        return GapsFound(self.row, self.column) if self.gaps else InputError(self.text)


def first_refused(answers: list[Any]) -> Refused | None:
    """The first refusal; a missing entry counts where nothing worse was met, as in one piece."""
    bad = [answer for answer in answers if isinstance(answer, Refused)]
    return next((answer for answer in bad if not answer.gaps), bad[0] if bad else None)


def raise_first(answers: list[Any]) -> None:
    """Raise the first refusal among answers."""
    bad = first_refused(answers)
    if bad is not None:
        raise bad.error()


def whole_rows(text: str, at: Place) -> str:
    """The words of an error with the row of the whole matrix, and where that is.

    >>> whole_rows("X must hold finite numbers, got inf at row 7, column 2", Place(3, 1000, 50))
    'X must hold finite numbers, got inf at row 1007, column 2 (row 7 of partition 3)'
    """
    found = re.search(r"\brow (\d+)", text)
    if found is None:
        return text
    return (
        f"{text[: found.start()]}row {at.first + int(found[1])}{text[found.end() :]} (row "
        f"{found[1]} of partition {at.number})"
    )
