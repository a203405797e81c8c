"""Data larger than the memory they may use, on one machine: seconds of a pass and peak memory,
beside the speed of the disk.

    python benchmarks/beyond.py als --entries 1e8 --folder /scratch          implicit ALS (k = 64)
    of generated entries, memory="2GB"
    python benchmarks/beyond.py als --entries 1e9 --folder /scratch --sweeps 2
    python benchmarks/beyond.py pca | nmf | lda --folder /scratch            a file eight times as
    large as the memory it may use
    python benchmarks/beyond.py shell --entries 1e8 --memory 2GB --folder /scratch
                                                                             ``eckart complete`` of a
    CSV file of ratings in a memory cgroup of its own, to the end (Linux, as root)

The entries: users x items in the ratio 10 : 1, 200 a user, users of very different length (Pareto),
items by popularity (share ~ 1 / (rank + 50)), each pair once, in no order. They are made piece by
piece and are the same for the same number of entries. What is made stays in ``--folder`` until it
is removed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

PIECE = 10_000_000
"""Entries of a file."""
MEAN = 200
"""Entries of a user."""
PRIME = 7_368_787
"""Steps of this length around a ring of another size meet every place once: an order without
order."""


# ---- data


def entries_folder(entries: int, folder: Path) -> Path:
    """Parquet files of (user, item, count)."""
    place = folder / f"entries-{entries}"
    place.mkdir(parents=True, exist_ok=True)
    pieces = -(-entries // PIECE)
    todo = [
        (p, entries * p // pieces, entries * (p + 1) // pieces, entries, place)
        for p in range(pieces)
    ]
    todo = [each for each in todo if not _piece_file(place, each[0]).exists()]
    if todo:
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(_write_piece, todo))
    return place


def _piece_file(place: Path, piece: int) -> Path:
    return place / f"part-{piece:04d}.parquet"


def _write_piece(given: tuple[int, int, int, int, Path]) -> None:
    """Entries first..last: those of the users first / 200 .. last / 200, whose names are
    scrambled."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    piece, first, last, entries, place = given
    rng = np.random.default_rng([entries, piece])
    users, items = entries // MEAN, entries // (10 * MEAN)
    a, b, wanted = first // MEAN, last // MEAN, last - first
    # a few users have hundreds of times more than most
    length = np.minimum(rng.pareto(1.6, b - a) + 0.4, 100.0)
    for extra in (1.25, 1.7, 2.5, 4.0, 8.0):  # of few items a user meets many twice
        share = np.maximum(length * (extra * wanted / length.sum()), 1.0).astype(np.int64)
        user = np.repeat(np.arange(b - a), share)
        # the inverse of the sum of 1 / (rank + 50)
        rank = (
            50.0
            * np.exp(np.float32(np.log(items / 50.0 + 1.0)) * rng.random(len(user), np.float32))
            - 50.0
        )
        key = user * items + np.minimum(rank.astype(np.int64), items - 1)
        key.sort()
        key = key[np.flatnonzero(np.diff(key, prepend=-1))]
        if len(key) >= wanted:
            break
    i, j = np.divmod(key[np.arange(wanted) * PRIME % len(key)], items)
    table = {
        "user": ((i + a) * PRIME % users).astype(np.int32),  # all names differ
        "item": (j * PRIME % items).astype(np.int32),
        "count": np.minimum(rng.geometric(0.6, len(i)), 15).astype(np.float32),
    }
    part = _piece_file(place, piece).with_suffix(".part")
    pq.write_table(pa.table(table), part, compression="zstd")
    part.rename(_piece_file(place, piece))


# ---- what is measured


class Peak:
    """The largest memory of this process, in GB, by phases: a line of /proc/self/status. VmRSS is
    all that is resident, RssAnon without pages of files."""

    def __init__(self, line: str = "VmRSS") -> None:
        self.line, self.phase, self.found, self.ended = (
            line,
            "",
            dict[str, float](),
            threading.Event(),
        )
        threading.Thread(target=self._run, daemon=True).start()

    def now(self) -> float:
        with open("/proc/self/status") as file:
            return next(
                int(line.split()[1]) * 1024 / 1e9 for line in file if line.startswith(self.line)
            )

    def most(self) -> float:
        return max(self.found.values(), default=0.0)

    def _run(self) -> None:
        while not self.ended.wait(0.05):
            self.found[self.phase] = max(self.found.get(self.phase, 0.0), self.now())


