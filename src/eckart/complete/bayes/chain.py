"""One Gibbs chain of Bayesian matrix factorization, on entries standardised to mean 0 and variance
1.

    a_ij = b_i + c_j + u_i.v_j + noise,    noise ~ N(0, 1 / (alpha p_i q_j w_ij))
    (u_i, b_i) ~ N(mu + B^T x_i, L^-1)     (B = 0 without features),   mu | L ~ N(0, (2 L)^-1),   L
    ~ Wishart(I, d),  d = k + 1; columns the same
    p_i ~ Gamma(nu/2, nu/(2 tau))          noise="row": tau and nu learned; "column": the same for
    q_j; "both": both, tau of q being 1
    (u_i, b_i) ~ N(., (w_i L)^-1)          tails="heavy": w_i ~ Gamma(nu'/2, nu'/2), nu' learned for
    each side: a multivariate t distribution

A sweep draws, for rows and then for columns: mu and L given the factors; B; the factors given the
other side (``draw_rows``); the noise precisions given the misfit of the factors just drawn. Every
conditional is a standard distribution, so there is nothing to tune. All of it runs in double
precision: a noise level near zero makes the normal equations stiff. Reference: Salakhutdinov and
Mnih 2008 (BPMF).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from eckart.complete.bayes.features import Link
from eckart.engines.protocol import Placed, RidgeRule, Tall

MEAN_WEIGHT = 2.0
"""Rows that the prior mean of factors, 0, counts as: beta_0 of Salakhutdinov and Mnih."""
START_SHARE = 0.25
"""Share of the variance of the entries that u_i.v_j has at the start: chains that begin near zero
need some 200 sweeps to find what they have after 30 from here (MovieLens-100K, 31 factors), and
those that begin with all of it as many to lose what is noise."""
FLOOR = 1e-9
"""Least noise precision and variance: beyond it the normal equations are no longer solvable in
double precision."""
NOISE_DEGREES, NOISE_VARIANCE = 1.0, 0.01
"""The prior of the noise counts as one entry of this variance, in units of that of the entries: it
decides nothing but where there is no noise at all."""
SHAPES = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0])
"""The degrees of freedom nu among which the spread of noise precisions is learned."""
TAIL_STREAM = 16
"""The streams of the draws of w: 0 to 15 are those of factors, noise and latent values."""
SETTLING = 30
"""Sweeps, at most half of the burn-in, in which all w stay 1: while factors are still those of the
start, a weight near 0 lets one row take a component for itself, and a chain leaves that place after
a hundred sweeps or not at all (2 of 13 tables of rank 3 fitted with 4 components, in one of two
chains; then none of 13)."""
TAILS = np.array([3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 512.0])
"""Those of the factors' priors: with 3 a variance is still there, and 512 cannot be distinguished from a
normal distribution."""


class Draw(NamedTuple):
    """The factors drawn (rows x d) and, when it is asked for, each row's misfit, sum_j q_j w_ij
    (a_ij - o_j - x_j.u_i)^2 (rows x 1): a pass over the entries that only noise needs."""

    factors: Tall
    misfit: Callable[[], Any]


def draw_rows(
    engine: Any,
    x: Placed,
    design: Tall,
    offset: Tall,
    p: Tall | float,
    q: Tall | None,
    base: np.ndarray,
    prior: Tall,
    z: Tall | None,
) -> Draw:
    """Draw every row's factors from their conditional; z = None gives the conditional means.

    Row i has the prior N(P^-1 h_i, P^-1) (``base`` P, ``prior`` h) and sees a_ij = o_j + x_j.u_i +
    noise of variance 1 / (p_i q_j w_ij): its conditional has the precision G_i = P + p_i sum_j q_j
    w_ij x_j x_j^T = R^T R, the mean G_i^-1 (h_i + p_i sum_j q_j w_ij (a_ij - o_j) x_j), and mean +
    R^-1 z_i is a draw. The normal numbers z are made by the engine from streams of a seed, so that
    threads do not change the draw.
    """
    u = engine.ridge_rows(
        x, design, RidgeRule(0.0), offset=offset, own=p, other=q, base=base, prior=prior, noise=z
    ).left
    return Draw(u, cache(partial(engine.misfit_rows, x, u, design, offset=offset, other=q)))


@dataclass(eq=False)
class ChainSide:
    """The rows (or columns) of the matrix: their entries, factors (u, b) of d columns, and what is
    learned about them. Tall arrays belong to the engine."""

    x: Placed
    counts: Tall  # entries of each row that count, rows x 1
    ones: Tall  # rows x 1
    last: Tall  # rows x d, ones in the last column
    link: Link | None = None
    factors: Tall = None
    precisions: Tall | None = None  # p_i, None: all 1
    logs: float = 0.0  # sum n_i log p_i
    shape: float = 4.0  # nu
    scale: float = 1.0  # tau
    tails: Tall | None = None  # w_i, None: all 1
    degrees: float = 8.0  # nu' of w
    mu: np.ndarray = field(default_factory=lambda: np.zeros(0))
    precision: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def of(cls, engine: Any, x: Placed, counts: np.ndarray, d: int, link: Link | None) -> ChainSide:
        ones = engine.take(np.ones((len(counts), 1)))
        last = engine.outer(
            ones, np.append(np.zeros(d - 1), 1.0)[None]
        )  # made where it is used: it is as large as the factors
        return cls(x, engine.take(counts[:, None], np.float64), ones, last, link)

    @property
    def rows(self) -> int:
        return self.last.shape[0]

    def kept(self, engine: Any) -> dict[str, Any]:
        """For a checkpoint."""
        tall = [
            None if a is None else engine.get(a)
            for a in (self.factors, self.precisions, self.tails)
        ]
        link = None if self.link is None else (self.link.coefficients, self.link.strength)
        return {
            "tall": tall,
            "noise": (self.shape, self.scale),
            "degrees": self.degrees,
            "link": link,
        }

    def take(self, kept: Any, engine: Any) -> None:
        """Go on from a checkpoint."""
        self.factors, self.precisions, self.tails = (
            None if a is None else engine.take(a) for a in kept["tall"]
        )
        (self.shape, self.scale), self.degrees = kept["noise"], kept["degrees"]
        if self.link is not None:
            self.link.put(*kept["link"])


class FactorChain:
    """State and sweep of one chain. Its own generator draws what is small; tall draws come from
    streams keyed by (seed, sweep, what)."""

    likelihood: Any = None  # the normal one
    settling: int = 0  # sweeps before the weights of heavy tails are drawn

    def __init__(
        self,
        rows: ChainSide,
        columns: ChainSide,
        noise: str,
        tails: str,
        rng: np.random.Generator,
        engine: Any,
    ):
        self.rows, self.columns, self.noise, self.rng, self.engine = (
            rows,
            columns,
            noise,
            rng,
            engine,
        )
        self.alpha, self.sweeps, self.seed = 1.0, 0, int(rng.integers(2**63))
        for what, side in enumerate((rows, columns)):
            d = side.last.shape[1]
            start = (
                START_SHARE / max(1, d - 1)
            ) ** 0.25  # d - 1 products of two such numbers have the variance START_SHARE
            first = np.diag(np.append(np.full(d - 1, start), 0.0))  # biases start at 0
            side.factors = engine.outer(
                engine.normal((self.seed, 0, what), (side.rows, d), np.float64), first
            )
        if noise in ("row", "both"):
            rows.precisions = rows.ones
        if noise in ("column", "both"):
            columns.precisions = columns.ones
        if tails == "heavy":
            rows.tails, columns.tails = rows.ones, columns.ones

    def sweep(self) -> float:
        """Draw everything once; returns the log-likelihood of an observed entry at the new
        state."""
        self.sweeps += 1
        misfit, graded = self._draw(self.rows, self.columns, 0), self.likelihood is not None
        # the unit of grades is that of their noise: its typical precision stays 1
        if self.rows.precisions is not None:
            self._draw_precisions(self.rows, misfit(), 2, learn_scale=not graded)
        misfit = self._draw(self.columns, self.rows, 1)
        if self.columns.precisions is not None:
            self._draw_precisions(
                self.columns, misfit(), 3, learn_scale=self.noise == "column" and not graded
            )
        if self.likelihood is not None:
            self._draw_rest()
            return self.likelihood.finish(self)
        square, size = self._square(misfit), self._size
        if self.noise == "common":
            degrees, rest = size + NOISE_DEGREES, square + NOISE_DEGREES * NOISE_VARIANCE
            self.alpha = min(self.rng.gamma(0.5 * degrees) / (0.5 * rest), 1.0 / FLOOR)
        # the mean of log N(a_ij; ., .) over the entries
        logs = sum(side.logs for side in (self.rows, self.columns))
        return 0.5 * (
            logs / max(1, size)
            + np.log(self.alpha / (2 * np.pi))
            - self.alpha * square / max(1, size)
        )

    def _draw_rest(self) -> Callable[[], Tall] | None:
        """What is neither a row nor a column; nothing here. Returns the misfit, where there is a
        new one."""
        return None

    def _square(self, misfit: Callable[[], Tall]) -> float:
        """sum p_i q_j w_ij (a_ij - prediction)^2 over the entries, given the misfit of the
        columns."""
        own = self.columns.ones if self.columns.precisions is None else self.columns.precisions
        return float(self.engine.inner(own, misfit())[0, 0])

    @cached_property
    def _size(self) -> int:
        """Entries that count."""
        return round(float(self.engine.inner(self.rows.ones, self.rows.counts)[0, 0]))

    def _draw(self, side: ChainSide, other: ChainSide, what: int) -> Callable[[], Tall]:
        """The factors of one side given the other; returns the misfit of each row."""
        engine, u, link, d = self.engine, side.factors, side.link, side.last.shape[1]
        rest, scatter = (
            (u, None) if link is None else (engine.take(engine.get(u) - link.now), link.scatter())
        )
        w = None if side.tails is None else engine.get(side.tails)
        heavy = rest if w is None else engine.take(engine.get(rest) * w)
        total, gram = engine.inner(side.ones, heavy)[0], engine.inner(heavy, rest)
        side.mu, side.precision, root = self._prior(side, total, gram, scatter)
        prior, now = (side.mu @ side.precision)[None], 0.0
        if link is not None:  # features are products of the host
            now = link.draw(self.rng, engine.get(u) - side.mu, side.precision, root, w)
            prior = engine.take((side.mu + now) @ side.precision)
        design, offset, q = self._seen(side, other)
        if self.likelihood is not None:
            drawn = self.likelihood.draw(self, side, design, offset, q, prior, what)
            side.factors = engine.outer(drawn.factors, np.eye(d))
            return drawn.misfit
        p = float(self.alpha) if side.precisions is None else side.precisions
        z = engine.normal((self.seed, self.sweeps, what), (side.rows, d), np.float64)
        if (
            w is not None
            # w (L + p/w sum x x^T): the mean is that of a noise precision p / w, and the spread 1 /
            # sqrt(w) of it
        ):
            p, z = (
                engine.take((p if isinstance(p, float) else engine.get(p)) / w),
                engine.take(engine.get(z) / np.sqrt(w)),
            )
        drawn = draw_rows(engine, side.x, design, offset, p, q, side.precision, prior, z)
        # as a state that is taken back lies in memory, without the padding of the draw: products
        # differ by it in the last bit
        side.factors = engine.outer(drawn.factors, np.eye(d))
        if w is not None and self.sweeps > self.settling:
            self._draw_tails(side, side.mu + now, root, what)
        return drawn.misfit

    def _draw_tails(self, side: ChainSide, centre: np.ndarray, root: np.ndarray, what: int) -> None:
        """w_i ~ Gamma((nu' + d)/2, (nu' + (u_i - m_i)^T L (u_i - m_i))/2) given the factors; then
        nu' given all w."""
        away = np.square((self.engine.get(side.factors) - centre) @ root).sum(axis=1, keepdims=True)
        counts = self.engine.take(np.full(away.shape, float(root.shape[0])))
        w = self.engine.precision_rows(
            (self.seed, self.sweeps, TAIL_STREAM + what),
            self.engine.take(away),
            counts,
            side.degrees,
            1.0,
            FLOOR,
        )
        side.tails, side.degrees = w.values, self._degrees(TAILS, w.total, w.logs, side.rows, 1.0)

    def _degrees(
        self, choices: np.ndarray, total: float, logs: float, n: int, scale: float
    ) -> float:
        """nu of n draws of Gamma(nu/2, nu/(2 scale)) whose sum and sum of logarithms are given,
        among ``choices``."""
        half = 0.5 * choices
        score = (
            n * (half * np.log(half / scale) - special.gammaln(half))
            + (half - 1) * logs
            - half / scale * total
        )
        chance = np.exp(score - score.max())
        return float(self.rng.choice(choices, p=chance / chance.sum()))

    def _prior(
        self,
        side: ChainSide,
        total: np.ndarray,
        gram: np.ndarray,
        scatter: tuple[np.ndarray, int] | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw mu and L of a side given the sum and the Gram matrix of its factors; with a root of
        L."""
        weight = (
            None if side.tails is None else float(self.engine.inner(side.ones, side.tails)[0, 0])
        )
        return normal_wishart(self.rng, side.rows, total, gram, scatter, weight)

    def _seen(self, side: ChainSide, other: ChainSide) -> tuple[Tall, Tall, Tall | None]:
        """What the entries of ``side`` see of the rest, by the columns of ``side.x``: a design,
        offsets and noise precisions."""
        d = other.last.shape[1]
        design = self.engine.outer(
            other.factors, np.diag(np.append(np.ones(d - 1), 0.0)), other.last
        )
        return design, other.factors[:, d - 1 : d], other.precisions

    def _draw_precisions(self, side: ChainSide, misfit: Tall, what: int, learn_scale: bool) -> None:
        """p_i given its row's misfit; then tau and nu given all p."""
        rng, n, nu = self.rng, side.rows, side.shape
        p = self.engine.precision_rows(
            (self.seed, self.sweeps, what), misfit, side.counts, nu, side.scale, FLOOR
        )
        if learn_scale:
            side.scale = float(
                np.clip(0.5 * nu * p.total / rng.gamma(0.5 * n * nu + 1.0), FLOOR, 1.0 / FLOOR)
            )
        side.shape = self._degrees(SHAPES, p.total, p.logs, n, side.scale)
        side.precisions, side.logs = p.values, p.heavy_logs

    @property
    def sides(self) -> tuple[ChainSide, ...]:
        """All that factors are drawn for."""
        return self.rows, self.columns

    def kept(self) -> dict[str, Any]:
        """For a checkpoint: everything the next sweep depends on."""
        numbers = [self.rng.bit_generator.state, self.seed, self.sweeps, self.alpha]
        thresholds = None if self.likelihood is None else self.likelihood.thresholds
        return {
            "numbers": numbers,
            "sides": [side.kept(self.engine) for side in self.sides],
            "thresholds": thresholds,
        }

    def take(self, kept: Any) -> None:
        """Go on from a checkpoint."""
        self.rng.bit_generator.state, self.seed, self.sweeps, self.alpha = kept["numbers"]
        for side, state in zip(self.sides, kept["sides"], strict=True):
            side.take(state, self.engine)
        if self.likelihood is not None:
            self.likelihood.take(kept["thresholds"])


def normal_wishart(
    rng: np.random.Generator,
    n: int,
    total: np.ndarray,
    gram: np.ndarray,
    scatter: tuple[np.ndarray, int] | None,
    weight: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw mu and L given the sum and the Gram matrix of n rows u_i (and the link's share); returns
    mu, L and a root M with M M^T = L.

    L ~ Wishart(S^-1, d + n), S = I + sum (u_i - m)(u_i - m)^T + 2n/(2 + n) m m^T: with S = C C^T
    and Bartlett's triangle T, M = C^-T T. Rows of weights w_i have weighted sums, and their total
    ``weight`` stands for n everywhere but in the degrees of freedom.
    """
    d, size = len(total), float(n) if weight is None else weight
    m = total / size
    # one array is changed step by step, and the triangle filled by rows: with some hundred columns
    # arrays in between took longer than the products
    s, square = gram + gram.T, np.outer(m, m)
    s /= 2
    s[np.diag_indices(d)] += 1
    s -= size * square
    s += MEAN_WEIGHT * size / (MEAN_WEIGHT + size) * square
    degrees = d + n
    if scatter is not None:
        s, degrees = s + scatter[0], degrees + scatter[1]
    t = np.zeros((d, d))
    t[np.diag_indices(d)] = np.sqrt(rng.chisquare(degrees - np.arange(d)))
    t[np.tri(d, k=-1, dtype=bool)] = rng.standard_normal(d * (d - 1) // 2)
    lower = np.linalg.cholesky(s)
    root = linalg.solve_triangular(lower, t, lower=True, trans="T", check_finite=False)
    noise = lower @ linalg.solve_triangular(
        t, rng.standard_normal(d), lower=True, trans="T", check_finite=False
    )  # M^-T z = C T^-T z
    mu = size * m / (MEAN_WEIGHT + size) + noise / np.sqrt(MEAN_WEIGHT + size)
    return mu, root @ root.T, root
