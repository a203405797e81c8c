"""One pass over rows at bounded memory: the covariance where it fits, a sketch where the data are too wide for it.

The sketch keeps l rows B with B^T B close to the scatter S: incoming rows are appended (with a row for the shift of the mean) and
the l leading right singular directions are kept. Each cut drops a matrix of norm sigma_{l+1}^2, so with D the sum of those,
0 <= S - B^T B <= D I at all times: a deterministic bound, checked in the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.certify.certificate import Check
from eckart.engines.cpu.row_blocks import jobs
from eckart.engines.protocol import Engine, Moments, refuse_bad
from eckart.matrix import Counts, Dense
from eckart.reduce.covariance import Covariance
from eckart.reduce.plan import STATISTIC_COLUMNS, validate_components
from eckart.reduce.spectral import Spectrum, pick
from eckart.scheduler import single_threaded_blas
from eckart.trace import Trace, Watcher

SKETCH_LIMIT = 0.02
"""Share of the captured variance that a sketch may have lost before its certificate fails."""


@dataclass
class Sketch:
    """l rows whose scatter stands for that of all rows seen."""

    n: int
    size: int
    dtype: np.dtype
    centered: bool
    rows: int = 0
    weight: float = 0.0
    total: float = 0.0
    lost: float = 0.0
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))
    b: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if not len(self.mean):
            self.mean, self.b = np.zeros(self.n), np.zeros((0, self.n), self.dtype)

    def add(self, block: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Take in a block of rows."""
        step = max(self.size, 64)
        for start in range(0, len(block), step):
            self._add(block[start : start + step], None if weights is None else weights[start : start + step])

    def _add(self, block: np.ndarray, weights: np.ndarray | None) -> None:
        w = np.ones(len(block)) if weights is None else weights
        weight = float(w.sum())
        self.rows += len(block)
        if weight <= 0:
            return
        stack = [self.b]
        mean = (w @ block) / weight if self.centered else np.zeros(self.n)
        if not np.isfinite(mean).all():
            refuse_bad(block, self.rows - len(block))
        rows = (block - mean) * np.sqrt(w)[:, None]
        stack.append(rows.astype(self.dtype))
        self.total += float(np.vdot(rows, rows))
        if self.centered and self.weight > 0:
            delta = mean - self.mean
            factor = self.weight * weight / (self.weight + weight)
            stack.append((np.sqrt(factor) * delta)[None].astype(self.dtype))
            self.total += factor * float(delta @ delta)
        self.weight += weight
        if self.centered:
            self.mean = self.mean + (mean - self.mean) * (weight / self.weight)
        self._compress(np.concatenate(stack))

    def _compress(self, rows: np.ndarray) -> None:
        if len(rows) <= self.size:
            self.b = rows
            return
        with single_threaded_blas():
            values, u = np.linalg.eigh((rows @ rows.T).astype(np.float64))
            values, u = values[::-1], u[:, ::-1]
            self.lost += max(float(values[self.size]), 0.0)
            self.b = u[:, : self.size].T.astype(self.dtype) @ rows


def sketch_size(k: Any, n: int) -> int:
    """Rows kept for k components."""
    width = int(k) if isinstance(k, (int, np.integer)) else 64
    return min(n, max(4 * width, width + 64))


def spectrum_of_sketch(sketch: Sketch, k: Any, engine: Engine) -> tuple[Covariance, Spectrum]:
    """Eigenpairs of the sketch, and a covariance that multiplies through it."""
    validate_components(k, sketch.rows, sketch.n)
    with single_threaded_blas():
        _, s, vt = np.linalg.svd(sketch.b.astype(np.float64), full_matrices=False)
    values = s**2 / sketch.weight
    total = sketch.total / sketch.weight
    kept = min(pick(k, values, total, sketch.weight, sketch.rows, sketch.n), len(values))
    c = Covariance(
        sketch.mean,
        total,
        sketch.weight,
        sketch.rows,
        sketch.dtype,
        sketch.centered,
        engine,
        Dense(sketch.b),
        data_centered=True,
    )
    share = kept * sketch.lost / max(sketch.weight * float(values[:kept].sum()), np.finfo(float).tiny)
    notes = {
        "error": Check(
            "sketch error", share, SKETCH_LIMIT, "most that the sketch can hide, as a share of the captured variance"
        ),
        "sketch": f"measured on a sketch of {len(sketch.b)} rows kept from one pass over {sketch.rows}",
    }
    return c, Spectrum(values[:kept], vt[:kept], Trace("none"), 1e-8, None, notes)


def sketch_covariance(
    x: Dense | Counts,
    k: Any,
    centered: bool,
    weights: np.ndarray | None,
    engine: Engine,
    rng: np.random.Generator,
    watch: Watcher,
) -> tuple[Covariance, Spectrum]:
    """One pass over wide rows that cannot be read twice."""
    sketch = Sketch(x.shape[1], sketch_size(k, x.shape[1]), x.dtype, centered)
    for start, rows, fetch in jobs(x):
        sketch.add(fetch({}), None if weights is None else weights[start : start + rows])
        watch("reading rows", start + rows, x.shape[0])
    return spectrum_of_sketch(sketch, k, engine)


def running(n: int, k: Any, dtype: np.dtype, centered: bool, rng: np.random.Generator) -> Moments | Sketch:
    """The state of ``partial_fit``: moments where the covariance fits, else a sketch."""
    if n <= STATISTIC_COLUMNS:
        return Moments.empty(n, rng.standard_normal(n))
    return Sketch(n, sketch_size(k, n), dtype, centered)
