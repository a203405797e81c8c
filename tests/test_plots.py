"""Pictures: the axes that come in go out, and show what they should."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from eckart import PCA, InputError, plots
from eckart.plots.style import coloured, montage, new_axes


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    return PCA(3).fit(rng.standard_normal((50, 6)) @ rng.standard_normal((6, 6)))


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(1).standard_normal((50, 6))


@pytest.fixture
def ax():
    return Figure().add_subplot()


DRAW = {
    "scree": lambda m, r, ax: plots.scree(m, ax),
    "loadings": lambda m, r, ax: plots.loadings(m, ax),
    "code_map": lambda m, r, ax: plots.code_map(m.transform(r), ax=ax),
    "components_as_images": lambda m, r, ax: plots.components_as_images(m, (2, 3), ax),
    "reconstructions": lambda m, r, ax: plots.reconstructions(m, r[:4], (2, 3), [1, 3], ax),
    "outlier_chart": lambda m, r, ax: plots.outlier_chart(m.outliers(r), ax),
}


@pytest.mark.parametrize("name", DRAW)
def test_axes_in_axes_out(model, rows, ax, name):
    assert DRAW[name](model, rows, ax) is ax
    ax.figure.savefig("/dev/null", format="png")
    made = DRAW[name](model, rows, None)
    assert made is not ax
    assert (
        "matplotlib.pyplot" not in sys.modules or made.figure.number is None
        if hasattr(made.figure, "number")
        else True
    )


def test_every_public_picture_is_tested():
    assert set(DRAW) <= set(plots.__all__)


def test_scree_has_a_bar_for_each_component(model, ax):
    plots.scree(model, ax)
    np.testing.assert_allclose(
        [bar.get_height() for bar in ax.patches], model.explained_variance_ratio_
    )
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.cumsum(model.explained_variance_ratio_))
    assert "k = 3" in ax.texts[0].get_text()


def test_scree_with_the_whole_spectrum_marks_the_chosen(model, ax):
    whole = PCA().fit(np.random.default_rng(0).standard_normal((50, 6))).explained_variance_ratio_
    plots.scree(model, ax, spectrum=whole)
    assert len(ax.patches) == 6
    assert len({bar.get_facecolor() for bar in ax.patches[:3]}) == 1
    assert ax.patches[2].get_facecolor() != ax.patches[3].get_facecolor()


def test_scree_without_components(ax):
    assert len(plots.scree(PCA(0).fit(np.eye(3)), ax).patches) == 0


def test_loadings_shows_names_and_values(model, ax):
    plots.loadings(model, ax, features=4, components=2)
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (4, 2)
    names = [int(t.get_text()) for t in ax.get_yticklabels()]
    np.testing.assert_allclose(shown, model.loadings_[names, :2])
    with pytest.raises(InputError, match="k = 0"):
        plots.loadings(PCA(0).fit(np.eye(3)))


def test_map_has_a_point_for_each_row_and_a_cloud_for_each_label(model, rows, ax):
    codes = model.transform(rows)
    plots.code_map(codes, ax=ax)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), codes[:, :2])
    labels = np.array(["u", "v"] * 25)
    other = plots.code_map(codes, labels, axes=(2, 0), shares=model.explained_variance_ratio_)
    assert len(other.collections) == 2
    assert sorted(t.get_text() for t in other.texts) == ["u", "v"]
    np.testing.assert_allclose(other.collections[0].get_offsets(), codes[labels == "u"][:, [2, 0]])
    assert "component 3" in other.get_xlabel()
    assert "%" in other.get_xlabel()


def test_map_with_missing_mixed_or_many_labels(model, rows):
    codes = model.transform(rows)
    odd = [None, float("nan"), 1, "a", 2.5] * 10
    ax = plots.code_map(codes, odd)
    assert sum(len(c.get_offsets()) for c in ax.collections) == 50
    assert len(plots.code_map(codes, range(50)).collections) == 40
    for bad in (["u"], ["u"] * 51):
        with pytest.raises(InputError, match="one for each row"):
            plots.code_map(codes, bad)
    for bad in (codes[:, :1], codes[0], codes[None]):
        with pytest.raises(InputError, match="at least 2 columns"):
            plots.code_map(bad)
    with pytest.raises(InputError):
        plots.code_map(codes, axes=(0, 3))
    with pytest.raises(InputError):
        plots.code_map(codes, axes=(-1, 0))


def test_components_as_images_has_a_tile_for_mean_and_components(model, ax):
    plots.components_as_images(model, (2, 3), ax)
    assert [t.get_text() for t in ax.texts] == ["mean", "1", "2", "3"]
    assert len(ax.images) == 1
    assert [t.get_text() for t in plots.components_as_images(model, (3, 2), count=1).texts] == [
        "mean",
        "1",
    ]
    assert [
        t.get_text() for t in plots.components_as_images(PCA(0).fit(np.eye(6)), (3, 2)).texts
    ] == ["mean"]


@pytest.mark.parametrize("shape", [(2, 2), (0, 6), (-2, -3), (6,), (1, 2, 3)])
def test_images_of_the_wrong_shape_are_refused(model, rows, shape):
    with pytest.raises(InputError, match="height x width"):
        plots.components_as_images(model, shape)
    with pytest.raises(InputError, match="height x width"):
        plots.reconstructions(model, rows[:2], shape)


def test_reconstructions_has_a_line_for_each_k(model, rows, ax):
    plots.reconstructions(model, rows[:4], (2, 3), [1, 2, 30, -1], ax)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["original", "k = 1", "k = 2"]
    for bad in (rows[0], rows[:, :5], rows[:0]):
        with pytest.raises(
            InputError,
            match="rows must have the 6 columns of the model and at least one row, got shape",
        ):
            plots.reconstructions(model, bad, (2, 3))


def test_reconstructions_of_rows_with_gaps_are_not_blank(model, rows):
    gappy = rows[:3].copy()
    gappy[:, 2] = np.nan
    picture = np.asarray(plots.reconstructions(model, gappy, (2, 3), [3]).images[0].get_array())
    assert np.isfinite(picture).all()
    assert len(np.unique(picture[-3:].round(6))) > 3, "the line of reconstructions shows nothing"


def test_outlier_chart_marks_the_flagged_rows(model, rows):
    far = np.vstack([rows, 1e3 * np.ones((1, 6))])
    scores = model.outliers(far)
    ax = plots.outlier_chart(scores, names=[f"row {i}" for i in range(51)])
    calm, flagged = ax.collections
    assert len(flagged.get_offsets()) == scores.flagged.sum() > 0
    assert len(calm.get_offsets()) == (~scores.flagged).sum()
    assert "row 50" in [t.get_text() for t in ax.texts]
    assert f"{scores.flagged.sum()} of 51" in ax.get_title(loc="left")


def test_outlier_chart_of_degenerate_fits():
    for x in (np.eye(4), np.ones((4, 3)), np.ones((1, 3))):
        m = PCA(1).fit(x)
        ax = plots.outlier_chart(m.outliers(x))
        ax.figure.savefig("/dev/null", format="png")
        assert sum(len(points.get_offsets()) for points in ax.collections) == len(x)


def test_montage_and_colours():
    tiles = np.zeros((3, 2, 2, 3))
    assert montage(tiles, 2, 1).shape == (7, 7, 3)
    assert coloured(np.ones((2, 3, 3)), "gray").shape == (2, 3, 3, 3)
    assert np.isfinite(coloured(np.ones((2, 3, 3)), "gray")).all()
    ax = new_axes()
    assert new_axes(ax) is ax


def test_pictures_leave_no_global_state():
    code = (
        "import sys, numpy as np; from eckart import PCA, plots; "
        "plots.scree(PCA(1).fit(np.eye(3))); print('matplotlib.pyplot' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "False"
    )
