"""Why a cell is predicted as it is. With the columns fixed, the code of row i is linear in its
observed targets,

    u_i = M^-1 sum_p w_p y_p v_p,    M = sum_p w_p v_p v_p^T + P,

so the prediction splits exactly into one share for each observed entry, share_p = w_p y_p v_j^T
M^-1 v_p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.factors import LowRank


class Lean(NamedTuple):
    """The prior mean of a row's code (with its bias last, where there is one), and the part of a
    column's bias that its attributes give."""

    row: np.ndarray
    column_bias: float


class SharesOfEntries:
    """Shares of a cell by factors that are solved row by row."""

    def _shares(
        self: Any,
        f: LowRank,
        i: int,
        j: int,
        seen: np.ndarray,
        values: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> tuple[np.ndarray, float, dict[str, float]]:
        """One share for each observed entry, what is left (mean, biases and attributes), and its
        parts where attributes are known."""
        rule = self._fold_rule()
        ridge, bias_ridge = (float(r[0]) for r in rule.ridges(np.array([len(seen)])))
        at = np.full(len(seen), i)
        clean = f.with_rows(np.zeros_like(f.left), None if rule.bias else f.row_bias, f.row_scale)
        scale = 1.0 if f.column_scale is None else f.column_scale[seen].astype(np.float64)
        stretch = 1.0 if f.row_scale is None else float(f.row_scale[i])
        targets = (values - clean.at(at, seen)) / scale / stretch
        used = (
            np.flatnonzero(f.left[i]) if rule.nonnegative else np.arange(f.k)
        )  # a row at the bound is linear in what is off it
        v = f.right[np.ix_(seen, used)].astype(np.float64)
        penalty = np.full(len(used), ridge)
        goal = f.right[j, used].astype(np.float64)
        if rule.bias:
            v, goal = np.column_stack([v, np.ones(len(v))]), np.append(goal, 1.0)
            penalty = np.append(penalty, bias_ridge)
        heavy = np.ones(len(v)) if weights is None else weights
        heavy, pulls = (
            (rule.alpha * values, np.where(values > 0, rule.alpha * values + rule.shift, 0.0))
            if rule.alpha
            else (heavy, heavy * targets)
        )
        matrix = (v.T * heavy) @ v + np.diag(penalty)
        if (gram := self._fold_base(f)) is not None:
            matrix += gram[np.ix_(used, used)]
        # in units of its own: the ridge of codes may be 1e20 times that of the bias, which least
        # squares would take for rounding
        unit = 1.0 / np.sqrt(np.where(np.diagonal(matrix) > 0, np.diagonal(matrix), 1.0))
        row_of = unit * np.linalg.lstsq(matrix * np.outer(unit, unit), goal * unit, rcond=None)[0]
        factor = stretch * (1.0 if f.column_scale is None else float(f.column_scale[j]))
        base, parts = float(clean.at([i], [j])[0]), dict[str, float]()
        if (means := self._prior_of(i, j)) is not None:
            lean = factor * float(row_of @ (penalty * means.row))
            parts = {"attributes": lean + means.column_bias, "bias": base - means.column_bias}
            base += lean
        return factor * pulls * (v @ row_of), base, parts

    def _prior_of(self: Any, i: int, j: int) -> Lean | None:
        """Where attributes let the code of row i and the bias of column j lean; None without."""
        return None
