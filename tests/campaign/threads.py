"""Fits from several threads, from a forked and a spawned process: the same bits as alone; a hundred
fits leave the memory flat."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np

import eckart
from campaign import Broken
from campaign.crew import held

QUICK = {"max_iter": 10}
CHAIN = {"n_samples": 4, "burn_in": 4}
MODELS: dict[str, dict[str, object]] = {
    "PCA": {},
    "GaussianMixture": QUICK,
    "NMF": QUICK,
    "MiniBatchNMF": QUICK,
    "ALS": QUICK,
    "BayesianMF": CHAIN | {"tails": "heavy", "noise": "both"},
    "TimeFactors": CHAIN,
    "MixedTable": QUICK,
    "EASE": {},
    "SLIM": QUICK,
    "SpectralFilter": {},
    "SoftImpute": {"tau": 1.0},
    "PLSA": QUICK,
    "LDA": QUICK,
}


def fitted(name: str, seed: int) -> np.ndarray:
    """The factors of a small fit, flat."""
    # whatever a model is for: numbers, clicks, counts
    x = np.random.default_rng(seed).poisson(1.0, (80, 8)) + 0.5
    x = np.round(x) if name in ("PLSA", "LDA") else x
    model = getattr(eckart, name)(2, random_state=0, **MODELS[name]).fit(x)
    arrays, _ = model.fit_.factors.to_state()
    return np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays.values()])


def together(name: str, seeds: list[int], pool: object) -> list[np.ndarray]:
    return list(pool.map(fitted, [name] * len(seeds), seeds))  # type: ignore[attr-defined]


def attempts(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    rounds = 0
    while True:
        name, seeds = str(rng.choice(list(MODELS))), [int(s) for s in rng.integers(0, 1000, 8)]
        alone = [fitted(name, seed) for seed in seeds]
        with ThreadPoolExecutor(8) as pool:
            found = together(name, seeds, pool)
        if not all(np.array_equal(a, b) for a, b in zip(alone, found)):
            raise Broken(f"{name} has other bits from eight threads")
        yield "eight threads"
        if rounds % 5 == 1:
            for way in ("fork", "spawn"):
                with ProcessPoolExecutor(2, multiprocessing.get_context(way)) as pool:
                    found = together(name, seeds[:2], pool)
                if not all(np.array_equal(a, b) for a, b in zip(alone, found)):
                    raise Broken(f"{name} has other bits in a process made by {way}")
                yield way
        if rounds % 5 == 2:
            sizes = []
            for _ in range(4):
                for _ in range(25):
                    fitted(name, 0)
                gc.collect()
                sizes.append(held())
            # compiled code and pools are there after the first rounds
            if sizes[-1] - sizes[1] > 20e6:
                raise Broken(
                    f"{name}: the memory grew from {sizes[1]:.0f} to {sizes[-1]:.0f} "
                    "bytes over fifty fits"
                )
            yield "a hundred fits"
        rounds += 1
