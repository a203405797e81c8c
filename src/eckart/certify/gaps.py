"""Evidence for probabilistic PCA on observed entries: the gradient of the likelihood at the
returned point (Fisher's identity), as the relative step that EM would still make; and that the
likelihood never fell on the way. A stationary point: another start could find a better one."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.engines.protocol import Engine
from eckart.factors import Basis
from eckart.trace import Trace

STEP_LIMIT = 2e-3
"""Relative step of EM under which a point counts as stationary: EM slows down long before it
arrives."""


def certify_gaps(
    x: Any,
    basis: Basis,
    model: tuple[np.ndarray, np.ndarray, float],
    floored: bool,
    *,
    engine: Engine,
    trace: Trace | None = None,
    notes: tuple[str, ...] = (),
) -> Certificate:
    """One E step of x ~ N(mean, W W^T + noise I), ``model`` = (W, mean, noise), on a placed matrix;
    ``floored`` says that the noise is at its least."""
    w, mean, noise = model
    stats = engine.gap_statistics(x, w, mean, noise)
    after, misfit = engine.gap_solve(stats)
    seen = float(stats.gram[:, -1, -1].sum())
    size = (float(np.sqrt(np.mean(w**2))) if w.size else 0.0) + float(np.sqrt(noise))
    moved = {
        "W": float(np.sqrt(np.mean((after[:, :-1] - w) ** 2))) / size if w.size else 0.0,
        "mean": float(np.sqrt(np.mean((after[:, -1] - mean) ** 2))) / size,
        "noise": 0.0 if floored else abs(max(float(misfit.sum()) / seen, 0.0) - noise) / noise,
    }
    checks = [
        Check(
            "EM step",
            max(moved.values()),
            STEP_LIMIT,
            "relative change that one more EM step would make",
        )
    ]
    if trace is not None and len(trace) > 1:
        falls = np.maximum(-np.diff(trace.values), 0.0)
        # the likelihood holds |x - mean - W z|^2 / noise, and rounding leaves eps |x|^2 of the
        # numerator
        rounding = (
            8 * float(np.finfo(np.float64).eps) * basis.total / basis.weight / basis.n / noise
        )
        checks.append(
            Check(
                "likelihood never falls",
                float(falls.max()),
                1e-9 * max(1.0, abs(trace.values[-1])) + rounding,
                "largest fall between EM steps",
            )
        )
    facts = {
        "k": basis.k,
        "log-likelihood": stats.loglik,
        "observed entries": x.nnz,
        "share observed": x.nnz / (x.shape[0] * x.shape[1]),
        "captured variance": float(basis.scatter.sum() / basis.weight),
        "total variance": float(basis.total / basis.weight),
    }
    if floored:
        notes = (
            *notes,
            "the noise variance reached its floor: the data are fitted exactly, so k "
            "may be too large",
        )
    return Certificate(
        "maximum likelihood of probabilistic PCA on the observed entries",
        "stationary",
        tuple(checks),
        facts,
        notes,
    )
