"""What the array primitives need of NumPy: rows of a placed matrix in blocks, products of stored
entries, roots of small matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from eckart.decompositions import eigh
from eckart.engines.arrays.gaps import rows_by_gaps
from eckart.engines.host import Host, place
from eckart.engines.protocol import GapsFound, refuse_bad
from eckart.engines.protocol.mixtures import TINY
from eckart.engines.row_blocks import jobs
from eckart.matrix import Counts, Dense
from eckart.rng import streams
from eckart.trace import Watcher, silent

FEATURES = 2**24
"""Bytes of what is made of rows once and kept for all steps of a fit: it comes from the cache in
every one, and larger data are the compiled kernels' anyway."""


DOTS = 2**17
"""Numbers that are gathered for products at the entries at once: 1 MB, which stays in the second
cache."""


class StoredEntries:
    """Entries of compressed rows with n columns: where they stand, their numbers and weights (None:
    ones)."""

    def __init__(
        self, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, weights: Any, n: int
    ):
        self.indptr, self.indices, self.data, self.weights = indptr, indices, data, weights
        self.n = n
        self.counts = np.diff(indptr)

    def with_numbers(self, data: np.ndarray, weights: Any) -> StoredEntries:
        """Other numbers at the same places."""
        made = copy(self)
        made.data, made.weights = data, weights
        return made

    @cached_property
    def row_of(self) -> np.ndarray:
        """The row of every entry."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def by_columns(self) -> np.ndarray:
        """Positions of the entries in the order of columns, rows ascending in each."""
        return np.argsort(self.indices, kind="stable")

    def matrix(self, numbers: np.ndarray) -> Any:
        """These numbers at the places of the entries, for products."""
        made = copy(self._places)
        made.data = numbers
        return made

    @cached_property
    def _places(self) -> Any:
        """One sparse matrix for all numbers: SciPy looks at its indices once, of one type."""
        from scipy import sparse

        kind = np.int32 if len(self.data) < 2**31 else np.int64
        indptr, indices = (a.astype(kind, copy=False) for a in (self.indptr, self.indices))
        return sparse.csr_array((self.data, indices, indptr), (len(self.counts), self.n))


class NumpyLibrary:
    """NumPy, one thread, memory of this process."""

    xp: Any = np
    asks = 1
    """Steps after which a loop asks whether it goes on: a device is waited for."""
    room = 2**22
    """Bytes that are worked on at once: they stay in the second or third cache between the passes
    over them."""
    least_rows = 64
    """Rows of such a block at the least."""
    hardly = 0.05
    """Share of observed entries from which BLAS on zeros is quicker than products of entries."""
    adds_runs = True
    """Whether rows of one run are added up before a product of them all."""
    scores = 2**19
    """Scores of rows against all columns that are held at once: 4 MB in float64."""
    chunk = 2**23
    """Bytes of masks, values and moments of rows with gaps: they stay in cache, and there are
    enough blocks for many threads."""
    piece = 2**13
    """Entries whose formulas are worked out at once: some arrays of them fit into a second-level
    cache, and a call of NumPy costs little against them."""

    def placed(self, x: Any) -> Host:
        return place(x)

    def there(self, a: Any, dtype: Any = np.float64) -> np.ndarray:
        """A contiguous array in the memory of the library."""
        return np.ascontiguousarray(a, dtype)

    def array(self, a: Any, dtype: Any = None) -> np.ndarray:
        """An array of the engine or of the host, in its own precision or another."""
        return np.asarray(a, dtype)

    def like(self, a: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The array in the precision of another."""
        return a.astype(other.dtype, copy=False)

    def copied(self, a: np.ndarray) -> np.ndarray:
        """A contiguous copy, which may be written to."""
        return np.array(a, order="C")

    def normal(self, seed: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal numbers, the same on every engine."""
        out = np.empty(shape)
        for part, rng in streams(seed, shape[0]):
            out[part] = rng.standard_normal(out[part].shape)
        return out

    def promise(self, numbers: np.ndarray) -> list[float]:
        """Numbers for the host, which a device may have yet to make."""
        return numbers.tolist()

    def twin(self, a: np.ndarray) -> np.ndarray:
        """A copy on the host; where it is given back, the array itself is found."""
        return a

    def host(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Arrays in float64 in the memory of the host, by one copy."""
        return [np.asarray(a, np.float64) for a in arrays]

    def fetch(self, a: Any) -> np.ndarray:
        """One array on the host, as it is."""
        return np.asarray(a)

    def given(self, a: Any) -> np.ndarray:
        """An array of the engine or of the host, in float64."""
        return np.asarray(a, np.float64)

    def tall(self, a: np.ndarray) -> np.ndarray:
        """An array that stays in the engine, as solvers hold it."""
        return a

    def wide(self, a: np.ndarray) -> np.ndarray:
        """The array in float64."""
        return a.astype(np.float64, copy=False)

    def zeros(self, *shape: int) -> np.ndarray:
        return np.zeros(shape)

    def arange(self, count: int) -> np.ndarray:
        return np.arange(count)

    def eye(self, n: int) -> np.ndarray:
        return np.eye(n)

    def triangle(self, n: int) -> Any:
        """Rows and columns of the lower triangle of n x n numbers, row by row."""
        return np.tril_indices(n)

    def width(self, columns: int) -> int:
        """Columns of an array whose rows begin where products read them fast."""
        return columns

    def may_keep(self, x: Host, size: int) -> bool:
        """Whether so many bytes that were made of x may stay with it."""
        return size <= FEATURES

    def row_weights(self, x: Host) -> np.ndarray | None:
        return x.weights

    def complete(self, x: Host) -> bool:
        """Whether no entry is missing; the first call looks at dense rows and refuses an
        infinity."""
        if x.kind != "dense":
            return x.kind == "counts" or x.nnz == x.shape[0] * x.shape[1]  # type: ignore[operator]
        if x.checked:
            return True
        if "complete" not in x.kept:
            missing = False
            for start, rows in self.row_blocks(x, 8 * x.shape[1]):
                with np.errstate(invalid="ignore", over="ignore"):
                    finite = np.isfinite(rows.sum())
                if not finite:
                    try:
                        refuse_bad(rows, start)
                    except GapsFound:
                        missing = True
            x.kept["complete"], x.checked = not missing, not missing
        return x.kept["complete"]

    def whole(self, x: Host) -> np.ndarray | None:
        """All rows where they lie in memory as an array, NaN where an entry is missing."""
        values = x.matrix.values if x.kind == "dense" else None
        return values if isinstance(values, np.ndarray) else None

    def row_blocks(
        self, x: Host, row: int, watch: Watcher = silent
    ) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows in the precision of x), NaN where an entry is missing; ``row`` is how
        many bytes are made of each."""
        step, total = max(1, self.room // max(1, row)), x.shape[0]
        if total:  # of one size: a short block costs as much beside its arithmetic as a long one
            step = -(-total // -(-total // step))
        if x.kind == "dense":
            work = jobs(replace(x, checked=True), rows=step)
            blocks = ((start, np.asarray(fetch({}))) for start, _, fetch in work)
        else:
            rows: Any = x.shape[0]
            blocks = ((a, filled(x, a, min(a + step, rows))) for a in range(0, rows, step))
        for start, block in blocks:
            yield start, block
            watch("reading rows", start + len(block), x.shape[0])

    def stored(self, x: Host) -> np.ndarray:
        """The stored entries of a sparse matrix."""
        return x.matrix.data

    def checked_blocks(self, x: Host, row: int) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, dense rows in the precision of x), of which ``row`` bytes are worked on at
        once; the first pass refuses NaN and infinities."""
        for start, _, fetch in jobs(x, rows=max(1, self.room // max(1, row))):
            yield start, np.asarray(fetch({}))
        x.checked = True

    def entries(self, x: Host) -> StoredEntries:
        """The stored entries of a sparse matrix."""
        if "arrays" not in x.kept:
            m = x.matrix
            x.kept["arrays"] = StoredEntries(
                m.indptr, m.indices, m.data, x.entry_weights, x.shape[1]
            )
        return x.kept["arrays"]

    def rows_of(self, e: StoredEntries, first: int, last: int) -> StoredEntries:
        """The entries of some rows, counted from the first of these."""
        at = slice(int(e.indptr[first]), int(e.indptr[last]))
        w = None if e.weights is None else e.weights[at]
        return StoredEntries(
            e.indptr[first : last + 1] - e.indptr[first], e.indices[at], e.data[at], w, e.n
        )

    def some_rows(self, e: StoredEntries, chosen: np.ndarray) -> StoredEntries:
        """The entries of the rows that are chosen."""
        counts = e.counts[chosen]
        indptr, here = np.concatenate([[0], np.cumsum(counts)]), np.repeat(chosen, e.counts)
        w = None if e.weights is None else e.weights[here]
        return StoredEntries(indptr, e.indices[here], e.data[here], w, e.n)

    def product(self, e: StoredEntries, numbers: np.ndarray, v: np.ndarray) -> np.ndarray:
        """sum_j r_ij v_j of every row, for numbers at the entries."""
        return e.matrix(self.like(numbers, v)) @ v

    def product_t(self, e: StoredEntries, numbers: np.ndarray, y: np.ndarray) -> np.ndarray:
        """sum_i r_ij y_i of every column."""
        return e.matrix(self.like(numbers, y)).T @ y

    def dots(self, e: StoredEntries, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """u_i.v_j at every entry."""
        k, count = u.shape[1], len(e.data)
        out, step = np.empty(count, u.dtype), max(1, min(count, DOTS // max(1, k)))
        mine, theirs = np.empty((step, k), u.dtype), np.empty((step, k), v.dtype)
        for a in range(0, count, step):
            at = slice(a, min(a + step, count))
            left, right = mine[: at.stop - a], theirs[: at.stop - a]
            # into buffers and without a look at each index: half the time of u[rows]
            u.take(e.row_of[at], 0, left, "clip")
            v.take(e.indices[at], 0, right, "clip")
            np.einsum("ij,ij->i", left, right, out=out[at])
        return out

    def row_sums(self, e: StoredEntries, numbers: np.ndarray) -> np.ndarray:
        """sum_j r_ij of every row, in float64."""
        if not len(e.counts):
            return np.zeros(0)
        sums = np.add.reduceat(np.append(self.wide(numbers), 0.0), e.indptr[:-1])
        return np.where(e.counts > 0, sums, 0.0)

    def formulas(self, do: Callable[..., Any], a: np.ndarray, s: np.ndarray) -> Any:
        """What formulas of a loss make of values and natural parameters."""
        return do(a, s)

    def chance(self, z: np.ndarray) -> np.ndarray:
        """The uniform numbers Phi(z)."""
        from scipy.special import ndtr

        return ndtr(z)

    def ridges(self, x: Host, rule: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ridge of every row and of its bias, made once."""
        key = f"ridges of {rule}"
        if key not in x.kept:
            x.kept[key] = rule.ridges(x.counts)
        return x.kept[key]

    def with_entries(self, x: Host, data: np.ndarray, weights: np.ndarray | None) -> Host:
        """The same entries with other numbers; what depends on where they stand alone is shared."""
        made = Host(replace(x.matrix, data=data), None, weights, checked=True, turn=x.turn)
        shared = (name for name in x.kept if name.startswith(("pattern", "ridges")))
        made.kept |= {name: x.kept[name] for name in shared}
        made.kept["arrays"] = self.entries(x).with_numbers(data, weights)
        made.__dict__["counts"] = x.counts
        return made

    def leading(self, scores: np.ndarray, n: int) -> np.ndarray:
        """Positions of the n largest of each row, in any order."""
        return np.argpartition(-scores, n - 1, axis=1)[:, :n]

    def along(self, a: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Numbers of each row at these positions."""
        return np.take_along_axis(a, order, axis=1)

    def stored_rows(self, x: Host, first: int, last: int) -> tuple[Any, Any, Any]:
        """Row, counted from the first of these, column and number of the entries of some rows."""
        m = x.matrix
        here = slice(m.indptr[first], m.indptr[last])
        rows = np.repeat(np.arange(last - first), np.diff(m.indptr[first : last + 1]))
        return rows, m.indices[here], m.data[here]

    def by_gaps(self, x: Host) -> tuple[Host, bool]:
        """The rows in an order in which those with the same gaps stand together, made once."""
        if "rows in runs" not in x.kept:
            x.kept["rows in runs"] = Host(*rows_by_gaps(x)[:2], checked=True)
        return x.kept["rows in runs"], True

    def gap_order(self, x: Host) -> np.ndarray | None:
        """That order; None where the rows stay as they are."""
        return rows_by_gaps(x)[2]

    def inverses(self, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inverse and log determinant of every matrix of a stack; not numbers are allowed where
        there is no root."""
        return np.linalg.inv(m), np.linalg.slogdet(m)[1]

    def solved(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.linalg.solve(a, b)

    def sums_by(self, a: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
        """Sums of rows that are in one group, of ``groups`` in ascending order."""
        return np.add.reduceat(a, np.searchsorted(group, np.arange(groups)))

    def sums_at(self, numbers: np.ndarray, places: np.ndarray, count: int) -> np.ndarray:
        """Sums of numbers that have one of ``count`` places, in any order."""
        return np.bincount(places, numbers, count)

    def plus_square(self, total: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """total + A^T A."""
        return total + rows.T @ rows

    def triangle_of(self, v: np.ndarray) -> np.ndarray:
        """R of a QR factorization."""
        return np.asarray(np.linalg.qr(v, mode="r"))

    def is_definite(self, a: np.ndarray) -> bool:
        """Whether there is a Cholesky factor."""
        try:
            np.linalg.cholesky(a)
        except np.linalg.LinAlgError:
            return False
        return True

    def zero_filled(self, x: Host) -> Host:
        m = x.matrix
        return replace(x, matrix=Counts(m.indptr, m.indices, m.data, m.n_columns), kept={})

    def as_rows(self, tall: np.ndarray, x: Host) -> Host:
        return Host(Dense(np.asarray(tall)), x.weights, checked=True)

    def descend(self, *_: Any) -> None:
        """A kernel for coordinate descent of rows that share a matrix; None: there is none."""

    def descend_entries(self, *_: Any) -> None:
        """The same for rows that see different entries."""

    def kl_entries(self, *_: Any) -> None:
        """A kernel for Kullback-Leibler steps of sparse rows."""

    def picked(self, x: Host, rows: np.ndarray | None) -> np.ndarray:
        """Rows of these (ascending) numbers, or all, in the precision of x."""
        whole = self.whole(x)
        if whole is not None:
            return np.array(whole if rows is None else whole[rows[rows < len(whole)]], x.dtype)
        found = []
        for start, block in self.row_blocks(x, x.dtype.itemsize * x.shape[1]):
            if rows is None:
                found.append(block)
                continue
            a, b = np.searchsorted(rows, [start, start + len(block)])
            found.append(block[rows[a:b] - start])
            if b == len(rows):
                break
        return np.concatenate(found)

    def squared_distances(self, rows: np.ndarray, c: np.ndarray) -> np.ndarray:
        """||x_i - c_z||^2, from the deviations themselves."""
        from scipy.spatial.distance import cdist

        return cdist(rows, c, "sqeuclidean")

    def entry_product(
        self, x: Host, v: np.ndarray, *, ones: bool = False, transposed: bool = False
    ) -> np.ndarray:
        """X V, or X^T V, for the stored entries (``ones``: for ones in their places)."""
        from scipy import sparse

        m = x.matrix
        data = np.ones(len(m.data)) if ones else m.data.astype(np.float64)
        a = sparse.csr_array((data, m.indices, m.indptr), m.shape)
        return (a.T if transposed else a) @ v

    def log_factorial(self, a: np.ndarray) -> np.ndarray:
        from scipy.special import gammaln

        return gammaln(a + 1.0)

    def log_gamma(self, a: np.ndarray) -> np.ndarray:
        from scipy.special import gammaln

        return gammaln(a)

    def digamma(self, a: np.ndarray) -> np.ndarray:
        from scipy.special import digamma

        return digamma(a)

    def stacked(self, *numbers: Any) -> np.ndarray:
        return np.array(numbers)

    def stored_log_factorials(self, x: Host) -> np.ndarray:
        """sum_j log x_j! over the stored entries of every row."""
        rows = np.repeat(np.arange(len(x.counts)), x.counts)
        return np.bincount(rows, self.log_factorial(x.matrix.data), len(x.counts))

    def cross(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """L^T R of many rows."""
        return left.T @ right

    def unique_rows(self, words: np.ndarray) -> np.ndarray:
        """The number of each row among the distinct ones."""
        return np.unique(words, axis=0, return_inverse=True)[1].ravel()

    def roots_of(self, s: np.ndarray, least: float, careful: bool) -> tuple[Any, Any]:
        """L and L^-1 of every matrix of a stack. Where rounding left one indefinite its eigenvalues
        are raised to ``least``, or to what rounding may hide."""
        try:
            root = np.linalg.cholesky(s)
        except np.linalg.LinAlgError:
            root = np.array([raised_root(each, least) for each in s])
        return root, np.linalg.inv(root)

    def shares_of(
        self, logs: np.ndarray, w: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """log sum_z exp l_z of each row, and the share of each component times the row's weight."""
        # the square of a row at 1e160 is infinite under every component: all are as likely then
        logs = np.maximum(logs, -1e300)
        top = logs.max(axis=1, keepdims=True)
        q = np.exp(logs - top)
        total = q.sum(axis=1, keepdims=True)
        q /= total
        return (top + np.log(total))[:, 0], q if w is None else q * w[:, None]


def filled(x: Host, start: int, stop: int) -> np.ndarray:
    """Some rows of a sparse matrix as dense ones, NaN where an entry is missing."""
    m = x.matrix
    out = np.full((stop - start, x.shape[1]), np.nan if x.kind == "observed" else 0.0, x.dtype)
    ends = slice(m.indptr[start], m.indptr[stop])
    rows = np.repeat(np.arange(stop - start), np.diff(m.indptr[start : stop + 1]))
    out[rows, m.indices[ends]] = m.data[ends]
    return out


def raised_root(s: np.ndarray, least: float) -> np.ndarray:
    """Lower triangular L with L L^T = S, its eigenvalues raised to ``least`` where there is no such
    root of S itself."""
    try:
        return np.linalg.cholesky(s)
    except np.linalg.LinAlgError:
        values, vectors = eigh(s)
        # what rounding may hide in an eigenvalue
        floor = max(values[-1] * len(values) * np.finfo(float).eps, least, TINY)
        half = (vectors * np.sqrt(np.maximum(values, floor))).T
        lower = np.asarray(np.linalg.qr(half, mode="r")).T
        return lower * np.sign(np.diagonal(lower))
