"""`make demo`: reduce real data that every installation has, and write a report.

Digits (1797 handwritten digits of 8 x 8 pixels) as mean + components, reconstructions at k = 2, 10, 30, a 2-D map and the
certificate; and a photograph whose rows are reduced the same way, once complete and once with 30 % of its pixels missing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, load_sample_image

from eckart import PCA
from eckart.plots.style import new_axes
from eckart.report.reduce import reduce_report


def photograph_picture(image: np.ndarray, k: int) -> tuple[object, float, float]:
    """A photograph, its rank-k version, and the same from 70 % of the pixels; root mean squared errors of both."""
    full = PCA(k, random_state=0).fit(image)
    shown = full.inverse_transform(full.transform(image))
    holes = image.copy()
    holes[np.random.default_rng(0).random(image.shape) < 0.3] = np.nan
    gappy = PCA(k, random_state=0).fit(holes)
    restored = gappy.inverse_transform(gappy.transform(holes))
    ax = new_axes(None, (13, 2.7))
    gap = np.ones((len(image), 12))
    tiles = [image, gap, shown, gap, np.nan_to_num(holes, nan=0.0), gap, restored]
    ax.imshow(np.clip(np.hstack(tiles), 0, 1), cmap="gray", vmin=0, vmax=1)
    step = image.shape[1] + 12
    words = ("original", f"rank {k}", "30 % of the pixels missing", f"rank {k}, from what is left")
    ax.set_xticks([image.shape[1] / 2 + i * step for i in range(4)], words)
    ax.set_yticks([])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    rmse = [float(np.sqrt(np.mean((a - image) ** 2))) for a in (shown, restored)]
    return ax, rmse[0], rmse[1]


def main(folder: str = "out") -> None:
    begin = time.perf_counter()
    digits = load_digits()
    pca = PCA(n_components=30, random_state=0).fit(digits.data)
    spectrum = PCA().fit(digits.data).explained_variance_ratio_
    page = reduce_report(
        pca, digits.data, name="handwritten digits", labels=digits.target, image=(8, 8), spectrum=spectrum
    )
    photo = load_sample_image("china.jpg").mean(axis=2) / 255
    ax, complete, gappy = photograph_picture(photo, 40)
    page.section("The same on a photograph, with and without its pixels")
    page.pictures((ax, f"Error per pixel: {complete:.3f} from all pixels, {gappy:.3f} from 70 % of them"))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    where = page.write(target / "report.html")
    c, share = pca.certificate_, pca.explained_variance_ratio_.sum()
    bound = c["share of the upper bound captured"]
    print(
        f"found     {pca.n_components_} of {digits.data.shape[1]} numbers keep {share:.1%} of the variance of {len(digits.data)} digits"
    )
    print(
        f"evidence  certificate {'holds' if c.holds else 'does not hold'}: {bound:.10f} of what any 30 directions could capture"
    )
    print(
        f"gaps      a photograph at rank 40: error {complete:.3f} per pixel from all pixels, {gappy:.3f} from 70 % of them"
    )
    print(f"report    {where} ({time.perf_counter() - begin:.1f} s)")


if __name__ == "__main__":
    main(*sys.argv[1:])
