"""The E step of a mixture of factor analysers, S_z = W_z W_z^T + diag(s_z), on a block of wide
rows; no n x n matrix is formed.

With P = diag(1/s) W, M = I + W^T P and d = x - m, the code of a row is z = M^-1 P^T d with
covariance M^-1, and by the matrix inversion lemma

    d^T S^-1 d = sum d^2 / s - (P^T d)^T M^-1 (P^T d),     log |S| = sum log s + log |M|.

Rows that miss the same entries are taken together, with the rows of W and s that they see. What is
missing is expected to be W z + m, so that the sums have the same shape as for complete rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eckart.engines.cpu.mixtures.missing import inverse_above_one, patterns
from eckart.engines.protocol.mixtures import LOG_2PI, Gaussians


@dataclass
class LoadingSums:
    """Partial sums of one lane (see ``FactorStatistics``)."""

    counts: np.ndarray
    second: np.ndarray
    cross: np.ndarray
    square: np.ndarray
    weight: float = 0.0
    bound: float = 0.0

    @classmethod
    def of(cls, theta: Gaussians) -> LoadingSums:
        assert theta.loadings is not None
        k, n, r = theta.loadings.shape
        return cls(
            np.zeros(k), np.zeros((k, r + 1, r + 1)), np.zeros((k, n, r + 1)), np.zeros((k, n))
        )

    def add(self, other: LoadingSums) -> LoadingSums:
        """Both together; the arrays of the first are used again."""
        for mine, more in zip(*((s.counts, s.second, s.cross, s.square) for s in (self, other))):
            mine += more
        self.weight, self.bound = self.weight + other.weight, self.bound + other.bound
        return self


@dataclass
class _Seen:
    """The components, seen through the columns that a group of rows has."""

    columns: np.ndarray | slice
    loadings: np.ndarray
    spread: np.ndarray
    shifts: np.ndarray
    lifted: np.ndarray
    inverse: np.ndarray
    constants: np.ndarray

    @classmethod
    def of(cls, theta: Gaussians, seen: np.ndarray) -> _Seen:
        assert theta.loadings is not None
        assert theta.origin is not None
        at = slice(None) if seen.all() else np.flatnonzero(seen)
        w, s = theta.loadings[:, at], theta.spread[:, at]
        lifted = w / s[:, :, None]
        m = np.eye(w.shape[2]) + np.matmul(w.transpose(0, 2, 1), lifted)
        inverse, logdet = inverse_above_one(m)
        logs = np.log(s).sum(axis=1) + logdet + s.shape[1] * LOG_2PI
        shifts = theta.means[:, at] - theta.origin[at]
        return cls(at, w, s, shifts, lifted, inverse, theta.log_weights - 0.5 * logs)

    def posterior(self, y: np.ndarray, z: int) -> tuple[np.ndarray, np.ndarray]:
        """log weight + log density, and codes, of rows y (counted from the origin) under component
        z."""
        d = y - self.shifts[z]
        g = d @ self.lifted[z]
        codes = g @ self.inverse[z]
        square = d**2 @ (1.0 / self.spread[z]) - np.einsum("ij,ij->i", g, codes)
        return self.constants[z] - 0.5 * np.clip(square, 0.0, 1e300), codes


def log_probs(block: np.ndarray, theta: Gaussians) -> np.ndarray:
    """rows x k: log weight + log density of the entries that are there."""
    assert theta.origin is not None
    out = np.empty((len(block), theta.k))
    for rows, seen in patterns(block):
        part = _Seen.of(theta, seen)
        y = block[rows][:, part.columns] - theta.origin[part.columns]
        for z in range(theta.k):
            out[rows, z] = part.posterior(y, z)[0]
    return out


def add_rows(block: np.ndarray, shares: np.ndarray, theta: Gaussians, sums: LoadingSums) -> None:
    """Add the rows, with shares w q, to the sums."""
    assert theta.loadings is not None
    assert theta.origin is not None
    r = theta.loadings.shape[2]
    for rows, seen in patterns(block):
        part = _Seen.of(theta, seen)
        y = block[rows][:, part.columns] - theta.origin[part.columns]
        gone = np.flatnonzero(~seen)
        for z in range(theta.k):
            used = shares[rows, z] > 0
            if not used.any():
                continue
            mine, s = (y if used.all() else y[used]), shares[rows, z][used]
            codes = np.column_stack([part.posterior(mine, z)[1], np.ones(len(s))])
            scaled = s[:, None] * codes
            second = codes.T @ scaled
            second[:r, :r] += s.sum() * part.inverse[z]
            sums.counts[z] += s.sum()
            sums.second[z] += second
            sums.cross[z, part.columns] += mine.T @ scaled
            sums.square[z, part.columns] += s @ mine**2
            if len(gone):
                b = np.column_stack(
                    [theta.loadings[z, gone], theta.means[z, gone] - theta.origin[gone]]
                )
                cross = b @ second
                sums.cross[z, gone] += cross
                sums.square[z, gone] += s.sum() * theta.spread[z, gone] + np.einsum(
                    "ij,ij->i", cross, b
                )
