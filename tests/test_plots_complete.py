"""Pictures of completion: the axes that come in go out, and show the numbers they were given."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from eckart import ALS, InputError, plots
from eckart.plots.complete import popularity_bins, principal
from eckart.plots.recover import flow
from eckart.trace import StopReason, Trace


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 12))
    a[rng.random(a.shape) < 0.3] = np.nan
    return ALS(3, l2=1e-3, biases=False, normalise=None, random_state=0).fit(a)


@pytest.fixture
def ax():
    return Figure().add_subplot()


IMAGE = np.linspace(0, 1, 48).reshape(6, 8)
HOLES = np.where(np.arange(48).reshape(6, 8) % 3 == 0, np.nan, IMAGE)

DRAW = {
    "objective": lambda m, ax: plots.objective(m, ax),
    "held_out_curve": lambda m, ax: plots.held_out_curve([3.0, 1.0, 2.0], ax=ax),
    "error_by_popularity": lambda m, ax: plots.error_by_popularity(
        [1, 1, 5, 9], [1.0, 2.0, 0.5, 0.1], ax
    ),
    "observed_predicted": lambda m, ax: plots.observed_predicted([1, 2, 2], [1.2, 1.9, 1.4], ax),
    "shrinkage_path": lambda m, ax: plots.shrinkage_path(
        [4.0, 2.0, 1.0], [[], [1.0], [2.0, 0.5]], ax
    ),
    "factor_map": lambda m, ax: plots.factor_map(m, ax),
    "phase_square": lambda m, ax: plots.phase_square(
        [0.2, 0.5, 0.8], [1, 2], np.eye(2, 3), (20, 20), ax
    ),
    "saddle_field": lambda m, ax: plots.saddle_field(ax=ax, time=1.0),
    "saddle_escape": lambda m, ax: plots.saddle_escape(ax=ax),
    "triptych": lambda m, ax: plots.triptych(IMAGE, HOLES, IMAGE, ax),
}


@pytest.mark.parametrize("name", DRAW)
def test_axes_in_axes_out(model, ax, name):
    assert name in plots.__all__
    assert DRAW[name](model, ax) is ax
    ax.figure.savefig("/dev/null", format="png")
    made = DRAW[name](model, None)
    assert made is not ax
    made.figure.savefig("/dev/null", format="png")


def test_every_completion_picture_is_tested():
    from eckart.plots import complete, recover

    here = {
        n
        for n in plots.__all__
        if getattr(plots, n).__module__ in (complete.__name__, recover.__name__)
    }
    assert set(DRAW) == here - {"flow"}  # numbers, no picture


def test_objective_shows_the_trace(model):
    ax = plots.objective(model)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), model.fit_.trace.values)
    assert ax.get_xlabel() == "half sweep"
    assert ax.get_ylabel() == "objective"
    assert model.fit_.trace.reason.value in ax.get_title(loc="left")
    far = Trace("residual", [100.0, 1.0, 0.01], [0, 0, 0], StopReason.MAX_ITER)
    ax = plots.objective(far)
    assert (ax.get_yscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "iteration", "residual")
    near = Trace("objective", [-2.0, -3.0], [0, 0])
    assert plots.objective(near).get_yscale() == "linear"
    plots.objective(Trace("nothing")).figure.savefig("/dev/null", format="png")


def test_held_out_curve_marks_the_least(ax):
    plots.held_out_curve([3.0, 1.0, 2.0], [2, 4, 8], ax, what="rank", spread=[0.1, 0.1, 0.1])
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [2, 4, 8])
    np.testing.assert_array_equal(ax.collections[-1].get_offsets(), [[4.0, 1.0]])
    assert "least 1 at rank 4" in ax.get_title(loc="left")
    assert (
        plots.held_out_curve([2.0, 1.5, 1.0], [0.001, 0.1, 10.0], what="ridge").get_xscale()
        == "log"
    )
    plots.held_out_curve([1.0]).figure.savefig("/dev/null", format="png")
    for bad in ([], [[1.0]], 3.0):
        with pytest.raises(InputError, match="errors"):
            plots.held_out_curve(bad)
    with pytest.raises(
        InputError,
        match=r"at must be shape \(2,\), one place for each error, got 'an array of shape \(1,\)'",
    ):
        plots.held_out_curve([1.0, 2.0], [1.0])


def test_error_by_popularity_measures_each_bin(ax, rng):
    counts, errors = rng.integers(1, 300, 5000), rng.standard_normal(5000)
    plots.error_by_popularity(counts, errors, ax, what="movie", most=4)
    edges = popularity_bins(counts, 4)
    want = [np.sqrt(np.mean(errors[(counts >= a) & (counts < b)] ** 2)) for a, b in pairwise(edges)]
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], want)
    sizes = [int(t.get_text().replace(",", "")) for t in ax.texts]
    assert sum(sizes) == 5000
    assert max(sizes) < 2 * min(sizes)
    assert len(ax.get_xticklabels()) == 4
    assert "movie" in ax.get_xlabel()
    assert f"{np.sqrt(np.mean(errors**2)):.3g}" in ax.get_title(loc="left")
    with pytest.raises(InputError, match="counts"):
        plots.error_by_popularity([1], [1.0, 2.0])


@pytest.mark.parametrize(
    "counts", [[5], [3, 3, 3], [1, 2], [1, 1, 1, 1, 1, 1, 1, 900], np.arange(1, 400)]
)
def test_bins_hold_every_count(counts):
    counts = np.asarray(counts)
    edges = popularity_bins(counts)
    assert (np.diff(edges) > 0).all()
    assert edges[0] <= counts.min()
    assert edges[-1] > counts.max()
    assert len(plots.error_by_popularity(counts, np.ones(len(counts))).patches) == len(edges) - 1


def test_few_values_are_bars_and_many_a_histogram(ax, rng):
    plots.observed_predicted([1, 2, 2, 4], [0.2, 1.6, 2.2, 9.0], ax)
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, [0.25, 0.5, 0.25, 0.25, 0.5, 0.25])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "observed",
        "predicted, to the nearest value",
    ]
    values = rng.standard_normal(1000)
    many = plots.observed_predicted(values, values / 2)
    for steps in many.patches:
        np.testing.assert_allclose(steps.get_data().values.sum(), 1.0)
    assert plots.observed_predicted([3.0, 3.0], [3.0, 2.9]).patches


def test_shrinkage_path_has_a_line_for_each_singular_value(ax):
    plots.shrinkage_path([1.0, 4.0, 2.0], [[2.0, 0.5], [], [1.0]], ax, chosen=2.0)
    first, second, mark = ax.lines
    np.testing.assert_array_equal(first.get_xdata(), [4.0, 2.0, 1.0])
    np.testing.assert_array_equal(first.get_ydata(), [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(second.get_ydata(), [0.0, 0.5])
    assert mark.get_xdata()[0] == 2.0
    assert ax.xaxis_inverted()
    with pytest.raises(InputError, match="values"):
        plots.shrinkage_path([1.0], [])
    with pytest.raises(InputError, match="taus"):
        plots.shrinkage_path([0.0], [[1.0]])


def test_factor_map_is_the_svd_of_the_answer(model):
    f = model.fit_.factors
    u, s, vt = np.linalg.svd(f.left @ f.right.T)
    rows, columns = principal(f, 2)
    np.testing.assert_allclose(np.abs(rows), np.abs(u[:, :2] * np.sqrt(s[:2])), atol=1e-6)
    np.testing.assert_allclose(np.abs(columns), np.abs(vt[:2].T * np.sqrt(s[:2])), atol=1e-6)
    np.testing.assert_allclose(rows @ columns.T, (u[:, :2] * s[:2]) @ vt[:2], atol=1e-6)
    ax = plots.factor_map(model)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), columns)
    assert str(int(columns[:, 0].argmax())) in [t.get_text() for t in ax.texts]
    other = plots.factor_map(model, side="rows", axes=(2, 0), among=[4, 7, 9], named=2)
    np.testing.assert_allclose(
        other.collections[0].get_offsets(), principal(f, 3)[0][[4, 7, 9]][:, [2, 0]]
    )
    assert other.get_xlabel() == "direction 3"
    assert "3 of 30 rows" in other.get_title(loc="left")
    for bad in ({"side": "sides"}, {"axes": (0, 3)}, {"axes": (-1, 0)}, {"among": []}):
        with pytest.raises(InputError):
            plots.factor_map(model, **bad)


def test_phase_square_has_the_degrees_of_freedom_on_it(ax):
    share = np.arange(6.0).reshape(2, 3) / 6
    plots.phase_square([0.2, 0.5, 0.8], [1, 3], share, (20, 30), ax)
    np.testing.assert_allclose(np.asarray(ax.collections[0].get_array()).reshape(2, 3), share)
    curve = ax.lines[0]
    k = curve.get_ydata()
    np.testing.assert_allclose(curve.get_xdata(), k * (50 - k) / 600)
    with pytest.raises(InputError, match="recovered"):
        plots.phase_square([0.2], [1, 3], share, (20, 30))
    with pytest.raises(InputError, match="ascending"):
        plots.phase_square([0.2, 0.5, 0.4], [1, 3], share, (20, 30))


@pytest.mark.parametrize("a", [1.0, 2.5, 0.0, -1.5])
@pytest.mark.parametrize("c", [0.01, 0.5, 3.0])
def test_flow_solves_its_equation_and_gradient_descent_follows_it(a, c):
    """x' = 2 (a - x) x, and u = v by small gradient steps (2.4)."""
    t = np.linspace(0, 2, 2001)
    x = flow(a, c, t)
    np.testing.assert_allclose(x[0], c)
    np.testing.assert_allclose(
        np.gradient(x, t)[1:-1], (2 * (a - x) * x)[1:-1], atol=2e-4 * max(1, c) ** 3
    )
    u = np.sqrt(c)
    for i in range(2000):
        if i % 500 == 0:
            assert u * u == pytest.approx(x[i], abs=0.02 * max(1, c))
        u += 0.001 * (a - u * u) * u
    assert np.isfinite(flow(a, c, [1e6])).all()


