"""Pictures of networks: what comes back, where the rows are, how the loss fell, what filters see,
and a walk through code space."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.nn.architecture import first_convolution
from eckart.plots.reduce import code_map
from eckart.plots.style import BLUE, INK, ORANGE, coloured, montage, new_axes, plain


def compare_rows(rows: Any, others: dict[str, Any], shape: tuple[int, int], ax: Any = None) -> Any:
    """Images in the first row and what each model makes of them in the rows below: ``others`` are
    names and reconstructions.

    >>> x = np.arange(8.0).reshape(2, 4)
    >>> ax = compare_rows(x, {"PCA": x, "autoencoder": x}, (2, 2))
    >>> [t.get_text() for t in ax.get_yticklabels()]
    ['input', 'PCA', 'autoencoder']
    """
    stacks = {
        "input": np.asarray(rows, float),
        **{name: np.asarray(r, float) for name, r in others.items()},
    }
    count = len(stacks["input"])
    for name, stack in stacks.items():
        if stack.shape != (count, shape[0] * shape[1]) or count == 0:
            raise InputError(
                f"{name} must have shape ({count}, {shape[0] * shape[1]}) and at least one row, got "
                f"{stack.shape}"
            )
    low, high = float(np.nanmin(stacks["input"])), float(np.nanmax(stacks["input"]))
    tiles = np.concatenate(
        [
            coloured(np.nan_to_num(s, nan=low).reshape(count, *shape), "gray", low, high)
            for s in stacks.values()
        ]
    )
    ax = new_axes(ax, (0.8 * count + 1.4, 0.8 * len(stacks) + 0.5))
    gap = max(1, shape[0] // 12)
    ax.imshow(montage(tiles, count, gap))
    ax.set_yticks(
        [gap + r * (shape[0] + gap) + shape[0] / 2 - 0.5 for r in range(len(stacks))], list(stacks)
    )
    return _bare(ax, "Inputs and reconstructions from equally many numbers")


def code_maps(models: dict[str, Any], labels: Any = None, axes: Any = None) -> Any:
    """Maps of codes beside each other, coloured by label: ``models`` are names and codes; returns
    the figure.

    >>> figure = code_maps({"PCA": np.eye(3)[:, :2], "autoencoder": np.eye(3)[:, :2]}, ["a", "b", "a"])
    >>> len(figure.axes)
    2
    """
    if axes is None:
        from eckart.plots.style import ShownFigure

        figure = ShownFigure(figsize=(5.4 * len(models), 4.8), layout="constrained")
        axes = figure.subplots(1, len(models), squeeze=False)[0]
    for ax, (name, codes) in zip(axes, models.items()):
        code_map(codes, labels, ax)
        ax.set_title(name, loc="left", fontsize=11, color=INK)
    return axes[0].figure


def loss_curves(model: Any, ax: Any = None) -> Any:
    """Training and held-out loss by epoch; the epoch whose weights were kept is marked.

    >>> from eckart import Autoencoder
    >>> x = np.random.default_rng(0).standard_normal((80, 4))
    >>> ax = loss_curves(Autoencoder(2, hidden=[8], max_iter=3, random_state=0).fit(x))
    >>> ax.get_xlabel()
    'epoch'
    """
    ax = new_axes(ax)
    epochs = np.arange(1, len(model.loss_curve_) + 1)
    ax.plot(epochs, model.loss_curve_, color=BLUE, linewidth=1.5, label="training rows")
    held = model.held_out_curve_
    if len(held):
        ax.plot(epochs[: len(held)], held, color=ORANGE, linewidth=1.5, label="held-out rows")
        best = int(np.argmin(held))
        ax.axvline(best + 1, color=INK, linewidth=1, linestyle=":")
        ax.plot([best + 1], [held[best]], "o", color=ORANGE, markersize=5)
    values = np.concatenate([model.loss_curve_, held])
    if len(values) and values.min() > 0 and values.max() > 5 * values.min():
        ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=9)
    return plain(ax, "Loss by epoch; dotted: the weights that were kept", "epoch", "loss an entry")


def filters(model: Any, ax: Any = None, *, columns: int = 8) -> Any:
    """Filters of the first convolution, blue below and red above zero, each on its own scale."""
    name, at = _first(model)
    w = model.fit_.factors.weights[f"{name}.{at}.weight"]
    images = w.mean(axis=1)
    top = np.abs(images).max(axis=(1, 2)) + 1e-12
    ax = new_axes(ax, (0.7 * columns, 0.7 * -(-len(images) // columns) + 0.4))
    ax.imshow(montage(coloured(images, "RdBu_r", -top, top), columns, 1), interpolation="nearest")
    return _bare(ax, "Filters of the first convolution")


def feature_maps(model: Any, row: Any, ax: Any = None, *, columns: int = 8) -> Any:
    """What each filter of the first convolution finds in one image (after the activation), the
    image itself first."""
    import torch

    from eckart.nn.shell import live

    f = model.fit_.factors
    name, at = _first(model)
    height, width, c = f.architecture["image"]
    row = np.asarray(row, np.float64).reshape(1, -1)
    if row.shape[1] != f.n:
        raise InputError(f"row must have {f.n} numbers, one image, got {row.shape[1]}")
    net = live(f, torch.float64, "cpu")
    bent = [part["layer"] == "activation" for part in f.architecture[name][at + 1 : at + 2]]
    scale = np.divide(1.0, f.spread, out=np.zeros_like(f.spread), where=f.spread > 0)
    z = torch.as_tensor(np.nan_to_num((row - f.mean) * scale))
    with torch.no_grad():
        for part in getattr(net, name)[: at + 1 + sum(bent)]:
            z = part(z)
    maps = z[0].numpy()
    first = np.nan_to_num(row).reshape(height, width, c).mean(axis=2)
    step_h, step_w = -(-height // maps.shape[1]), -(-width // maps.shape[2])
    grown = maps.repeat(step_h, axis=1).repeat(step_w, axis=2)[:, :height, :width]
    tiles = np.concatenate([coloured(first[None], "gray"), coloured(grown, "magma")])
    ax = new_axes(ax, (0.9 * columns, 0.9 * -(-len(tiles) // columns) + 0.4))
    ax.imshow(montage(tiles, columns, 2))
    return _bare(ax, "An image and its feature maps")


def code_walk(
    model: Any, first: Any, last: Any, shape: tuple[int, int], ax: Any = None, *, steps: int = 10
) -> Any:
    """Images along the straight line between the codes of two rows.

    >>> from eckart import PCA
    >>> x = np.random.default_rng(0).standard_normal((20, 4))
    >>> ax = code_walk(PCA(2).fit(x), x[0], x[1], (2, 2), steps=4)
    """
    ends = np.asarray(model.transform(np.vstack([np.ravel(first), np.ravel(last)])))
    t = np.linspace(0, 1, steps)[:, None]
    images = np.asarray(model.inverse_transform((1 - t) * ends[:1] + t * ends[1:]), float).reshape(
        steps, *shape
    )
    ax = new_axes(ax, (0.85 * steps, 1.3))
    ax.imshow(
        montage(
            coloured(images, "gray", float(images.min()), float(images.max())),
            steps,
            max(1, shape[0] // 12),
        )
    )
    return _bare(ax, "A walk through code space")


def _first(model: Any) -> tuple[str, int]:
    """Chain and position of the first convolution; refused where there is none."""
    architecture = getattr(model.fit_.factors, "architecture", None)
    found = None if architecture is None else first_convolution(architecture)
    if found is None:
        raise InputError(
            f"the model must be a network of images, got a {type(model).__name__} without "
            "convolution"
        )
    return found


def _bare(ax: Any, title: str) -> Any:
    ax.set_xticks([])
    if not ax.get_yticklabels() or ax.get_yticklabels()[0].get_text() != "input":
        ax.set_yticks([])
    ax.tick_params(length=0, labelsize=9)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_title(title, loc="left", fontsize=11, color=INK)
    return ax
