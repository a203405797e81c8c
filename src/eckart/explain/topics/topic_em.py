"""EM for pLSA and for LDA in its MAP form, over counts.

    maximise  sum_dw c_dw log sum_z theta_dz phi_zw  +  sum_dz a_z log theta_dz  +  sum_zw b_zw log phi_zw

    E   gamma_dwz proportional to theta_dz phi_zw
    M   theta_dz proportional to a_z + sum_w c_dw gamma_dwz,      phi_zw proportional to b_zw + sum_d c_dw gamma_dwz

With a = b = 0 this is pLSA, and KL-NMF up to scaling. With a = alpha, b = eta it is LDA: the update of collapsed variational Bayes of order zero (CVB0)
with a token's own count left in, which is MAP under Dir(alpha + 1), Dir(eta + 1). A few extra updates of theta alone, at fixed phi, cost less than they gain.
Neither step can lower the objective.

References: Hofmann (1999); Asuncion, Welling, Smyth and Teh (2009).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eckart.matrix import Counts


class State(NamedTuple):
    """``words`` is phi (words x k), ``shares`` theta (documents x k)."""

    words: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True)
class Sweep:
    """Statistics of one E step: the words' counts by topic, the documents' new shares, the objective, the tokens."""

    counts: np.ndarray
    shares: np.ndarray
    bound: float
    weight: float

    def merge(self, other: Sweep) -> Sweep:
        """Of two parts of the documents, in their order."""
        shares = np.concatenate([self.shares, other.shares])
        return Sweep(self.counts + other.counts, shares, self.bound + other.bound, self.weight + other.weight)


class TopicProblem:
    """Documents with priors, as a problem of ``em.climb``; ``eta`` is one number or words x k."""

    def __init__(self, x: Counts, engine: Any, alpha: np.ndarray, eta: Any, steps: int = 1):
        self.x, self.engine, self.alpha, self.eta, self.steps = x, engine, alpha, eta, steps

    def expect(self, state: State) -> Sweep:
        found = self.engine.topic_sweep(self.x, state.words, self.alpha, state.shares, steps=self.steps)
        return Sweep(found.counts, found.shares, found.value + self._log_prior(state.words), max(found.seen, 1e-300))

    def maximise(self, sweep: Sweep) -> State:
        return State(normalised(sweep.counts, self.eta), sweep.shares)

    def _log_prior(self, words: np.ndarray) -> float:
        if not np.any(self.eta):
            return 0.0
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(words), -1e3)
        return float(np.sum(self.eta * logs, dtype=np.float64))


def normalised(counts: np.ndarray, eta: Any) -> np.ndarray:
    """phi = (n + b) / sum over words, words x k; a topic without counts or prior becomes uniform."""
    words = counts + np.asarray(eta, counts.dtype)
    total = words.sum(axis=0, dtype=np.float64)
    if not (total > 0).all():
        words[:, ~(total > 0)] = 1.0
        total = np.where(total > 0, total, len(words))
    words *= (1.0 / total).astype(words.dtype)
    return words


def start(x: Counts, k: int, rng: np.random.Generator, dtype: np.dtype, boost: np.ndarray | None = None) -> np.ndarray:
    """phi to begin with: the words of the corpus with a little noise, near the saddle where all topics are equal; ``boost`` (words x k) leans it to seed words.

    From there EM follows the strongest differences first. Topics made of single documents part sooner and end lower.
    """
    corpus = np.bincount(x.indices, x.data.astype(np.float64), minlength=x.shape[1])
    corpus = corpus / max(corpus.sum(), 1e-300) + 1e-3 / x.shape[1]
    words = corpus[:, None] * rng.gamma(NOISE, 1.0 / NOISE, (x.shape[1], k))
    if boost is not None:
        words = words / words.sum(axis=0) + boost / np.maximum(boost.sum(axis=0), 1.0)
    return (words / words.sum(axis=0)).astype(dtype)


NOISE = 100.0
"""Shape of the gamma noise: a tenth of each probability."""


def equal_shares(rows: int, alpha: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The prior's mean for every document (equal where there is no prior)."""
    mean = alpha / alpha.sum() if alpha.sum() > 0 else np.full(len(alpha), 1.0 / len(alpha))
    return np.tile(mean.astype(dtype), (rows, 1))


def batches(x: Counts, size: int, order: np.ndarray) -> Iterator[Counts]:
    """The documents in the given order, ``size`` at a time."""
    a = x.to_scipy()
    for first in range(0, len(order), size):
        part = a[order[first : first + size]]
        yield Counts(part.indptr, part.indices, part.data, x.n_columns)
