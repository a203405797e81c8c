"""What is expected of the missing entries of rows, for every kind of covariance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eckart.decompositions import eigh
from eckart.engines.protocol.mixtures import DIAGONAL, Gaussians


def patterns(block: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, seen columns as a mask) for every pattern of missing entries in the block."""
    seen = ~np.isnan(block)
    if seen.all():
        yield np.arange(len(block)), seen[0]
        return
    _, first, which = np.unique(
        np.packbits(seen, axis=1), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel()))
    for g, rows in enumerate(np.split(order, ends[:-1])):
        yield rows, seen[first[g]]


def expected(
    block: np.ndarray, shares: np.ndarray, theta: Gaussians
) -> tuple[np.ndarray, np.ndarray]:
    """E[x | what is there] and its variances (zero where an entry is there), under the mixture of
    the components' conditional Gaussians."""
    mean, square = np.zeros(block.shape), np.zeros(block.shape)
    for rows, seen in patterns(block):
        gone = ~seen
        if not gone.any():
            continue
        at = np.ix_(rows, gone)
        for z in range(theta.k):
            s = shares[rows, z][:, None]
            guess, variance = conditional(theta, z, seen, block[np.ix_(rows, seen)])
            mean[at] += s * guess
            square[at] += s * (variance + guess**2)
    there = ~np.isnan(block)
    variance = np.where(there, 0.0, np.maximum(square - mean**2, 0.0))
    return np.where(there, block, mean), variance


def conditional(
    theta: Gaussians, z: int, seen: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means (rows x missing) and variances (missing) of the missing columns under component z,
    given the seen ones."""
    gone = ~seen
    d = values - theta.means[z, seen]
    if theta.kind in DIAGONAL:
        return np.broadcast_to(theta.means[z, gone], (len(d), int(gone.sum()))), theta.variances[
            z, gone
        ]
    if theta.kind == "factor":
        assert theta.loadings is not None
        w, psi = theta.loadings[z], theta.spread[z]
        p = w[seen] / psi[seen, None]
        inverse = inverse_above_one(np.eye(w.shape[1]) + w[seen].T @ p)[0]
        variance = psi[gone] + np.einsum("ij,jk,ik->i", w[gone], inverse, w[gone])
        return theta.means[z, gone] + (d @ p @ inverse) @ w[gone].T, variance
    s = theta.covariance(z)
    gain = np.linalg.solve(s[np.ix_(seen, seen)], s[np.ix_(seen, gone)])
    variance = np.diagonal(s)[gone] - np.einsum("ij,ij->j", s[np.ix_(seen, gone)], gain)
    return theta.means[z, gone] + d @ gain, np.maximum(variance, 0.0)


def inverse_above_one(m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """M^-1 and log |M| of M = I + W^T diag(1/s) W, or of a stack of them.

    M has no eigenvalue below 1. Where the loadings are so large against s that rounding hides the
    I, M looks singular, and eigenvalues that came out below 1 are set to 1.
    """
    try:
        np.linalg.cholesky(m)
        return np.linalg.inv(m), np.linalg.slogdet(m)[1]
    except np.linalg.LinAlgError:
        values, vectors = eigh(m)
        values = np.maximum(values, 1.0)
        return (vectors / values[..., None, :]) @ np.swapaxes(vectors, -1, -2), np.log(values).sum(
            axis=-1
        )
