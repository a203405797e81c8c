"""eckart recommend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from eckart.cli.options import OutLists, Threads

RECOMMEND_HELP = """
The best columns for rows of a saved completion, rows or columns that are alike, and why.

Ids are those of the data: user 42, movie 'Alien', day 2024-05-01. Columns that a row has observed are left out unless --include-seen is said.

Examples:

    eckart recommend m.safetensors --row 42 -n 10

    eckart recommend m.safetensors --all --out recs.parquet

    eckart recommend m.safetensors --row 42 --explain 17

    eckart recommend m.safetensors --column 17 --similar

    eckart recommend m.safetensors --new new_users.csv
"""

BLOCK_ROWS = 2**14


Saved = Annotated[Path, typer.Argument(help="A model saved by eckart complete --model.")]
RowId = Annotated[list[str] | None, typer.Option(help="Id of a row; may be said several times.")]
ColumnId = Annotated[list[str] | None, typer.Option(help="Id of a column, with --similar.")]
Count = Annotated[int, typer.Option("-n", help="How many for each.")]
Everyone = Annotated[bool, typer.Option("--all", help="For all rows; needs --out.")]
RowsFile = Annotated[str | None, typer.Option(help="For the rows whose ids stand in this file, one a line.")]
New = Annotated[
    str | None, typer.Option(help="For the new rows in this file, which is written like the data; nothing is refitted.")
]
Similar = Annotated[bool, typer.Option("--similar", help="Rows (or columns) that are alike, with their cosine.")]
Why = Annotated[str | None, typer.Option(help="Why the row gets this column: the entries that count most.")]
IncludeSeen = Annotated[
    bool, typer.Option("--include-seen/--exclude-seen", help="Whether to list columns that the row has observed.")
]
Candidates = Annotated[str | None, typer.Option(help="Only columns whose ids stand in this file, one a line.")]
By = Annotated[
    str,
    typer.Option(
        help="What best means: chance (of being taken up and liked), prediction (the largest value), or auto (the first where it can be learned)."
    ),
]
MinSupport = Annotated[int, typer.Option(help="Only columns with at least this many observations.")]
NewRows = Annotated[str | None, typer.Option(help="In --new: the column that holds the row ids.")]
NewColumns = Annotated[str | None, typer.Option(help="In --new: the column that holds the column ids.")]
NewValues = Annotated[str | None, typer.Option(help="In --new: the column that holds the values.")]
NewDelimiter = Annotated[str | None, typer.Option(help="In --new: between the cells of a text file.")]
NewNoHeader = Annotated[bool, typer.Option("--no-header", help="In --new: the first line is data.")]


def recommend(
    model: Saved,
    row: RowId = None,
    column: ColumnId = None,
    n: Count = 10,
    everyone: Everyone = False,
    rows_file: RowsFile = None,
    new: New = None,
    similar: Similar = False,
    explain: Why = None,
    include_seen: IncludeSeen = False,
    candidates: Candidates = None,
    by: By = "auto",
    min_support: MinSupport = 0,
    out: OutLists = None,
    rows: NewRows = None,
    columns: NewColumns = None,
    values: NewValues = None,
    delimiter: NewDelimiter = None,
    no_header: NewNoHeader = False,
    threads: Threads = None,
) -> None:
    from eckart.cli.common import Targets
    from eckart.cli.triples_input import as_kind, for_model, ids_in, source_of
    from eckart.errors import InputError, wrong
    from eckart.io.tables.write import check_target

    _check(row, column, everyone, rows_file, new, similar, explain, out)
    if n < 1:
        raise wrong("-n", n, "a number of 1 or more")
    Targets(out).check(str(model), lambda path: check_target(path, long=True))
    fitted = completion(model)
    if threads is not None:
        fitted.n_threads = threads
    source = source_of(rows, columns, values, None, delimiter, no_header, plan=fitted.fit_.plan)
    names = source.names
    if explain is not None and row:
        one, of = as_kind(row, fitted.row_ids)[0], as_kind([explain], fitted.column_ids)[0]
        typer.echo("\n".join(why(fitted.explain(one, of, n), names)))
        return
    titles: tuple[str, ...] = (names[0], "rank", names[1], "score", "observations")
    if similar:
        side, labels, name = ("rows", fitted.row_ids, names[0]) if row else ("columns", fitted.column_ids, names[1])
        titles = (name, "rank", f"similar_{name}", "cosine")
        lists: Any = [fitted.similar(**{side: as_kind(row or column, labels)}, n=n)]
    else:
        chosen = None if candidates is None else ids_in(candidates, names[1], fitted.column_ids)
        options = {"n": n, "exclude_seen": not include_seen, "candidates": chosen, "by": by, "min_support": min_support}
        if new is not None:
            lists = [fitted.recommend(X=for_model(source.load(new), None, fitted.column_ids), **options)]
        else:
            lists = _for_rows(fitted, row, ids_in(rows_file, names[0], fitted.row_ids) if rows_file else None, options)
    tables = (tuple(found.to_table().values()) for found in lists)
    if out is not None and len(set(titles)) < len(titles):
        raise InputError(f"columns {', '.join(titles)} came, wanted names that differ; fit with other column names")
    tell(titles, tables, out)


def _for_rows(fitted: Any, row: list[str] | None, listed: Any, options: dict[str, Any]) -> Iterator[Any]:
    """Recommendations for the rows that were named, that stand in a file, or all of them, in blocks; an unknown id is refused before the first."""
    from eckart.cli.triples_input import as_kind

    wanted = listed
    if row:
        wanted = as_kind(row, fitted.row_ids)
    elif listed is None:
        wanted = fitted.row_ids.names(np.arange(fitted.row_ids.size))
    fitted.row_ids.indices_of(wanted)
    return (fitted.recommend(wanted[a : a + BLOCK_ROWS], **options) for a in range(0, len(wanted), BLOCK_ROWS))


def tell(titles: tuple[str, ...], tables: Iterator[tuple[np.ndarray, ...]], out: Path | None) -> None:
    """Lists on standard output, or in a file."""
    from eckart.cli.common import say
    from eckart.io.tables.write import write_long

    if out is not None:
        say(False, "out", f"{out} ({write_long(out, titles, tables):,} rows)")
        return
    for line in printed(titles, tables):
        typer.echo(line)


def completion(path: Path) -> Any:
    """A saved completion; another kind of model is refused."""
    from eckart.errors import FileError
    from eckart.factors import LowRank
    from eckart.io.models.save import load

    fitted = load(path)
    if not isinstance(fitted.fit_.factors, LowRank):
        raise FileError(f"{path} holds a {type(fitted).__name__}, wanted a model saved by eckart complete")
    return fitted


def _check(
    row: list[str] | None,
    column: list[str] | None,
    everyone: bool,
    rows_file: str | None,
    new: str | None,
    similar: bool,
    explain: str | None,
    out: Path | None,
) -> None:
    """Refuse half a question, or two at once."""
    from eckart.errors import InputError

    asked = {"--row": row, "--column": column, "--all": everyone, "--rows-file": rows_file, "--new": new}
    told = [name for name, value in asked.items() if value]
    if len(told) != 1:
        came = " and ".join(told) or "no row"
        raise InputError(f"{came} came, wanted one of --row, --rows-file, --all and --new (or --column with --similar)")
    if column and not similar:
        raise InputError("--column came without --similar, wanted both: columns that are alike")
    if similar and told[0] not in ("--row", "--column"):
        raise InputError(f"--similar came with {told[0]}, wanted --row or --column")
    if explain is not None and (told[0] != "--row" or similar or len(row or ()) != 1):
        raise InputError(f"--explain {explain} came, wanted one --row beside it")
    if explain is not None and out is not None:
        raise InputError(f"--explain {explain} came with --out, wanted one of them: the explanation is printed")
    if everyone and out is None:
        raise InputError("--all came without --out, wanted a file for the lists of all rows")


def why(explanation: Any, names: tuple[str, str, str]) -> list[str]:
    """An explanation in the words of the data."""
    e = explanation
    rows, columns, values = names
    lines = [f"{rows} {e.row}, {columns} {e.column}: {e.prediction:.4g}, of which {e.base:.4g} from mean and biases"]
    width = max([len(str(c)) for c, _, _ in e.shares], default=0)
    lines += [
        f"{share:+9.4f}  because {columns} {c!s:<{width}} has {values} {value:.4g}" for c, value, share in e.shares
    ]
    return lines


def printed(titles: tuple[str, ...], tables: Iterator[tuple[np.ndarray, ...]]) -> Iterator[str]:
    """Tables as aligned text, numbers to the right."""
    widths = None
    for table in tables:
        cells = [
            [f"{v:.4f}" if isinstance(v, float) else str(v) for v in column.tolist()] for column in map(_plain, table)
        ]
        right = [np.asarray(column).dtype.kind in "iuf" for column in table]
        if widths is None:
            widths = [max([len(t), *map(len, c)]) for t, c in zip(titles, cells)]
            yield _line(titles, widths, right)
        for line in zip(*cells):
            yield _line(line, widths, right)


def _plain(column: np.ndarray) -> np.ndarray:
    return column.astype(str) if column.dtype.kind == "M" else column


def _line(cells: Any, widths: list[int], right: list[bool]) -> str:
    return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right)).rstrip()


recommend.__doc__ = RECOMMEND_HELP
