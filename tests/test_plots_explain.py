"""Pictures of topics and mixtures: the axes that come in go out, and show the numbers they were
given."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.spatial.distance import jensenshannon

from eckart import PCA, InputError, plots
from eckart.factors import Topics
from eckart.plots.mixture import blended
from eckart.plots.topics import distributions, jensen_shannon, scaled

WORDS = np.array([f"word{j}" for j in range(12)], object)


def some_topics(k=5, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.dirichlet(np.full(12, 0.3), k) * rng.integers(10, 100, (k, 1))
    return Topics(counts, np.full(k, 0.1), counts.sum(axis=1) / counts.sum(), WORDS)


class Fitted:
    """What a model with parts shows to a picture."""

    def __init__(self, parts, columns=None):
        self.components_ = np.asarray(parts, float)
        factors = type("Parts", (), {"columns": columns})()
        self.fit_ = type("Fit", (), {"factors": factors})()


@pytest.fixture
def ax():
    return Figure().add_subplot()


X = np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 0.0], [4.0, 4.0, 3.0]])
Q = np.array([[1.0, 0.0], [0.5, 0.5], [0.1, 0.9]])

DRAW = {
    "topic_words": lambda ax: plots.topic_words(some_topics(), ax),
    "topic_map": lambda ax: plots.topic_map(some_topics(), ax),
    "perplexity_curve": lambda ax: plots.perplexity_curve(
        [5, 10, 20], [900, 700, 800], ax, coherence=[0.1, 0.2, 0.1]
    ),
    "soft_clusters": lambda ax: plots.soft_clusters(X, Q, ax),
    "responsibilities": lambda ax: plots.responsibilities(Q, ax, labels=["a", "b", "a"]),
}


@pytest.mark.parametrize("name", DRAW)
def test_axes_in_axes_out(ax, name):
    assert name in plots.__all__
    assert DRAW[name](ax) is ax
    ax.figure.savefig("/dev/null", format="png")
    made = DRAW[name](None)
    assert made is not ax
    made.figure.savefig("/dev/null", format="png")


def test_every_picture_of_topics_and_mixtures_is_tested():
    from eckart.plots import mixture, topics

    here = {
        n
        for n in plots.__all__
        if getattr(plots, n).__module__ in (topics.__name__, mixture.__name__)
    }
    assert set(DRAW) == here


def test_topic_words_are_the_most_probable_ones_of_the_largest_topics(ax):
    t = some_topics()
    plots.topic_words(t, ax, words=3, topics=[4, 0])
    texts = [text.get_text() for text in ax.texts]
    # below 10% one more digit, so that small topics differ
    digits = 0 if t.sizes[4] >= 0.0995 else 1
    assert texts[0] == f"topic 5 · {t.sizes[4]:.{digits}%}"
    assert texts[1:4] == WORDS[np.argsort(-t.words[4])[:3]].tolist()
    assert texts[5:] == WORDS[np.argsort(-t.words[0])[:3]].tolist()
    top = np.sort(t.words[4])[::-1][:3]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches[:3]], top / top[0])
    order = [text.get_text() for text in plots.topic_words(t, words=1).texts][::2]
    assert [int(o.split()[1]) - 1 for o in order] == np.argsort(-t.sizes, kind="stable").tolist()
    assert (
        plots.topic_words(t, topics=[1], names=["weather"])
        .texts[0]
        .get_text()
        .startswith("weather")
    )
    for bad in ([], [5], [-1]):
        with pytest.raises(InputError, match="topics"):
            plots.topic_words(t, topics=bad)


def test_jensen_shannon_and_scaling_are_those_of_the_books(rng):
    p = rng.dirichlet(np.full(30, 0.2), 6)
    p[0, :10] = 0
    p /= p.sum(axis=1, keepdims=True)
    want = [[jensenshannon(a, b, base=2) for b in p] for a in p]
    np.testing.assert_allclose(jensen_shannon(p), np.nan_to_num(want), atol=1e-7)
    flat = rng.standard_normal((7, 2))
    distances = np.linalg.norm(flat[:, None] - flat, axis=2)
    xy, kept = scaled(distances)
    assert kept == pytest.approx(1.0)
    np.testing.assert_allclose(np.linalg.norm(xy[:, None] - xy, axis=2), distances, atol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 3, 40])
def test_the_map_takes_any_number_of_topics(k):
    t = some_topics(k)
    ax = plots.topic_map(t)
    assert len(ax.collections[0].get_offsets()) == k
    sizes = ax.collections[0].get_sizes()
    large = sizes > sizes.min() * 1.001
    np.testing.assert_allclose(sizes[large] / sizes.max(), t.sizes[large] / t.sizes.max())
    ax.figure.savefig("/dev/null", format="png")
    assert f"{k} topics" in ax.get_title(loc="left")


def test_equal_topics_lie_on_one_another_and_words_do_not():
    counts = np.tile(np.arange(1.0, 13), (4, 1))
    ax = plots.topic_map(Topics(counts, np.ones(4), np.full(4, 0.25), WORDS))
    np.testing.assert_allclose(ax.collections[0].get_offsets(), 0, atol=1e-7)
    words = [t for t in ax.texts if ":" in t.get_text()]
    ax.figure.canvas.draw()
    boxes = [t.get_window_extent() for t in words]
    assert all(not a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_parts_are_taken_as_topics():
    p, sizes, names = distributions(Fitted([[1.0, 3.0], [2.0, 2.0]]))
    np.testing.assert_allclose(p, [[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_allclose(sizes, [0.5, 0.5])
    assert names.tolist() == [0, 1]
    assert distributions(Fitted([[0.0, 0.0], [1.0, 0.0]], ["a", "b"]))[2].tolist() == ["a", "b"]
    with pytest.raises(InputError, match="negative"):
        plots.topic_map(PCA(1).fit(np.eye(3)))
    with pytest.raises(InputError, match="fitted topic model"):
        plots.topic_words(3)


def test_perplexity_curve_marks_the_least(ax):
    plots.perplexity_curve([20, 5, 10], [800, 900, 700], ax, spread=[1, 1, 1])
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [5, 10, 20])
    np.testing.assert_array_equal(ax.collections[-1].get_offsets(), [[10, 700]])
    assert "700 at 10 topics" in ax.get_title(loc="left")
    assert plots.perplexity_curve([2, 20, 200], [3.0, 2.0, 1.0]).get_xscale() == "log"
    for bad in ([], [1.0], [[1.0, 2.0]]):
        with pytest.raises(InputError, match="perplexities"):
            plots.perplexity_curve([1, 2], bad)


def test_ellipses_hold_the_share_they_say(ax, rng):
    mean, covariance = np.array([1.0, -2.0]), np.array([[2.0, 0.9], [0.9, 0.7]])
    x = rng.multivariate_normal(mean, covariance, 20_000)
    plots.soft_clusters(
        x[:50], np.ones((50, 1)), ax, means=mean[None], covariances=covariance[None], weights=[1.0]
    )
    from matplotlib.path import Path

    for line, share in zip(ax.lines, (0.5, 0.9)):
        assert Path(line.get_xydata()).contains_points(x).mean() == pytest.approx(share, abs=0.015)
    assert ax.texts[0].get_text() == "1 · 100%"
    assert "100% of the rows" in ax.get_title(loc="left")


def test_soft_clusters_show_two_columns_and_doubt(ax):
    plots.soft_clusters(X, Q, ax, axes=(2, 0), names=["c", "a"], means=[[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), X[:, [2, 0]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("c", "a")
    colours = blended(Q)
    assert colours.shape == (3, 3)
    assert ((colours >= 0) & (colours <= 1)).all()
    grey = np.ptp(colours, axis=1)
    assert grey[1] < grey[0], "a row that belongs nowhere has no strong colour"
    with pytest.raises(InputError, match="axes"):
        plots.soft_clusters(X, Q, axes=(0, 3))
    with pytest.raises(InputError, match="posteriors"):
        plots.soft_clusters(X, Q[:2])


def test_responsibilities_are_ordered_by_component(ax):
    plots.responsibilities(Q[[2, 0, 1]], ax)
    np.testing.assert_array_equal(ax.images[0].get_array(), Q)
    labelled = plots.responsibilities(Q, labels=["b", "a", "b"])
    np.testing.assert_array_equal(labelled.images[0].get_array(), Q[[1, 0, 2]])
    assert [t.get_text() for t in labelled.get_yticklabels()] == ["a", "b"]
    many = plots.responsibilities(np.tile(Q, (500, 1)), most=100)
    assert many.images[0].get_array().shape == (100, 2)
    assert "100 of 1,500 rows" in many.get_title(loc="left")
    with pytest.raises(InputError, match="labels"):
        plots.responsibilities(Q, labels=["a"])
    with pytest.raises(InputError, match="posteriors"):
        plots.responsibilities([])


def test_pictures_leave_no_global_state():
    before = "matplotlib.pyplot" in sys.modules
    for draw in DRAW.values():
        draw(None)
    assert ("matplotlib.pyplot" in sys.modules) == before
