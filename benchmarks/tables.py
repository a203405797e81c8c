"""Tables of several kinds of columns with cells hidden: MixedTable beside scikit-learn's imputers
and column means, in one process.

    python benchmarks/tables.py FOLDER [bfi] [air] [jester] [titanic] [films] [survey]

FOLDER holds bfi, air-quality-uci, jester-1 and movielens-100k; the passengers of the Titanic come
with scikit-learn's tests. Errors at hidden cells, means over columns: root mean squared error in
standard deviations for numbers; share of wrong levels and log loss for levels. Imputers get
standardised numbers and one column of 0 and 1 for each level; their answers, clipped to 0.001 ..
0.999 and scaled to sum 1, are taken for probabilities. Seconds are those of the processor for fit
and answer together, the least of three.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from eckart import MixedTable
from eckart.io.tables.mixed import mixed_frame

HIDDEN = ((0.1, "cells"), (0.3, "cells"), (0.2, "blocks"))
REPEATS = 3
"""Of MixedTable and of IterativeImputer, in turn with nothing else in the process: the least
counts, on a machine that others use too."""


def bfi(folder: Path) -> pd.DataFrame:
    """25 answers, gender, education and age, all as numbers."""
    return pd.read_csv(folder / "bfi/bfi.csv").drop(columns="rownames").astype(float)


def survey(folder: Path) -> pd.DataFrame:
    """The same with answers and education as ordered categories and gender as text."""
    f = bfi(folder)
    answers = {c: pd.Categorical(f[c], range(1, 7), ordered=True) for c in f.columns[:25]}
    gender = f["gender"].map({1: "male", 2: "female"})
    return pd.DataFrame(
        {
            **answers,
            "gender": gender,
            "education": pd.Categorical(f["education"], range(1, 6), ordered=True),
            "age": f["age"],
        }
    )


def air(folder: Path) -> pd.DataFrame:
    """Thirteen sensors, hour by hour, and the time."""
    f = pd.read_csv(folder / "air-quality-uci/AirQualityUCI.csv")
    when = pd.to_datetime(f["Date"] + " " + f["Time"], dayfirst=True)
    return f.drop(columns=["Date", "Time"]).replace(-200, np.nan).assign(when=when)


def jester(folder: Path) -> pd.DataFrame:
    """The first 1,500 people and 100 jokes."""
    with zipfile.ZipFile(folder / "jester-1/jester-data-1.zip") as z:
        a = pd.read_csv(io.BytesIO(z.read(z.namelist()[0])), header=None).to_numpy()[:1500, 1:]
    return pd.DataFrame(np.where(a == 99, np.nan, a), columns=[f"joke {j}" for j in range(1, 101)])


def titanic(folder: Path) -> pd.DataFrame:
    """1,309 passengers: class, survival, sex, age, relatives on board (counts), fare, port."""
    path = next(
        (Path(sklearn.__file__).parent / "datasets/tests/data/openml/id_40945").glob("data*.gz")
    )
    text = gzip.decompress(path.read_bytes()).decode().split("@data")[1].strip()
    names = [
        "pclass",
        "survived",
        "name",
        "sex",
        "age",
        "sibsp",
        "parch",
        "ticket",
        "fare",
        "cabin",
        "embarked",
        "boat",
        "body",
        "dest",
    ]
    f = pd.DataFrame(
        csv.reader(text.splitlines(), quotechar='"', escapechar="\\"), columns=names
    ).replace("?", np.nan)
    numbers = f[["age", "sibsp", "parch", "fare"]].astype(float)
    place = pd.Categorical(f["pclass"].astype(int), [1, 2, 3], ordered=True)
    saved = f["survived"].map({"0": False, "1": True}).astype("boolean")
    return numbers.assign(
        pclass=place, survived=saved, sex=f["sex"], embarked=f["embarked"].astype("category")
    )


def films(folder: Path) -> pd.DataFrame:
    """1,682 films of MovieLens: release date, number and mean of ratings, 18 genres as yes and
    no."""
    genres = [
        line.split("|")[0]
        for line in (folder / "movielens-100k/u.genre").read_text().split("\n")
        if line.strip()
    ]
    names = ["id", "title", "released", "video", "url", *genres]
    f = pd.read_csv(
        folder / "movielens-100k/u.item", sep="|", header=None, encoding="latin-1", names=names
    )
    by = pd.read_csv(
        folder / "movielens-100k/u.data",
        sep="\t",
        header=None,
        names=["user", "id", "rating", "time"],
    ).groupby("id")["rating"]
    head = {
        "released": pd.to_datetime(f["released"], format="%d-%b-%Y"),
        "ratings": by.count().reindex(f["id"]).to_numpy(float),
    }
    return pd.DataFrame(
        {
            **head,
            "mean": by.mean().reindex(f["id"]).to_numpy(),
            **{g: f[g].astype(bool).astype("boolean") for g in genres[1:]},
        }
    )


TABLES = {
    "bfi": bfi,
    "air": air,
    "jester": jester,
    "titanic": titanic,
    "films": films,
    "survey": survey,
}


def hide(frame: pd.DataFrame, share: float, kind: str, seed: int = 0) -> np.ndarray:
    """Known cells to hide: at random, or in blocks of a twentieth of the rows and a quarter of the
    columns; a row keeps a cell."""
    rng, known = np.random.default_rng(seed), frame.notna().to_numpy()
    n, p = known.shape
    mask = rng.random((n, p)) < share if kind == "cells" else np.zeros((n, p), bool)
    height, width = max(1, n // 20), max(1, p // 4)
    while mask.sum() < share * n * p and kind == "blocks":
        i, j = rng.integers(0, n - height + 1), rng.integers(0, p - width + 1)
        mask[i : i + height, j : j + width] = True
    mask &= known
    mask[(known & ~mask).sum(axis=1) == 0] = False
    return mask


def one_hot(
    columns: list[Any], mask: np.ndarray
) -> tuple[np.ndarray, list[tuple[int, float | None]]]:
    """Numbers, and a column of 0 and 1 for each level; which column and level each is."""
    blocks, owners = [], []
    for j, cells in enumerate(columns):
        a = np.where(mask[:, j], np.nan, cells.values)
        levels = (
            np.unique(a[~np.isnan(a)])
            if cells.kind in ("category", "ordered", "boolean")
            else [None]
        )
        for level in levels[1:] if cells.kind == "boolean" else levels:
            blocks.append(a if level is None else np.where(np.isnan(a), np.nan, a == level))
            owners.append((j, level))
    return np.column_stack(blocks), owners


def judge(columns: list[Any], mask: np.ndarray, answer: Any) -> list[float]:
    """NRMSE, share of wrong levels, log loss; ``answer(j, rows)`` gives numbers, or levels and
    their probabilities."""
    found: list[list[float]] = [[], [], []]
    for j, cells in enumerate(columns):
        rows = np.flatnonzero(mask[:, j])
        if not len(rows):
            continue
        truth = cells.values[rows]
        if cells.kind in ("category", "ordered", "boolean"):
            levels, p = answer(j, rows)
            found[1].append(float((levels[p.argmax(axis=1)] != truth).mean()))
            found[2].append(
                float(-np.log(np.where(truth[:, None] == levels, p, 0).sum(axis=1) + 1e-12).mean())
            )
        else:
            deviation = np.nanstd(np.where(mask[:, j], np.nan, cells.values))
            found[0].append(float(np.sqrt(((answer(j, rows) - truth) ** 2).mean()) / deviation))
    return [float(np.mean(each)) if each else float("nan") for each in found]


def by_imputer(
    columns: list[Any], filled: np.ndarray, owners: list[tuple[int, float | None]]
) -> Any:
    def answer(j: int, rows: np.ndarray) -> Any:
        at = [i for i, owner in enumerate(owners) if owner[0] == j]
        if owners[at[0]][1] is None:
            return filled[rows, at[0]]
        p, levels = (
            np.clip(filled[np.ix_(rows, at)], 1e-3, 1 - 1e-3),
            np.array([owners[i][1] for i in at]),
        )
        if columns[j].kind == "boolean":
            p, levels = np.column_stack([1 - p, p]), np.array([0.0, 1.0])
        return levels, p / p.sum(axis=1, keepdims=True)

    return answer


def by_model(model: MixedTable, frame: pd.DataFrame, columns: list[Any]) -> Any:
    filled = mixed_frame(model.impute(frame)).columns

    def answer(j: int, rows: np.ndarray) -> Any:
        cells = columns[j]
        if cells.kind not in ("category", "ordered", "boolean"):
            return filled[j].values[rows]
        levels = model.levels_[cells.name]
        codes = (
            [float(cells.levels.index(v)) for v in levels]
            if cells.levels
            else [float(v) for v in levels]
        )
        return np.array(codes), model.predict_proba(frame.iloc[rows], cells.name)

    return answer


def main(folder: Path, names: list[str]) -> None:
    warnings.filterwarnings("ignore")
    for name in names:
        frame = TABLES[name](folder)
        columns = mixed_frame(frame).columns
        for share, kind in HIDDEN:
            mask = hide(frame, share, kind)
            gaps = frame.mask(pd.DataFrame(mask, columns=frame.columns, index=frame.index))
            x, owners = one_hot(columns, mask)
            mean, scale = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
            scale[scale == 0] = 1
            z = (x - mean) / scale
            told = f"{name} {share:.0%} {kind}"
            MixedTable(random_state=0).fit(gaps.head(400))  # kernels are loaded
            spent = []
            for _ in range(REPEATS):
                begin, model = time.process_time(), MixedTable(random_state=0)
                model.fit_impute(gaps)
                spent.append(time.process_time() - begin)
            seconds = min(spent)
            errors = judge(columns, mask, by_model(model, gaps, columns))
            print(
                told,
                "MixedTable",
                np.round(errors, 4).tolist(),
                f"{seconds:.3f} s",
                f"rank {model.fit_.plan['rank']}",
                sep=" | ",
                flush=True,
            )
            errors = judge(
                columns, mask, by_imputer(columns, np.broadcast_to(mean, x.shape), owners)
            )
            print(told, "means and shares", np.round(errors, 4).tolist(), sep=" | ", flush=True)
            for rival in (KNNImputer(n_neighbors=10), IterativeImputer(random_state=0)):
                begin = time.process_time()
                try:
                    spent = []
                    for _ in range(REPEATS if isinstance(rival, IterativeImputer) else 1):
                        begin = time.process_time()
                        filled = rival.fit_transform(z) * scale + mean
                        spent.append(time.process_time() - begin)
                except np.linalg.LinAlgError as error:
                    print(
                        told,
                        type(rival).__name__,
                        f"failed: {error}",
                        f"{time.process_time() - begin:.2f} s",
                        sep=" | ",
                        flush=True,
                    )
                    continue
                seconds = min(spent)
                errors = judge(columns, mask, by_imputer(columns, filled, owners))
                print(
                    told,
                    type(rival).__name__,
                    np.round(errors, 4).tolist(),
                    f"{seconds:.2f} s",
                    sep=" | ",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:] or list(TABLES))
