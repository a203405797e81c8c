"""Rows with gaps under x_i ~ N(mean, W W^T + noise I), in float64 throughout.

    M_i = W^T S_i W + noise I,      E[z_i] = M_i^-1 W^T S_i (x_i - mean),      Cov[z_i] = noise
    M_i^-1,      S_i = diag(which entries of row i are seen)

With S the 0/1 mask of some rows and P the n x k(k+1)/2 matrix of products w_jr w_js, all M_i are
one product S P (of entries alone, where hardly one is seen), and the sums over the rows that see a column one product S^T E, E being the packed
second moments of the codes: twice N n k^2 multiply-adds, nearly all of the work. Rows with the same
gaps stand together and share M, its inverse and a row of S.

Rows of a partly observed matrix that have the same gaps, side by side: what depends on the gaps
alone is then worked out once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.host import Host
from eckart.engines.protocol import GapCodes, GapStatistics, SeenColumns
from eckart.matrix import Observed

MOST_ROWS = 65535
"""Matrices that batched routines of CUDA libraries take at once."""


class ArrayGaps:
    """Statistics, codes and expected entries of rows that are seen in part."""

    lib: Any

    def seen_columns(self, x: Any) -> SeenColumns:
        """About the mean: squares keep their precision where means are large."""
        lib = self.lib
        x = lib.placed(x)
        e, one = lib.entries(x), lib.zeros(x.shape[0], 1) + 1.0
        wide = lib.wide(e.data)

        def summed(numbers: Any) -> Any:
            return lib.product_t(e, numbers, one)[:, 0]

        count = summed(lib.xp.ones_like(wide))
        mean = summed(wide) / lib.xp.clip(count, 1.0, None)
        away = wide - mean[e.indices]
        seen, mean, square = lib.host(count, mean, summed(away * away))
        return SeenColumns(seen.astype(np.int64), mean, square)

    def gap_statistics(
        self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapStatistics:
        lib = self.lib
        rows, together = lib.by_gaps(lib.placed(x))
        model = GapModel.of(lib, w, mean, noise)
        n, k = model.w.shape

        def do(part: tuple[int, int]) -> tuple[Any, ...]:
            return model.sums(gap_block(lib, rows, *part, together))

        sums = self._added(gap_parts(lib, rows, k), do, n * (model.products.shape[1] + 2 * k + 3))
        packed, ends, square, second, loglik = sums
        square, second, loglik = lib.host(square, second, loglik)
        gram = lib.zeros(n, k + 1, k + 1)
        a, b = model.pairs
        gram[:, a, b] = gram[:, b, a] = packed
        gram[:, :k, k] = gram[:, k, :k] = ends[:, :k]
        gram[:, k, k] = ends[:, k]
        # gap_solve takes both where they lie
        columns = lib.twin(gram), lib.twin(lib.copied(ends[:, k + 1 :]))
        whole = np.zeros((k + 1, k + 1))
        r, c = np.tril_indices(k + 1)
        whole[r, c] = whole[c, r] = second
        return GapStatistics(float(loglik), *columns, square, whole)

    def gap_solve(self, stats: GapStatistics) -> tuple[np.ndarray, np.ndarray]:
        lib = self.lib
        gram, cross, square = (lib.given(a) for a in (stats.gram, stats.cross, stats.square))
        size = gram.shape[1]

        def do(part: tuple[int, int]) -> tuple[Any, ...]:
            g, c = (a[part[0] : part[1]] for a in (gram, cross))
            ridge = 1e-12 / size * lib.xp.linalg.diagonal(g).sum(axis=1)[:, None, None]
            a = lib.solved(g + ridge * lib.eye(size), c[:, :, None])[:, :, 0]
            image = (g @ a[:, :, None])[:, :, 0]
            return a, square[part[0] : part[1]] + (a * (image - 2 * c)).sum(axis=1)

        return tuple(lib.host(*self._side_by_side(len(stats.square), size**3, do)))  # type: ignore[return-value]

    def gap_codes(self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        lib = self.lib
        x, model = lib.placed(x), GapModel.of(lib, w, mean, noise)

        def do(part: tuple[int, int]) -> tuple[Any, ...]:
            return model.posterior(gap_block(lib, x, *part))[:3]

        return GapCodes(*map(lib.tall, self._joined(gap_parts(lib, x, model.w.shape[1]), do)))

    def gap_expect(
        self, x: Any, u: np.ndarray, gain: np.ndarray, mean: np.ndarray, noise: float
    ) -> Any:
        lib = self.lib
        x, basis = lib.placed(x), lib.given(np.asarray(u, np.float64))
        model = GapModel.of(lib, np.asarray(u, np.float64) * gain, mean, noise)

        back = model.w.T @ basis

        def do(part: tuple[int, int]) -> tuple[Any, ...]:
            block = gap_block(lib, x, *part)
            z = model.posterior(block)[0]
            return (block.pulled(block.rest(model, z), basis) + z @ back,)

        (found,) = self._joined(gap_parts(lib, x, model.w.shape[1]), do)
        return lib.tall(lib.array(found, x.dtype))

    def _added(self, parts: Any, do: Callable[[Any], tuple[Any, ...]], size: int) -> list[Any]:
        """Sums of what ``do`` gives of all parts, of ``size`` numbers."""
        sums: list[Any] = []
        for part in parts:
            found = do(part)
            sums = [a + b for a, b in zip(sums, found)] if sums else list(found)
        return sums

    def _joined(self, parts: Any, do: Callable[[Any], tuple[Any, ...]]) -> list[Any]:
        """What ``do`` gives of all parts, one after another."""
        found = [do(part) for part in parts]
        return [self.lib.xp.concat(list(each)) for each in zip(*found)]

    def _side_by_side(
        self, rows: int, work: int, do: Callable[[tuple[int, int]], tuple[Any, ...]]
    ) -> Any:
        """``do`` of so many rows, each of which takes so many multiply-adds."""
        return do((0, rows))


def hardly_seen(lib: Any, x: Any) -> bool:
    """Whether so few entries are there that products of them cost less than those of masks."""
    rows, n = x.shape
    return not rows or x.nnz < lib.hardly * rows * n


def gap_parts(lib: Any, x: Any, k: int) -> list[tuple[int, int]]:
    """Ranges of rows whose masks, values, matrices and moments have room."""
    rows, n = x.shape
    each = 5 * k * k + 1 + (0 if hardly_seen(lib, x) else 4 * n)
    step = int(np.clip(lib.chunk // (8 * each), lib.least_rows, MOST_ROWS))
    return [(a, min(a + step, rows)) for a in range(0, max(rows, 1), step)]


@dataclass(frozen=True)
class GapBlock:
    """Some rows: a mask of what is seen, its values, zero elsewhere, and weights or None; where
    rows with the same gaps stand together, the first row of each run of them, and the run of every
    row."""

    mask: Any
    values: Any
    weights: Any
    runs: tuple[Any, Any] | None

    @property
    def seen(self) -> Any:
        return self.mask.sum(axis=1)

    def over_columns(self, p: Any) -> Any:
        """sum of p_j over the columns that a row (of each run, one) sees."""
        return (self.mask if self.runs is None else self.mask[self.runs[0]]) @ p

    def rest(self, model: Any, z: Any = None) -> Any:
        """x - mean, less W z, at what is seen."""
        centered = self.values - self.mask * model.mean
        return centered if z is None else centered - self.mask * (z @ model.w.T)

    def pulled(self, r: Any, v: Any) -> Any:
        """sum_j r_ij v_j of every row."""
        return r @ v

    def squares(self, r: Any) -> Any:
        return (r * r).sum(axis=1)

    def over_rows(self, y: Any, moments: Any) -> tuple[Any, Any, Any]:
        """For every column: sums of ``moments`` (of runs, where there are some) and of y over the
        rows that see it, and of y times the values."""
        mask = self.mask
        some = mask[self.runs[0]] if self.runs and len(moments) < len(mask) else mask
        return some.T @ moments, mask.T @ y, self.values.T @ y

    def column_squares(self, om: Any) -> Any:
        return (om * self.values * self.values).sum(axis=0)


@dataclass(frozen=True)
class StoredRows:
    """The same by entries alone, where hardly one is seen."""

    lib: Any
    e: Any
    weights: Any
    runs = None

    @property
    def seen(self) -> Any:
        return self.lib.wide(self.e.counts)

    def over_columns(self, p: Any) -> Any:
        return self.lib.product(self.e, self._ones, p)

    @property
    def _ones(self) -> Any:
        return self.lib.xp.ones_like(self.lib.wide(self.e.data))

    def rest(self, model: Any, z: Any = None) -> Any:
        centered = self.lib.wide(self.e.data) - model.mean[self.e.indices]
        return centered if z is None else centered - self.lib.dots(self.e, z, model.w)

    def pulled(self, r: Any, v: Any) -> Any:
        return self.lib.product(self.e, r, v)

    def squares(self, r: Any) -> Any:
        return self.lib.row_sums(self.e, r * r)

    def over_rows(self, y: Any, moments: Any) -> tuple[Any, Any, Any]:
        e, lib = self.e, self.lib
        numbers = (self._ones, moments), (self._ones, y), (lib.wide(e.data), y)
        return tuple(lib.product_t(e, r, v) for r, v in numbers)  # type: ignore[return-value]

    def column_squares(self, om: Any) -> Any:
        wide = self.lib.wide(self.e.data)
        return self.lib.product_t(self.e, wide * wide, om)[:, 0]


def gap_block(lib: Any, x: Any, first: int, last: int, together: bool = False) -> Any:
    """Rows first..last; ``together``: with their runs, which are found once."""
    w = lib.row_weights(x)
    w = None if w is None else w[first:last]
    if hardly_seen(lib, x):
        return StoredRows(lib, lib.rows_of(lib.entries(x), first, last), w)
    rows, columns, data = lib.stored_rows(x, first, last)
    mask = lib.zeros(last - first, x.shape[1])
    values = lib.zeros(last - first, x.shape[1])
    mask[rows, columns] = 1.0
    values[rows, columns] = lib.wide(data)
    runs = None
    if together:
        if ("runs", first, last) not in x.kept:
            x.kept["runs", first, last] = _runs(lib, mask)
        runs = x.kept["runs", first, last]
    return GapBlock(mask, values, w, runs)


def _runs(lib: Any, mask: Any) -> tuple[Any, Any]:
    """The first row of each run of equal rows, and the run of every row."""
    xp = lib.xp
    new = xp.concat([xp.ones_like(mask[:1, 0]) > 0, (mask[1:] != mask[:-1]).any(axis=1)])
    return lib.arange(mask.shape[0])[new], xp.cumsum(new, 0) - 1


@dataclass(frozen=True)
class GapModel:
    """W, mean and noise, and the products w_jr w_js of every column."""

    lib: Any
    w: Any
    mean: Any
    noise: float
    pairs: Any
    products: Any

    @classmethod
    def of(cls, lib: Any, w: np.ndarray, mean: np.ndarray, noise: float) -> GapModel:
        there = lib.given(np.ascontiguousarray(w, np.float64))
        a, b = pairs = lib.triangle(w.shape[1])
        at = lib.given(np.asarray(mean, np.float64))
        return cls(lib, there, at, noise, pairs, there[:, a] * there[:, b])

    def posterior(self, block: Any) -> tuple[Any, ...]:
        """E[z], log-likelihood and misfit of each row, and M^-1 of each run of rows."""
        lib, k = self.lib, self.w.shape[1]
        run, (a, b) = block.runs[1] if block.runs else slice(None), self.pairs
        packed = block.over_columns(self.products)
        m = lib.zeros(packed.shape[0], k, k)
        m[:, a, b] = m[:, b, a] = packed
        inverse, logdet = lib.inverses(m + self.noise * lib.eye(k))
        pull = block.pulled(block.rest(self), self.w)
        z = (inverse[run] @ pull[:, :, None])[:, :, 0]
        # |x|^2 - b^T M^-1 b = |x - W z|^2 + noise |z|^2, the least over all z: an error of z counts
        # squared, and nothing cancels where the noise is small
        misfit, seen = block.squares(block.rest(self, z)), block.seen
        loglik = -0.5 * (
            seen * np.log(2 * np.pi)
            + logdet[run]
            + (seen - k) * np.log(self.noise)
            + misfit / self.noise
            + (z * z).sum(axis=1)
        )
        return z, loglik, misfit, inverse

    def sums(self, block: Any) -> tuple[Any, ...]:
        """Over these rows, for every column: packed moments of the codes; codes, count, and the
        same times the values side by side; squares. The packed moments of (z, 1) and the
        log-likelihood of all of them."""
        xp, (a, b) = self.lib.xp, self.pairs
        z, loglik, _, inverse = self.posterior(block)
        om = self.lib.zeros(z.shape[0], 1) + 1.0
        om = om if block.weights is None else om * block.weights[:, None]
        codes = xp.concat([om * z, om], axis=1)
        moments, heavy = codes[:, a] * z[:, b], om
        inverse = inverse[:, a, b]
        if block.runs is not None:
            first, run = block.runs
            if self.lib.adds_runs:
                moments, heavy = (
                    self.lib.sums_by(each, run, first.shape[0]) for each in (moments, om)
                )
            else:
                inverse = inverse[run]
        moments = moments + self.noise * heavy * inverse
        packed, *ends = block.over_rows(codes, moments)
        # the last row of a lower triangle is its end
        second = xp.concat([moments.sum(axis=0), codes.sum(axis=0)])
        squares = block.column_squares(om)
        return packed, xp.concat(ends, axis=1), squares, second, (om[:, 0] * loglik).sum()


def by_gaps(
    indptr: np.ndarray, indices: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in the order of their patterns, those of pattern p being order[starts[p]] to
    order[starts[p + 1]], and of each pattern which of n columns is seen.

    >>> order, starts, seen = by_gaps(np.array([0, 1, 3, 4]), np.array([1, 0, 1, 1]), 2)
    >>> order.tolist(), starts.tolist(), seen.tolist()
    ([0, 2, 1], [0, 2, 3], [[False, True], [True, True]])
    """
    rows = len(indptr) - 1
    mask = np.zeros(
        (rows, -(-max(n, 1) // 64) * 64), bool
    )  # whole words: one number for a row of up to 64 columns, compared at once
    mask[np.repeat(np.arange(rows), np.diff(indptr)), indices] = True
    bits = np.packbits(mask, axis=1).view(np.uint64)
    whole = bits[:, 0] if bits.shape[1] == 1 else bits.view(f"V{8 * bits.shape[1]}")[:, 0]
    _, lead, of, count = np.unique(
        whole, return_index=True, return_inverse=True, return_counts=True
    )
    return np.argsort(of, kind="stable"), np.concatenate([[0], np.cumsum(count)]), mask[lead, :n]


def rows_by_gaps(x: Host) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
    """The rows, with their weights, in an order in which those with the same gaps stand together,
    and that order, made once; as they are, and None, where most have gaps of their own."""
    if "rows by gaps" not in x.kept:
        m, weights, among = x.matrix, x.weights, None
        order, starts, _ = by_gaps(m.indptr, m.indices, m.n_columns)
        if 2 * (len(starts) - 1) <= len(order):
            m, among = Observed.from_scipy(m.to_scipy()[order]), order
            weights = None if weights is None else weights[order]
        x.kept["rows by gaps"] = m, weights, among
    return x.kept["rows by gaps"]
