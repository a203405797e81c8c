"""The loop of a table: from scores to a Gaussian, and back to expected scores. See
``factor_em``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from eckart.complete.tables.columns import Part
from eckart.complete.tables.factor_em import (
    Gaps,
    GaussianFactors,
    codes_of,
    covariances,
    em_move,
    factor_gradient,
    m_step,
    penalty,
)
from eckart.engines.protocol import FilledMoments, Tall
from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, like, resumed_trace
from eckart.matrix import Observed
from eckart.terms import Huber
from eckart.trace import StopReason, Trace, Watcher, silent


@dataclass(frozen=True)
class Scores:
    """Scores of a table, NaN for gaps, and where they are seen; how often each row counts (None:
    once)."""

    parts: tuple[Part, ...]
    y: np.ndarray
    weights: np.ndarray | None = None

    @cached_property
    def gaps(self) -> Gaps:
        return Gaps.of_mask(~np.isnan(self.y))

    @property
    def rows(self) -> int:
        return len(self.y)

    @cached_property
    def total(self) -> float:
        """The rows, each as often as it counts."""
        return float(len(self.y)) if self.weights is None else float(self.weights.sum())

    def some(self, rows: np.ndarray) -> Scores:
        """Some rows."""
        return Scores(
            self.parts, self.y[rows], None if self.weights is None else self.weights[rows]
        )

    @property
    def robust(self) -> list[Part]:
        return [p for p in self.parts if isinstance(p.loss, Huber)]

    def targets(self, t: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Scores (0 where not seen), those of robust columns drawn to within their width of
        expected ones; and what their loss costs beyond the parabola."""
        y, wild = np.where(self.gaps.seen > 0, self.y, 0.0), np.zeros(self.y.shape[1])
        for p in self.robust:
            known = np.flatnonzero(self.gaps.seen[:, p.first])
            a, at = self.y[known, p.first], np.zeros(len(known)) if t is None else t[known, p.first]
            y[known, p.first] = at - p.loss.gradient(a, at)
            wild[p.first] = float((p.loss.value(a, at) - 0.5 * (y[known, p.first] - at) ** 2).sum())
        return y, wild


@dataclass(frozen=True)
class PlacedTable:
    """Scores on an engine: all that the loop asks of them."""

    engine: Any
    x: Any
    rows: float
    weights: np.ndarray | None
    seen: float  # scores, those of each row as often as it counts
    width: np.ndarray | None  # of robust columns, infinite for others

    @classmethod
    def of(cls, table: Scores, engine: Any) -> PlacedTable:
        width = None
        if table.robust:
            width = np.full(table.y.shape[1], np.inf)
            for p in table.robust:
                assert isinstance(p.loss, Huber)
                width[p.first] = p.loss.d
        x = Observed.from_nan(table.y)
        seen = float(x.nnz) if table.weights is None else float(table.weights @ x.row_counts())
        return cls(engine, engine.put(x), table.total, table.weights, seen, width)

    def moments(self, g: GaussianFactors, codes: Tall | None = None) -> tuple[FilledMoments, Tall]:
        """The E step; robust columns around what the codes of the step before speak for."""
        weighted = {} if self.weights is None else {"weights": self.weights}
        return self.engine.filled_moments(
            self.x, g.w, g.mu, g.psi, **self._around(codes), **weighted
        )

    def left_out(
        self, g: GaussianFactors, parts: np.ndarray, codes: Tall | None = None
    ) -> np.ndarray:
        """Scores, those of the parts as the other cells of their rows predict them."""
        return self.engine.get(
            self.engine.left_out_rows(self.x, g.w, g.mu, g.psi, parts, **self._around(codes))
        )

    def _around(self, codes: Tall | None) -> dict[str, Any]:
        return {} if self.width is None else {"width": self.width, "codes": codes}


class Climb(NamedTuple):
    """Where the loop ended, and its history; moments of complete rows there and codes of rows (on
    the engine)."""

    g: GaussianFactors
    trace: Trace
    moments: FilledMoments
    codes: Tall


QUANTITY = "objective per seen score"
STEADY, PATIENCE = 2e-3, 10
"""A step that gains little ends a fit where the relative gradient is a tenth of what the
certificate allows; else up to so many more are taken: steps are short near a saddle, too. Two
tables of a few hundred cells held 0.04 nats a seen score above a better point; of 449 with them
none does now, with 1.2 times the steps in the mean."""
AT_REST = 2.5e-2
"""Nor does a fit end while the next step would move a mean or a noise by more than half of what the
certificate allows: one noise among hundreds of scores gains little for each of them, and 119 nats
in all (families of Galton's children, six steps on)."""
DEPTH = 2
"""Earlier steps that are looked back on beside the last: more gained nothing on any table tried."""


