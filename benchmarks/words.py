"""Which word model when: SkipGram, PMI and GloVe as they are by default, on several texts and on
lists of items.

    python benchmarks/words.py [--only text8]

text8, imdb   the first 2M words of text8 and 2.5M of film reviews: word similarity (Spearman) of
eleven sets, their mean, analogies, processor seconds
lists         MovieLens-100K, what each person rated as a list in an order of chance, 50 numbers:
vectors of the lists of 700 people, and the share of the 20
              nearest films that are among the 20 of the largest cosine in the lists of the other
              243 people; raw: cosines of the lists themselves
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
from embed import SHARED, text8
from harness import cached, run

SETS = (
    "MEN-TR-3k",
    "WS-353-ALL",
    "SIMLEX-999",
    "SimVerb-3500",
    "MTurk-771",
    "MTurk-287",
    "RG-65",
    "MC-30",
    "RW-STANFORD",
    "YP-130",
    "VERB-143",
)
MODELS = ("SkipGram", "PMI", "GloVe")
CASES = [(task, name) for task in ("text8", "imdb") for name in MODELS] + [
    ("lists", name) for name in ("raw", *MODELS)
]
REVIEWS = 2_500_000
SEEN, NEAR = 700, 20


def reviews() -> Path:
    """Film reviews of so many words, one to a line."""

    def write(path: Path) -> None:
        words = 0
        with (
            gzip.open(SHARED / "imdb-reviews" / "imdb.tsv.gz", "rt") as text,
            path.open("w") as out,
        ):
            for line in text:
                review = line.rstrip("\n").split("\t")[-1].replace("<br />", " ")
                out.write(review + "\n")
                words += len(review.split())
                if words > REVIEWS:
                    break

    return cached("imdb_lines.txt", write)


def similarity(task: str, contender: str) -> dict[str, Any]:
    import eckart
    from eckart import metrics

    s = eckart.sequences(text8() if task == "text8" else reviews())
    begin = time.process_time()
    model = getattr(eckart, contender)(100, random_state=0, n_threads=1).fit(s)
    used, v = time.process_time() - begin, model.vectors_
    out = {
        name: round(metrics.word_similarity(v, SHARED / "word-eval" / f"EN-{name}.txt").rho, 3)
        for name in SETS
    }
    found = metrics.analogies(v, SHARED / "word-eval" / "questions-words.txt", restrict=None)
    return {
        "cpu seconds": round(used, 1),
        **out,
        "mean": round(float(np.mean(list(out.values()))), 3),
        "analogies": round(found.accuracy, 3),
        "certificate": model.certificate_.holds,
    }


def lists(contender: str) -> dict[str, Any]:
    import eckart

    rng = np.random.default_rng(0)
    d = np.loadtxt(SHARED / "movielens-100k" / "u.data", dtype=np.int64)
    bag = np.zeros((943, 1682), np.float32)
    bag[d[:, 0] - 1, d[:, 1] - 1] = 1
    people = rng.permutation(943)
    own, other = bag[people[:SEEN]], bag[people[SEEN:]]
    asked = np.flatnonzero((own.sum(axis=0) >= 5) & (other.sum(axis=0) >= 10))
    wanted = nearest(other.T, asked)
    begin = time.process_time()
    if contender == "raw":
        vectors, known = own.T, own.sum(axis=0) >= 5
        vectors = np.where(known[:, None], vectors, 0)
    else:
        rows = [rng.permutation(np.flatnonzero(row)).tolist() for row in own]
        v = getattr(eckart, contender)(50, random_state=0, n_threads=1).fit(rows).vectors_
        vectors = np.zeros((1682, 50), np.float32)
        vectors[v.words.astype(int)] = v.vectors
    used, found = time.process_time() - begin, nearest(vectors, asked)
    share = np.mean([len(set(a) & set(b)) / NEAR for a, b in zip(found.tolist(), wanted.tolist())])
    return {"cpu seconds": round(used, 1), "companions": round(float(share), 3)}


def nearest(vectors: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The rows of the largest cosines with some rows."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = unit[asked] @ unit.T
    cosines[np.arange(len(asked)), asked] = -np.inf
    return np.argsort(-cosines, axis=1)[:, :NEAR]


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    return lists(contender) if task == "lists" else similarity(task, contender)


def report(rows: list[dict]) -> None:
    for row in rows:
        print(
            "  ".join(
                f"{name} {value}"
                for name, value in row.items()
                if name not in ("versions", "machine")
            )
        )


if __name__ == "__main__":
    run(__file__, CASES, work, report)
