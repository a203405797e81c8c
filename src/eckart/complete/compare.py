"""Which method for these entries: biases, ALS and BayesianMF judged on the same unseen entries,
within a budget of time.

A tenth of the entries is hidden, of large data a million. Every method is fitted to the same rest
and judged alike, by the root mean squared error of its predictions of what is hidden, with the
standard error std(e^2) / (2 rmse sqrt(N)). Where a tenth is few entries this is done up to four
times, with other entries hidden. What would take longer than the budget leaves, or does not fit in
memory, is left out and named: ``BayesianMF`` by the time of a few draws, the tuning of ``ALS`` by
that of one fit, further rounds by that of the first.

Methods are compared entry by entry. With d_p = e_p^2 - f_p^2, e being the errors of biases alone
and f those of the method of least error, biases are taken
where  mean(d) <= std(d) / sqrt(N):  what factors gain cannot be distinguished from the luck of the split.
Else the method of least error is taken: als and bayes have
the same form, and neither is the simpler one.

A comparison that was killed goes on (see ``io.models.steps``): candidates that were judged are not
fitted again, the one at work goes on from its checkpoint, and what was decided by the time stays
decided, so that method, reason and bits are those of the run that was killed.

biases     mean + b_i + c_j alone: what every model has to beat
als        ``ALS`` at the rank and ridge that ``tune`` finds on entries hidden from it in turn; with
its default ridge where that is far behind bayes
logistic   ``ALS(loss="logistic")``, where entries are 0 and 1: the error of a probability of yes is
that of any other guess
bayes      ``BayesianMF``, for the comparison with fewer draws than for the answer
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.clusters.client import spent
from eckart.complete.bayes.gibbs import BURN_IN
from eckart.complete.candidates import yes_no
from eckart.complete.factors.als import ALS
from eckart.complete.factors.hidden_share import NO_CODES
from eckart.complete.split import split, usual_share
from eckart.complete.tune import Tuning, tune
from eckart.errors import InputError
from eckart.io.models.checkpoint import Steps, spent_in
from eckart.matrix import Observed
from eckart.trace import StopReason

BUDGET = 60.0
"""Seconds of processor time, and of waiting for a cluster, for the comparison: what else the
machine does has no say in the choice."""
DRAWS = {"n_samples": 40, "burn_in": 60, "thin": 2}
"""Draws of ``BayesianMF`` for the comparison: enough for the third digit of its error."""
FEW = {"n_samples": 2, "burn_in": 2, "thin": 1}
"""Draws from which the time of all of them is known."""
ENOUGH, ROUNDS = 600, 4
"""Hidden entries from which one round is enough, and the most rounds. On 47 samples of 230 to 1,500
entries of four sets of ratings the error of the choice was 0.65 % above that of the best of the
three, and 0.92 % where the least error of one round was taken (0.62 % of four)."""
SMALL_SHARE = 0.25
"""Share of the budget that all rounds together may take where there is more than one: small data
are to be answered soon."""
FAR = 2.0
"""Standard errors, entry by entry, behind ``BayesianMF`` from which ``ALS`` is not tuned: its
default ridge is chosen on hidden entries already."""
SHARE, CANDIDATES = 0.7, 12
"""Share of the time left that ``BayesianMF`` may take; fits of ALS that tuning makes."""


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


class Tried(NamedTuple):
    """A method in one round: its squared errors at the hidden entries (none where it was left
    out)."""

    method: str
    squares: np.ndarray
    seconds: float
    words: str

    @classmethod
    def resumed(cls, kept: Any) -> Tried:
        """From a list, as checkpoints keep it."""
        method, squares, seconds, words = kept
        return cls(str(method), np.asarray(squares, np.float64), float(seconds), str(words))


class Comparison(NamedTuple):
    """``method`` and the parameters it is to be fitted with; ``table``: what was tried; ``tuning``
    of ALS (None where there was no time for it); ``reason``: one sentence."""

    method: str
    parameters: dict[str, Any]
    table: list[Judged]
    tuning: Any
    reason: str


def biases_only(**more: Any) -> ALS:
    """mean + b_i + c_j as a model: codes that a huge ridge keeps at zero, and biases with the ridge
    5 (a row of five entries is believed by half)."""
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
    """The method of least error on unseen entries, or biases alone where they cannot be distinguished from
    it. ``build(method, part, **parameters)`` makes an estimator, with a checkpoint for that part of
    the work where there is one at all ("": none); ``k`` is the rank, None where it is open. Every
    candidate, and every decision about time, is one of the ``steps``."""
    steps = steps or Steps()
    rank = max(1, min(16, *x.shape)) if k is None else k
    first = _ComparedRound(x, build, seed, "", steps)
    began = float(steps.take("began", lambda: steps.spent))

    def left() -> float:
        return budget - (steps.spent - began)

    tried = [[first.biases()]]
    few, draws = build("bayes", "", n_components=rank, **FEW), draws_for_comparison(build, rank)
    why = ""
    try:
        guess = float(
            steps.take("time of draws", lambda: _seconds_of_draws(few, draws, first.train))
        )
        if not steps.take("draws", lambda: guess <= SHARE * left()):
            why = f"left out: it would take about {guess:.0f} s"
    except InputError as error:  # factors of every chain do not fit in memory
        why = f"left out: {error}"
    tried[0].append(Tried("bayes", np.zeros(0), 0.0, why) if why else first.bayes(rank))
    als, tuning = first.als(k, rank, left, verbose, tried[0][1].squares)
    tried[0].append(als)
    if yes_no(x):
        tried[0].append(first.logistic(rank))

    def rounds() -> int:
        """As many as make enough entries, and as there is time for."""
        wanted, seconds = -(-ENOUGH // first.test.nnz), max(steps.spent - began, 1e-9)
        return max(1, min(wanted, ROUNDS, int(SMALL_SHARE * budget / seconds)))

    for number in range(1, int(steps.take("rounds", rounds))):
        try:
            more = _ComparedRound(x, build, seed + number, f"-{number + 1}", steps)
            again = [
                more.biases(),
                *([more.bayes(rank)] if len(tried[0][1].squares) else [tried[0][1]]),
            ]
            again.append(more.als(k, rank, None if tuning is None else left, verbose)[0])
            again += [more.logistic(rank)] if yes_no(x) else []
        except InputError as error:
            if error.code != "invalid.held_out":
                raise
            break  # the entries that must stay, so that every row has one, leave none to hide
        tried.append(again)
    squares = {
        row.method: np.concatenate([again[at].squares for again in tried])
        for at, row in enumerate(tried[0])
    }
    table = [_judged([again[at] for again in tried]) for at in range(len(tried[0]))]
    best = choose(squares)
    found = {"n_components": rank} if tuning is None else dict(tuning.best)
    logits = {"n_components": rank, "loss": "logistic"}
    parameters = {"als": found, "logistic": logits, "bayes": {"n_components": rank}, "biases": {}}[
        best
    ]
    return Comparison(
        "als" if best == "logistic" else best,
        parameters,
        table,
        tuning,
        _sentence(best, table, len(squares[best]), budget),
    )


def choose(squares: dict[str, np.ndarray]) -> str:
    """The method of least error; biases alone where their squared errors, less those of that
    method, have a mean within one standard error of 0.

    >>> even = np.ones(100)
    >>> choose({"biases": even + np.tile([0.5, -0.45], 50), "bayes": even}), choose({"biases": even + 0.05, "bayes": even})
    ('biases', 'bayes')
    """
    seen = {name: own for name, own in squares.items() if len(own)}
    least = min(seen, key=lambda name: float(seen[name].mean()))
    away = seen["biases"] - seen[least]
    return (
        "biases"
        if len(away) > 1 and away.mean() <= away.std(ddof=1) / np.sqrt(len(away))
        else least
    )


class _ComparedRound:
    """One split, and every method judged on what it hides; ``suffix`` tells its steps and
    checkpoints from those of other rounds."""

    def __init__(
        self, x: Observed, build: Callable[..., Any], seed: int, suffix: str, steps: Steps
    ):
        parts = split(x, usual_share(x), random_state=seed)
        self.train, self.test = parts.train, parts.test
        self._build, self._seed, self._suffix, self._steps = build, seed, suffix, steps
        rows = np.repeat(np.arange(self.test.shape[0]), self.test.row_counts())
        self._cells = (
            self.test.row_index.names(rows),
            self.test.column_index.names(self.test.indices),
        )

    def biases(self) -> Tried:
        return self._fitted("biases", "mean and biases alone")

    def bayes(self, rank: int) -> Tried:
        return self._fitted("bayes", f"rank {rank}", n_components=rank, **DRAWS)

    def logistic(self, rank: int) -> Tried:
        def work() -> Tried:
            model = self._build(
                "als", f"logistic{self._suffix}", n_components=rank, loss="logistic"
            )
            return self._judge(
                "logistic", *self._timed(model), f"als under the logistic loss, rank {rank}"
            )

        return Tried.resumed(self._step("logistic", work, "logistic", "als"))

    def als(
        self,
        k: int | None,
        rank: int,
        left: Callable[[], float] | None,
        verbose: bool,
        rival: np.ndarray | None = None,
    ) -> tuple[Tried, Tuning | None]:
        """Tuned, or as it is where there is no time to tune it: ``left()`` tells how much there is
        (None: it was left out in the first round); or where it is too far behind the squared errors
        of a ``rival``."""

        def once() -> dict[str, Any]:
            model, seconds = self._timed(
                self._build("als", f"als{self._suffix}", n_components=rank)
            )
            if rival is not None and len(rival):
                row = self._judge(
                    "als",
                    model,
                    seconds,
                    f"rank {rank} and its default ridge: more than {FAR:g} standard "
                    "errors behind, too far to be tuned",
                )
                away = row.squares - rival
                if len(away) > 1 and away.mean() > FAR * away.std(ddof=1) / np.sqrt(len(away)):
                    return {"tune": False, "row": row}
            if left is not None and seconds * CANDIDATES < left():
                return {"tune": True, "row": None}
            words = (
                f"rank {rank} and its default ridge: to tune them would take about "
                f"{seconds * CANDIDATES:.0f} s"
            )
            return {"tune": False, "row": self._judge("als", model, seconds, words)}

        def tuned() -> dict[str, Any]:
            base = self._build("als", f"tune{self._suffix}")
            start = self._steps.spent - spent_in(base.checkpoint)
            found = tune(
                self.train,
                n_components=k,
                model=base,
                random_state=self._seed,
                verbose=verbose,
                checkpoint=base.checkpoint,
            )
            chosen = found.table[found.chosen]
            words = (
                f"rank {chosen.n_components}, ridge {chosen.l2:.3g}, of {len(found.table)} "
                "candidates"
            )
            return {
                "row": self._judge("als", whole(found.model), self._steps.spent - start, words),
                "tuning": found.kept(),
            }

        first = self._step("als", once, "als")
        if not first["tune"]:
            return Tried.resumed(first["row"]), None
        second = self._step("tuned als", tuned, "tune", "als")
        return Tried.resumed(second["row"]), Tuning.resumed(second["tuning"])

    def _fitted(self, method: str, words: str, **parameters: Any) -> Tried:
        def work() -> Tried:
            model = self._build(method, f"{method}{self._suffix}", **parameters)
            return self._judge(method, *self._timed(model), words)

        return Tried.resumed(self._step(method, work, method))

    def _step(
        self, name: str, work: Callable[[], Any], part: str, method: str | None = None
    ) -> Any:
        file = self._build(method or part, f"{part}{self._suffix}").checkpoint
        return self._steps.take(f"{name}{self._suffix}", work, file)

    def _timed(self, model: Any) -> tuple[Any, float]:
        """The model and the time of its fit, in a killed run, too."""
        start = self._steps.spent - spent_in(model.checkpoint)
        return whole(model.fit(self.train)), self._steps.spent - start

    def _judge(self, method: str, model: Any, seconds: float, words: str) -> Tried:
        guess = np.asarray(model.predict(*self._cells), np.float64)
        return Tried(method, (self.test.data - guess) ** 2, seconds, words)


def _judged(rounds: list[Tried]) -> Judged:
    """A method over all rounds, with its words in the first."""
    first, squares = rounds[0], np.concatenate([one.squares for one in rounds])
    if not len(squares):
        return Judged(first.method, None, None, 0.0, first.words)
    error = float(np.sqrt(squares.mean()))
    spread = (
        float(np.std(squares, ddof=1) / (2 * error * np.sqrt(len(squares))))
        if len(squares) > 1 and error > 0
        else None
    )
    return Judged(first.method, error, spread, sum(one.seconds for one in rounds), first.words)


def whole(model: Any) -> Any:
    """A model whose fit has come to its end: nothing is judged by half a fit, an interrupt is
    raised again."""
    if model.fit_.trace.reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    return model


def _seconds_of_draws(few: Any, many: Any, train: Observed) -> float:
    """The time of all sweeps of ``many``, from that of a few; the first fit compiles, so the second
    is timed."""
    whole(few.fit(train))
    start = spent()
    whole(few.fit(train))
    return (spent() - start) * sweeps_of(many) / sweeps_of(few)


def draws_for_comparison(build: Callable[..., Any], rank: int) -> Any:
    """The ``BayesianMF`` that is compared."""
    return build("bayes", "", n_components=rank, **DRAWS)


def sweeps_of(model: Any) -> int:
    """Sweeps of all chains that a ``BayesianMF`` asks for.

    >>> from eckart import BayesianMF
    >>> sweeps_of(BayesianMF(n_samples=10, burn_in=20, thin=3, n_chains=2)), sweeps_of(BayesianMF())
    (70, 800)
    """
    return model.n_chains * (
        (BURN_IN if model.burn_in is None else model.burn_in)
        + model.thin * -(-model.n_samples // model.n_chains)
    )


def _sentence(method: str, table: list[Judged], hidden: int, budget: float) -> str:
    chosen = next(row for row in table if row.method == method)
    others = [
        f"{row.method} {row.error:.4g}" if row.error is not None else f"{row.method} {row.words}"
        for row in table
        if row is not chosen
    ]
    summary = f"RMSE {chosen.error:.4g}" + (
        "" if chosen.standard_error is None else f" (± {chosen.standard_error:.2g})"
    )
    least = min(row.error for row in table if row.error is not None)
    summary = (
        f"{method} had the least error on {hidden:,} unseen entries, {summary}"
        if chosen.error == least
        else f"{method} alone have an error on {hidden:,} unseen entries, {summary}, within one "
        "standard error of the least"
    )
    return f"{summary}; {', '.join(others)}; compared within a budget of {budget:.0f} s of processor time"
