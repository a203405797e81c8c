"""Conjugate steps on the matrices of fixed rank:  minimise F(B) = 1/2 ||Pi(A - B)||_F^2 + tau
||B||_*,  tau >= 0.

At B = U diag(s) V^T with tangent space T (see ``tangent``) and R = Pi(A - B), the negative gradient
on T is g = P_T R - tau U V^T. A step:

    direction   g scaled by the share of each row and column that was observed, plus tau / s where
    the nuclear norm curves, conjugate to the last one
                (Polak-Ribiere, carried over to T by projection)
    length      the minimiser of F along the line, the nuclear norm taken to second order: tr M +
    sum_a (|x_a|^2 + |y_a|^2) / (2 s_a)
    point       [B + eta d]_k by a 2k x 2k SVD; eta is cut back while F does not fall, so F falls in
    every step

Where that has not converged after PATIENCE steps, Newton's direction is taken instead: conjugate
gradients on the Hessian of F over the matrices of this rank,

    H(M, X, Y) = Pi_T^T Pi_T + ( tau (M - M^T)_ab / (s_a + s_b),  (tau X - W Y)_a / s_a,  (tau Y -
    W^T X)_a / s_a ),     W = (I - U U^T) R (I - V V^T).

With tau > 0 a singular value that the next proximal step would take below zero is taken out by that
step, so the rank falls by itself. One step costs one residual, one sampled product with 2k columns
and two sparse products with k columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.optim.tangent import Coordinates, Sampling, Tangent, least_squares, placed, shares
from eckart.trace import StopReason, Trace, Watcher, silent

CUTS = 8
"""Lengths of a step that are tried, each half of the last: where 1/128 of it does not lower F, the
direction leads nowhere."""
PATIENCE, INNER = 25, 60
"""Conjugate steps before Newton's, and steps of conjugate gradients in one of Newton's at the
most."""


class Point(NamedTuple):
    """B = U diag(s) V^T with its residual at the observed entries and F(B)."""

    u: np.ndarray
    s: np.ndarray
    v: np.ndarray
    rest: np.ndarray
    misfit: float
    value: float


class Last(NamedTuple):
    """The conjugate step before: U and V where it began, -grad F and the direction taken there, and
    the slope along the scaled gradient."""

    u: np.ndarray
    v: np.ndarray
    gradient: Coordinates
    direction: Coordinates
    slope: float

    @classmethod
    def of(cls, kept: Any) -> Last | None:
        """From a checkpoint."""
        if kept is None:
            return None
        u, v, gradient, direction, slope = kept
        return cls(u, v, Coordinates(*gradient), Coordinates(*direction), slope)


class TangentDescent:
    """The problem (entries ``b`` on a pattern) and its steps; ``best`` is the last point reached,
    ``trace`` the values of F."""

    def __init__(
        self, pattern: Sampling, b: np.ndarray, trace: Trace | None = None, watch: Watcher = silent
    ):
        self.pattern, self.b, self.watch = pattern, b, watch
        self.trace = Trace("objective") if trace is None else trace
        self.share = max(pattern.nnz, 1) / max(pattern.shape[0] * pattern.shape[1], 1)
        self.floor = 20 * float(np.finfo(b.dtype).eps)
        self.best: Point | None = None

    def point(self, u: np.ndarray, s: np.ndarray, v: np.ndarray, tau: float = 0.0) -> Point:
        """The triples with their residual and value."""
        if isinstance(u, np.ndarray):  # a start, or what a checkpoint kept
            u, v = placed(self.pattern.engine, u), placed(self.pattern.engine, v)
        s = np.asarray(s, np.float64)
        rest, square = self.pattern.residual(self.b, u * s.astype(u.dtype), v)
        return Point(u, s, v, rest, float(np.sqrt(square)), 0.5 * square + tau * float(s.sum()))

    def gradient(self, at: Point, tau: float) -> tuple[Tangent, Coordinates]:
        """T and -grad F on it."""
        t = Tangent(self.pattern, at.u, at.v)
        g = t.adjoint(at.rest)
        return t, Coordinates(g.m - tau * np.eye(len(at.s), dtype=g.m.dtype), g.x, g.y)

    def reached(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """U, s, V of the last point reached, for a checkpoint."""
        assert self.best is not None
        return self.best.u, self.best.s, self.best.v

    def run(
        self,
        at: Point,
        tau: float,
        tol: float,
        fitted: float,
        max_iter: int,
        memory: Memory = NOTHING,
    ) -> tuple[Point, StopReason]:
        """Steps until ||g|| <= ``tol`` ||R|| (tau = 0) or ``tol`` tau, or ||R|| <= ``fitted``. A
        resumed run is given the point it had ``reached``."""
        begin, max_iter, kept = memory.last() or (0, max_iter, None)
        last = Last.of(kept)
        fitted = max(fitted, self.floor)
        for count in range(begin, max_iter):
            self.best = at
            memory.offer((count, max_iter, last))
            self.trace.add(at.value)
            self.watch("steps", len(self.trace), None)
            if at.misfit <= fitted or not len(at.s):
                return at, StopReason.CONVERGED
            t, g = self.gradient(at, tau)
            if np.sqrt(g.dot(g)) <= tol * (tau or at.misfit):
                return at, StopReason.CONVERGED
            if tau and (at.s + (np.diag(g.m)) / self.share < 0).any():
                lower = self.proximal(t, g, at, tau)
                if lower is not None:
                    at, last = lower, None
                    continue
            moved = self.newton(t, g, at, tau) if count >= PATIENCE else None
            if moved is None:
                moved, last = self.step(t, g, at, tau, last)
            if moved is None:
                return at, StopReason.STALLED
            at = moved
        return at, StopReason.MAX_ITER

    def step(
        self, t: Tangent, g: Coordinates, at: Point, tau: float, last: Last | None
    ) -> tuple[Point | None, Last | None]:
        """One conjugate step, or a steepest one where that does not help."""
        curve = tau / np.maximum(at.s, 1e-12 * at.s[0])
        scaled = shares(t, Coordinates(np.zeros(1), curve, curve))(g)
        slope = g.dot(scaled)
        direction = scaled
        if last is not None:
            there = Tangent(self.pattern, last.u, last.v)
            carried = t.project(*there.factors(last.gradient))
            beta = max(0.0, (slope - carried.dot(scaled)) / last.slope)
            direction = scaled.plus(beta, t.project(*there.factors(last.direction)))
            if g.dot(direction) <= 0.1 * slope:
                direction = scaled
        moved = self._along(t, g, direction, at, tau, curve)
        if moved is None and direction is not scaled:
            direction = scaled
            moved = self._along(t, g, direction, at, tau, curve)
        return moved, Last(at.u, at.v, g, direction, slope)

    def newton(self, t: Tangent, g: Coordinates, at: Point, tau: float) -> Point | None:
        """A truncated Newton step; None where its direction does not descend."""
        s = np.maximum(at.s, 1e-12 * at.s[0])
        curve, core = tau / s, tau / (s[:, None] + s[None, :])
        by_column = self.pattern.by_columns(at.rest)

        def bend(d: Coordinates) -> Coordinates:
            across = self.pattern.times(at.rest, d.y)
            down = self.pattern.times_t(by_column, d.x)
            return t.inside(Coordinates(core * (d.m - d.m.T), -across / s, -down / s))

        size = np.sqrt(g.dot(g))
        accuracy = min(0.1, float(size / max(at.misfit, 1e-300)))
        ridge = Coordinates(np.zeros(1), curve, curve)
        d, steps, _ = least_squares(
            t, g, ridge, t.zero(), tol=accuracy, drop=0.0, max_iter=INNER, extra=bend
        )
        return self._cut(t, d, 1.0, at, tau) if steps and g.dot(d) > 0 else None

    def _along(
        self, t: Tangent, g: Coordinates, d: Coordinates, at: Point, tau: float, curve: np.ndarray
    ) -> Point | None:
        image = t.forward(d)
        bend = float(np.vdot(image, image))
        if tau:
            bend += float((curve * (np.square(d.x).sum(axis=0) + np.square(d.y).sum(axis=0))).sum())
        return self._cut(t, d, g.dot(d) / max(bend, 1e-300), at, tau)

    def _cut(self, t: Tangent, d: Coordinates, eta: float, at: Point, tau: float) -> Point | None:
        """[B + eta d]_k, eta halved until F falls; None where it never does."""
        for _ in range(CUTS):
            trial = self.point(
                *t.retract(at.s, Coordinates(*(part.dtype.type(eta) * part for part in d))), tau
            )
            if trial.value < at.value:
                return trial
            eta /= 2
        return None

    def proximal(self, t: Tangent, g: Coordinates, at: Point, tau: float) -> Point | None:
        """shrink_{eta tau}(B + eta P_T R): the step that sets singular values to zero; None where F
        does not fall."""
        eta = 1 / self.share
        for _ in range(CUTS):
            eye = np.eye(len(at.s), dtype=g.m.dtype)
            moved = Coordinates(
                *(part.dtype.type(eta) * part for part in (g.m + tau * eye, g.x, g.y))
            )
            u, s, v = t.retract(at.s, moved)
            keep = s > eta * tau
            trial = self.point(u[:, keep], s[keep] - eta * tau, v[:, keep], tau)
            if trial.value < at.value:
                return trial
            eta /= 2
        return None


def merged(
    a: tuple[Any, Any, Any], b: tuple[Any, Any, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triples of two matrices with orthogonal row and column spaces, by falling value."""
    s = np.concatenate([a[1], b[1]])
    order = np.argsort(-s, kind="stable")
    return np.hstack([a[0], b[0]])[:, order], s[order], np.hstack([a[2], b[2]])[:, order]
