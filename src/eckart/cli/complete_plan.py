"""How long ``eckart complete`` will take where it samples: from the time of a few sweeps and of one
fit, without the comparison, the chains and the tuning themselves.

A fit of ``BayesianMF`` takes a + b S seconds, S being its sweeps: a and b follow from fits of a few
sweeps (``estimate``). The comparison of methods (``complete.compare``) is then the sum of what it
would do, less what its budget leaves out; behind it come the fit that is measured and the fit to
everything. Which method will be taken is not known before, so the longest is counted. Chains that
do not agree go on, which nobody can foresee either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eckart.cli.estimate import estimate
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

FEW, MORE = 2, 12
"""Sweeps before the first state of the two fits from which the time of a sweep follows."""
SWEPT, USUAL = 5, 20
"""Sweeps of ``ALS`` that are timed, and those that a fit takes about: it stops by itself, and
starts of tuning are warm."""


def expected(
    x: Any,
    build: Callable[..., Any],
    k: int | None,
    method: str,
    share: float,
    side_information: dict[str, Any],
) -> dict[str, Any]:
    """As ``estimate``; ``build(method, **parameters)`` makes an estimator without a checkpoint."""
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
        als = seconds(build("als", n_components=rank, max_iter=SWEPT)) * USUAL / SWEPT
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
