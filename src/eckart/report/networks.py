"""The report of an autoencoder: evidence beside PCA's, loss curves, maps, reconstructions, filters,
a walk through code space."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart import plots
from eckart.matrix import Dense
from eckart.reduce.compare import linear_model
from eckart.report.html import Report

SHOWN = 10


def network_report(
    model: Any,
    sample: Any = None,
    *,
    name: str = "data",
    labels: Any = None,
    image: tuple[int, int] | None = None,
) -> Report:
    """A page for a fitted Autoencoder or ConvAutoencoder; ``sample`` (rows of the data) adds maps
    and reconstructions."""
    f, fit = model.fit_.factors, model.fit_
    page = Report(
        f"Reduce: {name}",
        f"{f.rows:,} rows and {f.n:,} columns through {f.k} numbers, {f.size:,} weights",
    )
    page.holds(fit.certificate).verdict(*in_one_sentence(fit.certificate, f.k))
    if sample is not None and len(sample):
        _with_rows(page, model, np.asarray(sample), labels, image)
    if "image" in f.architecture:
        page.section("What the first layer sees")
        page.pictures((plots.filters(model), "Filters: red adds, blue takes away"))
        if sample is not None and len(sample):
            page.pictures(
                (
                    plots.feature_maps(model, np.asarray(sample)[0]),
                    "What each filter finds in one image",
                )
            )
    page.section("How it learned").pictures(
        (plots.loss_curves(model), "Loss an entry, of training and held-out rows")
    )
    page.section("Evidence").certificate(fit.certificate)
    return page.computed(fit, steps="epochs")


def in_one_sentence(certificate: Any, k: int) -> tuple[str, bool]:
    """What the certificate says about the model and PCA, and whether it is good news.

    >>> from eckart.certify.network import certify_network
    >>> facts = {"held-out risk": 1.0, "held-out risk by PCA at equal k": 2.0, "risk / PCA": 0.5}
    >>> in_one_sentence(certify_network("p", 1.0, 0.0, 1.0, None, facts), 3)
    ('At k = 3 the held-out risk is 1, that of PCA 2: 0.500 of it.', True)
    """
    kind = "held-out risk" if "held-out risk" in certificate.facts else "risk"
    if "risk / PCA" not in certificate.facts:
        return (
            f"At k = {k} the {kind} is {certificate[kind]:.4g}; PCA was not measured beside it.",
            True,
        )
    ratio, linear = certificate["risk / PCA"], certificate[f"{kind} by PCA at equal k"]
    return (
        f"At k = {k} the {kind} is {certificate[kind]:.4g}, that of PCA {linear:.4g}: "
        f"{ratio:.3f} of it."
    ), ratio <= 1


def _with_rows(
    page: Report, model: Any, rows: np.ndarray, labels: Any, image: tuple[int, int] | None
) -> None:
    """Maps, reconstructions and a walk; PCA of the same rows beside them, where it can be fitted in
    a short time."""
    f = model.fit_.factors
    named = Dense(rows, columns=f.columns)
    k = min(f.k, *rows.shape)
    linear = linear_model(Dense(rows), k)
    if linear is None:
        page.text(
            "PCA is not shown: these rows have a column without an entry, or too many "
            "gaps for a short fit."
        )
    if k >= 2:
        codes = {"Autoencoder": model.transform(named)} | (
            {"PCA": linear.transform(rows)} if linear else {}
        )
        figure = plots.code_maps({n: np.asarray(c)[:, :2] for n, c in codes.items()}, labels)
        words = "The first two numbers of the code" + (", beside PCA's" if linear else "")
        page.section("Where the rows are").pictures((figure.axes[0], words))
    if image is None:
        return
    at = np.linspace(0, len(rows) - 1, min(SHOWN, len(rows))).astype(int)
    back = {"PCA": linear.inverse_transform(linear.transform(rows[at]))} if linear else {}
    back["autoencoder"] = model.reconstruct(Dense(rows[at], columns=f.columns))
    page.section("How well it reconstructs")
    page.pictures(
        (plots.compare_rows(rows[at], back, image), f"Inputs, {' and '.join(back)} at k = {f.k}")
    )
    whole = at[~np.isnan(rows[at]).any(axis=1)]
    if len(whole) >= 2:
        walk = plots.code_walk(model, rows[whole[0]], rows[whole[-1]], image)
        page.pictures((walk, "Decoded codes on the line between two images"))
