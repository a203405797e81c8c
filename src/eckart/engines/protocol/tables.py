"""Rows of scores with gaps under a factor model: the expectation of complete rows. X is N x n, an absent entry is a gap."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.placed import Tall


class FilledMoments(NamedTuple):
    """Sums over rows: E[y] (n) and E[y y^T] (n x n) of complete rows, log p of what is seen, and what each column costs beyond its parabola (n)."""

    first: np.ndarray
    second: np.ndarray
    loglik: float
    wild: np.ndarray

    def merge(self, other: FilledMoments) -> FilledMoments:
        sums: list[Any] = [a + b for a, b in zip(tuple[Any, ...](self), tuple[Any, ...](other))]
        return FilledMoments(*sums)


class TablesFamily(Protocol):
    """The E step of a table whose columns have scores. All in float64."""

    def filled_moments(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        *,
        width: np.ndarray | None = None,
        codes: Tall | None = None,
    ) -> tuple[FilledMoments, Tall]:
        """The model is y = mean + W z + e, z ~ N(0, I_k), e ~ N(0, diag noise), W the ``factors`` (n x k). With O what a row sees, S = (I + W_O^T noise_O^-1
        W_O)^-1 and m = S W_O^T noise_O^-1 (y_O - mean_O), its code has the mean m (rows x k, the second answer) and the covariance S, so that a gap j has the
        mean mean_j + w_j.m, and two gaps have the covariance w_j^T S w_l, plus noise_j where they are one.

        ``width`` d (n numbers, infinite: none) draws the scores of a column to t + clip(a - t, -d, d), t = mean_j + w_j.z with z the ``codes`` (N x k; None:
        zeros): the parabola above Huber's loss at t. What the loss has beyond it, d (|a - t| - d), is summed up in ``wild``.
        """
        ...
