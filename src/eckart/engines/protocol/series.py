"""Rows that are time series: chains that are solved exactly, for every row and for all columns at
once. X is n x T, its columns in the order of time.

``data`` are numbers at the stored entries of x, in row order, that stand in place of the stored
values. ``own`` is n x 3 and describes what each row has for itself, a first-order autoregression
seen through noise:

    data_ij = r_ij + e_ij,    r_ij = phi_i r_i,j-1 + N(0, (1 - phi_i^2) v_i),   r_i0 ~ N(0, v_i),
    e_ij ~ N(0, s_i),    own_i = (phi_i, v_i, s_i).

Rows of scores with gaps under a factor model: the expectation of complete rows. X is N x n, an
absent entry is a gap.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.placed import Tall


class LagProducts(NamedTuple):
    """Of rows a_0 .. a_T-1: sum a_t a_t^T over t < T - 1, sum a_t a_t+1^T, sum a_t+1 a_t+1^T, and
    a_0."""

    before: np.ndarray
    cross: np.ndarray
    after: np.ndarray
    first: np.ndarray


class SeriesFamily(Protocol):
    """Likelihoods, coefficients and states of chains. All in float64."""

    def own_likelihood(self, x: Any, data: Tall, own: Tall) -> Tall:
        """log p(data_i | own_i) of every row, n x 1: r is integrated out, also over the entries
        that are missing."""
        ...

    def own_rows(
        self,
        x: Any,
        data: Tall,
        right: Tall,
        own: Tall,
        base: np.ndarray,
        prior: np.ndarray,
        noise: Tall | None,
    ) -> Tall:
        """The coefficients w_i of data_ij = w_i.right_j + r_ij + e_ij with the prior N(base^-1
        prior, base^-1), r integrated out: n x k.

        With C_i the covariance of r_i + e_i at the row's entries and V_i their rows of ``right``,
        the precision is G_i = base + V_i^T C_i^-1 V_i = L L^T and the answer G_i^-1 (prior + V_i^T
        C_i^-1 data_i) + L^-T noise_i.
        """
        ...

    def state_rows(self, x: Any, data: Tall, length: int, rule: Tall, noise: Tall | None) -> Tall:
        """States of every row, n x length: s_0 ~ N(0, 1/a_i), s_t = phi_i s_t-1 + N(0, 1/q_i), and
        entry (i, j) sees s_(j mod length) with precision p_i.

        ``rule`` is n x 4: phi, a, q, p. With the precision L L^T of all states of a row and h the
        precision-weighted data at each state, the answer is L^-T (L^-1 h + noise_i).
        """
        ...

    def less_states(self, x: Any, data: Tall, states: Tall, sign: float = 1.0) -> Tall:
        """data_ij - sign states_i,(j mod length), in row order."""
        ...

    def chain_rows(
        self,
        x: Any,
        data: Tall,
        right: Tall,
        other: Tall,
        link: np.ndarray,
        first: np.ndarray,
        step: np.ndarray,
        noise: Tall | None,
    ) -> Tall:
        """All rows of x as one chain, N x k: u_0 ~ N(0, first^-1), u_t = link u_t-1 + N(0,
        step^-1), data_tj = u_t.right_j + N(0, 1/other_j).

        With the precision L L^T of (u_0, ..., u_N-1) and h the weighted sums of the data, the
        answer is L^-T (L^-1 h + noise).
        """
        ...

    def lag_products(self, a: Tall) -> LagProducts:
        """Sums over neighbouring rows."""
        ...

    def step_squares(self, states: Tall) -> Tall:
        """sum_t (s_t - s_t-1)^2 of every row, n x 1."""
        ...


class FilledMoments(NamedTuple):
    """Sums over rows: E[y] (n) and E[y y^T] (n x n) of complete rows, log p of what is seen, and
    what each column costs beyond its parabola (n)."""

    first: np.ndarray
    second: np.ndarray
    loglik: float
    wild: np.ndarray

    def merge(self, other: FilledMoments) -> FilledMoments:
        sums: list[Any] = [a + b for a, b in zip(tuple[Any, ...](self), tuple[Any, ...](other))]
        return FilledMoments(*sums)


class FactorRule(NamedTuple):
    """What the steps of ``factor_steps`` minimise, and when they end: see there."""

    rows: float
    l2: float
    more: np.ndarray
    degrees: float
    least: float
    steps: int
    still: float


class TablesFamily(Protocol):
    """The steps of a table whose columns have scores. All in float64."""

    def filled_moments(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        *,
        width: np.ndarray | None = None,
        codes: Tall | None = None,
        weights: np.ndarray | None = None,
    ) -> tuple[FilledMoments, Tall]:
        """The model is y = mean + W z + e, z ~ N(0, I_k), e ~ N(0, diag noise), W the ``factors``
        (n x k). With O what a row sees, S = (I + W_O^T noise_O^-1 W_O)^-1 and m = S W_O^T
        noise_O^-1 (y_O - mean_O), its code has the mean m (rows x k, the second answer) and the
        covariance S, so that a gap j has the mean mean_j + w_j.m, and two gaps have the covariance
        w_j^T S w_l, plus noise_j where they are one.

        ``width`` d (n numbers, infinite: none) draws the scores of a column to t + clip(a - t, -d,
        d), t = mean_j + w_j.z with z the ``codes`` (N x k; None: zeros): the parabola above Huber's
        loss at t. What the loss has beyond it, d (|a - t| - d), is summed up in ``wild``.
        ``weights`` (N): how often each row counts in the sums, once where None.
        """
        ...

    def left_out_rows(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        parts: np.ndarray,
        *,
        width: np.ndarray | None = None,
        codes: Tall | None = None,
    ) -> Tall:
        """N x n: what the other scores of its row say of each score of the ``parts`` (p x 2: first
        column and the one after the last; all of a part are seen or none), E[y_J | y_O without J];
        gaps as they are expected, other scores as they are seen (drawn in by ``width``, see
        ``filled_moments``)."""
        ...

    def factor_steps(
        self, cov: np.ndarray, factors: np.ndarray, noise: np.ndarray, rule: FactorRule
    ) -> tuple[np.ndarray, np.ndarray]:
        """EM steps from W = ``factors`` (n x k) and noise (n) down

            rows/2 (log |S| + tr S^-1 C) + l2/2 sum_j |w_j|^2 / noise_j + 1/2 sum_j (degrees log
            noise_j + more_j / noise_j),    S = W W^T + diag noise

        for the covariance C of complete rows, noise_j >= ``least``: at most ``steps``, until no
        noise changes by more than the share ``still``. With b = (I + W^T noise^-1 W)^-1 W^T
        noise^-1 a code has the mean b (y - mean); zz = b C b^T + (I + W^T noise^-1 W)^-1 is its
        second moment, W = C b^T (zz + l2/rows I)^-1, noise_j = (rows (C_jj - w_j.(C b^T)_j) +
        more_j) / (rows + degrees). Then W takes over the root of zz where that gains more than the
        ridge costs (parameter expansion).
        """
        ...
