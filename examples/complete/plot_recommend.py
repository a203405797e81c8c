"""
Recommending, with reasons
==========================

People are asked for by their name and dishes by theirs, not by positions in an array. This example
generates a table of ratings in long form, fits
:class:`eckart.ALS`, and asks: what should Nora try, why, what is like it, and what about somebody who came today?
"""

# %%
# A table of ratings
# ------------------
# 200 people rate 60 dishes from 1 to 5. Every dish belongs to a kitchen, and every person likes
# some kitchens more than others. One line is
# one rating: person, dish, stars.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from eckart import ALS, metrics, plots, split
from eckart import observed as entries_of

rng = np.random.default_rng(1)
kitchens = ("curry", "pasta", "taco", "noodle", "stew")
dishes = [f"{kitchen} {i + 1}" for kitchen in kitchens for i in range(12)]
people = ["nora", "omar", *(f"guest {i:03d}" for i in range(198))]
kitchen_of = np.repeat(np.arange(5), 12)
taste = rng.standard_normal((200, 5))
taste[0] = (1.6, -1.2, 0.4, 1.2, -1.0)  # nora: curries and noodles
taste[1] = (-1.2, 1.5, -0.4, -1.0, 1.4)  # omar: pasta and stews
score = (
    3.2
    + 0.9 * taste[:, kitchen_of]
    + 0.4 * rng.standard_normal(60)
    + 0.4 * rng.standard_normal((200, 60))
)
stars = np.clip(np.rint(score), 1, 5)
i, j = np.nonzero(rng.random(stars.shape) < 0.25)
table = pd.DataFrame(
    {"person": np.array(people)[i], "dish": np.array(dishes)[j], "stars": stars[i, j]}
)
print(table.head(4).to_string(index=False))

# %%
# Fit, and measure
# ----------------
# A tenth of the ratings is held out to see what the predictions are worth.

ratings = entries_of(table, rows="person", columns="dish", values="stars")
parts = split(ratings, 0.1, random_state=0)
judge = ALS(6, random_state=0).fit(parts.train)
rows = np.repeat(ratings.rows, parts.test.row_counts())
error = metrics.rmse(parts.test.data, judge.predict(rows, ratings.columns[parts.test.indices]))
spread = float(np.std(parts.test.data))
print(
    f"{ratings.nnz} ratings; error on held-out ones {error:.3f}, their standard "
    f"deviation {spread:.3f}"
)

model = ALS(6, random_state=0).fit(table, rows="person", columns="dish", values="stars")

# %%
# What should Nora try?
# ---------------------
# Dishes she has rated are left out. ``candidates=`` and ``exclude=`` narrow the list further.

for person, rank, dish, value in model.recommend(["nora", "omar"], n=4).entries():
    print(f"{person:<5} {rank}. {dish:<10} {value:.2f}")

# %%
# Why?
# ----
# With the columns fixed, a prediction is linear in the ratings of the row. So it splits exactly
# into one share for each of them.

best = model.recommend("nora", n=1).columns[0, 0]
why = model.explain("nora", best, n=8)
print(why)

fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
names = [f"{dish} ({value:.0f} stars)" for dish, value, _ in why.shares][::-1]
shares = [share for _, _, share in why.shares][::-1]
ax.barh(names, shares, color=["#2b6cb0" if s > 0 else "#dd6b20" for s in shares])
ax.axvline(0, color="0.4", linewidth=1)
ax.set(xlabel="stars that this rating adds")
ax.set_title(
    f"Why {best} for nora: {why.prediction:.2f}, of which {why.base:.2f} mean and bias",
    loc="left",
    fontsize=10,
)
ax.spines[["top", "right"]].set_visible(False)

# %%
# What is alike?
# --------------
# Cosines of the factors. Dishes of one kitchen find each other although no kitchen was ever told to
# the model.

for dish in ("pasta 1", "taco 1"):
    near = model.similar(columns=dish, n=4)
    print(
        f"like {dish}: "
        + ", ".join(f"{name} ({value:.2f})" for _, _, name, value in near.entries())
    )

fig, ax = plt.subplots(figsize=(6.6, 4.8), layout="constrained")
plots.factor_map(model, ax=ax)

# %%
# Somebody new
# ------------
# Three ratings are enough for a first list: the row is solved while the columns stay (fold-in).
# Nothing is refitted. Somebody without any
# rating gets what is known about the columns; an id that nobody knows is refused unless
# ``unknown=`` says what to answer.

new = entries_of(
    [("pia", "taco 2", 5.0), ("pia", "taco 7", 5.0), ("pia", "curry 3", 1.0)],
    rows=0,
    columns=1,
    values=2,
)
print("pia:", ", ".join(dish for _, _, dish, _ in model.recommend(X=new, n=4).entries()))
print("a stranger:", model.predict("quentin", "taco 2", unknown="mean").round(2).tolist())
hits = [dish.split()[0] for _, _, dish, _ in model.recommend("nora", n=8).entries()]
print(
    f"{sum(h in ('curry', 'noodle') for h in hits)} of 8 recommendations for nora are "
    "curries or noodles"
)
plt.show()
