"""Rows against thin matrices: blocks of dense rows, or products of stored entries.

Blocks are multiplied in working precision about a mean that is rounded to it, and what that rounded
off (``left``) is taken off afterwards; sums over blocks are made in float64. Entries of observed
rows that are unknown count as the mean.

Tall thin arrays: inner and outer products, orthonormal bases, triangles; and symmetric matrices
of the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.decompositions import eigh, svd
from eckart.engines.host import Host, place
from eckart.engines.protocol import ColumnMoments, Decomposition, Keeper, Moments, Sketch
from eckart.matrix import Dense
from eckart.scheduler import single_threaded_blas
from eckart.trace import Watcher, silent

WIDE = 2**15
"""Columns whose squares are added up together: a quarter of a megabyte a row in float64."""


class ArrayDense:
    """Dense and sparse rows against thin matrices."""

    lib: Any

    def moments(
        self, x: Any, probe: np.ndarray, watch: Watcher = silent, keeper: Keeper | None = None
    ) -> Moments:
        """Each block about its own mean; the spread of these means is added at the end, in one
        product. So short a pass keeps nothing between blocks."""
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        n, g = x.shape[1], lib.given(probe)
        scatter, probed, rows = lib.zeros(n, n), lib.zeros(n), 0
        parts: list[tuple[Any, ...]] = []
        for at, block in _all_rows(lib, x, watch):
            w = _at(lib.row_weights(x), at)
            weight, mean = mean_of(lib, block, w)
            near = lib.like(mean, block)
            centered = block - near
            if w is not None:
                centered = centered * lib.like(xp.sqrt(w), block)[:, None]
            scatter = lib.plus_square(scatter, centered)
            wide = lib.wide(centered)
            probed = probed + wide.T @ (wide @ g)
            # blocks are centered at a rounded mean: what is left of it
            parts.append((weight, mean, mean - near))
            rows += block.shape[0]
        if not rows:
            return Moments.empty(n, probe)
        each, means, rests = (xp.stack(list(part)) for part in zip(*parts))
        total, mean, apart = joined_means(each, means)
        for spread, sign in ((apart, 1.0), (rests, -1.0)):
            heavy = sign * each[:, None] * spread
            scatter = scatter + spread.T @ heavy
            probed = probed + heavy.T @ (spread @ g)
        weight, mean, probed = lib.host(total, mean, probed)
        return Moments(rows, float(weight), mean, lib.fetch(scatter), probe, probed)

    def column_moments(self, x: Any, watch: Watcher = silent) -> ColumnMoments:
        """Block after block, each joined to the sums of those before it; a few columns at a time,
        since rows may be as wide as a file is long."""
        lib, xp = self.lib, self.lib.xp
        x = lib.placed(x)
        if x.kind == "counts":
            return self._count_moments(x)
        sums: list[tuple[Any, Any, Any]] = []
        rows = 0
        for at, block in _all_rows(lib, x, watch):
            w = _at(lib.row_weights(x), at)
            found = [
                _squares_about_mean(lib, block[:, a : a + WIDE], w)
                for a in range(0, x.shape[1], WIDE)
            ]
            sums = [_joined(xp, *both) for both in zip(sums, found)] if sums else found
            rows += block.shape[0]
        if not rows or not sums:
            return ColumnMoments(rows, 0.0, np.zeros(x.shape[1]), np.zeros(x.shape[1]))
        mean, square = (xp.concat(list(part)) for part in list(zip(*sums))[1:])
        weight, mean, square = lib.host(sums[0][0], mean, square)
        return ColumnMoments(rows, float(weight), mean, square)

    def _count_moments(self, x: Any) -> ColumnMoments:
        """Absent entries are zeros: about the mean of a column they add its square for each of
        them."""
        lib, e, w = self.lib, self.lib.entries(x), self.lib.row_weights(x)
        one = lib.zeros(x.shape[0], 1) + 1.0 if w is None else w[:, None]
        wide, weight = lib.wide(e.data), one.sum()

        def summed(numbers: Any) -> Any:
            return lib.product_t(e, numbers, one)[:, 0]

        mean = summed(wide) / lib.xp.where(weight > 0, weight, 1.0)
        absent = weight - summed(lib.xp.ones_like(wide))
        square = summed((wide - mean[e.indices]) ** 2) + absent * mean * mean
        total, mean, square = lib.host(weight, mean, square)
        return ColumnMoments(x.shape[0], float(total), mean, square)

    def times(self, x: Any, v: Any, mean: np.ndarray | None) -> Any:
        lib = self.lib
        x = lib.placed(x)
        v = lib.array(v, x.dtype)
        if x.kind != "dense":
            return lib.tall(lib.like(_EntriesAbout(lib, x, mean).times(v), v))
        near, left = centre(lib, x, mean)
        out = [v[:0] @ lib.like(lib.eye(v.shape[1]), v)]
        for _, block in _all_rows(lib, x):
            y = (block if near is None else block - near) @ v
            out.append(y if left is None else y - left @ v)
        return lib.tall(lib.xp.concat(out))

    def times_t(self, x: Any, y: Any, mean: np.ndarray | None) -> np.ndarray:
        lib = self.lib
        x = lib.placed(x)
        y = lib.array(y, x.dtype)
        if x.kind != "dense":
            return lib.fetch(lib.like(_EntriesAbout(lib, x, mean).times_t(y), y))
        total = lib.zeros(x.shape[1], y.shape[1])
        near, left = centre(lib, x, mean)
        for at, block in _all_rows(lib, x):
            part = y[at]
            total = total + lib.wide((block if near is None else block - near).T @ part)
            if left is not None:
                total = total - left[:, None] * part.sum(axis=0)
        return lib.fetch(lib.like(total, y))

    def gram_times(
        self,
        x: Any,
        v: Any,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
        rough: bool = False,
    ) -> Any:
        lib = self.lib
        x = lib.placed(x if weights is None else place(x, weights))
        w = lib.row_weights(x)
        if x.kind != "dense":
            cells = _EntriesAbout(lib, x, mean)
            block = lib.array(v, np.float64 if x.kind == "observed" else x.dtype)
            y = cells.times(block)
            return answer(
                lib, lib.like(cells.times_t(y if w is None else y * w[:, None]), block), v
            )
        block = lib.array(v, x.dtype)
        total = lib.zeros(*block.shape)
        near, left = centre(lib, x, mean)
        if implicit and mean is not None:  # raw entries: the whole mean is what is left over
            near, left = None, lib.array(mean, x.dtype)
        for at, rows in _all_rows(lib, x):
            c = rows if near is None else rows - near
            y = c @ block
            y = y if left is None else y - left @ block
            y = y if w is None else y * lib.like(w[at], y)[:, None]
            total = total + lib.wide(c.T @ y)
            if left is not None:
                total = total - lib.wide(left)[:, None] * lib.wide(y).sum(axis=0)
        return answer(lib, lib.like(total, block), v)

    def misfit(self, x: Any, u: np.ndarray, mean: np.ndarray) -> Any:
        lib = self.lib
        x = lib.placed(x)
        basis, at = lib.given(u), lib.given(mean)
        if x.kind == "counts":  # U is orthonormal
            e = lib.entries(x)
            a = lib.wide(e.data)
            codes = lib.product(e, a, basis) - at @ basis
            square = lib.row_sums(e, a * (a - 2 * at[e.indices])) + at @ at
            return lib.tall(lib.xp.clip(square - (codes * codes).sum(axis=1), 0.0, None))
        out = [lib.zeros(0)]
        for _, block in _all_rows(lib, x):
            c = lib.wide(block) - at
            c = c - (c @ basis) @ basis.T
            out.append((c * c).sum(axis=1))
        return lib.tall(lib.xp.concat(out))


def answer(lib: Any, found: Any, given: Any) -> Any:
    """Where the block lies that was multiplied: in the engine, or on the host."""
    return lib.fetch(found) if isinstance(given, np.ndarray) else lib.tall(found)


class ArrayWhole:
    """What the rows are on the host, all of them or some at a time."""

    lib: Any

    def row_gram(self, x: Any, mean: np.ndarray | None) -> np.ndarray:
        a = self.entries(x)
        total = np.zeros((len(a), len(a)))
        width = max(1, self.lib.room // max(1, a.itemsize * len(a)))
        for first in range(0, a.shape[1], width):
            at = slice(first, first + width)
            part = a[:, at] if mean is None else a[:, at] - mean[at].astype(a.dtype)
            total += part @ part.T
        return total

    def svd(self, x: Any, centered: bool) -> Decomposition:
        x = place(x)
        a = self.entries(x).astype(np.float64)
        w = np.ones(len(a)) if x.weights is None else x.weights
        weight = float(w.sum())
        mean = (w / weight) @ a if centered else np.zeros(a.shape[1])
        a -= mean
        if centered:
            mean = mean + (extra := (w / weight) @ a)
            a -= extra
        if x.weights is not None:
            a *= np.sqrt(w)[:, None]
        size = float(np.abs(a).max(initial=0.0)) or 1.0
        values, right = svd_of(a / size)
        return Decomposition(len(a), weight, mean, values * size, right)

    def sketch(self, x: Any, state: Sketch, watch: Watcher = silent) -> Sketch:
        x = place(x)
        for at, block in _all_rows(self.lib, x, watch):
            state = state.add(block, _at(x.weights, at))
        return state

    def entries(self, x: Any) -> np.ndarray:
        x = place(x)
        blocks = [np.array(block) for _, block in _all_rows(self.lib, x)]
        return np.concatenate(blocks) if blocks else np.empty((0, x.shape[1]), x.dtype)

    def largest(self, x: Any) -> float:
        x = place(x)
        if x.kind != "dense":
            return float(np.abs(x.matrix.data).max(initial=0.0))
        return max(
            (float(np.abs(block).max(initial=0)) for _, block in _all_rows(self.lib, x)),
            default=0.0,
        )

    def scaled(self, x: Any, factor: float) -> Host:
        x = place(x)
        m = x.matrix
        if x.kind == "dense":
            part: Any = Dense(
                (self.entries(x).astype(np.float64) * factor).astype(x.dtype), m.rows, m.columns
            )
        else:
            part = replace(m, data=(m.data.astype(np.float64) * factor).astype(x.dtype))
        return Host(part, x.weights, x.entry_weights, checked=True)


class _EntriesAbout:
    """The entries of sparse rows about a mean, as an operand of products: unknown entries are the
    mean, absent ones zeros."""

    def __init__(self, lib: Any, x: Any, mean: np.ndarray | None):
        self.lib, self.e, self.mean = lib, lib.entries(x), None
        self.data = self.e.data
        if mean is not None and x.kind == "observed":
            self.data = lib.wide(self.e.data) - lib.given(mean)[self.e.indices]
        elif mean is not None:
            self.mean = lib.given(mean)

    def times(self, v: Any) -> Any:
        y = self.lib.product(self.e, self.data, v)
        return y if self.mean is None else y - self.mean @ self.lib.wide(v)

    def times_t(self, y: Any) -> Any:
        total = self.lib.product_t(self.e, self.data, y)
        if self.mean is None:
            return total
        return total - self.mean[:, None] * self.lib.wide(y).sum(axis=0)


def _all_rows(lib: Any, x: Any, watch: Watcher = silent) -> Iterator[tuple[slice, Any]]:
    """(which, rows in working precision), zeros where counts are absent and NaN where an entry is
    unknown; the first pass over dense rows refuses NaN and infinities."""
    row = 2 * x.dtype.itemsize * x.shape[1]
    blocks = lib.checked_blocks(x, row) if x.kind == "dense" else lib.row_blocks(x, row)
    for start, block in blocks:
        yield slice(start, start + block.shape[0]), block
        watch("reading rows", start + block.shape[0], x.shape[0])


def _at(weights: Any, at: slice) -> Any:
    return None if weights is None else weights[at]


def mean_of(lib: Any, block: Any, w: Any) -> tuple[Any, Any]:
    """The weight of some rows and their mean (0 where they weigh nothing), in float64."""
    if w is None:
        return lib.zeros() + float(block.shape[0]), block.mean(axis=0, dtype=lib.zeros().dtype)
    weight = w.sum()
    return weight, (w @ lib.wide(block)) / lib.xp.where(weight > 0, weight, 1.0)


def _squares_about_mean(lib: Any, block: Any, w: Any) -> tuple[Any, Any, Any]:
    """The weight of some rows, the mean of each column and its squares about it."""
    weight, mean = mean_of(lib, block, w)
    apart = lib.wide(block) - mean
    apart = apart * apart
    return weight, mean, apart.sum(axis=0) if w is None else w @ apart


def _joined(xp: Any, one: Any, other: Any) -> tuple[Any, Any, Any]:
    """Weight, mean and squares about it of two sets of rows together."""
    (w, mean, square), (v, mean_v, square_v) = one, other
    total, apart = w + v, mean_v - mean
    share = v / xp.where(total > 0, total, 1.0)
    return total, mean + apart * share, square + square_v + apart * apart * (w * share)


def joined_means(weights: Any, means: Any) -> tuple[Any, Any, Any]:
    """Weight and mean of all blocks, and how far the mean of each is from it."""
    total = weights.sum()
    mean = means[0] + (weights @ (means - means[0])) / total
    return total, mean, means - mean


def centre(lib: Any, x: Any, mean: np.ndarray | None) -> tuple[Any, Any]:
    """The mean in working precision, and what that rounded off; nothing where there is none."""
    if mean is None:
        return None, None
    near = np.asarray(mean, x.dtype)
    left = np.asarray(mean - near, x.dtype)
    return lib.array(near), lib.array(left) if left.any() else None


class ArrayThin:
    """Products of tall thin arrays."""

    lib: Any

    def inner(self, q: Any, w: Any, weights: Any = None) -> np.ndarray:
        lib = self.lib
        b = lib.given(w)
        b = b if weights is None else b * lib.given(weights).reshape(-1, 1)
        return lib.fetch(lib.given(q).T @ b)

    def outer(self, q: Any, s: np.ndarray, plus: Any = None, scale: float = 1.0) -> Any:
        lib = self.lib
        a = lib.array(q)
        out = a @ lib.array(s, q.dtype)
        return lib.tall(out if plus is None else out + scale * lib.array(plus, q.dtype))

    def triangle(self, v: Any) -> np.ndarray:
        return self.lib.fetch(self.lib.triangle_of(self.lib.given(v)))

    def write_columns(self, into: Any, first: int, columns: Any) -> None:
        into[:, first : first + columns.shape[1]] = columns

    def orth(self, v: Any, against: Any = None) -> Any:
        """Classical Gram-Schmidt against the given columns and V (V^T V)^-1/2 by eigenvalues, in
        float64, repeated until orthogonal to rounding."""
        lib, xp = self.lib, self.lib.xp
        a = lib.array(v)
        eps = float(xp.finfo(a.dtype).eps)
        size = float(xp.abs(a).max()) if v.shape[0] and v.shape[1] else 0.0
        if size == 0.0 or not np.isfinite(size):
            return v[:, :0]
        q = None if against is None or not against.shape[1] else lib.array(against, v.dtype)
        a = a / size
        for attempt in range(3):
            if q is not None:
                a = a - q @ lib.like(lib.wide(q).T @ lib.wide(a), a)
            wide = lib.wide(a)
            gram = lib.fetch(wide.T @ wide)
            values, vectors = eigh((gram + gram.T) / 2)
            if attempt and np.abs(values - 1.0).max(initial=0.0) < 100 * eps:
                break
            # what survived the first round but is still mostly noise of the subtraction is dropped
            # in the second
            keep = values > (values[-1] * 100 * eps**2 if attempt == 0 else 0.25)
            if attempt == 0:
                keep &= values > v.shape[0] * (10 * eps) ** 2
            if not keep.any():
                return v[:, :0]
            a = a @ lib.there(vectors[:, keep] / np.sqrt(values[keep]), v.dtype)
        return lib.tall(a)

    def covariance(
        self, scatter: np.ndarray, weight: float, mean: np.ndarray | None = None
    ) -> np.ndarray:
        lib = self.lib
        c = lib.given(scatter) / weight
        if mean is not None:
            m = lib.given(mean)
            c = c + m[:, None] * m
        return lib.twin((c + c.T) / 2)

    def is_below(self, c: np.ndarray, q: np.ndarray, r: np.ndarray, bound: float) -> bool:
        lib = self.lib
        half = 0.5 * lib.given(c) + lib.given(q) @ lib.given(r).T
        return lib.is_definite(bound * lib.eye(c.shape[0]) - (half + half.T))

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return eigh_top(c, k)


def eigh_top(c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues of a symmetric matrix, falling, and their eigenvectors as columns.

    LAPACK's divide and conquer, then bisection, then a slightly shifted matrix: a finite matrix
    always gets an answer.
    """
    import scipy.linalg as sl

    c = np.asarray(c, np.float64)
    n = len(c)
    if k == 0:
        return np.empty(0), np.empty((n, 0))
    subset = None if 3 * k >= n else (n - k, n - 1)
    error: Exception | None = None
    with single_threaded_blas():
        for driver in ("evr" if subset else "evd", "evx" if subset else "ev", "evr"):
            try:
                values, vectors = sl.eigh(
                    c, subset_by_index=subset, driver=driver, check_finite=False
                )
            except (np.linalg.LinAlgError, ValueError) as reason:
                error = reason
                c = c + np.finfo(np.float64).eps * np.linalg.norm(c) * np.eye(n)
                continue
            return values[::-1][:k], vectors[:, ::-1][:, :k]
    bad = int(np.count_nonzero(~np.isfinite(c)))
    raise np.linalg.LinAlgError(
        f"no eigenvalue method converged on a {n} x {n} matrix with {bad} non-finite "
        f"entries: {error}"
    )


def svd_of(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values and right vectors, where no method converges through the triangle of a QR
    factorization: a finite matrix always gets an answer."""
    import scipy.linalg as sl

    with single_threaded_blas():
        try:
            return svd(a, full_matrices=False)[1:]
        except np.linalg.LinAlgError:
            r = sl.qr(a, mode="r", pivoting=False, check_finite=False)[0]
        values, vectors = eigh(r.T @ r)
        return np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1].T
