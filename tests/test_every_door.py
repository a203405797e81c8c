"""The same rows with gaps through every door: an array, a frame, sparse observations, blocks, an
iterator, and files give one answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from conftest import planted
from eckart import PCA, GaussianMixture, InputError, Observed

ROWS, N = 90, 7


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    x = planted(rng, rows=ROWS, n=N)
    x[rng.random(x.shape) < 0.15] = np.nan
    x[np.isnan(x).all(axis=1)] = 0.0
    return x


def doors(x, folder):
    """name -> a function that opens the door anew."""
    np.save(folder / "x.npy", x)
    frame = pd.DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_parquet(folder / "x.parquet")
    rows, columns = np.nonzero(~np.isnan(x))
    indptr = np.searchsorted(rows, np.arange(len(x) + 1))
    return {
        "array": lambda: x,
        "float order": lambda: np.asfortranarray(x),
        "np.matrix": lambda: np.matrix(x),
        "frame": lambda: frame,
        "observed": lambda: Observed(indptr, columns, x[rows, columns], x.shape[1]),
        "blocks": lambda: [x[:1], x[1:40], x[40:]],
        "npy": lambda: folder / "x.npy",
        "mapped": lambda: np.load(folder / "x.npy", mmap_mode="r"),
        "csv": lambda: folder / "x.csv",
        "parquet": lambda: folder / "x.parquet",
    }


DOORS = [
    "array",
    "float order",
    "np.matrix",
    "frame",
    "observed",
    "blocks",
    "npy",
    "mapped",
    "csv",
    "parquet",
]


@pytest.fixture(scope="module")
def opened(table, tmp_path_factory):
    return doors(table, tmp_path_factory.mktemp("doors"))


@pytest.fixture(scope="module")
def judged(table):
    return PCA(3, random_state=0).fit(table)


@pytest.mark.parametrize("door", DOORS)
def test_pca_fits_the_same_model(opened, judged, door):
    model = PCA(3, random_state=0).fit(opened[door]())
    np.testing.assert_allclose(model.components_, judged.components_, atol=1e-10)
    np.testing.assert_allclose(model.explained_variance_, judged.explained_variance_, rtol=1e-10)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("verb", ["transform", "impute", "score_samples", "spe"])
def test_pca_answers_the_same(opened, judged, table, door, verb):
    got, wanted = (
        np.asarray(getattr(judged, verb)(opened[door]())),
        np.asarray(getattr(judged, verb)(table)),
    )
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "door", ["array", "np.matrix", "frame", "observed", "blocks", "npy", "csv"]
)
def test_a_mixture_fits_the_same_model(opened, table, door):
    models = [
        GaussianMixture(2, covariance_type="diag", random_state=0, max_iter=5, tol=0.0).fit(x)
        for x in (opened[door](), table)
    ]
    np.testing.assert_allclose(models[0].means_, models[1].means_, atol=1e-8)


@pytest.mark.parametrize("door", ["array", "frame", "blocks", "npy", "mapped", "csv", "parquet"])
@pytest.mark.parametrize("verb", ["fit", "transform", "impute"])
def test_an_infinity_is_refused_by_its_place(table, judged, tmp_path, door, verb):
    x = table.copy()
    x[61, 2] = np.inf
    model = PCA(3) if verb == "fit" else judged
    with pytest.raises(InputError, match=r"inf at row 61, column (2|c2|'c2')"):
        getattr(model, verb)(doors(x, tmp_path)[door]())


@pytest.mark.parametrize(
    ("kind", "solver"),
    [
        ("dense", "eigh"),
        ("dense", "randomized"),
        ("dense", "lanczos"),
        ("sparse", "eigh"),
        ("sparse", "lanczos"),
        ("gaps", "auto"),
    ],
)
def test_threads_do_not_change_a_bit_of_a_fit(kind, solver):
    rng = np.random.default_rng(1)
    x = planted(rng, rows=3000, n=60, dtype=np.float32)
    if kind == "sparse":
        from scipy import sparse

        x = sparse.random(3000, 60, 0.1, format="csr", random_state=0, dtype=np.float32)
    elif kind == "gaps":
        x[rng.random(x.shape) < 0.1] = np.nan
    answers = set()
    for threads in (1, 2, 3, 5, 16):
        model = PCA(4, svd_solver=solver, random_state=0, n_threads=threads, max_iter=20).fit(x)
        answers.add(
            model.components_.tobytes()
            + model.singular_values_.tobytes()
            + str(model.certificate_).encode()
        )
    assert len(answers) == 1


def test_a_frame_whose_names_repeat_is_compared_by_position():
    """fit took such a frame, and transform of the same one ended with an error of another
    package."""
    x = np.random.default_rng(0).normal(size=(30, 3))
    frame = pd.DataFrame(x, columns=["a", "a", "b"])
    np.testing.assert_allclose(PCA(2).fit(frame).transform(frame), PCA(2).fit_transform(x))
    with pytest.raises(
        InputError,
        match="column 2 of X must be 'b' as in the training data, got 'z': the feature names should",
    ):
        PCA(2).fit(frame).transform(frame.set_axis(["a", "a", "z"], axis=1))
