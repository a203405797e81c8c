"""SoftImpute: noisy data completed by the nuclear norm, the price tau given, walked along a path, or chosen. The solver is in ``active``."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.nuclear import gap_certificate, svp_certificate
from eckart.complete.active import solve
from eckart.complete.descend import Descent
from eckart.complete.operators import Operator, Solution, partial_svd
from eckart.complete.spectral import SpectralCompleter
from eckart.complete.split import split
from eckart.engines.cpu import sampled
from eckart.engines.cpu.sampled import Pattern
from eckart.engines.pool import single_threaded_blas
from eckart.errors import wrong
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.trace import Watcher

__all__ = ["SoftImpute", "choose_tau", "debiased", "solve"]


def debiased(x: Observed, found: Solution, *, tol: float = 1e-3, max_iter: int = 200, engine: Any) -> Solution:
    """The least-squares fit of the rank that was found, started from B: the nuclear norm's shrinkage taken back."""
    size = float(np.sqrt(np.sum(np.square(x.data, dtype=np.float64)))) or 1.0
    d = Descent(Pattern.of(x), (x.data / size).astype(x.dtype), engine.threads)
    with single_threaded_blas():
        at, _ = d.run(d.point(found.U, found.s / size, found.V), 0.0, tol, 1e-8, max_iter)
    return found._replace(U=at.u, s=at.s * size, V=at.v)


def choose_tau(
    x: Observed,
    *,
    share: float = 0.1,
    factor: float = 1.6,
    max_rank: int | None = None,
    engine: Any,
    rng: np.random.Generator,
) -> tuple[float, list[tuple[float, float, int]]]:
    """tau with the least error on a hidden share of the entries, and the (tau, error, rank) of the path to it; the path ends after two
    rises. It ends as well where the rank rises and the error falls by less than a tenth: from there on, noise comes in.
    """
    if x.nnz < 10:
        top = float(np.linalg.norm(x.data.astype(np.float64)))
        return max(top / 50, np.finfo(np.float64).tiny), []
    parts = split(x, share, random_state=rng)
    train, test = parts.train, parts.test
    where = Pattern.of(test)
    table: list[tuple[float, float, int]] = []
    start, best, rises, rank, leap = None, np.inf, 0, 0, False
    tau = _top(train, engine, rng)
    while rises < 2 and len(table) < 40:
        tau /= factor
        limit = 2 * rank + 10 if max_rank is None else min(2 * rank + 10, max_rank)
        found = solve(train, tau, max_rank=limit, tol=1e-2, max_iter=60, start=start, engine=engine, rng=rng)
        start, rank = (found.U, found.s, found.V), len(found.s)
        _, square = sampled.residual(where, test.data, (found.U * found.s).astype(test.dtype), found.V, engine.threads)
        error = float(np.sqrt(square / max(test.nnz, 1)))
        table.append((tau, error, rank))
        leap = len(table) > 1 and rank > table[-2][2] and error > 0.9 * table[-2][1]
        rises = 0 if error < 0.999 * best else rises + 1
        best = min(best, error)
        if leap or tau <= 1e-6 * table[0][0] or square == 0.0:
            break
    return min(table[:-1] if leap else table, key=lambda row: row[1])[0], table


def _top(x: Observed, engine: Any, rng: np.random.Generator) -> float:
    """tau_max = ||Pi(A)||_2."""
    found = partial_svd(
        Operator(Pattern.of(x), x.data.astype(np.float64), threads=engine.threads), 1, rng=rng, tol=1e-3
    )
    return float(found.values[0]) if len(found.values) else 1.0


