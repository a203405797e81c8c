"""Tall thin arrays: inner and outer products, orthonormal bases, triangles; and symmetric matrices
of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.decompositions import eigh, svd
from eckart.scheduler import single_threaded_blas


class ArrayThin:
    """Products of tall thin arrays."""

    lib: Any

    def inner(self, q: Any, w: Any, weights: Any = None) -> np.ndarray:
        lib = self.lib
        b = lib.given(w)
        b = b if weights is None else b * lib.given(weights).reshape(-1, 1)
        return lib.fetch(lib.given(q).T @ b)

    def outer(self, q: Any, s: np.ndarray, plus: Any = None, scale: float = 1.0) -> Any:
        lib = self.lib
        a = lib.array(q)
        out = a @ lib.array(s, q.dtype)
        return lib.tall(out if plus is None else out + scale * lib.array(plus, q.dtype))

    def triangle(self, v: Any) -> np.ndarray:
        return self.lib.fetch(self.lib.triangle_of(self.lib.given(v)))

    def write_columns(self, into: Any, first: int, columns: Any) -> None:
        into[:, first : first + columns.shape[1]] = columns

    def orth(self, v: Any, against: Any = None) -> Any:
        """Classical Gram-Schmidt against the given columns and V (V^T V)^-1/2 by eigenvalues, in
        float64, repeated until orthogonal to rounding."""
        lib, xp = self.lib, self.lib.xp
        a = lib.array(v)
        eps = float(xp.finfo(a.dtype).eps)
        size = float(xp.abs(a).max()) if v.shape[0] and v.shape[1] else 0.0
        if size == 0.0 or not np.isfinite(size):
            return v[:, :0]
        q = None if against is None or not against.shape[1] else lib.array(against, v.dtype)
        a = a / size
        for attempt in range(3):
            if q is not None:
                a = a - q @ lib.like(lib.wide(q).T @ lib.wide(a), a)
            wide = lib.wide(a)
            gram = lib.fetch(wide.T @ wide)
            values, vectors = eigh((gram + gram.T) / 2)
            if attempt and np.abs(values - 1.0).max(initial=0.0) < 100 * eps:
                break
            # what survived the first round but is still mostly noise of the subtraction is dropped
            # in the second
            keep = values > (values[-1] * 100 * eps**2 if attempt == 0 else 0.25)
            if attempt == 0:
                keep &= values > v.shape[0] * (10 * eps) ** 2
            if not keep.any():
                return v[:, :0]
            a = a @ lib.there(vectors[:, keep] / np.sqrt(values[keep]), v.dtype)
        return lib.tall(a)

    def covariance(
        self, scatter: np.ndarray, weight: float, mean: np.ndarray | None = None
    ) -> np.ndarray:
        lib = self.lib
        c = lib.given(scatter) / weight
        if mean is not None:
            m = lib.given(mean)
            c = c + m[:, None] * m
        return lib.twin((c + c.T) / 2)

    def is_below(self, c: np.ndarray, q: np.ndarray, r: np.ndarray, bound: float) -> bool:
        lib = self.lib
        half = 0.5 * lib.given(c) + lib.given(q) @ lib.given(r).T
        return lib.is_definite(bound * lib.eye(c.shape[0]) - (half + half.T))

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return eigh_top(c, k)


def eigh_top(c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues of a symmetric matrix, falling, and their eigenvectors as columns.

    LAPACK's divide and conquer, then bisection, then a slightly shifted matrix: a finite matrix
    always gets an answer.
    """
    import scipy.linalg as sl

    c = np.asarray(c, np.float64)
    n = len(c)
    if k == 0:
        return np.empty(0), np.empty((n, 0))
    subset = None if 3 * k >= n else (n - k, n - 1)
    error: Exception | None = None
    with single_threaded_blas():
        for driver in ("evr" if subset else "evd", "evx" if subset else "ev", "evr"):
            try:
                values, vectors = sl.eigh(
                    c, subset_by_index=subset, driver=driver, check_finite=False
                )
            except (np.linalg.LinAlgError, ValueError) as reason:
                error = reason
                c = c + np.finfo(np.float64).eps * np.linalg.norm(c) * np.eye(n)
                continue
            return values[::-1][:k], vectors[:, ::-1][:, :k]
    bad = int(np.count_nonzero(~np.isfinite(c)))
    raise np.linalg.LinAlgError(
        f"no eigenvalue method converged on a {n} x {n} matrix with {bad} non-finite "
        f"entries: {error}"
    )


def svd_of(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values and right vectors, where no method converges through the triangle of a QR
    factorization: a finite matrix always gets an answer."""
    import scipy.linalg as sl

    with single_threaded_blas():
        try:
            return svd(a, full_matrices=False)[1:]
        except np.linalg.LinAlgError:
            r = sl.qr(a, mode="r", pivoting=False, check_finite=False)[0]
        values, vectors = eigh(r.T @ r)
        return np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1].T
