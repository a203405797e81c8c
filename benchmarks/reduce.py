"""PCA against scikit-learn and SciPy: dense in memory, from disk, as blocks, wide, sparse, and a
file larger than memory.

Quality is the captured variance (or energy) of the returned components, orthonormalised, over the
best possible.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import CACHE, cached, measure, run

SIZES = {
    "tall": (200_000, 512, 32),
    "wide": (20_000, 4096, 64),
    "sparse": (200_000, 50_000, 64),
    "file": (10_000_000, 512, 32),
}
QUICK = {
    "tall": (20_000, 128, 8),
    "wide": (2_000, 1024, 16),
    "sparse": (20_000, 5_000, 16),
    "file": (200_000, 128, 8),
}

CASES = [
    ("tall", "sklearn covariance_eigh"),
    ("tall", "eckart"),
    ("tall", "X'X alone"),
    ("tall disk", "sklearn IncrementalPCA"),
    ("tall disk", "eckart"),
    ("tall blocks", "eckart"),
    ("wide", "sklearn auto"),
    ("wide", "eckart"),
    ("sparse centered", "sklearn arpack"),
    ("sparse centered", "eckart"),
    ("sparse", "scipy arpack"),
    ("sparse", "scipy propack"),
    ("sparse", "sklearn randomized"),
    ("sparse", "eckart"),
    ("file", "read and multiply"),
    ("file", "eckart"),
    ("import", "sklearn.decomposition"),
    ("import", "eckart"),
    ("import", "eckart.PCA"),
    ("compile", "eckart cold"),
    ("compile", "eckart warm"),
]


def dense_data(name: str, rows: int, n: int) -> tuple[Path, Path]:
    """Rows with a power-law spectrum and a mean, as .npy; and their exact float64 covariance."""

    def make(path: Path) -> None:
        rng = np.random.default_rng(7)
        q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        mix = (((np.arange(n) + 1.0) ** -0.6 * 10)[:, None] * q.T).astype(np.float32)
        mean = (rng.standard_normal(n) * 2).astype(np.float32)
        with path.open("wb") as raw:
            out = np.lib.format.open_memmap(path, "w+", np.float32, (rows, n))
            for i in range(0, rows, 20000):
                out[i : i + 20000] = (
                    rng.standard_normal((min(20000, rows - i), n), dtype=np.float32) @ mix + mean
                )
            out.flush()
            raw.flush()

    def exact(path: Path) -> None:
        x = np.load(data, mmap_mode="r")
        mean = x.mean(axis=0, dtype=np.float64)
        c = np.zeros((n, n))
        for i in range(0, rows, 20000):
            b = x[i : i + 20000].astype(np.float64) - mean
            c += b.T @ b
        with path.open("wb") as raw:
            np.save(raw, c / rows)

    data = cached(f"{name}-{rows}x{n}.npy", make)
    return data, cached(f"{name}-{rows}x{n}-cov.npy", exact)


def sparse_data(rows: int, n: int) -> Any:
    """A tf-idf-like matrix: power-law columns, log-normal row lengths, 60 planted topics; about 110
    entries a row."""
    from scipy import sparse

    def make(path: Path) -> None:
        rng = np.random.default_rng(1)
        length = rng.lognormal(0, 0.5, rows)
        length = np.maximum(3, length / length.mean() * 146 * min(1.0, n / 50_000) ** 0.5).astype(
            np.int64
        )
        at = np.repeat(np.arange(rows, dtype=np.int32), length)
        p = 1.0 / (np.arange(n) + 20.0) ** 0.9
        word = np.searchsorted(np.cumsum(p / p.sum()), rng.random(at.size)).astype(np.int32)
        topic = rng.integers(0, 60, rows)
        inside = rng.random(at.size) < rng.beta(2, 2, rows)[at]
        word = np.minimum(
            np.where(inside, (word // 60) * 60 + topic[at].astype(np.int32), word), n - 1
        )
        x = sparse.csr_matrix(
            (np.ones(at.size, np.float32), (at, rng.permutation(n).astype(np.int32)[word])),
            shape=(rows, n),
        )
        x.sum_duplicates()
        idf = np.log((1 + rows) / (1 + np.bincount(x.indices, minlength=n))) + 1
        x.data = ((1 + np.log(x.data)) * idf[x.indices]).astype(np.float32)
        norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
        x.data /= np.repeat(np.maximum(norms, 1e-6), np.diff(x.indptr)).astype(np.float32)
        with path.open("wb") as raw:
            sparse.save_npz(raw, x, compressed=False)

    return sparse.load_npz(cached(f"sparse-{rows}x{n}.npz", make))


def sparse_exact(x: Any, k: int, centered: bool) -> float:
    """Sum of the k largest eigenvalues of X'X (of centered X), by ARPACK in float64 to machine
    precision."""
    from scipy.sparse.linalg import LinearOperator, svds

    def make(path: Path) -> None:
        a = x.astype(np.float64)
        t = a.T.tocsr()
        mean = np.asarray(a.mean(axis=0)).ravel() if centered else np.zeros(a.shape[1])
        op = LinearOperator(
            a.shape,
            lambda v: a @ v.ravel() - mean @ v.ravel(),
            lambda u: t @ u.ravel() - mean * u.sum(),
            dtype=np.float64,
        )
        s = svds(op, k, tol=0, random_state=0, return_singular_vectors=False)
        with path.open("wb") as raw:
            np.save(raw, np.sum(s**2))

    return float(np.load(cached(f"sparse-{x.shape[0]}x{x.shape[1]}-{k}-{centered}.npy", make)))


def captured(components: Any, covariance: np.ndarray) -> float:
    q = np.linalg.qr(np.asarray(components, np.float64).T)[0]
    return float(
        np.trace(q.T @ covariance @ q) / np.linalg.eigvalsh(covariance)[::-1][: q.shape[1]].sum()
    )


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    sizes = QUICK if quick else SIZES
    if task in ("import", "compile"):
        return startup(task, contender)
    if task == "file":
        return large_file(contender, *sizes["file"])
    if task.startswith("sparse"):
        return sparse_case(contender, task.endswith("centered"), *sizes["sparse"])
    kind = task.split()[0]
    rows, n, k = sizes[kind]
    data, exact = dense_data(kind, rows, n)
    from eckart import PCA

    if task == "tall disk":
        fit = (
            (lambda: PCA(k, random_state=0).fit(data).components_)
            if contender == "eckart"
            else (lambda: incremental(data, k))
        )
        row = measure(fit, 3 if contender == "eckart" else 1)
    else:
        x = np.load(data)
        if task == "tall blocks":
            row = measure(
                lambda: (
                    PCA(k, random_state=0)
                    .fit(x[i : i + 4096] for i in range(0, rows, 4096))
                    .components_
                ),
                5,
            )
        elif contender == "X'X alone":
            row = measure(lambda: x.T @ x, 5)
            return row
        elif contender == "eckart":
            row = measure(lambda: PCA(k, random_state=0).fit(x).components_, 5)
        else:
            from sklearn.decomposition import PCA as Rival

            row = measure(
                lambda: (
                    Rival(k, svd_solver=contender.split()[1], random_state=0).fit(x).components_
                ),
                5,
            )
    return row | {"quality": round(captured(row["result"], np.load(exact)), 7)}


def incremental(data: Path, k: int) -> Any:
    from sklearn.decomposition import IncrementalPCA

    return IncrementalPCA(k, batch_size=4096).fit(np.load(data, mmap_mode="r")).components_


def sparse_case(contender: str, centered: bool, rows: int, n: int, k: int) -> dict[str, Any]:
    x = sparse_data(rows, n)
    if contender == "eckart":
        from eckart import PCA

        PCA(2, center=centered, random_state=0, svd_solver="randomized").fit(
            x[:2000]
        )  # compiled kernels are reported under "compile"
        row = measure(lambda: PCA(k, center=centered, random_state=0).fit(x).components_)
    elif contender.startswith("scipy"):
        from scipy.sparse.linalg import svds

        row = measure(lambda: svds(x, k, solver=contender.split()[1], random_state=0)[2])
    elif centered:
        from sklearn.decomposition import PCA as Rival

        row = measure(lambda: Rival(k, svd_solver="arpack", random_state=0).fit(x).components_)
    else:
        from sklearn.decomposition import TruncatedSVD

        row = measure(lambda: TruncatedSVD(k, random_state=0).fit(x).components_)
    q = np.linalg.qr(np.asarray(row["result"], np.float64).T)[0]
    y = x.astype(np.float64) @ q
    if centered:
        y -= y.mean(axis=0)
    return row | {
        "quality": round(float(np.sum(y**2)) / sparse_exact(x, k, centered), 7),
        "nnz": int(x.nnz),
    }


def large_file(contender: str, rows: int, n: int, k: int) -> dict[str, Any]:
    """A file made on the spot (random rows times a fixed mixing, repeated blocks), read once,
    deleted by the last contender."""
    path = CACHE / f"file-{rows}x{n}.npy"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        rng = np.random.default_rng(3)
        block = (
            rng.standard_normal((100_000, n), dtype=np.float32)
            * (np.arange(n, dtype=np.float32) + 1) ** -0.4
        ).astype(np.float32)
        with path.open("wb") as out:
            np.lib.format.write_array_header_1_0(
                out, {"descr": "<f4", "fortran_order": False, "shape": (rows, n)}
            )
            for i in range(0, rows, len(block)):
                part = block[: rows - i]
                part[:, i // len(block) % n] *= np.float32(1.01)
                part.tofile(out)
    drop_cache(path)
    if contender == "eckart":
        from eckart import PCA

        row = measure(lambda: PCA(k, random_state=0).fit(path), 1)
        row["certificate"] = row["result"].certificate_.holds
        path.unlink()
        return row

    def read_and_multiply() -> None:
        total = np.zeros((n, n), np.float32)
        buffer = np.empty((8192, n), np.float32)
        with path.open("rb") as raw:
            raw.seek(128)
            while got := raw.readinto(memoryview(buffer).cast("B")):
                part = buffer[: got // (4 * n)]
                total += part.T @ part

    return measure(read_and_multiply, 1)


def drop_cache(path: Path) -> None:
    """Ask the system to forget the file's pages, so that every contender reads it from the disk."""
    import os

    with path.open("rb") as raw:
        os.fsync(raw.fileno())
        os.posix_fadvise(raw.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def startup(task: str, contender: str) -> dict[str, Any]:
    import os
    import subprocess
    import tempfile

    if task == "import":
        code = {
            "sklearn.decomposition": "import sklearn.decomposition",
            "eckart": "import eckart",
            "eckart.PCA": "from eckart import PCA",
        }[contender]
        begin = "import time; t = time.perf_counter(); "
        times = sorted(
            float(
                subprocess.run(
                    [sys.executable, "-c", f"{begin}{code}; print(time.perf_counter() - t)"],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            for _ in range(7)
        )
        return {"seconds": round(times[3], 4), "best": round(times[0], 4), "runs": 7}
    code = """
import time, numpy as np, scipy.sparse as s, numba
from eckart import PCA
data = [np.random.default_rng(0).random((3000, 2500), np.float32)]
data.append(s.random(6000, 3000, 0.1, format="csr", dtype=np.float32, random_state=0))
def go():
    begin = time.perf_counter()
    for x in data:
        PCA(3, svd_solver="randomized", random_state=0).fit(x).transform(x)
    return time.perf_counter() - begin
first, second = go(), go()
print(first - second)
"""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, NUMBA_CACHE_DIR=folder)
        runs = [
            float(
                subprocess.run(
                    [sys.executable, "-c", code],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            for _ in range(2)
        ]
    return {"seconds": round(runs[contender.endswith("warm")], 3), "runs": 1}


def report(rows: list[dict]) -> None:
    """A table in Markdown; the ratio is the fastest rival's time over ours."""
    print(
        "\n| work | contender | seconds (median) | ratio | quality | extra memory MB "
        "|\n|---|---|---|---|---|---|"
    )
    for row in rows:
        rivals = [
            r["seconds"]
            for r in rows
            if r["task"] == row["task"] and "eckart" not in r["contender"] and "seconds" in r
        ]
        if row["task"] == "tall blocks":
            rivals = [
                r["seconds"]
                for r in rows
                if r["contender"] == "sklearn IncrementalPCA" and "seconds" in r
            ]
        if row["task"] == "tall" and row["contender"] == "eckart":
            rivals = [
                r["seconds"]
                for r in rows
                if r["contender"] == "sklearn covariance_eigh" and "seconds" in r
            ]
        ratio = (
            f"{min(rivals) / row['seconds']:.2f}x"
            if rivals and row["contender"].startswith("eckart") and row.get("seconds")
            else ""
        )
        print(
            f"| {row['task']} | {row['contender']} | "
            f"{row.get('seconds', row.get('error'))} | {ratio} | "
            f"{row.get('quality', '')} | {row.get('extra_mb', '')} |"
        )


def main() -> None:
    begin = time.perf_counter()
    run(__file__, CASES, work, report)
    print(f"\n{time.perf_counter() - begin:.0f} s") if "--child" not in sys.argv else None


if __name__ == "__main__":
    main()
