r"""
14. What is this text about?
============================

Write the words of a text as a mixture of topics,

.. math:: p(w \mid d) = \sum_z p(w \mid z)\, p(z \mid d) .

pLSA maximises :math:`\sum_{dw} N_{dw} \log p(w \mid d)` over both tables. LDA puts a Dirichlet prior on
:math:`p(z \mid d)`, so that a text that nobody has seen has a probability as well. A text is then a point of a simplex:
weights that are not negative and add up to 1.
"""

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart.io.datasets import docstrings

docs = eckart.corpus(docstrings(("scipy",)), min_df=5, max_df=0.3, stop_words="english")
seen, scored = eckart.split_tokens(docs, random_state=0)
for kind in (eckart.PLSA, eckart.LDA):
    model = kind(8, random_state=0).fit(seen)
    found = eckart.document_completion(model.topic_word_, seen, scored)
    print(f"{kind.__name__:4s}: perplexity of hidden words {found.perplexity:.0f}")
for words in model.top_words(6)[:4]:
    print("   ", *words)

# %%
# Three topics can be drawn: a triangle, a text for every dot, corners named by their words.

three = eckart.LDA(3, random_state=0).fit(docs)
corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
at = three.transform(docs) @ corners
fig, ax = plt.subplots(figsize=(5, 4.2))
ax.plot(*corners[[0, 1, 2, 0]].T, color="0.6")
ax.scatter(*at.T, s=6, color="#0072b2", alpha=0.5)
for corner, words in zip(corners, three.top_words(3)):
    ax.text(
        *corner, "\n".join(words), ha="center", va="top" if corner[1] == 0 else "bottom"
    )
ax.axis("off")

# %%
# What breaks
# -----------
# The prior decides how pure texts are. With a small one two thirds of the texts sit in a corner, with a large one none:

for alpha in (0.1, 10.0):
    shares = (
        eckart.LDA(3, doc_topic_prior=alpha, random_state=0).fit(docs).transform(docs)
    )
    print(
        f"alpha {alpha:4.1f}: {np.mean(shares.max(axis=1) > 0.9):.0%} of the texts are nine tenths one topic"
    )

# %%
# Try
# ---
# a) What share of the texts is above nine tenths in one topic at alpha = 10? ``check("14a", share)``
#
# b) Shuffle the words of a text. By how much does its ``transform`` change? ``check("14b", change)``
#
# *Often believed:* a text has one topic. It has weights; how many of them are large is a choice of the prior.
