"""eckart recommend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from eckart.cli import attribute_files, options
from eckart.cli.cluster import ClusterOptions
from eckart.cli.database import DatabaseOptions
from eckart.cli.options import CellOptions, TripleOptions, option
from eckart.cli.shell import OutputTargets, Shell, echo, harmless
from eckart.errors import EckartError, FileError, InputError, invalid

MOST_REASONS = 2**31 - 1
"""All entries of a row count for its score; those beyond -n are said together."""
BLOCK_ROWS = 2**14
"""Rows whose lists are made and written together: enough for all threads, and lists of a hundred
take some 30 MB."""


@options.spread(ClusterOptions, DatabaseOptions)
def recommend(
    model: Annotated[Path, typer.Argument(help="A model saved by eckart complete --model.")],
    *,
    row: Annotated[
        list[str] | None, option(metavar="ID", help="Id of a row; may be said several times.")
    ] = None,
    column: Annotated[
        list[str] | None, option(metavar="ID", help="Id of a column, with --similar.")
    ] = None,
    n: options.Count = 10,
    everyone: Annotated[bool, option("--all", help="For all rows; needs --out.")] = False,
    rows_file: Annotated[
        str | None,
        option(metavar="FILE", help="For the rows whose ids stand in this file, one a line."),
    ] = None,
    new: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="For the new rows in this file, which is written like the data; nothing is "
            "refitted.",
        ),
    ] = None,
    row_features: attribute_files.RowFeatures = None,
    column_features: attribute_files.ColumnFeatures = None,
    similar: Annotated[
        bool, option("--similar", help="Rows (or columns) that are alike, with their cosine.")
    ] = False,
    explain: Annotated[
        str | None,
        option(metavar="ID", help="Why the row gets this column: the entries that count most."),
    ] = None,
    include_seen: Annotated[
        bool,
        option(
            "--include-seen/--exclude-seen",
            help="Whether to list columns that the row has observed.",
        ),
    ] = False,
    candidates: Annotated[
        str | None,
        option(metavar="FILE", help="Only columns whose ids stand in this file, one a line."),
    ] = None,
    by: Annotated[
        str,
        option(
            help="What best means: chance (of being taken up and liked), prediction (the "
            "largest value), or auto (the first where it can be learned)."
        ),
    ] = "auto",
    min_support: Annotated[
        int, option(help="Only columns with at least this many observations.")
    ] = 0,
    titles: options.Titles = None,
    out: options.OutLists = None,
    triples: TripleOptions,
    written: CellOptions,
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    shell: Shell,
) -> None:
    """The best columns for rows of a saved completion, rows or columns that are alike, and why.

    Ids are those of the data: user 42, movie 'Alien', day 2024-05-01. Columns that a row has
    observed are left out unless --include-seen is said.

    Examples:

        eckart recommend m.safetensors --row 42 -n 10 --titles movies.csv:movieId:title

        eckart recommend m.safetensors --all --out recs.parquet

        eckart recommend m.safetensors --row 42 --explain 17

        eckart recommend m.safetensors --column 17 --similar

        eckart recommend m.safetensors --new new_users.csv

        eckart recommend m.safetensors --row-features new_users.csv:user
    """
    from eckart.cli.id_files import for_model, ids_in
    from eckart.cli.reading import local, reading_of
    from eckart.io.tables.write import check_target
    from eckart.query.answers import answer
    from eckart.query.ids import parse_ids
    from eckart.query.requests import Recommend, Similar

    _check(row, column, everyone, rows_file, new, row_features, similar, explain, out)
    if n < 1:
        raise invalid("-n", n, "a number of 1 or more")
    OutputTargets(out).check(str(model), lambda path: check_target(path, long=True))
    on, fitted = options.engine_option(engine), completion(model)
    if threads is not None:
        fitted.n_threads = threads
    if on is not None:
        fitted.engine = on
    source = reading_of(triples, written, plan=fitted.fit_.plan)
    fitted, cold = _with_attributes(fitted, row_features, column_features, source)
    names, called = source.names, _titles(titles, fitted, model, shell, source)
    if explain is not None and row:
        found = fitted.explain(
            parse_ids(row, fitted.row_ids)[0],
            parse_ids([explain], fitted.column_ids)[0],
            MOST_REASONS,
        )
        found, others = replace(found, shares=found.shares[:n]), found.shares[n:]
        shell.answer["explanation"] = vars(found) | {"others": others_of(others)}
        if not shell.json:
            echo("\n".join([*why(found, names, called), *others_in_words(others, names)]))
        return
    head: tuple[str, ...] = (names[0], "rank", names[1], "score")
    if similar:
        side, name = ("rows", names[0]) if row else ("columns", names[1])
        head = (name, "rank", f"similar_{name}", "cosine")
        called = None if row else called
        lists: Any = [answer(fitted, Similar(**{side: row or column}, n=n))]
    else:
        chosen = None if candidates is None else ids_in(candidates, names[1], fitted.column_ids)
        ask: dict[str, Any] = {
            "n": n,
            "exclude_seen": not include_seen,
            "candidates": chosen,
            "by": by,
            "min_support": min_support,
        }
        if new is not None:
            entries = for_model(source.observed(local(new)), None, fitted.column_ids)
            lists = [answer(fitted, Recommend(X=entries, **ask))]
        else:
            listed = (
                ids_in(rows_file, names[0], fitted.row_ids)
                if rows_file
                else None
                if everyone
                else cold
            )
            lists = _for_rows(fitted, row, listed, ask)
    _tell_lists(head, iter(lists), called, out, shell)


def _tell_lists(
    head: tuple[str, ...], lists: Iterator[Any], called: Any, out: Path | None, shell: Shell
) -> None:
    """Lists as one table, with titles where ids are ``called`` something; a note says what they are
    ordered by."""
    first = next(lists)
    head = (*head, *list(first.columns)[len(head) :])  # whatever else the lists tell
    tables: Any = (tuple(found.columns.values()) for found in chain([first], lists))
    if called is not None:
        head, tables = (
            (*head[:3], "title", *head[3:]),
            ((*t[:3], called(t[2]), *t[3:]) for t in tables),
        )
    if out is not None and len(set(head)) < len(head):
        raise InputError(
            f"column names must differ, got {', '.join(head)}. Fit with other column names."
        )
    tell(head, tables, out, shell)
    shell.answer["ordered_by"] = first.ordered_by
    if first.ordered_by == "chance" and not shell.json:
        typer.echo(
            "ordered by the chance of being taken up and liked; the score is the "
            "expected value (--by prediction orders by it)",
            err=True,
        )


def _with_attributes(
    fitted: Any, rows: str | None, columns: str | None, source: Any
) -> tuple[Any, Any]:
    """The model with the ids that only files of attributes have, and the row ids of such a file."""
    from eckart.cli.attribute_files import features_in
    from eckart.complete.featured import Featured

    if rows is None and columns is None:
        return fitted, None
    if not isinstance(fitted, Featured):
        raise InputError(
            "the model must be one that was fitted with attributes, got a "
            f"{type(fitted).__name__} without"
        )
    given_features: dict[str, Any] = {}
    if rows is not None:
        given_features["row_features"] = features_in(
            rows, "--row-features", source.rows, fitted.row_ids, source
        )
    if columns is not None:
        given_features["column_features"] = features_in(
            columns, "--column-features", source.columns, fitted.column_ids, source
        )
    fitted.update(**given_features)
    if rows is None:
        return fitted, None
    table, key = given_features["row_features"]
    return fitted, np.array(table.column(key).to_pylist(), object)


def _titles(spec: str | None, fitted: Any, model: Path, shell: Shell, source: Any) -> Any:
    """Titles of columns: those asked for, or those that the model names where their file lies
    beside it.

    A model may come from a stranger: it names no file anywhere else.
    """
    from eckart.cli.id_files import Titles

    if spec is not None:
        return Titles(spec, fitted.column_ids, source)
    saved = fitted.fit_.plan.get("titles")
    if not isinstance(saved, str):
        return None
    name = saved.rsplit(":", 2)[0]
    plain = name not in ("", ".", "..") and Path(name).name == name and "\\" not in name
    # a link of an archive leads anywhere; a name may be longer than any file's
    with contextlib.suppress(EckartError, OSError):
        if plain and not (model.parent / name).is_symlink():
            return Titles(str(model.parent / saved), fitted.column_ids, source)
    shell.note(
        f"titles were fitted with --titles {saved}, which is not beside the model; ids "
        "are shown (say --titles)"
    )
    return None


def _for_rows(
    fitted: Any, row: list[str] | None, listed: Any, options: dict[str, Any]
) -> Iterator[Any]:
    """Recommendations for the rows that were named, that stand in a file, or all of them, in
    blocks; an unknown id is refused before the first."""
    from eckart.query.answers import answer
    from eckart.query.ids import parse_ids
    from eckart.query.requests import Recommend

    wanted = listed
    if row:
        wanted = parse_ids(row, fitted.row_ids)
    elif listed is None:
        wanted = fitted.row_ids.names(np.arange(fitted.row_ids.size))
    fitted.row_ids.indices_of(wanted)
    return (
        answer(fitted, Recommend(wanted[a : a + BLOCK_ROWS], **options))
        for a in range(0, len(wanted), BLOCK_ROWS)
    )


def tell(
    titles: tuple[str, ...],
    tables: Iterator[tuple[np.ndarray, ...]],
    out: Path | None,
    shell: Shell,
) -> None:
    """Lists on standard output, as text or in the object, or in a file."""
    from eckart.io.tables.write import write_long

    if out is not None:
        shell.say("out", f"{out} ({write_long(out, titles, tables):,} rows)")
        shell.answer["written"] = {"out": str(out)}
    elif shell.json:
        lines = [
            line for table in tables for line in zip(*(_plain(column).tolist() for column in table))
        ]
        shell.answer["list"] = [dict(zip(titles, line)) for line in lines]
    else:
        for line in printed(titles, tables):
            typer.echo(line)


def completion(path: Path) -> Any:
    """A saved completion; another kind of model is refused."""
    from eckart.factors import ItemWeights, LowRank
    from eckart.io.models.save import load

    fitted = load(path)
    if not isinstance(fitted.fit_.factors, (LowRank, ItemWeights)):
        raise FileError(
            f"{path} must be a model saved by eckart complete, got a {type(fitted).__name__}"
        )
    return fitted


def _check(
    row: list[str] | None,
    column: list[str] | None,
    everyone: bool,
    rows_file: str | None,
    new: str | None,
    row_features: str | None,
    similar: bool,
    explain: str | None,
    out: Path | None,
) -> None:
    """Refuse half a question, or two at once."""
    asked = {
        "--row": row,
        "--column": column,
        "--all": everyone,
        "--rows-file": rows_file,
        "--new": new,
    }
    given_features = [name for name, value in asked.items() if value]
    if not given_features and row_features is not None and not similar:
        given_features = ["--row-features"]
    if len(given_features) != 1:
        came = " and ".join(given_features) or "no row"
        raise InputError(
            "give one of --row, --rows-file, --all and --new (or --column with --similar), got "
            f"{came}"
        )
    if column and not similar:
        raise InputError("--column needs --similar: columns that are alike")
    if similar and given_features[0] not in ("--row", "--column"):
        raise InputError(f"--similar goes with --row or --column, got {given_features[0]}")
    if explain is not None and (given_features[0] != "--row" or similar or len(row or ()) != 1):
        raise InputError(f"--explain {explain} needs exactly one --row")
    if explain is not None and out is not None:
        raise InputError(f"--explain {explain} is printed and takes no --out")
    if everyone and out is None:
        raise InputError("--all needs --out, a file for the lists of all rows")


def why(explanation: Any, names: tuple[str, str, str], titles: Any = None) -> list[str]:
    """An explanation in the words of the data, with titles where there are any."""
    e = explanation
    rows, columns, values = names
    shown = (
        (lambda c: c) if titles is None else (lambda c: f"{c} ({titles(np.array([c], object))[0]})")
    )
    lines = [
        f"{rows} {e.row}, {columns} {shown(e.column)}: {e.prediction:.4g}, of which "
        f"{e.base:.4g} from mean and biases" + (", attributes and time" if e.parts else "")
    ]
    if e.parts:
        lines.append(
            "in parts: " + ", ".join(f"{name} {value:+.4f}" for name, value in e.parts.items())
        )
    width = max([len(str(shown(c))) for c, _, _ in e.shares], default=0)
    lines += [
        f"{share:+9.4f}  because {columns} {shown(c)!s:<{width}} has {values} {value:.4g}"
        for c, value, share in e.shares
    ]
    return lines


def others_of(shares: list[tuple[Any, float, float]]) -> list[dict[str, float]]:
    """The reasons that are not listed in two groups, what they add and what they take away, so that
    with those listed they are all of the score."""
    groups = ([s for s in shares if s[2] > 0], [s for s in shares if s[2] < 0])
    return [
        {
            "count": len(g),
            "value": sum(v for _, v, _ in g) / len(g),
            "share": sum(s for _, _, s in g),
        }
        for g in groups
        if g
    ]


def others_in_words(
    shares: list[tuple[Any, float, float]], names: tuple[str, str, str]
) -> list[str]:
    return [
        f"{g['share']:+9.4f}  because of {g['count']:,} more, {names[2]} "
        f"{g['value']:.4g} on average"
        for g in others_of(shares)
    ]


def printed(titles: tuple[str, ...], tables: Iterator[tuple[np.ndarray, ...]]) -> Iterator[str]:
    """Tables as aligned text, numbers to the right."""
    widths = None
    for table in tables:
        cells = [
            [f"{v:.4f}" if isinstance(v, float) else harmless(str(v)) for v in column.tolist()]
            for column in map(_plain, table)
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
    return "  ".join(
        c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right)
    ).rstrip()
