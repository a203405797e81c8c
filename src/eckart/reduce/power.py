"""The power method: leading eigenpairs of a symmetric matrix that is known by its products only.

v <- A v / ||A v|| from a random normal start; theta = v^T A v; stop when ||A v - theta v|| <= tol
|theta|. Further pairs by deflation, A - sum_i theta_i u_i u_i^T, applied implicitly by projecting
each product off the pairs found: A is never rewritten and need not exist as an array. The residual
shrinks by |lambda_2 / lambda_1| a step.

Defined behaviour. Zero matrix: theta = 0 at once. Indefinite: the eigenvalue of largest magnitude;
for a pair +l, -l, whose iterates never settle, the 2-dimensional Rayleigh-Ritz step on span{v, Av}
separates them and the positive one comes first. Repeated eigenvalue: an orthonormal basis of its
eigenspace, one vector after another. A start orthogonal to u_1: after convergence a fresh random
vector is iterated a few steps; if it finds a larger eigenvalue, the iteration goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.arguments import held, numbers
from eckart.decompositions import eigh
from eckart.errors import InputError, invalid
from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, resumed_trace
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher, silent


@dataclass(frozen=True, eq=False)
class EigenPairs:
    """Eigenvalues by falling magnitude, eigenvectors as columns, residual norms, iterations and
    observed rate of each pair."""

    values: np.ndarray
    vectors: np.ndarray
    residuals: np.ndarray
    iterations: np.ndarray
    rates: np.ndarray
    converged: bool
    trace: Trace


@held
def power_method(
    a: Any,
    k: int = 1,
    *,
    n: int | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    start: np.ndarray | None = None,
    random_state: Any = None,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> EigenPairs:
    """k eigenpairs of largest magnitude of a symmetric matrix, by power iteration and implicit
    deflation.

    Parameters
    ----------
    a : array, SciPy sparse matrix, LinearOperator, or a function v -> A v (then give ``n``)
    k : number of pairs
    tol : stop when ``||A v - theta v|| <= tol |theta|``
    max_iter : limit for each pair
    start : first vector, for experiments; random normal by default

    >>> pairs = power_method(np.diag([3.0, 2.0, 1.0]), k=2, random_state=0)
    >>> pairs.values.round(6).tolist()
    [3.0, 2.0]
    """
    product, n = _product_of(a, n)
    if not 0 <= k <= n:
        raise invalid("k", k, f"0 to {n}, the size of the matrix")
    if not callable(watch):
        raise invalid("watch", watch, "a function of a phase, the steps done and their number")
    if not isinstance(memory, Memory):
        raise invalid("memory", memory, "a Memory of a checkpoint")
    rng = generator(random_state)
    values, vectors = np.zeros(k), np.zeros((n, k))
    residuals, iterations, rates = np.zeros(k), np.zeros(k, dtype=int), np.full(k, np.nan)
    trace = Trace("residual / |theta|", reason=StopReason.CONVERGED)
    done, first_step = True, 0
    if (kept := memory.last()) is not None:
        first_step, done, trace = (
            kept["pair"],
            kept["done"],
            resumed_trace(trace.quantity, kept["trace"]),
        )
        values, vectors, residuals, iterations, rates = kept["found"]
    for i in range(first_step, k):
        kept_state = {"pair": i, "done": done, "trace": lambda: kept_trace(trace)}
        inner = memory.inner(
            kept_state | {"found": [values, vectors, residuals, iterations, rates]}
        )
        found = vectors[:, :i]

        def deflated(v: np.ndarray, found: np.ndarray = found) -> np.ndarray:
            image = product(v)
            return image - found @ (found.T @ image)

        first = (
            numbers("start", start, f"{n} numbers")
            if start is not None and i == 0
            else rng.standard_normal(n)
        )
        if first.shape != (n,) or not np.isfinite(first).all() or not first.any():
            raise invalid("start", start, f"{n} finite numbers, not all of them 0")
        scale = float(np.abs(values[:i]).max(initial=0.0))
        pair = _one_pair(deflated, first, found, tol, max_iter, rng, trace, scale, inner)
        values[i], vectors[:, i], residuals[i], iterations[i], rates[i], ok = pair
        done &= ok
        watch("components", i + 1, k)
    if not done:
        trace.reason = StopReason.MAX_ITER
    if k > 1:
        values, vectors, residuals = _polish(product, vectors)
    return EigenPairs(values, vectors, residuals, iterations, rates, done, trace)


def _polish(product: Callable, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rayleigh-Ritz in the span of all pairs: errors of one pair that leaked into the next are
    rotated away."""
    q = np.linalg.qr(vectors)[0]
    image = np.column_stack([product(column) for column in q.T])
    small = q.T @ image
    values, s = eigh((small + small.T) / 2)
    # by falling magnitude; of a pair +l, -l the positive one first
    order = np.lexsort((-values, -np.round(np.abs(values), 12)))
    values, s = values[order], s[:, order]
    return values, q @ s, np.linalg.norm(image @ s - (q @ s) * values, axis=0)


