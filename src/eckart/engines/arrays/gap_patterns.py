"""Rows of a partly observed matrix that have the same gaps, side by side: what depends on the gaps
alone is then worked out once for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.host import Host
from eckart.matrix import Observed


def by_gaps(
    indptr: np.ndarray, indices: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in the order of their patterns, those of pattern p being order[starts[p]] to
    order[starts[p + 1]], and of each pattern which of n columns is seen.

    >>> order, starts, seen = by_gaps(np.array([0, 1, 3, 4]), np.array([1, 0, 1, 1]), 2)
    >>> order.tolist(), starts.tolist(), seen.tolist()
    ([0, 2, 1], [0, 2, 3], [[False, True], [True, True]])
    """
    rows = len(indptr) - 1
    mask = np.zeros(
        (rows, -(-max(n, 1) // 64) * 64), bool
    )  # whole words: one number for a row of up to 64 columns, compared at once
    mask[np.repeat(np.arange(rows), np.diff(indptr)), indices] = True
    bits = np.packbits(mask, axis=1).view(np.uint64)
    whole = bits[:, 0] if bits.shape[1] == 1 else bits.view(f"V{8 * bits.shape[1]}")[:, 0]
    _, lead, of, count = np.unique(
        whole, return_index=True, return_inverse=True, return_counts=True
    )
    return np.argsort(of, kind="stable"), np.concatenate([[0], np.cumsum(count)]), mask[lead, :n]


def rows_by_gaps(x: Host) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
    """The rows, with their weights, in an order in which those with the same gaps stand together,
    and that order, made once; as they are, and None, where most have gaps of their own."""
    if "rows by gaps" not in x.kept:
        m, weights, among = x.matrix, x.weights, None
        order, starts, _ = by_gaps(m.indptr, m.indices, m.n_columns)
        if 2 * (len(starts) - 1) <= len(order):
            m, among = Observed.from_scipy(m.to_scipy()[order]), order
            weights = None if weights is None else weights[order]
        x.kept["rows by gaps"] = m, weights, among
    return x.kept["rows by gaps"]
