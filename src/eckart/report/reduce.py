"""The report of a PCA."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart import plots
from eckart.matrix import Dense
from eckart.report.html import Report


def reduce_report(
    model: Any,
    sample: Any = None,
    *,
    name: str = "data",
    labels: Any = None,
    image: tuple[int, int] | None = None,
    ks: tuple[int, ...] = (2, 10, 30),
    spectrum: np.ndarray | None = None,
    names: Any = None,
) -> Report:
    """A page for a fitted PCA; ``sample`` (rows of the data, called ``names``) adds map,
    reconstructions and outliers."""
    b, fit = model.fit_.factors, model.fit_
    share = float(np.sum(model.explained_variance_ratio_))
    page = Report(
        f"Reduce: {name}",
        f"{b.rows:,} rows and {b.n:,} columns in {b.k} components that keep {share:.2%} "
        "of the variance",
    )
    page.holds(fit.certificate)
    page.section("How much").pictures(
        (
            plots.scree(model, spectrum=spectrum),
            "Share of variance of each component; the chosen k is marked",
        )
    )
    if image is not None and b.k:
        page.section("What the components are")
        page.pictures(
            (
                plots.components_as_images(model, image),
                "Mean and components as images; red adds, blue takes away",
            )
        )
    elif b.k:
        page.section("What the components are").pictures(
            (plots.loadings(model), "Loadings: covariance of a column with a unit component")
        )
        rows = [
            [
                i + 1,
                float(model.explained_variance_ratio_[i]),
                ", ".join(f"{n} {v:+.3g}" for n, v in top),
            ]
            for i, top in enumerate(model.top_features(5)[:12])
        ]
        page.table(["component", "share of variance", "columns with the largest loadings"], rows)
    if sample is not None and b.k:
        named = Dense(np.asarray(sample), columns=b.columns)
        codes = np.asarray(model.transform(named))
        if b.k >= 2:
            page.section("Where the rows are")
            page.pictures(
                (
                    plots.code_map(codes, labels, shares=model.explained_variance_ratio_),
                    "Rows on the first two components",
                )
            )
        if image is not None:
            page.section("How well it reconstructs")
            rows_shown = np.asarray(sample)[:10]
            page.pictures(
                (
                    plots.reconstructions(model, rows_shown, image, [k for k in ks if k <= b.k]),
                    "Original rows and their reconstructions",
                )
            )
        page.section("Rows that do not fit")
        page.pictures(
            (
                plots.outlier_chart(model.outliers(named), names=names),
                "Distance inside the subspace against distance from it, with limits frozen at fit",
            )
        )
    page.section("Evidence").certificate(fit.certificate)
    return page.computed(fit, steps="iterations")
