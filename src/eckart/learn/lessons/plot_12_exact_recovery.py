r"""
12. When can holes be filled exactly?
=====================================

A matrix of rank k has :math:`k (n + m - k)` degrees of freedom. Fewer observed entries cannot determine it. More may, and
sometimes there is a proof: let T be the tangent space at the answer B with :math:`E = U V^T`. If no matrix of T vanishes on
the observed entries, and there is a Y supported on them with

.. math:: P_T Y = E, \qquad \lVert P_{T^\perp} Y \rVert_2 < 1,

then B is the only matrix of least nuclear norm with these entries.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import generator, hide, low_rank, relative_error

warnings.simplefilter(
    "ignore"
)  # of fits that end before they are exact: here they are counted
r = generator()
A = low_rank(40, 40, 2, r)
for share in (0.1, 0.2, 0.35, 0.5):
    seen = hide(A, share, r)
    model = eckart.ExactRecovery(2, random_state=0).fit(seen)
    proof = eckart.recovery_certificate(model, eckart.observed(seen))
    error = relative_error(model.predict(np.arange(40)), A)
    print(
        f"{share:4.0%} seen: {np.isfinite(seen).sum() / 156:.1f} entries a degree, error {error:.0e}, "
        f"proven: {proof.holds}"
    )

# %%
# At 20 % the answer is right and not proven: the nuclear norm would not have found it. The picture shows, for many ranks
# and shares, whether a random matrix came back (white); on the line entries and degrees of freedom are equal.

shares, ranks = np.linspace(0.1, 0.9, 6), np.arange(1, 7)
found = np.zeros((len(ranks), len(shares)))
for i, k in enumerate(ranks):
    for j, share in enumerate(shares):
        B = low_rank(20, 20, k, r)
        model = eckart.ExactRecovery(k, random_state=0, max_iter=60).fit(
            hide(B, share, r)
        )
        found[i, j] = relative_error(model.predict(np.arange(20)), B) < 1e-3
fig, ax = plt.subplots(figsize=(5, 3.4))
ax.pcolormesh(shares, ranks, found, cmap="gray", shading="nearest")
ax.plot(
    ranks * (40 - ranks) / 400, ranks, "--", color="#d55e00", label="degrees of freedom"
)
ax.set(xlabel="share of entries seen", ylabel="rank", xlim=(0.1, 0.9))
ax.legend()
fig.tight_layout()

# %%
# What breaks
# -----------
# Counting is not enough. A matrix with one large entry, which was not seen, has rank 1 and looks empty:

spike = np.zeros((40, 40))
spike[7, 7] = 5.0
seen = hide(spike, 0.5, r)
seen[7, 7] = np.nan
model = eckart.ExactRecovery(1, random_state=0).fit(seen)
print("at the spike:", abs(round(model.predict(7, 7).item(), 3)))

# %%
# Try
# ---
# a) How many degrees of freedom has a 40 x 40 matrix of rank 2? ``check("12a", count)``
#
# b) What is predicted at the hidden spike? ``check("12b", value)``
#
# *Often believed:* if a matrix can be recovered, the nuclear norm recovers it. The row of 20 % says otherwise.
