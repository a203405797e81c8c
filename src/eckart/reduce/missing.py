"""PCA of data with gaps: probabilistic PCA, x = W z + mu + noise, fitted by maximum likelihood on the observed entries.

EM with parameter expansion (Tipping and Bishop 1999; Liu, Rubin and Wu 1998). E: each row's code given its observed entries, z ~ N(M^-1 W_O^T (x_O - mu_O),
s2 M^-1). M: row j of [W, mu] solves the normal equations of the rows that observe column j; s2 is the mean squared misfit; then W
takes over the second moment of the codes, which speeds EM up and keeps the likelihood monotone. With nothing missing this
is PCA. The answer is reported in canonical form: W = U sqrt(L - s2 I), rows of U^T are the components, L their variances.

What the certificate proves: the likelihood never fell, and one more EM step moves nothing (a stationary point; another start could
find a better one).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.engines.protocol import Engine, GapStatistics
from eckart.errors import InputError
from eckart.factors import Basis, signs
from eckart.matrix import Counts, Observed
from eckart.reduce.krylov import block_krylov
from eckart.trace import StopReason, Trace, Watcher, silent

NOISE_FLOOR = 1e-9
STEP_LIMIT = 2e-3


@dataclass
class Gaussian:
    """x ~ N(mu, W W^T + s2 I)."""

    w: np.ndarray
    mu: np.ndarray
    s2: float


def check_observed(x: Observed) -> None:
    """Every column needs an observation, every entry must be finite."""
    if not np.isfinite(x.data).all():
        at = int(np.argmax(~np.isfinite(x.data)))
        row = int(np.searchsorted(x.indptr, at, side="right")) - 1
        raise InputError(f"X contains inf at row {row}, column {int(x.indices[at])}, wanted finite numbers or NaN")
    empty = np.flatnonzero(x.column_counts() == 0)
    if len(empty):
        name = int(empty[0]) if x.columns is None else x.columns[empty[0]]
        raise InputError(f"column {name!r} of X has no observed entry (and {len(empty) - 1} others); drop it")


def fit_gaussian(
    x: Observed,
    k: int,
    weights: np.ndarray | None,
    *,
    engine: Engine,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    start: Gaussian | None = None,
    watch: Watcher = silent,
) -> tuple[Gaussian, Trace]:
    """Maximum likelihood by EM; stops when a step raises the log-likelihood per observed entry by less than ``tol``."""
    g = start or _start(x, k, engine, rng)
    weight = float(x.shape[0]) if weights is None else float(weights.sum())
    seen = float(x.nnz) if weights is None else float(weights @ x.row_counts())
    floor = NOISE_FLOOR * (_column_variance(x)[1] or 1.0)
    trace = Trace("log-likelihood per observed entry", reason=StopReason.MAX_ITER)
    try:
        for step in range(max_iter):
            stats = engine.gap_statistics(x, g.w, g.mu, g.s2, weights)
            trace.add(stats.loglik / seen)
            watch("EM steps", step + 1, max_iter)
            if step and trace.values[-1] - trace.values[-2] <= tol:
                trace.reason = StopReason.CONVERGED
                break
            g = _expand(_maximise(stats, seen, floor), stats, weight)
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return g, trace


def _start(x: Observed, k: int, engine: Engine, rng: np.random.Generator) -> Gaussian:
    """Column means, and the leading eigenvectors of the centered data with gaps filled by zero."""
    n = x.shape[1]
    mu, variance = _column_variance(x)
    centered = Counts(x.indptr, x.indices, x.data - mu[x.indices], n)
    if k == 0 or variance == 0.0:
        return Gaussian(np.zeros((n, k)), mu, max(variance, np.finfo(float).tiny * 1e10))
    rate = x.nnz / (x.shape[0] * n)
    ritz = block_krylov(
        lambda v: engine.gram_times(centered, v, None) / (x.shape[0] * rate),
        n,
        k,
        dtype=np.dtype(np.float64),
        rng=rng,
        engine=engine,
        block=max(k, 4),
        tol=1e-2,
        max_steps=8,
    )
    values = np.maximum(ritz.values, 1e-6 * variance)
    s2 = max((n * variance - float(values.sum())) / n, 0.05 * variance)
    return Gaussian(ritz.vectors * np.sqrt(values), mu, s2)


def _column_variance(x: Observed) -> tuple[np.ndarray, float]:
    """Column means and the mean squared deviation from them, over observed entries."""
    mu = np.bincount(x.indices, x.data, minlength=x.shape[1]) / x.column_counts()
    return mu, float(np.mean((x.data - mu[x.indices]) ** 2))


def _maximise(stats: GapStatistics, seen: float, floor: float) -> Gaussian:
    """The M step: one small linear system a column."""
    size = stats.gram.shape[1]
    ridge = 1e-12 * np.trace(stats.gram, axis1=1, axis2=2)[:, None, None] / size * np.eye(size)
    a = np.linalg.solve(stats.gram + ridge, stats.cross[:, :, None])[:, :, 0]
    fit = stats.square - 2 * np.einsum("jr,jr->j", a, stats.cross) + np.einsum("jr,jrs,js->j", a, stats.gram, a)
    return Gaussian(a[:, :-1], a[:, -1], max(float(fit.sum()) / seen, floor))


def _expand(g: Gaussian, stats: GapStatistics, weight: float) -> Gaussian:
    """Let W and mu take over mean and covariance of the codes (parameter expansion)."""
    k = g.w.shape[1]
    if k == 0:
        return g
    mean = stats.second[:k, k] / weight
    covariance = stats.second[:k, :k] / weight - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 1e-12))
    return Gaussian(g.w @ root, g.mu + g.w @ mean, g.s2)


def to_basis(g: Gaussian, k: int, x: Observed, weights: np.ndarray | None) -> Basis:
    """Canonical form: orthonormal components by falling variance; k beyond the columns of W is filled with directions of variance s2."""
    n = len(g.mu)
    u, s, _ = np.linalg.svd(g.w, full_matrices=k > g.w.shape[1])
    values = np.full(k, g.s2)
    values[: len(s)] += s[:k] ** 2
    components = u[:, :k].T
    components = components * signs(components)[:, None]
    weight = float(x.shape[0]) if weights is None else float(weights.sum())
    degrees = weight - 1 if weight > 1 else weight
    total = float(values.sum() + (n - k) * g.s2)
    dtype = x.dtype
    return Basis(
        g.mu.astype(dtype),
        components.astype(dtype),
        values * weight,
        total * weight,
        g.s2 * weight / degrees,
        weight,
        x.shape[0],
        True,
        1.0 / (n - k) if n > k else None,
        x.columns,
    )


def gaussian_of(basis: Basis, noise_floor: float = NOISE_FLOOR) -> Gaussian:
    """The Gaussian that a basis stands for, with divisor ``degrees``; its noise is never quite zero."""
    s2 = max(float(basis.noise), noise_floor * basis.total / basis.degrees / basis.n, np.finfo(float).tiny * 1e20)
    gain = np.sqrt(np.maximum(basis.variances - s2, 0.0))
    return Gaussian(basis.components.T.astype(np.float64) * gain, basis.mean.astype(np.float64), s2)


def certify_gaps(
    x: Observed,
    basis: Basis,
    weights: np.ndarray | None,
    *,
    engine: Engine,
    trace: Trace | None = None,
    notes: tuple[str, ...] = (),
) -> Certificate:
    """One E step at the returned point: the gradient of the likelihood (Fisher's identity), as the relative step EM would still make."""
    factor = basis.degrees / basis.weight
    scaled = Basis(
        basis.mean,
        basis.components,
        basis.scatter * factor,
        basis.total * factor,
        basis.noise * factor,
        basis.weight,
        basis.rows,
    )
    g = gaussian_of(scaled)
    stats = engine.gap_statistics(x, g.w, g.mu, g.s2, weights)
    seen = float(x.nnz) if weights is None else float(weights @ x.row_counts())
    after = _maximise(stats, seen, 0.0)
    size = (float(np.sqrt(np.mean(g.w**2))) if g.w.size else 0.0) + float(np.sqrt(g.s2))
    floored = g.s2 <= 10 * NOISE_FLOOR * (_column_variance(x)[1] or 1.0)
    moved = {
        "W": float(np.sqrt(np.mean((after.w - g.w) ** 2))) / size if g.w.size else 0.0,
        "mean": float(np.sqrt(np.mean((after.mu - g.mu) ** 2))) / size,
        "noise": 0.0 if floored else abs(after.s2 - g.s2) / g.s2,
    }
    checks = [Check("EM step", max(moved.values()), STEP_LIMIT, "relative change that one more EM step would make")]
    if trace is not None and len(trace) > 1:
        falls = np.maximum(-np.diff(trace.values), 0.0)
        checks.append(
            Check(
                "likelihood never falls",
                float(falls.max()),
                1e-9 * max(1.0, abs(trace.values[-1])),
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
        notes = (*notes, "the noise variance reached its floor: the data are fitted exactly, so k may be too large")
    return Certificate(
        "maximum likelihood of probabilistic PCA on the observed entries", "stationary", tuple(checks), facts, notes
    )
