"""Half sweeps of non-negative factorization: the primitives and their records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from eckart.matrix import Counts, Dense, Matrix, Observed


class Totals(NamedTuple):
    """Rows, weighted sum and weighted sum of squares of the entries."""

    rows: int
    total: float
    square: float


class Descent(NamedTuple):
    """A factor after a half sweep; the objective of its rows (without what is constant) and their squared violations of the optimality conditions before
    it, summed with the rows' weights (see ``engines.cpu.parts.kernels``)."""

    factor: np.ndarray
    value: float
    kkt: float


class Pass(NamedTuple):
    """A half sweep of the rows with X^T D W and W^T D W of the new rows."""

    rows: Descent
    cross: np.ndarray
    square: np.ndarray


class KlRule(NamedTuple):
    """Penalties of a multiplicative step; ``fast`` raises its factor to the power 1.75. A row's steps end when one moves less than a share
    ``tol``; without ``valued`` the objective is not measured."""

    l1: float = 0.0
    l2: float = 0.0
    fast: bool = False
    tol: float = 0.0
    valued: bool = True


class PartsFamily(Protocol):
    """Half sweeps of non-negative factorization."""

    def totals(self, x: Matrix, weights: np.ndarray | None = None) -> Totals:
        """Rows, sum w a and sum w a^2 of the stored entries; refuses a negative or infinite one, raises GapsFound at a NaN."""
        ...

    def hals_rows(
        self,
        gram: np.ndarray,
        pull: np.ndarray,
        start: np.ndarray,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
        weights: np.ndarray | None = None,
    ) -> Descent:
        """Coordinate descent on 1/2 u^T G u - p_i.u over u >= 0 for every row, from ``start``."""
        ...

    def hals_pass(
        self,
        x: Dense,
        right: np.ndarray,
        left: np.ndarray,
        gram: np.ndarray,
        l1: float,
        *,
        sweeps: int = 1,
        weights: np.ndarray | None = None,
    ) -> Pass:
        """hals_rows with p = X V - l1, and X^T D W, W^T D W of the new rows, in one pass over X."""
        ...

    def hals_seen(
        self,
        x: Observed,
        other: np.ndarray,
        start: np.ndarray,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        sweeps: int = 1,
        shrink: float = 0.0,
        entry_weights: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> Descent:
        """Coordinate descent on 1/2 sum_j v_ij (a_ij - u.h_j)^2 + l1 sum u + l2/2 ||u||^2 over the observed entries of every row."""
        ...

    def kl_rows(
        self,
        x: Matrix,
        other: np.ndarray,
        start: np.ndarray,
        rule: KlRule,
        *,
        steps: int = 1,
        entry_weights: np.ndarray | None = None,
        entry_scale: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        real: int | None = None,
    ) -> Descent:
        """Multiplicative steps on sum_j v_ij (a log(a / u.h_j) - a + u.h_j) + l1 sum u + l2/2 ||u||^2 for every row; absent entries are zero in Counts,
        left out in Observed. ``entry_scale`` weighs columns. ``real``: the factors are padded already, so many of their columns are real."""
        ...

    def kl_pass(
        self,
        x: Dense,
        left: np.ndarray,
        right: np.ndarray,
        rule: KlRule,
        totals: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> Descent:
        """One multiplicative step of the columns' factor, in one pass over the rows of X, whose column sums are ``totals``."""
        ...

    def square_error(
        self, x: Dense | Counts, left: np.ndarray, right: np.ndarray, weights: np.ndarray | None = None
    ) -> float:
        """sum_i w_i ||x_i - V u_i||^2, from the residuals themselves."""
        ...
