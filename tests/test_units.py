"""The unit of the data has no say: every default fitted to c X predicts c times what it predicts of
X, and its certificate says the same."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from eckart import (
    ALS,
    NMF,
    PCA,
    SVP,
    SVT,
    Autoencoder,
    BayesianMF,
    ExactRecovery,
    GaussianMixture,
    LinearAutoencoder,
    MixedTable,
    RobustPCA,
    SoftImpute,
    TimeFactors,
)

UNITS = (1e-6, 1e6)
"""No powers of two: every entry is rounded anew."""
MOVED = 10 * float(np.sqrt(np.finfo(np.float64).eps))
"""Share of the largest value by which answers may differ. Rounded entries move an objective by eps
of its value, and where it is flat a point by the root of that; ten for what fits that stop at a
tolerance add."""
MOVED_SINGLE = 10 * float(np.sqrt(np.finfo(np.float32).eps))
"""The same of networks, which are trained in float32."""
SHIFT = 7.0
"""Several deviations of the data."""


def noisy(n=30, m=20, rank=3, share=0.6, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, rank)) @ rng.standard_normal(
        (rank, m)
    ) + noise * rng.standard_normal((n, m))
    a[rng.random(a.shape) > share] = np.nan
    return a


def exact(n=20, m=15, seed=0):
    rng = np.random.default_rng(seed)
    a = np.outer(rng.standard_normal(n), rng.standard_normal(m))
    a[rng.random(a.shape) > 0.8] = np.nan
    return a


def series(n=4, m=50, seed=0):
    rng = np.random.default_rng(seed)
    a = np.outer(rng.uniform(1, 2, n), np.sin(np.arange(m) / 4)) + 0.1 * rng.standard_normal((n, m))
    a[rng.random(a.shape) > 0.9] = np.nan
    return a


def full(n=80, m=12, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((n, 3)) @ rng.standard_normal((3, m))
        + 0.1 * rng.standard_normal((n, m))
        + 1.0
    )


def groups(n=120, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)) * 0.3 + 3 * np.eye(3)[rng.integers(3, size=n)]


def cells(model, x):
    return model.predict(
        np.repeat(np.arange(x.shape[0]), x.shape[1]), np.tile(np.arange(x.shape[1]), x.shape[0])
    )


CASES = {
    "ALS": (lambda: ALS(random_state=0), noisy, cells),
    "ALS without biases": (lambda: ALS(4, biases=False, random_state=0), noisy, cells),
    # the relative gradient adds up those of codes and of biases, whose units differ: the sweep at
    # which it falls below a limit is not the same
    "ALS, huber": (lambda: ALS(4, loss="huber", tol=0.0, max_iter=8, random_state=0), noisy, cells),
    "ALS, absolute": (
        lambda: ALS(4, loss="absolute", tol=0.0, max_iter=8, random_state=0),
        noisy,
        cells,
    ),
    "BayesianMF": (lambda: BayesianMF(3, n_samples=20, burn_in=10, random_state=0), noisy, cells),
    "SoftImpute": (lambda: SoftImpute(random_state=0), noisy, cells),
    "SVT": (lambda: SVT(random_state=0), exact, cells),
    "SVP": (lambda: SVP(2, random_state=0), noisy, cells),
    "ExactRecovery": (lambda: ExactRecovery(random_state=0), exact, cells),
    "TimeFactors": (
        lambda: TimeFactors(2, n_samples=20, burn_in=10, random_state=0),
        series,
        cells,
    ),
    "MixedTable": (
        lambda: MixedTable(2, random_state=0),
        lambda: noisy(80, 8, 2, 0.9),
        lambda m, x: np.asarray(m.impute(x)),
    ),
    "PCA": (lambda: PCA(2, random_state=0), full, lambda m, x: m.inverse_transform(m.transform(x))),
    "PCA with gaps": (
        lambda: PCA(2, random_state=0),
        lambda: noisy(60, 12, 2, 0.9),
        lambda m, x: m.inverse_transform(m.transform(x)),
    ),
    "RobustPCA": (
        lambda: RobustPCA(3),
        lambda: noisy(60, 12, 2, 0.9),
        lambda m, x: m.low_rank_,
    ),
    "LinearAutoencoder": (
        lambda: LinearAutoencoder(2, random_state=0),
        full,
        lambda m, x: m.inverse_transform(m.transform(x)),
    ),
    "NMF": (
        lambda: NMF(3, random_state=0),
        lambda: np.abs(full()),
        lambda m, x: m.inverse_transform(m.transform(x)),
    ),
    "GaussianMixture": (
        lambda: GaussianMixture(3, random_state=0),
        groups,
        lambda m, x: m.means_[np.lexsort(m.means_.T)],
    ),
}

MEANS = (
    "ALS",
    "ALS without biases",
    "BayesianMF",
    "TimeFactors",
    "MixedTable",
    "PCA",
    "PCA with gaps",
    "RobustPCA",
    "LinearAutoencoder",
    "GaussianMixture",
)
"""Models that have a mean, whose answers to X + a are those to X, and a. SoftImpute, SVT, SVP,
ExactRecovery and NMF have none by default: they seek factors of X itself."""


def fitted(make, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains say that they are short
        return make().fit(x)


@pytest.mark.parametrize("name", CASES)
def test_the_unit_has_no_say(name):
    make, data, answer = CASES[name]
    x = data()
    base = fitted(make, x)
    wanted = answer(base, x)
    size = np.abs(wanted).max()
    for c in UNITS:
        found = fitted(make, c * x)
        np.testing.assert_allclose(
            answer(found, c * x) / c, wanted, rtol=0, atol=MOVED * size, err_msg=f"unit {c}"
        )
        assert found.certificate_.holds == base.certificate_.holds, (
            f"unit {c}: {found.certificate_}"
        )


@pytest.mark.parametrize("name", MEANS)
def test_a_shift_of_the_data_is_one_of_the_answer(name):
    make, data, answer = CASES[name]
    x = data()
    wanted = answer(fitted(make, x), x) + SHIFT
    found = answer(fitted(make, x + SHIFT), x + SHIFT)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=MOVED * np.abs(wanted).max())


@pytest.mark.parametrize("c", UNITS)
def test_networks_have_no_unit(c):
    pytest.importorskip("torch")
    x = full(60, 6)
    wanted, found = (
        (m := Autoencoder(2, hidden=(8,), max_iter=2, random_state=0).fit(a)).inverse_transform(
            m.transform(a)
        )
        for a in (x, c * x)
    )
    np.testing.assert_allclose(found / c, wanted, rtol=0, atol=MOVED_SINGLE * np.abs(wanted).max())
