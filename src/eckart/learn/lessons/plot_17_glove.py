r"""
17. Does king - man + woman really work?
========================================

GloVe completes a table of logarithms of counts, as lesson 9 completes a table of stars:

.. math::

   \min \sum_{N_{wv} > 0} f(N_{wv}) \big( \log N_{wv} - \langle \zeta_w, z_v \rangle - b_w - c_v \big)^2 ,
   \qquad f(N) = \min\!\big(1, (N / N_{\max})^{3/4}\big) .

An analogy a : b = c : ? is answered by the word nearest to :math:`b - a + c`.
"""

import matplotlib.pyplot as plt

import eckart
from eckart.io.datasets import docstrings

text = eckart.sequences([words for _, words in docstrings()], min_count=20)
v = (
    eckart.GloVe(50, max_iter=30, tol=0, random_state=0)
    .fit(eckart.cooccurrence(text))
    .vectors_
)
questions = ("row rows column", "minimum maximum smallest", "lower upper left")
for question in questions:
    a, b, c = question.split()
    ia, ib, ic = (v.key_to_index[word] for word in (a, b, c))
    free = v.words[int((v.unit @ (v.unit[ib] - v.unit[ia] + v.unit[ic])).argmax())]
    print(f"{a} : {b} = {c} : {v.analogy(a, b, c)[0][0]}   (no word barred: {free})")

# %%
# The words of the question are barred from the answer, always. Without that the nearest word is one of them: the arrow is
# short, and :math:`b - a + c` is still next to c. In the plane of two differences:

words = ["row", "rows", "column", "columns"]
points = v.unit[[v.key_to_index[w] for w in words]]
plane = eckart.PCA(2).fit_transform(points)
fig, ax = plt.subplots(figsize=(5, 3.4))
for i, j in ((0, 1), (2, 3)):
    ax.annotate(
        "", plane[j], plane[i], arrowprops={"arrowstyle": "->", "color": "#0072b2"}
    )
for word, at in zip(words, plane):
    ax.text(*at, word, ha="center", va="bottom")
ax.scatter(*plane.T, s=12, color="#d55e00")
ax.margins(0.25)
ax.set(xticks=[], yticks=[])

# %%
# What breaks
# -----------
# Rare words. Few counts leave their vectors where noise put them; a text of a few million words knows some hundred words
# well.
#
# Try
# ---
# a) What is f(5) for N_max = 10? ``check("17a", weight)``
#
# b) How many of the three questions are right with no word barred? ``check("17b", count)``
#
# *Often believed:* analogies prove understanding. They show that some differences are nearly parallel.
