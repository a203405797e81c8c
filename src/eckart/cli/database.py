"""--from, --sql and --to: any verb that reads a file reads a database, and any that writes a table
writes one.

The answer of the query is kept in a temporary file while the verb runs: a verb passes over its data
more than once (to measure the error, to fit, to report), and rows could change in between. What the
verb writes reaches the database in one transaction at the end.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli.shell import echo
from eckart.errors import EckartError, InputError
from eckart.loading import pa

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="A database to read instead of FILE: a DuckDB or SQLite file, or an address "
        "such as postgresql://host/shop.",
    ),
]
Sql = Annotated[
    str | None,
    typer.Option(
        "--sql",
        help="With --from: the query whose answer is the data, such as 'select user, item, "
        "stars from ratings'.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="Write the table to a database instead of --out, such as shop.duckdb:recommendations.",
    ),
]
IfExists = Annotated[
    str,
    typer.Option(
        "--if-exists", help="With --to: error, replace or append where the table is there already."
    ),
]

VERBS = ("reduce", "complete", "explain", "recommend")


def with_database(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options of databases, where it reads a file or writes a table; other verbs
    are left as they are."""
    if verb.__name__ not in VERBS:
        return verb
    signature = inspect.signature(verb, eval_str=True)
    known = dict(signature.parameters)
    reads = "file" in known
    if reads:
        known["file"] = known["file"].replace(
            annotation=_optional(known["file"].annotation), default=None
        )
    named: dict[str, tuple[Any, Any]] = {"from_": (From, None), "sql": (Sql, None)} if reads else {}
    named |= {"to": (To, None), "if_exists": (IfExists, "error")}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=usual, annotation=kind)
        for name, (kind, usual) in named.items()
    ]

    @wraps(verb)
    def call(
        *,
        to: str | None = None,
        if_exists: str = "error",
        from_: str | None = None,
        sql: str | None = None,
        **given: Any,
    ) -> None:
        if reads:
            _check_source(given.get("file"), from_, sql)
        if to is None and from_ is None:
            verb(**given)
            return
        with _Places() as places:
            if to is not None:
                given["out"] = places.target(to, given.get("out"), if_exists)
            if from_ is not None:
                given["file"] = places.source(from_, sql)
            with places.own_words():
                verb(**given)
            places.deliver(given.get("quiet", False))

    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in known.values()] + added
    )
    call.__annotations__ = {name: p.annotation for name, p in call.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return call


def _optional(annotation: Any) -> Any:
    """An argument that may be left out."""
    return (
        Annotated[annotation.__origin__ | None, *annotation.__metadata__]
        if hasattr(annotation, "__metadata__")
        else annotation
    )


def _check_source(file: str | None, from_: str | None, sql: str | None) -> None:
    if (file is None) == (from_ is None):
        came = "neither the argument FILE nor --from" if file is None else f"{file} and --from"
        raise InputError(f"give a file of data, or a database with --sql, not both, got {came}")
    if (from_ is None) != (sql is None):
        raise InputError(
            "--from and --sql go together, a database and a query of it, got "
            f"{'--sql' if from_ is None else '--from'} alone"
        )


class _Places:
    """The temporary files that stand for the database while a verb runs."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.held: list[Any] = []
        self.to: tuple[str, str, str, Path] | None = None

    def __enter__(self) -> _Places:
        return self

    def __exit__(self, *error: Any) -> None:
        for spool in self.held:
            Path(spool).unlink(missing_ok=True)

    def target(self, to: str, out: Any, if_exists: str) -> Path:
        """Where the verb shall write its table."""
        from eckart.io.sql.answers import new_spool
        from eckart.io.sql.databases import shown
        from eckart.io.sql.write import check_table, split_target

        if out is not None:
            raise InputError(f"give --out or --to, not both, got {out} and {shown(to)}")
        place, table = split_target(to)
        check_table(place, table, if_exists)
        spool = new_spool(".parquet")
        self.held.append(spool)
        self.names[str(spool)] = "a table"  # the database holds it only when it was delivered
        self.to = place, table, if_exists, Path(spool)
        return Path(spool)

    def source(self, from_: str, sql: str | None) -> str:
        """The answer of the query as a file."""
        from eckart.io.sql.answers import QueryAnswer, spooled
        from eckart.io.sql.databases import shown

        answer = QueryAnswer(from_, sql)
        batches = answer.batches()
        first = next(batches, None)
        if first is None:
            raise InputError(f"{answer.name} must have at least one row, got none")
        spool = spooled([pa.Table.from_batches([first])], batches, answer.name)
        self.held.append(spool)
        self.names[str(spool)] = shown(from_)
        self.names[spool.name] = Path(shown(from_)).name
        return str(spool)

    @contextmanager
    def own_words(self) -> Iterator[None]:
        """What the verb says names the database, not the temporary file."""
        before = sys.stdout
        sys.stdout = _Renamed(before, self.renamed)  # type: ignore[assignment]
        try:
            yield
        except EckartError as error:
            raise type(error)(self.renamed(str(error))) from None
        finally:
            sys.stdout = before

    def renamed(self, words: str) -> str:
        for name, shown_name in self.names.items():
            words = words.replace(name, shown_name)
        return words

    def deliver(self, quiet: bool) -> None:
        """What the verb wrote, into the database."""
        if self.to is None:
            return
        from eckart.io.sql.databases import shown
        from eckart.io.sql.write import write_sql
        from eckart.io.tables.frames import arrow_batches, arrow_head

        place, table, if_exists, spool = self.to
        if not spool.exists():
            raise InputError(
                f"--to {shown(place)}:{table} came, but this question writes no table; leave it out"
            )
        rows = write_sql(place, table, arrow_batches(spool, arrow_head(spool)[0].names), if_exists)
        if not quiet:
            echo(f"{'to':<10} table {table} of {shown(place)} ({rows:,} rows)")


class _Renamed:
    """Standard output in other words."""

    def __init__(self, out: Any, words: Callable[[str], str]):
        self.out, self.words = out, words

    def write(self, text: Any) -> int:
        return self.out.write(self.words(text) if isinstance(text, str) else text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)
