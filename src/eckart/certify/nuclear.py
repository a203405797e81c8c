"""Evidence for nuclear-norm completion: duality gaps, measured from the entries and the factors
alone.

P(B) = 1/2 ||Pi(A - B)||_F^2 + tau ||B||_* has the dual  D(y) = <y, b> - 1/2 ||y||^2,  ||Pi^T y||_2
<= tau.  With R = Pi(A - B) the point y = c R,
c = min(1, tau / ||R||_2), is feasible, so no matrix of any rank has a value below D(y): the gap
P(B) - D(y) bounds how far B is from the best.

Ridge ALS minimises 1/2 ||Pi(A - U V^T)||^2 + l2/2 (||U||^2 + ||V||^2) >= P(U V^T) with tau = l2,
with equality for balanced factors: the same D bounds it from below, over all ranks. In particular,
at a stationary point with ||R||_2 <= l2 the gap is zero and U V^T is a global minimiser.

||R||_2 is bounded by blocks: inside the spaces of B exactly, outside by Lanczos from random starts, which misses the norm by a known factor with a
known small probability (``spectral.remainder_norm``). SVP has no such bound (its problem is not
convex): it is shown to be stationary, and global where it fits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.certify.spectral import remainder_norm
from eckart.decompositions import svd
from eckart.engines.protocol import Engine
from eckart.errors import InputError
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.optim.tangent import Coordinates, Sampling, Tangent, least_squares, placed

PROBES = ((8, 4), (24, 4), (60, 6))
"""Steps and random starts of the norm's bound; the next pair is tried where the bound decides."""
SURE = "with probability >= 0.999"


class MeasuredSpectrum:
    """The problem at the returned point, in float64: pattern, targets b, residual R, and the
    triples of B."""

    def __init__(self, x: Observed, f: LowRank, engine: Engine):
        if f.shape != x.shape:
            raise InputError(
                f"X must be the data the model was fitted to, of shape {f.shape}, got shape "
                f"{x.shape}"
            )
        if f.row_scale is not None or f.column_scale is not None:
            raise InputError(
                "X must be the normalised data and the model's plain factors: the model was fitted "
                "to rescaled entries (scale=True)"
            )
        self.x, self.engine, self.pattern = x, engine, Sampling(x, engine)
        left, right = (placed(engine, a.astype(np.float64)) for a in (f.left, f.right))
        self.b = self.pattern.values(1.0, np.float64)
        if f.mean or f.row_bias is not None or f.column_bias is not None:
            self.b = self.b - self.pattern.at(*(placed(engine, side) for side in offsets(f)))
        self.rest = self.b - self.pattern.at(left, right)
        self.square = float(self.rest @ self.rest)
        self.norms = float(np.sum(np.square(left)) + np.sum(np.square(right)))
        ql, qr = engine.orth(left), engine.orth(right)
        a, s, ct = svd(engine.inner(ql, left) @ engine.inner(qr, right).T, full_matrices=False)
        # values that are rounding alone would make directions out of nothing
        real = s > 1e-14 * max(float(s[0]) if len(s) else 0.0, np.finfo(float).tiny)
        self.u, self.s, self.v = engine.outer(ql, a[:, real]), s[real], engine.outer(qr, ct[real].T)
        self.tangent = Tangent(self.pattern, self.u, self.v)

    @property
    def relative(self) -> float:
        size = float(np.linalg.norm(self.b))
        return float(np.sqrt(self.square)) / size if size > 0 else 0.0

    def outside(
        self, data: np.ndarray, rng: np.random.Generator, probe: tuple[int, int]
    ) -> tuple[float, float, str]:
        """(found, bound, words) for ||(I - U U^T) Z (I - V V^T)||_2, Z sparse with this data."""
        e, by_column = self.engine, self.pattern.by_columns(data)

        def off(q: np.ndarray, block: np.ndarray) -> np.ndarray:
            return e.outer(q, -e.inner(q, block), block)

        def product(a: np.ndarray) -> np.ndarray:
            y = off(self.u, self.pattern.times(data, off(self.v, a)))
            return off(self.v, self.pattern.times_t(by_column, y))

        if self.v.shape[1] >= len(self.v):
            return 0.0, 0.0, "exact: nothing is outside"
        steps, block = probe
        found, bound, words = remainder_norm(
            product, self.v, np.dtype(np.float64), rng, float(data @ data), steps, block, engine=e
        )
        how = (
            "exact up to rounding"
            if words.startswith("exact")
            else f"{SURE} ({steps} Lanczos steps, {block} starts)"
        )
        return float(np.sqrt(found)), float(np.sqrt(bound)), how

    def norm(
        self, data: np.ndarray, rng: np.random.Generator, probe: tuple[int, int]
    ) -> tuple[float, float, str]:
        """(found, bound, words) for ||Z||_2 by blocks: inside T exactly, outside by ``outside``."""
        g = self.tangent.adjoint(data)
        found, bound, how = self.outside(data, rng, probe)
        parts = [[_norm(g.m), _norm(g.y)], [_norm(g.x), 0.0]]
        tops = [
            float(np.linalg.norm(np.array([parts[0], [parts[1][0], w]]), 2)) for w in (found, bound)
        ]
        return tops[0], tops[1], how


