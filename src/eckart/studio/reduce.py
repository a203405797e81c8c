"""The room of a reduction: components and loadings, a row and what k components leave of it, rows
that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.serve.problems import Problem
from eckart.studio.opened import Opened, OpenedRows, run_verb
from eckart.studio.places import codes_of
from eckart.studio.tables import cell

WIDE = 200
"""Columns of a row that are sent where it is no image: those where the reconstruction is worst."""
LEVEL = 0.99
"""Share of ordinary rows that stay under the limits of an outlier."""


def components(opened: Opened) -> dict[str, Any]:
    """Shares of variance."""
    model = opened.model
    if not hasattr(model, "explained_variance_ratio_"):
        return {
            "components": [
                {"number": i + 1, "share": None, "cumulative": None, "deviation": None}
                for i in range(opened.factors.k)
            ],
            "total": None,
            "noise": None,
        }
    ratio, variance = model.explained_variance_ratio_, model.explained_variance_
    both = np.cumsum(ratio)
    return {
        "components": [
            {
                "number": i + 1,
                "share": float(ratio[i]),
                "cumulative": float(both[i]),
                "deviation": float(np.sqrt(max(variance[i], 0))),
            }
            for i in range(len(ratio))
        ],
        "total": float(opened.factors.total / max(opened.factors.degrees, 1e-300)),
        "noise": float(opened.factors.noise),
    }


def loadings(opened: Opened, number: int, n: int, image: dict[str, int] | None) -> dict[str, Any]:
    """The columns with the largest loadings of a component; all of them as an image where rows are
    images."""
    if not hasattr(opened.factors, "components"):
        raise Problem(
            422,
            f"the codes of a {type(opened.model).__name__} have no loadings: they are "
            "no linear directions",
        )
    all_loadings = (
        opened.model.loadings_
        if hasattr(opened.model, "loadings_")
        else opened.factors.components.T
    )
    if not 1 <= number <= all_loadings.shape[1]:
        raise Problem(
            422, f"number must be a component of 1 to {all_loadings.shape[1]}, got {number}"
        )
    values = np.asarray(all_loadings[:, number - 1], np.float64)
    names = opened.column_names()
    order = np.argsort(-np.abs(values), kind="stable")[:n]
    picture = None if image is None else image | {"values": values.tolist()}
    return {
        "number": number,
        "loadings": [{"column": cell(names[j]), "value": float(values[j])} for j in order],
        "image": picture,
    }


def row(
    opened: Opened, rows: OpenedRows, i: int, k: int | None, image: dict[str, int] | None
) -> dict[str, Any]:
    """A row beside its reconstruction from k components, and the error at every k."""
    most = int(opened.factors.k)
    k = most if k is None else k
    if not 0 <= k <= most:
        raise Problem(422, f"k must be 0 to {most} components, got {k}")
    x = rows.dense([i])[0]
    codes = np.asarray(codes_of(opened, rows)[i], np.float64)
    linear = hasattr(opened.factors, "components")
    at_k = [
        _decoded(opened, codes, j)
        for j in (
            range(most + 1)
            if linear and most <= 200
            else sorted({0, k, most})
            if linear
            else [most]
        )
    ]
    errors = [cell(_rms(x, each)) for each in at_k]
    shown = _decoded(opened, codes, k) if linear else at_k[0]
    names = opened.column_names()
    at = np.arange(len(x))
    if image is None and len(x) > WIDE:
        at = np.sort(np.argsort(-np.abs(np.nan_to_num(x - shown)), kind="stable")[:WIDE])
    return {
        "at": i,
        "id": cell(rows.id_of(i)),
        "k": k if linear else most,
        "columns": [cell(names[j]) for j in at],
        "columns_total": len(x),
        "values": [cell(float(v)) for v in x[at]],
        "reconstruction": [float(v) for v in shown[at]],
        "error": cell(_rms(x, shown)),
        "errors": errors,
        "codes": codes.tolist(),
        "image": image,
    }


def _decoded(opened: Opened, codes: np.ndarray, k: int) -> np.ndarray:
    part = codes.copy()
    part[k:] = 0.0
    return np.asarray(opened.model.inverse_transform(part[None])[0], np.float64)


def _rms(x: np.ndarray, other: np.ndarray) -> float:
    seen = ~np.isnan(x)
    return float(np.sqrt(np.mean((x[seen] - other[seen]) ** 2))) if seen.any() else float("nan")


def outliers(opened: Opened, rows: OpenedRows, n: int) -> dict[str, Any]:
    """Rows far from the subspace (SPE) or far out in it (T2), each as a multiple of its limit."""
    if not hasattr(opened.model, "outliers"):
        raise Problem(
            422,
            "the model must be a PCA, which has limits for outliers, got a "
            f"{type(opened.model).__name__}",
        )
    found = rows.kept.get("outliers", lambda: run_verb(opened.model.outliers, rows.matrix, LEVEL))
    residual = found.spe / (found.spe_limit or np.inf)
    inside = found.t2 / (found.t2_limit or np.inf)
    score = np.nan_to_num(np.maximum(residual, inside))
    order = np.argsort(-score, kind="stable")[:n]
    return {
        "outliers": [
            {
                "at": int(i),
                "id": cell(rows.id_of(int(i))),
                "residual": cell(float(residual[i])),
                "inside": cell(float(inside[i])),
                "score": float(score[i]),
            }
            for i in order
        ],
        "beyond": int(found.flagged.sum()),
        "limits": {"residual": 1.0, "inside": 1.0},
        "meaning": "residual: squared distance from the subspace, inside: squared distance within "
        f"it, each divided by the limit that {LEVEL:.0%} of ordinary "
        "rows stay under; above 1 a row does not fit",
    }
