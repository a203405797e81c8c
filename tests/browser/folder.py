"""A folder as a user of the studio has it: digits, flowers, ratings, texts, and models of them
fitted by the shell."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, load_iris
from typer.testing import CliRunner

THEMES = {
    "sport": [
        "goal",
        "match",
        "team",
        "player",
        "coach",
        "season",
        "league",
        "score",
        "cup",
        "final",
        "win",
        "defeat",
        "stadium",
        "referee",
        "penalty",
    ],
    "money": [
        "market",
        "share",
        "profit",
        "bank",
        "growth",
        "price",
        "economy",
        "trade",
        "tax",
        "budget",
        "rate",
        "sale",
        "company",
        "stock",
        "dollar",
    ],
    "music": [
        "song",
        "album",
        "band",
        "guitar",
        "singer",
        "concert",
        "stage",
        "chart",
        "record",
        "piano",
        "tour",
        "drum",
        "melody",
        "lyric",
        "studio",
    ],
}
COMMON = ["people", "year", "day", "work", "place", "time", "world", "number", "week", "side"]


def make(folder: Path) -> Path:
    """Write data and models into ``folder``."""
    rng = np.random.default_rng(0)
    digits, iris = load_digits(), load_iris()
    pixels = [f"p{i}" for i in range(64)]
    table(
        folder / "digits.csv",
        [*pixels, "digit"],
        ([*map(int, x), f"digit {y}"] for x, y in zip(digits.data, digits.target)),
    )
    names = ["sepal length", "sepal width", "petal length", "petal width", "species"]
    table(
        folder / "iris.csv",
        names,
        ([*x, iris.target_names[y]] for x, y in zip(iris.data, iris.target)),
    )
    table(folder / "ratings.csv", ["user", "film", "stars"], ratings(rng))
    texts = list(documents(rng))
    table(folder / "news.csv", ["text", "desk"], texts)
    (folder / "words.txt").write_text("\n".join(text for text, _ in texts), encoding="utf-8")
    table(
        folder / "gaps.csv",
        ["a", "b", "c"],
        (
            [f"{x:.3f}" if rng.random() > 0.2 else "" for x in row]
            for row in rng.normal(size=(60, 3))
        ),
    )
    triples = ["--rows", "user", "--columns", "film", "--values", "stars"]
    for words in (
        [
            "reduce",
            "digits.csv",
            "-k",
            "12",
            "--image",
            "8x8",
            "--labels",
            "digit",
            "--model",
            "digits.safetensors",
        ],
        [
            "complete",
            "ratings.csv",
            *triples,
            "--method",
            "bayes",
            "-k",
            "3",
            "--held-out",
            "0",
            "--model",
            "films.safetensors",
        ],
        [
            "explain",
            "news.csv",
            "--text",
            "text",
            "-k",
            "4",
            "--held-out",
            "0",
            "--model",
            "news.safetensors",
        ],
        [
            "explain",
            "iris.csv",
            "--method",
            "mixture",
            "-k",
            "3",
            "--labels",
            "species",
            "--model",
            "iris.safetensors",
        ],
        [
            "explain",
            "digits.csv",
            "--method",
            "nmf",
            "-k",
            "9",
            "--image",
            "8x8",
            "--labels",
            "digit",
            "--max-iter",
            "50",
            "--model",
            "parts.safetensors",
        ],
        [
            "embed",
            "words.txt",
            "--method",
            "pmi",
            "-k",
            "12",
            "--min-count",
            "2",
            "--model",
            "words.safetensors",
        ],
        [
            "embed",
            "words.txt",
            "--method",
            "pmi",
            "-k",
            "6",
            "--window",
            "2",
            "--min-count",
            "2",
            "--model",
            "words-two.safetensors",
        ],
    ):
        shell(folder, words)
    return folder


def shell(folder: Path, words: list[str]) -> None:
    """One command of the shell, in this process, with files of the folder."""
    from eckart.cli.main import app

    placed = [
        str(folder / word) if "." in word and not word[0].isdigit() else word for word in words
    ]
    done = CliRunner().invoke(app, placed)
    assert done.exit_code == 0, (words, done.output, done.exception)


def table(path: Path, head: list[str], rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(head)
        writer.writerows(rows)


def ratings(rng: np.random.Generator):
    """Users who like one of two kinds of films, on a scale of 1 to 5."""
    taste, kind = rng.normal(size=(80, 2)), rng.normal(size=(40, 2))
    for user in range(80):
        for film in rng.choice(40, size=18, replace=False):
            stars = np.clip(np.rint(3.2 + taste[user] @ kind[film] + 0.3 * rng.normal()), 1, 5)
            yield f"user {user + 1}", f"Film {film + 1:02d} ({1970 + film})", int(stars)


def documents(rng: np.random.Generator):
    """Texts about one theme each, with some words that all share."""
    for i in range(160):
        theme = list(THEMES)[i % 3]
        own, shared = rng.choice(THEMES[theme], size=26), rng.choice(COMMON, size=8)
        yield " ".join(rng.permutation(np.concatenate([own, shared]))), theme


def million(folder: Path) -> Path:
    """A million rows of three numbers in seven clouds, and their PCA."""
    from eckart import PCA

    rng = np.random.default_rng(1)
    which = rng.integers(0, 7, size=1_000_000)
    centres = np.stack([3 * np.cos(np.arange(7)), 3 * np.sin(np.arange(7)), np.zeros(7)], axis=1)
    rows = (centres[which] + rng.normal(scale=(0.6, 0.5, 0.2), size=(1_000_000, 3))).astype(
        np.float32
    )
    np.save(folder / "million.npy", rows)
    PCA(2, random_state=0).fit(rows).save(folder / "million.safetensors")
    return folder
