"""Which method for these entries: biases, ALS and BayesianMF judged on the same unseen entries, within a budget of time.

A tenth of the entries is hidden. Every method is fitted to the same rest and judged alike, by the root mean squared error of clipped predictions on what is
hidden, with the standard error std(e^2) / (2 rmse sqrt(N)). What would take longer than the budget leaves is left out and named: ``BayesianMF`` by the
time of a few draws, the tuning of ``ALS`` by that of one fit. The least error is taken.

A comparison that was killed goes on (see ``io.models.steps``): candidates that were judged are not fitted again, the one at work goes on from its checkpoint,
and what was decided by the time stays decided, so that method, reason and bits are those of the run that was killed.

biases     mean + b_i + c_j alone: what every model has to beat
als        ``ALS`` at the rank and ridge that ``tune`` finds on entries hidden from it in turn
bayes      ``BayesianMF``, for the comparison with fewer draws than for the answer
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.clusters.clock import spent
from eckart.complete.factors.als import ALS
from eckart.complete.split import split
from eckart.complete.tune import tune
from eckart.complete.tuning import Tuning
from eckart.io.models.checkpoint import spent_in
from eckart.io.models.steps import Steps
from eckart.matrix import Observed
from eckart.metrics import rmse
from eckart.trace import StopReason

BUDGET = 60.0
"""Seconds of processor time, and of waiting for a cluster, for the comparison: what else the machine does has no say in the choice."""
DRAWS = {"n_samples": 40, "burn_in": 60, "thin": 2}
"""Draws of ``BayesianMF`` for the comparison: enough for the third digit of its error."""
FEW = {"n_samples": 2, "burn_in": 2, "thin": 1}
"""Draws from which the time of all of them is known."""
SHARE, CANDIDATES = 0.7, 12
"""Share of the time left that ``BayesianMF`` may take; fits of ALS that tuning makes."""
NO_CODES = 1e20
"""Ridge under which codes are zero in any unit of the data: only biases are left."""


class Judged(NamedTuple):
    """A method with its error on unseen entries; ``error`` None where it was left out, and why."""

    method: str
    error: float | None
    standard_error: float | None
    seconds: float
    words: str

    @classmethod
    def resumed(cls, kept: Any) -> Judged:
        """From a list, as checkpoints keep it."""
        method, error, spread, seconds, words = kept
        error, spread = (None if value is None else float(value) for value in (error, spread))
        return cls(str(method), error, spread, float(seconds), str(words))


class Comparison(NamedTuple):
    """``method`` and the parameters it is to be fitted with; ``table``: what was tried; ``tuning`` of ALS (None where there was no
    time for it); ``reason``: one sentence."""

    method: str
    parameters: dict[str, Any]
    table: list[Judged]
    tuning: Any
    reason: str


def biases_only(**more: Any) -> ALS:
    """mean + b_i + c_j as a model: codes that a huge ridge keeps at zero, and biases with the ridge 5 (a row of five entries is believed by half)."""
    return ALS(1, l2=NO_CODES, l2_power=0.0, l2_bias=5.0, **more)


def compare(
    x: Observed,
    build: Callable[..., Any],
    k: int | None,
    *,
    seed: int = 0,
    budget: float = BUDGET,
    verbose: bool = False,
    steps: Steps | None = None,
) -> Comparison:
    """The method of least error on unseen entries. ``build(method, part, **parameters)`` makes an estimator, with a checkpoint for that part of the work where
    there is one at all ("": none); ``k`` is the rank, None where it is open. Every candidate, and every decision about time, is one of the ``steps``."""
    steps = steps or Steps()
    parts = split(x, 0.1, random_state=seed)
    train, test = parts.train, parts.test
    rows = np.repeat(np.arange(test.shape[0]), test.row_counts())
    began = float(steps.take("began", lambda: steps.spent))

    def left() -> float:
        return budget - (steps.spent - began)

    def judged(method: str, model: Any, seconds: float, words: str) -> Judged:
        guess = model._clipped(model.fit_.factors.at(rows, test.indices)).astype(np.float64)
        error, square = rmse(test.data, guess), (test.data - guess) ** 2
        spread = float(np.std(square, ddof=1) / (2 * error * np.sqrt(test.nnz))) if test.nnz > 1 and error > 0 else None
        return Judged(method, error, spread, seconds, words)

    def fitted(model: Any) -> tuple[Any, float]:
        """The model and the time of its fit, in a killed run, too."""
        start = steps.spent - spent_in(model.checkpoint)
        return whole(model.fit(train)), steps.spent - start

    def biases() -> Judged:
        return judged("biases", *fitted(build("biases", "biases")), "mean and biases alone")

    def draws() -> Judged:
        return judged("bayes", *fitted(bayes), f"rank {rank}")

    def once() -> dict[str, Any]:
        """Whether there is time to tune; the model of one fit is judged where there is none."""
        model, seconds = fitted(build("als", "als", n_components=rank))
        if seconds * CANDIDATES < left():
            return {"tune": True, "row": None}
        words = f"rank {rank} and its default ridge: to tune them would take about {seconds * CANDIDATES:.0f} s"
        return {"tune": False, "row": judged("als", model, seconds, words)}

    def tuned() -> dict[str, Any]:
        base = build("als", "tune")
        start = steps.spent - spent_in(base.checkpoint)
        found = tune(train, n_components=k, model=base, random_state=seed, verbose=verbose, checkpoint=base.checkpoint)
        chosen = found.table[found.chosen]
        words = f"rank {chosen.n_components}, ridge {chosen.l2:.3g}, of {len(found.table)} candidates"
        return {"row": judged("als", whole(found.model), steps.spent - start, words), "tuning": found.kept()}

    table = [Judged.resumed(steps.take("biases", biases, build("biases", "biases").checkpoint))]
    rank = max(1, min(16, *x.shape)) if k is None else k
    bayes = build("bayes", "bayes", n_components=rank, **DRAWS)
    few = build("bayes", "", n_components=rank, **FEW)
    guess = float(steps.take("time of draws", lambda: _seconds_of_draws(few, bayes, train)))
    if steps.take("draws", lambda: guess <= SHARE * left()):
        table.append(Judged.resumed(steps.take("bayes", draws, bayes.checkpoint)))
    else:
        table.append(Judged("bayes", None, None, 0.0, f"left out: it would take about {guess:.0f} s"))
    first = steps.take("als", once, build("als", "als").checkpoint)
    tuning, found = None, {"n_components": rank}
    if first["tune"]:
        first = steps.take("tuned als", tuned, build("als", "tune").checkpoint)
        tuning = Tuning.resumed(first["tuning"])
        found = dict(tuning.best)
    table.append(Judged.resumed(first["row"]))
    best = min((row for row in table if row.error is not None), key=lambda row: row.error or 0.0)
    parameters = {"als": found, "bayes": {"n_components": rank}, "biases": {}}[best.method]
    return Comparison(best.method, parameters, table, tuning, _sentence(best, table, test.nnz, budget))


def whole(model: Any) -> Any:
    """A model whose fit has come to its end: nothing is judged by half a fit, an interrupt is raised again."""
    if model.fit_.trace.reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    return model


def _seconds_of_draws(few: Any, many: Any, train: Observed) -> float:
    """The time of all sweeps of ``many``, from that of a few; the first fit compiles, so the second is timed."""
    whole(few.fit(train))
    start = spent()
    whole(few.fit(train))
    return (spent() - start) * _sweeps(many) / _sweeps(few)


def _sweeps(model: Any) -> int:
    return model.n_chains * (model.burn_in + model.thin * -(-model.n_samples // model.n_chains))


def _sentence(best: Judged, table: list[Judged], hidden: int, budget: float) -> str:
    others = [
        f"{row.method} {row.error:.4g}" if row.error is not None else f"{row.method} {row.words}"
        for row in table
        if row is not best
    ]
    spread = "" if best.standard_error is None else f" (± {best.standard_error:.2g})"
    return (
        f"{best.method} had the least error on {hidden:,} unseen entries, RMSE {best.error:.4g}{spread}; {', '.join(others)}; "
        f"compared within a budget of {budget:.0f} s of processor time"
    )
