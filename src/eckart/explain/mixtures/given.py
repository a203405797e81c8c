"""What a user of ``GaussianMixture`` gave, checked: a start, or a whole mixture from stored
arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.decompositions import eigvalsh
from eckart.engines.protocol.mixtures import Gaussians
from eckart.errors import InputError, invalid
from eckart.explain.mixtures.gaussian_solve import to_factors
from eckart.explain.mixtures.verbs import MixtureVerbs
from eckart.fit import Fit, fitted
from eckart.trace import StopReason, Trace


def given_start(
    model: Any, k: int, n: int, kind: str
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Weights, means and covariances that the user gave."""
    weights = _array("weights_init", "weights", model.weights_init, (k,))
    if weights is not None:
        if (weights < 0).any() or abs(weights.sum() - 1) > 1e-6:
            raise InputError(
                "The parameter 'weights' should be normalized, but got sum(weights) = "
                f"{weights.sum():.5f}: weights_init must be {k} numbers >= 0 that add up to one"
            )
        weights = weights / weights.sum()
    means = _array("means_init", "means", model.means_init, (k, n))
    if model.precisions_init is not None and kind in ("unit", "factor"):
        raise invalid("precisions_init", "an array", f"None with covariance_type={kind!r}")
    shape = {"full": (k, n, n), "tied": (n, n), "diag": (k, n), "spherical": (k,)}.get(kind, ())
    precisions = _array("precisions_init", f"{kind} precision", model.precisions_init, shape)
    spread = None if kind != "unit" else np.empty(0)
    if precisions is not None:
        spread = _inverse(precisions, kind)
    return weights, means, spread


def _array(name: str, part: str, value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    if value is None:
        return None
    try:
        out = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{name} must be an array of numbers of shape {shape}, got something else ({error})"
        ) from None
    if out.shape != shape:
        raise InputError(
            f"The parameter {part!r} should have the shape of {shape}, but got {out.shape}: set "
            f"{name} so",
            code=f"invalid.{name}",
        )
    if not np.isfinite(out).all():
        raise InputError(f"{name} must hold finite numbers, got NaN or infinity")
    return out


def _inverse(precisions: np.ndarray, kind: str, name: str = "precisions_init") -> np.ndarray:
    part = "covariance" if name == "covariances_" else "precision"
    if kind in ("diag", "spherical"):
        if (precisions <= 0).any():
            raise InputError(
                f"'{kind} {part}' should be positive: {name} must hold numbers > 0, got "
                f"{precisions.min()}"
            )
        return 1.0 / precisions
    stack = precisions if kind == "full" else precisions[None]
    if stack.ndim != 3 or stack.shape[1] != stack.shape[2]:
        raise InputError(f"{name} must be square matrices, got shape {precisions.shape}")
    for z, p in enumerate(stack):
        if not np.allclose(p, p.T) or eigvalsh(p)[0] <= 0:
            raise InputError(
                f"'{kind} {part}' should be symmetric, positive-definite: {name} of component "
                f"{z} is not"
                + ("; give the inverse of a covariance" if name != "covariances_" else "")
            )
    inverse = np.linalg.inv(stack)
    return inverse if kind == "full" else inverse[0]


if TYPE_CHECKING:
    from builtins import property as settable
else:

    class settable(fitted):
        """A fitted attribute of a mixture that can be set."""

        def __init__(self, get: Any):
            super().__init__(get, lambda model, value: model._set(get.__name__, value))


class SettableMixture(MixtureVerbs):
    """Fitted attributes of a Gaussian mixture that can be set: of a fitted model, or one by one of
    a new one until there are enough."""

    covariance_type: str | None

    def _set(self, name: str, value: Any) -> None:
        """Take one of weights_, means_, covariances_, precisions_, precisions_cholesky_ (the last
        three say the same)."""
        old, kind = vars(self).get("fit_"), self.covariance_type or "full"
        parts = dict(vars(self).get("_parts", {}))
        if old is not None:
            parts = {
                "weights": old.factors.weights,
                **{each: old.factors.parameters.get(each) for each in ("means", "spread")},
            }
            kind = old.factors.family.removeprefix("gaussian ")
        if kind in ("unit", "factor"):
            raise AttributeError(
                f"{name} of a mixture with covariance_type={kind!r} is found by fit and "
                "cannot be set"
            )
        array = np.asarray(value)
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise InputError(f"{name} holds something else than finite numbers")
        self_kind = "float32" if array.dtype == np.float32 else "float64"
        array = array.astype(np.float64)
        if name in ("weights_", "means_"):
            parts[name.removesuffix("_")] = array
        else:
            if name == "precisions_cholesky_":
                array = (
                    array**2
                    if kind in ("diag", "spherical")
                    else np.matmul(array, np.swapaxes(array, -1, -2))
                )
            parts["spread"] = (
                _checked(name, array, kind)
                if name == "covariances_"
                else _inverse(array, kind, name)
            )
        if any(parts.get(each) is None for each in ("weights", "means", "spread")):
            self._parts = parts
            return
        self.fit_ = _assembled(parts, kind, self_kind, None if old is None else old.factors.columns)
        for each in ("_stream", "_parts"):
            self.__dict__.pop(each, None)

    if not TYPE_CHECKING:
        weights_ = settable(MixtureVerbs.weights_.fget)


def _assembled(parts: dict[str, np.ndarray], kind: str, dtype: str, columns: Any) -> Fit:
    weights, means, spread = (parts[name] for name in ("weights", "means", "spread"))
    k, n = means.shape if means.ndim == 2 else (0, 0)
    shape = {"full": (k, n, n), "tied": (n, n), "diag": (k, n), "spherical": (k,)}[kind]
    if weights.shape != (k,) or spread.shape != shape or not k:
        raise InputError(
            f"weights_, means_ and covariances must have shapes (k,), (k, n) and {shape} for "
            f"covariance_type={kind!r}, got {weights.shape}, {means.shape} and {spread.shape}. "
            "Set arrays of another size on a new GaussianMixture."
        )
    if (weights < 0).any() or abs(weights.sum() - 1) > 1e-4:
        raise InputError(
            f"weights_ must be {k} numbers >= 0 that add up to one, got {weights.tolist()}"
        )
    factors = to_factors(Gaussians(kind, weights / weights.sum(), means, spread), columns)
    check = Check(
        "measured", 1.0, 0.0, "parameters were set by hand, without data; certify(X) measures them"
    )
    certificate = Certificate(
        f"mixture of {k} Gaussians, {kind} covariance",
        "stationary",
        (check,),
        {"bound": float("nan")},
        (),
    )
    return Fit(
        factors,
        certificate,
        Trace("none", reason=StopReason.DIRECT),
        {"k": k, "covariance": kind, "start": "set by hand", "dtype": dtype},
    )


def _checked(name: str, spread: np.ndarray, kind: str) -> np.ndarray:
    """Covariances themselves, refused where they are none."""
    if kind in ("diag", "spherical"):
        if (spread <= 0).any():
            raise InputError(f"{name} must hold numbers > 0, got {spread.min()}")
        return spread
    _inverse(spread, kind, name)
    return spread
