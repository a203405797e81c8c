r"""
5. Can gradient descent find PCA by itself?
===========================================

A network without nonlinearity and with a narrow waist, :math:`\hat x = V W x`, has the risk of a projection at its best.
With :math:`P = V W` and the covariance :math:`\Sigma` its gradients are

.. math::

   \frac{\partial R}{\partial V} = (P - I)\, \Sigma\, W^T , \qquad
   \frac{\partial R}{\partial W} = V^T (P - I)\, \Sigma .

Descending along minus these reaches the plane of PCA, not its axes: :math:`(V A, A^{-1} W)` is as good for every
invertible :math:`A`.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import digits

X, y = digits()
pca = eckart.PCA(3).fit(X)
net = eckart.LinearAutoencoder(3, optimizer="adam", random_state=0).fit(X)
angle = eckart.principal_angles(net.components_.T, pca.components_.T).max()
print(
    f"{net.n_iter_} steps, risk {net.reconstruction_error(X):.3f}, {np.degrees(angle):.5f} degrees from PCA"
)
print(
    f"PCA {pca.reconstruction_error(X):.3f}; largest |W - V^T| {abs(net.encoder_ - net.decoder_.T).max():.2f}"
)

# %%
# The risk falls to PCA's floor; the spikes are steps of Adam that were too long for what was left. The weights are not the
# principal components: the last number of the print says how far the encoder is from the transposed decoder.

risk = np.array(net.fit_.trace.values)
fig, ax = plt.subplots(figsize=(6, 3.2))
ax.loglog(np.arange(1, len(risk) + 1), risk - risk.min() + 1e-3, color="#0072b2")
ax.set(xlabel="step", ylabel="risk above PCA's floor")
fig.tight_layout()

# %%
# What breaks
# -----------
# A ridge on the weights keeps the plane and shrinks what is inside of it: :math:`P` is no projection any more.

for ridge in (0.0, 0.1):
    shrunk = eckart.LinearAutoencoder(
        3, ridge=ridge, optimizer="adam", random_state=0
    ).fit(X)
    P = shrunk.decoder_ @ shrunk.encoder_
    print(
        f"ridge {ridge}: eigenvalues of P",
        np.sort(np.linalg.eigvals(P).real)[::-1][:3].round(2),
    )

# %%
# Try
# ---
# a) What is the shape of :math:`(P - I) \Sigma W^T` here, and which of the two factors does it belong to?
# ``check("5a", (rows, columns))``
#
# b) Take any invertible 3 x 3 matrix A. By how much does the risk of (V A, A^-1 W) differ? ``check("5b", difference)``
#
# *Often seen in notes:* the two gradients exchanged (their shapes tell), or with the wrong sign (a finite difference
# tells).
