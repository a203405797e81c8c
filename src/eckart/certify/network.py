"""Evidence about a trained network: stationary at best, so the error on rows it has not seen stands
first, and that of a linear model beside it.

No bound from below exists for such a problem. What is measured at the returned weights theta,
without dropout, noise or sampling:

    gradient / noise   ||g|| / sqrt(mean ||g_b - g||^2), g_b the gradient of a batch and g their
    mean: below 1 the steps of stochastic descent are
                       ruled by the choice of the batch, and more of them lead nowhere in particular
    relative gradient  ||g|| ||theta|| / L, where all rows are one batch
    held-out error     on rows that no gradient has seen
    the mean, PCA      the same error by the mean of the training rows, and by PCA of the training
    rows at equal k
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.trace import StopReason

GRADIENT_LIMIT = 1.0
"""Where the two are equal: the mean gradient is as long as those of batches stray from it; of one
batch, its slope along theta is as large as the objective."""

TRIVIAL_LIMIT = 0.999
"""Of the error of the trivial answer, which a network gives before it has learned anything: what it
learned shows in the third digit at least."""


def certify_network(
    problem: str,
    objective: float,
    gradient: float,
    size: float,
    noise: float | None,
    facts: dict[str, Any],
    *,
    against: tuple[float, float, str] | None = None,
    stopped: str = "",
    notes: tuple[str, ...] = (),
) -> Certificate:
    """The certificate from what was measured; ``against`` = (error, error of the trivial answer,
    what that answer is).

    >>> print(certify_network("p", 0.5, 0.01, 10.0, None, {}).holds, certify_network("p", 0.5, 9.0, 10.0, 3.0, {}).holds)
    True False
    """
    finite = bool(np.isfinite(objective) and np.isfinite(gradient))
    relative = gradient * size / abs(objective) if finite and objective else 0.0
    # one batch, or batches that are all alike: nothing to compare the gradient with but the
    # objective
    if not noise:
        slope = Check(
            "relative gradient",
            relative,
            GRADIENT_LIMIT,
            "share by which the objective changes with the weights",
        )
    else:
        slope = Check(
            "gradient / noise",
            gradient / noise,
            GRADIENT_LIMIT,
            "norm of the gradient over the spread of those of single batches",
        )
    checks = [
        Check("finite", 0.0 if finite else 1.0, 0.0, "objective and gradient are finite numbers"),
        slope,
    ]
    if stopped == StopReason.DIVERGED.value:
        checks.append(
            Check(
                "diverged",
                1.0,
                0.0,
                "the loss left the range of numbers; these are the weights before it did",
            )
        )
    if against is not None:
        error, trivial, words = against
        ratio = error / trivial if trivial > 0 else np.inf if error > 0 else 0.0
        checks.append(
            Check("error against trivial", ratio, TRIVIAL_LIMIT, f"error / error of {words}")
        )
    facts = {"objective": objective, "gradient norm": gradient, **facts}
    if stopped:
        facts["stopped"] = stopped
    words = "no proof that better weights do not exist: judge the model by its held-out error"
    return Certificate(problem, "stationary", tuple(checks), facts, (*notes, words))
