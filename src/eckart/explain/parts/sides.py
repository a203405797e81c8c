"""The two half sweeps of A ~ W H for every kind of data, with the objective and the optimality
residual that they meet on the way.

    F(W, H) = D(A, W H) + sum_i w_i (l1 sum_c W_ic + l2/2 ||W_i||^2) + m1 sum H + m2/2 ||H||^2,
    W, H >= 0

D is 1/2 ||A - W H||^2, the divergence sum a log(a / s) - a + s, s = (W H)_ij, or another
beta-divergence (``engines.protocol.divergences``), over all entries or the observed ones, rows
weighted by w_i. Given one factor F separates into one small convex problem for each row of the
other. The residual is the size of min(u, gradient) over the entries u of W (or of H), each in units
of its curvature (``engines.protocol.parts.Descent``), against sqrt(2 F), or a hundredth of the size
of A where the fit is better than that. Squared it is about the share of F that one more step could
take off; it does not change with the scale of A or between W and H.

W and H^T stay in the engine; what comes back are sums: k numbers, k x k, and for least squares A^T
D W.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eckart.certify.nonnegative import MeasuredFactors
from eckart.engines.protocol import (
    BetaRule,
    CrossSums,
    Engine,
    FactorSums,
    KlRule,
    Placed,
    Tall,
    Totals,
)

if TYPE_CHECKING:
    from eckart.explain.parts.options import NmfOptions

SWEEPS, STEPS = 4, 3
"""Coordinate sweeps (multiplicative steps) inside a half sweep: the product with A, which they
share, costs as much as several of them."""


class Penalties(NamedTuple):
    """l1 and l2 of W, m1 and m2 of H."""

    l1: float = 0.0
    l2: float = 0.0
    m1: float = 0.0
    m2: float = 0.0

    @property
    def left(self) -> tuple[float, float]:
        return self.l1, self.l2

    @property
    def right(self) -> tuple[float, float]:
        return self.m1, self.m2


class Half(NamedTuple):
    """A factor after a half sweep; F before it (NaN where it was not made), the violations of that
    factor before it and the size that they are measured by; for least squares the sums that the
    other half sweep needs. An engine may have only promised the violations: asking for the residual
    waits for them."""

    factor: Tall
    value: float
    kkt: Any = 0.0
    size: float = 0.0
    sums: CrossSums | None = None

    @property
    def residual(self) -> float:
        return float(np.sqrt(max(float(self.kkt), 0.0) / self.size)) if self.size > 0 else 0.0


@dataclass
class FactorSides(ABC):
    """The data of one fit, seen from its rows and from its columns. Factors: left is W (rows x k),
    right is H^T (columns x k)."""

    engine: Engine
    x: Placed
    totals: Totals
    penalties: Penalties
    sweeps: int
    loss = "frobenius"
    beta = 2.0
    level: float = field(default=0.0, init=False)

    @property
    def scale(self) -> float:
        """The size of the numbers whose rounding the objective carries."""
        return 0.5 * self.totals.square

    @abstractmethod
    def rows(self, left: Tall, right: Tall, fast: bool = False, still: bool = False) -> Half:
        """W given H; with ``still`` it is only measured."""

    @abstractmethod
    def columns(self, rows: Half, right: Tall, fast: bool = False, still: bool = False) -> Half:
        """H given the W of ``rows``."""

    def data_term(self, rows: Half, left: Tall, right: Tall) -> float:
        """D at these factors, from the residuals themselves."""
        return 0.5 * max(self.engine.square_error(self.x, left, right), 0.0)

    def cost_left(self, left: Tall) -> float:
        return (
            _cost(self.engine.factor_sums(left, self.x), *self.penalties.left)
            if any(self.penalties.left)
            else 0.0
        )

    def cost_right(self, right: Tall) -> float:
        return (
            _cost(self.engine.factor_sums(right), *self.penalties.right)
            if any(self.penalties.right)
            else 0.0
        )

    def measured(self, left: Tall, right: Tall) -> MeasuredFactors:
        """The evidence at these factors."""
        rows = self.rows(left, right, still=True)
        columns = self.columns(rows._replace(factor=left), right, still=True)
        data = self.data_term(rows, left, right)
        value = data + self.cost_left(left) + self.cost_right(right)
        factors = self.engine.factor_sums(left), self.engine.factor_sums(right)
        residuals = rows.residual, columns.residual
        dtype = np.dtype(left.dtype)
        return MeasuredFactors(
            self.loss, value, data, residuals, factors, self.totals, self.scale, dtype, self.beta
        )

    def _half(self, found: Any, rest: float, sums: CrossSums | None = None) -> Half:
        level = found if sums is None else sums
        # what nobody asks for is not waited for
        value = rest if np.isnan(rest) else float(level.value) + rest
        self.level = value if np.isfinite(value) else self.level
        return Half(found.factor, value, level.kkt, max(2 * self.level, 2e-4 * self.scale), sums)


@dataclass
class SquareSides(FactorSides):
    """Least squares, every entry known: products with A, then sweeps with one matrix for all rows.
    With a ``basis`` Y the data are A Y^T (a sketch)."""

    basis: Tall | None = None

    def rows(self, left: Tall, right: Tall, fast: bool = False, still: bool = False) -> Half:
        l1, l2 = self.penalties.left
        own = self.engine.factor_sums(right)
        v = right if self.basis is None else self.engine.inner(self.basis, right)
        found = self.engine.hals_pass(
            self.x, v, left, _ridged(own.square, l2), l1, sweeps=0 if still else self.sweeps
        )
        return self._half(found, self.scale + _cost(own, *self.penalties.right), found.sums)

    def columns(self, rows: Half, right: Tall, fast: bool = False, still: bool = False) -> Half:
        assert rows.sums is not None
        m1, m2 = self.penalties.right
        cross = (
            rows.sums.cross
            if self.basis is None
            else self.engine.outer(self.basis, rows.sums.cross)
        )
        gram = _ridged(rows.sums.square, m2)
        found = self.engine.hals_rows(gram, cross, right, m1, sweeps=0 if still else self.sweeps)
        return self._half(found, self.scale + self.cost_left(rows.factor))


@dataclass
class SeenSides(FactorSides):
    """Least squares on the observed entries: every row has its own matrix."""

    def rows(self, left: Tall, right: Tall, fast: bool = False, still: bool = False) -> Half:
        l1, l2 = self.penalties.left
        found = self.engine.hals_seen(
            self.x, right, left, l1=l1, l2=l2, sweeps=0 if still else self.sweeps
        )
        return self._half(found, self.cost_right(right))

    def columns(self, rows: Half, right: Tall, fast: bool = False, still: bool = False) -> Half:
        m1, m2 = self.penalties.right
        found = self.engine.hals_seen(
            self.x.T, rows.factor, right, l1=m1, l2=m2, sweeps=0 if still else self.sweeps
        )
        return self._half(found, self.cost_left(rows.factor))


@dataclass
class KlSides(FactorSides):
    """The divergence: multiplicative steps; absent entries are zeros or unknown."""

    loss = "kl"
    beta = 1.0

    @property
    def scale(self) -> float:
        return self.totals.total

    def rows(self, left: Tall, right: Tall, fast: bool = False, still: bool = False) -> Half:
        rule, mass = (
            KlRule(*self.penalties.left, fast and not still),
            self.engine.factor_mass(right),
        )
        found = self.engine.kl_rows(
            self.x, right, left, rule, mass, steps=1 if still else self.sweeps
        )
        return self._half(found, self.cost_right(right))

    def columns(self, rows: Half, right: Tall, fast: bool = False, still: bool = False) -> Half:
        rule, left = KlRule(*self.penalties.right, fast and not still, valued=still), rows.factor
        mass = self.engine.factor_mass(left, self.x)
        if self.totals.columns is not None:
            sums = self.engine.kl_sums(self.x, left, right, still)
            found = self.engine.kl_step(right, sums, mass, self.totals.columns, rule)
        else:
            found = self.engine.kl_rows(
                self.x.T, left, right, rule, mass, steps=1 if still else self.sweeps
            )
        return self._half(found, self.cost_left(left) if still else np.nan)

    def data_term(self, rows: Half, left: Tall, right: Tall) -> float:
        return max(rows.value - self.cost_right(right) - self.cost_left(left), 0.0)


@dataclass
class MultipliedSides(SquareSides):
    """Least squares, every entry known, by multiplicative steps."""

    def rows(self, left: Tall, right: Tall, fast: bool = False, still: bool = False) -> Half:
        if still:
            return super().rows(left, right, still=True)
        l1, l2 = self.penalties.left
        own = self.engine.factor_sums(right)
        found = self.engine.multiplied_pass(self.x, right, left, _ridged(own.square, l2), l1)
        return self._half(found, self.scale + _cost(own, *self.penalties.right), found.sums)

    def columns(self, rows: Half, right: Tall, fast: bool = False, still: bool = False) -> Half:
        if still:
            return super().columns(rows, right, still=True)
        assert rows.sums is not None
        m1, m2 = self.penalties.right
        found = self.engine.multiplied_rows(
            _ridged(rows.sums.square, m2), rows.sums.cross, right, m1
        )
        return self._half(found, self.scale + self.cost_left(rows.factor))


@dataclass
class BetaSides(FactorSides):
    """Any beta-divergence by multiplicative steps; absent entries are zeros or unknown."""

    beta: float = 2.0
    size: float = 0.0
    """sum of a^beta over the known entries, the size of the numbers that the divergence is a
    difference of."""

    @property
    def loss(self) -> str:  # type: ignore[override]
        return "frobenius" if self.beta == 2 else "beta"

    @property
    def scale(self) -> float:
        return self.size

    def rows(self, left: Tall, right: Tall, fast: bool = False, still: bool = False) -> Half:
        rule = BetaRule(self.beta, *self.penalties.left, fast and not still)
        found = self.engine.beta_rows(
            self.x,
            right,
            left,
            rule,
            self.engine.factor_mass(right),
            steps=1 if still else self.sweeps,
        )
        return self._half(found, self.cost_right(right))

    def columns(self, rows: Half, right: Tall, fast: bool = False, still: bool = False) -> Half:
        rule, left = BetaRule(self.beta, *self.penalties.right, fast and not still), rows.factor
        sums = self.engine.beta_sums(self.x, left, right, self.beta)
        found = self.engine.beta_step(right, sums, self.engine.factor_mass(left, self.x), rule)
        return self._half(found, self.cost_left(left))

    def data_term(self, rows: Half, left: Tall, right: Tall) -> float:
        return max(rows.value - self.cost_right(right) - self.cost_left(left), 0.0)


def sides_of(
    x: Placed, options: NmfOptions, engine: Engine, penalties: Penalties | None = None
) -> FactorSides:
    """The half sweeps that fit the data, the loss and the solver; the first pass over the data,
    which refuses negative entries. Plain solvers take one step in each."""
    totals, once = engine.totals(x), options.solver in ("cd", "mu")
    p = options.penalties if penalties is None else penalties
    if options.loss == "kl":
        return KlSides(engine, x, totals, p, 1 if once else STEPS)
    multiply = options.solver == "mu"
    if options.loss == "beta" or (multiply and x.kind == "observed"):
        return BetaSides(
            engine,
            x,
            totals,
            p,
            1 if once else STEPS,
            options.beta,
            engine.beta_size(x, options.beta),
        )
    kind = MultipliedSides if multiply else SeenSides if x.kind == "observed" else SquareSides
    return kind(engine, x, totals, p, 1 if once else SWEEPS)


def _cost(sums: FactorSums, l1: float, l2: float) -> float:
    return l1 * float(sums.mass.sum()) + 0.5 * l2 * float(np.trace(sums.square))


def _ridged(gram: np.ndarray, ridge: float) -> np.ndarray:
    return gram + ridge * np.eye(len(gram))
