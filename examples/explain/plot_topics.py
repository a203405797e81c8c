"""
Topics of documentation
=======================

SciPy documents more than a thousand functions. This example counts the words of their docstrings,
finds topics with :class:`eckart.LDA`, and compares them with something the model never sees: the
subpackage that a function belongs to.
"""

# %%
# Text to counts
# --------------
# The docstrings come with every installation. Words of fewer than five documents, of more than 30 %
# of them, and English function words are left out.

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart import LDA, plots, select_topics
from eckart.io.datasets import docstrings

documents = docstrings(("scipy",))
counts = eckart.corpus(documents, min_df=5, max_df=0.3, stop_words="english")
print(
    f"{counts.shape[0]} documents, {counts.shape[1]} words, {counts.words_dropped} of "
    f"{counts.words_read} words dropped"
)

# %%
# Fit
# ---
# Each document is a mixture of topics, each topic a distribution over words.

model = LDA(12, random_state=0).fit(counts)
print(model.certificate_)
for z, words in enumerate(model.top_words(7)):
    print(f"{z + 1:>3} {model.sizes_[z]:>6.1%}  {' '.join(words)}")

fig, ax = plt.subplots(figsize=(10.5, 6.6), layout="constrained")
plots.topic_words(model, ax)

# %%
# A map of topics
# ---------------
# Near circles use the same words. Areas are shares of all words.

fig, ax = plt.subplots(figsize=(7.4, 5.6), layout="constrained")
plots.topic_map(model, ax)

# %%
# Topics and subpackages
# ----------------------
# Shares of topics, averaged over the functions of each subpackage. Nobody told the model where a
# function lives.

shares = model.transform(counts)
package = np.array([name.split(".")[1] for name in counts.rows])
shown = [
    p
    for p in (
        "optimize",
        "stats",
        "signal",
        "sparse",
        "special",
        "interpolate",
        "ndimage",
        "linalg",
    )
    if p in package
]
table = np.array([shares[package == p].mean(axis=0) for p in shown])

fig, ax = plt.subplots(figsize=(8.4, 3.8), layout="constrained")
image = ax.imshow(table, cmap="Blues", vmin=0, aspect="auto")
ax.set_yticks(range(len(shown)), [f"scipy.{p}" for p in shown])
ax.set_xticks(
    range(12),
    [f"{z + 1}: {words[0]}" for z, words in enumerate(model.top_words(1))],
    rotation=35,
    ha="right",
)
ax.set_title("Mean share of each topic", loc="left", fontsize=11)
fig.colorbar(image, ax=ax, shrink=0.8).outline.set_visible(False)

best = shares.argmax(axis=1)
pure = [
    (
        package[best == z]
        == np.unique(package[best == z])[
            np.unique(package[best == z], return_counts=True)[1].argmax()
        ]
    ).sum()
    for z in range(12)
    if (best == z).any()
]
print(
    f"{sum(pure) / len(package):.0%} of the functions lie in the commonest subpackage "
    "of their topic, "
    f"{max(np.unique(package, return_counts=True)[1]) / len(package):.0%} would by "
    "chance of size alone"
)

# %%
# New documents
# -------------
# They are counted in the vocabulary of the model; words that it has never seen are dropped and
# counted.

new = eckart.corpus(
    {"new": "Find the minimum of a function with bounds, by Newton steps from an initial guess."},
    vocabulary=model,
)
share = model.transform(new)[0]
z = int(share.argmax())
print(
    f"a new text: {share[z]:.0%} topic {z + 1} ({' '.join(model.top_words(4)[z])}), "
    f"{new.words_dropped} words dropped"
)

# %%
# How many topics?
# ----------------
# The perplexity of words that the fit has not seen, and the coherence of each topic's first words.


found = sorted(
    select_topics(LDA(random_state=0), counts, (4, 8, 16, 32)), key=lambda row: row["n_components"]
)
fig, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
plots.perplexity_curve(
    [r["n_components"] for r in found],
    [r["perplexity"] for r in found],
    ax,
    coherence=[r["npmi"] for r in found],
)
for row in found:
    print(
        f"{row['n_components']:>3} topics: perplexity {row['perplexity']:.0f}, "
        f"coherence {row['npmi']:.3f}"
    )
plt.show()
