"""Solvers of one PCA: eigh, svd, power, randomized, lanczos, gradient. Each returns eigenvalues and
rows of components.

All solve  max tr(U^T C U), U^T U = I  for the covariance C of ``Covariance``; they differ in what
they need of the data: the covariance
itself (``eigh``, ``gradient``), the entries (``svd``), or products only (``randomized``,
``lanczos``, ``power``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.certify.spectral import TALL
from eckart.decompositions import eigh
from eckart.engines.protocol import Engine, Tall
from eckart.errors import InputError
from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.reduce import rank
from eckart.reduce.covariance import Covariance
from eckart.reduce.krylov import Ritz, block_krylov
from eckart.reduce.power import power_method
from eckart.reduce.train_linear import train
from eckart.trace import StopReason, Trace, Watcher

ROUGH_TOL = 1e-5
"""Shares of missing energy from which products may be rough: rounding changes energy by far
less."""
RANDOMIZED_TOL, LANCZOS_TOL = 1e-4, 1e-7
"""Where no ``tol`` is given: randomized is asked for its speed, lanczos for its accuracy."""


WEAK = {"f": 1e-6, "d": 1e-10}
"""Singular values below this share of the largest have no direction: rounding of the working
precision."""
STEEP = 1e4
"""Entries of an inverse triangle up to which two of them give orthonormal columns to rounding;
beyond, a QR factorization does."""


@dataclass
class Spectrum:
    """Leading eigenvalues (falling) of the covariance, components as rows; ``all_values`` is the
    whole spectrum where known, ``images`` are exact products of the covariance with these very
    components, beside them as columns inside the engine, where the solver made them."""

    values: np.ndarray
    components: np.ndarray
    trace: Trace
    tol: float
    all_values: np.ndarray | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    images: tuple[Tall, Tall] | None = None


def pick(k: Any, values: np.ndarray, total: float, weight: float, rows: int, n: int) -> int:
    """n_components resolved on a whole spectrum."""
    most = min(rows, n)
    if k is None:
        return most
    if k == "auto":
        return min(rank.gavish_donoho(values[:most], weight, n), most)
    if k == "mle":
        if rows < n:
            raise InputError(
                "n_components='mle' is only supported if n_samples >= n_features: X must have at "
                "least as many rows as columns"
            )
        return rank.minka(values, rows)
    if isinstance(k, (float, np.floating)):
        return rank.by_share(values[:most], total, float(k))
    return int(k)


def solve_eigh(c: Covariance, k: Any) -> Spectrum:
    """Eigenvectors of the covariance matrix by LAPACK."""
    assert c.matrix is not None
    n = c.n
    exact = 1e-12 if c.dtype == np.float64 else 1e-8
    known = isinstance(k, (int, np.integer))
    values, vectors = c.engine.eigh_top(c.matrix, int(k) if known else n)
    values = np.maximum(values, 0.0)
    everything = None if known and len(values) < n else values
    kept = pick(k, values, c.total, c.weight, c.rows, n)
    return Spectrum(values[:kept], vectors[:, :kept].T, Trace("none"), exact, everything)


def solve_rows(c: Covariance, k: Any) -> Spectrum:
    """Short and wide: eigenvectors of the N x N matrix Xc Xc^T, turned into components by one more
    product."""
    gram = c.rows_gram()
    rows = len(gram)
    known = isinstance(k, (int, np.integer))
    values, u = c.engine.eigh_top(gram, int(k) if known else rows)
    values = np.maximum(values, 0.0)
    # a sketch has fewer rows than it has seen
    kept = min(pick(k, values, c.total, c.weight, c.rows, c.n), rows)
    values, u = values[:kept], u[:, :kept]
    components = _orthonormal_rows(c.times_t(u), values)
    return Spectrum(values, components, Trace("none"), 1e-12 if c.dtype == np.float64 else 1e-8)


def _orthonormal_rows(images: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Columns of squared lengths about ``values`` as orthonormal rows, in that order; vanishing
    ones become any orthogonal direction.

    Columns are almost orthogonal, so that Q = A R^-1 with R^T R = A^T A, twice, is as good as a QR
    factorization, and few rows of A are held in float64.
    """
    n, k = images.shape
    out = np.empty((k, n), images.dtype)
    if k == 0:
        return out
    scale = 1.0 / np.sqrt(np.maximum(values, np.finfo(float).tiny))
    weak = values <= (WEAK[images.dtype.char] ** 2) * values[0]
    scale[weak] = 0.0
    np.multiply(images.T, scale[:, None].astype(images.dtype), out=out)
    for row in np.flatnonzero(weak):
        np.random.default_rng(int(row)).standard_normal(n, out=out[row], dtype=out.dtype)
        out[row] /= np.sqrt(n)
    for _ in range(2):
        square = np.zeros((k, k))
        for first in range(0, n, TALL):
            part = out[:, first : first + TALL].astype(np.float64)
            square += part @ part.T
        try:
            turn = np.linalg.inv(np.linalg.cholesky(square))
        except np.linalg.LinAlgError:
            turn = np.full((k, k), np.inf)
        if np.abs(turn).max() > STEEP:
            return np.linalg.qr(out.T.astype(np.float64))[0].T
        for first in range(0, n, TALL):
            out[:, first : first + TALL] = turn @ out[:, first : first + TALL].astype(np.float64)
        if np.abs(turn).max() < 2:  # the columns were all but orthonormal before
            break
    return out  # signs are fixed where the basis is made


