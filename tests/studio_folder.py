"""A small folder of data and models of every room, for the tests of the studio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eckart import ALS, LDA, NMF, PCA, PMI, BayesianMF, GaussianMixture, corpus, observed, read

NUMBERS = ["height", "weight", "age", "speed"]


def make(folder: Path) -> Path:
    """Files: table.csv, ratings.csv, titles.csv, texts.csv, digits.npy, and a model for each
    room."""
    rng = np.random.default_rng(0)
    _table(folder, rng)
    _ratings(folder, rng)
    _texts(folder, rng)
    _digits(folder, rng)
    return folder


def _table(folder: Path, rng: Any) -> None:
    groups = rng.integers(0, 3, 90)
    centres = rng.normal(size=(3, 4)) * 4
    x = centres[groups] + rng.normal(size=(90, 4)) @ np.diag([1.0, 0.6, 0.5, 0.3])
    x[7] += 25  # an outlier
    lines = ["name,group," + ",".join(NUMBERS)]
    lines += [f"n{i},g{groups[i]}," + ",".join(f"{v:.6f}" for v in x[i]) for i in range(90)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = read(str(folder / "table.csv"), columns=NUMBERS)
    PCA(3, random_state=0).fit(data).save(folder / "table.safetensors")
    GaussianMixture(3, random_state=0).fit(data).save(folder / "mixture.safetensors")


def _ratings(folder: Path, rng: Any) -> None:
    u, v = rng.normal(size=(40, 2)), rng.normal(size=(30, 2))
    cells = rng.choice(40 * 30, 500, replace=False)
    value = np.clip(
        np.rint(
            2 * (3 + u[cells // 30, 0] * v[cells % 30, 0] + u[cells // 30, 1] * v[cells % 30, 1])
        )
        / 2,
        0.5,
        5,
    )
    lines = [
        "user,film,stars",
        *(f"u{c // 30},{c % 30 + 100},{s}" for c, s in zip(cells.tolist(), value)),
    ]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "titles.csv").write_text(
        "film,title\n" + "\n".join(f'{j + 100},"Film, No {j}"' for j in range(30)) + "\n",
        encoding="utf-8",
    )
    x = observed(str(folder / "ratings.csv"), rows="user", columns="film", values="stars")
    for name, model in (
        ("films", ALS(2, random_state=0)),
        ("bayes", BayesianMF(2, n_samples=20, burn_in=10, random_state=0)),
    ):
        model.fit(x)
        model.fit_.plan.update(
            {
                "names": {"rows": "user", "columns": "film", "values": "stars"},
                "titles": "titles.csv:film:title",
            }
        )
        model.save(folder / f"{name}.safetensors")


def _texts(folder: Path, rng: Any) -> None:
    themes = [
        ["boat", "sea", "wind", "sail", "harbour"],
        ["bread", "oven", "flour", "salt", "baker"],
        ["goal", "ball", "team", "match", "coach"],
    ]
    documents = []
    for d in range(60):
        words = rng.choice(themes[d % 3], 12).tolist() + rng.choice(themes[(d + 1) % 3], 2).tolist()
        documents.append(" ".join(words).capitalize() + ".")
    lines = ["id,text", *(f'd{i},"{text}"' for i, text in enumerate(documents))]
    (folder / "texts.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    counts = corpus(str(folder / "texts.csv"), text="text", index="id", min_df=1, stop_words=None)
    model = LDA(3, random_state=0, max_iter=40).fit(counts)
    model.fit_.plan["text"] = {"text": "text", "index": "id", "rules": {}}
    model.save(folder / "topics.safetensors")
    sentences = [text.rstrip(".").lower().split() for text in documents]
    for name, window in (("words", 5), ("other", 1)):
        PMI(4, min_count=1, window=window, random_state=0).fit(sentences).save(
            folder / f"{name}.safetensors"
        )


def _digits(folder: Path, rng: Any) -> None:
    parts = np.zeros((3, 64))
    for z in range(3):
        parts[z, rng.choice(64, 12, replace=False)] = 1
    x = (rng.random((50, 3)) @ parts).astype(np.float32)
    np.save(folder / "digits.npy", x)
    NMF(3, random_state=0).fit(x).save(folder / "parts.safetensors")
