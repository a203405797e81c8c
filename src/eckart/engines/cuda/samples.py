"""Samples of rows and their groups on a device: what the starts of mixtures are made of. All sums
are products or run over whole axes, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.arrays import DeviceArray, all_fetched, fetched
from eckart.engines.cuda.held import Held
from eckart.engines.cuda.mixture_gaps import rows_with_gaps
from eckart.engines.protocol import GapsFound
from eckart.engines.protocol.mixtures import (
    DIAGONAL,
    Gaussians,
    GaussianStatistics,
    GroupSums,
    raw_to_statistics,
)


class DeviceSamples:
    """Rows by their numbers, their distances from centres, their groups."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any

    def rows_at(self, x: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """Rows that came on the device are picked there; others are on the host already."""
        x = self.held(x)
        if x.given is None or rows is None:
            return self.on_cpu("rows_at", x, rows)
        there = self.tensor(rows[rows < len(x.given)], np.int64)
        return fetched(x.given[there]).astype(x.dtype, copy=False)

    def distances(self, x: Any, centres: np.ndarray) -> Any:
        """From the deviations themselves: a row that is a centre is at no distance from it."""
        x = self.held(x)
        whole = _complete(x)
        if whole is None:
            return self.on_cpu("distances", x, centres)
        c = self.tensor(centres, np.float64)
        return DeviceArray(
            torch.cat([((rows[:, None] - c) ** 2).sum(2) for _, rows in _blocks(x, whole, len(c))])
        )

    def group_sums(self, x: Any, centres: np.ndarray) -> GroupSums:
        x = self.held(x)
        whole = _complete(x)
        if whole is None:
            return self.on_cpu("group_sums", x, centres)
        c = self.tensor(centres, np.float64)
        counts, sums = c.new_zeros(len(c)), torch.zeros_like(c)
        groups = torch.arange(len(c), device=c.device)
        for at, rows in _blocks(x, whole, 1):
            q = (_nearest(rows, c)[:, None] == groups).double()
            q = q if x.weights is None else q * x.weights[at][:, None]
            counts += q.sum(0)
            sums += q.T @ rows
        return GroupSums(*all_fetched(counts, sums))

    def nearest(self, x: Any, centres: np.ndarray) -> Any:
        x = self.held(x)
        whole = _complete(x)
        if whole is None:
            return self.on_cpu("nearest", x, centres)
        c = self.tensor(centres, np.float64)
        return DeviceArray(torch.cat([_nearest(rows, c) for _, rows in _blocks(x, whole, 1)]))

    def share_statistics(self, x: Any, shares: Any, kind: str) -> GaussianStatistics:
        x = self.held(x)
        whole = _complete(x)
        if whole is None:
            return self.on_cpu("share_statistics", x, shares, kind)
        q = self.tensor(shares, np.float64)
        q = q if x.weights is None else q * x.weights[:, None]
        counts, n = q.sum(0), x.shape[1]
        means = q.new_zeros(q.shape[1], n)
        for at, rows in _blocks(x, whole, 1):
            means += q[at].T @ rows
        means /= torch.where(counts > 0, counts, 1.0)[:, None]
        shift = torch.zeros_like(means)
        scatter = torch.zeros_like(means) if kind in DIAGONAL else means.new_zeros(len(means), n, n)
        for at, rows in _blocks(x, whole, 3 * len(means)):
            apart = rows - means[:, None]
            heavy = apart * q[at].T[:, :, None]
            shift += heavy.sum(1)
            scatter += (heavy * apart).sum(1) if kind in DIAGONAL else torch.bmm(heavy.mT, apart)
        weight = counts.new_full((), len(whole)) if x.weights is None else x.weights.sum()
        weight, counts, means, shift, scatter = all_fetched(weight, counts, means, shift, scatter)
        raw = SimpleNamespace(
            counts=counts, seen=None, shift=shift, weight=float(weight), bound=0.0
        )
        raw.scatter = scatter.sum(axis=0) if kind == "tied" else scatter
        return raw_to_statistics(
            Gaussians(kind, np.full(len(counts), 1 / len(counts)), means, np.empty(0)), raw
        )


def _complete(x: Held) -> torch.Tensor | None:
    """All rows on the device; None where they have no room, come as a stream, miss entries (which
    the CPU engine says), or where there are none."""
    try:
        whole = (
            x.resident
            if x.kind == "dense"
            else None
            if x.kind == "observed" and x.nnz < x.shape[0] * x.shape[1]
            else rows_with_gaps(x)
        )
    except GapsFound:
        return None
    return whole if whole is not None and len(whole) else None


def _blocks(x: Held, whole: torch.Tensor, copies: int) -> Iterator[tuple[slice, torch.Tensor]]:
    """(which, rows in float64), so many at a time that some copies of them have room."""
    step = max(1, x.room.chunk // (8 * (copies + 2) * max(1, whole.shape[1])))
    for a in range(0, len(whole), step):
        at = slice(a, min(a + step, len(whole)))
        yield at, whole[at].double()


def _nearest(rows: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """The number of the nearest centre of each row, the first of those as near."""
    return (0.5 * (centres * centres).sum(1) - rows @ centres.T).argmin(1)
