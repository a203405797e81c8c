"""eckart complete of a table with columns of several kinds: categories, yes/no and dates beside
numbers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.reading import Reading, called
from eckart.cli.shell import OutputTargets, Shell
from eckart.cli.suspicions import triples_in
from eckart.errors import InputError
from eckart.io.tables.csv_file import NULLS_IN_TEXT
from eckart.io.tables.frames import ARROW_FILES
from eckart.io.tables.missing import Marks
from eckart.io.tables.other_files import OTHER_TABLES
from eckart.loading import pa

MOST_COLUMNS = 1000
"""Of a table of numbers in different units: the model holds the moments of all pairs of columns, 8
MB at this number."""


def why_mixed(source: Reading, file: str) -> str:
    """What speaks for a table with a loss and a scale for each column, in a file with names that is
    no list of observations: columns beside the index with yes/no, dates, or texts that repeat; or
    numbers in different units, of which the largest would decide what is said of the others. ""
    where nothing does."""
    head = source.head(file) if not source.long else None
    if (
        head is None
        or not head.named
        or (source.only is None and triples_in(source, file, source.index is not None))
    ):
        return ""
    numbers = []
    for column in head.columns:
        left = column.name in (source.index, source.labels, *source.exclude) or (
            source.only is not None and column.name not in source.only
        )
        if left or column.odd is not None:
            continue
        cells = head.rows.column(column.name)
        known = len(cells) - cells.null_count
        repeats = (
            column.kind == "text"
            and len(cells.unique()) >= 2
            and 2 * len(cells.drop_null().unique()) <= known
        )
        if column.kind == "date" or pa.types.is_boolean(cells.type) or repeats:
            return "columns of several kinds, each with a loss of its own"
        if column.kind == "number" and known:
            numbers.append((column.name, cells.drop_null().to_numpy().astype(float)))
    return _in_units(numbers)


def _in_units(numbers: list[tuple[str, np.ndarray]]) -> str:
    from eckart.reduce.standardise import Units

    if not 2 <= len(numbers) <= MOST_COLUMNS or not all(
        np.isfinite(cells).all() for _, cells in numbers
    ):
        return ""
    with np.errstate(over="ignore"):
        spread, mean = (np.array([f(cells) for _, cells in numbers]) for f in (np.std, np.mean))
    found = (
        Units.of(spread, mean, float(np.finfo(float).eps)) if np.isfinite(spread).all() else None
    )
    if found is None or not found.differ:
        return ""
    large, small = numbers[found.largest][0], numbers[found.smallest][0]
    return (
        f"each column has its own scale: the standard deviation of {large} is "
        f"{found.ratio:,.0f} times that of {small}"
    )


def _tell_words(head: Any, file: str, shell: Shell) -> None:
    """Which words among texts were taken for gaps: to somebody NA is Namibia."""
    if head is None or Path(file).suffix.lower() in (*ARROW_FILES, *OTHER_TABLES):
        return
    for column in head.columns:
        if column.like is not None:
            shell.note(
                f"{column.name} is taken for text: its numbers are written like "
                f"{column.like!r}; save the file with plain digits"
            )
    texts = [
        (c.name, head.rows.column(c.name).unique().to_pylist())
        for c in head.columns
        if c.kind == "text"
    ]
    for word in NULLS_IN_TEXT[1:]:
        if found := [name for name, cells in texts if word in cells]:
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            shell.note(f"{word} stands for a gap in {', '.join(found[:3])}{more}")


SIMPLE = {
    "mean": "mean or commonest level",
    "neighbours": "near rows",
    "linear": "linear regression",
}
WORSE = 1.02
"""Times the error of a simple answer from which on a column is named."""


def _tell_errors(model: Any, table: Any, shell: Shell) -> None:
    """What the other cells of its row say of a cell that was held out, beside simple answers: the
    mean over columns, and each column in detail."""
    errors = model.fit_.plan["errors"]
    if not errors:
        return
    simple = {name: of for name, of in model.simple_errors(table).items() if name in errors}
    low_rank, whole = (float(np.mean([errors[name][i] for name in simple])) for i in (1, 2))
    others = ", ".join(
        f"{words} {np.mean([of[kind] for of in simple.values()]):.3f}"
        for kind, words in SIMPLE.items()
    )
    shell.say(
        "held out",
        f"error {whole:.3f} (factor model alone {low_rank:.3f}; {others}), the mean over "
        f"{len(simple)} columns",
    )
    for name, of in simple.items():
        each = ", ".join(f"{words} {of[kind]:.3f}" for kind, words in SIMPLE.items())
        shell.detail(
            f"  {name}: {errors[name][2]:.3f} (factor model {errors[name][1]:.3f}; {each})"
        )
    for kind, words in SIMPLE.items():
        if worse := [n for n, of in simple.items() if errors[n][2] > WORSE * of[kind]]:
            more = f" and {len(worse) - 3} more" if len(worse) > 3 else ""
            shell.note(f"filled worse than by {words}: {', '.join(worse[:3])}{more}")
    if nothing := [n for n, of in simple.items() if errors[n][2] >= errors[n][0]]:
        more = f" and {len(nothing) - 3} more" if len(nothing) > 3 else ""
        shell.note(
            f"the other columns say nothing of {', '.join(nothing[:3])}{more}: filled "
            "about as well by the mean or the commonest level"
        )


def complete_mixed(
    source: Reading,
    file: str,
    to: OutputTargets,
    parameters: dict[str, Any],
    shell: Shell,
    plan_only: bool,
    why: str = "",
) -> None:
    """Read, fit, say, write: the whole table with its gaps filled, columns in their order and
    types. Or say how long that would take."""
    from eckart import MixedTable
    from eckart.cli.building import limit_reached
    from eckart.io.tables.mixed import mixed_frame
    from eckart.io.tables.write import write_long

    marks = Marks.of(source.missing)
    with shell.phase(f"reading {file}"):
        whole = mixed_frame(
            file, source.delimiter, source.header, marks.words, marks.numbers, source.of_tables
        )
    table = whole.source
    head = source.head(file)
    _tell_words(head, file, shell)
    counting = (
        [c.name for c in head.columns if c.kind == "row number"]
        if head is not None and source.only is None
        else []
    )
    aside = {source.index, source.labels, *source.exclude, *counting}
    names = [
        n
        for n in table.column_names
        if n not in aside and (source.only is None or n in source.only)
    ]
    part = table.select(names)
    gaps = sum(int(np.isnan(cells.values).sum()) for cells in whole.columns if cells.name in names)
    if not gaps:
        raise InputError(
            f"{file} has no empty cell, so there is nothing to complete; say --missing "
            "with the mark that stands for a missing entry, or --rows, --columns "
            "and --values if each line is one observation"
        )
    shell.say(
        "data", f"{called(file)}: {table.num_rows:,} rows x {len(names)} columns, {gaps:,} gaps"
    )
    given = {name: value for name, value in parameters.items() if value is not None}
    if plan_only:
        from eckart.cli.estimate import tell_plan

        tell_plan(shell, part, MixedTable(**given | {"checkpoint": None}).fit)
        return
    begin = time.perf_counter()
    with shell.fitting():
        model = MixedTable(**given).fit(part)
    plan = model.fit_.plan
    shell.say("method", f"mixed table: {why or 'as asked for'}")
    for name, loss in plan["losses"].items():
        shell.detail(f"  {name}: {loss}")
    kinds = list(model.losses_.values())
    shell.say("losses", ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)))
    for name, reason in (dict.fromkeys(counting, "it counts the rows") | plan["aside"]).items():
        shell.note(f"column {name!r} is left as it is: {reason}")
    shell.say("rank", f"{plan['rank']}, ridge {plan['l2']:g}: {plan['rank_reason']}")
    if plan["form"] != "usual losses":
        shell.detail(f"  form: {plan['form']}; errors of numbers at cells held out {plan['forms']}")
    shell.say("trees", plan["trees"])
    _tell_errors(model, part, shell)
    if ends := model.at_the_ends(part):
        some = ", ".join(f"{count:,} of {name}" for name, count in list(ends.items())[:3])
        more = f" and of {len(ends) - 3} more columns" if len(ends) > 3 else ""
        shell.note(
            "filled with the least or largest value that was seen, since what is "
            f"expected lies beyond: {some}{more}"
        )
    shell.answer["data"] = {
        "file": file,
        "rows": table.num_rows,
        "columns": len(names),
        "kind": "MixedTable",
        "gaps": gaps,
    }
    shell.outcome(model, time.perf_counter() - begin, limit_reached(model))

    def write(path: Path) -> int:
        filled = model.impute(part)
        columns = [
            filled.column(name) if name in names else table.column(name)
            for name in table.column_names
        ]
        return write_long(path, table.column_names, iter([tuple(columns)]))

    def page() -> Any:
        from eckart.report.tables import table_report

        return table_report(model, part, name=Path(file).name)

    shell.finish(model, to, write, page)
