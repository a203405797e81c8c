"""Databases: what the SQL answers is the data, types kept; results back in one transaction."""

from __future__ import annotations

import datetime
import gc
import sqlite3
import threading
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import eckart
from eckart import ALS, PCA
from eckart.cli.main import app
from eckart.errors import EckartError, FileError, InputError
from eckart.io.sql.answers import QueryAnswer
from eckart.io.sql.databases import ahead
from eckart.io.sql.write import split_target, write_sql
from postgres_server import program, server

duckdb = pytest.importorskip("duckdb", reason="the extra sql is not installed")

RATINGS = "select usr, item, stars from ratings"
LONG = {"rows": "usr", "columns": "item", "values": "stars"}
TYPES = "create table t (id text, price decimal(9, 2), day date, n bigint, x double precision)"
ROWS = [
    ("ä", Decimal("12.50"), datetime.date(2024, 5, 1), 7, 0.5),
    ("b", None, None, None, None),
    ("c", Decimal("-3.25"), datetime.date(1999, 1, 31), -1, 2.0),
]


@pytest.fixture
def shop(tmp_path):
    """The same ratings in a DuckDB file and a SQLite file."""
    rng = np.random.default_rng(0)
    cells = rng.choice(60 * 40, 900, replace=False)
    rows = [(f"u{c // 40}", int(c % 40), float(rng.integers(1, 11)) / 2) for c in cells]
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as c:
        given = pa.table(dict(zip(("usr", "item", "stars"), zip(*rows))))
        c.register("given", given)
        c.execute(
            "create table ratings as select usr, item::integer as item, "
            "stars::decimal(3, 1) as stars from given"
        )
    with sqlite3.connect(tmp_path / "shop.sqlite") as c:
        c.execute("create table ratings (usr text, item integer, stars real)")
        c.executemany("insert into ratings values (?, ?, ?)", rows)
    return tmp_path, rows


def _same(a, b):
    assert list(a.rows) == list(b.rows)
    assert list(a.columns) == list(b.columns)
    np.testing.assert_array_equal(a.to_scipy().toarray(), b.to_scipy().toarray())


@pytest.mark.parametrize("file", ["shop.duckdb", "shop.sqlite"])
def test_a_query_of_a_file_is_the_table_itself(shop, file):
    folder, rows = shop
    wanted = eckart.read(rows, rows=0, columns=1, values=2)
    _same(eckart.read(folder / file, RATINGS, **LONG), wanted)
    model = ALS(3, random_state=0).fit(str(folder / file), sql=RATINGS, **LONG)
    np.testing.assert_array_equal(
        model.predict("u1", [3, 4]),
        ALS(3, random_state=0).fit(rows, rows=0, columns=1, values=2).predict("u1", [3, 4]),
    )


def test_connections_of_python(shop):
    folder, rows = shop
    wanted = eckart.read(rows, rows=0, columns=1, values=2)
    with duckdb.connect(str(folder / "shop.duckdb")) as c:
        # a table that only this connection sees
        c.execute("create temp table mine as select * from ratings")
        _same(eckart.read(c, "select * from mine", **LONG), wanted)
        assert c.execute("select count(*) from mine").fetchone() == (900,)  # still open
    with sqlite3.connect(folder / "shop.sqlite") as c:
        _same(eckart.read(c, RATINGS, **LONG), wanted)
    adbc = pytest.importorskip("adbc_driver_sqlite.dbapi")
    with adbc.connect(str(folder / "shop.sqlite")) as c:
        _same(eckart.read(c, RATINGS, **LONG), wanted)


def test_sqlalchemy_engine_and_connection(shop):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    folder, rows = shop
    wanted = eckart.read(rows, rows=0, columns=1, values=2)
    engine = sqlalchemy.create_engine(f"sqlite:///{folder / 'shop.sqlite'}")
    _same(eckart.read(engine, RATINGS, **LONG), wanted)
    with engine.connect() as c:
        _same(eckart.read(c, RATINGS, **LONG), wanted)
        c.rollback()
        assert write_sql(c, "copied", [pa.RecordBatch.from_pylist([{"a": 1, "b": "x"}])]) == 1
    with engine.connect() as c:
        assert c.exec_driver_sql("select * from copied").fetchall() == [(1, "x")]
    engine.dispose()


def test_tables_on_disk_are_called_data(shop):
    folder, rows = shop
    with duckdb.connect(str(folder / "shop.duckdb"), read_only=True) as c:
        c.execute(f"copy ratings to '{folder}/it''s.parquet'")
        c.execute(f"copy ratings to '{folder}/r.csv'")
    wanted = eckart.read(rows, rows=0, columns=1, values=2)
    for file in ("it's.parquet", "r.csv"):
        _same(eckart.read(folder / file, "select * from data", **LONG), wanted)


