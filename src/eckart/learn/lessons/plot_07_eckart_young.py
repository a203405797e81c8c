r"""
7. Can anyone beat the truncated SVD?
=====================================

Write :math:`A = \sum_i s_i u_i v_i^T` with falling singular values and keep the first k terms. No matrix of rank k is
nearer (Eckart and Young, 1936):

.. math:: \lVert A - A_k \rVert_F^2 = \sum_{i>k} s_i^2 .

The same numbers give the three norms that this course needs: :math:`\lVert A \rVert_F^2 = \sum s_i^2`,
:math:`\lVert A \rVert_2 = s_1`, :math:`\lVert A \rVert_* = \sum s_i`.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import generator, photograph

photo, r = photograph(), generator()
U, s, V = eckart.randomized_svd(photo, 20, power_iterations=4, random_state=0)
every = np.linalg.svd(photo, compute_uv=False)
print(
    f"rank 20 leaves {np.linalg.norm(photo - (U * s) @ V.T):.4f}, tail {np.sqrt((every[20:] ** 2).sum()):.4f}"
)
near = [np.linalg.qr(U + 1e-3 * r.standard_normal(U.shape))[0] for _ in range(200)]
rivals = [np.linalg.norm(photo - Q @ (Q.T @ photo)) for Q in near]
print(f"best of 200 nearby rivals {min(rivals):.4f}")

# %%
# Every rival is worse. The photograph at several ranks:

W, w, Z = np.linalg.svd(photo, full_matrices=False)
fig, axes = plt.subplots(1, 4, figsize=(9, 1.8))
for ax, k in zip(axes, (1, 5, 20, len(w))):
    ax.imshow((W[:, :k] * w[:k]) @ Z[:k], cmap="gray", vmin=0, vmax=1)
    ax.set(title=f"rank {k}", xticks=[], yticks=[])
fig.tight_layout()

# %%
# What breaks
# -----------
# The theorem speaks of a matrix that is known. Hide half of the pixels: setting them to 0 and cutting the SVD is a poor
# answer, and a method that knows which pixels are missing beats it.

seen = eckart.learn.hide(photo, 0.5, r)
gone = np.isnan(seen)
U, s, V = eckart.randomized_svd(
    np.nan_to_num(seen), 20, power_iterations=4, random_state=0
)
filled = eckart.SoftImpute(random_state=0).fit(seen).impute()
for name, B in (("zeros and SVD", (U * s) @ V.T), ("SoftImpute", np.asarray(filled))):
    print(
        f"{name:14s} relative error at hidden pixels {eckart.learn.relative_error(B[gone], photo[gone]):.2f}"
    )

# %%
# Try
# ---
# a) What is the least rank with a relative error under 10 %? ``check("7a", rank)``
#
# b) What is the spectral norm of :math:`A - A_{20}`? ``check("7b", norm)``
#
# *Often seen in notes:* :math:`\lVert M \rVert_F^2 = \sum m_{ij}`. Without the square the matrix [[1, -1]] has norm 0.
