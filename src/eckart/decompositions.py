"""Singular values and eigenvalues of small matrices, for which a finite matrix always gets an
answer.

LAPACK's divide and conquer, which NumPy calls, does not converge on some finite matrices with the
BLAS of some processors (a 68 x 68 one of rank 34 on an AMD with AVX-512 was met). The slower
iterations by QR do, so they are asked where it fails. ``np.linalg`` is not called for these
elsewhere: the linter says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def svd(a: np.ndarray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """U, s, V^T with A = U diag(s) V^T, or s alone.

    >>> svd(np.diag([3.0, 4.0]), compute_uv=False).tolist()
    [4.0, 3.0]
    """
    how: dict[str, Any] = {"full_matrices": full_matrices, "compute_uv": compute_uv}
    try:
        return np.linalg.svd(a, **how)
    except np.linalg.LinAlgError:
        if not np.isfinite(a).all():
            raise
    import scipy.linalg as sl

    return sl.svd(a, **how, check_finite=False, lapack_driver="gesvd")


def eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rising eigenvalues of a symmetric matrix, of which the lower triangle is read, and
    eigenvectors as columns; of a stack of them, one after another."""
    try:
        values, vectors = np.linalg.eigh(a)
        return values, vectors
    except np.linalg.LinAlgError:
        if not np.isfinite(a).all():
            raise
    import scipy.linalg as sl

    flat = a.reshape(-1, *a.shape[-2:])
    found = [sl.eigh(m, check_finite=False, driver="ev") for m in flat]
    return np.array([w for w, _ in found]).reshape(a.shape[:-1]), np.array(
        [v for _, v in found]
    ).reshape(a.shape)


def eigvalsh(a: np.ndarray) -> np.ndarray:
    """The eigenvalues alone."""
    try:
        return np.linalg.eigvalsh(a)
    except np.linalg.LinAlgError:
        return eigh(a)[0]
