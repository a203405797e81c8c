"""One Gibbs chain of the time model (6.4), on rows standardised to mean 0 and variance 1.

    y_it = p_i(t mod P) + w_i.x_t + r_it + e_it,    e_it ~ N(0, s_i)
    x_t = A x_t-1 + N(0, Q),   w_i ~ N(mu, L^-1)                  factors that all rows share,
    moving as a vector autoregression
    r_it = phi_i r_i,t-1 + N(0, (1 - phi_i^2) v_i)                what a row has for itself, moving
    as its own autoregression
    p_i(s) = b(s).c_i + d_i(s),  d_i(s) = d_i(s - 1) + N(0, 1/q_i)    the profile of a row over one
    period: level and first waves b, and a smooth rest

A sweep draws

    (phi, v, s)   by Metropolis steps of each row on its exact likelihood with r integrated out
    (``own_likelihood``)
    W, c          with r integrated out (``own_rows``); mu and L given W (Normal-Wishart)
    r             each row as a chain (``state_rows``)
    A, Q, x       the regression of x_t on x_t-1; then all of x_0 .. x_T-1 at once as one chain
    (``chain_rows``)
    d, q          the rest of each profile as a chain

so that everything that moves in time is drawn exactly, in time linear in T. What no data determine
falls back to its prior: r to 0 within some steps of a gap, x to 0 in a gap of all rows, and a long
gap of one row is filled by its profile and by what the other rows show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from eckart.complete.bayes.chain import normal_wishart
from eckart.engines.protocol import Placed, Tall

START = 0.1
"""Deviation of factors at the start, in units of a row's: their products are small against the
entries, and the first sweep decides."""
CENTRE = np.array([1.0, np.log(0.2), np.log(0.3)])
"""Around which the means of logit phi, log deviation of r and log deviation of e are learned (prior
deviation 2): memory of some steps, and most of a row explained by the shared part and the
profile."""
BEGIN = CENTRE - np.array([0.0, 2.0, 0.0])
"""Where rows begin: with a prior deviation less of r, so that the shared part takes first what it
can."""
JOINT_STEPS = 4
"""Metropolis steps a sweep in all three of (phi, v, s) together: a likelihood costs a small part of
the draw of W, and they mix slowest of all."""
GOALS = np.array([0.44, 0.44, 0.44, 0.3])
"""The shares of accepted steps at which a random walk mixes fastest: in one dimension, and in three
(Gelman, Roberts and Gilks 1996)."""
LOOKS = 5.0
"""Sweeps that a first guess of that shape counts for."""
LIMITS = np.array([[-1.0, 7.0], [-6.0, 2.0], [-6.0, 2.0]])
"""Of logit phi and of the log deviations of r and e, in deviations of a row: phi from 0.27 to 0.999
(a part with less memory cannot be distinguished from noise, and the two would trade places), deviations from
0.0025 to 7."""
SHRINK = 0.98
"""The spectral radius to which an explosive A is shrunk: forecasts must return."""
PROFILE_SHAPE = 4.0
"""Degrees of freedom of the prior that the steps of all profiles share."""


WAVES = 3
"""Waves of a period that are drawn together with the factors, with r integrated out: drawn apart,
they and a slow r would wait for one another."""


class SeriesChain:
    """State and sweep of one chain. ``x`` is placed; what is small is drawn by ``rng``, tall draws
    come from streams keyed by (seed, sweep, what)."""

    def __init__(
        self, x: Placed, data: Tall, k: int, period: int, rng: np.random.Generator, engine: Any
    ):
        self.x, self.data, self.rng, self.engine, self.period = x, data, rng, engine, period
        n, columns = x.shape
        assert n is not None
        self.n, self.columns, self.k = n, columns, k
        self.seed, self.sweeps = int(rng.integers(2**63)), 0
        waves = basis(columns, period)
        self.left = self._normal(0, (n, k + waves.shape[1]), START)
        self.right = self._normal(1, (columns, k + waves.shape[1]), START)
        self.right[:, k:] = engine.take(waves)
        self.states = engine.take(np.zeros((n, columns)))
        # logit phi, log deviation of r, log deviation of e; the walk's step for each of them
        self.own = np.tile(BEGIN, (n, 1))
        self.step = np.full((n, 4), 0.5)
        self.seen, self.proposals_seen = np.zeros((n, 4, 3)), 0.0
        self.centre, self.spread = CENTRE.copy(), np.ones(3)
        self.roughness, self.common = np.full(n, 100.0), 100.0
        self.link, self.shock = np.zeros((k, k)), np.eye(k)
        self.profile = engine.take(np.zeros((n, period)))
        self._draw_profile(self._without_shared(data), np.ones(n))

    def _normal(self, what: int, shape: tuple[int, int], size: float = 1.0) -> Tall:
        drawn = self.engine.normal((self.seed, self.sweeps, what), shape, np.float64)
        return drawn if size == 1.0 else self.engine.outer(drawn, size * np.eye(shape[1]))

    def described(self, own: np.ndarray | None = None) -> np.ndarray:
        """(phi, v, s) of every row, as the primitives want them."""
        own = self.own if own is None else own
        return np.column_stack(
            [1 / (1 + np.exp(-own[:, 0])), np.exp(2 * own[:, 1]), np.exp(2 * own[:, 2])]
        )

    def sweep(self, settling: bool = False, quiet: bool = False) -> float:
        """Draw everything once; returns the log-likelihood of an entry given the shared part. While
        ``settling`` the Metropolis steps adapt; while ``quiet`` the rows' own parts stay small, so
        that the shared part is found first: later each would have to be won back from the other."""
        self.sweeps += 1
        engine, x, k = self.engine, self.x, self.k
        rest = engine.less_states(x, self.data, self.profile)
        likelihood = self._draw_own(self._without_shared(rest), settling, quiet)
        own = self.described()
        taken = engine.take(own)
        size = self.right.shape[1]
        base, prior = np.eye(size), np.zeros(size)
        if k:
            mu, precision = self._hyper()
            base[:k, :k], prior[:k] = precision, precision @ mu
        self.left = engine.own_rows(
            x, rest, self.right, taken, base, prior, self._normal(2, (self.n, size))
        )
        phi, v, s = own.T
        rule = np.column_stack([phi, 1 / v, 1 / ((1 - phi**2) * v), 1 / s])
        draws = self._normal(3, (self.n, self.columns))
        self.states = engine.state_rows(
            x, self._without_shared(rest), self.columns, engine.take(rule), draws
        )
        if k:
            self._draw_right(engine.less_states(x, rest, self.states), 1 / s)
        self._draw_profile(
            self._without_shared(engine.less_states(x, self.data, self.states)), 1 / s
        )
        return likelihood / max(1, x.nnz)

    def _without_shared(self, data: Tall) -> Tall:
        return self.engine.residual(self.x, data, self.left, self.right)[0]

    def _hyper(self) -> tuple[np.ndarray, np.ndarray]:
        """mu and L given W."""
        engine, left = self.engine, self.left[:, : self.k]
        total, gram = (
            engine.inner(engine.take(np.ones((self.n, 1))), left)[0],
            engine.inner(left, left),
        )
        mu, precision, _ = normal_wishart(self.rng, self.n, total, gram, None)
        return mu, precision

    def _draw_own(self, data: Tall, settling: bool, quiet: bool) -> float:
        """(phi, v, s) of all rows, each by its own walk; the prior is normal on the scale of the
        walk, with mean and variance learned from all rows."""
        engine, rng, n = self.engine, self.rng, self.n

        def score(own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = engine.get(
                engine.own_likelihood(self.x, data, engine.take(self.described(own)))
            )[:, 0]
            return found, found - 0.5 * np.square((own - self.centre) / self.spread).sum(axis=1)

        likelihood, now = score(self.own)
        root = self._shape()
        for c in [2, 2] if quiet else [0, 1, 2] + [3] * JOINT_STEPS:
            trial = self.own.copy()
            if c < 3:
                trial[:, c] += self.step[:, c] * rng.standard_normal(n)
            else:
                trial += self.step[:, 3:] * np.einsum(
                    "nab,nb->na", root, rng.standard_normal((n, 3))
                )
            inside = ((trial > LIMITS[:, 0]) & (trial < LIMITS[:, 1])).all(axis=1)
            trial[~inside] = self.own[~inside]
            found, new = score(trial)
            chance = np.where(inside, np.exp(np.minimum(new - now, 0.0)), 0.0)
            taken = rng.random(n) < chance
            self.own[taken], now[taken], likelihood[taken] = trial[taken], new[taken], found[taken]
            if settling:
                self.step[:, c] = np.clip(
                    self.step[:, c] * np.exp((chance - GOALS[c]) / np.sqrt(self.sweeps)), 1e-3, 5.0
                )
        if quiet:
            return float(likelihood.sum())
        if settling:  # sums in the first row, sums of products below
            self.seen[:, 0] += self.own
            self.seen[:, 1:] += self.own[:, :, None] * self.own[:, None, :]
            self.proposals_seen += 1
        # mean ~ N(m, 4) around the start, variance ~ inverse gamma(3/2, 3/2): one row of three says
        # about 1
        for c in range(3):
            precision = n / self.spread[c] ** 2 + 0.25
            mean = (self.own[:, c].sum() / self.spread[c] ** 2 + 0.25 * CENTRE[c]) / precision
            self.centre[c] = mean + rng.standard_normal() / np.sqrt(precision)
            miss = np.square(self.own[:, c] - self.centre[c]).sum()
            self.spread[c] = np.sqrt(0.5 * (3.0 + miss) / rng.gamma(0.5 * (3.0 + n)))
        return float(likelihood.sum())

    def _shape(self) -> np.ndarray:
        """A root of the covariance of each row's (phi, v, s) on the scale of the walk, as far as it
        is known: the shape of the joint steps."""
        m = max(1.0, self.proposals_seen)
        mean = self.seen[:, 0] / m
        covariance = (
            self.seen[:, 1:] - m * mean[:, :, None] * mean[:, None, :] + 0.25 * LOOKS * np.eye(3)
        ) / (m + LOOKS)
        return np.linalg.cholesky(covariance)

    def _draw_right(self, data: Tall, precision: np.ndarray) -> None:
        """A and Q given x; x given both."""
        engine, k = self.engine, self.k
        before, cross, after, _ = engine.lag_products(self.right[:, :k])
        self.link, self.shock = autoregression(self.rng, before, cross, after, self.columns - 1)
        start = np.linalg.inv(stationary(self.link, self.shock))
        data = engine.residual(self.x, data, self.left[:, k:], self.right[:, k:])[0]
        left = engine.outer(self.left[:, :k], np.eye(k))
        self.right[:, :k] = engine.chain_rows(
            self.x.T,
            engine.by_columns(self.x, data),
            left,
            engine.take(precision[:, None]),
            self.link,
            (start + start.T) / 2,
            np.linalg.inv(self.shock),
            self._normal(4, (self.columns, k)),
        )

    def _draw_profile(self, data: Tall, precision: np.ndarray) -> None:
        """d given the rest of the data; the precision q of its steps, which have a common prior
        Gamma(nu/2, nu/(2 tau)), tau learned."""
        n, period, nu = self.n, self.period, PROFILE_SHAPE
        if period == 1:
            return  # the level alone, which is drawn with W
        rule = np.column_stack([np.ones((n, 2)), self.roughness, precision])
        draws = self._normal(5, (n, period))
        self.profile = self.engine.state_rows(self.x, data, period, self.engine.take(rule), draws)
        square = self.engine.get(self.engine.step_squares(self.profile))[:, 0]
        self.roughness = self.rng.gamma(0.5 * (nu + period - 1), size=n) / (
            0.5 * (nu / self.common + square)
        )
        self.common = 0.5 * nu * self.roughness.sum() / self.rng.gamma(0.5 * n * nu + 1.0)

    def arrays(self) -> dict[str, Any]:
        """For a checkpoint: everything the next sweep depends on but the generator."""
        tall = {
            name: self.engine.get(getattr(self, name))
            for name in ("left", "right", "profile", "states")
        }
        small = {
            name: getattr(self, name)
            for name in ("own", "step", "seen", "centre", "spread", "roughness", "link", "shock")
        }
        return (
            tall
            | small
            | {"numbers": [str(self.seed), self.sweeps, self.common, self.proposals_seen]}
        )

    def take(self, kept: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        for name in ("left", "right", "profile", "states"):
            setattr(self, name, self.engine.take(kept[name], np.float64))
        for name in ("own", "step", "seen", "centre", "spread", "roughness", "link", "shock"):
            setattr(self, name, np.array(kept[name], np.float64))
        seed, self.sweeps, self.common, self.proposals_seen = kept["numbers"]
        self.seed = int(seed)


def basis(columns: int, period: int) -> np.ndarray:
    """A constant, and the sines and cosines of the first waves of a period, at every column.

    >>> basis(8, 4).shape, basis(8, 1).shape
    ((8, 3), (8, 1))
    """
    angle = (
        2
        * np.pi
        * np.arange(columns)[:, None]
        / period
        * np.arange(1, 1 + min(WAVES, (period - 1) // 2))
    )
    return np.column_stack([np.ones(columns), np.sin(angle), np.cos(angle)])


def autoregression(
    rng: np.random.Generator, before: np.ndarray, cross: np.ndarray, after: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw A and Q of n steps b = A a + N(0, Q), given sum a a^T, sum a b^T and sum b b^T.

    The prior is matrix normal for A^T around 0 with the identity, inverse Wishart(I, k) for Q. A is
    drawn again where it is explosive, and shrunk where that does not help.
    """
    k = len(before)
    precision = np.eye(k) + before
    mean = np.linalg.solve(precision, cross)
    scatter = np.eye(k) + after - mean.T @ precision @ mean
    root = np.linalg.cholesky((scatter + scatter.T) / 2)
    t = np.zeros((k, k))
    t[np.diag_indices(k)] = np.sqrt(rng.chisquare(k + n - np.arange(k)))
    t[np.tril_indices(k, -1)] = rng.standard_normal(k * (k - 1) // 2)
    # S = C C^T and Bartlett's T: C T^-T T^-1 C^T is inverse Wishart(S)
    half = linalg.solve_triangular(t, root.T, lower=True).T
    shock = half @ half.T
    spread = np.linalg.cholesky((precision + precision.T) / 2)
    for _ in range(10):
        link = (
            mean
            + linalg.solve_triangular(spread, rng.standard_normal((k, k)), lower=True, trans="T")
            @ half.T
        ).T
        radius = float(np.abs(np.linalg.eigvals(link)).max())
        if radius < 1:
            return link, shock
    return link * (SHRINK / radius), shock


def stationary(link: np.ndarray, shock: np.ndarray) -> np.ndarray:
    """The covariance C = A C A^T + Q of x_t far from its start."""
    found = linalg.solve_discrete_lyapunov(link, shock)
    return (found + found.T) / 2
