"""From rows to the network and back: gaps filled, outputs in the units of the data, the risk over
observed entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.factors import Network
from eckart.matrix import Dense, Matrix, row_parts
from eckart.reduce.encode import as_observed


def fill_gaps(f: Network, net: Any, batch: Any) -> Any:
    """The input, its gaps filled by the network's own reconstruction where it was trained without
    gaps."""
    x = batch.x
    if batch.seen is None or f.architecture["link"] != "squared" or bool(batch.seen.all()):
        return x
    for _ in range(f.architecture["rounds"]):
        x = batch.x + (~batch.seen) * net.decode(net.encode(x)[0])
    return x


def link(f: Network, out: np.ndarray) -> np.ndarray:
    """From the network's output to a row."""
    if f.architecture["link"] == "bernoulli":
        return np.where(
            f.spread > 0, 1 / (1 + np.exp(-np.clip(out + logit(f.mean), -60, 60))), f.mean
        )
    return f.mean + f.spread * out


def risk_of(matrix: Matrix, reconstruct: Any) -> float:
    """1/2 mean over rows of the squared error over observed entries, by blocks."""
    total, count = 0.0, 0
    for part in row_parts(matrix, 4096):
        seen = as_observed(part)
        out = reconstruct(part)
        if isinstance(part, Dense):
            values = np.asarray(part.values, np.float64)
            away = np.where(np.isnan(values), 0.0, values - out)
        elif seen is not None:
            rows = np.repeat(np.arange(len(out)), seen.row_counts())
            away = seen.data - out[rows, seen.indices]
        else:
            away = part.to_scipy().toarray() - out  # type: ignore[union-attr]
        total += 0.5 * float(np.sum(away * away))
        count += len(out)
    return total / max(1, count)


def logit(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, 1e-4, 1 - 1e-4)
    return np.log(p / (1 - p))


def shares_only(matrix: Matrix) -> None:
    """Refuse values outside 0 to 1, which no Bernoulli likelihood explains."""
    values = np.asarray(matrix.values) if isinstance(matrix, Dense) else matrix.data
    if values.size and not (np.nanmin(values) >= 0 and np.nanmax(values) <= 1):
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        raise InputError(
            f"X must hold numbers from 0 to 1 for loss='bernoulli', got numbers from {low:g} to "
            f"{high:g}. Scale X, or use loss='squared'."
        )
