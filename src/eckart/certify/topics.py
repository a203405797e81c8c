"""Evidence about topics, measured at the topics themselves from the documents, never from what the solver remembered.

EM and variational fits: documents are folded in at the given topics until they stand still, then one full step is taken.

    gain        how much one more step raises the objective, for each token: 0 at a stationary point
    movement    sum_z size_z TV(phi_z, phi_z') between the topics before and after the step
    falls       how often the bound fell on the way (rounding aside)

Streams: what every other document teaches is tried on the documents between them.

    news        how much the mean of the topics and of what one half of the documents says gains on the other half: 0 where there is nothing more to learn

Gibbs fits: fresh chains are started from the topics.  If the topics are the mean of the posterior around them, the chains stay there:

    drift       sum_z size_z TV(phi_z, mean of phi_z over the chains) beyond what the halves of the chains differ among themselves
    climb       how much the log-likelihood of a token still rises from the first half of the chains to the second
    R-hat       of that log-likelihood over the halves of all chains (``chains``): a fact, no check, because over millions of tokens it resolves changes that
                no reader of the topics would
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from eckart.certify.certificate import Certificate, Check
from eckart.certify.chains import split_rhat
from eckart.factors import Topics
from eckart.matrix import Counts
from eckart.trace import StopReason, Trace

SETTLE = 300
GAIN, DRIFT, CLIMB, NEWS = 1e-3, 0.1, 5e-3, 0.02
CHAINS, BURN, DRAWS = 2, 4, 8


def certify_em(
    x: Counts,
    t: Topics,
    eta: Any,
    *,
    engine: Any,
    trace: Trace,
    tol: float,
    ends: list[float] | None = None,
    name: str,
    moves: Any = (),
    dtype: Any = None,
) -> Certificate:
    """Stationarity of topics under one more EM step; ``eta`` (a number or words x k) is the words' prior, contained in the counts of ``t``.

    ``moves`` are steps at which the priors changed, ``dtype`` is the precision to measure in (by default that of the topics).
    """
    words = np.ascontiguousarray(t.words.T, dtype)
    begin = np.full((x.shape[0], t.k), 1.0 / t.k, words.dtype)
    shares = engine.topic_sweep(x, words, t.prior, begin, steps=SETTLE, tol=1e-3, collect=False).shares
    now = engine.topic_sweep(x, words, t.prior, shares)
    moved = now.counts + np.asarray(eta, now.counts.dtype)
    total = moved.sum(axis=0, dtype=np.float64)
    after = np.where(total > 0, moved / np.where(total > 0, total, 1.0), words).astype(words.dtype)
    then = engine.topic_sweep(x, np.ascontiguousarray(after), t.prior, now.shares)
    tokens = max(now.seen, 1e-300)
    gain = (then.value + _log_prior(after, eta) - now.value - _log_prior(words, eta)) / tokens
    limit = max(GAIN, 20 * tol)
    checks = [
        Check("gain of one more step", max(float(gain), 0.0), limit, "nats a token that another EM step would add"),
        Check("falls of the bound", falls(trace, moves), 0, "steps on the way at which the objective fell"),
    ]
    if trace.reason is StopReason.MAX_ITER:
        checks.append(
            Check("last gain", _last(trace), max(GAIN, 20 * tol), "rise of the objective in the last step of the fit")
        )
    facts: dict[str, Any] = {
        "log-likelihood of a token": float((now.value - _shares_prior(t.prior, shares)) / tokens),
        "movement": float(t.sizes @ (0.5 * np.abs(after - words).sum(axis=0, dtype=np.float64))),
        "tokens": float(now.seen),
        "topics in use": int(np.count_nonzero(t.sizes * now.seen >= 1)),
    }
    if ends is not None and len(ends) > 1:
        facts |= {"starts": len(ends), "spread over starts": float(max(ends) - min(ends))}
    problem = f"{name}: {t.k} topics of {t.n} words in {x.shape[0]} documents"
    return Certificate(problem, "stationary", tuple(checks), facts)


def certify_stream(x: Counts, t: Topics, *, engine: Any, facts: dict[str, Any] | None = None) -> Certificate:
    """Would documents like these still change the topics? A step learned on every other document is tried on those between them."""
    words = np.ascontiguousarray(t.words.T, np.float32)
    halves = [_every_other(x, 0), _every_other(x, 1)]

    def shares(half: Counts, phi: np.ndarray) -> np.ndarray:
        begin = np.full((half.shape[0], t.k), 1.0 / t.k, np.float32)
        return engine.topic_sweep(half, phi, t.prior, begin, steps=SETTLE, tol=1e-3, collect=False).shares

    learned = engine.topic_sweep(halves[0], words, t.prior, shares(halves[0], words)).counts
    mixed = np.ascontiguousarray(0.5 * words + 0.5 * _normal(learned), np.float32)
    values = []
    for phi in (words, mixed):
        value, tokens = engine.topic_scores(halves[1], phi, shares(halves[1], phi), 1e-12)
        values.append(float(value.sum()) / max(float(tokens.sum()), 1.0))
    check = Check(
        "gain on other documents",
        max(0.0, values[1] - values[0]),
        NEWS,
        "nats a token that documents like these would still teach",
    )
    known = {"log-likelihood of a token": values[0], "tokens": float(x.data.sum(dtype=np.float64))}
    problem = f"LDA: {t.k} topics of {t.n} words, from a stream"
    return Certificate(
        problem,
        "statistical",
        (check,),
        known | (facts or {}),
        ("measured on the documents given, the last batch of a fit",),
    )


def certify_gibbs(
    x: Counts,
    t: Topics,
    eta: Any,
    *,
    engine: Any,
    seed: int = 0,
    chains: int = CHAINS,
    facts: dict[str, Any] | None = None,
) -> Certificate:
    """Do fresh chains, started at these topics, stay there and agree?"""
    words = np.ascontiguousarray(t.words.T, np.float32)
    begin = np.full((x.shape[0], t.k), 1.0 / t.k, np.float32)
    shares = engine.topic_sweep(x, words, t.prior, begin, steps=30, tol=1e-2, collect=False).shares
    prior = np.broadcast_to(np.asarray(eta, np.float32), words.shape)
    values, means = np.zeros((chains, DRAWS)), []
    tokens = 1
    for c in range(chains):
        chain = engine.topic_chain(x, words, shares, prior, seed + 7919 * (c + 1))
        tokens = max(1, chain.tokens)
        for _ in range(BURN):
            chain.sweep(t.prior)
        values[c] = [chain.sweep(t.prior, average=True) for _ in range(DRAWS)]
        means.append(_normal(chain.mean_counts() + prior))
    own = float(t.sizes @ _tv(words, _normal(np.sum(means, axis=0))))
    apart = float(t.sizes @ _tv(means[0], means[-1])) if chains > 1 else 0.0
    values /= tokens
    rise = float(values[:, DRAWS // 2 :].mean() - values[:, : DRAWS // 2].mean())
    checks = (
        Check(
            "drift",
            max(0.0, own - apart),
            DRIFT,
            "how far fresh chains wander from the topics, beyond what they differ among themselves",
        ),
        Check("climb", abs(rise), CLIMB, "nats a token between the first and the second half of the chains"),
    )
    measured = {
        "log-likelihood of a token given the others": float(values.mean()),
        "split R-hat": float(split_rhat(values)),
        "chains apart": apart,
        "chains": chains,
        "tokens": float(tokens),
        "topics in use": int(np.count_nonzero(t.sizes * tokens >= 1)),
    }
    problem = f"LDA: {t.k} topics of {t.n} words in {x.shape[0]} documents, mean of the posterior around them"
    return Certificate(problem, "statistical", checks, measured | (facts or {}))


def certify_variational(
    x: Counts,
    t: Topics,
    eta: Any,
    *,
    engine: Any,
    trace: Trace,
    tol: float,
    ends: list[float] | None = None,
) -> Certificate:
    """Stationarity of q(beta) = Dir(counts) under one more variational step, documents settled on both sides of it."""
    tokens = float(x.data.sum(dtype=np.float64)) or 1.0
    gamma = np.full((x.shape[0], t.k), 1.0) + tokens / (max(1, x.shape[0]) * t.k)
    now, after, gamma = variational_step(x, t.counts.T.astype(np.float64), gamma, t.prior, eta, engine)
    then, _, _ = variational_step(x, after, gamma, t.prior, eta, engine)
    limit = max(GAIN, 20 * tol)
    checks = [
        Check(
            "gain of one more step", max(0.0, (then - now) / tokens), limit, "nats a token that another step would add"
        ),
        Check("falls of the bound", falls(trace), 0, "steps on the way at which the bound fell"),
    ]
    facts: dict[str, Any] = {"bound of a token": now / tokens, "tokens": tokens}
    facts["topics in use"] = int(np.count_nonzero(t.sizes * tokens >= 1))
    if ends is not None and len(ends) > 1:
        facts |= {"starts": len(ends), "spread over starts": float(max(ends) - min(ends))}
    problem = f"LDA: {t.k} topics of {t.n} words in {x.shape[0]} documents, variational bound"
    return Certificate(problem, "stationary", tuple(checks), facts)


def variational_step(
    x: Counts,
    counts: np.ndarray,
    gamma: np.ndarray,
    alpha: np.ndarray,
    eta: Any,
    engine: Any,
    steps: int = SETTLE,
    tol: float = 1e-4,
) -> tuple[float, np.ndarray, np.ndarray]:
    """The bound F at q(beta) = Dir(counts) (words x k) with documents settled, the counts of the next step, and gamma."""
    words, shift = expected_words(counts)
    found = engine.topic_bayes(x, words, alpha, gamma, steps=steps, tol=tol)
    value = found.value + float(x.data.astype(np.float64) @ shift[x.indices]) + x.shape[0] * log_norm(alpha)
    return value + topics_bound(counts, eta), found.counts + eta, found.shares


def expected_words(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """exp(E log beta - shift) of q(beta) = Dir(counts), words x k, with the largest of each word at 1 (nothing underflows), and the shift of each word."""
    logs = digamma(counts) - digamma(counts.sum(axis=0))
    shift = logs.max(axis=1)
    return np.exp(logs - shift[:, None]), shift


def topics_bound(counts: np.ndarray, eta: Any) -> float:
    """-KL(q(beta) | Dir(eta)) over all topics; ``counts`` and ``eta`` are words x k (eta may be one number)."""
    n, k = counts.shape
    logs = digamma(counts) - digamma(counts.sum(axis=0))
    value = np.sum((eta - counts) * logs) + np.sum(gammaln(counts)) - np.sum(gammaln(counts.sum(axis=0)))
    if np.ndim(eta) == 0:
        return float(value + k * (gammaln(n * eta) - n * gammaln(eta)))
    return float(value + np.sum(gammaln(np.sum(eta, axis=0))) - np.sum(gammaln(eta)))


def log_norm(alpha: np.ndarray) -> float:
    """log Gamma(sum alpha) - sum log Gamma(alpha_z)."""
    return float(gammaln(alpha.sum()) - gammaln(alpha).sum())


def falls(trace: Trace, moves: Any = ()) -> int:
    """How many steps lowered the traced value by more than rounding, but for those right after priors were changed."""
    v = np.array(trace.values)
    fell = np.diff(v) < -1e-6 * np.maximum(1.0, np.abs(v[1:]))
    fell[[m - 1 for m in moves if m <= len(fell)]] = False
    return int(np.count_nonzero(fell))


def _last(trace: Trace) -> float:
    return float(trace.values[-1] - trace.values[-2]) if len(trace) > 1 else np.inf


def _log_prior(words: np.ndarray, eta: Any) -> float:
    if not np.any(eta):
        return 0.0
    with np.errstate(divide="ignore"):
        return float(np.sum(np.asarray(eta) * np.maximum(np.log(words.astype(np.float64)), -1e3)))


def _shares_prior(prior: np.ndarray, shares: np.ndarray) -> float:
    held = prior > 0
    return float(np.sum(np.log(np.maximum(shares[:, held].astype(np.float64), 1e-37)) @ prior[held]))


def _every_other(x: Counts, first: int) -> Counts:
    part = x.to_scipy()[first::2]
    return Counts(part.indptr, part.indices, part.data, x.n_columns)


def _normal(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=0, dtype=np.float64)
    return counts / np.where(total > 0, total, 1.0)


def _tv(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Total variation of the columns."""
    return 0.5 * np.abs(p - q).sum(axis=0, dtype=np.float64)
