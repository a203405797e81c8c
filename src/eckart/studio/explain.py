"""The rooms of mixtures and of parts: ellipses of components on two columns, shares of a row, parts
as lists of columns or as images."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.decompositions import eigh
from eckart.plots.topics import distributions
from eckart.report.mixtures import _covariances, means_of
from eckart.serve.problems import Problem
from eckart.studio.opened import Opened, OpenedRows, run_verb
from eckart.studio.places import codes_of
from eckart.studio.tables import cell

SHOWN = 12
"""Columns of a component's means that are sent: those farthest from the mean of all."""


def mixture(opened: Opened, x: str | None, y: str | None, level: float) -> dict[str, Any]:
    """Components on two columns; an ellipse holds ``level`` of a Gaussian: (v - m)^T C^-1 (v - m) =
    -2 log(1 - level)."""
    f, names = opened.factors, [str(c) for c in opened.column_names()]
    x, y = x or names[0], y or names[min(1, len(names) - 1)]
    at = []
    for key, what in ((x, "x"), (y, "y")):
        if key not in names:
            raise Problem(422, f"{what} must be one of {', '.join(names[:40])}, got {key[:80]!r}")
        at.append(names.index(key))
    means, covariances = (
        means_of(opened.model),
        opened.kept.get("covariances", lambda: _covariances(opened.model)),
    )
    telling_columns = _telling(means, f.weights, names)
    components = []
    for z in range(f.k):
        ellipse = None
        if means is not None and covariances is not None:
            ellipse = _ellipse(means[z, at], covariances[z][np.ix_(at, at)], level)
        components.append(
            {
                "number": z + 1,
                "share": float(f.weights[z]),
                "mean": None if means is None else [float(means[z, j]) for j in at],
                "ellipse": ellipse,
                "means": telling_columns[z],
            }
        )
    return {
        "family": f.family,
        "columns": names,
        "x": x,
        "y": y,
        "level": level,
        "components": components,
    }


def _ellipse(centre: np.ndarray, covariance: np.ndarray, level: float) -> dict[str, float]:
    values, vectors = eigh((covariance + covariance.T) / 2)
    reach = np.sqrt(np.clip(values[::-1], 0, None) * -2 * np.log1p(-level))
    first = vectors[:, 1]
    return {
        "cx": float(centre[0]),
        "cy": float(centre[1]),
        "rx": float(reach[0]),
        "ry": float(reach[1]),
        "angle": float(np.arctan2(first[1], first[0])),
    }


def _telling(
    means: np.ndarray | None, weights: np.ndarray, names: list[str]
) -> list[list[dict[str, Any]]]:
    if means is None:
        return [[] for _ in weights]
    centre = weights @ means
    spread = np.sqrt(weights @ (means - centre) ** 2)
    away = (means - centre) / np.where(spread > 0, spread, 1.0)
    return [
        [
            {"column": names[j], "value": float(row[j]), "mean": float(centre[j])}
            for j in np.argsort(-np.abs(a), kind="stable")[:SHOWN]
        ]
        for row, a in zip(means, away)
    ]


def mixture_row(opened: Opened, rows: OpenedRows, i: int) -> dict[str, Any]:
    """To which components a row belongs, and how probable the mixture finds it."""
    q = codes_of(opened, rows)[i]
    density = float(run_verb(opened.model.score_samples, rows.part(np.array([i])))[0])
    order = np.argsort(-q, kind="stable")
    return {
        "at": i,
        "id": cell(rows.id_of(i)),
        "shares": [{"number": int(z) + 1, "share": float(q[z])} for z in order],
        "density": cell(density),
    }


def parts(opened: Opened, n: int, image: dict[str, int] | None) -> dict[str, Any]:
    """Parts by their share of the whole, with the columns of the largest weights."""
    _, share, names = distributions(opened.model)
    h = np.asarray(opened.model.components_, np.float64)
    out = []
    for z in np.argsort(-share, kind="stable").tolist():
        best = np.argsort(-h[z], kind="stable")[:n]
        out.append(
            {
                "number": z + 1,
                "share": float(share[z]),
                "columns": [{"column": str(names[j]), "value": float(h[z, j])} for j in best],
                "values": None if image is None else h[z].tolist(),
            }
        )
    return {"image": image, "parts": out}
