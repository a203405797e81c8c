"""NMF of rows that come in blocks and are not kept: a stream that can be read one time only,
``partial_fit``. The statistic is in ``online``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from eckart.certify.nonnegative import certify_parts
from eckart.engines.protocol import Engine, Placed
from eckart.errors import InputError
from eckart.explain.parts.online import Stream, take
from eckart.explain.parts.options import SOLVERS, NmfOptions, options_of
from eckart.explain.parts.sides import FactorSides, sides_of
from eckart.explain.parts.solve import plan_of, solve
from eckart.factors import LowRank
from eckart.fit import Fit, on_data, sample_weights
from eckart.matrix import Dense, Matrix, row_parts
from eckart.rng import generator
from eckart.trace import StopReason, Trace

FIRST = 50
"""Sweeps on the first block of a stream."""
RANDOM_STARTS = 6
"""Short fits to the first block where chance begins: with four groups of rows one in six ends where
two of them share a part (Itakura and Saito, 60 seeds; least squares one in seventy), and later
steps do not leave such a place."""
BLOCK = 2**22
"""Entries of a block of a stream: enough rows for a statistic that tells something, few enough for
memory."""

T = TypeVar("T")
M = TypeVar("M", bound=Any)


class StreamedParts:
    """partial_fit, and the fits of ``NMF`` that see a block at a time."""

    def partial_fit(self: M, X: Any, y: Any = None, sample_weight: Any = None) -> M:
        """Take in more rows; the rows themselves are not kept (``online``). The certificate is
        about the last block given H."""
        fresh = "_stream" not in vars(self)
        if fresh and "fit_" in vars(self) and self.fit_.plan.get("solver") == "stream":
            raise InputError(
                "this model was loaded from a file, which does not hold its running "
                "statistic; call fit, or start with a new NMF"
            )
        matrix = self._read_rows(X, None)[0] if fresh else self._new_rows(X)
        weights = sample_weights(sample_weight, matrix.shape[0])
        self._take(matrix, weights, None if fresh else self._stream)
        return self

    def _fit_blocks(self: Any, matrix: Matrix, codes: Callable[[np.ndarray], Any]) -> None:
        """A stream that can be read once only: block after block. The codes of each are handed on
        and not kept."""
        stream = None
        for part in row_parts(matrix, max(256, BLOCK // matrix.shape[1])):
            rows = np.asarray(part.values, matrix.dtype)  # type: ignore[union-attr]
            self._take(Dense(rows, None, matrix.columns), None, stream)
            stream = self._stream
            codes(self.fit_.factors.left)

    def _fade(self: Any, stream: Stream) -> float:
        """What a new block leaves of the statistics before it: after t blocks the block s weighs s
        / t."""
        return 1 - 1 / (stream.blocks + 1)

    def _begin(self: Any, x: Placed, options: NmfOptions, rng: np.random.Generator) -> Stream:
        """A stream whose H is that of a short fit to its first block."""
        return Stream.begin(self._short_fit(x, options, rng).right, options.loss)

    def _short_fit(self: Any, x: Placed, options: NmfOptions, rng: np.random.Generator) -> LowRank:
        """W and H of a few sweeps, the best of several such fits where they begin by chance."""
        few = options.k > min(x.shape[0] or 0, x.shape[1])
        init = None if few or self.init == "custom" else self.init
        starts = max(options.n_init, RANDOM_STARTS if few or init == "random" else 1)
        first = replace(
            options, init=init, n_init=starts, solver=SOLVERS[options.loss][0], max_iter=FIRST
        )
        return solve(x, first, engine=self._engine(), rng=rng).fit.factors

    def _step(
        self: Any,
        x: Placed,
        unit: NmfOptions,
        stream: Stream,
        fade: float,
        size: float,
        start: np.ndarray | None = None,
    ) -> tuple[Stream, Any, FactorSides]:
        """The stream after a block of ``size`` rows, the block's W, and its half sweeps; penalties
        on H, in ``unit`` those of one row, are those of all rows, faded alike."""
        engine, p, rows = self._engine(), unit.penalties, fade * stream.weight + size
        options = replace(unit, penalties=p._replace(m1=rows * p.m1, m2=rows * p.m2))
        sides = sides_of(x, options, engine, options.penalties._replace(m1=0.0, m2=0.0))
        start_codes = None if start is None else engine.take(start, x.dtype)
        after, left = take(stream, sides, options, fade, start_codes)
        return after, left, sides

    def _take(self: Any, matrix: Matrix, weights: np.ndarray | None, stream: Stream | None) -> None:
        """One more block of rows."""
        engine, size = self._engine(), float(rows_of(matrix) if weights is None else weights.sum())

        def do(x: Placed) -> tuple[Fit, Stream]:
            if x.kind == "observed":
                raise InputError(
                    "X must have complete rows for partial_fit, got missing entries. Call fit on all "
                    "rows."
                )
            before = stream or self._begin(
                x, options_of(self, x, size), generator(self.random_state)
            )
            after, left, sides = self._step(
                x, options_of(self, x, 1.0), before, self._fade(before), size
            )
            measured = sides.measured(left, engine.take(after.right, x.dtype))
            note = (
                f"after {after.blocks} blocks of rows: measured on the last block, whose W was "
                "solved given H"
            )
            trace = Trace("objective", reason=StopReason.DIRECT)
            trace.add(measured.objective)
            certificate = certify_parts(
                measured._replace(residuals=measured.residuals[:1]), trace, (note,)
            )
            old = stream is not None and "fit_" in vars(self)
            columns = self.fit_.factors.columns if old else x.columns
            factors = LowRank(
                np.ascontiguousarray(engine.get(left)), after.right, rows=x.rows, columns=columns
            )
            plan = plan_of(engine, replace(options_of(self, x), solver="stream"), after.blocks)
            return Fit(factors, certificate, trace, plan), after

        self.fit_, self._stream = placed_and(engine, matrix, do, weights)


def placed_and(
    engine: Engine,
    matrix: Matrix,
    do: Callable[[Placed], T],
    weights: np.ndarray | None = None,
    entry_weights: np.ndarray | None = None,
) -> T:
    """``do`` of the placed matrix. Entries that have weights are observed ones, so NaN needs no
    second try."""
    with engine.at_work():
        if entry_weights is not None:
            return do(engine.put(matrix, weights, entry_weights))
        return on_data(engine, matrix, do, weights)


def read_once(matrix: Matrix) -> bool:
    """Whether the rows can be read one time only."""
    return isinstance(matrix, Dense) and not matrix.in_memory and not matrix.stream.rereadable


def rows_of(matrix: Matrix) -> int:
    """How many rows there are, where that is known."""
    if matrix.shape[0] is None:
        raise InputError(
            "the number of rows must be known, got a stream of unknown length. Call "
            "partial_fit with each batch."
        )
    return matrix.shape[0]
