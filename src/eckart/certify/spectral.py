"""Evidence that k orthonormal rows span the leading eigenspace of a covariance C.

Measured from products with C alone, at the returned point:

* orthonormality         max |V^T V - I|
* Ritz residuals         r_i = ||C v_i - theta_i v_i||: an eigenvalue of C lies within r_i of theta_i
* captured variance      tr V^T C V, against tr C
* remainder              xi <= ||(I - V V^T) C (I - V V^T)||_2 from Lanczos on an independent random start

and from these an upper bound on what ANY k-dimensional subspace captures. With R = (I - V V^T) C V and ||remainder|| <= beta,
Ky Fan's inequality gives  sum_{i<=k} lambda_i <= sum_i max(theta_i, beta) + ||R||_*.
After q Lanczos steps from a random start, xi >= (1 - eps) ||remainder|| except with probability 1.648 sqrt(n) exp(-sqrt(eps) (2q - 1))
(Kuczynski and Wozniakowski, 1992), so beta = xi / (1 - eps). Where C itself is at hand and small, its eigenvalues give the bound exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check

PROBE_STEPS = 12
FAILURE = 1e-3
EXACT_COLUMNS = 1024
PROBLEM = "capture the most variance with k directions: max tr(V^T C V), V^T V = I"

Product = Callable[[np.ndarray], np.ndarray]


def certify_subspace(product: Product, components: np.ndarray, values: np.ndarray, total: float, *, rng: np.random.Generator,
                     tol: float, covariance: np.ndarray | None = None, notes: tuple[str, ...] = (),
                     extra: tuple[Check, ...] = ()) -> Certificate:
    """Certificate of rows ``components`` with claimed eigenvalues ``values`` of the covariance behind ``product``.

    ``tol`` is the share of the captured variance that the solver was allowed to miss; residuals may then be up to about its square root.
    """
    k, n = components.shape
    eps = float(np.finfo(components.dtype).eps)
    v = np.ascontiguousarray(components.T)
    if k == 0:
        return Certificate(PROBLEM, "global", extra, {"captured variance": 0.0, "total variance": float(total), "k": 0}, notes)
    gram = v.T.astype(np.float64) @ v
    orthonormal = float(np.abs(gram - np.eye(k)).max())
    image = np.asarray(product(v), np.float64)
    v = v.astype(np.float64)
    scale = max(float(np.abs(values).max()), np.finfo(float).tiny)
    inside = v.T @ image
    captured = float(np.trace(inside))
    residuals = np.linalg.norm(image - v * values, axis=0)
    outside = image - v @ inside
    nuclear = float(np.sqrt(np.maximum(np.linalg.eigvalsh(outside.T @ outside), 0.0)).sum())
    theta = np.sort(np.linalg.eigvalsh((inside + inside.T) / 2))[::-1]
    facts: dict[str, Any] = {"k": k, "captured variance": captured, "total variance": float(total)}
    rounding = 30 * eps * np.sqrt(n) * scale
    if k >= n:
        found, upper, how = 0.0, float(total), "exact: k directions are all there are"
    elif covariance is not None and n <= EXACT_COLUMNS:
        spectrum = np.sort(np.linalg.eigvalsh(covariance))[::-1]
        found, upper, how = float(spectrum[k]), float(spectrum[:k].sum()), "exact: the eigenvalues of the covariance"
    else:
        found, beta, how = remainder_norm(product, v, components.dtype, rng, total - captured)
        upper = float(np.maximum(theta, beta).sum()) + nuclear
    upper = max(min(upper, float(total)), captured)
    facts |= {
        "upper bound for any k directions": upper,
        "share of the upper bound captured": captured / upper if upper > 0 else 1.0,
        "how the bound is known": how,
        "remainder norm": found,
        "largest residual": float(residuals.max()),
    }
    allowed = max(0.3 * np.sqrt(tol), 30 * eps * np.sqrt(n))
    checks = (
        Check("orthonormality", orthonormal, max(50 * eps * np.sqrt(k), 1e-12), "largest entry of |V^T V - I|"),
        Check("Ritz residual", float(residuals.max()) / scale, allowed, "largest ||C v - theta v|| / theta_1: each v is an eigenvector"),
        Check("nothing larger left out", found / scale, float(theta[-1]) * (1 + 0.3 * np.sqrt(tol)) / scale + allowed / 3 + rounding / scale,
              "norm of what is orthogonal to V, found from another start, against theta_k; both / theta_1"),
        Check("variance not overcounted", (captured - float(total)) / scale, 1e3 * eps, "captured minus total, / theta_1"),
        *extra,
    )
    return Certificate(PROBLEM, "global", checks, facts, notes)


def remainder_norm(product: Product, v: np.ndarray, dtype: np.dtype, rng: np.random.Generator, most: float) -> tuple[float, float, str]:
    """(xi, beta, words): Lanczos estimate and probable upper bound of ||(I - VV^T) C (I - VV^T)||_2; ``most`` is its trace."""
    n, k = v.shape
    steps = min(PROBE_STEPS, n - k)
    q = np.zeros((n, 0))
    t = np.zeros((steps, steps))
    w = rng.standard_normal(n)
    xi, done = 0.0, 0
    for step in range(steps):
        for _ in range(2):
            w = w - v @ (v.T @ w)
            w = w - q @ (q.T @ w)
        size = float(np.linalg.norm(w))
        if size <= 1e-12 or (step and size <= 4 * np.finfo(dtype).eps * max(xi, 1e-300)):
            return xi, xi, f"exact up to rounding: Lanczos ended after {step} steps"
        q = np.column_stack([q, w / size])
        image = np.asarray(product(q[:, -1:].astype(dtype)), np.float64)[:, 0]
        h = q.T @ image
        t[: step + 1, step] = t[step, : step + 1] = h
        xi, done = float(np.linalg.eigvalsh(t[: step + 1, : step + 1])[-1]), step + 1
        w = image
    if done >= n - k:
        return xi, xi, "exact up to rounding: Lanczos on the whole complement"
    eps = (np.log(1.648 * np.sqrt(n) / FAILURE) / (2 * done - 1)) ** 2
    beta = min(xi / (1 - eps) if eps < 1 else np.inf, max(most, xi))
    return max(xi, 0.0), float(beta), f"Ky Fan, with probability >= {1 - FAILURE:g} ({done} Lanczos steps from a random start)"
