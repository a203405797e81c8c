"""Rows under a mixture, in float64.

    log p(x, z) = c_z - 1/2 (x - m_z)^T P_z (x - m_z),      sums of w q (x - m_z) and
    w q (x - m_z)(x - m_z)^T about the means of theta

Complete rows, and rows with missing entries under diagonal covariances: with y = x - (the mean of
the columns) and the features f of a row,

    whole      f = (1, y, y_i y_j for i >= j)         diagonal   f = (1, y, y^2)
    diagonal, entries missing    f = (1, y, y^2, s),   s the 0/1 mask of what is observed, y zero
                                                       where nothing is

all logs are one product of rows x features with features x k, and all sums another; features are
made once and kept where there is room. Expanding the square loses digits where a component is small
beside its distance from the origin: beyond ``SPREAD`` the deviations x - m_z are made themselves.

Whole covariances and missing entries: rows that miss the same entries share what depends on these
alone. With D the diagonal 0/1 matrix of what is observed and S~ = D S D + (I - D) = L L^T, which
leaves missing columns out of the determinant and of the form,

    B = D L^-1,   g = B d,   H = B S (I - D),      d = D (x - m)
    log p = -1/2 (n_observed log 2 pi + 2 log |L| + |g|^2),      E[x - m | observed] = d + H^T g,
    Cov[x | observed] = (I - D) S (I - D) - H^T H

Factor covariances: see ``mixture_factors``.

Rows under Gaussians with factor covariances, S = W W^T + diag(s), in float64; no n x n matrix is
formed.

With D the 0/1 mask of what is observed of a row, y = x - origin, d = D (y - (m - origin)) and
V = diag(1/s) W,

    M = I + W^T D V,   code z = M^-1 V^T d with covariance M^-1,   log |S| = sum D log s + log |M|,
    d^T S^-1 d = |d - D W z|^2_{1/s} + |z|^2

All M of some rows are one product of masks with the n x r(r+1)/2 products w_ja w_jb / s_j; complete
rows share one. What is missing is expected to be W z + m, so that the sums of ``FactorStatistics``
over rows that miss a column are moments of the codes of these rows, by one product as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from eckart.engines.arrays.samples import ArraySamples, weighed
from eckart.engines.protocol.mixtures import (
    DIAGONAL,
    LOG_2PI,
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
ALONE = 64
"""Rows with the same missing entries from which they are worked on by themselves: products of so
many rows cost more than their start."""
BITS, PACKED = 62, 2**18
"""Columns whose masks make one whole number, and rows for which these are made at once: in the
making they take 8 bytes for each entry."""
MOST_MATRICES = 65535
"""Matrices that batched routines of CUDA libraries take at once."""


class ArrayMixtures(ArraySamples):
    """Gaussian components; families and samples of rows are in ``samples``."""

    lib: Any

    def gaussian_statistics(self, x: Any, theta: Gaussians, watch: Watcher = silent) -> Any:
        x = self.lib.placed(x)
        weight, bound, *found = self._gaussian_sums(x, theta, watch, False)
        if not np.isfinite(bound):  # a covariance without a root on the device
            weight, bound, *found = self._gaussian_sums(x, theta, watch, True)
        if theta.kind == "factor":
            return FactorStatistics(theta.kind, float(weight), float(bound), *found)
        counts, shift, scatter, *observed = found
        if theta.kind == "tied":
            scatter = scatter.reshape(-1, theta.n, theta.n).sum(axis=0)
        raw = SimpleNamespace(
            counts=counts,
            seen=observed[0] if observed else None,
            shift=shift,
            scatter=scatter,
            weight=float(weight),
            bound=float(bound),
        )
        return raw_to_statistics(theta, raw)

    def _gaussian_sums(self, x: Any, theta: Gaussians, watch: Watcher, careful: bool) -> Any:
        """weight, bound and the sums of all rows, on the host by one copy."""
        lib, sums = self.lib, None
        w = lib.row_weights(x)
        for parts, rows, at in rows_under(lib, x, theta, watch, careful):
            heavy = None if w is None else w[at]
            loglik, q = lib.shares_of(parts.logs(rows), heavy)
            own = *weighed(lib, loglik, heavy), *parts.sums(rows, q)
            sums = own if sums is None else tuple(a + b for a, b in zip(sums, own))
        assert sums is not None
        return lib.host(*sums)

    def gaussian_posteriors(
        self, x: Any, theta: Gaussians, *, shares: bool = False, fill: bool = False
    ) -> Posteriors:
        x = self.lib.placed(x)
        found = self._gaussian_posteriors(x, theta, shares, fill, False)
        if not np.isfinite(found.loglik).all():
            found = self._gaussian_posteriors(x, theta, shares, fill, True)
        return found

    def _gaussian_posteriors(
        self, x: Any, theta: Gaussians, shares: bool, fill: bool, careful: bool
    ) -> Posteriors:
        """Groups of rows that miss the same entries are put back into the order of the rows at the
        end."""
        lib, xp = self.lib, self.lib.xp
        found: list[tuple[Any, ...]] = []
        order: list[Any] = []
        for parts, rows, at in rows_under(lib, x, theta, silent, careful, fill):
            loglik, q = lib.shares_of(parts.logs(rows))
            more = (*((q,) if shares or fill else ()), *(parts.filled(rows, q) if fill else ()))
            found.append((loglik, *more))
            order += [] if isinstance(at, slice) else [at]
        whole = [xp.concat(list(each)) for each in zip(*found)]
        if order:
            back = xp.argsort(xp.concat(order))
            whole = [each[back] for each in whole]
        return Posteriors(*(lib.fetch(each) for each in whole))


def rows_under(
    lib: Any, x: Any, theta: Gaussians, watch: Watcher, careful: bool, fill: bool = False
) -> Iterator[tuple[Any, Any, Any]]:
    """Components as these rows need them, the rows or what is made of them, and their numbers."""
    complete = lib.complete(x)
    if theta.kind == "factor":
        factors = Factors(lib, theta, complete, careful)
        for start, rows in lib.row_blocks(x, factors.bytes_of_row, watch):
            yield factors, rows, slice(start, start + rows.shape[0])
        return
    if not complete and theta.kind not in DIAGONAL:
        yield from _conditionals(lib, x, theta, watch, careful)
        return
    origin, squares = _centre(lib, x, watch)
    # on the host, where both are: a device is not waited for
    size = (
        squares @ (1.0 / theta.variances).T
        if theta.kind in DIAGONAL
        else np.square(theta.roots).sum(axis=-1) @ squares
    )
    near = bool((size <= SPREAD).all()) and (theta.kind in DIAGONAL or theta.n <= MOST_COLUMNS)
    make = _Features if near else _Deviations
    parts: Any = make(lib, theta, origin, complete)
    for start, made in _made(lib, x, parts, watch, fill):
        yield parts, made, slice(start, start + made.shape[0])


def _made(lib: Any, x: Any, parts: Any, watch: Watcher, fill: bool) -> Iterator[tuple[int, Any]]:
    """(first row, what the components need of rows), kept with x where there is room. Rows that are
    to be filled are needed themselves."""
    if fill:
        for start, block in lib.row_blocks(x, 8 * (parts.columns + x.shape[1]), watch):
            parts.rows = lib.wide(block)
            yield start, parts.of_rows(block)
        return
    if parts.name in x.kept:
        yield from x.kept[parts.name]
        return
    rows = x.shape[0]
    keep = parts.name is not None and rows is not None
    keep = keep and lib.may_keep(x, 8 * rows * parts.columns)
    found = []
    for start, block in lib.row_blocks(x, 8 * parts.columns, watch):
        made = parts.of_rows(block)
        if keep:
            found.append((start, made))
        yield start, made
    if keep:
        x.kept[parts.name] = found


def _centre(lib: Any, x: Any, watch: Watcher) -> tuple[Any, np.ndarray]:
    """The mean of what is observed of each column (0 where nothing is), in the library's memory,
    and the mean of the squares about it, on the host; weights aside."""
    if "centre" in x.kept:
        return x.kept["centre"]
    xp, complete, row = lib.xp, lib.complete(x), 16 * x.shape[1]
    watch = watch if x.shape[0] is None else silent  # rows in memory are read in no time

    def mean(made: Any) -> Any:
        total, count = 0.0, 0.0
        for _, block in lib.row_blocks(x, row, watch):
            rows = made(lib.wide(block))
            if complete:
                total, count = total + rows.sum(axis=0), count + float(rows.shape[0])
            else:
                total = total + xp.nansum(rows, axis=0)
                count = count + lib.wide(~xp.isnan(rows)).sum(axis=0)
        return total / (max(count, 1.0) if complete else xp.clip(count, 1.0, None))

    origin = mean(lambda rows: rows)
    squares = lib.fetch(mean(lambda rows: (rows - origin) ** 2))
    x.kept["centre"] = origin, squares
    return origin, squares


def diagonal_parts(lib: Any, theta: Gaussians) -> Any:
    """Diagonal components for rows with missing entries that are not looked at before: about the
    mean of the components, about which their squares cancel least."""
    origin = theta.weights @ theta.means
    near = ((theta.means - origin) ** 2 / theta.variances).sum(axis=1) <= SPREAD
    make = _Features if near.all() else _Deviations
    return make(lib, theta, lib.there(origin), False)


class _Features:
    """Components as coefficients of features."""

    def __init__(self, lib: Any, theta: Gaussians, origin: Any, complete: bool):
        self.lib, self.origin, self.complete, xp = lib, origin, complete, lib.xp
        self.diagonal = theta.kind in DIAGONAL
        n = theta.n
        self.means = lib.there(theta.means) - origin
        self.name = "features", self.diagonal
        constants = lib.there(theta.constants if complete else theta.log_weights)
        m = self.means
        if self.diagonal:
            self.variances = lib.there(theta.variances)
            slope, square = m / self.variances, -0.5 / self.variances
            level = -0.5 * slope * m
            if complete:
                parts = [(constants + level.sum(axis=1))[:, None], slope, square]
            else:  # a column counts where it is observed
                level = level - 0.5 * (xp.log(self.variances) + LOG_2PI)
                parts = [constants[:, None], slope, square, level]
        else:
            self.above = lib.triangle(n)
            root = lib.there(theta.roots)
            precision = root @ root.mT
            # (k, n, n) even where all components share one
            precision = precision + lib.zeros(theta.k, 1, 1)
            slope = (precision @ m[:, :, None])[:, :, 0]
            twice = lib.wide(xp.where(self.above[0] == self.above[1], -0.5, -1.0))
            constant = constants - 0.5 * (slope * m).sum(axis=1)
            parts = [constant[:, None], slope, precision[:, self.above[0], self.above[1]] * twice]
        found = xp.concat(parts, axis=1)
        self.columns = lib.width(found.shape[1])
        self.coefficients = self._padded([found]).T

    def _padded(self, parts: list[Any]) -> Any:
        """The parts beside each other, with columns of zeros behind."""
        more = self.columns - sum(each.shape[1] for each in parts)
        if more:
            parts = [*parts, self.lib.zeros(parts[0].shape[0], more)]
        return self.lib.xp.concat(parts, axis=1)

    def of_rows(self, rows: Any) -> Any:
        lib, xp = self.lib, self.lib.xp
        y = lib.wide(rows) - self.origin
        if not self.complete:
            observed = ~xp.isnan(y)
            y = xp.where(observed, y, 0.0)
            return self._padded([xp.ones_like(y[:, :1]), y, y * y, lib.wide(observed)])
        square = y * y if self.diagonal else y[:, self.above[0]] * y[:, self.above[1]]
        return self._padded([xp.ones_like(y[:, :1]), y, square])

    def logs(self, f: Any) -> Any:
        return f @ self.coefficients

    def sums(self, f: Any, q: Any) -> tuple[Any, ...]:
        """Counts, shift and scatter about the means, and the weight behind each mean where entries
        are missing."""
        m, n, raw = self.means, self.means.shape[1], self.lib.cross(q, f)
        counts, first, second = raw[:, 0], raw[:, 1 : 1 + n], raw[:, 1 + n :]
        if self.diagonal:
            observed = counts[:, None] if self.complete else second[:, n : 2 * n]
            about = second[:, :n] - 2 * m * first + observed * m * m
            shift = first - observed * m
            return (counts, shift, about) if self.complete else (counts, shift, about, observed)
        scatter = self.lib.zeros(m.shape[0], n, n)
        half = second[:, : self.above[0].shape[0]]
        scatter[:, self.above[0], self.above[1]] = half
        scatter[:, self.above[1], self.above[0]] = half
        cross = m[:, :, None] * first[:, None]
        scatter += counts[:, None, None] * m[:, :, None] * m[:, None] - cross - cross.mT
        return counts, first - counts[:, None] * m, scatter

    def filled(self, f: Any, q: Any) -> tuple[Any, Any]:
        return _filled_by_means(self, q)


class _Deviations:
    """Components whose deviations are made for every row: nothing is lost, and k times as much is
    moved."""

    name = None

    def __init__(self, lib: Any, theta: Gaussians, origin: Any, complete: bool):
        self.lib, self.origin, self.complete = lib, origin, complete
        self.diagonal, self.columns = theta.kind in DIAGONAL, 3 * theta.k * theta.n
        self.means = lib.there(theta.means) - origin
        self.constants = lib.there(theta.constants if complete else theta.log_weights)
        if self.diagonal:
            self.variances = lib.there(theta.variances)
            self.level = -0.5 * (lib.xp.log(self.variances) + LOG_2PI)
        else:
            self.root = lib.there(theta.roots)

    def of_rows(self, rows: Any) -> Any:
        return self.lib.wide(rows) - self.origin

    def _apart(self, y: Any) -> Any:
        apart = y - self.means[:, None]
        return apart if self.complete else self.lib.xp.where(self.lib.xp.isnan(apart), 0.0, apart)

    def logs(self, y: Any) -> Any:
        apart = self._apart(y)
        square = (
            (apart * apart @ (1 / self.variances)[:, :, None])[:, :, 0].T
            if self.diagonal
            else ((apart @ self.root) ** 2).sum(axis=2).T
        )
        logs = self.constants - 0.5 * square
        return logs if self.complete else logs + self._observed(y) @ self.level.T

    def _observed(self, y: Any) -> Any:
        return self.lib.wide(~self.lib.xp.isnan(y))

    def sums(self, y: Any, q: Any) -> tuple[Any, ...]:
        apart = self._apart(y)
        heavy = apart * q.T[:, :, None]
        scatter = (heavy * apart).sum(axis=1) if self.diagonal else heavy.mT @ apart
        found = q.sum(axis=0), heavy.sum(axis=1), scatter
        return found if self.complete else (*found, q.T @ self._observed(y))

    def filled(self, y: Any, q: Any) -> tuple[Any, Any]:
        return _filled_by_means(self, q)


def _filled_by_means(parts: Any, q: Any) -> tuple[Any, Any]:
    """Rows with what is expected in place of missing entries, and the variances of that: complete
    rows, or diagonal covariances, under which what is observed says nothing more of a missing
    column than which component it is."""
    xp, rows = parts.lib.xp, parts.rows
    if parts.complete:
        return rows, xp.zeros_like(rows)
    mean = q @ parts.means
    variance = xp.clip(q @ (parts.variances + parts.means**2) - mean * mean, 0.0, None)
    observed = ~xp.isnan(rows)
    return xp.where(observed, rows, mean + parts.origin), xp.where(observed, 0.0, variance)


@dataclass(frozen=True)
class _Group:
    """Some rows, by number, and their patterns: the mask of each, and the pattern of every row
    (None: one pattern, or as many as rows)."""

    rows: Any
    masks: Any
    run: Any

    @property
    def alone(self) -> bool:
        return self.masks.shape[0] == 1

    @cached_property
    def observed(self) -> Any:
        """The mask of every row, or one for all."""
        return self.masks if self.run is None else self.masks[self.run]


class _Patterns:
    """Rows in an order in which those that miss the same entries stand together, patterns of many
    rows first."""

    def __init__(self, lib: Any, rows: Any):
        xp, count = lib.xp, rows.shape[0]
        words = [_words(lib, rows[a : a + PACKED]) for a in range(0, max(count, 1), PACKED)]
        of = lib.unique_rows(xp.concat(words))
        sizes = xp.bincount(of)
        few = xp.where(sizes < ALONE, 1, 0)
        by_size = xp.argsort(few, stable=True)
        rank = xp.argsort(by_size, stable=True)
        own = rank[of]
        self.order = xp.argsort(own, stable=True)
        self.of = own[self.order]
        self.counts = lib.fetch(sizes[by_size]).astype(np.int64)
        firsts = self.order[lib.there(np.cumsum(self.counts) - self.counts, np.int64)]
        self.masks = lib.wide(~xp.isnan(rows[firsts]))

    def groups(self, together: int, apart: int) -> Iterator[_Group]:
        """Groups of at most so many rows of one pattern, and of several."""
        ends = np.cumsum(self.counts)
        many = int((self.counts >= ALONE).sum())
        start = 0
        for p in range(many):
            for a in range(start, int(ends[p]), together):
                at = slice(a, min(int(ends[p]), a + together))
                yield _Group(self.order[at], self.masks[p : p + 1], None)
            start = int(ends[p])
        total = self.order.shape[0]
        for a in range(start, total, apart):
            b = min(total, a + apart)
            low, high = (int(np.searchsorted(ends, at, side="right")) for at in (a, b - 1))
            distinct = high - low + 1 in (1, b - a)
            run = None if distinct else self.of[a:b] - low
            yield _Group(self.order[a:b], self.masks[low : high + 1], run)


def _words(lib: Any, rows: Any) -> Any:
    """What is observed of each row, as whole numbers."""
    found = []
    for j in range(0, rows.shape[1], BITS):
        part = ~lib.xp.isnan(rows[:, j : j + BITS])
        found.append((part * 2 ** lib.arange(part.shape[1])).sum(axis=1))
    return lib.xp.stack(found, axis=1)


def _conditionals(
    lib: Any, x: Any, theta: Gaussians, watch: Watcher, careful: bool
) -> Iterator[tuple[_Conditional, Any, Any]]:
    """Components and rows of every group; so many rows at a time that what is made of them has
    room."""
    spread = lib.there(theta.spread)
    spread = spread if spread.ndim == 3 else spread[None]
    means, log_weights = lib.there(theta.means), lib.there(theta.log_weights)
    (k, n), different = theta.means.shape, spread.shape[0]
    room, whole = lib.room // 8, lib.whole(x)
    together = max(1, room // (8 * k * n))
    apart = room // (7 * different * n * n + 8 * k * n)
    apart = max(1, min(MOST_MATRICES // different, apart))
    blocks = [(0, whole)] if whole is not None else lib.row_blocks(x, 8 * n, watch)
    for start, rows in blocks:
        if whole is None:
            patterns = _Patterns(lib, rows)
        else:
            if "patterns" not in x.kept:
                x.kept["patterns"] = _Patterns(lib, rows)
            patterns = x.kept["patterns"]
        for group in patterns.groups(together, apart):
            parts = _Conditional(lib, group, means, log_weights, spread, careful)
            yield parts, rows[group.rows], start + group.rows
    if whole is not None:
        watch("reading rows", whole.shape[0], x.shape[0])


class _Conditional:
    """Components through the patterns of a group; ``spread`` is k x n x n, or 1 x n x n where all
    components have one."""

    def __init__(
        self, lib: Any, group: _Group, means: Any, log_weights: Any, spread: Any, careful: bool
    ):
        xp, masks, n = lib.xp, group.masks, means.shape[1]
        self.lib, self.group, self.means, self.spread = lib, group, means, spread
        shape = spread.shape[0], masks.shape[0], n, n
        kept = spread[:, None] * (masks[:, :, None] * masks[:, None])
        kept = kept + (1 - masks)[:, :, None] * lib.eye(n)
        root, back = lib.roots_of(kept.reshape(-1, n, n), 0.0, careful)
        half = xp.log(xp.linalg.diagonal(root)).sum(axis=1).reshape(shape[:2])
        constants = log_weights[:, None] - half - 0.5 * LOG_2PI * masks.sum(axis=1)
        self.back = back.reshape(shape) * masks[:, :, None]
        self.constants = constants if group.run is None else constants[:, group.run]

    @cached_property
    def pull(self) -> Any:
        """H of each pattern."""
        flat = self.back.reshape(self.spread.shape[0], -1, self.means.shape[1]) @ self.spread
        return flat.reshape(self.back.shape) * (1 - self.group.masks)[:, None]

    def logs(self, rows: Any) -> Any:
        """rows x k; the deviations and g stay for what follows."""
        apart = self.lib.wide(rows) - self.means[:, None]
        self.apart = self.lib.xp.where(self.group.observed > 0, apart, 0.0)
        self.image = self._times(self.back, self.apart)
        return (self.constants - 0.5 * (self.image * self.image).sum(axis=2)).T

    def sums(self, _: Any, q: Any) -> tuple[Any, ...]:
        """Counts, shift and scatter about the means of the rows that ``logs`` has had, missing
        entries expected."""
        counts, gone, n = q.sum(axis=0), 1 - self.group.observed, self.means.shape[1]
        whole = self.apart + self._times(self.pull.mT, self.image)
        heavy = whole * q.T[:, :, None]
        one = self.spread.shape[0] < self.means.shape[0]
        q = q.sum(axis=1, keepdims=True) if one else q
        missing = gone + self.lib.zeros(q.shape[0], 1)
        covariance = self.spread * ((missing * q.T[:, :, None]).mT @ missing)
        if self.group.alone:
            pull = self.pull[:, 0]
            covariance = covariance - q.sum(axis=0)[:, None, None] * (pull.mT @ pull)
        else:
            pull = self._of_rows(self.pull)
            flat = pull.reshape(pull.shape[0], -1, n)
            scaled = (pull * q.T[:, :, None, None]).reshape(flat.shape)
            covariance = covariance - scaled.mT @ flat
        scatter = heavy.reshape(-1, n).T @ whole.reshape(-1, n) if one else heavy.mT @ whole
        return counts, heavy.sum(axis=1), covariance + scatter

    def filled(self, rows: Any, q: Any) -> tuple[Any, Any]:
        """Rows with E[x | observed] at missing entries and its variances, under the components
        together."""
        xp = self.lib.xp
        # about which the spread of the components' guesses cancels least
        centre = self.means.mean(axis=0)
        guess = (self.means - centre)[:, None] + self._times(self.pull.mT, self.image)
        variance = xp.linalg.diagonal(self.spread)[:, None] - (self.pull**2).sum(axis=2)
        variance = xp.clip(variance, 0.0, None)
        variance = variance if self.group.run is None else variance[:, self.group.run]
        share = q.T[:, :, None]
        mean = (share * guess).sum(axis=0)
        variance = (share * (variance + guess * guess)).sum(axis=0) - mean * mean
        observed = self.group.observed > 0
        full = xp.where(observed, self.lib.wide(rows), centre + mean)
        return full, xp.where(observed, 0.0, xp.clip(variance, 0.0, None))

    def _of_rows(self, matrices: Any) -> Any:
        return matrices if self.group.run is None else matrices[:, self.group.run]

    def _times(self, matrices: Any, vectors: Any) -> Any:
        """A v of every component and row, A by the pattern of the row."""
        if self.group.alone:
            return vectors @ matrices[:, 0].mT
        own = self._of_rows(matrices)
        return (own @ vectors[..., None])[..., 0]


class Factors:
    """Components; ``logs`` keeps codes of its rows for what follows."""

    def __init__(self, lib: Any, theta: Gaussians, complete: bool, careful: bool):
        self.lib, self.complete, self.careful = lib, complete, careful
        assert theta.loadings is not None
        assert theta.origin is not None
        self.loadings, self.spread = lib.there(theta.loadings), lib.there(theta.spread)
        self.origin, self.shifts = lib.there(theta.origin), lib.there(theta.means - theta.origin)
        self.log_weights = lib.there(theta.log_weights)
        self.level = lib.xp.log(self.spread) + LOG_2PI
        k, n, r = theta.loadings.shape
        self.pairs, self.wider = lib.triangle(r), lib.triangle(r + 1)
        self.products = self.loadings[:, :, self.pairs[0]] * self.loadings[:, :, self.pairs[1]]
        # masks, deviations, matrices and, of all components, codes and their covariances; complete
        # rows share matrices and covariances
        own = 0 if complete else (5 + k) * r * r
        self.bytes_of_row = 8 * (8 * n + k * (r + 2) + own)

    def _unpacked(self, packed: Any, at: tuple[Any, Any], r: int) -> Any:
        """Symmetric r x r matrices from their lower triangles."""
        out = self.lib.zeros(packed.shape[0], r, r)
        out[:, at[0], at[1]] = packed
        out[:, at[1], at[0]] = packed
        return out

    def logs(self, rows: Any) -> Any:
        """rows x k."""
        xp, y = self.lib.xp, self.lib.wide(rows) - self.origin
        self.observed = None
        if not self.complete:
            observed = ~xp.isnan(y)
            self.observed, y = self.lib.wide(observed), xp.where(observed, y, 0.0)
        self.y, self.squares = y, y * y
        found = [self._posterior(z) for z in range(self.spread.shape[0])]
        self.codes, self.inverses = [each[1] for each in found], [each[2] for each in found]
        return xp.stack([each[0] for each in found], axis=1)

    def _posterior(self, z: int) -> tuple[Any, Any, Any]:
        """log weight + log density, codes, and the packed M^-1 of each row, or of all."""
        w, s, observed = self.loadings[z], self.spread[z], self.observed
        products, r = self.products[z] / s[:, None], w.shape[1]
        packed = products.sum(axis=0)[None] if observed is None else observed @ products
        m = self._unpacked(packed, self.pairs, r) + self.lib.eye(r)
        # no eigenvalue of M is below 1; where loadings are so large against s that rounding hides
        # the I, M looks singular
        root, back = self.lib.roots_of(m, 1.0, self.careful)
        inverse = back.mT @ back
        d = self.y - self.shifts[z]
        d = d if observed is None else d * observed
        pulled = d @ (w / s[:, None])
        if observed is None:
            codes, level = pulled @ inverse[0], self.level[z].sum()
            rest = d - codes @ w.T
        else:
            codes, level = (inverse @ pulled[:, :, None])[:, :, 0], observed @ self.level[z]
            rest = d - observed * (codes @ w.T)
        square = (rest * rest) @ (1 / s) + (codes * codes).sum(axis=1)
        logdet = 2 * self.lib.xp.log(self.lib.xp.linalg.diagonal(root)).sum(axis=1)
        logs = self.log_weights[z] - 0.5 * (level + logdet + square)
        return logs, codes, inverse[:, self.pairs[0], self.pairs[1]]

    def sums(self, _: Any, q: Any) -> tuple[Any, ...]:
        """counts, second, cross and square of the rows that ``logs`` has had."""
        found = [self._sums(z, q[:, z : z + 1]) for z in range(self.spread.shape[0])]
        return tuple(self.lib.xp.stack(list(each)) for each in zip(*found))

    def _sums(self, z: int, q: Any) -> tuple[Any, ...]:
        xp, codes, y, r = self.lib.xp, self.codes[z], self.y, self.codes[z].shape[1]
        one = xp.concat([codes, xp.ones_like(q)], axis=1)
        heavy = q * one
        cross, square = y.T @ heavy, (q.T @ self.squares)[0]
        if self.observed is None:
            inverse = self._unpacked(self.inverses[z], self.pairs, r)[0]
            second = one.T @ heavy
            second[:r, :r] = second[:r, :r] + q.sum() * inverse
            return second[r, r], second, cross, square
        # packed E[a a^T], a = (z, 1): the lower triangle of the codes' moments, then the codes and
        # 1, which are its last row
        square_of_codes = codes[:, self.pairs[0]] * codes[:, self.pairs[1]] + self.inverses[z]
        moments = xp.concat([square_of_codes, one], axis=1)
        second = self._unpacked(q.T @ moments, self.wider, r + 1)[0]
        # y is zero where nothing is observed
        missing = self._unpacked((q * (1 - self.observed)).T @ moments, self.wider, r + 1)
        guess = xp.concat([self.loadings[z], self.shifts[z][:, None]], axis=1)
        lifted = (missing @ guess[:, :, None])[:, :, 0]
        cross = cross + lifted
        square = square + (lifted * guess).sum(axis=1) + self.spread[z] * missing[:, r, r]
        return second[r, r], second, cross, square

    def filled(self, rows: Any, q: Any) -> tuple[Any, Any]:
        """Rows with E[x | observed] at missing entries and its variances, under the components
        together."""
        xp, y = self.lib.xp, self.y
        if self.observed is None:
            return self.lib.wide(rows), xp.zeros_like(y)
        twice = xp.where(self.pairs[0] == self.pairs[1], 1.0, 2.0)
        mean, square = xp.zeros_like(y), xp.zeros_like(y)
        for z in range(self.spread.shape[0]):
            guess = self.shifts[z] + self.codes[z] @ self.loadings[z].T
            packed = self.inverses[z] * self.lib.wide(twice)
            variance = self.spread[z] + packed @ self.products[z].T
            mean = mean + q[:, z : z + 1] * guess
            square = square + q[:, z : z + 1] * (variance + guess * guess)
        observed, variance = self.observed > 0, xp.clip(square - mean * mean, 0.0, None)
        full = xp.where(observed, self.lib.wide(rows), self.origin + mean)
        return full, xp.where(observed, 0.0, variance)
