"""Singular value thresholding: completion of exact data by the nuclear norm.

    minimise tau ||B||_* + 1/2 ||B||_F^2   subject to   Pi(B) = Pi(A)

Its dual is smooth: with y on the observed entries, B(y) = shrink_tau(Pi^T y) and g(y) = <y, b> -
1/2 ||B(y)||_F^2 has the gradient b - Pi(B(y)). Gradient ascent Y <- Y + eta Pi(A - shrink_tau(Y))
is SVT. ``accelerate=True`` adds Nesterov's momentum, restarted when a step goes against the last
one or the residual rises; the limit is the same. eta = 1.2/p is larger than the constant 1 that is
safe for every matrix: when the residual stays far above its best, eta is halved (never under 1) and
the iteration goes on from its best point. Each step takes one warm-started partial SVD of the
sparse Y and keeps what exceeds tau; n x m is never formed.

For large tau the minimiser is that of ||B||_* alone. The default is tau = 5 ||Pi(A)||_2 / p, about
the paper's 5n for its Gaussian factors and right for any scale.

Reference: Cai, Candes and Shen, "A singular value thresholding algorithm for matrix completion"
(2010); O'Donoghue and Candes (2015) for the restart.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.nuclear import svt_certificate
from eckart.complete.nuclear.operators import Operator, Solution, Triples, partial_svd
from eckart.complete.nuclear.spectral_completer import (
    SpectralCompleter,
    at_least,
    entries_norm,
    zero_solution,
)
from eckart.errors import invalid
from eckart.factors import LowRank
from eckart.fit import fitted
from eckart.io.models.checkpoint import NOTHING, Memory, resumed_trace
from eckart.matrix import Observed
from eckart.optim.tangent import Sampling, placed
from eckart.parameters import flag, number, optional, param, whole
from eckart.trace import StopReason, Trace, Watcher, silent

SVD = 0.1
"""Error of the partial SVD, as a share of the residual."""
STRIKES, BURST, STALE = 3, 20, 25
"""The step is halved after 3 residuals in a row above twice the best, at one 20 times above it, and
after 25 without a new best. A single high one is a spike that the next step takes back."""
GROWTH = 5
"""Further triples asked for while the smallest is still above tau."""


def solve(
    x: Observed,
    *,
    tau: float | None = None,
    step: float | None = None,
    max_rank: int | None = None,
    accelerate: bool = True,
    tol: float = 1e-4,
    max_iter: int = 500,
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Solution:
    """The minimiser, to ||Pi(A - B)|| <= ``tol`` ||Pi(A)||; ``evidence["dual"]`` is y in row
    order."""
    n, m = x.shape
    for name, value in (("tau", tau), ("step", step)):
        if value is not None and not value > 0:
            raise invalid(name, value, "a number > 0, or None to have it chosen")
    kept = memory.last()
    trace = resumed_trace("relative residual at the observed entries", kept and kept["trace"])
    size = entries_norm(x)
    if size == 0.0:
        return zero_solution(
            x,
            trace,
            {"tau": tau or 1.0, "dual": np.zeros(x.nnz, x.dtype), "relative residual": 0.0},
        )
    most = min(n, m) if max_rank is None else min(max_rank, n, m)
    pattern = Sampling(x, engine)
    eta = step or max(1.0, 1.2 * n * m / x.nnz)
    with engine.at_work():
        ascent = _Ascent(pattern, (x.data / size).astype(x.dtype), most, rng)
        steps = memory.inner({"trace": (trace.values, trace.seconds)})
        if kept is None:
            ascent.begin(None if tau is None else float(tau) / size, eta)
        else:
            ascent.take(steps.last())
        ascent.run(accelerate, tol, max_iter, trace, watch, steps)
    u, s, v = engine.get(ascent.best[0]), ascent.best[1], engine.get(ascent.best[2])
    evidence = {
        "tau": ascent.tau * size,
        "step": ascent.eta,
        "dual": engine.get(ascent.best_y) * size,
        "relative residual": ascent.least,
    }
    return Solution(u, s * size, v, trace, evidence)


class _Ascent:
    """Dual ascent from y, z: the last step and the point with its momentum t. ``best`` is B at
    ``best_y``, the point with the least residual."""

    tau: float
    eta: float
    y: np.ndarray
    z: np.ndarray
    best_y: np.ndarray
    best: tuple[np.ndarray, np.ndarray, np.ndarray]

    def __init__(self, pattern: Sampling, b: np.ndarray, most: int, rng: np.random.Generator):
        self.pattern, self.b, self.most, self.rng = pattern, placed(pattern.engine, b), most, rng

    def begin(self, tau: float | None, eta: float) -> None:
        """y a multiple of the entries, until which B(y) = 0."""
        z = Operator(self.pattern, self.b)
        norm = float(partial_svd(z, 1, rng=self.rng, tol=1e-2).values[0])
        n, m = z.shape
        self.tau, self.eta = 5 * norm * n * m / self.pattern.nnz if tau is None else tau, eta
        self.y = self.z = (np.ceil(self.tau / (eta * norm)) * eta * self.b).astype(self.b.dtype)
        self.t, self.accuracy, self.rank = 1.0, 1e-3, 0
        self.strikes = self.stale = 0
        self.least = self.last = np.inf
        self.hint: np.ndarray | None = None

    def state(self) -> dict[str, Any]:
        """For a checkpoint: all that the steps change."""
        fixed = ("pattern", "b", "most", "rng")
        return {name: value for name, value in vars(self).items() if name not in fixed}

    def take(self, kept: dict[str, Any]) -> None:
        """From a checkpoint."""
        vars(self).update(kept)

    def shrunk(self, y: np.ndarray, tol: float) -> Triples:
        """shrink_tau of the sparse Y: as many triples as exceed tau."""
        z = Operator(self.pattern, y)
        k = min(self.rank + 1, self.most)
        while True:
            found = partial_svd(z, k, rng=self.rng, start=self.hint, tol=tol)
            self.hint = (
                found.right if found.spare is None else np.hstack([found.right, found.spare])
            )
            if len(found.values) < k or found.values[-1] <= self.tau or k >= self.most:
                break
            k = min(k + GROWTH, self.most)
        keep = found.values > self.tau
        self.rank = int(keep.sum())
        return found._replace(
            left=found.left[:, keep],
            values=found.values[keep] - self.tau,
            right=found.right[:, keep],
        )

    def run(
        self,
        accelerate: bool,
        tol: float,
        max_iter: int,
        trace: Trace,
        watch: Watcher,
        memory: Memory,
    ) -> None:
        trace.reason = StopReason.MAX_ITER
        try:
            while len(trace) < max_iter:
                memory.offer(self.state)
                done = self._step(
                    accelerate, max(tol, 20 * float(np.finfo(self.b.dtype).eps)), trace
                )
                watch("steps", len(trace), None)
                if done:
                    trace.reason = StopReason.CONVERGED
                    return
        except KeyboardInterrupt:
            if not np.isfinite(self.least):
                raise
            trace.reason = StopReason.INTERRUPTED

    def _step(self, accelerate: bool, tol: float, trace: Trace) -> bool:
        """One step; whether the residual had come down to ``tol`` before it."""
        kind = self.b.dtype.type
        b = self.shrunk(self.z, self.accuracy)
        rest, square = self.pattern.residual(self.b, b.left * b.values.astype(kind), b.right)
        misfit = float(np.sqrt(square))
        trace.add(misfit)
        self.accuracy = max(min(1e-3, SVD * misfit), 1e-13)
        self.stale += 1
        if misfit < self.least:
            self.stale = 0
            self.least, self.best, self.best_y = misfit, (b.left, b.values, b.right), self.z
        if misfit <= tol:
            return True
        rises, self.last = misfit > self.last, misfit
        self.strikes = self.strikes + 1 if misfit > 2 * self.least else 0
        lost = self.strikes >= STRIKES or misfit > BURST * self.least or self.stale >= STALE
        if lost and self.eta > 1.0 and self.rank:
            self.eta = max(1.0, self.eta / 2)
            self.y = self.z = self.best_y
            self.t, self.strikes, self.stale, self.last = 1.0, 0, 0, np.inf
            return False
        after = self.z + kind(self.eta) * rest
        if not accelerate or rises:
            self.y = self.z = after
            self.t = 1.0
            return False
        moved = after - self.y
        if float(np.vdot(rest, moved)) < 0:
            self.t = 1.0
        t_next = float((1 + np.sqrt(1 + 4 * self.t * self.t)) / 2)
        self.y, self.z = after, after + kind((self.t - 1) / t_next) * moved
        self.t = t_next
        return False


@dataclass(eq=False, repr=False)
class SVT(SpectralCompleter):
    """Fill in exact data by the nuclear norm: min tau ||B||_* + 1/2 ||B||_F^2 subject to Pi(B) =
    Pi(A), by singular value thresholding.

    The data is taken at its word: where it is noisy, use ``SoftImpute``.

    Parameters
    ----------
    n_components : the largest rank; None sets no limit.
    tau : the threshold; large values give the minimiser of ||B||_* itself. None takes 5 ||Pi(A)||_2
        / p, p being the share of observed entries.
    step : eta of the dual ascent; None takes 1.2/p, and less where that does not converge.
    accelerate : Nesterov's momentum with restarts; the limit is the same.
    normalise : what is taken out of the entries before the fit and put back after: "column", "row",
        "both", "global", "bias" or None.
    tol : stop at ||Pi(A - B)|| <= tol ||Pi(A)||.
    checkpoint : file in which the state is kept after steps; the same fit resumes from it after a
        crash, with the same bits.
    max_iter, random_state, engine, n_threads, verbose : most steps; seed; the engine; most threads
        (they do not change the result); progress bars.

    Attributes
    ----------
    fit_, certificate_, singular_values_, rank_, n_iter_, tau_.

    The certificate makes a dual point from B and the entries: B agrees with the entries, it is the
    minimiser for that dual point, and its distance from the true minimiser is bounded.

    >>> a = np.outer(np.arange(1.0, 7.0), np.arange(1.0, 7.0)); a[0, 5] = a[3, 1] = np.nan
    >>> model = SVT(tol=1e-8, random_state=0).fit(a)
    >>> model.predict([0, 3], [5, 1]).round(4).tolist(), model.certificate_.holds
    ([6.0, 8.0], True)

    References: Cai, Candes and Shen (2010).
    """

    n_components: int | None = param(None, optional(whole(1)))
    _: KW_ONLY
    tau: float | None = param(None, optional(number(0, above=True)))
    step: float | None = param(None, optional(number(0, above=True)))
    accelerate: bool = param(True, flag())
    tol: float = param(1e-4, number(0))
    max_iter: int = param(500, whole(1))

    @fitted
    def tau_(self) -> float:
        """The threshold that was used."""
        return float(self._fitted("tau_").plan["tau"])

    def _find(
        self, x: Observed, engine: Any, rng: np.random.Generator, watch: Watcher, memory: Memory
    ) -> tuple[Solution, dict[str, Any]]:
        found = solve(
            x,
            tau=self.tau,
            step=self.step,
            max_rank=self.n_components,
            accelerate=self.accelerate,
            tol=self.tol,
            max_iter=self.max_iter,
            engine=engine,
            rng=rng,
            watch=watch,
            memory=memory,
        )
        return found, {
            "tau": float(found.evidence["tau"]),
            "step": float(found.evidence.get("step", 0.0)),
        }

    def _evidence(
        self, x: Observed, f: LowRank, plan: dict[str, Any], engine: Any, rng: np.random.Generator
    ) -> Certificate:
        return svt_certificate(
            x, f, float(plan["tau"]), tol=at_least(self.tol, x), rng=rng, engine=engine
        )
