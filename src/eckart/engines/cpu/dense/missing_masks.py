"""The E step of probabilistic PCA where many entries are observed: masks times packed outer
products, as level-3 BLAS.

With S the 0/1 mask of a chunk of rows and P the n x k(k+1)/2 matrix of products w_jr w_js, all M_i
= W_O^T W_O + s2 I of the chunk are one product S P, and the sums over the rows that observe a
column are S^T E with E the packed second moments of the codes. Costs 2 N n k^2 multiply-adds at
BLAS speed, against 2 nnz k^2 at scalar speed: worth it from a few per cent of observed entries on.
Rows that stand together and have the same gaps share M, its inverse and a row of S, which is most
of the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eckart.engines.cpu.dense.thin import tree_sum
from eckart.engines.protocol import GapCodes, GapStatistics
from eckart.matrix import Observed
from eckart.scheduler import lanes_for, run_lanes

CHUNK_BYTES = 8 * 2**20
"""Of a chunk's masks, values and moments together: they stay in cache, and there are enough chunks
for many threads."""
ROOM = 2**26
"""Bytes for the sums of all lanes."""


@dataclass
class _Problem:
    x: Observed
    w: np.ndarray
    mean: np.ndarray
    noise: float
    pairs: tuple[np.ndarray, np.ndarray]
    products: np.ndarray

    @classmethod
    def of(cls, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float) -> _Problem:
        w, mean = np.ascontiguousarray(w, np.float64), np.asarray(mean, np.float64)
        r, c = np.tril_indices(w.shape[1])
        return cls(x, w, mean, noise, (r, c), w[:, r] * w[:, c])

    def chunks(self) -> list[tuple[int, int]]:
        rows, n = self.x.shape
        k = self.w.shape[1]
        step = int(np.clip(CHUNK_BYTES // (8 * (3 * n + 4 * k * k + 1)), 64, 4096))
        return [(a, min(a + step, rows)) for a in range(0, rows, step)]

    def fill(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Mask and values of a chunk, zero where not observed."""
        x = self.x
        part = slice(x.indptr[first], x.indptr[last])
        at = np.repeat(np.arange(last - first), np.diff(x.indptr[first : last + 1]))
        mask, values = np.zeros((last - first, x.shape[1])), np.zeros((last - first, x.shape[1]))
        mask[at, x.indices[part]] = 1.0
        values[at, x.indices[part]] = x.data[part]
        return mask, values

    def posterior(
        self, mask: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """E[z], log-likelihood and misfit of each row of a chunk; where runs of rows with the same
        gaps begin, and their M^-1."""
        k = self.w.shape[1]
        centered = values - mask * self.mean
        first = np.flatnonzero(np.append(True, (mask[1:] != mask[:-1]).any(axis=1)))
        run = np.repeat(np.arange(len(first)), np.diff(first, append=len(mask)))
        m = np.empty((len(first), k, k))
        packed = mask[first] @ self.products
        m[:, self.pairs[0], self.pairs[1]] = packed
        m[:, self.pairs[1], self.pairs[0]] = packed
        m[:, np.arange(k), np.arange(k)] += self.noise
        b = centered @ self.w
        inverse = np.linalg.inv(m)
        z = np.matmul(inverse[run], b[:, :, None])[:, :, 0]
        # |x|^2 - b^T M^-1 b = |x - W z|^2 + s2 |z|^2, the least over all z: so an error of z counts
        # squared, and nothing cancels where s2 is small
        residual = centered - mask * (z @ self.w.T)
        misfit = np.einsum("ij,ij->i", residual, residual)
        left = misfit + self.noise * np.einsum("ij,ij->i", z, z)
        seen = mask.sum(axis=1)
        logdet = np.linalg.slogdet(m)[1][run]
        loglik = -0.5 * (
            seen * np.log(2 * np.pi) + logdet + (seen - k) * np.log(self.noise) + left / self.noise
        )
        return z, loglik, misfit, first, inverse


@dataclass
class _Sums:
    packed: np.ndarray
    linear: np.ndarray
    count: np.ndarray
    cross: np.ndarray
    level: np.ndarray
    square: np.ndarray
    second: np.ndarray
    loglik: float = 0.0


def gap_statistics(
    x: Observed,
    w: np.ndarray,
    mean: np.ndarray,
    noise: float,
    weights: np.ndarray | None,
    threads: int,
) -> GapStatistics:
    """The same statistics as the row kernel's."""
    p = _Problem.of(x, w, mean, noise)
    n, k = p.w.shape
    size = p.products.shape[1]
    lanes = [
        _Sums(
            np.zeros((n, size)),
            np.zeros((n, k)),
            np.zeros(n),
            np.zeros((n, k)),
            np.zeros(n),
            np.zeros(n),
            np.zeros((k + 1, k + 1)),
        )
        for _ in range(lanes_for(len(p.chunks()), 8 * n * (size + 2 * k + 3), ROOM))
    ]

    def step(sums: _Sums, part: tuple[int, int], scratch: dict) -> None:
        mask, values = p.fill(*part)
        z, loglik, _, first, inverse = p.posterior(mask, values)
        om = (
            np.ones(len(z))
            if weights is None
            else np.asarray(weights[part[0] : part[1]], np.float64)
        )
        scaled = z * om[:, None]
        moment = np.add.reduceat(scaled[:, p.pairs[0]] * z[:, p.pairs[1]], first)
        moment += noise * inverse[:, p.pairs[0], p.pairs[1]] * np.add.reduceat(om, first)[:, None]
        sums.packed += mask[first].T @ moment
        sums.linear += mask.T @ scaled
        sums.count += om @ mask
        sums.cross += values.T @ scaled
        sums.level += om @ values
        sums.square += om @ values**2
        corner = np.zeros((k, k))
        corner[p.pairs] = moment.sum(axis=0)
        sums.second[:k, :k] += corner + np.tril(corner, -1).T
        sums.second[:k, k] += scaled.sum(axis=0)
        sums.second[k, k] += om.sum()
        sums.loglik += float(om @ loglik)

    run_lanes(p.chunks(), lanes, step, threads)
    gram, cross = np.zeros((n, k + 1, k + 1)), np.zeros((n, k + 1))
    packed = tree_sum([s.packed for s in lanes], threads)
    gram[:, p.pairs[0], p.pairs[1]] = packed
    gram[:, p.pairs[1], p.pairs[0]] = packed
    gram[:, :k, k] = gram[:, k, :k] = sum(s.linear for s in lanes)
    gram[:, k, k] = sum(s.count for s in lanes)
    cross[:, :k], cross[:, k] = sum(s.cross for s in lanes), sum(s.level for s in lanes)
    second = np.sum([s.second for s in lanes], axis=0)
    second[k, :k] = second[:k, k]
    return GapStatistics(
        sum(s.loglik for s in lanes), gram, cross, np.sum([s.square for s in lanes], axis=0), second
    )


def gap_codes(x: Observed, w: np.ndarray, mean: np.ndarray, noise: float, threads: int) -> GapCodes:
    """The same codes as the row kernel's."""
    p = _Problem.of(x, w, mean, noise)
    rows, k = x.shape[0], p.w.shape[1]
    codes, loglik, misfit = np.empty((rows, k)), np.empty(rows), np.empty(rows)

    def step(_: None, part: tuple[int, int], scratch: dict) -> None:
        at = slice(*part)
        codes[at], loglik[at], misfit[at], *_ = p.posterior(*p.fill(*part))

    run_lanes(p.chunks(), [None] * 64, step, threads)
    return GapCodes(codes, loglik, misfit)
