"""
Products that go together
=========================

An embedding needs sequences, not words: baskets of a shop will do. Here shoppers come with an
errand, and buy what belongs to it and a few other things. The model sees only which products share
a basket. It should find the errands again.
"""

# %%
# Baskets
# -------
# Five errands of twelve products each, and things that everybody buys. Each of six things comes in
# two brands, which never share a basket: nobody takes two
# kinds of flour. So the brands meet the same company, and hardly each other.

import matplotlib.pyplot as plt
import numpy as np

import eckart
from eckart import SkipGram, plots

rng = np.random.default_rng(0)
errands = {
    "baking": ("flour", "sugar", "yeast", "butter", "eggs", "vanilla"),
    "barbecue": ("sausages", "charcoal", "steak", "buns", "mustard", "corn"),
    "breakfast": ("coffee", "jam", "muesli", "honey", "tea", "croissant"),
    "cleaning": ("soap", "sponge", "bleach", "gloves", "mop", "bin bags"),
    "pets": ("cat food", "cat litter", "dog food", "leash", "treats", "bird seed"),
}
always = ["milk", "bread", "apples", "water", "paper", "cheese"]


def basket() -> list[str]:
    things = errands[str(rng.choice(list(errands)))]
    some = rng.choice(things, rng.integers(2, 6), replace=False)
    bought = [f"{thing} {rng.choice(['A', 'B'])}" for thing in some]
    return rng.permutation([*bought, *rng.choice(always, 2, replace=False)]).tolist()


baskets = [basket() for _ in range(8000)]
print(f"{len(baskets)} baskets, such as {', '.join(baskets[0])}")

# %%
# Fit
# ---
# A basket has no order, so the window is as wide as a basket. Ids may be texts, with spaces too, or
# integers.

model = SkipGram(16, window=10, sample=None, min_count=1, deterministic=True, random_state=0).fit(
    baskets
)
v = model.vectors_
print(model.certificate_)
print(f"{len(v)} products as vectors of {v.k} numbers")

# %%
# Neighbours
# ----------
# The nearest product of a brand should be the other brand, although the two were never bought
# together; then comes the rest of its errand.

errand = {
    f"{thing} {brand}": name
    for name, things in errands.items()
    for thing in things
    for brand in "AB"
}
found = v.neighbours(list(errand), 5, without=always)
alike = [product[:-1] == near[0][0][:-1] for product, near in zip(errand, found)]
inside = [
    errand[other] == errand[product] for product, near in zip(errand, found) for other, _ in near
]
print(f"nearest is the other brand: {np.mean(alike):.0%}")
print(f"the five nearest are of the same errand: {np.mean(inside):.0%}, by chance {11 / 59:.0%}")

fig, ax = plt.subplots(figsize=(10.5, 2.8), layout="constrained")
plots.plot_neighbours(v, ["flour A", "coffee B", "cat food A", "milk"], ax, n=6)

# %%
# A map of the shop
# -----------------
# Errands are islands. What everybody buys belongs to none of them.

fig, ax = plt.subplots(figsize=(9, 6), layout="constrained")
shown = [*errand, *always]
plots.plot_map(v, shown, ax, groups=[errand.get(product, "everybody") for product in shown])

# %%
# What is this basket about?
# --------------------------
# The mean of its vectors lies near what is missing in it. Unknown products are skipped.

begun = ["flour A", "eggs B", "milk"]
more = v.neighbours(v.mean(begun), 5, without=[*begun, *always])
print(f"with {', '.join(begun)}: {', '.join(product for product, _ in more)}")
print(
    "odd one out of flour A, yeast B, butter A, mop A: "
    f"{v.odd_one_out(['flour A', 'yeast B', 'butter A', 'mop A'])}"
)

# %%
# Pairs alone
# -----------
# The counts of pairs are all that is needed; here they are factorized without gradient descent.

counts = eckart.cooccurrence(baskets, window=10, weighting="flat", min_count=1)
pmi = eckart.PMI(16, random_state=0).fit(counts)
both = [
    np.mean(
        [
            errand[o] == errand[p]
            for p, near in zip(errand, w.neighbours(list(errand), 5, without=always))
            for o, _ in near
        ]
    )
    for w in (v, pmi.vectors_)
]
print(f"same errand among the five nearest: skip-gram {both[0]:.0%}, PMI {both[1]:.0%}")
plt.show()
