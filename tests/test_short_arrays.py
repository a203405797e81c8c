"""Model files hold large arrays in fewer bytes where nothing is lost."""

import numpy as np
import pytest

from eckart import BayesianMF, load
from eckart.io.models.memory_maps import load_mapped
from eckart.io.models.save import lengthen, shorten
from eckart.matrix import Observed

LARGE = (2200, 128)


def arrays():
    rng = np.random.default_rng(0)
    steps = rng.integers(-127, 128, LARGE) * np.exp2(rng.integers(-40, 40, (LARGE[0], 1)))
    steps[3] = 0.0
    yield "steps", steps, 1 / 7
    yield "steps in single precision", steps.astype(np.float32), 1 / 3
    yield "single precision", rng.standard_normal(LARGE).astype(np.float32).astype(float), 0.51
    yield "grades", rng.integers(1, 6, 200_000).astype(float), 0.51
    yield "double precision", rng.standard_normal(LARGE), 1.0
    yield "beyond single precision", np.full(LARGE, 1e200), 1.0
    odd = rng.standard_normal(LARGE)
    odd[5, 5], odd[6, 6] = np.nan, np.inf
    yield "no numbers", odd, 1.0
    yield "whole", rng.integers(0, 9, LARGE), 1.0
    yield "few", np.ones((4, 8)), 1.0


@pytest.mark.parametrize(
    ("name", "a", "share"), list(arrays()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_arrays_come_back_as_they_were(name, a, share):
    short, told = shorten({"a": a})
    assert sum(b.nbytes for b in short.values()) <= share * a.nbytes
    back = lengthen(short, told)
    assert list(back) == ["a"]
    assert back["a"].dtype == a.dtype
    np.testing.assert_array_equal(back["a"], a)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_posterior_takes_a_byte_for_a_number(dtype, tmp_path):
    """It had taken eight."""
    rng = np.random.default_rng(0)
    n, m = 2000, 1500
    at = rng.choice(n * m, 8000, replace=False)
    x = Observed.from_codes(at // m, at % m, rng.integers(1, 6, 8000).astype(dtype), (n, m))
    model = BayesianMF(15, n_samples=100, burn_in=2, thin=1, random_state=0).fit(x)
    model.save(tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors").stat().st_size < 9e6
    rows, columns = rng.integers(0, n, 50), rng.integers(0, m, 50)
    for one in (load(tmp_path / "m.safetensors"), load_mapped(tmp_path / "m.safetensors")):
        assert one.fit_.factors.left.dtype == dtype
        np.testing.assert_array_equal(one.predict(rows, columns), model.predict(rows, columns))
        np.testing.assert_array_equal(one.interval(rows, columns), model.interval(rows, columns))
