"""Input that is not what it seems: what would be fitted to no purpose is refused, with the line to
run instead."""

from __future__ import annotations

import re
import shlex
from typing import Any

from eckart.cli.reading import Reading
from eckart.complete.factors.alternate import log_scaling
from eckart.errors import InputError, invalid
from eckart.io.text.documents import Documents
from eckart.loading import pa
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of

WHO = r"user|customer|person|member|reader|account|client|session|visitor|uid|patient|student"
WHAT = r"item|movie|film|book|product|track|song|artist|article|sku|page|isbn|asin|iid|mid|question|place|location"
HOW_MUCH = r"rating|score|star|value|count|play|quantity|qty|weight|strength|vote|rate|answer|grade"
WHEN = r"time|date|stamp|when|year"
MOST_COLUMNS = 6
"""Tables of ratings have two ids and a value, sometimes a time and little more; a wide table has
more columns."""


def triples_in(reading: Reading, file: str, by_name: bool = False) -> tuple[str, str, str] | None:
    """The columns of row ids, column ids and values of a file that looks like one observation a
    line; None where it does not.

    Two columns are ids when their names say so; without names (and unless ``by_name``) when both
    are whole numbers that repeat while no pair of them does.
    """
    head = reading.head(file)
    if head is None or not 3 <= len(head.columns) <= MOST_COLUMNS:
        return None
    names = [c.name for c in head.columns]
    shown = names if head.named else [str(j) for j in range(len(names))]
    ids = [j for j, name in enumerate(names) if head.named and _is_id(name)]
    if len(ids) != 2 and not by_name and not any(_says(name, HOW_MUCH) for name in names[:2]):
        ids = _repeating(head.rows)
    if len(ids) != 2:
        return None
    rest = [j for j in range(len(names)) if j not in ids and head.columns[j].kind == "number"]
    value = next(
        (j for j in rest if _says(names[j], HOW_MUCH)),
        next((j for j in rest if not _says(names[j], WHEN)), None),
    )
    if value is None:
        return None
    first, second = (
        ids if not _says(names[ids[0]], WHAT) or _says(names[ids[1]], WHAT) else ids[::-1]
    )
    return shown[first], shown[second], shown[value]


def clicks_in(reading: Reading, file: str) -> tuple[str, str, bool] | None:
    """The columns of row ids and column ids of a file that looks like a log of events without
    values (who, what, perhaps when), and whether a pair of them comes again; None where it does not
    look like one."""
    head = reading.head(file)
    if head is None or not head.named or not 2 <= len(head.columns) <= MOST_COLUMNS:
        return None
    names = [c.name for c in head.columns]
    ids = [j for j, name in enumerate(names) if _is_id(name)]
    if len(ids) != 2 or any(
        j not in ids and not _says(names[j], WHEN) and head.columns[j].kind != "row number"
        for j in range(len(names))
    ):
        return None
    first, second = (
        ids if not _says(names[ids[0]], WHAT) or _says(names[ids[1]], WHAT) else ids[::-1]
    )
    pairs = head.rows.select([names[first], names[second]])
    return (
        names[first],
        names[second],
        pairs.group_by(pairs.column_names).aggregate([]).num_rows < pairs.num_rows,
    )


def refuse_clicks(reading: Reading, file: str, verb: str = "complete") -> None:
    """A log of events that was given as a wide table."""
    if (
        reading.long
        or reading.only is not None
        or reading.index is not None
        or (found := clicks_in(reading, file)) is None
    ):
        return
    words = [
        "eckart",
        *verb.split(),
        file,
        "--rows",
        found[0],
        "--columns",
        found[1],
        "--feedback",
        "implicit",
        *(["--duplicates", "sum"] if found[2] else []),
    ]
    raise InputError(
        f"{file} looks like a log of events, with ids in {found[0]} and {found[1]} and "
        f"no values, not like a table with gaps; run: {shlex.join(words)}   "
        "(or name the columns to use with --only)"
    )


