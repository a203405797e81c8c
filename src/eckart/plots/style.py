"""Colours and the small things that every picture shares.

Figures that a notebook shows: axes and figures of matplotlib that know how to be a picture.
Imported when a figure is drawn.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK, SOFT, FAINT = "#1f2933", "#7b8794", "#e4e7eb"
BLUE, ORANGE, RED = "#2b6cb0", "#dd6b20", "#c53030"
CLASSES = (
    "#2b6cb0",
    "#dd6b20",
    "#2f855a",
    "#c53030",
    "#6b46c1",
    "#97266d",
    "#0987a0",
    "#b7791f",
    "#4a5568",
    "#d53f8c",
)

CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
TAG = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
"""A white box behind words on points."""


def new_axes(ax: Any = None, size: tuple[float, float] = (6.0, 4.0)) -> Any:
    """The given axes, or those of a new figure that no global state knows; a notebook shows them
    where they are the value of a cell."""
    if ax is not None:
        return ax
    from eckart.plots.style import ShownAxes, ShownFigure

    return ShownFigure(figsize=size, layout="constrained").add_subplot(axes_class=ShownAxes)


def plain(ax: Any, title: str = "", x: str = "", y: str = "") -> Any:
    """Title and labels; no box, light ticks."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(SOFT)
    ax.tick_params(colors=SOFT, labelcolor=INK, labelsize=9)
    ax.set_title(title, loc="left", fontsize=11, color=INK)
    ax.set_xlabel(x, color=INK)
    ax.set_ylabel(y, color=INK)
    return ax


def words_at(
    ax: Any, words: str, at: Any, offset: tuple[float, float] | None = None, **how: Any
) -> Any:
    """Small words at a place, or ``offset`` points from it; ``how`` as for matplotlib's
    ``annotate``."""
    moved = {} if offset is None else {"xytext": offset, "textcoords": "offset points"}
    return ax.annotate(words, at, **{"fontsize": 8, "color": INK} | moved | how)


def montage(tiles: np.ndarray, columns: int, gap: int = 1) -> np.ndarray:
    """Tiles (count x h x w x 3) laid out in rows of ``columns``, on white."""
    count, h, w, _ = tiles.shape
    rows = -(-count // columns)
    sheet = np.ones((rows * (h + gap) + gap, columns * (w + gap) + gap, 3))
    for i, tile in enumerate(tiles):
        r, c = divmod(i, columns)
        sheet[
            gap + r * (h + gap) : gap + r * (h + gap) + h,
            gap + c * (w + gap) : gap + c * (w + gap) + w,
        ] = tile
    return sheet


def coloured(images: np.ndarray, cmap: str, low: Any = None, high: Any = None) -> np.ndarray:
    """Images (count x h x w) as RGB through a colour map; each on its own range unless low and high
    are given."""
    import matplotlib

    flat = images.reshape(len(images), int(np.prod(images.shape[1:])))
    low = flat.min(axis=1) if low is None else np.broadcast_to(low, len(images))
    high = flat.max(axis=1) if high is None else np.broadcast_to(high, len(images))
    span = np.where(high > low, high - low, 1.0)
    unit = (images - low[:, None, None]) / span[:, None, None]
    return matplotlib.colormaps[cmap](np.clip(unit, 0, 1))[..., :3]


class ShownFigure(Figure):
    """A figure that no global state knows, which a notebook shows where it is the value of a
    cell."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.savefig(out, format="png")
        return out.getvalue()


class ShownAxes(Axes):
    """Axes that a notebook shows as their figure."""

    def _repr_png_(self) -> bytes:
        figure: Any = self.figure
        return bytes(figure._repr_png_())
