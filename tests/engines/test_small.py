"""Small data are worked on by the array primitives: without a compiler, by a rule that depends on
the shape alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from registry import JUDGE, cpu
from scipy import sparse

import eckart
from eckart.engines import engine_named
from eckart.engines.arrays.mixtures import ArrayMixtures
from eckart.engines.cpu.engine import CpuEngine
from eckart.engines.cpu.small import SMALL, is_small
from eckart.engines.protocol import RidgeRule
from eckart.engines.protocol.mixtures import Gaussians
from eckart.io.tables.row_blocks import IteratorBlocks
from eckart.matrix import Counts, Dense, Observed

FITS = """
import sys
import numpy as np
import pandas as pd
from scipy import sparse
import eckart
rng = np.random.default_rng(0)
x = rng.random((400, 3)) @ rng.random((3, 20)) + 0.1 * rng.random((400, 20))
gaps = np.where(rng.random(x.shape) < 0.1, np.nan, x)
ratings = sparse.random(600, 400, 10000 / 240000, "csr", rng=0)
liked = ratings.copy()
liked.data = np.round(liked.data)
counts = sparse.random(300, 200, 0.1, "csr", rng=0)
counts.data = np.ceil(4 * counts.data)
frame = pd.DataFrame({f"c{i}": column for i, column in enumerate(gaps.T)})
frame["kind"] = np.where(x[:, 0] > 0.8, "much", "little")
for model, data in (
    (eckart.PCA(2, random_state=0), x),
    (eckart.PCA(2, random_state=0, max_iter=5), gaps),
    (eckart.SoftImpute(tau=2.0, random_state=0, max_iter=5), gaps),
    (eckart.EASE(), ratings),
    (eckart.SLIM(), ratings),
    (eckart.MixedTable(2, random_state=0, max_iter=5), frame),
    (eckart.Mixture(2, family="bernoulli", random_state=0, max_iter=5), (x > 0.8) * 1.0),
    (eckart.LDA(3, random_state=0, max_iter=2), counts),
    (eckart.LDA(3, learning_method="variational", random_state=0, max_iter=2), counts),
    (eckart.PLSA(3, random_state=0, max_iter=2), counts),
    (eckart.ALS(3, loss="logistic", random_state=0, max_iter=5), liked),
    (eckart.GaussianMixture(3, random_state=0, max_iter=5), x),
    (eckart.GaussianMixture(3, covariance_type="diag", random_state=0, max_iter=5), gaps),
    (eckart.NMF(5, random_state=0, max_iter=5), x),
    (eckart.NMF(5, beta_loss="kl", random_state=0, max_iter=5), x),
    (eckart.ALS(10, random_state=0, max_iter=5), ratings),
    (eckart.ALS(10, feedback="implicit", random_state=0, max_iter=5), ratings),
):
    model.fit(data)
    assert "numba" not in sys.modules, model
"""


def test_a_first_small_fit_loads_no_compiler():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FITS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("matrix", "small"),
    [
        (Dense(np.zeros((128, 256))), True),
        (Dense(np.zeros((129, 256))), False),
        (Dense(IteratorBlocks([np.zeros((4, 3))])), False),
        (Counts.from_scipy(sparse.csr_array(np.eye(1000))), True),
        (Observed(np.zeros(401, np.int64), np.zeros(0, np.int32), np.zeros(0), 80000), False),
    ],
)
def test_what_is_small_is_said_by_the_shape(matrix, small):
    placed = engine_named("cpu", 1).put(matrix)
    assert is_small(placed, SMALL) is small
    if placed.kind != "dense":
        assert is_small(placed.T, SMALL) is small


def ratings(nnz: int) -> Observed:
    rng = np.random.default_rng(0)
    at = rng.choice(400 * 300, nnz, replace=False)
    a = sparse.csr_array((rng.random(nnz) + 1, (at // 300, at % 300)), (400, 300))
    return Observed(a.indptr, a.indices, a.data, 300)


@pytest.mark.parametrize(
    ("k", "more", "compiled"),
    [
        (5, {}, False),
        (40, {}, True),  # many factors
        (5, {"noise": np.ones((400, 5))}, True),  # draws
    ],
)
def test_small_work_alone_is_left_to_arrays(monkeypatch, k, more, compiled):
    called = []
    monkeypatch.setattr(
        "eckart.engines.cpu.ridge.schedule.ridge_rows", lambda *_, **__: called.append(1)
    )
    CpuEngine(1).ridge_rows(ratings(8000), np.ones((300, k)), RidgeRule(0.5), **more)
    assert bool(called) is compiled


def test_whole_covariances_with_many_patterns_are_left_to_kernels(monkeypatch):
    """An inverse for each row and component takes arrays too long."""
    rng, seen = np.random.default_rng(0), []
    monkeypatch.setattr(
        "eckart.engines.cpu.mixtures.primitives._gap_rows",
        lambda layout, block, w, t=None: seen.append(len(block)) or (np.zeros(len(block)), None),
    )
    x = rng.standard_normal((300, 20))
    x[rng.random(x.shape) < 0.1] = np.nan
    for k in (2, 9):
        theta = Gaussians("full", np.full(k, 1 / k), np.zeros((k, 20)), np.stack([np.eye(20)] * k))
        CpuEngine(1).gaussian_statistics(Dense(x), theta)
        assert bool(seen) is (k == 9)


def test_bits_do_not_depend_on_threads_or_on_what_was_compiled():
    x = np.random.default_rng(0).random((300, 12))
    fits = []
    for threads in (1, 3):
        model = eckart.NMF(4, random_state=0, max_iter=20, n_threads=threads, engine="cpu").fit(x)
        fits.append(model.components_.tobytes())
        cpu(1, 0).factor_sums(x)  # kernels are loaded between the two
    assert fits[0] == fits[1]


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (lambda e: eckart.GaussianMixture(2, random_state=0, engine=e), "dense"),
        (lambda e: eckart.NMF(3, random_state=0, engine=e), "dense"),
        (lambda e: eckart.NMF(3, random_state=0, beta_loss=0.5, max_iter=9, engine=e), "dense"),
        (lambda e: eckart.ALS(3, random_state=0, engine=e), "ratings"),
    ],
)
def test_the_numpy_engine_fits_as_the_judge_does(make, data):
    rng = np.random.default_rng(1)
    x = rng.random((60, 3)) @ rng.random((3, 8)) + 0.1 * rng.random((60, 8))
    if data == "ratings":
        x[rng.random(x.shape) < 0.4] = np.nan
    got, want = (make(engine).fit(x) for engine in ("numpy", JUDGE))
    assert got.fit_.plan["engine"] == "numpy"
    assert got.certificate_.holds == want.certificate_.holds
    one, two = (
        m.predict_proba(x) if hasattr(m, "predict_proba") else m.transform(x) for m in (got, want)
    )
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)


def test_families_are_written_by_arrays():
    engine = engine_named("numpy")
    for name in ("gaussian_statistics", "hals_pass", "beta_rows", "ridge_rows", "evidence_rows"):
        assert getattr(type(engine), name).__module__.startswith("eckart.engines.arrays")
    assert isinstance(engine, ArrayMixtures)
