"""Pictures of word vectors: a map of words, and the neighbours of some words beside one another."""

from __future__ import annotations

from typing import Any
from unicodedata import east_asian_width

import numpy as np

from eckart.errors import invalid
from eckart.plots.style import BLUE, CENTRED, CLASSES, FAINT, INK, SOFT, new_axes, plain, words_at
from eckart.plots.topics import _short as short

LETTER, WIDE_LETTER, LINE = 5.1, 8.2, 10.5
"""Room that a label takes at 8 points, in typographic points."""
AROUND = ((0, 1), (0, -1), (1, 0), (-1, 0), (0.7, 1), (-0.7, 1), (0.7, -1), (-0.7, -1))
FURTHER = tuple(
    (x, y)
    for far in (2.6, 4.2)
    for x, y in ((0, far), (0, -far), (1, far - 1), (-1, far - 1), (1, 1 - far), (-1, 1 - far))
)
TIE = {"arrowstyle": "-", "color": SOFT, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}


def plot_map(
    vectors: Any, words: Any = None, ax: Any = None, *, n: int = 60, groups: Any = None
) -> Any:
    """Words in the plane of the two principal components of their unit vectors; words that mean
    alike lie close together, as well as a plane can show.

    ``vectors`` is a ``Vectors`` or a model with ``vectors_``; ``words`` are those to show, by
    default the ``n`` most frequent; ``groups`` gives each of them the name of a group, which
    colours it. Labels are set where they find room beside their point; a word without room keeps
    its point only.

    >>> from eckart import Vectors
    >>> v = Vectors(["tea", "milk", "king", "queen"], [[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.2, 1.0]])
    >>> sorted(text.get_text() for text in plot_map(v).texts)
    ['king', 'milk', 'queen', 'tea']
    """
    v = getattr(vectors, "vectors_", vectors)
    found = v.map(words, n=n)
    named = None if groups is None else [str(g) for g in groups]
    if named is not None and len(named) != len(found.words):
        raise invalid("groups", f"{len(named)} names", f"{len(found.words)}, one for each word")
    ax = new_axes(ax, (8, 6))
    kinds = [] if named is None else list(dict.fromkeys(named))
    colours = [
        BLUE if named is None else CLASSES[kinds.index(g) % len(CLASSES)]
        for g in named or found.words
    ]
    drawn = ax.scatter(found.xy[:, 0], found.xy[:, 1], s=14, c=colours, linewidths=0, zorder=2)
    drawn.eckart_names = [str(w) for w in found.words]  # a report shows them where one points
    ax.axhline(0, color=FAINT, linewidth=1, zorder=0)
    ax.axvline(0, color=FAINT, linewidth=1, zorder=0)
    ax.margins(0.08)
    ax.set_xticks([])
    ax.set_yticks([])
    plain(
        ax,
        f"{len(found.words):,} words; the plane keeps {found.kept:.0%} of the variance "
        "of their directions",
    )
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    for kind in kinds:
        ax.scatter([], [], s=14, color=CLASSES[kinds.index(kind) % len(CLASSES)], label=short(kind))
    if kinds:
        ax.legend(
            frameon=False, fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1, 1)
        )
    _label(ax, found.xy, [short(w) for w in found.words], INK if named is None else colours)
    return ax


def plot_neighbours(
    vectors: Any, words: Any, ax: Any = None, *, n: int = 8, columns: int = 4
) -> Any:
    """The nearest words of each word as ranked bars of their cosines, all on one scale.

    >>> from eckart import Vectors
    >>> v = Vectors(["tea", "milk", "king"], [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> [text.get_text() for text in plot_neighbours(v, "tea", n=1).texts]
    ['tea', 'milk', '0.80']
    """
    v = getattr(vectors, "vectors_", vectors)
    asked = [words] if isinstance(words, str) or not hasattr(words, "__iter__") else list(words)
    if not asked:
        raise invalid("words", words, "at least one word")
    found = v.neighbours(asked, n)
    most = max(1, max(len(row) for row in found))
    columns = min(columns, len(asked))
    rows = -(-len(asked) // columns)
    ax = new_axes(ax, (2.7 * columns, (0.24 * most + 0.55) * rows))
    height, width = most + 2.2, 1.22
    for i, (word, near) in enumerate(zip(asked, found)):
        r, c = divmod(i, columns)
        left, y = c * width, -(r * height + 1.1 + np.arange(len(near)))
        cosines = np.array([cosine for _, cosine in near])
        ax.barh(y, np.clip(cosines, 0, 1), left=left, height=0.8, color=FAINT, zorder=1)
        ax.barh(
            y,
            np.full(len(near), 0.012),
            left=left,
            height=0.8,
            color=CLASSES[i % len(CLASSES)],
            zorder=2,
        )
        ax.text(
            left,
            -(r * height) + 0.05,
            short(word),
            fontsize=9,
            weight="bold",
            color=INK,
            va="center",
        )
        for (name, cosine), place in zip(near, y):
            ax.text(
                left + 0.04,
                place,
                short(name),
                fontsize=8.5,
                color=INK,
                va="center",
                clip_on=True,
                zorder=3,
            )
            ax.text(
                left + 1.13,
                place,
                f"{cosine:.2f}",
                fontsize=7.5,
                color=SOFT,
                va="center",
                ha="right",
                zorder=3,
            )
    ax.set_xlim(-0.02, columns * width - 0.1)
    ax.set_ylim(-(rows * height) + 0.6, 0.8)
    ax.set_axis_off()
    return ax


def _label(ax: Any, xy: np.ndarray, words: list[str], colours: Any) -> None:
    """Each word at the first place around its point that is free of points and other words; one
    that stands off is tied to its point by a line."""
    ax.figure.canvas.draw()
    unit = ax.figure.dpi / 72
    frame = ax.get_window_extent()
    centres = ax.transData.transform(xy)
    dot = 2.2 * unit
    taken = np.column_stack([centres - dot, centres + dot])
    for i, word in enumerate(words):
        x, y = centres[i]
        wide, tall = _width(word) * unit / 2, LINE * unit / 2
        for step, (dx, dy) in enumerate(AROUND + FURTHER):
            cx, cy = x + dx * (wide + 1.6 * dot), y + dy * (tall + dot)
            box = np.array([cx - wide, cy - tall, cx + wide, cy + tall])
            if box[0] < frame.x0 or box[2] > frame.x1 or box[1] < frame.y0 or box[3] > frame.y1:
                continue
            apart = (
                (box[0] > taken[:, 2])
                | (box[2] < taken[:, 0])
                | (box[1] > taken[:, 3])
                | (box[3] < taken[:, 1])
            )
            apart[i] = True
            if apart.all():
                taken = np.vstack([taken, box])
                moved = (cx - x) / unit, (cy - y) / unit
                how = {
                    "color": colours if isinstance(colours, str) else colours[i],
                    "arrowprops": None if step < len(AROUND) else TIE,
                }
                words_at(
                    ax, word, xy[i], moved, **CENTRED, **how, annotation_clip=False, zorder=3
                ).set_in_layout(False)
                break


def _width(word: str) -> float:
    """Typographic points that a word takes; Chinese characters and the like are wide."""
    return sum(WIDE_LETTER if east_asian_width(letter) in "WF" else LETTER for letter in word)
