"""Pictures of a non-negative factorization: parts beside principal components, and a row as the sum
of its parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.plots.style import INK, SOFT, coloured, montage, new_axes

EMPTY = 0.12
"""Zero is a light grey, by this share of the peak: white is the paper."""


def parts_and_components(
    parts: Any,
    components: Any,
    shape: tuple[int, int],
    ax: Any = None,
    *,
    count: int = 25,
    columns: int = 5,
) -> Any:
    """The rows of H as images (left; dark is ink) beside principal components (right; red adds,
    blue takes away), ``count`` of each.

    Parts only add up, so they become local and mostly empty. Components may cancel each other, so
    they cover the whole image.

    >>> from eckart import NMF, PCA
    >>> x = np.random.default_rng(0).random((20, 6))
    >>> ax = parts_and_components(NMF(2, random_state=0).fit(x), PCA(2).fit(x), (2, 3))
    >>> [text.get_text() for text in ax.texts]
    ['NMF: parts', 'PCA: components']
    """
    h, u = (_images(model.components_, shape)[:count] for model in (parts, components))
    if not len(h) or not len(u):
        raise InputError("the model must have at least one component to draw, got none")
    columns = max(1, min(columns, max(len(h), len(u))))
    gap = max(1, shape[0] // 8)
    peak, reach = _peak(h), _peak(np.abs(u))
    left = montage(coloured(h, "gray_r", -EMPTY * peak, peak), columns, gap)
    right = montage(coloured(u, "RdBu_r", -reach, reach), columns, gap)
    tall = max(len(left), len(right))
    sheets = [
        np.pad(s, ((0, tall - len(s)), (0, 0), (0, 0)), constant_values=1.0) for s in (left, right)
    ]
    between = np.ones((tall, 2 * shape[1] // 3 + gap, 3))
    ax = new_axes(ax, (9.0, 9.0 * tall / (2 * left.shape[1] + between.shape[1]) + 0.4))
    ax.imshow(np.concatenate([sheets[0], between, sheets[1]], axis=1))
    second = left.shape[1] + between.shape[1]
    for x, words in ((gap, "NMF: parts"), (second + gap, "PCA: components")):
        ax.text(x, -gap, words, fontsize=11, color=INK, va="bottom")
    ax.set_axis_off()
    return ax


def sum_of_parts(
    model: Any, row: Any, shape: tuple[int, int], ax: Any = None, *, count: int = 6
) -> Any:
    """One row, its ``count`` heaviest parts in order of their weight, and the sum of all its
    parts."""
    x = np.asarray(row, float).reshape(1, -1)
    w = np.asarray(model.transform(x), float)[0]
    h = np.asarray(model.components_, float)
    weight = w * h.sum(axis=1)
    order = np.argsort(-weight, kind="stable")[: max(1, count)]
    stack = np.concatenate([x, w[order, None] * h[order], (w @ h)[None]])
    peak = np.full(len(stack), max(float(np.nanmax(stack)), np.finfo(float).tiny))
    peak[1:-1] = _peak(_images(stack[1:-1], shape))
    tiles = coloured(np.nan_to_num(_images(stack, shape)), "gray_r", -EMPTY * peak, peak)
    gap = max(2, shape[1] // 4)
    ax = new_axes(ax, (1.1 * len(stack), 1.6))
    ax.imshow(montage(tiles, len(stack), gap))
    share = weight / (weight.sum() or 1.0)
    words = ["row", *(f"{share[z]:.0%}" for z in order), "sum of all"]
    for i, text in enumerate(words):
        middle = gap + i * (shape[1] + gap) + shape[1] / 2 - 0.5
        ax.text(
            middle,
            2 * gap + shape[0],
            text,
            fontsize=9,
            color=INK if i in (0, len(stack) - 1) else SOFT,
            ha="center",
            va="top",
        )
    ax.set_axis_off()
    return ax


def _peak(images: np.ndarray) -> np.ndarray:
    """The largest entry of each image, never zero."""
    return np.maximum(images.reshape(len(images), -1).max(axis=1), np.finfo(float).tiny)


def _images(rows: Any, shape: tuple[int, int]) -> np.ndarray:
    rows = np.asarray(rows, float)
    if len(shape) != 2 or min(shape) < 1 or rows.shape[1] != shape[0] * shape[1]:
        raise InputError(f"shape must be height x width = {rows.shape[1]} columns, got {shape}")
    return rows.reshape(len(rows), *shape)
