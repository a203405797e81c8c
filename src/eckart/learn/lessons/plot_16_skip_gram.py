r"""
16. What does skip-gram really learn?
=====================================

Skip-gram tells pairs of neighbouring words from pairs with r words of noise. Where the vectors are long enough, its
optimum is known:

.. math:: \langle \zeta_w, z_v \rangle = \log \frac{p(v, w)}{p(v)\, p(w)} - \log r ,

pointwise mutual information, shifted (for noise drawn in proportion to :math:`p(v)`).
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.learn import generator

r = generator()
follow, walk = np.cumsum(r.dirichlet(np.full(12, 1.5), 12), axis=1), [0]
for u in r.random(60_000):
    walk.append(min(int(np.searchsorted(follow[walk[-1]], u)), 11))
N = eckart.cooccurrence([[f"w{i}" for i in walk]], window=1, min_count=1)
n = N.to_scipy().toarray()
pmi = np.log(n * n.sum() / np.outer(n.sum(1), n.sum(0)))
scores = {}
for negatives in (1, 5):
    model = eckart.SkipGram(
        12,
        negatives=negatives,
        noise_exponent=1.0,
        max_iter=5000,
        tol=1e-15,
        random_state=0,
    ).fit(N)
    f = model.fit_.factors
    scores[negatives] = f.vectors @ f.context.T
    print(f"r={negatives}: mean of score - PMI {np.mean(scores[negatives] - pmi):+.4f}")

# %%
# All pairs of words: scores lie on the line of PMI, shifted by log r.

fig, ax = plt.subplots(figsize=(5, 4))
for (negatives, s), colour in zip(scores.items(), ("#0072b2", "#d55e00")):
    ax.scatter(pmi, s, s=10, color=colour, label=f"r = {negatives}")
    ax.axline((0, -np.log(negatives)), slope=1, linestyle="--", color="0.5")
ax.set(xlabel="pointwise mutual information", ylabel="score")
ax.legend()
fig.tight_layout()

# %%
# What breaks
# -----------
# With too few numbers a word the scores cannot follow: frequent pairs fit, rare ones miss.

small = (
    eckart.SkipGram(1, negatives=1, noise_exponent=1.0, max_iter=5000, random_state=0)
    .fit(N)
    .fit_.factors
)
miss = abs(small.vectors @ small.context.T - pmi)
often = n > np.median(n)
print(
    f"one number a word: mean distance from PMI {miss[often].mean():.2f} for frequent pairs,"
)
print(f"{miss[~often].mean():.2f} for rare ones")

# %%
# Try
# ---
# a) What is the shift at r = 5? ``check("16a", shift)``
#
# b) Draw one noise word for each *centre*, not for each pair, with two neighbours a centre. What is the shift then?
# ``check("16b", shift)``
#
# *Often believed:* such vectors need a deep network. Here is a matrix factorization with a logistic loss.
