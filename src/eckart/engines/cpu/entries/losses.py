"""A loss met at the stored entries on threads: natural parameters by a compiled kernel, formulas of
the loss in NumPy on pieces that stay in cache.

NumPy lets go of the interpreter while it works on a piece, so threads help, and a new loss needs no
kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from eckart.engines.cpu.entries.entry import _given
from eckart.engines.cpu.entries.logistic import logistic_bound
from eckart.engines.cpu.entries.natural_parameters import parameters_range
from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.ridge.schedule import ranges, ridges
from eckart.engines.host import Host
from eckart.engines.protocol import LossSums, RidgeRule, RowSolution, ThresholdSums
from eckart.engines.protocol.losses import FLATTEST, HALVES
from eckart.scheduler import run_lanes
from eckart.terms import Logistic

PIECE = 2**13
"""Entries whose formulas are worked out at once: some arrays of them fit into a second-level cache,
and a call of NumPy costs little against them."""

Work = Callable[[slice, np.ndarray, np.ndarray], None]


def each_piece(
    x: Host,
    left: np.ndarray,
    right: np.ndarray,
    out: np.ndarray,
    do: Work,
    threads: int,
    size: int,
    **at: Any,
) -> np.ndarray:
    """s of all entries into ``out``, and ``do(entries, s, sums)`` of each piece of them; returns
    the sums (``size`` numbers), added in a fixed order."""
    m, dtype = x.matrix, out.dtype
    u, v = (np.ascontiguousarray(a, dtype) for a in (left, right))
    mean, own, other = (
        dtype.type(at.get("mean", 0.0)),
        _given(at.get("own"), dtype),
        _given(at.get("other"), dtype),
    )
    parts = balanced(m.indptr, ranges(x.nnz))
    sums = [np.zeros(size) for _ in parts]

    def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
        parameters_range(m.indptr, m.indices, u, v, mean, own, other, *part, out)
        first, last = int(m.indptr[part[0]]), int(m.indptr[part[1]])
        for a in range(first, last, PIECE):
            entries = slice(a, min(a + PIECE, last))
            do(entries, out[entries], total)

    run_lanes(parts, sums, step, threads)
    return np.sum(sums, axis=0) if sums else np.zeros(size)


def steep_losses(x: Host, loss: Any, at: dict[str, Any]) -> Callable[[slice], Any]:
    """The loss of some entries: itself, or with the steepness of their rows and columns, which are
    taken out of ``at``."""
    rows, columns = at.pop("row_steep", None), at.pop("column_steep", None)
    if rows is None and columns is None:
        return lambda entries: loss
    steep = np.ones(x.nnz) if rows is None else np.repeat(np.ravel(rows), x.counts)
    if columns is not None:
        steep = steep * np.take(np.ravel(columns), x.matrix.indices)
    return lambda entries: loss.steeper(steep[entries])


def linearised(
    x: Host, loss: Any, left: np.ndarray, right: np.ndarray, *, threads: int, **at: Any
) -> tuple[Host, float]:
    each = steep_losses(x, loss, at)
    target, weights = np.empty(x.nnz, x.dtype), np.empty(x.nnz, x.dtype)
    data, heavy = x.matrix.data, x.entry_weights

    def do(entries: slice, s: np.ndarray, total: np.ndarray) -> None:
        if heavy is None and type(loss) is Logistic:
            total += logistic_bound(data, entries.start, entries.stop, target, weights)
            return
        value, g, c = each(entries).parts(data[entries], s)
        c = np.maximum(c, FLATTEST)
        target[entries] = s - g / c
        if heavy is None:
            weights[entries] = c
            total += value.sum(dtype=np.float64)
        else:
            weights[entries] = c * heavy[entries]
            total += np.dot(value.astype(np.float64, copy=False), heavy[entries])

    value = float(each_piece(x, left, right, target, do, threads, 1, **at)[0])
    return _with_entries(x, target, weights), value


def loss_sums(
    x: Host,
    loss: Any,
    left: np.ndarray,
    right: np.ndarray,
    *,
    shrink: float | None = None,
    threads: int,
    **at: Any,
) -> LossSums:
    data, heavy, each = x.matrix.data, x.entry_weights, steep_losses(x, loss, at)

    def do(entries: slice, s: np.ndarray, total: np.ndarray) -> None:
        a, w, own = data[entries].astype(np.float64), _heavy(heavy, entries), each(entries)
        wide = s.astype(np.float64)
        g = own.gradient(a, wide)
        dual = 0.0 if shrink is None else w @ own.conjugate(a, shrink * g)
        total += w @ own.value(a, wide), w @ g, dual

    return LossSums(
        *map(float, each_piece(x, left, right, np.empty(x.nnz, x.dtype), do, threads, 3, **at))
    )


def threshold_sums(
    x: Host, loss: Any, left: np.ndarray, right: np.ndarray, *, threads: int, **at: Any
) -> ThresholdSums:
    data, heavy, t, each = (
        x.matrix.data,
        x.entry_weights,
        len(loss.thresholds),
        steep_losses(x, loss, at),
    )

    def do(entries: slice, s: np.ndarray, total: np.ndarray) -> None:
        a, w, wide, own = data[entries], _heavy(heavy, entries), s.astype(np.float64), each(entries)
        gradient, bend = own.by_thresholds(a, wide, w)
        total += np.concatenate([[w @ own.value(a, wide)], gradient, bend.ravel()])

    sums = each_piece(x, left, right, np.empty(x.nnz, x.dtype), do, threads, 1 + t + t * t, **at)
    return ThresholdSums(float(sums[0]), sums[1 : 1 + t], sums[1 + t :].reshape(t, t))


def shortened_rows(
    x: Host,
    loss: Any,
    right: np.ndarray,
    rule: RidgeRule,
    left: np.ndarray,
    new: np.ndarray,
    *,
    own: Any = None,
    new_own: Any = None,
    threads: int,
    **at: Any,
) -> RowSolution:
    ridge, bias_ridge = ridges(x, rule)
    u, v = (np.ascontiguousarray(a, x.dtype) for a in (left, new))
    b, d = (
        np.zeros(len(u), x.dtype) if a is None else np.asarray(a, x.dtype) for a in (own, new_own)
    )
    before = _row_costs(x, loss, u, right, b, ridge, bias_ridge, threads, **at)
    share, went, next_bias = np.ones(len(u), x.dtype), v, d
    for _ in range(HALVES):
        after = _row_costs(x, loss, went, right, next_bias, ridge, bias_ridge, threads, **at)
        worse = np.flatnonzero(~(after <= before))
        if not len(worse):
            break
        if went is v:
            went, next_bias = v.copy(), d.copy()
        share[worse] /= 2
        went[worse] = u[worse] + share[worse, None] * (v[worse] - u[worse])
        next_bias[worse] = b[worse] + share[worse] * (d[worse] - b[worse])
    else:
        went[worse], next_bias[worse], after[worse] = u[worse], b[worse], before[worse]
    return RowSolution(went, None if own is None else next_bias, float(after.sum()))


def augmented(
    x: Host,
    loss: Any,
    left: np.ndarray,
    right: np.ndarray,
    noise: np.ndarray,
    *,
    threads: int,
    **at: Any,
) -> Host:
    latent, data, flat, each = (
        np.empty(x.nnz, x.dtype),
        x.matrix.data,
        np.ravel(noise),
        steep_losses(x, loss, at),
    )

    def do(entries: slice, s: np.ndarray, total: np.ndarray) -> None:
        latent[entries] = each(entries).latent(
            data[entries], s.astype(np.float64), ndtr(flat[entries])
        )

    each_piece(x, left, right, latent, do, threads, 1, **at)
    return _with_entries(x, latent, x.entry_weights)


def slice_rows(
    x: Host,
    loss: Any,
    left: np.ndarray,
    right: np.ndarray,
    point: np.ndarray,
    centre: np.ndarray,
    drawn: np.ndarray,
    noise: np.ndarray,
    *,
    threads: int,
    **at: Any,
) -> np.ndarray:
    bound, _ = linearised(x, loss, point, right, threads=threads, **at)
    data, heavy, target, steep = (
        x.matrix.data,
        x.entry_weights,
        bound.matrix.data,
        bound.entry_weights,
    )
    assert steep is not None

    def advantage(codes: np.ndarray) -> np.ndarray:
        each = np.empty(x.nnz)

        def do(entries: slice, s: np.ndarray, total: np.ndarray) -> None:
            wide = s.astype(np.float64)
            with np.errstate(over="ignore"):  # a trial far away is refused
                value = loss.value(data[entries].astype(np.float64), wide) * _heavy(heavy, entries)
                each[entries] = 0.5 * steep[entries] * (target[entries] - wide) ** 2 - value

        each_piece(x, codes, right, np.empty(x.nnz, x.dtype), do, threads, 1, **at)
        return _row_sums(x, each)

    u, way, turn = np.array(left, np.float64), np.asarray(left) - centre, np.asarray(drawn) - centre
    chances = ndtr(noise)
    level, angle = advantage(u) + np.log(chances[:, 0]), 2 * np.pi * chances[:, 1]
    low, high, waiting = angle - 2 * np.pi, angle.copy(), np.ones(len(u), bool)
    for t in range(2, noise.shape[1] + 1):
        trial = centre + way * np.cos(angle)[:, None] + turn * np.sin(angle)[:, None]
        done = waiting & (advantage(trial) > level)
        u[done] = trial[done]
        waiting &= ~done
        if t == noise.shape[1] or not waiting.any():
            break
        below = angle < 0
        low, high = np.where(below, angle, low), np.where(below, high, angle)
        angle = low + (high - low) * chances[:, t]
    return u


def _with_entries(x: Host, data: np.ndarray, weights: np.ndarray | None) -> Host:
    """The same entries with other numbers; what depends on where they stand alone is shared."""
    made = Host(replace(x.matrix, data=data), None, weights, checked=True, turn=x.turn)
    made.kept |= {
        name: kept for name, kept in x.kept.items() if name.startswith(("pattern", "ridges"))
    }
    made.__dict__["counts"] = x.counts
    return made


def _row_sums(x: Host, values: np.ndarray) -> np.ndarray:
    """Numbers of the entries, summed over each row."""
    if not len(x.counts):
        return values[:0]
    return np.add.reduceat(np.append(values, 0.0), x.matrix.indptr[:-1]) * (x.counts > 0)


def _row_costs(
    x: Host,
    loss: Any,
    left: np.ndarray,
    right: np.ndarray,
    bias: np.ndarray,
    ridge: np.ndarray,
    bias_ridge: np.ndarray,
    threads: int,
    **at: Any,
) -> np.ndarray:
    """Loss and penalty of every row, in float64."""
    values, data, heavy = np.empty(x.nnz), x.matrix.data, x.entry_weights

    def do(entries: slice, s: np.ndarray, total: np.ndarray) -> None:
        with np.errstate(over="ignore"):  # a step too long is shortened
            values[entries] = loss.value(
                data[entries].astype(np.float64), s.astype(np.float64)
            ) * _heavy(heavy, entries)

    each_piece(x, left, right, np.empty(x.nnz, x.dtype), do, threads, 1, own=bias, **at)
    rows = _row_sums(x, values)
    square = np.einsum("ij,ij->i", left, left, dtype=np.float64)
    return rows + 0.5 * ridge * square + 0.5 * bias_ridge * np.square(bias, dtype=np.float64)


def _heavy(weights: np.ndarray | None, entries: slice) -> np.ndarray:
    return (
        np.ones(entries.stop - entries.start)
        if weights is None
        else weights[entries].astype(np.float64)
    )
