"""Exact recovery of a rank-k matrix from near the least number of entries that determine it.

    find B of rank k with Pi(B) = Pi(A)

by iteratively reweighted least squares on the log-determinant of the singular values: with X = U
diag(sigma) V^T (all triples) and the smoothing eps,

    X+ = argmin  sum_ij |(U^T Z V)_ij|^2 / (max(sigma_i, eps) max(sigma_j, eps))     subject to
    Pi(Z) = Pi(A),        eps+ = min(eps, sigma_{k+1}(X+)).

Only the k leading triples exceed eps, so the weights are 1 / eps^2 outside the tangent space T and
the answer is "element of T + sparse remainder": X+ = P_T g + Pi^T (b - Pi P_T g), g the solution of
a ridge least squares problem on T (``tangent``) whose ridge goes to zero with eps. Its convergence
at the end is quadratic; n x m is never formed. Where eps falls too fast the iteration can settle on
a wrong matrix, so eps is kept from falling by more than a factor (0.9 an iteration, closer to 1 in
a second attempt) until the data is nearly fitted. Gauss-Newton steps on T end the run, and give the
least-squares fit of rank k where the data is not exactly of that rank.

References: Kuemmerle and Mayrink Verdun, "A scalable second order method for ill-conditioned matrix
completion from few samples" (2021); the rank-2k least squares idea also in Bauch, Nadler and Zilber
(R2RILS, 2021) and Zilber and Nadler (GNMF, 2022).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.recovery import recovery_certificate
from eckart.complete.nuclear.operators import Operator, Solution, Triples, low_rank_svd, partial_svd
from eckart.complete.nuclear.spectral_completer import (
    RANK,
    SpectralCompleter,
    at_least,
    entries_norm,
    zero_solution,
)
from eckart.errors import invalid
from eckart.factors import LowRank
from eckart.io.models.checkpoint import NOTHING, Memory, resumed_trace
from eckart.matrix import Observed
from eckart.optim.tangent import Coordinates, Sampling, Tangent, least_squares, placed
from eckart.parameters import number, param, whole
from eckart.trace import StopReason, Trace, Watcher, silent

PACES = (0.9, 0.97)
"""Least factor by which eps may fall in an iteration, for each attempt."""
SETTLED = 0.02
"""eps may fall freely once the residual is this share of what the smallest of the k singular values
puts on the observed entries."""
STALL = 30
"""Iterations without progress after which an attempt ends."""
GAP = 1e-6
"""Singular values below this share of the largest are not those of the matrix, where what is left
without them fits the entries as well."""
FITS = 1e-9
"""Relative residual of a matrix that fits the entries."""
POLISH = 8
"""Most Gauss-Newton steps."""
CG = 500
"""Most steps of conjugate gradients in one of these."""


def solve(
    x: Observed,
    k: Any,
    *,
    tol: float = 1e-12,
    max_iter: int = 500,
    attempts: int = len(PACES),
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Solution:
    """B of rank k through the observed entries; stops at relative residual ``tol``, or where no
    further progress is made."""
    if k < 0:
        raise invalid("k", k, "0 or more")
    k = min(k, *x.shape)
    kept = memory.last() or {"trace": None, "used": 0, "best": (np.inf, None)}
    used, best = kept["used"], kept["best"]
    trace = resumed_trace("relative residual at the observed entries", kept["trace"])
    size = entries_norm(x)
    if k == 0 or size == 0.0:
        return zero_solution(x, trace, {"relative residual": float(size > 0)})
    b = placed(engine, x.data.astype(np.float64) / size)
    search = _Search(Sampling(x, engine), b, k, tol, max_iter, rng, trace, watch)
    try:
        with engine.at_work():
            for pace in PACES[used : max(1, attempts)]:
                attempt = memory.inner(
                    {"trace": (trace.values, trace.seconds), "used": used, "best": best}
                )
                used += 1
                best = min(best, search.attempt(pace, attempt), key=lambda f: f[0])
                if search.stopped:
                    trace.reason = StopReason.INTERRUPTED
                    break
                if best[0] <= max(tol, FITS) or len(trace) >= max_iter:
                    break
    except KeyboardInterrupt:
        if best[1] is None:
            raise
        trace.reason = StopReason.INTERRUPTED
    with engine.at_work():
        misfit, (u, s, v) = search.of_least_rank(Found(*best))
    if trace.reason is not StopReason.INTERRUPTED:
        trace.reason = StopReason.CONVERGED if misfit <= tol else StopReason.STALLED
        if len(trace) >= max_iter and misfit > FITS:
            trace.reason = StopReason.MAX_ITER
    return Solution(
        engine.get(u),
        s * size,
        engine.get(v),
        trace,
        {"relative residual": misfit, "attempts": used},
    )


class Found(NamedTuple):
    """A matrix of rank k and its relative residual."""

    misfit: float
    triples: tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(eq=False)
class _Search:
    """The entries ``b`` on their pattern, the rank, and when to stop."""

    pattern: Sampling
    b: np.ndarray
    k: int
    tol: float
    max_iter: int
    rng: np.random.Generator
    trace: Trace
    watch: Watcher
    stopped: bool = False

    def attempt(self, pace: float, memory: Memory) -> Found:
        """The reweighted iteration, then Gauss-Newton steps."""
        (annealed,) = memory.last() or (None,)
        if annealed is None:
            annealed = self.anneal(pace, memory.inner((None,)))
        if self.stopped:
            return Found(*annealed)
        return self.polish(Found(*annealed), memory.inner((annealed,)))

    def anneal(self, pace: float, memory: Memory) -> Found:
        """The reweighted iteration; returns the k leading triples of the last X, also where it is
        interrupted."""
        found, eps, history = memory.last() or self._begin()
        state: list[Any] = [Triples(*found), eps, history]
        before = len(self.trace) - len(history)
        try:
            self._anneal(pace, state, memory)
        except KeyboardInterrupt:
            if not before + len(history):  # before there is an answer
                raise
            self.stopped = True
            del (
                self.trace.values[before + len(history) :],
                self.trace.seconds[before + len(history) :],
            )
        u, s, v = (part.copy() for part in _leading(state[0], self.k))
        return Found(self._rest(u * s, v)[1], (u, s, v))

    def _anneal(self, pace: float, state: list[Any], memory: Memory) -> None:
        """Iterate on [triples, eps, history]; each is replaced when the next one is complete."""
        k, pattern = self.k, self.pattern
        share = float(np.sqrt(pattern.nnz / (pattern.shape[0] * pattern.shape[1])))
        found, eps, history = state
        while len(history) < self.max_iter:
            memory.offer((found, eps, history))
            u, s, v = _leading(found, k)
            above = s > eps * (1 + 1e-4)
            if not above.any():
                break
            left, right = self._reweighted(u[:, above], s[above], v[:, above], eps)
            rest, misfit = self._rest(left, right)
            self.trace.add(misfit)
            self.watch("reweighting", len(self.trace), None)
            low = low_rank_svd(pattern.engine, left, right)
            spare = np.zeros((pattern.shape[1], 0)) if found.spare is None else found.spare
            found = partial_svd(
                Operator(pattern, rest, *low),
                k + 1,
                rng=self.rng,
                start=np.hstack([low[2][:, :k], found.right[:, k:], spare]),
                tol=min(1e-2, max(1e-2 * eps / float(low[1][0]), 1e-14)),
            )
            fallen = min(eps, float(found.values[k]) if len(found.values) > k else 0.0)
            smallest = float(found.values[k - 1]) * share if len(found.values) >= k else 0.0
            eps = max(fallen, pace * eps) if misfit > SETTLED * smallest else fallen
            history.append((misfit, eps))
            state[:2] = found, eps
            if misfit <= max(self.tol, 1e-11) or eps <= 1e-12 * float(found.values[0]):
                break
            if len(self.trace) >= self.max_iter:
                break
            if (
                len(history) > STALL
                and misfit > 0.97 * history[-STALL][0]
                and eps > 0.97 * history[-STALL][1]
            ):
                break

    def of_least_rank(self, found: Found) -> Found:
        """The same matrix without singular values that a rank above that of the matrix leaves
        behind, where the rest fits the entries too."""
        misfit, (u, s, v) = found
        kept = int(np.count_nonzero(s > GAP * s[0])) if len(s) else 0
        if misfit > FITS or kept == len(s):
            return found
        cut = u[:, :kept], s[:kept], v[:, :kept]
        less = self.polish(Found(self._rest(cut[0] * cut[1], cut[2])[1], cut), NOTHING)
        return less if less.misfit <= FITS else found

    def _begin(self) -> tuple[Triples, float, list[Any]]:
        """X = Pi(A): its k + 1 leading triples, eps = sigma_{k+1}, and nothing behind us."""
        z = Operator(self.pattern, self.b)
        found = partial_svd(z, self.k + 1, rng=self.rng, tol=1e-2)
        return found, float(found.values[self.k]) if len(found.values) > self.k else 0.0, []

    def _reweighted(
        self, u: np.ndarray, s: np.ndarray, v: np.ndarray, eps: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """L, R with P_T g = L R^T, g the solution of the ridge problem on T at the triples above
        eps."""
        t = Tangent(self.pattern, u, v)
        off = eps / np.maximum(s - eps, 1e-12 * s[0])
        ridge = Coordinates(
            eps**2 / np.maximum(np.outer(s, s) - eps**2, 1e-12 * s[0] ** 2), off, off
        )
        now = Coordinates(np.diag(s), np.zeros_like(u), np.zeros_like(v))
        accuracy = min(1e-3, 0.05 * eps / float(s[0]))
        return t.factors(
            least_squares(t, self.b, ridge, now, tol=accuracy, drop=1e-4, max_iter=CG)[0]
        )

    def _rest(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
        """The residual at the entries and its norm."""
        rest, square = self.pattern.residual(self.b, left, right)
        return rest, float(np.sqrt(square))

    def polish(self, found: Found, memory: Memory) -> Found:
        """Gauss-Newton on the tangent space with back-tracking: quadratic at an exact fit, the
        rank-k least squares fit otherwise."""
        begin, kept = memory.last() or (0, found)
        best = [Found(kept[0], tuple(kept[1]))]
        try:
            self._polish(begin, best, memory)
        except KeyboardInterrupt:
            self.stopped = True
        return best[0]

    def _polish(self, begin: int, best: list[Found], memory: Memory) -> None:
        misfit, (u, s, v) = best[0]
        for count in range(begin, POLISH):
            memory.offer((count, (misfit, (u, s, v))))
            if not len(s):
                break
            t = Tangent(self.pattern, u, v)
            zero = np.zeros(1)
            g, _, _ = least_squares(
                t,
                self._rest(u * s, v)[0],
                Coordinates(zero, zero, zero),
                t.zero(),
                tol=1e-6,
                drop=1e-6,
                max_iter=CG,
            )
            step, better = 1.0, False
            for _ in range(6):
                trial = t.retract(s, Coordinates(*(step * part for part in g)))
                size = self._rest(trial[0] * trial[1], trial[2])[1]
                if size < misfit:
                    better = True
                    break
                step /= 4
            if not better:
                break
            slow = size > 0.999 * misfit
            misfit, (u, s, v) = size, trial
            best[0] = Found(misfit, (u, s, v))
            self.trace.add(misfit)
            if slow or misfit <= 1e-15:
                break


def _leading(found: Triples, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.left[:, :k], found.values[:k], found.right[:, :k]


@dataclass(eq=False, repr=False)
class ExactRecovery(SpectralCompleter):
    """Recover a matrix of rank k exactly from few of its entries: find B of rank k with Pi(B) =
    Pi(A).

    By iteratively reweighted least squares on the tangent space; it succeeds where the entries are
    1.5 to 2 times the degrees of freedom k (n + m - k), at any condition number. Where the data is
    not exactly of rank k, the result is a least-squares fit of rank k.

    Parameters
    ----------
    n_components : the rank k, or more: where a matrix of lower rank fits the entries, its rank is
        found (a gap of 1e-6 between singular values). More than min(rows, columns) counts as that.
    attempts : 1, or 2 to try again more slowly where the first attempt settles on a matrix that
        does not fit.
    normalise : what is taken out of the entries before the fit and put back after: "column", "row",
        "both", "global", "bias" or None. It changes the rank of exact data, so None is the default.
    tol : stop at ||Pi(A - B)|| <= tol ||Pi(A)||.
    checkpoint : file in which the state is kept after iterations; the same fit resumes from it
        after a crash, with the same bits.
    max_iter, random_state, engine, n_threads, verbose : most iterations; seed; the engine; most
        threads (they do not change the result); progress bars.

    Attributes
    ----------
    fit_, certificate_, singular_values_, rank_, n_iter_.

    The certificate says whether B agrees with the entries, whether they leave a direction of rank-k
    matrices free, and whether B is proven to be the minimiser of the nuclear norm
    (``certificate_["verdict"]``; ``holds`` asks for the first two). Computed in float64 for every
    precision of the data.

    >>> rng = np.random.default_rng(0)
    >>> a = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 30))
    >>> model = ExactRecovery(2, random_state=0).fit(np.where(rng.random(a.shape) < 0.5, a, np.nan))
    >>> bool(np.abs(model.predict(np.repeat(np.arange(30), 30), np.tile(np.arange(30), 30)) - a.ravel()).max() < 1e-9)
    True

    References: Kuemmerle and Mayrink Verdun (2021).
    """

    n_components: int = param(10, RANK)
    _: KW_ONLY
    attempts: int = param(2, whole(1))
    tol: float = param(1e-12, number(0))
    max_iter: int = param(500, whole(1))

    def _find(
        self, x: Observed, engine: Any, rng: np.random.Generator, watch: Watcher, memory: Memory
    ) -> tuple[Solution, dict[str, Any]]:
        found = solve(
            x,
            self.n_components,
            tol=self.tol,
            max_iter=self.max_iter,
            attempts=self.attempts,
            engine=engine,
            rng=rng,
            watch=watch,
            memory=memory,
        )
        outcome: dict[str, Any] = {"attempts": int(found.evidence.get("attempts", 0))}
        most = min(self.n_components, *x.shape)
        if len(found.s) < most:
            outcome["rank"] = (
                f"{len(found.s)}, found: it fits the entries as well as {most}, which was allowed"
            )
        return found, outcome

    def _evidence(
        self, x: Observed, f: LowRank, plan: dict[str, Any], engine: Any, rng: np.random.Generator
    ) -> Certificate:
        whole = recovery_certificate(f, x, tol=at_least(1e-9, x), random_state=rng, engine=engine)
        facts, notes = whole.facts, whole.notes
        if facts["verdict"] == "disproven" and whole.checks[0].passed:
            # a direction is free at rank k; where k is more than the rank of the matrix, that says
            # nothing about the matrix
            facts = facts | {"verdict": "not proven"}
            words = (
                "not proven: the entries fit, but too few of them determine a matrix of rank "
                f"{facts['rank']}; give n_components if a lower rank is known"
            )
            notes = (words, *whole.notes[1:])
        # the promise is a fit of rank k that the entries determine; the nuclear norm's certificate
        # is reported beside it
        return Certificate(
            "find B of rank k with Pi(B) = Pi(A)",
            "global",
            tuple(c for c in whole.checks if c.name != "dual certificate"),
            facts,
            notes,
        )
