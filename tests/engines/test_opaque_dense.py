"""PCA never touches an array with as many rows as the data: it runs on an engine that hands out
handles for them."""

from __future__ import annotations

import numpy as np
import pytest
from opaque import Handle, OpaqueEngine
from scipy import sparse

from eckart.io.read import read
from eckart.reduce.solve import SpectralOptions, solve

ROWS = 61


def data(kind):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 3)) @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal(
        (ROWS, 8)
    )
    if kind == "gaps":
        x[rng.random(x.shape) < 0.2] = np.nan
    return sparse.csr_array(np.where(np.abs(x) > 0.7, x, 0.0)) if kind == "sparse" else x


def test_a_handle_gives_nothing_away():
    engine = OpaqueEngine(ROWS)
    q = engine.take(np.ones((ROWS, 4)))
    assert isinstance(q, Handle)
    assert (q.shape, q[:, 1:3].shape) == ((ROWS, 4), (ROWS, 2))
    for touch in (
        np.asarray,
        lambda a: a + 1,
        lambda a: np.ones((2, ROWS)) @ a,
        lambda a: a[:3],
        lambda a: a @ np.ones((4, 2)),
        np.sum,
        len,
        list,
    ):
        with pytest.raises(TypeError):
            touch(q)
    assert engine.inner(q, q).tolist() == np.full((4, 4), float(ROWS)).tolist()
    assert isinstance(engine.outer(q, np.ones((4, 2))), Handle)
    with pytest.raises(TypeError, match="by engine"):
        engine.inner(q, np.ones((ROWS, 4)))
    assert engine.get(q).shape == (ROWS, 4)
    assert engine.between("inner") == 0
    assert sum(size for _, size in engine.log) == 2 * ROWS * 4 * 8


@pytest.mark.parametrize("kind", ["dense", "sparse", "gaps"])
@pytest.mark.parametrize("solver", ["eigh", "randomized", "lanczos"])
def test_nothing_tall_crosses_in_a_pca(kind, solver):
    if kind == "gaps" and solver != "eigh":
        pytest.skip("gaps have one solver")
    engine = OpaqueEngine(ROWS, ROWS * 8)
    fit = solve(
        read(data(kind)),
        SpectralOptions(2, solver=solver),
        None,
        engine=engine,
        rng=np.random.default_rng(0),
    )
    assert fit.certificate.holds, str(fit.certificate)
    assert sum(size for _, size in engine.log) == 0
