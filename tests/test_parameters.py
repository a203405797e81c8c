"""Every parameter of every estimator, given a value of a wrong type: one error, ours, that names
the parameter and what came."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import eckart
from eckart.registry import SAVED

RNG = np.random.default_rng(0)
TABLE = np.abs(RNG.standard_normal((24, 9)))
COUNTS = RNG.poisson(1.0, (24, 9)).astype(float)
TEXT = [["a", "b", "c", "d"]] * 30
TORCH = {"Autoencoder", "ConvAutoencoder", "NetworkClassifier", "NetworkRegressor"}
DATA = {"LDA": (COUNTS,), "PLSA": (COUNTS,), "GloVe": (TEXT,), "SkipGram": (TEXT,), "PMI": (TEXT,)}
DATA |= {"NetworkClassifier": (TABLE, np.arange(24) % 2), "NetworkRegressor": (TABLE, TABLE[:, 0])}
SMALL = {
    "ConvAutoencoder": {"image": (3, 3), "channels": [2]},
    "NetworkRegressor": {"max_iter": 1},
    "NetworkClassifier": {"max_iter": 1},
}
SMALL |= {
    name: {"n_components": 1}
    for name in ("Autoencoder", "NMF", "ALS", "SVP", "ExactRecovery", "BayesianMF", "LDA", "PLSA")
}


class Thing:
    """A value that no parameter can be."""

    def __repr__(self):
        return "<a thing>"


NONSENSE = [Thing(), {"a": Thing()}, [Thing()], b"bytes", 1j, float("nan"), np.ones((2, 3, 4))]
ANY = {
    ("LDA", "seed_words"),
    ("LatentDirichletAllocation", "seed_words"),
    ("GaussianMixture", "weights_init"),
    ("GaussianMixture", "means_init"),
    ("GaussianMixture", "precisions_init"),
    ("MixedTable", "losses"),
    *(
        (name, f"{prior}_prior")
        for name in ("LDA", "LatentDirichletAllocation")
        for prior in ("doc_topic", "topic_word")
    ),
}
"""Arrays and tables: the message names the parameter and what is wrong inside, rather than to print
all of it."""


def cases():
    for name in SAVED:
        if name in TORCH and importlib.util.find_spec("torch") is None:
            continue
        for parameter in getattr(eckart, name)().get_params():
            yield name, parameter


@pytest.mark.parametrize(("name", "parameter"), [*cases()])
def test_a_value_of_a_wrong_type_is_refused_in_words(name, parameter):
    for value in NONSENSE:
        model = getattr(eckart, name)(**SMALL.get(name, {}) | {parameter: value})
        with pytest.raises(eckart.InputError) as found:
            model.fit(*DATA.get(name, (TABLE,)))
        words = str(found.value)
        assert parameter in words, (value, words)
        assert repr(value) in words or (name, parameter) in ANY, (value, words)
        assert "fit_" not in vars(model)


WHOLE = (
    "max_iter",
    "n_init",
    "burn_in",
    "n_samples",
    "thin",
    "n_chains",
    "batch_size",
    "patience",
    "cg_steps",
    "window",
    "min_count",
    "n_factors",
)


@pytest.mark.parametrize(("name", "parameter"), [c for c in cases() if c[1] in WHOLE])
def test_a_fraction_or_a_text_is_no_number_of_things(name, parameter):
    for value in (2.5, "x", "3", True):
        with pytest.raises(eckart.InputError, match=rf"{parameter} must be .*, got {value!r}"):
            getattr(eckart, name)(**SMALL.get(name, {}) | {parameter: value}).fit(
                *DATA.get(name, (TABLE,))
            )


@pytest.mark.parametrize(("name", "parameter"), [c for c in cases() if c[1] == "tol"])
def test_a_text_is_no_tolerance(name, parameter):
    with pytest.raises(eckart.InputError, match="tol must be"):
        getattr(eckart, name)(**SMALL.get(name, {}) | {"tol": "x"}).fit(*DATA.get(name, (TABLE,)))


@pytest.mark.parametrize("name", [c[0] for c in cases() if c[1] == "n_components"])
def test_a_number_of_components_that_no_machine_can_hold(name):
    """Refused before anything is allocated; models that cut it to the size of the matrix take
    it."""
    least = {"min_count": 1} if name in ("GloVe", "SkipGram", "PMI") else {}
    model = getattr(eckart, name)(**SMALL.get(name, {}) | {"n_components": 10**13} | least)
    if name in ("SVP", "SVT", "SoftImpute", "ExactRecovery"):
        model.fit(*DATA.get(name, (TABLE,)))
        return
    with pytest.raises(
        eckart.InputError,
        match="n_components must be",
    ):
        model.fit(*DATA.get(name, (TABLE,)))


@pytest.mark.parametrize("name", [c[0] for c in cases() if c[1] == "checkpoint"])
def test_a_name_that_no_file_can_have_is_refused_before_the_fit(name):
    for value in ("a\0b", "é" * 300, "folder/" + "n" * 256, "\ud800"):
        with pytest.raises(
            eckart.InputError, match="checkpoint must be None or the name of a file, got"
        ):
            getattr(eckart, name)(**SMALL.get(name, {}) | {"checkpoint": value}).fit(
                *DATA.get(name, (TABLE,))
            )


@pytest.mark.parametrize("name", ["GloVe", "SkipGram", "PMI"])
def test_a_window_that_no_text_fills(name):
    with pytest.raises(
        eckart.InputError, match="window must be None or an int from 1 to 10000, got 1000000000000"
    ):
        getattr(eckart, name)(window=10**12).fit(TEXT)


@pytest.mark.parametrize(
    ("name", "parameter"), [c for c in cases() if c[1] not in ("random_state", "verbose")]
)
def test_a_number_beyond_all_counting_is_refused_before_anything_is_done(name, parameter):
    """Neither OverflowError nor an int that Python cannot print (of more than 4,300 digits), and no
    list of so many starts."""
    for value in (10**400, 10**5000):
        model = getattr(eckart, name)(**SMALL.get(name, {}) | {parameter: value})
        with pytest.raises(eckart.InputError, match=parameter):
            model.fit(*DATA.get(name, (TABLE,)))


@pytest.mark.parametrize("name", [*dict.fromkeys(c[0] for c in cases())])
def test_what_is_no_engine_is_refused(name):
    """NumPy's arrays have a method ``put``, as engines have."""
    for value in (np.ones(2), np.float32(0.5), np.array(3)):
        model = getattr(eckart, name)(**SMALL.get(name, {}))
        if "engine" not in model.get_params():
            continue
        with pytest.raises(eckart.InputError, match="engine must be 'auto',"):
            model.set_params(engine=value).fit(*DATA.get(name, (TABLE,)))


