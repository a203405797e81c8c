"""Pictures of recovery: why completion is hard (the saddle), when it succeeds (the phase square),
and what it looks like (an image)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eckart.errors import invalid
from eckart.plots.style import CLASSES, FAINT, INK, ORANGE, RED, SOFT, new_axes, plain


def flow(a: float, c: Any, t: Any) -> np.ndarray:
    """x(t) = a c e^{2at} / (c e^{2at} + a - c): the product x = u v under the gradient flow of 1/2
    (a - u v)^2 from u0 = v0, x(0) = c.

    >>> flow(1.0, 0.25, [0.0, 50.0]).tolist()
    [0.25, 1.0]
    """
    t = np.asarray(t, float)
    if a == 0:
        return np.asarray(c / (1 + 2 * c * t))
    fade = np.exp(-2 * abs(a) * t)  # no power overflows in this form
    if a > 0:
        return np.asarray(a * c / (c + (a - c) * fade))
    return np.asarray(a * c * fade / (c * fade + a - c))


def saddle_field(
    a: float = 1.0,
    ax: Any = None,
    *,
    starts: Sequence[tuple[float, float]] = (),
    reach: float = 2.0,
    time: float = 8.0,
) -> Any:
    """l(u, v) = 1/2 (a - u v)^2: level curves, the field of steepest descent, its saddle at 0, its
    minima u v = a, and gradient flow from ``starts``.

    The flow is u' = (a - u v) v, v' = (a - u v) u, integrated by Runge-Kutta; u^2 - v^2 stays
    constant along it.
    """
    if not np.isfinite(a) or not reach > 0 or not time > 0:
        raise invalid("a, reach, time", (a, reach, time), "a finite number and two that are > 0")
    ax = new_axes(ax, (5.6, 5.2))
    grid = np.linspace(-reach, reach, 121)
    u, v = np.meshgrid(grid, grid)
    rest = a - u * v
    loss = 0.5 * rest**2
    ax.contourf(u, v, np.log10(loss + 1e-2), levels=24, cmap="Blues_r", alpha=0.55)
    ax.streamplot(
        grid, grid, rest * v, rest * u, color=SOFT, linewidth=0.6, density=1.1, arrowsize=0.7
    )
    if a:
        branch = np.linspace(abs(a) / reach, reach, 200)
        for sign in (1, -1):
            (line,) = ax.plot(sign * branch, sign * a / branch, color=ORANGE, linewidth=2)
        line.set_label(f"minima: uv = {a:g}")
    starts = starts or ((0.15, 0.15), (1.8, 0.2), (-0.1, -0.5), (1.4, -1.4))
    for i, start in enumerate(starts):
        path = _descend(a, start, time)
        (line,) = ax.plot(path[:, 0], path[:, 1], color=RED, linewidth=1.8)
        ax.scatter(*start, s=22, color=RED, zorder=4)
        if i == 0:
            line.set_label("gradient flow")
    ax.scatter([0], [0], marker="x", s=60, color=INK, linewidths=2, zorder=5, label="saddle")
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    ax.set_aspect("equal")
    ax.legend(loc="lower right", fontsize=8, framealpha=0.9, edgecolor=FAINT)
    return plain(ax, f"½ ({a:g} − uv)² and its gradient flow", "u", "v")


def _descend(a: float, start: tuple[float, float], time: float, steps: int = 2000) -> np.ndarray:
    """Points of the gradient flow from ``start``."""
    h = time / steps
    path = np.empty((steps + 1, 2))
    path[0] = start

    def slope(p: np.ndarray) -> np.ndarray:
        return (a - p[0] * p[1]) * p[::-1]

    for i in range(steps):
        p = path[i]
        k1 = slope(p)
        k2 = slope(p + h / 2 * k1)
        k3 = slope(p + h / 2 * k2)
        k4 = slope(p + h * k3)
        path[i + 1] = p + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return path


def saddle_escape(
    a: float = 1.0,
    starts: Sequence[float] = (1e-4, 1e-2, 0.1, 2.0),
    ax: Any = None,
    *,
    step: float = 0.05,
    time: float = 8.0,
) -> Any:
    """x(t) = u v from u0 = v0: the exact curve for each x(0) = c, and gradient descent of step size
    ``step`` as dots on it."""
    if not step > 0 or not time > step:
        raise invalid("step, time", (step, time), "0 < step < time")
    ax = new_axes(ax)
    t = np.linspace(0, time, 400)
    for i, c in enumerate(starts):
        colour = CLASSES[i % len(CLASSES)]
        ax.plot(t, flow(a, c, t), color=colour, linewidth=1.5, label=f"x(0) = {c:g}")
        u = np.sqrt(c)
        path = [u]
        for _ in range(int(time / step)):
            u = u + step * (a - u * u) * u
            path.append(u)
        at = np.arange(len(path)) * step
        thin = max(1, len(path) // 40)
        ax.plot(
            at[::thin],
            np.square(path)[::thin],
            linestyle="none",
            marker="o",
            markersize=3,
            color=colour,
        )
    ax.axhline(a, color=SOFT, linewidth=1, linestyle=":")
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    return plain(
        ax, f"Leaving the saddle: exact flow (lines) and steps of {step:g} (dots)", "time", "x = uv"
    )


def phase_square(
    rates: Any, ranks: Any, recovered: Any, shape: tuple[int, int], ax: Any = None
) -> Any:
    """Share of trials recovered for each rank (up) and sampling rate (right), with the curve below
    which no method can succeed.

    A matrix of rank k has k (n + m - k) degrees of freedom, so at least the share k (n + m - k) /
    (n m) of its entries must be seen.
    """
    rates, ranks, share = (
        np.asarray(rates, float),
        np.asarray(ranks, float),
        np.asarray(recovered, float),
    )
    if share.shape != (len(ranks), len(rates)):
        raise invalid(
            "recovered",
            f"an array of shape {share.shape}",
            f"{len(ranks)} ranks x {len(rates)} rates",
        )
    n, m = shape
    ax = new_axes(ax, (6, 4.6))
    picture = ax.pcolormesh(_edges(rates), _edges(ranks), share, cmap="Blues", vmin=0, vmax=1)
    k = np.linspace(max(0.0, _edges(ranks)[0]), _edges(ranks)[-1], 300)
    ax.plot(
        k * (n + m - k) / (n * m),
        k,
        color=ORANGE,
        linewidth=2,
        label="k(n+m−k) / (nm): degrees of freedom",
    )
    ax.set_xlim(_edges(rates)[0], _edges(rates)[-1])
    ax.set_ylim(_edges(ranks)[0], _edges(ranks)[-1])
    ax.legend(loc="upper left", fontsize=8, framealpha=0.9, edgecolor=FAINT)
    bar = ax.figure.colorbar(picture, ax=ax, pad=0.02)
    bar.set_label("share recovered", color=INK)
    bar.outline.set_visible(False)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    return plain(ax, f"What was recovered, {n:,} × {m:,}", "share of entries seen", "rank k")


def triptych(
    original: Any,
    missing: Any,
    restored: Any,
    ax: Any = None,
    *,
    titles: Sequence[str] | None = None,
) -> Any:
    """An image, what was left of it (NaN = missing, drawn in white, or pale orange where the image
    is grey), and what the completion made of it.

    Images are height x width (grey) or height x width x 3 (0 to 1).
    """
    pictures = [np.asarray(p, float) for p in (original, missing, restored)]
    if any(p.shape != pictures[0].shape for p in pictures) or pictures[0].ndim not in (2, 3):
        raise invalid(
            "images", [p.shape for p in pictures], "three images of one shape, height x width (x 3)"
        )
    h, w = pictures[0].shape[:2]
    low, high = float(np.nanmin(pictures[0])), float(np.nanmax(pictures[0]))
    colour = pictures[0].ndim == 3
    gap = max(2, w // 24)
    sheet = np.ones((h, 3 * w + 2 * gap, 3))
    for i, p in enumerate(pictures):
        unit = np.clip(p, 0, 1) if colour else np.clip((p - low) / (high - low or 1), 0, 1)
        rgb = unit if colour else np.repeat(unit[..., None], 3, axis=2)
        unseen = np.isnan(p).any(axis=2) if colour else np.isnan(p)
        sheet[:, i * (w + gap) : i * (w + gap) + w] = np.where(
            unseen[..., None], (1.0, 1.0, 1.0) if colour else (0.98, 0.85, 0.72), rgb
        )
    ax = new_axes(ax, (9.0, 9.0 * h / (3 * w + 2 * gap) + 0.4))
    ax.imshow(sheet, interpolation="nearest")
    ax.set_axis_off()
    lost = float(np.mean(np.isnan(pictures[1])))
    words = titles or ("original", f"{lost:.0%} missing", _quality(pictures, high - low))
    for i, title in enumerate(words):
        ax.text(i * (w + gap), -0.02 * h, title, fontsize=10, color=INK, va="bottom")
    return ax


def _quality(pictures: list[np.ndarray], span: float) -> str:
    """Peak signal-to-noise ratio of the restored image over the missing pixels."""
    unseen = np.isnan(pictures[1])
    error = float(np.mean((pictures[0] - pictures[2])[unseen] ** 2)) if unseen.any() else 0.0
    return (
        "restored"
        if error == 0
        else f"restored, PSNR {10 * np.log10(span**2 / error):.1f} dB where missing"
    )


def _edges(centres: np.ndarray) -> np.ndarray:
    """Cell borders half-way between ascending centres."""
    if len(centres) == 0 or (np.diff(centres) <= 0).any():
        raise invalid("rates and ranks", centres.tolist(), "ascending numbers")
    if len(centres) == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])
