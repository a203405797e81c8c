"""A PCA from stored arrays: fitted attributes that are set by hand, put together to a Basis as soon
as they are enough for one.

Rows that come block by block and are not kept: a running statistic takes them in, and is solved
once they are all there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.engines.protocol import GapsFound, Moments, Sketch
from eckart.errors import FileError, InputError, invalid
from eckart.factors import Basis
from eckart.fit import Fit, plan_of
from eckart.io.models.checkpoint import Memory
from eckart.matrix import Matrix, squarable
from eckart.reduce.basis_attributes import BasisAttributes
from eckart.reduce.covariance import Covariance
from eckart.reduce.plan import STATISTIC_COLUMNS, validate_components
from eckart.reduce.solve import SpectralOptions, certify, scaled_in_words, to_basis, with_units
from eckart.reduce.spectral import solve_eigh
from eckart.reduce.standardise import divided_moments, divisors
from eckart.reduce.stream import running, spectrum_of_sketch
from eckart.trace import Trace, Watcher

BY_HAND = "set by hand"
NEEDED = ("components_", "mean_", "explained_variance_")
OTHERS = (
    "explained_variance_ratio_",
    "singular_values_",
    "noise_variance_",
    "n_samples_",
    "n_components_",
)


def _settable(name: str) -> Any:
    return vars(BasisAttributes)[name].setter(lambda self, value: self._set(name, value))


class SettableBasis(BasisAttributes):
    """Attributes of ``BasisAttributes`` that can be set: of a fitted model, or one by one of a new
    one until there are enough."""

    if TYPE_CHECKING:
        center: bool
        _parts: dict[str, Any]

        def _store(self, fit: Fit, arrays: dict[str, np.ndarray] | None = None) -> None: ...

    def _set(self, name: str, value: Any) -> None:
        old = vars(self).get("fit_")
        by_hand = old is None or old.plan.get("solver") == BY_HAND
        parts, follow = dict(vars(self).get("_parts", {})), set(parts_that_follow(self))
        if not by_hand:
            parts = {each: getattr(self, each) for each in (*NEEDED, *OTHERS)}
            # what belongs to components_
            unrotated = "explained_variance_", "explained_variance_ratio_"
            parts |= {each: vars(BasisAttributes)[each].fget(self) for each in unrotated}
            follow = {"explained_variance_ratio_", "singular_values_"}
        if (
            old is not None
            and name == "components_"
            and np.shape(value) != old.factors.components.shape
        ):
            raise InputError(
                f"components_ must have shape {old.factors.components.shape}, got "
                f"{np.shape(value)}. Set arrays of another size on a new {type(self).__name__}."
            )
        if name in ("explained_variance_", "singular_values_"):
            for each in follow - {name}:
                parts.pop(each, None)
        if name == "singular_values_" and "n_samples_" in parts:  # s^2 = v (N - 1)
            parts["explained_variance_"] = _array(name, value, 1).astype(np.float64) ** 2 / max(
                parts["n_samples_"] - 1, 1
            )
        parts[name] = value
        fit = fit_from(parts, None if old is None else old.factors.columns, bool(self.center))
        if fit is not None:
            self._store(fit)
            self.__dict__.pop("_stream", None)
        self._parts = parts | {"follow": follow - {name}}

    if not TYPE_CHECKING:
        for _name in (*NEEDED, *OTHERS):
            vars()[_name] = _settable(_name)
        del _name


def parts_that_follow(model: Any) -> Any:
    """Names of attributes that were worked out from others, not set: they change with them."""
    return vars(model).get("_parts", {}).get("follow", ())


def fit_from(parts: dict[str, Any], columns: np.ndarray | None, centered: bool) -> Fit | None:
    """The Fit that these attributes describe; None where one that is needed has not been set yet.

    The number of rows is ``n_samples_`` or what ``singular_values_`` and ``explained_variance_``
    say (s^2 = v (N - 1)), else 2.
    """
    if any(name not in parts for name in NEEDED):
        return None
    components, mean, variance = (
        _array(name, parts[name], size) for name, size in zip(NEEDED, (2, 1, 1))
    )
    if len(mean) != components.shape[1] or len(variance) != len(components):
        raise InputError(
            f"components_ of shape {components.shape} came with mean_ of {len(mean)} "
            f"and explained_variance_ of {len(variance)} numbers; "
            "they belong to one model of k components and n columns"
        )
    rows = parts.get("n_samples_", 2)
    if "n_samples_" not in parts and "singular_values_" in parts and variance[:1].any():
        rows = round(float(np.asarray(parts["singular_values_"])[0] ** 2 / variance[0])) + 1
    if parts.get("n_components_", len(components)) != len(components):
        raise invalid(
            "n_components_", parts["n_components_"], f"{len(components)}, the rows of components_"
        )
    degrees, noise = max(float(rows) - 1, 1.0), float(parts.get("noise_variance_", 0.0))
    scatter = variance.astype(np.float64) * degrees
    total = float(scatter.sum()) + noise * degrees * (
        min(int(rows), len(mean)) - len(components) if rows > 2 else 0
    )
    ratio = np.sum(parts.get("explained_variance_ratio_", 0.0))
    if ratio > 0:
        total = float(scatter.sum() / ratio)
    dtype = (
        components.dtype if components.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    )
    kept = np.array(components, dtype), np.array(mean, dtype)
    basis = Basis(
        kept[1],
        kept[0],
        scatter,
        max(total, 0.0),
        noise,
        degrees + 1,
        int(rows),
        centered,
        None,
        columns,
    )
    try:
        basis.check()
    except FileError as error:
        raise InputError(f"the attributes that were set do not make a PCA: {error}") from None
    return Fit(
        basis, unmeasured("principal components"), Trace("none"), {"solver": BY_HAND, "tol": 1e-8}
    )


def unmeasured(problem: str) -> Certificate:
    """The certificate of what was set by hand: it does not hold, because nothing was measured."""
    check = Check(
        "measured", 1.0, 0.0, "parameters were set by hand, without data; certify(X) measures them"
    )
    return Certificate(problem, "stationary", (check,), {}, ())


def _array(name: str, value: Any, dimensions: int) -> np.ndarray:
    try:
        out = np.asarray(value)
        ok = out.ndim == dimensions and out.dtype.kind in "fiu" and bool(np.isfinite(out).all())
    except (TypeError, ValueError, OverflowError):
        ok = False
    if not ok:
        raise InputError(
            f"{name} must have {dimensions} dimension(s) of finite numbers, got shape "
            f"{np.shape(value)}"
        )
    return out


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
