"""Counting neighbours in Python, one word after another: the specification and the judge of the other engines."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from eckart.engines.protocol import CountRows, GloveTable, PairRule, strata_of
from eckart.matrix import Observed

Total = defaultdict[tuple[int, int], float]


class PlainPairs:
    """cooccur, merge_counts, glove_table and glove_step as part of ``PlainEngine``."""

    def cooccur(
        self,
        ids: np.ndarray,
        pointers: np.ndarray,
        n: int,
        rule: PairRule,
        span: tuple[int, int] | None = None,
        piece: int = 2**21,
    ) -> Iterator[CountRows]:
        first, last = (0, len(ids)) if span is None else span
        total: Total = defaultdict(float)
        for a, b in itertools.pairwise(pointers.tolist()):
            for p in range(max(a, first), min(b, last)):
                for d, weight in enumerate(rule.weights, 1):
                    if rule.left and p - d >= a:
                        total[ids[p], ids[p - d]] += weight
                    if rule.right and p + d < b:
                        total[ids[p], ids[p + d]] += weight
        yield _compressed(total, rule.scale, 0, n)

    def merge_counts(self, runs: Iterator[list[CountRows]], n: int, rule: PairRule) -> Iterator[CountRows]:
        for parts in runs:
            total: Total = defaultdict(float)
            for part in parts:
                rows = np.repeat(np.arange(len(part.lengths)), part.lengths)
                scaled = part.data * rule.scale
                whole = np.rint(scaled) if rule.scale > 1 else scaled
                for row, column, value in zip(rows.tolist(), part.indices.tolist(), whole.tolist()):
                    total[row, column] += value
            yield _compressed(total, rule.scale, parts[0].first, len(parts[0].lengths))

    def glove_table(self, x: Observed, weights: np.ndarray, seed: int) -> GloveTable:
        strata = strata_of(x.shape[0])
        rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
        block = rows % strata * strata + x.indices % strata
        order = np.lexsort((np.random.default_rng(seed).random(x.nnz), block))
        ends = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=strata * strata))])
        return GloveTable(rows[order], x.indices[order], x.data[order], weights[order], ends, strata)

    def glove_step(
        self, table: GloveTable, own: np.ndarray, other: np.ndarray, rate: float, order: np.ndarray
    ) -> float:
        w, loss = own.shape[1] // 3, 0.0
        for turn in order:
            for b in table.round(int(turn)):
                for t in range(table.ends[b], table.ends[b + 1]):
                    u, v, f = own[table.rows[t]], other[table.columns[t]], table.weights[t]
                    d = u[: w - 1] @ v[: w - 1] + u[w - 1] + v[w - 1] - table.targets[t]
                    loss += f * d * d
                    for one, beside in ((u, np.append(v[: w - 1], 1.0)), (v, np.append(u[: w - 1].copy(), 1.0))):
                        g = np.clip(rate * f * d * beside, -1.0, 1.0)
                        one[:w] -= g / np.sqrt(one[w : 2 * w])
                        one[w : 2 * w] += g * g
                        one[2 * w :] = 1 / np.sqrt(one[w : 2 * w])
        return float(loss)

    def glove_loss(self, table: GloveTable, own: np.ndarray, other: np.ndarray) -> float:
        k = own.shape[1] // 3 - 1
        u, v = own[table.rows].astype(np.float64), other[table.columns].astype(np.float64)
        d = np.einsum("tk,tk->t", u[:, :k], v[:, :k]) + u[:, k] + v[:, k] - table.targets
        return float(np.sum(table.weights * d * d))


def _compressed(total: Total, scale: float, first: int, rows: int) -> CountRows:
    entries = sorted(total.items())
    lengths = np.bincount([row for (row, _), _ in entries], minlength=rows).astype(np.int64)
    data = np.array([value for _, value in entries]) / scale
    return CountRows(first, lengths, np.array([column for (_, column), _ in entries], np.int32), data)
