"""Dirichlet parameters learned from counts, by Minka's fixed point.

    alpha_z  <-  alpha_z  sum_d [psi(n_dz + alpha_z) - psi(alpha_z)]  /  sum_d [psi(n_d + alpha_0) -
    psi(alpha_0)],      alpha_0 = sum_z alpha_z

raises the likelihood prod_d p(n_d | alpha) of Dirichlet-multinomial counts at every step
(asymmetric alpha of documents). For the words' eta, one number for all words, the numerators are
added up and eta_0 = n eta.

Reference: Minka (2000), Estimating a Dirichlet distribution; Wallach, Mimno and McCallum (2009) for
an asymmetric alpha with a symmetric eta.

The priors of a topic model as its user gives them: learned, numbers, arrays, or words that lean
a topic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, polygamma

from eckart.engines.protocol.topics import TopicDraw
from eckart.errors import InputError, invalid
from eckart.trace import Trace

LEAST, MOST = 1e-4, 1e2
"""The range of a learned parameter."""
DOCUMENTS, WORDS = 4000, 6000
"""Rows that a step looks at; of more, evenly spaced ones are taken."""
TABLE = 4096
"""Counts up to this are added up as sums of 1 / (alpha + i) over all that are larger than i; those
beyond it are few."""


@dataclass(frozen=True)
class Priors:
    """alpha (k) and eta (one number) with what is learned of them; ``boost`` (words x k) is added
    to eta where topics are seeded or eta differs by word."""

    alpha: np.ndarray
    eta: float
    boost: np.ndarray | None = None
    learn_alpha: bool = True
    learn_eta: bool = True

    @property
    def words(self) -> Any:
        """b: eta, or words x k."""
        return self.eta if self.boost is None else self.eta + self.boost

    def learned(self, drawn: TopicDraw) -> Priors:
        """After some steps on drawn counts of documents by topic and of words by topic."""
        alpha = learned_alpha(drawn.documents, self.alpha) if self.learn_alpha else self.alpha
        eta = learned_eta(drawn, self.eta) if self.learn_eta else self.eta
        return replace(self, alpha=alpha, eta=eta)

    def reordered(self, order: np.ndarray) -> Priors:
        """The same for topics under other numbers."""
        boost = None if self.boost is None else np.ascontiguousarray(self.boost[:, order])
        return replace(self, alpha=self.alpha[order], boost=boost)


class SolvedPrior(NamedTuple):
    """What a method found: expected counts of words by topic, the priors, the trace, and what plan
    and certificate say about it."""

    counts: np.ndarray
    priors: Priors
    trace: Trace
    plan: dict[str, Any]
    facts: dict[str, Any]


def spread(ends: list[float]) -> dict[str, Any]:
    """What is said of several starts."""
    return (
        {} if len(ends) < 2 else {"starts": len(ends), "spread over starts": max(ends) - min(ends)}
    )


def learned_alpha(counts: np.ndarray, alpha: np.ndarray, steps: int = 5) -> np.ndarray:
    """alpha after some steps on the documents' counts by topic (documents x k, whole numbers)."""
    n = counts.astype(np.int64)
    total = n.sum(axis=1)
    n, total = n[total > 0], total[total > 0]
    if not len(n):
        return alpha
    rise = _Rise(n)
    for _ in range(steps):
        whole = alpha.sum()
        down = (digamma(total + whole) - digamma(whole)).sum()
        alpha = np.clip(alpha * rise(alpha) / down, LEAST, MOST)
    return alpha


def learned_eta(drawn: TopicDraw, eta: float, steps: int = 3) -> float:
    """eta after some steps on the words' counts by topic."""
    total = drawn.sizes[drawn.sizes > 0]
    if not len(total):
        return eta
    n, words = drawn.words[drawn.words > 0].astype(np.int64), drawn.n
    rise, scale = _Rise(n[:, None]), words / len(drawn.words)
    for _ in range(steps):
        down = words * (digamma(total + words * eta) - digamma(words * eta)).sum()
        eta = float(np.clip(eta * scale * rise(np.array([eta]))[0] / down, LEAST, MOST))
    return eta


