"""Documents under a topic model: the primitives and their records. Shapes and letters as in
``protocol``.

Tall arrays are theta and gamma, documents x k. Where one is given, k numbers stand for the same
start in every document; an array that the engine returned may be overwritten by the primitive that
takes it, and the one that comes back takes its place. ``prior`` of words (b) is one number or words
x k.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.placed import Tall

NOISE, NOISE_WORDS = 100.0, 1024
"""Shape of the gamma noise that topics start with (a tenth of each probability), and how many words
draw from one stream."""


class TopicStatistics(NamedTuple):
    """Sums that one pass over documents leaves: the words' counts by topic (words x k), their sums
    over words, the value that is climbed, the log-likelihood contained in it, the tokens this is
    summed over, and for variational passes sum_d E log theta_d."""

    counts: np.ndarray
    sizes: np.ndarray
    value: float
    likelihood: float
    seen: float
    logs: np.ndarray | None = None

    def merge(self, other: TopicStatistics) -> TopicStatistics:
        """Of two parts of the documents, in the place of these counts: words x k numbers may be
        many."""
        counts = np.add(
            self.counts, other.counts, out=self.counts if self.counts.flags.writeable else None
        )
        return TopicStatistics(
            counts,
            self.sizes + other.sizes,
            self.value + other.value,
            self.likelihood + other.likelihood,
            self.seen + other.seen,
            None if self.logs is None or other.logs is None else self.logs + other.logs,
        )


class TopicWords(NamedTuple):
    """phi (words x k), and sum b log phi (phi not below 1e-45)."""

    words: np.ndarray
    log_prior: float


class TopicBeliefs(NamedTuple):
    """q(beta) = Dir(lambda): exp(E log beta - shift) with the largest of each word at 1, so that
    nothing underflows, the shift of each word, and over all words and topics sum E log beta, sum b
    E log beta, and sum_z -log Gamma(sum_w lambda) + sum_wz log Gamma(lambda) - lambda E log
    beta."""

    words: np.ndarray
    shift: np.ndarray
    logs: float
    cross: float
    entropy: float


class TopicDraw(NamedTuple):
    """Drawn counts by topic of some documents and some of ``n`` words, and of all tokens."""

    documents: np.ndarray
    words: np.ndarray
    n: int
    sizes: np.ndarray


class Chain(Protocol):
    """A collapsed Gibbs chain: a topic for each token."""

    tokens: int

    def sweep(self, alpha: np.ndarray, average: bool = False) -> float:
        """Every token once; sum_i log p(w_i | all other tokens). ``average`` adds the counts after
        it to their mean."""
        ...

    def set_prior(self, prior: Any) -> None:
        """Exchange b and keep the counts."""
        ...

    def counts(self) -> np.ndarray:
        """n_wz now, words x k."""
        ...

    def mean_counts(self) -> np.ndarray:
        """The mean of n_wz over the sweeps that were averaged; those of now where there were
        none."""
        ...

    def draw(self, documents: int, words: int) -> TopicDraw:
        """n_dz and n_wz now of at most so many documents and words, evenly spaced (``spacing``)."""
        ...

    def state(self) -> dict[str, Any]:
        """All that the next sweeps depend on, as arrays on the host and numbers."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` gave."""
        ...


class TopicsFamily(Protocol):
    """Documents under a topic model."""

    def topic_totals(self, x: Any) -> np.ndarray:
        """sum_d c_dw of every word."""
        ...

    def topic_start(self, totals: np.ndarray, k: int, seed: int, dtype: Any) -> np.ndarray:
        """phi (words x k) proportional to totals_w times noise: words from i ``NOISE_WORDS`` on
        draw from the stream (seed, i ``NOISE_WORDS``)."""
        ...

    def topic_words(
        self, counts: np.ndarray, sizes: np.ndarray, prior: Any, dtype: Any = None
    ) -> TopicWords:
        """phi = (n + b) / sum over words; ``sizes`` are the sums of ``counts`` over words. A topic
        with neither counts nor prior is uniform."""
        ...

    def topic_beliefs(self, counts: np.ndarray, prior: Any) -> TopicBeliefs:
        """What the variational bound needs of q(beta) = Dir(counts)."""
        ...

    def topic_fold(
        self,
        x: Any,
        words: np.ndarray,
        prior: np.ndarray,
        shares: Tall,
        *,
        steps: int,
        tol: float = 0.0,
    ) -> Tall:
        """theta after at most ``steps`` updates theta_d <- (counts of d by topic + prior) / sum at
        words = phi; a document stops when its theta moves by less than ``tol``."""
        ...

    def topic_sweep(
        self,
        x: Any,
        words: np.ndarray,
        prior: np.ndarray,
        shares: Tall,
        *,
        steps: int = 1,
        tol: float = 0.0,
    ) -> tuple[Tall, TopicStatistics]:
        """The same updates, the last of them with the words' counts collected. Value:
        log-likelihood + prior . log theta at the shares before it."""
        ...

    def topic_bayes(
        self,
        x: Any,
        words: np.ndarray,
        prior: np.ndarray,
        gamma: Tall,
        *,
        steps: int = 100,
        tol: float = 1e-3,
    ) -> tuple[Tall, TopicStatistics]:
        """At most ``steps`` updates of q(theta_d) = Dir(gamma_d) at words = exp(E log beta), until
        the mean change is below ``tol``. Value: the bound less log Gamma(sum alpha) - sum log
        Gamma(alpha_z) for each row."""
        ...

    def topic_scores(
        self, x: Any, words: np.ndarray, shares: Tall, floor: float
    ) -> tuple[float, float]:
        """sum_dw c log max(theta_d . phi_w, floor) and sum_dw c."""
        ...

    def topic_chain(self, x: Any, words: np.ndarray, shares: Tall, prior: Any, seed: int) -> Chain:
        """A chain whose tokens start at draws from theta_dz phi_wz."""
        ...


def spacing(rows: int, most: int) -> int:
    """The step from row to row at which at most ``most`` of them are met.

    >>> spacing(10, 4), len(range(0, 10, 3))
    (3, 4)
    """
    return max(1, -(-rows // most))
