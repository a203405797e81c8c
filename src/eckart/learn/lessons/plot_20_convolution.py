r"""
20. Why slide one small filter over everything?
===============================================

A convolution weighs the neighbourhood of every place by the same few numbers,

.. math:: (f * h)[u] = \sum_t f[t]\, h[u - t] ,

so it commutes with shifts: :math:`T_d(f) * h = T_d(f * h)`. Move the image and the map of the filter moves along. Nine numbers
are learned instead of one for every pair of pixels.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import convolve2d

import eckart
from eckart.learn import digits

X, y = digits()
f, h = X[0].reshape(8, 8), np.array([[1, 0, -1]] * 3)
g = convolve2d(f, h, "same", "wrap")
moved = convolve2d(np.roll(f, 1, axis=1), h, "same", "wrap")
print("shift and filter commute:", np.array_equal(moved, np.roll(g, 1, axis=1)))

fig, axes = plt.subplots(1, 4, figsize=(9, 2.4))
pictures = (
    ("image", f),
    ("its edges", g),
    ("moved by one", np.roll(f, 1, axis=1)),
    ("its edges", moved),
)
for ax, (name, picture) in zip(axes, pictures):
    ax.imshow(picture, cmap="gray_r")
    ax.set(title=name, xticks=[], yticks=[])
fig.tight_layout()

# %%
# A network of filters needs less to learn and stands a shift better than a dense one. On unseen digits, as they are and moved
# by one and by two pixels:

shifted = [np.roll(X[1400:].reshape(-1, 8, 8), d, 2).reshape(-1, 64) for d in (0, 1, 2)]
for name, filters in (
    ("filters", {"image": (8, 8), "channels": (16, 32)}),
    ("dense", {}),
):
    net = eckart.NetworkClassifier(
        hidden=[64], max_iter=15, random_state=0, n_threads=1, **filters
    )
    net.fit(X[:1400], y[:1400])
    print(f"{name:8s}", [f"{net.score(Z, y[1400:]):.2f}" for Z in shifted])

# %%
# What breaks
# -----------
# The map moves along, the class does not stay: behind the filters a flat layer remembers places. And at the border of an image
# that does not wrap, the two sides of the formula differ:

plain = convolve2d(np.roll(f, 1, axis=1), h, "same")
print(
    "without wrapping:",
    np.array_equal(plain, np.roll(convolve2d(f, h, "same"), 1, axis=1)),
)

# %%
# Try
# ---
# a) How many weights have 16 filters of 3 x 3 with their biases? ``check("20a", count)``
#
# b) Is correlation convolution with the kernel turned around in both directions? ``check("20b", "yes")`` or
# ``check("20b", "no")``
#
# *Often believed:* equivariant means invariant. The map moves (equivariant); only pooling over all places would make an
# answer that does not (invariant).
