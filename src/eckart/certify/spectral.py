"""Evidence that k orthonormal rows span the leading eigenspace of a covariance C.

Measured from products with C alone, at the returned point:

* orthonormality         max |V^T V - I|
* Ritz residuals         r_i = ||C v_i - theta_i v_i||: an eigenvalue of C lies within r_i of
theta_i
* captured variance      tr V^T C V, against tr C
* remainder              xi <= ||(I - V V^T) C (I - V V^T)||_2 by the block power method in its
Lanczos form, from an independent random start

and from these an upper bound on what ANY k-dimensional subspace captures. With R = (I - V V^T) C V
and ||remainder|| <= beta,
Ky Fan's inequality gives  sum_{i<=k} lambda_i <= sum_i max(theta_i, beta) + ||R||_*.

Products of the remainder may be those of rows whose entries are rounded by a share u of their size
(about the mean). Such rows differ by a matrix of norm u sqrt(W tr C) at the most, so that
sqrt(beta) is raised by u sqrt(tr C).

Where C itself is at hand, beta is proven: beta I - remainder has a Cholesky factor. Of few rows A
with C = A^T A the products A A^T are at hand, and the remainder has the eigenvalues of A A^T - A V
(A V)^T. Where only products with C are, q Lanczos steps from one random start give xi >= (1 - eps)
||remainder|| except with probability p = 1.648 sqrt(n) exp(-sqrt(eps) (2q - 1)) (Kuczynski and
Wozniakowski 1992); a block of b independent starts contains each of their Krylov spaces, so it
fails with probability at most p^b, and beta = xi / (1 - eps).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.decompositions import eigh, eigvalsh
from eckart.engines.protocol import Engine

PROBE = (5, 8)
"""Steps and random starts of the remainder's estimate; one start and more steps is quicker where
products are sparse."""
SPARSE_PROBE = (10, 1)
FAILURE = 1e-3
"""Chance with which a bound that is not proven may be wrong; it is reported with it."""
CLEAR = 1e-13
"""Parts of unit vectors in a basis up to which they count as orthogonal to it: some dozen
roundings."""
TALL = 2**16
"""Rows of tall arrays that are looked at together in float64: a few columns of them stay in
cache."""
PROBLEM = "capture the most variance with k directions: max tr(V^T C V), V^T V = I"

Product = Callable[[np.ndarray], np.ndarray]


def certify_subspace(
    product: Product,
    components: np.ndarray,
    values: np.ndarray,
    total: float,
    *,
    rng: np.random.Generator,
    tol: float,
    held: tuple[Engine, np.ndarray] | None = None,
    floor: float = 0.0,
    probe: tuple[int, int] = PROBE,
    notes: tuple[str, ...] = (),
    extra: tuple[Check, ...] = (),
    engine: Engine | None = None,
    known: Any = None,
    rough: tuple[Product, float] | None = None,
) -> Certificate:
    """Certificate of rows ``components`` with claimed eigenvalues ``values`` of the covariance
    behind ``product``.

    ``tol`` is the share of the captured variance that the solver was allowed to miss; residuals may
    then be up to about its square root. ``held`` is C itself where it is at hand, with the engine
    that factors it; else ``engine`` is that of the products, where tall arrays then stay. ``floor``
    is the rounding error of C: smaller eigenvalues cannot be distinguished from zero. ``known`` are these
    very components as columns and their products, inside the engine, where these have been made;
    then ``rough`` may give products for the remainder alone, and the share by which they round
    entries.
    """
    k, n = components.shape
    if k == 0:
        return _of_nothing(total, notes, extra)
    apart = product if known is None or rough is None else rough[0]
    seen = _measured(apart, components, held, rng, probe, engine, known)
    v, image, by = seen.v, seen.image, seen.by
    orthonormal = float(np.abs(_inner(v, v, by) - np.eye(k)).max())
    inside = _inner(v, image, by)
    if by is None:
        residuals = np.linalg.norm(image - v * values, axis=0)
    else:
        rest = _plus(v, -np.diag(values), image, by)
        residuals = np.sqrt(np.diagonal(by.inner(rest, rest)))
    outside = _plus(v, -inside, image, by)
    leaving = _inner(outside, outside, by)
    if k >= n:
        found, beta, how = 0.0, 0.0, "exact: k directions are all there are"
    else:
        left = float(total) - float(np.trace(inside))
        if held is not None:  # C - V image^T - image V^T + V inside V^T = C + V turn^T + turn V^T
            turn = 0.25 * v @ (inside + inside.T) - image
            found, beta, how = proven_norm(product, *held, v, turn, rng, left)
        else:
            found, beta, how = remainder_norm(
                apart, v, components.dtype, rng, left, *probe, first=seen.first, engine=engine
            )
            if apart is not product and rough is not None:
                beta = min((np.sqrt(beta) + rough[1] * np.sqrt(total)) ** 2, max(left, beta))
                how = (
                    f"{how}, raised by what rounding entries by {rough[1]:.0e} of their size "
                    "can hide"
                )
    evidence = _Evidence(orthonormal, residuals, inside, leaving, found, beta, how)
    return _judged(evidence, components, values, total, tol, floor, notes, extra)


def certify_rows(
    gram: np.ndarray,
    times: Product,
    times_t: Product,
    components: np.ndarray,
    values: np.ndarray,
    total: float,
    *,
    tol: float,
    floor: float = 0.0,
    notes: tuple[str, ...] = (),
    extra: tuple[Check, ...] = (),
) -> Certificate:
    """The same for few rows A with C = A^T A, whose small matrix ``gram`` = A A^T is at hand: A (I
    - V V^T) A^T = A A^T - (A V) (A V)^T has the eigenvalues of the remainder, so its norm is known
    without a random start. ``times`` is V -> A V and ``times_t`` Y -> A^T Y; nothing of float64 is
    as tall as V."""
    k, n = components.shape
    if k == 0:
        return _of_nothing(total, notes, extra)
    v = components.T
    codes = np.asarray(times(v), np.float64)
    image, inside = times_t(codes), codes.T @ codes
    square, leaving = np.zeros((k, k)), np.zeros((k, k))
    for first in range(0, n, TALL):
        part, its = (np.asarray(a[first : first + TALL], np.float64) for a in (v, image))
        square += part.T @ part
        its -= part @ inside
        leaving += its.T @ its
    off = inside - np.diag(values)  # C V - V diag(values) is what leaves the span, and V off
    residual = np.diagonal(leaving) + np.einsum("ij,ij->j", off, square @ off)
    found = float(np.abs(eigvalsh(gram - codes @ codes.T)).max(initial=0.0))
    evidence = _Evidence(
        float(np.abs(square - np.eye(k)).max()),
        np.sqrt(residual),
        inside,
        leaving,
        found,
        min(found, max(float(total) - float(np.trace(inside)), 0.0)),
        f"Ky Fan, with the rest an eigenvalue of the {len(gram)} x {len(gram)} products of rows",
    )
    return _judged(evidence, components, values, total, tol, floor, notes, extra)


class _Evidence(NamedTuple):
    """What was measured of V: the largest entry of |V^T V - I|, residuals, V^T C V, the squares of
    (I - V V^T) C V, and the norm of the remainder as an estimate from below, as a bound and in
    words."""

    orthonormal: float
    residuals: np.ndarray
    inside: np.ndarray
    leaving: np.ndarray
    found: float
    beta: float
    how: str


def _of_nothing(total: float, notes: tuple[str, ...], extra: tuple[Check, ...]) -> Certificate:
    """The certificate of no direction at all."""
    return Certificate(
        PROBLEM,
        "global",
        extra,
        {"captured variance": 0.0, "total variance": float(total), "k": 0},
        notes,
    )


def _judged(
    e: _Evidence,
    components: np.ndarray,
    values: np.ndarray,
    total: float,
    tol: float,
    floor: float,
    notes: tuple[str, ...],
    extra: tuple[Check, ...],
) -> Certificate:
    """The certificate that follows from what was measured."""
    k, n = components.shape
    eps = float(np.finfo(components.dtype).eps)
    scale = max(float(np.abs(values).max()), floor, np.finfo(float).tiny)
    captured = float(np.trace(e.inside))
    nuclear = float(np.sqrt(np.maximum(eigvalsh(e.leaving), 0.0)).sum())
    theta = np.sort(eigvalsh((e.inside + e.inside.T) / 2))[::-1]
    rounding = 30 * eps * np.sqrt(n) * scale
    upper = float(total) if k >= n else float(np.maximum(theta, e.beta).sum()) + nuclear
    upper = max(min(upper, float(total)), captured)
    facts: dict[str, Any] = {
        "k": k,
        "captured variance": captured,
        "total variance": float(total),
        "upper bound for any k directions": upper,
        "share of the upper bound captured": captured / upper if upper > 0 else 1.0,
        "how the bound is known": e.how,
        "remainder norm": e.found,
        "largest residual": float(e.residuals.max()),
    }
    allowed = max(float(np.sqrt(tol)), 30 * eps * np.sqrt(n))
    checks = (
        Check(
            "orthonormality",
            e.orthonormal,
            max(50 * eps * np.sqrt(k), 1e-12),
            "largest entry of |V^T V - I|",
        ),
        Check(
            "Ritz residual",
            float(e.residuals.max()) / scale,
            allowed,
            "largest ||C v - theta v|| / theta_1: each v is an eigenvector",
        ),
        Check(
            "nothing larger left out",
            e.found / scale,
            float(theta[-1]) * (1 + 0.3 * np.sqrt(tol)) / scale + allowed / 3 + rounding / scale,
            "norm of what is orthogonal to V, found from another start, against "
            "theta_k; both / theta_1",
        ),
        Check(
            "variance not overcounted",
            (captured - float(total)) / scale,
            1e3 * eps,
            "captured minus total, / theta_1",
        ),
        *extra,
    )
    return Certificate(PROBLEM, "global", checks, facts, notes)


class _Measured(NamedTuple):
    """V in float64 and C V; random directions orthogonal to V with their products, which begin the
    remainder's estimate; the engine that holds them."""

    v: Any
    image: Any
    first: tuple[Any, Any] | None
    by: Engine | None


