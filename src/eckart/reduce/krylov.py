"""Block Krylov iteration with Rayleigh-Ritz: the leading eigenpairs of a covariance that is known
by its products only.

From a random block Q_0 the space span{Q_0, C Q_0, C^2 Q_0, ...} is grown by one block product a
step. In its orthonormal basis Q the small matrix T = Q^T C Q has eigenpairs (theta, s); v = Q s are
Ritz vectors, and because C Q = Q T + Q_next R in exact terms,
||C v - theta v|| = ||R s_last|| is known without another product. With block = 1 this is Lanczos, with block > k the randomized range finder that keeps
its history (which converges much faster than plain subspace iteration for the same number of
products).

The iteration stops on an error, not on a count: ``missing_energy`` bounds what any k-dimensional
subspace could capture beyond the sum of theta, as long as nothing larger hides outside the space;
that condition is what the certificate tests afterwards from an independent start.

References: Musco and Musco, "Randomized block Krylov methods" (2015); Parlett, "The symmetric
eigenvalue problem", ch. 11 and 13; Wu and Simon, "Thick-restart Lanczos" (2000).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eckart.decompositions import eigh, eigvalsh
from eckart.engines.protocol import Engine, Tall
from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, resumed_trace
from eckart.trace import StopReason, Trace, Watcher, silent

Product = Callable[[np.ndarray], np.ndarray]


@dataclass
class Ritz:
    """Ritz values (falling), vectors as columns inside the engine, residual norms, and the trace of
    the error bound; exact images of the vectors, where they were measured."""

    values: np.ndarray
    inside: Tall
    residuals: np.ndarray
    trace: Trace
    products: int
    engine: Engine
    images: Tall | None = None

    @property
    def vectors(self) -> np.ndarray:
        """A copy that has left the engine."""
        return self.engine.get(self.inside)


def missing_energy(values: np.ndarray, last: np.ndarray, remainder: np.ndarray, k: int) -> float:
    """What the k leading Ritz vectors can still miss, given all Ritz values, the last rows of S and
    R.

    In the Krylov basis and its complement C = [[Theta, B^T], [B, D]] with B = R S_last. While ||D||
    <= beta < theta_k, every eigenvalue lambda of C above theta_k is one of Theta + B^T (lambda -
    D)^-1 B, which is at most Theta + B^T B / (theta_k - beta); so the best k-subspace captures no
    more than the k largest eigenvalues of that small matrix. beta is taken from the Ritz values
    half of k further down.
    """
    beta = values[min(len(values) - 1, k + max(4, k // 2))] if len(values) > k else 0.0
    b = remainder @ last
    gap = max(float(values[k - 1] - beta), np.finfo(float).tiny)
    linear = float(np.linalg.norm(b[:, :k], axis=0).sum())
    with np.errstate(over="ignore"):
        raised = np.diag(values) + b.T @ b / gap
    if not np.isfinite(raised).all():
        return linear
    quadratic = float(np.sort(eigvalsh(raised))[::-1][:k].sum() - values[:k].sum())
    return max(0.0, min(linear, quadratic))


def _missing_share(values: np.ndarray, last: np.ndarray, remainder: np.ndarray, k: int) -> float:
    """The missing energy relative to the sum of the k leading Ritz values; all of it while there
    are fewer."""
    if len(values) < k:
        return 1.0
    return missing_energy(values, last, remainder, k) / max(
        float(values[:k].sum()), np.finfo(float).tiny
    )


def _seems_far(trace: Trace, tol: float) -> bool:
    """Whether one more step as good as the last would still miss more than ``tol``; two steps alone
    are seldom enough."""
    last = trace.values[-2:]
    return len(last) < 2 or last[1] ** 2 > tol * last[0]


FINEST = float(np.finfo(np.float64).eps) ** 2
"""With this ``tol`` the residuals decide, at a few units of rounding: missing energy is their
square, and rounds to 0 where vectors have half their digits."""


def _ritz(small: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, float]:
    """Eigenvalues of T, falling, its eigenvectors, and what rounding may leave of a product."""
    values, s = eigh((small + small.T) / 2)
    values, s = values[::-1], s[:, ::-1]
    scale = float(max(abs(values[0]), abs(values[-1]), np.finfo(float).tiny))
    return values, s, 4 * float(np.finfo(dtype).eps) * scale


def _ended(
    used: int,
    n: int,
    k: int,
    residuals: np.ndarray,
    noise: float,
    missing: float,
    tol: float,
    grows: bool,
) -> StopReason | None:
    """Why a space of ``used`` dimensions is enough, or None: the error is small, it is whole or can
    no longer grow, or what is left of it is rounding."""
    if used < k:
        return None
    worst = float(residuals[:k].max(initial=0.0))
    met = worst <= 8 * noise if tol <= FINEST else missing <= tol
    if met or used == n or not grows:
        return StopReason.CONVERGED
    return StopReason.STALLED if worst <= noise else None


def _thick_restart(
    engine: Engine, basis: Tall, t: np.ndarray, q: Tall, values: np.ndarray, s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Begin a full space anew with the leading Ritz vectors Q S, in which T is diagonal: its
    eigenvalues and eigenvectors."""
    keep = len(values)
    basis[:, :keep] = engine.outer(q, s)
    t[:] = 0.0
    t[np.arange(keep), np.arange(keep)] = values
    return values, np.eye(keep)


