"""Rows with gaps under Gaussians, on a device, in float64.

Under diagonal covariances what is missing is left out of every sum: with the features f = (1, y,
y^2, s) of a row, s its 0/1 mask and y its values less the origin, zero where nothing is seen, all
logs are one product and all sums another, as for complete rows. Under whole covariances rows with
the same gaps stand together and share what depends on these alone.

With D the diagonal 0/1 matrix of what a row sees and S~ = D S D + (I - D) = L L^T, which leaves
missing columns out of the determinant and of the form,

    B = D L^-1,   g = B d,   H = B S (I - D),      d = D (x - m)
    log p = -1/2 (n_seen log 2 pi + 2 log |L| + |g|^2),      E[x - m | seen] = d + H^T g,      Cov[x
    | seen] = (I - D) S (I - D) - H^T H

A pattern of many rows is one product for each component; few rows of many patterns are many small
products at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.held import Held
from eckart.engines.cuda.stored import MOST_ROWS
from eckart.engines.cuda.triangles import roots_of
from eckart.engines.protocol.mixtures import LOG_2PI

ALONE = 64
"""Rows with the same gaps from which they are worked on by themselves: products of so many rows
cost more than their start."""
BITS, PACKED = 62, 2**18
"""Columns whose gaps make one whole number, and rows for which these are made at once: in the
making they take 8 bytes for each entry."""


def rows_with_gaps(x: Held) -> torch.Tensor | None:
    """All rows on the device, NaN where nothing is seen; None where they have no room or come as a
    stream, or where one holds an infinity. Made once."""
    if "rows with gaps" not in x.kept:
        if x.kind == "dense":
            whole = x.whole()
        else:
            e = x.entries
            whole = None
            if x.fits(x.shape[0] * x.shape[1]) and len(e.data) >= FEW * x.shape[0] * x.shape[1]:
                unknown = torch.nan if x.kind == "observed" else 0.0
                whole = torch.full(x.shape, unknown, dtype=e.data.dtype, device=x.device)
                whole[e.row_of, e.indices] = e.data
        # whose place the CPU engine says
        bad = whole is not None and bool(torch.isinf(whole).any())
        x.kept["rows with gaps"] = None if bad else whole
    return x.kept["rows with gaps"]


FEW = 0.02
"""Share of stored entries below which rows are not made whole: what lies on the device would be
fifty times what came."""


@dataclass(frozen=True)
class Group:
    """Some rows, by number, and their patterns: the mask of each, and the pattern of every row
    (None: one pattern, or as many as rows)."""

    rows: torch.Tensor
    masks: torch.Tensor
    run: torch.Tensor | None

    @property
    def alone(self) -> bool:
        return len(self.masks) == 1

    @cached_property
    def seen(self) -> torch.Tensor:
        """The mask of every row, or one for all."""
        return self.masks if self.run is None else self.masks[self.run]


def _words(rows: torch.Tensor) -> torch.Tensor:
    """What each row sees, as whole numbers."""
    found = []
    for j in range(0, rows.shape[1], BITS):
        part = ~torch.isnan(rows[:, j : j + BITS])
        found.append((part * 2 ** torch.arange(part.shape[1], device=rows.device)).sum(1))
    return torch.stack(found, 1)


class Patterns:
    """Rows in an order in which those with the same gaps stand together, patterns of many rows
    first."""

    def __init__(self, whole: torch.Tensor):
        words = torch.cat([_words(whole[a : a + PACKED]) for a in range(0, len(whole), PACKED)])
        _, of = torch.unique(words, dim=0, return_inverse=True)
        counts = torch.bincount(of)
        rank = torch.empty_like(counts)
        by_size = torch.argsort((counts < ALONE).long(), stable=True)
        rank[by_size] = torch.arange(len(counts), device=whole.device)
        own = rank[of]
        self.order = torch.argsort(own, stable=True)
        self.of = own[self.order]
        self.counts: np.ndarray = counts[by_size].cpu().numpy()
        firsts = self.order[torch.from_numpy(np.cumsum(self.counts) - self.counts).to(whole.device)]
        self.masks = (~torch.isnan(whole[firsts])).double()

    def groups(self, together: int, apart: int) -> Iterator[Group]:
        """Groups of at most so many rows of one pattern, and of several."""
        ends = np.cumsum(self.counts)
        many = int((self.counts >= ALONE).sum())
        start = 0
        for p in range(many):
            for a in range(start, int(ends[p]), together):
                yield Group(
                    self.order[a : min(int(ends[p]), a + together)], self.masks[p : p + 1], None
                )
            start = int(ends[p])
        total = len(self.order)
        for a in range(start, total, apart):
            b = min(total, a + apart)
            low, high = (int(np.searchsorted(ends, at, side="right")) for at in (a, b - 1))
            distinct = high - low + 1 in (1, b - a)
            yield Group(
                self.order[a:b],
                self.masks[low : high + 1],
                None if distinct else self.of[a:b] - low,
            )


class Diagonal:
    """Components as coefficients of the features of rows with gaps."""

    def __init__(
        self,
        origin: torch.Tensor,
        means: torch.Tensor,
        log_weights: torch.Tensor,
        variances: torch.Tensor,
    ):
        self.origin, self.means, self.variances = origin, means - origin, variances
        self.log_weights, self.level = log_weights, -0.5 * (variances.log() + LOG_2PI)

    @cached_property
    def _coefficients(self) -> torch.Tensor:
        m, v = self.means, self.variances
        parts = [self.log_weights[:, None], m / v, -0.5 / v, self.level - 0.5 * m * m / v]
        return torch.cat(parts, 1).T.contiguous()

    def features(self, rows: torch.Tensor) -> torch.Tensor:
        y = rows.double() - self.origin
        seen = ~torch.isnan(y)
        y = torch.where(seen, y, 0.0)
        return torch.cat([y.new_ones(len(y), 1), y, y * y, seen], 1)

    def logs(self, f: torch.Tensor) -> torch.Tensor:
        return f @ self._coefficients

    def sums(self, f: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Counts, shift and scatter about the means, and the weight behind each mean."""
        counts, first, second, seen = (q.T @ f).split([1, *(self.means.shape[1],) * 3], 1)
        m = self.means
        return counts[:, 0], first - seen * m, second - 2 * m * first + seen * m * m, seen

    def expected(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """E[x] and its variances under the components together: what is seen says nothing more of a
        missing column than which component it is."""
        mean = q @ self.means
        return self.origin + mean, (q @ (self.variances + self.means**2) - mean * mean).clamp(
            min=0.0
        )


class DiagonalDeviations(Diagonal):
    """The same where components are small beside their distances: the deviations of every row from
    every mean, some rows at a time."""

    def features(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.double() - self.origin

    def logs(self, y: torch.Tensor) -> torch.Tensor:
        apart = self._apart(y)
        square = torch.bmm(apart * apart, (1 / self.variances)[:, :, None])[:, :, 0].T
        return self.log_weights + (~torch.isnan(y)).double() @ self.level.T - 0.5 * square

    def sums(self, y: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        apart = self._apart(y)
        heavy = apart * q.T[:, :, None]
        return q.sum(0), heavy.sum(1), (heavy * apart).sum(1), q.T @ (~torch.isnan(y)).double()

    def _apart(self, y: torch.Tensor) -> torch.Tensor:
        return torch.nan_to_num(y - self.means[:, None])


class Conditional:
    """Components through the patterns of a group; ``spread`` is k x n x n, or 1 x n x n where all
    components have one."""

    def __init__(
        self, group: Group, means: torch.Tensor, log_weights: torch.Tensor, spread: torch.Tensor
    ):
        m, n, count = group.masks, means.shape[1], len(group.masks)
        self.group, self.means, self.spread = group, means, spread
        kept = spread[:, None] * (m[:, :, None] * m[:, None])
        kept.diagonal(dim1=2, dim2=3).add_(1 - m)
        root, back = roots_of(kept.view(-1, n, n))
        half = root.diagonal(dim1=1, dim2=2).log().sum(1).view(len(spread), count)
        constants = log_weights[:, None] - half - 0.5 * LOG_2PI * m.sum(1)
        self.back = back.view(len(spread), count, n, n) * m[:, :, None]
        self.constants = constants if group.run is None else constants[:, group.run]

    @cached_property
    def pull(self) -> torch.Tensor:
        """H of each pattern."""
        flat = torch.bmm(self.back.flatten(1, 2), self.spread)
        return flat.view_as(self.back) * (1 - self.group.masks)[:, None]

    def logs(self, values: torch.Tensor) -> torch.Tensor:
        """rows x k; the deviations and g stay for what follows."""
        seen = self.group.seen > 0
        self.apart = torch.where(seen, values.double() - self.means[:, None], 0.0)
        self.image = self._times(self.back, self.apart)
        return (self.constants - 0.5 * (self.image * self.image).sum(2)).T

    def sums(self, _: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Counts, shift and scatter about the means of the rows that ``logs`` has seen, missing
        entries expected."""
        counts, gone = q.sum(0), 1 - self.group.seen
        whole = self.apart + self._times(self.pull.mT, self.image)
        heavy = whole * q.T[:, :, None]
        one = len(self.spread) < len(self.means)
        q = q.sum(1, keepdim=True) if one else q
        missing = gone.expand(len(q), -1)
        covariance = self.spread * torch.bmm(
            (missing * q.T[:, :, None]).mT, missing.expand(q.shape[1], -1, -1)
        )
        if self.group.alone:
            covariance -= q.sum(0)[:, None, None] * torch.matmul(
                self.pull[:, 0].mT, self.pull[:, 0]
            )
        else:
            pull = self._of_rows(self.pull)
            covariance -= torch.bmm(
                (pull * q.T[:, :, None, None]).flatten(1, 2).mT, pull.flatten(1, 2)
            )
        n = whole.shape[2]
        scatter = (
            heavy.reshape(-1, n).T @ whole.reshape(-1, n) if one else torch.bmm(heavy.mT, whole)
        )
        return counts, heavy.sum(1), covariance + scatter

    def expected(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """E[x | seen] and its variances at missing entries, under the components together."""
        # about which the spread of the components' guesses cancels least
        centre = self.means.mean(0)
        guess = (self.means - centre)[:, None] + self._times(self.pull.mT, self.image)
        variance = self.spread.diagonal(dim1=1, dim2=2)[:, None] - (self.pull * self.pull).sum(2)
        variance = (
            variance.clamp(min=0.0)
            if self.group.run is None
            else variance.clamp(min=0.0)[:, self.group.run]
        )
        share = q.T[:, :, None]
        mean = (share * guess).sum(0)
        return centre + mean, ((share * (variance + guess * guess)).sum(0) - mean * mean).clamp(
            min=0.0
        )

    def _of_rows(self, matrices: torch.Tensor) -> torch.Tensor:
        return matrices if self.group.run is None else matrices[:, self.group.run]

    def _times(self, matrices: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """A v of every component and row, A by the pattern of the row."""
        if self.group.alone:
            return torch.matmul(vectors, matrices[:, 0].mT)
        own = self._of_rows(matrices)
        if len(own) == 1:
            return torch.matmul(own[0], vectors.permute(1, 2, 0)).permute(2, 0, 1)
        return torch.matmul(own, vectors[..., None])[..., 0]


def conditionals(
    x: Held, whole: torch.Tensor, means: Any, log_weights: Any, spread: torch.Tensor
) -> Iterator[tuple[Conditional, torch.Tensor]]:
    """Components and rows of every group; so many rows at a time that what is made of them has
    room."""
    if "patterns" not in x.kept:
        x.kept["patterns"] = Patterns(whole)
    k, n = means.shape
    room = x.room.chunk // 8
    together, apart = (
        room // (8 * k * n),
        min(MOST_ROWS // len(spread), room // (7 * len(spread) * n * n + 8 * k * n)),
    )
    for group in x.kept["patterns"].groups(max(1, together), max(1, apart)):
        yield Conditional(group, means, log_weights, spread), whole[group.rows]