def test_saddle_paths_go_downhill_to_the_minima(ax):
    starts = [(0.3, 0.3), (1.5, 0.2), (-0.2, -1.0)]
    plots.saddle_field(1.0, ax, starts=starts, time=20.0)
    paths = [line.get_xydata() for line in ax.lines if line.get_color() == "#c53030"]
    assert len(paths) == 3
    for path, start in zip(paths, starts):
        np.testing.assert_allclose(path[0], start)
        assert path[-1].prod() == pytest.approx(1.0, abs=1e-6)
        loss = 0.5 * (1 - path.prod(axis=1)) ** 2
        assert (np.diff(loss) <= 1e-12).all()
        np.testing.assert_allclose(
            path[:, 0] ** 2 - path[:, 1] ** 2, start[0] ** 2 - start[1] ** 2, atol=1e-6
        )
    words = [t.get_text() for t in ax.get_legend().get_texts()]
    assert words == ["minima: uv = 1", "gradient flow", "saddle"]
    for bad in ({"a": np.nan}, {"reach": 0}, {"time": -1}):
        with pytest.raises(InputError):
            plots.saddle_field(**bad)


def test_escape_draws_the_exact_flow_under_the_steps(ax):
    plots.saddle_escape(1.0, [0.01, 2.0], ax, step=0.01)
    exact, steps = ax.lines[0], ax.lines[1]
    np.testing.assert_allclose(exact.get_ydata(), flow(1.0, 0.01, exact.get_xdata()))
    np.testing.assert_allclose(steps.get_ydata(), flow(1.0, 0.01, steps.get_xdata()), atol=0.02)
    with pytest.raises(InputError, match="step"):
        plots.saddle_escape(step=0)


