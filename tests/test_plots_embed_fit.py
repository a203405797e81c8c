"""Pictures of how vectors were fitted: axes in, axes out; points stand where formulas put them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import sparse

from eckart import PMI, GloVe, InputError, SkipGram, cooccurrence, plots

TEXT = ["the cat sat", "the dog sat", "a cat ran", "a dog ran", "a dog sat"] * 8
N = cooccurrence(TEXT, window=2)


@pytest.fixture(scope="module")
def skipgram():
    return SkipGram(2, negatives=3, max_iter=20, random_state=0).fit(N)


@pytest.fixture(scope="module")
def trained():
    return SkipGram(4, window=2, sample=None, max_iter=6, deterministic=True, random_state=0).fit(
        TEXT
    )


@pytest.fixture(scope="module")
def glove():
    return GloVe(2, n_max=5.0, power=0.5, random_state=0).fit(N)


@pytest.fixture
def ax():
    return Figure(figsize=(8, 6)).add_subplot()


def test_axes_in_axes_out(ax, skipgram, trained, glove):
    pmi = PMI(3, random_state=0).fit(N)
    drawings = {
        "plot_loss": lambda ax: plots.plot_loss(trained, ax),
        "plot_pmi_optimum": lambda ax: plots.plot_pmi_optimum(skipgram, N, ax),
        "plot_log_counts": lambda ax: plots.plot_log_counts(glove, N, ax),
        "plot_singular_values": lambda ax: plots.plot_singular_values(pmi, ax),
    }
    pyplot = "matplotlib.pyplot" in sys.modules
    for name, draw in drawings.items():
        assert name in plots.__all__
        assert draw(ax) is ax
        made = draw(None)
        assert made is not ax
        made.figure.savefig("/dev/null", format="png")
    assert ("matplotlib.pyplot" in sys.modules) == pyplot
    np.testing.assert_allclose(made.lines[0].get_ydata(), pmi.singular_values_)


def points(ax):
    return np.asarray(ax.collections[0].get_offsets())


def test_skip_gram_scores_stand_against_shifted_pmi(skipgram, ax):
    plots.plot_pmi_optimum(skipgram, N, ax)
    n, f = N.to_scipy().toarray(), skipgram.fit_.factors
    q = n.sum(axis=0) ** 0.75
    with np.errstate(divide="ignore"):
        best = np.log(n / (3 * n.sum(axis=1)[:, None] * q / q.sum()))
    score = f.vectors @ f.context.T
    wanted = np.column_stack([best[n > 0], score[n > 0]])
    found = points(ax)
    assert sorted(map(tuple, found.round(9).tolist())) == sorted(
        map(tuple, wanted.round(9).tolist())
    )
    far = np.sqrt(np.sum(n[n > 0] * (wanted[:, 0] - wanted[:, 1]) ** 2) / n.sum())
    assert f"{far:.2f} from PMI - log 3" in ax.get_title(loc="left")
    assert "0.75" in ax.get_xlabel()


def test_a_bias_is_part_of_the_score(ax):
    model = SkipGram(1, bias=True, max_iter=5, random_state=0).fit(N)
    f = model.fit_.factors
    plots.plot_pmi_optimum(model, N, ax)
    scores = (f.vectors @ f.context.T + f.context_bias)[N.to_scipy().toarray() > 0]
    np.testing.assert_allclose(np.sort(points(ax)[:, 1]), np.sort(scores), atol=1e-12)


def test_glove_scores_stand_against_log_counts(glove, ax):
    plots.plot_log_counts(glove, N, ax)
    n, f = N.to_scipy().toarray(), glove.fit_.factors
    score = f.vectors @ f.context.T + f.bias[:, None] + f.context_bias
    x, y, w = np.log(n[n > 0]), score[n > 0], np.minimum(1, (n[n > 0] / 5.0) ** 0.5)
    np.testing.assert_allclose(np.sort(points(ax)[:, 0]), np.sort(x), atol=1e-6)
    np.testing.assert_allclose(np.sort(points(ax)[:, 1]), np.sort(y), atol=1e-5)
    assert f"{np.sqrt(np.average((x - y) ** 2, weights=w)):.2f} from log counts" in ax.get_title(
        loc="left"
    )


def test_many_pairs_are_sampled_by_count_and_zeros_are_no_pairs(skipgram, ax):
    plots.plot_pmi_optimum(skipgram, N, ax, most=7)
    assert len(points(ax)) == 7
    held = N.to_scipy().tocoo()
    stored = sparse.csr_array(
        (np.append(held.data, 0.0), (np.append(held.row, 0), np.append(held.col, 0))), held.shape
    )
    other = Figure().add_subplot()
    plots.plot_pmi_optimum(skipgram, stored, other)
    assert len(points(other)) == (N.data > 0).sum()


def test_the_loss_has_its_bounds(trained, ax):
    plots.plot_loss(trained, ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), trained.fit_.trace.values)
    levels = [line.get_ydata()[0] for line in ax.lines[1:]]
    assert levels == [
        trained.certificate_["loss without vectors"],
        trained.certificate_["lower bound"],
    ]
    assert [t.get_text().rsplit(" ", 1)[0] for t in ax.texts] == [
        "loss without vectors",
        "lower bound",
    ]


def test_what_does_not_fit_is_refused(skipgram):
    with pytest.raises(
        InputError, match=f"must be co-occurrences of the model's {N.shape[0]} words"
    ):
        plots.plot_pmi_optimum(skipgram, sparse.eye_array(3, format="csr"))
    with pytest.raises(
        InputError, match=r"counts must be co-occurrences of the model's 6 words, got \(6, 6\)"
    ):
        plots.plot_pmi_optimum(skipgram, np.eye(N.shape[0]))
    model = SkipGram(2, random_state=0).fit(N)
    model.fit_.trace.values.clear()
    with pytest.raises(InputError, match="is empty"):
        plots.plot_loss(model)
