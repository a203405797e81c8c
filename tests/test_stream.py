"""One pass at bounded memory: the statistic for narrow rows, the sketch for wide ones."""

from __future__ import annotations

import numpy as np
import pytest

import eckart
from conftest import planted
from eckart import PCA, principal_angles
from eckart.engines.protocol import Sketch
from eckart.reduce.plan import STATISTIC_COLUMNS

WIDE = STATISTIC_COLUMNS + 200


@pytest.fixture(scope="module")
def wide():
    return planted(np.random.default_rng(0), rows=900, n=WIDE, rank=6, noise=0.02)


def test_wide_rows_that_can_be_read_once_are_sketched(wide):
    pca = PCA(5, random_state=0).fit(wide[i : i + 100] for i in range(0, 900, 100))
    exact = PCA(5, svd_solver="svd").fit(wide)
    assert principal_angles(pca.components_.T, exact.components_.T).max() < 1e-2
    np.testing.assert_allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-3)
    np.testing.assert_allclose(pca.mean_, exact.mean_, atol=1e-10)
    assert pca.fit_.factors.total == pytest.approx(exact.fit_.factors.total, rel=1e-9)
    assert pca.certificate_.holds, pca.certificate_
    assert any("sketch" in note for note in pca.certificate_.notes)


def test_wide_partial_fit_agrees(wide):
    pca = PCA(5)
    for i in range(0, 900, 130):
        pca.partial_fit(wide[i : i + 130])
    assert (
        principal_angles(pca.components_.T, PCA(5, svd_solver="svd").fit(wide).components_.T).max()
        < 1e-2
    )
    assert pca.n_samples_seen_ == 900


@pytest.mark.parametrize("centered", [True, False])
def test_the_sketch_bound_is_true(centered):
    """0 <= S - B^T B <= lost I, on data with a slowly falling spectrum."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((500, 60)) * np.arange(1, 61) ** -0.3 + 5
    w = rng.random(500)
    sketch = Sketch(60, 20, np.dtype(np.float64), centered)
    for i in range(0, 500, 37):
        sketch = sketch.add(x[i : i + 37], w[i : i + 37])
    mean = w @ x / w.sum() if centered else 0
    s = (x - mean).T @ (w[:, None] * (x - mean))
    gap = np.linalg.eigvalsh(s - sketch.b.T @ sketch.b)
    assert gap.min() > -1e-8 * np.trace(s)
    assert gap.max() <= sketch.lost * (1 + 1e-9)
    assert sketch.total == pytest.approx(np.trace(s))


def test_a_sketch_that_lost_too_much_says_so():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3000, WIDE)).astype(np.float32)  # no low-rank structure at all
    c = PCA(5).fit(iter([x[:1500], x[1500:]])).certificate_
    assert not c.holds
    assert "sketch error" in c.reason


def test_partial_fit_refuses_other_columns_and_keeps_its_state(rng):
    x = planted(rng)
    pca = PCA(3).partial_fit(x[:100])
    before = pca.components_.copy()
    with pytest.raises(eckart.InputError, match="has 7 features, but PCA is expecting 30"):
        pca.partial_fit(x[:, :7])
    np.testing.assert_array_equal(pca.components_, before)
    pca.partial_fit(x[100:])
    np.testing.assert_allclose(pca.components_, PCA(3).fit(x).components_, atol=1e-9)


def test_partial_fit_takes_weights_and_frames(rng):
    pd = pytest.importorskip("pandas")
    x, w = planted(rng, rows=90, n=5), rng.random(90)
    frame = pd.DataFrame(x, columns=list("abcde"))
    pca = (
        PCA(2)
        .partial_fit(frame[:50], sample_weight=w[:50])
        .partial_fit(frame[50:], sample_weight=w[50:])
    )
    np.testing.assert_allclose(
        pca.components_, PCA(2).fit(x, sample_weight=w).components_, atol=1e-9
    )
    assert list(pca.feature_names_in_) == list("abcde")


def test_fit_starts_over_after_partial_fit(rng):
    a, b = planted(rng, rows=80, n=6), planted(rng, rows=80, n=6)
    pca = PCA(2).partial_fit(a).fit(b)
    np.testing.assert_allclose(pca.components_, PCA(2).fit(b).components_)
    pca.partial_fit(a)
    assert pca.n_samples_seen_ == 80


def test_blocks_of_one_row_and_a_stream_shorter_than_k(rng):
    x = planted(rng, rows=7, n=5, rank=2)
    pca = PCA(3)
    for row in x:
        pca.partial_fit(row[None])
    np.testing.assert_allclose(
        pca.components_, PCA(3, svd_solver="eigh").fit(x).components_, atol=1e-8
    )
    with pytest.raises(
        eckart.InputError,
        match="n_components must be 0 to 4 for data of 4 rows and 30 columns, got 6",
    ):
        PCA(6).fit(iter([planted(rng, rows=4, n=30)]))
