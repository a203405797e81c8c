"""NMF against scikit-learn: seconds of whole fits and seconds to the objective at which
scikit-learn's solver ends, from the same start.

Dense 20000 x 2000, k = 32, least squares; counts 20000 x 30000 with 2.0M non-zeros, k = 50,
Kullback-Leibler divergence and least squares. Quality is
||A - W H|| / ||A|| or the divergence over the sum of A, from the factors in double precision, off the clock.

``curve``   scikit-learn keeps no state but W and H, so it runs in steps of a few iterations; ours
runs once and its trace is read. Both start from the
            same W and H (scikit-learn's nndsvda), whose making is not counted here. "eckart" counts
            its sketch.
``fit``     everything that ``fit_transform`` does, start included, at default stopping rules
(scikit-learn's KL: 60 iterations).
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import cached, measure, run

warnings.simplefilter("ignore")
SIZES = {"dense": (20_000, 2000, 32), "counts": (20_000, 30_000, 50)}
QUICK = {"dense": (2000, 400, 8), "counts": (2000, 3000, 10)}
CASES = [
    ("dense curve", "sklearn cd"),
    ("dense curve", "eckart"),
    ("dense curve", "eckart cd"),
    ("dense fit", "sklearn cd"),
    ("dense fit", "sklearn MiniBatch"),
    ("dense fit", "eckart"),
    ("counts kl curve", "sklearn mu"),
    ("counts kl curve", "eckart"),
    ("counts kl curve", "eckart mu"),
    ("counts kl fit", "sklearn mu"),
    ("counts kl fit", "sklearn MiniBatch"),
    ("counts kl fit", "eckart"),
    ("counts fit", "sklearn cd"),
    ("counts fit", "eckart"),
    ("counts transform", "sklearn mu"),
    ("counts transform", "eckart"),
]


def dense_data(rows: int, n: int, k: int) -> np.ndarray:
    """Sparse gamma factors and half-normal noise of a tenth of the mean."""

    def make(path: Path) -> None:
        rng = np.random.default_rng(31)
        w = rng.gamma(0.5, 1.0, (rows, k)) * (rng.random((rows, k)) < 0.3)
        h = rng.gamma(0.5, 1.0, (k, n)) * (rng.random((k, n)) < 0.3)
        x = w @ h
        x += 0.1 * x.mean() * np.abs(rng.standard_normal(x.shape))
        with path.open("wb") as raw:
            np.save(raw, x.astype(np.float32))

    return np.load(cached(f"nmf-{rows}x{n}.npy", make))


def counts_data(rows: int, n: int, k: int) -> Any:
    """Word counts of a latent Dirichlet model with Zipf topics, about 100 different words a
    document."""

    def make(path: Path) -> None:
        rng = np.random.default_rng(21)
        base = 1.0 / (np.arange(n) + 5.0) ** 1.05
        base /= base.sum()
        phi = base * rng.gamma(0.06, 1 / 0.06, (k, n)) + 0.03 * base
        cumulative = np.cumsum(phi / phi.sum(axis=1, keepdims=True), axis=1)
        theta = rng.dirichlet(np.full(k, 0.1), rows)
        length = np.clip(rng.lognormal(np.log(112), 0.6, rows), 20, 2000).astype(int)
        i, j = [], []
        for d in range(rows):
            topic, u = rng.choice(k, length[d], p=theta[d]), rng.random(length[d])
            for z in np.unique(topic):
                found = np.searchsorted(cumulative[z], u[topic == z])
                j.append(np.minimum(found, n - 1))
                i.append(np.full(found.size, d))
        at = np.concatenate(i), np.concatenate(j)
        x = sparse.csr_matrix((np.ones(len(at[0]), np.float32), at), shape=(rows, n))
        x.sum_duplicates()
        with path.open("wb") as raw:
            sparse.save_npz(raw, x, compressed=False)

    return sparse.load_npz(cached(f"nmf-counts-{rows}x{n}.npz", make))


def start(name: str, x: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's nndsvda, kept."""
    from sklearn.decomposition._nmf import _initialize_nmf

    def make(path: Path) -> None:
        w, h = _initialize_nmf(x, k, init="nndsvda", random_state=0)
        with path.open("wb") as raw:
            np.savez(raw, w=w.astype(np.float32), h=h.astype(np.float32))

    found = np.load(cached(f"nmf-start-{name}-{x.shape[0]}.npz", make))
    return found["w"], found["h"]


