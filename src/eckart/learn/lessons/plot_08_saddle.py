r"""
8. Why is factoring one number hard?
====================================

The smallest factorization has one entry: find u and v with :math:`u v = a`. Its loss and its Hessian are

.. math::

   \ell(u, v) = \tfrac12 (a - u v)^2, \qquad
   \nabla^2 \ell = \begin{pmatrix} v^2 & 2uv - a \\ 2uv - a & u^2 \end{pmatrix} .

At zero the Hessian has the eigenvalues a and -a: a saddle, which descent may approach and leave slowly. From
:math:`u_0 = v_0` the product :math:`x = u v` follows a formula, with :math:`c = x(0)`:

.. math:: x(t) = \frac{a\, c\, e^{2at}}{c\, e^{2at} + a - c} .
"""

import matplotlib.pyplot as plt

from eckart import plots
from eckart.plots.recover import flow


def walk(a, u, v, step=0.05):
    for _ in range(160):
        u, v = u + step * (a - u * v) * v, v + step * (a - u * v) * u
    return u * v


for a, u, v in ((1, 0.1, 0.1), (1, 0.5, -0.5), (1, 0.5, -0.49), (-1, 0.5, 0.5)):
    exact = f"formula {flow(a, u * v, 8.0):.4f}" if u == v else "no formula"
    print(f"a={a:2d} from ({u}, {v}): product {walk(a, u, v) + 0.0:.4f}, {exact}")

# %%
# From (.5, -.5) descent runs straight into the saddle and stays; a hundredth beside it, it turns and arrives.

fig, ax = plt.subplots(figsize=(5, 4.4))
plots.saddle_field(1.0, ax, starts=[(0.5, -0.5), (0.5, -0.49), (0.1, 0.1)])
fig.tight_layout()

# %%
# Alternating does better: with v fixed the problem in u is a parabola, and one step :math:`u = a / v` ends on the branch
# :math:`u v = a`. That is the idea of the next lesson.
#
# What breaks
# -----------
# Equal starts are safe for a > 0 alone. For a = -1 the product of equal factors is a square and never negative: the last line
# of the print ends at 0.
#
# Try
# ---
# a) How long does the flow take from c = 0.0001 to a/2, for a = 1? ``check("8a", time)``
#
# b) Where does it end for a = -1 and equal starts? ``check("8b", limit)``
#
# *Often believed:* what is not convex has bad local minima. Here is none, only a saddle.
