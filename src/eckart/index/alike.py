"""Which of many names somebody may have meant: those that are alike, letter for letter, found in a
bounded time."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from eckart.errors import InputError

MOST_COMPARED = 10_000
"""Names that are compared letter for letter, at five microseconds each."""
MOST_LOOKED_AT = 2_000_000
"""Names whose first and last letters are looked at, three seconds' work."""
ALIKE = 0.6
"""Least share of letters in common (difflib's own): 'kin' and 'king' have 0.86, two slips in six
letters leave 0.67."""


def alike(name: str, known: Iterable[Any], most: int = 3) -> list[str]:
    """Up to ``most`` of the known names that ``name`` may stand for, the most alike first: those
    that differ in capitals or blanks alone, then by letters.

    Of many names only those are compared that begin or end as ``name`` does, by half of it or more:
    one slip leaves one of its halves as it is.

    >>> alike("Alica", ["bob", "alice", "ALICA "]), alike("zoe", ["bob", "carol"])
    (['ALICA ', 'alice'], [])
    """
    asked = name.strip().casefold()
    folded: dict[str, list[str]] = {}
    for at, one in enumerate(known):
        if at >= MOST_LOOKED_AT:
            break
        if isinstance(one, str) and abs(len(one) - len(asked)) <= max(2, len(asked) // 2):
            folded.setdefault(one.strip().casefold(), []).append(one)
    near, part = list(folded), max(1, len(asked) // 2)
    while len(near) > MOST_COMPARED and part <= len(asked):
        begin, end = asked[:part], asked[-part:]
        near = [one for one in near if one.startswith(begin) or one.endswith(end)]
        part += max(1, (len(asked) - part) // 2)
    close = difflib.get_close_matches(asked, near[:MOST_COMPARED], most, ALIKE) if asked else []
    return [one for fold in close for one in folded[fold]][:most]


MOST_NAMES = 60
"""Names that an error lists: a screenful. Of more, the first are shown and the others counted."""


def unknown_column(
    name: Any, known: Iterable[Any], where: Any, came: str | None = None
) -> InputError:
    """The error about a column that is not there, with the names that are, and those that may have
    been meant.

    >>> str(unknown_column("yera", ["year", "island"], "a.csv"))
    "the column must be one of the columns of a.csv ('year', 'island'), got 'yera'. Did you mean 'year'?"
    """
    names = list(known)
    near = alike(str(name), names)
    listed = ", ".join(map(repr, names[:MOST_NAMES])) + (
        f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    )
    hint = f". Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return InputError(
        f"the column must be one of the columns of {where} ({listed or 'none'}), got "
        f"{came or repr(name)}{hint}"
    )
