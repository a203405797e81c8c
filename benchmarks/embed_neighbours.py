"""Neighbours of 1000 words among 200,000 vectors of 100 numbers, ten each: eckart against gensim
and a NumPy batch.

eckart       one call for all words, and (one by one) a call for each
gensim       KeyedVectors.most_similar in a loop, as its users write it (norms are there
beforehand); timed on 200 words, times 5
numpy        all cosines in blocks of 100 words by one matrix product on all BLAS threads, then
argpartition and a sort of what it leaves

The vectors are Gaussian with a few hundred planted clusters, unit lengths are computed before the
clock starts, and each contender's lists are compared with those of eckart: ``same`` is the share of
positions with the same word (rounding decides between near ties).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import measure, run

N, K, ASKED, TOP = 200_000, 100, 1000, 10


def vectors(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    centres = rng.standard_normal((300, K))
    x = (centres[rng.integers(0, 300, n)] + rng.standard_normal((n, K))).astype(np.float32)
    return x, np.sort(rng.choice(n, ASKED, replace=False))


def by_eckart(x: np.ndarray, at: np.ndarray, single: bool) -> Any:
    from eckart import Vectors

    v = Vectors(np.array([f"w{i}" for i in range(len(x))], object), x)
    v.unit  # noqa: B018
    words = [f"w{i}" for i in at]
    v.neighbours(words[:3], TOP)
    if single:
        return lambda: [[int(w[1:]) for w, _ in v.neighbours(word, TOP)] for word in words]
    return lambda: v.neighbours(words, TOP).positions


def by_numpy(x: np.ndarray, at: np.ndarray) -> Any:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)

    def work() -> np.ndarray:
        out = np.empty((len(at), TOP), np.int64)
        for first in range(0, len(at), 100):
            own = at[first : first + 100]
            scores = unit[own] @ unit.T
            scores[np.arange(len(own)), own] = -np.inf
            best = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
            order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
            out[first : first + 100] = np.take_along_axis(best, order, axis=1)
        return out

    return work


def by_gensim(x: np.ndarray, at: np.ndarray) -> Any:
    from gensim.models import KeyedVectors

    words = KeyedVectors(K)
    words.add_vectors([f"w{i}" for i in range(len(x))], x)
    words.fill_norms()
    return lambda: [[int(w[1:]) for w, _ in words.most_similar(f"w{i}", topn=TOP)] for i in at]


def neighbours_case(contender: str, quick: bool = False) -> dict[str, Any]:
    x, at = vectors(20_000 if quick else N)
    share = at[:: 5 if contender == "gensim" or "one by one" in contender else 1]
    if contender == "gensim":
        work = by_gensim(x, share)
    elif contender == "numpy":
        work = by_numpy(x, share)
    else:
        work = by_eckart(x, share, "one by one" in contender)
    found = measure(work, 1 if contender == "gensim" else 3)
    scale = len(at) / len(share)
    found["seconds"], found["best"] = (
        round(found[name] * scale, 4) for name in ("seconds", "best")
    )
    same = np.mean(np.asarray(found["result"]) == by_eckart(x, share, False)())
    return {**found, "same": round(float(same), 5)}


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    return neighbours_case(contender, quick)


def report(rows: list[dict]) -> None:
    ours = next(
        (row["seconds"] for row in rows if row["contender"] == "eckart" and "seconds" in row), None
    )
    for row in rows:
        if "error" in row:
            print(f"{row['contender']:<22}{row['error']}")
            continue
        ratio = "" if ours is None else f"  {row['seconds'] / ours:>6.1f}x"
        print(
            f"{row['contender']:<22}{row['seconds']:>9.3f} s{ratio}  same "
            f"{row['same']:.4f}  +{row['extra_mb']} MB"
        )


CASES = [("neighbours", c) for c in ("eckart", "eckart one by one", "numpy", "gensim")]

if __name__ == "__main__":
    run(__file__, CASES, work, report)
