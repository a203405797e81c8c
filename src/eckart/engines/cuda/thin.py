"""Tall thin arrays on a device: inner and outer products, orthonormal bases, triangles.

Arrays of NumPy are answered by one of NumPy, and are the CPU engine's work: the way to the device
and back would cost more than their products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eckart.engines.arrays.thin import ArrayThin
from eckart.engines.cuda.arrays import DeviceArray

WIDE = 512
"""Columns from which the eigenvectors of a symmetric matrix are found sooner on the device."""

APART = 1e-4
"""Share of a column's square that must be left of it beside all others, so that its direction is
right to the square root of this times rounding."""


class DeviceThin(ArrayThin):
    """Products of tall thin arrays."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    twins: Any

    def _here(self, *arrays: Any) -> bool:
        """Whether an array lies on the device, or a copy of it does."""
        return any(isinstance(a, DeviceArray) or self.twins.find(a) is not None for a in arrays)

    def _like(self, found: torch.Tensor, *sources: Any) -> Any:
        """On the host where all sources are, with the tensor kept for as long as that copy lives:
        it need not travel back."""
        return (
            DeviceArray(found)
            if any(isinstance(a, DeviceArray) for a in sources)
            else self.twins.copy(found)
        )

    def inner(self, q: Any, w: Any, weights: Any = None) -> np.ndarray:
        if not self._here(q, w):
            return self.on_cpu("inner", q, w, weights)
        return super().inner(q, w, weights)

    def outer(self, q: Any, s: np.ndarray, plus: Any = None, scale: float = 1.0) -> Any:
        if not self._here(q, plus):
            return self.on_cpu("outer", q, s, plus, scale)
        a = self.tensor(q)
        out = a @ self.tensor(s, q.dtype)
        if plus is not None:
            out.add_(self.tensor(plus, q.dtype), alpha=scale)
        return self._like(out, q, plus)

    def triangle(self, v: Any) -> np.ndarray:
        return super().triangle(v) if self._here(v) else self.on_cpu("triangle", v)

    def write_columns(self, into: Any, first: int, columns: Any) -> None:
        if isinstance(into, np.ndarray):
            self.on_cpu("write_columns", into, first, columns)
        else:
            super().write_columns(into, first, columns)

    def orth(self, v: Any, against: Any = None) -> Any:
        """By V L^-T with V^T V = L L^T in float64, twice, without a wait; by eigenvalues where
        columns nearly depend on one another."""
        if not self._here(v, against):
            return self.on_cpu("orth", v, against)
        a = self.tensor(v)
        size = float(a.abs().max()) if a.numel() else 0.0
        if size == 0.0 or not np.isfinite(size):
            return v[:, :0]
        q = None if against is None or not against.shape[1] else self.tensor(against, v.dtype)
        found = _by_triangles(a / size, q)
        if found is None:
            found = super().orth(v, against).tensor
        return self._like(found, v, against)

    def covariance(
        self, scatter: np.ndarray, weight: float, mean: np.ndarray | None = None
    ) -> np.ndarray:
        """Kept on the device beside its copy on the host, where the scatter is."""
        if not self._here(scatter):
            return self.on_cpu("covariance", scatter, weight, mean)
        return super().covariance(scatter, weight, mean)

    def is_below(self, c: np.ndarray, q: np.ndarray, r: np.ndarray, bound: float) -> bool:
        if not self._here(c):
            return self.on_cpu("is_below", c, q, r, bound)
        return super().is_below(c, q, r, bound)

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """By the device for large matrices; where its method fails, by the CPU engine, whose
        methods always answer. The library fails too where PyTorch keeps all memory of the device
        for itself, so that is given back first."""
        for _ in range(2 if self.device.type == "cuda" and len(c) >= WIDE and k else 0):
            try:
                values, vectors = torch.linalg.eigh(self.tensor(c, np.float64))
                return values.flip(0)[:k].cpu().numpy(), vectors[:, -k:].flip(1).cpu().numpy()
            except torch.linalg.LinAlgError:
                torch.cuda.empty_cache()
        return self.on_cpu("eigh_top", c, k)


def _by_triangles(a: torch.Tensor, q: torch.Tensor | None) -> torch.Tensor | None:
    """An orthonormal basis by two triangles; None where a column is mostly in the span of others,
    or of q."""
    size = (a.double() ** 2).sum(0)
    worst = []
    for _ in range(2):
        if q is not None:
            a = a - q @ (q.double().T @ a.double()).to(a.dtype)
        wide = a.double()
        lower, info = torch.linalg.cholesky_ex(wide.T @ wide)
        # what is left of every column beside the others, against its length before
        worst += [torch.where(info == 0, (lower.diagonal() ** 2 / size).min(), 0.0)]
        a = torch.linalg.solve_triangular(lower, wide.T, upper=False).T.to(a.dtype)
        size = torch.ones_like(size)
    left = torch.stack(worst).cpu()
    return a.contiguous() if bool(left[0] > APART) and bool(left[1] > 0.5) else None
