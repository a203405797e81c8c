"""The options of ``eckart complete`` alone: what is fitted, and which cells are written.

How long ``eckart complete`` will take where it samples: from the time of a few sweeps and of one
fit, without the comparison, the chains and the tuning themselves.

A fit of ``BayesianMF`` takes a + b S seconds, S being its sweeps: a and b follow from fits of a few
sweeps (``estimate``). The comparison of methods (``complete.compare``) is then the sum of what it
would do, less what its budget leaves out; behind it come the fit that is measured and the fit to
everything. Which method will be taken is not known before, so the longest is counted. Chains that
do not agree go on, which nobody can foresee either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from eckart.cli.attribute_files import ColumnFeatures, RowFeatures, Time
from eckart.cli.estimate import estimate
from eckart.cli.options import option
from eckart.cli.shell import OutputTargets
from eckart.errors import InputError
from eckart.registry import methods

ITEM_METHODS = tuple(methods("complete", values=False))
"""Methods whose models hold weights between columns, or blend such models: they rank, they do not
predict values."""


@dataclass
class FitOptions:
    """What is fitted; see ``spread``: without a panel of its own in the help."""

    panel = None

    method: Annotated[
        str,
        option(
            help="auto (biases, als and bayes compared on unseen entries, within a minute; "
            "with --feedback implicit als, ease, slim, gf-cf and blend), "
            "als, bayes, biases, soft-impute, svp, svt or exact; "
            "series where columns are times; mixed for a wide table with categories, "
            "yes/no or dates beside numbers, or numbers in different units (auto "
            "takes it for such a table); "
            "ease, slim, gf-cf or blend (of als, ease and gf-cf) with --feedback implicit."
        ),
    ] = "auto"
    components: Annotated[
        str,
        option(
            "--components",
            "-k",
            help="The rank: a number, or auto (several fits, chosen on unseen entries).",
        ),
    ] = "auto"
    feedback: Annotated[
        str,
        option(
            help="explicit (values are measurements) or implicit (values are strengths; "
            "absent is a weak no)."
        ),
    ] = "explicit"
    loss: Annotated[
        str | None,
        option(
            help="What the values are, for als and soft-impute: logistic (yes/no as 1 and "
            "0), ordered (grades), poisson (counts), huber or absolute "
            "(a few wild numbers), 'quantile 0.9' (what nine tenths stay below); squared if not given. Predictions are probabilities, "
            "expected grades, rates."
        ),
    ] = None
    l2: Annotated[float | None, option(help="The ridge of als.")] = None
    normalise: Annotated[
        str | None,
        option(
            help="Taken out before the fit and put back after: column, row, both, bias, "
            "global (als: instead of learned biases)."
        ),
    ] = None
    row_features: RowFeatures = None
    column_features: ColumnFeatures = None
    time: Time = None

    @property
    def plain(self) -> bool:
        """Whether nothing was asked for that a table of several kinds has not."""
        given_options = (
            self.normalise,
            self.loss,
            self.row_features,
            self.column_features,
            self.time,
        )
        return all(value is None for value in given_options) and self.feedback == "explicit"

    def settled(self, max_iter: int | None, out: Path | None) -> tuple[str, str]:
        """The method, where "auto" leaves no choice, and why."""
        features = {"--row-features": self.row_features, "--column-features": self.column_features}
        given_options: dict[str, Any] = {
            "--loss": self.loss,
            "--l2": self.l2,
            "--normalise": self.normalise,
            "--max-iter": max_iter,
        } | features
        named = [name for name, value in features.items() if value is not None]
        if self.method not in ("auto", "als", "bayes") and (named or self.time is not None):
            raise InputError(
                "--method must be als or bayes, which know attributes, with "
                f"{(*named, '--time')[0]}, got {self.method}"
            )
        if self.time is not None and (self.method == "als" or self.feedback == "implicit"):
            raise InputError(f"--time {self.time} needs --method bayes, which has bins of time")
        if self.method != "auto":
            return self.method, ""
        if self.time is not None:
            return "bayes", "bayes: --time is an option of it"
        if self.feedback == "implicit":  # the other methods give lists alone
            given_options |= {
                "-k": None if self.components == "auto" else self.components,
                "--out": out,
            }
        named = [name for name, value in given_options.items() if value is not None]
        return ("als", f"als: {named[0]} is an option of it") if named else ("auto", "")

    def refuse_targets(self, method: str, to: OutputTargets) -> None:
        """Files that the method has nothing to write to."""
        if method in ITEM_METHODS and (self.feedback != "implicit" or to.out is not None):
            raise InputError(
                f"--method {method} takes --feedback implicit, --model and --report, got --out or "
                f"--feedback {self.feedback}: it ranks columns and predicts no values. Lists are "
                "written by eckart recommend."
            )
        if method == "series" and (to.report is not None or self.feedback != "explicit"):
            raise InputError(
                "--method series takes neither --report nor --feedback implicit: it has no page, "
                "and its values are measurements"
            )


@dataclass
class WantedCells:
    """Which cells are written; without a panel of its own in the help."""

    panel = None

    pairs: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="Write only these cells of triples: a file with the same two columns of ids.",
        ),
    ] = None
    unknown: Annotated[
        str, option(help="An id in --pairs that was not in the data: raise, mean or nan.")
    ] = "raise"
    cells: Annotated[
        str | None,
        option(
            help="Which cells of triples to write: all (observed ones as they are) or unobserved."
        ),
    ] = None
    forecast: Annotated[
        int | None,
        option(
            help="With --method series: write the next so many times, with intervals, "
            "instead of the table.",
            min=1,
        ),
    ] = None
    all_cells: Annotated[
        bool, option("--all-cells", help="Write however many cells there are.")
    ] = False

    def refuse_forecast(self, method: str, out: Path | None) -> None:
        """Times to come, where there are none."""
        if self.forecast is None:
            return
        if method != "series":
            raise InputError(
                f"--forecast {self.forecast} needs --method series, got {method}: columns must be "
                "times"
            )
        if out is None or self.pairs is not None or self.cells is not None:
            raise InputError(
                f"--forecast {self.forecast} needs --out, the file for the next times, and neither "
                "--pairs nor --cells"
            )


FEW, MORE = 2, 12
"""Sweeps before the first state of the two fits from which the time of a sweep follows."""
FIRST, SWEPT, USUAL = 1, 5, 20
"""Sweeps of the two fits of ``ALS`` that are timed, and those that a fit takes about: it stops by
itself, and starts of tuning are warm."""


def expected(
    x: Any,
    build: Callable[..., Any],
    k: int | None,
    method: str,
    share: float,
    side_information: dict[str, Any],
) -> dict[str, Any]:
    """As ``estimate``; ``build(method, **parameters)`` makes an estimator without a checkpoint."""
    from eckart.complete.compare import (
        BUDGET,
        CANDIDATES,
        ENOUGH,
        ROUNDS,
        SHARE,
        SMALL_SHARE,
        draws_for_comparison,
        sweeps_of,
    )

    rank = max(1, min(16, *x.shape)) if k is None else k
    found: list[dict[str, Any]] = []

    def seconds(model: Any, **more: Any) -> float:
        found.append(estimate(x, lambda part: model.fit(part, **more)))
        return found[-1]["seconds"] - found[-1]["loading"]

    few, more = (
        build("bayes", n_components=rank, n_samples=2, burn_in=sweeps, thin=1)
        for sweeps in (FEW, MORE)
    )
    little = seconds(few, **side_information)
    sweep = max(0.0, seconds(more, **side_information) - little) / (
        sweeps_of(more) - sweeps_of(few)
    )
    fixed = max(0.0, little - sweep * sweeps_of(few))
    answer = fixed + sweep * sweeps_of(build("bayes", n_components=rank))
    first = 0.0
    if method == "auto":
        once, swept = (
            seconds(build("als", n_components=rank, max_iter=sweeps)) for sweeps in (FIRST, SWEPT)
        )
        als = once + max(0.0, swept - once) / (SWEPT - FIRST) * (USUAL - FIRST)
        biases = seconds(build("biases"))
        draws = fixed + sweep * sweeps_of(draws_for_comparison(build, rank))
        first = biases + als
        if draws <= SHARE * BUDGET:
            first += draws
        else:
            answer = als
        first += CANDIDATES * als if first + CANDIDATES * als < BUDGET else 0.0
        rounds = min(
            -(-ENOUGH // max(1, x.nnz // 10)), ROUNDS, int(SMALL_SHARE * BUDGET / max(first, 1e-9))
        )
        first *= max(1, rounds)
    total = sum(one["loading"] for one in found) + first + answer * (2 if share else 1)
    return {
        "seconds": total,
        "compiling": sum(one["compiling"] for one in found),
        "loading": sum(one["loading"] for one in found),
        "measured_rows": min(one["measured_rows"] for one in found),
        "rows": found[0]["rows"],
    }
