"""SpectralCompleter: what SVP, SVT, SoftImpute and ExactRecovery share around their solvers.

Each returns B = U diag(s) V^T of the (normalised) entries; the factors are kept balanced, U sqrt(s)
and V sqrt(s), so that a ridge of tau on the code of a new row is the nuclear norm's price for it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.complete.completer import Completer
from eckart.complete.normalise import KINDS, Normaliser, normalise
from eckart.complete.nuclear.operators import Solution
from eckart.complete.plain_answers import Ridges
from eckart.engines.protocol import RidgeRule
from eckart.errors import InputError
from eckart.factors import LowRank, signs
from eckart.fit import Fit, fitted, plan_of
from eckart.io.models.levels import Memory, resuming
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of, parts_of
from eckart.parameters import file_name, one_of, param, whole
from eckart.trace import StopReason, Trace, Watcher, progress

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
