"""ALS: matrix factorization by alternating least squares, for ratings and for implicit feedback.
The loop is in ``alternate``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.losses import certify_loss, relative_loss_gradient
from eckart.certify.mapped import MappedProblem, certify_mapped, look
from eckart.certify.stationary import RidgePoint, RidgeProblem, certify_factors, relative_gradient
from eckart.complete.factors import mapped
from eckart.complete.factors.alternate import (
    AlternatingState,
    LogScaling,
    SweepStop,
    alternate,
    resumed,
    start,
)
from eckart.complete.factors.choices import Choices
from eckart.complete.factors.hidden_lists import popularity
from eckart.complete.factors.hidden_share import ChosenRidge
from eckart.complete.factors.majorise import (
    centre,
    encoded,
    factorized,
    loss_for,
    touched,
)
from eckart.complete.factors.mapped_model import MappedModel
from eckart.complete.folding import cast, entry_weights, limits, mean_of
from eckart.complete.normalise import KINDS, Normaliser, normalise
from eckart.complete.side_information import NO_SIDE_INFORMATION, SideInformation, fingerprint
from eckart.complete.split import split
from eckart.engines.protocol import RidgeRule
from eckart.errors import FileError, InputError
from eckart.factors import LowRank
from eckart.fit import Fit, fitted, plan_of
from eckart.io.models.checkpoint import resuming
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of
from eckart.parameters import file_name, flag, number, one_of, optional, param, whole
from eckart.terms import Loss, loss_named
from eckart.trace import progress


@dataclass(eq=False, repr=False)
class ALS(Choices, MappedModel):
    """Fill in a partially observed matrix with U V^T (and biases) by alternating least squares.

    Explicit feedback: min 1/2 sum w_ij (a_ij - mean - b_i - c_j - u_i.v_j)^2 + 1/2 sum_i l_i
    ||u_i||^2 + 1/2 sum_j m_j ||v_j||^2 over the observed entries, l_i = l2 n_i^l2_power. Implicit
    feedback: min 1/2 sum_observed alpha r_ij (1 - s_ij)^2 + 1/2 a0 sum_all s_ij^2 + the same
    penalties with n_i counted as n_i + a0 m (the form of "Revisiting iALS"), s_ij = u_i.v_j.

    Parameters
    ----------
    n_components : k; None takes 16 for ratings and 64 for implicit feedback (no more than the
        matrix has rows or columns, but 16 at least): the ridge of ratings leaves no more, while
        lists go on gaining.
    feedback : "explicit" (values are ratings or measurements) or "implicit" (values are strengths
        >= 0 of an interaction; absent is a weak no).
    loss : "squared", or what the values are: "logistic" (yes and no as 1 and 0), "ordered" or
        "ordered_probit" (grades, whose thresholds are learned), "poisson" (counts), "huber" or
        "absolute" (numbers, a few of them wild), "quantile 0.9" (the value that nine tenths stay
        below; any other share alike). Predictions are on the scale of the data:
        probabilities, grades, rates. Explicit feedback only; see ``eckart.terms``.
    l2 : the ridge; None chooses it on hidden entries: for ratings in units of the noise that biases
        leave, and codes are zero where they say no more than biases do (``factors.hidden_share``;
        of entries in parts, or more than 4 million, on a sample of rows), for implicit feedback by
        the places of hidden entries in the lists (``factors.hidden_lists``; of more than 300,000
        entries or 20,000 rows on a sample). 0 is allowed: least squares of minimum norm.
    l2_power : 1 scales the ridge by each row's count, 0 is one ridge for all. None takes 1, or
        where l2 is chosen 1/2 (3/4 for yes and no).
    biases : learn b_i and c_j with the ridge ``l2_bias`` n_i^``l2_bias_power`` (None: those of
        codes; where l2 is chosen, a number of entries chosen on hidden ones, with the power 0).
        Explicit feedback only.
    nonnegative : U, V >= 0.
    alpha, unobserved_weight, zeros : weights of implicit feedback: alpha r_ij for the observed, a0
        for zeros on "all" cells or on "unobserved" ones only (then an observed cell has weight a0 +
        alpha r_ij: with a0 = 1 the classical 1 + alpha r). a0 None: all cells weigh ten times as
        much as the observed entries together.
    strengths : what becomes of the values r of implicit feedback: "raw", "log": log(1 + r / median)
        with the mean 3, or "auto": "log" where the largest is more than 20 times the median (plays,
        counts, seconds) and alpha is 1. Otherwise a few large counts outweigh all else.
    normalise : what is taken out before the fit and put back after: "column", "row", "both",
        "global", "bias" or None. "auto": nothing when biases are learned or feedback is implicit or
        factors are nonnegative, else "column". ``scale=True`` also divides by standard deviations.
    solver : "cholesky" solves every row exactly (rows with few entries in the space of their
        entries), "cg" improves it by ``cg_steps`` steps of conjugate gradients; "auto" takes cg
        from k = 64 on where it applies (no biases, factors of any sign, l2 > 0).
    stop : "decrease" (relative decrease of the objective a sweep <= tol), "gradient" (relative
        gradient <= tol) or "held_out" (the error on a share ``held_out`` of the entries has not
        fallen for ``patience`` sweeps; the best sweep is kept).
    l2_features : the ridge of the maps from attributes (``row_features=``, ``column_features=`` of
        ``fit``) to codes and biases; None takes three times the root of the number of rows (or
        columns) times their mean ridge.
    max_iter : most sweeps.
    clip : predictions stay inside (low, high), the observed range (True), or anywhere (False);
        "auto": the range of a rating scale (few values, each many times), 0 to the largest count
        for rates (``loss="poisson"``), nothing for implicit feedback.
    warm_start : fit again from the present factors; a larger ``n_components`` adds dimensions and
        keeps the old ones.
    checkpoint : file in which the state is kept after sweeps; the same fit resumes from it after a
        crash, with the same bits.
    random_state, n_threads, verbose : seed; most threads (the result does not depend on them);
        progress bars.
    engine : "auto", "cpu", "numpy", the name of another engine, or an engine: what the computation
        runs on.

    Attributes
    ----------
    fit_ : factors (``LowRank``), certificate, trace, plan.
    certificate_, row_factors_, column_factors_, row_biases_, column_biases_, mean_, n_iter_,
        objective_, held_out_errors_ : what the fit found.

    The certificate says how near the returned point is to a critical point (relative gradient) and,
    where the weighted residual D^-1/2 R D^-1/2 has spectral norm <= l2, that it is a global
    minimiser of the (weighted) nuclear-norm problem, over all ranks.

    >>> import numpy as np
    >>> a = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 0.5, 2.0]); a[0, 2] = np.nan
    >>> model = ALS(1, l2=1e-6, biases=False, normalise=None, random_state=0, tol=1e-12).fit(a)
    >>> float(model.predict(0, 2)[0].round(3)), model.certificate_.holds
    (2.0, True)

    References: Koren, Bell, Volinsky 2009; Hu, Koren, Volinsky 2008; Zhou et al. 2008; Rendle et
    al. 2022.
    """

    n_components: int | None = param(None, optional(whole(1)))
    _: KW_ONLY
    feedback: Literal["explicit", "implicit"] = param("explicit")
    loss: str = param("squared", factorized())
    l2: float | None = param(None, optional(number(0)))
    # beyond it the power of a count leaves the range
    l2_power: float | None = param(None, optional(number(0, 10)))
    biases: bool = param(True, flag())
    l2_bias: float | None = param(None, optional(number(0)))
    l2_bias_power: float | None = param(None, optional(number(0, 10)))
    l2_features: float | None = param(None, optional(number(0, above=True)))
    nonnegative: bool = param(False, flag())
    alpha: float = param(1.0, number(0))
    unobserved_weight: float | None = param(None, optional(number(0)))
    zeros: Literal["all", "unobserved"] = param("all")
    strengths: Literal["auto", "raw", "log"] = param("auto")
    normalise: Literal["auto", "column", "row", "both", "bias", "global", None] = param(
        "auto", one_of("auto", *KINDS)
    )
    scale: bool = param(False, flag())
    solver: Literal["auto", "cholesky", "cg"] = param("auto")
    cg_steps: int = param(3, whole(1))
    stop: Literal["decrease", "gradient", "held_out"] = param("decrease")
    tol: float = param(1e-4, number(0))
    max_iter: int = param(50, whole(1))
    held_out: float = param(0.1, number(0, above=True))
    patience: int = param(3, whole(1))
    clip: Any = param("auto")
    warm_start: bool = param(False, flag())
    checkpoint: Any = param(None, file_name())

    @fitted
    def row_factors_(self) -> np.ndarray:
        """U, rows x k."""
        return self._lowrank().left

    @fitted
    def column_factors_(self) -> np.ndarray:
        """V, columns x k."""
        return self._lowrank().right

    @fitted
    def n_iter_(self) -> int:
        """Sweeps done."""
        return int(self._fitted("n_iter_").plan["sweeps"])

    @fitted
    def objective_(self) -> float:
        """F at the returned point."""
        return float(self.certificate_["objective"])

    @fitted
    def held_out_errors_(self) -> list[float]:
        """Error on the held-out entries after each sweep (stop="held_out")."""
        return list(self._fitted("held_out_errors_").plan.get("held_out_errors", []))

    def _solve(
        self,
        x: Observed,
        weights: np.ndarray | None,
        side_information: SideInformation = NO_SIDE_INFORMATION,
    ) -> Fit:
        self._check(x)
        self._check_side_information(side_information)
        scaling = self._log_scaling(x)
        engine = self._engine()
        x = x if scaling is None else scaling.of(x)
        by = self._normalise_by()
        for choice, met, wanted in (
            (
                "stop='held_out'",
                self.stop == "held_out",
                "stop='decrease' or 'gradient' with weights",
            ),
            (
                "feedback='implicit'",
                self.feedback == "implicit",
                "the strengths in X itself: they are the weights",
            ),
        ):
            if weights is not None and met:
                raise InputError(f"weights need {wanted}, got {choice}")
        has_features = side_information.rows is not None or side_information.columns is not None
        ridge, reason, hidden, note = self._chosen(
            x, weights, flat=not has_features, equal_powers=has_features
        )
        loss = None if self.loss == "squared" else loss_for(self.loss, x, weights)
        whole, x = x, x if loss is None else encoded(x, loss)
        with resuming(
            self, whole, weights, ignored=("max_iter",), y=fingerprint(side_information)
        ) as (
            memory,
            rng,
        ):
            held = split(x, self.held_out, random_state=rng) if self.stop == "held_out" else None
            train, judge = (x, None) if held is None else (held.train, held.test)
            norm = None
            if by is not None:
                norm, train = normalise(train, by, scale=self.scale, engine=engine)
                judge = None if judge is None else norm.apply(judge)
            mean = mean_of(train, weights) if self.biases and self.feedback == "explicit" else 0.0
            if loss is not None:
                mean = centre(train, loss, weights) if self.biases else 0.0
            with engine.at_work(), progress(self.verbose) as watch:
                problem = self._problem(engine, train, weights, ridge)
                maps = self._mapped(engine, problem, side_information)
                kept = memory.last()
                start_point = (
                    (
                        self._begin(
                            problem, mean, engine, rng, loss, facts_of(train).deviation or 1.0, maps
                        ),
                        None,
                    )
                    if kept is None
                    else resumed(kept, engine)
                )
                slope = relative_gradient if loss is None else relative_loss_gradient
                rule = SweepStop(
                    self.stop,
                    self.tol,
                    self.max_iter,
                    self.patience,
                    None if judge is None else _held_out(engine, engine.put(judge), maps),
                    lambda point: (
                        slope(problem, point, engine)
                        if maps is None
                        else look(maps, point, engine).slope
                    ),
                )
                if maps is None:
                    state, trace, errors = alternate(
                        problem, start_point[0], rule, engine, watch, memory, start_point[1]
                    )
                    proof = certify_factors if loss is None else certify_loss
                    certificate = proof(problem, state.point, engine, trace, errors)
                    point = state.point._replace(
                        **{name: engine.get(a) for name, a in state.point.tall().items()}
                    )
                else:
                    state, trace, errors = alternate(
                        maps,
                        start_point[0],
                        rule,
                        engine,
                        watch,
                        memory,
                        start_point[1],
                        mapped.sweep,
                    )
                    certificate = certify_mapped(maps, state.point, engine, trace, errors)
                    point = mapped.finished(maps, state.point, side_information, engine)
                factors = self._factors(point, norm, x)
                if ridge.popularity and maps is None:
                    bias = ridge.popularity * popularity(x)
                    factors = replace(factors, column_bias=cast(bias, factors.left))
                    notes = (*certificate.notes, note) if note else certificate.notes
                    certificate = replace(certificate, notes=notes)
        memory.end(trace)
        steps = problem.cg_steps
        plan: dict[str, Any] = plan_of(engine) | {
            "solver": f"conjugate gradients, {steps} steps a row" if steps else "cholesky by rows",
            "normalise": str(by),
            "sweeps": state.sweeps,
            **(ridge if maps is None else ridge._replace(popularity=None)).summary(),
        }
        if reason:
            plan["l2_reason"] = reason
        if hidden:
            plan["hidden entries"] = hidden
        if loss is not None:
            loss = state.point.loss
            plan["loss"] = loss.to_state()
        if errors:
            plan["held_out_errors"] = errors
        if scaling is not None:
            plan["strengths"] = asdict(scaling)
        rates = self.loss == "poisson"
        clip = (
            self.clip
            if self.feedback == "explicit" and (rates or loss_named(self.loss).location)
            else False
        )
        if (low_high := limits(clip, whole, rates)) is not None:
            plan["clip"] = low_high
        if maps is not None:
            plan |= {
                "l2_features": [maps.rows.rho, maps.columns.rho],
                "solver": "cholesky by rows, maps by ridge",
            }
        self.normaliser_, self.maps_ = (
            norm,
            None if maps is None else mapped.Fitted.of(maps, state.point),
        )
        return Fit(factors, certificate, trace, plan)

    def _factors(self, s: RidgePoint, norm: Normaliser | None, x: Observed) -> LowRank:
        """Factors in the units of the data: the normaliser's numbers become biases and scales."""
        left, right = np.ascontiguousarray(s.left), np.ascontiguousarray(s.right)
        if norm is None:
            return LowRank(
                left, right, s.mean, s.row_bias, s.column_bias, rows=x.rows, columns=x.columns
            )
        return LowRank(
            left,
            right,
            norm.mean,
            cast(norm.row_offset, left),
            cast(norm.column_offset, left),
            cast(norm.row_scale, left),
            cast(norm.column_scale, left),
            x.rows,
            x.columns,
        )

    def _begin(
        self,
        problem: RidgeProblem,
        mean: float,
        engine: Any,
        rng: np.random.Generator,
        loss: Loss | None,
        spread: float,
        maps: Any = None,
    ) -> AlternatingState:
        near = problem if loss is None else touched(problem, loss, mean, engine)
        rank = self._rank(problem.x.shape)
        unit = (
            1.0
            if (loss is not None and not loss.location) or self.feedback == "implicit"
            else spread
        )
        point, right = start(near, rank, mean, engine, rng, unit)
        point = point._replace(loss=loss)
        if self.warm_start and "fit_" in vars(self):
            old = self._lowrank()
            if old.shape != problem.x.shape:
                raise InputError(
                    f"X has shape {problem.x.shape}, the fitted model {old.shape}: "
                    "warm_start=True wants the same rows and columns; use update for "
                    "new ones"
                )
            k = min(old.k, rank)
            left = np.array(engine.get(point.left))
            right[:, k:] *= right.dtype.type(0.1)
            right[:, :k], left[:, :k] = old.right[:, :k], old.left[:, :k]
            if self.nonnegative:
                left, right = np.maximum(left, 0), np.maximum(right, 0)
            point = point._replace(left=engine.take(left))
            if point.column_bias is not None and old.column_bias is not None:
                point = point._replace(column_bias=engine.take(old.column_bias))
        if maps is not None:
            bias = None if point.column_bias is None else engine.get(point.column_bias)
            return mapped.begin(maps, right, bias, mean, loss, engine)
        return AlternatingState(point._replace(right=engine.take(right)))

    def _problem(
        self, engine: Any, x: Observed, weights: np.ndarray | None, ridge: ChosenRidge
    ) -> RidgeProblem:
        placed, steps = (
            engine.put(x, entry_weights=weights),
            self._cg(ridge.l2, self._rank(x.shape)),
        )
        return RidgeProblem.of(
            engine, placed, self._rule(ridge), ridge.unobserved_weight or 0.0, steps
        )

    def _mapped(
        self, engine: Any, problem: RidgeProblem, side_information: SideInformation
    ) -> MappedProblem | None:
        """The problem with attributes, where there are any."""
        if side_information.rows is None and side_information.columns is None:
            return None
        numbers = [
            None if side is None else side.numbers
            for side in (side_information.rows, side_information.columns)
        ]
        rho = None if self.l2_features is None else float(self.l2_features)
        return mapped.mapped(engine, problem, (numbers[0], numbers[1]), rho)

    def _as_fitted(self, x: Observed) -> Observed:
        kept, loss = self.fit_.plan.get("strengths"), self._loss()
        if loss is not None:
            return encoded(x, loss)
        return x if kept is None else LogScaling(float(kept["median"]), float(kept["mean"])).of(x)

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        kept = fit.plan.get("strengths")
        if kept is not None and not (float(kept["median"]) > 0 and float(kept["mean"]) > 0):
            raise FileError(f"strengths must be a median and a mean above 0, got {kept!r}")
        if not isinstance(lean := fit.plan.get("popularity", 0.0), float) or lean < 0:
            raise FileError(f"popularity must be a number >= 0, got {lean!r}")
        super()._store(fit, arrays)

    def certify(self, X: Any, weights: Any = None) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        x = self._as_of_fit(self._with_all_rows(self._judged(X)))
        f, norm = self._lowrank(), self.normaliser_
        engine = self._engine()
        with engine.at_work():
            y = self._as_fitted(x)
            y = y if norm is None else norm.apply(y)
            problem = self._problem(engine, y, entry_weights(weights, x), self._ridge_used())
            if self.maps_ is not None:
                return self._certify_mapped(problem, x, engine)
            u, v, b, c = (
                None if a is None else engine.take(a, x.dtype)
                for a in (f.left, f.right, f.row_bias, f.column_bias)
            )
            point = RidgePoint(u, v, b, c, f.mean, loss=self._loss())
            if norm is not None or self.feedback == "implicit":  # popularity is no part of F
                point = point._replace(row_bias=None, column_bias=None, mean=0.0)
            proof = certify_factors if point.loss is None else certify_loss
            return proof(problem, point, engine, self.fit_.trace)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.feedback == "implicit"
        return tags


def _held_out(engine: Any, judge: Any, maps: MappedProblem | None) -> Callable[[RidgePoint], float]:
    """Root mean squared error (or mean loss) on the held-out entries, of a point."""

    def error(s: RidgePoint) -> float:
        s = s if maps is None else mapped.plain_point(maps, s, engine)
        biases = {"own": s.row_bias, "other": s.column_bias}
        if s.loss is not None:
            return float(
                engine.loss_sums(judge, s.loss, s.left, s.right, mean=s.mean, **biases).value
                / judge.nnz
            )
        misfit = engine.evidence_rows(
            judge, s.left, s.right, RidgeRule(0.0), mean=s.mean, **biases
        ).value
        return float(np.sqrt(2.0 * misfit / judge.nnz))

    return error
