"""Tables into databases: all rows or none, in one transaction."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from eckart.errors import EckartError, FileError, InputError, invalid
from eckart.io.sql.databases import (
    Database,
    dialect,
    file_of,
    is_address,
    is_store,
    open_database,
    said,
    shown,
)
from eckart.loading import pa

RULES = ("error", "replace", "append")
"""What becomes of a table that is there already."""


def split_target(target: str) -> tuple[str, str]:
    """The database and the table of ``shop.duckdb:recommendations`` or
    ``postgresql://host/shop:recommendations``.

    >>> split_target("shop.duckdb:recommendations"), split_target("postgresql://host:5432/shop:recs")
    (('shop.duckdb', 'recommendations'), ('postgresql://host:5432/shop', 'recs'))
    """
    place, _, table = target.rpartition(":")
    if not place or not table or (is_address(target) and not is_address(place)) or "/" in table:
        raise InputError(
            "--to must be the database and the table, such as shop.duckdb:recommendations, got "
            f"{shown(target)}"
        )
    return place, table


def check_table(source: Any, table: str, if_exists: str = "error") -> None:
    """Refuse a place that cannot be written to before any work is done. A file that is not there
    yet is not made."""
    source = file_of(source)
    if if_exists not in RULES:
        raise invalid("if_exists", if_exists, "one of " + ", ".join(map(repr, RULES)))
    if not isinstance(table, str) or not table or "\0" in table:
        raise invalid("table", table, "the name of a table")
    if is_store(source):
        raise FileError(
            f"{source} must be a database, got a store of files. Write a file by --out instead."
        )
    if isinstance(source, str) and not is_address(source) and not os.path.exists(source):
        if not os.path.isdir(Path(source).parent):
            raise FileError(f"{Path(source).parent} is not a folder; make it first")
        if Path(source).suffix.lower() not in (".duckdb", ".sqlite", ".sqlite3"):
            raise FileError(
                f"{source} must be a database, or a new one that ends in .duckdb or .sqlite, got a "
                "file that does not exist"
            )
        return
    if if_exists == "error":
        database = open_database(source)
        try:
            if _columns(database, table) is not None:
                raise _there(database, table)
        finally:
            database.close()


def write_sql(source: Any, table: str, batches: Iterable[Any], if_exists: str = "error") -> int:
    """Write Arrow batches as a table of a database (a file, an address or a connection); returns
    the number of rows.

    One transaction: after an error, or when the process is killed, the database is as it was
    before. ``if_exists`` says what becomes of a table that is there: ``"error"``, ``"replace"`` or
    ``"append"`` (its columns must have the same names).
    """
    source = file_of(source)
    check_table(source, table, if_exists)
    new = (
        isinstance(source, (str, os.PathLike))
        and not is_address(source)
        and not os.path.exists(source)
    )
    database = open_database(source, write=True)
    done = False
    try:
        rows = _transact(database, table, iter(batches), if_exists)
        done = True
        return rows
    except EckartError:
        raise
    except Exception as error:  # each driver has errors of its own
        raise FileError(
            f"table {table!r} of {database.name} was not written: {said(error)}; the "
            "database is as it was"
        ) from None
    finally:
        database.close()
        if new and not done:
            Path(source).unlink(missing_ok=True)


def _there(database: Database, table: str) -> InputError:
    return InputError(
        f"{database.name} has a table {table!r} already; choose another name, or what "
        "becomes of it: if-exists replace or append"
    )


def _transact(database: Database, table: str, batches: Iterator[Any], rule: str) -> int:
    if dialect(database) == "mysql":
        return _exchange(database, table, batches, rule)
    connection = database.connection
    begins = database.way == "duckdb" or getattr(connection, "isolation_level", "") is None
    if begins:
        connection.execute("begin")
    try:
        rows = _fill(database, table, batches, rule)
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            connection.rollback()
        raise
    if begins:
        connection.execute("commit")
    else:
        connection.commit()
    return rows


def _exchange(database: Database, table: str, batches: Iterator[Any], rule: str) -> int:
    """MySQL ends a transaction where a table is made or dropped. So the rows go into a table of
    another name, which takes the wanted one in one step when all are there; a killed process may
    leave that other table behind, and never a half of the wanted one."""
    there = _columns(database, table)
    if there is not None and rule == "error":
        raise _there(database, table)
    token = secrets.token_hex(4)
    # names have 64 letters
    filled = table if there is not None and rule == "append" else f"{table[:40]}_new_{token}"
    try:
        rows = _fill(database, filled, batches, rule, table)
        database.connection.commit()
        if filled != table:
            old = f"{table[:40]}_old_{token}"
            first = f"{quoted(table, '`')} to {quoted(old, '`')}, " if there is not None else ""
            _run(database, f"rename table {first}{quoted(filled, '`')} to {quoted(table, '`')}")
            if there is not None:
                _run(database, f"drop table {quoted(old, '`')}")
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            database.connection.rollback()
        if filled != table:
            with suppress(Exception):
                _run(database, f"drop table if exists {quoted(filled, '`')}")
        raise
    return rows


def _fill(
    database: Database, table: str, batches: Iterator[Any], rule: str, called: str = ""
) -> int:
    first = next(batches, None)
    if first is None:
        raise InputError(f"table {called or table!r} needs at least one row, got none")
    names, there, mark = first.schema.names, _columns(database, table), _mark(database)
    if there is not None and rule == "append":
        if set(there) != set(names):
            raise InputError(
                f"table {table!r} of {database.name} must have the columns {', '.join(names)} to "
                f"append to it, got {', '.join(there)}"
            )
    else:
        if there is not None and rule == "error":
            raise _there(database, table)
        if there is not None:
            _run(database, f"drop table {quoted(table, mark)}")
        kinds = KINDS.get(dialect(database), STANDARD)
        made = ", ".join(f"{quoted(f.name, mark)} {_kind(f.type, kinds)}" for f in first.schema)
        _run(database, f"create table {quoted(table, mark)} ({made})")
    rows = 0
    for batch in _chain(first, batches):
        _insert(database, table, names, batch)
        rows += batch.num_rows
    return rows


def _insert(database: Database, table: str, names: list[str], batch: Any) -> None:
    listed = ", ".join(map(quoted, names))
    connection = database.connection
    if database.way == "duckdb":
        connection.register("eckart_batch", pa.Table.from_batches([batch]))
        connection.execute(
            f"insert into {quoted(table)} ({listed}) select {listed} from eckart_batch"
        )
        connection.unregister("eckart_batch")
        return
    if database.way == "adbc":
        with connection.cursor() as cursor:
            cursor.adbc_ingest(table, batch, mode="append")
        return
    rows = list(zip(*(_values(batch.column(j), dialect(database)) for j in range(len(names)))))
    if database.way == "sqlalchemy":
        from sqlalchemy import column, insert
        from sqlalchemy import table as named

        into = insert(named(table, *map(column, names)))
        connection.execute(into, [dict(zip(names, row)) for row in rows])
        return
    listed = ", ".join(quoted(name, _mark(database)) for name in names)
    into, value = f"insert into {quoted(table, _mark(database))} ({listed}) values", "?"
    if dialect(database) in ("postgresql", "mysql"):
        into, value = into.replace("%", "%%"), "%s"
    cursor = connection.cursor()
    cursor.executemany(f"{into} ({', '.join([value] * len(names))})", rows)
    cursor.close()


def _values(column: Any, speaks: str) -> list[Any]:
    """Python values; SQLite keeps dates and decimals as text, which sorts as they do, and MySQL
    times of a zone as those of UTC."""
    import datetime
    import decimal

    if speaks == "mysql" and pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    plain = column.to_pylist()
    if speaks != "sqlite":
        return plain
    return [
        str(v) if isinstance(v, (datetime.date, datetime.time, decimal.Decimal)) else v
        for v in plain
    ]


def _columns(database: Database, table: str) -> list[str] | None:
    """The names of a table's columns, or None where there is no such table (in the schema that is
    searched first)."""
    if database.way == "dbapi" and dialect(database) == "sqlite":
        return [
            row[1] for row in database.connection.execute(f"pragma table_info({quoted(table)})")
        ] or None
    # whose inspector stumbles over marks in names
    if database.way == "sqlalchemy" and dialect(database) != "mysql":
        from sqlalchemy import inspect

        inspector = inspect(database.connection)
        return (
            [c["name"] for c in inspector.get_columns(table)]
            if inspector.has_table(table)
            else None
        )
    ask = (
        "select column_name from information_schema.columns where table_schema = {} and "
        "table_name = '{}' order by ordinal_position"
    )
    here = "database()" if dialect(database) == "mysql" else "current_schema()"
    statement = ask.format(here, table.replace("'", "''"))
    if database.way == "duckdb":
        return [row[0] for row in database.connection.execute(statement).fetchall()] or None
    if database.way == "sqlalchemy":
        found = database.connection.exec_driver_sql(
            statement, execution_options={"no_parameters": True}
        )
        return [row[0] for row in found.fetchall()] or None
    cursor = database.connection.cursor()
    cursor.execute(statement)
    names = [row[0] for row in cursor.fetchall()]
    cursor.close()
    return names or None


STANDARD = {"integer": "bigint", "floating": "double precision", "text": "text", "bytes": "bytea"}
SQLITE = {"integer": "integer", "floating": "real", "text": "text", "bytes": "blob"}
MYSQL = {"integer": "bigint", "floating": "double", "text": "longtext", "bytes": "longblob"}
KINDS = {"sqlite": SQLITE, "mysql": MYSQL}


def _kind(kind: Any, words: dict[str, str]) -> str:
    """The type of a column in SQL."""
    t = pa.types
    if t.is_dictionary(kind):
        kind = kind.value_type
    if t.is_boolean(kind):
        return "boolean"
    if t.is_integer(kind):
        return words["integer"]
    if t.is_floating(kind):
        return words["floating"]
    if t.is_decimal(kind) and words is not SQLITE:
        return f"decimal({kind.precision}, {kind.scale})"
    if t.is_date(kind) and words is not SQLITE:
        return "date"
    if t.is_timestamp(kind) and words is MYSQL:
        return "datetime(6)"
    if t.is_timestamp(kind) and words is STANDARD:
        return "timestamp" if kind.tz is None else "timestamp with time zone"
    return words["bytes"] if t.is_binary(kind) or t.is_large_binary(kind) else words["text"]


def quoted(name: str, mark: str = '"') -> str:
    """A name as SQL writes one that may hold anything.

    >>> quoted('my "best" table')
    '"my ""best"" table"'
    """
    return mark + name.replace(mark, 2 * mark) + mark


def _mark(database: Database) -> str:
    """What stands around names: MySQL has a mark of its own."""
    return "`" if dialect(database) == "mysql" else '"'


def _run(database: Database, statement: str) -> None:
    if database.way == "duckdb":
        database.connection.execute(statement)
    elif database.way == "sqlalchemy":
        database.connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    else:
        cursor = database.connection.cursor()
        cursor.execute(statement)
        cursor.close()


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
