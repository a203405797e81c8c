r"""
9. How do you learn taste from 15 % of the stars?
=================================================

Fix the factors of the films; then the taste of each person is a ridge regression on the films they rated,

.. math:: u_i = \Big( \sum_j w_{ij} v_j v_j^T + \lambda I \Big)^{-1} \sum_j w_{ij} a_{ij} v_j ,

and the same with the roles exchanged. Each half sweep is solved exactly, so the objective can only fall.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import generator, hide, low_rank

r = generator()
taste = low_rank(300, 80, 3, r)
full = np.clip(np.round(3.4 + r.normal(0, 0.5, (300, 1)) + 0.47 * taste), 1, 5)
seen = hide(full, 0.15, r)


def rmse(B):
    return np.sqrt(np.mean((B - full)[np.isnan(seen)] ** 2))


print(f"means of films {rmse(np.nanmean(seen, axis=0) + 0 * full):.3f}")
for l2 in (0.1, 1.0, 10.0):
    model = eckart.ALS(3, l2=l2, random_state=0).fit(seen)
    falls = (np.diff(model.fit_.trace.values) < 1e-9).all()
    print(
        f"l2={l2:4.1f} error on hidden stars {rmse(model.predict(np.arange(300))):.3f}, falls: {falls}"
    )

# %%
# The ridge decides how far the stars are believed: much of it leaves nothing but the means. ``tune`` chooses rank and ridge on
# entries that it hides itself.

best = eckart.tune(
    seen, n_components=[2, 3, 5], l2=[0.03, 0.1, 0.3], random_state=0
).best
print("chosen:", best)
ridges = np.geomspace(0.01, 30, 12)
errors = [
    rmse(eckart.ALS(3, l2=l2, random_state=0).fit(seen).predict(np.arange(300)))
    for l2 in ridges
]
fig, ax = plt.subplots(figsize=(6, 3))
ax.semilogx(ridges, errors, "o-", color="#0072b2")
ax.axhline(
    rmse(np.nanmean(seen, axis=0) + 0 * full),
    linestyle="--",
    color="0.3",
    label="means of films",
)
ax.set(xlabel="l2", ylabel="error on hidden stars")
ax.legend()
fig.tight_layout()

# %%
# What breaks
# -----------
# Persons differ in how generous they are. Without biases and centring the factors have to learn that as well:

bare = eckart.ALS(3, l2=0.1, biases=False, normalise=None, random_state=0).fit(seen)
print(f"no biases, not centred: {rmse(bare.predict(np.arange(300))):.3f}")

# %%
# Try
# ---
# a) A person has rated two films and k is 3. What is the rank of :math:`\sum_j v_j v_j^T`? ``check("9a", rank)``
#
# b) Fit without person 0, then fold that row in with ``transform``. Is the error on its hidden stars below that of the
# means? ``check("9b", "yes")`` or ``check("9b", "no")``
#
# *Often believed:* an empty cell means zero stars. It means nothing yet; that is why the sums run over observed films only.
