"""One Gibbs chain of Bayesian matrix factorization, on entries standardised to mean 0 and variance 1.

    a_ij = b_i + c_j + u_i.v_j + noise,    noise ~ N(0, 1 / (alpha p_i q_j w_ij))
    (u_i, b_i) ~ N(mu + B^T x_i, L^-1)     (B = 0 without features),   mu | L ~ N(0, (2 L)^-1),   L ~ Wishart(I, d),  d = k + 1; columns the same
    p_i ~ Gamma(nu/2, nu/(2 tau))          noise="row": tau and nu learned; "column": the same for q_j; "both": both, tau of q being 1

A sweep draws, for rows and then for columns: mu and L given the factors; B; the factors given the other side (``draw_rows``); the noise precisions given the
misfit of the factors just drawn. Every conditional is a standard distribution, so there is nothing to tune. All of it runs in double precision: a noise
level near zero makes the normal equations stiff.
Reference: Salakhutdinov and Mnih 2008 (BPMF).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from eckart.complete.bayes.features import Iterative, Spectral
from eckart.engines.protocol import RidgeRule
from eckart.matrix import Observed

MEAN_WEIGHT = 2.0
START = 0.1
FLOOR = 1e-9
NOISE_DEGREES, NOISE_VARIANCE = 1.0, 0.01
SHAPES = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0])
"""The degrees of freedom nu among which the spread of noise precisions is learned."""


class Draw(NamedTuple):
    """The factors drawn (rows x d) and each row's misfit, sum_j q_j w_ij (a_ij - o_j - x_j.u_i)^2."""

    factors: np.ndarray
    misfit: np.ndarray


def draw_rows(
    engine: Any,
    x: Observed,
    at: np.ndarray,
    weights: np.ndarray | None,
    design: np.ndarray,
    offset: np.ndarray,
    p: np.ndarray | float,
    q: np.ndarray | None,
    base: np.ndarray,
    prior: np.ndarray,
    z: np.ndarray | None,
) -> Draw:
    """Draw every row's factors from their conditional; z = None gives the conditional means.

    Row i has the prior N(P^-1 h_i, P^-1) (``base`` P, ``prior`` h) and sees a_ij = o_j + x_j.u_i + noise of variance 1 / (p_i q_j w_ij): its conditional has
    the precision G_i = P + p_i sum_j q_j w_ij x_j x_j^T = R^T R, the mean G_i^-1 (h_i + p_i sum_j q_j w_ij (a_ij - o_j) x_j), and mean + R^-1 z_i is a
    draw. ``at`` is the row of each entry. The normal numbers z are made before, from one generator, so that threads do not change the draw.
    """
    given = weights if q is None else q[x.indices] if weights is None else weights * q[x.indices]
    if isinstance(p, float):  # the same draw with all precisions divided by p
        entry, unit, root = given, 1.0 / p, 1.0 / np.sqrt(p)
    else:
        entry, unit, root = p[at] if given is None else given * p[at], 1.0, 1.0
    noise = None if z is None else z * root
    solution = engine.ridge_rows(
        x, design, RidgeRule(0.0), offset=offset, weights=entry, base=base * unit, prior=prior * unit, noise=noise
    )
    u = np.ascontiguousarray(solution.left[:, : design.shape[1]])
    square = (x.data - offset[x.indices] - engine.sampled(x, u, design)) ** 2
    misfit = np.bincount(at, square if given is None else square * given, minlength=len(u))
    return Draw(u, misfit)


