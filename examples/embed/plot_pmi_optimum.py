"""
Skip-gram factorizes a matrix
=============================

Skip-gram with negative sampling looks like a neural network and is a matrix factorization. Vectors
that are long enough reach scores
:math:`\\langle \\zeta_w, z_v \\rangle = \\mathrm{PMI}(w, v) - \\log r`, with :math:`r` negative samples that are drawn by the words' frequencies
(Levy and Goldberg, 2014). This example trains on a small corpus in which the optimum can be written
down, and looks whether the scores are there.
"""

# %%
# A small corpus
# --------------
# A walk over twelve words: each chooses the next one from a distribution of its own, so every pair
# occurs, some often and some rarely.

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart import PMI, SkipGram, plots

rng = np.random.default_rng(0)
words = np.array(
    ["sun", "moon", "star", "sea", "tide", "ship", "port", "bread", "salt", "fish", "net", "rain"]
)
follows = np.cumsum(rng.dirichlet(np.full(12, 1.5), 12), axis=1)
walk = [0]
for u in rng.random(60_000):
    walk.append(min(int(np.searchsorted(follows[walk[-1]], u)), 11))
sentences = [words[part].tolist() for part in np.array_split(np.array(walk), 300)]
counts = eckart.cooccurrence(sentences, window=1, min_count=1)
print(
    f"{counts.shape[0]} words, {int(counts.data.sum())} pairs, {counts.nnz} of "
    f"{counts.shape[0] ** 2} cells seen"
)

# %%
# The whole loss, minimised exactly
# ---------------------------------
# Vectors have as many numbers as there are words, so the factorization is no restriction. The noise
# exponent is 1. Points on the line are optimal.

fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.3), layout="constrained")
for ax, r in zip(axes, (1, 5)):
    model = SkipGram(
        12, negatives=r, noise_exponent=1.0, max_iter=5000, tol=1e-15, random_state=0
    ).fit(counts)
    plots.plot_pmi_optimum(model, counts, ax)
    n, f, c = counts.to_scipy().toarray(), model.fit_.factors, model.certificate_
    pmi = np.log(n * n.sum() / np.outer(n.sum(axis=1), n.sum(axis=0)))
    far = np.abs(f.vectors @ f.context.T - (pmi - np.log(r)))[n > 0].max()
    print(
        f"exact, r = {r}: largest |score - (PMI - log {r})| {far:.4f}, loss "
        f"{c['loss of a pair']:.6f}, lower bound {c['lower bound']:.6f}"
    )

# %%
# By stochastic steps
# -------------------
# Training on windows with sampled noise comes near the same point. The exponent and the rate decide
# how near.

sampled = SkipGram(
    12,
    window=1,
    negatives=1,
    noise_exponent=1.0,
    sample=None,
    min_count=1,
    max_iter=40,
    learning_rate=0.05,
    deterministic=True,
    random_state=0,
).fit(sentences)
fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.0), layout="constrained")
plots.plot_loss(sampled, axes[0])
plots.plot_pmi_optimum(sampled, counts, axes[1])
f = sampled.fit_.factors
far = np.abs(f.vectors @ f.context.T - pmi)[n > 20].max()
print(f"stochastic, r = 1: largest |score - PMI| {far:.2f} over pairs seen more than 20 times")

# %%
# Too few numbers
# ---------------
# With k numbers the scores have rank k. The gap to the lower bound in the certificate is the price;
# it falls with k and closes where k is the number of words.

ks = (1, 2, 3, 4, 6, 8, 10, 12)
gaps = []
for k in ks:
    c = (
        SkipGram(k, negatives=1, noise_exponent=1.0, max_iter=3000, tol=1e-14, random_state=0)
        .fit(counts)
        .certificate_
    )
    gaps.append(max(c["gap"], 1e-12))
print("gap by k: " + ", ".join(f"{k}: {gap:.1e}" for k, gap in zip(ks, gaps)))
fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.semilogy(ks, gaps, marker="o", color="#2b6cb0")
ax.set_xlabel("numbers in a vector")
ax.set_ylabel("loss above the lower bound")
ax.set_title("What rank k costs", loc="left", fontsize=11)

# %%
# The same without gradients
# --------------------------
# The singular value decomposition of the PMI matrix gives the best approximation of rank k in
# squares, which is another loss: it weighs all pairs alike.

svd = PMI(12, kind="pmi", smoothing=1.0, exponent=0.5, random_state=0).fit(counts)
g = svd.fit_.factors
print(
    "PMI by SVD: largest |score - PMI| "
    f"{np.abs(g.vectors @ g.context.T - pmi)[n > 0].max():.4f}, certificate "
    f"{svd.certificate_.kind}"
)
plt.show()