def offsets(f: LowRank) -> tuple[np.ndarray, np.ndarray]:
    """mean + b_i + c_j as a product of two columns: (mean + b_i, 1) (1, c_j)^T."""
    n, m = f.shape
    b, c = (
        np.zeros(size) if bias is None else bias.astype(np.float64)
        for size, bias in ((n, f.row_bias), (m, f.column_bias))
    )
    return np.column_stack([f.mean + b, np.ones(n)]), np.column_stack([np.ones(m), c])


def _norm(a: np.ndarray) -> float:
    return float(np.linalg.norm(a, 2)) if a.size else 0.0


def gap_certificate(
    x: Observed,
    f: LowRank,
    tau: float,
    *,
    tol: float,
    rng: np.random.Generator,
    engine: Engine,
    ridge: bool = False,
) -> Certificate:
    """Duality gap of Soft-Impute (``ridge=False``) or of ridge ALS with l2 = tau, as a share of the
    value."""
    with engine.at_work():
        m = MeasuredSpectrum(x, f, engine)
        penalty = tau / 2 * m.norms if ridge else tau * float(m.s.sum())
        value = 0.5 * m.square + penalty
        for probe in PROBES:
            found, bound, how = m.norm(m.rest, rng, probe)
            gap, likely = (value - dual_value(m.rest, m.b, tau, norm) for norm in (bound, found))
            if gap <= tol * value or likely > tol * value:
                break
    share = gap / value if value > 0 else 0.0
    problem = (
        "min 1/2 ||Pi(A - U V^T)||^2 + l2/2 (||U||^2 + ||V||^2), any rank"
        if ridge
        else "min 1/2 ||Pi(A - B)||^2 + tau ||B||_*"
    )
    facts: dict[str, Any] = {
        "value": value,
        "no matrix is below": max(value - gap, 0.0),
        "tau": float(tau),
        "rank": len(m.s),
        "residual norm ||R||_2": found,
        "residual norm is at most": bound,
        "how the bound is known": how,
        "relative residual": m.relative,
    }
    checks = (
        Check(
            "duality gap", share, tol, "how far the value can be above the best, as a share of it"
        ),
    )
    note = (
        "R is within tau: a global minimiser over all ranks"
        if bound <= tau * (1 + tol)
        else "||R||_2 exceeds tau"
    )
    return Certificate(problem, "global", checks, facts, (note,))


def dual_value(rest: np.ndarray, b: np.ndarray, tau: float, norm: float) -> float:
    """The best D(c R) with c ||R||_2 <= tau, R the residual ``rest`` of the entries ``b``."""
    inner, square = float(rest @ b), float(rest @ rest)
    c = min(inner / square if square > 0 else 0.0, tau / norm if norm > 0 else np.inf)
    c = max(c, 0.0)
    return c * inner - 0.5 * c * c * square if square > 0 else 0.0


