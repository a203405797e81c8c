"""The shares of a blend, chosen by lists of hidden entries, and what they gained on rows that had
no say in them.

The shares c (c >= 0, sum c = 1) climb from the best member: of all mixtures (1 - t) c + t e_m the
one whose lists have the largest mean NDCG is taken, until none is better. What that gains is reported
by rows that did not choose: rows are halved at random, each half is judged by the shares and by the
best member that the other half chose, and the differences of all rows give the gain with its
standard error. A gain below its standard error is none: the best member stays alone.

Lists of a blend are made of the columns that stand among the first of some member: ``Pool`` keeps
those, with the scores of all members there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eckart.metrics import ranking

DEPTH, LEAST = 5, 100
"""Columns of each member in the pool: five lists deep, at least a hundred. A column beyond that for
all members is in no list of a mixture but by chance."""
STEPS = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8])
"""Shares of a member that is mixed in."""
BETTER = 1e-5
"""NDCG by which a mixture must be better to be taken; far below any standard error."""
ROUNDS = 12
"""A climb that goes on longer follows noise."""


@dataclass(frozen=True, eq=False)
class Pool:
    """``columns`` rows x p (-1: none), ``scores`` members x rows x p (-inf where there is no
    column), the ``relevant`` columns as a sparse matrix."""

    columns: np.ndarray
    scores: np.ndarray
    relevant: Any
    at: int

    @classmethod
    def of(cls, scores: list[np.ndarray], relevant: Any, at: int) -> Pool:
        """``scores``: rows x columns of each member, already comparable, -inf where a row has seen
        the column."""
        n = scores[0].shape[1]
        depth = min(n, max(DEPTH * at, LEAST))
        firsts = [np.argpartition(-s, depth - 1, axis=1)[:, :depth] for s in scores]
        columns = np.sort(np.concatenate(firsts, axis=1), axis=1)
        columns[:, 1:][columns[:, 1:] == columns[:, :-1]] = -1  # each column once
        there = columns >= 0
        found = np.stack(
            [
                np.where(there, np.take_along_axis(s, np.maximum(columns, 0), axis=1), -np.inf)
                for s in scores
            ]
        )
        columns[~np.isfinite(found).all(axis=0)] = -1  # what a row has seen is in no list
        return cls(columns, np.where(columns >= 0, found, -np.inf), relevant, at)

    def some(self, rows: np.ndarray) -> Pool:
        return Pool(self.columns[rows], self.scores[:, rows], self.relevant[rows], self.at)

    def ndcg(self, shares: np.ndarray) -> np.ndarray:
        """NDCG of the lists of a mixture, one for each row."""
        with np.errstate(invalid="ignore"):
            total = sum(c * s for c, s in zip(shares, self.scores) if c > 0)
        k = min(self.at, total.shape[1])
        best = np.argpartition(-total, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(total, best, axis=1), axis=1, kind="stable")
        lists = np.take_along_axis(self.columns, np.take_along_axis(best, order, axis=1), axis=1)
        judged = ranking(lists, self.relevant, k, ("ndcg",), per_row=True).per_row
        assert judged is not None
        return judged["ndcg"]


class Chosen(NamedTuple):
    """The ``shares``, each member's NDCG on all rows, and on rows that did not choose: that of
    mixtures, their ``gain`` over the best member and its ``error``."""

    shares: np.ndarray
    members: np.ndarray
    blended: float
    gain: float
    error: float


def alone(pool: Pool) -> np.ndarray:
    """The shares of the best member."""
    size = len(pool.scores)
    return np.eye(size)[int(np.argmax([pool.ndcg(e).mean() for e in np.eye(size)]))]


def climb(pool: Pool) -> np.ndarray:
    """The shares of the best lists."""
    c = alone(pool)
    best = float(pool.ndcg(c).mean())
    for _ in range(ROUNDS):
        tried = [(1 - t) * c + t * e for e in np.eye(len(c)) for t in STEPS]
        means = [float(pool.ndcg(shares).mean()) for shares in tried]
        first = int(np.argmax(means))
        if means[first] <= best + BETTER:
            break
        c, best = tried[first], means[first]
    return c


def choose(pool: Pool, rng: np.random.Generator) -> Chosen:
    """The shares that hidden entries chose; the best member alone where a mixture gained nothing on
    rows that had no say in it."""
    rows = rng.permutation(len(pool.columns))
    halves = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    members = np.array([pool.ndcg(e).mean() for e in np.eye(len(pool.scores))])
    mixed, single = [], []
    for chooses, judges in (halves, halves[::-1]):
        if len(chooses) and len(judges):
            other, own = pool.some(chooses), pool.some(judges)
            mixed.append(own.ndcg(climb(other)))
            single.append(own.ndcg(alone(other)))
    if not mixed:
        return Chosen(alone(pool), members, float(members.max()), 0.0, 0.0)
    blended = np.concatenate(mixed)
    difference = blended - np.concatenate(single)
    gain, error = (
        float(difference.mean()),
        float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else 0.0,
    )
    if gain <= error:
        return Chosen(alone(pool), members, float(blended.mean()), gain, error)
    return Chosen(climb(pool), members, float(blended.mean()), gain, error)
