"""Reading from PostgreSQL beside Parquet: the same rows (user, item, stars), as Arrow batches alone
and into the matrix that a completion is fitted to.

    python benchmarks/databases.py [--rows 20000000] [--repeat 3]

A server of the run's own on this machine, where PostgreSQL is installed; client and server share
its cores. Sources take turns, the best time of each counts. Memory is the growth of the peak of
this process while batches stream, measured before any matrix is built.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import eckart
from eckart.io.sql.answers import QueryAnswer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from postgres_server import program, server

QUERY = "select usr, item, stars from ratings"
BLOCK = 1_000_000


def rows_of(start: int, count: int) -> pa.Table:
    rng = np.random.default_rng(start)
    return pa.table(
        {
            "usr": rng.integers(0, 500_000, count, dtype=np.int32),
            "item": rng.integers(0, 30_000, count, dtype=np.int32),
            "stars": (rng.integers(1, 11, count) / 2).astype(np.float32),
        }
    )


def fill(address: str, parquet: Path, rows: int) -> None:
    from adbc_driver_postgresql import dbapi

    with (
        dbapi.connect(address) as connection,
        connection.cursor() as cursor,
        pq.ParquetWriter(parquet, rows_of(0, 1).schema) as out,
    ):
        for start in range(0, rows, BLOCK):
            table = rows_of(start, min(BLOCK, rows - start))
            out.write_table(table)
            cursor.adbc_ingest("ratings", table, mode="append" if start else "create")
        connection.commit()


def streamed(source: object, sql: str, rows: int) -> tuple[float, float]:
    """Seconds, and megabytes by which the peak of this process grew."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, seen = time.perf_counter(), 0
    for batch in QueryAnswer(source, sql).batches():
        seen += batch.num_rows
    if seen != rows:
        raise SystemExit(f"{seen} rows came, wanted {rows}")
    return time.perf_counter() - begin, (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ) / 1024


def read(source: object, sql: str) -> float:
    begin = time.perf_counter()
    eckart.read(source, sql, rows="usr", columns="item", values="stars", duplicates="last")
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    ask = parser.parse_args()
    if program("postgres") is None:
        raise SystemExit("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory() as folder, server() as address:
        parquet = Path(folder, "ratings.parquet")
        fill(address, parquet, ask.rows)
        sources = {
            "Parquet": (str(parquet), QUERY.replace("ratings", "data")),
            "PostgreSQL": (address, QUERY),
        }
        batches = [
            {name: streamed(*source, ask.rows) for name, source in sources.items()}
            for _ in range(ask.repeat)
        ]
        whole = [
            {name: read(*source) for name, source in sources.items()} for _ in range(ask.repeat)
        ]
        stream, matrix = (
            {name: min(run[name] for run in runs) for name in sources} for runs in (batches, whole)
        )
        print(
            f"{ask.rows:,} rows   {'batches s':>10} {'of Parquet':>11} {'grown MB':>9} "
            f"{'into a matrix s':>16} {'of Parquet':>11}"
        )
        for name in sources:
            print(
                f"{name:<17} {stream[name][0]:10.2f} "
                f"{stream['Parquet'][0] / stream[name][0]:11.0%} "
                f"{max(run[name][1] for run in batches):9.0f} "
                f"{matrix[name]:16.2f} {matrix['Parquet'] / matrix[name]:11.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
