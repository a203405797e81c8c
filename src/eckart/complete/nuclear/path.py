"""Nuclear-norm completion of noisy data:  minimise F(B) = 1/2 ||Pi(A - B)||_F^2 + tau ||B||_*.

F is convex. With R = Pi(A - B), B = U diag(s) V^T is its minimiser if and only if

    U^T R = tau V^T,   R V = tau U,   ||(I - U U^T) R (I - V V^T)||_2 <= tau.

The first two say that B is stationary among the matrices of its rank; ``descend`` brings them about
with factors only. The third is then tested by a partial SVD of the sparse R: singular pairs above
tau are added to B (F falls along each of them) and the descent goes on at the larger rank, so the
method ends only at the global minimum. B = 0 for tau >= tau_max = ||Pi(A)||_2; from there tau is
lowered in steps, each starting from the last answer, to the one wanted.

``method="proximal"`` is Soft-Impute itself with momentum, B <- shrink_tau(B + Pi(A - B)), on sparse
+ low rank operators.

References: Mazumder, Hastie and Tibshirani, "Spectral regularization algorithms" (2010); Hastie,
Mazumder, Lee and Zadeh (softImpute-ALS, 2015); Hsieh and Olsen (active subspace, 2014).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.certify.nuclear import dual_value
from eckart.complete.nuclear.operators import (
    Operator,
    Products,
    Solution,
    low_rank_svd,
    partial_svd,
    shrink,
)
from eckart.complete.nuclear.riemannian import Point, TangentDescent, merged
from eckart.complete.nuclear.spectral_completer import entries_norm
from eckart.errors import invalid
from eckart.io.models.checkpoint import NOTHING, Memory, resumed_trace
from eckart.matrix import Observed
from eckart.optim.tangent import Sampling
from eckart.trace import StopReason, Watcher, silent

FACTOR = 4.0
"""tau falls by this factor between two inner steps of the path."""
LOOSE = 0.3
"""Tolerance at values of tau that are only passed, and of the first round at the last one: their
answers are starts for what follows."""
BATCH = 8
"""Singular pairs that are looked for at least: they come from one block of products."""
FINE, ROUNDINGS = 1e-7, 25
"""Tolerance of the norm in a duality gap: many singular values are tau at a minimum. The gap that
rounding leaves, a quarter of what a certificate allows."""
PASSING = (12, 3)
"""Most steps at a rank, and times the rank grows, at a value of tau that is only passed."""


class Step(NamedTuple):
    """One point of the path."""

    tau: float
    values: np.ndarray
    objective: float
    misfit: float


def solve(
    x: Observed,
    tau: float | np.ndarray,
    *,
    max_rank: int | None = None,
    method: str = "descent",
    tol: float = 1e-3,
    max_iter: int = 1000,
    start: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Solution:
    """The minimiser for ``tau``, or for the last of several values, which are solved one after
    another and kept in ``evidence["path"]``.

    ``tol`` bounds the share of tau by which the conditions above may be missed; the duality gap is
    then about that share of F.
    """
    taus = np.atleast_1d(np.asarray(tau, np.float64))
    if not (len(taus) and np.isfinite(taus).all() and (taus > 0).all()):
        raise invalid("tau", tau, "a number > 0, or several")
    if method not in ("descent", "proximal"):
        raise invalid("method", method, "'descent' or 'proximal'")
    n, m = x.shape
    most = min(n, m) if max_rank is None else min(max_rank, n, m)
    pattern = Sampling(x, engine)
    size = entries_norm(x) / np.sqrt(x.nnz) if x.nnz else 0.0
    size = size or 1.0
    kept = memory.last()
    trace = resumed_trace("objective", kept and kept["trace"])
    d = TangentDescent(pattern, pattern.values(size, x.dtype), trace, watch)
    with engine.at_work():
        begin = start or (np.zeros((n, 0), x.dtype), np.zeros(0), np.zeros((m, 0), x.dtype))
        run = _PathRun(d, most, rng, tol, max_iter)
        if kept:
            at = run.take(kept)
        else:
            at = d.point(begin[0], begin[1] / size, begin[2], float(taus[0]) / size)
            run.top = largest(pattern, d.b, rng=rng, tol=1e-4)
        move = run.proximal if method == "proximal" else run.lower
        try:
            for goal in taus[len(run.path) :] / size:
                at = move(at, float(goal), memory.inner(run.state))
                run.path.append(Step(float(goal), at.s, at.value, at.misfit))
        except KeyboardInterrupt:
            at = d.best or at
            trace.reason = StopReason.INTERRUPTED
    trace.values = [value * size**2 for value in trace.values]
    path = [
        Step(p.tau * size, p.values * size, p.objective * size**2, p.misfit * size)
        for p in run.path
    ]
    evidence = {"tau_max": run.top * size, "path": path, "limited": run.limited}
    return Solution(engine.get(at.u), at.s * size, engine.get(at.v), trace, evidence)


def largest(pattern: Sampling, data: np.ndarray, *, rng: np.random.Generator, tol: float) -> float:
    """tau_max = ||Pi(A)||_2."""
    found = partial_svd(Operator(pattern, data), 1, rng=rng, tol=tol)
    return float(found.values[0]) if len(found.values) else 0.0


class _PathRun:
    """The way down: ``top`` is tau_max, ``path`` what was solved, ``hint`` right vectors found
    last, ``limited`` whether the rank was too small."""

    def __init__(
        self, d: TangentDescent, most: int, rng: np.random.Generator, tol: float, max_iter: int
    ):
        self.d, self.most, self.rng, self.tol, self.max_iter = d, most, rng, tol, max_iter
        self.top, self.path, self.limited = 0.0, list[Step](), False
        self.hint: np.ndarray | None = None

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        d = self.d
        own = {"top": self.top, "path": self.path, "hint": self.hint, "limited": self.limited}
        return {"trace": (d.trace.values, d.trace.seconds), "point": d.reached(), **own}

    def take(self, kept: dict[str, Any]) -> Point:
        """From a checkpoint; returns the point, whose value is measured anew for each tau."""
        self.top, self.hint, self.limited = kept["top"], kept["hint"], kept["limited"]
        self.path = [Step(*row) for row in kept["path"]]
        return self.d.point(*kept["point"])

    def lower(self, at: Point, goal: float, memory: Memory) -> Point:
        """From the answer at hand to that for ``goal``: loosely at values between, then to the
        tolerance."""
        tau = self.top if not len(at.s) else goal
        stages = int(np.ceil(np.log(min(max(tau / goal, 1.0), 1e300)) / np.log(FACTOR)))
        ahead = memory.last() or (goal * FACTOR ** np.arange(max(stages, 1) - 1, -1, -1.0)).tolist()
        while ahead:
            tau = ahead[0]
            at = self.solve(
                at, tau, self.tol if tau <= goal * (1 + 1e-9) else LOOSE, memory.inner(ahead)
            )
            if self.d.trace.reason is StopReason.MAX_ITER:
                break
            ahead = ahead[1:]
        return at

    def solve(self, at: Point, tau: float, tol: float, memory: Memory) -> Point:
        """Descent at a fixed rank and new pairs in turn, until no pair is above tau."""
        d = self.d
        d.trace.reason = StopReason.CONVERGED
        at = d.point(at.u, at.s, at.v, tau)
        # a value between is left after a few steps: only the last has to be solved
        passing = tol >= LOOSE
        rounds, accuracy = memory.last() or (0, max(tol, LOOSE))
        while True:
            steps = memory.inner((rounds, accuracy))
            rounds += 1
            left = self.max_iter - len(d.trace)
            at, reason = d.run(
                at, tau, accuracy, 0.0, min(left, PASSING[0]) if passing else left, steps
            )
            if len(d.trace) >= self.max_iter and reason is StopReason.MAX_ITER:
                d.trace.reason = reason
                return at
            if passing and rounds > PASSING[1]:
                return at
            more = self.above(at, tau * (1 + tol), 20 if accuracy <= tol else 6)
            room = self.most - len(at.s)
            if len(more[1]) and room > 0:
                grown = merged(
                    (at.u, at.s, at.v),
                    (more[0][:, :room], (more[1][:room] - tau) / d.share, more[2][:, :room]),
                )
                at = self._grown(at, grown, tau)
            elif accuracy <= tol or reason is StopReason.STALLED:
                self.limited = bool(len(more[1]))
                return at
            else:
                accuracy = max(tol, accuracy / 30)

    def _grown(
        self, at: Point, grown: tuple[np.ndarray, np.ndarray, np.ndarray], tau: float
    ) -> Point:
        """The point with new pairs; their size is halved until F falls (along each of them it
        does)."""
        d = self.d
        u, s, v = grown
        new = ~np.isin(s, at.s)
        for _ in range(40):
            trial = d.point(u, s, v, tau)
            if trial.value < at.value:
                return trial
            s = np.where(new, s / 2, s)
            order = np.argsort(-s, kind="stable")
            u, s, v, new = u[:, order], s[order], v[:, order], new[order]
        return at

    def above(
        self, at: Point, level: float, steps: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Singular pairs of (I - U U^T) R (I - V V^T) above ``level``; at most as many again as
        there are, eight at least."""
        d = self.d
        r = Operator(d.pattern, at.rest)
        e = r.engine

        def off(q: np.ndarray, y: np.ndarray) -> np.ndarray:
            return e.outer(q, -e.inner(q, y).astype(y.dtype), y) if q.shape[1] else y

        z = Products(
            r.shape,
            r.dtype,
            lambda a: off(at.u, r.times(off(at.v, a))),
            lambda y: off(at.v, r.times_t(off(at.u, y))),
            e,
            True,
        )
        k = min(max(BATCH, len(at.s)), min(z.shape) - len(at.s))
        if k <= 0:
            return at.u[:, :0], at.s[:0], at.v[:, :0]
        first = 2 if len(at.s) else k
        found = partial_svd(
            z, min(k, first), rng=self.rng, start=self.hint, tol=1e-2, max_steps=steps, oversample=2
        )
        if len(found.values) and found.values[-1] > level and k > first:
            found = partial_svd(z, k, rng=self.rng, start=found.right, tol=5e-2, max_steps=6)
        self.hint = found.right
        keep = found.values > level
        return off(at.u, found.left[:, keep]), found.values[keep], off(at.v, found.right[:, keep])

    def proximal(self, at: Point, tau: float, memory: Memory) -> Point:
        """Accelerated Soft-Impute: B <- shrink_tau(C + Pi(A - C)), C = B + beta (B - B_last),
        restarted when F rises."""
        d = self.d
        at = d.point(at.u, at.s, at.v, tau)
        begin, t, before, hint = memory.last() or (0, 1.0, (at.u, at.s, at.v), at.v)
        d.trace.reason = StopReason.MAX_ITER
        for count in range(begin, self.max_iter):
            d.best = at
            memory.offer((count, t, before, hint))
            d.trace.add(at.value)
            d.watch("steps", len(d.trace), None)
            t_next = float((1 + np.sqrt(1 + 4 * t * t)) / 2)
            beta = (t - 1) / t_next
            left = np.hstack([at.u * ((1 + beta) * at.s), before[0] * (-beta * before[1])]).astype(
                at.u.dtype
            )
            u, s, v = low_rank_svd(d.pattern.engine, left, np.hstack([at.v, before[2]]))
            rest = d.pattern.residual(d.b, u * s.astype(u.dtype), v)[0]
            k = min(len(at.s) + BATCH, self.most)
            while True:
                found = partial_svd(
                    Operator(d.pattern, rest, u, s, v), k, rng=self.rng, start=hint, tol=1e-6
                )
                if len(found.values) < k or found.values[-1] <= tau or k >= self.most:
                    break
                k = min(2 * k, self.most)
            hint = found.right
            small = shrink(found, tau)
            trial = d.point(small.left, small.values, small.right, tau)
            if trial.value > at.value and t > 1:
                t, before = 1.0, at[:3]
                continue
            change = abs(at.value - trial.value)
            cut = (
                k >= self.most and len(small.values) == k
            )  # of a rank that is asked for there is no bound over all ranks
            before, at, t = at[:3], trial, t_next
            if change <= 1e-4 * self.tol * at.value and (cut or self.shown(at, tau, change)):
                d.trace.reason = StopReason.CONVERGED
                break
        return at

    def shown(self, at: Point, tau: float, change: float) -> bool:
        """Whether the duality gap is as small as asked for, or nothing moves any more: momentum
        that swings around the minimum leaves F where it was now and then, long before it is
        there."""
        d = self.d
        norm = largest(d.pattern, at.rest, rng=self.rng, tol=FINE)
        gap = at.value - dual_value(
            d.pattern.engine.get(at.rest), d.pattern.engine.get(d.b), tau, norm
        )
        most = max(self.tol, ROUNDINGS * float(np.finfo(at.rest.dtype).eps))
        return gap <= most * at.value or change <= float(np.finfo(np.float64).eps) * at.value
