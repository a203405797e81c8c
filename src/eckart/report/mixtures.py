"""The page of a mixture: its components, where they lie on two leading axes, and how sure the
posteriors are."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart import plots
from eckart.decompositions import svd
from eckart.matrix import Dense, Matrix
from eckart.report.html import Report
from eckart.report.tables import some_rows

COLUMNS = 8
"""Columns by which a component is described."""


def mixture_page(model: Any, x: Matrix, title: str, labels: Any = None) -> Report:
    """All but the evidence."""
    f = model.fit_.factors
    part, at = some_rows(x)
    posteriors = np.asarray(model.predict_proba(part), float)
    page = Report(
        title,
        f"{x.shape[0]:,} rows and {x.shape[1]:,} columns; {type(model).__name__} of "
        f"{f.k} components, {f.family}",
    )
    page.holds(model.fit_.certificate)
    marks = None if labels is None else np.asarray(labels, object)[at]
    names = column_names(f)
    means = means_of(model)
    page.section("Components")
    if means is not None:
        page.table(
            ["component", "weight", "columns that set it apart (its mean, the mean of all)"],
            described(f.weights, means, names),
        )
    else:
        page.table(
            ["component", "weight"], [[str(z + 1), float(w)] for z, w in enumerate(f.weights)]
        )
    page.section("Where they lie")
    picture = _map(model, part, posteriors, means, names)
    if picture is not None:
        page.pictures(picture)
    page.section("Who belongs where")
    sure = posteriors.max(axis=1)
    page.text(
        f"{np.mean(sure > 0.9):.0%} of the rows belong to one component with more than "
        f"90%, {np.mean(sure < 0.6):.0%} to none with more than 60%."
    )
    page.pictures(
        (
            plots.responsibilities(posteriors, labels=marks),
            "Posteriors: how much each row belongs to each component",
        )
    )
    return page


def column_names(f: Any) -> list[str]:
    """Names of the columns of factors; counted from 1 where there are none."""
    return (
        [f"column {j + 1}" for j in range(f.n)]
        if f.columns is None
        else [str(n) for n in f.columns]
    )


def means_of(model: Any) -> np.ndarray | None:
    """The means of the components (k x n), where the family has them."""
    means = getattr(model, "means_", None)
    for name in ("means", "probabilities", "rates"):
        means = model.fit_.factors.parameters.get(name) if means is None else means
    return None if means is None or np.ndim(means) != 2 else np.asarray(means, float)


def described(
    weights: np.ndarray, means: np.ndarray, names: list[str], most: int = COLUMNS
) -> list[list[Any]]:
    """Number, weight and telling columns of each component, the heaviest first: those whose mean is
    farthest from that of all, in deviations of the means."""
    centre = weights @ means
    spread = np.sqrt(weights @ (means - centre) ** 2)
    away = (means - centre) / np.where(spread > 0, spread, 1.0)
    digits = [decimals(s, c) for s, c in zip(spread, centre)]
    rows = []
    for z in np.argsort(-weights, kind="stable"):
        top = np.argsort(-np.abs(away[z]), kind="stable")[:most]
        words = "; ".join(
            f"{names[j]} {written(means[z, j], digits[j])} ({written(centre[j], digits[j])})"
            for j in top
        )
        rows.append([str(z + 1), float(weights[z]), words])
    return rows


def decimals(spread: float, centre: float) -> int:
    """Digits behind the point that tell means apart which differ by ``spread``: up to its second,
    or to the third of the centre where none differ."""
    size = spread if spread > 1e-9 * abs(centre) else abs(centre) / 10
    return int(np.clip(1 - np.floor(np.log10(size)), 0, 12)) if size > 0 else 0


def written(value: float, digits: int) -> str:
    """A number with so many digits behind the point; none that are zero, no sign of a zero, powers
    of ten from ten millions on.

    >>> written(2008.1, 1), written(5050.4, 0), written(-1e-16, 2), written(6.2e9, 0), written(0.50, 2)
    ('2008.1', '5050', '0', '6.2e+09', '0.5')
    """
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text if abs(value) < 1e7 else f"{value:.3g}"


def _map(
    model: Any, part: Matrix, q: np.ndarray, means: Any, names: list[str]
) -> tuple[Any, str] | None:
    """Rows and ellipses on two columns, or on the two directions in which the rows vary most."""
    values = np.asarray(part.array, float) if isinstance(part, Dense) else part.to_scipy().toarray()
    covariances = _covariances(model)
    weights = model.fit_.factors.weights
    if values.shape[1] < 2 or values.shape[1] > 20_000:
        return None
    holes = np.isnan(values)
    if holes.any():
        values = np.where(
            holes, np.nanmean(np.where(holes.all(axis=0), 0.0, values), axis=0), values
        )
    if values.shape[1] == 2:
        ax = plots.soft_clusters(
            values, q, means=means, covariances=covariances, names=names, weights=weights
        )
        return ax, "Rows in the colours of their components; ellipses hold half and 90% of each"
    centre = values.mean(axis=0)
    axes = svd(values - centre, full_matrices=False)[2][:2].T
    flat = None if means is None else (means - centre) @ axes
    turned = None if covariances is None else np.einsum("ji,kjl,lm->kim", axes, covariances, axes)
    words = ["first direction", "second direction"]
    ax = plots.soft_clusters(
        (values - centre) @ axes, q, means=flat, covariances=turned, names=words, weights=weights
    )
    return (
        ax,
        "Rows on the two directions in which they vary most, in the colours of their "
        "components; ellipses hold half and 90% of each",
    )


def _covariances(model: Any) -> np.ndarray | None:
    """Covariances as k x n x n, whatever their kind; None where the family has none or they are too
    large to draw."""
    k, n = model.fit_.factors.k, model.fit_.factors.n
    given = getattr(model, "covariances_", None)
    if given is None or k * n * n > 10**7:
        return None
    c = np.asarray(given, float)
    if c.shape == (k, n, n):
        return c
    if c.shape == (n, n) and model.fit_.factors.family.endswith("tied"):
        return np.tile(c, (k, 1, 1))
    if c.shape == (k, n):
        return c[:, :, None] * np.eye(n)
    return c[:, None, None] * np.eye(n) if c.shape == (k,) else None
