"""Nuclear-norm completion and fits of a given rank: SoftImpute, SVP, SVT, ExactRecovery against
fancyimpute, cmfrec and plain NumPy.

"noisy"   2000 x 2000, rank 10, noise 1 %, 20 % seen; "exact" is the same without noise
"svt N"   the sizes of Cai, Candes and Shen's table 5.1: r = 10, entries 6 times the degrees of
freedom, stop at relative residual 1e-4
"large"   100000 x 100000 with 10M entries, noise 0.1 on entries of size 3; "large exact" is the
same without noise

Quality is the relative error against the noiseless truth, on the unobserved entries (noisy, exact)
or on the whole matrix (svt, large). Kernels are compiled before the clock starts; the certificate
is inside it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import measure, run

CASES = [
    ("noisy", "fancyimpute SoftImpute rank 10"),
    ("noisy", "eckart SoftImpute"),
    ("noisy", "eckart SoftImpute debiased"),
    ("noisy", "eckart SoftImpute auto tau"),
    ("noisy", "cmfrec k=10"),
    ("noisy", "cmfrec k=10 float32"),
    ("noisy", "eckart SVP k=10"),
    ("noisy", "eckart SVP k=10 float32"),
    ("exact", "numpy SVT, ARPACK"),
    ("exact", "eckart SVT"),
    ("exact", "eckart SVP k=10"),
    ("exact", "eckart ExactRecovery k=10"),
    *(
        (f"svt {n}", f"eckart {name}")
        for n in (1000, 5000, 10_000)
        for name in ("SVT", "SVP k=10", "ExactRecovery k=10")
    ),
    ("large", "eckart SVP k=10"),
    ("large", "eckart SoftImpute"),
    ("large exact", "eckart SVT"),
    ("large exact", "eckart ExactRecovery k=10"),
]


def square(
    n: int = 2000, r: int = 10, share: float = 0.2, noise: float = 0.01
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The truth with unit variance, the noisy data, and what of it is seen."""
    rng = np.random.default_rng(5)
    u, v = rng.standard_normal((n, r)), rng.standard_normal((n, r))
    truth = (u * np.linspace(2.0, 0.5, r)) @ v.T
    truth /= truth.std()
    seen = rng.random((n, n)) < share
    return truth, truth + noise * rng.standard_normal((n, n)), seen


