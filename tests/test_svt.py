"""Singular value thresholding: the minimiser of tau ||B||_* + 1/2 ||B||_F^2 through the observed
entries."""

from __future__ import annotations

import numpy as np
import pytest

import eckart
from eckart.certify.nuclear import svt_certificate
from eckart.complete.nuclear import svt
from eckart.complete.nuclear.svt import SVT
from eckart.engines import engine_named
from eckart.engines.cpu.engine import CpuEngine
from eckart.factors import LowRank
from eckart.matrix import Observed
from test_soft_impute import ODD, planted, whole


def test_exact_data_is_recovered_and_proven():
    a, x = planted(noise=0.0, n=100, m=90)
    model = SVT(tol=1e-5, random_state=0).fit(x)
    assert np.linalg.norm(whole(model) - a) < 1e-4 * np.linalg.norm(a)
    assert model.rank_ == 3
    assert model.certificate_.holds
    assert model.certify(x).holds
    assert model.certificate_["relative distance from the minimiser at most"] < 0.2


def test_limit_solves_the_stated_problem():
    """Small tau, so that the minimiser is not that of the nuclear norm alone: the KKT conditions at
    B and its dual point."""
    _, x = planted(noise=0.0, n=30, m=25, k=2, share=0.6)
    entries = Observed.from_nan(x)
    found = svt.solve(
        entries, tau=5.0, tol=1e-9, max_iter=5000, engine=CpuEngine(1), rng=np.random.default_rng(0)
    )
    y = np.zeros(x.shape)
    y[~np.isnan(x)] = found.evidence["dual"]
    u, s, vt = np.linalg.svd(y, full_matrices=False)
    b = (found.U * found.s) @ found.V.T
    assert np.allclose((u * np.maximum(s - 5.0, 0)) @ vt, b, atol=1e-6 * s[0])
    assert np.allclose(b[~np.isnan(x)], x[~np.isnan(x)], atol=1e-6)


def test_acceleration_does_not_change_the_limit():
    """Enough entries that both arrive. Which of them arrives sooner depends on the data, on harder
    ones too."""
    _, x = planted(noise=0.0, n=40, m=30, k=2, share=0.85)
    fast = SVT(tau=30.0, tol=1e-7, max_iter=4000, random_state=0).fit(x)
    slow = SVT(tau=30.0, tol=1e-7, max_iter=4000, accelerate=False, random_state=0).fit(x)
    assert fast.fit_.trace.converged
    assert slow.fit_.trace.converged
    assert fast.n_iter_ != slow.n_iter_  # they went different ways
    assert np.allclose(whole(fast), whole(slow), atol=1e-3)


def test_too_long_a_step_is_cut_back():
    _, x = planted(noise=0.0, n=40, m=30, k=2, share=0.6)
    model = SVT(step=50.0, tol=1e-4, max_iter=2000, random_state=0).fit(x)
    assert model.fit_.plan["step"] < 50.0
    assert model.fit_.trace.converged


@pytest.mark.parametrize("spoil", ["scale", "drop", "rotate"])
def test_certificate_fails_on_a_perturbed_answer(spoil):
    _, x = planted(noise=0.0, n=100, m=90)
    model = SVT(tol=1e-5, random_state=0).fit(x)
    f, rng = model.fit_.factors, np.random.default_rng(0)
    bad = {
        "scale": LowRank(1.01 * f.left, f.right),
        "drop": LowRank(f.left[:, 1:], f.right[:, 1:]),
        "rotate": LowRank(f.left + 0.01 * rng.standard_normal(f.left.shape), f.right),
    }[spoil]
    entries = Observed.from_nan(x)
    assert svt_certificate(entries, f, model.tau_, tol=1e-5, rng=rng, engine=engine_named()).holds
    assert (
        "feasibility"
        in svt_certificate(
            entries, bad, model.tau_, tol=1e-5, rng=rng, engine=engine_named()
        ).reason
    )


def test_a_feasible_answer_that_is_not_the_minimiser_is_not_certified():
    """Two rank-one blocks: the off-diagonal blocks are unknown, and filling them makes the norm
    larger."""
    x = np.full((6, 6), np.nan)
    x[:3, :3] = 1.0
    x[3:, 3:] = 1.0
    ones = np.ones((6, 1))
    entries, rng = Observed.from_nan(x), np.random.default_rng(0)
    c = svt_certificate(
        entries, LowRank(ones, ones), 30.0, tol=1e-5, rng=rng, engine=engine_named()
    )
    assert c["feasibility"] < 1e-12
    assert "dual" in c.reason


@pytest.mark.parametrize("x", ODD.values(), ids=ODD)
def test_odd_data_has_a_defined_answer(x):
    model = SVT(tol=1e-6, max_iter=3000, random_state=0).fit(x)
    b, seen = whole(model), ~np.isnan(x)
    assert np.isfinite(b).all()
    assert np.allclose(b[seen], x[seen], atol=1e-4 * max(1.0, np.abs(x[seen]).max()))


def test_threads_bits_saving_and_arguments(tmp_path):
    _, x = planted(noise=0.0, n=300, m=250)
    one, two = (SVT(n_threads=t, random_state=0).fit(x) for t in (1, 2))
    assert one.fit_.factors.left.tobytes() == two.fit_.factors.left.tobytes()
    one.save(tmp_path / "m.safetensors")
    assert eckart.load(tmp_path / "m.safetensors").tau_ == one.tau_
    for bad, words in (
        ({"tau": 0.0}, r"tau must be None or a number > 0, got 0\.0"),
        ({"step": -2.0}, r"step must be None or a number > 0, got -2\.0"),
    ):
        with pytest.raises(eckart.InputError, match=words):
            SVT(**bad).fit(x)
