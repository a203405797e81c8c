"""Columns predicted from columns: Gram matrices and products of sparse rows, by SciPy.

The ridge with a zero diagonal, in the memory of its Gram matrix: a blocked symmetric sweep on
threads.

Sweeping block K of a symmetric A turns

    A_KK -> -A_KK^-1,    A_IK -> A_IK A_KK^-1 = W_I,    A_IJ -> A_IJ - W_I A_KJ

and keeps it symmetric, so the lower triangle is enough; after all blocks it holds -A^-1. That is
n^3 operations, as many as a Cholesky factor and its inverse take, all of them in products of tiles
that do not depend on each other. Beside A there are two panels of n x BLOCK. The block on the
diagonal is inverted in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

from eckart.engines.arrays.evidence import best_of_rows
from eckart.engines.host import place
from eckart.engines.protocol.items import SparseColumns, SparseRows, ZeroDiagonal
from eckart.scheduler import run_lanes


class ArrayItems:
    """The family ``items``."""

    lib: Any
    threads: int

    def column_gram(self, x: Any, dtype: Any) -> np.ndarray:
        a = _rows_of(place(x)).astype(dtype)
        return (a.T @ a).toarray()

    def sparse_gram(self, x: Any) -> SparseRows:
        a = _rows_of(place(x))
        found = (a.T @ a).tocsr()
        found.sort_indices()
        return SparseRows(found.indptr, found.indices, found.data)

    def zero_diagonal_ridge(self, gram: np.ndarray, l2: float) -> ZeroDiagonal:
        return zero_diagonal_ridge(gram, l2, self.threads)

    def nonnegative_columns(
        self,
        gram: np.ndarray,
        l1: float,
        l2: float,
        tol: float,
        max_iter: int,
        span: tuple[int, int] | None = None,
    ) -> SparseColumns:
        """A weight of all columns at a time; a step touches the columns whose weight moves."""
        g, (first, last) = gram.astype(np.float64), span or (0, len(gram))
        own = np.arange(first, last)
        w, slope = np.zeros((len(own), len(g))), l1 - g[own]
        gaps, sweeps = np.zeros(len(own)), np.zeros(len(own), np.int64)
        going, limit = np.arange(len(own)), 0.5 * tol * np.diagonal(g)[own]
        while len(going):
            t = np.maximum(-slope[going] / l2, -w[going])
            fall = -slope[going] * t - 0.5 * l2 * t * t
            fall[np.arange(len(going)), own[going]] = 0.0
            gaps[going] = fall.sum(axis=1)
            going = going[(gaps[going] > limit[going]) & (sweeps[going] < max_iter)]
            sweeps[going] += 1
            for i in range(len(g) if len(going) else 0):
                new = np.maximum(0.0, w[going, i] - slope[going, i] / (g[i, i] + l2))
                move = np.where(own[going] == i, 0.0, new - w[going, i])
                some = np.flatnonzero(move)
                at, step = going[some], move[some]
                w[at, i] += step
                slope[at] += step[:, None] * g[i]
                slope[at, i] += l2 * step
        w[w < 0] = 0.0
        indptr = np.concatenate([[0], np.cumsum((w > 0).sum(axis=1))])
        return SparseColumns(indptr, np.nonzero(w)[1], w[w > 0].astype(gram.dtype), gaps, sweeps)

    def row_products(
        self, x: SparseRows, rows: np.ndarray, weights: Any, columns: int
    ) -> np.ndarray:
        from scipy.sparse import csr_array

        sparse = isinstance(weights, SparseRows)
        dtype = (weights.data if sparse else weights).dtype
        lengths = np.diff(x.indptr)[rows]
        first = np.asarray(x.indptr)[rows] - np.cumsum(lengths) + lengths
        at = np.arange(int(lengths.sum())) + np.repeat(first, lengths)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        n = len(weights.indptr) - 1 if sparse else len(weights)
        some = csr_array((x.data[at].astype(dtype), x.indices[at], indptr), (len(lengths), n))
        if not sparse:
            return some @ weights
        return (some @ csr_array(weights[::-1], shape=(n, columns))).toarray()

    def best_products(
        self,
        x: SparseRows,
        rows: np.ndarray,
        weights: Any,
        columns: int,
        n: int,
        more: Any = None,
        allowed: Any = None,
        excluded: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = np.asarray(rows)

        def scores(here: slice) -> np.ndarray:
            found = ArrayItems.row_products(self, x, rows[here], weights, columns)
            if more is not None:
                found += (more[0][here] @ more[1].T).astype(found.dtype, copy=False)
            if allowed is not None:
                found[:, ~allowed] = -np.inf
            return found

        return best_of_rows(self.lib, scores, len(rows), columns, n, excluded)


def _rows_of(x: Any) -> Any:
    """A sparse matrix of SciPy."""
    return x.matrix.to_scipy()


BLOCK = 1024
"""Rows of a block: the matrix is read and written once a block, so that a product of 1024 terms
hides the memory behind it."""
TILE = 1024


def zero_diagonal_ridge(gram: np.ndarray, l2: float, threads: int) -> ZeroDiagonal:
    """W = -P / diag(P) with a zero diagonal, P = (G + l2 I)^-1, in the memory of ``gram``; and 1 /
    diag(P)."""
    n = len(gram)
    gram[np.arange(n), np.arange(n)] += gram.dtype.type(l2)
    tiles = [(i, j) for i in range(0, n, TILE) for j in range(0, i + 1, TILE)]
    for first in range(0, n, BLOCK):
        _sweep(gram, first, min(first + BLOCK, n), tiles, threads)
    multipliers = -1.0 / np.diagonal(gram).astype(np.float64)
    if not (multipliers > 0).all() or not np.isfinite(multipliers).all():
        raise np.linalg.LinAlgError("the inverse has a diagonal that is not positive")

    def finish(_: None, tile: tuple[int, int], scratch: dict) -> None:
        i, j = tile
        rows, columns = slice(i, min(i + TILE, n)), slice(j, min(j + TILE, n))
        part = gram[rows, columns]
        if i == j:
            part[:] = np.tril(part) + np.tril(part, -1).T
        else:
            np.multiply(part.T, multipliers[rows].astype(gram.dtype), out=gram[columns, rows])
        part *= multipliers[columns].astype(gram.dtype)

    run_lanes(tiles, [None] * 64, finish, threads)
    gram[np.arange(n), np.arange(n)] = 0
    return ZeroDiagonal(gram, multipliers)


def _sweep(
    a: np.ndarray, first: int, last: int, tiles: list[tuple[int, int]], threads: int
) -> None:
    """One block of rows and columns first..last."""
    n, width = len(a), last - first
    factor, failed = lapack.dpotrf(
        np.tril(a[first:last, first:last]).astype(np.float64), lower=1, clean=1
    )
    if failed:
        raise np.linalg.LinAlgError(
            f"row {first + abs(failed) - 1} of the Gram matrix has no positive pivot"
        )
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    small = np.ascontiguousarray(inverse, a.dtype)
    panel, images = np.empty((n, width), a.dtype), np.empty((n, width), a.dtype)

    def gather(_: None, start: int, scratch: dict) -> None:
        stop = min(start + TILE, n)
        # a block edge may cut the range
        for low, high in ((start, min(stop, first)), (max(start, first), stop)):
            if low < high:
                panel[low:high] = (
                    a[first:last, low:high].T if high <= first else a[low:high, first:last]
                )
        np.matmul(panel[start:stop], small, out=images[start:stop])

    run_lanes(range(0, n, TILE), [None] * 64, gather, threads)

    def update(_: None, tile: tuple[int, int], scratch: dict) -> None:
        rows, columns = (
            slice(tile[0], min(tile[0] + TILE, n)),
            slice(tile[1], min(tile[1] + TILE, n)),
        )
        if rows.start == first or columns.start == first:
            return
        a[rows, columns] -= images[rows] @ panel[columns].T

    run_lanes(tiles, [None] * 64, update, threads)
    a[last:, first:last] = images[last:]
    a[first:last, :first] = images[:first].T
    a[first:last, first:last] = -small
