"""PCA of data with gaps: probabilistic PCA, x = W z + mu + noise, fitted by maximum likelihood on
the observed entries.

EM with parameter expansion (Tipping and Bishop 1999; Liu, Rubin and Wu 1998). E: each row's code
given its observed entries, z ~ N(M^-1 W_O^T (x_O - mu_O), s2 M^-1). M: row j of [W, mu] solves the
normal equations of the rows that observe column j; s2 is the mean squared misfit; then W takes over
the second moment of the codes, which speeds EM up and keeps the likelihood monotone. With nothing
missing this is PCA. The answer is reported in canonical form: W = U sqrt(L - s2 I), rows of U^T are
the components, L their variances.

What the certificate proves: the likelihood never fell, and one more EM step moves nothing (a
stationary point; another start could find a better one).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.gaps import certify_gaps
from eckart.decompositions import eigh, svd
from eckart.engines.protocol import Engine, GapStatistics, SeenColumns
from eckart.errors import InputError
from eckart.factors import Basis, signs
from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, resumed_trace
from eckart.reduce.krylov import block_krylov
from eckart.trace import StopReason, Trace, Watcher, silent

NOISE_FLOOR = 1e-9
"""Least noise, in units of the entries' variance: below it the likelihood of an exact fit grows
without end."""


@dataclass
class GaussianRows:
    """x ~ N(mu, W W^T + s2 I)."""

    w: np.ndarray
    mu: np.ndarray
    s2: float


def check_observed(x: Any, seen: SeenColumns) -> None:
    """Every column needs an observation."""
    empty = np.flatnonzero(seen.seen == 0)
    if len(empty):
        name = int(empty[0]) if x.columns is None else x.columns[empty[0]]
        more = f", nor have {len(empty) - 1} others" if len(empty) > 1 else ""
        raise InputError(f"column {name!r} of X has no observed entry{more}; leave it out")


def fit_gaussian(
    x: Any,
    k: int,
    weight: float,
    *,
    engine: Engine,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[GaussianRows, Trace]:
    """Maximum likelihood by EM on a placed matrix, whose rows weigh ``weight`` together.

    Stops when a step raises the log-likelihood per observed entry by less than ``tol``."""
    columns = engine.seen_columns(x)
    variance = float(columns.square.sum()) / max(x.nnz, 1)
    floor = NOISE_FLOOR * (variance or 1.0)
    trace = Trace("log-likelihood per observed entry", reason=StopReason.MAX_ITER)
    if (kept := memory.last()) is not None:
        g, trace = GaussianRows(**kept["g"]), resumed_trace(trace.quantity, kept["trace"])
    else:
        g = _start(x, k, weight, columns.mean, variance, engine, rng)
    try:
        for step in range(len(trace), max_iter):
            memory.offer({"g": g, "trace": kept_trace(trace)})
            stats = engine.gap_statistics(x, g.w, g.mu, g.s2)
            seen = float(stats.gram[:, -1, -1].sum())
            trace.add(stats.loglik / seen)
            watch("EM steps", step + 1, max_iter)
            if step and trace.values[-1] - trace.values[-2] <= tol:
                trace.reason = StopReason.CONVERGED
                break
            a, misfit = engine.gap_solve(stats)  # the M step: one small linear system a column
            g = _expand(
                GaussianRows(a[:, :-1], a[:, -1], max(float(misfit.sum()) / seen, floor)), stats
            )
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return g, trace


def _start(
    x: Any,
    k: int,
    weight: float,
    mu: np.ndarray,
    variance: float,
    engine: Engine,
    rng: np.random.Generator,
) -> GaussianRows:
    """Column means, and the leading eigenvectors of the centered data with gaps filled by zero."""
    rows, n = x.shape
    if k == 0 or variance == 0.0:
        return GaussianRows(np.zeros((n, k)), mu, max(variance, np.finfo(float).tiny * 1e10))
    rate = x.nnz / (rows * n)
    ritz = block_krylov(
        lambda v: engine.gram_times(x, v, mu) / (weight * rate),
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
    return GaussianRows(ritz.vectors * np.sqrt(values), mu, s2)


def _expand(g: GaussianRows, stats: GapStatistics) -> GaussianRows:
    """Let W and mu take over mean and covariance of the codes (parameter expansion)."""
    k = g.w.shape[1]
    if k == 0:
        return g
    weight = stats.second[k, k]
    mean = stats.second[:k, k] / weight
    covariance = stats.second[:k, :k] / weight - np.outer(mean, mean)
    values, vectors = eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 1e-12))
    return GaussianRows(g.w @ root, g.mu + g.w @ mean, g.s2)


def to_basis(g: GaussianRows, k: int, weight: float, x: Any) -> Basis:
    """Canonical form: orthonormal components by falling variance; k beyond the columns of W is
    filled with directions of variance s2."""
    n = len(g.mu)
    u, s, _ = svd(g.w, full_matrices=k > g.w.shape[1])
    values = np.full(k, g.s2)
    values[: len(s)] += s[:k] ** 2
    components = u[:, :k].T
    components = components * signs(components)[:, None]
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


def gaussian_of(basis: Basis, noise_floor: float = NOISE_FLOOR) -> GaussianRows:
    """The Gaussian that a basis stands for, with divisor ``degrees``; its noise is never quite
    zero."""
    s2 = max(
        float(basis.noise),
        noise_floor * basis.total / basis.degrees / basis.n,
        np.finfo(float).tiny * 1e20,
    )
    gain = np.sqrt(np.maximum(basis.variances - s2, 0.0))
    return GaussianRows(
        basis.components.T.astype(np.float64) * gain, basis.mean.astype(np.float64), s2
    )


def certificate_of(
    x: Any, basis: Basis, *, engine: Engine, trace: Trace | None = None, notes: tuple[str, ...] = ()
) -> Certificate:
    """The certificate of a basis on a placed matrix with gaps."""
    factor = basis.degrees / basis.weight
    g = gaussian_of(
        replace(
            basis,
            scatter=basis.scatter * factor,
            total=basis.total * factor,
            noise=basis.noise * factor,
            columns=None,
        )
    )
    variance = float(engine.seen_columns(x).square.sum()) / max(x.nnz, 1)
    floored = g.s2 <= 10 * NOISE_FLOOR * (variance or 1.0)
    return certify_gaps(
        x, basis, (g.w, g.mu, g.s2), floored, engine=engine, trace=trace, notes=notes
    )