class SoftImpute(SpectralCompleter):
    """Fill in noisy data by the nuclear norm: min 1/2 ||Pi(A - B)||_F^2 + tau ||B||_*. The rank is found, not given.

    Parameters
    ----------
    n_components : the largest rank; None sets no limit (with a limit that binds, the certificate says how far from the best it leaves us).
    tau : the price of the nuclear norm; 0 is reached as a limit. None chooses it by the error on a tenth of the entries, hidden for that.
    path : True, or a number of values: solve from tau_max = ||Pi(A)||_2 down to tau and keep the singular values on the way.
    debias : take the shrinkage back: the least-squares fit of the rank that was found, started from B.
    method : "descent" (steps at a fixed rank, new directions while the certificate asks for them) or "proximal" (accelerated Soft-Impute).
    normalise : what is taken out of the entries before the fit and put back after: "column", "row", "both", "global", "bias" or None.
    tol : the duality gap, as a share of the value.
    max_iter, random_state, n_threads, verbose : most steps; seed; most threads (the result does not depend on them); progress bars.

    Attributes
    ----------
    fit_, certificate_, singular_values_, rank_, n_iter_, tau_, path_taus_, path_singular_values_.

    The certificate is a duality gap: no matrix of any rank has a lower value than this one less the gap. With ``debias`` it is that of ``SVP`` at
    the rank found.

    >>> rng = np.random.default_rng(0)
    >>> a = np.outer(rng.standard_normal(40), rng.standard_normal(30)) + 0.01 * rng.standard_normal((40, 30))
    >>> model = SoftImpute(tau=0.2, random_state=0).fit(np.where(rng.random(a.shape) < 0.5, a, np.nan))
    >>> model.rank_, model.certificate_.holds
    (1, True)

    References: Mazumder, Hastie and Tibshirani (2010).
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        tau: float | None = None,
        path: bool | int = False,
        debias: bool = False,
        method: str = "descent",
        normalise: str | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        random_state: Any = None,
        n_threads: int | None = None,
        verbose: bool = False,
    ):
        self.n_components = n_components
        self.tau = tau
        self.path = path
        self.debias = debias
        self.method = method
        self.normalise = normalise
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    @property
    def tau_(self) -> float:
        """The price that was used."""
        return float(self._fitted("tau_").plan["tau"])

    @property
    def path_taus_(self) -> np.ndarray:
        """Values of tau along the path, falling."""
        return np.array(self._path("path_taus_")["taus"])

    @property
    def path_singular_values_(self) -> list[np.ndarray]:
        """Singular values at each of them."""
        return [np.array(values) for values in self._path("path_singular_values_")["values"]]

    def _path(self, name: str) -> dict[str, Any]:
        plan = self._fitted(name).plan
        if "path" not in plan:
            raise AttributeError(f"{name} is kept with path=True only")
        return plan["path"]

    def _find(
        self, x: Observed, engine: Any, rng: np.random.Generator, watch: Watcher
    ) -> tuple[Solution, dict[str, Any]]:
        if not isinstance(self.path, (bool, int, np.integer)) or self.path < 0:
            raise wrong("path", self.path, "True, False, or a number of values")
        chosen: dict[str, Any] = {}
        tau = self.tau
        if tau is None:
            tau, table = choose_tau(x, max_rank=self.n_components, engine=engine, rng=rng)
            chosen["tau chosen on hidden entries"] = [[float(a), float(b), int(c)] for a, b, c in table]
        goals: Any = tau
        if self.path:
            top = _top(x, engine, rng)
            count = 10 if self.path is True else int(self.path)
            goals = np.geomspace(top, tau, count) if top > tau else np.array([tau], float)
        found = solve(
            x, goals, max_rank=self.n_components, method=self.method, tol=0.25 * self.tol, max_iter=self.max_iter,
            engine=engine, rng=rng, watch=watch,
        )  # fmt: skip
        chosen |= {"tau": float(tau), "fold_l2": 0.0 if self.debias else float(tau)}
        if self.path:
            steps = found.evidence["path"]
            chosen["path"] = {"taus": [p.tau for p in steps], "values": [p.values.tolist() for p in steps]}
        return (debiased(x, found, tol=self.tol, engine=engine) if self.debias else found), chosen

    def _evidence(
        self, x: Observed, f: LowRank, plan: dict[str, Any], engine: Any, rng: np.random.Generator
    ) -> Certificate:
        rounding = 100 * float(np.finfo(x.dtype).eps)
        if self.debias:
            return svp_certificate(
                x, f, tol=1.5 * max(self.tol, rounding), fitted=max(1e-8, rounding), rng=rng, threads=engine.threads
            )
        return gap_certificate(x, f, float(plan["tau"]), tol=max(self.tol, rounding), rng=rng, threads=engine.threads)
