"""Pairs of words: counting, mutual information, evidence of scores, and GloVe by AdaGrad."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol import (
    CountRows,
    GloveTable,
    PairRule,
    PmiRule,
    ScoreEvidence,
    ScoreRule,
)

TEXT = 2**18
"""Words of a text whose neighbours are counted at a time, beside the counts of those before."""
CLASSES = 512
"""Classes of words of a GloVe table at the most: the entries of a round, one of each block, are
worked on at once."""


class ArrayWords:
    """The family ``words`` but for windows."""

    lib: Any

    def cooccur(
        self,
        ids: np.ndarray,
        pointers: np.ndarray,
        n: int,
        rule: PairRule,
        span: tuple[int, int] | None = None,
        piece: int = 2**21,
    ) -> Iterator[CountRows]:
        from scipy.sparse import coo_array, csr_array

        first, last = (0, len(ids)) if span is None else span
        begins = np.repeat(pointers[:-1], np.diff(pointers))
        ends = np.repeat(pointers[1:], np.diff(pointers))
        total = csr_array((n, n))
        for a in range(first, last, TEXT):
            at = np.arange(a, min(a + TEXT, last))
            found: list[tuple[np.ndarray, ...]] = []
            for d, weight in enumerate(rule.weights, 1):
                before = at[at - d >= begins[at]] if rule.left else at[:0]
                behind = at[at + d < ends[at]] if rule.right else at[:0]
                rows = ids[np.concatenate([before, behind])]
                columns = ids[np.concatenate([before - d, behind + d])]
                found.append((np.full(len(rows), weight), rows, columns))
            values, rows, columns = (np.concatenate(each) for each in zip(*found))
            total = total + coo_array((values, (rows, columns)), (n, n)).tocsr()
        yield from _in_pieces(total, rule.scale, piece)

    def merge_counts(
        self, runs: Iterator[list[CountRows]], n: int, rule: PairRule
    ) -> Iterator[CountRows]:
        from scipy.sparse import csr_array

        for parts in runs:
            shape, total = (len(parts[0].lengths), n), None
            for part in parts:
                scaled = part.data * rule.scale
                whole = np.rint(scaled) if rule.scale > 1 else scaled
                indptr = np.concatenate([[0], np.cumsum(part.lengths)])
                own = csr_array((whole, part.indices, indptr), shape)
                total = own if total is None else total + own
            for found in _in_pieces(total, rule.scale, max(1, total.nnz)):  # type: ignore[union-attr]
                yield found._replace(first=parts[0].first)

    def join_counts(self, parts: list[CountRows]) -> tuple[np.ndarray, np.ndarray]:
        none = np.empty(0)
        indices = np.concatenate([none.astype(np.int32), *(part.indices for part in parts)])
        return indices, np.concatenate([none, *(part.data for part in parts)])

    def mutual_information(self, x: Any, rule: PmiRule, dtype: Any) -> CountRows:
        m = place(x).matrix
        n, rows = m.data.astype(np.float64), np.repeat(np.arange(m.shape[0]), m.row_counts())
        own = np.bincount(rows, n, m.shape[0])
        columns = np.bincount(m.indices, n, m.shape[1])
        spread = np.where(columns > 0, columns, 0.0) ** rule.smoothing * (columns > 0)
        # words without a neighbour have no entry to use their logarithm
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.log(spread / max(spread.sum(), np.finfo(float).tiny)) + np.log(rule.shift)
            ratio = np.log(n) - np.log(own)[rows] - shares[m.indices]
        kept = (n > 0) & (ratio > 0 if rule.positive else ratio != 0)
        lengths = np.bincount(rows[kept], minlength=m.shape[0])
        return CountRows(0, lengths, m.indices[kept], ratio[kept].astype(dtype))

    def pair_scores(
        self,
        x: Any,
        left: np.ndarray,
        right: np.ndarray,
        offset: np.ndarray | None,
        rule: ScoreRule,
    ) -> ScoreEvidence:
        """Some rows against all words at a time."""
        from scipy.special import xlogy

        x, v, q = place(x), right.astype(np.float64), rule.noise
        r, sums = rule.negatives, np.zeros(len(ScoreEvidence._fields))
        step = max(1, self.lib.scores // max(1, len(v)))
        for a in range(0, len(left), step):
            at = slice(a, min(a + step, len(left)))
            rows, columns, data = self.lib.stored_rows(x, at.start, at.stop)
            seen = np.zeros((at.stop - a, len(v)))
            seen[rows, columns] = data
            w = np.ones(len(seen)) if x.weights is None else x.weights[at]
            s = left[at] @ v.T + (0.0 if offset is None else offset)
            pairs = seen.sum(axis=1)
            if rule.softmax:
                top = s.max(axis=1, keepdims=True)
                norm = top + np.log(np.exp(s - top).sum(axis=1, keepdims=True))
                loss = (seen * (norm - s)).sum(axis=1)
                each = xlogy(seen, seen / np.where(pairs > 0, pairs, 1.0)[:, None])
                bound, start = -each.sum(axis=1), -xlogy(seen, q).sum(axis=1)
                up, down = seen, pairs[:, None] * np.exp(s - norm)
            else:
                away = r * pairs[:, None] * q
                soft = np.logaddexp(0.0, s)
                chance = np.exp(s - soft)
                loss = (seen * (soft - s) + away * soft).sum(axis=1)
                both = seen + away
                cells = xlogy(both, both) - xlogy(seen, seen) - xlogy(away, away)
                bound = np.where(seen > 0, cells, 0.0).sum(axis=1)
                start = pairs * (np.log1p(r) + r * np.log1p(1.0 / r))
                up, down = seen * np.exp(-soft), away * chance
            halves = (w[:, None] * (side @ v) for side in (up, down, up - down))
            sums += [
                *(w @ each for each in (loss, bound, start, pairs)),
                *((half * half).sum() for half in halves),
            ]
        return ScoreEvidence(*sums.tolist())

    def glove_table(self, x: Any, seed: int) -> GloveTable:
        """By as many classes as there are words, up to ``CLASSES``: blocks of few entries."""
        x = place(x)
        m, strata = x.matrix, int(np.clip(x.shape[0] or 0, 1, CLASSES))
        weights = np.ones(m.nnz, np.float32) if x.entry_weights is None else x.entry_weights
        rows = np.repeat(np.arange(m.shape[0], dtype=np.int32), m.row_counts())
        block = rows % strata * strata + m.indices % strata
        order = np.lexsort((np.random.default_rng(seed).random(m.nnz), block))
        ends = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=strata * strata))])
        words = rows[order], m.indices[order].astype(np.int32)
        targets, heavy = (a[order].astype(np.float32) for a in (m.data, weights))
        return GloveTable(*words, targets, heavy, ends, strata)

    def glove_step(
        self, table: GloveTable, own: np.ndarray, other: np.ndarray, rate: float, order: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """An entry of every block of a round at a time: they share no word."""
        w, sides = own.shape[1] // 3, (own.copy(), other.copy())
        sizes, firsts = np.diff(table.ends), table.ends[:-1]
        for turn in order:
            blocks = np.array(table.round(int(turn)))
            for depth in range(int(sizes[blocks].max(initial=0))):
                t = firsts[blocks[sizes[blocks] > depth]] + depth
                at = table.rows[t], table.columns[t]
                u, v = (side[i] for side, i in zip(sides, at))
                d = (u[:, : w - 1] * v[:, : w - 1]).sum(axis=1) + u[:, w - 1] + v[:, w - 1]
                pull = (rate * table.weights[t] * (d - table.targets[t]))[:, None]
                steps = [
                    pull * np.pad(a[:, : w - 1], ((0, 0), (0, 1)), constant_values=1.0)
                    for a in (v, u)
                ]
                for side, i, a, step in zip(sides, at, (u, v), steps):
                    g = np.clip(step, -1.0, 1.0)
                    total = a[:, w : 2 * w] + g * g
                    moved = a[:, :w] - g * a[:, 2 * w :]
                    side[i] = np.concatenate([moved, total, 1.0 / np.sqrt(total)], axis=1)
        return sides

    def glove_loss(self, table: GloveTable, own: np.ndarray, other: np.ndarray) -> float:
        k = own.shape[1] // 3 - 1
        u, v = own[table.rows].astype(np.float64), other[table.columns].astype(np.float64)
        d = np.einsum("tk,tk->t", u[:, :k], v[:, :k]) + u[:, k] + v[:, k] - table.targets
        return float(np.sum(table.weights * d * d))


def _in_pieces(total: Any, scale: float, piece: int) -> Iterator[CountRows]:
    """Ranges of rows of at most so many entries, or one row; all of them where there are none."""
    total.sum_duplicates()
    ends, cuts = total.indptr, [0]
    while cuts[-1] < total.shape[0]:
        a = cuts[-1]
        cuts.append(max(a + 1, int(np.searchsorted(ends, ends[a] + piece, side="right")) - 1))
    for a, b in itertools.pairwise(cuts):
        at = slice(ends[a], ends[b])
        indices, data = total.indices[at].astype(np.int32), total.data[at] / scale
        yield CountRows(a, np.diff(ends[a : b + 1]).astype(np.int64), indices, data)
