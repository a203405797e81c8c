"""``MixedTable.fit(sample_weight=)``: a row of weight w is w rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import eckart

LOSSES = {"wild": "huber", "hours": "poisson", "stars": "ordered"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 2))
    y = z @ rng.normal(size=(2, 6)) + 0.4 * rng.normal(size=(150, 6))
    frame = pd.DataFrame(
        {
            "size": y[:, 0] * 10 + 100,
            "wild": y[:, 1],
            "hours": np.exp(y[:, 2]).round(),
            "stars": np.clip(np.rint(y[:, 3]), -2, 2),
            "kind": np.array(["a", "b", "c"])[np.digitize(y[:, 4], [-0.5, 0.7])],
            "yes": pd.array(y[:, 5] > 0, "boolean"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.15)


@pytest.fixture(scope="module")
def times():
    return np.random.default_rng(1).integers(0, 4, 150)


def model(**more):
    return eckart.MixedTable(
        2, losses=LOSSES, l2=5.0, trees=False, tol=1e-8, max_iter=500, random_state=0, **more
    )


def test_weights_are_repeated_rows(table, times):
    weighted = model().fit(table, sample_weight=times)
    repeated = model().fit(table.iloc[np.repeat(np.arange(150), times)].reset_index(drop=True))
    one, two = weighted.impute(table), repeated.impute(table)
    assert (one["kind"] == two["kind"]).mean() > 0.99
    for name in ("size", "wild", "hours"):
        np.testing.assert_allclose(
            one[name].astype(float),
            two[name].astype(float),
            rtol=0,
            atol=2e-3 * two[name].astype(float).std(),
        )
    for name, chances in weighted.predict_proba(table).items():
        np.testing.assert_allclose(chances, repeated.predict_proba(table, name), atol=5e-3)
    assert weighted.certificate_.holds
    again, before = weighted.certify(table, sample_weight=times), weighted.certificate_
    assert again.holds
    assert again.facts["objective per seen score"] == pytest.approx(
        before.facts["objective per seen score"], rel=1e-6
    )
    assert not np.allclose(
        one["size"].astype(float), model().fit(table).impute(table)["size"].astype(float), atol=1e-2
    )


def test_no_weight_and_equal_weights_are_the_same(table):
    plain, ones = (
        eckart.MixedTable(random_state=0).fit(table, **more)
        for more in ({}, {"sample_weight": np.ones(150)})
    )
    pd.testing.assert_frame_equal(plain.impute(table), ones.impute(table))
    filled = eckart.MixedTable(random_state=0).fit_impute(table, sample_weight=np.ones(150))
    pd.testing.assert_frame_equal(filled, plain.impute(table))


@pytest.mark.parametrize("weights", [[1.0], -np.ones(150), np.zeros(150), np.full(150, np.nan)])
def test_odd_weights_are_refused(table, weights):
    with pytest.raises(eckart.InputError, match="sample_weight"):
        eckart.MixedTable().fit(table, sample_weight=weights)
