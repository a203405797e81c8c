"""What ``ALS`` takes where its parameters leave it open, and what cannot be asked of it at the same
time."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.complete.factors.alternate import LogScaling, log_scaling
from eckart.complete.factors.hidden_lists import choose as choose_for_lists
from eckart.complete.factors.hidden_lists import unobserved_weight
from eckart.complete.factors.hidden_share import ChosenRidge, RidgeChoice, Wanted, choose
from eckart.complete.factors.majorise import encoded, loss_for
from eckart.complete.folding import learned_columns, refuse_negative
from eckart.complete.normalise import Normaliser
from eckart.complete.plain_answers import Ridges
from eckart.complete.side_information import SideInformation
from eckart.engines import engine_named
from eckart.engines.protocol import RidgeRule
from eckart.errors import InputError, invalid
from eckart.factors import LowRank
from eckart.fit import require_room
from eckart.matrix import Observed
from eckart.matrix_blocks import parts_of
from eckart.terms import loss_named

POWER = 0.5
"""Of counts in a ridge that is chosen: the norm of noise, over it, then hardly depends on how much
is known of a row."""
LIST_RIDGE, LIST_WEIGHT = 0.003, 0.1
"""Ridge and unobserved weight of implicit feedback in models that were saved when these did not
follow the data."""
RANK, LIST_RANK = 16, 64
"""k where none is said, for ratings and for implicit feedback. Plays of music: Recall@10 is .095 at
16, .119 at 64; ratings do not gain beyond 16."""
COPIES = 3.0
"""Of the factors during a sweep on parts: old and new, and once more where they come from a
cluster, are bounded by a loss, or are judged on held-out entries."""
CG_FROM = 64
"""Rank from which conjugate gradients take less time for the same objective: a step costs k, a
Cholesky factor k^2 for each entry."""


class Choices:
    """Ridge, rank, solver and strengths of a fit, the rule of a row, and the checks of parameters
    against each other and the data."""

    def _rule(self: Any, ridge: ChosenRidge) -> RidgeRule:
        """The penalty of a row, but for the unobserved weight of its cells."""
        rule = RidgeRule(ridge.l2, ridge.l2_power, nonnegative=self.nonnegative)
        if self.feedback == "implicit":
            return rule._replace(
                alpha=float(self.alpha),
                shift=float(ridge.unobserved_weight or 0.0) if self.zeros == "unobserved" else 0.0,
            )
        return rule._replace(
            bias=bool(self.biases), bias_l2=ridge.l2_bias, bias_power=ridge.l2_bias_power
        )

    def ridge_for(self: Any, x: Observed, weights: np.ndarray | None = None) -> ChosenRidge:
        """The ridge of codes for these entries: as asked for, or chosen on hidden ones. A fit may
        leave out the codes."""
        scaling = self._log_scaling(x)
        return self._chosen(x if scaling is None else scaling.of(x), weights, flat=False).ridge

    def _chosen(
        self: Any,
        x: Observed,
        weights: np.ndarray | None = None,
        flat: bool = True,
        equal_powers: bool = False,
    ) -> RidgeChoice:
        """The ridge and why. ``flat``: codes may be left out where they say nothing;
        ``equal_powers``: that of biases grows like that of codes."""
        l2, power, bias, bias_power = self.l2, self.l2_power, self.l2_bias, self.l2_bias_power
        if self.feedback == "implicit":
            return self._chosen_for_lists(x)
        if l2 is not None:
            l2, power = float(l2), 1.0 if power is None else float(power)
            return RidgeChoice(
                ChosenRidge(
                    l2,
                    power,
                    l2 if bias is None else float(bias),
                    power if bias_power is None else float(bias_power),
                ),
                "",
                {},
            )
        power = (loss_named(self.loss).ridge or (0.0, POWER))[1] if power is None else float(power)
        if bias_power is None:
            bias_power = power if equal_powers or bias is not None else 0.0
        loss = None if self.loss == "squared" else loss_for(self.loss, x, weights)
        wanted = Wanted(
            min(self._rank(x.shape), *x.shape),
            power,
            self.biases,
            None if bias is None else float(bias),
            float(bias_power),
            self.nonnegative,
            self._normalise_by(),
            self.scale,
            loss,
            flat,
        )
        engine = self._engine() if parts_of(x) is None else engine_named("cpu", self.n_threads)
        with engine.at_work():
            return choose(x if loss is None else encoded(x, loss), wanted, engine, weights)

    def _chosen_for_lists(self: Any, x: Observed) -> RidgeChoice:
        """Of implicit feedback: a0 by the fill, the ridge and what popularity adds by hidden
        entries."""
        power, l2, given, lean, why, note = (
            1.0 if self.l2_power is None else float(self.l2_power),
            self.l2,
            self.unobserved_weight,
            None,
            "",
            "",
        )
        unobserved = float(unobserved_weight(x, float(self.alpha)) if given is None else given)
        if l2 is None:
            rank, engine = self._rank(x.shape), self._engine()
            # a sample is best looked at where it is
            if parts_of(x) is not None or engine.name.startswith("dask"):
                engine = engine_named("cpu", self.n_threads)
            rule = self._rule(ChosenRidge(0.0, power, 0.0, power, unobserved))
            with engine.at_work():
                l2, unobserved, lean, why, note = choose_for_lists(
                    x,
                    rule,
                    None if given is None else unobserved,
                    rank,
                    self._cg(1.0, rank),
                    engine,
                )
        return RidgeChoice(
            ChosenRidge(float(l2), power, float(l2), power, unobserved, lean or None), why, {}, note
        )

    def _log_scaling(self: Any, x: Observed) -> LogScaling | None:
        """How strengths are brought together before the fit; None where they stay as they are."""
        if self.feedback == "explicit" or self.strengths == "raw":
            return None
        return log_scaling(x, self.strengths == "log", self.alpha == 1.0)

    def _rank(self: Any, shape: tuple[int | None, int]) -> int:
        """k, as asked for or chosen."""
        if self.n_components is not None:
            return int(self.n_components)
        return (
            RANK
            if self.feedback == "explicit"
            else max(RANK, min(LIST_RANK, shape[0] or LIST_RANK, shape[1]))
        )

    def _cg(self: Any, l2: float, rank: int) -> int:
        """Steps of conjugate gradients, 0 for exact solutions."""
        apt = not (self.nonnegative or l2 <= 0 or (self.biases and self.feedback == "explicit"))
        if self.solver == "cg" and not apt:
            raise invalid(
                "solver", "cg", "'auto' or 'cholesky' with biases, nonnegative factors or l2=0"
            )
        return (
            self.cg_steps
            if apt and (self.solver == "cg" or (self.solver == "auto" and rank >= CG_FROM))
            else 0
        )

    def _normalise_by(self: Any) -> str | None:
        if self.normalise != "auto":
            return self.normalise
        plain = (
            self.biases
            or self.feedback == "implicit"
            or self.nonnegative
            or not loss_named(self.loss).location
        )
        return None if plain else "column"

    def _check(self: Any, x: Observed) -> None:
        rank = self._rank(x.shape)
        parts = parts_of(x) is not None
        copies = COPIES if parts else 1.0
        instead = (
            "lower it, or fit where there is more memory: factors of all rows stay in this process"
            if parts
            else "lower it"
        )
        require_room(
            "n_components", rank, copies * sum(x.shape) * float(rank), x.dtype.itemsize, instead
        )
        if self.loss != "squared" and self.feedback == "implicit":
            raise invalid(
                "loss",
                self.loss,
                "'squared' with feedback='implicit'",
                "use feedback='explicit' for what was observed",
            )
        if not loss_named(self.loss).location and self._normalise_by() is not None:
            raise invalid(
                "normalise",
                self.normalise,
                f"None or 'auto' with loss={self.loss!r}",
                "biases=True does what it would",
            )
        if self.feedback == "implicit":
            self._check_implicit(x)
        elif self.biases and self._normalise_by() is not None:
            raise invalid(
                "normalise",
                self.normalise,
                "None or 'auto' with biases=True",
                "set biases=False to normalise instead",
            )

    def _check_implicit(self: Any, x: Observed) -> None:
        refuse_negative(x, "with feedback='implicit'")
        if self._normalise_by() is not None:
            raise invalid("normalise", self.normalise, "None or 'auto' with feedback='implicit'")
        if self.stop == "held_out":
            raise invalid(
                "stop",
                self.stop,
                "'decrease' or 'gradient' with feedback='implicit'",
                "tune() judges rankings",
            )

    def _check_side_information(self: Any, side_information: SideInformation) -> None:
        if side_information.bins is not None:
            raise InputError(
                "time is for BayesianMF, which has bins of time, not for ALS. Leave it away."
            )
        if side_information.rows is None and side_information.columns is None:
            return
        for choice, met, wanted in (
            (
                "loss='poisson'",
                self.loss == "poisson",
                "another loss, or BayesianMF(likelihood='poisson')",
            ),
            ("nonnegative=True", self.nonnegative, "nonnegative=False"),
            ("l2=0", self.l2 == 0, "l2 > 0"),
            (
                "l2_bias=0",
                self.l2_bias == 0 and self.biases and self.feedback == "explicit",
                "l2_bias > 0 or biases=False",
            ),
            ("solver='cg'", self.solver == "cg", "solver='auto' or 'cholesky'"),
        ):
            if met:
                raise InputError(f"row_features and column_features need {wanted}, got {choice}")

    def _ridges_of(self: Any, x: Observed) -> Ridges | None:
        if self.loss != "squared" or self.maps_ is not None:
            return None
        rule = self._rule(self._ridge_used())
        return rule.ridges(x.row_counts())[0], rule.ridges(x.column_counts())[0]

    def _ridge_used(self: Any) -> ChosenRidge:
        """The ridge of the fit; models saved earlier had one for codes and biases."""
        plan = self.fit_.plan
        l2, power = (
            float(plan.get("l2", 0.05 if self.feedback == "explicit" else LIST_RIDGE)),
            float(plan.get("l2_power", 1.0)),
        )
        bias = l2 if self.l2_bias is None else self.l2_bias
        unobserved = None
        if self.feedback == "implicit":
            given = self.unobserved_weight
            unobserved = float(
                plan.get("unobserved_weight", LIST_WEIGHT if given is None else given)
            )
        return ChosenRidge(
            l2,
            power,
            float(plan.get("l2_bias", bias)),
            float(plan.get("l2_bias_power", power)),
            unobserved,
        )

    def _fold_rule(self: Any) -> RidgeRule:
        ridge = self._ridge_used()
        return self._rule(ridge)._replace(
            extra=(ridge.unobserved_weight or 0.0) * self._lowrank().n
        )

    def _offset(self: Any, f: LowRank, norm: Normaliser) -> np.ndarray | None:
        # codes of clicks are solved as if popularity added nothing
        return None if self.feedback == "implicit" else learned_columns(f, norm)

    def _row_offset(self: Any, x: Observed, f: LowRank, norm: Normaliser) -> np.ndarray | None:
        lean = self.fit_.plan.get("popularity")
        if lean is None or f.row_bias is None:
            return norm.row_offset
        # rows and columns are exchanged: these are new columns
        return float(lean) * np.log1p(x.row_counts().astype(np.float64))

    def _fold_base(self: Any, f: LowRank) -> np.ndarray | None:
        if self.feedback != "implicit":
            return None
        return self._ridge_used().unobserved_weight * self._engine().inner(f.right, f.right)
