"""The two half sweeps of A ~ W H for every kind of data, with the objective and the optimality residual that they meet on the way.

    F(W, H) = D(A, W H) + sum_i w_i (l1 sum_c W_ic + l2/2 ||W_i||^2) + m1 sum H + m2/2 ||H||^2,    W, H >= 0

D is 1/2 ||A - W H||^2 or the divergence sum a log(a / s) - a + s, s = (W H)_ij, over all entries or the observed ones, rows weighted by w_i. Given one factor
F separates into one small convex problem for each row of the other. The residual is the size of min(u, gradient) over the entries u of W (or of H), each in
units of its curvature (``engines.cpu.parts.kernels``), against sqrt(2 F), or a hundredth of the size of A where the fit is better than that. Squared
it is about the share of F that one more step could take off; it does not change with the scale of A or between W and H.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol import Engine, KlRule, Totals
from eckart.matrix import Counts, Dense, Observed

SWEEPS, STEPS = 4, 3


class Penalties(NamedTuple):
    """l1 and l2 of W, m1 and m2 of H."""

    l1: float = 0.0
    l2: float = 0.0
    m1: float = 0.0
    m2: float = 0.0

    def of_right(self) -> tuple[float, float]:
        return self.m1, self.m2

    def of_left(self) -> tuple[float, float]:
        return self.l1, self.l2


class Half(NamedTuple):
    """A factor after a half sweep; F and the residual of that factor before it."""

    factor: np.ndarray
    value: float
    residual: float


class Sides(Protocol):
    """The data of one fit, seen from its rows and from its columns. Factors: left is W (rows x k), right is H^T (columns x k)."""

    penalties: Penalties
    scale: float

    def rows(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half: ...

    def columns(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half: ...

    def loss(self, left: np.ndarray, right: np.ndarray) -> float: ...


@dataclass
class Shared:
    """What all kinds of data share."""

    engine: Engine
    totals: Totals
    penalties: Penalties
    weights: np.ndarray | None = None
    sweeps: int = SWEEPS
    level: float = field(default=0.0, init=False)

    @property
    def scale(self) -> float:
        """The size of the numbers whose rounding the objective carries."""
        return self.totals.total if isinstance(self, KlSides) else 0.5 * self.totals.square

    def cost_left(self, left: np.ndarray) -> float:
        return _cost(left, *self.penalties.of_left(), self.weights)

    def cost_right(self, right: np.ndarray) -> float:
        return _cost(right, *self.penalties.of_right(), None)

    def _half(self, found: Any, rest: float) -> Half:
        value = found.value + rest
        self.level = value if np.isfinite(value) else self.level
        size = max(2 * self.level, 2e-4 * self.scale)
        return Half(found.factor, value, float(np.sqrt(max(found.kkt, 0.0) / size)) if size > 0 else 0.0)


@dataclass
class SquareSides(Shared):
    """Least squares, every entry known: products with A, then sweeps with one matrix for all rows."""

    x: Dense | Counts = field(kw_only=True)
    _cross: tuple[np.ndarray, np.ndarray, np.ndarray] | None = field(default=None, init=False)
    _turned: Counts | None = field(default=None, init=False)

    def rows(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half:
        l1, l2 = self.penalties.of_left()
        gram, sweeps = _gram(right, None, l2), 0 if still else self.sweeps
        if isinstance(self.x, Dense):
            done = self.engine.hals_pass(self.x, right, left, gram, l1, sweeps=sweeps, weights=self.weights)
            found, self._cross = done.rows, (done.rows.factor, done.cross, done.square)
        else:
            pull = self.engine.times(self.x, right, None) - self.x.dtype.type(l1)
            found = self.engine.hals_rows(gram, pull, left, sweeps=sweeps, weights=self.weights)
        return self._half(found, 0.5 * self.totals.square + self.cost_right(right))

    def columns(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half:
        m1, m2 = self.penalties.of_right()
        cross, gram = self._products(left)
        gram = gram + m2 * np.eye(len(gram))
        found = self.engine.hals_rows(gram, cross - cross.dtype.type(m1), right, sweeps=0 if still else self.sweeps)
        return self._half(found, 0.5 * self.totals.square + self.cost_left(left))

    def _products(self, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A^T D W and W^T D W."""
        if self._cross is not None and (self._cross[0] is left or np.array_equal(self._cross[0], left)):
            return self._cross[1:]
        heavy = left if self.weights is None else left * self.weights[:, None].astype(left.dtype)
        if isinstance(self.x, Dense):
            return self.engine.times_t(self.x, heavy, None), _gram(left, self.weights, 0.0)
        if self._turned is None:
            self._turned = self.x.transposed()
        return self.engine.times(self._turned, heavy, None), _gram(left, self.weights, 0.0)

    def loss(self, left: np.ndarray, right: np.ndarray) -> float:
        """D, from the residuals themselves."""
        return 0.5 * max(self.engine.square_error(self.x, left, right, self.weights), 0.0)


