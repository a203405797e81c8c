"""A PCA from stored arrays: fitted attributes that are set by hand, put together to a Basis as soon
as they are enough for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.errors import FileError, InputError, invalid
from eckart.factors import Basis
from eckart.fit import Fit
from eckart.reduce.basis_attributes import BasisAttributes
from eckart.trace import Trace

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
