"""Evidence about topics, measured at the topics themselves from the documents, never from what the
solver remembered.

EM and variational fits: documents are folded in at the given topics until they stand still, then
one full step is taken.

    gain        how much one more step raises the objective, for each token: 0 at a stationary point
    movement    sum_z size_z TV(phi_z, phi_z') between the topics before and after the step
    falls       how often the bound fell on the way (rounding aside)

Streams: what every other document teaches is tried on the documents between them.

    news        how much the mean of the topics and of what one half of the documents says gains on
    the other half: 0 where there is nothing more to learn

Gibbs fits: fresh chains are started from the topics.  If the topics are the mean of the posterior
around them, the chains stay there:

    drift       sum_z size_z TV(phi_z, mean of phi_z over the chains) beyond what the halves of the
    chains differ among themselves
    climb       how much the log-likelihood of a token still rises from the first half of the chains
    to the second
    R-hat       of that log-likelihood over the halves of all chains (``chains``): a fact, no check,
    because over millions of tokens it resolves changes that
                no reader of the topics would
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.certify.chains import split_rhat
from eckart.engines.protocol import Engine
from eckart.engines.protocol.topics import TopicWords
from eckart.factors import Topics
from eckart.trace import StopReason, Trace

SETTLE = 300
"""Updates of a document at the most until it stands still."""
GAIN, DRIFT, CLIMB, NEWS = 1e-3, 0.1, 5e-3, 0.02
"""Limits: a thousandth of a nat a token is a thousandth of the perplexity; a tenth of the mass that
moves is what chains of the same topics differ by."""
CHAINS, BURN, DRAWS = 2, 4, 8
"""Fresh chains, and sweeps of each before and while they are measured."""


class TopicEvidence(Protocol):
    """What a step over the documents found: the objective at the topics it began with, and the
    tokens it is summed over."""

    @property
    def bound(self) -> float: ...

    @property
    def weight(self) -> float: ...


class WithLikelihood(TopicEvidence, Protocol):
    """The same, with the log-likelihood of the documents."""

    @property
    def likelihood(self) -> float: ...


State = TypeVar("State")
S = TypeVar("S", bound=TopicEvidence)
L = TypeVar("L", bound=WithLikelihood)


class LikelihoodProblem(Protocol[State, S]):
    """Placed documents with an objective and the steps that climb it."""

    docs: Any

    def settled(self, t: Topics, steps: int, tol: float) -> State:
        """The state at given topics, with documents folded in until they move by less than
        ``tol``."""
        ...

    def expect(self, state: State, /) -> S: ...

    def maximise(self, statistics: S, /) -> State: ...


class OneMore(NamedTuple, Generic[State, S]):
    """A state, the statistics of a step at it, the state after it, and how much the objective of a
    token rises."""

    state: State
    now: S
    after: State
    gain: float


def one_more_step(problem: LikelihoodProblem[State, S], t: Topics, tol: float) -> OneMore[State, S]:
    """Documents are folded in at the topics, then a step is taken."""
    state = problem.settled(t, SETTLE, tol)
    now = problem.expect(state)
    after = problem.maximise(now)
    then = problem.expect(after)
    return OneMore(state, now, after, (then.bound - now.bound) / max(now.weight, 1e-300))


def certify_em(
    problem: LikelihoodProblem[TopicWords, L],
    t: Topics,
    *,
    trace: Trace,
    tol: float,
    ends: list[float] | None = None,
    name: str,
    moves: Iterable[int] = (),
) -> Certificate:
    """Stationarity of topics under one more EM step; ``moves`` are steps at which the priors
    changed."""
    step = one_more_step(problem, t, 1e-3)
    limit, tokens = max(GAIN, 20 * tol), float(step.now.weight)
    checks = _stationary(step, trace, limit, moves, "EM step", "objective")
    if trace.reason is StopReason.MAX_ITER:
        checks.append(
            Check(
                "last gain",
                _last(trace),
                limit,
                "rise of the objective in the last step of the fit",
            )
        )
    facts = {
        "log-likelihood of a token": float(step.now.likelihood / tokens),
        "movement": float(t.sizes @ _tv(step.after.words, step.state.words)),
    }
    problem_said = f"{name}: {t.k} topics of {t.n} words in {problem.docs.shape[0]} documents"
    return Certificate(
        problem_said, "stationary", tuple(checks), facts | _sizes(t, tokens) | _starts(ends)
    )


def certify_variational(
    problem: LikelihoodProblem[State, S], t: Topics, *, trace: Trace, tol: float
) -> Certificate:
    """Stationarity of q(beta) = Dir(counts) under one more variational step, documents settled on
    both sides of it."""
    step = one_more_step(problem, t, 1e-4)
    checks = _stationary(step, trace, max(GAIN, 20 * tol), (), "step", "bound")
    tokens = float(step.now.weight)
    facts = {"bound of a token": step.now.bound / tokens} | _sizes(t, tokens)
    problem_said = (
        f"LDA: {t.k} topics of {t.n} words in {problem.docs.shape[0]} documents, variational bound"
    )
    return Certificate(problem_said, "stationary", tuple(checks), facts)


def certify_stream(halves: Sequence[Any], t: Topics, *, engine: Engine) -> Certificate:
    """Would documents like these still change the topics? What every other document (placed)
    teaches is tried on those between them."""
    words, start = np.ascontiguousarray(t.words.T, np.float32), np.full(t.k, 1.0 / t.k)

    def shares(half: Any, phi: np.ndarray) -> Any:
        return engine.topic_fold(half, phi, t.prior, start, steps=SETTLE, tol=1e-3)

    _, found = engine.topic_sweep(halves[0], words, t.prior, shares(halves[0], words))
    total = np.where(found.sizes > 0, found.sizes, 1.0)
    mixed = np.ascontiguousarray(0.5 * words + 0.5 * (found.counts / total), np.float32)
    values = []
    for phi in (words, mixed):
        value, tokens = engine.topic_scores(halves[1], phi, shares(halves[1], phi), 1e-12)
        values.append(value / max(tokens, 1.0))
    check = Check(
        "gain on other documents",
        max(0.0, values[1] - values[0]),
        NEWS,
        "nats a token that documents like these would still teach",
    )
    tokens = float(sum(engine.topic_totals(half).sum() for half in halves))
    known = {"log-likelihood of a token": values[0], "tokens": tokens}
    problem = f"LDA: {t.k} topics of {t.n} words, from a stream"
    note = "measured on the documents given, the last batch of a fit"
    return Certificate(problem, "statistical", (check,), known, (note,))


def certify_gibbs(docs: Any, t: Topics, eta: Any, *, engine: Engine) -> Certificate:
    """Do fresh chains, started at these topics over placed documents, stay there and agree? ``eta``
    is one number or words x k."""
    words = np.ascontiguousarray(t.words.T, np.float32)
    shares = engine.topic_fold(docs, words, t.prior, np.full(t.k, 1.0 / t.k), steps=30, tol=1e-2)
    values, means, tokens = np.zeros((CHAINS, DRAWS)), [], 1
    for c in range(CHAINS):
        chain = engine.topic_chain(docs, words, shares, eta, 7919 * (c + 1))
        tokens = max(1, chain.tokens)
        for _ in range(BURN):
            chain.sweep(t.prior)
        values[c] = [chain.sweep(t.prior, average=True) for _ in range(DRAWS)]
        mean = chain.mean_counts()
        means.append(engine.topic_words(mean, mean.sum(axis=0, dtype=np.float64), eta).words)
    own = float(t.sizes @ _tv(words, np.mean(means, axis=0)))
    apart = float(t.sizes @ _tv(means[0], means[-1]))
    values /= tokens
    rise = float(values[:, DRAWS // 2 :].mean() - values[:, : DRAWS // 2].mean())
    checks = (
        Check(
            "drift",
            max(0.0, own - apart),
            DRIFT,
            "how far fresh chains wander from the topics, beyond what they differ among themselves",
        ),
        Check(
            "climb",
            abs(rise),
            CLIMB,
            "nats a token between the first and the second half of the chains",
        ),
    )
    measured = {
        "log-likelihood of a token given the others": float(values.mean()),
        "split R-hat": float(split_rhat(values)),
        "chains apart": apart,
        "chains": CHAINS,
    }
    problem = (
        f"LDA: {t.k} topics of {t.n} words in {docs.shape[0]} documents, mean of the posterior "
        "around them"
    )
    return Certificate(problem, "statistical", checks, measured | _sizes(t, float(tokens)))


def falls(trace: Trace, moves: Iterable[int] = ()) -> int:
    """How many steps lowered the traced value by more than rounding, but for those right after
    priors were changed."""
    v = np.array(trace.values)
    fell = np.diff(v) < -1e-6 * np.maximum(1.0, np.abs(v[1:]))
    fell[[m - 1 for m in moves if m <= len(fell)]] = False
    return int(np.count_nonzero(fell))


def _stationary(
    step: OneMore, trace: Trace, limit: float, moves: Iterable[int], kind: str, climbed: str
) -> list[Check]:
    more = f"nats a token that another {kind} would add"
    fell = f"steps on the way at which the {climbed} fell"
    return [
        Check("gain of one more step", max(0.0, float(step.gain)), limit, more),
        Check("falls of the bound", falls(trace, moves), 0, fell),
    ]


def _sizes(t: Topics, tokens: float) -> dict[str, Any]:
    return {"tokens": tokens, "topics in use": int(np.count_nonzero(t.sizes * tokens >= 1))}


def _starts(ends: list[float] | None) -> dict[str, Any]:
    if ends is None or len(ends) < 2:
        return {}
    return {"starts": len(ends), "spread over starts": float(max(ends) - min(ends))}


def _last(trace: Trace) -> float:
    return float(trace.values[-1] - trace.values[-2]) if len(trace) > 1 else np.inf


def _tv(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Total variation of the columns."""
    return 0.5 * np.abs(p - q).sum(axis=0, dtype=np.float64)
