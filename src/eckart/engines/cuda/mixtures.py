"""Rows without gaps under a Gaussian mixture, on a device, in float64 throughout.

    log p(x, z) = constant_z - 1/2 ||(x - m_z) C_z||^2,      sums of w q (x - m_z) and w q (x - m_z)(x - m_z)^T about the means of theta

Diagonal covariances need products of rows x n with n x k alone; full ones x - m_z for every component, some rows at a time. Rows with gaps and factor
covariances are the CPU engine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.held import Held
from eckart.engines.protocol import GapsFound
from eckart.engines.protocol.mixtures import DIAGONAL, Gaussians, Posteriors, raw_to_statistics
from eckart.trace import Watcher, silent


class DeviceMixtures:
    """Rows under a Gaussian mixture."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any

    def gaussian_statistics(self, x: Any, theta: Gaussians, watch: Watcher = silent) -> Any:
        x = self.held(x)
        if not self._fits(x, theta):
            return self.on_cpu("gaussian_statistics", x, theta, watch)
        parts = _Components.of(self, theta)
        try:
            sums = [_block_sums(parts, y, w) for y, w in self._complete(x, parts, watch)]
        except GapsFound:
            x.kept["gaps"] = True
            return self.on_cpu("gaussian_statistics", x, theta, watch)
        if not sums:
            return self.on_cpu("gaussian_statistics", x, theta, watch)
        weight, bound, counts, shift, scatter = (torch.stack(list(each)).sum(0).cpu().numpy() for each in zip(*sums))
        if theta.kind == "tied":
            scatter = scatter.sum(axis=0)
        raw = SimpleNamespace(
            counts=counts, seen=None, shift=shift, scatter=scatter, weight=float(weight), bound=float(bound)
        )
        return raw_to_statistics(theta, raw)

    def gaussian_posteriors(self, x: Any, theta: Gaussians, *, shares: bool = False, fill: bool = False) -> Posteriors:
        x = self.held(x)
        if fill or not self._fits(x, theta):
            return self.on_cpu("gaussian_posteriors", x, theta, shares=shares, fill=fill)
        parts = _Components.of(self, theta)
        try:
            found = []
            for y, _ in self._complete(x, parts, silent):
                logs = parts.log_probs(y)[0]
                loglik = logs.logsumexp(1)
                found.append((loglik, (logs - loglik[:, None]).exp() if shares else loglik))
        except GapsFound:
            x.kept["gaps"] = True
            return self.on_cpu("gaussian_posteriors", x, theta, shares=shares, fill=fill)
        if not found:
            return self.on_cpu("gaussian_posteriors", x, theta, shares=shares, fill=fill)
        loglik, q = (torch.cat(list(each)).cpu().numpy() for each in zip(*found))
        return Posteriors(loglik, q if shares else None)

    def _fits(self, x: Held, theta: Gaussians) -> bool:
        return x.kind == "dense" and theta.kind != "factor" and "gaps" not in x.kept

    def _complete(
        self, x: Held, parts: _Components, watch: Watcher
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
        """Rows less the origin, in float64, and their weights: few enough for what is made of them."""
        step = max(1, x.room.chunk // (8 * parts.numbers_a_row))
        for start, block in x.blocks(watch):
            for a in range(0, len(block), step):
                y = block[a : a + step].double() - parts.origin
                w = None if x.weights is None else x.weights[start + a : start + a + len(y)]
                yield y, w


class _Components:
    """Components about an origin between their means: the products lose nothing to data far from zero."""

    def __init__(
        self, kind: str, means: torch.Tensor, origin: torch.Tensor, constants: torch.Tensor, shape: torch.Tensor
    ):
        self.kind, self.origin, self.constants, self.shape = kind, origin, constants, shape
        self.means = means - origin
        self.diagonal = kind in DIAGONAL
        k, n = means.shape
        self.numbers_a_row = 4 * (k + n) if self.diagonal else 3 * k * n

    @classmethod
    def of(cls, engine: Any, theta: Gaussians) -> _Components:
        def there(a: Any) -> torch.Tensor:
            return engine.tensor(np.ascontiguousarray(a), np.float64)

        shape = 1.0 / theta.variances if theta.kind in DIAGONAL else theta.roots
        return cls(
            theta.kind, there(theta.means), there(theta.means.mean(axis=0)), there(theta.constants), there(shape)
        )

    def log_probs(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """rows x k, and for full covariances k x rows x n deviations."""
        if self.diagonal:
            heavy = self.means * self.shape
            square = (y * y) @ self.shape.T
            square -= 2 * (y @ heavy.T)
            square += (heavy * self.means).sum(1)
            return self.constants - 0.5 * square.clamp_(min=0.0), None
        apart = y - self.means[:, None]
        root = self.shape if self.shape.ndim == 3 else self.shape.expand(len(self.means), -1, -1)
        image = torch.bmm(apart, root)
        return self.constants - 0.5 * (image * image).sum(2).T, apart


def _block_sums(parts: _Components, y: torch.Tensor, w: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """weight, bound, counts, shift and scatter of some rows."""
    logs, apart = parts.log_probs(y)
    loglik = logs.logsumexp(1)
    q = (logs - loglik[:, None]).exp()
    if w is None:
        weight, bound = torch.tensor(float(len(y)), dtype=torch.float64, device=y.device), loglik.sum()
    else:
        weight, bound = w.sum(), torch.where(w > 0, w * loglik, 0.0).sum()
        q = q * w[:, None]
    counts = q.sum(0)
    if apart is None:
        first, m = q.T @ y, parts.means
        scatter = q.T @ (y * y) - 2 * m * first + counts[:, None] * m * m
        return weight, bound, counts, first - counts[:, None] * m, scatter
    heavy = apart * q.T[:, :, None]
    return weight, bound, counts, heavy.sum(1), torch.bmm(heavy.mT, apart)
