"""The start that a user of ``GaussianMixture`` gave, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError, wrong


def given_start(model: Any, k: int, n: int, kind: str) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
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
