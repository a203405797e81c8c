"""Item models on Gowalla's official halves (train and valid together, judged on test): Recall@20,
NDCG@20, seconds, peak memory.

    python benchmarks/items.py FOLDER [gf-cf] [ease] [slim]

FOLDER holds train.txt, valid.txt and test.txt, each line a user and the items. EASE inverts 40,981
x 40,981 numbers: 7 GB, and n^3 = 7e13 operations.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from eckart import EASE, SLIM, Observed, SpectralFilter
from eckart.metrics import ranking

MODELS = {"gf-cf": SpectralFilter(256, random_state=0), "ease": EASE(l2=80.0), "slim": SLIM()}
"""Settings of the published figures: k = 256 and alpha = 0.3; l2 = 80, which its authors chose on
the test half."""


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Users and items, an entry of each for every pair."""
    users, items = [], []
    for line in path.read_text().splitlines():
        user, *rest = map(int, line.split())
        users += [user] * len(rest)
        items += rest
    return np.array(users), np.array(items)


def main(folder: Path, names: list[str]) -> None:
    parts = {name: read(folder / f"{name}.txt") for name in ("train", "valid", "test")}
    shape = tuple(1 + max(int(part[side].max()) for part in parts.values()) for side in (0, 1))
    known = [np.concatenate([parts["train"][side], parts["valid"][side]]) for side in (0, 1)]
    x = Observed.from_scipy(
        sparse.csr_array((np.ones(len(known[0]), np.float32), known), shape=shape)
    )
    test = sparse.csr_array(
        (np.ones(len(parts["test"][0]), np.float32), parts["test"]), shape=shape
    )
    rows = np.flatnonzero(np.diff(test.indptr))
    for name in names:
        begin = time.perf_counter(), time.process_time()
        model = MODELS[name].fit(x)
        middle = time.perf_counter(), time.process_time()
        lists = model.recommend(rows, n=20).positions
        end = time.perf_counter(), time.process_time()
        print(
            name,
            f"fit {middle[0] - begin[0]:.1f} s ({middle[1] - begin[1]:.1f} s of "
            f"processors), lists {end[0] - middle[0]:.1f} s ({end[1] - middle[1]:.1f} s)",
        )
        print(ranking(lists, test[rows], 20, ("recall", "ndcg")))
        print(
            f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB",
            model.certificate_,
            sep="\n",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ["gf-cf"])
