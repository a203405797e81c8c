"""The loop of a table: from scores to a Gaussian, and back to expected scores, those of seen cells without themselves too. See ``factor_em``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from eckart.complete.tables.columns import Part
from eckart.complete.tables.factor_em import Gaps, Gaussian, codes_of, covariances, m_step, penalty
from eckart.complete.tables.links import left_out
from eckart.engines.protocol import FilledMoments, Tall
from eckart.io.models.levels import NOTHING, Memory, kept_trace, like, resumed_trace
from eckart.matrix import Observed
from eckart.terms import Huber
from eckart.trace import StopReason, Trace, Watcher, silent


@dataclass(frozen=True)
class Scores:
    """Scores of a table, NaN for gaps, and where they are seen."""

    parts: tuple[Part, ...]
    y: np.ndarray

    @cached_property
    def gaps(self) -> Gaps:
        return Gaps.of_mask(~np.isnan(self.y))

    @property
    def rows(self) -> int:
        return len(self.y)

    @property
    def robust(self) -> list[Part]:
        return [p for p in self.parts if isinstance(p.loss, Huber)]

    def targets(self, t: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Scores (0 where not seen), those of robust columns drawn to within their width of expected ones; and what their loss costs beyond the parabola."""
        y, wild = np.where(self.gaps.seen > 0, self.y, 0.0), np.zeros(self.y.shape[1])
        for p in self.robust:
            known = np.flatnonzero(self.gaps.seen[:, p.first])
            a, at = self.y[known, p.first], np.zeros(len(known)) if t is None else t[known, p.first]
            y[known, p.first] = at - p.loss.gradient(a, at)
            wild[p.first] = float((p.loss.value(a, at) - 0.5 * (y[known, p.first] - at) ** 2).sum())
        return y, wild


@dataclass(frozen=True)
class Placed:
    """Scores on an engine: all that the loop asks of them."""

    engine: Any
    x: Any
    rows: int
    width: np.ndarray | None  # of robust columns, infinite for others

    @classmethod
    def of(cls, table: Scores, engine: Any) -> Placed:
        width = None
        if table.robust:
            width = np.full(table.y.shape[1], np.inf)
            for p in table.robust:
                assert isinstance(p.loss, Huber)
                width[p.first] = p.loss.d
        return cls(engine, engine.put(Observed.from_nan(table.y)), table.rows, width)

    def moments(self, g: Gaussian, codes: Tall | None = None) -> tuple[FilledMoments, Tall]:
        """The E step; robust columns around what the codes of the step before speak for."""
        more = {} if self.width is None else {"width": self.width, "codes": codes}
        return self.engine.filled_moments(self.x, g.w, g.mu, g.psi, **more)


class Climb(NamedTuple):
    """Where the loop ended, and its history; moments of complete rows there and codes of rows (on the engine), unless it was interrupted between them."""

    g: Gaussian
    trace: Trace
    moments: FilledMoments | None
    codes: Tall | None


QUANTITY = "objective per seen score"


def descend(
    table: Placed, g: Gaussian, l2: float, tol: float, max_iter: int, watch: Watcher = silent, memory: Memory = NOTHING
) -> Climb:
    """Steps until F falls by at most ``tol`` for each seen score; F before each step, divided by their number, goes to the trace."""
    trace, codes, m, count = Trace(QUANTITY, reason=StopReason.MAX_ITER), None, None, max(float(table.x.nnz), 1.0)
    if (kept := memory.last()) is not None:
        g, trace = like(g, kept["g"]), resumed_trace(QUANTITY, kept["trace"])
        trace.reason = StopReason.MAX_ITER
        codes = None if kept["codes"] is None else table.engine.take(kept["codes"])
    try:
        while True:
            told = None if codes is None else partial(table.engine.get, codes)
            memory.offer({"g": g, "codes": told, "trace": partial(kept_trace, trace)})
            m, codes = table.moments(g, codes)
            trace.add((float((m.wild / g.psi).sum()) - m.loglik + penalty(g, l2)) / count)
            watch("steps", len(trace), max_iter)
            if len(trace) > 1 and trace.values[-2] - trace.values[-1] <= tol:
                trace.reason = StopReason.CONVERGED
                break
            if len(trace) > max_iter:
                break
            g, m = m_step(g, m, table.rows, l2, table.engine), None
    except KeyboardInterrupt:
        if not len(trace):
            raise
        trace.reason = StopReason.INTERRUPTED
    return Climb(g, trace, m, codes)


class Expected(NamedTuple):
    """Codes of rows, their expected scores, and the covariance of the codes of each pattern of gaps."""

    codes: np.ndarray
    scores: np.ndarray
    covariance: np.ndarray


def expected(table: Scores, g: Gaussian, steps: int = 50) -> Expected:
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


def settled(table: Scores, g: Gaussian, engine: Any) -> tuple[np.ndarray, np.ndarray]:
    """Codes of rows and their expected scores, by the engine where rows are many."""
    if table.robust or table.rows < MANY:
        found = expected(table, g)
        return found.codes, found.scores
    with engine.at_work():
        codes = engine.get(Placed.of(table, engine).moments(g)[1])
    return codes, g.mu + codes @ g.w.T


MANY = 300
"""Rows from which on the kernels of a fit are worth being loaded: fewer take NumPy some milliseconds."""


def without_itself(table: Scores, g: Gaussian, found: Expected, part: Part, rows: np.ndarray) -> np.ndarray:
    """Scores of the cells of a part in rows that see it, as expected from the other cells of their rows."""
    w, s = g.w[part.at], found.covariance
    spread = np.matmul(w, (s.reshape(-1, g.k) @ w.T).reshape(len(s), g.k, len(w)))[table.gaps.of[rows]]
    return left_out(table.y[rows, part.at], found.scores[rows, part.at], spread, g.psi[part.at])
