"""
Item response: ability and difficulty with intervals
=====================================================

People answer yes or no to questions, and not everyone answers all. A rank-1 model of the log odds
with biases is the model of item response theory: the chance of a yes depends on the ability of the
person, the difficulty of the question and how sharply the question tells people apart (its
discrimination). ``ALS(loss="logistic")`` finds it in a moment; ``BayesianMF(likelihood="probit")``
adds an interval to every number.
"""

# %%
# Answers with known truth
# ------------------------
# 200 people, 20 questions, three of ten answers missing: :math:`P(\text{yes}) = \Phi(d_j (\theta_i
# - q_j))`.

import csv
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr

from eckart import ALS, BayesianMF

rng = np.random.default_rng(0)
n, m = 200, 20
ability, difficulty = rng.standard_normal(n), np.linspace(-1.5, 1.5, m)
discrimination = rng.uniform(0.6, 1.6, m)
chance = ndtr(discrimination * (ability[:, None] - difficulty))
answers = np.where(rng.random((n, m)) < 0.7, (rng.random((n, m)) < chance).astype(float), np.nan)

# %%
# In a moment
# -----------
# The probability of a yes where no answer was given, against the true one; beside it what the share
# of yes of each question alone would say.

quick = ALS(1, loss="logistic", random_state=0).fit(answers)
missing = np.isnan(answers)
found, plain = (
    quick.predict(np.arange(n))[missing],
    np.broadcast_to(np.nanmean(answers, axis=0), (n, m))[missing],
)
print(
    "error of the chances, ALS:", round(float(np.sqrt(np.mean((found - chance[missing]) ** 2))), 3)
)
print(
    "error of the chances, question means:",
    round(float(np.sqrt(np.mean((plain - chance[missing]) ** 2))), 3),
)
print("certificate holds:", quick.certificate_.holds)

# %%
# With intervals
# --------------
# Every draw of the posterior is a table of natural parameters. The mean of a row is the ability of
# its person; the mean of a column and its slope against
# the abilities give difficulty and discrimination. What 90 % of the draws say is an interval.


def item_response(model, people: int, questions: int):
    """Draws of ability (people x S), difficulty and discrimination (questions x S), abilities
    standardised in each draw."""
    i, j = np.divmod(np.arange(people * questions), questions)
    cells = model.posterior_.draws(model.fit_.factors, i, j).reshape(people, questions, -1)
    theta = cells.mean(axis=1)
    scale = theta.std(axis=0)
    theta = (theta - theta.mean(axis=0)) / scale
    slope = np.einsum("iqs,is->qs", cells, theta) / people
    return theta, -cells.mean(axis=0) / slope, slope


model = BayesianMF(1, likelihood="probit", n_samples=100, burn_in=100, thin=2, random_state=0).fit(
    answers
)
theta, hard, sharp = item_response(model, n, m)
truth = {
    "ability": (ability - ability.mean()) / ability.std(),
    "difficulty": (difficulty - ability.mean()) / ability.std(),
}
for name, draws in (("ability", theta), ("difficulty", hard)):
    low, high = np.quantile(draws, [0.05, 0.95], axis=1)
    inside = np.mean((truth[name] >= low) & (truth[name] <= high))
    print(f"{name}: {inside:.0%} of the true values lie in their 90 % intervals")

fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, name, draws in zip(axes, ("ability", "difficulty"), (theta, hard)):
    order = np.argsort(truth[name])
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=1)
    ax.vlines(np.arange(len(order)), low[order], high[order], color="0.75")
    ax.plot(middle[order], ".", ms=3, label="median of the draws")
    ax.plot(truth[name][order], "k-", lw=1, label="truth")
    ax.set(title=name, xlabel="people" if name == "ability" else "questions")
axes[0].legend()

# %%
# A survey
# --------
# Five questions about worry from a survey of 2,800 people (N1 to N5 of the bfi data of the R
# package psych; the folder of data is named by ``ECKART_DATA``).
# An agreement from 4 to 6 counts as yes. Where the file is absent, the simulated answers above
# stand for it.

file = Path(os.environ.get("ECKART_DATA", "data")) / "bfi" / "bfi.csv"
if file.is_file():
    with file.open() as lines:
        table = list(csv.DictReader(lines))[:600]
    names = ["N1", "N2", "N3", "N4", "N5"]
    grades = np.array(
        [
            [float(row[name]) if row[name] not in ("", "NA") else np.nan for name in names]
            for row in table
        ]
    )
    asked = np.where(np.isnan(grades), np.nan, (grades >= 4).astype(float))
else:
    names, asked = [f"question {j + 1}" for j in range(5)], answers[:, ::4][:, :5]

survey = BayesianMF(1, likelihood="probit", n_samples=60, burn_in=60, thin=1, random_state=0).fit(
    asked
)
_, hard, sharp = item_response(survey, *asked.shape)
for name, q, d in zip(names, hard, sharp):
    low, high = np.quantile(q, [0.05, 0.95])
    print(
        f"{name}: difficulty {np.median(q):+.2f} ({low:+.2f} to {high:+.2f}), "
        f"discrimination {np.median(d):.2f}"
    )

plt.show()
