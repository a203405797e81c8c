"""Singular value projection: the best fit of a given rank."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eckart
from eckart.certify.nuclear import svp_certificate
from eckart.complete.nuclear import svp
from eckart.complete.nuclear.svp import SVP
from eckart.engines import engine_named
from eckart.engines.cpu.engine import CpuEngine
from eckart.factors import LowRank
from eckart.matrix import Observed
from test_soft_impute import ODD, planted, whole


def test_exact_data_is_recovered():
    a, x = planted(noise=0.0)
    model = SVP(3, random_state=0).fit(x)
    assert np.linalg.norm(whole(model) - a) < 1e-6 * np.linalg.norm(a)
    assert model.certificate_.holds
    assert model.certificate_.kind == "global"


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6))
def test_plain_and_chosen_steps_reach_the_same_point(seed):
    _, x = planted(seed, 50, 40, 2, share=0.6)
    chosen = SVP(2, tol=1e-6, random_state=0).fit(x)
    plain = SVP(2, tol=1e-6, step=1 / 0.6, random_state=0).fit(x)
    assert np.allclose(whole(chosen), whole(plain), atol=1e-4)
    assert chosen.certificate_.holds
    assert plain.certificate_.holds


def test_fully_observed_matrix_is_eckart_young():
    a = np.random.default_rng(0).standard_normal((20, 15))
    u, s, vt = np.linalg.svd(a)
    model = SVP(4, tol=1e-9, random_state=0).fit(a)
    assert np.allclose(whole(model), (u[:, :4] * s[:4]) @ vt[:4], atol=1e-6)
    assert np.allclose(model.singular_values_, s[:4])


@pytest.mark.parametrize("step", [None, 3.0])
def test_misfit_falls_every_step(step):
    _, x = planted()
    found = svp.solve(
        Observed.from_nan(x), 3, step=step, engine=CpuEngine(1), rng=np.random.default_rng(0)
    )
    assert all(b < a for a, b in pairwise(found.trace.values))


def test_certificate_fails_on_a_perturbed_answer():
    _, x = planted()
    f = SVP(3, random_state=0).fit(x).fit_.factors
    entries, rng = Observed.from_nan(x), np.random.default_rng(0)
    assert svp_certificate(entries, f, tol=2e-3, fitted=1e-8, rng=rng, engine=engine_named()).holds
    moved = LowRank(f.left * 1.05, f.right)
    assert (
        "stationarity"
        in svp_certificate(
            entries, moved, tol=2e-3, fitted=1e-8, rng=rng, engine=engine_named()
        ).reason
    )


def test_a_missed_direction_breaks_the_fixed_point():
    """Stationary at the second and third direction, while the first, which is worth more, is left
    out."""
    a = np.diag([9.0, 4.0, 2.0, 0.0])
    wrong = LowRank(np.eye(4)[:, 1:3] * [4.0, 2.0], np.eye(4)[:, 1:3])
    c = svp_certificate(
        Observed.from_nan(a),
        wrong,
        tol=1e-3,
        fitted=1e-8,
        rng=np.random.default_rng(0),
        engine=engine_named(),
    )
    assert c["stationarity"] < 1e-12
    assert "fixed point" in c.reason


def test_threads_and_seed_give_the_same_bits():
    _, x = planted(n=700, m=600, share=0.3)
    one, two = (SVP(3, n_threads=t, random_state=1).fit(x).fit_.factors for t in (1, 2))
    assert one.left.tobytes() == two.left.tobytes()


@pytest.mark.parametrize("x", ODD.values(), ids=ODD)
@pytest.mark.parametrize("k", [1, 2, 9])
def test_odd_data_has_a_defined_answer(x, k):
    model = SVP(k, random_state=0).fit(x)
    b = whole(model)
    assert np.isfinite(b).all()
    assert model.rank_ <= min(k, min(x.shape))
    if k >= 2:
        assert np.allclose(b[~np.isnan(x)], x[~np.isnan(x)], atol=1e-5)


def test_float32_and_labels_and_saving(tmp_path):
    import pandas as pd

    _, x = planted(dtype=np.float32)
    frame = pd.DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])
    model = SVP(3, random_state=0).fit(frame)
    assert model.fit_.factors.left.dtype == np.float32
    assert model.certificate_.holds
    assert model.certify(frame).holds
    model.save(tmp_path / "m.safetensors")
    again = eckart.load(tmp_path / "m.safetensors")
    assert np.array_equal(again.predict(0, "c3"), model.predict(0, "c3"))
    assert again.certify(frame).holds
    assert np.isfinite(model.transform(frame.iloc[:3])).all()


def test_bad_arguments_are_named():
    _, x = planted()
    for bad, words in (
        ({"step": -1.0}, r"step must be None or a number > 0, got -1\.0"),
        (
            {"n_components": 0},
            "n_components must be an int >= 1; SVT and SoftImpute find the rank by themselves, got 0",
        ),
        ({"tol": -1}, "tol must be a number >= 0, got -1"),
    ):
        with pytest.raises(eckart.InputError, match=words):
            SVP(**bad).fit(x)
