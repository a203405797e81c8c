"""Panels (tables of the kind "e", rows in time): ``TimeFactors()`` beside the mean of each series,
straight lines between neighbours, and chained ridge; blocks of a twentieth of the times are hidden
in each series. The loss is the squared error in variances of the series."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from defaults import Case, timed
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from eckart import TimeFactors

BASELINES, RIVALS = ("mean", "lines"), ("chained ridge",)
TIMES, SERIES = 700, 40


def sets(tables: Any) -> list[str]:
    return list(tables.names("e"))


def hidden(x: np.ndarray, seed: int) -> np.ndarray:
    """Three blocks of each series, a tenth of the times in all, where it is known."""
    rng, mask = np.random.default_rng(seed), np.zeros(x.shape, bool)
    length = max(2, round(0.035 * len(x)))
    for j in range(x.shape[1]):
        for start in rng.integers(0, max(len(x) - length, 1), 3):
            mask[start : start + length, j] = True
    return mask & ~np.isnan(x)


def lines(x: np.ndarray) -> np.ndarray:
    at, out = np.arange(len(x)), np.empty_like(x)
    for j, series in enumerate(x.T):
        known = ~np.isnan(series)
        out[:, j] = np.interp(at, at[known], series[known])
    return out


def cases(tables: Any, name: str) -> Any:
    x = np.asarray(tables.load(name)["data"], float)[:TIMES]
    x = x[:, (~np.isnan(x)).sum(axis=0) > 20]
    x = x[:, np.nanstd(x, axis=0) > 0][:, :SERIES]
    x = (x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0)
    mask = hidden(x, 0)
    gaps = np.where(mask, np.nan, x)
    methods = {
        "eckart": lambda: TimeFactors(random_state=0, n_threads=1).fit(gaps.T).impute().T,
        "mean": lambda: np.broadcast_to(np.nanmean(gaps, axis=0), x.shape),
        "lines": lambda: lines(gaps),
        "chained ridge": lambda: IterativeImputer(
            random_state=0, keep_empty_features=True
        ).fit_transform(gaps),
    }
    losses, seconds = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method, fill in methods.items():
            filled, seconds[method] = timed(fill)
            losses[method] = (filled - x)[mask] ** 2
    yield Case(
        name,
        losses,
        seconds,
        f"{x.shape[0]} x {x.shape[1]}, {seconds['eckart']:.1f} s",
        rooted=True,
    )
