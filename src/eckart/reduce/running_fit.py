"""Rows that come block by block and are not kept: a running statistic takes them in, and is solved
once they are all there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.engines.protocol import GapsFound, Moments, Sketch
from eckart.errors import InputError
from eckart.factors import Basis
from eckart.fit import Fit, plan_of
from eckart.io.models.levels import Memory
from eckart.matrix import Matrix, squarable
from eckart.reduce.covariance import Covariance
from eckart.reduce.plan import STATISTIC_COLUMNS, validate_components
from eckart.reduce.solve import SpectralOptions, certify, scaled_in_words, to_basis, with_units
from eckart.reduce.spectral import solve_eigh
from eckart.reduce.standardise import divided_moments, divisors
from eckart.reduce.stream import running, spectrum_of_sketch
from eckart.trace import Watcher


def solve_running(
    parts: Iterable[Matrix],
    options: SpectralOptions,
    weights: np.ndarray | None,
    state: Moments | Sketch | None,
    old: Basis | None,
    *,
    engine: Any,
    rng: np.random.Generator,
    memory: Memory,
    watch: Watcher,
) -> tuple[Fit, np.ndarray | None, Moments | Sketch]:
    """The fit after blocks of rows, what columns were divided by, and the statistic; ``state`` and
    ``old`` (the basis) are those of the rows before."""
    scale, done = None, 0
    columns, dtype = (None, np.dtype(float)) if old is None else (old.columns, old.mean.dtype)
    try:
        with engine.at_work():
            for at, matrix in enumerate(map(squarable, parts)):
                if options.scale and matrix.shape[1] > STATISTIC_COLUMNS:
                    raise InputError(
                        f"X must have at most {STATISTIC_COLUMNS} columns for partial_fit with scale=True, "
                        f"got {matrix.shape[1]}: a sketch of more is kept in the units of the data. Call "
                        "fit on all rows."
                    )
                if state is None:
                    columns, dtype = matrix.columns, matrix.dtype
                    state = running(matrix.shape[1], options.k, matrix.dtype, options.centered, rng)
                    if (kept := memory.last()) is not None:
                        done, state = int(kept["done"]), replace(state, **kept["state"])
                if at < done:
                    continue
                kept_state = {name: value for name, value in vars(state).items() if name != "dtype"}
                memory.offer({"done": at, "state": kept_state})
                placed = engine.put(matrix, weights)
                state = _with(state, placed, engine)
                watch("rows", state.rows, None)
            assert state is not None
            n = len(state.mean)
            if isinstance(state, Sketch):
                c, spectrum = spectrum_of_sketch(state, _at_most(options.k, state.rows, n), engine)
            else:
                seen = state
                if options.scale:
                    spread = np.sqrt(np.maximum(np.diagonal(state.scatter), 0.0) / state.weight)
                    scale = divisors(spread, state.mean, dtype)
                    seen = divided_moments(state, scale)
                c = Covariance.from_moments(engine, seen, options.centered, dtype)
                spectrum = solve_eigh(c, _at_most(options.k, c.rows, n))
            basis = to_basis(c, spectrum, columns)
            certificate = certify(c, basis, spectrum.tol, rng, spectrum.notes)
    except GapsFound as found:
        raise InputError(
            f"X must have complete rows for partial_fit, got NaN at row {found.row}, column "
            f"{found.column}. Call fit on all rows, or impute(X) first."
        ) from None
    plan = {
        "solver": "stream",
        "reason": "partial_fit: running statistic of the rows seen",
        "k": basis.k,
        "tol": spectrum.tol,
        "rows": c.rows,
    }
    fit = Fit(basis, certificate, spectrum.trace, plan | plan_of(engine))
    if scale is None:
        fit = with_units(fit, c.deviations, c.mean)
    else:
        fit.plan["standardised"] = scaled_in_words(scale)
    return fit, scale, state


def _at_most(k: Any, rows: int, n: int) -> Any:
    """In a stream, k components appear as soon as there are rows for them."""
    validate_components(k, None, n)
    return min(int(k), rows) if isinstance(k, (int, np.integer)) and not isinstance(k, bool) else k


def _with(state: Moments | Sketch, placed: Any, engine: Any) -> Moments | Sketch:
    """The running statistic with more rows."""
    if isinstance(state, Sketch):
        return engine.sketch(placed, state)
    return engine.moments(placed, state.probe).merge(state)
