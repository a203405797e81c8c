r"""
4. How does repeated multiplication find the top direction?
===========================================================

Multiply any vector by a symmetric matrix again and again: its part along the leading eigenvector grows fastest and, in
the end, is all that is left.

.. math:: v \leftarrow \frac{A v}{\lVert A v \rVert}

Each step shrinks the angle to :math:`u_1` by the factor :math:`|\lambda_2 / \lambda_1|`. For the next direction the found
one is taken out (*deflation*): :math:`A - \sum_i \lambda_i u_i u_i^T`.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import digits, generator

X, y = digits()
C = np.cov(X.T, bias=True)
found = eckart.power_method(C, k=3, tol=1e-10, random_state=0)
values, vectors = np.linalg.eigh(C)
values, vectors = values[::-1], vectors[:, ::-1]
for i in range(3):
    print(
        f"l={found.values[i]:6.1f}  steps {found.iterations[i]:3d}  "
        f"rate seen {found.rates[i]:.3f}  theory {values[i + 1] / values[i]:.3f}"
    )

# %%
# The plain loop, step by step, beside the promise :math:`(\lambda_2/\lambda_1)^t`:

v, angles = generator().standard_normal(64), []
for _ in range(80):
    v = C @ v / np.linalg.norm(C @ v)
    angles.append(np.sqrt(max(1 - (v @ vectors[:, 0]) ** 2, 1e-32)))
steps = np.arange(80)
fig, ax = plt.subplots(figsize=(6, 3.2))
ax.semilogy(
    steps, angles, "o", markersize=3, color="#0072b2", label="sine of the angle"
)
ax.semilogy(
    steps,
    angles[20] * (values[1] / values[0]) ** (steps - 20),
    "--",
    color="0.3",
    label="theory",
)
ax.set_xlabel("steps")
ax.legend()
fig.tight_layout()

# %%
# What breaks
# -----------
# With eigenvalues 3 and -3 the plain iterate swings for ever between two directions. The library steps on two vectors at
# once and returns both:

swing = eckart.power_method(np.diag([3.0, -3.0, 1.0]), k=2, random_state=0)
print("eigenvalues found:", np.round(swing.values, 6))

# %%
# Try
# ---
# a) How many steps does the first direction take at ``tol=1e-5``? Predict it from the rate, then look.
# ``check("4a", steps)``
#
# b) Start the plain loop for diag(3, 2, 1) at (0, 1, 1). Which eigenvalue does it find? ``check("4b", value)``
#
# *Often believed:* small steps mean convergence. At a ratio of .99 the steps are small long before the direction is right.
