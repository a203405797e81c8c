"""
A table with columns of several kinds
=====================================

A register of patients has numbers, yes and no, categories, grades, counts and dates, and gaps in
all of them. This example hides a fifth of such a table, fits :class:`eckart.MixedTable` to the
rest, and compares what it fills in with what was hidden.
"""

# %%
# The table
# ---------
# Two hidden numbers, age and fitness, drive everything; the model is not told.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from eckart import MixedTable

rng = np.random.default_rng(0)
n = 1500
age, fit = rng.standard_normal((2, n))


def noise(size: float) -> np.ndarray:
    return size * rng.standard_normal(n)


ward = np.argmax(np.column_stack([age, fit, -age - fit]) + rng.gumbel(size=(n, 3)) / 2, axis=1)
whole = pd.DataFrame(
    {
        "age": 50 + 15 * age,
        "pressure": 125 + 9 * age - 6 * fit + noise(6),
        "pulse": 70 - 8 * fit + noise(4),
        "smokes": pd.array(-fit + noise(0.7) > 0.4, dtype="boolean"),
        "ward": np.array(["heart", "sports", "lungs"])[ward],
        "health": pd.Categorical.from_codes(
            np.digitize(fit - 0.5 * age + noise(0.5), [-1, 0, 1]),
            ["poor", "fair", "good", "best"],
            ordered=True,
        ),
        "visits": rng.poisson(np.exp(0.5 + 0.6 * age - 0.6 * fit)).astype(float),
        "admitted": pd.Timestamp("2024-01-01")
        + pd.to_timedelta(np.round(180 + 60 * age + noise(40)), unit="D"),
    }
)
mask = rng.random(whole.shape) < 0.2
gaps = whole.mask(pd.DataFrame(mask, columns=whole.columns))
print(gaps.head(4).to_string())

# %%
# Fit and fill
# ------------
# The type of a column decides its loss, and cells that are hidden for it decide rank and ridge. The
# table comes back in the types it had.

model = MixedTable(random_state=0).fit(gaps)
filled = model.impute(gaps)
for name, why in model.fit_.plan["losses"].items():
    print(f"{name:<9} {why}")
print(
    f"rank {model.fit_.plan['rank']}; same types: "
    f"{bool((filled.dtypes == gaps.dtypes).all())}; gaps left: "
    f"{int(filled.isna().sum().sum())}"
)
print(model.certificate_)

# %%
# What was hidden
# ---------------
# Numbers against their mean, levels against the most frequent one.

shares = {}
for j, name in enumerate(whole):
    hidden = mask[:, j]
    if name in model.levels_:
        wrong = (filled[name][hidden] != whole[name][hidden]).mean()
        usual = (gaps[name].mode()[0] != whole[name][hidden]).mean()
    else:
        truth, found, seen = (
            pd.to_numeric(x).to_numpy(float)
            for x in (whole[name][hidden], filled[name][hidden], gaps[name].dropna())
        )
        wrong, usual = (
            np.sqrt(np.mean((found - truth) ** 2)),
            np.sqrt(np.mean((seen.mean() - truth) ** 2)),
        )
    shares[name] = float(wrong / usual)
    print(f"{name:<9} error {shares[name]:.2f} of that of the mean or the commonest level")

fig, ax = plt.subplots(figsize=(6, 3))
ax.barh(list(shares), list(shares.values()))
ax.axvline(1, color="black", lw=1)
ax.set_xlabel("error, as a share of that of the column alone")
fig.tight_layout()

# %%
# Why this answer?
# ----------------
# The shares of an explanation add up to the log odds of the answer, exactly.

row = int(np.flatnonzero(mask[:, 3])[0])
told = model.explain(gaps, "smokes", row=row)
print(f"smokes = {told.value}: log odds {told.natural:.2f} = {told.base:.2f} and")
for name, share in told.shares:
    print(f"   {share:+.2f} for {name} = {gaps[name][row]}")

# %%
# Probabilities of a category for new rows, from whatever is known of them.

someone = pd.DataFrame({name: pd.Series([None], dtype=gaps[name].dtype) for name in gaps})
someone["pulse"], someone["age"] = 52.0, 30.0
for level, p in zip(model.levels_["ward"], model.predict_proba(someone, "ward")[0]):
    print(f"{level:<7} {p:.2f}")
plt.show()
