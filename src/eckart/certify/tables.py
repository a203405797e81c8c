"""Evidence about a factor model of a table: its gradient, its history, and the links of its
columns."""

from __future__ import annotations

from eckart.certify.certificate import Certificate, Check, finite, never_rises
from eckart.trace import Trace

GRADIENT_LIMIT = 2e-2
"""Relative gradient that counts as none: what is left to gain is of second order, less than a
thousandth of a nat for each cell on real tables."""
LINK_LIMIT = 1e-3
"""Relative gradient of a link: its problem is convex and small, and solved to a hundredth of this
(``STILL`` of ``complete.tables.links``)."""
STEP_LIMIT = 5e-2
"""Relative change of a mean or a noise by one more step: fits end below half of it, and data times
1.2 are beyond."""


def certify_table(
    value: float,
    gradient: float,
    move: float,
    links: dict[str, float],
    trace: Trace | None,
    facts: dict[str, object],
) -> Certificate:
    """The certificate of a fit from what was measured at the returned point."""
    checks = [
        Check(
            "relative gradient",
            gradient,
            GRADIENT_LIMIT,
            "size of the gradient of the objective by W against the two parts that cancel in it",
        ),
        Check(
            "EM step",
            move,
            STEP_LIMIT,
            "largest relative change of a mean or a noise that one more EM step would make",
        ),
        finite(value),
    ]
    if links:
        worst = max(links, key=lambda name: links[name])
        checks.append(
            Check(
                "links",
                links[worst],
                LINK_LIMIT,
                f"largest relative gradient of the loss of a column, that of {worst!r}",
            )
        )
    checks += [] if trace is None else never_rises(trace.values, 1e-9, when="at a step")
    notes = (
        "a stationary point of the penalised likelihood of the scores; another start "
        "could end elsewhere",
        "links are convex: each is the best for the scores that the other cells of its row predict",
    )
    return Certificate(
        "factor analysis of a table",
        "stationary",
        tuple(checks),
        {"objective": value, **facts},
        notes if links else notes[:1],
    )