def sampled(
    n: int, r: int, entries: int, seed: int = 0, noise: float = 0.0
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Gaussian factors and an Observed of about ``entries`` distinct places; n x n is never
    formed."""
    from eckart.matrix import Observed

    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((n, r)), rng.standard_normal((n, r))
    at = np.unique(rng.integers(0, n * n, int(entries * (1 + entries / n**2)) + 10))
    if len(at) > entries:
        at = np.delete(at, rng.choice(len(at), len(at) - entries, replace=False))
    i, j = at // n, (at % n).astype(np.int32)
    data = np.empty(len(at))
    for a in range(0, len(at), 10**6):
        part = slice(a, a + 10**6)
        data[part] = np.einsum("pc,pc->p", u[i[part]], v[j[part]])
    data += noise * rng.standard_normal(len(data))
    return u, v, Observed(np.searchsorted(i, np.arange(n + 1)), j, data, n)


def factor_error(u: np.ndarray, v: np.ndarray, model: Any) -> float:
    """||B - U V^T||_F / ||U V^T||_F through thin QR factorizations."""
    f = model.fit_.factors
    left, right = np.hstack([f.left, -u]), np.hstack([f.right, v])
    size = np.linalg.norm(np.linalg.qr(u)[1] @ np.linalg.qr(v)[1].T)
    return float(np.linalg.norm(np.linalg.qr(left)[1] @ np.linalg.qr(right)[1].T) / size)


def ours(name: str, noisy: bool) -> Any:
    from eckart.complete.nuclear.exact import ExactRecovery
    from eckart.complete.nuclear.soft_impute import SoftImpute
    from eckart.complete.nuclear.svp import SVP
    from eckart.complete.nuclear.svt import SVT

    if "SoftImpute" in name:
        tau = None if "auto" in name else 2.0 if "debiased" in name else 1.0
        return SoftImpute(tau=tau, debias="debiased" in name, random_state=0)
    if "SVP" in name:
        return SVP(10, random_state=0)
    return SVT(random_state=0) if "SVT" in name else ExactRecovery(10, random_state=0)


def warm(model: Any, dtype: Any) -> None:
    """Compile what the model uses."""
    from sklearn.base import clone

    rng = np.random.default_rng(0)
    a = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 300))
    clone(model).set_params(**({"n_components": 3} if model.n_components else {})).fit(
        np.where(rng.random(a.shape) < 0.5, a, np.nan).astype(dtype)
    )


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    if task in ("noisy", "exact"):
        return dense_case(task, contender, quick)
    large = task.startswith("large")
    n = 100_000 if large else int(task.split()[1])
    n = n // 20 if quick else n
    entries = (100 * n) if large else 60 * (2 * n - 10)
    u, v, x = sampled(n, 10, entries, noise=0.1 if task == "large" else 0.0)
    model = ours(contender, False)
    if "SoftImpute" in contender:
        model.set_params(tau=3.0)
    warm(model, np.float64)
    row = measure(lambda: model.fit(x), 1 if large else 3)
    return row | {
        "quality": factor_error(u, v, model),
        "rank": model.rank_,
        "iterations": model.n_iter_,
        "certificate": model.certificate_.holds,
    }


def dense_case(task: str, contender: str, quick: bool) -> dict[str, Any]:
    n = 300 if quick else 2000
    truth, noisy, seen = square(n, noise=0.01 if task == "noisy" else 0.0)
    given = np.where(seen, noisy, np.nan)
    if contender.startswith("eckart"):
        from eckart.matrix import Observed

        dtype = np.float32 if "float32" in contender else np.float64
        x = Observed.from_nan(given.astype(dtype))
        model = ours(contender, task == "noisy")
        warm(model, dtype)
        row = measure(lambda: model.fit(x), 5)
        f = model.fit_.factors
        found = f.left @ f.right.T
        row |= {
            "rank": model.rank_,
            "iterations": model.n_iter_,
            "certificate": model.certificate_.holds,
        }
    else:
        row = measure(rival(contender, given, seen, noisy, quick), 3, 40)
        found = row["result"]
    error = np.linalg.norm((found - truth)[~seen]) / np.linalg.norm(truth[~seen])
    return row | {"quality": float(f"{error:.4g}")}


def rival(name: str, given: np.ndarray, seen: np.ndarray, noisy: np.ndarray, quick: bool) -> Any:
    if name.startswith("fancyimpute"):
        import fancyimpute
        import fancyimpute.soft_impute as first
        import fancyimpute.solver as second
        from sklearn.utils import check_array

        def check(x: Any, force_all_finite: Any = True, **more: Any) -> Any:
            return check_array(x, ensure_all_finite=force_all_finite, **more)

        # 0.7.0 calls an argument that scikit-learn has removed
        first.check_array = second.check_array = check
        options = {
            "max_iters": 100,
            "max_rank": 10,
            "convergence_threshold": 1e-4,
            "verbose": False,
        }

        def fit() -> Any:
            np.random.seed(0)  # noqa: NPY002 (it draws from NumPy's global generator)
            return fancyimpute.SoftImpute(**options).fit_transform(given.copy())

        return fit
    if name.startswith("cmfrec"):
        import cmfrec
        from scipy import sparse

        x = sparse.coo_matrix(np.where(seen, noisy, 0.0))
        options = {
            "k": 10,
            "lambda_": 0.5,
            "method": "als",
            "use_cg": False,
            "user_bias": False,
            "item_bias": False,
            "center": False,
            "niter": 15,
            "nthreads": 2,
            "use_float": "float32" in name,
            "verbose": False,
            "random_state": 1,
            "precompute_for_predictions": False,
        }

        def factorise() -> Any:
            m = cmfrec.CMF(**options).fit(x)
            return m.A_ @ m.B_.T

        return factorise
    return lambda: numpy_svt(noisy, seen, 30 if quick else 200)


def numpy_svt(y: np.ndarray, seen: np.ndarray, iterations: int, tol: float = 1e-4) -> np.ndarray:
    """Cai, Candes and Shen's iteration with SciPy's ARPACK."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import svds

    n, m = y.shape
    rows, columns = np.nonzero(seen)
    b = y[seen]
    tau, delta = 5 * np.sqrt(n * m) * b.std(), 1.2 / seen.mean()
    start = csr_matrix((b, (rows, columns)), shape=y.shape)
    z = np.ceil(tau / (delta * svds(start, 1)[1][0])) * delta * b
    r = 0
    x = np.zeros((n, m))
    for _ in range(iterations):
        k = r + 1
        while True:
            u, s, vt = svds(csr_matrix((z, (rows, columns)), shape=y.shape), min(k, min(n, m) - 1))
            if s[0] <= tau or k >= min(n, m) - 1:
                break
            k += 5
        keep = s > tau
        r = int(keep.sum())
        x = (u[:, keep] * (s[keep] - tau)) @ vt[keep]
        rest = b - x[seen]
        if np.linalg.norm(rest) < tol * np.linalg.norm(b):
            break
        z = z + delta * rest
    return x


def report(rows: list[dict]) -> None:
    print(
        f"\n{'task':<10} {'contender':<34} {'seconds':>9} {'error':>10} {'extra MB':>9} "
        " certificate"
    )
    for r in rows:
        if "error" in r:
            print(f"{r['task']:<10} {r['contender']:<34} failed: {r['error']}")
        else:
            print(
                f"{r['task']:<10} {r['contender']:<34} {r['seconds']:>9.2f} "
                f"{r['quality']:>10.3g} {r['extra_mb']:>9.0f}  "
                f"{r.get('certificate', '')}"
            )


if __name__ == "__main__":
    run(__file__, CASES, work, report)
