"""Generated ratings shaped like MovieLens: power-law activity of rows and columns, rank 10 + biases
+ noise 0.85, rounded to 1..5, 10 % held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from harness import cached

SHAPES = {
    "1M": (6_040, 3_700, 1_000_000),
    "20M": (138_000, 27_000, 20_000_000),
    "quick": (2_000, 900, 100_000),
}
NAMES = ("u", "i", "y", "tu", "ti", "ty")


def load(size: str) -> dict[str, np.ndarray]:
    """Training triples u, i, y and held-out triples tu, ti, ty."""
    return {
        name: np.load(
            cached(f"ratings_{size}_{name}.npy", lambda path, n=name: _make(size, path, n))
        )
        for name in NAMES
    }


def _make(size: str, path: Path, wanted: str) -> None:
    arrays = _arrays(size)
    for name in NAMES:
        target = path if name == wanted else path.with_name(f"ratings_{size}_{name}.npy")
        with target.open("wb") as out:
            np.save(out, arrays[name])


def _arrays(size: str) -> dict[str, Any]:
    m, n, count = SHAPES[size]
    rng = np.random.default_rng(11)
    active = np.maximum(rng.lognormal(0, 1.1, m), 0.1)
    popular = 1.0 / (np.arange(n) + 30.0) ** (1.15 if size == "20M" else 1.0)
    rows, columns = np.cumsum(active / active.sum()), np.cumsum(popular / popular.sum())
    key = np.empty(0, np.int64)
    while key.size < count:
        more = int((count - key.size) * 1.5) + 1000
        u = np.minimum(np.searchsorted(rows, rng.random(more)), m - 1).astype(np.int64)
        i = np.minimum(np.searchsorted(columns, rng.random(more)), n - 1)
        key = np.unique(np.concatenate([key, u * n + i]))
    key = rng.permutation(key)[:count]
    u, i = (key // n).astype(np.int32), (key % n).astype(np.int32)
    order = rng.permutation(n).astype(np.int32)
    row_bias, column_bias = rng.normal(0, 0.4, m), rng.normal(0, 0.45, n)
    s = np.linspace(1.0, 0.4, 10)
    s *= 0.5 / np.sqrt((s**2).sum())
    left, right = (
        rng.standard_normal((m, 10)) * np.sqrt(s),
        rng.standard_normal((n, 10)) * np.sqrt(s),
    )
    y = np.empty(count, np.float32)
    for a in range(0, count, 2_000_000):
        b = slice(a, a + 2_000_000)
        y[b] = (
            3.55
            + row_bias[u[b]]
            + column_bias[i[b]]
            + np.einsum("ij,ij->i", left[u[b]], right[i[b]])
        )
    y = np.clip(np.rint(y + rng.normal(0, 0.85, count)), 1, 5).astype(np.float32)
    i, t = order[i], count // 10
    return {"u": u[t:], "i": i[t:], "y": y[t:], "tu": u[:t], "ti": i[:t], "ty": y[:t]}