def _measured(
    product: Product,
    components: np.ndarray,
    held: tuple[Engine, np.ndarray] | None,
    rng: np.random.Generator,
    probe: tuple[int, int],
    engine: Engine | None,
    known: Any,
) -> _Measured:
    """One pass over the data: products with V where they are not ``known``, and, where C is not
    ``held``, with the first random directions."""
    k, n = components.shape
    v: Any = components.T if known is None else known[0]
    v = np.ascontiguousarray(v) if held is not None or engine is None else engine.take(v)
    by = _by(engine, v)
    exact: Any = v.astype(np.float64) if by is None else by.take(v, np.float64)
    both, fresh = v, None
    if held is None and k < n:
        drawn = rng.standard_normal((n, min(probe[1], n - k)))
        fresh = _outside(drawn if engine is None else engine.take(drawn), exact, by)
        both = (
            _stack_columns(v, fresh.astype(v.dtype), by) if known is None else fresh.astype(v.dtype)
        )
    if known is not None and both is v:
        images = known[1].astype(np.float64, copy=False)
    else:
        images = product(both)
        images = (
            images.astype(np.float64, copy=False) if by is None else by.take(images, np.float64)
        )
        images = images if known is None else np.hstack([known[1].astype(np.float64), images])
    return _Measured(exact, images[:, :k], None if fresh is None else (fresh, images[:, k:]), by)


