"""Random small problems against other ways to solve them: the objective is as good, and a
certificate that holds is true.

Shapes, ranks, weights, gaps, repeated rows, scales and precisions are drawn; the judges are NumPy,
scikit-learn and the oracle of tests (``differential_more`` has those of item models, tables,
chains, batches, losses and topics).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import decomposition, mixture

import eckart
from campaign import Broken
from campaign.differential_more import MORE
from eckart.trace import StopReason
from oracle import JUDGE


def problem(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows near a subspace, of some shape, scale and precision, with repeated rows and constant
    columns now and then; and weights, or None."""
    rows, n = int(rng.integers(2, 40)), int(rng.integers(1, 12))
    rank = int(rng.integers(0, n + 1))
    x = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, n)) + rng.choice(
        [0.0, 0.1, 1.0]
    ) * rng.standard_normal((rows, n))
    x = x * 10.0 ** rng.integers(-6, 7) + rng.choice([0.0, 1.0, 1e3])
    if rng.random() < 0.3:
        x[rng.integers(rows, size=rows // 2)] = x[0]
    if rng.random() < 0.2:
        x[:, rng.integers(n)] = 2.0
    weights = rng.integers(0, 4, rows).astype(float) if rng.random() < 0.3 else None
    if weights is not None and weights.sum() < 2:
        weights = None
    return x.astype(rng.choice([np.float32, np.float64])), weights


def attempts(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    kinds = (reduce, subspace, complete, nuclear, parts, mixtures, *MORE)
    while True:
        kind = kinds[int(rng.integers(len(kinds)))]
        seed = int(rng.integers(2**31))
        try:
            yield kind(np.random.default_rng(seed))
        except Broken as error:
            raise Broken(f"{kind.__name__}, seed {seed}: {error}") from None
        except eckart.InputError:
            yield "refused in words"


def reduce(rng: np.random.Generator) -> str:
    """PCA against the eigenvalues of the covariance."""
    x, weights = problem(rng)
    k = int(rng.integers(1, min(x.shape) + 1))
    solver = str(rng.choice(["auto", "eigh", "svd", "randomized", "lanczos", "power"]))
    model = eckart.PCA(k, svd_solver=solver, random_state=0).fit(x, sample_weight=weights)
    w = np.ones(len(x)) if weights is None else weights
    wide = x.astype(np.float64)
    centred = wide - np.average(wide, axis=0, weights=w)
    scatter = (centred * w[:, None]).T @ centred
    best = np.sort(np.linalg.eigvalsh(scatter))[::-1][:k].sum()
    v = model.components_.astype(np.float64)
    found = np.trace(v @ scatter @ v.T)
    # rounding of entries far from zero is part of the data: eps |x|^2 for each row
    noise = 50 * np.finfo(x.dtype).eps * float(w @ np.square(wide).sum(axis=1)) + 1e-300
    if model.certificate_.holds and found < (1 - 1e-2) * best - noise:
        raise Broken(f"PCA({k}, {solver}) holds, and captures {found} of {best}")
    if solver in ("eigh", "svd") and found < (1 - 1e-6) * best - noise:
        raise Broken(f"PCA({k}, {solver}) captures {found} of {best}")
    return "PCA"


def subspace(rng: np.random.Generator) -> str:
    """PCA of sparse rows against scikit-learn on the same rows."""
    x = sparse.random_array(
        (int(rng.integers(5, 40)), int(rng.integers(3, 20))), density=0.3, rng=rng, format="csr"
    )
    k = int(rng.integers(1, min(x.shape)))
    ours = eckart.PCA(k, svd_solver="lanczos", random_state=0).fit(x)
    theirs = decomposition.PCA(k, svd_solver="full").fit(x.toarray())
    if (
        ours.certificate_.holds
        and ours.explained_variance_.sum() < 0.99 * theirs.explained_variance_.sum() - 1e-12
    ):
        raise Broken(
            f"sparse PCA({k}) captures {ours.explained_variance_.sum()}, scikit-learn "
            f"{theirs.explained_variance_.sum()}"
        )
    return "sparse PCA"


def gappy(rng: np.random.Generator) -> np.ndarray:
    x, _ = problem(rng)
    x = x.astype(np.float64)
    x[rng.random(x.shape) < rng.uniform(0, 0.6)] = np.nan
    if np.isnan(x).all():
        x[0, 0] = 1.0
    return x


def complete(rng: np.random.Generator) -> str:
    """ALS by the compiled engine against the oracle: the same way down."""
    x, k = gappy(rng), int(rng.integers(1, 4))
    options: dict[str, Any] = {
        "l2": float(rng.choice([0.05, 1.0])),
        "max_iter": 20,
        "random_state": 0,
        "biases": bool(rng.random() < 0.5),
    }
    ours, plain = (eckart.ALS(k, engine=engine, **options).fit(x) for engine in ("cpu", JUDGE))
    a, b = ours.objective_, plain.objective_
    if abs(a - b) > 1e-3 * max(abs(a), abs(b)) + 1e-12:
        # different stationary points are possible; a certificate decides whether both are
        for model in (ours, plain):
            if not model.certificate_.holds and model.fit_.trace.reason is not StopReason.MAX_ITER:
                raise Broken(f"ALS ends at {a}, plain at {b}, and one is not stationary")
    return "ALS"


def nuclear(rng: np.random.Generator) -> str:
    """The duality gap of SoftImpute is a bound: no other answer lies below it."""
    x = gappy(rng)
    seen = ~np.isnan(x)
    size = float(np.linalg.norm(np.where(seen, x, 0.0), 2))
    if size == 0.0:
        return "empty"
    tau = float(rng.uniform(0.05, 0.8)) * size
    model = eckart.SoftImpute(tau=tau, tol=1e-4, random_state=0).fit(x)
    b = np.zeros_like(x)
    for _ in range(300):  # plain Soft-Impute
        u, s, vt = np.linalg.svd(np.where(seen, x, b), full_matrices=False)
        b = (u * np.maximum(s - tau, 0)) @ vt
    other = 0.5 * float(np.sum(np.where(seen, x - b, 0.0) ** 2)) + tau * float(
        np.linalg.svd(b, compute_uv=False).sum()
    )
    c = model.certificate_
    if other < c["no matrix is below"] * (1 - 1e-9) - 1e-300:
        raise Broken(
            f"SoftImpute says that nothing is below {c['no matrix is below']}, plain "
            f"Soft-Impute is at {other}"
        )
    if c.holds and c["value"] > other * (1 + 2e-4):
        raise Broken(f"SoftImpute holds at {c['value']}, plain Soft-Impute is at {other}")
    return "SoftImpute"


def parts(rng: np.random.Generator) -> str:
    """NMF against scikit-learn's coordinate descent from the same kind of start."""
    x = np.abs(problem(rng)[0].astype(np.float64))
    k = int(rng.integers(1, max(2, min(x.shape))))
    ours = eckart.NMF(k, max_iter=500, random_state=0).fit(x)
    theirs = decomposition.NMF(k, init="nndsvda", max_iter=500, random_state=0).fit(x)
    size = float(np.linalg.norm(x))
    if (
        ours.certificate_.holds
        and ours.reconstruction_err_ > 1.3 * theirs.reconstruction_err_ + 0.02 * size
    ):
        raise Broken(
            f"NMF({k}) holds at {ours.reconstruction_err_}, scikit-learn is at "
            f"{theirs.reconstruction_err_}, ||A|| = {size}"
        )
    return "NMF"


def mixtures(rng: np.random.Generator) -> str:
    """The likelihood that a GaussianMixture tells is that of scikit-learn at the same
    parameters."""
    k, n = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    x = rng.standard_normal((60, n)) + 4 * rng.integers(0, k, (60, 1))
    kind = str(rng.choice(["full", "diag", "tied", "spherical"]))
    ours = eckart.GaussianMixture(k, covariance_type=kind, random_state=0).fit(x)
    judge = mixture.GaussianMixture(k, covariance_type=kind)
    judge.weights_, judge.means_, judge.covariances_ = ours.weights_, ours.means_, ours.covariances_
    judge.precisions_cholesky_ = mixture._gaussian_mixture._compute_precision_cholesky(
        ours.covariances_, kind
    )
    if abs(ours.score(x) - judge.score(x)) > 1e-6 * (1 + abs(judge.score(x))):
        raise Broken(
            f"GaussianMixture({k}, {kind}) scores {ours.score(x)}, scikit-learn "
            f"{judge.score(x)} at the same parameters"
        )
    return "GaussianMixture"
