"""A dual certificate of exact recovery: is B = U diag(s) V^T THE minimiser of the nuclear norm
among the matrices that agree with the observed entries?

Let T be the tangent space at B and E = U V^T. If

    (1)  Pi is injective on T:  lambda = lambda_min(P_T Pi P_T) > 0,  and
    (2)  some Y supported on the observed entries has  P_T Y = E  and  ||P_Tperp Y||_2 < 1,

then every other matrix with the same entries has a larger nuclear norm. Y is sought as the one of
least norm, Y = Pi P_T (P_T Pi P_T)^-1 E, by conjugate gradients. What they leave, delta = ||P_T Y -
E||_F, is allowed for: for H != 0 that vanishes on the entries ||P_T H|| <= ||P_Tperp H|| /
sqrt(lambda), hence

    ||B + H||_* - ||B||_*  >=  (1 - ||P_Tperp Y||_2 - delta / sqrt(lambda)) ||P_Tperp H||_F,

so (2) becomes ||P_Tperp Y||_2 + delta / sqrt(lambda) < 1. lambda is exact (a dense eigenvalue
problem) where dim T is small; otherwise a lower bound that holds with probability 0.999 by Lanczos
on mu - P_T Pi P_T (as in ``spectral``). Injectivity alone already says that no other rank-k matrix
nearby has the same entries. n x m is never formed.

References: Candes and Recht (2009); Gross (2011); Candes and Tao (2010).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.certify.certificate import Certificate, Check
from eckart.certify.nuclear import PROBES, SURE, MeasuredSpectrum, dual_point
from eckart.certify.spectral import FAILURE
from eckart.decompositions import eigvalsh
from eckart.engines import engine_named
from eckart.errors import InputTypeError
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.optim.tangent import Coordinates, Tangent
from eckart.rng import generator

DENSE = 3000
"""dim T up to which the smallest eigenvalue is computed exactly."""
LANCZOS = 120
"""Steps: by ``_loss`` the norm is then known to a share of 0.0034 for a dimension of 10^5, except
with a chance of FAILURE / 2."""
PROBLEM = "B is the only minimiser of ||B||_* with Pi(B) = Pi(A)"


@held
def recovery_certificate(
    fit: Any,
    observed: Observed | None = None,
    *,
    tol: float = 1e-6,
    random_state: Any = 0,
    n_threads: int | None = None,
    engine: Any = "auto",
) -> Certificate:
    """Is the completed matrix proven to be the one that the entries determine?

    The ``verdict`` fact is ``"proven"``, ``"not proven"`` (this certificate was not found; B may
    still be right) or ``"disproven"`` (B does not agree with the entries, or the entries leave a
    direction of rank-k matrices free).

    Parameters
    ----------
    fit : a fitted completion model, its ``Fit``, or ``LowRank`` factors
    observed : the entries; those of the model by default
    tol : relative residual at which B counts as agreeing with the entries

    >>> u = np.arange(1.0, 7.0)[:, None]
    >>> x = Observed.from_nan(np.where(np.eye(6) > 0, np.nan, u @ u.T))
    >>> recovery_certificate(LowRank(u, u), x)["verdict"]
    'proven'
    """
    f, x = _resolve(fit, observed)
    engine, rng = engine_named(engine, n_threads), generator(random_state)
    with engine.at_work():
        return _certify(MeasuredSpectrum(x, f, engine), tol, rng)


def _resolve(fit: Any, observed: Observed | None) -> tuple[LowRank, Observed]:
    if observed is None:
        observed = getattr(fit, "observed_", None)
    factors = getattr(getattr(fit, "fit_", fit), "factors", fit)
    if not isinstance(factors, LowRank) or not isinstance(observed, Observed):
        raise InputTypeError(
            "the model and its entries must be a fitted completion model, or LowRank factors "
            f"and an Observed, got a {type(fit).__name__} with observed entries of type "
            f"{type(observed).__name__}"
        )
    return factors, observed


def _certify(m: MeasuredSpectrum, tol: float, rng: np.random.Generator) -> Certificate:
    (n, columns), k = m.pattern.shape, len(m.s)
    dimension = k * (n + columns - k)
    facts: dict[str, Any] = {"rank": k, "entries": m.pattern.nnz, "degrees of freedom": dimension}
    checks = [Check("agreement", m.relative, tol, "||Pi(A - B)|| / ||Pi(A)||")]
    if k == 0:
        facts["verdict"] = "proven" if checks[0].passed else "disproven"
        return Certificate(
            PROBLEM,
            "global",
            tuple(checks),
            facts,
            (_words(facts["verdict"], checks, dimension, m),),
        )
    low, how, direct = (
        smallest(m.tangent, m.x, rng)
        if dimension <= m.pattern.nnz
        else (0.0, "fewer entries than degrees of freedom", True)
    )
    facts |= {"smallest eigenvalue on T": low, "how it is known": how}
    checks.append(
        Check(
            "injectivity",
            -low,
            -1e-12,
            "minus the smallest eigenvalue of P_T Pi P_T: no rank-k direction is left free",
        )
    )
    if low > 1e-12:
        goal = Coordinates(np.eye(k), np.zeros((n, k)), np.zeros((columns, k)))
        y, missed, _ = dual_point(m, goal)
        slack = missed / np.sqrt(low)
        for probe in PROBES:
            found, bound, words = m.outside(y, rng, probe)
            if bound + slack < 1 or found + slack >= 1:
                break
        facts |= {
            "||P_Tperp Y||_2": found,
            "how its bound is known": words,
            "||P_T Y - E||_F": missed,
        }
        checks.append(
            Check(
                "dual certificate",
                bound + slack,
                1 - 1e-9,
                "bound of ||P_Tperp Y||_2 + ||P_T Y - E|| / sqrt(lambda)",
            )
        )
    passed = [c.passed for c in checks]
    free = low <= 1e-12 and direct
    facts["verdict"] = (
        "proven" if all(passed) else "disproven" if not passed[0] or free else "not proven"
    )
    return Certificate(
        PROBLEM, "global", tuple(checks), facts, (_words(facts["verdict"], checks, dimension, m),)
    )


def _words(verdict: str, checks: list[Check], dimension: int, m: MeasuredSpectrum) -> str:
    if verdict == "proven":
        return (
            "proven: the entries determine this matrix; every other one that agrees with them "
            "has a larger nuclear norm"
        )
    if not checks[0].passed:
        return "disproven: the matrix does not agree with the observed entries"
    if verdict == "disproven":
        return (
            f"disproven: {m.pattern.nnz} entries leave directions of rank-{len(m.s)} "
            f"matrices free ({dimension} degrees of "
            "freedom); other matrices of this rank fit the entries to first order"
        )
    if checks[1].passed:
        return (
            "not proven: no other matrix of this rank nearby agrees with the entries, but no "
            "dual certificate was found; more entries would help"
        )
    return "not proven: neither a free direction nor its absence could be shown"


def smallest(t: Tangent, x: Observed, rng: np.random.Generator) -> tuple[float, str, bool]:
    """A lower bound of lambda_min(P_T Pi P_T), how it is known, and whether it is the value
    itself."""
    (n, m), k = t.pattern.shape, t.left.shape[1]
    dimension = k * (n + m - k)
    if dimension <= DENSE:
        return _dense_smallest(t, x), f"exact: a dense eigenvalue problem of size {dimension}", True
    return _lanczos_smallest(t, rng, dimension)


def _dense_smallest(t: Tangent, x: Observed) -> float:
    """Rows of Pi on T as a matrix: entry (i, j) has the coordinates u_i v_j^T, u_perp,i v_j^T, u_i
    v_perp,j^T."""
    (n, m), k = t.pattern.shape, t.left.shape[1]
    rows = np.repeat(np.arange(n), x.row_counts())
    left, right = np.asarray(t.left), np.asarray(t.right)
    u, v = left[rows], right[x.indices]
    gram = np.zeros((k * (n + m - k),) * 2)
    full_u, full_v = (np.linalg.qr(a, mode="complete")[0][:, k:] for a in (left, right))
    step = max(1, 2**24 // max(1, len(gram)))
    for a in range(0, len(rows), step):
        i, j = rows[a : a + step], x.indices[a : a + step]
        ua, va = u[a : a + step], v[a : a + step]
        parts = [
            (x[:, :, None] * y[:, None, :]).reshape(len(i), -1)
            for x, y in ((ua, va), (full_u[i], va), (ua, full_v[j]))
        ]
        block = np.hstack(parts)
        gram += block.T @ block
    return max(float(eigvalsh(gram)[0]), 0.0)


def _lanczos_smallest(
    t: Tangent, rng: np.random.Generator, dimension: int
) -> tuple[float, str, bool]:
    """mu - xi / (1 - eps) for xi the largest Ritz value of mu - P_T Pi P_T, mu >= its norm; eps by
    Kuczynski and Wozniakowski."""

    def apply(g: Coordinates) -> Coordinates:
        return t.adjoint(t.forward(g))

    def random() -> Coordinates:
        k = t.left.shape[1]
        g = Coordinates(*(rng.standard_normal(s) for s in ((k, k), t.left.shape, t.right.shape)))
        return t.inside(g)

    chance = FAILURE / 2
    top, steps = _extreme(t, apply, random(), 30)
    top = min(1.0, top / (1 - _loss(dimension, steps, chance)))
    xi, steps = _extreme(
        t, lambda g: Coordinates(*(top * a for a in g)).plus(-1.0, apply(g)), random(), LANCZOS
    )
    low = top - xi / (1 - _loss(dimension, steps, chance))
    estimate = top - xi
    words = f"{SURE} ({steps} Lanczos steps; the estimate itself is {estimate:.3g})"
    return max(low, 0.0), words, estimate <= 1e-10


def _loss(dimension: int, steps: int, chance: float) -> float:
    """eps such that Lanczos misses a share eps of the norm with at most this chance; at most
    0.99."""
    return min(0.99, (float(np.log(1.648 * np.sqrt(dimension) / chance)) / (2 * steps - 1)) ** 2)


def _extreme(t: Tangent, apply: Any, start: Coordinates, steps: int) -> tuple[float, int]:
    """The largest Ritz value after Lanczos steps on T, and how many were made."""
    size = np.sqrt(start.dot(start))
    q = Coordinates(*(a / size for a in start))
    before, beta = None, 0.0
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(steps):
        w = apply(q)
        alpha = q.dot(w)
        w = w.plus(-alpha, q)
        if before is not None:
            w = w.plus(-beta, before)
        w = t.inside(w)  # rounding outside T would grow: Pi P_T vanishes there
        diagonal.append(alpha)
        beta = float(np.sqrt(w.dot(w)))
        if beta <= 1e-13 * max(abs(alpha), 1e-300):
            break
        off.append(beta)
        before, q = q, Coordinates(*(a / beta for a in w))
    count = len(diagonal)
    t = np.diag(diagonal) + np.diag(off[: count - 1], 1) + np.diag(off[: count - 1], -1)
    return float(eigvalsh(t)[-1]), count
