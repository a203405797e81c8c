"""
Parts of faces
==============

Principal components of faces are whole ghosts of faces: each covers the image, and they cancel each
other. A non-negative factorization can only add, so its components become parts: eyes, noses,
mouths. This example draws both side by side, takes one face apart, and fills in what was never
seen.
"""

# %%
# Images
# ------
# The CBCL faces (2429 images of 19 x 19 pixels) where they are on this machine; otherwise swimmers,
# drawn here: a body and four limbs, each in one of four
# positions. Ink is positive: dark pixels count.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from eckart import NMF, PCA, plots, select_rank


def swimmers() -> np.ndarray:
    """All 256 poses of a body (rows 6 to 12 of a 20 x 20 image) with four limbs of five pixels."""
    turns = [(0, 1), (1, 1), (1, 0), (-1, 1)]
    limbs = []
    for y, x, side in ((6, 8, -1), (6, 11, 1), (12, 8, -1), (12, 11, 1)):
        limbs.append([[(y + dy * t, x + side * dx * t) for t in range(5)] for dy, dx in turns])
    out = np.zeros((256, 20, 20))
    out[:, 6:13, 9:11] = 1
    for pose in range(256):
        for limb in range(4):
            for y, x in limbs[limb][pose // 4**limb % 4]:
                out[pose, y, x] = 1
    return out.reshape(256, 400)


def images() -> tuple[np.ndarray, tuple[int, int], int]:
    """Rows of pixels, their shape, and a number of parts."""
    folders = [
        Path.cwd(),
        *Path.cwd().parents,
        *Path(globals().get("__file__", "x")).resolve().parents,
    ]
    for folder in folders:
        file = folder / "shared" / "data" / "cbcl-faces" / "CBCL_Face.mat"
        if file.exists():
            from scipy.io import loadmat

            faces = (
                loadmat(file)["M"]
                .T.astype(float)
                .reshape(-1, 19, 19)
                .transpose(0, 2, 1)
                .reshape(-1, 361)
            )
            return 1 - faces / faces.max(), (19, 19), 49
    return swimmers(), (20, 20), 17


x, shape, k = images()
print(f"{x.shape[0]} images of {shape[0]} x {shape[1]} pixels")

# %%
# Parts beside eigenfaces
# -----------------------
# The same number of components. PCA has the smaller error: it is the best of all factorizations of
# that rank. NMF pays for having no minus sign.

nmf = NMF(k, max_iter=500, random_state=0).fit(x)
pca = PCA(k, random_state=0).fit(x)
print(nmf.certificate_)

fig, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
plots.parts_and_components(nmf, pca, shape, ax)


def empty(components: np.ndarray) -> float:
    """Share of pixels below a twentieth of the component's largest."""
    size = np.abs(components)
    return float(np.mean(size < 0.05 * size.max(axis=1, keepdims=True)))


size = np.linalg.norm(x - x.mean(axis=0))
shift = np.linalg.norm(x - pca.inverse_transform(pca.transform(x)))
print(
    f"empty pixels   {empty(nmf.components_):.0%} of a part, "
    f"{empty(pca.components_):.0%} of a component"
)
print(
    f"error          {nmf.reconstruction_err_ / size:.3f} from parts, "
    f"{shift / size:.3f} from components"
)

# %%
# One image, taken apart
# ----------------------
# Its heaviest parts and their shares of its ink.

fig, ax = plt.subplots(figsize=(9, 1.7), layout="constrained")
plots.sum_of_parts(nmf, x[10], shape, ax)

# %%
# Pixels that were never seen
# ---------------------------
# A third of the pixels is hidden. The factorization counts the others only, and its product fills
# in the rest. A small penalty keeps it from large numbers
# where little was seen.

rng = np.random.default_rng(0)
few = x[:: max(1, len(x) // 400)]
hidden = rng.random(few.shape) < 1 / 3
holes = np.where(hidden, np.nan, few)
model = NMF(12, alpha_W=1e-3, max_iter=300, random_state=0).fit(holes)
guess = model.inverse_transform(model.fit_.factors.left)
means = np.broadcast_to(np.nanmean(holes, axis=0), few.shape)
error, plain = (float(np.sqrt(np.mean((a - few)[hidden] ** 2))) for a in (guess, means))
print(f"hidden pixels  error {error:.3f} by NMF, {plain:.3f} by the mean image")

fig, axes = plt.subplots(1, 3, figsize=(7.5, 2.8), layout="constrained")
for ax, image, title in zip(
    axes, (few[3], holes[3], np.where(hidden, guess, few)[3]), ("original", "seen", "filled in")
):
    ax.imshow(image.reshape(shape), cmap="gray_r", vmin=-0.12 * few.max(), vmax=few.max())
    ax.set_title(title, loc="left", fontsize=10)
    ax.set_axis_off()

# %%
# How many parts?
# ---------------
# Hidden entries judge the rank; restarts tell whether the parts are there or were only found once.

table = select_rank(
    few[:, few.std(axis=0) > 0], (2, 4, 8, 12, 16), n_init=3, max_iter=100, random_state=0
)
print(table)
plt.show()
