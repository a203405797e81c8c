"""Pictures of a completion: how the fit went, how large the errors are and for whom, what was
predicted, and what the factors are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eckart.decompositions import svd
from eckart.errors import InputError, invalid
from eckart.plots.style import BLUE, CLASSES, FAINT, INK, ORANGE, SOFT, new_axes, plain, words_at

FEW_VALUES = 40
"""Up to this many distinct values (ratings) each has a bar of its own."""


def objective(trace: Any, ax: Any = None) -> Any:
    """What fell while the model was fitted, half sweep by half sweep, on a logarithmic scale where
    it fell far. ``trace`` may be a fitted model.

    >>> from eckart.trace import Trace
    >>> t = Trace("objective"); t.add(3.0); t.add(1.0)
    >>> objective(t).lines[0].get_ydata().tolist()
    [3.0, 1.0]
    """
    trace = trace.fit_.trace if hasattr(trace, "fit_") else trace
    values = np.asarray(trace.values, float)
    ax = new_axes(ax)
    steps = np.arange(1, len(values) + 1)
    ax.plot(steps, values, color=BLUE, marker="o", markersize=3, linewidth=1.5)
    if len(values) and values.min() > 0 and values.max() > 5 * values.min():
        ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    half = "half sweep" in trace.quantity
    what = trace.quantity.replace(" after each half sweep", "")
    return plain(ax, f"Stopped: {trace.reason.value}", "half sweep" if half else "iteration", what)


def held_out_curve(
    errors: Any, at: Any = None, ax: Any = None, *, what: str = "sweep", spread: Any = None
) -> Any:
    """Error on held-out entries against sweeps, ranks or ridges (``at``); the smallest is marked.
    ``spread`` draws an error bar on each."""
    errors = _one_dimensional("errors", errors)
    at = np.arange(1, len(errors) + 1) if at is None else np.asarray(at, float)
    if at.shape != errors.shape:
        raise invalid(
            "at", f"an array of shape {at.shape}", f"shape {errors.shape}, one place for each error"
        )
    ax = new_axes(ax)
    ax.errorbar(
        at,
        errors,
        yerr=spread,
        color=BLUE,
        marker="o",
        markersize=4,
        linewidth=1.5,
        capsize=2,
        zorder=2,
    )
    best = int(np.argmin(errors))
    ax.scatter(
        [at[best]],
        [errors[best]],
        s=70,
        facecolors="none",
        edgecolors=ORANGE,
        linewidths=2,
        zorder=3,
    )
    low, high = float(errors.min()), float(errors.max())
    ax.set_ylim(low - 0.08 * (high - low or 1), high + 0.08 * (high - low or 1))
    whole = bool((at == np.rint(at)).all())
    if at.min() > 0 and at.max() > 50 * at.min() and len(at) > 2:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        if len(at) <= 10:
            ax.set_xticks(at, minor=False)
            ax.set_xticks([], minor=True)
    elif whole:
        ax.xaxis.get_major_locator().set_params(integer=True)
    title = f"Error on held-out entries: least {errors[best]:.4g} at {what} {at[best]:g}"
    return plain(ax, title, what, "RMSE")


def popularity_bins(counts: np.ndarray, most: int = 8) -> np.ndarray:
    """Edges of bins of counts that hold about as many entries each; the last edge lies above the
    largest count.

    >>> popularity_bins(np.array([1, 1, 2, 3, 5, 8, 13, 100]), 3).tolist()
    [1, 2, 7, 101]
    """
    edges = np.unique(np.rint(np.quantile(counts, np.linspace(0, 1, most + 1))).astype(np.int64))
    edges[-1] = int(counts.max()) + 1
    return edges if len(edges) > 1 else np.array([int(counts.min()), int(counts.max()) + 1])


def error_by_popularity(
    counts: Any, errors: Any, ax: Any = None, *, what: str = "row", most: int = 8
) -> Any:
    """RMSE of held-out entries by how often their row (or column) was observed in training:
    ``counts`` and ``errors`` have one number an entry."""
    counts, errors = np.asarray(counts), _one_dimensional("errors", errors)
    if counts.shape != errors.shape:
        raise invalid(
            "counts",
            f"an array of shape {counts.shape}",
            f"shape {errors.shape}, one count for each error",
        )
    ax = new_axes(ax)
    edges = popularity_bins(counts, most)
    place = np.searchsorted(edges, counts, side="right") - 1
    size = np.bincount(place, minlength=len(edges) - 1)
    root = np.sqrt(np.bincount(place, errors**2, len(edges) - 1) / np.maximum(size, 1))
    ax.bar(np.arange(len(root)), root, width=0.82, color=BLUE, zorder=2)
    for i, number in enumerate(size):
        words_at(
            ax, f"{number:,}", (i, 0), (0, 4), ha="center", fontsize=7, color="white", zorder=3
        )
    whole = float(np.sqrt(np.mean(errors**2)))
    ax.axhline(whole, color=ORANGE, linewidth=1.2, linestyle="--", zorder=3)
    words = [
        f"{a:,}" if b == a + 1 else f"{a:,}–{b - 1:,}"
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist())
    ]
    long = max(map(len, words)) > 5
    ax.set_xticks(
        np.arange(len(root)), words, rotation=30 if long else 0, ha="right" if long else "center"
    )
    ax.set_ylim(0, 1.1 * max(float(root.max()), whole) or 1.0)
    return plain(
        ax,
        f"Error by {what} popularity; line: {whole:.3g} overall",
        f"training entries of the {what}",
        "RMSE",
    )


def observed_predicted(observed: Any, predicted: Any, ax: Any = None, *, bins: int = 40) -> Any:
    """Distribution of the values that were observed and of those predicted for the same entries."""
    observed, predicted = (
        _one_dimensional("observed", observed),
        _one_dimensional("predicted", predicted),
    )
    ax = new_axes(ax)
    distinct = np.unique(observed)
    if len(distinct) <= FEW_VALUES:
        width = 0.4 * (float(np.diff(distinct).min()) if len(distinct) > 1 else 1.0)
        nearest = np.searchsorted((distinct[1:] + distinct[:-1]) / 2, predicted)
        theirs = np.bincount(np.searchsorted(distinct, observed), minlength=len(distinct)) / len(
            observed
        )
        ours = np.bincount(nearest, minlength=len(distinct)) / len(predicted)
        ax.bar(distinct - width / 2, theirs, width, color=SOFT, label="observed")
        ax.bar(
            distinct + width / 2, ours, width, color=BLUE, label="predicted, to the nearest value"
        )
    else:
        both = np.concatenate([observed, predicted])
        low, high = (float(np.quantile(both, q)) for q in (0.001, 0.999))
        edges = np.linspace(low, high if high > low else low + 1, bins + 1)
        shares = [
            np.histogram(np.clip(part, low, high), edges)[0] / len(part)
            for part in (observed, predicted)
        ]
        ax.stairs(shares[0], edges, fill=True, color=FAINT, label="observed")
        ax.stairs(shares[1], edges, color=BLUE, linewidth=1.6, label="predicted")
    ax.yaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    ax.legend(frameon=False, fontsize=9)
    ax.set_ylim(top=1.12 * ax.get_ylim()[1])
    return plain(
        ax, "Observed and predicted values of the held-out entries", "value", "share of entries"
    )


def shrinkage_path(
    taus: Any, values: Sequence[Any], ax: Any = None, *, chosen: float | None = None, most: int = 20
) -> Any:
    """Singular values along a Soft-Impute path, from the threshold above which the answer is 0 to
    the smallest; each line is one singular value.

    ``values[t]`` holds the singular values of the answer at ``taus[t]``, as many as its rank is.
    """
    taus = _one_dimensional("taus", taus)
    if len(values) != len(taus):
        raise invalid("values", f"{len(values)} lists", f"{len(taus)}, one for each threshold")
    if taus.min() <= 0:
        raise invalid("taus", float(taus.min()), "thresholds > 0")
    ax = new_axes(ax)
    order = np.argsort(-taus)
    rank = max((len(values[t]) for t in order), default=0)
    table = np.zeros((len(taus), max(rank, 1)))
    for line, t in enumerate(order):
        table[line, : len(values[t])] = np.sort(np.asarray(values[t], float))[::-1]
    for i in range(min(rank, most)):
        there = np.flatnonzero(table[:, i] > 0)
        begin = max(0, int(there[0]) - 1)
        ax.plot(
            taus[order][begin:], table[begin:, i], color=CLASSES[i % len(CLASSES)], linewidth=1.5
        )
    if chosen is not None:
        ax.axvline(chosen, color=INK, linewidth=1, linestyle=":")
        ax.text(
            chosen,
            0.98,
            " chosen",
            transform=ax.get_xaxis_transform(),
            va="top",
            fontsize=9,
            color=INK,
        )
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    ax.invert_xaxis()
    ax.set_ylim(bottom=0)
    return plain(ax, "Singular values along the path", "threshold τ (falling)", "singular value")


def factor_map(
    model: Any,
    ax: Any = None,
    *,
    side: str = "columns",
    among: Any = None,
    axes: tuple[int, int] = (0, 1),
    named: int = 8,
    most: int = 4000,
    titles: Any = None,
) -> Any:
    """Rows or columns on two principal directions of U V^T (the factors themselves have no order
    and no axes); the outermost on each side are named.

    ``among`` (positions) keeps the map to some of them, those observed often, say: the others lie
    where the penalty left them. ``titles`` (a function from an array of ids to texts) says what
    they are called. The singular value decomposition of U V^T turns both factors into their
    principal axes, and each side is stretched by the root of the singular values.
    """
    if side not in ("rows", "columns"):
        raise invalid("side", side, "'rows' or 'columns'")
    points = principal(model.fit_.factors, max(axes) + 1)[side == "columns"]
    labels = model.row_ids if side == "rows" else model.column_ids
    if points.shape[1] <= max(axes) or min(axes) < 0:
        raise InputError(
            f"the model must have at least {max(axes) + 1} dimensions for a map of {axes}, got "
            f"{points.shape[1]}"
        )
    kept = np.arange(len(points)) if among is None else np.asarray(among, int)
    if not len(kept):
        raise invalid("among", among, f"positions of at least one of the {side}")
    xy = points[kept][:, list(axes)].astype(float)
    ax = new_axes(ax, (6, 5.2))
    shown = np.arange(len(xy))[:: -(-len(xy) // most)]
    each = max(1, named // 4)
    ends = [np.argsort(sign * xy[:, d], kind="stable")[:each] for d in (0, 1) for sign in (1, -1)]
    outer = np.array(list(dict.fromkeys(np.concatenate(ends).tolist())))[: max(named, 0)].astype(
        int
    )
    shown = np.union1d(shown, outer)
    size = float(np.clip(14000 / max(len(shown), 1), 5, 30))
    drawn = ax.scatter(xy[shown, 0], xy[shown, 1], s=size, color=BLUE, alpha=0.55, linewidths=0)
    called = (lambda ids: ids) if titles is None else titles
    # a report shows them where one points
    drawn.eckart_names = [str(n) for n in called(labels.names(kept[shown]))]
    _name_points(ax, xy, outer, [str(n) for n in called(labels.names(kept[outer]))])
    ax.axhline(0, color=FAINT, linewidth=1, zorder=0)
    ax.axvline(0, color=FAINT, linewidth=1, zorder=0)
    ax.margins(0.1)
    words = [f"direction {a + 1}" for a in axes]
    count = f"{len(xy):,}" if among is None else f"{len(xy):,} of {len(points):,}"
    return plain(ax, f"{count} {side}, the outermost named", *words)


def principal(f: Any, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading coordinates of rows and columns: U V^T = P S Q^T by block power iteration on the
    factors, each side times S^1/2."""
    u, v = (np.asarray(a, float) for a in (f.left, f.right))
    if f.row_scale is not None:
        u = u * f.row_scale[:, None]
    if f.column_scale is not None:
        v = v * f.column_scale[:, None]
    width = min(f.k, *f.shape, dimensions + 8)
    q = np.linalg.qr(v @ np.random.default_rng(0).standard_normal((f.k, width)))[0]
    for _ in range(12):
        p = np.linalg.qr(u @ (v.T @ q))[0]
        q = np.linalg.qr(v @ (u.T @ p))[0]
    a, s, bt = svd((p.T @ u) @ (v.T @ q))
    a, b, s = (p @ a)[:, :dimensions], (q @ bt.T)[:, :dimensions], s[:dimensions]
    sign = np.where(np.abs(b).max(axis=0, initial=0) == b.max(axis=0, initial=0), 1.0, -1.0)
    return a * sign * np.sqrt(s), b * sign * np.sqrt(s)


def _name_points(ax: Any, xy: np.ndarray, at: np.ndarray, names: list[str]) -> None:
    """Write names beside points, moved apart so that none covers another; a name without room is
    left out."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    taken: list[tuple[float, float, float]] = []
    for i, name in zip(at, names):
        name = name if len(name) <= 28 else name[:27] + "…"
        x, y = (xy[i] - low) / span
        left = x > 0.6
        reach = 0.017 * len(name) + 0.03
        begin = x - reach if left else x
        free = [
            y + shift
            for shift in (0.0, 0.045, -0.045, 0.09, -0.09)
            if all(
                abs(y + shift - b) >= 0.043 or begin > d or begin + reach < a for a, d, b in taken
            )
        ]
        if not free:
            continue
        place = free[0]
        taken.append((begin, begin + reach, place))
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
        tie = {"arrowstyle": "-", "color": SOFT, "linewidth": 0.5} if place != y else None
        moved, side = (-6 if left else 6, (place - y) * 260), "right" if left else "left"
        words_at(ax, name, xy[i], moved, ha=side, va="center", bbox=box, arrowprops=tie)


def _one_dimensional(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim != 1 or len(array) == 0:
        raise invalid(name, f"an array of shape {array.shape}", "a list of at least one number")
    return array
