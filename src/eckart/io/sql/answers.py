"""The answer of a query as Arrow batches, one at a time: what is held does not grow with the number
of rows.

Types are those of the database (decimals, dates, text); NULL is a null, which means missing.
Drivers that speak Arrow hand over their batches; rows of others become batches whose types are
those of their values.
"""

from __future__ import annotations

import secrets
import tempfile
import weakref
from collections.abc import Generator, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

from eckart.errors import EckartError, FileError, InputError, invalid
from eckart.io.sql.databases import Database, ahead, open_database, said
from eckart.loading import pa

BATCH_ROWS = 2**16
"""Rows of a batch: large enough that the cost of a batch is none, small enough that one of 100
columns is some 50 MB."""


class QueryAnswer:
    """What a query answers, each time its batches are asked for. ``name`` is what messages call
    it."""

    def __init__(self, source: Any, sql: Any):
        if not isinstance(sql, str) or not sql.strip():
            raise invalid("sql", sql, "a query, such as 'select user, item, stars from ratings'")
        self.source, self.sql = source, sql.strip().rstrip(";")
        self.name = "the answer of the query"

    def batches(self) -> Iterator[Any]:
        """Record batches, in the order of the rows. Errors are one line: what the database said,
        and after how many rows."""
        database = open_database(self.source)
        self.name = f"the answer of {database.name}"
        rows = 0
        try:
            for batch in _ways[database.way](database, self.sql):
                if len(set(batch.schema.names)) < len(batch.schema.names):
                    raise InputError(
                        f"{self.name} must have columns whose names differ, got "
                        f"{', '.join(batch.schema.names)}. Rename one with 'as'."
                    )
                yield batch
                rows += batch.num_rows
        except EckartError:
            raise
        except (OSError, MemoryError):
            raise
        except Exception as error:  # each driver has errors of its own
            if rows:
                raise FileError(
                    f"{database.name} failed after {rows:,} rows: {said(error)}; "
                    "nothing was kept, ask again"
                ) from None
            raise InputError(f"{database.name} refused the query: {said(error)}") from None
        finally:
            database.close()

    def table(self, most_bytes: int) -> Any:
        """The whole answer as an Arrow table; or, where it is larger than that, the path of a
        temporary Arrow file that holds it."""
        held, size = [], 0
        batches = self.batches()
        for batch in batches:
            held.append(pa.Table.from_batches([batch]))
            size += batch.nbytes
            if size > most_bytes:
                return spooled(held, batches, self.name)
        if not held:
            raise InputError(f"{self.name} must have at least one row, got none")
        return _joined(held, self.name)


class Spool(type(Path())):  # type: ignore[misc]
    """The path of a temporary file, which is removed when nobody holds it any more."""


def new_spool(ending: str = ".arrow") -> Spool:
    """A name for a temporary file beside other temporary files."""
    spool = Spool(tempfile.gettempdir(), f"eckart-sql-{secrets.token_hex(8)}{ending}")
    weakref.finalize(spool, Path(spool).unlink, missing_ok=True)
    return spool


def spooled(held: list[Any], rest: Iterator[Any], name: str) -> Spool:
    """The held tables and the rest of the batches in a temporary Arrow file, for data that are
    passed over several times."""
    spool = new_spool()
    head = _joined(held, name)
    schema, writer = head.schema, None
    held.clear()
    try:
        writer = pa.ipc.new_file(str(spool), schema)
        writer.write_table(head)
        del head
        for batch in rest:
            if batch.schema != schema:
                wider = _unified([schema, batch.schema], name)
                if wider != schema:
                    writer.close()
                    writer, schema = _rewritten(spool, wider), wider
                batch = pa.Table.from_batches([batch]).cast(schema)
            writer.write(batch)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{name} cannot be held: {said(error)}; cast the column in the query"
        ) from None
    except OSError as error:
        raise FileError(
            f"{spool} cannot be written: {error}; the answer is larger than memory may "
            "hold, free some space for it"
        ) from None
    finally:
        if writer is not None:
            writer.close()
    return spool


def _rewritten(spool: Spool, schema: Any) -> Any:
    """A writer of the same file whose batches so far have wider types: whole numbers met fractions,
    nothing met something."""
    old = spool.with_suffix(".old")
    spool.rename(old)
    writer = pa.ipc.new_file(str(spool), schema)
    try:
        with pa.memory_map(str(old)) as raw:
            before = pa.ipc.open_file(raw)
            for i in range(before.num_record_batches):
                writer.write(pa.Table.from_batches([before.get_batch(i)]).cast(schema))
    finally:
        Path(old).unlink()
    return writer


def _joined(tables: list[Any], name: str) -> Any:
    schema = _unified([t.schema for t in tables], name)
    return pa.concat_tables([t if t.schema == schema else t.cast(schema) for t in tables])


def _unified(schemas: list[Any], name: str) -> Any:
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"{name} changes its types from row to row: {said(error)}; cast the column in the query"
        ) from None


