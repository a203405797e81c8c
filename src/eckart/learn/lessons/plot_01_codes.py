r"""
1. What is lost when 64 numbers become 2?
=========================================

A *code* is a short list of numbers that stands for a long one. An encoder :math:`F` makes it, a decoder :math:`G`
turns it back, and the risk says what is lost on the way:

.. math:: R = \tfrac12\, \mathbb{E}\, \lVert x - G(F(x)) \rVert^2 .

For a projection :math:`P` of centred data the risk is exactly the variance that the code does not carry,

.. math:: R = \tfrac12 \left( \operatorname{Var} x - \operatorname{Var} P x \right),

where :math:`\operatorname{Var}` is the sum of the variances of all coordinates. Keeping variance and losing little are one
and the same.
"""

import matplotlib.pyplot as plt

import eckart
from eckart.learn import digits

X, y = digits()
total = X.var(axis=0).sum()
for k in (0, 2, 10, 30):
    model = eckart.PCA(k).fit(X)
    back = model.inverse_transform(model.transform(X))
    carried = back.var(axis=0).sum()
    print(
        f"k={k:2d}  risk {model.reconstruction_error(X):6.1f} = {0.5 * (total - carried):6.1f}"
    )

# %%
# Both columns agree: the first measures errors, the second only variances. One digit at several code sizes shows what the
# numbers mean.

fig, axes = plt.subplots(1, 5, figsize=(9, 2.2))
for ax, k in zip(axes, (1, 2, 10, 30, 64)):
    model = eckart.PCA(k).fit(X)
    ax.imshow(
        model.inverse_transform(model.transform(X[3:4])).reshape(8, 8), cmap="gray_r"
    )
    ax.set(title=f"{k} numbers", xticks=[], yticks=[])
fig.tight_layout()

# %%
# What breaks
# -----------
# The identity needs centred data. The same plane through the origin, without the offset, carries the same variance and
# loses much more: the part of the mean that it cannot express counts as error for every row.

V = eckart.PCA(2).fit(X).components_.T
for name, offset in (
    ("through the mean", X.mean(axis=0)),
    ("through the origin", None),
):
    plane = eckart.Projection.onto(V, offset=offset)
    print(f"{name}: risk {0.5 * (plane.distance(X) ** 2).mean():.1f}")

# %%
# Try
# ---
# a) What is the least k that loses less than 10 % of the variance? ``check("1a", k)``
#
# b) By how much do the last two risks differ, and which part of the mean is that? ``check("1b", difference)``
#
# *Often believed:* variance is what matters. It is what a linear code keeps; whether it matters is for you to say: the
# largest variance of a table may be its largest unit (:doc:`plot_03_eigenvectors`).
