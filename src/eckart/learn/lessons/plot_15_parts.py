r"""
15. Why do parts appear when nothing may be subtracted?
=======================================================

Factor a table of non-negative numbers into non-negative factors,

.. math:: A \approx W H, \qquad W, H \ge 0 .

Nothing can be taken away again, so what is added must be right where it is: components become local. Under the
Kullback-Leibler divergence this is pLSA again, up to scaling.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart import plots
from eckart.learn import digits

X, y = digits()
nmf = eckart.NMF(16, max_iter=400, random_state=0).fit(X)
pca = eckart.PCA(16).fit(X)
floor = np.sqrt((np.linalg.svd(X, compute_uv=False)[16:] ** 2).sum())


def empty(H):
    return np.mean(abs(H) < 0.05 * abs(H).max(axis=1, keepdims=True))


print(f"error {nmf.reconstruction_err_:.0f}, least of any rank 16: {floor:.0f}")
print(
    f"empty pixels: parts {empty(nmf.components_):.0%}, components {empty(pca.components_):.0%}"
)

# %%
# Parts on the left, components on the right; red adds, blue takes away.

fig, ax = plt.subplots(figsize=(8, 4.2))
plots.parts_and_components(nmf, pca, (8, 8), ax, count=16, columns=4)
fig.tight_layout()

# %%
# What breaks
# -----------
# There is no single answer. Two random starts end at nearly the same error with other parts:

one, two = (
    eckart.NMF(16, init="random", max_iter=400, random_state=seed).fit(X)
    for seed in (0, 1)
)
unit = [
    H / np.linalg.norm(H, axis=1, keepdims=True)
    for H in (one.components_, two.components_)
]
match = (unit[0] @ unit[1].T).max(axis=1)
print(
    f"errors {one.reconstruction_err_:.0f} and {two.reconstruction_err_:.0f}; a part and its nearest of the other fit: "
    f"cosine {np.median(match):.2f} in the middle, {match.min():.2f} at worst"
)

# %%
# Try
# ---
# a) What is the ratio of the error to the least one of rank 16? ``check("15a", ratio)``
#
# b) Fit ``PLSA`` twice to the same counts. The log-likelihood and minus the KL divergence differ by a constant; what is the
# difference of the differences? ``check("15b", number)``
#
# *Often believed:* NMF sees objects. It adds what never cancels; on other data that is no object.
