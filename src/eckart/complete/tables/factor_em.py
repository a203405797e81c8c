"""Factor analysis of scores with gaps, by an EM whose missing data are the missing cells.

The model: a row has a code z ~ N(0, I_k), and its scores are y = mu + W z + noise, every score with
a variance psi_j of its own. With O the scores that are seen,

    F = - log N(y_O; mu_O, W_O W_O^T + diag psi_O) summed over rows  +  l2/2 sum_j |w_j|^2 / psi_j
    +  prior of psi

is minimised. A column under Huber's loss, l(r) = r^2 / 2 up to |r| = d, has y = t + clip(a - t, -d,
d), t its expected score: the parabola above the loss at t; what the loss costs beyond it (``wild``)
is part of F.

One step: E, mean and covariance of the code of every row given its seen scores, and from them the
second moments of *complete* rows; M, a factor analysis of these n x n moments by inner EM steps
with parameter expansion, whose cost does not depend on the number of rows. Since the missing cells,
not the codes, are what the outer loop has to guess, it converges at the rate of the share of
missing cells: a handful of steps. Rows with the same gaps share a covariance. Every part lowers F.

References: Rubin and Thayer 1982 (EM for factor analysis); Liu, Rubin and Wu 1998 (parameter
expansion).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from eckart.decompositions import eigh
from eckart.engines.protocol import FactorRule, FilledMoments

INNER, STILL = 100, 1e-3
"""Most inner EM steps on the second moments, and the relative change of noises at which they end:
they cost n^2 k each, whatever the number of rows, so the outer loop need not wait for the codes.
With 12 it did: 28 steps over the rows of a table of films, 5 with these."""
PRIOR_ROWS, PRIOR_NOISE = 2.0, 0.05
"""The noise of a score leans on a twentieth of its variance with the weight of two rows: a few rows
fitted exactly are no certainty. A ridge below one row says that columns tell each other nearly
exactly: the prior weakens with it."""
LEAST_NOISE = 1e-8
"""Of the variance of a column: below it the likelihood of an exact fit grows without end."""
FAINT = 0.5
"""Size, in noises, below which a gradient is no longer measured against its own parts: where
columns have next to nothing in common the best W is 0 or close to it, and steps shrink toward it by
the same share for ever. What such a W and a gradient of a fiftieth of this could gain is below
0.003 nats a row, by an estimate."""
CHUNK = 2**21
"""Numbers in the largest array of a chunk of rows: 16 megabytes."""


@dataclass(frozen=True)
class GaussianFactors:
    """y = mu + W z + noise of variances psi."""

    w: np.ndarray
    mu: np.ndarray
    psi: np.ndarray

    @property
    def k(self) -> int:
        return self.w.shape[1]

    def grown(self, k: int, cov: np.ndarray) -> GaussianFactors:
        """With k directions: the new ones are the leading ones of what the old leave unexplained of
        second moments ``cov``."""
        more = k - self.k
        scale = np.sqrt(self.psi)
        rest = (cov - self.w @ self.w.T) / np.outer(scale, scale)
        values, vectors = eigh(rest)
        # a tenth of a noise at least: a direction of length 0 stays 0 in EM
        size = np.sqrt(np.maximum(values[::-1][:more] - 1, 0.1))
        return replace(
            self, w=np.hstack([self.w, scale[:, None] * vectors[:, ::-1][:, :more] * size])
        )


class Gaps(NamedTuple):
    """Which cells are seen: the mask of each row as 1.0 and 0.0, the different masks, which of them
    a row has, and how many rows have each."""

    seen: np.ndarray
    patterns: np.ndarray
    of: np.ndarray
    times: np.ndarray

    @classmethod
    def of_mask(cls, mask: np.ndarray) -> Gaps:
        words = np.zeros(
            (len(mask), -(-max(mask.shape[1], 1) // 64) * 64), bool
        )  # one number for a row of up to 64 columns, compared at once
        words[:, : mask.shape[1]] = mask
        bits = np.packbits(words, axis=1).view(np.uint64)
        whole = bits[:, 0] if bits.shape[1] == 1 else bits.view(f"V{8 * bits.shape[1]}")[:, 0]
        _, first, of, count = np.unique(
            whole, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(
            mask.astype(np.float64), mask[first].astype(np.float64), of, count.astype(np.float64)
        )


def prior_noise(l2: float) -> float:
    """The noise on which that of a score leans, in variances of the score."""
    return PRIOR_NOISE * min(1.0, l2)


def covariances(g: GaussianFactors, patterns: np.ndarray) -> np.ndarray:
    """S = (I + W_O^T psi_O^-1 W_O)^-1 of each pattern."""
    k = g.k
    r, c = np.tril_indices(k)
    packed = patterns @ (g.w[:, r] * g.w[:, c] / g.psi[:, None])
    m = np.empty((len(patterns), k, k))
    m[:, r, c] = packed
    m[:, c, r] = packed
    m[:, np.arange(k), np.arange(k)] += 1.0
    return np.linalg.inv(m)


def chunks(rows: int, size: int) -> list[slice]:
    step = max(64, CHUNK // max(size, 1))
    return [slice(a, min(a + step, rows)) for a in range(0, rows, step)]


def codes_of(g: GaussianFactors, y: np.ndarray, gaps: Gaps, s: np.ndarray) -> np.ndarray:
    """Means S W_O^T psi_O^-1 (y_O - mu_O) of the codes of rows. y is 0 where not seen."""
    away = y - gaps.seen * g.mu
    b = away @ (g.w / g.psi[:, None])
    z = np.empty_like(b)
    for part in chunks(len(y), g.k * g.k):
        z[part] = np.matmul(s[gaps.of[part]], b[part, :, None])[:, :, 0]
    return z


def penalty(g: GaussianFactors, l2: float) -> float:
    """Minus the log of the priors: w_j ~ N(0, psi_j / l2), psi_j inverse gamma."""
    own = g.psi
    ridge = 0.5 * l2 * float(((g.w**2).sum(axis=1) / g.psi).sum())
    return ridge + 0.5 * float(
        ((PRIOR_ROWS + g.k) * np.log(own) + PRIOR_ROWS * prior_noise(l2) / own).sum()
    )


def m_step(
    g: GaussianFactors, m: FilledMoments, rows: float, l2: float, engine: Any
) -> GaussianFactors:
    """Means and factor analysis of the moments of complete rows."""
    mu = m.first / rows
    rule = FactorRule(
        rows,
        l2,
        2 * m.wild + PRIOR_ROWS * prior_noise(l2),
        PRIOR_ROWS + g.k,
        LEAST_NOISE,
        INNER,
        STILL,
    )
    w, psi = engine.factor_steps(m.second / rows - np.outer(mu, mu), g.w, g.psi, rule)
    return GaussianFactors(w, mu, psi)


def factor_gradient(g: GaussianFactors, m: FilledMoments, rows: float, l2: float) -> float:
    """The gradient of F by W, relative to the two parts that cancel in it, and to FAINT at least:
    psi_j dF/dw_j = w_j (E[z z^T] rows + l2) - E[(y - mu) z^T] rows."""
    mu = m.first / rows
    cov = m.second / rows - np.outer(mu, g.mu) - np.outer(g.mu, mu) + np.outer(g.mu, g.mu)
    scaled = g.w / g.psi[:, None]
    s = np.linalg.inv(np.eye(g.k) + scaled.T @ g.w)
    cb = cov @ (s @ scaled.T).T
    one = g.w @ (s @ scaled.T @ cb + s + (l2 / rows) * np.eye(g.k))
    scale = np.sqrt(g.psi)[:, None]
    size = float(np.linalg.norm(one / scale)) + float(np.linalg.norm(cb / scale))
    return float(np.linalg.norm((one - cb) / scale)) / max(size, FAINT)


def em_move(g: GaussianFactors, m: FilledMoments, rows: float, l2: float) -> float:
    """The largest change that an EM step with W as it is would make: of a mean, against the spread
    of its score; of a noise, against itself."""
    mu = m.first / rows
    cov = m.second / rows - np.outer(mu, mu)
    scaled = g.w / g.psi[:, None]
    s = np.linalg.inv(np.eye(g.k) + scaled.T @ g.w)
    b = s @ scaled.T
    cb = cov @ b.T
    fitted = np.einsum("jk,kl,jl->j", g.w, b @ cb + s, g.w) - 2 * np.einsum("jk,jk->j", g.w, cb)
    ridge = (g.w**2).sum(axis=1)
    psi = rows * (np.diag(cov) + fitted) + l2 * ridge + 2 * m.wild + PRIOR_ROWS * prior_noise(l2)
    psi = np.maximum(psi / (rows + PRIOR_ROWS + g.k), LEAST_NOISE)
    means = np.abs(mu - g.mu) / np.sqrt(g.psi + ridge)
    return float(max(means.max(initial=0.0), np.abs(psi / g.psi - 1).max(initial=0.0)))


def start(y: np.ndarray, k: int) -> GaussianFactors:
    """The leading directions of second moments by pairs of scores, where both are seen (y is NaN
    where not)."""
    seen = (~np.isnan(y)).astype(np.float64)
    y = np.nan_to_num(y)
    both = np.maximum(seen.T @ seen, 1.0)
    values, vectors = eigh((y.T @ y) / both)
    n = y.shape[1]
    # 0.3: a noise that is neither certain nor all there is; a direction of length 0 would stay 0 in
    # EM
    w = vectors[:, ::-1][:, :k] * np.sqrt(0.8 * np.maximum(values[::-1][:k], 0.05))
    return GaussianFactors(w, np.zeros(n), np.full(n, 0.3))
