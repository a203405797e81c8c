"""Figures that a notebook shows: axes and figures of matplotlib that know how to be a picture.
Imported when a figure is drawn."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


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
