"""Series: a completed table of time series, and what its future depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.factors.checks import Stored, covariances, names, numbers


@dataclass(frozen=True, eq=False)
class Series(Stored):
    """Mean and deviation of every cell, and S draws of the state in which the last column leaves
    the model.

    ``cells`` and ``spread`` are n x T: the posterior mean of a cell, and the deviation of what is
    known about it; ``sigma`` (n) is the deviation of an observation around it. A draw has, for rows
    standardised by ``centre`` and ``scale``, ``left`` w (S x n x k), ``last`` x_T-1 (S x k),
    ``transition`` A and ``shock`` Q (S x k x k), ``own`` phi, v, s (S x n x 3), ``state`` r_T-1 (S
    x n) and the ``profile`` (S x n x P). ``probes`` (chains x draws x cells) and ``levels`` (chains
    x draws, the mean log noise variance) are what mixing is judged by.
    """

    cells: np.ndarray
    spread: np.ndarray
    sigma: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    left: np.ndarray
    last: np.ndarray
    transition: np.ndarray
    shock: np.ndarray
    own: np.ndarray
    state: np.ndarray
    profile: np.ndarray
    probes: np.ndarray
    levels: np.ndarray
    rows: np.ndarray | None = None
    columns: np.ndarray | None = None

    @property
    def k(self) -> int:
        return self.left.shape[2]

    @property
    def n(self) -> int:
        """How many columns the table has."""
        return self.cells.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        return self.cells.shape[0], self.cells.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Of the cells."""
        return self.cells.dtype

    @property
    def period(self) -> int:
        return self.profile.shape[2]

    def at(self, rows: Any, columns: Any) -> np.ndarray:
        """The cells (rows[p], columns[p]), by position."""
        return self.cells[np.asarray(rows, np.intp), np.asarray(columns, np.intp)]

    def block(self, rows: Any) -> np.ndarray:
        """The rows at these positions."""
        return self.cells[rows].copy()

    def deviation(self, rows: Any, columns: Any, noise: bool = True) -> np.ndarray:
        """Standard deviation of a new observation at these cells, or of what is known about its
        mean."""
        i = np.asarray(rows, np.intp)
        spread = self.spread[i, np.asarray(columns, np.intp)]
        return np.hypot(spread, self.sigma[i]) if noise else spread.copy()

    def ahead(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of observations in the next columns, n x steps each.

        In each draw x_T-1+h has mean A^h x_T-1 and covariance sum_g<h A^g Q A^gT, r_T-1+h mean
        phi^h r and variance (1 - phi^2h) v; over the draws means are averaged, and to the mean of
        the variances comes the variance of the means.
        """
        n, horizon = self.shape[0], np.arange(1, steps + 1)
        slot = (self.n - 1 + horizon) % self.period
        total, square, inner = np.zeros((n, steps)), np.zeros((n, steps)), np.zeros((n, steps))
        for d in range(len(self.left)):
            w, (phi, v, s) = self.left[d].astype(np.float64), self.own[d].astype(np.float64).T
            fall = phi[:, None] ** horizon
            mean = self.profile[d].astype(np.float64)[:, slot] + fall * self.state[d][:, None]
            inner += (1 - fall**2) * v[:, None] + s[:, None]
            x, covariance, link = (
                self.last[d].astype(np.float64),
                np.zeros((self.k, self.k)),
                self.transition[d].astype(np.float64),
            )
            for h in range(steps if self.k else 0):
                x, covariance = link @ x, link @ covariance @ link.T + self.shock[d]
                mean[:, h] += w @ x
                inner[:, h] += np.einsum("ij,jk,ik->i", w, covariance, w)
            total += mean
            square += mean**2
        draws = len(self.left)
        mean = total / draws
        variance = inner / draws + np.maximum(square / draws - mean**2, 0.0)
        dtype = self.dtype
        return (
            (self.centre[:, None] + self.scale[:, None] * mean).astype(dtype),
            (self.scale[:, None] * np.sqrt(variance)).astype(dtype),
        )

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        numbers("cells", self.cells, (None, None))
        n, columns = self.shape
        kind = self.cells.dtype
        numbers("left", self.left, (None, n, None), dtype=kind)
        s, k = self.left.shape[0], self.left.shape[2]
        numbers("profile", self.profile, (s, n, None), dtype=kind)
        if s == 0 or self.period == 0 or columns == 0:
            raise FileError("a series must have at least one draw, period and column")
        wanted: dict[str, tuple[tuple[int | None, ...], float | None]] = {
            "spread": ((n, columns), 0.0),
            "sigma": ((n,), 0.0),
            "centre": ((n,), None),
            "scale": ((n,), 1e-300),
            "last": ((s, k), None),
            "transition": ((s, k, k), None),
            "shock": ((s, k, k), None),
            "own": ((s, n, 3), 0.0),
            "state": ((s, n), None),
        }
        for name, (shape, low) in wanted.items():
            numbers(name, getattr(self, name), shape, low, dtype=kind)
        numbers("probes", self.probes, (None, None, None), dtype=kind)
        numbers("levels", self.levels, self.probes.shape[:2], dtype=kind)
        if self.probes.shape[0] * self.probes.shape[1] != s or self.probes.shape[2] == 0:
            raise FileError(
                f"probes must have the shape chains x draws x cells of {s} draws in all, got "
                f"{self.probes.shape}"
            )
        if (self.own[:, :, 0] >= 1).any():
            raise FileError("own must hold a memory phi below 1, got 1 or more")
        if k:
            covariances("shock", self.shock.astype(np.float64))
        names(self.rows, n, "rows", distinct=True)
        names(self.columns, columns, "columns", distinct=True)
