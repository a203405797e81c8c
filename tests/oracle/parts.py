"""The primitives of non-negative factorization in NumPy, row by row: the specification and the
judge of the other engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.engines.host import Host, place
from eckart.engines.protocol import (
    CrossSums,
    Descent,
    FactorSums,
    KlRule,
    KlSums,
    Pass,
    SignSums,
    Totals,
    refuse_bad,
)
from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Matrix
from oracle.rows import ones_or

LEAST = 1e-10
"""Share of a row below which a multiplicative step does not take a component, so that it can come
back."""

Placed = Host | Matrix


class OracleParts:
    """Non-negative factorization as part of ``OracleEngine``."""

    def totals(self, x: Placed) -> Totals:
        x = place(x)
        a = _filled(x)
        for i, j in np.argwhere(a < 0)[:1]:
            raise InputError(
                f"Negative values in data passed to NMF: X must hold numbers >= 0, got {a[i, j]} at "
                f"row {i}, column {j}. Shift or clip them, or use PCA."
            )
        w, v = ones_or(x.weights, len(a)), _entry_weights(x, a.shape)
        columns = w @ a if x.kind == "dense" else None
        cells = w @ x.counts if x.kind == "observed" else w.sum() * a.shape[1]
        total, square = (float(w @ (v * a**p).sum(axis=1)) for p in (1, 2))
        return Totals(len(a), float(w.sum()), float(cells), total, square, columns)

    def zero_filled(self, x: Placed) -> Host:
        x = place(x)
        m = x.matrix
        return (
            replace(x, matrix=Counts(m.indptr, m.indices, m.data, m.n_columns), kept={})
            if x.kind == "observed"
            else x
        )

    def as_rows(self, tall: np.ndarray, x: Placed) -> Host:
        return Host(Dense(tall), place(x).weights, checked=True)

    def factor_mass(self, factor: np.ndarray, x: Placed | None = None) -> np.ndarray:
        return self.factor_sums(factor, x).mass

    def factor_sums(self, factor: np.ndarray, x: Placed | None = None) -> FactorSums:
        f = np.asarray(factor, np.float64)
        heavy = ones_or(None if x is None else place(x).weights, len(f))[:, None] * f
        return FactorSums(
            heavy.sum(axis=0),
            f.T @ heavy,
            float(f.min(initial=np.inf)),
            f.max(axis=0, initial=-np.inf),
        )

    def sign_sums(self, factor: np.ndarray, x: Placed | None = None) -> SignSums:
        parts = [np.maximum(sign * np.asarray(factor, np.float64), 0) for sign in (1, -1)]
        w = ones_or(None if x is None else place(x).weights, len(factor))
        return SignSums(
            np.array([w @ p**2 for p in parts]),
            np.array([p.max(axis=0, initial=0.0) for p in parts]),
        )

    def rectified(
        self, factor: np.ndarray, scale: np.ndarray, least: float = 0.0, fill: float = 0.0
    ) -> np.ndarray:
        out = factor * scale
        return np.where(out > least, out, fill).astype(factor.dtype)

    def sprinkled(self, factor: np.ndarray, size: float, seed: int) -> np.ndarray:
        small = size * np.abs(self.normal(seed, factor.shape, np.float64))  # type: ignore[attr-defined]
        return np.where(factor > 0, factor, small).astype(factor.dtype)

    def projected_rows(self, pull: np.ndarray, inverse: np.ndarray, l1: float) -> np.ndarray:
        return np.maximum((pull.astype(np.float64) - l1) @ inverse, 0).astype(pull.dtype)

    def leap(self, new: np.ndarray, old: np.ndarray, stride: float) -> np.ndarray:
        return np.maximum(new + stride * (new - old), 0).astype(new.dtype)

    def cleaned(self, factor: np.ndarray, mass: np.ndarray, share: float) -> np.ndarray:
        part = factor * mass
        return np.where(part > share * part.sum(axis=1, keepdims=True), factor, 0).astype(
            factor.dtype
        )

    def hals_rows(
        self,
        gram: np.ndarray,
        pull: np.ndarray,
        start: np.ndarray,
        l1: float = 0.0,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        return _gathered(
            [_coordinate(gram, p - l1, u, sweeps, shrink) for p, u in zip(pull, start)], start, None
        )

    def hals_pass(
        self,
        x: Placed,
        right: np.ndarray,
        left: np.ndarray,
        gram: np.ndarray,
        l1: float,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Pass:
        x = place(x)
        a = _filled(x)
        rows = [_coordinate(gram, p - l1, u, sweeps, shrink) for p, u in zip(a @ right, left)]
        new, value, kkt = _gathered(rows, left, x.weights)
        heavy = ones_or(x.weights, len(a))[:, None] * new
        return Pass(new, CrossSums(value, kkt, a.T @ heavy, new.T @ heavy))

    def hals_seen(
        self,
        x: Placed,
        other: np.ndarray,
        start: np.ndarray,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        x, rows = place(x), []
        for i, (seen, a, w) in enumerate(_seen(x)):
            h = other[seen].astype(np.float64)
            gram = h.T @ (w[:, None] * h) + l2 * np.eye(start.shape[1])
            new, value, kkt = _coordinate(gram, (w * a) @ h - l1, start[i], sweeps, shrink)
            rows.append((new, value + 0.5 * float(w @ a**2), kkt))
        return _gathered(rows, start, x.weights)

    def kl_rows(
        self,
        x: Placed,
        other: np.ndarray,
        start: np.ndarray,
        rule: KlRule,
        mass: np.ndarray,
        *,
        steps: int = 1,
    ) -> Descent:
        x, h, rows = place(x), np.asarray(other, np.float64), []
        for i, (seen, a, w) in enumerate(_seen(x)):
            kept = (0.0, 0.0)
            down, total = (w @ h[seen] if x.kind == "observed" else np.asarray(mass)), float(w @ a)
            u = floored(np.asarray(start[i], np.float64), down, total, rule)
            for s in range(steps):
                at = np.maximum(h[seen] @ u, max(1e-30 * total, 1e-37))
                new, own, kkt = multiplied(u, (w * a / at) @ h[seen], down, total, rule)
                if s == 0:
                    kept = float(w @ (a * (np.log(np.where(a > 0, a / at, 1.0)) - 1)) + own), kkt
                moved, u = float(np.abs(new - u) @ (down + rule.l1)), new
                if moved <= rule.tol * total:
                    break
            rows.append((u, *kept))
        return _gathered(rows, start, x.weights)

    def kl_sums(
        self, x: Placed, left: np.ndarray, right: np.ndarray, valued: bool = True
    ) -> KlSums:
        x = place(x)
        a, w = _filled(x), ones_or(x.weights, len(left))[:, None]
        least = np.maximum(1e-30 * a.sum(axis=1, keepdims=True), 1e-37)
        ratio = a / np.maximum(
            np.asarray(left, np.float64) @ np.asarray(right, np.float64).T, least
        )
        value = float((w * a * (np.log(np.where(a > 0, ratio, 1.0)) - 1)).sum()) if valued else 0.0
        return KlSums(ratio.T @ (w * left), value)

    def kl_step(
        self, right: np.ndarray, sums: KlSums, mass: np.ndarray, totals: np.ndarray, rule: KlRule
    ) -> Descent:
        u = np.asarray(right, np.float64)
        rows = [multiplied(u[j], sums.up[j], mass, totals[j], rule) for j in range(len(u))]
        new, value, kkt = _gathered(rows, right, None)
        return Descent(new, sums.value + value, kkt)

    def square_error(self, x: Placed, left: np.ndarray, right: np.ndarray) -> float:
        x = place(x)
        rest = _filled(x) - np.asarray(left, np.float64) @ np.asarray(right, np.float64).T
        v = _entry_weights(x, rest.shape)
        if x.kind == "observed":
            v = v * _filled(replace(x, matrix=replace(x.matrix, data=np.ones(x.nnz)), kept={}))
        return float(ones_or(x.weights, len(rest)) @ (v * rest**2).sum(axis=1))


def multiplied(
    u: np.ndarray, up: np.ndarray, mass: np.ndarray, total: float, rule: KlRule
) -> tuple[np.ndarray, float, float]:
    """u r with r = up / (mass + l1); the part of the objective that is not a sum over entries > 0,
    and the violations, before it."""
    down = mass + rule.l1
    slope = down + rule.l2 * u
    value = float(u @ (down + 0.5 * rule.l2 * u))
    size = max(float(u @ slope), total)
    rest = 1 - np.divide(up, slope, out=np.zeros_like(u), where=slope > 0)
    kkt = (
        size * float((np.maximum(np.minimum(u * slope / size, rest), -1) ** 2).sum())
        if size > 0
        else 0.0
    )
    bend = np.sqrt(down**2 + 4 * rule.l2 * u * up)
    r = 2 * up / np.maximum(down + bend, 1e-37)
    return floored(u * (r**1.75 if rule.fast else r), mass, total, rule), value, kkt


def floored(u: np.ndarray, mass: np.ndarray, total: float, rule: KlRule) -> np.ndarray:
    """u with a share of at least LEAST for every component that has mass, so that it can come back;
    zero for one that has none."""
    down = mass + rule.l1
    return np.where(down > 0, np.maximum(u, LEAST * total / np.where(down > 0, down, 1.0)), 0.0)


def _coordinate(
    gram: np.ndarray, pull: np.ndarray, start: np.ndarray, sweeps: int, shrink: float
) -> tuple[np.ndarray, float, float]:
    u, gram = np.array(start, np.float64), np.asarray(gram, np.float64)
    inverse, first = 1 / np.maximum(np.diagonal(gram), 1e-30), 0.0
    slope = gram @ u - pull
    value, kkt = (
        0.5 * float(u @ (slope - pull)),
        float(np.diagonal(gram) @ np.minimum(u, slope * inverse) ** 2),
    )
    for s in range(sweeps):
        before = u.copy()
        for c in range(len(u)):
            u[c] = max(u[c] - (gram[c] @ u - pull[c]) * inverse[c], 0.0)
        change = float(((u - before) ** 2).sum())
        if s == 0:
            first = change
        elif change <= shrink * first:
            break
    return u, value, kkt


def _gathered(rows: list, like: np.ndarray, weights: np.ndarray | None) -> Descent:
    w = ones_or(weights, len(rows))
    factor = np.array([row[0] for row in rows]).reshape(like.shape).astype(like.dtype)
    return Descent(
        factor,
        float(sum(w[i] * r[1] for i, r in enumerate(rows))),
        float(sum(w[i] * r[2] for i, r in enumerate(rows))),
    )


def _seen(x: Host) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Columns, values and weights of the entries of each row; of all columns where every entry is
    known."""
    if x.kind == "dense":
        for row in _filled(x):
            yield np.arange(len(row)), row, np.ones(len(row))
        return
    m = x.matrix
    v = ones_or(x.entry_weights, m.nnz)
    for a, b in zip(m.indptr[:-1], m.indptr[1:]):
        yield m.indices[a:b], m.data[a:b].astype(np.float64), v[a:b]


def _filled(x: Host) -> np.ndarray:
    """All entries, zeros where none is stored."""
    m: Any = x.matrix
    if x.kind != "dense":
        return m.to_scipy().toarray().astype(np.float64)
    out = np.asarray(
        m.array if m.in_memory else np.concatenate(list(m.stream.blocks(1024))), np.float64
    )
    refuse_bad(out)
    return out


def _entry_weights(x: Host, shape: tuple[int, int]) -> np.ndarray:
    if x.entry_weights is None:
        return np.ones(shape)
    return _filled(replace(x, matrix=replace(x.matrix, data=x.entry_weights), kept={}))