def disk_speed(folder: Path, size: int = 2**30) -> dict[str, float]:
    """MB a second of a file that is written and read past the system's cache, in blocks of 16
    MB."""
    path, block = folder / "speed", np.random.default_rng(0).bytes(2**24)
    start = time.perf_counter()
    with open(path, "wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
        os.fsync(file.fileno())
    written = time.perf_counter() - start
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        while file.readinto(bytearray(len(block))):
            pass
        read = time.perf_counter() - start
    path.unlink()
    return {"writes MB/s": size / 1e6 / written, "reads MB/s": size / 1e6 / read}


def als(folder: Path, entries: int, k: int, sweeps: int, memory: str) -> dict[str, Any]:
    """Sorting into shards, and seconds of each half sweep."""
    import tempfile

    import eckart

    files, peak, anonymous = entries_folder(entries, folder), Peak(), Peak("RssAnon")
    tempfile.tempdir = str(folder)
    few = np.random.default_rng(0)
    warm = {
        "user": few.integers(0, 900, 20_000),
        "item": few.integers(0, 300, 20_000),
        "count": np.ones(20_000, np.float32),
    }
    how = {"rows": "user", "columns": "item", "values": "count"}
    eckart.ALS(k, feedback="implicit", max_iter=1).fit(
        warm, **how, duplicates="last"
    )  # compiled before the clock starts
    peak.phase, start = "sorting", time.perf_counter()
    x = eckart.read(f"{files}/*.parquet", **how, memory=memory)
    sorting = time.perf_counter() - start
    shown(
        "sorted",
        {
            "seconds": sorting,
            "entries/s": entries / sorting,
            "shards": len(x.parts.lengths),
            "shape": list(x.shape),
            "peak GB": peak.most(),
        },
    )
    from eckart.engines.blocks.engine import BlocksEngine

    class Told(BlocksEngine):
        """Says what each primitive took: a run of hours is watched."""

        def _once(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
            peak.phase = name
            told = (
                f"{time.perf_counter() - begun:8.1f} s, {time.process_time() - cpu:8.1f} "
                "processor seconds"
            )
            print(
                f"    {told}, peak {peak.most():.2f} GB ({anonymous.most():.2f} without "
                f"files): {name}",
                flush=True,
            )
            return super()._once(name, given)

    model = eckart.ALS(
        k, feedback="implicit", random_state=0, max_iter=sweeps, tol=0.0, engine=Told()
    )
    begun, cpu = time.perf_counter(), time.process_time()
    peak.phase = "fit"
    model.fit(x)
    whole, cpu = time.perf_counter() - begun, time.process_time() - cpu
    peak.ended.set()
    half = np.diff([0.0, *model.fit_.trace.seconds])
    return {
        "half sweeps": [round(float(each), 1) for each in half],
        "sweep": float(np.median(half[2::2]) + np.median(half[3::2]))
        if sweeps > 1
        else float(half.sum()),
        "fit with start and certificate": whole,
        "processor seconds of the fit": cpu,
        "peak GB": {name: round(size, 2) for name, size in peak.found.items()},
        "peak GB without pages of files": round(anonymous.most(), 2),
        "objective": model.objective_,
        "holds": model.certificate_.holds,
    }


def ratings_file(entries: int, folder: Path) -> Path:
    """A CSV file of user, item and rating (1 to 5 in halves): biases and four factors of the names,
    with noise."""
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    path = folder / f"ratings-{entries}.csv"
    if path.exists():
        return path
    users, items, k = entries // MEAN, entries // (10 * MEAN), 4
    rng = np.random.default_rng(entries)
    u, v = rng.standard_normal((users, k)), 0.25 * rng.standard_normal((items, k))
    a, b = 3.5 + 0.4 * rng.standard_normal(users), 0.5 * rng.standard_normal(items)
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        file.write(b"user,item,rating\n")
        for piece in sorted(entries_folder(entries, folder).glob("*.parquet")):
            table = pq.read_table(piece, columns=["user", "item"])
            i, j = table["user"].to_numpy(), table["item"].to_numpy()
            value = (
                a[i] + b[j] + np.einsum("nk,nk->n", u[i], v[j]) + 0.6 * rng.standard_normal(len(i))
            )
            value = np.clip(np.round(2.0 * value) / 2.0, 0.5, 5.0)
            table = table.append_column("rating", pa.array(value.astype(np.float32)))
            pc.write_csv(table, file, pc.WriteOptions(include_header=False))
    part.rename(path)
    return path


def shell(folder: Path, entries: int, memory: str, flags: list[str]) -> dict[str, Any]:
    """``eckart complete FILE`` with no choice made, in a memory cgroup (version 1) of its own."""
    import subprocess
    import sys

    from eckart.io.tables.memory import memory_of

    path, limit = ratings_file(entries, folder), int(memory_of(memory))
    group = Path("/sys/fs/cgroup/memory") / f"eckart-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(limit))
    scratch, out = folder / "tmp", folder / f"out-{entries}"
    scratch.mkdir(exist_ok=True)
    how = ["--rows", "user", "--columns", "item", "--values", "rating"]
    wanted = ["--model", f"{out}.safetensors", "--report", f"{out}.html"]
    command = [sys.executable, "-m", "eckart", "complete", str(path), *how, *wanted, *flags]
    start, peak = time.perf_counter(), 0
    run = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(scratch)},
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
    )
    while run.poll() is None:
        time.sleep(0.5)
        told = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        peak = max(peak, int(told["rss"]))
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    killed = (group / "memory.oom_control").read_text().split()
    group.rmdir()
    return {
        "command": " ".join(command[1:]),
        "limit GB": limit / 1e9,
        "exit code": run.returncode,
        "killed for memory": int(killed[-1]) > 0,
        "seconds": round(time.perf_counter() - start),
        "processor seconds": round(spent.ru_utime + spent.ru_stime),
        "peak GB without pages of files": round(peak / 1e9, 3),
    }


