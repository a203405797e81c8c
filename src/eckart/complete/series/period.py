"""How long is a period? Learned from the entries: peaks of the autocorrelation are proposed, and the profile that predicts unseen entries best is taken.

For each lag l, over all pairs of entries of a row that are l columns apart,

    a(l) = sum y_it y_i,t+l / sum 1,

by one Fourier transform of values and mask a row. Of the highest peaks each is judged by leaving out: the entry (i, t) is predicted by the mean of the row's
other entries at t modulo the period, shrunk by one entry of 0, and compared with the same for the row's other entries as a whole.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import find_peaks

from eckart.matrix import Observed

PROMINENCE = 0.05
"""How far a peak must stand out of the autocorrelation, which is 1 at lag 0; that of noise over a thousand pairs is 0.03."""
CANDIDATES = 8
GAIN = 0.05
"""The share of the squared error that a period must save, over none and over a shorter one: profiles cost as many numbers as a period has columns."""
TURNS = 3
"""Periods that must fit into the table: a profile is a mean, and a mean of fewer says little about the next."""


def learned_period(x: Observed) -> tuple[int, str]:
    """The period in columns (1: none) and why, for entries whose rows are standardised."""
    detrended = straightened(x)
    found = autocorrelation(x, detrended)
    peaks, _ = find_peaks(found, prominence=PROMINENCE)
    peaks = np.sort(peaks[np.argsort(-found[peaks], kind="stable")][:CANDIDATES])
    best, least = 1, left_out(x, detrended, 1)
    alone = least
    for period in peaks.tolist():
        error = left_out(x, detrended, period)
        if error < (1 - GAIN) * least:
            best, least = period, error
    if best == 1:
        return 1, "no period: none predicts unseen entries better than the mean of a row"
    saved = round(100 * (1 - least / alone))
    return (
        best,
        f"a period of {best} columns: profiles of that length save {saved} % of the squared error on entries left out",
    )


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
    """a(0), a(1), ... up to a third of the columns; 0 where fewer than ten pairs are that far apart."""
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


def left_out(x: Observed, values: np.ndarray, period: int) -> float:
    """The mean squared error of entries predicted by the shrunk means of the others at the same place of the period."""
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    group = rows * period + x.indices % period
    size = x.shape[0] * period
    total, count = np.bincount(group, values, size)[group], np.bincount(group, minlength=size)[group]
    return float(np.mean(np.square(values - (total - values) / count)))
