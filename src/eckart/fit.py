"""Fit, the only thing a fitted estimator stores; and the Estimator shell, where scikit-learn's
manners live once."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from eckart.arguments import hold
from eckart.bases import BaseEstimator
from eckart.certify.certificate import Certificate
from eckart.engines import available_memory, engine_named
from eckart.engines.protocol import GapsFound
from eckart.errors import InputError, InputTypeError, invalid
from eckart.io.dask.parts import BY_ROWS, answer, asked
from eckart.io.models.header_checks import kept_trace, resumed_trace
from eckart.io.read import read
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.matrix_blocks import gaps_of_file
from eckart.notebook import answer_of, folded, table, verdict
from eckart.parameters import either, flag, optional, param, seed, whole
from eckart.scheduler import MOST_THREADS
from eckart.trace import StopReason, Trace, is_preliminary

T = TypeVar("T")
GAPS_HELD = 3.0
"""Copies of the known entries while a file with gaps is taken in: as they are found, joined, and
what a solver makes of them. Where there is no room for them, the file is read in every pass."""


class _Fitted(property):
    """A fitted attribute. Its arrays are read-only views, and what has no setter cannot be set:
    nothing is changed silently without effect.

    >>> from eckart import PCA
    >>> model = PCA(1).fit([[1.0, 2.0], [3.0, 5.0]])
    >>> model.components_[0] = 0.0
    Traceback (most recent call last):
    ...
    ValueError: assignment destination is read-only
    >>> model.n_iter_ = 2
    Traceback (most recent call last):
    ...
    AttributeError: n_iter_ of PCA is found by fit and cannot be set
    """

    def __get__(self, model: Any, owner: Any = None) -> Any:
        value = super().__get__(model, owner)
        if not isinstance(value, np.ndarray):
            return value
        if (back := vars(model).get("_answers_in")) is not None and value.dtype.kind in "fiub":
            return back(value)  # a copy in the library of the data
        if value.flags.writeable:
            value = value.view()
            value.flags.writeable = False
        return value

    def __set__(self, model: Any, value: Any) -> None:
        if self.fset is None:
            name = getattr(self.fget, "__name__", "this attribute")
            raise AttributeError(
                f"{name} of {type(model).__name__} is found by fit and cannot be set"
            )
        super().__set__(model, value)


if TYPE_CHECKING:
    from builtins import (
        # type checkers know the type of what a property returns, not that of a subclass
        property as fitted,
    )
else:
    fitted = _Fitted


@dataclass(frozen=True, eq=False)
class Fit:
    """Factors, their certificate, the trace of the loop that found them, and the plan with the
    reason of every choice."""

    factors: Any  # Basis or LowRank, each with its columns and n
    certificate: Certificate
    trace: Trace
    plan: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name:<10} {value}" for name, value in self.plan.items()]
        return "\n".join(
            [
                *lines,
                f"stopped    {self.trace.reason.value} ({len(self.trace)} iterations)",
                str(self.certificate),
            ]
        )

    def _repr_html_(self) -> str:
        chosen = table(
            ("choice", "value"), [(name, str(value)) for name, value in self.plan.items()]
        )
        return f"<div>{self.certificate._repr_html_()}{self.trace._repr_html_()}<details><summary>plan</summary>{chosen}</details></div>"


def kept_fit(fit: Fit) -> dict[str, Any]:
    """A finished fit as the state of a loop over several; labels are left out, since the data have
    them."""
    arrays, values = fit.factors.to_state()
    return {
        "arrays": arrays,
        "values": values,
        "certificate": fit.certificate.to_dict(),
        "trace": kept_trace(fit.trace) | {"quantity": fit.trace.quantity},
        "plan": fit.plan,
    }


def resumed_fit(kept: Any, kind: Any, rows: np.ndarray | None, columns: np.ndarray | None) -> Fit:
    """The inverse of ``kept_fit``, with factors of this kind."""
    factors = kind.from_state(kept["arrays"], kept["values"], rows, columns)
    trace = resumed_trace(kept["trace"]["quantity"], kept["trace"])
    return Fit(factors, Certificate.from_dict(kept["certificate"]), trace, kept["plan"])


def plan_of(engine: Any, reason: str | None = None) -> dict[str, Any]:
    """The engine's entries in the plan of a fit: its name, and why it was taken (kept by
    ``engines.choose``, or as given)."""
    return {
        "engine": engine.name,
        "engine_reason": reason or getattr(engine, "reason", "asked for"),
    }


def on_data(
    engine: Any, matrix: Matrix, do: Callable[[Any], T], weights: np.ndarray | None = None
) -> T:
    """``do`` of the placed matrix; where a pass meets NaN in rows that were taken for complete, of
    the same rows with these entries unknown.

    This is the one place that decides what NaN means: arrays, frames, files and row blocks with NaN
    have the same answer.
    """
    try:
        return do(engine.put(matrix, weights))
    except GapsFound as found:
        return do(engine.put(with_gaps(matrix, found), weights))


def with_gaps(x: Matrix, found: GapsFound) -> Observed:
    """Dense rows with NaN as a partly observed matrix."""
    assert isinstance(x, Dense)
    if hasattr(x.values, "with_gaps"):
        return x.values.with_gaps(x.rows, x.columns)
    if isinstance(x.values, np.memmap):
        free = available_memory()
        if x.values.size * (x.dtype.itemsize + 4) * GAPS_HELD > free:
            return gaps_of_file(x, free / (2 * GAPS_HELD))
    if x.in_memory:
        return Observed.from_nan(np.asarray(x.values), x.rows, x.columns)
    if not x.stream.rereadable:
        raise InputError(
            f"X contains NaN at row {found.row} of an iterator that can be read once "
            "only; pass a file, an array or a list of blocks"
        )
    blocks = [Observed.from_nan(np.asarray(b, x.dtype)) for b in x.stream.blocks(65536)]
    ends = np.cumsum([0] + [b.nnz for b in blocks])
    indptr = np.concatenate([[0]] + [b.indptr[1:] + e for b, e in zip(blocks, ends)])
    indices, data = (
        np.concatenate([getattr(b, name) for b in blocks]) for name in ("indices", "data")
    )
    return Observed(indptr, indices, data, x.shape[1], x.rows, x.columns)


HEAVIEST = 1e100
"""The sum of row weights from which products of weights and squares could overflow."""


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator):
    """Parameters are fields with rules (see ``parameters``), so constructors assign and do no more;
    here: those that all models share, fitted state, feature names, new rows, saving."""

    _: KW_ONLY
    random_state: Any = param(None, seed())
    engine: Any = param("auto")
    n_threads: int | None = param(None, optional(whole(1, MOST_THREADS)))
    verbose: Any = param(False, either(flag(), whole(0), wanted="True, False or an int >= 0"))

    fit_: Fit = field(init=False)

    def __init_subclass__(cls, **named: Any) -> None:
        """Verbs are held to their annotations; those that answer row by row answer a Dask
        collection by a collection."""
        super().__init_subclass__(**named)
        hold(cls)
        for name in ("fit", "fit_transform", "fit_impute"):
            if inspect.isfunction(verb := vars(cls).get(name)):
                setattr(cls, name, _or_interrupted(verb))
        for name in BY_ROWS:
            verb = inspect.getattr_static(
                cls, name, None
            )  # one that only some models have (available_if) stays as it is
            if inspect.isfunction(verb) and not hasattr(verb, "answers_later"):
                setattr(cls, name, _or_later(verb))

    def __sklearn_is_fitted__(self) -> bool:
        return "fit_" in vars(self)

    @fitted
    def n_features_in_(self) -> int:
        return self._fitted("n_features_in_").factors.n

    @fitted
    def feature_names_in_(self) -> np.ndarray:
        """Column names of the data, where all of them are strings."""
        names = self._fitted("feature_names_in_").factors.columns
        if names is None or not all(isinstance(name, str) for name in names):
            raise AttributeError(
                "feature_names_in_ is absent: the columns of the training data have no "
                "(string) names"
            )
        return names

    @fitted
    def certificate_(self) -> Certificate:
        """Evidence of the fit; ``certificate_.holds`` and ``str(certificate_)``."""
        return self._fitted("certificate_").certificate

    def _engine(self) -> Any:
        """The engine that ``engine=`` and ``n_threads=`` ask for."""
        return engine_named(getattr(self, "engine", "auto"), getattr(self, "n_threads", None))

    def _fitted(self, name: str) -> Fit:
        if "fit_" not in vars(self):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet: it has no "
                f"{name} before fit; call fit first"
            )
        return self.fit_

    _early = "Maximum number of iterations {} reached. Increase it to improve convergence."
    """The warning of scikit-learn's class of the same name, or of most of them."""

    def _say_if_early(self, fit: Any) -> None:
        """Warn, as scikit-learn does, where the iteration limit came before the stopping rule was
        met."""
        tol = getattr(self, "tol", None)
        if fit.trace.reason is not StopReason.MAX_ITER or not hasattr(self, "tol") or tol == 0:
            return  # without a tolerance the number of steps is what was asked for
        limit = getattr(self, "max_iter", None) or len(fit.trace)
        rule = "its stopping rule was met" if tol is None else f"tol={tol:g} was met"
        warnings.warn(
            f"{self._early.format(limit)} "
            f"{type(self).__name__} stopped at max_iter before {rule}; raise max_iter or tol, "
            "and see certificate_ for how far it came",
            ConvergenceWarning,
            stacklevel=3,
        )

    def _new_rows(self, x: Any) -> Matrix:
        """Read new data, with the columns of the training data."""
        check_is_fitted(self)
        matrix = read(x)
        if matrix.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} is "
                f"expecting {self.n_features_in_} features as input"
            )
        repeats = matrix.columns is not None and len(set(matrix.columns)) < len(
            matrix.columns
        )  # scikit-learn's own comparison fails at them
        if hasattr(x, "shape") and not isinstance(x, (Dense, Observed, Counts)) and not repeats:
            validate_data(self, x, reset=False, skip_check_array=True)
        else:
            same_names(matrix.columns, self.fit_.factors.columns)
        return matrix

    def _of_rows(self, x: Any, do: Callable[[Any, Any, Any], T]) -> T:
        """``do(placed, factors, engine)`` of new rows."""
        matrix, engine = self._new_rows(x), self._engine()
        with engine.at_work():
            return on_data(engine, matrix, lambda placed: do(placed, self.fit_.factors, engine))

    def _html_repr(self) -> str:
        """What was found, the certificate folded, and scikit-learn's diagram; before the fit that
        diagram alone."""
        diagram: str = super()._html_repr()
        if "fit_" not in vars(self):
            return diagram
        c = self.fit_.certificate
        summary = verdict(
            c.holds, f"The certificate {'holds' if c.holds else 'does not hold'} ({c.kind})."
        )
        return f"<div>{answer_of(self)}{folded(summary, c._repr_html_())}{diagram}</div>"

    def save(self, path: Any) -> None:
        """Write the model to one .safetensors file (arrays + JSON header, checksum), atomically."""
        from eckart.io.models.save import save

        check_is_fitted(self)
        save(self, path)

    def restore(
        self,
        factors: Any,
        certificate: Certificate,
        trace: Trace,
        plan: dict[str, Any],
        arrays: dict[str, np.ndarray],
    ) -> None:
        """Take the fitted state of a model file."""
        self._store(Fit(factors, certificate, trace, plan), arrays)

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        """Become fitted; ``arrays`` is what ``extra_state`` gave."""
        self.fit_ = fit

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def rows_to_fill(model: Any, X: Any) -> Any:
    """X, or one clear error: only models that keep the data of their fit can fill them in again."""
    if X is None:
        raise InputError(
            f"X must be given to impute, got None: {type(model).__name__} keeps no "
            "data. Pass the rows to fill in"
        )
    return X