class _Rise:
    """sum over rows of psi(n_z + a_z) - psi(a_z) for whole n (rows x k), as sum_i (rows with n_z >
    i) / (a_z + i)."""

    def __init__(self, n: np.ndarray):
        k, most = n.shape[1], int(min(n.max(initial=0), TABLE))
        held = np.minimum(n, most) * k + np.arange(k)
        equal = np.bincount(held.ravel(), minlength=(most + 1) * k).reshape(most + 1, k)
        self.above = (
            equal[::-1].cumsum(axis=0)[-2::-1].astype(np.float64) if most else np.zeros((0, k))
        )
        self.numbers = np.arange(most, dtype=np.float64)[:, None]
        self.large = [(c, n[n[:, c] > TABLE, c]) for c in range(k) if (n[:, c] > TABLE).any()]

    def __call__(self, a: np.ndarray) -> np.ndarray:
        out = (self.above / (self.numbers + a)).sum(axis=0)
        for c, n in self.large:
            out[c] += (digamma(n + a[c]) - digamma(TABLE + a[c])).sum()
        return out


def dirichlet_of_logs(logs: np.ndarray, alpha: np.ndarray, steps: int = 20) -> np.ndarray:
    """argmax over alpha of log Gamma(sum alpha) - sum log Gamma(alpha_z) + sum alpha_z logs_z with
    logs_z a mean of E log theta_z.

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


ALPHA, ETA = 0.1, 0.05
"""Where learned priors start."""


def given_priors(
    doc_topic_prior: Any, topic_word_prior: Any, seeds: tuple[Any, float, Any], n: int, k: int
) -> Priors:
    """alpha of k topics, eta of n words, and the boost (words x k) where eta differs by word or
    topics have ``seeds``: words, their weight, names."""
    alpha = _prior("doc_topic_prior", doc_topic_prior, ALPHA, k, ((), (k,)))
    eta = _prior("topic_word_prior", topic_word_prior, ETA, k, ((), (n,), (k, n)))
    boost = None
    if eta.ndim == 1:
        boost, eta = np.tile(eta[:, None], (1, k)), np.array(0.0)
    elif eta.ndim == 2:
        boost, eta = eta.T.copy(), np.array(0.0)
    if seeds[0] is not None:
        boost = (
            _pseudo_counts(*seeds, n, k) if boost is None else boost + _pseudo_counts(*seeds, n, k)
        )
    learn_eta = isinstance(topic_word_prior, str) and seeds[0] is None
    learn_alpha = isinstance(doc_topic_prior, str)
    return Priors(
        np.broadcast_to(alpha, (k,)).astype(np.float64), float(eta), boost, learn_alpha, learn_eta
    )


def _prior(name: str, value: Any, begin: float, k: int, shapes: tuple) -> np.ndarray:
    if isinstance(value, str):
        if value != "auto":
            raise invalid(name, value, "'auto', None, a number > 0 or an array of them")
        return np.array(begin)
    try:
        out = np.array(1.0 / k if value is None else value, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise invalid(name, value, "'auto', None, a number > 0 or an array of them") from None
    if out.shape not in shapes:
        raise InputError(f"{name} must have shape {' or '.join(map(str, shapes))}, got {out.shape}")
    if not (np.isfinite(out).all() and (out > 0).all()):
        raise invalid(name, float(out.min()), "finite numbers > 0")
    return out


def _pseudo_counts(seed_words: Any, weight: float, columns: Any, n: int, k: int) -> np.ndarray:
    """Of the seed words, words x k."""
    out = np.zeros((n, k))
    at = {} if columns is None else {name: j for j, name in enumerate(columns)}
    if not isinstance(seed_words, dict):
        raise invalid("seed_words", seed_words, "a dictionary {topic: [words]}")
    for z, words in seed_words.items():
        if not str(z).lstrip("-").isdigit() or not 0 <= int(z) < k:
            raise invalid("seed_words", z, f"topics from 0 to {k - 1}")
        for word in words:
            j = at.get(
                word, word if isinstance(word, (int, np.integer)) and 0 <= word < n else None
            )
            if j is None:
                raise InputError(
                    f"seed_words names {word!r} for topic {z}, which is no word of X; leave it out"
                )
            out[j, int(z)] += weight
    return out
