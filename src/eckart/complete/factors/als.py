"""ALS: matrix factorization by alternating least squares, for ratings and for implicit feedback. The loop is in ``alternate``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numba  # noqa: F401  (what ALS runs on: loading it belongs to the import, not to the first fit)
import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.stationary import certify_factors, relative_gradient
from eckart.complete.completer import Completer
from eckart.complete.factors.alternate import Sides, State, Stop, alternate, resumed, snapshot, start
from eckart.complete.folding import cast, limits
from eckart.complete.normalise import Normaliser, normalise
from eckart.complete.split import split
from eckart.engines import engine_named
from eckart.engines.protocol import RidgeRule
from eckart.errors import InputError, wrong
from eckart.factors import LowRank
from eckart.fit import Fit
from eckart.io.models.checkpoint import Checkpoint
from eckart.matrix import Observed
from eckart.rng import generator
from eckart.scheduler import single_threaded_blas
from eckart.trace import StopReason, progress


class ALS(Completer):
    """Fill in a partially observed matrix with U V^T (and biases) by alternating least squares.

    Explicit feedback: min 1/2 sum w_ij (a_ij - mean - b_i - c_j - u_i.v_j)^2 + 1/2 sum_i l_i ||u_i||^2 + 1/2 sum_j m_j ||v_j||^2 over the observed
    entries, l_i = l2 n_i^l2_power. Implicit feedback: min 1/2 sum_observed alpha r_ij (1 - s_ij)^2 + 1/2 a0 sum_all s_ij^2 + the same penalties
    with n_i counted as n_i + a0 m (the form of "Revisiting iALS"), s_ij = u_i.v_j.

    Parameters
    ----------
    n_components : k.
    feedback : "explicit" (values are ratings or measurements) or "implicit" (values are strengths >= 0 of an interaction; absent is a weak no).
    l2 : the ridge; None takes 0.05 (explicit) or 0.003 (implicit). 0 is allowed: least squares of minimum norm.
    l2_power : 1 scales the ridge by each row's count, 0 is one ridge for all. None takes 1.
    biases : learn b_i and c_j with the ridge ``l2_bias`` (None: the same as l2). Explicit feedback only.
    nonnegative : U, V >= 0.
    alpha, unobserved_weight, zeros : weights of implicit feedback: alpha r_ij for the observed, a0 for zeros on "all" cells or on "unobserved" ones
        only (then an observed cell has weight a0 + alpha r_ij: with a0 = 1 the classical 1 + alpha r).
    normalise : what is taken out before the fit and put back after: "column", "row", "both", "global", "bias" or None. "auto": nothing when biases are
        learned or feedback is implicit or factors are nonnegative, else "column". ``scale=True`` also divides by standard deviations.
    solver : "cholesky" solves every row exactly (rows with few entries in the space of their entries), "cg" improves it by ``cg_steps`` steps of
        conjugate gradients; "auto" takes cg from k = 128 on where it applies (no biases, factors of any sign, l2 > 0).
    stop : "decrease" (relative decrease of the objective a sweep <= tol), "gradient" (relative gradient <= tol) or "held_out" (the error on a
        share ``held_out`` of the entries has not fallen for ``patience`` sweeps; the best sweep is kept).
    max_iter : most sweeps.
    clip : predictions stay inside (low, high), the observed range (True), or anywhere (False); "auto": the range of a rating scale (few values, each many
        times), nothing for implicit feedback.
    warm_start : fit again from the present factors; a larger ``n_components`` adds dimensions and keeps the old ones.
    checkpoint : file in which the state is kept after sweeps; the same fit resumes from it after a crash, with the same bits.
    random_state, n_threads, verbose : seed; most threads (the result does not depend on them); progress bars.

    Attributes
    ----------
    fit_ : factors (``LowRank``), certificate, trace, plan. certificate_, row_factors_, column_factors_, row_biases_, column_biases_, mean_, n_iter_,
    objective_, held_out_errors_.

    The certificate says how near the returned point is to a critical point (relative gradient) and, where the weighted residual D^-1/2 R D^-1/2 has
    spectral norm <= l2, that it is a global minimiser of the (weighted) nuclear-norm problem, over all ranks.

    >>> import numpy as np
    >>> a = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 0.5, 2.0]); a[0, 2] = np.nan
    >>> model = ALS(1, l2=1e-6, biases=False, normalise=None, random_state=0, tol=1e-12).fit(a)
    >>> float(model.predict(0, 2)[0].round(3)), model.certificate_.holds
    (2.0, True)

    References: Koren, Bell, Volinsky 2009; Hu, Koren, Volinsky 2008; Zhou et al. 2008; Rendle et al. 2022.
    """

    def __init__(
        self,
        n_components: int = 16,
        *,
        feedback: str = "explicit",
        l2: float | None = None,
        l2_power: float | None = None,
        biases: bool = True,
        l2_bias: float | None = None,
        nonnegative: bool = False,
        alpha: float = 1.0,
        unobserved_weight: float = 0.1,
        zeros: str = "all",
        normalise: str | None = "auto",
        scale: bool = False,
        solver: str = "auto",
        cg_steps: int = 3,
        stop: str = "decrease",
        tol: float = 1e-4,
        max_iter: int = 50,
        held_out: float = 0.1,
        patience: int = 3,
        clip: Any = "auto",
        warm_start: bool = False,
        checkpoint: Any = None,
        random_state: Any = None,
        n_threads: int | None = None,
        verbose: bool = False,
    ):
        self.n_components = n_components
        self.feedback = feedback
        self.l2 = l2
        self.l2_power = l2_power
        self.biases = biases
        self.l2_bias = l2_bias
        self.nonnegative = nonnegative
        self.alpha = alpha
        self.unobserved_weight = unobserved_weight
        self.zeros = zeros
        self.normalise = normalise
        self.scale = scale
        self.solver = solver
        self.cg_steps = cg_steps
        self.stop = stop
        self.tol = tol
        self.max_iter = max_iter
        self.held_out = held_out
        self.patience = patience
        self.clip = clip
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    @property
    def row_factors_(self) -> np.ndarray:
        """U, rows x k."""
        return self._lowrank().left

    @property
    def column_factors_(self) -> np.ndarray:
        """V, columns x k."""
        return self._lowrank().right

    @property
    def n_iter_(self) -> int:
        """Sweeps done."""
        return int(self._fitted("n_iter_").plan["sweeps"])

    @property
    def objective_(self) -> float:
        """F at the returned point."""
        return float(self.certificate_["objective"])

    @property
    def held_out_errors_(self) -> list[float]:
        """Error on the held-out entries after each sweep (stop="held_out")."""
        return list(self._fitted("held_out_errors_").plan.get("held_out_errors", []))

    def _solve(self, x: Observed, weights: np.ndarray | None) -> Fit:
        self._check(x)
        engine, rng = engine_named("cpu", self.n_threads), generator(self.random_state)
        by = self._normalise_by()
        held = split(x, self.held_out, random_state=rng) if self.stop == "held_out" else None
        train, judge = (x, None) if held is None else (held.train, held.test)
        norm = None
        if by is not None:
            norm, train = normalise(train, by, scale=self.scale)
            judge = None if judge is None else norm.apply(judge)
        for choice, met, wanted in (
            ("stop='held_out'", self.stop == "held_out", "stop='decrease' or 'gradient' with weights"),
            ("feedback='implicit'", self.feedback == "implicit", "the strengths in X itself: they are the weights"),
        ):
            if weights is not None and met:
                raise InputError(f"weights= came with {choice}, wanted {wanted}")
        sides = self._sides(train, weights)
        mean = float(np.average(train.data, weights=weights)) if self.biases and self.feedback == "explicit" else 0.0
        keeper = self._keeper(x, weights)
        with single_threaded_blas(), progress(self.verbose) as watch:
            kept = keeper.load() if keeper else None
            state, judged = resumed(*kept) if kept else (self._begin(sides, mean, engine, rng), None)
            rule = Stop(
                self.stop, self.tol, self.max_iter, self.patience,
                None if judge is None else lambda s: _held_out(s, judge, engine),
                lambda s: relative_gradient(sides, s, engine),
            )  # fmt: skip
            keep = None if keeper is None else lambda s, p: keeper.save(s.sweeps, snapshot(s, p))
            state, trace, errors = alternate(sides, state, rule, engine, watch, keep, judged)
            certificate = certify_factors(sides, state, engine, trace, self.nonnegative, errors)
        if keeper and trace.reason is not StopReason.INTERRUPTED:
            keeper.remove()
        method = f"conjugate gradients, {sides.cg_steps} steps a row" if sides.cg_steps else "cholesky by rows"
        plan: dict[str, Any] = {
            "engine": engine.name, "solver": method, "normalise": str(by), "sweeps": state.sweeps, "l2": self._l2(), "l2_power": self._power(),
        }  # fmt: skip
        if errors:
            plan["held_out_errors"] = errors
        if (low_high := limits(self.clip if self.feedback == "explicit" else False, x)) is not None:
            plan["clip"] = low_high
        self.normaliser_ = norm
        return Fit(self._factors(state, norm, x), certificate, trace, plan)

    def _factors(self, s: State, norm: Normaliser | None, x: Observed) -> LowRank:
        """Factors in the units of the data: the normaliser's numbers become biases and scales."""
        k = self.n_components
        left, right = np.ascontiguousarray(s.left[:, :k]), np.ascontiguousarray(s.right[:, :k])
        if norm is None:
            return LowRank(left, right, s.mean, s.row_bias, s.column_bias, rows=x.rows, columns=x.columns)
        return LowRank(
            left, right, norm.mean, cast(norm.row_offset, left), cast(norm.column_offset, left),
            cast(norm.row_scale, left), cast(norm.column_scale, left), x.rows, x.columns,
        )  # fmt: skip

    def _begin(self, sides: Sides, mean: float, engine: Any, rng: np.random.Generator) -> State:
        state = start(sides, self.n_components, mean, engine, rng)
        if not self.warm_start or "fit_" not in vars(self):
            return state
        old = self._lowrank()
        if old.shape != sides.x.shape:
            raise InputError(
                f"X has shape {sides.x.shape}, the fitted model {old.shape}: warm_start=True wants the same rows and columns; use update for new ones"
            )
        k = min(old.k, self.n_components)
        state.right[:, k:] *= state.right.dtype.type(0.1)
        state.right[:, :k] = old.right[:, :k]
        state.left[:, :k] = old.left[:, :k]
        if self.nonnegative:
            np.maximum(state.right, 0, out=state.right)
            np.maximum(state.left, 0, out=state.left)
        if state.column_bias is not None and old.column_bias is not None:
            state.column_bias = old.column_bias.copy()
        return state

    def _sides(self, x: Observed, weights: np.ndarray | None) -> Sides:
        n, m = x.shape
        rule = RidgeRule(self._l2(), self._power(), nonnegative=self.nonnegative)
        unobserved = 0.0
        if self.feedback == "explicit":
            rule = rule._replace(bias=self.biases, bias_l2=self._l2() if self.l2_bias is None else self.l2_bias)
        else:
            unobserved = float(self.unobserved_weight)
            rule = rule._replace(alpha=float(self.alpha), shift=unobserved if self.zeros == "unobserved" else 0.0)
        w, wt, xt = None, None, x.transposed()
        if weights is not None:
            w = weights.astype(x.dtype)
            wt = replace(x, data=w).transposed().data
        rule_t = rule._replace(extra=unobserved * n)
        return Sides(x, xt, w, wt, rule._replace(extra=unobserved * m), rule_t, unobserved, self._cg())

    def _fold_rule(self) -> RidgeRule:
        rule = RidgeRule(self._l2(), self._power(), nonnegative=self.nonnegative)
        if self.feedback == "implicit":
            shift = self.unobserved_weight if self.zeros == "unobserved" else 0.0
            return rule._replace(alpha=self.alpha, shift=shift, extra=self.unobserved_weight * self._lowrank().n)
        return rule._replace(bias=self.biases, bias_l2=self._l2() if self.l2_bias is None else self.l2_bias)

    def _fold_base(self, f: LowRank) -> np.ndarray | None:
        if self.feedback != "implicit":
            return None
        return float(self.unobserved_weight) * (f.right.T @ f.right).astype(np.float64)

    def certify(self, X: Any, weights: Any = None) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        from eckart.complete.folding import entry_weights

        x = self._aligned(X)
        f, norm = self._lowrank(), self.normaliser_
        if x.shape != f.shape:
            raise InputError(f"X has shape {x.shape}, wanted {f.shape}: the data that the model was fitted to")
        y = x if norm is None else norm.apply(x)
        learned = norm is None
        state = State(
            f.left,
            f.right,
            f.row_bias if learned else None,
            f.column_bias if learned else None,
            f.mean if learned else 0.0,
        )
        engine = engine_named("cpu", self.n_threads)
        with single_threaded_blas():
            return certify_factors(
                self._sides(y, entry_weights(weights, x)), state, engine, self.fit_.trace, self.nonnegative
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.feedback == "implicit"
        return tags

    def _l2(self) -> float:
        return float((0.05 if self.feedback == "explicit" else 0.003) if self.l2 is None else self.l2)

    def _power(self) -> float:
        return 1.0 if self.l2_power is None else float(self.l2_power)

    def _cg(self) -> int:
        """Steps of conjugate gradients, 0 for exact solutions."""
        apt = not (self.nonnegative or self._l2() <= 0 or (self.biases and self.feedback == "explicit"))
        if self.solver == "cg" and not apt:
            raise wrong("solver", "cg", "'auto' or 'cholesky' with biases, nonnegative factors or l2=0")
        return (
            self.cg_steps
            if apt and (self.solver == "cg" or (self.solver == "auto" and self.n_components >= CG_FROM))
            else 0
        )

    def _normalise_by(self) -> str | None:
        if self.normalise != "auto":
            return self.normalise
        return None if self.biases or self.feedback == "implicit" or self.nonnegative else "column"

    def _keeper(self, x: Observed, weights: np.ndarray | None) -> Checkpoint | None:
        return Checkpoint.of_fit(self, x, weights, ignored=("max_iter",), seconds=CHECKPOINT_SECONDS)

    def _check(self, x: Observed) -> None:
        k = self.n_components
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise wrong("n_components", k, "an int >= 1")
        for name, value, allowed in (
            ("feedback", self.feedback, ("explicit", "implicit")),
            ("stop", self.stop, ("decrease", "gradient", "held_out")),
            ("zeros", self.zeros, ("all", "unobserved")),
            ("solver", self.solver, ("auto", "cholesky", "cg")),
        ):
            if value not in allowed:
                raise wrong(name, value, " or ".join(repr(a) for a in allowed))
        for name, number, least in (
            ("l2", self.l2 or 0.0, 0.0), ("l2_power", self.l2_power or 0.0, 0.0), ("l2_bias", self.l2_bias or 0.0, 0.0),
            ("tol", self.tol, 0.0), ("max_iter", self.max_iter, 1),
            ("alpha", self.alpha, 0.0), ("unobserved_weight", self.unobserved_weight, 0.0), ("patience", self.patience, 1),
            ("cg_steps", self.cg_steps, 1),
        ):  # fmt: skip
            if not isinstance(number, (int, float, np.number)) or not np.isfinite(number) or number < least:
                raise wrong(name, number, f"a finite number >= {least}")
        if self.feedback == "implicit":
            self._check_implicit(x)
        elif self.biases and self._normalise_by() is not None:
            raise wrong(
                "normalise", self.normalise, "None or 'auto' with biases=True", "set biases=False to normalise instead"
            )

    def _check_implicit(self, x: Observed) -> None:
        if (x.data < 0).any():
            at = int(np.argmax(x.data < 0))
            row = int(np.searchsorted(x.indptr, at, side="right")) - 1
            raise InputError(
                f"Negative values in data: X holds {x.data[at]} at row {row}, column {x.indices[at]}, wanted strengths >= 0 with feedback='implicit'"
            )
        if self._normalise_by() is not None:
            raise wrong("normalise", self.normalise, "None or 'auto' with feedback='implicit'")
        if self.stop == "held_out":
            raise wrong(
                "stop", self.stop, "'decrease' or 'gradient' with feedback='implicit'", "tune() judges rankings"
            )


CHECKPOINT_SECONDS = 10.0
CG_FROM = 128


def _held_out(s: State, judge: Observed, engine: Any) -> float:
    """Root mean squared error on the held-out entries."""
    out = engine.sampled(judge, s.left, s.right).astype(np.float64) + s.mean
    if s.row_bias is not None and s.column_bias is not None:
        out += np.repeat(s.row_bias, judge.row_counts()) + s.column_bias[judge.indices]
    return float(np.sqrt(np.mean((judge.data - out) ** 2)))
