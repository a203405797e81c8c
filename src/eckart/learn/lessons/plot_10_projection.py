r"""
10. What if we just project back to rank k?
===========================================

Take a step towards the observed entries, cut to rank k by the SVD, repeat (singular value projection):

.. math:: B \leftarrow \big[\, B + \eta\, \Pi(A - B) \,\big]_k .

:math:`\Pi` keeps what was observed. The full matrix is never formed: B is two thin factors, the step is sparse.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import generator, hide, low_rank, relative_error

r = generator()
A = low_rank(60, 40, 3, r)
seen = hide(A, 0.4, r)
for k in (2, 3, 4):
    model = eckart.SVP(k, max_iter=320, random_state=0).fit(seen)
    error = relative_error(model.predict(np.arange(60)), A)
    left = model.certificate_["relative residual"]
    print(
        f"asked for rank {k}: error {error:.0e}, at observed cells {left:.0e}, holds: {model.certificate_.holds}"
    )

# %%
# At the right rank everything comes back. One rank too many fits the observed cells as well, and is wrong elsewhere: a
# certificate answers the question that was asked.
#
# The plain loop, with four steps:

mask, known = np.isfinite(seen), np.nan_to_num(seen)
fig, ax = plt.subplots(figsize=(6, 3.2))
for eta in (0.5, 1.0, 2.0, 2.5):
    B, errors = np.zeros_like(A), []
    for _ in range(150):
        U, s, V = np.linalg.svd(B + eta * mask * (known - B), full_matrices=False)
        B = (U[:, :3] * s[:3]) @ V[:3]
        errors.append(min(relative_error(B, A), 1e3))
        if errors[-1] >= 1e3:
            break
    ax.semilogy(errors, label=f"step {eta}")
ax.set(xlabel="iterations", ylabel="relative error")
ax.legend()
fig.tight_layout()

# %%
# What breaks
# -----------
# The wrong rank, as above, and a step that is too long: at 2.5 the error climbs off the page. Steps above 1 are not wrong
# in themselves. Only four tenths of the entries are seen, so a longer step stands in for the rest.
#
# Try
# ---
# a) Which is the largest of the steps 1, 1.5, 2 and 2.5 that converges in the plain loop? ``check("10a", step)``
#
# b) At rank 4: which cells fit, the "seen" ones or "all"? ``check("10b", "seen")``
#
# *Often believed:* a residual of zero means that the matrix was recovered.