@dataclass
class SeenSides(Shared):
    """Least squares on the observed entries: every row has its own matrix."""

    x: Observed = field(kw_only=True)
    entry_weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.turned, self.turned_weights = _turned(self.x, self.entry_weights, self.weights)

    def rows(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half:
        l1, l2 = self.penalties.of_left()
        sweeps, w = 0 if still else self.sweeps, self.entry_weights
        found = self.engine.hals_seen(
            self.x, right, left, l1=l1, l2=l2, sweeps=sweeps, entry_weights=w, weights=self.weights
        )
        return self._half(found, self.cost_right(right))

    def columns(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half:
        m1, m2 = self.penalties.of_right()
        sweeps, w = 0 if still else self.sweeps, self.turned_weights
        found = self.engine.hals_seen(self.turned, left, right, l1=m1, l2=m2, sweeps=sweeps, entry_weights=w)
        return self._half(found, self.cost_left(left))

    def loss(self, left: np.ndarray, right: np.ndarray) -> float:
        """D, from the residuals themselves."""
        rest = self.x.data - self.engine.sampled(self.x, left, right).astype(np.float64)
        return 0.5 * float(_each(self.x, self.entry_weights, self.weights) @ rest**2)


@dataclass
class KlSides(Shared):
    """The divergence: multiplicative steps; absent entries are zeros (Counts) or unknown (Observed).

    ``real``: factors are padded to whole registers by ``wide`` and this many columns of them are real.
    """

    x: Dense | Counts | Observed = field(kw_only=True)
    entry_weights: np.ndarray | None = None
    real: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.x, Dense):
            ones = np.ones(self.totals.rows) if self.weights is None else self.weights
            self.sums = self.engine.times_t(self.x, ones[:, None], None)[:, 0].astype(np.float64)
        else:
            self.turned, self.turned_weights = _turned(self.x, self.entry_weights, None)

    def rows(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half:
        rule, steps = KlRule(*self.penalties.of_left(), fast and not still), 1 if still else self.sweeps
        found = self.engine.kl_rows(
            self.x,
            right,
            left,
            rule,
            steps=steps,
            entry_weights=self.entry_weights,
            weights=self.weights,
            real=self.real,
        )
        return self._half(found, self.cost_right(right))

    def columns(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half:
        rule = KlRule(*self.penalties.of_right(), fast and not still, valued=still)
        if isinstance(self.x, Dense):
            found = self.engine.kl_pass(self.x, left, right, rule, self.sums, self.weights)
        else:
            found = self.engine.kl_rows(
                self.turned, left, right, rule, steps=1 if still else self.sweeps,
                entry_weights=self.turned_weights, entry_scale=self.weights, real=self.real,
            )  # fmt: skip
        return self._half(found, self.cost_left(left) if still else np.nan)

    def wide(self, factor: np.ndarray) -> np.ndarray:
        """The factor as the kernels want it."""
        if isinstance(self.x, Dense) or self.engine.name == "plain":
            return factor
        from eckart.engines.cpu.ridge.schedule import padded

        self.real = factor.shape[1]
        return padded(factor, factor.dtype)

    def loss(self, left: np.ndarray, right: np.ndarray) -> float:
        """D at these factors."""
        found = self.rows(left, right, still=True)
        return max(found.value - self.cost_right(right) - self.cost_left(left), 0.0)


def sides_of(
    matrix: Dense | Counts | Observed,
    loss: str,
    penalties: Penalties,
    engine: Engine,
    weights: np.ndarray | None = None,
    entry_weights: np.ndarray | None = None,
    sweeps: int | None = None,
) -> SquareSides | SeenSides | KlSides:
    """The half sweeps that fit the data and the loss; refuses negative entries."""
    totals = engine.totals(matrix, weights)
    if entry_weights is not None:
        assert isinstance(matrix, Observed)
        w, a = _each(matrix, entry_weights, weights), matrix.data.astype(np.float64)
        totals = Totals(totals.rows, float(w @ a), float(w @ a**2))
    if loss == "kl":
        return KlSides(engine, totals, penalties, weights, sweeps or STEPS, x=matrix, entry_weights=entry_weights)
    if isinstance(matrix, Observed):
        return SeenSides(engine, totals, penalties, weights, sweeps or SWEEPS, x=matrix, entry_weights=entry_weights)
    return SquareSides(engine, totals, penalties, weights, sweeps or SWEEPS, x=matrix)


def _cost(factor: np.ndarray, l1: float, l2: float, weights: np.ndarray | None) -> float:
    if not l1 and not l2:
        return 0.0
    each = l1 * factor.sum(axis=1, dtype=np.float64)
    each += 0.5 * l2 * np.einsum("ij,ij->i", factor, factor, dtype=np.float64)
    return float(each.sum() if weights is None else weights @ each)


def _gram(factor: np.ndarray, weights: np.ndarray | None, ridge: float) -> np.ndarray:
    """F^T D F + ridge I, added up in double precision over blocks of rows."""
    total = np.zeros((factor.shape[1], factor.shape[1]))
    for a in range(0, len(factor), 2**13):
        part = factor[a : a + 2**13]
        total += part.T @ (part if weights is None else part * weights[a : a + 2**13, None].astype(part.dtype))
    return total + ridge * np.eye(len(total))


def _turned(x: Any, entry_weights: np.ndarray | None, weights: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
    """The transpose and, in its order, the weights of its entries (None where all are 1)."""
    if entry_weights is None and weights is None:
        return x.transposed(), None
    return x.transposed(), replace(x, data=_each(x, entry_weights, weights)).transposed().data


def _each(x: Any, entry_weights: np.ndarray | None, weights: np.ndarray | None) -> np.ndarray:
    """One weight for each stored entry."""
    w = np.ones(x.nnz) if entry_weights is None else entry_weights.astype(np.float64)
    return w if weights is None else w * np.repeat(weights, x.row_counts())
