"""
A photograph with 70 % of its pixels missing
============================================

A photograph is a matrix, and not far from one of low rank. Here 70 % of the pixels of a photograph
are thrown away at random and filled in from the rest, in two ways: with the image as it is, row by
row, and with small patches of it as rows.

PSNR is :math:`10 \\log_{10} (1 / \\text{mean squared error})` over the missing pixels, with values
from 0 to 1. Higher is better. The penalties and the size of the patches were picked by the PSNR of
this very picture, so its figures flatter a little; for a picture of your own, hide some of the
pixels you have (:func:`eckart.split`) and choose by those.
"""

# %%
# What is left
# ------------

import matplotlib.pyplot as plt
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_sample_image

from eckart import ALS, SoftImpute, plots

photo = load_sample_image("flower.jpg")[:424] / 255.0
photo = photo.reshape(212, 2, 320, 2, 3).mean(axis=(1, 3))
lost = np.random.default_rng(0).random(photo.shape[:2]) < 0.7
holes = np.where(lost[..., None], np.nan, photo)


def psnr(restored: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((restored - photo)[lost] ** 2)))


blank = np.where(lost[..., None], np.nanmean(holes, axis=(0, 1)), photo)
print(f"mean colour     PSNR {psnr(blank):.1f} dB")

# %%
# Rows of the image
# -----------------
# The three colours side by side make one matrix of 212 x 960: what is alike in them is then learned
# once. The nuclear norm finds the rank by
# itself, and the certificate bounds how far from the best possible value the answer can be.

flat = np.hstack([holes[..., c] for c in range(3)])
model = SoftImpute(tau=0.5, tol=1e-2, random_state=0).fit(flat)
filled = model.transform(flat)
by_rows = np.clip(np.stack(np.split(filled, 3, axis=1), axis=2), 0, 1)
print(
    f"rows of pixels  PSNR {psnr(by_rows):.1f} dB, rank {model.rank_}, duality gap "
    f"{model.certificate_['duality gap']:.4f}"
)

fig, ax = plt.subplots(figsize=(10, 2.6), layout="constrained")
plots.triptych(
    photo,
    holes,
    by_rows,
    ax,
    titles=("original", "70 % missing", f"rows: PSNR {psnr(by_rows):.1f} dB"),
)

# %%
# Patches
# -------
# Far ends of a row of pixels have little to do with each other; pixels of a small patch have much.
# So every patch of 8 x 8 pixels and three
# colours becomes a row of 192 numbers, of which about 58 are known. Patches start at every fourth
# pixel, overlap, and are averaged where they do.

size, stride = 8, 4
top, left = (np.arange(0, length - size + 1, stride) for length in lost.shape)
windows = sliding_window_view(holes, (size, size), axis=(0, 1))[top][:, left]
table = windows.reshape(len(top) * len(left), -1)
model = ALS(12, l2=0.005, random_state=0).fit(table)
pieces = model.transform(table).reshape(len(top), len(left), 3, size, size)

total, count = np.zeros_like(photo), np.zeros((*lost.shape, 1))
for i, row in zip(top, pieces):
    for j, piece in zip(left, row):
        total[i : i + size, j : j + size] += piece.transpose(1, 2, 0)
        count[i : i + size, j : j + size] += 1
by_patches = np.clip(total / count, 0, 1)
print(
    f"patches         PSNR {psnr(by_patches):.1f} dB, {table.shape[0]} patches, rank "
    f"{model.n_components}"
)
print(model.certificate_)

fig, ax = plt.subplots(figsize=(10, 2.6), layout="constrained")
plots.triptych(
    photo,
    holes,
    by_patches,
    ax,
    titles=("original", "70 % missing", f"patches: PSNR {psnr(by_patches):.1f} dB"),
)

# %%
# A closer look
# -------------

fig, axes = plt.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
for ax, picture, name in zip(
    axes, (photo, holes, by_rows, by_patches), ("original", "30 % left", "rows", "patches")
):
    ax.imshow(np.nan_to_num(picture[40:160, 100:220], nan=1.0))
    ax.set_title(name, loc="left", fontsize=10)
    ax.set_axis_off()
plt.show()