def test_triptych_shows_three_images_and_says_how_well(ax):
    plots.triptych(IMAGE, HOLES, IMAGE + 0.1, ax)
    sheet = np.asarray(ax.images[0].get_array())
    gap = 2
    np.testing.assert_allclose(sheet[:, :8, 0], IMAGE)
    np.testing.assert_allclose(sheet[:, 2 * (8 + gap) :, 0], np.clip(IMAGE + 0.1, 0, 1))
    missing = sheet[:, 8 + gap : 16 + gap]
    assert (missing[np.isnan(HOLES)] == (0.98, 0.85, 0.72)).all()
    assert [t.get_text() for t in ax.texts] == [
        "original",
        "33% missing",
        "restored, PSNR 20.0 dB where missing",
    ]
    colour = np.repeat(IMAGE[..., None], 3, axis=2)
    assert plots.triptych(colour, colour, colour, titles="abc").texts[2].get_text() == "c"
    for bad in ((IMAGE, HOLES[:3], IMAGE), (IMAGE[0],) * 3):
        with pytest.raises(InputError, match="images"):
            plots.triptych(*bad)


def test_pictures_leave_no_global_state(model):
    before = "matplotlib.pyplot" in sys.modules
    for draw in DRAW.values():
        draw(model, None)
    assert ("matplotlib.pyplot" in sys.modules) == before
