"""Data that the tests share, and the folder of real data sets, which may be absent."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from sklearn.datasets import load_digits

settings.register_profile("ci", derandomize=True)  # a submission is judged on the same examples every time
if os.environ.get("CI"):
    settings.load_profile("ci")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def digits():
    return load_digits().data


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def shared_data():
    """A function from a folder name to its path; skips the test where the data are absent."""

    def folder(name: str) -> Path:
        if not (SHARED / name).is_dir():
            pytest.skip(f"real data set {name!r} is not on this machine")
        return SHARED / name

    return folder


def planted(rng, rows=400, n=30, rank=5, noise=0.3, mean=2.0, dtype=np.float64):
    """Rows near a subspace of the given rank, with falling variances and a mean."""
    basis = np.linalg.qr(rng.standard_normal((n, rank)))[0]
    scale = 5.0 * 0.7 ** np.arange(rank)
    x = rng.standard_normal((rows, rank)) * scale @ basis.T + noise * rng.standard_normal((rows, n)) + mean
    return x.astype(dtype)
