"""Attributes of rows and columns, and times of entries, as the shell names them: FILE:ID and the
name of a column."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from eckart.cli.options import option
from eckart.errors import InputError
from eckart.index.alike import unknown_column
from eckart.loading import pa, pc

RowFeatures = Annotated[
    str | None,
    option(
        metavar="FILE:ID",
        help="Attributes of rows, one line for each id, such as users.csv:userId (als, bayes).",
    ),
]
ColumnFeatures = Annotated[
    str | None,
    option(
        metavar="FILE:ID", help="Attributes of columns, such as movies.csv:movieId (als, bayes)."
    ),
]
Time = Annotated[
    str | None,
    option(
        help="The column of triples that says when a value was observed, numbers or dates (bayes)."
    ),
]


def features_in(
    spec: str, name: str, key: Any, labels: Any = None, source: Any = None
) -> tuple[Any, str]:
    """The table and the name of its column of ids; ``key`` is that name where ``spec`` has none.
    Ids become those of the ``labels``."""
    from eckart.cli.id_files import side_table
    from eckart.query.ids import parse_ids

    file, _, id_column = spec.rpartition(":")
    if not file or Path(spec).is_file():
        file, id_column = spec, "" if key is None else str(key)
    table, (id_column,) = side_table(file, [id_column], f"{name} {spec}", source)
    if labels is not None:
        ids = parse_ids(table.column(id_column).to_pylist(), labels)
        table = table.set_column(
            table.column_names.index(id_column), id_column, pa.array(list(ids))
        )
    return table, id_column


def times_in(source: Any, file: str, name: str, x: Any) -> Any:
    """The times of a file of triples at the entries ``x`` that were read from it; dates are
    microseconds."""
    from eckart.complete.timed_tables import moments_of
    from eckart.io.tables.columns import head_of
    from eckart.io.tables.triples import observed

    head = (
        head_of(
            file,
            source.delimiter,
            source.header,
            source.missing,
            whole=True,
            encoding=source.of_tables,
        )
        if source.long
        else None
    )
    if head is None:
        raise InputError(
            f"--time {name} needs a file of triples (--rows, --columns, --values) with a column "
            "of times"
        )
    names = head.rows.column_names
    at = [
        int(c) if isinstance(c, int) or (str(c).isdigit() and str(c) not in names) else str(c)
        for c in (source.rows, source.columns, name)
    ]
    picked = [names[c] if isinstance(c, int) and c < len(names) else c for c in at]
    if picked[2] not in names:
        raise unknown_column(picked[2], names, file, f"--time {name}")
    lines = head.rows
    if source.values is not None:  # lines without a value are left out of the data
        value = (
            names[source.values]
            if isinstance(source.values, int) and source.values < len(names)
            else source.values
        )
        lines = lines.filter(pc.is_valid(lines.column(value)))
    times, dates = moments_of(lines.column(picked[2]))
    table = pa.table(
        {"row": lines.column(picked[0]), "column": lines.column(picked[1]), "time": times}
    )
    # of what happened again the last time
    counted = source.values is None and source.duplicates == "error"
    rule = "last" if counted else "mean" if source.duplicates == "sum" else source.duplicates
    when = observed(table, rows="row", columns="column", values="time", duplicates=rule)
    if when.shape != x.shape or not all(
        np.array_equal(np.asarray(a), np.asarray(b))
        for a, b in ((when.rows, x.rows), (when.columns, x.columns))
    ):
        raise InputError(
            f"--time {name} needs a value and a time in every line: a value of {file} is missing"
        )
    return when, dates
