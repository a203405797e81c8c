"""
Singular values along the Soft-Impute path
==========================================

:class:`eckart.SoftImpute` minimises :math:`\\tfrac12 \\lVert \\Pi(A - B) \\rVert_F^2 + \\tau \\lVert B \\rVert_*`.
The price :math:`\\tau` of the nuclear norm decides the rank. From :math:`\\tau_{\\max} = \\lVert
\\Pi(A) \\rVert_2` up the answer is zero; below it singular values enter one by one. Each point of
the path starts from the one before it.
"""

# %%
# The path
# --------
# A matrix of rank 5 and noise, 40 % of it seen. Strong directions enter first; after the fifth only
# noise is left to enter.

import matplotlib.pyplot as plt
import numpy as np

from eckart import SoftImpute, metrics, plots

rng = np.random.default_rng(0)
n, m, k = 120, 100, 5
truth = (rng.standard_normal((n, k)) * np.array([2.0, 1.6, 1.3, 1.1, 0.9])) @ rng.standard_normal(
    (k, m)
)
noisy = truth + 0.7 * rng.standard_normal((n, m))
hidden = rng.random((n, m)) < 0.6
gappy = np.where(hidden, np.nan, noisy)

model = SoftImpute(tau=4.0, path=16, random_state=0).fit(gappy)
print(model.certificate_)

# %%
# What each price is worth
# ------------------------
# The error of hidden entries against the truth, for the answer itself and for ``debias=True``,
# which keeps the rank that was found and
# takes the shrinkage back. That helps while only signal has entered, and harms when directions of
# noise
# are taken at their word. ``tau=None`` chooses by hiding a tenth of the entries itself.

taus = model.path_taus_[model.path_taus_ < model.path_taus_[0] / 2][::2]
at = np.nonzero(hidden)


def error(tau: float, debias: bool) -> float:
    fitted = SoftImpute(tau=float(tau), debias=debias, random_state=0).fit(gappy)
    return metrics.rmse(truth[at], fitted.predict(*at))


shrunk, debiased = ([error(tau, debias) for tau in taus] for debias in (False, True))
ranks = [int(np.argmin(np.abs(model.path_taus_ - tau))) for tau in taus]
ranks = [len(model.path_singular_values_[i]) for i in ranks]
chosen = SoftImpute(random_state=0).fit(gappy)
best = int(np.argmin(shrunk))
for tau, rank, a, b in zip(taus, ranks, shrunk, debiased):
    print(f"tau {tau:6.2f}  rank {rank:>3}  error {a:.3f}  debiased {b:.3f}")
own = metrics.rmse(truth[at], chosen.predict(*at))
print(f"chosen on hidden entries: tau {chosen.tau_:.2f}, rank {chosen.rank_}, error {own:.3f}")

fig, ax = plt.subplots(figsize=(6.6, 4.2), layout="constrained")
plots.shrinkage_path(model.path_taus_, model.path_singular_values_, ax, chosen=float(chosen.tau_))

fig, ax = plt.subplots(figsize=(6.6, 3.8), layout="constrained")
ax.plot(taus, shrunk, marker="o", label="shrunk")
ax.plot(taus, debiased, marker="o", label="debiased")
for tau, rank, value in zip(taus, ranks, shrunk):
    ax.annotate(
        f"rank {rank}",
        (tau, value),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center",
        fontsize=8,
    )
ax.set_xscale("log")
ax.set_xticks(taus, [f"{tau:.0f}" for tau in taus], minor=False)
ax.set_xticks([], minor=True)
ax.invert_xaxis()
ax.set(xlabel="tau", ylabel="error of the hidden entries", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
print(
    f"least error {min(shrunk):.3f} shrunk at rank {ranks[best]}, {min(debiased):.3f} "
    f"debiased at rank {ranks[int(np.argmin(debiased))]}"
)
plt.show()
