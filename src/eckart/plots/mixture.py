"""Pictures of a mixture: soft clusters with their ellipses, and who belongs where."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.decompositions import eigh
from eckart.errors import InputError, invalid
from eckart.plots.style import CENTRED, CLASSES, FAINT, INK, SOFT, TAG, new_axes, plain, words_at

LEVELS = (0.5, 0.9)
"""Shares of a component that its ellipses hold."""


def soft_clusters(
    x: Any,
    posteriors: Any,
    ax: Any = None,
    *,
    means: Any = None,
    covariances: Any = None,
    axes: tuple[int, int] = (0, 1),
    names: Any = None,
    weights: Any = None,
) -> Any:
    """Rows on two columns of ``x``, each in the mixture of its components' colours by its
    posteriors; the paler, the less certain.

    With ``means`` (k x n) and ``covariances`` (k x n x n, of the same columns) each component is
    drawn as the ellipses that hold half and 90 % of it. ``names`` are the names of the two columns,
    ``weights`` the components' shares, written at their means.

    >>> ax = soft_clusters([[0.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [0.5, 0.5]])
    >>> len(ax.collections[0].get_offsets())
    2
    """
    x, q = np.asarray(x, float), np.asarray(posteriors, float)
    i, j = axes
    if x.ndim != 2 or min(i, j) < 0 or max(i, j) >= x.shape[1]:
        raise InputError(
            f"rows must have at least {max(i, j) + 1} columns for axes {axes}, got shape {x.shape}"
        )
    if q.ndim != 2 or len(q) != len(x):
        raise invalid(
            "posteriors", f"an array of shape {q.shape}", f"{len(x)} rows, one for each row of x"
        )
    ax = new_axes(ax, (6.4, 5.2))
    size = float(np.clip(14000 / max(len(x), 1), 5, 32))
    ax.scatter(x[:, i], x[:, j], s=size, c=blended(q), linewidths=0, alpha=0.8, zorder=2)
    if means is not None:
        centres = np.asarray(means, float)[:, [i, j]]
        if covariances is not None:
            for z, c in enumerate(np.asarray(covariances, float)[:, [i, j]][:, :, [i, j]]):
                _ellipses(ax, centres[z], c, CLASSES[z % len(CLASSES)])
        for z, centre in enumerate(centres):
            words = str(z + 1) if weights is None else f"{z + 1} · {weights[z]:.0%}"
            colour = CLASSES[z % len(CLASSES)]
            words_at(
                ax,
                words,
                centre,
                **CENTRED,
                fontsize=9,
                weight="bold",
                color=colour,
                bbox=TAG,
                zorder=4,
            )
    certain = float(np.mean(q.max(axis=1) > 0.9)) if len(q) else 0.0
    words = [str(names[n]) if names is not None else f"column {a + 1}" for n, a in enumerate(axes)]
    return plain(
        ax,
        f"{q.shape[1]} components; {certain:.0%} of the rows belong to one with more than 90%",
        *words,
    )


def responsibilities(
    posteriors: Any, ax: Any = None, *, labels: Any = None, most: int = 400
) -> Any:
    """Posteriors as a heat map: a column for each component, rows ordered by their component and
    certainty; white is 0, dark is 1.

    ``labels`` (one a row) draws a line where they change and names them, with rows ordered by label
    first.
    """
    q = np.asarray(posteriors, float)
    if q.ndim != 2 or not q.size:
        raise invalid("posteriors", f"an array of shape {q.shape}", "rows x components")
    if labels is not None and len(labels) != len(q):
        raise invalid("labels", f"{len(labels)} labels", f"{len(q)}, one for each row")
    best = q.argmax(axis=1)
    given = None if labels is None else np.asarray([str(v) for v in labels], object)
    kinds = (
        np.zeros(len(q), int)
        if given is None
        else np.unique(given.astype(str), return_inverse=True)[1]
    )
    order = np.lexsort((-q.max(axis=1), best, kinds))
    order = order[np.unique(np.linspace(0, len(order) - 1, min(most, len(order))).astype(int))]
    ax = new_axes(ax, (1.6 + 0.5 * min(q.shape[1], 16), 5.0))
    image = ax.imshow(
        q[order], aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest"
    )
    step = -(-q.shape[1] // 16)
    ax.set_xticks(range(0, q.shape[1], step), [str(z + 1) for z in range(0, q.shape[1], step)])
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.6, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=SOFT, labelcolor=INK)
    if given is None:
        ax.set_yticks([])
    else:
        groups = kinds[order]
        edges = np.flatnonzero(np.diff(groups)) + 0.5
        for edge in edges:
            ax.axhline(edge, color=INK, linewidth=0.8)
        bounds = np.concatenate([[-0.5], edges, [len(order) - 0.5]])
        ax.set_yticks(
            (bounds[1:] + bounds[:-1]) / 2, [given[order[int(b + 0.5)]] for b in bounds[:-1]]
        )
    shown = "" if len(order) == len(q) else f" ({len(order)} of {len(q):,} rows)"
    plain(ax, f"Posteriors{shown}", "component", "" if given is not None else "rows, by component")
    for spine in ax.spines.values():
        spine.set_color(FAINT)
    ax.tick_params(length=0)
    return ax


def blended(posteriors: np.ndarray) -> np.ndarray:
    """One colour for each row: the average of the components' colours, weighted by its posteriors,
    and paler where none of them is sure.

    >>> blended(np.array([[1.0, 0.0]])).round(2).tolist()
    [[0.17, 0.42, 0.69]]
    """
    from matplotlib.colors import to_rgb

    q = np.clip(np.asarray(posteriors, float), 0, 1)
    palette = np.array([to_rgb(CLASSES[z % len(CLASSES)]) for z in range(q.shape[1])])
    total = q.sum(axis=1, keepdims=True)
    colour = (q / np.where(total > 0, total, 1.0)) @ palette
    even = 1.0 / max(q.shape[1], 2)
    doubt = (1.0 - np.clip((q.max(axis=1, initial=0) - even) / (1.0 - even), 0, 1))[:, None]
    return np.clip(colour + 0.55 * doubt * (0.82 - colour), 0, 1)


def _ellipses(ax: Any, centre: np.ndarray, covariance: np.ndarray, colour: str) -> None:
    """The ellipses that hold a share of a normal distribution: (x - m)^T C^-1 (x - m) = -2 log(1 -
    share)."""
    values, vectors = eigh((covariance + covariance.T) / 2)
    turn = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    for share in LEVELS:
        edge = vectors @ (
            np.sqrt(np.clip(values, 0, None) * -2 * np.log1p(-share))[:, None] * circle
        )
        ax.plot(
            *(centre[:, None] + edge),
            color=colour,
            linewidth=1.3,
            alpha=1.0 - 0.5 * share,
            zorder=3,
        )
