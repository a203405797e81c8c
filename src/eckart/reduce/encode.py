"""Codes of new rows, complete or with gaps, and the entries that are missing.

With x = W z + mean + noise, W = U sqrt(L - s I), a row with observed entries O has E[z] = (W_O^T
W_O + s I)^-1 W_O^T (x_O - mean_O). Its missing entries are expected at mean + W E[z], so its
expected code is U^T (E[x] - mean) = U_O^T (x_O - mean_O - W_O E[z]) + sqrt(L - s I) E[z].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.engines.protocol import Engine, Tall, refuse_bad
from eckart.factors import Basis
from eckart.io.tables.frames import rows_there
from eckart.matrix import Dense, Matrix, Observed
from eckart.reduce.missing import gaussian_of


def as_observed(matrix: Matrix) -> Observed | None:
    """The matrix as observed entries if it has gaps, else None; infinities are refused. For
    networks, which hold their rows themselves."""
    if isinstance(matrix, Dense) and matrix.in_memory and matrix.values.dtype.kind == "f":
        values = np.asarray(matrix.values)
        if np.isnan(values).any() and not np.isinf(values).any():
            return Observed.from_nan(values, matrix.rows, matrix.columns)
        refuse_bad(values)
    return matrix if isinstance(matrix, Observed) else None


def reusable(matrix: Matrix) -> Matrix:
    """The matrix, held in memory where it could be read only once."""
    if isinstance(matrix, Dense) and not matrix.in_memory and not matrix.stream.rereadable:
        blocks = [np.asarray(block, matrix.dtype) for block in matrix.stream.blocks(8192)]
        whole = np.concatenate(blocks) if blocks else np.empty((0, matrix.shape[1]), matrix.dtype)
        return Dense(whole, matrix.rows, matrix.columns)
    return matrix


def encode(x: Any, basis: Basis, engine: Engine) -> np.ndarray:
    """Codes (x - mean) U of each row of a placed matrix; expected codes where entries are
    missing."""
    return engine.get(encode_there(x, basis, engine))


def encode_there(x: Any, basis: Basis, engine: Engine) -> Tall:
    """The same, left in the engine."""
    u = basis.components.T
    if x.kind != "observed":
        return engine.times(x, u, basis.mean.astype(np.float64) if basis.centered else None)
    g = gaussian_of(basis)
    gain = np.sqrt(np.maximum(basis.variances - g.s2, 0.0))
    return engine.gap_expect(x, u.astype(np.float64), gain, g.mu, g.s2)


def encoder_of(rows: Any) -> Callable[[Any, Basis, Engine], Any]:
    """What makes codes of these rows: they stay on the device that the rows lie on."""
    return encode if rows_there(rows) is None else encode_there


def squared_errors(x: Any, basis: Basis, engine: Engine) -> np.ndarray:
    """||x - x_hat||^2 of each row of a placed matrix, over observed entries where some are
    missing."""
    if x.kind != "observed":
        return engine.get(engine.misfit(x, basis.components.T, basis.mean.astype(np.float64)))
    g = gaussian_of(basis)
    return engine.get(engine.gap_codes(x, g.w, g.mu, g.s2).misfit)


def filled(x: Any, basis: Basis, engine: Engine) -> np.ndarray:
    """A dense copy of a placed matrix with every missing entry at its expectation."""
    out = engine.entries(x)
    if x.kind == "observed":
        g = gaussian_of(basis)
        expected = engine.get(engine.gap_codes(x, g.w, g.mu, g.s2).codes) @ g.w.T + g.mu
        np.copyto(out, expected.astype(out.dtype), where=np.isnan(out))
    return out
