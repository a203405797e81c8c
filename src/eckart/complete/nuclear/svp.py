"""Singular value projection: the rank-k matrix that fits the observed entries best, by projected
gradient steps.

    minimise 1/2 ||Pi(A - B)||_F^2  over  rank(B) <= k,         B <- [B + eta Pi(A - B)]_k

[.]_k is Eckart-Young's projection. B is kept as U diag(s) V^T, the step as sparse + low rank: n x m
is never formed.

``step=None``. The first step is eta = 1/p from B = 0 (p the share of observed entries). The others
move along the tangent space T of the rank-k matrices at B: to second order [B + eta R]_k = [B + eta
P_T R]_k, and the right side needs no iterative SVD; their direction and length are chosen by
``descend``. At a stationary point of T the full projection is tried as well: if a direction outside
T is worth more than the smallest of the k singular values, the iteration goes on from there. So the
result is a fixed point of the projection itself.

``step=eta``. The plain iteration with a warm-started partial SVD; eta is halved whenever the misfit
would rise.

References: Jain, Meka and Dhillon, "Guaranteed rank minimization via singular value projection"
(2010); Vandereycken (2013) for steps on T.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.nuclear import svp_certificate
from eckart.complete.nuclear.operators import Operator, Solution, partial_svd
from eckart.complete.nuclear.riemannian import CUTS, Point, TangentDescent
from eckart.complete.nuclear.spectral_completer import (
    RANK,
    SpectralCompleter,
    at_least,
    entries_norm,
    zero_solution,
)
from eckart.errors import invalid
from eckart.factors import LowRank
from eckart.io.models.checkpoint import NOTHING, Memory, resumed_trace
from eckart.matrix import Observed
from eckart.optim.tangent import Sampling
from eckart.parameters import number, optional, param, whole
from eckart.trace import StopReason, Watcher, silent


class Stop(NamedTuple):
    """Where to end: at a stationary point (``tol``), at a fit of the entries (``fitted``), or after
    ``max_iter`` steps."""

    tol: float
    fitted: float
    max_iter: int


def solve(
    x: Observed,
    k: Any,
    *,
    step: float | None = None,
    tol: float = 1e-3,
    fitted: float = 1e-8,
    max_iter: int = 500,
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Solution:
    """The best fit of rank k; stops at ||P_T R|| <= ``tol`` ||R|| (stationary) or ||R|| <=
    ``fitted`` ||Pi(A)||."""
    n, m = x.shape
    if k < 0:
        raise invalid("k", k, "0 or more")
    if step is not None and not step > 0:
        raise invalid("step", step, "a number > 0, or None to have it chosen")
    k = min(k, n, m)
    size = entries_norm(x)
    kept = memory.last()
    trace = resumed_trace(
        "1/2 (relative residual)^2 at the observed entries", kept and kept["trace"]
    )
    if k == 0 or size == 0.0:
        return zero_solution(x, trace, {"relative residual": float(size > 0)})
    pattern = Sampling(x, engine)
    d = TangentDescent(pattern, pattern.values(size, x.dtype), trace, watch)
    steps = memory.inner({"trace": (trace.values, trace.seconds), "point": d.reached})
    stop = Stop(tol, max(fitted, d.floor), max_iter)
    with engine.at_work():
        at, spare = (d.point(*kept["point"]), None) if kept else _start(d, k, rng)
        try:
            at = (
                _tangent_steps(d, at, k, spare, stop, rng, steps)
                if step is None
                else _plain_steps(d, at, k, step, spare, stop, rng, steps)
            )
        except KeyboardInterrupt:
            at, trace.reason = d.best or at, StopReason.INTERRUPTED
    return Solution(
        engine.get(at.u), at.s * size, engine.get(at.v), trace, {"relative residual": at.misfit}
    )


def _start(d: TangentDescent, k: int, rng: np.random.Generator) -> tuple[Point, np.ndarray | None]:
    """[Pi(A) / p]_k, rescaled to fit the entries best."""
    found = partial_svd(Operator(d.pattern, d.b), k, rng=rng, tol=3e-2)
    at = d.pattern.at(found.left * found.values.astype(d.b.dtype), found.right)
    scale = float(np.vdot(at, d.b)) / max(float(np.vdot(at, at)), 1e-300)
    return d.point(found.left, found.values * scale, found.right), found.spare


def _tangent_steps(
    d: TangentDescent, at: Point, k: int, spare: Any, stop: Stop, rng: Any, memory: Memory
) -> Point:
    (spare,) = memory.last() or (spare,)
    while True:
        left = stop.max_iter - len(d.trace)
        at, reason = d.run(at, 0.0, stop.tol, stop.fitted, left, memory.inner((spare,)))
        d.trace.reason = reason
        if reason is StopReason.MAX_ITER or at.misfit <= stop.fitted or not _outside(d, at, k, rng):
            return at
        moved = _projected(d, at, k, 1 / d.share, spare, rng)
        if moved is None:
            return at
        at, spare = moved


def _outside(d: TangentDescent, at: Point, k: int, rng: np.random.Generator) -> bool:
    """Is some direction outside T worth more than the smallest singular value? The projection would
    exchange them."""
    if len(at.s) < k:
        return True
    found = partial_svd(
        Operator(d.pattern, at.rest), 1, rng=rng, tol=0.1, max_steps=6, oversample=2
    )
    return bool(len(found.values) and found.values[0] / d.share > at.s[-1])


def _projected(
    d: TangentDescent,
    at: Point,
    k: int,
    eta: float,
    spare: Any,
    rng: np.random.Generator,
    accuracy: float = 1e-3,
    gain: float = 1e-6,
) -> tuple[Point, np.ndarray | None] | None:
    """[B + eta R]_k by a warm-started partial SVD, eta halved until the misfit falls; None where it
    never does."""
    start = at.v if spare is None else np.hstack([at.v, spare])
    for _ in range(CUTS):
        z = Operator(d.pattern, (eta * at.rest).astype(at.rest.dtype), at.u, at.s, at.v)
        found = partial_svd(z, k, rng=rng, start=start, tol=accuracy)
        trial = d.point(found.left, found.values, found.right)
        if trial.value < at.value * (1 - gain):
            return trial, found.spare
        eta /= 2
    return None


def _plain_steps(
    d: TangentDescent,
    at: Point,
    k: int,
    eta: float,
    spare: Any,
    stop: Stop,
    rng: Any,
    memory: Memory,
) -> Point:
    (spare,) = memory.last() or (spare,)
    while len(d.trace) < stop.max_iter:
        d.best = at
        memory.offer((spare,))
        d.trace.add(at.value)
        d.watch("steps", len(d.trace), None)
        _, g = d.gradient(at, 0.0)
        if at.misfit <= stop.fitted or np.sqrt(g.dot(g)) <= stop.tol * at.misfit:
            d.trace.reason = StopReason.CONVERGED
            return at
        accuracy = (
            float(np.clip(0.1 * stop.tol * at.misfit / max(float(at.s[0]), 1e-300), 1e-13, 1e-3))
            if len(at.s)
            else 1e-3
        )
        moved = _projected(d, at, k, eta, spare, rng, accuracy, 1e-13)
        if moved is None:
            d.trace.reason = StopReason.STALLED
            return at
        at, spare = moved
    d.trace.reason = StopReason.MAX_ITER
    return at


@dataclass(eq=False, repr=False)
class SVP(SpectralCompleter):
    """Fill in a matrix with the best fit of a given rank: min 1/2 ||Pi(A - B)||_F^2 over rank(B) <=
    k, by singular value projection.

    Parameters
    ----------
    n_components : the rank k; more than min(rows, columns) counts as that.
    step : eta of the plain iteration B <- [B + eta Pi(A - B)]_k, halved where it does not descend.
        None chooses steps along the tangent space.
    normalise : what is taken out of the entries before the fit and put back after: "column", "row",
        "both", "global", "bias" or None.
    tol : stop where the residual's tangential part is at most this share of it.
    fitted : stop where the residual is at most this share of the data (exact data).
    checkpoint : file in which the state is kept after steps; the same fit resumes from it after a
        crash, with the same bits.
    max_iter, random_state, engine, n_threads, verbose : most steps; seed; the engine; most threads
        (they do not change the result); progress bars.

    Attributes
    ----------
    fit_, certificate_, singular_values_, rank_, n_iter_.

    The certificate says that the point is stationary (and that no direction outside is worth more
    than one kept), and that it is global where it fits the entries.

    >>> a = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 0.5, 2.0]); a[0, 2] = np.nan
    >>> model = SVP(1, random_state=0).fit(a)
    >>> float(model.predict(0, 2)[0].round(4)), model.certificate_.holds
    (2.0, True)

    References: Jain, Meka and Dhillon (2010).
    """

    n_components: int = param(10, RANK)
    _: KW_ONLY
    step: float | None = param(None, optional(number(0, above=True)))
    tol: float = param(1e-3, number(0))
    fitted: float = param(1e-8, number(0))
    max_iter: int = param(500, whole(1))

    def _find(
        self, x: Observed, engine: Any, rng: np.random.Generator, watch: Watcher, memory: Memory
    ) -> tuple[Solution, dict[str, Any]]:
        found = solve(
            x,
            self.n_components,
            step=self.step,
            tol=self.tol,
            fitted=self.fitted,
            max_iter=self.max_iter,
            engine=engine,
            rng=rng,
            watch=watch,
            memory=memory,
        )
        return found, {
            "step": "chosen on the tangent space" if self.step is None else float(self.step)
        }

    def _evidence(
        self, x: Observed, f: LowRank, plan: dict[str, Any], engine: Any, rng: np.random.Generator
    ) -> Certificate:
        tol, fitted = (1.5 * at_least(limit, x) for limit in (self.tol, self.fitted))
        return svp_certificate(x, f, tol=tol, fitted=fitted, rng=rng, engine=engine)
