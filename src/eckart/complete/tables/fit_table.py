"""The loop of a table: from scores to a Gaussian, and back to expected scores, those of seen cells without themselves too. See ``factor_em``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eckart.complete.tables.columns import Part
from eckart.complete.tables.factor_em import Gaps, Gaussian, Moments, codes_of, covariances, m_step, moments, penalty
from eckart.complete.tables.links import left_out
from eckart.terms import Huber
from eckart.trace import StopReason, Trace, Watcher, silent


@dataclass(frozen=True)
class Scores:
    """Scores of a table, NaN for gaps, and where they are seen."""

    parts: tuple[Part, ...]
    y: np.ndarray
    gaps: Gaps

    @classmethod
    def of(cls, parts: tuple[Part, ...], y: np.ndarray) -> Scores:
        return cls(parts, y, Gaps.of_mask(~np.isnan(y)))

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


class Climb(NamedTuple):
    """Where the loop ended: the Gaussian, the moments of its last E step, and the history."""

    g: Gaussian
    last: Moments
    trace: Trace


def descend(table: Scores, g: Gaussian, l2: float, tol: float, max_iter: int, watch: Watcher = silent) -> Climb:
    """Steps until F falls by at most ``tol`` for each seen score; F before each step, divided by their number, goes to the trace."""
    trace, count = Trace("objective per seen score", reason=StopReason.MAX_ITER), max(float(table.gaps.seen.sum()), 1.0)
    y, wild = table.targets(None)
    try:
        while True:
            m = moments(g, y, table.gaps)
            trace.add((float((wild / g.psi).sum()) - m.loglik + penalty(g, l2)) / count)
            watch("steps", len(trace), max_iter)
            if len(trace) > 1 and trace.values[-2] - trace.values[-1] <= tol:
                trace.reason = StopReason.CONVERGED
                break
            if len(trace) > max_iter:
                break
            g = m_step(g, m, table.rows, l2, wild)
            if table.robust:
                y, wild = table.targets(g.mu + m.codes @ g.w.T)
    except KeyboardInterrupt:
        if not len(trace):
            raise
        trace.reason = StopReason.INTERRUPTED
    return Climb(g, m, trace)


class Expected(NamedTuple):
    """Codes of rows, their expected scores, and the covariance of the codes of each pattern of gaps."""

    codes: np.ndarray
    scores: np.ndarray
    covariance: np.ndarray


def expected(table: Scores, g: Gaussian, steps: int = 50) -> Expected:
    """What a Gaussian says of rows; robust columns settle by a few steps."""
    cov, _ = covariances(g, table.gaps.patterns)
    z, t = np.zeros((table.rows, g.k)), None
    for _ in range(steps if table.robust else 1):
        new, _ = codes_of(g, table.targets(t)[0], table.gaps, cov)
        change, z = float(np.abs(new - z).max(initial=0.0)), new
        t = g.mu + z @ g.w.T
        if change <= 1e-6:  # in standard deviations of a code
            break
    assert t is not None
    return Expected(z, t, cov)


def without_itself(table: Scores, g: Gaussian, found: Expected, part: Part, rows: np.ndarray) -> np.ndarray:
    """Scores of the cells of a part in rows that see it, as expected from the other cells of their rows."""
    w = g.w[part.at]
    spread = np.einsum("pk,ukl,ql->upq", w, found.covariance, w, optimize=True)[table.gaps.of[rows]]
    return left_out(table.y[rows, part.at], found.scores[rows, part.at], spread, g.psi[part.at])
