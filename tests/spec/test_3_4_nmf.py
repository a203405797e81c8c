"""3.4 NMF: A ~ U V, U, V >= 0. One test for each statement of the specification."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from eckart import NMF, PCA, Observed, plots


@pytest.fixture
def table(rng):
    return rng.gamma(0.5, 1.0, (80, 4)) @ rng.gamma(0.5, 1.0, (4, 30)) + 0.05 * rng.random((80, 30))


def stationary(model, x, loss):
    """min(entry, gradient) in units of the curvature, against sqrt(2 F), from the formulas."""
    w, h = model.fit_.factors.left, model.components_
    seen = ~np.isnan(x)
    a, s = np.where(seen, x, 0.0), w @ h
    found, size = [], 2 * model.certificate_["objective"]
    for u, v, mask, data, product in ((w, h, seen, a, s), (h.T, w.T, seen.T, a.T, s.T)):
        if loss == "frobenius":
            slope = (mask * (product - data)) @ v.T
            curve = mask @ (v.T**2)
            gap = np.minimum(u, slope / np.maximum(curve, 1e-300))
            found.append(np.sqrt((curve * gap**2).sum() / max(size, 1e-4 * (a**2).sum())))
        else:
            down = mask @ v.T
            share = u * down / np.maximum((u * down).sum(axis=1, keepdims=True), 1e-300)
            rest = 1 - ((mask * data / np.maximum(product, 1e-300)) @ v.T) / np.maximum(
                down, 1e-300
            )
            mass = np.maximum((u * down).sum(axis=1), data.sum(axis=1))
            found.append(
                np.sqrt(
                    (mass[:, None] * np.clip(np.minimum(share, rest), -1, None) ** 2).sum()
                    / max(size, 2e-4 * a.sum())
                )
            )
    return found


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "missing entries"])
def test_3_4_both_losses_on_dense_sparse_and_missing(table, rng, loss, kind):
    x = (
        np.where(rng.random(table.shape) < 0.2, np.nan, table)
        if kind == "missing entries"
        else table
    )
    model = NMF(4, beta_loss=loss, random_state=0, max_iter=3000).fit(
        sparse.csr_matrix(x) if kind == "sparse" else x
    )
    assert (model.fit_.factors.left >= 0).all()
    assert (model.components_ >= 0).all()
    assert model.certificate_.holds, model.certificate_
    measured = stationary(model, x, loss)
    told = [model.certificate_["residual of W"], model.certificate_["residual of H"]]
    np.testing.assert_allclose(told, measured, rtol=1e-2, atol=1e-9)
    s = model.fit_.factors.left @ model.components_
    seen = ~np.isnan(x)
    a, s = x[seen], s[seen]
    value = 0.5 * np.sum((a - s) ** 2) if loss == "frobenius" else np.sum(a * np.log(a / s) - a + s)
    assert model.certificate_["objective"] == pytest.approx(value, rel=1e-6)


def test_3_4_projected_als_is_the_plain_method(table):
    model = NMF(4, solver="als", random_state=0, max_iter=60).fit(table)
    w, h = model.fit_.factors.left, model.components_
    again = np.maximum(np.linalg.lstsq(w, table, rcond=None)[0], 0)
    assert np.linalg.norm(table - w @ again) < 1.1 * model.reconstruction_err_
    assert model.reconstruction_err_ == pytest.approx(np.linalg.norm(table - w @ h), rel=1e-9)


def test_3_4_the_default_is_accelerated(table):
    fast, plain = (
        NMF(4, solver=solver, random_state=0, max_iter=15, tol=0).fit(table)
        for solver in ("auto", "cd")
    )
    assert fast.fit_.plan["solver"] == "hals"
    assert fast.reconstruction_err_ < plain.reconstruction_err_
    quick, slow = (
        NMF(4, beta_loss="kl", solver=solver, random_state=0, max_iter=30, tol=0).fit(table)
        for solver in ("auto", "mu")
    )
    assert quick.fit_.plan["solver"] == "mm"
    assert quick.reconstruction_err_ < slow.reconstruction_err_


def test_3_4_simplex_normalised_form(table):
    model = NMF(4, beta_loss="kl", random_state=0).fit(table)
    form = model.normal_form()
    np.testing.assert_allclose(form.parts.sum(axis=1), 1.0)
    np.testing.assert_allclose(form.shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(
        (form.totals[:, None] * form.shares) @ form.parts,
        model.inverse_transform(model.fit_.factors.left),
    )


def test_3_4_parts_of_faces_against_eigenfaces(shared_data):
    from scipy.io import loadmat

    faces = loadmat(shared_data("cbcl-faces") / "CBCL_Face.mat")["M"].T.astype(np.float32)
    faces = 1 - faces / faces.max()
    parts, ghosts = NMF(49, random_state=0).fit(faces), PCA(49, random_state=0).fit(faces)
    ax = plots.parts_and_components(parts, ghosts, (19, 19))
    assert len(ax.images) == 1
    local, spread = (
        np.mean(np.abs(c) < 0.05 * np.abs(c).max(axis=1, keepdims=True))
        for c in (parts.components_, ghosts.components_)
    )
    assert local > 0.5 > 2 * spread


def test_3_4_an_observed_zero_is_not_an_absent_one():
    zero, gap = (
        np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 6.0]]),
        np.array([[1.0, np.nan], [2.0, np.nan], [3.0, 6.0]]),
    )
    predicted = NMF(1, random_state=0).fit(Observed.from_nan(gap))
    assert predicted.fit_.factors.block(slice(0, 3))[0, 1] == pytest.approx(2.0, rel=1e-3)
    assert NMF(1, random_state=0).fit(zero).fit_.factors.block(slice(0, 3))[0, 1] < 1.9