def _one_pair(
    product: Callable,
    v: np.ndarray,
    found: np.ndarray,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    trace: Trace,
    scale: float,
    memory: Memory,
) -> tuple[float, np.ndarray, float, int, float, bool]:
    floor = 1e-13 * scale
    v = _unit(v, found, rng)
    checked = False
    history: list[float] = []
    theta, residual, step, first_step = 0.0, 0.0, 0, 1
    if (kept := memory.last()) is not None:
        v, checked, history, first_step = kept["v"], kept["checked"], kept["history"], kept["step"]
    for step in range(first_step, max_iter + 1):
        memory.offer({"v": v, "checked": checked, "history": history, "step": step})
        image = product(v)
        size = float(np.linalg.norm(image))
        theta = float(v @ image)
        residual = float(np.linalg.norm(image - theta * v))
        trace.add(residual / max(abs(theta), np.finfo(float).tiny))
        history.append(residual)
        settled = residual <= tol * abs(theta) or size <= floor or size == 0.0
        rate = None
        if not settled and step % 10 == 0 and residual > 0.9 * history[-10]:
            pair = _two_dimensional(product, v, image, theta)
            if pair is not None and pair[2] <= tol * abs(pair[0]):
                theta, v, residual, rate = pair
                settled = True
        if settled:
            other = None if checked else _larger(product, found, v, theta, rng)
            checked = True
            if other is None:
                return theta, v, residual, step, _rate(history) if rate is None else rate, True
            v = other
            continue
        v = _unit(image / size, found, rng)
    return theta, v, residual, step, _rate(history), False


def _unit(v: np.ndarray, found: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """v made orthogonal to what was found, of length one; a vector that vanishes is replaced by a
    random one."""
    for _ in range(4):
        v = v - found @ (found.T @ v)
        v = v - found @ (found.T @ v)
        size = float(np.linalg.norm(v))
        if np.isfinite(size) and size > 1e-150:
            return v / size
        v = rng.standard_normal(len(v))
    raise InputError("the matrix returned a product that is not finite; check its entries")


def _two_dimensional(
    product: Callable, v: np.ndarray, image: np.ndarray, theta: float
) -> tuple[float, np.ndarray, float, float] | None:
    """The Ritz pair of largest value in span{v, Av}, which separates +l from -l, its residual, and
    the ratio of the other Ritz value to it.

    The ratio is the rate that the steps would have come to: the residuals before a pair is found so
    may still be rising.
    """
    w = image - theta * v
    size = float(np.linalg.norm(w))
    if size == 0.0:
        return None
    w /= size
    image_w = product(w)
    t = np.array([[theta, v @ image_w], [v @ image_w, w @ image_w]])
    values, s = eigh(t)
    big = 1 if abs(values[1]) >= abs(values[0]) * (1 - 1e-9) else 0
    u = s[0, big] * v + s[1, big] * w
    residual = np.linalg.norm(s[0, big] * image + s[1, big] * image_w - values[big] * u)
    ratio = abs(values[1 - big] / values[big]) if values[big] else float("nan")
    return float(values[big]), u, float(residual), float(ratio)


def _larger(
    product: Callable, found: np.ndarray, v: np.ndarray, theta: float, rng: np.random.Generator
) -> np.ndarray | None:
    """A direction that a fresh start finds with a larger eigenvalue than theta, if there is one."""
    if v.size - found.shape[1] <= 1:
        return None
    w = _unit(rng.standard_normal(len(v)), np.column_stack([found, v]), rng)
    for _ in range(5):
        image = product(w)
        size = float(np.linalg.norm(image))
        if size > abs(theta) * (1 + 1e-6):
            return _unit(image / size, found, rng)
        if size <= 1e-13 * abs(theta):
            return None
        w = _unit(image / size, np.column_stack([found, v]), rng)
    return None


def _rate(history: list[float]) -> float:
    """Geometric mean of the last residual ratios: an estimate of |lambda_2 / lambda_1|."""
    tail = np.array([r for r in history[-6:] if r > 0])
    return float((tail[-1] / tail[0]) ** (1 / (len(tail) - 1))) if len(tail) > 1 else float("nan")


def _product_of(a: Any, n: int | None) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    if callable(a) and not hasattr(a, "shape"):
        if n is None:
            raise invalid("n", n, "the size of the matrix, since a function does not tell it")
        return a, n
    if not hasattr(a, "shape") or getattr(a, "dtype", None) == np.dtype(object):
        a = numbers("a", a, "a square symmetric matrix, or a function v -> a v")
    if len(a.shape) != 2 or a.shape[0] != a.shape[1]:
        raise InputError(f"a must be a square symmetric matrix, got shape {a.shape}")
    if isinstance(a, np.ndarray):
        if not np.isfinite(a).all():
            i, j = np.argwhere(~np.isfinite(a))[0]
            raise InputError(f"a must hold finite numbers, got {a[i, j]} at row {i}, column {j}")
        if not np.allclose(a, a.T, rtol=1e-6, atol=1e-9 * np.abs(a).max(initial=0.0)):
            raise InputError(
                "a is not symmetric; for singular vectors use the products v -> a.T @ (a @ v)"
            )
    return (lambda v: np.asarray(a @ v, np.float64)), a.shape[0]
