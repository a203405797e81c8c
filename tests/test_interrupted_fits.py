"""Ctrl-C in the middle of a fit does the same everywhere: the best state so far is kept, a warning
says so, and it takes less than a second."""

from __future__ import annotations

import _thread
import threading
import time
import warnings

import numpy as np
import pytest

import eckart
from eckart.trace import StopReason
from resumable_fits import counts, groups, holes, parts, words

ENDLESS = 10**7
"""More steps than any fit takes in the seconds of a test."""
AFTER = 0.7
"""Seconds after which it is interrupted: then every fit is in its loop, since its kernels were
loaded by a fit before."""
SOON = 4.0
"""Seconds from the interrupt to the model at the most: below one where nothing else runs on the
machine, as it does beside other tests."""


def large(rows, n, seed=0):
    return np.random.default_rng(seed).random((rows, n)).astype(np.float32)


def gaps(rows, n):
    return np.where(large(rows, n) < 0.4, np.nan, large(rows, n, 1))


def chatter():
    """Words without any order, too many to be fitted exactly."""
    return [
        " ".join(f"w{word}" for word in line)
        for line in np.random.default_rng(0).integers(0, 500, (1000, 30))
    ]


FITS = {
    "GaussianMixture": (
        eckart.GaussianMixture,
        {"n_components": 6, "init_params": "random", "tol": 0.0, "max_iter": ENDLESS},
        groups,
    ),
    "Mixture": (
        eckart.Mixture,
        {"n_components": 4, "family": "gaussian diag", "tol": 0.0, "max_iter": ENDLESS},
        groups,
    ),
    "PLSA": (eckart.PLSA, {"n_components": 4, "tol": 0.0, "max_iter": ENDLESS}, counts),
    "LDA variational": (
        eckart.LDA,
        {"n_components": 4, "learning_method": "variational", "tol": 0.0, "max_iter": ENDLESS},
        counts,
    ),
    "LDA gibbs": (
        eckart.LDA,
        {"n_components": 4, "learning_method": "gibbs", "burn_in": ENDLESS},
        counts,
    ),
    "LDA online": (
        eckart.LDA,
        {"n_components": 4, "learning_method": "online", "max_iter": ENDLESS, "batch_size": 7},
        counts,
    ),
    "NMF": (
        eckart.NMF,
        {
            "n_components": 4,
            "tol": 0.0,
            "max_iter": ENDLESS,
            "beta_loss": "kullback-leibler",
            "solver": "mu",
        },
        parts,
    ),
    "NMF gaps": (eckart.NMF, {"n_components": 4, "tol": 0.0, "max_iter": ENDLESS}, holes),
    "MiniBatchNMF": (
        eckart.MiniBatchNMF,
        {
            "n_components": 4,
            "tol": 0.0,
            "max_no_improvement": None,
            "max_iter": ENDLESS,
            "batch_size": 9,
        },
        parts,
    ),
    "PCA gaps": (
        eckart.PCA,
        {"n_components": 3, "tol": 1e-300, "max_iter": ENDLESS},
        lambda: gaps(3000, 50),
    ),
    "RobustPCA": (
        eckart.RobustPCA,
        {"tol": 1e-12, "max_iter": ENDLESS},
        lambda: large(2000, 300),
    ),
    "LinearAutoencoder": (
        eckart.LinearAutoencoder,
        {"n_components": 9, "max_iter": ENDLESS, "learning_rate": 1e-6, "tol": 0.0},
        lambda: large(2000, 300),
    ),
    "ALS": (eckart.ALS, {"n_components": 3, "l2": 1e-6, "tol": 0.0, "max_iter": ENDLESS}, holes),
    "BayesianMF": (
        eckart.BayesianMF,
        {"n_components": 3, "burn_in": ENDLESS // 100, "n_samples": 100},
        holes,
    ),
    "SVP": (
        eckart.SVP,
        {"n_components": 3, "tol": 0.0, "max_iter": ENDLESS},
        lambda: gaps(1500, 1000),
    ),
    "SVT": (eckart.SVT, {"tol": 0.0, "max_iter": ENDLESS}, lambda: gaps(300, 200)),
    "TimeFactors": (
        eckart.TimeFactors,
        {"n_components": 2, "burn_in": ENDLESS // 100, "n_samples": 10},
        holes,
    ),
    "MixedTable": (
        eckart.MixedTable,
        {"n_components": 3, "l2": 1e-9, "tol": 0.0, "max_iter": ENDLESS},
        lambda: gaps(4000, 40),
    ),
    "GloVe": (
        eckart.GloVe,
        {"n_components": 2, "min_count": 1, "tol": 0.0, "max_iter": ENDLESS, "solver": "adagrad"},
        chatter,
    ),
    "SkipGram": (
        eckart.SkipGram,
        {"n_components": 2, "min_count": 1, "sample": None, "max_iter": ENDLESS // 100},
        words,
    ),
    "Autoencoder": (
        eckart.Autoencoder,
        {"n_components": 8, "max_iter": ENDLESS // 100, "n_threads": 1},
        lambda: large(20_000, 200),
    ),
    "ConvAutoencoder": (
        eckart.ConvAutoencoder,
        {"n_components": 4, "image": (16, 16), "max_iter": ENDLESS // 100, "n_threads": 1},
        lambda: large(4000, 256),
    ),
    "NetworkRegressor": (
        eckart.NetworkRegressor,
        {"max_iter": ENDLESS // 100, "n_threads": 1},
        lambda: (large(20_000, 100), large(20_000, 1)[:, 0]),
    ),
    "NetworkClassifier": (
        eckart.NetworkClassifier,
        {"max_iter": ENDLESS // 100, "n_threads": 1},
        lambda: (large(20_000, 100), large(20_000, 1)[:, 0] > 0.5),
    ),
}
TORCH = ("Autoencoder", "ConvAutoencoder", "NetworkRegressor", "NetworkClassifier")


@pytest.mark.parametrize("name", FITS)
def test_the_best_state_is_kept_soon_and_a_warning_says_so(name):
    if name in TORCH:
        pytest.importorskip("torch", reason="this class needs torch")
    kind, options, data = FITS[name]
    data = data()
    data = data if isinstance(data, tuple) else (data,)
    few = {
        n: min(v, 2)
        for n, v in options.items()
        if n in ("max_iter", "burn_in", "n_samples") and isinstance(v, int)
    }
    model = kind(**options, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind(**options | few, random_state=0).fit(*data)  # all kernels are compiled
    at = []
    timer = threading.Timer(AFTER, lambda: (at.append(time.monotonic()), _thread.interrupt_main()))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        timer.start()
        try:
            model.fit(*data)
            assert at, "the fit ended by itself"
            seconds = time.monotonic() - at[0]
        except KeyboardInterrupt:
            pytest.fail("the interrupt went through")
        finally:
            timer.cancel()
    assert model.fit_.trace.reason is StopReason.INTERRUPTED
    assert sum("interrupted after" in str(w.message) for w in told) == 1, [
        str(w.message) for w in told
    ]
    assert seconds < SOON
