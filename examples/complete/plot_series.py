"""
Time series with gaps, and what comes next
==========================================

Thirty stations count people every hour. Some counts are lost at random, and some stations fail for
whole days. :class:`eckart.TimeFactors` learns what all stations share, what each has for itself,
and how long a day is; it fills the gaps and looks ahead, with an interval for every cell.
"""

# %%
# The data
# --------
# A daily profile for each station, two influences that all of them feel and that move slowly
# (weather, say), a part of each station's own, and noise. A
# quarter of the hours is hidden at random, and in eight stations three days in a row. The last day
# is kept back.

import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import lfilter

from eckart import TimeFactors

rng = np.random.default_rng(0)
n, hours, day = 30, 24 * 15, 24
shared = lfilter([1], [1, -0.95], rng.standard_normal((2, hours)), axis=1)
own = lfilter([1], [1, -0.7], rng.standard_normal((n, hours)), axis=1)
profile = 30 * np.exp(-0.5 * ((np.arange(day) - rng.normal(13, 3, (n, 1))) / 4) ** 2)
truth = (
    40
    + np.tile(profile, hours // day)
    + rng.normal(0, 3, (n, 2)) @ shared
    + 2 * own
    + 2 * rng.standard_normal((n, hours))
)

hidden = rng.random(truth.shape) < 0.25
for i in range(8):
    start = rng.integers(2, 11) * day
    hidden[i, start : start + 3 * day] = True
table = np.where(hidden, np.nan, truth)[:, :-day]

# %%
# The fit
# -------
# Nothing is said about days. The period is found by predicting entries that are left out.

model = TimeFactors(3, n_samples=60, burn_in=60, thin=1, random_state=0).fit(table)
print(model.fit_.plan["period_reason"])

past = hidden[:, :-day]
error = np.sqrt(np.mean((model.impute() - truth[:, :-day])[past] ** 2))
plain = np.sqrt(np.mean((np.nanmean(table, axis=1, keepdims=True) - truth[:, :-day])[past] ** 2))
rows, columns = np.nonzero(past)
low, high = model.interval(rows, columns)
inside = np.mean((low <= truth[rows, columns]) & (truth[rows, columns] <= high))
print(f"error of hidden cells: {error:.2f}, of the stations' means: {plain:.2f}")
print(f"hidden cells in their 90 % intervals: {inside:.3f}")

# %%
# A gap of three days
# -------------------
# Inside the gap the interval widens to what the other stations leave open.

station = 0
gap = np.flatnonzero(past[station])
times = np.arange(table.shape[1])
mean = model.predict(station, times)
low, high = model.interval(station, times)
fig, axes = plt.subplots(2, 1, figsize=(9, 6), layout="constrained")
axes[0].fill_between(times, low, high, alpha=0.25, label="90 % interval")
axes[0].plot(times, mean, lw=1.2, label="model")
axes[0].plot(times, table[station], ".", ms=3, color="black", label="observed")
axes[0].plot(gap, truth[station, gap], ".", ms=3, color="tab:orange", label="hidden")
axes[0].set_title("A station with a gap of three days", loc="left", fontsize=11)
axes[0].legend(ncols=4, fontsize=8)

# %%
# The next day
# ------------
# Forecasts go on from the state in which the last hour leaves every draw of the model.

ahead = model.forecast(day)
future = truth[:, -day:]
covered = np.mean((ahead.low <= future) & (future <= ahead.high))
print(f"observations of the next day in their 90 % intervals: {covered:.3f}")
shown = 12
axes[1].plot(np.arange(-48, 0), table[shown, -48:], ".", ms=4, color="black")
axes[1].fill_between(np.arange(day), ahead.low[shown], ahead.high[shown], alpha=0.25)
axes[1].plot(np.arange(day), ahead.mean[shown])
axes[1].plot(np.arange(day), future[shown], ".", ms=4, color="tab:orange")
axes[1].set_title("Another station, and its next day", loc="left", fontsize=11)
axes[1].set_xlabel("hours")
plt.show()