@pytest.mark.parametrize(
    ("name", "parameter"), [c for c in cases() if c[1] in ("n_init", "n_threads")]
)
def test_starts_and_threads_have_a_limit(name, parameter):
    most = 100_000 if parameter == "n_init" else 4096
    with pytest.raises(
        eckart.InputError, match=rf"{parameter} must be .*int from 1 to {most}, got {most + 1}"
    ):
        getattr(eckart, name)(**SMALL.get(name, {}) | {parameter: most + 1}).fit(
            *DATA.get(name, (TABLE,))
        )


def test_a_price_as_small_as_a_float_can_be_is_as_good_as_none():
    gaps = TABLE.copy()
    gaps[0, 0] = np.nan
    model = eckart.SoftImpute(tau=1e-320, random_state=0, max_iter=50).fit(gaps)
    assert np.isfinite(model.fit_.factors.to_state()[0]["left"]).all()
    with pytest.raises(
        eckart.InputError,
        match=r"tau must be None or a number > 0, up to 1e\+150 in size, got 1e\+308",
    ):
        eckart.SoftImpute(tau=1e308).fit(gaps)


@pytest.mark.parametrize("name", ["ALS", "BayesianMF", "TimeFactors"])
@pytest.mark.parametrize(
    "value", [np.ones(2), ("a", 1.0), (2.0, 1.0), (1.0, float("nan")), (0.0, 1.0, 2.0), "x", {}]
)
def test_ends_of_predictions_are_two_numbers(name, value):
    with pytest.raises(eckart.InputError, match=r"clip must be \(low, high\), True,"):
        getattr(eckart, name)(clip=value).fit(TABLE)


@pytest.mark.parametrize(
    ("name", "parameter", "most"),
    [
        ("PLSA", "inner", 10_000),
        ("LDA", "max_doc_update_iter", 1_000_000),
        ("SkipGram", "drawn", 100_000),
        ("SkipGram", "negatives", 100_000),
    ],
)
def test_steps_inside_of_compiled_code_have_a_limit(name, parameter, most):
    """It does not hear an interrupt."""
    with pytest.raises(
        eckart.InputError, match=rf"{parameter} must be .*int from 1 to {most}, got {most + 1}"
    ):
        getattr(eckart, name)(**SMALL.get(name, {}) | {parameter: most + 1}).fit(
            *DATA.get(name, (TABLE,))
        )
