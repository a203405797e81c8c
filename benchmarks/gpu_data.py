"""Large data for ``gpu.py``, made on the GPU where there is one (a CPU would take minutes), from
fixed seeds, as arrays of the host."""

from __future__ import annotations

from typing import Any

import numpy as np


def _device() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dense_rows(rows: int, n: int) -> np.ndarray:
    """float32 rows of a falling spectrum with a mean."""
    import torch

    device = _device()
    draw = torch.Generator(device).manual_seed(7)
    spread = 10 * torch.arange(1, n + 1, device=device, dtype=torch.float32) ** -0.6
    turn = torch.linalg.qr(torch.randn(n, n, generator=draw, device=device))[0]
    out = np.empty((rows, n), np.float32)
    for a in range(0, rows, 65536):
        part = torch.randn(min(65536, rows - a), n, generator=draw, device=device)
        out[a : a + len(part)] = ((part * spread) @ turn + 2.0).cpu().numpy()
    return out


def gappy_rows(rows: int, n: int) -> np.ndarray:
    """The same rows, of which a third are complete, a third miss one of eight sets of columns and a
    third three entries in ten, each its own."""
    out, draw = dense_rows(rows, n), np.random.default_rng(8)
    sets, third = draw.random((8, n)) < 0.3, rows // 3
    for a in range(third, rows, 65536):
        part = out[a : a + 65536]
        own = draw.random(part.shape, np.float32) < 0.3
        shared = np.arange(a, a + len(part)) < 2 * third
        own[shared] = sets[draw.integers(0, 8, int(shared.sum()))]
        part[own] = np.nan
    return out


def signs(rows: int, n: int) -> np.ndarray:
    """Zeros and ones: which entries of such rows are above 2."""
    return (dense_rows(rows, n) > 2.0).astype(np.float32)


def _keys(wanted: int, rows: Any, columns: Any, draw: Any) -> Any:
    """About ``wanted`` different cells (row * n + column, ascending) drawn by the weights of rows
    and of columns."""
    import torch

    ends = [torch.cumsum(w.double() / w.double().sum(), 0) for w in (rows, columns)]
    key = torch.empty(0, dtype=torch.int64, device=rows.device)
    while len(key) < wanted:
        more = int((wanted - len(key)) * 1.3) + 100
        i, j = (
            torch.searchsorted(
                end, torch.rand(more, generator=draw, device=rows.device, dtype=torch.float64)
            ).clamp_(max=len(end) - 1)
            for end in ends
        )
        key = torch.unique(torch.cat([key, i * len(columns) + j]))
    if len(key) > wanted:
        kept = torch.ones(len(key), dtype=torch.bool, device=rows.device)
        kept[torch.randperm(len(key), generator=draw, device=rows.device)[: len(key) - wanted]] = (
            False
        )
        key = key[kept]
    return key


def _observed(key: Any, y: Any, m: int, n: int) -> Any:
    import torch

    from eckart import Observed

    indptr = torch.searchsorted(key // n, torch.arange(m + 1, device=key.device))
    return Observed(indptr.cpu().numpy(), (key % n).int().cpu().numpy(), y.cpu().numpy(), n)


def ratings(m: int, n: int, count: int) -> Any:
    """About ``count`` ratings 1..5: log-normal activity of rows, power-law popularity of columns,
    rank 10 + biases + noise."""
    import torch

    device = _device()
    draw = torch.Generator(device).manual_seed(11)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=draw, device=device)

    active = (1.1 * normal(m)).exp().clamp_(min=0.1)
    popular = (torch.arange(n, device=device) + 30.0) ** -1.1
    key = _keys(
        min(count, m * n // 2),
        active,
        popular[torch.randperm(n, generator=draw, device=device)],
        draw,
    )
    i, j = key // n, key % n
    y = 3.55 + 0.4 * normal(m)[i] + 0.45 * normal(n)[j]
    left, right = 0.4 * normal(m, 10), 0.4 * normal(n, 10)
    for c in range(10):
        y += left[i, c] * right[j, c]
    y = (y + 0.85 * normal(len(key))).round_().clamp_(1, 5)
    return _observed(key, y, m, n)


def low_rank_entries(n: int, count: int) -> Any:
    """n x n of rank 10 with noise 0.1, of which ``count`` cells are seen, in float64."""
    import torch

    device = _device()
    draw = torch.Generator(device).manual_seed(5)
    key = _keys(count, torch.ones(n, device=device), torch.ones(n, device=device), draw)
    i, j = key // n, key % n
    y = 0.1 * torch.randn(len(key), generator=draw, device=device, dtype=torch.float64)
    for _ in range(10):
        u, v = (
            torch.randn(n, generator=draw, device=device, dtype=torch.float64) for _ in range(2)
        )
        y += u[i] * v[j]
    return _observed(key, y, n, n)


def sparse_rows(rows: int, n: int) -> Any:
    """tf-idf-like float32 rows of length one: power-law columns, log-normal lengths, 60 planted
    topics; about 120 entries a row."""
    import torch
    from scipy import sparse

    device = _device()
    draw = torch.Generator(device).manual_seed(1)

    def even(*shape: int) -> Any:
        return torch.rand(*shape, generator=draw, device=device, dtype=torch.float64)

    length = (0.5 * torch.randn(rows, generator=draw, device=device)).exp()
    length = (length / length.mean() * 160 * min(1.0, n / 50_000) ** 0.5).clamp_(min=3).long()
    at = torch.repeat_interleave(torch.arange(rows, device=device), length)
    ends = torch.cumsum((torch.arange(n, device=device) + 20.0).double() ** -0.9, 0)
    word = torch.searchsorted(ends / ends[-1].clone(), even(len(at))).clamp_(max=n - 1)
    inside = even(len(at)) < even(rows)[at]
    topic = (even(rows) * 60).long()[at]
    word = torch.where(inside, word // 60 * 60 + topic, word).clamp_(max=n - 1)
    key, counts = torch.unique(
        at * n + torch.randperm(n, generator=draw, device=device)[word], return_counts=True
    )
    i, j = key // n, key % n
    held = torch.bincount(j, minlength=n)
    y = (1 + counts.double().log()) * (torch.log((1 + rows) / (1.0 + held)) + 1)[j]
    square = torch.cumsum(y * y, 0)
    indptr = torch.searchsorted(i, torch.arange(rows + 1, device=device))
    ends_of = torch.cat([square.new_zeros(1), square])[indptr]
    y = (y / ends_of.diff().clamp_(min=1e-12).sqrt()[i]).float()
    parts = (y.cpu().numpy(), j.int().cpu().numpy(), indptr.int().cpu().numpy())
    return sparse.csr_matrix(parts, shape=(rows, n))
