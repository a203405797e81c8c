"""
Comparing recommenders
======================

Which recommender is best for these data? :func:`eckart.compare` hides some entries, fits every
model to the rest, and judges the lists by what was hidden. Popularity, the list that everybody
gets, is always among them: what does not beat it has learned nothing. A :class:`eckart.Blend` mixes
several models by shares that hidden entries chose.
"""

# %%
# What people took up
# -------------------
# 600 readers and 120 books. A reader has a taste for some of six shelves; a few books are popular
# with everybody, and books of a series are read together,
# which is no matter of taste: two kinds of structure that different models see.

import matplotlib.pyplot as plt
import numpy as np

from eckart import ALS, EASE, SLIM, Blend, Observed, SpectralFilter, compare

rng = np.random.default_rng(4)
readers, books = 600, 120
shelf, series = np.arange(books) % 6, np.arange(books) // 4
taste = rng.gamma(0.6, 1.0, (readers, 6))
popular = rng.gamma(1.0, 1.0, books)
follows = rng.random((readers, books // 4)) < 0.08
chance = 0.035 * taste[:, shelf] * popular + 0.55 * follows[:, series]
read = rng.random(chance.shape) < np.minimum(chance, 0.9)
read[np.arange(readers), rng.integers(books, size=readers)] = True
i, j = np.nonzero(read)
names = (
    np.array([f"reader {r}" for r in range(readers)], object),
    np.array([f"book {b}" for b in range(books)], object),
)
taken = Observed.from_codes(i, j, np.ones(len(i)), read.shape, *names)
print(f"{taken.nnz} books taken up, {taken.nnz / readers:.1f} a reader")

# %%
# All on the same hidden entries
# ------------------------------
# A fifth is hidden. *behind* counts standard errors of the difference from the first line, reader
# by reader: below two, the order may be chance.

members = {
    "slim": SLIM(l2=5.0, l1=0.5),
    "gf-cf": SpectralFilter(8),
    "als": ALS(8, feedback="implicit"),
}
found = compare(
    taken,
    models={**members, "ease": EASE(l2=20.0), "blend": Blend(members, at=10)},
    at=10,
    random_state=0,
)
print(found)

# %%
# What the blend is made of
# -------------------------
# Its certificate tells the shares, what hidden entries said of each member, and what the mixture
# gained on readers who had no say in the shares. Where that is
# less than its standard error, the best member stays alone: series are so strong here that a model
# of pairs of books is hard to help.

blend = found.models["blend"]
print({name: round(share, 2) for name, share in blend.shares_.items()})
gain, error = (
    blend.certificate_["gain over the best member"],
    blend.certificate_["standard error of the gain"],
)
print(
    f"gain over the best member {gain:.4f}, standard error {error:.4f}; certificate "
    f"holds: {blend.certificate_.holds}"
)

# %%
# Why this book?
# --------------
# The score is a sum over what the reader has read, and over the members.

first = blend.recommend("reader 3", n=1)
why = blend.explain("reader 3", first.columns[0, 0], n=4)
print(why)

# %%
# The table as a picture
# ----------------------

order = found.table[::-1]
figure, axes = plt.subplots(figsize=(6, 3))
axes.barh(
    [row.model for row in order],
    [row.ndcg for row in order],
    xerr=[row.ndcg_error for row in order],
    color="#4c72b0",
)
axes.set_xlabel("NDCG@10 on hidden entries, with standard errors")
figure.tight_layout()
