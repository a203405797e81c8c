"""The singular value decomposition of a small matrix that does not give up.

LAPACK's quicker routine (gesdd, by divide and conquer, which NumPy calls) fails to converge on a few ordinary matrices, such as one of 36 rows with
two large and many small singular values that a solver met near its end. The older routine (gesvd, by QR steps) takes these.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """As ``np.linalg.svd``: u, s, v^T, or s alone.

    >>> svd(np.diag([3.0, 4.0]), compute_uv=False).tolist()
    [4.0, 3.0]
    """
    try:
        return np.linalg.svd(a, full_matrices, compute_uv)  # type: ignore[call-overload]
    except np.linalg.LinAlgError:
        if not np.isfinite(a).all():
            raise
    from scipy.linalg import svd as by_driver

    return by_driver(a, full_matrices=full_matrices, compute_uv=compute_uv, lapack_driver="gesvd", check_finite=False)