def block_krylov(
    product: Product,
    n: int,
    k: int,
    *,
    dtype: np.dtype,
    rng: np.random.Generator,
    engine: Engine,
    block: int,
    tol: float,
    max_steps: int,
    least_steps: int = 0,
    max_basis: int | None = None,
    start: np.ndarray | None = None,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
    inside: Callable[[Tall], Tall] | None = None,
) -> Ritz:
    """The k leading eigenpairs of a positive semidefinite operator; ``tol`` is relative to the sum
    of the k Ritz values, and is not looked at before ``least_steps``. ``inside`` is the same
    product of arrays of the engine that are not NumPy's, and do not cross."""
    block = max(1, min(block, n))
    limit = min(n, max_basis or max(k + 8 * block, 4 * k))
    first = engine.drawn(rng, (n, block), dtype)
    if start is not None:
        first = np.column_stack([engine.take(start, dtype), first])
    fresh = engine.orth(first)
    # the space stays in the engine; blocks cross
    basis = np.empty_like(fresh, dtype, order="C", shape=(n, min(n, limit + block)))
    used, products = 0, 0
    t = np.zeros((basis.shape[1], basis.shape[1]))
    trace = Trace("energy still missing, relative")
    values, s, residuals = np.empty(0), np.empty((0, 0)), np.empty(0)
    first_step, ahead = (
        1,
        None,
    )  # ``ahead``: the product with ``fresh``, where it has been asked for
    if (kept := memory.last()) is not None:
        first_step, used, products, fresh = (
            kept["step"],
            kept["used"],
            kept["products"],
            engine.take(kept["fresh"]),
        )
        basis[:, :used], t[:used, :used] = kept["basis"], kept["t"]
        trace = resumed_trace(trace.quantity, kept["trace"])
    try:
        for step in range(first_step, max_steps + 1):
            tall = {"basis": basis[:, :used], "fresh": fresh}
            spaces = {name: (lambda a=a: engine.get(a)) for name, a in tall.items()} | {
                "t": t[:used, :used]
            }
            memory.offer(
                spaces
                | {"step": step, "used": used, "products": products, "trace": kept_trace(trace)}
            )
            width = fresh.shape[1]
            engine.write_columns(basis, used, fresh)
            q = basis[:, : used + width]
            stays = None if isinstance(fresh, np.ndarray) else inside
            if ahead is None:
                ahead = engine.take(product(engine.get(fresh))) if stays is None else stays(fresh)
            image = ahead
            products += width
            coupling = engine.inner(q, image)
            image = engine.outer(q, -coupling, image)
            t[: used + width, used : used + width] = coupling
            t[used : used + width, : used + width] = coupling.T
            used += width
            # where arrays stay in the engine the noise is that of the step before: it works on
            # while eigenvalues are found
            if stays is None or not len(values):
                values, s, noise = _ritz(t[:used, :used], dtype)
            length = float(np.sqrt(max(np.trace(engine.inner(image, image)), 0.0)))
            following = engine.orth(image, q) if length > noise * np.sqrt(width) else image[:, :0]
            remainder, ahead = engine.inner(following, image), None
            if stays is not None:
                if (
                    0 < following.shape[1] <= basis.shape[1] - used
                    and step < max_steps
                    and _seems_far(trace, tol)
                ):
                    ahead = stays(following)
                values, s, noise = _ritz(t[:used, :used], dtype)
            residuals = np.linalg.norm(remainder @ s[used - width :], axis=0)
            missing = _missing_share(values, s[used - width :], remainder, k)
            trace.add(missing)
            watch("Krylov steps", step, None)
            # before that only rounding and the end of the space count
            asked = tol if step >= least_steps else 0.0
            if (
                ended := _ended(
                    used, n, k, residuals, noise, missing, asked, following.shape[1] > 0
                )
            ) is not None:
                trace.reason = ended
                break
            if following.shape[1] == 0:
                following = engine.orth(engine.drawn(rng, (n, min(block, n - used)), dtype), q)
            if used + following.shape[1] > basis.shape[1]:
                used = min(max(k + block, k + k // 2), used - 1)
                values, s = _thick_restart(engine, basis, t, q, values[:used], s[:, :used])
                following = engine.orth(following[:, : basis.shape[1] - used], basis[:, :used])
            fresh = following
        else:
            trace.reason = StopReason.MAX_ITER
    except KeyboardInterrupt:
        if used < k or not len(residuals):
            raise
        trace.reason = StopReason.INTERRUPTED
    kept = min(k, len(values))
    vectors = engine.outer(basis[:, : len(values)], s[:, :kept])
    return Ritz(values[:kept], vectors, residuals[:kept], trace, products, engine)
