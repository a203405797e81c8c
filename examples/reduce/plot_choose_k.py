"""
How many components?
====================

Data with a planted rank of 5 in noise. :func:`eckart.select_components` asks four methods and shows
the numbers that each of them looked at. When they agree, k is easy. When they do not, the table
shows why.
"""

# %%
# Plant a rank
# ------------
# 400 rows, 30 columns, five directions of signal, noise of variance one in every column.

import matplotlib.pyplot as plt
import numpy as np

from eckart import PCA, plots, select_components

rng = np.random.default_rng(0)
planted = 5
signal = rng.standard_normal((400, planted)) @ rng.standard_normal((planted, 30))
x = signal + rng.standard_normal(signal.shape)

# %%
# Ask
# ---
# ``held_out`` hides entries and predicts them. ``gavish_donoho`` compares singular values with the
# optimal threshold for noise of unknown
# level. ``parallel`` compares eigenvalues with those of shuffled columns. ``share`` is the smallest
# k that keeps 90 % of the
# variance; it knows nothing about noise and here it keeps some.

selection = select_components(x, max_components=12, random_state=0)
print(selection)

# %%
# Look
# ----
# Error of the hidden entries: it falls while components carry signal and rises when they start to
# fit noise. Eigenvalues: the
# real ones stand above the shuffled ones five times.

table = {name: np.array(column) for name, column in selection.table.items()}
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].plot(table["k"], table["held-out error"], marker="o")
axes[0].axvline(selection.choices["held_out"], color="0.4", linestyle=":", label="chosen")
axes[0].set(xlabel="k", ylabel="error of the hidden entries", ylim=(0, None))
axes[1].plot(table["k"][1:], table["eigenvalue"][1:], marker="o", label="data")
axes[1].plot(
    table["k"][1:], table["shuffled eigenvalue"][1:], marker="o", label="shuffled columns, 95 %"
)
axes[1].set(xlabel="component", ylabel="eigenvalue", yscale="log")
for ax in axes:
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)

# %%
# Use
# ---
# ``n_components="auto"`` is the Gavish-Donoho choice. The scree plot marks it.

pca = PCA("auto", random_state=0).fit(x)
spectrum = PCA().fit(x).explained_variance_ratio_
fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
plots.scree(pca, ax, spectrum=spectrum)

# %%
# The same question at other noise levels
# ---------------------------------------
# As the noise grows, components sink into it. Gavish-Donoho then chooses fewer, because keeping a
# component that is mostly noise makes
# the reconstruction of the signal worse. A fixed share of the variance does the opposite: it
# chooses more.

levels = (0.5, 1.0, 2.0, 4.0, 8.0)
chosen = {"gavish_donoho": [], "parallel": [], "share": []}
noise = rng.standard_normal(signal.shape)
for level in levels:
    answer = select_components(signal + level * noise, methods=tuple(chosen), random_state=0)
    for method, ks in chosen.items():
        ks.append(answer.choices[method])
fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for method, ks in chosen.items():
    ax.plot(levels, ks, marker="o", label=method)
ax.axhline(planted, color="0.4", linestyle=":", label="planted")
ax.set(xlabel="standard deviation of the noise", ylabel="k chosen", xscale="log", ylim=(0, 31))
ax.set_xticks(levels, [str(level) for level in levels])
ax.minorticks_off()
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

print(
    f"planted {planted}, chosen "
    + ", ".join(f"{method} {k}" for method, k in selection.choices.items())
)
plt.show()
