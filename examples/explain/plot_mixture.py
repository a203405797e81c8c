"""
Soft clusters
=============

A mixture says of each row how much it belongs to each component. This example fits
:class:`eckart.GaussianMixture` to the measurements of 150 iris flowers, asks how many components
there should be, hides a fifth of the entries, and compares with the species, which the model never
sees.
"""

# %%
# Fit
# ---
# Three components with full covariances. The certificate says that the likelihood never fell and
# has stopped rising.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

from eckart import GaussianMixture, plots

iris = load_iris()
x, species = iris.data, iris.target_names[iris.target]
model = GaussianMixture(3, random_state=0, n_init=5).fit(x)
print(model.certificate_)

# %%
# Where the components lie
# ------------------------
# A point is coloured by its posteriors; the ellipses hold half and 90 % of each component.

fig, ax = plt.subplots(figsize=(6.6, 5.0), layout="constrained")
names = [iris.feature_names[2], iris.feature_names[3]]
q = model.predict_proba(x)
plots.soft_clusters(
    x,
    q,
    ax,
    means=model.means_,
    covariances=model.covariances_,
    axes=(2, 3),
    names=names,
    weights=model.weights_,
)

# %%
# Who belongs where
# -----------------
# Rows by species. The species of a component is that of most of its flowers.

fig, ax = plt.subplots(figsize=(4.2, 5.0), layout="constrained")
plots.responsibilities(q, ax, labels=species)


def agreement(labels: np.ndarray) -> float:
    """Share of the flowers that have the commonest species of their component."""
    return sum(
        np.unique(iris.target[labels == z], return_counts=True)[1].max() for z in np.unique(labels)
    ) / len(labels)


print(
    f"{agreement(model.predict(x)):.1%} of the flowers have the commonest species of "
    "their component"
)

# %%
# How many components?
# --------------------
# The Bayesian information criterion weighs likelihood against parameters; lower is better. It knows
# nothing about species: two of the three overlap, and two
# components explain the measurements as well as three do.

ks = (1, 2, 3, 4, 5, 6)
bic = {
    kind: [
        GaussianMixture(k, covariance_type=kind, random_state=0, n_init=3).fit(x).bic(x) for k in ks
    ]
    for kind in ("spherical", "diag", "tied", "full")
}
fig, ax = plt.subplots(figsize=(6.0, 3.8), layout="constrained")
for kind, values in bic.items():
    ax.plot(ks, values, marker="o", markersize=4, label=kind)
ax.set(xlabel="components", ylabel="BIC")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
kind, k = min(((kind, k) for kind in bic for k in ks), key=lambda c: bic[c[0]][ks.index(c[1])])
print(f"least BIC: {k} components, {kind} covariances")

# %%
# Missing entries
# ---------------
# A fifth of all entries is hidden. They are integrated out: nothing is filled in, no row is
# dropped. With less to go by, the components share one covariance.

gappy = np.where(np.random.default_rng(0).random(x.shape) < 0.2, np.nan, x)
with_gaps = GaussianMixture(3, covariance_type="tied", random_state=0, n_init=5).fit(gappy)
whole = int((~np.isnan(gappy).any(axis=1)).sum())
print(
    f"with 20 % of the entries hidden ({whole} of {len(x)} rows are whole): "
    f"{agreement(with_gaps.predict(gappy)):.1%}"
)
plt.show()
