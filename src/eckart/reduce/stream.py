"""One pass over rows at bounded memory: the covariance where it fits, a sketch where the data are
too wide for it.

The sketch keeps l rows B with B^T B close to the scatter S: incoming rows are appended (with a row
for the shift of the mean) and the l leading right singular directions are kept. Each cut drops a
matrix of norm sigma_{l+1}^2, so with D the sum of those, 0 <= S - B^T B <= D I at all times: a
deterministic bound, checked in the certificate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eckart.certify.certificate import Check
from eckart.engines.protocol import Engine, Moments, Sketch
from eckart.matrix import Dense
from eckart.reduce.covariance import Covariance
from eckart.reduce.plan import STATISTIC_COLUMNS, validate_components
from eckart.reduce.spectral import Spectrum, solve_rows
from eckart.trace import Watcher

SKETCH_LIMIT = 0.02
"""Share of the captured variance that a sketch may have lost before its certificate fails."""


def sketch_size(k: Any, n: int) -> int:
    """Rows kept for k components."""
    width = int(k) if isinstance(k, (int, np.integer)) else 64
    return min(n, max(4 * width, width + 64))


def spectrum_of_sketch(sketch: Sketch, k: Any, engine: Engine) -> tuple[Covariance, Spectrum]:
    """Eigenpairs of the sketch, and a covariance that multiplies through it."""
    validate_components(k, sketch.rows, sketch.n)
    c = Covariance(
        sketch.mean,
        sketch.total / sketch.weight,
        sketch.weight,
        sketch.rows,
        sketch.dtype,
        sketch.centered,
        engine,
        engine.put(Dense(sketch.b)),
        data_centered=True,
    )
    spectrum = replace(solve_rows(c, k), tol=1e-8)
    values = spectrum.values
    share = (
        len(values) * sketch.lost / max(sketch.weight * float(values.sum()), np.finfo(float).tiny)
    )
    notes = {
        "error": Check(
            "sketch error",
            share,
            SKETCH_LIMIT,
            "most that the sketch can hide, as a share of the captured variance",
        ),
        "sketch": f"measured on a sketch of {len(sketch.b)} rows kept from one pass over "
        f"{sketch.rows}",
    }
    return c, replace(spectrum, notes=notes)


def sketch_covariance(
    x: Any, k: Any, centered: bool, engine: Engine, watch: Watcher
) -> tuple[Covariance, Spectrum]:
    """One pass over wide rows that cannot be read twice."""
    n = x.shape[1]
    return spectrum_of_sketch(
        engine.sketch(x, Sketch(n, sketch_size(k, n), x.dtype, centered), watch), k, engine
    )


def running(
    n: int, k: Any, dtype: np.dtype, centered: bool, rng: np.random.Generator
) -> Moments | Sketch:
    """The state of ``partial_fit``: moments where the covariance fits, else a sketch."""
    if n <= STATISTIC_COLUMNS:
        return Moments.empty(n, rng.standard_normal(n))
    return Sketch(n, sketch_size(k, n), dtype, centered)
