"""Pictures of topics: the words of each, how near they are to one another, and how many there
should be."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.decompositions import eigh
from eckart.errors import InputError, invalid
from eckart.plots.style import (
    BLUE,
    CENTRED,
    CLASSES,
    FAINT,
    INK,
    ORANGE,
    SOFT,
    new_axes,
    plain,
    words_at,
)

LEAST_RADIUS = 1.75
"""Of a circle, in typographic points."""


def topic_words(
    model: Any,
    ax: Any = None,
    *,
    topics: Any = None,
    words: int = 8,
    columns: int = 4,
    names: Any = None,
) -> Any:
    """The most probable words of each topic as ranked bars, topics by their share of all tokens; a
    bar is p(w|z), each panel on its own scale.

    ``model`` is a fitted topic model or its ``Topics``; ``topics`` (positions) shows some of them,
    by default the twelve largest; ``names`` are their titles.

    >>> from eckart.factors import Topics
    >>> t = Topics(np.array([[3.0, 1.0], [1.0, 4.0]]), np.ones(2), np.array([0.4, 0.6]), np.array(["cat", "dog"], object))
    >>> [text.get_text() for text in topic_words(t, words=1).texts]
    ['topic 2 · 60%', 'dog', 'topic 1 · 40%', 'cat']
    """
    p, sizes, labels = distributions(model)
    shown = (
        np.argsort(-sizes, kind="stable")[:12]
        if topics is None
        else np.atleast_1d(np.asarray(topics, int))
    )
    if not len(shown) or shown.min() < 0 or shown.max() >= len(p):
        raise invalid("topics", topics, f"positions of 0 to {len(p) - 1}")
    words = min(words, p.shape[1])
    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    ax = new_axes(ax, (2.7 * columns, (0.24 * words + 0.55) * rows))
    height, width = words + 2.2, 1.22
    for i, z in enumerate(shown):
        r, c = divmod(i, columns)
        top = np.argsort(-p[z], kind="stable")[:words]
        value = p[z, top] / (p[z, top[0]] or 1.0)
        left, y = c * width, -(r * height + 1.1 + np.arange(words))
        ax.barh(y, value, left=left, height=0.8, color=FAINT, zorder=1)
        ax.barh(
            y,
            np.full(words, 0.012),
            left=left,
            height=0.8,
            color=CLASSES[i % len(CLASSES)],
            zorder=2,
        )
        title = f"topic {z + 1}" if names is None else str(names[i])
        ax.text(
            left,
            -(r * height) + 0.05,
            f"{title} · {_share(sizes[z])}",
            fontsize=9,
            weight="bold",
            color=INK,
            va="center",
        )
        for word, place in zip(labels[top], y):
            ax.text(
                left + 0.04,
                place,
                _short(word),
                fontsize=8.5,
                color=INK,
                va="center",
                clip_on=True,
                zorder=3,
            )
    ax.set_xlim(-0.02, columns * width - 0.1)
    ax.set_ylim(-(rows * height) + 0.6, 0.8)
    ax.set_axis_off()
    return ax


def topic_map(model: Any, ax: Any = None, *, words: int = 3, labels: bool = True) -> Any:
    """Topics in the plane: the area of a circle is the topic's share of all tokens, distances are
    those of the word distributions, as well as a plane can.

    Positions come from classical scaling of Jensen-Shannon distances. The share of their squares
    that the plane keeps stands in the title.
    """
    p, sizes, names = distributions(model)
    xy, kept = scaled(jensen_shannon(p))
    ax = new_axes(ax, (7, 5.4))
    ax.set_xticks([])
    ax.set_yticks([])
    plain(ax, f"{len(p)} topics; the plane keeps {kept:.0%} of their distances")
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    radius = np.maximum(_fit_to_axes(ax, xy) * np.sqrt(sizes / (sizes.max() or 1.0)), LEAST_RADIUS)
    drawn = ax.scatter(
        xy[:, 0],
        xy[:, 1],
        s=(2 * radius) ** 2,
        color=BLUE,
        alpha=0.35,
        linewidths=1.2,
        edgecolors=BLUE,
    )
    first = np.argsort(-p, axis=1, kind="stable")[:, :5]
    drawn.eckart_names = [
        f"{z + 1} ({', '.join(names[t])})" for z, t in enumerate(first)
    ]  # a report shows them where one points
    ax.axhline(0, color=FAINT, linewidth=1, zorder=0)
    ax.axvline(0, color=FAINT, linewidth=1, zorder=0)
    for z, (x, y) in enumerate(xy):
        number = ax.text(
            x,
            y,
            str(z + 1),
            ha="center",
            va="center",
            fontsize=9,
            color=INK,
            weight="bold",
            zorder=4,
        )
        number.set_in_layout(False)
    if labels:
        top = np.argsort(-p, axis=1, kind="stable")[:, :words]
        said = [
            f"{z + 1}: " + ", ".join(_short(w, 14) for w in names[t]) for z, t in enumerate(top)
        ]
        _write_labels(ax, xy, radius, said, sizes)
    return ax


def perplexity_curve(
    ks: Any, perplexities: Any, ax: Any = None, *, coherence: Any = None, spread: Any = None
) -> Any:
    """Perplexity of held-out words against the number of topics; the least is marked. ``coherence``
    is drawn beside it, on an axis of its own."""
    ks, values = np.asarray(ks, float), np.asarray(perplexities, float)
    if values.ndim != 1 or not len(values) or ks.shape != values.shape:
        raise invalid(
            "perplexities",
            f"an array of shape {values.shape}",
            f"one number for each of the {ks.size} ks",
        )
    order = np.argsort(ks, kind="stable")
    ks, values = ks[order], values[order]
    ax = new_axes(ax)
    bars = None if spread is None else np.asarray(spread, float)[order]
    ax.errorbar(
        ks,
        values,
        yerr=bars,
        color=BLUE,
        marker="o",
        markersize=4,
        linewidth=1.5,
        capsize=2,
        zorder=2,
    )
    best = int(np.argmin(values))
    ax.scatter(
        [ks[best]],
        [values[best]],
        s=70,
        facecolors="none",
        edgecolors=ORANGE,
        linewidths=2,
        zorder=3,
    )
    ax.margins(y=0.12)
    if len(ks) > 2 and ks.min() > 0 and ks.max() > 15 * ks.min():
        ax.set_xscale("log")
    if len(ks) <= 10:
        ax.set_xticks(ks, [f"{k:g}" for k in ks], minor=False)
        ax.set_xticks([], minor=True)
    plain(
        ax,
        f"Least perplexity {values[best]:.4g} at {ks[best]:g} topics",
        "topics",
        "perplexity of held-out words",
    )
    if coherence is not None:
        other = ax.twinx()
        other.plot(
            ks,
            np.asarray(coherence, float)[order],
            color=SOFT,
            marker="s",
            markersize=3.5,
            linewidth=1.2,
            linestyle="--",
        )
        other.set_ylabel("coherence (NPMI), dashed", color=SOFT)
        other.tick_params(colors=SOFT, labelsize=9)
        other.margins(y=0.12)
        for side in ("top", "left", "bottom"):
            other.spines[side].set_visible(False)
        other.spines["right"].set_color(FAINT)
    return ax


def distributions(model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p(w|z) as k x n, the share of each topic, and the words, of a topic model, its Topics, or
    non-negative parts (rows scaled to sum to 1)."""
    factors = model.fit_.factors if hasattr(model, "fit_") else model
    if hasattr(factors, "words") and hasattr(factors, "sizes"):
        p, sizes = np.asarray(factors.words, float), np.asarray(factors.sizes, float)
    elif hasattr(model, "components_"):
        h = np.asarray(model.components_, float)
        if (h < 0).any():
            raise InputError(
                "components_ must be those of a topic model or non-negative parts, got negative "
                "numbers"
            )
        weight = h.sum(axis=1)
        p = h / np.where(weight > 0, weight, 1.0)[:, None]
        left = getattr(factors, "left", None)
        sizes = weight * (1.0 if left is None else np.asarray(left, float).sum(axis=0))
        sizes = sizes / (sizes.sum() or 1.0)
    else:
        raise InputError(f"the model must be a fitted topic model, got a {type(model).__name__}")
    names = getattr(factors, "columns", None)
    return (
        p,
        sizes,
        np.arange(p.shape[1]).astype(object) if names is None else np.asarray(names, object),
    )


