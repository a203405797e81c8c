"""NMF keeps W and H in the engine: it runs on one that hands out handles, and nothing tall crosses
between two sweeps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from eckart import NMF
from oracle import JUDGE

opaque = pytest.importorskip("opaque")
ROWS, N = 61, 8


def data(kind):
    rng = np.random.default_rng(0)
    x = rng.gamma(0.5, 1.0, (ROWS, 3)) @ rng.gamma(0.5, 1.0, (3, N)) + 0.1 * rng.random((ROWS, N))
    if kind == "gaps":
        return np.where(rng.random(x.shape) < 0.2, np.nan, x)
    return sparse.csr_array(np.where(x > 0.3, x, 0.0)) if kind == "sparse" else x


@pytest.mark.parametrize(
    ("kind", "loss", "sweep", "tall"),
    [
        ("dense", "frobenius", "hals_pass", (ROWS,)),
        ("sparse", "frobenius", "hals_pass", (ROWS, ROWS * N)),
        ("gaps", "frobenius", "hals_seen", (ROWS, N, ROWS * N)),
        ("dense", "kl", "kl_step", (ROWS,)),
        ("sparse", "kl", "kl_rows", (ROWS, N, ROWS * N)),
        ("gaps", "kl", "kl_rows", (ROWS, N, ROWS * N)),
        ("dense", 0.5, "beta_rows", (ROWS,)),
        ("gaps", 1.5, "beta_rows", (ROWS, ROWS * N)),
    ],
)
def test_nothing_tall_crosses_between_two_sweeps(kind, loss, sweep, tall):
    engine = opaque.OpaqueEngine(*tall)
    if hasattr(engine, "tiled") and loss == "frobenius" and kind != "gaps":
        pytest.skip("times and gram_times do not take placed matrices yet")
    weights = np.random.default_rng(1).integers(1, 3, ROWS)
    model = NMF(
        3, beta_loss=loss, engine=engine, random_state=0, max_iter=12, init="random", alpha_W=0.001
    )
    model.fit(data(kind), sample_weight=weights)
    assert engine.between(sweep) == 0
    assert engine.calls("get") == 2
    plain = NMF(
        3, beta_loss=loss, engine=JUDGE, random_state=0, max_iter=12, init="random", alpha_W=0.001
    )
    plain.fit(data(kind), sample_weight=weights)
    np.testing.assert_array_equal(plain.components_, model.components_)
