"""The primitives of non-negative factorization in NumPy, row by row: the specification and the judge of the other engines."""

from __future__ import annotations

import numpy as np

from eckart.engines.protocol import Descent, KlRule, Pass, Totals
from eckart.matrix import Counts, Dense, Observed

LEAST = 1e-10


class PlainNonnegative:
    """totals, hals_rows, hals_pass, hals_seen, kl_rows and kl_pass as part of ``PlainEngine``."""

    def totals(self, x: Dense | Counts | Observed, weights: np.ndarray | None = None) -> Totals:
        a = _filled(x, 0.0)
        w = np.ones(len(a)) if weights is None else weights
        return Totals(len(a), float(w @ a.sum(axis=1)), float(w @ (a**2).sum(axis=1)))

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
        rows = [_coordinate(np.asarray(gram, np.float64), p, u, sweeps) for p, u in zip(pull, start)]
        return _gathered(rows, start.shape, weights)

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
        a = _filled(x, 0.0)
        rows = self.hals_rows(gram, a @ right - l1, left, sweeps=sweeps, weights=weights)
        heavy = rows.factor if weights is None else weights[:, None] * rows.factor
        return Pass(rows, a.T @ heavy, rows.factor.T @ heavy)

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
        rows = []
        for i, (seen, a, w) in enumerate(_seen(x, entry_weights)):
            h = other[seen].astype(np.float64)
            gram = h.T @ (w[:, None] * h) + l2 * np.eye(start.shape[1])
            new, value, kkt = _coordinate(gram, (w * a) @ h - l1, start[i], sweeps)
            rows.append((new, value + 0.5 * float(w @ a**2), kkt))
        return _gathered(rows, start.shape, weights)

    def kl_rows(
        self,
        x: Counts | Observed | Dense,
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
        h, rows = np.asarray(other, np.float64), []
        if not isinstance(x, Observed):
            whole = _filled(x, 0.0)
            x = Observed.from_nan(whole)
            entry_weights = None if entry_weights is None else np.ones(whole.size)
        scale = np.ones(len(h)) if entry_scale is None else entry_scale
        for i, (seen, a, w) in enumerate(_seen(x, entry_weights)):
            w, kept = w * scale[seen], (0.0, 0.0)
            mass, total = w @ h[seen], np.array([w @ a])
            u = floored(np.asarray(start[i], np.float64)[None], mass, total, rule)
            for s in range(steps):
                at = np.maximum(h[seen] @ u[0], max(1e-30 * total[0], 1e-37))
                up = (w * a / at) @ h[seen]
                new, own, kkt = multiplied(u, up[None], mass, total, rule)
                if s == 0:
                    log = np.log(np.where(a > 0, a / at, 1.0)) - 1
                    kept = float(w @ (a * log) + own[0]), float(kkt[0])
                u = new
            rows.append((u[0], *kept))
        return _gathered(rows, start.shape, weights)

    def kl_pass(
        self,
        x: Dense,
        left: np.ndarray,
        right: np.ndarray,
        rule: KlRule,
        totals: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> Descent:
        return self.kl_rows(Dense(_filled(x, 0.0).T), left, right, rule, entry_scale=weights)

    def square_error(
        self, x: Dense | Counts, left: np.ndarray, right: np.ndarray, weights: np.ndarray | None = None
    ) -> float:
        rest = _filled(x, 0.0) - np.asarray(left, np.float64) @ np.asarray(right, np.float64).T
        return float((np.ones(len(rest)) if weights is None else weights) @ (rest**2).sum(axis=1))


def multiplied(
    u: np.ndarray, up: np.ndarray, mass: np.ndarray, totals: np.ndarray, rule: KlRule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """u r with r = up / (mass + l1), row by row; the part of the objective that is not a sum over entries > 0, and the violations, before it."""
    down = mass + rule.l1
    slope = down + rule.l2 * u
    value = (u * (down + 0.5 * rule.l2 * u)).sum(axis=1)
    size = np.maximum((u * slope).sum(axis=1), totals)[:, None]
    rest = 1 - np.divide(up, slope, out=np.zeros_like(up), where=slope > 0)
    share = np.divide(u * slope, size, out=np.zeros_like(u), where=size > 0)
    kkt = size[:, 0] * (np.maximum(np.minimum(share, rest), -1) ** 2).sum(axis=1)
    bend = np.sqrt(down**2 + 4 * rule.l2 * u * up) if rule.l2 > 0 else down
    r = 2 * up / np.maximum(down + bend, 1e-37)
    return floored(u * (r**1.75 if rule.fast else r), mass, totals, rule), value, kkt


def floored(u: np.ndarray, mass: np.ndarray, totals: np.ndarray, rule: KlRule) -> np.ndarray:
    """u with a share of at least LEAST for every component that has mass, so that it can come back; zero for one that has none."""
    down = mass + rule.l1
    least = LEAST * totals[:, None] / np.where(down > 0, down, 1.0)
    return np.where(down > 0, np.maximum(u, least), 0.0)


def _coordinate(gram: np.ndarray, pull: np.ndarray, start: np.ndarray, sweeps: int) -> tuple[np.ndarray, float, float]:
    u = np.array(start, np.float64)
    inverse = 1 / np.maximum(np.diagonal(gram), 1e-30)
    slope = gram @ u - pull
    value, kkt = 0.5 * float(u @ (slope - pull)), float(np.diagonal(gram) @ np.minimum(u, slope * inverse) ** 2)
    for _ in range(sweeps):
        for c in range(len(u)):
            u[c] = max(u[c] - (gram[c] @ u - pull[c]) * inverse[c], 0.0)
    return u, value, kkt


def _gathered(rows: list, shape: tuple[int, ...], weights: np.ndarray | None) -> Descent:
    w = np.ones(len(rows)) if weights is None else weights
    factor = np.array([row[0] for row in rows]).reshape(shape)
    return Descent(
        factor, float(sum(w[i] * r[1] for i, r in enumerate(rows))), float(sum(w[i] * r[2] for i, r in enumerate(rows)))
    )


def _seen(x: Observed, entry_weights: np.ndarray | None):
    for i in range(x.shape[0]):
        part = slice(x.indptr[i], x.indptr[i + 1])
        a = x.data[part].astype(np.float64)
        yield x.indices[part], a, np.ones(len(a)) if entry_weights is None else entry_weights[part].astype(np.float64)


def _filled(x: Dense | Counts | Observed, absent: float) -> np.ndarray:
    if isinstance(x, Dense):
        return np.asarray(x.array, np.float64) if x.in_memory else np.concatenate(list(x.stream.blocks(1024)))
    return x.to_scipy().toarray().astype(np.float64) + absent