def quality(x: Any, w: np.ndarray, h: np.ndarray, kl: bool) -> float:
    w, h = w.astype(np.float64), h.astype(np.float64)
    total = size = 0.0
    for a in range(0, x.shape[0], 500):
        part = x[a : a + 500]
        if not sparse.issparse(part):
            part = part.astype(np.float64)
            rest = w[a : a + 500] @ h
            total += (
                ((part - rest) ** 2).sum()
                if not kl
                else (part * np.log(np.maximum(part, 1e-300) / rest) - part + rest).sum()
            )
            size += (part**2).sum() if not kl else part.sum()
            continue
        rows = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
        s, v = (
            np.einsum("ij,ij->i", w[a : a + 500][rows], h.T[part.indices]),
            part.data.astype(np.float64),
        )
        if kl:
            total += (v * np.log(v / np.maximum(s, 1e-30)) - v).sum() + w[a : a + 500].sum(
                axis=0
            ) @ h.sum(axis=1)
            size += v.sum()
        else:
            gram = w[a : a + 500].T @ w[a : a + 500]
            total += (v**2 - 2 * v * s).sum() + (gram * (h @ h.T)).sum()
            size += (v**2).sum()
    return float(total / size if kl else np.sqrt(max(total, 0.0) / size))


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    name = task.split()[0]
    rows, n, k = (QUICK if quick else SIZES)[name]
    x = (dense_data if name == "dense" else counts_data)(rows, n, k)
    kl = "kl" in task or "transform" in task
    if task.endswith("curve"):
        return (ours_curve if contender.startswith("eckart") else rival_curve)(
            name, x, k, kl, contender, quick
        )
    if task.endswith("transform"):
        return new_rows(x, k, contender)
    fit = _fit(contender, k, kl)
    if contender.startswith("eckart"):
        _warm(x, kl)
    row = measure(lambda: fit(x), 3, 40.0)
    w, h = row["result"]
    return row | {"quality": round(quality(x, w, h, kl), 6)}


def _fit(contender: str, k: int, kl: bool) -> Any:
    loss = "kullback-leibler" if kl else "frobenius"
    if contender == "eckart":
        from eckart import NMF

        def ours(x: Any) -> tuple[np.ndarray, np.ndarray]:
            model = NMF(k, beta_loss=loss, random_state=0, max_iter=30 if kl else 200)
            return model.fit_transform(x), model.components_

        return ours
    from sklearn.decomposition import NMF as Rival
    from sklearn.decomposition import MiniBatchNMF

    def theirs(x: Any) -> tuple[np.ndarray, np.ndarray]:
        if "MiniBatch" in contender:
            model = MiniBatchNMF(k, beta_loss=loss, random_state=0, max_iter=16, init="nndsvda")
        else:
            model = Rival(
                k,
                beta_loss=loss,
                solver=contender.split()[1],
                random_state=0,
                max_iter=60 if kl else 200,
                init="nndsvda",
            )
        return model.fit_transform(x), model.components_

    return theirs


def _warm(x: Any, kl: bool) -> None:
    """Compiled kernels are loaded before the clock starts."""
    from eckart import NMF

    NMF(2, beta_loss="kl" if kl else "frobenius", random_state=0, max_iter=5).fit(x[:200])


