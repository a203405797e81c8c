"""The priors of a topic model as its user gives them: learned, numbers, arrays, or words that lean
a topic."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError, invalid
from eckart.explain.topics.priors import Priors

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
