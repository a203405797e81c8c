"""Decompositions of small matrices answer where LAPACK's divide and conquer gives up."""

from __future__ import annotations

import numpy as np
import pytest

from eckart import SoftImpute, decompositions


def refuse(*_, **__):
    raise np.linalg.LinAlgError("did not converge")


@pytest.fixture
def gives_up(monkeypatch):
    """As on a machine whose BLAS does not converge."""
    for name in ("svd", "eigh", "eigvalsh"):
        monkeypatch.setattr(np.linalg, name, refuse)


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7), (1, 4)])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_values_have_another_way(gives_up, shape, full, dtype):
    a = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    u, s, vt = decompositions.svd(a, full_matrices=full)
    k = min(shape)
    assert u.shape == (shape[0], shape[0] if full else k)
    bound = (
        10 * max(shape) * np.finfo(dtype).eps * s[0]
    )  # backward stable: a modest polynomial of the size, times eps ||A||
    np.testing.assert_allclose((u[:, :k] * s) @ vt[:k], a, rtol=0, atol=bound)
    np.testing.assert_allclose(decompositions.svd(a, compute_uv=False), s, rtol=1e-5)
    assert (np.diff(s) <= 0).all()


@pytest.mark.parametrize("stack", [(), (4,), (2, 3)])
def test_eigenvalues_have_another_way(gives_up, stack):
    a = np.random.default_rng(1).standard_normal((*stack, 6, 6))
    a = a + a.swapaxes(-1, -2)
    values, vectors = decompositions.eigh(a)
    assert values.shape == (*stack, 6)
    np.testing.assert_allclose(a @ vectors, vectors * values[..., None, :], atol=1e-12)
    np.testing.assert_allclose(decompositions.eigvalsh(a), values, atol=1e-12)


@pytest.mark.parametrize("name", ["svd", "eigh", "eigvalsh"])
def test_what_is_not_finite_is_still_an_error(gives_up, name):
    with pytest.raises(np.linalg.LinAlgError):
        getattr(decompositions, name)(np.full((2, 2), np.nan))


def test_a_fit_ends_as_usual_where_divide_and_conquer_gives_up(monkeypatch):
    rng = np.random.default_rng(0)
    x = np.where(
        rng.random((40, 30)) < 0.5,
        np.nan,
        rng.standard_normal((40, 3)) @ rng.standard_normal((3, 30)),
    )
    usual = SoftImpute(tau=2.0, random_state=0).fit(x)
    for name in ("svd", "eigh", "eigvalsh"):
        monkeypatch.setattr(np.linalg, name, refuse)
    there = SoftImpute(tau=2.0, random_state=0).fit(x)
    assert there.certificate_.holds
    a, b = (model.fit_.factors.left @ model.fit_.factors.right.T for model in (there, usual))
    np.testing.assert_allclose(a, b, atol=1e-2)
