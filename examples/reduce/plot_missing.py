"""
A table with gaps
=================

Real tables have empty cells. Filling them with column means first, and running PCA on the result,
treats invented numbers as observations. :class:`eckart.PCA` takes ``NaN`` as "not observed": it
fits a Gaussian with a low-rank covariance to the entries that are there, by maximum likelihood, and
``impute`` gives the missing ones their expected value.

Here the gaps are planted, so the truth is known.
"""

# %%
# Plant gaps
# ----------
# 569 rows and 30 measured columns, standardised. A share of the entries is hidden at random.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from eckart import PCA, principal_angles

table = load_breast_cancer()
truth = (table.data - table.data.mean(axis=0)) / table.data.std(axis=0)
k = 6


def hide(share: float, seed: int = 0) -> np.ndarray:
    """A copy of the table with a share of its entries missing."""
    return np.where(np.random.default_rng(seed).random(truth.shape) < share, np.nan, truth)


gappy = hide(0.2)
hidden = np.isnan(gappy)

# %%
# Fill them
# ---------
# Three ways: column means; PCA of the table whose gaps hold column means; PCA on the observed
# entries.

with_means = np.where(hidden, np.nanmean(gappy, axis=0), gappy)
on_means = PCA(k, random_state=0).fit(with_means)
model = PCA(k, random_state=0).fit(gappy)
ways = {
    "column means": with_means,
    "PCA of the filled table": on_means.inverse_transform(on_means.transform(with_means)),
    "PCA on observed entries": model.impute(gappy),
}


def rmse(filled: np.ndarray, where: np.ndarray) -> float:
    return float(np.sqrt(np.mean((filled - truth)[where] ** 2)))


for name, filled in ways.items():
    print(f"{name:<24} error of the hidden entries {rmse(filled, hidden):.3f}")

# %% The certificate is of kind "stationary": the likelihood never fell and one more step would
# change nothing. It does not claim that no better maximum exists elsewhere.

print(model.certificate_)

# %%
# Filled against true
# -------------------
# Column means know nothing about the row. The closer the points are to the diagonal, the better.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, sharey=True, layout="constrained")
for ax, (name, filled) in zip(axes, ways.items()):
    ax.scatter(truth[hidden], filled[hidden], s=4, alpha=0.3, linewidths=0)
    ax.plot([-3, 6], [-3, 6], color="0.4", linewidth=1, linestyle=":")
    ax.set(xlim=(-3, 6), ylim=(-3, 6), xlabel="true value")
    ax.set_title(f"{name}\nerror {rmse(filled, hidden):.3f}", loc="left", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("filled in")

# %%
# More gaps
# ---------
# The same as more entries go missing; and the largest angle between the two-dimensional subspace
# found and the one that the
# complete table has.

complete = PCA(2, random_state=0).fit(truth)
shares = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
errors = {"column means": [], "PCA on observed entries": []}
angles = {"column means": [], "PCA on observed entries": []}
for share in shares:
    gappy = hide(share, seed=1)
    hidden = np.isnan(gappy)
    with_means = np.where(hidden, np.nanmean(gappy, axis=0), gappy)
    model = PCA(k, random_state=0).fit(gappy)
    errors["column means"].append(rmse(with_means, hidden))
    errors["PCA on observed entries"].append(rmse(model.impute(gappy), hidden))
    for name, components in (
        ("column means", PCA(2, random_state=0).fit(with_means).components_),
        ("PCA on observed entries", model.components_[:2]),
    ):
        angles[name].append(
            float(np.degrees(principal_angles(components.T, complete.components_.T).max()))
        )

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for name in errors:
    axes[0].plot(shares, errors[name], marker="o", label=name)
    axes[1].plot(shares, angles[name], marker="o", label=name)
axes[0].set(xlabel="share of entries missing", ylabel="error of the hidden entries", ylim=(0, None))
axes[1].set(
    xlabel="share of entries missing",
    ylabel="angle to the complete subspace (degrees)",
    ylim=(0, None),
)
axes[0].legend(frameon=False)
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)

ratio = (
    errors["PCA on observed entries"][shares.index(0.2)] / errors["column means"][shares.index(0.2)]
)
print(f"at 20 % missing, PCA leaves {ratio:.2f} of the error of column means")
plt.show()
