"""Which verbs suit a data file, with the reason in words and the options that its columns suggest;
what does not suit is named too, with its reason."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from eckart.cli.suspicions import clicks_in, triples_in
from eckart.studio.tables import Sheet, naming

WORDY = 4
"""Words that the median cell of a column of texts has at least; names and categories have fewer."""
UNITS = 10.0
"""Ratio of standard deviations from which columns are taken to be in different units."""
SIDES = ((8, 8), (16, 16), (19, 19), (28, 28), (32, 32), (64, 64), (112, 92))
"""Heights and widths of images that are often written as rows of numbers."""


class Offer(NamedTuple):
    """A verb for a file."""

    verb: str
    suited: bool
    reason: str
    options: dict[str, Any] = {}  # noqa: RUF012

    def summary(self, best: bool) -> dict[str, Any]:
        return self._asdict() | {"best": best}


def offers(sheet: Sheet) -> list[dict[str, Any]]:
    """All four verbs, the best one first."""
    found = (
        _texts()
        if sheet.kind == "texts"
        else _sparse()
        if sheet.kind == "sparse"
        else _table(sheet)
    )
    found.sort(key=lambda o: not o.suited)
    return [offer.summary(i == 0 and offer.suited) for i, offer in enumerate(found)]


def image_of(n: int, columns: Any = None) -> tuple[int, int] | None:
    """Height and width of rows of n numbers that are images, as far as one can tell: a usual size,
    and columns whose names do not say otherwise."""
    named = columns is not None and any(
        re.fullmatch(r"[a-z]*[_ ]?\d+", str(c).lower()) is None for c in columns
    )
    return None if named else next((side for side in SIDES if side[0] * side[1] == n), None)


def _texts() -> list[Offer]:
    return [
        Offer(
            "explain",
            True,
            "These are texts: topics show what they are about, with the documents of each.",
        ),
        Offer(
            "embed",
            True,
            "These are texts: words that stand beside the same words get vectors that are alike.",
        ),
        Offer("reduce", False, "A reduction wants a table of numbers, and these are texts."),
        Offer(
            "complete",
            False,
            "A completion wants a table with gaps or one observation a line, and these are texts.",
        ),
    ]


def _sparse() -> list[Offer]:
    return [
        Offer("explain", True, "These are counts, mostly zero: topics explain them."),
        Offer(
            "reduce",
            True,
            "A sparse matrix has components too; without subtracting the mean it is a "
            "truncated SVD.",
        ),
        Offer(
            "complete",
            False,
            "Entries that a sparse matrix does not hold are zeros here, not unknown.",
        ),
        Offer("embed", False, "An embedding wants text, and this is a matrix."),
    ]


def _table(sheet: Sheet) -> list[Offer]:
    triples = triples_in(sheet.reading, str(sheet.path)) if sheet.kind == "table" else None
    if triples is not None:
        return _ratings(*triples)
    clicks = clicks_in(sheet.reading, str(sheet.path)) if sheet.kind == "table" else None
    if clicks is not None:
        return _clicks(*clicks)
    wordy = _wordy(sheet)
    numbers = [c for c in sheet.columns if c["kind"] == "number"]
    if wordy is not None and (not numbers or len(numbers) <= 2):
        return _reviews(wordy)
    if not numbers:
        return _nothing()
    return _measurements(sheet, numbers, wordy)


def _ratings(rows: str, columns: str, values: str) -> list[Offer]:
    words = f"Each line is one observation ({rows}, {columns}, {values})"
    return [
        Offer(
            "complete",
            True,
            f"{words}: the values that are missing can be predicted.",
            {"rows": rows, "columns": columns, "values": values},
        ),
        Offer(
            "reduce",
            False,
            f"{words}, not a table of measurements; ids are no numbers to calculate with.",
        ),
        Offer(
            "explain", False, f"{words}; topics and mixtures want counts, texts or measurements."
        ),
        Offer("embed", False, "An embedding wants text, and there is no column of it."),
    ]


def _clicks(rows: str, columns: str, repeated: bool) -> list[Offer]:
    words = f"Each line is one event ({rows}, {columns}) without a value"
    counted = {"duplicates": "sum"} if repeated else {}
    return [
        Offer(
            "complete",
            True,
            f"{words}: what each {rows} may choose next can be recommended.",
            {"rows": rows, "columns": columns, "feedback": "implicit"} | counted,
        ),
        Offer(
            "reduce",
            False,
            f"{words}, not a table of measurements; ids are no numbers to calculate with.",
        ),
        Offer(
            "explain", False, f"{words}; topics and mixtures want counts, texts or measurements."
        ),
        Offer("embed", False, "An embedding wants text, and there is no column of it."),
    ]


def _reviews(text: str) -> list[Offer]:
    return [
        Offer(
            "explain",
            True,
            f"Column {text} holds texts: topics show what they are about.",
            {"text": text},
        ),
        Offer(
            "embed",
            True,
            f"Column {text} holds texts: words get vectors from the words beside them.",
            {"text": text},
        ),
        Offer("reduce", False, "A reduction wants columns of numbers, and there are few or none."),
        Offer("complete", False, "A completion wants a table with gaps or one observation a line."),
    ]


def _nothing() -> list[Offer]:
    words = "No column holds numbers or texts of several words"
    return [
        Offer(
            "complete",
            False,
            f"{words}. If each line is one observation, say which columns hold the ids.",
        ),
        *(Offer(verb, False, f"{words}.") for verb in ("reduce", "explain", "embed")),
    ]


def _measurements(sheet: Sheet, numbers: list[dict[str, Any]], wordy: str | None) -> list[Offer]:
    n, total = len(numbers), sheet.rows.num_rows
    missing = sum(c["gaps"] for c in numbers)
    cells, empty = sheet.gaps
    share = empty / max(1, cells)
    named_columns = {name: column for name, column in naming(sheet).items() if column is not None}
    image = sheet.image or (image_of(sheet.rows.num_columns) if sheet.kind == "array" else None)
    picture = {"image": f"{image[0]}x{image[1]}"} if image and sheet.kind != "images" else {}
    scale = {"scale": True} if image is None and _units_differ(sheet, numbers) else {}
    units = ", each divided by its deviation since their units differ" if scale else ""
    what = f"{total:,} images" if image else f"{n} columns of numbers"
    reduce = Offer(
        "reduce",
        n > 1,
        f"{what}: a few components that keep most of the variance{units}."
        if n > 1
        else "One column cannot be reduced.",
        named_columns | picture | scale,
    )
    gaps = f"{share:.1%} of the cells are empty: they can be filled in from the others."
    complete = Offer(
        "complete",
        missing > 0 and n > 1,
        gaps if missing else "No cell is empty, so there is nothing to complete.",
        {k: v for k, v in named_columns.items() if k == "index"} if missing else {},
    )
    positive = all((c.get("least") or 0) >= 0 for c in numbers)
    parts = image is not None and positive and not missing
    explain = Offer(
        "explain",
        True,
        "Images of numbers that are not negative: parts that add up."
        if parts
        else f"{total:,} rows: groups of rows that are alike, as a mixture.",
        ({"method": "nmf"} | picture)
        if parts
        else ({"method": "mixture"} | named_columns if not sheet.image else {"method": "nmf"}),
    )
    embed = Offer(
        "embed",
        wordy is not None,
        f"Column {wordy} holds texts."
        if wordy
        else "An embedding wants text, and there is no column of it.",
        {"text": wordy} if wordy else {},
    )
    # a table with many gaps was most likely opened to have them filled
    return (
        [complete, reduce, explain, embed] if share > 0.02 else [reduce, explain, complete, embed]
    )


def _wordy(sheet: Sheet) -> str | None:
    """The first column whose cells are texts of several words."""
    for c in sheet.columns:
        if c["kind"] == "text":
            cells = [
                str(v)
                for v in sheet.rows.column(c["name"]).slice(0, 200).to_pylist()
                if v is not None
            ]
            if cells and float(np.median([len(cell.split()) for cell in cells])) >= WORDY:
                return str(c["name"])
    return None


def _units_differ(sheet: Sheet, numbers: list[dict[str, Any]]) -> bool:
    columns = [
        np.asarray(sheet.rows.column(c["name"]).slice(0, 2000).to_numpy(), float)
        for c in numbers[:200]
    ]
    spread = [float(np.nanstd(c)) for c in columns if np.isfinite(c).any()]
    spread = [s for s in spread if s > 0]
    return len(spread) > 1 and max(spread) / min(spread) > UNITS
