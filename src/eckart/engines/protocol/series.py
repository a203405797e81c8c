"""Rows that are time series: chains that are solved exactly, for every row and for all columns at
once. X is n x T, its columns in the order of time.

``data`` are numbers at the stored entries of x, in row order, that stand in place of the stored
values. ``own`` is n x 3 and describes what each row has for itself, a first-order autoregression
seen through noise:

    data_ij = r_ij + e_ij,    r_ij = phi_i r_i,j-1 + N(0, (1 - phi_i^2) v_i),   r_i0 ~ N(0, v_i),
    e_ij ~ N(0, s_i),    own_i = (phi_i, v_i, s_i).
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
