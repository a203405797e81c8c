"""Multiplicative steps under beta-divergences in NumPy, row by row: the specification and the judge
of the other engines."""

from __future__ import annotations

import numpy as np

from eckart.engines.host import Host, place
from eckart.engines.protocol import BetaRule, BetaSums, CrossSums, Descent, Pass
from eckart.engines.protocol.parts import LOWEST, no_zeros
from eckart.matrix import Matrix
from oracle.parts import LEAST, _entry_weights, _filled, _gathered
from oracle.rows import ones_or

Placed = Host | Matrix


class OracleDivergences:
    """The family ``divergences`` as part of ``OracleEngine``."""

    def beta_size(self, x: Placed, beta: float) -> float:
        x = place(x)
        a, v = _filled(x), _known(x)
        zero = (a == 0) & (v > 0)
        if beta <= 0 and zero.any():
            i, j = np.argwhere(zero)[0]
            raise no_zeros(int(i), int(j), beta)
        return float((v * np.where(a > 0, a, 1.0) ** beta)[a > 0].sum())

    def beta_rows(
        self,
        x: Placed,
        other: np.ndarray,
        start: np.ndarray,
        rule: BetaRule,
        mass: np.ndarray,
        *,
        steps: int = 1,
    ) -> Descent:
        x, h, rows = place(x), np.asarray(other, np.float64), []
        for a, v, u in zip(
            _filled(x),
            _known(Host(x.matrix, None, x.entry_weights, checked=x.checked)),
            np.asarray(start, np.float64),
        ):
            kept, u = (0.0, 0.0), _start(u, mass, float(v @ a))
            for s in range(steps):
                up, down, value = _sums(a, v, h, u, rule.beta)
                new, own, kkt = _stepped(u, up, down, mass, float(v @ a), rule)
                kept = (value + own, kkt) if s == 0 else kept
                moved, u = float(np.abs(new - u) @ mass), new
                if moved <= rule.tol * float(u @ mass):
                    break
            rows.append((u, *kept))
        return _gathered(rows, start, x.weights)

    def beta_sums(self, x: Placed, left: np.ndarray, right: np.ndarray, beta: float) -> BetaSums:
        x, w = place(x), np.asarray(left, np.float64)
        a, v = _filled(x), _known(x)
        found = [
            _sums(a[:, j], v[:, j], w, h, beta) for j, h in enumerate(np.asarray(right, np.float64))
        ]
        up, down = (np.array([f[i] for f in found]).reshape(np.shape(right)) for i in (0, 1))
        return BetaSums(up, down, (v * a).sum(axis=0), float(sum(f[2] for f in found)))

    def beta_step(
        self, right: np.ndarray, sums: BetaSums, mass: np.ndarray, rule: BetaRule
    ) -> Descent:
        u = np.asarray(right, np.float64)
        each = zip(u, sums.up, sums.down, sums.totals)
        new, value, kkt = _gathered(
            [_stepped(row, up, down, mass, t, rule) for row, up, down, t in each], right, None
        )
        return Descent(new, sums.value + value, kkt)

    def multiplied_rows(
        self, gram: np.ndarray, pull: np.ndarray, start: np.ndarray, l1: float = 0.0
    ) -> Descent:
        return _gathered([_multiplied(gram, p, u, l1) for p, u in zip(pull, start)], start, None)

    def multiplied_pass(
        self, x: Placed, right: np.ndarray, left: np.ndarray, gram: np.ndarray, l1: float = 0.0
    ) -> Pass:
        x = place(x)
        a = _filled(x)
        new, value, kkt = _gathered(
            [_multiplied(gram, p, u, l1) for p, u in zip(a @ right, left)], left, x.weights
        )
        heavy = ones_or(x.weights, len(a))[:, None] * new
        return Pass(new, CrossSums(value, kkt, a.T @ heavy, new.T @ heavy))


def _multiplied(
    gram: np.ndarray, pull: np.ndarray, start: np.ndarray, l1: float
) -> tuple[np.ndarray, float, float]:
    """u p / (G u + l1); 1/2 u G u - (p - l1).u and the violations before it."""
    g, p = np.asarray(gram, np.float64), np.asarray(pull, np.float64)
    size = np.diagonal(g)
    safe = np.where(size > 0, size, 1.0)
    least = np.where(size > 0, LEAST * p / safe, 0.0)
    u = np.maximum(np.asarray(start, np.float64), least)
    down = g @ u + l1
    value = float(0.5 * u @ g @ u - (p - l1) @ u)
    kkt = float(size @ np.minimum(u, np.where(size > 0, (down - p) / safe, 0.0)) ** 2)
    return (
        np.maximum(u * np.where(down > 0, p / np.where(down > 0, down, 1.0), 0.0), least),
        value,
        kkt,
    )


def _known(x: Host) -> np.ndarray:
    """The weight of every cell: that of its row times its own, 0 where it is unknown."""
    shape = (x.shape[0] or 0, x.shape[1])
    v = _entry_weights(x, shape)
    if x.kind == "observed" and x.entry_weights is None:
        v = _entry_weights(Host(x.matrix, None, np.ones(x.nnz)), shape)
    return ones_or(x.weights, len(v))[:, None] * v


def _start(u: np.ndarray, mass: np.ndarray, total: float) -> np.ndarray:
    share = np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), 0.0)
    return np.maximum(u, LEAST * share) if u.any() else share / len(u)


def _sums(
    a: np.ndarray, v: np.ndarray, h: np.ndarray, u: np.ndarray, b: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """num, den and the divergence of one row."""
    seen = v > 0
    a, v, h = a[seen], v[seen], h[seen]
    s = np.maximum(h @ u, max(LOWEST * float(a.mean()) if len(a) else 0.0, 1e-150))
    if b == 0:
        each = a / s - np.log(a / s) - 1
    elif b == 1:
        each = np.where(a > 0, a * np.log(np.where(a > 0, a, 1.0) / s), 0.0) - a + s
    else:
        each = (
            np.where(a > 0, a, 0.0 if b > 0 else 1.0) ** b + (b - 1) * s**b - b * a * s ** (b - 1)
        ) / (b * (b - 1))
    return (v * a * s ** (b - 2)) @ h, (v * s ** (b - 1)) @ h, float(v @ each)


def _stepped(
    u: np.ndarray, up: np.ndarray, down: np.ndarray, mass: np.ndarray, total: float, rule: BetaRule
) -> tuple[np.ndarray, float, float]:
    """The row after a step; its penalties and its violations before it."""
    slope = down + rule.l1 + rule.l2 * u
    own = rule.l1 * float(u.sum()) + 0.5 * rule.l2 * float(u @ u)
    size = max(float(u @ up), float(u @ slope))
    rest = 1 - np.where(slope > 0, up / np.where(slope > 0, slope, 1.0), 0.0)
    kkt = (
        size * float((np.maximum(np.minimum(u * slope / size, rest), -1) ** 2).sum())
        if size > 0
        else 0.0
    )
    first = down + rule.l1
    bend = first + np.sqrt(first**2 + 4 * rule.l2 * u * up)
    root = np.where(bend > 0, 2 * up / np.where(bend > 0, bend, 1.0), 0.0)
    least = np.where(mass > 0, LEAST * total / np.where(mass > 0, mass, 1.0), 0.0)
    return np.maximum(u * root**rule.power, least), own, kkt
