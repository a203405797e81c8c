r"""
11. Can a penalty choose the rank?
==================================

The nuclear norm :math:`\lVert B \rVert_* = \sum s_i` is to singular values what the absolute value is to numbers: its prox
shrinks all of them alike, and small ones vanish.

.. math::

   \operatorname{shrink}_\tau(M) = U\, (S - \tau)_+\, V^T
   = \arg\min_B\; \tfrac12 \lVert M - B \rVert_F^2 + \tau \lVert B \rVert_*

With missing entries the same penalty is put on :math:`\tfrac12 \lVert \Pi(A - B) \rVert_F^2` (Soft-Impute). From
:math:`\tau = \lVert \Pi(A) \rVert_2` on the answer is zero; below it directions enter one by one.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart import plots
from eckart.learn import generator, hide, low_rank

r = generator()
A = low_rank(60, 40, 3, r)
seen = hide(A + 0.3 * r.standard_normal(A.shape), 0.5, r)
model = eckart.SoftImpute(tau=1.0, path=8, normalise=None, random_state=0).fit(seen)
for tau, s in zip(model.path_taus_, model.path_singular_values_):
    print(
        f"tau {tau:5.1f}  rank {len(s):2d}  largest singular values {np.round(s[:4], 1)}"
    )

# %%
# The rank stays at the truth, 3, over a wide range of tau, and then noise enters.

fig, ax = plt.subplots(figsize=(6, 3.4))
plots.shrinkage_path(model.path_taus_, model.path_singular_values_, ax)
fig.tight_layout()

# %%
# What breaks
# -----------
# What is missing must be scattered. As many pixels of a photograph, hidden as a block, do not come back: nothing that is
# seen speaks of their rows and columns together.

photo = eckart.learn.photograph()[:90, :120]
scattered, block = photo.copy(), photo.copy()
scattered[r.random(photo.shape) < 1200 / photo.size] = np.nan
block[30:60, 40:80] = np.nan
for name, holes in (
    ("1,200 scattered pixels", scattered),
    ("a block of 30 x 40", block),
):
    gone = np.isnan(holes)
    filled = np.asarray(eckart.SoftImpute(random_state=0).fit(holes).impute())
    print(
        f"{name:22s} relative error {eckart.learn.relative_error(filled[gone], photo[gone]):.2f}"
    )

# %%
# Try
# ---
# a) What is the smallest tau whose answer is zero? ``check("11a", tau)``
#
# b) Singular value thresholding (``SVT``) minimises :math:`\tau \lVert B \rVert_* + c \lVert B \rVert_F^2` subject to
# :math:`\Pi(B) = \Pi(A)`. What is c? ``check("11b", c)``
#
# *Often believed:* the rank falls with every rise of tau. It never rises; it may stay for long, and that is the useful part.
