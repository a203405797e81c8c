"""Dirichlet parameters learned from counts, by Minka's fixed point.

    alpha_z  <-  alpha_z  sum_d [psi(n_dz + alpha_z) - psi(alpha_z)]  /  sum_d [psi(n_d + alpha_0) - psi(alpha_0)],      alpha_0 = sum_z alpha_z

raises the likelihood prod_d p(n_d | alpha) of Dirichlet-multinomial counts at every step (asymmetric alpha of documents). For the words' eta, one number
for all words, the numerators are added up and eta_0 = n eta.

Reference: Minka (2000), Estimating a Dirichlet distribution; Wallach, Mimno and McCallum (2009) for an asymmetric alpha with a symmetric eta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import digamma, polygamma

LEAST, MOST = 1e-4, 1e2
DOCUMENTS, WORDS = 4000, 6000
"""Rows that a step looks at; of more, evenly spaced ones are taken."""


@dataclass(frozen=True)
class Priors:
    """alpha (k) and eta (one number) with what is learned of them; ``boost`` (words x k) is added to eta where topics are seeded or eta differs by word."""

    alpha: np.ndarray
    eta: float
    boost: np.ndarray | None = None
    learn_alpha: bool = True
    learn_eta: bool = True

    @property
    def words(self) -> Any:
        """b: eta, or words x k."""
        return self.eta if self.boost is None else self.eta + self.boost

    def learned(self, documents: np.ndarray, words: np.ndarray) -> Priors:
        """After some steps on the counts of documents by topic and of words by topic."""
        alpha = learned_alpha(documents, self.alpha) if self.learn_alpha else self.alpha
        eta = learned_eta(words, self.eta) if self.learn_eta else self.eta
        return replace(self, alpha=alpha, eta=eta)

    def reordered(self, order: np.ndarray) -> Priors:
        """The same for topics under other numbers."""
        boost = None if self.boost is None else np.ascontiguousarray(self.boost[:, order])
        return replace(self, alpha=self.alpha[order], boost=boost)


def learned_alpha(counts: np.ndarray, alpha: np.ndarray, steps: int = 5) -> np.ndarray:
    """alpha after some steps on the documents' counts by topic (documents x k, whole or expected)."""
    n = _spaced(counts, DOCUMENTS).astype(np.float64)
    n = n[n.sum(axis=1) > 0]
    if not len(n):
        return alpha
    total = n.sum(axis=1)
    for _ in range(steps):
        whole = alpha.sum()
        down = (digamma(total + whole) - digamma(whole)).sum()
        alpha = np.clip(alpha * (digamma(n + alpha) - digamma(alpha)).sum(axis=0) / down, LEAST, MOST)
    return alpha


def learned_eta(counts: np.ndarray, eta: float, steps: int = 3) -> float:
    """eta after some steps on the words' counts by topic (words x k)."""
    words = len(counts)
    n = _spaced(counts, WORDS).astype(np.float64)
    scale = words / len(n)
    total = counts.sum(axis=0, dtype=np.float64)
    total, n = total[total > 0], n[:, total > 0]
    if not len(total):
        return eta
    n = n[n > 0]
    for _ in range(steps):
        up = scale * (digamma(n + eta) - digamma(eta)).sum()
        down = words * (digamma(total + words * eta) - digamma(words * eta)).sum()
        eta = float(np.clip(eta * up / down, LEAST, MOST))
    return eta


def _spaced(a: np.ndarray, most: int) -> np.ndarray:
    return a[:: -(-len(a) // most)]


def dirichlet_of_logs(logs: np.ndarray, alpha: np.ndarray, steps: int = 20) -> np.ndarray:
    """argmax over alpha of log Gamma(sum alpha) - sum log Gamma(alpha_z) + sum alpha_z logs_z with logs_z a mean of E log theta_z.

    The fixed point psi(alpha_z) = psi(sum alpha) + logs_z; every step raises it.
    """
    for _ in range(steps):
        alpha = np.clip(_inverse_digamma(digamma(alpha.sum()) + logs), LEAST, MOST)
    return alpha


def symmetric_of_logs(log: float, eta: float, n: int, steps: int = 20) -> float:
    """The same for n equal parameters: psi(eta) = psi(n eta) + log."""
    for _ in range(steps):
        eta = float(np.clip(_inverse_digamma(np.array([digamma(n * eta) + log]))[0], LEAST, MOST))
    return eta


def _inverse_digamma(y: np.ndarray) -> np.ndarray:
    """x > 0 with psi(x) = y, by Newton's method from Minka's start."""
    x = np.where(y >= -2.22, np.exp(y) + 0.5, -1.0 / (y - digamma(1.0)))
    for _ in range(6):
        x = x - (digamma(x) - y) / polygamma(1, x)
    return x
