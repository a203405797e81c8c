"""Codes of new rows, complete or with gaps, and the entries that are missing.

With x = W z + mean + noise, W = U sqrt(L - s I), a row with observed entries O has E[z] = (W_O^T W_O + s I)^-1 W_O^T (x_O - mean_O). Its missing entries
are expected at mean + W E[z], so its expected code is U^T (E[x] - mean) = U_O^T (x_O - mean_O - W_O E[z]) + sqrt(L - s I) E[z].
"""

from __future__ import annotations

import numpy as np

from eckart.engines.protocol import Engine
from eckart.errors import InputError
from eckart.factors import Basis
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.reduce.missing import gaussian_of
from eckart.reduce.spectral import densify


def as_observed(matrix: Matrix) -> Observed | None:
    """The matrix as observed entries if it has gaps, else None; infinities are refused."""
    if isinstance(matrix, Dense) and matrix.in_memory and matrix.values.dtype.kind == "f":
        values = np.asarray(matrix.values)
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum(dtype=np.float64)):
                return None
        if np.isinf(values).any():
            i, j = np.argwhere(np.isinf(values))[0]
            raise InputError(
                f"X contains inf at row {i}, column {j}, wanted finite numbers; replace it or mark it NaN (not observed)"
            )
        return Observed.from_nan(values, matrix.rows, matrix.columns) if np.isnan(values).any() else None
    if isinstance(matrix, (Observed, Counts)) and not np.isfinite(matrix.data).all():
        at = int(np.argmax(~np.isfinite(matrix.data)))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        raise InputError(
            f"X contains {matrix.data[at]} at row {row}, column {int(matrix.indices[at])}, wanted finite numbers"
        )
    return matrix if isinstance(matrix, Observed) else None


def reusable(matrix: Matrix) -> Matrix:
    """The matrix, held in memory where it could be read only once."""
    if isinstance(matrix, Dense) and not matrix.in_memory and not matrix.stream.rereadable:
        return Dense(densify(matrix).astype(matrix.dtype, copy=False), matrix.rows, matrix.columns)
    return matrix


def encode(matrix: Matrix, basis: Basis, engine: Engine) -> np.ndarray:
    """Codes (x - mean) U of each row; expected codes where entries are missing."""
    u = basis.components.T
    mean = basis.mean.astype(np.float64)
    if not isinstance(matrix, Observed):
        return engine.times(matrix, u, mean if basis.centered else None)
    g = gaussian_of(basis)
    z = engine.gap_codes(matrix, g.w, g.mu, g.s2).codes
    rest = matrix.data - g.mu[matrix.indices] - _at_entries(matrix, z, g.w)
    unexplained = Counts(matrix.indptr, matrix.indices, rest, matrix.n_columns)
    gain = np.sqrt(np.maximum(basis.variances - g.s2, 0.0))
    return (engine.times(unexplained, u.astype(np.float64), None) + z * gain).astype(matrix.dtype)


def filled(matrix: Matrix, basis: Basis, engine: Engine) -> np.ndarray:
    """A dense copy with every missing entry at its expectation."""
    seen = as_observed(matrix)
    if seen is None:
        assert not isinstance(matrix, Observed)
        return densify(matrix).astype(matrix.dtype, copy=False)
    g = gaussian_of(basis)
    z = engine.gap_codes(seen, g.w, g.mu, g.s2).codes
    out = (z @ g.w.T + g.mu).astype(seen.dtype)
    rows = np.repeat(np.arange(seen.shape[0]), seen.row_counts())
    out[rows, seen.indices] = seen.data
    return out


def _at_entries(x: Observed, z: np.ndarray, w: np.ndarray) -> np.ndarray:
    """(Z W^T) at the observed entries only, in chunks."""
    out = np.empty(x.nnz)
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    chunk = max(1, 2**22 // max(1, w.shape[1]))
    for start in range(0, x.nnz, chunk):
        part = slice(start, start + chunk)
        out[part] = np.einsum("ij,ij->i", z[rows[part]], w[x.indices[part]])
    return out
