"""The weight of what was not observed, and the ridge, of ``ALS(feedback="implicit")`` where none
are given.

With W the sum of the weights alpha r of an n x m matrix, all cells together weigh c times as much
as the observed ones:

    a0 = c W / (n m),   c = 10,

so that a0 follows how full the matrix is. Entries at random, of p a row and q a column and weights
of the root mean square g, pull with a norm of about g (sqrt p + sqrt q), and the nuclear norm takes
all of it away from

    l2 = t g (sqrt p + sqrt q) / ((p + a0 m) (q + a0 n))^(power / 2),   t = 1,

on. How much less or more is best hidden entries say: t = 1, 1/2, 2, ... are tried while their
places in the lists get better, and then c = 10, 5, 20, ...; the best t hardly depends on c. The
measure is the mean of 1 / log2(1 + rank) among all columns that the row has not, which knows of
every hidden entry, not only of those among the first.

Where rows have few entries, codes say less than how common a column is, and no ridge makes them say
just that. So a score is u.v + b log(1 + rows of the column), b of several by the same measure, and
0 where none is better by a standard error. Where nothing is better than popularity alone by a
standard error, b is so large that popularity decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.stationary import RidgeProblem
from eckart.complete.factors.alternate import AlternatingState, SweepStop, alternate, start
from eckart.complete.factors.hidden_share import _entries, _least, sampled
from eckart.complete.split import hidden_entries
from eckart.engines.protocol import RidgeRule
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of, parts_of
from eckart.rng import generator
from eckart.trace import StopReason

HEAVIER = 10.0
"""c, the weight of all cells over that of the observed entries. On 17 sources the best of 1, 3, 10
and 30, each with its best ridge, was seldom 5 % ahead."""
RIDGES, WEIGHTS = (1 / 16, 8.0), (1.25, 80.0)
"""The ends of the searches for t and c. Where rows have five entries and nothing is better than
popularity, c goes to its end."""
ENOUGH, ROUNDS, FEWEST = 2000, 3, 200
"""Hidden entries from which one round is enough, the most rounds, and the entries below which
nothing is tried: places of twenty tell nothing."""
SHARE, SWEEPS, TOL = 0.1, 12, 1e-3
"""Share that is hidden; sweeps and relative decrease of a fit that is only compared. After six
sweeps small ridges are still behind."""
SAMPLE, ROWS, ASKED = 300_000, 20_000, 4000
"""Entries and rows from which rows are drawn, and rows whose lists are looked at."""
BLOCK = 2**21
"""Scores that are held at a time."""
LEANS = (0.0, 0.25, 1.0, 4.0, 4096.0)
"""Spreads of the scores that a spread of popularity adds: the last is popularity alone, codes
decide between columns that are equally common."""
LOOKED_AT = 256
"""Rows by whose scores their spread is measured."""


def unobserved_weight(x: Observed, alpha: float, heavier: float = HEAVIER) -> float:
    """a0; 0.1 where the entries have no weight."""
    return heavier * alpha * facts_of(x).total / (float(x.shape[0]) * x.n_columns) or 0.1


def unit(x: Observed, rule: RidgeRule, unobserved: float) -> float:
    """The ridge at t = 1."""
    n, m = x.shape
    known = max(x.nnz, 1)
    p, q = known / n, known / m
    size = rule.alpha * float(np.sqrt(facts_of(x).square / known))
    return (
        size
        * (np.sqrt(p) + np.sqrt(q))
        / ((p + unobserved * m) * (q + unobserved * n)) ** (rule.power / 2)
        or 1.0
    )


class ForLists(NamedTuple):
    """What was chosen: the ridge, the unobserved weight, what popularity adds to a score, and why;
    a note where popularity decides."""

    l2: float
    unobserved: float
    popularity: float
    reason: str
    note: str = ""


ALONE = "popularity decides the lists: on hidden entries codes were no better by a standard error"


def popularity(x: Observed) -> np.ndarray:
    """log(1 + number of rows) of every column: differences between rare columns count as much as
    those between common ones."""
    return np.log1p(x.column_counts().astype(np.float64))


def choose(
    x: Observed, rule: RidgeRule, unobserved: float | None, rank: int, cg_steps: int, engine: Any
) -> ForLists:
    """The choice for these entries; ``unobserved``: a0 where it was given."""
    whole = x
    most = min(SAMPLE, x.nnz * ROWS // x.shape[0])
    if parts_of(x) is not None or x.nnz > most:
        x, _ = sampled(x, None, most)
    number = int(np.clip(np.ceil(ENOUGH / (SHARE * max(x.nnz, 1))), 1, ROUNDS))
    rounds = (
        [
            _ListRound(*found, rule, rank, cg_steps, engine)
            for seed in range(number)
            if (found := hide(x, seed))
        ]
        if x.nnz >= FEWEST
        else []
    )
    alone = False
    t, c, lean, why = 1.0, HEAVIER, 0.0, "what chance gives: there are too few entries to hide some"

    def weight(x: Observed, c: float) -> float:
        return unobserved_weight(x, rule.alpha, c) if unobserved is None else unobserved

    def loss(t: float, c: float) -> float:
        return -float(np.mean(np.concatenate([r.places(t, weight(r.train, c)) for r in rounds])))

    if rounds:
        t, ridges = search(lambda t: loss(t, c), t, RIDGES)
        tried_words = f"{ridges} ridges"
        if unobserved is None:
            c, weights = search(lambda c: loss(t, c), c, WEIGHTS)
            tried_words += (
                f" and {weights} weights of what was not observed ({c:.3g} times the observed)"
            )
        lean, alone = _lean([r.leaning(t, weight(r.train, c)) for r in rounds])
        if lean:
            tried_words += f"; popularity adds {lean:.3g} log(1 + rows)"
        fewer = ", of a sample of rows" if x.nnz < whole.nnz else ""
        why = (
            f"{t:.3g} times what chance gives, the best places of "
            f"{sum(len(r.rows) for r in rounds):,} hidden entries under {tried_words}{fewer}"
        )
    a0 = weight(whole, c)
    return ForLists(float(t * unit(whole, rule, a0)), a0, lean, why, ALONE if alone else "")


def _lean(found: list[tuple[float, np.ndarray]]) -> tuple[float, bool]:
    """What popularity adds, and whether it decides alone: the share with the best places, where these are better than without it,
    and than those of popularity alone, by a standard error; ``found``: of each round the scores'
    spread over that of popularity, and places by share."""
    places = np.concatenate([each for _, each in found], axis=1)

    def better(one: int, other: int) -> bool:
        gain = places[one] - places[other]
        return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))

    best, alone = int(places.mean(axis=1).argmax()), len(LEANS) - 1
    best = best if better(best, 0) else 0
    best = best if better(best, alone) else alone
    return float(LEANS[best] * np.mean([unit for unit, _ in found])), best == alone


def hide(x: Observed, seed: int) -> tuple[Observed, Observed] | None:
    """What is left, and what is hidden; None where nothing can be."""
    hidden = hidden_entries(x, SHARE, seed)
    return (
        (_entries(x, ~hidden), _entries(x, hidden)) if hidden.any() and not hidden.all() else None
    )


def search(
    loss: Callable[[float], float], best: float, ends: tuple[float, float], little: float = 0.0
) -> tuple[float, int]:
    """Halve or double while the loss falls (by more than this share of its size); the least of the
    parabola through the last three, and how many were tried.

    >>> search(lambda t: abs(np.log2(t) - 3.0), 1.0, (0.25, 100.0))
    (8.0, 6)
    """
    tried: dict[float, float] = {}

    def at(t: float) -> float:
        if t not in tried:
            tried[t] = loss(t)
        return tried[t]

    for step in (0.5, 2.0):
        while ends[0] <= best * step <= ends[1] and at(best * step) < at(best) - little * abs(
            at(best)
        ):
            best *= step
    near = [tried.get(best * step) for step in (0.5, 1.0, 2.0)]
    return best if None in near else best * 2.0 ** _least(*near), len(tried)  # type: ignore[arg-type]


def places(scores: np.ndarray, seen: Any, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """1 / log2(1 + rank) of the entries at (rows, columns) among the columns that a row has not in
    the sparse ``seen``; equal scores share their ranks."""
    own = scores[rows, columns]
    scores[np.repeat(np.arange(len(scores)), np.diff(seen.indptr)), seen.indices] = -np.inf
    rank = [
        (scores[i] > s).sum() + 0.5 * ((scores[i] == s).sum() + 1)
        for i, s in zip(rows, own, strict=True)
    ]
    return 1.0 / np.log2(1.0 + np.array(rank))


class _ListRound:
    """One hidden share, and the entries that are left, placed."""

    def __init__(
        self,
        train: Observed,
        hidden: Observed,
        rule: RidgeRule,
        rank: int,
        cg_steps: int,
        engine: Any,
    ):
        self.train, self.engine, self.rule, self.rank, self.cg_steps = (
            train,
            engine,
            rule,
            min(rank, *train.shape),
            cg_steps,
        )
        rows = np.repeat(np.arange(hidden.shape[0]), hidden.row_counts())
        asked = np.unique(rows)
        if len(asked) > ASKED:
            asked = np.sort(generator(0).choice(asked, ASKED, replace=False))
        kept = np.isin(rows, asked)
        self.rows, self.columns, self.asked = rows[kept], hidden.indices[kept], asked
        self.placed = engine.put(train)
        self.first_point: Any = None

    def places(self, t: float, unobserved: float) -> np.ndarray:
        """1 / log2(1 + rank) of every hidden entry under this ridge and this weight."""
        return self._places(*self._fitted(t, unobserved), None)

    def leaning(self, t: float, unobserved: float) -> tuple[float, np.ndarray]:
        """The spread of scores over that of popularity, and places (shares x entries) where
        popularity adds a share of it."""
        left, right = self._fitted(t, unobserved)
        known = popularity(self.train)
        some = left[self.asked[:LOOKED_AT]] @ right.T
        unit = float(some.std()) / (float(known.std()) or 1.0)
        return unit, np.array(
            [self._places(left, right, share * unit * known if share else None) for share in LEANS]
        )

    def _fitted(self, t: float, unobserved: float) -> tuple[np.ndarray, np.ndarray]:
        """Factors under this ridge and this weight."""
        rule = self.rule._replace(
            l2=t * unit(self.train, self.rule, unobserved),
            shift=unobserved if self.rule.shift else 0.0,
        )
        problem = RidgeProblem.of(self.engine, self.placed, rule, unobserved, self.cg_steps)
        if self.first_point is None:
            self.first_point = start(problem, self.rank, 0.0, self.engine, generator(0))
        point, right = self.first_point
        state, trace, _ = alternate(
            problem,
            AlternatingState(point._replace(right=self.engine.take(right))),
            SweepStop("decrease", TOL, SWEEPS),
            self.engine,
        )
        if trace.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        left, right = (
            np.asarray(self.engine.get(a)) for a in (state.point.left, state.point.right)
        )
        return left, right

    def _places(self, left: np.ndarray, right: np.ndarray, more: np.ndarray | None) -> np.ndarray:
        found, size, seen = [], max(1, BLOCK // self.train.n_columns), self.train.to_scipy()
        for first in range(0, len(self.asked), size):
            rows = self.asked[first : first + size]
            part = slice(*np.searchsorted(self.rows, [rows[0], rows[-1] + 1]))
            scores = left[rows] @ right.T
            found.append(
                places(
                    scores if more is None else scores + more.astype(scores.dtype),
                    seen[rows],
                    np.searchsorted(rows, self.rows[part]),
                    self.columns[part],
                )
            )
        return np.concatenate(found)