def svt_certificate(
    x: Observed, f: LowRank, tau: float, *, tol: float, rng: np.random.Generator, engine: Engine
) -> Certificate:
    """Evidence for min tau ||B||_* + 1/2 ||B||_F^2, Pi(B) = Pi(A): feasibility, and a dual point
    made from B alone.

    y solves P_T Pi^T y = U diag(s + tau) V^T in least squares; if ||P_Tperp Pi^T y||_2 <= tau then
    B = shrink_tau(Pi^T y), so B minimises the Lagrangian and D(y) = <y, b> - 1/2 ||B||_F^2 bounds
    every feasible value. The feasible point B + Pi^T r, r the residual, is worth at most tau
    (||B||_* + sqrt(min(n, m)) ||r||) + 1/2 (||B||_F + ||r||)^2; half the squared distance of B from
    the minimiser is at most the difference.
    """
    with engine.at_work():
        m = MeasuredSpectrum(x, f, engine)
        k = len(m.s)
        goal = Coordinates(
            np.diag(m.s + tau), np.zeros((m.pattern.shape[0], k)), np.zeros((m.pattern.shape[1], k))
        )
        y, missed, _ = dual_point(m, goal)
        size = float(np.sqrt(goal.dot(goal)))
        for probe in PROBES:
            found, bound, how = m.outside(y, rng, probe)
            if bound <= tau or found > tau:
                break
        r = float(np.sqrt(m.square))
        nuclear, frobenius = float(m.s.sum()), float(np.linalg.norm(m.s))
        shrink = bound <= tau * (1 + 1e-9)
        dual = float(y @ m.b) - 0.5 * float(np.sum(np.maximum(m.s, 0) ** 2))
        upper = tau * (nuclear + np.sqrt(min(x.shape)) * r) + 0.5 * (frobenius + r) ** 2
    facts: dict[str, Any] = {
        "value": tau * nuclear + 0.5 * frobenius**2,
        "tau": float(tau),
        "rank": k,
    }
    if shrink:
        gap = max(upper - dual, 0.0)
        facts |= {
            "dual value": dual,
            "relative distance from the minimiser at most": float(np.sqrt(2 * gap))
            / max(frobenius, 1e-300),
        }
    facts |= {"dual norm outside, / tau": found / tau, "how the bound is known": how}
    checks = (
        Check(
            "feasibility",
            m.relative,
            1.5 * tol,
            "||Pi(A - B)|| / ||Pi(A)||: B agrees with the observed entries",
        ),
        Check(
            "dual equation",
            missed / max(size, 1e-300),
            1e-6,
            "P_T Y = U (s + tau) V^T is solved by some Y on the entries",
        ),
        Check(
            "dual bound",
            bound / tau,
            1.0,
            "||P_Tperp Y||_2 / tau: B is shrink_tau(Y), so it minimises the Lagrangian",
        ),
    )
    return Certificate("min tau ||B||_* + 1/2 ||B||^2 with Pi(B) = Pi(A)", "global", checks, facts)


def dual_point(m: MeasuredSpectrum, goal: Coordinates) -> tuple[np.ndarray, float, float]:
    """The least-norm y on the entries with P_T Pi^T y = goal: y = Pi P_T g, (P_T Pi^T Pi P_T) g =
    goal; with the miss ||P_T Pi^T y - goal||_F and ||g||."""
    zero = np.zeros(1)
    # conjugate gradients on the normal equations with the right-hand side goal instead of an image
    # of entries
    g, _, _ = least_squares(
        m.tangent,
        goal,
        Coordinates(zero, zero, zero),
        m.tangent.zero(),
        tol=1e-10,
        drop=0.0,
        max_iter=2000,
    )
    y = m.tangent.forward(g)
    miss = m.tangent.adjoint(y).plus(-1.0, goal)
    return y, float(np.sqrt(miss.dot(miss))), float(np.sqrt(g.dot(g)))


def svp_certificate(
    x: Observed, f: LowRank, *, tol: float, fitted: float, rng: np.random.Generator, engine: Engine
) -> Certificate:
    """Evidence for the best fit of rank k: stationary, a fixed point of the projection, and global
    where the entries are fitted."""
    with engine.at_work():
        m = MeasuredSpectrum(x, f, engine)
        g = m.tangent.adjoint(m.rest)
        size = float(np.sqrt(m.square))
        exact = m.relative <= fitted
        stationary = 0.0 if exact or size == 0.0 else float(np.sqrt(g.dot(g))) / size
        found, _, _ = m.outside(m.rest, rng, PROBES[0])
        share = x.nnz / max(x.shape[0] * x.shape[1], 1)
        smallest = float(m.s[-1]) if len(m.s) else 0.0
    facts: dict[str, Any] = {
        "value": 0.5 * m.square,
        "relative residual": m.relative,
        "rank": len(m.s),
        "smallest singular value": smallest,
        "largest step outside, eta ||P_Tperp R||": found / share if share else 0.0,
    }
    checks = [
        Check(
            "stationarity",
            stationary,
            tol,
            "||P_T R|| / ||R||: no better matrix of this rank nearby",
        )
    ]
    if not exact and len(m.s):
        checks.append(
            Check(
                "fixed point",
                found / smallest,
                1.0,
                "||P_Tperp R||_2 / s_k: the projection of B + R would not exchange a "
                "direction (true at every global minimiser)",
            )
        )
    kind = "global" if exact else "stationary"
    return Certificate(f"min 1/2 ||Pi(A - B)||^2 over rank <= {f.k}", kind, tuple(checks), facts)
