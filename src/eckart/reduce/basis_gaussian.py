"""A basis as a Gaussian: N(mean, U (L - s I) U^T + s I), s the mean variance that the components
leave out."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.factors import Basis
from eckart.reduce.encode import encode, squared_errors
from eckart.reduce.missing import gaussian_of

LEAST = 1e-12
"""Share of the largest variance below which the noise is rounding: the covariance counts as
singular."""


def log_likelihoods(x: Any, b: Basis, engine: Any) -> np.ndarray:
    """Of each row of a placed matrix; with gaps, of its observed entries."""
    g = gaussian_of(b, LEAST)
    if x.kind == "observed":
        return engine.get(engine.gap_codes(x, g.w, g.mu, g.s2).loglik)
    codes = encode(x, b, engine).astype(np.float64)
    values = np.maximum(b.variances, g.s2)
    rest = np.maximum(squared_errors(x, b, engine), 0.0)
    log_det = float(np.log(values).sum()) + ((b.n - b.k) * np.log(g.s2) if b.n > b.k else 0.0)
    quadratic = (codes**2 / values).sum(axis=1) + (rest / g.s2 if b.n > b.k else 0.0)
    return -0.5 * (b.n * np.log(2 * np.pi) + log_det + quadratic)


def covariance(b: Basis) -> np.ndarray:
    """n x n."""
    gain = np.maximum(b.variances - b.noise, 0.0)
    u = b.components.astype(np.float64)
    return (u.T * gain) @ u + b.noise * np.eye(b.n)


def precision(b: Basis) -> np.ndarray:
    """Its inverse by the matrix inversion lemma; the pseudo-inverse where it is singular."""
    if b.noise <= LEAST * (float(b.variances[0]) if b.k else 1.0):
        return np.linalg.pinv(covariance(b), hermitian=True)
    u = b.components.astype(np.float64)
    return np.eye(b.n) / b.noise - (u.T * (1 / b.noise - 1 / np.maximum(b.variances, b.noise))) @ u
