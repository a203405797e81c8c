"""Singular values where the quicker routine of LAPACK gives up."""

from __future__ import annotations

import numpy as np
import pytest

from eckart import SoftImpute
from eckart.singular import svd


@pytest.fixture
def without_divide_and_conquer(monkeypatch):
    """``np.linalg.svd`` fails, as gesdd does on a few matrices."""

    def gives_up(*args, **named):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", gives_up)


@pytest.mark.parametrize("full", [True, False])
def test_the_other_routine_takes_over(full, monkeypatch, request):
    a = np.random.default_rng(0).standard_normal((7, 4))
    wanted = np.linalg.svd(a, full_matrices=full)
    request.getfixturevalue("without_divide_and_conquer")
    u, s, vt = svd(a, full_matrices=full)
    assert (u.shape, vt.shape) == (wanted[0].shape, wanted[2].shape)
    np.testing.assert_allclose(s, wanted[1], rtol=1e-12)
    np.testing.assert_allclose(u[:, :4] * s @ vt, a, atol=1e-12)
    np.testing.assert_allclose(svd(a, compute_uv=False), wanted[1], rtol=1e-12)


def test_what_is_not_finite_is_still_an_error(without_divide_and_conquer):
    with pytest.raises(np.linalg.LinAlgError):
        svd(np.full((3, 3), np.nan))


def test_a_fit_goes_on(without_divide_and_conquer):
    """The tangent steps of SoftImpute meet such matrices near their end (one of 30 seeds of a test did)."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    x[rng.random(x.shape) < 0.3] = np.nan
    assert SoftImpute(tau=2.0, random_state=0).fit(x).certificate_.holds
