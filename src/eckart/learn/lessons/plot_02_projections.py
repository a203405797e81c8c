r"""
2. What is the nearest point in a plane?
========================================

The nearest point of a subspace is reached along a line that meets it at a right angle. With an orthonormal basis
:math:`U` that point is :math:`P x`, :math:`P = U U^T`; with any spanning columns :math:`V`, also dependent ones,

.. math:: P = V V^+ , \qquad P^2 = P = P^T .

Two subspaces are compared by their principal angles: the smallest angle between any two directions, then the smallest
among what is left, and so on.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import digits

X, y = digits()
ones, sevens = (eckart.PCA(5).fit(X[y == d]) for d in (1, 7))
plane = eckart.Projection.onto(ones.components_.T, offset=ones.mean_)
for d in (1, 7, 0):
    print(
        f"mean distance of a {d} to the plane of ones: {plane.distance(X[y == d]).mean():.1f}"
    )
angles = eckart.principal_angles(ones.components_.T, sevens.components_.T)
print("angles to the plane of sevens:", np.degrees(angles).round(), "degrees")

# %%
# Distance to a plane is already a classifier. The same in two dimensions: a point, its foot, and a skew projection, which
# is idempotent too but lands further away.

fig, ax = plt.subplots(figsize=(5, 3.2))
x, u, skew = (
    np.array([1.0, 2.0]),
    np.array([2.0, 1.0]) / np.sqrt(5),
    np.array([1.0, 0.0]),
)
foot = u * (u @ x)
lands = u * (skew @ x) / (skew @ u)
ax.axline((0, 0), slope=0.5, color="0.6")
for end, colour, name in ((foot, "#009e73", "nearest"), (lands, "#d55e00", "skew")):
    ax.plot(
        *np.array([x, end]).T,
        "o-",
        color=colour,
        label=f"{name}: {np.hypot(*(x - end)):.2f}",
    )
ax.set_aspect("equal")
ax.legend(title="distance", loc="lower right")
ax.set_xlim(-0.2, 3.2)
fig.tight_layout()

# %%
# What breaks
# -----------
# The textbook formula :math:`V (V^T V)^{-1} V^T` needs independent columns. With dependent ones it fails or, worse,
# returns noise. ``Projection.onto`` finds the rank first:

V = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
print("rank found:", eckart.Projection.onto(V).rank)

# %%
# Try
# ---
# a) Fit ten planes (10 components each, the first 1,400 digits of each class) and call each of the last 397 digits by its
# nearest plane. How accurate is that? ``check("2a", share)``
#
# b) What is the rank of the projection onto the span of all centred digits? ``check("2b", rank)``
#
# *Often believed:* :math:`P^2 = P` makes a projection shortest. The skew one above is idempotent as well; it is
# :math:`P = P^T` that makes the angle right.
