"""The parameters of LDA: their defaults, what is refused, and what they resolve to."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError, wrong
from eckart.explain.topics.priors import Priors
from eckart.explain.topics.topic_model import check_common
from eckart.matrix import Counts, Dense, Observed

METHODS = ("auto", "gibbs", "cvb0", "variational", "batch", "online")
ALPHA, ETA = 0.1, 0.05
"""Where learned priors start."""


class LDAOptions:
    """The constructor, and the checks of what it was given."""

    fit_: Any

    def __init__(
        self,
        n_components: int = 10,
        *,
        doc_topic_prior: Any = "auto",
        topic_word_prior: Any = "auto",
        learning_method: str = "auto",
        learning_decay: float = 0.7,
        learning_offset: float = 10.0,
        max_iter: int | None = None,
        batch_size: int = 4096,
        total_samples: float | None = None,
        tol: float = 1e-4,
        mean_change_tol: float = 1e-3,
        max_doc_update_iter: int = 100,
        burn_in: int | None = None,
        n_samples: int = 30,
        n_init: int = 1,
        seed_words: Any = None,
        seed_weight: float = 100.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_threads: int | None = None,
        verbose: bool = False,
    ):
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.learning_method = learning_method
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.total_samples = total_samples
        self.tol = tol
        self.mean_change_tol = mean_change_tol
        self.max_doc_update_iter = max_doc_update_iter
        self.burn_in = burn_in
        self.n_samples = n_samples
        self.n_init = n_init
        self.seed_words = seed_words
        self.seed_weight = seed_weight
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def _check(self) -> None:
        if self.learning_method not in METHODS:
            raise wrong("learning_method", self.learning_method, " or ".join(repr(m) for m in METHODS))
        check_common(self)
        for name, least in (("batch_size", 1), ("max_doc_update_iter", 1), ("burn_in", 0), ("n_samples", 1)):
            value = getattr(self, name)
            if name == "burn_in" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise wrong(name, value, f"an int >= {least}")
        for name in ("learning_offset", "mean_change_tol", "seed_weight"):
            value = getattr(self, name)
            if not isinstance(value, (int, float, np.number)) or not 0 <= value < np.inf:
                raise wrong(name, value, "a finite number >= 0")
        if not isinstance(self.learning_decay, (int, float, np.number)) or not 0 < self.learning_decay <= 1:
            raise wrong("learning_decay", self.learning_decay, "a number in (0, 1]")

    def _priors(self, n: int, columns: Any) -> Priors:
        """alpha, eta and the boost of seed words for n words."""
        k = int(self.n_components)
        alpha = self._prior("doc_topic_prior", self.doc_topic_prior, ALPHA, ((), (k,)))
        eta = self._prior("topic_word_prior", self.topic_word_prior, ETA, ((), (n,), (k, n)))
        boost = None
        if eta.ndim == 1:
            boost, eta = np.tile(eta[:, None], (1, k)), np.array(0.0)
        elif eta.ndim == 2:
            boost, eta = eta.T.copy(), np.array(0.0)
        if self.seed_words is not None:
            seeds = self._seeds(n, columns)
            boost = seeds if boost is None else boost + seeds
        learn_eta = isinstance(self.topic_word_prior, str) and self.seed_words is None
        learn_alpha = isinstance(self.doc_topic_prior, str)
        return Priors(np.broadcast_to(alpha, (k,)).astype(np.float64), float(eta), boost, learn_alpha, learn_eta)

    def _prior(self, name: str, value: Any, begin: float, shapes: tuple) -> np.ndarray:
        if isinstance(value, str):
            if value != "auto":
                raise wrong(name, value, "'auto', None, a number > 0 or an array of them")
            return np.array(begin)
        try:
            out = np.array(1.0 / self.n_components if value is None else value, np.float64)
        except (TypeError, ValueError):
            raise wrong(name, value, "'auto', None, a number > 0 or an array of them") from None
        if out.shape not in shapes:
            raise InputError(f"{name} has shape {out.shape}, wanted {' or '.join(map(str, shapes))}")
        if not (np.isfinite(out).all() and (out > 0).all()):
            raise wrong(name, float(out.min()), "finite numbers > 0")
        return out

    def _seeds(self, n: int, columns: Any) -> np.ndarray:
        """Pseudo-counts of the seed words, words x k."""
        out = np.zeros((n, int(self.n_components)))
        at = {} if columns is None else {name: j for j, name in enumerate(columns)}
        if not isinstance(self.seed_words, dict):
            raise wrong("seed_words", self.seed_words, "a dictionary {topic: [words]}")
        for z, words in self.seed_words.items():
            if not str(z).lstrip("-").isdigit() or not 0 <= int(z) < out.shape[1]:
                raise wrong("seed_words", z, f"topics from 0 to {out.shape[1] - 1}")
            for word in words:
                j = at.get(word, word if isinstance(word, (int, np.integer)) and 0 <= word < n else None)
                if j is None:
                    raise InputError(f"seed_words names {word!r} for topic {z}, which is no word of X; leave it out")
                out[j, int(z)] += float(self.seed_weight)
        return out

    def _warm(self, X: Any) -> np.ndarray | None:
        """phi of the last fit, words x k, where the fit is to begin there."""
        if not self.warm_start or "fit_" not in vars(self):
            return None
        self._new_rows(X)  # type: ignore[attr-defined]
        t = self.fit_.factors
        if t.k != self.n_components:
            raise wrong("n_components", self.n_components, f"{t.k}, as in the fit that warm_start goes on from")
        return np.ascontiguousarray(t.words.T)


def count_blocks(X: Any) -> Any:
    """X itself where it is a re-readable source of sparse blocks, else None."""
    if isinstance(X, (Dense, Observed, Counts, str, dict)) or hasattr(X, "shape") or hasattr(X, "__array__"):
        return None
    if isinstance(X, (list, tuple)):
        return X if len(X) and (isinstance(X[0], Counts) or hasattr(X[0], "tocsr")) else None
    return X if getattr(X, "holds_counts", False) or hasattr(X, "__next__") else None