def test_types_are_kept_and_null_is_missing(tmp_path):
    with duckdb.connect(str(tmp_path / "t.duckdb")) as c:
        c.execute(TYPES)
        c.executemany("insert into t values (?, ?, ?, ?, ?)", ROWS)
    table = QueryAnswer(tmp_path / "t.duckdb", "select * from t").table(10**9)
    assert [str(k) for k in table.schema.types] == [
        "string",
        "decimal128(9, 2)",
        "date32[day]",
        "int64",
        "double",
    ]
    x = eckart.read(tmp_path / "t.duckdb", "select id, price, n, x from t", index="id")
    np.testing.assert_array_equal(x.array, [[12.5, 7, 0.5], [np.nan] * 3, [-3.25, -1, 2.0]])
    assert list(x.rows) == ["ä", "b", "c"]
    days = eckart.read(
        tmp_path / "t.duckdb",
        "select id, day, x from t where day is not null",
        rows="id",
        columns="day",
        values="x",
    )
    assert days.column_of(np.datetime64("1999-01-31")) == 0


def test_an_answer_larger_than_memory_may_hold_is_streamed_and_its_file_removed(
    tmp_path, monkeypatch
):
    with sqlite3.connect(tmp_path / "w.sqlite") as c:
        # no types: the first batches are whole numbers, later ones are not
        c.execute("create table w (a, b)")
        c.executemany(
            "insert into w values (?, ?)",
            [(i, None if i < 150 else i / 4) for i in range(200)] + [(0.5, -1.0)],
        )
    whole = eckart.read(tmp_path / "w.sqlite", "select * from w")
    monkeypatch.setattr("eckart.io.sql.answers.BATCH_ROWS", 50)
    monkeypatch.setattr("eckart.io.read.IN_MEMORY_BYTES", 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    streamed = eckart.read(tmp_path / "w.sqlite", "select * from w")
    assert not streamed.in_memory
    np.testing.assert_array_equal(np.concatenate(list(streamed.stream.blocks(7))), whole.array)
    np.testing.assert_allclose(PCA(1).fit(streamed).mean_, PCA(1).fit(whole).mean_)
    assert len(list(tmp_path.glob("eckart-sql-*"))) == 1
    del streamed
    gc.collect()
    assert not list(tmp_path.glob("eckart-sql-*"))


@pytest.mark.parametrize(
    ("file", "sql", "words"),
    [
        ("shop.duckdb", "selec 1", "refused the query.*selec"),
        ("shop.sqlite", "selec 1", "refused the query.*selec"),
        ("shop.duckdb", "select nothing from ratings", "refused the query.*nothing"),
        ("shop.duckdb", "drop table ratings", "sql must be one select, got"),
        ("shop.duckdb", "select 1; drop table ratings", "sql must be one select, got"),
        ("shop.duckdb", "copy ratings to 'x.csv'", "sql must be one select, got"),
        ("shop.sqlite", "delete from ratings", "refused the query.*not authorized"),
        ("shop.sqlite", "select item, item from ratings", "the answer of"),
        (
            "shop.duckdb",
            "  ",
            "sql must be a query, such as 'select user, item, stars from ratings', got '  '",
        ),
        (
            "shop.duckdb",
            "select * from ratings where item < 0",
            "the table must have at least one row, got none",
        ),
        ("missing.duckdb", "select 1", "does not exist"),
    ],
)
def test_errors_are_one_line_and_nothing_changes(shop, file, sql, words):
    folder, _ = shop
    before = {f: (folder / f).read_bytes() for f in ("shop.duckdb", "shop.sqlite")}
    with pytest.raises(EckartError, match=words) as caught:
        eckart.read(str(folder / file), sql, rows="usr", columns="item")
    assert "\n" not in str(caught.value)
    assert before == {f: (folder / f).read_bytes() for f in before}


def test_a_connection_lost_on_the_way_says_after_how_many_rows(shop, monkeypatch):
    folder, _ = shop
    monkeypatch.setattr("eckart.io.sql.answers.BATCH_ROWS", 300)

    class Cursor:
        def __init__(self, inner):
            self.inner, self.left = inner, 2

        def fetchmany(self, n):
            self.left -= 1
            if self.left < 0:
                raise sqlite3.OperationalError(
                    "server closed the connection unexpectedly\nThis probably means ..."
                )
            return self.inner.fetchmany(n)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    class Connection:
        def cursor(self):
            return Cursor(sqlite3.connect(folder / "shop.sqlite").cursor())

    with pytest.raises(FileError, match="failed after 600 rows: server closed"):
        eckart.read(Connection(), RATINGS, **LONG)


def test_a_database_without_a_query_asks_for_one(shop):
    folder, _ = shop
    for file in ("shop.duckdb", "shop.sqlite"):
        with pytest.raises(
            InputError,
            match=r"is a database and needs a query\. Say sql='select \.\.\. from \.\.\.'\.",
        ):
            eckart.read(folder / file)
    with pytest.raises(InputError, match=r"ann:\*\*\*@db"):
        eckart.read("postgresql://ann:secret@db/shop")


@pytest.mark.parametrize("file", ["new.duckdb", "new.sqlite"])
def test_tables_are_written_whole_or_not_at_all(tmp_path, file):
    place = str(tmp_path / file)
    good = pa.RecordBatch.from_pylist(
        [dict(zip(("id", "price", "day", "n", "x"), row)) for row in ROWS]
    )

    def broken():
        yield good
        raise OSError("disk on fire")

    with pytest.raises(FileError, match=r"on fire.*as it was"):
        write_sql(place, "t", broken())
    assert not Path(place).exists()
    assert write_sql(place, "t", [good, good]) == 6
    with pytest.raises(InputError, match="already"):
        write_sql(place, "t", [good])
    with pytest.raises(FileError, match="as it was"):
        write_sql(place, "t", broken(), "replace")
    read = "select id, n, x from t order by id"
    assert QueryAnswer(place, read).table(10**9).num_rows == 6
    assert write_sql(place, "t", [good], "append") == 3
    with pytest.raises(
        InputError, match="must have the columns id, n to append to it, got id, price, day, n, x"
    ):
        write_sql(place, "t", [good.select(["id", "n"])], "append")
    assert write_sql(place, "t", [good], "replace") == 3
    assert QueryAnswer(place, read).table(10**9).to_pylist() == [
        {"id": r[0], "n": r[3], "x": r[4]} for r in sorted(ROWS, key=lambda r: r[0].encode())
    ]
    assert write_sql(place, 'odd "name"; drop table t', [good]) == 3
    assert QueryAnswer(place, read).table(10**9).num_rows == 3


def test_targets_are_a_database_and_a_table():
    for bad in ("shop.duckdb", ":t", "shop.duckdb:", "postgresql://host:5432/shop"):
        with pytest.raises(
            InputError,
            match=r"--to must be the database and the table, such as shop\.duckdb:recommendations, got",
        ):
            split_target(bad)


def _from(sql):
    return ["--from", "shop.duckdb", "--sql", sql]


def test_the_shell_reads_and_writes_databases(shop, monkeypatch):
    folder, _ = shop
    monkeypatch.chdir(folder)
    said = CliRunner().invoke(
        app,
        [
            "complete",
            *_from(RATINGS),
            "--rows",
            "usr",
            "--columns",
            "item",
            "--values",
            "stars",
            "-k",
            "2",
            "--held-out",
            "0",
            "--model",
            "m.safetensors",
        ],
        catch_exceptions=False,
    )
    assert "shop.duckdb: 60 rows x 40 columns, 900 observed" in said.output
    assert "eckart-sql" not in said.output
    CliRunner().invoke(
        app,
        ["recommend", "m.safetensors", "--all", "-n", "2", "--to", "shop.sqlite:recs"],
        catch_exceptions=False,
    )
    with sqlite3.connect("shop.sqlite") as c:
        found = c.execute(
            "select usr, item, score from recs where rank = 1 order by usr"
        ).fetchall()
    best = eckart.load("m.safetensors").recommend(n=1)
    assert found == sorted((u, c, pytest.approx(s)) for u, _, c, s in best.entries())
    CliRunner().invoke(
        app,
        [
            "reduce",
            *_from("select item, stars from ratings"),
            "-k",
            "1",
            "--to",
            "shop.duckdb:codes",
        ],
        catch_exceptions=False,
    )
    assert QueryAnswer("shop.duckdb", "select * from codes").table(10**9).num_rows == 900
    wrong = {
        "x.csv --sql q": "got --sql alone",
        "": "neither the argument FILE nor --from",
        "x.csv --from shop.duckdb": "give a file of data, or a database with --sql, not both",
    }
    for odd, words in wrong.items():
        assert words in str(CliRunner().invoke(app, ["reduce", *odd.split()]).exception)


@pytest.mark.skipif(program("postgres") is None, reason="no PostgreSQL server is installed")
def test_postgresql(tmp_path):
    psycopg = pytest.importorskip("psycopg")
    with server() as address:
        with psycopg.connect(address) as c:
            c.execute(TYPES)
            c.cursor().executemany("insert into t values (%s, %s, %s, %s, %s)", ROWS)
            c.execute(
                "create table ratings as select 'u' || (i % 50) as usr, i % 77 as item, "
                "(i % 9)::numeric(3, 1) as stars from generate_series(0, 3849) i"
            )
        wanted = {"id": ["ä", "b", "c"], "n": [7, None, -1]}
        sources = [address]
        live = psycopg.connect(address)
        sources.append(live)
        for source in sources:
            x = eckart.read(source, "select id, price, x from t order by id", index="id")
            assert sorted(map(float, x.array[~np.isnan(x.array)])) == [-3.25, 0.5, 2.0, 12.5]
            assert QueryAnswer(source, "select id, n from t").table(10**9).to_pydict() == wanted
            assert eckart.read(
                source, "select * from ratings", **LONG, duplicates="last"
            ).shape == (50, 77)
        with pytest.raises(EckartError, match="read-only"):
            QueryAnswer(address, "delete from t returning id").table(10**9)
        with pytest.raises(InputError, match="refused the query"):
            QueryAnswer(address, "select nothing from t").table(10**9)
        live.rollback()
        batch = pa.RecordBatch.from_pylist(
            [{"usr": "ann", "score": 0.5}, {"usr": None, "score": None}]
        )
        assert write_sql(address, "recs", [batch, batch]) == 4
        with pytest.raises(FileError, match="as it was"):
            write_sql(
                address,
                "recs",
                (b if i < 3 else 1 / 0 for i, b in enumerate([batch] * 5)),
                "replace",
            )
        assert live.execute("select count(*) from recs").fetchone() == (4,)
        live.rollback()
        other = psycopg.connect(address, autocommit=True)
        pid = live.info.backend_pid
        lost = QueryAnswer(live, "select * from generate_series(1, 3000000)").batches()
        next(lost)
        other.execute("select pg_terminate_backend(%s)", (pid,))
        with pytest.raises(FileError, match=r"failed after .* rows"):
            list(lost)
        other.close()
    with pytest.raises(FileError, match="cannot be reached"):
        QueryAnswer(address, "select 1").table(10**9)


def test_a_missing_engine_is_an_install_line(shop, monkeypatch):
    folder, _ = shop
    monkeypatch.setattr("eckart.io.sql.databases.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'eckart\[sql\]'"):
        eckart.read(Path(folder / "shop.duckdb"), "select 1")


def test_batches_fetched_ahead_are_the_same_and_leave_no_thread():
    def numbers(fail_at=None):
        try:
            for i in range(20):
                if i == fail_at:
                    raise ValueError("lost")
                yield i
        finally:
            closed.append(True)

    def threads():
        return [t for t in threading.enumerate() if t.name == "eckart-sql"]

    closed = []
    assert list(ahead(numbers())) == list(range(20))
    got = []
    with pytest.raises(ValueError, match="lost"):
        got.extend(ahead(numbers(5)))
    early = ahead(numbers())
    assert next(early) == 0
    early.close()
    assert len(closed) == 3
    assert not threads()


@pytest.mark.parametrize(
    "statement",
    [
        "vacuum into 'stolen.db'",
        "attach 'stolen.db' as s",
        "pragma journal_mode = delete",
        "create table z(a)",
        "select load_extension('x')",
        "delete from ratings",
    ],
)
@pytest.mark.parametrize("source", ["shop.sqlite", "sqlite:///shop.sqlite"])
def test_statements_of_sqlite_are_refused_before_they_are_carried_out(
    tmp_path, monkeypatch, statement, source
):
    import sqlite3

    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("shop.sqlite") as made:
        made.execute("create table ratings(user, stars)")
        made.execute("insert into ratings values ('ann', 4)")
        made.execute("pragma journal_mode = wal")
    made.close()
    before = (tmp_path / "shop.sqlite").read_bytes()
    with pytest.raises(InputError):
        QueryAnswer(source, statement).table(10**6)
    assert (tmp_path / "shop.sqlite").read_bytes() == before
    assert not [p for p in tmp_path.iterdir() if not p.name.startswith("shop.sqlite")]
    assert QueryAnswer(source, "select count(*) as n from ratings").table(10**6).to_pydict() == {
        "n": [1]
    }


def test_an_address_of_sqlite_is_its_file(tmp_path):
    for place in (f"{tmp_path}/none.sqlite", str(tmp_path)):
        with pytest.raises(FileError, match=r"does not exist|is not a DuckDB"):
            QueryAnswer(f"sqlite:///{place}", "select 1").table(10**6)
    assert not list(tmp_path.iterdir())
    address = f"sqlite:///{tmp_path}/new.sqlite"
    assert write_sql(address, "copied", [pa.RecordBatch.from_pylist([{"a": 1, "b": "x"}])]) == 1
    assert QueryAnswer(address, "select b from copied").table(10**6).to_pydict() == {"b": ["x"]}


@pytest.mark.parametrize("source", ["table.csv", "t*.csv", "shop.duckdb", "duckdb:///shop.duckdb"])
@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('{}')",
        "select * from '{}'",
        "select * from read_text('{}')",
        "select * from glob('{}')",
    ],
)
def test_queries_of_duckdb_reach_no_other_file(tmp_path, monkeypatch, source, statement):
    duckdb = pytest.importorskip("duckdb")
    outside = tmp_path / "outside"
    (tmp_path / "in").mkdir()
    outside.mkdir()
    (outside / "secret.csv").write_text("a,b\n1,hidden\n")
    monkeypatch.chdir(tmp_path / "in")
    (tmp_path / "in" / "table.csv").write_text("a,b\n1,2\n")
    duckdb.connect("shop.duckdb").execute("create table data as select 1 as a, 2 as b").close()
    with pytest.raises(InputError) as refused:
        QueryAnswer(source, statement.format(outside / "secret.csv")).table(10**6)
    assert "hidden" not in str(refused.value)
    assert QueryAnswer(source, "select * from data").table(10**6).to_pydict() == {
        "a": [1],
        "b": [2],
    }


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cr3t@db/shop",
        "postgresql://ann:s3cr@t@db/shop",
        "postgresql://ann:s3cr3t@t@db:5432/shop?sslmode=require",
        "mysql+pymysql://ann:s3/cr3t@db/shop",
        "postgresql://db/shop?user=ann&password=s3cr3t",
        "snowflake://ann@account/db?token=s3cr3t",
        "mssql://db/shop;pwd=s3cr3t;x=1",
        "s3://bucket/x?secret_key=s3cr3t",
        "s3://bucket/x?access_key=s3cr3t&region=eu",
        "postgresql://ann:s%33cr3t@db/shop",
        "postgresql://:s3cr3t@db/shop",
        "ann:s3cr3t@db/shop",
        "ann:s3cr@t@db:5432/shop",
        "host=db user=ann password='s3cr3t'",
        "postgresql://ann:s3c r3t@db/shop",
        "mssql+pyodbc:///?odbc_connect=Driver=x;Uid=ann;Pwd={s3c;r3t}",
        "mssql+pyodbc:///?odbc_connect=UID%3Dann%3BPWD%3Ds3cr3t",
        "https://files/shop.csv?sv=2024&sig=s3cr3t&se=1",
    ],
)
def test_no_message_shows_a_password(address):
    from eckart.io.sql.databases import said, shown

    written = shown(address)
    for part in ("s3c", "cr3t", "r3t", "%33"):
        assert part not in written
    password = next(
        word
        for word in ("s3cr3t@t", "s3cr@t", "s3/cr3t", "s3c r3t", "s3c;r3t", "s3cr3t")
        if word in address.replace("%33", "3")
    )
    assert password not in said(
        RuntimeError(f"connection to {address} failed: password {password} is wrong"), address
    )


@pytest.mark.parametrize(
    "command",
    [
        ["embed", "{}"],
        ["serve", "{}"],
        ["studio", "{}"],
        ["complete", "{}", "--from", "{}"],
        ["reduce", "x.csv", "--out", "{}"],
        ["reduce", "{}", "--json"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "address",
    [
        "mysql://ann:s3cr3t@/shop?unix_socket=/x",
        "gs://bucket/x?token=s3cr3t",
        "clickhouse://ann:p@s3cr3t@127.0.0.1:1/d",
        "postgresql:/ann:s3cr3t@127.0.0.1/shop",
        "ann:s3cr3t@db.example/shop",
        "host=127.0.0.1 password=s3cr3t",
    ],
)
def test_no_command_repeats_a_password(address, command, tmp_path, monkeypatch):
    """An address given where a file is wanted came back whole, its // made one / by a path."""
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, [word.format(address) for word in command])
    assert found.exit_code != 0
    assert "s3cr3t" not in found.output + str(found.exception)
