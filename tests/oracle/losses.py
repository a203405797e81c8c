"""A loss met at the stored entries, in NumPy: slow and obviously right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from eckart.engines.host import Host, place
from eckart.engines.protocol import LossSums, RidgeRule, RowSolution, ThresholdSums
from eckart.engines.protocol.entries import FLATTEST, HALVES
from oracle.entries import positions
from oracle.rows import ones_or


class OracleLosses:
    """The family ``losses`` as part of ``OracleEngine``."""

    normal: Any

    def linearised(
        self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, **at: Any
    ) -> tuple[Host, float]:
        x, loss = place(x), steep(x, loss, at)
        s = parameters(x, left, right, **at)
        a, w = np.asarray(x.matrix.data, np.float64), ones_or(x.entry_weights, x.nnz)
        c = np.maximum(loss.curvature(a, s), FLATTEST)
        target = (s - loss.gradient(a, s) / c).astype(x.dtype)
        value = float(w @ loss.value(a, s))
        return Host(
            replace(x.matrix, data=target), None, (w * c).astype(x.dtype), checked=True
        ), value

    def loss_sums(
        self,
        x: Any,
        loss: Any,
        left: np.ndarray,
        right: np.ndarray,
        *,
        shrink: float | None = None,
        **at: Any,
    ) -> LossSums:
        x, loss = place(x), steep(x, loss, at)
        s = parameters(x, left, right, **at)
        a, w = np.asarray(x.matrix.data, np.float64), ones_or(x.entry_weights, x.nnz)
        g = loss.gradient(a, s)
        dual = 0.0 if shrink is None else float(w @ loss.conjugate(a, shrink * g))
        return LossSums(float(w @ loss.value(a, s)), float(w @ g), dual)

    def threshold_sums(
        self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, **at: Any
    ) -> ThresholdSums:
        x, loss = place(x), steep(x, loss, at)
        s = parameters(x, left, right, **at)
        a, w = np.asarray(x.matrix.data, np.float64), ones_or(x.entry_weights, x.nnz)
        return ThresholdSums(float(w @ loss.value(a, s)), *loss.by_thresholds(a, s, w))

    def shortened_rows(
        self,
        x: Any,
        loss: Any,
        right: np.ndarray,
        rule: RidgeRule,
        left: np.ndarray,
        new: np.ndarray,
        *,
        mean: float = 0.0,
        own: np.ndarray | None = None,
        new_own: np.ndarray | None = None,
        other: np.ndarray | None = None,
    ) -> RowSolution:
        x = place(x)
        u, v = np.array(left, np.float64), np.asarray(new, np.float64)
        b = np.zeros(len(u)) if own is None else np.array(own, np.float64)
        d = np.zeros(len(u)) if new_own is None else np.asarray(new_own, np.float64)
        ridge, bias_ridge = rule.ridges(x.counts)
        a, w, rows = (
            np.asarray(x.matrix.data, np.float64),
            ones_or(x.entry_weights, x.nnz),
            positions(x)[0],
        )

        def cost(codes: np.ndarray, bias: np.ndarray) -> np.ndarray:
            s = parameters(x, codes, right, mean=mean, own=bias, other=other)
            each = np.bincount(rows, w * loss.value(a, s), len(codes))
            return each + 0.5 * ridge * (codes**2).sum(axis=1) + 0.5 * bias_ridge * bias**2

        before, share = cost(u, b), np.ones(len(u))
        for _ in range(HALVES):
            at, next_bias = u + share[:, None] * (v - u), b + share * (d - b)
            after = cost(at, next_bias)
            worse = ~(after <= before)
            if not worse.any():
                break
            share[worse] /= 2
        at[worse], next_bias[worse], after[worse] = u[worse], b[worse], before[worse]
        return RowSolution(at, None if own is None else next_bias, float(after.sum()))

    def augmented(
        self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, noise: Any, **at: Any
    ) -> Host:
        x, loss = place(x), steep(x, loss, at)
        if isinstance(noise, tuple):
            noise = self.normal(noise, (x.nnz, 1), np.float64)
        s = parameters(x, left, right, **at)
        latent = loss.latent(np.asarray(x.matrix.data, np.float64), s, ndtr(np.ravel(noise)))
        return Host(
            replace(x.matrix, data=latent.astype(x.dtype)), None, x.entry_weights, checked=True
        )

    def slice_rows(
        self,
        x: Any,
        loss: Any,
        left: np.ndarray,
        right: np.ndarray,
        point: np.ndarray,
        centre: np.ndarray,
        drawn: np.ndarray,
        noise: np.ndarray,
        **at: Any,
    ) -> np.ndarray:
        x = place(x)
        bound, _ = self.linearised(x, loss, point, right, **at)
        a, w, rows = (
            np.asarray(x.matrix.data, np.float64),
            ones_or(x.entry_weights, x.nnz),
            positions(x)[0],
        )

        def advantage(codes: np.ndarray) -> np.ndarray:
            s = parameters(x, codes, right, **at)
            miss = np.asarray(bound.matrix.data, np.float64) - s
            heavy = ones_or(bound.entry_weights, x.nnz)
            return np.bincount(rows, 0.5 * heavy * miss**2 - w * loss.value(a, s), len(codes))

        u = np.array(left, np.float64)
        level = advantage(u) + np.log(ndtr(noise[:, 0]))
        angle = 2 * np.pi * ndtr(noise[:, 1])
        low, high, waiting = angle - 2 * np.pi, angle.copy(), np.ones(len(u), bool)
        for t in range(2, noise.shape[1] + 1):
            trial = (
                centre
                + (left - centre) * np.cos(angle)[:, None]
                + (drawn - centre) * np.sin(angle)[:, None]
            )
            done = waiting & (advantage(trial) > level)
            u[done] = trial[done]
            waiting &= ~done
            if t == noise.shape[1] or not waiting.any():
                break
            low, high = np.where(angle < 0, angle, low), np.where(angle < 0, high, angle)
            angle = low + (high - low) * ndtr(noise[:, t])
        return u


def steep(x: Any, loss: Any, at: dict[str, Any]) -> Any:
    """The loss with the steepness of every entry, of its row times that of its column, which are
    taken out of ``at``."""
    rows, columns = at.pop("row_steep", None), at.pop("column_steep", None)
    if rows is None and columns is None:
        return loss
    i, j = positions(x)
    own, other = (
        np.ones(n) if e is None else np.ravel(e) for n, e in zip(x.shape, (rows, columns))
    )
    return loss.steeper(own[i] * other[j])


def parameters(
    x: Any,
    left: np.ndarray,
    right: np.ndarray,
    *,
    mean: float = 0.0,
    own: Any = None,
    other: Any = None,
) -> np.ndarray:
    """s at the stored entries, in row order."""
    i, j = positions(x)
    s = mean + np.einsum(
        "pc,pc->p", np.asarray(left, np.float64)[i], np.asarray(right, np.float64)[j]
    )
    if own is not None:
        s = s + np.ravel(np.asarray(own, np.float64))[i]
    return s if other is None else s + np.ravel(np.asarray(other, np.float64))[j]
