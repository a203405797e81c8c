"""
Held-out error against rank
===========================

How many factors? Too few miss structure; too many fit noise, unless something holds them back.
:func:`eckart.tune` tries ranks and ridges on entries that the fit has not seen.
:class:`eckart.BayesianMF` has no ridge: it learns from the data how large factors are, and averages
over what the data leaves open. The table is generated, so the true values are known and so is the
error that no method can avoid.
"""

# %%
# A table of ratings
# ------------------
# 300 rows, 200 columns, 15 % seen: a mean, a bias for every row and column, rank 4, and noise of
# standard deviation 0.5.

import matplotlib.pyplot as plt
import numpy as np

from eckart import ALS, BayesianMF, metrics, split, tune
from eckart import observed as entries_of

rng = np.random.default_rng(0)
n, m, k, noise = 300, 200, 4, 0.5
truth = 3.5 + 0.4 * rng.standard_normal((n, 1)) + 0.5 * rng.standard_normal((1, m))
truth = truth + 0.45 * rng.standard_normal((n, k)) @ rng.standard_normal((k, m))
seen = rng.random((n, m)) < 0.15
ratings = entries_of(np.where(seen, truth + noise * rng.standard_normal((n, m)), np.nan))
parts = split(ratings, 0.1, random_state=0)
rows = np.repeat(np.arange(n), parts.test.row_counts())

# %%
# ALS, tuned
# ----------
# The ranks are visited from small to large, each fit starts from the one before it, and
# ``patience=None`` tries all of them.

found = tune(
    parts.train, n_components=(1, 2, 4, 8, 16), l2=(0.1, 0.05, 0.02), patience=None, random_state=0
)
print(found)
print("chosen:", found.best)

# %%
# On the test entries
# -------------------
# The same ranks judged on entries that played no part in the choice: ALS with a small ridge, ALS
# with the ridge that was best at its rank,
# and the Bayesian model.

ranks = sorted({trial.n_components for trial in found.table})


def error(model) -> float:
    return metrics.rmse(parts.test.data, model.fit(parts.train).predict(rows, parts.test.indices))


curves: dict[str, list[float]] = {"ALS, ridge 0.005": [], "ALS, ridge tuned": [], "Bayesian": []}
for rank in ranks:
    ridge = min((t for t in found.table if t.n_components == rank), key=lambda t: t.error).l2
    curves["ALS, ridge 0.005"].append(error(ALS(rank, l2=0.005, random_state=0)))
    curves["ALS, ridge tuned"].append(error(ALS(rank, l2=ridge, random_state=0)))
    curves["Bayesian"].append(
        error(BayesianMF(rank, n_samples=60, burn_in=60, thin=1, random_state=0))
    )

fig, ax = plt.subplots(figsize=(6.8, 4.2), layout="constrained")
for name, errors in curves.items():
    ax.plot(ranks, errors, marker="o", label=name)
    print(f"{name:<18}" + "".join(f"{e:8.3f}" for e in errors))
ax.axhline(noise, color="0.5", linewidth=1, linestyle=":", label="noise: no method is below")
ax.set_xscale("log", base=2)
ax.set_xticks(ranks, [str(r) for r in ranks])
ax.set(xlabel="rank", ylabel="RMSE on held-out entries", ylim=(0.45, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# How sure is it?
# ---------------
# Every cell of the Bayesian model has a standard deviation of its own. Of the test entries, 90 %
# should lie in their 90 % interval.

model = BayesianMF(8, n_samples=100, burn_in=60, thin=1, random_state=0).fit(parts.train)
low, high = model.interval(rows, parts.test.indices, level=0.9)
covered = float(np.mean((low <= parts.test.data) & (parts.test.data <= high)))
counts = parts.train.row_counts()
known = model.deviation(rows, parts.test.indices, noise=False)

fig, ax = plt.subplots(figsize=(6.8, 3.6), layout="constrained")
ax.scatter(counts[rows], known, s=8, alpha=0.4, linewidths=0)
ax.set(xlabel="entries seen in the row", ylabel="standard deviation of the mean", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
print(f"90 % intervals hold {covered:.1%} of {parts.test.nnz} test entries")
plt.show()
