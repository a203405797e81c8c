r"""
3. Why eigenvectors?
====================

Which plane loses least? Write the risk of a projection with the covariance :math:`\Sigma`:

.. math:: R(P) = \tfrac12 \left( \operatorname{tr} \Sigma - \operatorname{tr} P \Sigma \right) .

The best plane of dimension k is spanned by the k leading eigenvectors, and what it loses is half the sum of the other
eigenvalues: :math:`R = \tfrac12 \sum_{i>k} \lambda_i`.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import digits, generator

X, y = digits()
r, mean = generator(), X.mean(axis=0)


def lost(V):
    return np.mean(eckart.Projection.onto(V, offset=mean).distance(X) ** 2) / 2


tries = [lost(r.standard_normal((64, 2))) for _ in range(200)]
values = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
best = eckart.PCA(2).fit(X)
print(
    f"best of 200 planes {min(tries):.0f}, PCA {lost(best.components_.T):.1f}, "
    f"half the tail {values[2:].sum() / 2:.1f}; proven: {best.certificate_.holds}"
)

# %%
# In two dimensions all lines can be tried. There is one valley, and its floor is half the smaller eigenvalue.

Z = r.standard_normal((400, 2)) @ np.array([[2.0, 0.6], [0.0, 0.7]])
Z -= Z.mean(axis=0)
turns = np.radians(np.arange(180))
risk = [np.mean((Z @ [-np.sin(t), np.cos(t)]) ** 2) / 2 for t in turns]
floor = np.linalg.eigvalsh(np.cov(Z.T, bias=True))[0] / 2
fig, axes = plt.subplots(1, 2, figsize=(9, 3))
axes[0].scatter(*Z.T, s=6, color="0.6")
axes[0].axline((0, 0), slope=np.tan(turns[np.argmin(risk)]), color="#0072b2")
axes[0].set_aspect("equal")
axes[1].plot(np.degrees(turns), risk, color="#0072b2")
axes[1].axhline(floor, linestyle="--", color="0.3", label="half the small eigenvalue")
axes[1].set(xlabel="angle of the line, degrees", ylabel="risk")
axes[1].legend()
fig.tight_layout()

# %%
# What breaks
# -----------
# Variance has a unit. In the wine table one column is measured in hundreds, and it is the first component, all alone;
# ``scale=True`` divides the units out.

wine = eckart.learn.wine()
for scale in (False, True):
    model = eckart.PCA(1, scale=scale).fit(wine)
    print(
        f"scale={scale}: first component holds {model.explained_variance_ratio_[0]:.1%}, "
        f"mostly {model.top_features(1)[0][0][0]}"
    )

# %%
# Try
# ---
# a) Which column dominates the unscaled table? ``check("3a", "its name")``
#
# b) What is the risk of the digits at k = 5, from the eigenvalues alone? ``check("3b", risk)``
#
# *Often believed:* components are causes. They are directions of large variance, whatever made it.