def has_room(numbers: float, itemsize: int) -> bool:
    """Whether this machine can hold so many numbers more."""
    return numbers * itemsize <= available_memory()


def require_room(
    name: str, value: Any, numbers: float, itemsize: int = 8, instead: str = "lower it"
) -> None:
    """Refuse a parameter whose arrays of so many numbers this machine cannot hold, before they are
    asked for."""
    needed, free = numbers * itemsize, available_memory()
    if needed > free:
        raise invalid(
            name,
            value,
            "a number whose arrays fit in memory: they would need "
            f"{needed / 2**30:,.1f} GiB, {free / 2**30:,.1f} GiB are free",
            instead,
        )


def _or_interrupted(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb that fits, and says once that the fit was interrupted: the model is then the best one
    so far, not the one that was asked for."""

    @functools.wraps(verb)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        answer = verb(self, *args, **named)
        trace = self.fit_.trace if "fit_" in vars(self) else None
        if (
            trace is not None
            and trace.reason is StopReason.INTERRUPTED
            and not is_preliminary()
            and not trace.interrupt_reported
        ):
            trace.interrupt_reported = True
            warnings.warn(
                f"{type(self).__name__} was interrupted after {len(trace)} steps; the "
                "best state so far is kept, and certificate_ says how far it came",
                ConvergenceWarning,
                stacklevel=2,
            )
        return answer

    return call


def _or_later(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb itself, or its answer for a collection, computed when it is needed."""

    @functools.wraps(verb)
    def method(self: Any, *args: Any, **named: Any) -> Any:
        if not asked(args, named):
            return verb(self, *args, **named)
        check_is_fitted(self)
        return answer(self, verb.__name__, args, named)

    method.answers_later = True  # type: ignore[attr-defined]
    return method


def same_names(came: np.ndarray | None, fitted: np.ndarray | None) -> None:
    """Refuse named columns that are not those of the training data, in their order."""
    if came is None or fitted is None:
        return
    for j, (a, b) in enumerate(zip(came, fitted)):
        if a != b:
            raise InputError(
                f"column {j} of X must be {b!r} as in the training data, got {a!r}: the feature "
                "names should match those that were passed during fit"
            )


def one_kind_of_names(matrix: Matrix) -> Matrix:
    """The matrix itself, unless its column names are strings only in part."""
    names = [] if matrix.columns is None else [isinstance(name, str) for name in matrix.columns]
    if any(names) and not all(names):
        raise InputTypeError(
            "X has column names of several types. Feature names are only supported if "
            "all input features have string names; rename the columns"
        )
    return matrix


def sample_weights(weights: Any, rows: int | None) -> np.ndarray | None:
    """Row weights as float64, or one clear error; ``rows`` is None for a stream of unknown
    length."""
    if weights is None:
        return None
    if rows is None:
        raise InputError(
            "sample_weight needs data whose number of rows is known, got a stream of unknown length"
        )
    try:
        w = np.asarray(weights, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"sample_weight must be one number for each row, got something else ({error})"
        ) from None
    if w.ndim == 0:
        w = np.full(rows, float(w))
    if w.shape != (rows,):
        raise InputError(
            f"sample_weight must have shape ({rows},), one weight for each row, got {w.shape}"
        )
    bad = np.flatnonzero(~(np.isfinite(w) & (w >= 0)))
    if len(bad):
        raise InputError(
            f"sample_weight must hold finite numbers >= 0, got {w[bad[0]]} at row {bad[0]}"
        )
    if len(w) and not w.max() < HEAVIEST / rows:
        raise InputError(
            f"the sum of sample_weight must be below {HEAVIEST:g}, got {w.max():g} at row "
            f"{w.argmax()}. Divide all by a constant."
        )
    if not w.any():
        raise InputError(
            "sample_weight must hold at least one positive weight, got zero for every row"
        )
    return w
