"""The report of an explanation: what the latent variables are, whom they explain, and how it is
known."""

from __future__ import annotations

from typing import Any

from eckart import plots
from eckart.factors import Components, Topics
from eckart.io.read import read
from eckart.report.html import Report
from eckart.report.mixtures import mixture_page
from eckart.report.parts import parts_page
from eckart.report.tables import Excerpts
from eckart.report.topics import topics_page


def explain_report(
    model: Any,
    data: Any,
    *,
    name: str = "",
    held_out: Any = None,
    excerpts: Excerpts = None,
    labels: Any = None,
    image: tuple[int, int] | None = None,
) -> Report:
    """A page for a fitted topic model, mixture or NMF.

    ``held_out`` (from ``eckart.report.unseen.judge_topics``) adds the perplexity of topics;
    ``excerpts`` gives the texts of example documents: a list of all texts, or a function from
    positions to a dictionary position: text; ``labels`` (one a row) are set beside the components
    of a mixture; ``image`` is height and width of rows that are images.
    """
    x = read(data)
    fit = model.fit_
    title = f"Explain: {name}" if name else "Explain"
    if isinstance(fit.factors, Topics):
        page = topics_page(model, x, title, held_out, excerpts)
    elif isinstance(fit.factors, Components):
        page = mixture_page(model, x, title, labels)
    else:
        page = parts_page(model, x, title, image, excerpts)
    page.section("Evidence").certificate(fit.certificate)
    if len(fit.trace):
        page.pictures(
            (
                plots.objective(fit.trace),
                f"{fit.trace.quantity.capitalize()}: {len(fit.trace)} values",
            )
        )
    return page.computed(fit)
