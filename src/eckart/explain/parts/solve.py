"""One fit of A ~ W H, from the matrix to a Fit: start, sweeps, clean zeros, certificate. Several starts: the best of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from eckart.certify.nonnegative import certify_parts, with_trace
from eckart.engines.protocol import Engine, GapsFound, KlRule
from eckart.errors import InputError
from eckart.explain.parts.loop import alternate, projected
from eckart.explain.parts.options import Options
from eckart.explain.parts.sides import KlSides, Penalties, SquareSides, sides_of
from eckart.explain.parts.start import Start, begin, compressed, sketch, worthwhile
from eckart.factors import LowRank
from eckart.fit import Fit
from eckart.matrix import Counts, Dense, Matrix, Observed, row_parts
from eckart.scheduler import single_threaded_blas
from eckart.trace import StopReason, Trace, Watcher, silent

CLEAN = 1e-8
"""Shares below this become zeros at the end of a fit under the divergence, whose steps approach zero and never reach it."""


class Ends(NamedTuple):
    """Where the starts ended: the best Fit, the objective of each, H^T and W of each."""

    fit: Fit
    values: list[float]
    rights: list[np.ndarray]
    lefts: list[np.ndarray]


def door(matrix: Matrix) -> Matrix:
    """The matrix, as Observed where an array holds NaN."""
    if isinstance(matrix, Dense) and matrix.in_memory and matrix.values.dtype.kind == "f":
        values = matrix.array
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isnan(values.sum()) and np.isnan(values).any():
                if np.isinf(values).any():
                    i, j = np.argwhere(np.isinf(values))[0]
                    raise InputError(f"X contains inf at row {i}, column {j}, wanted finite numbers >= 0")
                return Observed.from_nan(values, matrix.rows, matrix.columns)
    return matrix


def solve(
    matrix: Matrix,
    options: Options,
    *,
    engine: Engine,
    rng: np.random.Generator,
    weights: np.ndarray | None = None,
    entry_weights: np.ndarray | None = None,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    watch: Watcher = silent,
) -> Ends:
    """Fit ``options.n_init`` times, the first from ``options.init``, the others from random starts."""
    plain = options.solver in ("cd", "mu")
    with single_threaded_blas():
        try:
            sides = sides_of(
                matrix, options.loss, options.penalties, engine, weights, entry_weights, 1 if plain else None
            )
        except GapsFound as found:
            raise InputError(
                f"X contains NaN at row {found.row}, column {found.column} of a stream, wanted complete blocks; read it into memory to fit on what was observed"
            ) from None
        fits, lefts, rights = [], [], []
        for run in range(options.n_init):
            init = options.init if run == 0 else "random"
            start = Start(*given) if given and run == 0 else None
            start = start or begin(matrix, options.k, init, sides.totals, engine, rng, weights, options.loss)
            fit = _one(matrix, sides, start, options, engine, rng, watch)
            fits.append(fit)
            lefts.append(fit.factors.left)
            rights.append(fit.factors.right)
            if fit.trace.reason is StopReason.INTERRUPTED:
                break
    values = [float(fit.certificate["objective"]) for fit in fits]
    return Ends(fits[int(np.argmin(values))], values, rights, lefts)


def _one(
    matrix: Matrix, sides: Any, start: Start, options: Options, engine: Engine, rng: np.random.Generator, watch: Watcher
) -> Fit:
    left, right, extra = start.left, start.right, 0
    how: dict[str, Any] = {"tol": options.tol, "max_iter": options.max_iter, "watch": watch}
    if options.solver == "als":
        assert isinstance(sides, SquareSides)
        state, trace = projected(sides, left, right, **how)
    else:
        if options.solver == "hals" and isinstance(sides, SquareSides) and worthwhile(matrix, options.k):
            if start.sketch is None:
                basis, images = sketch(sides.x, options.k, engine, rng, sides.weights)
                start = start._replace(sketch=(images, basis))
            left, right, extra = compressed(start, sides.totals, sides.penalties, engine, sides.weights, options.tol)
        if isinstance(sides, KlSides):
            left, right = sides.wide(left), sides.wide(right)
        state, trace = alternate(
            sides, left, right, fast=options.solver == "mm", leap=options.solver in ("hals", "mm"), **how
        )
    left, right = state.left, state.right
    if isinstance(sides, KlSides):
        left, right = _cleaned(sides, left[:, : options.k], right[:, : options.k])
        sides.real = None
    if (
        options.solver in ("hals", "mm") and trace.reason is not StopReason.INTERRUPTED
    ):  # rows to their optimum: F can only fall
        left = encode(matrix, right, options, engine, left, getattr(sides, "entry_weights", None))
    certificate = certify_parts(sides, left, right, trace, options.loss, _notes(options.penalties))
    if options.solver != "als":
        trace.add(float(certificate["objective"]))
        certificate = with_trace(certificate, sides, trace, left.dtype)
    plan: dict[str, Any] = {
        "engine": engine.name,
        "solver": options.solver,
        "loss": options.loss,
        "sweeps": state.sweeps,
        "tol": options.tol,
    }
    if extra:
        plan["sketch"] = (
            f"{extra} sweeps on a sketch of {start.sketch[0].shape[1]} columns first: they cost little there"  # type: ignore[index]
        )
    return Fit(LowRank(left, right, rows=matrix.rows, columns=matrix.columns), certificate, trace, plan)


def _notes(p: Penalties) -> tuple[str, ...]:
    if bool(p.l1 or p.l2) != bool(p.m1 or p.m2):
        free = "H" if p.l1 or p.l2 else "W"
        return (
            f"{free} is not penalised: it can grow and let the penalised factor shrink, so the penalty can be made as small as one likes",
        )
    return ()


def _cleaned(sides: KlSides, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares that only approach zero, set to zero."""
    out = []
    for u, other in ((left, right), (right, left)):
        mass = other.sum(axis=0, dtype=np.float64)
        share = u * mass.astype(u.dtype)
        total = share.sum(axis=1, keepdims=True)
        out.append(np.where(share > CLEAN * total, u, 0).astype(u.dtype))
    return out[0], out[1]


