"""
Why completion is hard: a saddle
================================

The smallest matrix to complete has one entry, :math:`a`, and one number on each side: :math:`a
\\approx u v`. The loss
:math:`l(u, v) = \\tfrac12 (a - u v)^2` is already not convex. Its Hessian is

.. math:: \\begin{pmatrix} v^2 & 2uv - a \\\\ 2uv - a & u^2 \\end{pmatrix},

at :math:`u = v = 0` the eigenvalues are :math:`\\pm a`: a saddle. Every zero start lies on it, and
every small start stays near it for a while. This example draws the field, follows the gradient
flow, and compares small steps with the exact solution.
"""

# %%
# The field
# ---------
# Minima fill the two branches of :math:`uv = a`. Arrows show steepest descent, red lines the flow
# from four starts. Along each line
# :math:`u^2 - v^2` stays what it was. The start on the diagonal :math:`v = -u` runs into the saddle
# and stays there; a start beside
# it turns away.

import matplotlib.pyplot as plt
import numpy as np

from eckart import plots

a = 1.0
hessian = np.array([[0.0, -a], [-a, 0.0]])
print("eigenvalues of the Hessian at 0:", np.linalg.eigvalsh(hessian).round(3).tolist())

fig, ax = plt.subplots(figsize=(5.8, 5.4), layout="constrained")
plots.saddle_field(a, ax, starts=((0.1, 0.1), (1.8, 0.2), (-1.3, 1.3), (-1.3, 1.6)))

# %%
# Leaving the saddle
# ------------------
# From :math:`u_0 = v_0` the product :math:`x = uv` obeys :math:`\dot x = 2 (a - x) x`, so that
#
# .. math:: x(t) = \frac{a c e^{2at}}{c e^{2at} + a - c}, \qquad c = x(0) .
#
# A small start waits: it reaches half the height at :math:`t = \ln\frac{a - c}{c} / (2a)`. Dots are
# steps of gradient descent.

step, time = 0.05, 8.0
starts = (1e-4, 1e-2, 0.1, 2.0)
fig, ax = plt.subplots(figsize=(6.6, 4.0), layout="constrained")
plots.saddle_escape(a, starts, ax, step=step, time=time)
for c in starts[:3]:
    wait = np.log((a - c) / c) / (2 * a)
    ax.plot([wait, wait], [0, a / 2], color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    print(f"from x(0) = {c:g} half the height is reached at t = {wait:.2f}")

# %%
# How closely small steps follow the flow: the largest distance shrinks in proportion to the step.


def descend(c: float, step: float) -> np.ndarray:
    """x = uv after each step of gradient descent from u = v = sqrt(c)."""
    u = v = np.sqrt(c)
    path = [u * v]
    for _ in range(round(time / step)):
        u, v = u + step * (a - u * v) * v, v + step * (a - u * v) * u
        path.append(u * v)
    return np.array(path)


for h in (0.05, 0.005):
    path = descend(1e-2, h)
    gap = np.abs(path - plots.flow(a, 1e-2, np.arange(len(path)) * h)).max()
    print(f"largest distance from the exact flow at step {h:g}: {gap:.4f}")
plt.show()
