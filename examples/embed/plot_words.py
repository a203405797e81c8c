"""
Words of documentation
======================

Words that stand in the same places mean similar things. This example learns a vector for each word
of the documentation of NumPy, SciPy and scikit-learn with
:class:`eckart.SkipGram`, asks for neighbours and analogies, and draws a map.
"""

# %%
# Text to sequences
# -----------------
# The docstrings come with every installation. The order of the words is kept; words that occur
# fewer than ten times are left out.

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart import PMI, SkipGram, plots
from eckart.io.datasets import docstrings

texts = [text for _, text in docstrings()]
text = eckart.sequences(texts, min_count=10)
print(
    f"{len(text)} texts, {text.n_tokens} words, {len(text.words)} different ones, "
    f"{text.words_dropped} rare words left out"
)

# %%
# Fit
# ---
# Vectors of 50 numbers, so that a word predicts the words beside it. The certificate compares the
# loss with a bound that no vectors can beat.

model = SkipGram(50, sample=1e-4, max_iter=10, deterministic=True, random_state=0).fit(text)
print(model.certificate_)
v = model.vectors_

# %%
# Neighbours
# ----------
# Nobody told the model what an eigenvalue is.

fig, ax = plt.subplots(figsize=(10.5, 4.9), layout="constrained")
asked = [
    "eigenvalues",
    "probability",
    "filter",
    "gradient",
    "rows",
    "true",
    "float64",
    "classifier",
]
plots.plot_neighbours(v, asked, ax, n=7)
for word in asked:
    print(f"{word:<12} {' '.join(near for near, _ in v.neighbours(word, 5))}")

# %%
# A is to B as C is to?
# ---------------------
# Differences of vectors carry meaning: the answer is the word nearest to B - A + C.

questions = [
    ("row", "rows", "column", "columns"),
    ("sine", "cosine", "sinh", "cosh"),
    ("minimum", "maximum", "smallest", "largest"),
    ("row", "column", "rows", "columns"),
]
right = 0
for a, b, c, wanted in questions:
    answer = v.analogy(a, b, c)[0][0]
    right += answer == wanted
    print(f"{a} is to {b} as {c} is to {answer}")
print(f"{right} of {len(questions)} as expected")

# %%
# A map of words
# --------------
# Words of five subjects, on the two principal components of their directions.

subjects = {
    "linear algebra": "eigenvalues eigenvectors singular decomposition orthogonal unitary triangular "
    "hermitian",
    "probability": "distribution probability density cumulative variance mean moments percentile",
    "learning": "classifier regression estimator clustering trees classification boosting",
    "signals": "filter frequency signal window spectral fourier spectrum sampling",
    "optimisation": "minimum constraint gradient jacobian minimization objective bounds hessian",
}
subject = {word: name for name, words in subjects.items() for word in words.split()}
fig, ax = plt.subplots(figsize=(9, 6), layout="constrained")
plots.plot_map(v, list(subject), ax, groups=list(subject.values()))

cosines = np.array([v.similarity([word] * len(subject), list(subject)) for word in subject])
same = np.array([[subject[a] == subject[b] and a != b for b in subject] for a in subject])
other = np.array([[subject[a] != subject[b] for b in subject] for a in subject])
print(
    f"mean cosine inside a subject {cosines[same].mean():.2f}, between subjects "
    f"{cosines[other].mean():.2f}"
)

# %%
# Texts as means of their words
# -----------------------------
# A text is the mean of its vectors; ``transform`` does it for many. Its neighbours say what it is
# about.

new = "Draw random numbers from a normal distribution with given mean and standard deviation."
near = v.neighbours(v.mean(new, weights="sif"), 6, without=new.lower().rstrip(".").split())
print(f"a new text is near: {' '.join(word for word, _ in near)}")
print(f"transform: {model.transform([new]).shape}")

# %%
# Without gradient descent
# ------------------------
# The same counts of pairs, factorized by a singular value decomposition. It takes a second, and its
# certificate is global.

pmi = PMI(50, window=5, random_state=0).fit(text)
print(
    f"PMI: certificate {'holds' if pmi.certificate_.holds else 'does not hold'} "
    f"({pmi.certificate_.kind})"
)
for word in asked[:4]:
    print(f"{word:<12} {' '.join(near for near, _ in pmi.vectors_.neighbours(word, 5))}")

fig, axes = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
plots.plot_loss(model, axes[0])
plots.plot_singular_values(pmi, axes[1])
plt.show()
