"""What --plan says against what the command then takes: seconds of choice and fit, in a process of
its own each.

    python benchmarks/plans.py DATA [CASE ...]

DATA is a folder with movielens-100k, bfi, octis-corpora and text8-prefix. A plan that had to
compile kernels is made again. A ratio (planned / taken) outside 1/2 .. 2 is marked.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def prepare(data: Path, to: Path) -> None:
    """The files that the cases read."""
    rng = np.random.default_rng(0)
    ratings = np.loadtxt(data / "movielens-100k" / "u.data", dtype=int)[:, :3]
    np.savetxt(to / "ratings.csv", ratings, "%d", ",", header="user,movie,rating", comments="")
    (to / "bfi.csv").write_bytes((data / "bfi" / "bfi.csv").read_bytes())
    lines = (data / "octis-corpora" / "BBC_News_corpus.tsv").read_text().splitlines()
    (to / "news.txt").write_text("\n".join(line.split("\t")[0] for line in lines))
    with gzip.open(next((data / "text8-prefix").glob("*.gz")), "rt") as file:
        words = file.read(6_000_000).split()
    (to / "words.txt").write_text(
        "\n".join(" ".join(words[i : i + 1000]) for i in range(0, len(words), 1000))
    )
    low = rng.standard_normal((20_000, 8)) @ rng.standard_normal(
        (8, 300)
    ) + 0.1 * rng.standard_normal((20_000, 300))
    np.save(to / "medium.npy", low)
    np.save(to / "small.npy", low[:200, :12])
    gaps = low[:4000, :60].copy()
    gaps[rng.random(gaps.shape) < 0.2] = np.nan
    np.save(to / "gaps.npy", gaps)
    np.save(to / "parts.npy", np.abs(low[:5000]))
    from scipy.sparse import random, save_npz

    save_npz(to / "sparse.npz", random(20_000, 5_000, 0.01, "csr", random_state=0))


TRIPLES = "ratings.csv --rows user --columns movie --values rating"
CASES = {
    "reduce, 200 x 12": "reduce small.npy -k 3",
    "reduce, 20,000 x 300": "reduce medium.npy -k 8",
    "reduce, 4,000 x 60, a fifth missing": "reduce gaps.npy -k 8",
    "reduce, sparse 20,000 x 5,000": "reduce sparse.npz -k 10",
    "complete, MovieLens-100K, als": f"complete {TRIPLES} --method als -k 8 --l2 0.1",
    "complete, MovieLens-100K, auto": f"complete {TRIPLES}",
    "complete, MovieLens-100K, soft-impute": f"complete {TRIPLES} --method soft-impute",
    "complete, MovieLens-100K, implicit": "complete ratings.csv --rows user --columns movie --feedback implicit -k 32",
    "complete, survey with gaps, als": "complete bfi.csv --method als -k 5",
    "explain, 2,225 news, lda": "explain news.txt -k 8",
    "explain, 4,000 x 60 with gaps, mixture": "explain gaps.npy --method mixture -k 4",
    "explain, 5,000 x 300, nmf": "explain parts.npy --method nmf -k 8",
    "embed, 1 M words, pmi": "embed words.txt --method pmi -k 50",
    "embed, 1 M words, skipgram": "embed words.txt --method skipgram -k 50",
    "embed, 1 M words, glove": "embed words.txt --method glove -k 50",
}


def seconds_of(command: str, folder: Path, *more: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "eckart", *command.split(), "--json", *more]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{command} {' '.join(more)} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def main() -> None:
    data, wanted = Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        prepare(data, Path(folder))
        print("| case | planned, s | taken, s | ratio |\n| --- | --- | --- | --- |", flush=True)
        for name in wanted:
            plan = seconds_of(CASES[name], Path(folder), "--plan")["plan"]
            if plan["compiling"] > 0:
                plan = seconds_of(CASES[name], Path(folder), "--plan")["plan"]
            taken = sum(seconds_of(CASES[name], Path(folder))["times"].values())
            ratio = plan["seconds"] / taken
            mark = "" if 0.5 <= ratio <= 2 else " (!)"
            print(
                f"| {name} | {plan['seconds']:.2f} | {taken:.2f} | {ratio:.2f}{mark} |", flush=True
            )


if __name__ == "__main__":
    main()
