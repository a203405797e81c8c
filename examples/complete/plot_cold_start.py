"""
Cold start: what attributes say
===============================

Somebody came today and has not rated anything. What is known is what the form says: age and where
they grew up. This example fits :class:`eckart.ALS` with attributes of people and of dishes, hides a
tenth of the people whole, and asks what attributes are worth against biases, and against the first
few ratings.
"""

# %%
# Ratings, and what is known about people and dishes
# --------------------------------------------------
# Taste depends on where somebody grew up and a little on age, and on nothing that is known. One
# line of ``people`` and of ``menu`` is one id; the kinds of
# their columns decide how they are written.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from eckart import ALS, metrics

rng = np.random.default_rng(3)
towns, kitchens = np.array(["harbour", "hills", "city"]), np.array(["fish", "stew", "noodle"])
people = pd.DataFrame(
    {
        "person": [f"p{i:03d}" for i in range(300)],
        "town": rng.choice(towns, 300),
        "age": rng.integers(18, 80, 300),
    }
)
menu = pd.DataFrame(
    {
        "dish": [f"d{j:02d}" for j in range(60)],
        "kitchen": rng.choice(kitchens, 60),
        "spicy": rng.random(60) < 0.4,
    }
)
likes = (people.town.to_numpy()[:, None] == towns) @ np.array(
    [[1.2, -0.5, -0.4], [-0.6, 1.1, -0.3], [-0.4, -0.4, 1.0]]
)
score = (
    3.2
    + (likes @ (menu.kitchen.to_numpy() == kitchens[:, None]))
    + np.outer((45 - people.age) / 40, menu.spicy)
)
score = (
    score
    + 0.5 * rng.standard_normal(60)
    + 0.5 * rng.standard_normal((300, 3)) @ rng.standard_normal((3, 60))
    + 0.3 * rng.standard_normal((300, 60))
)
stars = np.clip(np.rint(score), 1, 5)
i, j = np.nonzero(rng.random(stars.shape) < 0.25)
table = pd.DataFrame(
    {"person": people.person.to_numpy()[i], "dish": menu.dish.to_numpy()[j], "stars": stars[i, j]}
)

# %%
# A tenth of the people is hidden whole
# -------------------------------------
# Their ratings are not seen; their attributes are. The model without attributes answers with the
# mean of the dish.

names = {"rows": "person", "columns": "dish", "values": "stars"}
new = people.person[::10]
seen, hidden = table[~table.person.isin(new)], table[table.person.isin(new)]
with_attributes = ALS(6, random_state=0).fit(
    seen, **names, row_features=people, column_features=menu
)
without = ALS(6, random_state=0).fit(seen, **names)
by_attributes = metrics.rmse(hidden.stars, with_attributes.predict(hidden.person, hidden.dish))
by_biases = metrics.rmse(hidden.stars, without.predict(hidden.person, hidden.dish, unknown="mean"))
print(
    f"error for people of whom nothing was seen: attributes {by_attributes:.3f} biases "
    f"{by_biases:.3f}"
)
print("certificate holds:", with_attributes.certificate_.holds)

# %%
# Somebody who came today
# -----------------------
# The same verbs as for everybody else; the answer is explained by its parts.

today = pd.DataFrame({"person": ["zoe"], "town": ["harbour"], "age": [24]})
for person, rank, dish, value in with_attributes.recommend(
    row_features=today, n=3, by="prediction"
).entries():
    print(f"{person} {rank}. {dish} {value:.2f} ({menu.kitchen[int(dish[1:])]})")
print(with_attributes.explain("zoe", "d00", row_features=today))

# %%
# The first ratings
# -----------------
# With entries of their own, rows are solved around what their attributes say. Attributes are worth
# a few ratings; with more of them, history takes over.


def error_after(model, ratings: int, frame) -> float:
    """Error on the rest of the hidden people's ratings once so many of them are known."""
    order = hidden.groupby("person").cumcount()
    first, rest = hidden[order < ratings], hidden[order >= 10]
    told = model if frame is None else model.update(row_features=frame)
    if ratings:
        told = told.update(
            first.pivot(index="person", columns="dish", values="stars").reindex(columns=menu.dish)
        )
    return metrics.rmse(rest.stars, told.predict(rest.person, rest.dish, unknown="mean"))


steps = [0, 1, 2, 4, 7, 10]
curves = {"with attributes": [], "without": []}
for ratings in steps:
    for name, frame in (("with attributes", people), ("without", None)):
        more = {} if frame is None else {"row_features": people, "column_features": menu}
        model = ALS(6, random_state=0).fit(seen, **names, **more)
        curves[name].append(error_after(model, ratings, frame))
figure, axes = plt.subplots(figsize=(6, 3.6))
for name, values in curves.items():
    axes.plot(steps, values, marker="o", label=name)
axes.set_xlabel("ratings of the new person")
axes.set_ylabel("error on the rest")
axes.legend()
figure.tight_layout()
plt.show()
