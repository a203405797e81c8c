r"""
13. Which group does a flower belong to, and how surely?
========================================================

A mixture says how data could have come about: draw a group z with probability :math:`\pi_z`, then a point from
:math:`p(x; \theta_z)`. Groups are not observed. For any guess :math:`q_{tz}` of the memberships there is a bound from below,

.. math::

   \sum_t \log p(x_t) \;\ge\; \sum_t \Big[ \sum_z q_{tz} \log p(x_t; \theta_z) - \operatorname{KL}(q_t \,\Vert\, \pi) \Big] ,

and EM climbs it in two halves: the E step sets :math:`q_{tz} \propto \pi_z\, p(x_t; \theta_z)`, the M step fits every group
with these weights. Neither half can lower it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

import eckart

flowers = load_iris().data[:, 2:]
for seed in range(4):
    model = eckart.GaussianMixture(
        3, init_params="random_from_data", tol=1e-6, max_iter=200, random_state=seed
    ).fit(flowers)
    bounds = np.asarray(model.lower_bounds_)
    rises = (np.diff(bounds) > -1e-9).all()
    print(f"start {seed}: {bounds[0]:.3f} -> {bounds[-1]:.4f}, never falls: {rises}")
q = model.predict_proba(flowers)
print("least certain flower:", q[q.max(axis=1).argmin()].round(2))

# %%
# Different starts end at different heights: EM finds a top, not the highest. Colours mixed by membership show where the
# groups run into one another.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4))
axes[0].scatter(*flowers.T, c=np.clip(q, 0, 1), s=14)
axes[0].set(xlabel="petal length, cm", ylabel="petal width, cm")
axes[1].plot(bounds, ".-", color="#0072b2")
axes[1].set(xlabel="step", ylabel="bound, a flower")
fig.tight_layout()

# %%
# What breaks
# -----------
# A group that shrinks onto one repeated point has a density without limit. ``reg_covar`` is the floor below it; each time it
# is cut to a hundredth, the bound soars by the same amount:

r = np.random.default_rng(0)
points = np.vstack([r.standard_normal((60, 1)), np.full((3, 1), 2.5)])
ends = []
for floor in (1e-6, 1e-8, 1e-10):
    start = {
        "means_init": np.array([[0.0], [2.5]]),
        "precisions_init": np.array([[[1.0]], [[1e6]]]),
    }
    spike = eckart.GaussianMixture(
        2, reg_covar=floor, weights_init=[0.95, 0.05], tol=1e-9, max_iter=500, **start
    )
    ends.append(spike.fit(points).lower_bound_)
print("bounds:", np.round(ends, 3))

# %%
# Try
# ---
# a) What is the best bound of starts 0 to 3? ``check("13a", bound)``
#
# b) Three of 63 points lie on the spike, and the deviation falls by a factor of 10 each time. By how much must the bound
# rise? ``check("13b", rise)``
#
# *Often seen in notes:* the KL term outside of the sum over t. Each point has its own memberships and its own term.
