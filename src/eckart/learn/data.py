"""What the lessons work on: data that lie on the machine already, and small random problems."""

from __future__ import annotations

from typing import Any

import numpy as np


def generator(seed: int = 0) -> np.random.Generator:
    """The random numbers of a lesson."""
    return np.random.default_rng(seed)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 handwritten digits as rows of 64 pixels, and which digit each of them is."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    return found.data, found.target


def wine() -> Any:
    """178 wines by 13 measurements in their own units, as a table with names (pandas)."""
    from sklearn.datasets import load_wine

    found: Any = load_wine(as_frame=True)
    return found.data


def photograph(rows: int = 107, columns: int = 160) -> np.ndarray:
    """A photograph in shades of gray from 0 to 1, made smaller by averaging."""
    from sklearn.datasets import load_sample_image

    whole: Any = load_sample_image("china.jpg").mean(axis=2) / 255
    step = min(whole.shape[0] // rows, whole.shape[1] // columns)
    cut = whole[: rows * step, : columns * step]
    return cut.reshape(rows, step, columns, step).mean(axis=(1, 3))


def low_rank(rows: int, columns: int, rank: int, rng: np.random.Generator) -> np.ndarray:
    """A product of two normal factors."""
    return rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))


def hide(table: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """The table with about a ``share`` of its cells kept and NaN in the others."""
    return np.where(rng.random(table.shape) < share, table, np.nan)


def relative_error(found: np.ndarray, true: np.ndarray) -> float:
    """||found - true|| / ||true||."""
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))