def rows_file(folder: Path, gigabytes: float, gaps: bool, n: int = 500) -> Path:
    """A .npy file of float32 rows >= 0 of rank 8 with noise; with ``gaps`` one entry in twenty is
    NaN."""
    rows = int(gigabytes * 1e9 / 4 / n)
    path = folder / f"rows-{rows}{'-gaps' if gaps else ''}.npy"
    if path.exists():
        return path
    rng = np.random.default_rng(0)
    basis = rng.random((8, n), dtype=np.float32)
    out = np.lib.format.open_memmap(path.with_suffix(".part"), "w+", np.float32, (rows, n))
    for a in range(0, rows, 20_000):
        size = min(20_000, rows - a)
        block = rng.random((size, 8), dtype=np.float32) @ basis + 0.1 * rng.random(
            (size, n), dtype=np.float32
        )
        if gaps:
            block[rng.random(block.shape, dtype=np.float32) < 0.05] = np.nan
        out[a : a + size] = block
    out.flush()
    del out
    path.with_suffix(".part").rename(path)
    return path


def beyond(what: str, folder: Path, gigabytes: float, passes: int) -> dict[str, Any]:
    """A model of a file eight times as large as the memory it may use: the same rule as for a
    machine that has no more free."""
    import tempfile

    import eckart
    import eckart.fit

    allowed = gigabytes * 1e9 / 8
    tempfile.tempdir = str(folder)
    model: Any = {
        "pca": eckart.PCA(8, random_state=0, max_iter=passes, tol=1e-12),
        "nmf": eckart.NMF(8, random_state=0, max_iter=passes, tol=0.0),
        "lda": eckart.LDA(20, random_state=0, learning_method="cvb0", max_iter=passes, tol=0.0),
    }[what]
    few = np.abs(np.random.default_rng(0).standard_normal((3000, 500)).astype(np.float32))
    if what == "lda":
        entries = int(gigabytes * 1e9 / 8)  # as positions and values of 4 bytes each
        how = {"rows": "user", "columns": "item", "values": "count", "absent": "zero"}
        data = eckart.read(f"{entries_folder(entries, folder)}/*.parquet", **how, memory=allowed)
    else:
        data = rows_file(folder, gigabytes, what == "pca")
        few[::7, 3] = np.nan if what == "pca" else 0.0
    # compiled before the clock starts
    type(model)(**model.get_params()).set_params(max_iter=1).fit(few)
    eckart.fit.available_memory = lambda: allowed
    # pages of a mapped file are the system's, which takes them back when it needs them
    peak = Peak("RssAnon")
    start, cpu, before = time.perf_counter(), time.process_time(), peak.now()
    model.fit(data)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak.ended.set()
    took = np.diff(model.fit_.trace.seconds)
    return {
        "file GB": gigabytes,
        "may use GB": round(allowed / 1e9, 3),
        "took GB": round(max(peak.found.values()) - before, 3),
        "seconds a pass": float(np.median(took)) if len(took) else None,
        "MB/s of a pass": gigabytes * 1e3 / float(np.median(took)) if len(took) else None,
        "fit": wall,
        "processor seconds": cpu,
    }


def shown(name: str, found: dict[str, Any]) -> None:
    print(f"{name:<24}", json.dumps(found), flush=True)


def main() -> None:
    told = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told.add_argument("what", choices=["als", "pca", "nmf", "lda", "shell", "disk"])
    told.add_argument("--entries", type=float, default=1e7)
    told.add_argument("--folder", type=Path, required=True)
    told.add_argument("--gigabytes", type=float, default=1.0)
    told.add_argument("--k", type=int, default=64)
    told.add_argument("--sweeps", type=int, default=3)
    told.add_argument("--memory", default="500MB")
    ask, flags = told.parse_known_args()
    ask.folder.mkdir(parents=True, exist_ok=True)
    if ask.what == "als":
        shown("ALS", als(ask.folder, int(ask.entries), ask.k, ask.sweeps, ask.memory))
    if ask.what in ("pca", "nmf", "lda"):
        shown(ask.what, beyond(ask.what, ask.folder, ask.gigabytes, ask.sweeps))
    if ask.what == "shell":
        shown("shell", shell(ask.folder, int(ask.entries), ask.memory, flags))
    if ask.what == "disk":
        shown("disk", disk_speed(ask.folder))


if __name__ == "__main__":
    main()