def mean_check(claimed: np.ndarray, found: np.ndarray, spread: float, dtype: np.dtype) -> Check:
    """The mean of the model against that of the data, in standard deviations of the data."""
    off = float(np.linalg.norm(found - claimed)) / spread
    limit = 20 * float(np.finfo(dtype).eps) * (1 + float(np.linalg.norm(found)) / spread)
    return Check(
        "mean", off, limit, "distance of the model's mean from the data's, / standard deviation"
    )


def remainder_norm(
    product: Product,
    v: np.ndarray,
    dtype: np.dtype,
    rng: np.random.Generator,
    most: float,
    steps: int = PROBE[0],
    block: int = PROBE[1],
    first: tuple[np.ndarray, np.ndarray] | None = None,
    engine: Engine | None = None,
) -> tuple[float, float, str]:
    """(xi, beta, words): estimate from below and probable bound from above of ||(I - VV^T) C (I -
    VV^T)||_2; ``most`` is its trace. ``engine`` is that of the arrays; without one they are
    NumPy's, and so few that one thread does."""
    n, k = v.shape
    by = _by(engine, v)
    order: Any = "F" if by is None else "C"
    # V, then the Krylov space
    basis, used = np.empty_like(v, np.float64, order=order, shape=(n, k + steps * block)), k
    _write(basis, 0, v, by)
    t = np.zeros((0, 0))
    fresh = rng.standard_normal((n, min(block, n - k)))
    if engine is not None and not isinstance(v, np.ndarray):
        fresh = engine.take(fresh)
    done = 0
    for step in range(steps):
        fresh = _outside(fresh, basis[:, :used], by) if step or first is None else first[0]
        if fresh.shape[1] == 0:
            xi = _largest(t)
            return xi, xi, "exact up to rounding: the Krylov space of the complement is exhausted"
        _write(basis, used, fresh, by)
        used += fresh.shape[1]
        image = first[1] if first is not None and step == 0 else _image(product, fresh, dtype)
        h = _inner(basis[:, k:used], image, by)
        grown = np.zeros((used - k, used - k))
        grown[: len(t), : len(t)] = t
        grown[:, len(t) :] = h
        grown[len(t) :, :] = h.T
        t, done, fresh = grown, done + 1, image
    xi = _largest(t)
    if used >= n:
        return xi, xi, "exact up to rounding: the whole complement was searched"
    chance = FAILURE ** (1 / block)
    eps = (max(np.log(1.648 * np.sqrt(n) / chance), 0.0) / (2 * done - 1)) ** 2
    beta = min(xi / (1 - eps) if eps < 1 else np.inf, max(most, xi))
    return (
        xi,
        float(beta),
        f"Ky Fan, with probability >= {1 - FAILURE:g} (block Lanczos, {done} steps from "
        f"{block} random starts)",
    )


