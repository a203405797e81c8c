r"""
6. When does a deep code beat PCA?
==================================

Let encoder and decoder be networks. The risk is the same,

.. math:: R = \tfrac12\, \mathbb{E}\, \lVert x - G(F(x)) \rVert^2 ,

and with identity activations its optimum is PCA's. Curved codes can follow curved data with fewer numbers; they need more
rows to learn the curve from.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import digits

X, y = digits()
train, test = X[:1400], X[1400:]
how = {"max_iter": 50, "random_state": 0, "n_threads": 1}
models = {}
for k in (2, 8):
    for model in (eckart.PCA(k), eckart.Autoencoder(k, hidden=[128, 64], **how)):
        models[k, type(model).__name__] = model.fit(train)
        print(
            f"k={k} {type(model).__name__:12s} risk on unseen digits {model.reconstruction_error(test):.0f}"
        )

# %%
# The risk is measured on digits that no model has seen. Two numbers for each digit, drawn as a map, show where the gain comes
# from: the network keeps digits apart that PCA lays over one another.

fig, axes = plt.subplots(1, 2, figsize=(9, 4))
for ax, name in zip(axes, ("PCA", "Autoencoder")):
    codes = np.asarray(models[2, name].transform(test))
    ax.scatter(*codes.T, c=y[1400:], s=8, cmap="tab10")
    ax.set(title=name, xticks=[], yticks=[])
fig.tight_layout()

# %%
# What breaks
# -----------
# Sixty rows are too few to learn a curve from. The network knows them by heart and loses on all others:

few = train[:60]
for model in (eckart.PCA(8), eckart.Autoencoder(8, hidden=[128, 64], **how)):
    print(
        f"60 rows, {type(model).__name__:12s} risk on unseen digits {model.fit(few).reconstruction_error(test):.0f}"
    )

# %%
# Try
# ---
# a) Fit ``Autoencoder(2, activation="identity", hidden=[64], max_iter=60, random_state=0)`` to the 1,400 digits. What is
# its risk on them, and whose is that? ``check("6a", risk)``
#
# b) Who wins at k = 8 with 200 rows? ``check("6b", "pca")`` or ``check("6b", "autoencoder")``
#
# *Often believed:* the training error decides. With 60 rows the network's is the smaller one.
