"""Non-negative factorization by mini-batches, under scikit-learn's name, so that changing the
import is enough.

The rows are passed again and again in batches. For a batch the codes W are solved given H, and H by
the statistics of the batches so far (``online``), which fade by g = forget_factor^(rows of the
batch / rows) with each batch: by forget_factor in a pass.

Reference: Lefevre, Bach and Fevotte, "Online algorithms for nonnegative matrix factorization with
the Itakura-Saito divergence" (2011).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.nonnegative import certify_parts
from eckart.engines.protocol import Placed
from eckart.errors import InputError
from eckart.explain.parts.nmf import NMF, nonnegative_start
from eckart.explain.parts.nmf_streams import rows_of
from eckart.explain.parts.online import Stream, known
from eckart.explain.parts.options import NmfOptions, options_of
from eckart.explain.parts.sides import sides_of
from eckart.explain.parts.solve import encode, plan_of
from eckart.explain.parts.start import too_many
from eckart.factors import LowRank
from eckart.fit import Fit, fitted, on_data, sample_weights
from eckart.io.models.checkpoint import Memory, kept_trace, resumed_trace, resuming
from eckart.matrix import Matrix, Observed, row_parts, row_slice
from eckart.matrix_blocks import stacked
from eckart.parameters import check, flag, number, optional, param, whole
from eckart.trace import StopReason, Trace, Watcher, progress

FIRST_ROWS = 1024
"""Rows to which the start is fitted: enough for parts to be seen in, few enough to be quick."""
SETTLED = 1e-6
"""Steps of the codes, as shares of them, at which they count as solved in the end: the objective is
then known to about five digits."""


@dataclass(eq=False, repr=False)
class MiniBatchNMF(NMF):
    """Non-negative factors from batches of rows.

    Parameters
    ----------
    n_components, init, beta_loss, alpha_W, alpha_H, l1_ratio
        As in ``NMF``.
    batch_size : rows of a batch.
    forget_factor : what a pass over the data leaves of the statistics before it; 1 forgets nothing,
        0 knows the last batch alone.
    tol : change of H by a batch, as a share of its size; the fit stops when no batch of a whole
        pass changed it more. 0 switches this rule off.
    max_no_improvement : None or int
        The fit stops after so many batches in which the moving average of the objective has not
        fallen at the pace of a share ``tol`` in a pass.
    max_iter : most passes over the data.
    fresh_restarts, fresh_restarts_max_iter, transform_max_iter
        Accepted for compatibility: in the end the codes of all rows are solved anew, to rounding.
    checkpoint : file in which the state is kept every few seconds; the same fit resumes from it
        after a crash, with the same bits.

    Attributes
    ----------
    components_ (H), reconstruction_err_, n_iter_, n_components_, n_features_in_,
    feature_names_in_ : as in scikit-learn.
    n_steps_ : batches so far.
    fit_, certificate_ : all of the fit; the certificate measures W given H on all rows (H is that
        of a stochastic method: its residual is a fact, no check).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a = rng.gamma(0.5, 1.0, (300, 3)) @ rng.gamma(0.5, 1.0, (3, 10))
    >>> model = MiniBatchNMF(3, batch_size=50, random_state=0).fit(a)
    >>> bool(model.reconstruction_err_ < 0.05 * np.linalg.norm(a)), model.certificate_.holds
    (True, True)
    """

    _: KW_ONLY
    tol: float | None = param(1e-4, optional(number(0)))
    batch_size: int = param(1024, whole(1))
    max_no_improvement: int | None = param(10, optional(whole(1)))
    forget_factor: float = param(0.7, number(0, 1))
    fresh_restarts: bool = param(False, flag())
    fresh_restarts_max_iter: int = param(30, whole(1))
    transform_max_iter: int | None = param(None, optional(whole(1)))

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        W: Any = None,
        H: Any = None,
        weights: Any = None,
    ) -> MiniBatchNMF:
        """Start over with the rows of X, ``batch_size`` at a time; ``partial_fit`` goes on from
        there."""
        if weights is not None:
            raise InputError(
                "MiniBatchNMF takes weights of rows (sample_weight), got weights of entries. NMF "
                "takes both."
            )
        check(self)
        matrix = self._complete(self._read_rows(X, None)[0])
        rows = sample_weights(sample_weight, rows_of(matrix))
        engine = self._engine()

        def do(x: Placed) -> tuple[Fit, Stream]:
            if x.kind == "observed":
                self._complete(None)
            options = options_of(self, x, None if rows is None else float(rows.sum()), H)
            least = min(x.shape[0] or 0, x.shape[1])
            if str(self.init).startswith("nndsvd") and options.k > least:
                raise too_many(str(self.init), options.k, x.shape[0] or 0, x.shape[1])
            given = self._given(W, H, x, options)
            start = None if given is None else np.concatenate([part.ravel() for part in given])
            with (
                progress(bool(self.verbose)) as watch,
                resuming(self, matrix, rows, y=start) as (memory, rng),
            ):
                kept = memory.last()
                stream = (
                    self._first(matrix, rows, options, rng, given)
                    if kept is None
                    else Stream(**kept["stream"])
                )
                # the same for all entries: codes that tell nothing yet, of the size of the data
                count = matrix.shape[0] or 0
                even = float(
                    np.sqrt(engine.totals(x).total / max(count * x.shape[1] * options.k, 1))
                )
                codes = np.full((count, options.k), even, x.dtype) if given is None else given[0]
                unit = options_of(self, x, 1.0, H)
                stream, codes, trace = self._passes(
                    matrix, rows, unit, stream, codes, memory, watch
                )
            memory.end(trace)
            right = engine.take(stream.right, x.dtype)
            left = encode(x, right, options, engine, engine.take(codes, x.dtype), SETTLED)
            measured = sides_of(x, options, engine).measured(left, right)
            notes = (f"after {stream.blocks} batches: W was solved given H on all rows",)
            certificate = self._evidence(measured, trace, notes)
            factors = LowRank(
                np.ascontiguousarray(engine.get(left)), stream.right, rows=x.rows, columns=x.columns
            )
            plan = plan_of(
                engine,
                replace(options, solver="stream"),
                -(-stream.blocks // self._steps(x.shape[0] or 0)),
            ) | {"steps": stream.blocks}
            return Fit(factors, certificate, trace, plan), stream

        with engine.at_work():
            self.fit_, self._stream = on_data(engine, matrix, do, rows)
        self.__dict__.pop("_consensus", None)
        self._say_if_early(self.fit_)
        return self

    def _evidence(self, measured: Any, trace: Trace, notes: tuple[str, ...]) -> Certificate:
        """W given H on all rows; H is that of a stochastic method, whose average may rise and whose
        residual is a fact."""
        end = Trace("objective", reason=trace.reason)
        end.add(measured.objective)
        found = certify_parts(measured._replace(residuals=measured.residuals[:1]), end, notes)
        return replace(found, facts=found.facts | {"residual of H": measured.residuals[1]})

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, W: Any = None, H: Any = None
    ) -> MiniBatchNMF:
        """One more batch. With ``init="custom"`` the first one starts from ``H``; the codes W are
        solved in any case."""
        self._start = H
        try:
            super().partial_fit(X, sample_weight=sample_weight)
        finally:
            del self._start
        return self

    def _begin(self, x: Placed, options: NmfOptions, rng: np.random.Generator) -> Stream:
        start = vars(self).get("_start")
        if self.init != "custom" or start is None:
            return super()._begin(x, options, rng)
        options = options_of(self, x, start=start)
        found = nonnegative_start("H", start, (options.k, x.shape[1]))
        return Stream.begin(found.T.astype(x.dtype, order="C"), options.loss)

    def _first(
        self,
        matrix: Matrix,
        rows: np.ndarray | None,
        options: NmfOptions,
        rng: np.random.Generator,
        given: tuple[np.ndarray, np.ndarray] | None,
    ) -> Stream:
        """The start: H of a short fit to the first rows, or the one given, with the statistics of
        these rows in place of all.

        Without them the first batch would be all that H knows: under the divergences, whose steps
        multiply, what that batch does not use dies out, and rows of other kinds find their parts
        gone.
        """
        engine, part = (
            self._engine(),
            next(_even_parts(matrix, max(int(self.batch_size), FIRST_ROWS))),
        )
        some = part.shape[0] or 0
        heavy = None if rows is None else rows[:some]
        x = engine.put(part, heavy)
        if given is None:
            found = self._short_fit(x, options, rng)
            given = found.left, found.right
        sides = sides_of(x, options, engine, options.penalties._replace(m1=0.0, m2=0.0))
        count, mass = (
            (matrix.shape[0] or 0, some)
            if rows is None
            else (float(rows.sum()), float(rows[:some].sum()))
        )
        return known(sides, given[0][:some], given[1], count / mass if mass > 0 else 1.0)

    def _steps(self, rows: int) -> int:
        """Batches of a pass."""
        return max(-(-rows // int(self.batch_size)), 1)

    def _passes(
        self,
        matrix: Matrix,
        rows: np.ndarray | None,
        unit: NmfOptions,
        stream: Stream,
        codes: np.ndarray,
        memory: Memory,
        watch: Watcher,
    ) -> tuple[Stream, np.ndarray, Trace]:
        """Batch after batch until H stands still or the objective of a row no longer falls;
        ``codes`` are those of all rows, before and after."""
        count, engine = matrix.shape[0] or 0, self._engine()
        size, steps = min(int(self.batch_size), max(count, 1)), self._steps(count)
        fade = float(self.forget_factor) ** (size / max(count, 1))
        trace, least, idle, still = Trace("objective of a row"), np.inf, 0, 0
        if (kept := memory.last()) is not None:
            trace, least, idle = (
                resumed_trace(trace.quantity, kept["trace"]),
                float(kept["least"]),
                int(kept["idle"]),
            )
            codes, still = kept["codes"], int(kept.get("still", 0))
        trace.reason = StopReason.MAX_ITER
        try:
            for done, part in self._batches(matrix, size, stream.blocks):
                kept_state = {
                    "stream": vars(stream),
                    "codes": codes,
                    "trace": kept_trace(trace),
                    "least": least,
                    "idle": idle,
                    "still": still,
                }
                memory.offer(kept_state)
                at = slice(done % steps * size, (done % steps + 1) * size)
                heavy = None if rows is None else rows[at]
                mass, before = (
                    float(part.shape[0] or 0) if heavy is None else float(heavy.sum()),
                    stream.right,
                )
                placed = engine.put(part, heavy)
                stream, left, sides = self._step(placed, unit, stream, fade, mass, codes[at])
                codes[at] = engine.get(left)
                # a moving average over about a pass: single batches differ
                right = engine.take(stream.right, placed.dtype)
                found = sides.rows(left, right, still=True)
                share, value = (
                    min(1.0, size / (count + 1)),
                    sides.data_term(found, left, right) + sides.cost_left(left),
                )
                value /= max(mass, 1e-300)
                trace.add(
                    value if not len(trace) else (1 - share) * trace.values[-1] + share * value
                )
                watch("batches", done + 1, int(self.max_iter) * steps)
                moved = float(np.linalg.norm(stream.right - before)) / max(
                    float(np.linalg.norm(stream.right)), 1e-300
                )
                # before every row was seen once an average says more of the batches than of H
                if done < steps:
                    continue
                worth = 1.0 - share * float(
                    self.tol or 0.0
                )  # what would be less than a share tol in a pass is no improvement
                idle = 0 if trace.values[-1] < worth * least else idle + 1
                least = min(least, trace.values[-1])
                tired = self.max_no_improvement is not None and idle >= self.max_no_improvement
                still = (
                    still + 1 if self.tol and moved <= self.tol else 0
                )  # one batch may be of rows that H knows, and the next of others
                if still >= steps or tired:
                    trace.reason = StopReason.CONVERGED
                    break
        except KeyboardInterrupt:
            if not len(trace):
                raise
            trace.reason = StopReason.INTERRUPTED
        return stream, codes, trace

    def _batches(self, matrix: Matrix, size: int, done: int) -> Iterator[tuple[int, Matrix]]:
        """Batches of all passes, with their numbers, from the one of number ``done`` on."""
        number = 0
        for _ in range(int(self.max_iter)):
            for part in _even_parts(matrix, size):
                if number >= done:
                    yield number, part
                number += 1

    def _fade(self, stream: Stream) -> float:
        """``partial_fit``: every block is as good as a pass."""
        return float(self.forget_factor) if stream.blocks else 0.0

    @fitted
    def n_steps_(self) -> int:
        """Batches so far."""
        plan = self._fitted("n_steps_").plan
        return int(plan.get("steps", plan["sweeps"]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags

    def _complete(self, matrix: Matrix | None) -> Matrix:
        if matrix is None or isinstance(matrix, Observed):
            raise InputError(
                "X must have complete rows for MiniBatchNMF, got missing entries. Use NMF, which "
                "takes missing entries."
            )
        return matrix


def _even_parts(matrix: Matrix, rows: int) -> Iterator[Matrix]:
    """Parts as those of ``row_parts``, each of exactly ``rows`` rows but the last, also where rows
    come in other pieces (partitions, shards): the codes of a batch stand at its rows."""
    pieces: list[Matrix] = []
    waiting = 0
    for part in row_parts(matrix, rows):
        size = part.shape[0] or 0
        a = 0
        while a < size:
            b = min(size, a + rows - waiting)
            pieces.append(row_slice(part, a, b))
            waiting += b - a
            a = b
            if waiting == rows:
                yield stacked(pieces)
                waiting, pieces = 0, []
    if waiting:
        yield stacked(pieces)