def _largest(t: np.ndarray) -> float:
    """The largest eigenvalue of the symmetric part of T, 0 where none is positive."""
    return max(float(eigvalsh((t + t.T) / 2)[-1]), 0.0) if len(t) else 0.0


def _image(product: Product, columns: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if not isinstance(columns, np.ndarray):
        return product(columns.astype(dtype, copy=False)).astype(np.float64, copy=False)
    return np.asarray(product(np.ascontiguousarray(columns, dtype=dtype)), np.float64)


def proven_norm(
    product: Product,
    engine: Engine,
    c: np.ndarray,
    v: np.ndarray,
    turn: np.ndarray,
    rng: np.random.Generator,
    most: float,
) -> tuple[float, float, str]:
    """(xi, beta, words) for the remainder C + V turn^T + turn V^T of a C that is at hand: beta I -
    remainder has a Cholesky factor, so no eigenvalue exceeds beta."""

    def remainder(a: np.ndarray) -> np.ndarray:
        return product(a) + v @ (turn.T @ a) + turn @ (v.T @ a)

    xi, _, _ = remainder_norm(remainder, v, np.dtype(np.float64), rng, most, steps=12, block=4)
    # the largest entry of a positive semidefinite matrix stands on its diagonal
    diagonal = np.abs(np.diagonal(c) + 2 * np.einsum("ij,ij->i", v, turn))
    least = 1e-12 * float(diagonal.max(initial=0.0)) * len(c) + np.finfo(float).tiny
    for factor in (1.0001, 1.001, 1.01, 1.1, 1.5, 3.0):
        beta = xi * factor + least
        if engine.is_below(c, v, turn, beta):
            return xi, beta, "Ky Fan, with the rest bounded by a Cholesky factorization"
    return xi, max(most, xi), "Ky Fan, with the rest bounded by its trace"


def _outside(w: np.ndarray, basis: np.ndarray, by: Engine | None = None) -> np.ndarray:
    """An orthonormal basis of the columns of w without their parts in ``basis``; what is only
    rounding is dropped."""
    size = np.linalg.norm(w, axis=0)
    w = w[:, size > 0] / size[size > 0]
    for least in (
        1e-10,
        0.5,
        0.5,
        # norms below which a direction is rounding: of w itself first, then of what
        # orthonormalising left
    ):
        inside = _inner(basis, w, by)
        if least > 0.1 and np.abs(inside).max(initial=0.0) < CLEAR:
            break
        w = _plus(basis, -inside, w, by)
        w = _plus(basis, -_inner(basis, w, by), w, by)
        squares, turn = eigh(_inner(w, w, by))
        keep = squares > least**2
        turn = turn[:, keep] / np.sqrt(squares[keep])
        w = w @ turn if by is None else by.outer(w, turn)
    return w


def _by(engine: Engine | None, like: Any) -> Engine | None:
    """The engine that multiplies NumPy's tall arrays on its threads; None where there is none, or
    where arrays multiply themselves on their device."""
    return engine if isinstance(like, np.ndarray) else None


def _inner(a: np.ndarray, b: np.ndarray, by: Engine | None) -> np.ndarray:
    """A^T B."""
    return a.T @ b if by is None else by.inner(a, b)


def _plus(a: np.ndarray, small: np.ndarray, b: np.ndarray, by: Engine | None) -> np.ndarray:
    """A S + B."""
    return b + a @ small if by is None else by.outer(a, small, b)


def _write(into: np.ndarray, first: int, columns: np.ndarray, by: Engine | None) -> None:
    """into[:, first:] = columns, as far as these go."""
    if by is None:
        into[:, first : first + columns.shape[1]] = columns
    else:
        by.write_columns(into, first, columns)


def _stack_columns(a: np.ndarray, b: np.ndarray, by: Engine | None) -> np.ndarray:
    """Two tall arrays side by side."""
    if by is None:
        return np.hstack([a, b])
    both = np.empty((len(a), a.shape[1] + b.shape[1]), a.dtype)
    _write(both, 0, a, by)
    _write(both, a.shape[1], b, by)
    return both
