"""
Convolutions: images with holes, and what filters see
=====================================================

A convolution :math:`(f * h)(u) = \\sum_v f(u + v)\\, h(v)` looks at every place of an image with
the same small filter: where the image moves, the answer moves with it. ``ConvAutoencoder`` stacks
such layers down to k numbers. Entries that are missing play no part in its loss, and are filled in
on the way out.
"""

# %%
# A fifth of the pixels is missing
# --------------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from eckart import ConvAutoencoder, NetworkClassifier, plots

digits = load_digits()
X, y = digits.data, digits.target
hidden = np.random.default_rng(0).random(X.shape) < 0.2
holes = np.where(hidden, np.nan, X)
options = {
    "channels": (16, 32),
    "hidden": [64],
    "learning_rate": 3e-3,
    "random_state": 0,
    "n_threads": 1,
}
model = ConvAutoencoder(10, image=(8, 8), max_iter=25, **options).fit(holes)
filled = model.impute(holes)
means = np.broadcast_to(np.nanmean(holes, axis=0), X.shape)
errors = [float(np.sqrt(np.mean((guess - X)[hidden] ** 2))) for guess in (filled, means)]
print(
    f"error of the hidden pixels: {errors[0]:.2f} by the network, {errors[1]:.2f} by the mean image"
)

figure, ax = plt.subplots(figsize=(10, 3), layout="constrained")
plots.compare_rows(holes[:12], {"filled": filled[:12], "truth": X[:12]}, (8, 8), ax)

# %%
# What the first layer sees
# -------------------------

figure, axes = plt.subplots(2, 1, figsize=(7, 5), layout="constrained")
plots.filters(model, axes[0])
plots.feature_maps(model, X[0], axes[1])

# %%
# The same layers with labels
# ---------------------------
# Convolution, max-pooling, flattening and a linear head make a classifier. Its certificate puts the
# held-out error beside that of the class shares.

train, test = slice(0, 1400), slice(1400, None)
classifier = NetworkClassifier(image=(8, 8), max_iter=10, **options).fit(X[train], y[train])
print(f"accuracy on unseen digits: {classifier.score(X[test], y[test]):.3f}")
print(classifier.certificate_)