@dataclass(eq=False)
class Side:
    """The rows (or columns) of the matrix: their entries, factors (u, b) of d columns, and what is learned about them."""

    x: Observed
    weights: np.ndarray | None
    factors: np.ndarray
    link: Spectral | Iterative | None = None
    precisions: np.ndarray | None = None  # p_i, None: all 1
    shape: float = 4.0  # nu
    scale: float = 1.0  # tau
    at: np.ndarray = field(init=False)  # the row of each entry
    counts: np.ndarray = field(init=False)  # entries of each row that count
    mu: np.ndarray = field(default_factory=lambda: np.zeros(0))
    precision: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        n = self.x.shape[0]
        self.at = np.repeat(np.arange(n), self.x.row_counts())
        self.counts = np.bincount(self.at if self.weights is None else self.at[self.weights > 0], minlength=n)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """For a checkpoint."""
        state = {f"{name}.factors": self.factors, f"{name}.noise": np.array([self.shape, self.scale])}
        if self.precisions is not None:
            state[f"{name}.precisions"] = self.precisions
        if self.link is not None:
            state |= {
                f"{name}.coefficients": self.link.coefficients,
                f"{name}.strength": np.array([self.link.strength]),
            }
        return state

    def take(self, name: str, state: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint."""
        self.factors = state[f"{name}.factors"]
        self.shape, self.scale = (float(v) for v in state[f"{name}.noise"])
        if self.precisions is not None:
            self.precisions = state[f"{name}.precisions"]
        if self.link is not None:
            self.link.put(state[f"{name}.coefficients"], float(state[f"{name}.strength"][0]))


class Chain:
    """State and sweep of one chain."""

    def __init__(self, rows: Side, columns: Side, noise: str, rng: np.random.Generator, engine: Any):
        self.rows, self.columns, self.noise, self.rng, self.engine = rows, columns, noise, rng, engine
        self.alpha = 1.0
        for side in (rows, columns):
            side.factors = START * rng.standard_normal(side.factors.shape)
            side.factors[:, -1] = 0
        if noise in ("row", "both"):
            rows.precisions = np.ones(len(rows.factors))
        if noise in ("column", "both"):
            columns.precisions = np.ones(len(columns.factors))

    def sweep(self) -> float:
        """Draw everything once; returns the log-likelihood of an observed entry at the new state."""
        misfit = self._draw(self.rows, self.columns)
        if self.rows.precisions is not None:
            self._draw_precisions(self.rows, misfit, learn_scale=True)
        misfit = self._draw(self.columns, self.rows)
        if self.columns.precisions is not None:
            self._draw_precisions(self.columns, misfit, learn_scale=self.noise == "column")
        own = 1.0 if self.columns.precisions is None else self.columns.precisions
        square = float(np.sum(own * misfit))
        if self.noise == "common":
            size = int(self.rows.counts.sum())
            degrees, rest = size + NOISE_DEGREES, square + NOISE_DEGREES * NOISE_VARIANCE
            self.alpha = min(self.rng.gamma(0.5 * degrees) / (0.5 * rest), 1.0 / FLOOR)
        return self._loglik(square)

    def _draw(self, side: Side, other: Side) -> np.ndarray:
        """The factors of one side given the other; returns the misfit of each row."""
        u, link = side.factors, side.link
        rest, scatter = (u, None) if link is None else (u - link.now, link.scatter())
        side.mu, side.precision, root = _normal_wishart(self.rng, rest, scatter)
        prior = np.broadcast_to(side.mu, u.shape)
        if link is not None:
            prior = side.mu + link.draw(self.rng, u - side.mu, side.precision, root)
        design = other.factors.copy()
        design[:, -1] = 1
        drawn = draw_rows(
            self.engine, side.x, side.at, side.weights, design, other.factors[:, -1],
            float(self.alpha) if side.precisions is None else side.precisions, other.precisions,
            side.precision, prior @ side.precision, self.rng.standard_normal(u.shape),
        )  # fmt: skip
        side.factors = drawn.factors
        return drawn.misfit

    def _draw_precisions(self, side: Side, misfit: np.ndarray, learn_scale: bool) -> None:
        """p_i given its row's misfit; then tau and nu given all p."""
        rng, n, nu = self.rng, len(misfit), side.shape
        p = rng.gamma(0.5 * (nu + side.counts)) / (0.5 * (nu / side.scale + misfit))
        p = np.clip(p, FLOOR, 1.0 / FLOOR)
        if learn_scale:
            side.scale = float(np.clip(0.5 * nu * p.sum() / rng.gamma(0.5 * n * nu + 1.0), FLOOR, 1.0 / FLOOR))
        half, total, logs = 0.5 * SHAPES, float(p.sum()), float(np.log(p).sum())
        score = n * (half * np.log(half / side.scale) - special.gammaln(half)) + (half - 1) * logs
        score -= half / side.scale * total
        chance = np.exp(score - score.max())
        side.shape = float(rng.choice(SHAPES, p=chance / chance.sum()))
        side.precisions = p

    def _loglik(self, square: float) -> float:
        """Mean of log N(a_ij; ., .) over the entries; ``square`` is sum p_i q_j w_ij residual^2."""
        size = max(1, int(self.rows.counts.sum()))
        logs = sum(
            float(side.counts @ np.log(side.precisions))
            for side in (self.rows, self.columns)
            if side.precisions is not None
        )
        return 0.5 * (logs / size + np.log(self.alpha / (2 * np.pi)) - self.alpha * square / size)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """For a checkpoint: everything the next sweep depends on."""
        state = json.dumps(self.rng.bit_generator.state).encode()
        return {
            f"{name}.alpha": np.array([self.alpha]),
            f"{name}.rng": np.frombuffer(state, np.uint8),
            **self.rows.arrays(f"{name}.rows"),
            **self.columns.arrays(f"{name}.columns"),
        }

    def take(self, name: str, state: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint."""
        self.alpha = float(state[f"{name}.alpha"][0])
        self.rng.bit_generator.state = json.loads(state[f"{name}.rng"].tobytes())
        self.rows.take(f"{name}.rows", state)
        self.columns.take(f"{name}.columns", state)


def _normal_wishart(
    rng: np.random.Generator, u: np.ndarray, scatter: tuple[np.ndarray, int] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw mu and L given the rows of u (and the link's share); returns mu, L and a root M with M M^T = L.

    L ~ Wishart(S^-1, d + n), S = I + sum (u_i - m)(u_i - m)^T + 2n/(2 + n) m m^T: with S = C C^T and Bartlett's triangle T, M = C^-T T.
    """
    n, d = u.shape
    m = u.mean(axis=0)
    rest = u - m
    s = np.eye(d) + rest.T @ rest + MEAN_WEIGHT * n / (MEAN_WEIGHT + n) * np.outer(m, m)
    degrees = d + n
    if scatter is not None:
        s, degrees = s + scatter[0], degrees + scatter[1]
    t = np.zeros((d, d))
    t[np.diag_indices(d)] = np.sqrt(rng.chisquare(degrees - np.arange(d)))
    t[np.tril_indices(d, -1)] = rng.standard_normal(d * (d - 1) // 2)
    root = linalg.solve_triangular(np.linalg.cholesky(s), t, lower=True, trans="T")
    noise = np.linalg.solve(root.T, rng.standard_normal(d))
    mu = n * m / (MEAN_WEIGHT + n) + noise / np.sqrt(MEAN_WEIGHT + n)
    return mu, root @ root.T, root