def encode(
    matrix: Matrix,
    right: np.ndarray,
    options: Options,
    engine: Engine,
    start: np.ndarray | None = None,
    entry_weights: np.ndarray | None = None,
) -> np.ndarray:
    """W for given H: every row's convex problem, from the same start for every row to rounding, or from ``start`` to what a fit needs."""
    k, dtype = right.shape[1], matrix.dtype
    h = np.ascontiguousarray(right, dtype)
    l1, l2 = options.penalties.of_left()
    fine = float(np.finfo(dtype).eps)
    rows = matrix.shape[0]
    if rows is None:
        assert isinstance(matrix, Dense)
        blocks = (Dense(np.asarray(b, dtype)) for b in matrix.stream.blocks(65536))
        return np.concatenate([encode(block, right, options, engine) for block in blocks])
    with single_threaded_blas():
        if options.loss == "kl" and isinstance(matrix, Dense):  # entries > 0 by rows: each row then stops on its own
            done: list[np.ndarray] = []
            for part in row_parts(matrix, max(1, 2**21 // matrix.shape[1])):
                seen = Counts.from_scipy(sparse.csr_array(np.asarray(part.values, dtype)))  # type: ignore[union-attr]
                first = sum(map(len, done))
                own = None if start is None else start[first : first + seen.shape[0]]
                done.append(encode(seen, right, options, engine, own))
            return np.concatenate(done)
        if options.loss == "kl":
            rule, steps = KlRule(l1, l2, False, 1e-4, False), 100
            if start is None:
                start = engine.kl_rows(matrix, h, _even(matrix, h, engine), rule, steps=10).factor
                rule, steps = rule._replace(fast=True, tol=4 * fine), 2000
            found = engine.kl_rows(matrix, h, start, rule, steps=steps, entry_weights=entry_weights).factor
            share = found * h.sum(axis=0, dtype=np.float64).astype(dtype)
            return np.where(share > CLEAN * share.sum(axis=1, keepdims=True), found, 0).astype(dtype)
        how: dict[str, Any] = {"sweeps": 2000, "shrink": fine**2} if start is None else {"sweeps": 100, "shrink": fine}
        start = np.zeros((rows, k), dtype) if start is None else start
        if isinstance(matrix, Observed):
            return engine.hals_seen(matrix, h, start, l1=l1, l2=l2, entry_weights=entry_weights, **how).factor
        gram = h.T.astype(np.float64) @ h + l2 * np.eye(k)
        return engine.hals_rows(gram, engine.times(matrix, h, None) - dtype.type(l1), start, **how).factor


def _even(matrix: Matrix, h: np.ndarray, engine: Engine) -> np.ndarray:
    """Codes that give every component the same share of every row."""
    mass = h.sum(axis=0, dtype=np.float64)
    each = np.where(mass > 0, 1 / np.where(mass > 0, mass, 1.0), 0.0) / len(mass)
    return (_row_sums(matrix, engine)[:, None] * each).astype(matrix.dtype)


def _row_sums(matrix: Matrix, engine: Engine) -> np.ndarray:
    whole = (
        Counts(matrix.indptr, matrix.indices, matrix.data, matrix.n_columns) if isinstance(matrix, Observed) else matrix
    )
    return engine.times(whole, np.ones((matrix.shape[1], 1)), None)[:, 0].astype(np.float64)


def traced(objective: float) -> Trace:
    """The trace of something that took one step."""
    trace = Trace("objective", reason=StopReason.DIRECT)
    trace.add(objective)
    return trace