def descend(
    table: PlacedTable,
    g: GaussianFactors,
    l2: float,
    tol: float,
    max_iter: int,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Climb:
    """Steps until F falls by at most ``tol`` for each seen score and its gradient is small; F
    before each step, divided by their number, goes to the trace.

    A step leads from moments x of complete rows to others, y(x). The next begins at a combination
    of the last ones, the one whose y - x would be least if y - x were linear (Anderson 1965); where
    F rises it begins at y instead, as EM does.
    """
    trace, codes, count = Trace(QUANTITY, reason=StopReason.MAX_ITER), None, max(table.seen, 1.0)
    past: list[tuple[np.ndarray, np.ndarray]] = []

    def stepped(
        begin: FilledMoments, g: GaussianFactors, codes: Tall | None
    ) -> tuple[GaussianFactors, FilledMoments, Tall, float]:
        g = m_step(g, begin, table.rows, l2, table.engine)
        return g, *valued(g, codes)

    def valued(g: GaussianFactors, codes: Tall | None) -> tuple[FilledMoments, Tall, float]:
        m, codes = table.moments(g, codes)
        return m, codes, (float((m.wild / g.psi).sum()) - m.loglik + penalty(g, l2)) / count

    if (kept := memory.last()) is not None:
        g, trace, past = (
            like(g, kept["g"]),
            resumed_trace(QUANTITY, kept["trace"]),
            [tuple(pair) for pair in kept["past"]],
        )
        m, codes, trace.reason = (
            FilledMoments(*kept["m"]),
            table.engine.take(kept["codes"]),
            StopReason.MAX_ITER,
        )
    else:
        m, codes, value = valued(g, codes)
        trace.add(value)
    try:
        while True:
            memory.offer(
                {
                    "g": g,
                    "m": m,
                    "codes": partial(table.engine.get, codes),
                    "past": past,
                    "trace": partial(kept_trace, trace),
                }
            )
            watch("steps", len(trace), max_iter)
            if slow := _slow_steps(trace.values, tol):
                at = g, m, table.rows, l2
                if em_move(*at) <= AT_REST and (slow > PATIENCE or factor_gradient(*at) <= STEADY):
                    trace.reason = StopReason.CONVERGED
                    break
                past = []  # a combination of steps may aim at a saddle, which EM leaves
            if len(trace) > max_iter:
                break
            begin = _ahead(m, past, table.rows)
            new = stepped(begin, g, codes)
            if begin is not m and not new[3] <= trace.values[-1]:
                begin, past = m, []
                new = stepped(m, g, codes)
            past = [*past[-DEPTH:], (_vector(begin), _vector(new[1]))]
            g, m, codes, value = new
            trace.add(value)
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return Climb(g, trace, m, codes)


def _slow_steps(values: list[float], tol: float) -> int:
    """How many of the last steps in a row lowered F by at most ``tol``."""
    fast = np.flatnonzero(-np.diff(values) > tol)
    return len(values) - 2 - int(fast[-1]) if len(fast) else len(values) - 1


def _vector(m: FilledMoments) -> np.ndarray:
    return np.concatenate([m.first, m.second.ravel()])


def _ahead(
    m: FilledMoments, past: list[tuple[np.ndarray, np.ndarray]], rows: float
) -> FilledMoments:
    """Moments from which the next step begins; those of the last step where the combination is not
    that of any rows."""
    if len(past) < 2:
        return m
    ends = np.array([y for _, y in past])
    moves = ends - np.array([x for x, _ in past])
    turn, n = np.diff(moves, axis=0).T, len(m.first)
    there = ends[-1] - np.diff(ends, axis=0).T @ np.linalg.lstsq(turn, moves[-1], rcond=1e-8)[0]
    try:
        np.linalg.cholesky(there[n:].reshape(n, n) - np.outer(there[:n], there[:n]) / rows)
    except np.linalg.LinAlgError:
        return m
    return m._replace(first=there[:n], second=there[n:].reshape(n, n))


class Expected(NamedTuple):
    """Codes of rows, their expected scores, and the covariance of the codes of each pattern of
    gaps."""

    codes: np.ndarray
    scores: np.ndarray
    covariance: np.ndarray


def expected(table: Scores, g: GaussianFactors, steps: int = 50) -> Expected:
    """What a Gaussian says of rows; robust columns settle by a few steps."""
    cov = covariances(g, table.gaps.patterns)
    z, t = np.zeros((table.rows, g.k)), None
    for _ in range(steps if table.robust else 1):
        new = codes_of(g, table.targets(t)[0], table.gaps, cov)
        change, z = float(np.abs(new - z).max(initial=0.0)), new
        t = g.mu + z @ g.w.T
        if change <= 1e-6:  # in standard deviations of a code
            break
    assert t is not None
    return Expected(z, t, cov)


def settled(
    table: Scores, g: GaussianFactors, engine: Any, placed: PlacedTable | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Codes of rows and their expected scores, by the engine where rows are many (and where they
    may be placed already)."""
    if table.robust or table.rows < MANY:
        found = expected(table, g)
        return found.codes, found.scores
    with engine.at_work():
        codes = engine.get(
            (PlacedTable.of(table, engine) if placed is None else placed).moments(g)[1]
        )
    return codes, g.mu + codes @ g.w.T


def filled(y: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Scores of rows, expected ones where there are gaps."""
    return np.where(np.isnan(y), scores, y)


MANY = 300
"""Rows from which on the kernels of a fit are worth being loaded: fewer take NumPy some
milliseconds."""
