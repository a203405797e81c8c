"""ALS and BayesianMF never touch an array with as many rows as the data has rows or columns: they
run on an engine that hands out handles for them."""

from __future__ import annotations

import numpy as np
import pytest
from opaque import OpaqueEngine

from eckart import ALS, BayesianMF
from oracle import JUDGE

ROWS, COLUMNS = 47, 31


def data(kind="ratings"):
    rng = np.random.default_rng(0)
    x = (
        3
        + rng.standard_normal((ROWS, 2)) @ rng.standard_normal((2, COLUMNS))
        + 0.1 * rng.standard_normal((ROWS, COLUMNS))
    )
    x[rng.random(x.shape) < 0.4] = np.nan
    return np.abs(x)


def engine():
    return OpaqueEngine(ROWS, COLUMNS, int(np.isfinite(data()).sum()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"feedback": "implicit"},
        {"biases": False, "solver": "cg", "normalise": None},
        {"nonnegative": True, "biases": False},
        {"stop": "gradient"},
    ],
)
def test_nothing_tall_crosses_between_sweeps_of_als(options):
    hidden = engine()
    model = ALS(
        3, max_iter=6, tol=0.0, random_state=0, engine=hidden, **({"l2": 0.05} | options)
    ).fit(data())
    assert model.fit_.plan["engine"] == "opaque"
    sweeps = [i for i, (name, _) in enumerate(hidden.log) if name == "ridge_rows"]
    assert len(sweeps) == 12
    assert sum(size for _, size in hidden.log[sweeps[0] : sweeps[-1]]) == 0
    plain = ALS(
        3, max_iter=6, tol=0.0, random_state=0, engine=JUDGE, **({"l2": 0.05} | options)
    ).fit(data())
    np.testing.assert_array_equal(model.row_factors_, plain.row_factors_)


@pytest.mark.parametrize("noise", ["common", "row", "both"])
def test_nothing_tall_crosses_between_sweeps_of_a_sampler(noise):
    """Kept states are the model itself: none is kept before the burn-in is over."""
    hidden = engine()
    model = BayesianMF(
        2, n_samples=2, burn_in=6, thin=1, n_chains=1, noise=noise, random_state=0, engine=hidden
    ).fit(data())
    sweeps = [i for i, (name, _) in enumerate(hidden.log) if name == "ridge_rows"]
    assert len(sweeps) == 16
    assert sum(size for _, size in hidden.log[sweeps[0] : sweeps[11]]) == 0
    assert np.isfinite(model.predict(0, 0)).all()


@pytest.mark.parametrize("threads", [2, 3, 5, 16])
def test_bits_do_not_depend_on_threads(threads):
    for model, options in (
        (ALS, {"max_iter": 4}),
        (BayesianMF, {"n_samples": 4, "burn_in": 2, "noise": "both"}),
    ):
        one, many = (
            model(3, random_state=0, n_threads=t, **options).fit(data()).fit_.factors
            for t in (1, threads)
        )
        assert one.left.tobytes() == many.left.tobytes()
        assert one.right.tobytes() == many.right.tobytes()
