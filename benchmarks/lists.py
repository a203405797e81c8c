"""Defaults on real data: lists and errors of ratings, strengths of implicit feedback, biases for
the nuclear norm.

    python benchmarks/lists.py DATA [ratings] [plays] [nuclear]

DATA is a folder with movielens-100k, movietweetings-100k, jester-1 and gowalla. A fifth of the
ratings is hidden; a like is a rating of 4 of 5, 8 of 10, or 4 on a scale from -10 to 10. Plays are
log-normal numbers (median 260) on the pairs of Gowalla's first 6,000 rows; the library ``implicit``
is measured beside it where it is installed.
"""

from __future__ import annotations

import io
import sys
import time
import zipfile
from pathlib import Path

import numpy as np

from eckart import ALS, BayesianMF, SoftImpute
from eckart.engines import engine_named
from eckart.matrix import Observed
from eckart.metrics import ranking, rmse


def movielens(folder):
    a = np.loadtxt(folder / "movielens-100k" / "u.data", dtype=int)
    return a[:, 0], a[:, 1], a[:, 2].astype(float), 4


def movietweetings(folder):
    lines = (folder / "movietweetings-100k" / "ratings.dat").read_text().splitlines()
    a = np.array([line.split("::")[:3] for line in lines], int)
    return a[:, 0], a[:, 1], a[:, 2].astype(float), 8


def jester(folder, rows=4000):
    with zipfile.ZipFile(folder / "jester-1" / "jester-data-1.zip") as z:
        a = np.loadtxt(io.BytesIO(z.read(z.namelist()[0])), delimiter=",")[:rows, 1:]
    i, j = np.nonzero(a != 99)
    return i, j, a[i, j], 4.0


def parts(i, j, v, like, seed=1, share=0.2):
    """Training entries, hidden likes, and all hidden entries."""
    i, j = (np.unique(side, return_inverse=True)[1] for side in (i, j))
    shape = i.max() + 1, j.max() + 1
    hidden = np.random.default_rng(seed).random(len(i)) < share
    liked = hidden & (v >= like)
    train = Observed.from_codes(i[~hidden], j[~hidden], v[~hidden], shape, duplicates="last")
    likes = Observed.from_codes(i[liked], j[liked], np.ones(liked.sum()), shape, duplicates="last")
    return train, likes, (i[hidden], j[hidden], v[hidden])


def report(name, lists, relevant, k, counts=None, more=""):
    found = ranking(lists, relevant, k, ("recall", "ndcg")).mean
    rare = ""
    if counts is not None:
        shown = np.bincount(lists[lists >= 0], minlength=len(counts))[counts < 5].max(initial=0)
        rare = f"  rare column in at most {shown / len(lists):.1%} of lists"
    print(
        f"  {name:<34} recall@{k} {found['recall']:.4f}  NDCG@{k} {found['ndcg']:.4f}{rare}{more}",
        flush=True,
    )


def popular(x, rows, k):
    counts = x.column_counts().astype(float)
    zero = np.zeros((len(rows), 1)), np.zeros((x.n_columns, 1))
    return engine_named("cpu", None).top_columns(*zero, k, counts, (x.indptr, x.indices, rows))[0]


def ratings(folder):
    for data in (movielens, movietweetings, jester):
        x, likes, (i, j, v) = parts(*data(folder))
        rows = np.flatnonzero((likes.row_counts() > 0) & (x.row_counts() > 0))
        relevant, counts = likes.to_scipy()[rows], x.column_counts()
        print(f"{data.__name__}: {x.shape}, {x.nnz:,} entries")
        report("most popular", popular(x, rows, 10), relevant, 10, counts)
        for name, model in (
            ("ALS(l2=0.05)", ALS(l2=0.05, random_state=0)),
            ("ALS()", ALS(random_state=0)),
            (
                "BayesianMF(8), few draws",
                BayesianMF(8, n_samples=20, burn_in=40, thin=2, random_state=0),
            ),
        ):
            began = time.perf_counter()
            model.fit(x)
            error = rmse(v, model._clipped(model.fit_.factors.at(i, j)))
            told = f"  RMSE {error:.4f}  {time.perf_counter() - began:.1f} s"
            for by in ("prediction", "auto"):
                report(
                    f"{name}, by {by}",
                    model.recommend(rows, by=by).positions,
                    relevant,
                    10,
                    counts,
                    told,
                )


def plays(folder, users=6000):
    def pairs(*names):
        lines = [
            line.split()
            for name in names
            for line in (folder / "gowalla" / name).read_text().splitlines()
        ]
        kept = [words for words in lines if int(words[0]) < users]
        return np.repeat([int(w[0]) for w in kept], [len(w) - 1 for w in kept]), np.array(
            [int(v) for w in kept for v in w[1:]]
        )

    (i, j), (ti, tj) = pairs("train.txt", "valid.txt"), pairs("test.txt")
    columns = np.unique(j)
    known = np.isin(tj, columns)
    v = np.exp(np.random.default_rng(0).normal(np.log(260), 1.5, len(i))).round().clip(1)
    x = Observed.from_codes(
        i, np.searchsorted(columns, j), v, (users, len(columns)), duplicates="last"
    )
    at = np.searchsorted(columns, tj[known])
    test = Observed.from_codes(ti[known], at, np.ones(known.sum()), x.shape, duplicates="last")
    rows = np.flatnonzero(test.row_counts())
    relevant = test.to_scipy()[rows]
    print(f"plays: {x.shape}, {x.nnz:,} entries, median {np.median(v):.0f}, largest {v.max():,.0f}")
    report("most popular", popular(x, rows, 20), relevant, 20)
    for k in (16, 64):
        for strengths in ("raw", "auto"):
            model = ALS(k, feedback="implicit", strengths=strengths, random_state=0).fit(x)
            told = f"  certificate holds: {model.certificate_.holds}"
            report(
                f"ALS({k}, strengths={strengths!r})",
                model.recommend(rows, 20).positions,
                relevant,
                20,
                more=told,
            )
    try:
        from implicit.als import AlternatingLeastSquares
        from scipy.sparse import csr_matrix
    except ImportError:
        print("  implicit is not installed")
        return
    c = csr_matrix((x.data, x.indices, x.indptr), shape=x.shape)
    for k in (16, 100):
        rival = AlternatingLeastSquares(factors=k, random_state=0)
        rival.fit(c, show_progress=False)
        report(f"implicit, {k} factors", rival.recommend(rows, c[rows], N=20)[0], relevant, 20)


def nuclear(folder):
    for data in (movielens,):
        x, _, (i, j, v) = parts(*data(folder))
        for by in (None, "auto"):
            model = SoftImpute(normalise=by, random_state=0).fit(x)
            print(
                f"{data.__name__}: SoftImpute(normalise={by!r}) RMSE "
                f"{rmse(v, model.fit_.factors.at(i, j)):.4f}, rank {model.rank_}",
                flush=True,
            )


if __name__ == "__main__":
    home, wanted = Path(sys.argv[1]), sys.argv[2:] or ["ratings", "plays", "nuclear"]
    for part in wanted:
        {"ratings": ratings, "plays": plays, "nuclear": nuclear}[part](home)
