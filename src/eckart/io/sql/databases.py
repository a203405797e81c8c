"""Opening what a caller names: a DuckDB or SQLite file, a table on disk or in an S3-like store, an
address such as postgresql://host/shop, or a connection.

What is opened here is opened for reading, and closed again; a connection that came open stays open.

Batches that are fetched by a thread while the ones before are worked on: a server and its driver
need a core, and so does who indexes the rows.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from glob import glob
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_plus

from eckart.errors import (
    BARE_SECRET,
    SECRET,
    SECRET_FIELD,
    EckartError,
    FileError,
    InputTypeError,
    MissingError,
    without_secrets,
)

TABLES = (".parquet", ".pq", ".csv", ".tsv", ".arrow", ".feather", ".ipc")
"""Files that are no databases: the SQL sees them as the table ``data``."""
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*://")
WHOLE = re.compile(r"^([A-Za-z][A-Za-z0-9+._-]*://[^/@\s:]*):.*@", re.DOTALL)
"""User and password of a text that is an address: the password may hold spaces."""


@dataclass
class Database:
    """An open connection: how it is spoken to ("duckdb", "adbc", "sqlalchemy" or "dbapi"), what it
    is called in words, and whether it is ours to close."""

    connection: Any
    way: str
    name: str
    owned: bool = False

    def close(self) -> None:
        if self.owned:
            self.connection.close()


def is_address(source: Any) -> bool:
    """Whether a source is the address of a database server."""
    return isinstance(source, str) and ADDRESS.match(source) is not None


def is_store(source: Any) -> bool:
    """Whether a source is the address of files in an S3-like store."""
    return isinstance(source, str) and source.startswith("s3://")


def is_database(path: Any) -> bool:
    """Whether a file is one of DuckDB or SQLite, by its first bytes."""
    return _kind_of_file(Path(path)) is not None


def is_connection(source: Any) -> bool:
    """Whether a source is something that SQL can be sent to."""
    return hasattr(source, "cursor") or _top(source) in ("duckdb", "_duckdb", "sqlalchemy")


def file_of(source: Any) -> Any:
    """The path in an address of SQLite or DuckDB, which SQLAlchemy would open for writing and with
    all other files in reach; any other source as it is.

    >>> [file_of(each) for each in ("sqlite:///data/shop.sqlite", "duckdb:///s.duckdb", "mysql://db/s")]
    ['data/shop.sqlite', 's.duckdb', 'mysql://db/s']
    """
    local = r"(?i)(?:sqlite(?:\+pysqlite)?|duckdb(?:\+\w+)?):///?([^?]*)"
    found = re.match(local, source) if is_address(source) else None
    return source if found is None else found[1] or ":memory:"


def shown(address: str) -> str:
    """An address without its password.

    >>> shown("postgresql://ann:secret@db.example/shop")
    'postgresql://ann:***@db.example/shop'
    >>> shown("mysql://ann@db/shop?password=secret&ssl=1")
    'mysql://ann@db/shop?password=***&ssl=1'
    """
    return without_secrets(WHOLE.sub(r"\1:***@", address))


def _secrets_of(address: str) -> set[str]:
    """The passwords that an address holds, as they are written in it and as a driver decodes
    them."""
    found = {
        match[0].removeprefix(match[1])[1:-1]
        for pattern in (SECRET, BARE_SECRET, WHOLE)
        for match in pattern.finditer(address)
    }
    # a driver may end it at its first @, and take what follows for the host
    found |= {secret.partition("@")[2] for secret in found}
    found |= {match[2].strip("'{}") for match in SECRET_FIELD.finditer(address)}
    return {
        way for secret in found for way in (secret, unquote(secret), unquote_plus(secret)) if way
    }


def open_database(source: Any, write: bool = False) -> Database:
    """A connection to what the caller named; files and servers are opened for reading only, unless
    ``write``."""
    source = file_of(source)
    if is_address(source):
        return _server(source, write)
    if isinstance(source, (str, os.PathLike)):
        return _file(os.fspath(source), write)
    if not is_connection(source):
        raise InputTypeError(
            "sql= needs a connection, a DuckDB or SQLite file, or an address such as "
            f"postgresql://host/shop, got a {type(source).__name__}"
        )
    top = _top(source)
    if top in ("duckdb", "_duckdb"):
        return Database(source, "duckdb", "the DuckDB connection")
    if top == "sqlalchemy":
        if hasattr(source, "exec_driver_sql"):
            return Database(source, "sqlalchemy", "the SQLAlchemy connection")
        return Database(source.connect(), "sqlalchemy", "the SQLAlchemy engine", owned=True)
    if top.startswith("adbc"):
        return Database(source, "adbc", "the ADBC connection")
    return Database(source, "dbapi", f"the {top} connection")


def said(error: BaseException, address: str = "") -> str:
    """An error of a driver in one line: its first, without what points into the statement, and
    without the passwords of the ``address``."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not re.match(r"(LINE \d|\^|\(Background on|\[SQL:)", line)][
        :2
    ]
    line = " ".join(kept) or type(error).__name__
    for secret in sorted(_secrets_of(address), key=len, reverse=True):
        line = line.replace(secret, "***")
    return shown(line)


def duckdb() -> Any:
    """The embedded engine, or the line that installs it."""
    return _driver("duckdb", "reading databases and SQL on files")


def _driver(module: str, what: str) -> Any:
    if find_spec(module.partition(".")[0]) is None:
        raise MissingError(
            f"{what} needs {module.partition('.')[0]}, which is not installed; pip "
            "install 'eckart[sql]'"
        )
    return import_module(module)


def _top(source: Any) -> str:
    return type(source).__module__.partition(".")[0]


def _kind_of_file(path: Path) -> str | None:
    try:
        with path.open("rb") as raw:
            start = raw.read(16)
    except (OSError, ValueError):  # a name with a null byte is a ValueError
        return None
    if start == b"SQLite format 3\x00":
        return "sqlite"
    return "duckdb" if start[8:12] == b"DUCK" else None


def _file(path: str, write: bool) -> Database:
    file = Path(path)
    kind = _kind_of_file(file)
    if write and kind is None and not os.path.exists(file):
        kind = {".duckdb": "duckdb", ".sqlite": "sqlite", ".sqlite3": "sqlite"}.get(
            file.suffix.lower()
        )
        if kind is None:
            raise FileError(
                f"{path} must be a database, or a new one that ends in .duckdb or .sqlite, got a "
                "file that does not exist"
            )
    if not os.path.exists(file) and not write and not _is_pattern(path):
        raise FileError(f"{path} does not exist")
    if kind == "sqlite":
        return _sqlite(file, write)
    if kind == "duckdb":
        return _duckdb(file, write)
    if file.suffix.lower() in TABLES and not write:
        return _tables(path)
    raise FileError(
        f"{path} is not a DuckDB or SQLite database"
        + (f", and no table ({', '.join(TABLES)})" if not write else "")
    )


def _is_pattern(path: str) -> bool:
    return any(mark in path for mark in "*?[")


SETTINGS = {"autoinstall_known_extensions": "false"}
"""Nothing is fetched from a network while a query runs; extensions that are installed are used."""


def _duckdb(file: Path, write: bool) -> Database:
    engine = duckdb()
    try:
        connection = engine.connect(str(file), read_only=not write, config=SETTINGS)
    except engine.Error as error:
        raise FileError(f"{file} cannot be opened: {said(error)}") from None
    if not write:
        _shut(connection)
    return Database(connection, "duckdb", str(file), owned=True)


def _shut(connection: Any, files: list[str] | None = None) -> None:
    """A connection whose statements reach no other file and no network, and cannot change that."""
    if files:
        connection.execute("set allowed_paths = ?", [files])
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _tables(path: str) -> Database:
    """A file of rows (or all that a pattern names) as the view ``data`` of an empty database in
    memory."""
    engine = duckdb()
    connection = engine.connect(config=SETTINGS)
    try:
        quoted = path.replace("'", "''")
        if Path(path).suffix.lower() in (".arrow", ".feather", ".ipc"):
            from pyarrow import dataset

            connection.register("data", dataset.dataset(path, format="ipc"))
            _shut(connection)
        else:
            reader = (
                "read_parquet" if Path(path).suffix.lower() in (".parquet", ".pq") else "read_csv"
            )
            connection.execute(f"create view data as select * from {reader}('{quoted}')")
            files = glob(path, recursive=True) if _is_pattern(path) else []
            _shut(connection, [path, *files])
    except (engine.Error, OSError, ValueError) as error:
        connection.close()
        raise FileError(f"{path} cannot be read: {said(error)}") from None
    return Database(connection, "duckdb", path, owned=True)


def _store(address: str) -> Database:
    """Files of an S3-like store as the view ``data`` of an empty database in memory; Arrow reads
    what the query needs of them.

    Keys, region and another endpoint than Amazon's come from where Amazon's own programs take them
    (the environment, ~/.aws), or stand in the address (?region=...&endpoint_override=...).
    """
    from pyarrow import dataset
    from pyarrow.fs import FileSelector, FileSystem, FileType

    connection = duckdb().connect(config=SETTINGS)
    try:
        system, path = FileSystem.from_uri(address)
        files: Any = path
        if _is_pattern(path):
            folder = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
            found = system.get_file_info(FileSelector(folder, recursive=True))
            files = sorted(
                f.path for f in found if f.type == FileType.File and fnmatch(f.path, path)
            )
            if not files:
                raise FileError(f"{shown(address)} matches no file")
        kind = {".csv": "csv", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}.get(
            Path(path).suffix.lower(), "parquet"
        )
        connection.register("data", dataset.dataset(files, filesystem=system, format=kind))
        _shut(connection)
    except (OSError, ValueError) as error:  # errors of the store, and of an address that is none
        connection.close()
        raise FileError(f"{shown(address)} cannot be read: {said(error, address)}") from None
    except EckartError:
        connection.close()
        raise
    return Database(connection, "duckdb", shown(address), owned=True)


def _sqlite(file: Path, write: bool) -> Database:
    import sqlite3

    how: dict[str, Any] = {"isolation_level": None, "timeout": 30} if write else {"uri": True}
    connection = sqlite3.connect(
        str(file) if write else f"{file.resolve().as_uri()}?mode=ro", **how
    )
    if not write:
        allowed = {
            sqlite3.SQLITE_SELECT,
            sqlite3.SQLITE_READ,
            sqlite3.SQLITE_FUNCTION,
            sqlite3.SQLITE_RECURSIVE,
        }

        def authorise(action: int, first: str | None, second: str | None, *rest: Any) -> int:
            """Reading alone: no attach, vacuum or pragma, which reach other files before the
            statement is seen to be no query."""
            fine = action in allowed and (second or "").lower() != "load_extension"
            fine = fine or (action == sqlite3.SQLITE_PRAGMA and first == "table_info")
            return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

        connection.set_authorizer(authorise)
    return Database(connection, "dbapi", str(file), owned=True)


def _server(address: str, write: bool) -> Database:
    """A server by its address: S3 by Arrow, PostgreSQL by ADBC or psycopg, all else by
    SQLAlchemy."""
    scheme, name = address.partition(":")[0].lower(), shown(address)
    if is_store(address):
        return _store(address)
    try:
        if scheme in ("postgresql", "postgres") and find_spec("adbc_driver_postgresql"):
            connection = import_module("adbc_driver_postgresql.dbapi").connect(address)
            database = Database(connection, "adbc", name, owned=True)
        elif scheme in ("postgresql", "postgres") and find_spec("psycopg"):
            database = Database(
                import_module("psycopg").connect(address), "dbapi", name, owned=True
            )
        else:
            alchemy = _driver("sqlalchemy", f"reading {name}")
            # Without a pool the session ends with the connection, and what was set in it.
            engine = alchemy.create_engine(address, poolclass=alchemy.pool.NullPool)
            database = Database(engine.connect(), "sqlalchemy", name, owned=True)
    except EckartError:
        raise
    except Exception as error:  # each driver has errors of its own
        raise FileError(f"{name} cannot be reached: {said(error, address)}") from None
    if not write:
        _only_read(database)
    return database


def dialect(database: Database) -> str:
    """Which SQL a connection speaks, where it matters: "postgresql", "mysql" (MariaDB, too),
    "sqlite", "duckdb", or the name of its driver."""
    if database.way in ("duckdb", "adbc"):
        return "duckdb" if database.way == "duckdb" else "postgresql"
    name = (
        database.connection.dialect.name
        if database.way == "sqlalchemy"
        else _top(database.connection)
    )
    alike = {
        "mariadb": "mysql",
        "pymysql": "mysql",
        "MySQLdb": "mysql",
        "sqlite3": "sqlite",
        "psycopg": "postgresql",
        "psycopg2": "postgresql",
    }
    return alike.get(name, name)


READ_ONLY = {
    "postgresql": "set session characteristics as transaction read only",
    "mysql": "set session transaction read only",
    "sqlite": "pragma query_only = on",
}


def _only_read(database: Database) -> None:
    """Servers that can be asked to refuse to write in this session from now on; with others nothing
    is committed."""
    statement = READ_ONLY.get(dialect(database))
    if statement is None:
        return
    if database.way == "sqlalchemy":
        database.connection.exec_driver_sql(statement)
    else:
        cursor = database.connection.cursor()
        cursor.execute(statement)
        cursor.close()
    database.connection.commit()


BATCHES = 2
"""Batches that wait: one is enough to keep both sides busy, the second evens them out; more would
only be held."""
LOOK_EVERY = 0.1
"""Seconds after which a thread whose batches nobody takes asks whether anyone still wants them."""
_END = object()


def ahead(batches: Generator[Any, None, None]) -> Iterator[Any]:
    """The same batches in the same order; errors come where they would have come. Who stops early
    leaves no thread behind."""
    waiting: queue.Queue[Any] = queue.Queue(BATCHES)
    unwanted = threading.Event()

    def give(what: Any) -> bool:
        while not unwanted.is_set():
            try:
                waiting.put(what, timeout=LOOK_EVERY)
                return True
            except queue.Full:
                continue
        return False

    def fetch() -> None:
        try:
            if all(map(give, batches)):
                give(_END)
        except BaseException as error:
            give(error)
        finally:
            batches.close()

    thread = threading.Thread(target=fetch, name="eckart-sql", daemon=True)
    thread.start()
    try:
        while (what := waiting.get()) is not _END:
            if isinstance(what, BaseException):
                raise what
            yield what
    finally:
        unwanted.set()
        thread.join()
