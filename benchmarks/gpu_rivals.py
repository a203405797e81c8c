"""What a user of PyTorch would write or call for the works of ``gpu.py``: each takes the data and
gives a function to time, whose data lie on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _device() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pca_lowrank(x: np.ndarray) -> Callable[[], Any]:
    """PyTorch's own randomized PCA, 5 products: no error bound, no certificate."""
    import torch

    there = torch.from_numpy(x).to(_device())
    return lambda: torch.pca_lowrank(there, q=72, niter=5)


def svd_lowrank(x: Any) -> Callable[[], Any]:
    """The same of sparse rows, not centered: PyTorch has no mean for them."""
    import torch

    coo = x.tocoo()
    at = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    there = (
        torch.sparse_coo_tensor(at, torch.from_numpy(coo.data), x.shape).coalesce().to(_device())
    )
    return lambda: torch.svd_lowrank(there, q=72, niter=5)


def als_loop(k: int, sweeps: int, l2: float = 0.05) -> Callable[[Any], Callable[[], Any]]:
    """Alternating least squares with padded rows in buckets of powers of two, batched products and
    batched Cholesky factors; no biases, no certificate."""

    def ready(x: Any) -> Callable[[], Any]:
        import torch

        device = _device()
        rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
        values = np.asarray(x.data, np.float32) - np.float32(x.data.mean())

        def buckets(of: np.ndarray, to: np.ndarray, n: int, other: int) -> list[Any]:
            order = np.argsort(of, kind="stable")
            counts = np.bincount(of, minlength=n)
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            size = np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
            found = []
            for power in np.unique(size[counts > 0]):
                chosen = np.flatnonzero((size == power) & (counts > 0))
                length = 2 ** int(power)
                step = max(1, 2**27 // (length * k))
                for a in range(0, len(chosen), step):
                    some = chosen[a : a + step]
                    at = starts[some][:, None] + np.arange(length)
                    seen = np.arange(length) < counts[some][:, None]
                    at = order[np.where(seen, at, 0)]
                    there = (
                        np.where(seen, to[at], other),
                        np.where(seen, values[at], 0),
                        some,
                        counts[some],
                    )
                    found.append(
                        [torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in there]
                    )
            return found

        sides = (
            buckets(rows, x.indices, x.shape[0], x.shape[1]),
            buckets(x.indices, rows, x.shape[1], x.shape[0]),
        )

        def half(parts: list[Any], v: Any, n: int) -> Any:
            below = torch.cat([v, v.new_zeros(1, k)])
            out, eye = v.new_zeros(n, k), torch.eye(k, device=device)
            for columns, y, some, counts in parts:
                g = below[columns]
                gram = torch.bmm(g.mT, g) + (l2 * counts.float())[:, None, None] * eye
                out[some] = torch.cholesky_solve(
                    torch.bmm(g.mT, y[:, :, None]), torch.linalg.cholesky(gram)
                )[:, :, 0]
            return out

        def run() -> Any:
            v = 0.1 * torch.randn(x.shape[1], k, generator=torch.Generator().manual_seed(0)).to(
                device
            )
            for _ in range(sweeps):
                u = half(sides[0], v, x.shape[0])
                v = half(sides[1], u, x.shape[1])
            return u, v

        return run

    return ready


def nmf_loop(k: int, steps: int = 200) -> Callable[[Any], Callable[[], Any]]:
    """Multiplicative steps on the squared error, as many as are usual."""

    def ready(x: Any) -> Callable[[], Any]:
        import torch

        device = _device()
        there = torch.from_numpy(np.asarray(x, np.float32)).to(device)

        def run() -> Any:
            draw = torch.Generator().manual_seed(0)
            w, h = (
                torch.rand(*shape, generator=draw).to(device)
                for shape in ((len(there), k), (k, there.shape[1]))
            )
            for _ in range(steps):
                w *= (there @ h.T) / (w @ (h @ h.T) + 1e-9)
                h *= (w.T @ there) / ((w.T @ w) @ h + 1e-9)
            return w, h

        return run

    return ready
