"""Dense and sparse rows against thin matrices; rows with gaps under a Gaussian: the primitives and
their records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.decompositions import eigh
from eckart.engines.protocol.placed import Tall
from eckart.trace import Watcher, silent

ROUGH = 2.0**-11
"""Share by which rough products may round an entry about the mean of its column: half of it for 11
bits, the rest for what becomes of them on the way."""


@dataclass
class Moments:
    """Additive statistics of rows: weight = sum w, mean, and scatter = sum w (x - mean)(x -
    mean)^T, all in float64.

    ``merge`` is the pairwise update, so raw second moments are never subtracted. ``probe`` is a
    fixed vector g and ``probed`` the product scatter g accumulated on its own way through the data:
    comparing the two checks the arithmetic of ``scatter``.
    """

    rows: int
    weight: float
    mean: np.ndarray
    scatter: np.ndarray
    probe: np.ndarray
    probed: np.ndarray

    @classmethod
    def empty(cls, n: int, probe: np.ndarray) -> Moments:
        return cls(0, 0.0, np.zeros(n), np.zeros((n, n)), probe, np.zeros(n))

    def merge(self, other: Moments) -> Moments:
        """Take in the statistics of other rows, in place."""
        self.rows += other.rows
        if other.weight <= 0:
            return self
        total = self.weight + other.weight
        delta = other.mean - self.mean
        factor = self.weight * other.weight / total
        if not self.scatter.flags.writeable:  # an engine keeps what it made
            self.scatter = self.scatter.copy()
        self.scatter += other.scatter
        self.probed += other.probed
        if factor > 0:
            self.scatter += np.outer(factor * delta, delta)
            self.probed += factor * delta * (delta @ self.probe)
        self.mean += delta * (other.weight / total)
        self.weight = total
        return self

    def probe_error(self, floor: float = 0.0, image: np.ndarray | None = None) -> float:
        """||scatter g - probed|| / max(||probed||, floor): rounding only, if the statistic is
        right. ``image`` is scatter g, where it is known."""
        size = max(float(np.linalg.norm(self.probed)), floor)
        image = self.scatter @ self.probe if image is None else image
        return float(np.linalg.norm(image - self.probed)) / size if size > 0 else 0.0


class ColumnMoments(NamedTuple):
    """Weight, mean and sum of squared deviations of each column."""

    rows: int
    weight: float
    mean: np.ndarray
    square: np.ndarray

    def merge(self, other: ColumnMoments) -> ColumnMoments:
        """The statistics of both sets of rows."""
        weight = self.weight + other.weight
        if other.weight <= 0 or self.weight <= 0:
            heavy = self if other.weight <= 0 else other
            return heavy._replace(rows=self.rows + other.rows)
        delta = other.mean - self.mean
        square = self.square + other.square + delta**2 * (self.weight * other.weight / weight)
        return ColumnMoments(
            self.rows + other.rows, weight, self.mean + delta * (other.weight / weight), square
        )


class SeenColumns(NamedTuple):
    """Number, mean and sum of squared deviations of the observed entries of each column; row
    weights do not enter."""

    seen: np.ndarray
    mean: np.ndarray
    square: np.ndarray

    def merge(self, other: SeenColumns) -> SeenColumns:
        """The statistics of both sets of rows."""
        count = self.seen + other.seen
        some = np.maximum(count, 1)
        delta = other.mean - self.mean
        square = self.square + other.square + delta**2 * (self.seen * other.seen / some)
        return SeenColumns(count, self.mean + delta * (other.seen / some), square)


class GapStatistics(NamedTuple):
    """One E step of probabilistic PCA on observed entries (see ``reduce.missing``)."""

    loglik: float
    gram: np.ndarray  # n x (k+1) x (k+1): sum over rows that observe column j of w E[(z,1)(z,1)^T]
    cross: np.ndarray  # n x (k+1): sum of w x_ij E[(z,1)]
    square: np.ndarray  # n: sum of w x_ij^2
    second: np.ndarray  # (k+1) x (k+1): sum over all rows of w E[(z,1)(z,1)^T]

    def merge(self, other: GapStatistics) -> GapStatistics:
        """The statistics of both sets of rows."""
        sums: list[Any] = [a + b for a, b in zip(tuple[Any, ...](self), tuple[Any, ...](other))]
        return GapStatistics(*sums)


class Decomposition(NamedTuple):
    """Singular values (falling) of the centered rows times the roots of their weights, and right
    vectors as rows."""

    rows: int
    weight: float
    mean: np.ndarray
    values: np.ndarray
    right: np.ndarray


@dataclass(frozen=True, eq=False)
class Sketch:
    """l rows B whose scatter stands for that of all rows seen: 0 <= S - B^T B <= ``lost`` I,
    ``total`` is the trace of S (see ``reduce.stream``)."""

    n: int
    size: int
    dtype: np.dtype
    centered: bool
    rows: int = 0
    weight: float = 0.0
    total: float = 0.0
    lost: float = 0.0
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))
    b: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if not len(self.mean):
            object.__setattr__(self, "mean", np.zeros(self.n))
            object.__setattr__(self, "b", np.zeros((0, self.n), self.dtype))

    def add(self, block: np.ndarray, weights: np.ndarray | None = None) -> Sketch:
        """With a block of finite rows, some at a time."""
        found, step = self, max(self.size, 64)
        for start in range(0, len(block), step):
            part = slice(start, start + step)
            found = found._with(
                block[part], np.ones(len(block[part])) if weights is None else weights[part]
            )
        return found

    def _with(self, block: np.ndarray, w: np.ndarray) -> Sketch:
        """With a few rows and their weights; no copy of them is made at once."""
        weight, root = float(w.sum()), np.sqrt(w)[:, None]
        if weight <= 0:
            return replace(self, rows=self.rows + len(block))
        mean = np.zeros(self.n)
        for at in _slices(self.n, len(block)) if self.centered else ():
            mean[at] = (w @ block[:, at]) / weight
        return self._joined(
            len(block), len(block), weight, mean, 0.0, lambda at: (block[:, at] - mean[at]) * root
        )

    def merge(self, other: Sketch) -> Sketch:
        """The sketch of both sets of rows: the rows of both and one for the shift of the mean, cut
        to the l leading directions."""
        left = other.total - _squares(other.b)  # what its rows do not show any more
        joined = self._joined(
            other.rows,
            len(other.b),
            other.weight,
            other.mean,
            other.lost,
            lambda at: other.b[:, at],
        )
        return replace(joined, total=joined.total + left)

    def _joined(
        self,
        seen: int,
        more: int,
        weight: float,
        mean: np.ndarray,
        lost: float,
        rows: Callable[[slice], np.ndarray],
    ) -> Sketch:
        """With ``more`` centered rows that stand for ``seen`` ones, whose columns ``rows`` gives
        some at a time."""
        delta, factor = mean - self.mean, self.weight * weight / (self.weight + weight or 1.0)
        shifted = bool(self.centered and factor > 0)
        old, count = len(self.b), len(self.b) + more + shifted
        cut = count > self.size
        gram, total = np.zeros((count, count)), self.total

        def columns(at: slice) -> np.ndarray:
            parts = [self.b[:, at], rows(at).astype(self.dtype, copy=False)]
            if shifted:
                parts.append((np.sqrt(factor) * delta[at])[None].astype(self.dtype))
            return np.concatenate(parts)

        if cut:
            for at in _slices(self.n, count):
                part = columns(at)
                gram += part @ part.T
                total += _squares(part[old:])
            values, u = eigh(gram)
            lost += max(float(values[::-1][self.size]), 0.0)
            turn = u[:, ::-1][:, : self.size].T.astype(self.dtype)
        out = np.empty((min(count, self.size), self.n), self.dtype)
        for at in _slices(self.n, count):
            part = columns(at)
            out[:, at] = turn @ part if cut else part
            if not cut:
                total += _squares(part[old:])
        mean = (
            self.mean + delta * (weight / (self.weight + weight or 1.0))
            if self.centered
            else self.mean
        )
        return replace(
            self,
            rows=self.rows + seen,
            weight=self.weight + weight,
            total=total,
            lost=self.lost + lost,
            mean=mean,
            b=out,
        )


def _squares(a: np.ndarray) -> float:
    """The sum of squares in float64, some columns at a time."""
    return sum(
        float(np.square(a[:, at], dtype=np.float64).sum()) for at in _slices(a.shape[1], len(a))
    )


def _slices(n: int, rows: int) -> list[slice]:
    """Columns of some MiB for that many rows."""
    width = max(256, 2**19 // max(rows, 1))
    return [slice(first, first + width) for first in range(0, n, width)]


class GapCodes(NamedTuple):
    """Posterior means E[z | observed], log-likelihood and squared misfit of the observed entries,
    per row."""

    codes: Tall
    loglik: Tall
    misfit: Tall


class Keeper(Protocol):
    """Where a long pass keeps its state between segments."""

    def load(self) -> tuple[int, dict[str, np.ndarray]] | None: ...

    def save(self, done: int, arrays: dict[str, np.ndarray]) -> None: ...


class DenseFamily(Protocol):
    """Dense and sparse rows against thin matrices; rows with gaps under a Gaussian. X is a placed
    matrix, with its row weights."""

    def moments(
        self, x: Any, probe: np.ndarray, watch: Watcher = silent, keeper: Keeper | None = None
    ) -> Moments:
        """Weight, mean and scatter in one pass over row blocks."""
        ...

    def column_moments(self, x: Any, watch: Watcher = silent) -> ColumnMoments:
        """The diagonal part of ``moments``."""
        ...

    def seen_columns(self, x: Any) -> SeenColumns:
        """The observed entries of each column."""
        ...

    def times(self, x: Any, v: np.ndarray, mean: np.ndarray | None) -> Tall:
        """Xc V, N x b."""
        ...

    def times_t(self, x: Any, y: Tall, mean: np.ndarray | None) -> np.ndarray:
        """Xc^T Y, n x b."""
        ...

    def gram_times(
        self,
        x: Any,
        v: np.ndarray,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
        rough: bool = False,
    ) -> np.ndarray:
        """Xc^T diag(w) Xc V in one pass, n x b, where V is: on the host, or in the engine.
        ``implicit`` allows raw products, where means are not large against spreads; ``rough`` those
        of dense entries rounded by ``ROUGH``, for iterations that an exact product judges. Unknown
        entries count as the mean."""
        ...

    def misfit(self, x: Any, u: np.ndarray, mean: np.ndarray) -> Tall:
        """||xc - U U^T xc||^2 of each row, U with orthonormal columns; in float64."""
        ...

    def row_gram(self, x: Any, mean: np.ndarray | None) -> np.ndarray:
        """Xc Xc^T, N x N, for short and wide data."""
        ...

    def svd(self, x: Any, centered: bool) -> Decomposition:
        """Full singular value decomposition of the rows, for data of moderate size: small singular
        values keep their full precision."""
        ...

    def sketch(self, x: Any, state: Sketch, watch: Watcher = silent) -> Sketch:
        """The sketch with the rows of X taken in, in one pass."""
        ...

    def entries(self, x: Any) -> np.ndarray:
        """All entries as a dense array of the host, NaN where unknown: for what a user asks to see
        in full."""
        ...

    def largest(self, x: Any) -> float:
        """The largest absolute value of an entry."""
        ...

    def scaled(self, x: Any, factor: float) -> Any:
        """A placed matrix with every entry multiplied by a number."""
        ...

    def orth(self, v: np.ndarray, against: np.ndarray | None = None) -> np.ndarray:
        """An orthonormal basis of the range of V minus its part in ``against``; dependent columns
        are dropped."""
        ...

    def inner(self, q: Tall, w: Tall, weights: Tall | None = None) -> np.ndarray:
        """Q^T diag(weights) W for tall thin Q and W, with one weight for each row: small, in
        float64, on the host."""
        ...

    def outer(self, q: Tall, s: np.ndarray, plus: Tall | None = None, scale: float = 1.0) -> Tall:
        """Q S + scale ``plus`` for a tall Q, a small S of the host and a tall ``plus`` of the
        answer's shape; tall, of Q's dtype."""
        ...

    def triangle(self, v: Tall) -> np.ndarray:
        """R with R^T R = V^T V, as accurate as that of a QR factorization, in float64."""
        ...

    def write_columns(self, into: Tall, first: int, columns: Tall) -> None:
        """``columns`` in place of as many columns of ``into``, from ``first`` on: a basis grows so
        without being copied."""
        ...

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k largest eigenvalues, falling, and their eigenvectors as columns."""
        ...

    def covariance(
        self, scatter: np.ndarray, weight: float, mean: np.ndarray | None = None
    ) -> np.ndarray:
        """S / weight made symmetric, plus mean mean^T where a mean is given: n x n, in float64. An
        engine may answer products with it where it made it."""
        ...

    def is_below(self, c: np.ndarray, q: np.ndarray, r: np.ndarray, bound: float) -> bool:
        """Whether bound I - (C + Q R^T + R Q^T) has a Cholesky factor in float64, C being n x n and
        Q, R n x k: no eigenvalue then exceeds the bound."""
        ...

    def gap_statistics(
        self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapStatistics:
        """The expected complete-data statistics of x = W z + mean + noise given the observed
        entries."""
        ...

    def gap_solve(self, stats: GapStatistics) -> tuple[np.ndarray, np.ndarray]:
        """For each column a = gram^-1 cross (with a ridge of 1e-12 of the mean diagonal), n x
        (k+1), and its misfit square - 2 a^T cross + a^T gram a."""
        ...

    def gap_codes(self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        """Posterior means per row."""
        ...

    def gap_expect(
        self, x: Any, u: np.ndarray, gain: np.ndarray, mean: np.ndarray, noise: float
    ) -> Tall:
        """U^T (E[x | observed] - mean) of each row under x = U diag(gain) z + mean + noise, N x k
        in working precision."""
        ...
