"""Data of any size: every model works on it, by scaling inside where it must, or refuses it in
words. Never an error of NumPy, never NaN."""

import re

import numpy as np
import pytest
from exchange import CASES, data

import eckart
from eckart.errors import InputError
from eckart.matrix import SQUARABLE, Dense, squarable

NETWORKS = {
    "Autoencoder": ("Autoencoder", {"n_components": 2, "max_iter": 1}, "dense", ("transform",)),
    "NetworkRegressor": ("NetworkRegressor", {"max_iter": 1}, "dense", ("predict",)),
    "NetworkClassifier": ("NetworkClassifier", {"max_iter": 1}, "dense", ("predict",)),
}
TABLES = {name: case for name, case in (CASES | NETWORKS).items() if case[2] != "text"}
SCALES = [1e-310, 1e-300, 1e-160, 1e-100, 1e-60, 1e60, 1e100, 1e200, 1e300]
ALWAYS = {"PCA eigh", "PCA svd", "PCA randomized", "PCA sparse", "PCA gaps"}
"""Models that scale inside: they answer wherever their own variances can be written down."""


UNITLESS = {"EASE", "SLIM", "SpectralFilter", "Blend", "Mixture multinomial", "PLSA", "LDA online"}
"""Models for which data times a number are the same data (shares of a row, or what is there at
all)."""


@pytest.fixture(scope="module")
def tables():
    return data()


def _arguments(name, x, scale):
    if name == "NetworkRegressor":
        return x * scale, x[:, 0] * scale
    return (x * scale, x[:, 0] > 0) if name == "NetworkClassifier" else (x * scale,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", TABLES)
def test_works_or_is_refused_in_words(case, tables):
    name, options, kind, verbs = TABLES[case]
    if case in NETWORKS:
        pytest.importorskip("torch")
    scales = [(scale, np.float64) for scale in SCALES] + [(1e-30, np.float32), (1e30, np.float32)]
    usual = getattr(eckart, name)(**options, random_state=0).fit(
        *_arguments(name, tables[kind], 1.0)
    )
    for scale, dtype in scales:
        x = tables[kind].astype(dtype)
        given = _arguments(name, x, dtype(scale))
        try:  # a model of data of another size: judged, or refused in words
            found = usual.certify(*given)
            assert not found.holds or case in UNITLESS, (scale, str(found))
        except InputError:
            pass
        try:
            model = getattr(eckart, name)(**options, random_state=0).fit(*given)
        except InputError as error:
            assert re.search("^X (must|has)|entry of [Xy] must", str(error)), error  # noqa: PT017
            named = "1e+12" in str(error) or "bernoulli" in str(error)
            assert scale not in (1e60, 1e-60) or named, error  # noqa: PT017
            assert case not in ALWAYS or scale in (1e200, 1e300, 1e-300, 1e-310), error  # noqa: PT017
            continue
        arrays, _ = model.fit_.factors.to_state()
        assert all(np.isfinite(a).all() for a in arrays.values()), scale
        for found in (model.certificate_, again := model.certify(*given)):
            assert not any(np.isnan(c.value) for c in found.checks), (scale, str(found))
        assert again.holds == model.certificate_.holds, (scale, str(again), str(model.certificate_))
        for verb in verbs:
            assert np.isfinite(np.asarray(getattr(model, verb)(given[0]))).all(), scale


def test_pca_with_gaps_turns_with_the_scale(tables):
    """Scaling inside is exact: a power of two moves no bit but the exponent's."""
    plain = eckart.PCA(2, random_state=0).fit(tables["gaps"])
    small = eckart.PCA(2, random_state=0).fit(tables["gaps"] * 2.0**-340)
    assert small.fit_.plan["scale"] != 1.0
    np.testing.assert_allclose(small.components_, plain.components_, rtol=1e-6)
    np.testing.assert_allclose(
        np.sqrt(small.explained_variance_) * 2.0**340, np.sqrt(plain.explained_variance_), rtol=1e-6
    )
    assert small.certificate_.holds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_limits_are_those_told(dtype):
    low, high = SQUARABLE[np.dtype(dtype)]
    for size in (low, high, 0.0):
        squarable(Dense(np.full((2, 2), 1.001 * size if size == low else 0.999 * size, dtype)))
    for size, words in ((low / 2, "no entry beyond"), (high * 2, "as large as")):
        with pytest.raises(InputError, match=words):
            squarable(Dense(np.array([[-size, np.nan]], dtype)))
