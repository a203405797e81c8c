"""SoftImpute: noisy data completed by the nuclear norm, the price tau given, walked along a path,
or chosen. The solver is in ``active``."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eckart.certify.certificate import Certificate
from eckart.certify.nuclear import gap_certificate, svp_certificate
from eckart.certify.nuclear_losses import loss_gap_certificate
from eckart.complete.factors.majorise import encoded, factorized, loss_for
from eckart.complete.folding import on_a_scale
from eckart.complete.normalise import KINDS
from eckart.complete.nuclear.operators import Solution
from eckart.complete.nuclear.path import largest, solve
from eckart.complete.nuclear.riemannian import TangentDescent
from eckart.complete.nuclear.spectral_completer import (
    BIAS_RIDGE,
    SpectralCompleter,
    at_least,
    balanced,
    entries_norm,
    fixed_part,
    taken_out,
)
from eckart.complete.nuclear.spectral_completer import choose_tau as choose_loss_tau
from eckart.complete.nuclear.spectral_completer import solve as solve_loss
from eckart.complete.split import split
from eckart.engines.protocol import RidgeRule
from eckart.errors import InputError, invalid
from eckart.factors import LowRank
from eckart.fit import Fit, fitted, plan_of
from eckart.io.models.checkpoint import NOTHING, Memory, generator_at
from eckart.matrix import Observed
from eckart.matrix_blocks import parts_of
from eckart.optim.tangent import Sampling
from eckart.parameters import either, flag, number, one_of, optional, param, whole
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher, progress

__all__ = ["SoftImpute", "choose_tau", "debiased", "solve"]


def debiased(
    x: Observed,
    found: Solution,
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    engine: Any,
    memory: Memory = NOTHING,
) -> Solution:
    """The least-squares fit of the rank that was found, started from B: the nuclear norm's
    shrinkage taken back."""
    size = entries_norm(x) or 1.0
    pattern = Sampling(x, engine)
    d = TangentDescent(pattern, pattern.values(size, x.dtype))
    with engine.at_work():
        at = d.point(*(memory.last() or (found.U, found.s / size, found.V)))
        try:
            at, _ = d.run(at, 0.0, tol, 1e-8, max_iter, memory.inner(d.reached))
        except KeyboardInterrupt:
            at, found.trace.reason = d.best or at, StopReason.INTERRUPTED
    return found._replace(U=engine.get(at.u), s=at.s * size, V=engine.get(at.v))


def choose_tau(
    x: Observed,
    *,
    share: float = 0.1,
    factor: float = 1.6,
    max_rank: int | None = None,
    debias: bool = False,
    engine: Any,
    rng: np.random.Generator,
    memory: Memory = NOTHING,
) -> tuple[float, list[tuple[float, float, int]]]:
    """tau with the least error on a hidden share of the entries, and the (tau, error, rank) of the
    path to it; the path ends after two rises. With ``debias`` the error is that of the answer
    without shrinkage, which wants a lower rank: shrinkage keeps noise small, least squares does
    not.
    """
    if x.nnz < 10:
        return max(entries_norm(x) / 50, np.finfo(np.float64).tiny), []
    kept = memory.last()
    drawn = kept["drawn"] if kept else rng.bit_generator.state
    parts = split(x, share, random_state=generator_at(rng, drawn) if kept else rng)
    train, test = parts.train, parts.test
    where = Sampling(test, engine)
    top, rises = (kept["top"], kept["rises"]) if kept else (_top(train, engine, rng), 0)
    table: list[tuple[float, float, int]] = [(a, b, c) for a, b, c in kept["table"]] if kept else []
    start = None
    while rises < 2 and len(table) < 40:
        tau, rank = (table[-1][0] / factor, table[-1][2]) if table else (top / factor, 0)
        state = {"drawn": drawn, "top": top, "rises": rises, "table": table}
        limit = 2 * rank + 10 if max_rank is None else min(2 * rank + 10, max_rank)
        found = solve(
            train,
            tau,
            max_rank=limit,
            tol=1e-2,
            max_iter=60,
            start=start,
            engine=engine,
            rng=rng,
            memory=memory.inner(state),
        )
        if found.trace.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt  # before there is an answer
        start, rank = (found.U, found.s, found.V), len(found.s)
        answer = debiased(train, found, engine=engine) if debias and rank else found
        _, square = where.residual(
            where.values(1.0, test.dtype), (answer.U * answer.s).astype(test.dtype), answer.V
        )
        error = float(np.sqrt(square / max(test.nnz, 1)))
        rises = 0 if error < 0.999 * min((row[1] for row in table), default=np.inf) else rises + 1
        table.append((tau, error, rank))
        if tau <= 1e-6 * table[0][0] or square == 0.0:
            break
    return min(table, key=lambda row: row[1])[0], table


def _top(x: Observed, engine: Any, rng: np.random.Generator) -> float:
    """tau_max = ||Pi(A)||_2, or 1 where that is 0."""
    pattern = Sampling(x, engine)
    return largest(pattern, pattern.values(1.0, np.float64), rng=rng, tol=1e-3) or 1.0


@dataclass(eq=False, repr=False)
class SoftImpute(SpectralCompleter):
    """Fill in noisy data by the nuclear norm: min 1/2 ||Pi(A - B)||_F^2 + tau ||B||_*. The rank is
    found, not given.

    Parameters
    ----------
    n_components : the largest rank; None sets no limit (with a limit that binds, the certificate
        says how far from the best it leaves us).
    loss : "squared", or what the values are: "logistic" (yes and no as 1 and 0), "ordered" or
        "ordered_probit" (grades), "poisson" (counts), "huber" or "absolute" (numbers, a few of them
        wild): min sum l(a_ij, o_ij + B_ij) + tau ||B||_*, o the biases that ``normalise`` takes
        out, on the scale of the natural parameter. Predictions are on the scale of the data.
        Thresholds of grades are those of their shares.
    tau : the price of the nuclear norm; 0 is reached as a limit. None chooses it by the error on a
        tenth of the entries, hidden for that.
    path : True, or a number of values: solve from tau_max = ||Pi(A)||_2 down to tau and keep the
        singular values on the way.
    debias : take the shrinkage back: the least-squares fit of the rank that was found, started from
        B.
    method : "descent" (steps at a fixed rank, new directions while the certificate asks for them)
        or "proximal" (accelerated Soft-Impute).
    normalise : what is taken out of the entries before the fit and put back after: "column", "row",
        "both", "global", "bias" or None (the plain convex problem). "auto": biases of rows and
        columns where values are ratings (few of them, each many times), else nothing. Under a loss
        of yes/no, grades or counts "bias", "global" or None, and "auto" is "bias".
    tol : the duality gap, as a share of the value.
    checkpoint : file in which the state is kept after steps; the same fit resumes from it after a
        crash, with the same bits.
    max_iter, random_state, engine, n_threads, verbose : most steps; seed; the engine; most threads
        (they do not change the result); progress bars.

    Attributes
    ----------
    fit_, certificate_, singular_values_, rank_, n_iter_, tau_, path_taus_, path_singular_values_.

    The certificate is a duality gap: no matrix of any rank has a lower value than this one less the
    gap. With ``debias`` it is that of ``SVP`` at the rank found.

    >>> rng = np.random.default_rng(0)
    >>> a = np.outer(rng.standard_normal(40), rng.standard_normal(30)) + 0.01 * rng.standard_normal((40, 30))
    >>> model = SoftImpute(tau=0.2, random_state=0).fit(np.where(rng.random(a.shape) < 0.5, a, np.nan))
    >>> model.rank_, model.certificate_.holds
    (1, True)

    References: Mazumder, Hastie and Tibshirani (2010).
    """

    n_components: int | None = param(None, optional(whole(1)))
    _: KW_ONLY
    loss: str = param("squared", factorized())
    tau: float | None = param(None, optional(number(0, above=True)))
    path: bool | int = param(
        False,
        either(flag(), whole(0, 100_000), wanted="True, False, or a number of values up to 100000"),
    )
    debias: bool = param(False, flag())
    method: Literal["descent", "proximal"] = param("descent")
    normalise: Literal["auto", "column", "row", "both", "bias", "global", None] = param(
        "auto", one_of("auto", *KINDS)
    )  # type: ignore[assignment]  # one more choice than its base
    tol: float = param(1e-3, number(0))
    max_iter: int = param(1000, whole(1))

    def _solve(self, x: Observed, weights: np.ndarray | None) -> Fit:
        if self.loss == "squared":
            return super()._solve(x, weights)
        self._check(x)
        for name, value, wanted in (
            ("path", self.path, False),
            ("debias", self.debias, False),
            ("checkpoint", self.checkpoint, None),
        ):
            if value != wanted:
                raise invalid(name, value, f"{wanted} with loss={self.loss!r}")
        if weights is not None:
            raise InputError(
                "weights= came, SoftImpute counts every entry alike; use ALS for weighted entries"
            )
        if parts_of(x) is not None:
            raise InputError(
                f"loss must be 'squared' for data in parts, got {self.loss!r}. Use "
                f"ALS(loss={self.loss!r})."
            )
        loss = loss_for(self.loss, x, None)
        by = taken_out(loss, self.normalise)
        if by not in (None, "global", "bias"):
            raise invalid(
                "normalise",
                self.normalise,
                f"'auto', 'bias', 'global' or None with loss={self.loss!r}",
            )
        y, engine, rng = encoded(x, loss), self._engine(), generator(self.random_state)
        limit = {"max_rank": self.n_components, "engine": engine, "rng": rng}
        tau, table = (
            (self.tau, None) if self.tau is not None else choose_loss_tau(y, loss, by, **limit)
        )
        fixed = fixed_part(y, loss, by, engine)
        with progress(self.verbose) as watch:
            found = solve_loss(
                y,
                loss,
                fixed.entries,
                tau,
                tol=0.5 * self.tol,
                max_iter=self.max_iter,
                watch=watch,
                **limit,
            )
        bare = balanced(found, y)
        b, c = (
            None if a is None else np.asarray(a, bare.dtype)
            for a in (fixed.row_bias, fixed.column_bias)
        )
        factors = LowRank(bare.left, bare.right, fixed.mean, b, c, rows=x.rows, columns=x.columns)
        plan: dict[str, Any] = plan_of(engine) | {
            "solver": "accelerated proximal steps",
            "normalise": str(by),
            "tau": float(tau),
            "fold_l2": float(tau),
            "loss": loss.to_state(),
        }
        if table is not None:
            plan["tau chosen on hidden entries"] = [
                [float(a), float(b), int(c)] for a, b, c in table
            ]
        self.normaliser_ = None
        certificate = loss_gap_certificate(
            y,
            factors,
            loss,
            float(tau),
            tol=at_least(self.tol, y, 100),
            rng=np.random.default_rng(0),
            engine=engine,
        )
        if found.trace.reason in (StopReason.MAX_ITER, StopReason.INTERRUPTED):
            plan["stopped"] = found.trace.reason.value
        return Fit(factors, certificate, found.trace, plan)

    def _fold_rule(self) -> RidgeRule:
        rule = super()._fold_rule()
        if self._loss() is None or self._lowrank().row_bias is None:
            return rule
        return rule._replace(bias=True, bias_l2=BIAS_RIDGE)

    def _as_fitted(self, x: Observed) -> Observed:
        loss = self._loss()
        return x if loss is None else encoded(x, loss)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        check_is_fitted(self)
        loss = self._loss()
        if loss is None:
            return super().certify(X)
        x, f = self._as_of_fit(self._judged(X)), self._lowrank()
        tol, rng = at_least(self.tol, x, 100), np.random.default_rng(0)
        tau = float(self.fit_.plan["tau"])
        return loss_gap_certificate(
            encoded(x, loss), f, loss, tau, tol=tol, rng=rng, engine=self._engine()
        )

    def _normalise_by(self, x: Observed) -> str | None:
        if self.normalise != "auto":
            return self.normalise
        return "bias" if on_a_scale(x) is not None else None

    def _claimed(self, x: Observed) -> float | None:
        """The least error on hidden entries, where some were hidden to choose tau."""
        table = self.fit_.plan.get("tau chosen on hidden entries")
        return min(float(error) for _, error, _ in table) if table else None

    @fitted
    def tau_(self) -> float:
        """The price that was used."""
        return float(self._fitted("tau_").plan["tau"])

    @fitted
    def path_taus_(self) -> np.ndarray:
        """Values of tau along the path, falling."""
        return np.array(self._path("path_taus_")["taus"])

    @fitted
    def path_singular_values_(self) -> list[np.ndarray]:
        """Singular values at each of them."""
        return [np.array(values) for values in self._path("path_singular_values_")["values"]]

    def _path(self, name: str) -> dict[str, Any]:
        plan = self._fitted(name).plan
        if "path" not in plan:
            raise AttributeError(f"{name} is kept with path=True only")
        return plan["path"]

    def _find(
        self, x: Observed, engine: Any, rng: np.random.Generator, watch: Watcher, memory: Memory
    ) -> tuple[Solution, dict[str, Any]]:
        done: dict[str, Any] = memory.last() or {}
        tau = self.tau
        if tau is None:
            if "tau" not in done:
                done["tau"], done["table"] = choose_tau(
                    x,
                    max_rank=self.n_components,
                    debias=self.debias,
                    engine=engine,
                    rng=rng,
                    memory=memory.inner(done),
                )
            tau = done["tau"]
        if self.path and "top" not in done:
            done["top"] = _top(x, engine, rng)
        if "found" not in done:
            found = solve(
                x,
                self._goals(tau, done),
                max_rank=self.n_components,
                method=self.method,
                tol=0.25 * self.tol,
                max_iter=self.max_iter,
                engine=engine,
                rng=rng,
                watch=watch,
                memory=memory.inner(done),
            )
            done["found"] = (found.U, found.s, found.V, found.trace.to_dict)
            done["path"] = [(step.tau, step.values) for step in found.evidence["path"]]
        else:
            u, s, v, trace = done["found"]
            found = Solution(u, s, v, Trace.from_dict(trace), {})
        if self.debias:
            whole = found.trace.reason is not StopReason.INTERRUPTED
            found = debiased(
                x,
                found,
                tol=self.tol,
                engine=engine,
                memory=memory.inner(done) if whole else NOTHING,
            )
        return found, self._path_facts(tau, done)

    def _goals(self, tau: float, done: dict[str, Any]) -> Any:
        """tau, or the values of the path to it."""
        if not self.path:
            return tau
        count = 10 if self.path is True else int(self.path)
        return (
            np.geomspace(done["top"], tau, count) if done["top"] > tau else np.array([tau], float)
        )

    def _path_facts(self, tau: float, done: dict[str, Any]) -> dict[str, Any]:
        """For the plan: what was chosen and met on the way."""
        facts: dict[str, Any] = {}
        if self.tau is None:
            facts["tau chosen on hidden entries"] = [
                [float(a), float(b), int(c)] for a, b, c in done["table"]
            ]
        facts |= {"tau": float(tau), "fold_l2": 0.0 if self.debias else float(tau)}
        if self.path:
            taus, values = zip(*done["path"]) if done["path"] else ((), ())
            facts["path"] = {"taus": list(taus), "values": [v.tolist() for v in values]}
        return facts

    def _evidence(
        self, x: Observed, f: LowRank, plan: dict[str, Any], engine: Any, rng: np.random.Generator
    ) -> Certificate:
        tol, fitted = (at_least(limit, x, roundings=100) for limit in (self.tol, 1e-8))
        if self.debias:
            return svp_certificate(x, f, tol=1.5 * tol, fitted=fitted, rng=rng, engine=engine)
        return gap_certificate(x, f, float(plan["tau"]), tol=tol, rng=rng, engine=engine)
