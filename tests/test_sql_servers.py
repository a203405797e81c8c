"""Servers that a test starts itself: MariaDB by SQLAlchemy and by connections of Python, Parquet in
an S3-like store; skipped where programs are absent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import eckart
from eckart.cli.main import app
from eckart.errors import EckartError, FileError, InputError
from eckart.io.sql.answers import QueryAnswer
from eckart.io.sql.write import write_sql
from mysql_server import program, server
from test_sql import LONG, ROWS

pytestmark = pytest.mark.slow
RATINGS = [(f"u{i % 50}", i % 77, (i % 9) / 2) for i in range(3850)]


@pytest.fixture(scope="module")
def mariadb():
    """The address of a MariaDB server with two tables, and connections of Python to it."""
    pytest.importorskip("duckdb", reason="the extra sql is not installed")
    pymysql = pytest.importorskip(
        "pymysql", reason="pymysql is not installed: pip install pymysql sqlalchemy"
    )
    pytest.importorskip("sqlalchemy")
    if program("mariadbd") is None:
        pytest.skip("no MariaDB server is installed: apt-get install mariadb-server")
    with server() as place:
        host, _, rest = place.partition("@")[2].partition(":")

        def connect():
            return pymysql.connect(
                host=host, port=int(rest.partition("/")[0]), user="root", database="shop"
            )

        with connect() as c, c.cursor() as cursor:
            cursor.execute(
                "create table t (id varchar(9), price decimal(9, 2), day date, n bigint, x double)"
            )
            cursor.executemany("insert into t values (%s, %s, %s, %s, %s)", ROWS)
            cursor.execute("create table ratings (usr varchar(9), item int, stars decimal(3, 1))")
            cursor.executemany("insert into ratings values (%s, %s, %s)", RATINGS)
            c.commit()
        yield f"mysql+pymysql://{place}", connect


def test_mariadb_is_read_with_its_types_and_only_read(mariadb):
    address, connect = mariadb
    with connect() as live:
        for source in (address, live):
            table = QueryAnswer(source, "select * from t order by n").table(10**9)
            assert table.column("id").to_pylist() == ["b", "c", "ä"]
            assert table.column("n").to_pylist() == [None, -1, 7]
            assert pa.types.is_decimal(table.schema.field("price").type)
            assert pa.types.is_date(table.schema.field("day").type)
            x = eckart.read(source, "select id, price, x from t order by id", index="id")
            assert np.isnan(x.array).sum() == 2
            assert eckart.read(
                source, "select * from ratings", **LONG, duplicates="last"
            ).shape == (50, 77)
        for query in ("delete from t returning id", "update t set n = 1"):
            with pytest.raises(EckartError):
                QueryAnswer(address, query).table(10**9)
        few = QueryAnswer(
            address, "select usr from ratings where usr like '%u4%' and item % 2 = 1"
        ).table(10**9)
        assert set(few.column("usr").to_pylist()) == {"u4", *(f"u{i}" for i in range(40, 50))}
        with pytest.raises(InputError, match=r"refused the query: .*nothing"):
            QueryAnswer(address, "select nothing from t").table(10**9)
        with live.cursor() as cursor:
            cursor.execute("select count(*) from t where n = -1")
            assert cursor.fetchone() == (1,)


def test_mariadb_is_written_whole_or_not_at_all(mariadb):
    address, connect = mariadb
    batch = pa.RecordBatch.from_pylist(
        [
            {"usr": "a\"`'%s", "score": 0.1, "100 %`": True},
            {"usr": None, "score": None, "100 %`": None},
        ]
    )
    live = connect()

    def tables():
        with live.cursor() as cursor:
            live.commit()
            cursor.execute("show tables")
            return sorted(name for (name,) in cursor.fetchall())

    before = tables()
    for source, name in ((address, "recs"), (live, "more recs")):
        assert write_sql(source, name, [batch, batch]) == 4
        with pytest.raises(InputError, match="already"):
            write_sql(source, name, [batch])
        broken = (batch if i < 3 else 1 / 0 for i in range(5))
        for rule in ("replace", "append"):
            with pytest.raises(FileError, match="as it was"):
                write_sql(source, name, broken, rule)
            found = QueryAnswer(address, f"select * from `{name}`").table(10**9)
            assert found.column("usr").to_pylist() == ["a\"`'%s", None] * 2
            assert found.column("score").to_pylist() == [0.1, None] * 2
            broken = (batch if i < 3 else 1 / 0 for i in range(5))
        assert write_sql(source, name, [batch], "append") == 2
        assert QueryAnswer(address, f"select * from `{name}`").table(10**9).num_rows == 6
        assert write_sql(source, name, [batch], "replace") == 2
        assert QueryAnswer(address, f"select * from `{name}`").table(10**9).num_rows == 2
    assert tables() == sorted([*before, "more recs", "recs"]), "no table is left behind"
    live.close()


def test_mariadb_from_the_shell(mariadb, tmp_path, monkeypatch):
    address, _ = mariadb
    monkeypatch.chdir(tmp_path)
    long = ["--rows", "usr", "--columns", "item", "--values", "stars", "--duplicates", "last"]
    CliRunner().invoke(
        app,
        [
            "complete",
            "--from",
            address,
            "--sql",
            "select usr, item, stars from ratings",
            *long,
            "-k",
            "2",
            "--held-out",
            "0",
            "--model",
            "m.safetensors",
        ],
        catch_exceptions=False,
    )
    said = CliRunner().invoke(
        app,
        [
            "recommend",
            "m.safetensors",
            "--all",
            "-n",
            "3",
            "--include-seen",
            "--to",
            f"{address}:lists",
        ],
        catch_exceptions=False,
    )
    assert said.exit_code == 0, said.output
    assert QueryAnswer(address, "select * from lists").table(10**9).num_rows == 150


def test_a_connection_to_mariadb_that_is_lost_says_after_how_many_rows(mariadb):
    _, connect = mariadb
    live, other = connect(), connect()
    lost = QueryAnswer(
        live, "select a.usr, b.item from ratings a, ratings b limit 3000000"
    ).batches()
    next(lost)
    with other.cursor() as cursor:
        cursor.execute(f"kill {live.thread_id()}")
    with pytest.raises(FileError, match=r"failed after .* rows"):
        list(lost)
    other.close()


def test_a_server_that_is_not_there_is_one_line(mariadb):
    with pytest.raises(FileError, match="cannot be reached") as failed:
        QueryAnswer("mysql+pymysql://ann:secret@127.0.0.1:1/shop", "select 1").table(10**9)
    assert "secret" not in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An S3-like store in a process of its own, with a bucket; programs find it by the environment,
    as they find others."""
    pytest.importorskip("duckdb", reason="the extra sql is not installed")
    python = os.environ.get("ECKART_MOTO") or sys.executable
    if "ECKART_MOTO" not in os.environ and (
        find_spec("moto") is None or find_spec("flask") is None
    ):
        pytest.skip(
            "moto is not installed: pip install 'moto[server]', or name the Python that "
            "has it by ECKART_MOTO"
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = subprocess.Popen(
        [python, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    known = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            running.terminate()
            running.wait(20)


def test_parquet_in_a_store_is_read_by_its_address(store, tmp_path, monkeypatch):
    from pyarrow import fs

    system = fs.S3FileSystem(endpoint_override=store, scheme="http", allow_bucket_creation=True)
    system.create_dir("shop")
    parts = [RATINGS[:2000], RATINGS[2000:]]
    for i, part in enumerate(parts):
        table = pa.table(dict(zip(("usr", "item", "stars"), zip(*part))))
        pq.write_table(table, f"shop/ratings/part-{i}.parquet", filesystem=system)
    with system.open_output_stream("shop/people.csv") as out:
        out.write(b"name,age,size\nann,31,1.7\nbob,,1.8\n")
    wanted = eckart.read(RATINGS, rows=0, columns=1, values=2, duplicates="last").shape
    for place in ("s3://shop/ratings", "s3://shop/ratings/*.parquet"):
        assert eckart.read(place, "select * from data", **LONG, duplicates="last").shape == wanted
    count = "select count(*) as n from data where stars > 2"
    assert QueryAnswer("s3://shop/ratings/part-0.parquet", count).table(10**9).column(
        "n"
    ).to_pylist() == [sum(s > 2 for _, _, s in parts[0])]
    people = eckart.read("s3://shop/people.csv", "select * from data", index="name")
    assert np.isnan(people.array).sum() == 1
    for place, words in (
        ("s3://shop/nothing.parquet", "cannot be read"),
        ("s3://shop/none-*.parquet", "matches no file"),
        ("s3://nowhere/x.parquet", "cannot be read"),
    ):
        with pytest.raises(FileError, match=words) as failed:
            eckart.read(place, "select * from data")
        assert "\n" not in str(failed.value)
    with pytest.raises(FileError, match="store of files"):
        write_sql("s3://shop/x", "t", [])
    monkeypatch.chdir(tmp_path)
    query = ["--from", "s3://shop/ratings", "--sql", "select usr, item, stars from data"]
    long = ["--rows", "usr", "--columns", "item", "--values", "stars", "--duplicates", "last"]
    words = ["complete", *query, *long, "-k", "2", "--held-out", "0", "--model", "m.safetensors"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert eckart.load("m.safetensors").fit_.factors.shape == wanted