def solve_svd(engine: Engine, x: Any, k: Any, centered: bool) -> tuple[Spectrum, Covariance]:
    """Full singular value decomposition of the centered entries: small singular values keep their
    full precision."""
    d = engine.svd(x, centered)
    values = d.values**2 / d.weight
    total, n = float(values.sum()), len(d.mean)
    kept = pick(k, values, total, d.weight, d.rows, n)
    spread = np.sqrt(values @ d.right**2) if centered else None
    c = Covariance(d.mean, total, d.weight, d.rows, x.dtype, centered, engine, x, deviations=spread)
    exact = 1e-12 if x.dtype == np.float64 else 1e-8
    return Spectrum(values[:kept], d.right[:kept], Trace("none"), exact, values), c


def solve_krylov(
    c: Covariance,
    k: Any,
    *,
    lanczos: bool,
    tol: float,
    oversample: int,
    max_steps: int | None,
    all_steps: bool = False,
    rng: np.random.Generator,
    watch: Watcher,
    memory: Memory = NOTHING,
) -> Spectrum:
    """Block Krylov on products; an open k (share or "auto") grows the subspace until it is
    answered."""
    most = min(c.rows, c.n)
    tol = tol or (LANCZOS_TOL if lanczos else RANDOMIZED_TOL)
    wanted = int(k) if isinstance(k, (int, np.integer)) else (most if k is None else min(most, 32))
    wanted, start = memory.last() or (wanted, None)
    while True:
        block = (
            min(8, max(wanted, 1))
            if lanczos
            else _block(wanted, oversample, c.data.kind == "counts")
        )
        steps = max_steps or max(60, 40 * -(-wanted // block))
        ritz = block_krylov(
            c.product,
            c.n,
            wanted,
            dtype=c.dtype,
            rng=rng,
            engine=c.engine,
            block=block,
            tol=tol,
            max_steps=steps,
            least_steps=steps if all_steps else 0,
            start=start,
            watch=watch,
            memory=memory.inner((wanted, start)),
            inside=None if c.matrix is not None else lambda v: c.inside(v, rough=tol >= ROUGH_TOL),
        )
        if tol >= ROUGH_TOL and c.matrix is None:
            _settle(c, ritz)
        values = np.maximum(ritz.values, 0.0)
        answered = _answered(k, values, c, wanted)
        if answered is not None or wanted >= most or ritz.trace.reason is StopReason.INTERRUPTED:
            break
        wanted, start = min(most, 2 * wanted), ritz.vectors
    kept = wanted if answered is None else answered
    ritz.trace.note = f"{ritz.products} columns multiplied"
    finest = 1e-12 if c.dtype == np.float64 else 1e-8  # what an exact solver is held to
    found = ritz.inside[:, :kept]
    # rows are looked at one by one from here on
    components = np.ascontiguousarray(c.engine.get(found.T))
    images = None if ritz.images is None else (found, ritz.images[:, :kept])
    return Spectrum(values[:kept], components, ritz.trace, max(tol, finest), images=images)


DIAGONAL = 2.0**-12
"""What exact products between different vectors may be, of the largest variance, for rough ones to
have been right: residuals may be a hundred times that."""


def _settle(c: Covariance, ritz: Ritz) -> None:
    """Rayleigh-Ritz by an exact product in the span that rough ones found; where arrays are
    NumPy's, products were exact.

    Vectors that are settled already stay as they are, so that the certificate need not multiply
    them again.
    """
    v = ritz.inside
    if isinstance(v, np.ndarray):
        return
    image = c.inside(v)
    small = c.engine.inner(v, image)
    values = np.diagonal(small)
    if np.abs(small - np.diag(values)).max(initial=0.0) <= DIAGONAL * np.abs(values).max(
        initial=0.0
    ):
        order = np.argsort(-values, kind="stable")
        ritz.values, ritz.inside, ritz.images = values[order], v[:, order], image[:, order]
        return
    values, turn = eigh((small + small.T) / 2)
    ritz.values, ritz.inside = values[::-1], c.engine.outer(v, turn[:, ::-1])


def _block(k: int, oversample: int, sparse: bool) -> int:
    """Products with fewer columns than this are bound by memory, and more steps would be needed."""
    return max(min(k, 32), k // 2, oversample) if sparse else max(k, oversample)


def _answered(k: Any, values: np.ndarray, c: Covariance, wanted: int) -> int | None:
    if k is None or isinstance(k, (int, np.integer)):
        return wanted
    if isinstance(k, (float, np.floating)):
        reached = values.sum() > float(k) * c.total
        return rank.by_share(values, c.total, float(k)) if reached else None
    found = rank.gavish_donoho(values, c.weight, c.n, c.total)
    return found if found < wanted else None


def solve_power(
    c: Covariance,
    k: int,
    tol: float,
    max_iter: int | None,
    rng: np.random.Generator,
    watch: Watcher,
    memory: Memory = NOTHING,
) -> Spectrum:
    """The power method with deflation on products in working precision."""
    working = c.dtype if c.matrix is None else np.dtype(np.float64)
    limit = max(tol or 1e-6, 60 * float(np.finfo(working).eps))

    def product(v: np.ndarray) -> np.ndarray:
        return np.asarray(c.product(v[:, None].astype(working)), np.float64)[:, 0]

    how: dict[str, Any] = {
        "n": c.n,
        "tol": limit,
        "max_iter": max_iter or 2000,
        "random_state": rng,
    }
    pairs = power_method(product, k, watch=watch, memory=memory, **how)
    order = np.argsort(-pairs.values, kind="stable")
    values, vectors = np.maximum(pairs.values[order], 0.0), pairs.vectors[:, order]
    return Spectrum(values, vectors.T, pairs.trace, max(limit, 1e-6))


def solve_gradient(
    c: Covariance,
    k: int,
    tol: float,
    max_iter: int | None,
    rng: np.random.Generator,
    watch: Watcher,
) -> Spectrum:
    """Accelerated gradient descent on the risk of a linear autoencoder, then its canonical form
    (orthonormal, by variance)."""
    largest = block_krylov(
        c.product,
        c.n,
        1,
        dtype=np.dtype(np.float64),
        rng=rng,
        engine=c.engine,
        block=2,
        tol=1e-3,
        max_steps=60,
    ).values[0]
    trained = train(
        c.product,
        c.n,
        k,
        c.total,
        float(largest),
        optimizer="nesterov",
        learning_rate="auto",
        tied=False,
        ridge=0.0,
        tol=tol or 1e-8,
        max_iter=max_iter or 20_000,
        rng=rng,
        watch=watch,
    )
    values, components = canonical(c, trained.decoder)
    return Spectrum(values, components, trained.trace, 1e-6, notes={"gradient": trained.gradient})


def canonical(c: Covariance, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rayleigh-Ritz in the span of columns: the orthonormal, variance-ordered basis of that
    subspace."""
    q = np.linalg.qr(directions)[0]
    small = q.T @ np.asarray(c.product(q), np.float64)
    values, s = eigh((small + small.T) / 2)
    return np.maximum(values[::-1], 0.0), (q @ s[:, ::-1]).T
