"""Documents under a topic model: the primitives and their records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.matrix import Counts


class TopicStatistics(NamedTuple):
    """What one pass of a topic model over documents leaves: their shares theta (or gamma), the words' counts by topic (words x k, None where they were not
    wanted), the value it climbs, the tokens that this is summed over, and for variational passes sum_d E log theta_d."""

    shares: np.ndarray
    counts: np.ndarray | None
    value: float
    seen: float
    logs: np.ndarray | None = None


class TopicsFamily(Protocol):
    """Documents under a topic model."""

    def topic_sweep(
        self,
        x: Counts,
        words: np.ndarray,
        prior: np.ndarray,
        shares: np.ndarray,
        *,
        steps: int = 1,
        tol: float = 0.0,
        collect: bool = True,
    ) -> TopicStatistics:
        """``steps`` EM updates theta_d <- (counts of d by topic + prior) / sum of every row at words = phi (n x k), the last one with the words' counts
        collected; earlier ones stop when theta_d moves by less than ``tol``. Value: log-likelihood + prior . log theta at
        the shares before the last update."""
        ...

    def topic_bayes(
        self,
        x: Counts,
        words: np.ndarray,
        prior: np.ndarray,
        gamma: np.ndarray,
        *,
        steps: int = 100,
        tol: float = 1e-3,
        collect: bool = True,
    ) -> TopicStatistics:
        """At most ``steps`` updates of q(theta_d) = Dir(gamma_d) at words = exp(E log beta), until the mean change is below ``tol``. Value: the bound
        less log Gamma(sum alpha) - sum log Gamma(alpha_z) for each row."""
        ...

    def topic_scores(
        self, x: Counts, words: np.ndarray, shares: np.ndarray, floor: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """sum_w c log max(theta_d . phi_w, floor) and sum_w c of every row."""
        ...

    def topic_chain(self, x: Counts, words: np.ndarray, shares: np.ndarray, prior: np.ndarray, seed: int) -> Any:
        """A collapsed Gibbs chain whose tokens start at draws from theta_dz phi_wz: ``sweep(alpha, average)``, ``counts()``, ``mean_counts()``,
        ``document_counts()``, ``set_prior(b)``."""
        ...
