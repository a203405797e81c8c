"""SpectralCompleter: what SVP, SVT, SoftImpute and ExactRecovery share around their solvers.

Each returns B = U diag(s) V^T of the (normalised) entries; the factors are kept balanced, U sqrt(s)
and V sqrt(s), so that a ridge of tau on the code of a new row is the nuclear norm's price for it.

Nuclear-norm completion under a convex loss (6.3):  minimise P(B) = sum l(a_ij, o_ij + B_ij) +
tau ||B||_* over the observed entries.

o holds what is fixed before: a mean, or mean and biases, on the scale of the natural parameter. P
is convex; accelerated proximal steps

    B <- shrink_(tau / L)(C - G(C) / L),      C = B + beta (B - B_last),      G = dl/ds on the
    entries, 0 elsewhere

lower it to its global minimum, L found by trial: it is doubled until the parabola with it lies
above the loss at the new point, and lowered a little after every step. The iteration ends where the
duality gap (``certify.nuclear_losses``) is small, so that what it claims is what the certificate
measures.

References: Beck and Teboulle 2009 (FISTA); O'Donoghue and Candes 2015 (restarts); Mazumder, Hastie
and Tibshirani 2010; Davenport et al. 2014 (1-bit completion).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.nuclear_losses import lower_bound
from eckart.complete.completer import Completer
from eckart.complete.factors.majorise import centre
from eckart.complete.normalise import KINDS, Normaliser, normalise
from eckart.complete.nuclear.operators import Operator, Solution, low_rank_svd, partial_svd, shrink
from eckart.complete.plain_answers import Ridges
from eckart.complete.split import split
from eckart.engines.protocol import RidgeRule
from eckart.errors import InputError
from eckart.factors import LowRank, signs
from eckart.fit import Fit, fitted, plan_of
from eckart.io.models.checkpoint import Memory, resuming
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of, parts_of
from eckart.optim.tangent import Sampling
from eckart.parameters import file_name, one_of, param, whole
from eckart.terms import Loss
from eckart.trace import StopReason, Trace, Watcher, progress, silent

RANK = whole(1)._replace(wanted="an int >= 1; SVT and SoftImpute find the rank by themselves")


@dataclass(eq=False, repr=False)
class SpectralCompleter(Completer):
    """Fit, certificate and fold-in; a subclass provides ``_find`` (the solver) and ``_evidence``
    (its certificate)."""

    _: KW_ONLY
    normalise: Literal["column", "row", "both", "bias", "global", None] = param(
        None, one_of(*KINDS)
    )
    checkpoint: Any = param(None, file_name())

    @abstractmethod
    def _find(
        self, x: Observed, engine: Any, rng: np.random.Generator, watch: Watcher, memory: Memory
    ) -> tuple[Solution, dict[str, Any]]:
        """The solver: the solution and what the plan says of it."""

    @abstractmethod
    def _evidence(
        self, x: Observed, f: LowRank, plan: dict[str, Any], engine: Any, rng: np.random.Generator
    ) -> Certificate:
        """The certificate of these factors."""

    @fitted
    def singular_values_(self) -> np.ndarray:
        """Singular values of the (normalised) completed matrix, falling."""
        return np.square(np.linalg.norm(self._lowrank().left.astype(np.float64), axis=0))

    @fitted
    def rank_(self) -> int:
        """How many of them there are."""
        return self._lowrank().k

    @fitted
    def n_iter_(self) -> int:
        return len(self._fitted("n_iter_").trace)

    def _solve(self, x: Observed, weights: np.ndarray | None) -> Fit:
        self._check(x)
        if weights is not None:
            raise InputError(
                f"weights= came, {type(self).__name__} counts every entry alike; use "
                "ALS for weighted entries"
            )
        engine, by = self._engine(), self._normalise_by(x)
        norm, y = (None, x) if by is None else normalise(x, by, engine=engine)
        with progress(self.verbose) as watch, resuming(self, x) as (memory, rng):
            solution, chosen = self._find(y, engine, rng, watch, memory)
        plan = {**plan_of(engine), "solver": type(self).__name__, "normalise": str(by), **chosen}
        bare = balanced(solution, y)
        certificate = self._evidence(y, bare, plan, engine, np.random.default_rng(0))
        if solution.trace.reason in (StopReason.MAX_ITER, StopReason.INTERRUPTED):
            plan["stopped"] = solution.trace.reason.value
        memory.end(solution.trace)
        self.normaliser_ = norm
        return Fit(_dressed(bare, norm, x), certificate, solution.trace, plan)

    def _normalise_by(self, x: Observed) -> str | None:
        """What is taken out of these entries before the fit."""
        return self.normalise

    def _fold_rule(self) -> RidgeRule:
        return RidgeRule(float(self.fit_.plan.get("fold_l2", 0.0)))

    def _ridges_of(self, x: Observed) -> Ridges:
        price = float(self.fit_.plan.get("fold_l2", 0.0))
        return np.full(x.shape[0], price), np.full(x.shape[1], price)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        x, f = self._as_of_fit(self._judged(X)), self._lowrank()
        y = x if self.normaliser_ is None else self.normaliser_.apply(x)
        bare = LowRank(f.left, f.right)
        return self._evidence(y, bare, self.fit_.plan, self._engine(), np.random.default_rng(0))

    def _check(self, x: Observed) -> None:
        if x.nnz == 0:
            raise InputError("X must have at least one observed entry, got none")


def entries_norm(x: Observed) -> float:
    """||Pi(A)||_F, in double precision."""
    if parts_of(x) is not None:
        return float(np.sqrt(facts_of(x).square))
    return float(np.sqrt(np.sum(np.square(x.data, dtype=np.float64))))


def zero_solution(x: Observed, trace: Trace, evidence: dict[str, Any]) -> Solution:
    """B = 0, where that is the answer without a step."""
    trace.reason = StopReason.CONVERGED
    return Solution(
        np.zeros((x.shape[0], 0), x.dtype),
        np.zeros(0),
        np.zeros((x.shape[1], 0), x.dtype),
        trace,
        evidence,
    )


def at_least(tol: float, x: Observed, roundings: int = 50) -> float:
    """A tolerance that the precision of the data allows: ``tol``, or some roundings where that is
    less."""
    return max(tol, roundings * float(np.finfo(x.dtype).eps))


def balanced(found: Solution, x: Observed) -> LowRank:
    """U sqrt(s), V sqrt(s) in the precision of the data, with the usual signs."""
    root = np.sqrt(found.s) * signs(found.V.T)
    return LowRank(
        np.ascontiguousarray((found.U * root).astype(x.dtype)),
        np.ascontiguousarray((found.V * root).astype(x.dtype)),
    )


def _dressed(f: LowRank, norm: Normaliser | None, x: Observed) -> LowRank:
    """The factors in the units of the data, with its labels."""
    if norm is None:
        return LowRank(f.left, f.right, rows=x.rows, columns=x.columns)

    def cast(a: np.ndarray | None) -> np.ndarray | None:
        return None if a is None else np.asarray(a, f.left.dtype)

    return LowRank(
        f.left,
        f.right,
        norm.mean,
        cast(norm.row_offset),
        cast(norm.column_offset),
        None,
        None,
        x.rows,
        x.columns,
    )


BATCH = 5
"""Singular triples looked for beyond the present rank."""
EASIER = 0.9
"""Factor by which L is lowered after a step: it follows the loss where that becomes flatter."""
LOOK = 10
"""Steps between two looks at the duality gap."""
BIAS_RIDGE, BIAS_SWEEPS = 1.0, 60
"""The ridge of biases that are taken out first, and sweeps to find them; a bias of one answer alone
stays finite."""


class FixedPart(NamedTuple):
    """o as mean and biases, and at the entries."""

    mean: float
    row_bias: np.ndarray | None
    column_bias: np.ndarray | None
    entries: np.ndarray


def fixed_part(x: Observed, loss: Loss, by: str | None, engine: Any) -> FixedPart:
    """What is fixed before: nothing, the best constant ("global"), or that and biases with a small
    ridge ("bias")."""
    mean = 0.0 if by is None else centre(x, loss, None)
    if by != "bias":
        return FixedPart(mean, None, None, np.full(x.nnz, mean))
    placed, rule, (n, m) = engine.put(x), RidgeRule(0.0, bias=True, bias_l2=BIAS_RIDGE), x.shape
    none = [engine.take(np.zeros((size, 1)), x.dtype) for size in (n, m)]
    b, c = (engine.take(np.zeros(size), x.dtype) for size in (n, m))
    for _ in range(BIAS_SWEEPS):
        bound, _ = engine.linearised(placed, loss, *none, mean=mean, own=b, other=c)
        b = engine.bias_rows(bound, rule, c, mean=mean)
        bound, _ = engine.linearised(placed.T, loss, *none[::-1], mean=mean, own=c, other=b)
        c = engine.bias_rows(bound, rule, b, mean=mean)
    b, c = engine.get(b), engine.get(c)
    rows = np.repeat(np.arange(n), x.row_counts())
    return FixedPart(mean, b, c, mean + b[rows].astype(np.float64) + c[x.indices])


class LossPoint(NamedTuple):
    """B = U diag(s) V^T, o + B at the entries, and the loss there."""

    u: np.ndarray
    s: np.ndarray
    v: np.ndarray
    at: np.ndarray
    loss: float

    def value(self, tau: float) -> float:
        return self.loss + tau * float(self.s.sum())


class LossProblem:
    """The loss on a pattern."""

    def __init__(self, x: Observed, loss: Loss, o: np.ndarray, engine: Any):
        self.pattern, self.engine, self.loss, self.o = Sampling(x, engine), engine, loss, o
        self.a, self.dtype = x.data.astype(np.float64), x.dtype

    def point(self, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> LossPoint:
        # formulas of losses are NumPy's
        at = self.o + (
            self.engine.get(self.pattern.at((u * s).astype(self.dtype), v)) if len(s) else 0.0
        )
        return LossPoint(u, s, v, at, self.total(at))

    def total(self, at: np.ndarray) -> float:
        with np.errstate(over="ignore"):  # a step too long is tried again with a larger L
            return float(np.sum(self.loss.value(self.a, at)))

    def zero(self) -> LossPoint:
        n, m = self.pattern.shape
        return self.point(np.zeros((n, 0), self.dtype), np.zeros(0), np.zeros((m, 0), self.dtype))

    def gradient_norm(
        self, g: np.ndarray, rng: np.random.Generator, start: Any = None, tol: float = 1e-3
    ) -> float:
        found = partial_svd(
            Operator(self.pattern, g.astype(self.dtype)), 1, rng=rng, start=start, tol=tol
        )
        return float(found.values[0]) if len(found.values) else 0.0

    def gap(self, at: LossPoint, tau: float, rng: np.random.Generator, enough: float) -> float:
        """The duality gap as a share of the value. Where it seems to be ``enough`` it is measured
        with a finer norm: many singular values of the gradient are tau at a minimum, and a rough
        search among them is a share of its tolerance too low, which the bound takes for its own."""
        g, value = self.loss.gradient(self.a, at.at), at.value(tau)
        share, start = np.inf, at.v[:, :1] if len(at.s) else None
        for tol in (1e-3, 1e-7):
            norm = self.gradient_norm(g, rng, start, tol)
            low = lower_bound(self.loss, self.a, self.o, g, min(1.0, tau / max(norm, 1e-300)))
            share = (value - low) / max(abs(value), 1e-300)
            if share > enough:
                break
        return share


def solve(
    x: Observed,
    loss: Loss,
    o: np.ndarray,
    tau: float,
    *,
    max_rank: int | None = None,
    tol: float = 1e-3,
    max_iter: int = 1000,
    start: Solution | None = None,
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher = silent,
) -> Solution:
    """The minimiser of P to a duality gap of ``tol``."""
    p, most = LossProblem(x, loss, o, engine), min(*x.shape, max_rank or min(x.shape))
    trace = Trace("objective after each step", reason=StopReason.MAX_ITER)
    with engine.at_work():
        at = p.zero() if start is None else p.point(start.U, start.s, start.V)
        last, t, hint = at, 1.0, None
        # the first guess of L: the curvature met at the start; where it is too small, trials raise
        # it
        steep = float(np.quantile(loss.curvature(p.a, at.at), 0.9)) if len(p.a) else 1.0
        try:
            for count in range(max_iter):
                trace.add(at.value(tau))
                watch("steps", count + 1, max_iter)
                if count % LOOK == 0 and p.gap(at, tau, rng, tol) <= tol:
                    trace.reason = StopReason.CONVERGED
                    break
                following = float((1 + np.sqrt(1 + 4 * t * t)) / 2)
                beta = (t - 1) / following
                trial, steep, hint = _step(p, at, last, beta, tau, steep, most, hint, rng)
                if trial.value(tau) > at.value(tau) and t > 1:
                    t, last = 1.0, at  # momentum has led uphill: begin it anew
                    continue
                last, at, t, steep = at, trial, following, EASIER * steep
        except KeyboardInterrupt:
            trace.reason = StopReason.INTERRUPTED
            if not len(trace):
                raise
    return Solution(engine.get(at.u), at.s, engine.get(at.v), trace, {})


def _step(
    p: LossProblem,
    at: LossPoint,
    last: LossPoint,
    beta: float,
    tau: float,
    steep: float,
    most: int,
    hint: Any,
    rng: np.random.Generator,
) -> tuple[LossPoint, float, Any]:
    """One proximal step from C, with the first L of a doubling sequence whose parabola is above the
    loss at the new point."""
    here = (1 + beta) * at.at - beta * last.at
    left = np.hstack([at.u * ((1 + beta) * at.s), last.u * (-beta * last.s)]).astype(p.dtype)
    u, s, v = (
        low_rank_svd(p.engine, left, np.hstack([at.v, last.v]))
        if left.shape[1]
        else (at.u, at.s, at.v)
    )
    g, value = p.loss.gradient(p.a, here), p.total(here)
    while True:
        k = min(len(at.s) + BATCH, most)
        while True:
            found = partial_svd(
                Operator(p.pattern, (-g / steep).astype(p.dtype), u, s, v),
                k,
                rng=rng,
                start=hint,
                tol=1e-6,
            )
            if len(found.values) < k or found.values[-1] <= tau / steep or k >= most:
                break
            k = min(2 * k, most)
        small = shrink(found, tau / steep)
        trial = p.point(small.left, small.values, small.right)
        away = trial.at - here
        above = value + float(g @ away) + 0.5 * steep * float(away @ away)
        if trial.loss <= above + 1e-12 * abs(value) or steep > 1e12:
            return trial, steep, found.right
        steep *= 2


def choose_tau(
    x: Observed,
    loss: Loss,
    by: str | None,
    *,
    max_rank: int | None,
    engine: Any,
    rng: np.random.Generator,
    factor: float = 1.6,
) -> tuple[float, list[tuple[float, float, int]]]:
    """tau with the least mean loss on a hidden tenth of the entries, and the (tau, loss, rank) of
    the path to it; the path ends after two rises."""
    parts = split(x, 0.1, random_state=rng)
    train, test = parts.train, parts.test
    fixed = fixed_part(train, loss, by, engine)
    with engine.at_work():
        p = LossProblem(train, loss, fixed.entries, engine)
        tau = p.gradient_norm(loss.gradient(p.a, p.o), rng) or 1.0
    rows = np.repeat(np.arange(test.shape[0]), test.row_counts())
    o = np.full(test.nnz, fixed.mean)
    if fixed.row_bias is not None and fixed.column_bias is not None:
        o += fixed.row_bias[rows] + fixed.column_bias[test.indices]
    judge, table, start, rises = (
        LossProblem(test, loss, o, engine),
        list[tuple[float, float, int]](),
        None,
        0,
    )
    while rises < 2 and len(table) < 30:
        tau /= factor
        start = solve(
            train,
            loss,
            fixed.entries,
            tau,
            max_rank=max_rank,
            tol=1e-2,
            max_iter=100,
            start=start,
            engine=engine,
            rng=rng,
        )
        if start.trace.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        error = judge.point(start.U, start.s, start.V).loss / max(test.nnz, 1)
        rises = 0 if error < 0.9999 * min((row[1] for row in table), default=np.inf) else rises + 1
        table.append((float(tau), error, len(start.s)))
    return min(table, key=lambda row: row[1])[0], table


def taken_out(loss: Loss, normalise: str | None) -> str | None:
    """What is fixed before a fit: biases where the natural parameter has no unit and nothing was
    asked for."""
    if normalise == "auto":
        return None if loss.location else "bias"
    return normalise