def rival_curve(name: str, x: Any, k: int, kl: bool, contender: str, quick: bool) -> dict[str, Any]:
    from sklearn.decomposition import non_negative_factorization

    w, h = start(name, x, k)
    step, limit = (5, 40) if not kl else (10, 60)
    points, spent = [(0.0, round(quality(x, w, h, kl), 6))], 0.0
    for _ in range(0, limit, step):
        begin = time.perf_counter()
        w, h, _ = non_negative_factorization(
            x,
            w,
            h,
            n_components=k,
            init="custom",
            solver=contender.split()[1],
            max_iter=step,
            tol=0,
            random_state=0,
            beta_loss="kullback-leibler" if kl else "frobenius",
        )
        spent += time.perf_counter() - begin
        points.append((round(spent, 3), round(quality(x, w, h, kl), 6)))
        if len(points) > 3 and points[-2][1] - points[-1][1] < 1e-5 * points[-1][1]:
            break
    return {"seconds": round(spent, 3), "quality": points[-1][1], "runs": 1, "curve": points}


def ours_curve(name: str, x: Any, k: int, kl: bool, contender: str, quick: bool) -> dict[str, Any]:
    from eckart import NMF

    w, h = start(name, x, k)
    _warm(x, kl)
    solver = "auto" if contender == "eckart" else contender.split()[1]
    model = NMF(
        k,
        init="custom",
        solver=solver,
        beta_loss="kl" if kl else "frobenius",
        random_state=0,
        max_iter=40,
    )
    begin = time.perf_counter()
    found = model.fit_transform(x, W=w, H=h)
    spent = time.perf_counter() - begin
    trace = model.fit_.trace
    first = spent - trace.seconds[-1]  # what ran before the loop: totals, transpose, sketch
    scale = (
        float(x.sum(dtype=np.float64))
        if kl
        else 0.5
        * float(
            (
                x.astype(np.float64).power(2) if sparse.issparse(x) else x.astype(np.float64) ** 2
            ).sum()
        )
    )
    points = [
        (round(max(first, 0.0) + t, 3), round(v / scale if kl else (max(v, 0.0) / scale) ** 0.5, 6))
        for v, t in zip(trace.values, trace.seconds)
    ]
    return {
        "seconds": round(spent, 3),
        "quality": round(quality(x, found, model.components_, kl), 6),
        "runs": 1,
        "curve": points,
    }


def new_rows(x: Any, k: int, contender: str) -> dict[str, Any]:
    """W of 2000 documents for the H of a short fit."""
    from sklearn.decomposition import NMF as Rival

    from eckart import NMF

    w, h = start("counts", x, k)
    few = x[:2000]
    if contender == "eckart":
        model: Any = NMF(k, init="custom", solver="mu", beta_loss="kl", max_iter=5, tol=0).fit(
            x, W=w, H=h
        )
    else:
        model = Rival(
            k, init="custom", solver="mu", beta_loss="kullback-leibler", max_iter=5, tol=0
        )
        model.fit(x, W=w.copy(), H=h.copy())
        model.max_iter, model.tol = 200, 1e-4
    row = measure(lambda: model.transform(few), 3, 20.0)
    return row | {"quality": round(quality(few, row["result"], model.components_, True), 6)}


def report(rows: list[dict]) -> None:
    """A table in Markdown; for curves, the time at which our objective passes the rival's last
    one."""
    print(
        "\n| work | contender | seconds | to the rival's end | ratio | quality | extra "
        "MB |\n|---|---|---|---|---|---|---|"
    )
    for row in rows:
        rivals = [
            r
            for r in rows
            if r["task"] == row["task"] and r["contender"].startswith("sklearn") and "seconds" in r
        ]
        rivals = [r for r in rivals if "MiniBatch" not in r["contender"]]
        reached, ratio = "", ""
        if row["contender"].startswith("eckart") and "seconds" in row and rivals:
            spent = row["seconds"]
            if "curve" in row:
                spent = next(
                    (t for t, v in row["curve"] if v <= rivals[0]["quality"]), float("nan")
                )
                reached = f"{spent:.2f}"
            ratio = f"{rivals[0]['seconds'] / spent:.1f}x"
        told = [row["task"], row["contender"], row.get("seconds", row.get("error")), reached, ratio]
        print(
            "| "
            + " | ".join(map(str, [*told, row.get("quality", ""), row.get("extra_mb", "")]))
            + " |"
        )


def main() -> None:
    run(__file__, CASES, work, report)


if __name__ == "__main__":
    main()
