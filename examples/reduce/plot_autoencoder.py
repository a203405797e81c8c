"""
A linear autoencoder learns PCA
===============================

A linear autoencoder with k hidden units, :math:`\\hat x = \\mu + V W (x - \\mu)`, has many global
minima: :math:`V A` and :math:`A^{-1} W` give the same map. All of them project onto the same
subspace, and it is the one that PCA finds. Gradient descent has to travel there. This example
follows five optimisers on their way.
"""

# %%
# The target
# ----------
# PCA gives the least risk that any linear autoencoder can have.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from eckart import PCA, LinearAutoencoder, principal_angles

digits = load_digits().data
k = 8
pca = PCA(k, random_state=0).fit(digits)
least = pca.reconstruction_error(digits)
print(f"PCA risk at k = {k}: {least:.6f}")

# %%
# The journeys
# ------------
# With the same seed, training for 100 steps is the beginning of training for 1000, so models
# stopped at growing step counts show one
# journey. ``components_`` is the canonical form: the orthonormal basis of what the decoder spans,
# ordered by variance.

steps = np.unique(np.geomspace(1, 3000, 16).astype(int))
optimizers = ("gd", "heavy_ball", "nesterov", "adagrad", "adam")
risk = {name: [] for name in optimizers}
angle = {name: [] for name in optimizers}
for name in optimizers:
    for most in steps:
        model = LinearAutoencoder(
            k, optimizer=name, max_iter=int(most), tol=1e-12, random_state=0
        ).fit(digits)
        risk[name].append(model.reconstruction_error(digits) / least - 1)
        angle[name].append(float(principal_angles(model.components_.T, pca.components_.T).max()))

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name in optimizers:
    axes[0].loglog(steps, np.maximum(risk[name], 1e-15), marker="o", markersize=3, label=name)
    axes[1].loglog(steps, np.maximum(angle[name], 1e-15), marker="o", markersize=3, label=name)
axes[0].set(xlabel="gradient steps", ylabel="risk / PCA risk - 1")
axes[1].set(xlabel="gradient steps", ylabel="largest angle to the PCA subspace (radians)")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)

# %%
# Has it arrived?
# ---------------
# The certificate of the autoencoder is the one of PCA, for the subspace found, with the norm of the
# gradient. Stopped too early it does
# not hold, and says why.

early = LinearAutoencoder(k, optimizer="gd", max_iter=30, random_state=0).fit(digits)
print("after 30 steps of gd:", early.certificate_.reason)
print()

# %%
# Trained to the end, all five hold.

worst = 0.0
for name in optimizers:
    model = LinearAutoencoder(k, optimizer=name, random_state=0).fit(digits)
    off = float(principal_angles(model.components_.T, pca.components_.T).max())
    worst = max(worst, off)
    print(
        f"{name:<11} {model.n_iter_:>6} steps   risk "
        f"{model.reconstruction_error(digits):.6f}   angle {off:.1e}   "
        f"certificate {'holds' if model.certificate_.holds else 'does not hold'}"
    )
print(f"largest angle to the PCA subspace: {worst:.1e} radians")
plt.show()
