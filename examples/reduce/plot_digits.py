"""
Digits: mean, components, codes
===============================

An image of a digit is 64 numbers. Principal components describe it with fewer: the mean image plus
a weighted sum of component images. The weights are the codes. This example looks at the components,
rebuilds digits from 2, 10 and 30 codes, draws the map of the first two, and asks whether a
classifier can work with codes instead of pixels.
"""

# %%
# Fit
# ---
# The 1797 digits ship with scikit-learn. The certificate says how close to the best possible the
# answer is.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eckart import PCA, plots

digits = load_digits()
pca = PCA(n_components=30, random_state=0).fit(digits.data)
print(pca.certificate_)

# %%
# Mean and components
# -------------------
# Red adds ink, blue takes it away.

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
plots.components_as_images(pca, (8, 8), ax)

# %%
# Reconstructions
# ---------------
# ``reconstruction_error`` is the risk: half the mean squared distance between a row and its
# reconstruction.

fig, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
plots.reconstructions(pca, digits.data[:10], (8, 8), (2, 10, 30), ax)
for k in (2, 10, 30):
    print(f"risk at k = {k:<3} {PCA(k).fit(digits.data).reconstruction_error(digits.data):.2f}")

# %%
# A map
# -----
# Two codes are coordinates. PCA never saw the labels; they only colour the points.

fig, ax = plt.subplots(figsize=(7, 5.5), layout="constrained")
plots.code_map(pca.transform(digits.data), digits.target, ax, shares=pca.explained_variance_ratio_)

# %%
# Codes as input of a classifier
# ------------------------------
# Logistic regression on pixels and on codes. ``PCA`` is an ordinary scikit-learn transformer, so it
# goes into a pipeline and is
# fitted to the training rows only.

train, test, y_train, y_test = train_test_split(
    digits.data, digits.target, test_size=0.4, random_state=0
)
on_pixels = (
    make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    .fit(train, y_train)
    .score(test, y_test)
)
sizes = (1, 2, 5, 10, 20, 30, 40)
on_codes = [
    make_pipeline(PCA(k, random_state=0), StandardScaler(), LogisticRegression(max_iter=2000))
    .fit(train, y_train)
    .score(test, y_test)
    for k in sizes
]

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.plot(sizes, on_codes, marker="o", label="k codes")
ax.axhline(on_pixels, color="0.4", linestyle=":", label="64 pixels")
ax.set(xlabel="k", ylabel="accuracy on unseen digits", ylim=(0, 1.02))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="lower right")

print(f"accuracy   {on_codes[sizes.index(30)]:.3f} from 30 codes, {on_pixels:.3f} from 64 pixels")
plt.show()
