"""--from, --sql and --to: any verb that reads a file reads a database, and any that writes a table
writes one.

The answer of the query is kept in a temporary file while the verb runs: a verb passes over its data
more than once (to measure the error, to fit, to report), and rows could change in between. What the
verb writes reaches the database in one transaction at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from eckart.cli.options import option
from eckart.errors import InputError
from eckart.loading import pa


@dataclass
class DatabaseOptions:
    """Databases"""

    supplies = ("file",)

    from_: Annotated[
        str | None,
        option(
            "--from",
            help="A database to read instead of FILE: a DuckDB or SQLite file, or an address "
            "such as postgresql://host/shop.",
        ),
    ] = None
    sql: Annotated[
        str | None,
        option(
            "--sql",
            help="With --from: the query whose answer is the data, such as 'select user, item, "
            "stars from ratings'.",
        ),
    ] = None
    to: Annotated[
        str | None,
        option(
            "--to",
            help="Write the table to a database instead of --out, such as "
            "shop.duckdb:recommendations.",
        ),
    ] = None
    if_exists: Annotated[
        str,
        option(
            "--if-exists",
            help="With --to: error, replace or append where the table is there already.",
        ),
    ] = "error"

    @contextmanager
    def enter(self, own: dict[str, Any], groups: dict[str, Any]) -> Iterator[None]:
        """Files that stand for the database while the command runs."""
        shell = groups["shell"]
        if "file" in own:
            _check_source(own["file"], self.from_, self.sql)
        elif self.from_ is not None or self.sql is not None:
            raise InputError("--from and --sql go with commands that read data, got a saved model")
        with _Places() as places:
            if self.to is not None:
                own["out"] = places.target(self.to, own["out"], self.if_exists)
            if self.from_ is not None:
                own["file"] = places.source(self.from_, self.sql)
            shell.names |= places.names
            yield
            places.deliver(shell)


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

    def deliver(self, shell: Any) -> None:
        """What the command wrote, into the database."""
        if self.to is None or (shell.strict and not shell.holds):
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
        shell.say("to", f"table {table} of {shown(place)} ({rows:,} rows)")
