"""
When can a matrix be recovered?
===============================

A matrix of rank :math:`k` with :math:`n` rows and :math:`m` columns has :math:`k (n + m - k)`
degrees of freedom. With fewer observed entries than that, no method can know it. With a little
more, some methods do. This example draws random matrices of several ranks, shows a share of their
entries to two solvers, and marks what was recovered.
"""

# %%
# The experiment
# --------------
# A random matrix for each rank and share (more ``trials`` make the border smoother). With fewer
# than 1.2 entries for each degree of freedom nothing is
# tried: such cells count as lost. Recovered means a relative error below 0.0001 over the whole
# matrix.
# :class:`eckart.ExactRecovery` costs more, so it is asked only where :class:`eckart.SVP` failed.

import matplotlib.pyplot as plt
import numpy as np

from eckart import SVP, ExactRecovery, plots, recovery, recovery_certificate

n, m, trials = 32, 32, 1
ranks, rates = np.arange(1, 7), np.arange(0.1, 0.525, 0.05)


def problem(k: int, rate: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of rank k, and the same with NaN where it is not shown."""
    rng = np.random.default_rng([int(k), seed])
    a = rng.standard_normal((n, k)) @ rng.standard_normal((k, m))
    return a, np.where(rng.random((n, m)) < rate, a, np.nan)


def recovered(solver, gappy: np.ndarray, a: np.ndarray) -> bool:
    b = solver.fit(gappy).predict(np.arange(n))
    return bool(np.linalg.norm(b - a) < 1e-4 * np.linalg.norm(a))


first, both = np.zeros((2, len(ranks), len(rates)))
for i, k in enumerate(ranks.tolist()):
    for j, rate in enumerate(rates):
        for seed in range(trials):
            a, gappy = problem(k, rate, seed)
            if np.isfinite(gappy).sum() < 1.2 * k * (n + m - k):
                continue
            found = recovered(SVP(k, max_iter=200, random_state=0), gappy, a)
            first[i, j] += found / trials
            both[i, j] += (
                found
                or recovered(ExactRecovery(k, attempts=1, max_iter=40, random_state=0), gappy, a)
            ) / trials
squares = {"SVP": first, "SVP, then ExactRecovery": both}

# %%
# The square
# ----------
# To the left of the orange curve there are fewer entries than degrees of freedom. Gradient steps at
# a fixed rank need some room to
# the right of it. Reweighted least squares gets closer to it.

fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
for ax, (name, found) in zip(axes, squares.items()):
    plots.phase_square(rates, ranks, found, (n, m), ax)
    ax.set_title(name, loc="left", fontsize=11)

for name, found in squares.items():
    print(f"{name:<24} recovered {int(found.sum() * trials)} of {found.size * trials} matrices")

# %%
# Asking before and after
# -----------------------
# :func:`eckart.recovery` counts before any fit what stands against recovery and names the rows
# concerned. Here 40 % of the entries
# of a matrix of rank 3 are there, except that row 5 shows one entry.

_, gappy = problem(3, 0.4)
gappy[5, np.flatnonzero(np.isfinite(gappy[5]))[1:]] = np.nan
print(recovery(gappy, 3))

# %% :func:`eckart.recovery_certificate` asks after a fit whether the result is proven to be the one
# that the entries determine. With two thirds of the entries of a matrix of rank 2 it is: every
# other matrix with these entries has a larger nuclear norm.

_, gappy = problem(2, 0.67)
model = ExactRecovery(2, random_state=0).fit(gappy)
proof = recovery_certificate(model)
print(proof)
print(f"verdict: {proof['verdict']}")
plt.show()
