"""Columns in the order of time: sorted where their labels have an order, with a column for every
step that nobody observed.

How long is a period? Learned from the entries: peaks of the autocorrelation are proposed, and
the profile that predicts unseen entries best is taken.

For each lag l, over all pairs of entries of a row that are l columns apart,

    a(l) = sum y_it y_i,t+l / sum 1,

by one Fourier transform of values and mask a row. What is slower than a period hides it: the
autocorrelation of a row that wanders falls from lag to lag, and a profile is a small share of its
variance. So the moving mean over w columns of the row's entries is taken off first, for w = 4, 8,
16, ..., and peaks up to w are looked at. Each candidate p is judged by leaving out, on entries less
their moving mean over p columns (which has no part of a profile of p columns): the entry (i, t) is
predicted by the mean of the row's other entries at t modulo p, shrunk by one entry of 0, and
compared with the same for the best shorter period, or for the row's other entries as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.signal import find_peaks
from scipy.stats import ttest_1samp

from eckart.matrix import Observed

MOST = 4
"""Columns after the steps in between were added, as a multiple of those before: beyond it the
labels are no regular times with gaps."""


def in_time(x: Observed) -> tuple[Observed, str]:
    """The same entries with columns in the order of time, and what was done. Labels that are
    numbers or times are sorted; where all their distances are multiples of the smallest, a column
    is put in for each step in between. Other labels (texts) stay in the order in which they
    came."""
    labels = _ordered(x.columns)
    if labels is None:
        return x, "columns in the order in which they came"
    order = np.argsort(labels, kind="stable")
    sorted_labels = labels[order]
    kind = "whole" if labels.dtype.kind in "iuM" else "other"
    place, full = np.arange(len(labels)), sorted_labels
    if kind == "whole" and len(labels) > 2:
        at = (
            sorted_labels.view(np.int64)
            if labels.dtype.kind == "M"
            else sorted_labels.astype(np.int64)
        )
        steps = np.diff(at)
        if (
            steps.min() > 0
            and (steps % steps.min() == 0).all()
            and (at[-1] - at[0]) // steps.min() < MOST * len(at)
        ):
            place = (at - at[0]) // steps.min()
            whole = at[0] + steps.min() * np.arange(place[-1] + 1)
            full = (
                whole.view(labels.dtype) if labels.dtype.kind == "M" else whole.astype(labels.dtype)
            )
    said = "columns in the order of their labels"
    if len(full) > len(labels):
        said += f", with {len(full) - len(labels)} added for times that nobody observed"
    if len(full) == len(labels) and (order == np.arange(len(order))).all():
        return x, said
    to = np.empty(len(labels), np.int64)
    to[order] = place
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    return Observed.from_codes(
        rows, to[x.indices], x.data, (x.shape[0], len(full)), x.rows, full
    ), said


def later(labels: np.ndarray | None, columns: int, steps: int) -> np.ndarray:
    """Labels of the next columns: positions, or numbers and times that go on by their usual
    distance; where labels have none, steps counted from 1."""
    ordered = _ordered(labels)
    if labels is None:
        return np.arange(columns, columns + steps)
    if ordered is None or len(ordered) < 2:
        return np.array([f"+{i}" for i in range(1, steps + 1)], object)
    return ordered[-1] + np.median(
        np.diff(ordered).astype(np.int64 if ordered.dtype.kind == "M" else ordered.dtype)
    ).astype(
        "m8" + ordered.dtype.str[3:] if ordered.dtype.kind == "M" else ordered.dtype
    ) * np.arange(1, steps + 1)


def _ordered(labels: Any) -> np.ndarray | None:
    """Labels as numbers or times, or None where they are neither."""
    if labels is None or len(labels) == 0:
        return None
    labels = np.asarray(labels)
    if labels.dtype == object:
        kinds = {type(label) for label in labels}
        if (
            kinds <= {int}
            or kinds <= {int, float}
            or all(isinstance(label, np.datetime64) for label in labels)
        ):
            labels = (
                np.array(labels.tolist())
                if not isinstance(labels[0], np.datetime64)
                else labels.astype("M8[ns]")
            )
        elif all(hasattr(label, "isoformat") for label in labels):
            labels = labels.astype("M8[us]")
    return labels if labels.dtype.kind in "iufM" else None


PROMINENCE = 0.05
"""How far a peak must stand out of the autocorrelation, which is 1 at lag 0; that of noise over a
thousand pairs is 0.03."""
CANDIDATES = 8
"""Peaks that are tried, the highest: a period and some of its multiples, or two periods with
theirs."""
GAIN = 0.05
"""The share of the squared error that a period must save, over none and over a shorter one:
profiles cost as many numbers as a period has columns."""
CHANCE = 0.02
"""The probability with which the gain of one candidate may come by chance. Of 300 single rows of 60
columns of noise 3 % are given a period so, of 300 walks 4 %, of tables of ten rows none of 120."""
TURNS = 3
"""Periods that must fit into the table: a profile is a mean, and a mean of fewer says little about
the next."""


def learned_period(x: Observed) -> tuple[int, str]:
    """The period in columns (1: none) and why, for entries whose rows are standardised."""
    detrended = straightened(x)
    best, saved = 1, 0.0
    for period in candidates(x, detrended):
        quick = less_moving_mean(x, detrended, period)
        errors, before = left_out(x, quick, period), left_out(x, quick, best)
        if errors.mean() < (1 - GAIN) * before.mean() and in_most_turns(
            before - errors, x.indices // period
        ):
            best, saved = period, 1 - errors.mean() / left_out(x, quick, 1).mean()
    if best == 1:
        return 1, "no period: none predicts unseen entries better than the mean of a row"
    return (
        best,
        f"a period of {best} columns: profiles of that length save {round(100 * saved)} "
        "% of the squared error on entries left out, around moving means",
    )


def in_most_turns(gains: np.ndarray, turns: np.ndarray) -> bool:
    """Is the gain of a turn of the period above 0 beyond chance (Student's test over the turns)? A
    row that wanders resembles itself in a few of them."""
    sums = np.bincount(turns, gains)[np.bincount(turns) > 0]
    return len(sums) > 1 and ttest_1samp(sums, 0.0, alternative="greater").pvalue < CHANCE


def candidates(x: Observed, values: np.ndarray) -> list[int]:
    """The highest peaks of the autocorrelations around moving means, of which each window shows
    those that are not longer than itself, by rising length."""
    longest = x.n_columns // TURNS
    windows = [4 * 2**i for i in range(max(1, longest).bit_length()) if 2 * 2**i < longest]
    found: set[int] = set()
    for window in windows:
        correlation = autocorrelation(x, less_moving_mean(x, values, window))[: window + 2]
        peaks, _ = find_peaks(correlation, prominence=PROMINENCE)
        found |= set(peaks[np.argsort(-correlation[peaks], kind="stable")][:CANDIDATES].tolist())
    return sorted(found)


def less_moving_mean(x: Observed, values: np.ndarray, window: int) -> np.ndarray:
    """Values less the mean of the row's entries in the ``window`` columns around each; of an even
    window the two ends count a half."""
    wide = x.n_columns + window + 1  # so far apart that no window reaches into the next row
    place = np.repeat(np.arange(x.shape[0], dtype=np.int64), x.row_counts()) * wide + x.indices
    running = np.concatenate([[0.0], np.cumsum(values)])
    half, total, count = window // 2, np.zeros(len(values)), np.zeros(len(values))
    for first, last in ((half, window - 1 - half), (window - 1 - half, half)):
        begin, end = (
            np.searchsorted(place, place - first),
            np.searchsorted(place, place + last, side="right"),
        )
        total += running[end] - running[begin]
        count += end - begin
    return values - total / count


def straightened(x: Observed) -> np.ndarray:
    """The entries less a straight line of each row, which would look like a long period."""
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    t = x.indices.astype(np.float64)
    counts = np.maximum(x.row_counts(), 1)
    t -= (np.bincount(rows, t, x.shape[0]) / counts)[rows]
    y = x.data.astype(np.float64)
    y -= (np.bincount(rows, y, x.shape[0]) / counts)[rows]
    square = np.bincount(rows, t * t, x.shape[0])
    slope = np.bincount(rows, t * y, x.shape[0]) / np.where(square > 0, square, 1.0)
    return y - slope[rows] * t


def autocorrelation(x: Observed, values: np.ndarray) -> np.ndarray:
    """a(0), a(1), ... up to a third of the columns; 0 where fewer than ten pairs are that far
    apart."""
    columns = x.n_columns
    products, pairs = np.zeros(2 * columns), np.zeros(2 * columns)
    for a, b in zip(x.indptr[:-1], x.indptr[1:]):
        line = np.zeros((2, columns))
        line[:, x.indices[a:b]] = values[a:b], np.ones(b - a)
        spectrum = np.abs(np.fft.rfft(line, 2 * columns, axis=1)) ** 2
        both = np.fft.irfft(spectrum, 2 * columns, axis=1)
        products += both[0]
        pairs += both[1]
    far = columns // TURNS + 2
    found = np.where(pairs > 9.5, products / np.maximum(pairs, 1.0), 0.0)[:far]
    return found / max(found[0], np.finfo(np.float64).tiny)


def left_out(x: Observed, values: np.ndarray, period: int) -> np.ndarray:
    """The squared errors of entries predicted by the shrunk means of the others at the same place
    of the period."""
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    group = rows * period + x.indices % period
    size = x.shape[0] * period
    total, count = (
        np.bincount(group, values, size)[group],
        np.bincount(group, minlength=size)[group],
    )
    return np.square(values - (total - values) / count)
