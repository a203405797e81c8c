"""Rows under a Gaussian mixture, on a device, in float64 throughout.

    log p(x, z) = c_z - 1/2 (x - m_z)^T P_z (x - m_z),      sums of w q (x - m_z) and w q (x -
    m_z)(x - m_z)^T about the means of theta

With y = x - (the mean of the columns) and the features f = (1, y, y_i y_j for i <= j) of a row, all
logs are one product of rows x features with features x k, and all sums one product k x rows x
features; the features are made once and kept where there is room. For diagonal covariances f = (1,
y, y^2). Expanding the square loses digits where a component is small beside its distance from the
origin: beyond ``SPREAD`` the deviations x - m_z themselves are made, some rows at a time. Rows with
gaps: see ``mixture_gaps``; factor covariances: ``mixture_factors``. Streams of rows with gaps are
the CPU engine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.arrays import all_fetched, fetched
from eckart.engines.cuda.held import Held
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.mixtures import MOST, shared
from eckart.engines.cuda.mixture_factors import factor_rows
from eckart.engines.cuda.mixture_gaps import (
    Diagonal,
    DiagonalDeviations,
    conditionals,
    rows_with_gaps,
)
from eckart.engines.protocol import GapsFound
from eckart.engines.protocol.mixtures import (
    DIAGONAL,
    FactorStatistics,
    Gaussians,
    Posteriors,
    raw_to_statistics,
)
from eckart.trace import Watcher, silent

SPREAD = 1e7
"""Mean of y^T P y up to which the square is expanded: it then carries an error of at most 1e-8 of a
nat."""
MOST_COLUMNS = 256
"""Columns up to which the products of all pairs are made: more would take megabytes for a row."""
KEPT = 0.25
"""Share of the free memory of the device that the features of rows may take and keep."""
SPLITS = 64
"""Parts of the rows whose sums are made side by side, then added in their order: k x features alone
would leave most of a GPU idle."""


class DeviceMixtures:
    """Rows under a Gaussian mixture."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any

    def gaussian_statistics(self, x: Any, theta: Gaussians, watch: Watcher = silent) -> Any:
        x, sums = self.held(x), None
        for parts, block, at in self._rows_of(x, theta, watch):
            own = _block_sums(parts, block, None if x.weights is None else x.weights[at])
            sums = own if sums is None else tuple(a + b for a, b in zip(sums, own))
        if sums is None:
            return self.on_cpu("gaussian_statistics", x, theta, watch)
        weight, bound, *found = all_fetched(*sums)
        # a covariance without a Cholesky factor, whose eigenvalues the CPU engine raises
        if not np.isfinite(bound):
            return self.on_cpu("gaussian_statistics", x, theta, watch)
        if theta.kind == "factor":
            return FactorStatistics(theta.kind, float(weight), float(bound), *found)
        counts, shift, scatter, *seen = found
        if theta.kind == "tied":
            scatter = scatter.sum(axis=0)
        raw = SimpleNamespace(
            counts=counts,
            seen=seen[0] if seen else None,
            shift=shift,
            scatter=scatter,
            weight=float(weight),
            bound=float(bound),
        )
        return raw_to_statistics(theta, raw)

    def gaussian_posteriors(
        self, x: Any, theta: Gaussians, *, shares: bool = False, fill: bool = False
    ) -> Posteriors:
        """Groups of rows with the same gaps are put back into the order of the rows at the end."""
        x = self.held(x)
        found: list[tuple[torch.Tensor, ...]] = []
        order: list[torch.Tensor] = []
        for parts, block, at in self._rows_of(x, theta, silent):
            loglik, q = normalised(parts.logs(block), None)
            given = x.kept.get("rows with gaps", x.__dict__.get("resident")) if fill else None
            if fill and given is None:
                found.clear()
                break
            found.append(
                (
                    loglik,
                    *((q,) if shares or fill else ()),
                    *(() if given is None else _filled(parts, given[at], q)),
                )
            )
            order += [] if isinstance(at, slice) else [at]
        if found:
            whole = [torch.cat(list(each)) for each in zip(*found)]
            if order:
                back = torch.argsort(torch.cat(order))
                whole = [each[back] for each in whole]
            loglik = fetched(whole[0])
            if np.isfinite(loglik).all():
                return Posteriors(loglik, *(fetched(each) for each in whole[1:]))
        return self.on_cpu("gaussian_posteriors", x, theta, shares=shares, fill=fill)

    def _rows_of(
        self, x: Held, theta: Gaussians, watch: Watcher
    ) -> Iterator[tuple[Any, torch.Tensor, Any]]:
        """Components as these rows need them, rows less the origin or what is made of them, and
        their numbers; nothing for what is the CPU engine's."""
        if theta.kind == "factor":
            yield from factor_rows(
                x, theta, lambda a: self.tensor(np.ascontiguousarray(a), np.float64), watch
            )
            return
        if x.kind == "dense" and "gaps" not in x.kept:
            try:
                yield from self._complete_rows(x, theta, watch)
                return
            except GapsFound:  # by the first look at the rows, before any of them is given away
                x.kept["gaps"] = True
        whole = rows_with_gaps(x)
        if whole is None or not len(whole):
            return
        means, log_weights = (
            self.tensor(np.ascontiguousarray(a), np.float64)
            for a in (theta.means, theta.log_weights)
        )
        if theta.kind in DIAGONAL:
            yield from self._diagonal_rows(x, whole, theta, means, log_weights)
            return
        spread = self.tensor(theta.spread, np.float64)
        for parts, block in conditionals(
            x, whole, means, log_weights, spread if spread.ndim == 3 else spread[None]
        ):
            yield parts, block, parts.group.rows

    def _diagonal_rows(
        self, x: Held, whole: torch.Tensor, theta: Gaussians, means: Any, log_weights: Any
    ) -> Iterator[tuple[Any, torch.Tensor, Any]]:
        k, n = theta.means.shape
        if "mean" not in x.kept:
            blocks = [whole[a : a + x.block_rows] for a in range(0, len(whole), x.block_rows)]
            mean = _seen_mean(block.double() for block in blocks)
            x.kept["mean"] = (
                mean,
                fetched(_seen_mean((block.double() - mean) ** 2 for block in blocks)),
            )
        origin, squares = x.kept["mean"]
        near = bool((squares @ (1.0 / theta.variances).T <= SPREAD).all())
        parts = (Diagonal if near else DiagonalDeviations)(
            origin, means, log_weights, self.tensor(theta.variances, np.float64)
        )
        step = max(1, x.room.chunk // (24 * (3 if near else k) * n))
        for a in range(0, len(whole), step):
            yield parts, parts.features(whole[a : a + step]), slice(a, a + step)

    def _complete_rows(
        self, x: Held, theta: Gaussians, watch: Watcher
    ) -> Iterator[tuple[Any, torch.Tensor, Any]]:
        diagonal = theta.kind in DIAGONAL
        if "mean" not in x.kept:
            mean, around = _mean_and_squares(x, watch)
            x.kept["mean"] = mean, around.cpu().numpy()
        origin, squares = x.kept["mean"]

        def there(a: Any) -> torch.Tensor:
            return self.tensor(np.ascontiguousarray(a), np.float64)

        root = there(1.0 / theta.variances if diagonal else theta.roots)
        means, constants = there(theta.means) - origin, there(theta.constants)
        if not diagonal:
            root = root if root.ndim == 3 else root.expand(len(means), -1, -1)
        precision = root if diagonal else torch.bmm(root, root.mT)
        # on the host, where both are: the device is not waited for
        size = (
            1.0 / theta.variances if diagonal else np.square(theta.roots).sum(axis=-1)
        ) @ squares
        n, k = means.shape[1], len(means)
        if not (size <= SPREAD).all() or (n > MOST_COLUMNS and not diagonal):
            near = _Deviations(means, constants, root, diagonal)
            for start, block in x.blocks():
                step = max(1, x.room.chunk // (24 * k * n))
                for a in range(0, len(block), step):
                    part = block[a : a + step].double() - origin
                    yield near, part, slice(start + a, start + a + len(part))
            return
        far = _Features(means, constants, precision, diagonal)
        for start, block in self._features(x, origin, diagonal):
            yield far, block, slice(start, start + len(block))

    def _features(
        self, x: Held, origin: torch.Tensor, diagonal: bool
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """(first row, features of rows), kept where all of them take at most ``KEPT`` of the free
        memory."""
        rows, n = x.shape
        width = _width(n, diagonal)
        if ("features", diagonal) in x.kept:
            yield from x.kept["features", diagonal]
            return
        keep = x.resident is not None and (
            self.device.type == "cpu"
            or 8 * rows * width <= KEPT * torch.cuda.mem_get_info(self.device)[0]
        )
        found, step = [], max(1, x.room.chunk // (8 * width))
        above = torch.triu_indices(n, n, device=self.device)
        for start, block in x.blocks() if x.resident is None else [(0, x.resident)]:
            for a in range(0, len(block), step):
                y = block[a : a + step].double() - origin
                f = y.new_zeros(len(y), width)
                f[:, 0], f[:, 1 : 1 + n] = 1.0, y
                if diagonal:
                    f[:, 1 + n : 1 + 2 * n] = y * y
                else:
                    f[:, 1 + n : 1 + n + above.shape[1]] = y[:, above[0]] * y[:, above[1]]
                if keep:
                    found.append((start + a, f))
                yield start + a, f
        if keep:
            x.kept["features", diagonal] = found


def _width(n: int, diagonal: bool) -> int:
    """Numbers of a row of features, with zeros up to a multiple of 16: products are twice as fast
    where rows begin at such places."""
    return -(-(1 + 2 * n if diagonal else 1 + n + n * (n + 1) // 2) // 16) * 16


def _filled(parts: Any, rows: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows with what is expected in place of NaN, and the variances of that."""
    wide = rows.double()
    if not hasattr(parts, "expected"):  # complete rows
        return wide, torch.zeros_like(wide)
    seen = ~torch.isnan(wide)
    mean, variance = parts.expected(q)
    return torch.where(seen, wide, mean), torch.where(seen, 0.0, variance)


def _mean_and_squares(x: Held, watch: Watcher) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of each column and of its squares about it, weights aside."""
    sums = [(block.double().sum(0), len(block)) for _, block in x.blocks(watch)]
    if not sums:
        empty = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
        return empty, empty
    rows = sum(count for _, count in sums)
    mean = torch.stack([each for each, _ in sums]).sum(0) / rows
    squares = [((block.double() - mean) ** 2).sum(0) for _, block in x.blocks()]
    return mean, torch.stack(squares).sum(0) / rows


def _seen_mean(blocks: Iterable[torch.Tensor]) -> torch.Tensor:
    """The mean of what is seen of every column, 0 where nothing is."""
    parts = [(block.nansum(0), (~torch.isnan(block)).sum(0)) for block in blocks]
    total, count = (torch.stack(list(each)).sum(0) for each in zip(*parts))
    return total / count.clamp(min=1)


def normalised(logs: torch.Tensor, w: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """log p of each row, and shares times weights (none: the shares themselves)."""
    if usable(logs) and logs.shape[1] <= MOST:
        return shared(logs.contiguous(), w)
    loglik = logs.logsumexp(1)
    q = (logs - loglik[:, None]).exp()
    return loglik, q if w is None else q * w[:, None]


class _Features:
    """Components as coefficients of features."""

    def __init__(
        self, means: torch.Tensor, constants: torch.Tensor, precision: torch.Tensor, diagonal: bool
    ):
        self.means, self.diagonal = means, diagonal
        if diagonal:
            slope, square = precision * means, -0.5 * precision
        else:
            slope = torch.bmm(precision, means[:, :, None])[:, :, 0]
            self.above = torch.triu_indices(*means.shape[1:] * 2, device=means.device)
            twice = torch.where(self.above[0] == self.above[1], -0.5, -1.0).to(means.dtype)
            square = precision[:, self.above[0], self.above[1]] * twice
        constant = constants - 0.5 * (slope * means).sum(1)
        found = torch.cat([constant[:, None], slope, square], 1)
        self.coefficients = torch.nn.functional.pad(
            found, (0, _width(means.shape[1], diagonal) - found.shape[1])
        ).T.contiguous()

    def logs(self, f: torch.Tensor) -> torch.Tensor:
        return f @ self.coefficients

    def sums(
        self, f: torch.Tensor, q: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Counts, shift and scatter about the means."""
        m, n, even = self.means, self.means.shape[1], len(f) // SPLITS * SPLITS
        raw = q[even:].T @ f[even:]
        if even:
            parts = (a[:even].view(SPLITS, even // SPLITS, -1) for a in (q, f))
            raw += torch.bmm(next(parts).mT, next(parts)).sum(0)
        counts, first, second = raw[:, 0], raw[:, 1 : 1 + n], raw[:, 1 + n :]
        if self.diagonal:
            second = second[:, :n]
            return (
                counts,
                first - counts[:, None] * m,
                second - 2 * m * first + counts[:, None] * m * m,
            )
        scatter = raw.new_empty(len(m), n, n)
        second = second[:, : self.above.shape[1]]
        scatter[:, self.above[0], self.above[1]] = second
        scatter[:, self.above[1], self.above[0]] = second
        cross = m[:, :, None] * first[:, None]
        scatter += counts[:, None, None] * m[:, :, None] * m[:, None] - cross - cross.mT
        return counts, first - counts[:, None] * m, scatter


class _Deviations:
    """Components whose deviations are made for every row: nothing is lost, and k times as much is
    moved."""

    def __init__(
        self, means: torch.Tensor, constants: torch.Tensor, root: torch.Tensor, diagonal: bool
    ):
        self.means, self.constants, self.root, self.diagonal = means, constants, root, diagonal

    def logs(self, y: torch.Tensor) -> torch.Tensor:
        apart = y - self.means[:, None]
        if self.diagonal:
            square = torch.bmm(apart * apart, self.root[:, :, None])[:, :, 0]
        else:
            image = torch.bmm(apart, self.root)
            square = (image * image).sum(2)
        return self.constants - 0.5 * square.T

    def sums(
        self, y: torch.Tensor, q: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        apart = y - self.means[:, None]
        heavy = apart * q.T[:, :, None]
        scatter = (heavy * apart).sum(1) if self.diagonal else torch.bmm(heavy.mT, apart)
        return q.sum(0), heavy.sum(1), scatter


def _block_sums(
    parts: Any, block: torch.Tensor, w: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """weight, bound, counts, shift and scatter of some rows."""
    loglik, q = normalised(parts.logs(block), w)
    if w is None:
        weight, bound = (
            torch.full((), float(len(block)), dtype=torch.float64, device=block.device),
            loglik.sum(),
        )
    else:
        weight, bound = w.sum(), torch.where(w > 0, w * loglik, 0.0).sum()
    return weight, bound, *parts.sums(block, q)
