"""Pictures of how word vectors were fitted: the loss of each pass, scores beside what they should
be, singular values."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.matrix import Counts
from eckart.plots.style import BLUE, ORANGE, SOFT, new_axes, plain, words_at

MOST_PAIRS = 4000
"""Pairs that are drawn, at most: a sample in which a pair is as probable as its count is large."""


def plot_loss(model: Any, ax: Any = None) -> Any:
    """The mean loss of a pair in each pass, with the loss without vectors and the lower bound for
    vectors of any length, where the certificate has them.

    ``model`` is a fitted model. A pass measures some of its windows, each just before its own step.
    At a high rate vectors remember what they have just met, so the loss of a pass may lie below the
    certificate's, and may rise while the rate falls.
    """
    trace, facts = model.fit_.trace, model.certificate_.facts
    values = np.asarray(trace.values, float)
    if not len(values):
        raise InputError(
            f"the model must be one that was fitted in passes, got a {type(model).__name__} "
            "whose trace is empty"
        )
    ax = new_axes(ax)
    steps = np.arange(1, len(values) + 1)
    ax.plot(
        steps,
        values,
        color=BLUE,
        marker="o",
        markersize=4 if len(values) < 60 else 0,
        linewidth=1.5,
        zorder=3,
    )
    for name, colour in (("loss without vectors", SOFT), ("lower bound", ORANGE)):
        if name in facts:
            ax.axhline(facts[name], color=colour, linewidth=1.2, linestyle="--", zorder=1)
            words_at(
                ax,
                f"{name} {facts[name]:.4g}",
                (1, facts[name]),
                (0, 3),
                xycoords=("axes fraction", "data"),
                ha="right",
            )
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.margins(y=0.12)
    return plain(
        ax,
        f"{trace.quantity.capitalize()}: {values[-1]:.4g} in the end",
        "pass or step",
        trace.quantity,
    )


def plot_pmi_optimum(
    model: Any, counts: Any, ax: Any = None, *, most: int = MOST_PAIRS, random_state: int = 0
) -> Any:
    """Scores of pairs <zeta_w, z_v> + b_v of a fitted ``SkipGram`` against their optimum log N_wv /
    (r N_w q_v): PMI - log r where q are the words' shares.

    ``counts`` are co-occurrences n x n in the order of the model's words (``eckart.cooccurrence``,
    for a window of random length with ``weighting="linear"``). The title has the root mean square
    distance, pairs weighed by their counts. Vectors as long as the vocabulary can lie on the line;
    shorter ones do as well as they can, frequent pairs first.

    >>> from scipy import sparse
    >>> from eckart import SkipGram
    >>> n = sparse.csr_array([[4.0, 2.0], [2.0, 1.0]])
    >>> model = SkipGram(2, negatives=1, noise_exponent=1.0, random_state=0).fit(n)
    >>> plot_pmi_optimum(model, n).get_title(loc="left")
    'Scores of pairs, 0.00 from PMI - log 1'
    """
    n, f = _counts(counts, model), model.fit_.factors
    noise = np.asarray(f.counts, float) ** float(model.noise_exponent) * (np.asarray(f.counts) > 0)
    best = optimum(n, noise / noise.sum(), float(model.negatives))
    ax = new_axes(ax, (5.8, 4.6))
    far = _on_a_line(ax, n, best, f.scores(_rows(n), n.indices), n.data, most, random_state)
    what = f"PMI - log {model.negatives:g}"
    smooth = (
        ""
        if float(model.noise_exponent) == 1.0
        else f" (noise: counts to the {model.noise_exponent:g})"
    )
    return plain(
        ax,
        f"Scores of pairs, {far:.2f} from {what}",
        f"{what} of a pair{smooth}",
        "score of the pair",
    )


def plot_log_counts(
    model: Any, counts: Any, ax: Any = None, *, most: int = MOST_PAIRS, random_state: int = 0
) -> Any:
    """Scores <zeta_w, z_v> + b_w + c_v of a fitted ``GloVe`` against log N_wv, over pairs that were
    seen; what is off the line is the residual.

    Pairs are drawn by their weight in the objective, so what is seen is what was minimised; the
    title has the root of the weighted mean square residual. ``counts`` are the co-occurrences of
    the fit.

    >>> from eckart import GloVe, cooccurrence
    >>> n = cooccurrence(["the cat sat", "the dog sat", "a cat ran", "a dog ran"] * 5, window=2)
    >>> plot_log_counts(GloVe(2, random_state=0).fit(n), n).get_xlabel()
    'log of a count'
    """
    n, f = _counts(counts, model), model.fit_.factors
    weight = np.minimum(1.0, (n.data / float(model.n_max)) ** float(model.power))
    ax = new_axes(ax, (5.8, 4.6))
    far = _on_a_line(
        ax, n, np.log(n.data), f.scores(_rows(n), n.indices), weight, most, random_state
    )
    return plain(
        ax, f"Scores of pairs, {far:.2f} from log counts", "log of a count", "score of the pair"
    )


def plot_singular_values(model: Any, ax: Any = None) -> Any:
    """The singular values of a fitted ``PMI``, the largest first; the share of the squares of the
    whole matrix that they hold stands in the title.

    >>> from eckart import PMI
    >>> model = PMI(2, window=2, random_state=0).fit(["the cat sat", "the dog sat", "a cat ran", "a dog ran"] * 5)
    >>> len(plot_singular_values(model).lines[0].get_xdata())
    2
    """
    values = np.asarray(model.singular_values_, float)
    ax = new_axes(ax)
    ax.plot(
        np.arange(1, len(values) + 1), values, color=BLUE, marker="o", markersize=3, linewidth=1.3
    )
    ax.set_ylim(0, 1.08 * (values.max(initial=0.0) or 1.0))
    ax.xaxis.get_major_locator().set_params(integer=True)
    share = model.certificate_.facts.get("share of the squares captured")
    said = "" if share is None else f": {share:.0%} of the squares of the PMI matrix"
    return plain(ax, f"{len(values)} singular values{said}", "component", "singular value")


def optimum(n: Counts, noise: np.ndarray, negatives: float) -> np.ndarray:
    """log N_wv / (r N_w q_v) at the pairs that were seen.

    >>> from scipy import sparse
    >>> n = Counts.from_scipy(sparse.csr_array([[4.0, 2.0], [2.0, 1.0]]))
    >>> optimum(n, np.array([2.0, 1.0]) / 3, 1.0).round(6).tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    total = np.asarray(n.to_scipy().sum(axis=1), float).ravel()
    return np.log(n.data) - np.log(negatives * total[_rows(n)] * noise[n.indices])


