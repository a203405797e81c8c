"""Pairs of words in Python, one after another: the specification and the judge of the other
engines."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import logsumexp, xlogy

from eckart.engines.host import Host, place
from eckart.engines.protocol import (
    CountRows,
    GloveTable,
    PairRule,
    PmiRule,
    ScoreEvidence,
    ScoreRule,
    strata_of,
)
from eckart.terms import Logistic
from oracle.rows import ones_or

LOGISTIC = Logistic()
Total = defaultdict[tuple[int, int], float]


class OraclePairs:
    """Counting, mutual information, GloVe by AdaGrad and the evidence of scores as part of
    ``OracleEngine``."""

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

    def merge_counts(
        self, runs: Iterator[list[CountRows]], n: int, rule: PairRule
    ) -> Iterator[CountRows]:
        for parts in runs:
            total: Total = defaultdict(float)
            for part in parts:
                rows = np.repeat(np.arange(len(part.lengths)), part.lengths)
                scaled = part.data * rule.scale
                whole = np.rint(scaled) if rule.scale > 1 else scaled
                for row, column, value in zip(rows.tolist(), part.indices.tolist(), whole.tolist()):
                    total[row, column] += value
            yield _compressed(total, rule.scale, parts[0].first, len(parts[0].lengths))

    def join_counts(self, parts: list[CountRows]) -> tuple[np.ndarray, np.ndarray]:
        none = np.empty(0)
        indices = np.concatenate([none.astype(np.int32), *(part.indices for part in parts)])
        return indices, np.concatenate([none, *(part.data for part in parts)])

    def mutual_information(self, x: Host, rule: PmiRule, dtype: Any) -> CountRows:
        n = place(x).matrix.to_scipy().toarray().astype(np.float64)
        columns = n.sum(axis=0)
        spread = np.where(columns > 0, np.maximum(columns, 1e-300) ** rule.smoothing, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            m = (
                np.log(n)
                - np.log(n.sum(axis=1))[:, None]
                - np.log(spread / spread.sum())
                - np.log(rule.shift)
            )
        kept = (n > 0) & (m > 0 if rule.positive else m != 0)
        _, at = np.nonzero(kept)
        return CountRows(0, kept.sum(axis=1), at.astype(np.int32), m[kept].astype(dtype))

    def pair_scores(
        self,
        x: Host,
        left: np.ndarray,
        right: np.ndarray,
        offset: np.ndarray | None,
        rule: ScoreRule,
    ) -> ScoreEvidence:
        placed = place(x)
        seen, u, v = (
            placed.matrix.to_scipy().toarray().astype(np.float64),
            left.astype(np.float64),
            right.astype(np.float64),
        )
        s = u @ v.T + (0.0 if offset is None else offset)
        pairs, q = seen.sum(axis=1), rule.noise
        if rule.softmax:
            norm = logsumexp(s, axis=1, keepdims=True)
            loss, bound = (
                (seen * (norm - s)).sum(axis=1),
                -xlogy(seen, seen / np.maximum(pairs, 1e-300)[:, None]).sum(axis=1),
            )
            start, up, down = -xlogy(seen, q).sum(axis=1), seen, pairs[:, None] * np.exp(s - norm)
        else:
            r, away = rule.negatives, rule.negatives * pairs[:, None] * q
            loss = (
                seen * LOGISTIC.value(np.ones(()), s) + away * LOGISTIC.value(np.zeros(()), s)
            ).sum(axis=1)
            both = seen + away
            cells = xlogy(both, both) - xlogy(seen, seen) - xlogy(away, away)
            bound, start = (
                np.where(seen > 0, cells, 0.0).sum(axis=1),
                pairs * (np.log1p(r) + r * np.log1p(1.0 / r)),
            )
            up, down = seen * LOGISTIC.mean(-s), away * LOGISTIC.mean(s)
        w = ones_or(placed.weights, len(u))
        halves = [w[:, None] * (side @ v) for side in (up, down, up - down)]
        return ScoreEvidence(
            *(float(w @ each) for each in (loss, bound, start, pairs)),
            *(float(np.sum(h * h)) for h in halves),
        )

    def glove_table(self, x: Host, seed: int) -> GloveTable:
        placed = place(x)
        m = placed.matrix
        weights = np.ones(m.nnz, m.dtype) if placed.entry_weights is None else placed.entry_weights
        strata = strata_of(m.shape[0])
        rows = np.repeat(np.arange(m.shape[0]), m.row_counts())
        block = rows % strata * strata + m.indices % strata
        order = np.lexsort((np.random.default_rng(seed).random(m.nnz), block))
        ends = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=strata * strata))])
        return GloveTable(
            rows[order], m.indices[order], m.data[order], weights[order], ends, strata
        )

    def glove_step(
        self, table: GloveTable, own: np.ndarray, other: np.ndarray, rate: float, order: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        w, own, other = own.shape[1] // 3, own.copy(), other.copy()
        for turn in order:
            for b in table.round(int(turn)):
                for t in range(table.ends[b], table.ends[b + 1]):
                    u, v, f = own[table.rows[t]], other[table.columns[t]], table.weights[t]
                    d = u[: w - 1] @ v[: w - 1] + u[w - 1] + v[w - 1] - table.targets[t]
                    for one, partner in (
                        (u, np.append(v[: w - 1], 1.0)),
                        (v, np.append(u[: w - 1].copy(), 1.0)),
                    ):
                        g = np.clip(rate * f * d * partner, -1.0, 1.0)
                        one[:w] -= g / np.sqrt(one[w : 2 * w])
                        one[w : 2 * w] += g * g
                        one[2 * w :] = 1 / np.sqrt(one[w : 2 * w])
        return own, other

    def glove_loss(self, table: GloveTable, own: np.ndarray, other: np.ndarray) -> float:
        k = own.shape[1] // 3 - 1
        u, v = own[table.rows].astype(np.float64), other[table.columns].astype(np.float64)
        d = np.einsum("tk,tk->t", u[:, :k], v[:, :k]) + u[:, k] + v[:, k] - table.targets
        return float(np.sum(table.weights * d * d))


def _compressed(total: Total, scale: float, first: int, rows: int) -> CountRows:
    entries = sorted(total.items())
    lengths = np.bincount([row for (row, _), _ in entries], minlength=rows).astype(np.int64)
    data = np.array([value for _, value in entries]) / scale
    return CountRows(
        first, lengths, np.array([column for (_, column), _ in entries], np.int32), data
    )