def _from_duckdb(database: Database, sql: str) -> Iterator[Any]:
    import duckdb

    found = database.connection.extract_statements(sql)
    if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(str(s.type).rpartition(".")[2].lower() for s in found) or "no statement"
        raise InputError(f"sql must be one select, got {sql!r} ({kinds}): databases are only read")
    yield from database.connection.sql(sql).to_arrow_reader(BATCH_ROWS)


def _from_adbc(database: Database, sql: str) -> Iterator[Any]:
    return ahead(_fetched(database, sql))


def _fetched(database: Database, sql: str) -> Generator[Any, None, None]:
    with closing(database.connection.cursor()) as cursor:
        cursor.execute(sql)
        if cursor.description is None:
            raise _no_rows(sql)
        for batch in cursor.fetch_record_batch():
            yield _plain(batch)


def _plain(batch: Any) -> Any:
    """A batch without types that only one database has: PostgreSQL's numeric, which comes as text,
    becomes the decimal that its column declares (float64 where it declares none); others stay as
    they are stored."""
    columns, names = [], batch.schema.names
    for field, column in zip(batch.schema, batch.columns):
        if isinstance(field.type, pa.BaseExtensionType):
            numeric = "numeric" in str(getattr(field.type, "type_name", ""))
            column = (
                column.storage.cast(_decimal(field.metadata or {})) if numeric else column.storage
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _decimal(metadata: dict[bytes, bytes]) -> Any:
    """The type of a numeric column: precision and scale are packed into one number, 4 more than
    (precision << 16) + scale; -1 is none."""
    packed = int(metadata.get(b"POSTGRESQL:typmod", b"-1")) - 4
    precision, scale = packed >> 16, packed & 0x7FF
    return (
        pa.decimal128(precision, scale)
        if packed > 0 and precision <= 38 and scale <= precision
        else pa.float64()
    )


def _from_sqlalchemy(database: Database, sql: str) -> Iterator[Any]:
    # Without parameters a % in the query is no mark of one, whatever the driver's marks are.
    connection = database.connection.execution_options(
        stream_results=True, max_row_buffer=BATCH_ROWS, no_parameters=True
    )
    result = connection.exec_driver_sql(sql)
    if not result.returns_rows:
        raise _no_rows(sql)
    with closing(result):
        names = list(result.keys())
        seen = 0
        for rows in result.partitions(BATCH_ROWS):
            yield _batch(names, rows, seen)
            seen += len(rows)


def _from_dbapi(database: Database, sql: str) -> Iterator[Any]:
    """Rows of any driver. Those of PostgreSQL hold the whole answer unless the cursor has a name,
    those of MySQL unless it is of another class."""
    connection, how = database.connection, {}
    driver = type(connection).__module__.partition(".")[0]
    named = driver in ("psycopg", "psycopg2")
    if named:
        how = {"name": f"eckart_{secrets.token_hex(4)}"}
        if getattr(connection, "autocommit", False) is True:
            how["withhold"] = True  # type: ignore[assignment]
    classes = (
        (import_module(f"{driver}.cursors").SSCursor,) if driver in ("pymysql", "MySQLdb") else ()
    )
    with closing(connection.cursor(*classes, **how)) as cursor:
        cursor.execute(sql)
        names, seen = None, 0
        while True:
            rows = cursor.fetchmany(BATCH_ROWS) if cursor.description is not None or named else []
            if names is None:
                if cursor.description is None:
                    raise _no_rows(sql)
                names = [str(column[0]) for column in cursor.description]
            if not rows:
                return
            yield _batch(names, rows, seen)
            seen += len(rows)


_ways = {
    "duckdb": _from_duckdb,
    "adbc": _from_adbc,
    "sqlalchemy": _from_sqlalchemy,
    "dbapi": _from_dbapi,
}


def _no_rows(sql: str) -> InputError:
    return InputError(f"sql must be a select, got {sql!r}, which answers no rows")


def _batch(names: list[str], rows: Any, seen: int) -> Any:
    """Rows of Python values as a record batch of Arrow's types for them."""
    columns = []
    for name, values in zip(names, zip(*rows)):
        try:
            columns.append(pa.array(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            columns.append(_odd_column(name, values, seen))
    return pa.RecordBatch.from_arrays(columns, names=names)


def _odd_column(name: str, values: Any, seen: int) -> Any:
    """Values that Arrow has no type for: unique ids as text; a column of several kinds is refused
    by its row."""
    import uuid

    if all(v is None or isinstance(v, uuid.UUID) for v in values):
        return pa.array([None if v is None else str(v) for v in values])
    first = next(v for v in values if v is not None)
    at = next((i for i, v in enumerate(values) if v is not None and type(v) is not type(first)), 0)
    raise InputError(
        f"column {name!r} must hold {type(first).__name__} as before, got {values[at]!r} "
        f"({type(values[at]).__name__}) at row {seen + at} of the answer. Cast it in the "
        f"query, such as cast({name} as text)."
    )
