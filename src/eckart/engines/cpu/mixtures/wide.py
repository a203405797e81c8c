"""The E step of full and tied Gaussian mixtures on a block of wide rows: triangular and symmetric
products of BLAS, one component after another.

From about two hundred columns on, a component's root no longer stays in the first cache, and
level-3 BLAS on a whole block is faster than the kernels that work on chunks: y = (x - m) C by
``trmm``, sums of s (x - m)(x - m)^T by ``syrk`` over the rows with a share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.cpu.mixtures.layout import ParameterLayout
from eckart.engines.protocol.mixtures import Gaussians

NEGLIGIBLE = 1e-20
"""A share that no sum over fewer than 10^4 rows can see in float64."""


def log_probs(block: np.ndarray, layout: ParameterLayout) -> np.ndarray:
    """rows x k: log weight + log density under full covariances."""
    from scipy.linalg.blas import dtrmm

    theta = layout.theta
    out = np.empty((len(block), theta.k))
    for z in range(theta.k):
        d = block - theta.means[z]
        y = dtrmm(1.0, layout.wide_roots[z], d.T, side=0, lower=0, trans_a=1, overwrite_b=1)
        out[:, z] = layout.components.constants[z] - 0.5 * np.minimum(
            np.einsum("ij,ij->j", y, y), 1e300
        )
    return out


def add_rows(
    block: np.ndarray, shares: np.ndarray, w: np.ndarray, layout: ParameterLayout, sums: Any
) -> None:
    """Add rows with shares w q to the sums; one covariance for all by its total and means, where
    they are near the origin."""
    theta, n = layout.theta, layout.theta.n
    sums.counts += shares.sum(axis=0)
    if theta.kind == "tied" and layout.components.near[0]:
        xc = block - layout.origin
        c, o = layout.components.centres[:, :n], shares.T @ xc
        sums.shift[:, :n] += o - shares.sum(axis=0)[:, None] * c
        if len(w):
            xc *= np.sqrt(w)[:, None]
        cross = c.T @ (o - 0.5 * shares.sum(axis=0)[:, None] * c)
        sums.scatter[0, :n, :n] += xc.T @ xc - cross - cross.T
        return
    for z in range(theta.k):
        add_component(block, shares[:, z], z, theta, sums)


def add_component(
    block: np.ndarray, shares: np.ndarray, z: int, theta: Gaussians, sums: Any
) -> None:
    """Add rows with shares w q of one component."""
    n, used = theta.n, shares > NEGLIGIBLE
    if not used.any():
        return
    root = np.sqrt(shares[used])
    d = (block if used.all() else block[used]) - theta.means[z]
    d *= root[:, None]
    sums.shift[z, :n] += root @ d
    sums.scatter[z % len(sums.scatter), :n, :n] += d.T @ d
