"""The page of a non-negative factorization: its parts, as images or as lists of columns, and rows
made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart import plots
from eckart.matrix import Counts, Matrix
from eckart.plots.style import coloured, montage, new_axes
from eckart.report.html import Report
from eckart.report.tables import Excerpts, row_name, some_rows, texts_at

LISTED, EXAMPLES = 10, 2


def parts_page(
    model: Any,
    x: Matrix,
    title: str,
    image: tuple[int, int] | None = None,
    excerpts: Excerpts = None,
) -> Report:
    """All but the evidence."""
    h = np.asarray(model.components_, float)
    page = Report(
        title,
        f"{x.shape[0]:,} rows and {x.shape[1]:,} columns; {type(model).__name__} with "
        f"{len(h)} parts",
    )
    page.holds(model.fit_.certificate)
    part, at = some_rows(x)
    w = np.asarray(model.transform(part), float)
    weight = w.mean(axis=0) * h.sum(axis=1)
    share = weight / (weight.sum() or 1.0)
    page.section("Parts")
    if image is not None:
        page.pictures((_sheet(h, image), "Parts as images, each on its own scale: dark is more"))
    elif isinstance(x, Counts):
        page.pictures(
            (plots.topic_words(model, words=8), "The columns with the largest weights in each part")
        )
    columns = model.fit_.factors.columns
    names = np.arange(h.shape[1]) if columns is None else columns
    order = np.argsort(-share, kind="stable")
    if image is None:
        page.table(
            ["part", "share of the whole", "columns with the largest weights"],
            [[str(z + 1), f"{share[z]:.1%}", _top(h[z], names)] for z in order],
        )
    best = {int(z): np.argsort(-w[:, z] * h[z].sum(), kind="stable")[:EXAMPLES] for z in order[:20]}
    texts = texts_at(excerpts, at[np.unique(np.concatenate(list(best.values())))])
    total = w @ h.sum(axis=1)
    rows = []
    for z, found in best.items():
        for i in found:
            own = w[i, z] * h[z].sum() / total[i] if total[i] > 0 else 0.0
            texts_shown = [texts.get(int(at[i]), "")] if texts else []
            rows.append([str(z + 1), f"{own:.0%}", row_name(x, int(at[i])), *texts_shown])
    page.section("Rows with much of a part")
    page.table(["part", "its share of the row", "row", *(["how it begins"] if texts else [])], rows)
    return page


def _sheet(h: np.ndarray, image: tuple[int, int], most: int = 64, columns: int = 8) -> Any:
    """The parts side by side; the zero of each is a light grey."""
    tiles = h[:most].reshape(-1, *image)
    peak = np.maximum(tiles.max(axis=(1, 2)), 1e-300)
    columns = min(columns, len(tiles))
    ax = new_axes(None, (1.0 * columns, 1.0 * -(-len(tiles) // columns) + 0.4))
    ax.imshow(
        montage(coloured(tiles, "gray_r", -0.12 * peak, peak), columns, max(1, image[0] // 8))
    )
    ax.set_axis_off()
    return ax


def _top(weights: np.ndarray, names: Any) -> str:
    top = np.argsort(-weights, kind="stable")[:LISTED]
    return ", ".join(str(names[j]) for j in top if weights[j] > 0)