def jensen_shannon(p: np.ndarray) -> np.ndarray:
    """Distances sqrt(JS) between the rows of p, JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 in
    bits; a metric with values of 0 to 1.

    >>> jensen_shannon(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    p = np.asarray(p, float)
    own = _entropy(p)
    out = np.zeros((len(p), len(p)))
    for z in range(len(p) - 1):
        out[z, z + 1 :] = _entropy((p[z] + p[z + 1 :]) / 2) - (own[z] + own[z + 1 :]) / 2
    return np.sqrt(np.clip(out + out.T, 0, 1))


def scaled(distances: np.ndarray) -> tuple[np.ndarray, float]:
    """Classical scaling: two coordinates for each point, and the share of the squared distances
    from the centre that they keep.

    The doubly centred matrix of -d^2 / 2 is a Gram matrix; its two leading eigenvectors, scaled by
    roots of the (clipped) eigenvalues, are real always.
    """
    k = len(distances)
    centred = -0.5 * distances**2
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None] + centred.mean()
    values, vectors = eigh(centred)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    signs = np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(k)] < 0, -1.0, 1.0)
    xy = (vectors * signs * np.sqrt(values))[:, :2]
    return np.pad(xy, ((0, 0), (0, 2 - xy.shape[1]))), float(
        values[:2].sum() / (values.sum() or 1.0)
    )


def _entropy(p: np.ndarray) -> np.ndarray:
    return -np.sum(p * np.log2(np.where(p > 0, p, 1.0)), axis=-1)


def _fit_to_axes(ax: Any, xy: np.ndarray) -> float:
    """Limits of equal scale in which the largest circle and a line of words find room around every
    point; its radius in typographic points."""
    ax.figure.canvas.draw()
    frame = ax.get_window_extent()
    width, height = (side * 72 / ax.figure.dpi for side in (frame.width, frame.height))
    largest = 0.07 * min(width, height)
    low, high = xy.min(axis=0), xy.max(axis=0)
    room = np.maximum([width - 4 * largest, height - 2 * largest - 40], 20.0)
    scale = float(np.min(room / np.maximum(high - low, 1e-3)))
    for centre, size, limit in zip((low + high) / 2, (width, height), (ax.set_xlim, ax.set_ylim)):
        limit(centre - size / scale / 2, centre + size / scale / 2)
    ax.set_aspect("equal", adjustable="box")
    return largest


def _write_labels(
    ax: Any, xy: np.ndarray, radius: np.ndarray, words: list[str], sizes: np.ndarray
) -> None:
    """Words under or over the circles, the largest topics first; words without room are left
    out."""
    place = ax.transData.transform
    unit = ax.figure.dpi / 72
    frame = ax.get_window_extent()
    centres = place(xy)
    half = radius * unit
    taken = [(x - h, y - h, x + h, y + h) for (x, y), h in zip(centres, np.minimum(half, 9 * unit))]
    for z in np.argsort(-sizes, kind="stable"):
        x, y = centres[z]
        wide, tall = 4.3 * len(words[z]) * unit / 2, 10 * unit
        for dx, dy in ((0, -1), (0, 1), (1, 0), (-1, 0), (0, -1.8), (0, 1.8), (0, -2.6), (0, 2.6)):
            cx = x + dx * (half[z] + wide + 3 * unit)
            cy = y + dy * (half[z] + tall / 2 + 1 * unit)
            box = (cx - wide, cy - tall / 2, cx + wide, cy + tall / 2)
            inside = (
                box[0] >= frame.x0
                and box[2] <= frame.x1
                and box[1] >= frame.y0
                and box[3] <= frame.y1
            )
            if inside and all(
                box[0] > b[2] or box[2] < b[0] or box[1] > b[3] or box[3] < b[1] for b in taken
            ):
                taken.append(box)
                moved = (cx - x) / unit, (cy - y) / unit
                words_at(
                    ax, words[z], xy[z], moved, **CENTRED, annotation_clip=False, zorder=5
                ).set_in_layout(False)
                break


def _share(value: float) -> str:
    return f"{value:.0%}" if value >= 0.0995 else f"{value:.1%}"


def _short(word: Any, most: int = 22) -> str:
    text = str(word)
    return text if len(text) <= most else text[: most - 1] + "…"
