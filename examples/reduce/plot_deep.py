"""
Digits through two numbers: a network beside PCA
================================================

An autoencoder is an encoder :math:`F` and a decoder :math:`G`, trained together so that
:math:`G(F(x))` is near :math:`x`. With linear maps the best it can do is PCA. With hidden layers
the k numbers are coordinates on a curved surface. This example shows what that is worth on digits,
on images that the fit has not seen.
"""

# %%
# The same k, two models
# ----------------------
# The certificate of a network proves little: no bound from below is known. So it puts the error on
# held-out rows first, and that of PCA at equal k beside it.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from eckart import PCA, Autoencoder, plots

digits = load_digits()
X, y = digits.data, digits.target
train, test = slice(0, 1400), slice(1400, None)
k = 2
net = Autoencoder(k, hidden=[128, 64], max_iter=50, random_state=0, n_threads=1).fit(X[train])
pca = PCA(k).fit(X[train])
print(net.certificate_)
ours, linear = (m.reconstruction_error(X[test]) for m in (net, pca))
print(f"risk on unseen digits at k = {k}: autoencoder {ours:.1f}, PCA {linear:.1f}")

# %%
# How it learned
# --------------
# A tenth of the rows is held out. The weights of the epoch with the least held-out loss are kept.

figure, ax = plt.subplots(figsize=(6, 3.4))
plots.loss_curves(net, ax)

# %%
# Two maps
# --------
# How well two numbers tell digits apart is measured by the 10 nearest neighbours of unseen digits.

score = {}
for name, model in (("autoencoder", net), ("PCA", pca)):
    neighbours = KNeighborsClassifier(10).fit(model.transform(X[train]), y[train])
    score[name] = neighbours.score(model.transform(X[test]), y[test])
print(
    f"10 nearest neighbours: accuracy {score['autoencoder']:.3f} from the network's "
    f"map, {score['PCA']:.3f} from PCA's"
)

figure, axes = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
plots.code_maps({"Autoencoder": net.transform(X), "PCA": pca.transform(X)}, y, axes)

# %%
# What comes back
# ---------------
# Inputs, PCA and network at the same k; below, the images on a straight line between two codes.

shown = X[test][:12]
back = {"PCA": pca.inverse_transform(pca.transform(shown)), "autoencoder": net.reconstruct(shown)}
figure, ax = plt.subplots(figsize=(10, 3), layout="constrained")
plots.compare_rows(shown, back, (8, 8), ax)
figure, ax = plt.subplots(figsize=(9, 1.4), layout="constrained")
plots.code_walk(net, shown[0], shown[1], (8, 8), ax)