def refuse_triples(
    reading: Reading, file: str, by_name: bool = False, verb: str = "complete"
) -> None:
    """A file of ratings that was given as a wide table."""
    if reading.only is not None or (found := triples_in(reading, file, by_name)) is None:
        return
    rows, columns, values = found
    words = [
        "eckart",
        *verb.split(),
        file,
        "--rows",
        rows,
        "--columns",
        columns,
        "--values",
        values,
    ]
    words += (
        ["--delimiter", {"\t": "tab"}.get(reading.delimiter, reading.delimiter)]
        if reading.delimiter
        else []
    )
    words += ["--no-header"] if reading.header is False else []
    raise InputError(
        f"{file} looks like one observation a line, with ids in {rows} and {columns}, "
        f"not like a table of measurements; run: {shlex.join(words)}   "
        "(or name the columns to use with --only)"
    )


def refuse_complete(reading: Reading, file: str, x: Observed) -> None:
    """A wide table in which nothing is missing."""
    n, m = x.shape
    if reading.long or x.nnz < n * m:
        return
    zeros = int((x.data == 0).sum())
    mark = f"; if 0 stands for a missing entry ({zeros:,} cells), say --missing 0" if zeros else ""
    raise InputError(
        f"{file} has {n:,} rows x {m:,} columns and no empty cell, so there is nothing "
        f"to complete{mark}; say --missing with the mark that stands for "
        "a missing entry, --rows, --columns and --values if each line is one "
        "observation, or eckart reduce for a table without gaps"
    )


def note_amounts(reading: Reading, x: Any, feedback: str, shell: Any) -> None:
    """Hours, plays or amounts that are fitted as they are: all above 0, and the largest far above
    the median."""
    if (
        not reading.long
        or reading.values is None
        or feedback != "explicit"
        or facts_of(x).least <= 0
        or (found := log_scaling(x, False, True)) is None
    ):
        return
    shell.note(
        f"{reading.names[2]} is positive and reaches from {facts_of(x).least:.4g} to "
        f"{facts_of(x).most:.4g} with the median {found.median:.4g}, as hours, plays"
        " or amounts do: its few largest values decide the fit; say --feedback implicit "
        "for lists of what rows would take up, or complete its logarithm"
    )


def refuse_rank(k: Any, x: Any) -> None:
    """More components than the smaller side has."""
    n, m = x.shape
    most = m if n is None else min(n, m)
    if isinstance(k, int) and not isinstance(k, bool) and k > most:
        rows = "unknown" if n is None else f"{n:,}"
        raise invalid(
            "--components", k, f"at most {most:,} for {rows} rows x {m:,} columns", "lower it"
        )


def refuse_markup(reading: Reading, file: str) -> None:
    """A text file of records with tags, of which every line would become a document."""
    if reading.lines is not None or reading.text is not None:
        return
    mark = Documents(file, **reading.of_text()).record_mark()
    if mark is not None:
        raise InputError(
            f"{file} has lines with nothing but markup, such as {mark}, so its lines "
            f"are no documents; say --split-documents {shlex.quote(mark)} to "
            "divide it there (tags are then left out), or --lines if each line is a "
            "document all the same"
        )


def _is_id(name: str) -> bool:
    whole = rf"({WHO}|{WHAT})s?([_\W]?(id|no|nr|number|name|code))?"
    return bool(
        re.search(r"(^|[_\W])(id|ID|Id)$|[a-z]I[dD]$", name)
        or re.fullmatch(whole, name, re.IGNORECASE)
    )


def _says(name: str, words: str) -> bool:
    return re.search(words, name, re.IGNORECASE) is not None


def _repeating(rows: Any) -> list[int]:
    """The first two columns, where both hold whole numbers that repeat and no pair of them comes
    twice."""
    if rows.num_rows < 10 or not all(pa.types.is_integer(rows.column(j).type) for j in (0, 1)):
        return []
    a, b = (rows.column(j).to_pylist() for j in (0, 1))
    if None in a or None in b or len(set(zip(a, b))) < len(a):
        return []
    return (
        [0, 1]
        if max(len(set(a)), len(set(b))) < 0.9 * len(a) and min(len(set(a)), len(set(b))) > 1
        else []
    )
