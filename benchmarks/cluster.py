"""What a cluster, or a disk, costs against one process that holds everything: PCA of a file and ALS
of ratings, in the same run.

    python benchmarks/cluster.py                     ALS of 2 M ratings (k = 64) and PCA of a 1 GB
    file: here, on a LocalCluster of two processes, from shards
    python benchmarks/cluster.py --ratings 2e7 --gigabytes 4
    python benchmarks/cluster.py model               the cost model, fitted on two sizes, and its
    table for large clusters

Each way runs in a process of its own. ``seconds`` are of a sweep (ALS: the median of half the
sweeps after the first) or of the fit (PCA); ``cpu`` is the processor time of all processes that
took part, which other work on the machine changes less; ``peak`` is the largest resident memory of
one process. Rivals that are installed (dask-ml, Spark's ALS) run in the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from harness import CACHE  # noqa: E402

SWEEPS, FEW = 6, 2
WORKERS = 2


# ---- data


def ratings_folder(entries: int, parts: int = 16) -> Path:
    """Parquet files of (user, item, rating), users in ranges, items by popularity (share ~ 1 /
    (rank + 50)), each pair once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = CACHE / f"cluster-ratings-{entries}"
    if (folder / f"part-{parts - 1:03d}.parquet").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    n, m = max(entries // 145, 16), entries // 750 + 100
    share = np.cumsum(1.0 / (np.arange(m) + 50.0))
    share /= share[-1]
    u, v = (
        rng.standard_normal((n, 8)).astype(np.float32),
        rng.standard_normal((m, 8)).astype(np.float32),
    )
    for p in range(parts):
        a, b, wanted = p * n // parts, (p + 1) * n // parts, entries // parts
        user = rng.integers(a, b, int(wanted * 1.2))
        key = np.sort(user * m + np.searchsorted(share, rng.random(len(user))))
        key = rng.permutation(key[np.flatnonzero(np.diff(key, prepend=-1))])[:wanted]
        i, j = key // m, key % m
        value = 3.5 + 0.4 * np.einsum("ij,ij->i", u[i], v[j]) + 0.5 * rng.standard_normal(len(i))
        table = {
            "user": i.astype(np.int32),
            "item": j.astype(np.int32),
            "rating": value.clip(0.5, 5).astype(np.float32),
        }
        pq.write_table(pa.table(table), folder / f"part-{p:03d}.parquet")
    return folder


def rows_file(gigabytes: float, n: int = 1000) -> Path:
    """A .npy file of float32 rows with a power-law spectrum."""
    rows = int(gigabytes * 2**30 / 4 / n)
    path = CACHE / f"cluster-rows-{rows}x{n}.npy"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        rng = np.random.default_rng(1)
        basis = (
            np.linalg.qr(rng.standard_normal((n, n)))[0] * (1.0 + np.arange(n)) ** -0.7
        ).astype(np.float32)
        out = np.lib.format.open_memmap(path.with_suffix(".part"), "w+", np.float32, (rows, n))
        for a in range(0, rows, 20_000):
            b = min(a + 20_000, rows)
            out[a:b] = rng.standard_normal((b - a, n), dtype=np.float32) @ basis.T + 0.5
        out.flush()
        path.with_suffix(".part").rename(path)
    return path


# ---- one way each, in a process of its own


def used(children: bool = True) -> float:
    """Processor seconds of this process and of those that it has waited for."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) if children else (resource.RUSAGE_SELF,)
    return sum(sum(resource.getrusage(each)[:2]) for each in who)


def peak() -> float:
    """GB of the largest process so far, children that have ended included."""
    return (
        max(
            resource.getrusage(each).ru_maxrss
            for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        / 2**20
    )


def worker_cpu(client: Any) -> float:
    return sum(client.run(used).values())


def cluster(workers: int = WORKERS) -> Any:
    import logging

    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.ERROR)
    made = LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None, memory_limit="6GB"
    )
    return Client(made)


def als(way: str, folder: Path, k: int, feedback: str) -> dict[str, Any]:
    import eckart

    how = {"rows": "user", "columns": "item", "values": "rating"}
    files = f"{folder}/*.parquet"
    model = eckart.ALS(k, feedback=feedback, random_state=0, max_iter=SWEEPS, tol=1e-12)
    small = eckart.ALS(k, feedback=feedback, random_state=0, max_iter=FEW, tol=1e-12)
    client = None
    if way.startswith("dask"):
        import dask.dataframe as dd

        client = cluster(int(way[4:] or WORKERS))
        start = time.perf_counter()
        x = eckart.read(dd.read_parquet(files), **how)
    else:
        start = time.perf_counter()
        x = eckart.read(files, **how, **({"memory": "200MB"} if way == "shards" else {}))
    reading = time.perf_counter() - start
    # the first compiles, and places
    spent = [small.fit(x) and used() + (worker_cpu(client) if client else 0.0)]
    for each in (small, model):
        start = time.perf_counter()
        each.fit(x)
        wall = time.perf_counter() - start
        spent.append(used() + (worker_cpu(client) if client else 0.0))
    few, cpu = np.diff(spent)
    times = np.diff([0.0, *model.fit_.trace.seconds[1::2]])
    out = {
        "reading": reading,
        "seconds": float(np.median(times[1:])),
        "fit": wall,
        "cpu": float(cpu),
        "cpu of a sweep": float((cpu - few) / (SWEEPS - FEW)),
        "objective": model.objective_,
    }
    out["peak"] = max(client.run(peak).values()) if client else peak()
    out["client peak"] = peak()
    if client:
        client.close()
        client.cluster.close()
    return out


def pca(way: str, path: Path, k: int, center: bool = True) -> dict[str, Any]:
    """Without ``center`` the truncated singular value decomposition. ``captured``: the sum of the
    squares of the singular values."""
    import eckart

    model = eckart.PCA(k, svd_solver="randomized", center=center, random_state=0)
    model.fit(np.random.default_rng(0).standard_normal((3000, 50)).astype(np.float32))
    client = cluster() if way != "here" else None
    if way == "dask":  # workers import and compile before the clock starts, as this process did
        import dask.array as da

        few = np.random.default_rng(0).standard_normal((4000, 50)).astype(np.float32)
        eckart.PCA(k, svd_solver="randomized", random_state=0).fit(
            da.from_array(few, chunks=(500, 50))
        )
    watched = Watched(client) if way == "dask" else None
    mine, before, start = (
        used(),
        used() + (worker_cpu(client) if client else 0.0),
        time.perf_counter(),
    )
    if way == "here":
        found = model.fit(path)
    else:
        import dask.array as da

        x = (
            da.from_array(np.load(path, mmap_mode="r"), chunks=(16_000, -1), name=False)
            if way != "dask"
            else None
        )
        if way == "dask":
            found = model.set_params(engine="dask").fit(path)
        else:
            from dask_ml import decomposition

            if center:
                found = decomposition.PCA(k, random_state=0, svd_solver="randomized").fit(x)
            elif way == "dask-ml tsqr":
                found = decomposition.TruncatedSVD(k, algorithm="tsqr").fit(x)
            else:  # in single precision it ends in "SVD did not converge"
                found = decomposition.TruncatedSVD(k, random_state=0, algorithm="randomized").fit(
                    x.astype(np.float64)
                )
    wall = time.perf_counter() - start
    cpu = used() + (worker_cpu(client) if client else 0.0) - before
    out = {
        "seconds": wall,
        "cpu": cpu,
        "captured": float(np.square(np.asarray(found.singular_values_, np.float64)).sum()),
        "peak": max(client.run(peak).values()) if client else peak(),
    }
    if watched is not None:
        out |= watched.found(wall) | {"cpu of client and scheduler": used() - mine}
    if client:
        client.close()
        client.cluster.close()
    return out


class Watched:
    """What the scheduler itself has seen since: tasks, their time, and workers that paused."""

    def __init__(self, client: Any):
        self.client, self.start = client, time.time()
        client.get_task_stream(start="0s")  # from now on it is kept

    def found(self, wall: float) -> dict[str, Any]:
        tasks = [
            each
            for each in self.client.get_task_stream(start=self.start)
            if each["key"].startswith("eckart-")
        ]
        took = [
            stop["stop"] - stop["start"]
            for each in tasks
            for stop in each["startstops"]
            if stop["action"] == "compute"
        ]
        work = np.array([each for each in took if each > 0.01])  # the others add a few sums up
        moved = sum(
            stop["stop"] - stop["start"]
            for each in tasks
            for stop in each["startstops"]
            if stop["action"] != "compute"
        )
        told = [
            event
            for topic in self.client.get_events().values()
            for _, event in topic
            if isinstance(event, dict)
        ]
        return {
            "tasks on blocks": len(work),
            "seconds of one": float(np.median(work)) if len(work) else None,
            "share of the workers' time in tasks": float(np.sum(took)) / (WORKERS * wall),
            "share in transfers": moved / (WORKERS * wall),
            "pauses": sum(event.get("status") == "paused" for event in told),
        }


def spark(folder: Path, k: int, feedback: str) -> dict[str, Any]:
    from pyspark.ml.recommendation import ALS as Rival
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(f"local[{WORKERS}]")
        .config("spark.driver.memory", "8g")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    x = session.read.parquet(str(folder)).cache()
    x.count()

    def fit(sweeps: int) -> float:
        start = time.perf_counter()
        made = Rival(
            rank=k,
            maxIter=sweeps,
            implicitPrefs=feedback == "implicit",
            userCol="user",
            itemCol="item",
            ratingCol="rating",
            seed=0,
        )
        made.fit(x)
        return time.perf_counter() - start

    fit(1)
    few, many = fit(1), fit(SWEEPS)
    return {"seconds": (many - few) / (SWEEPS - 1), "fit": many}


def alone(*words: str) -> dict[str, Any]:
    """One way in a process of its own."""
    run = subprocess.run([sys.executable, __file__, "one", *words], capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return (
        json.loads(lines[-1])
        if lines
        else {"failed": (run.stderr.strip().splitlines() or ["no answer"])[-1][:200]}
    )


def shown(name: str, found: dict[str, Any]) -> None:
    print(
        f"{name:<34}",
        "  ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in found.items()
        ),
        flush=True,
    )


# ---- the cost model: processor seconds of a sweep, which other work on the machine changes little


class Cost(NamedTuple):
    """Processor seconds of an entry, of a byte that goes through the process that runs the solver,
    and of a sweep as tasks."""

    entry: float
    byte: float
    tasks: float

    def of(self, z: float, n: float, m: float, k: int, workers: int) -> float:
        """Of a sweep in all processes; ``workers`` 0 is one process that holds everything."""
        return self.entry * z + (
            self.byte * moved(n, m, k, workers) + self.tasks if workers else 0.0
        )

    def seconds(self, z: float, n: float, m: float, k: int, workers: int) -> float:
        """Of a sweep on idle machines: entries are shared out, rows go through one process, and the
        other side's factors from worker to worker, so that a broadcast takes the logarithm of their
        number."""
        tall = 4.0 * k * (n + m)
        return (
            self.entry * z / workers
            + self.byte * tall * (2 + np.log2(max(workers, 2)))
            + self.tasks
        )


def moved(n: float, m: float, k: int, workers: int) -> float:
    """Bytes of a sweep: every row goes out and comes back, and the other side goes to every
    worker."""
    return 4.0 * k * (n + m) * (2 + workers)


def sides(z: float) -> tuple[float, float]:
    """Rows and columns of ``ratings_folder``."""
    return z // 145, z // 750 + 100


def model(k: int, feedback: str, fit: list[float], check: float, asked: list[str]) -> None:
    """Fitted at two sizes, in one process and with one and two workers; asked at a third."""
    ways = {"here": 0, "dask1": 1, "dask2": 2}
    seen = {}
    for z in fit:
        for way, workers in ways.items():
            found = alone("als", way, str(ratings_folder(int(z))), str(k), feedback)
            shown(f"{z:.0e} entries, {way}", found)
            seen[z, workers] = found["cpu of a sweep"]
    # relative errors count: every measurement weighs the same
    rows = np.array([[z, moved(*sides(z), k, w) if w else 0.0, float(w > 0)] for z, w in seen])
    cost = Cost(*nnls(rows / np.array(list(seen.values()))[:, None], np.ones(len(rows)))[0])
    print({name: f"{value:.3g}" for name, value in cost._asdict().items()})
    for way in asked if check else ():
        found = alone("als", way, str(ratings_folder(int(check))), str(k), feedback)
        want = cost.of(check, *sides(check), k, ways.get(way, 0))
        shown(f"{check:.0e} entries, {way}", found)
        print(
            f"    predicted {want:.3g} processor seconds a sweep, measured "
            f"{found['cpu of a sweep']:.3g}: {want / found['cpu of a sweep'] - 1:+.0%}"
        )
    for z, n, m in ((1e9, 5e6, 5e5), (1e11, 3e8, 1e7)):
        for workers in (10, 100, 1000):
            client = 4.0 * k * (2 * n + m) / 2**30
            print(
                f"{z:.0e} ratings, {workers:>4} workers: "
                f"{cost.seconds(z, n, m, k, workers):8.1f} s a sweep, client "
                f"{client:.0f} GiB of factors"
            )


def main() -> None:
    told = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told.add_argument("what", nargs="*", default=["all"])
    told.add_argument("--ratings", type=float, default=2e6)
    told.add_argument("--gigabytes", type=float, default=1.0)
    told.add_argument("--k", type=int, default=64)
    told.add_argument("--feedback", default="implicit")
    told.add_argument("--fit", type=float, nargs=2, default=[1e6, 1e7])
    told.add_argument(
        "--check", type=float, default=0.0, help="The model's answer at this size beside a run."
    )
    told.add_argument(
        "--ways", nargs="+", default=["shards", "dask2"], help="Ways in which that run is done."
    )
    ask = told.parse_args()
    if ask.what[0] == "one":
        kind, way, *rest = ask.what[1:]
        if kind == "als":
            found = als(way, Path(rest[0]), int(rest[1]), rest[2])
        elif kind == "spark":
            found = spark(Path(rest[0]), int(rest[1]), rest[2])
        else:
            found = pca(way, Path(rest[0]), int(rest[1]), kind == "pca")
        print(json.dumps(found), flush=True)
        os._exit(0)  # clusters take their time to go
    if ask.what[0] == "model":
        model(ask.k, ask.feedback, ask.fit, ask.check, ask.ways)
        return
    if ask.what[0] in ("all", "als"):
        folder = str(ratings_folder(int(ask.ratings)))
        for way in ("here", "dask", "shards"):
            shown(
                f"ALS {ask.ratings:.0e} k={ask.k}, {way}",
                alone("als", way, folder, str(ask.k), ask.feedback),
            )
        shown(
            f"ALS {ask.ratings:.0e} k={ask.k}, Spark",
            alone("spark", "-", folder, str(ask.k), ask.feedback),
        )
    for kind, name in (("pca", "PCA"), ("svd", "truncated SVD")):
        if ask.what[0] in ("all", kind):
            path = str(rows_file(ask.gigabytes))
            for way in ("here", "dask", "dask-ml", "dask-ml tsqr")[: 4 if kind == "svd" else 3]:
                shown(f"{name} {ask.gigabytes:g} GB k=10, {way}", alone(kind, way, path, "10"))


if __name__ == "__main__":
    main()
