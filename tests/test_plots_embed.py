"""Pictures of vectors: the axes that come in go out, words stand where their vectors are, labels do
not lie on one another."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from eckart import InputError, Vectors, plots


def some(n=80, k=10, seed=0):
    x = np.random.default_rng(seed).standard_normal((n, k))
    return Vectors([f"word{i}" for i in range(n)], x, counts=np.arange(n)[::-1])


@pytest.fixture
def ax():
    return Figure(figsize=(8, 6)).add_subplot()


DRAW = {
    "plot_map": lambda ax: plots.plot_map(some(), ax=ax),
    "plot_neighbours": lambda ax: plots.plot_neighbours(some(), ["word1", "word7"], ax),
}


@pytest.mark.parametrize("name", DRAW)
def test_axes_in_axes_out(ax, name):
    assert name in plots.__all__
    assert DRAW[name](ax) is ax
    ax.figure.savefig("/dev/null", format="png")
    made = DRAW[name](None)
    assert made is not ax
    made.figure.savefig("/dev/null", format="png")


def test_the_map_shows_the_principal_plane(ax):
    v = some()
    plots.plot_map(v, n=30, ax=ax)
    m = v.map(n=30)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), m.xy)
    assert f"30 words; the plane keeps {m.kept:.0%}" in ax.get_title(loc="left")
    said = {t.get_text(): t.xy for t in ax.texts}
    for word, place in zip(m.words, m.xy):
        if word in said:
            np.testing.assert_allclose(said[word], place)
    assert len(said) > 20


@pytest.mark.parametrize("n", [10, 60, 300])
def test_labels_do_not_lie_on_one_another(n):
    ax = plots.plot_map(some(n), n=n)
    renderer = ax.figure.canvas.get_renderer()
    boxes = []
    for text in ax.texts:
        text.update_positions(renderer)
        # the word, without the line that ties it to its point
        boxes.append(Text.get_window_extent(text, renderer))
    assert len(boxes) >= min(n, 20) - 2
    overlaps = sum(
        min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
        for i, a in enumerate(boxes)
        for b in boxes[:i]
    )
    assert overlaps <= 0.02 * len(boxes)


def test_chosen_words_groups_and_models(ax):
    v = some()
    words = ["word3", "word5", "word8", "word9"]
    plots.plot_map(v, words, ax, groups=["a", "b", "a", "b"])
    colours = ax.collections[0].get_facecolors()
    assert (colours[0] == colours[2]).all()
    assert (colours[0] != colours[1]).any()
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]
    model = type("Model", (), {"vectors_": v})()
    assert len(plots.plot_map(model, words).texts) == 4
    with pytest.raises(InputError, match="groups must be 4, one for each word, got '1 names'"):
        plots.plot_map(v, words, groups=["a"])
    with pytest.raises(InputError, match="'none'"):
        plots.plot_map(v, ["none", "word1"])


def test_neighbours_are_written_with_their_cosines(ax):
    v = some()
    plots.plot_neighbours(v, ["word1", "word7"], ax, n=3)
    said = [t.get_text() for t in ax.texts]
    wanted = []
    for word in ("word1", "word7"):
        wanted.append(word)
        for name, cosine in v.neighbours(word, 3):
            wanted += [name, f"{cosine:.2f}"]
    assert said == wanted
    with pytest.raises(InputError, match="at least one word"):
        plots.plot_neighbours(v, [])


def test_pictures_leave_no_global_state():
    before = "matplotlib.pyplot" in sys.modules
    for draw in DRAW.values():
        draw(None)
    assert ("matplotlib.pyplot" in sys.modules) == before
