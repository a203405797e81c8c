"""Pictures of a PCA: how much, what, where, how well, and which rows do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.plots.style import (
    BLUE,
    CENTRED,
    CLASSES,
    FAINT,
    INK,
    ORANGE,
    RED,
    SOFT,
    TAG,
    coloured,
    montage,
    new_axes,
    plain,
    words_at,
)


def scree(model: Any, ax: Any = None, *, spectrum: np.ndarray | None = None) -> Any:
    """Share of variance of each component and their running sum; the chosen k is marked.
    ``spectrum`` shows shares beyond k.

    >>> from eckart import PCA
    >>> ax = scree(PCA(2).fit(np.eye(3)))
    >>> ax.get_xlabel()
    'component'
    """
    ax = new_axes(ax)
    k = model.n_components_
    shares = np.array(model.explained_variance_ratio_ if spectrum is None else spectrum, float)[
        : max(3 * k, 20)
    ]
    if getattr(model, "rotation_", None) is not None:
        shares[:k] = model.explained_variance_ratio_  # the spectrum is that of the data
    x = np.arange(1, len(shares) + 1)
    ax.bar(x, shares, width=0.8, color=[BLUE if i <= k else FAINT for i in x], zorder=2)
    running = np.cumsum(shares)
    ax.plot(x, running, color=ORANGE, marker="o", markersize=3, linewidth=1.5, zorder=3)
    if 0 < k <= len(shares):
        ax.axvline(k + 0.5, color=INK, linewidth=1, linestyle=":")
        side = "right" if k > 0.55 * len(shares) else "left"
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
        text, moved = (
            f"k = {k}: {running[k - 1]:.1%} of the variance",
            (-6 if side == "right" else 6, 0),
        )
        words_at(ax, text, (k + 0.5, 0.5), moved, ha=side, va="center", fontsize=9, bbox=box)
    ax.set_ylim(0, 1.03)
    ax.yaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return plain(
        ax, "Variance by component (bars) and in total (line)", "component", "share of variance"
    )


def loadings(model: Any, ax: Any = None, *, features: int = 12, components: int = 6) -> Any:
    """Heat map of the loadings of the most loaded columns on the leading components."""
    table = np.asarray(model.loadings_)[:, :components]
    if table.shape[1] == 0:
        raise InputError("the model has no component (k = 0), so there are no loadings to draw")
    names = model._names()
    order = np.sort(np.argsort(-np.abs(table).max(axis=1), kind="stable")[:features])
    shown = table[order]
    ax = new_axes(ax, (1.2 + 0.7 * shown.shape[1] + 1.5, 0.8 + 0.28 * len(order) + 0.6))
    top = float(np.abs(shown).max()) or 1.0
    image = ax.imshow(shown, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto")
    ax.set_yticks(range(len(order)), [str(names[j]) for j in order])
    ax.set_xticks(range(shown.shape[1]), [str(i + 1) for i in range(shown.shape[1])])
    ax.figure.colorbar(image, ax=ax, shrink=0.8, pad=0.02).outline.set_visible(False)
    plain(ax, "Largest loadings", "component", "")
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


def code_map(
    codes: Any,
    labels: Any = None,
    ax: Any = None,
    *,
    axes: tuple[int, int] = (0, 1),
    shares: Any = None,
) -> Any:
    """Two code coordinates as a map, coloured by label with each label written at its median
    point."""
    codes = np.asarray(codes.to_numpy() if hasattr(codes, "to_numpy") else codes)
    i, j = axes
    if codes.ndim != 2 or codes.shape[1] <= max(i, j) or min(i, j) < 0:
        raise InputError(
            f"codes must have at least {max(i, j) + 1} columns for a map of axes {axes}, got "
            f"shape {codes.shape}"
        )
    ax = new_axes(ax, (6, 5.2))
    size = float(np.clip(14000 / max(len(codes), 1), 4, 30))
    if labels is None:
        drawn = ax.scatter(codes[:, i], codes[:, j], s=size, color=BLUE, alpha=0.6, linewidths=0)
        # a report shows them where one points
        drawn.eckart_names = [f"row {r}" for r in range(len(codes))]
    else:
        labels = _as_labels(labels, len(codes))
        kinds = list(dict.fromkeys(labels.tolist()))
        kinds = sorted(kinds, key=lambda v: (str(type(v)), v)) if len(kinds) <= 40 else kinds[:40]
        for c, kind in enumerate(kinds):
            mine = labels == kind
            colour = CLASSES[c % len(CLASSES)]
            drawn = ax.scatter(
                codes[mine, i], codes[mine, j], s=size, color=colour, alpha=0.55, linewidths=0
            )
            drawn.eckart_names = [f"{kind}, row {r}" for r in np.flatnonzero(mine)]
        for c, kind in enumerate(kinds):
            mine = labels == kind
            middle = np.median(codes[mine, i]), np.median(codes[mine, j])
            words_at(
                ax,
                str(kind),
                middle,
                **CENTRED,
                fontsize=10,
                weight="bold",
                color=CLASSES[c % len(CLASSES)],
                bbox=TAG,
            )
    words = [
        f"component {a + 1}" + (f" ({shares[a]:.1%})" if shares is not None else "") for a in axes
    ]
    return plain(ax, "Map of the codes", *words)


def components_as_images(
    model: Any, shape: tuple[int, int], ax: Any = None, *, count: int = 11, columns: int = 6
) -> Any:
    """The mean and the leading components as images: blue below, red above zero, each on its own
    scale."""
    count = min(count, model.n_components_)
    mean = _images(model.mean_[None], shape)
    parts = _images(model.components_[:count], shape)
    top = np.abs(parts).max(axis=(1, 2)) if count else np.zeros(0)
    tiles = np.concatenate([coloured(mean, "gray"), coloured(parts, "RdBu_r", -top, top)])
    ax = new_axes(ax, (1.1 * columns, 1.25 * -(-len(tiles) // columns) + 0.4))
    gap = max(2, shape[0] // 4)
    ax.imshow(montage(tiles, columns, gap))
    for t in range(len(tiles)):
        r, c = divmod(t, columns)
        ax.text(
            gap + c * (shape[1] + gap),
            gap + r * (shape[0] + gap) - 0.7,
            "mean" if t == 0 else str(t),
            fontsize=8,
            color=SOFT,
            va="bottom",
        )
    ax.set_axis_off()
    ax.set_title("Mean and components", loc="left", fontsize=11, color=INK)
    return ax


def reconstructions(
    model: Any, rows: Any, shape: tuple[int, int], ks: Sequence[int] = (2, 10, 30), ax: Any = None
) -> Any:
    """Original images and what the first k components make of them, a row for each k."""
    b = model.fit_.factors
    rows = np.asarray(rows.to_numpy() if hasattr(rows, "to_numpy") else rows, float)
    if rows.ndim != 2 or rows.shape[1] != b.n or len(rows) == 0:
        raise InputError(
            f"rows must have the {b.n} columns of the model and at least one row, got shape "
            f"{rows.shape}"
        )
    ks = [k for k in ks if 0 <= k <= model.n_components_]
    unit = 1.0 if getattr(model, "scale_", None) is None else model.scale_
    codes = b.encode((model.impute(rows) if np.isnan(rows).any() else rows) / unit)
    stacks = [rows] + [(codes[:, :k] @ b.components[:k] + b.mean) * unit for k in ks]
    low, high = float(np.nanmin(rows)), float(np.nanmax(rows))
    tiles = np.concatenate([coloured(_images(s, shape), "gray", low, high) for s in stacks])
    ax = new_axes(ax, (0.85 * len(rows) + 0.9, 0.85 * len(stacks) + 0.5))
    gap = max(1, shape[0] // 12)
    ax.imshow(montage(tiles, len(rows), gap))
    centres = [gap + r * (shape[0] + gap) + shape[0] / 2 - 0.5 for r in range(len(stacks))]
    ax.set_yticks(centres, ["original", *(f"k = {k}" for k in ks)])
    ax.set_xticks([])
    ax.tick_params(length=0, labelsize=9)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_title("Reconstructions", loc="left", fontsize=11, color=INK)
    return ax


def outlier_chart(outliers: Any, ax: Any = None, *, names: Any = None, most: int = 6) -> Any:
    """T2 against SPE with both limits; the rows furthest beyond them are named."""
    ax = new_axes(ax)
    tiny = np.finfo(float).tiny
    t2, spe = np.maximum(outliers.t2, tiny), np.maximum(outliers.spe, tiny)
    flagged = outliers.flagged
    for these, size, colour, alpha in ((~flagged, 9, BLUE, 0.5), (flagged, 16, RED, 0.8)):
        drawn = ax.scatter(t2[these], spe[these], s=size, color=colour, alpha=alpha, linewidths=0)
        drawn.eckart_names = [
            f"row {r}" if names is None else str(names[r]) for r in np.flatnonzero(these)
        ]
    for limit, line in ((outliers.t2_limit, ax.axvline), (outliers.spe_limit, ax.axhline)):
        if np.isfinite(limit) and limit > 0:
            line(limit, color=INK, linewidth=1, linestyle=":")
    with np.errstate(over="ignore"):
        beyond = np.maximum(
            outliers.t2 / max(outliers.t2_limit, tiny), outliers.spe / max(outliers.spe_limit, tiny)
        )
    for i in np.argsort(-beyond, kind="stable")[:most]:
        if flagged[i]:
            words_at(ax, str(i if names is None else names[i]), (t2[i], spe[i]), (4, 3))
    spread = spe[spe > tiny]
    if len(spread) and spread.max() > 50 * np.median(spread):
        ax.set_yscale("log")
    if t2.max() > 50 * np.median(t2):
        ax.set_xscale("log")
    title = f"{int(flagged.sum())} of {len(flagged)} rows beyond the {outliers.level:.0%} limits"
    return plain(
        ax, title, "Hotelling T² (distance inside the subspace)", "SPE (squared distance from it)"
    )


def _as_labels(labels: Any, rows: int) -> np.ndarray:
    """One label for each row; a missing one (None, NaN) is written as a dash."""
    given = labels.to_list() if hasattr(labels, "to_list") else list(labels)
    if len(given) != rows:
        raise InputError(f"labels must be {rows}, one for each row of the codes, got {len(given)}")
    out = np.empty(rows, dtype=object)
    for i, label in enumerate(given):
        label = label.item() if isinstance(label, np.generic) else label
        out[i] = "–" if label is None or label != label else label
    return out


def _images(rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    if len(shape) != 2 or min(shape) < 1 or rows.shape[1] != shape[0] * shape[1]:
        raise InputError(f"shape must be height x width = {rows.shape[1]} columns, got {shape}")
    return np.asarray(rows, float).reshape(len(rows), *shape)
