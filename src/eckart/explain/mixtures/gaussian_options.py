"""The parameters of ``GaussianMixture``, checked once, with the start that a user gave."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from eckart.engines.protocol.mixtures import KINDS
from eckart.errors import InputError, wrong
from eckart.explain.mixtures.gaussian_solve import Options
from eckart.explain.mixtures.starts import WAYS


def checked_options(model: Any, n: int, k: int | None = None, kind: str | None = None) -> Options:
    """Options from the parameters of an estimator, for data of n columns; k = 0 stands for "auto"."""
    kind = model.covariance_type if kind is None else kind
    if not isinstance(kind, str) or kind not in KINDS:
        raise wrong("covariance_type", kind, ", ".join(map(repr, KINDS)))
    if k is None:
        k = (
            0
            if isinstance(model.n_components, str) and model.n_components == "auto"
            else whole("n_components", model.n_components)
        )
    if model.init_params not in WAYS:
        raise wrong("init_params", model.init_params, ", ".join(map(repr, WAYS)))
    if model.reg_covar is not None and not _number(model.reg_covar):
        raise wrong("reg_covar", model.reg_covar, "None or a number >= 0")
    if not _number(model.tol):
        raise wrong("tol", model.tol, "a number >= 0")
    if not isinstance(model.warm_start, (bool, np.bool_)):
        raise wrong("warm_start", model.warm_start, "True or False")
    return Options(
        k,
        kind,
        float(model.tol),
        None if model.reg_covar is None else float(model.reg_covar),
        whole("max_iter", model.max_iter),
        whole("n_init", model.n_init),
        model.init_params,
        whole("n_factors", model.n_factors),
        *(_start(model, k, n, kind) if k else (None, None, None)),
    )


def whole(name: str, value: Any, least: int = 1) -> int:
    """An int from ``least`` on."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise wrong(name, value, f"an int >= {least}")
    return int(value)


def _number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= float(value) < np.inf


def _start(model: Any, k: int, n: int, kind: str) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Weights, means and covariances that the user gave."""
    weights = _array("weights_init", model.weights_init, (k,))
    if weights is not None:
        if (weights < 0).any() or abs(weights.sum() - 1) > 1e-6:
            raise InputError(f"weights_init={weights.tolist()} came, wanted {k} numbers >= 0 that add up to one")
        weights = weights / weights.sum()
    means = _array("means_init", model.means_init, (k, n))
    if model.precisions_init is not None and kind in ("unit", "factor"):
        raise wrong("precisions_init", "an array", f"None with covariance_type={kind!r}")
    shape = {"full": (k, n, n), "tied": (n, n), "diag": (k, n), "spherical": (k,)}.get(kind, ())
    precisions = _array("precisions_init", model.precisions_init, shape)
    spread = None if kind != "unit" else np.empty(0)
    if precisions is not None:
        spread = _inverse(precisions, kind)
    return weights, means, spread


def _array(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    if value is None:
        return None
    try:
        out = np.array(value, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not numeric ({error}), wanted an array of shape {shape}") from None
    if out.shape != shape:
        raise InputError(f"{name} of shape {out.shape} came, wanted {shape}")
    if not np.isfinite(out).all():
        raise InputError(f"{name} holds NaN or infinity, wanted finite numbers")
    return out


def _inverse(precisions: np.ndarray, kind: str) -> np.ndarray:
    if kind in ("diag", "spherical"):
        if (precisions <= 0).any():
            raise InputError(f"precisions_init holds {precisions.min()}, wanted numbers > 0")
        return 1.0 / precisions
    stack = precisions if kind == "full" else precisions[None]
    for z, p in enumerate(stack):
        if not np.allclose(p, p.T) or np.linalg.eigvalsh(p)[0] <= 0:
            raise InputError(
                f"precisions_init of component {z} is not symmetric and positive definite; give the inverse of a covariance"
            )
    inverse = np.linalg.inv(stack)
    return inverse if kind == "full" else inverse[0]
