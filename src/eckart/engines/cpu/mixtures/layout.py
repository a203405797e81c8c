"""Gaussian components as the kernels want them, and the sums that they leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.cpu.row_blocks import scratch_array
from eckart.engines.protocol.mixtures import DIAGONAL, Gaussians

NEAR = 1e6
"""Squared distance from the origin, in variances, up to which moments about it keep ten digits."""


@dataclass(eq=False)
class Sums:
    """Sums about the means of theta, in float64, padded to whole tiles."""

    counts: np.ndarray
    seen: np.ndarray | None
    shift: np.ndarray
    scatter: np.ndarray
    weight: float = 0.0
    bound: float = 0.0


class Layout:
    """The components as the kernels want them, made once for each E step."""

    def __init__(self, theta: Gaussians, wide: bool = False):
        from eckart.engines.cpu.mixtures import kernels
        from eckart.engines.cpu.registers.mixtures import pack_panels, padded

        k, n = theta.means.shape
        p, four = padded(n), -(-k // 4) * 4
        self.theta, self.kernels, self.p, self.rows = theta, kernels, p, kernels.chunk_rows(n)
        self.wide = wide
        self.origin = theta.weights @ theta.means
        self.centres = np.zeros((k, p))
        self.centres[:, :n] = theta.means - self.origin
        self.constants, self.four = theta.constants, four
        self.scales, self.offsets = np.zeros((four, p)), np.zeros((four, p))
        if theta.kind in DIAGONAL:
            self.scales[:k, :n] = np.sqrt(0.5 / theta.variances)
            self.offsets[:k] = self.scales[:k] * self.centres
            self.near: Any = (self.offsets[:k] ** 2 < NEAR).all(axis=1)
        elif theta.kind == "tied":
            self.root, self.zero = np.ascontiguousarray(theta.roots), np.zeros(n)
            self.scales[:k, :n] = np.sqrt(0.5)
            self.offsets[:k, :n] = np.sqrt(0.5) * (self.centres[:, :n] @ self.root)
            self.near = bool((self.centres**2).sum(axis=1).max() * np.linalg.norm(self.root, 2) ** 2 < NEAR)
        elif wide:
            self.wide_roots = [np.asfortranarray(root) for root in theta.roots]
        else:
            self.panels = pack_panels(theta.roots)

    def buffers(self, scratch: dict) -> tuple[np.ndarray, ...]:
        """xc, xt, logp and working space of a thread."""
        shapes = {"xt": (self.theta.n, self.rows), "logp": (self.four, self.rows), "spare": (4, self.rows)}
        xc = scratch_array(scratch, "xc", (self.rows, self.p), np.float64)
        xc[:, self.theta.n :] = 0.0
        return xc, *(scratch_array(scratch, name, shape, np.float64) for name, shape in shapes.items())

    def white(self, block: np.ndarray) -> np.ndarray:
        return (block - self.origin) @ self.root

    def stacks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Covariances, precisions and roots, k of each or one, for rows with gaps."""
        roots = np.ascontiguousarray(np.atleast_3d(self.theta.roots.T).T)
        spread = np.ascontiguousarray(self.theta.spread).reshape(roots.shape)
        return spread, np.matmul(roots, roots.transpose(0, 2, 1)), roots