def _counts(counts: Any, model: Any) -> Counts:
    """The pairs that were seen."""
    n = Counts.from_scipy(counts) if hasattr(counts, "tocsr") else counts
    if not isinstance(n, Counts) or n.shape != (model.fit_.factors.n,) * 2:
        came = getattr(n, "shape", type(n).__name__)
        raise InputError(
            f"counts must be co-occurrences of the model's {model.fit_.factors.n} words, got {came}"
        )
    if (n.data > 0).all():
        return n
    csr = n.to_scipy().copy()
    csr.eliminate_zeros()
    return Counts.from_scipy(csr, n.rows, n.columns)


def _rows(n: Counts) -> np.ndarray:
    return np.repeat(np.arange(n.shape[0]), np.diff(n.indptr))


def _on_a_line(
    ax: Any, n: Counts, x: np.ndarray, y: np.ndarray, weight: np.ndarray, most: int, seed: int
) -> float:
    """Pairs as points, dark where they are frequent, and the line y = x; returns the weighted root
    mean square distance of all pairs."""
    share = weight / weight.sum()
    far = float(np.sqrt(share @ (x - y) ** 2))
    at = np.arange(len(x))
    if len(x) > most:
        at = np.random.default_rng(seed).choice(len(x), most, replace=False, p=share)
    at = at[np.argsort(n.data[at], kind="stable")]
    drawn = ax.scatter(
        x[at],
        y[at],
        s=10,
        c=np.log10(n.data[at]),
        cmap="viridis_r",
        linewidths=0,
        alpha=0.7,
        zorder=2,
    )
    low, high = (
        float(edge(v[at])) for v, edge in ((np.minimum(x, y), np.min), (np.maximum(x, y), np.max))
    )
    pad = 0.04 * (high - low or 1.0)
    ax.plot([low - pad, high + pad], [low - pad, high + pad], color=ORANGE, linewidth=1.2, zorder=3)
    ax.set_xlim(low - pad, high + pad)
    ax.set_ylim(low - pad, high + pad)
    ax.set_aspect("equal", adjustable="box")
    bar = ax.figure.colorbar(drawn, ax=ax, shrink=0.7, label="log10 of the count")
    bar.outline.set_visible(False)
    bar.solids.set_alpha(1)
    return far
