"""The picture of the README: `python docs/make_images.py` writes docs/images/reduce.png from scikit-learn's digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from eckart import PCA, plots
from eckart.plots.style import INK


def main(folder: Path = Path(__file__).parent / "images") -> Path:
    digits = load_digits()
    pca = PCA(n_components=30, random_state=0).fit(digits.data)
    fig = Figure(figsize=(11.5, 4.3), layout="constrained")
    grid = fig.add_gridspec(2, 2, width_ratios=[1.25, 1], height_ratios=[1, 2.5])
    top, bottom, right = fig.add_subplot(grid[0, 0]), fig.add_subplot(grid[1, 0]), fig.add_subplot(grid[:, 1])
    plots.components_as_images(pca, (8, 8), top, count=7, columns=8)
    shown = [int(np.flatnonzero(digits.target == d)[3]) for d in range(10)]
    plots.reconstructions(pca, digits.data[shown], (8, 8), (2, 10, 30), bottom)
    plots.code_map(pca.transform(digits.data), digits.target, right, shares=pca.explained_variance_ratio_)
    words = ("An image is the mean plus a sum of components", "Digits rebuilt from k numbers", "A map of 1797 digits")
    for ax, title in zip((top, bottom, right), words):
        ax.set_title(title, loc="left", fontsize=11.5, color=INK, pad=14 if ax is top else 6)
    folder.mkdir(exist_ok=True)
    target = folder / "reduce.png"
    fig.savefig(target, dpi=100, facecolor="white")
    return target


if __name__ == "__main__":
    print(main())
