"""Skip-gram by stochastic steps: the corpus is passed several times while the rate falls to nearly
nothing.

    eta_t = eta_0 + (eta_end - eta_0) t / T       t of T words

Two words of a window share their noise: ``drawn`` words that weigh r / drawn each, so that the
expectation is that of r negatives. (Noise that a whole window shares is faster still, but it makes
the words of a window alike: related words come nearer, similar ones do not.) The loss that is
reported after a pass is that of fixed pairs with fixed noise (``FixedPairs``): the mean over the
steps of a pass is taken while vectors move and their rate falls, and may rise while the vectors get
better. Pairs of sentences that are held out say when passes no longer help. Threads share the
tables without locks (``together``), or take the steps in an order by which the same bits come out
for any number of them.

Skip-gram without sampling: the whole loss over all pairs of a small vocabulary, by L-BFGS.

    negative    sum_wv N_wv softplus(-s_wv) + r N_w q_v softplus(s_wv),        s_wv = <zeta_w, z_v>
    + b_v
    softmax     sum_wv N_wv ( log sum_u exp s_wu - s_wv )

over sum N. With vectors as long as the vocabulary the minimum is s_wv = log N_wv / (r N_w q_v) =
PMI - log r, or log N_wv / N_w up to a number for each w.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from eckart.engines.protocol.words import Pieces, WindowRule
from eckart.errors import InputError
from eckart.io.models.checkpoint import NOTHING, Memory, resumed_trace
from eckart.matrix import Counts
from eckart.optim.lbfgs import minimise
from eckart.terms import Logistic
from eckart.trace import StopReason, Trace, Watcher, silent

PART_WORDS = 2**20
"""Words between two points at which the state can be kept."""

LEAST, MOST, SHARE = 256, 2**14, 16
"""Pairs that the loss is measured on: one for so many pairs of the text, which costs a small part
of a pass, and no more than give it to a hundredth. Their number does not matter to comparisons
between passes, whose pairs are the same."""
NOISE = 16
"""Noise words for each of them, at most: with more negatives each weighs more."""
PATIENCE, TAIL = 2, 0.5
"""Passes in a row after which a loss of held-out pairs that does not fall begins the last part of
the training, and the share of passes so far that it takes. At a high rate vectors stray around
better ones: of 2 M words of text8 the loss of held-out pairs stayed at 2.74 and ended at 2.48."""


class FixedPairs(NamedTuple):
    """Words, words beside them, and noise words (a row for each pair) that stand for
    ``negatives``."""

    words: np.ndarray
    contexts: np.ndarray
    noise: np.ndarray
    negatives: float

    @classmethod
    def of(cls, counts: Counts, noise: np.ndarray, negatives: float, seed: int) -> FixedPairs:
        """Drawn by their counts; noise by its shares."""
        rng, ends = np.random.default_rng(seed), np.cumsum(counts.data)
        size = int(np.clip(ends[-1] / SHARE, LEAST, MOST))
        at = np.minimum(
            np.searchsorted(ends, rng.random(size) * ends[-1], side="right"), len(ends) - 1
        )
        words = np.searchsorted(counts.indptr, at, side="right") - 1
        drawn = rng.choice(len(noise), (size, min(int(negatives), NOISE)), p=noise)
        return cls(words, counts.indices[at], drawn, float(negatives))

    def loss(self, x: np.ndarray, y: np.ndarray) -> float:
        """The mean of -log sigma(s) of a pair and of r times that of -s of its noise."""
        total = 0.0
        for a in range(0, len(self.words), 2**11):  # a few megabytes of rows at a time
            part = slice(a, a + 2**11)
            u = x[self.words[part]]
            scores = (
                np.einsum("pk,pk->p", u, y[self.contexts[part]]),
                np.einsum("pk,prk->pr", u, y[self.noise[part]]),
            )
            with np.errstate(invalid="ignore"):  # a rate that was too high is said at the end
                near, away = (
                    np.logaddexp(0.0, side * s.astype(np.float64))
                    for side, s in zip((-1, 1), scores)
                )
            total += near.sum() + self.negatives * away.mean(axis=1).sum()
        return float(total / len(self.words))


@dataclass(frozen=True)
class Training:
    """Numbers of a training: see ``SkipGram``."""

    k: int
    window: int
    negatives: int
    drawn: int
    epochs: int
    rate: float
    last_rate: float
    bias: bool
    together: bool


def drawn_for(negatives: int) -> int:
    """Noise words that are drawn: the negatives, or a few more, so that they and the word fill
    whole groups of six.

    >>> [drawn_for(r) for r in (1, 5, 15)]
    [5, 5, 17]
    """
    return 6 * -(-(negatives + 1) // 6) - 1


def train(
    pieces: Pieces,
    t: Training,
    *,
    engine: Any,
    rng: np.random.Generator,
    judges: tuple[FixedPairs, FixedPairs | None],
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[np.ndarray, np.ndarray, Trace, list[float]]:
    """Inputs and outputs (n rows, the bias behind the vectors), the loss of fixed pairs after each
    epoch, and that of held-out ones.

    When that no longer falls, the rate falls to its end within some more passes, from the state of
    its least value on; the answer is the best of all, also of an interrupt, which else keeps the
    present state."""
    n, columns = pieces.n, t.k + int(t.bias)
    held: list[float] = []
    best: tuple[np.ndarray, np.ndarray] | None = None
    done, trace = 0, resumed_trace("loss of a pair")
    course = [0, t.epochs, t.rate]  # the passes between which the rate falls, and from what
    seed = int(rng.integers(2**62))
    first = np.ones((n, columns), np.float32)
    first[:, : t.k] = (rng.random((n, t.k), np.float32) - np.float32(0.5)) / np.float32(t.k)
    both = first, np.zeros_like(first)
    if (kept := memory.last()) is not None:
        both, seed, done = (kept["x"], kept["y"]), int(kept["seed"]), int(kept["done"])
        trace, held, best, course = (
            resumed_trace("loss of a pair", kept["trace"]),
            list(kept["held"]),
            kept["best"],
            list(kept["course"]),
        )
    sides = [engine.window_table(np.ascontiguousarray(side[:n, :columns])) for side in both]
    rule = WindowRule(t.window, t.drawn, t.negatives / t.drawn, columns, t.k if t.bias else -1)
    parts = _parts(pieces.bounds)
    trace.reason = StopReason.MAX_ITER
    (own, other), has_loss = judges, done > 0

    def tables() -> tuple[np.ndarray, np.ndarray]:
        left, right = (engine.get(side)[:n, :columns] for side in sides)
        return left, right

    size, step = max(int(pieces.bounds[-1] - pieces.bounds[0]), 1), done
    try:
        while step < course[1] * len(parts):
            now = {name: partial(engine.get, side) for name, side in zip("xy", sides)}
            memory.offer(
                now
                | {
                    "seed": seed,
                    "done": step,
                    "trace": [trace.values, trace.seconds],
                    "held": held,
                    "best": best,
                    "course": course,
                }
            )
            epoch, at = divmod(step, len(parts))
            rates = tuple(_rate(t, course, epoch + int(pieces.bounds[p]) / size) for p in parts[at])
            engine.pair_step(
                pieces,
                *sides,
                parts[at],
                rule,
                rates=rates,
                seed=(seed + epoch) % 2**63,
                together=t.together,
            )
            has_loss, step = True, step + 1
            watch("words", epoch * size + int(pieces.bounds[parts[at][1]]), course[1] * size)
            if at < len(parts) - 1:
                continue
            trace.add(own.loss(*tables()))
            if other is None:
                continue
            held.append(other.loss(*tables()))
            if held[-1] == min(held):
                left, right = tables()
                best = left.copy(), right.copy()
            elif not course[0] and len(held) - 1 - int(np.argmin(held)) >= PATIENCE:
                trace.reason = StopReason.CONVERGED
                course = [
                    epoch + 1,
                    epoch + 1 + int(np.ceil(TAIL * (epoch + 1))),
                    _rate(t, course, epoch + 1),
                ]
                sides = [engine.window_table(a) for a in best or ()]
    except KeyboardInterrupt:
        if not has_loss:  # before there is an answer
            raise
        trace.reason = StopReason.INTERRUPTED
        if not len(trace):  # within the first pass
            trace.add(own.loss(*tables()))
    left, right = best or tables()
    return left, right, trace, held


def _rate(t: Training, course: list[Any], passes: float) -> float:
    """After so many passes."""
    first, last, rate = course
    return rate + (t.last_rate - rate) * (passes - first) / (last - first)


def _parts(bounds: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of pieces of about PART_WORDS words; one empty range where there is no piece."""
    cuts = np.arange(bounds[0], bounds[-1], PART_WORDS)
    at = [*np.searchsorted(bounds, cuts).tolist(), len(bounds) - 1]
    return [(a, b) for a, b in itertools.pairwise(at) if b > a] or [(0, 0)]


LOGISTIC = Logistic()
LARGEST = 5000
"""Words up to which n x n numbers are held."""


def solve(
    x: Counts,
    noise: np.ndarray,
    *,
    loss: str,
    k: int,
    negatives: float,
    bias: bool,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, Trace]:
    """zeta, z, b (None without a bias) and the loss of each step; an interrupt keeps the best
    state."""
    n = x.shape[0]
    if n > LARGEST:
        raise InputError(
            f"the vocabulary must have at most {LARGEST} words without sampling (n x n numbers "
            f"are held), got {n}. Use loss='negative' with solver='stochastic', or max_words=."
        )
    seen = x.to_scipy().toarray().astype(np.float64)
    seen /= max(seen.sum(), 1e-300)
    away = negatives * seen.sum(axis=1)[:, None] * noise
    start = rng.standard_normal(2 * n * k) / np.sqrt(k)
    theta = np.concatenate([start, np.zeros(n)]) if bias else start

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        u, v = theta[: 2 * n * k].reshape(2, n, k)
        s = u @ v.T
        if bias:
            s += theta[2 * n * k :]
        total, g = _softmax(seen, s) if loss == "softmax" else _negative(seen, away, s)
        parts = [(g @ v).ravel(), (g.T @ u).ravel()]
        return total, np.concatenate([*parts, g.sum(axis=0)] if bias else parts)

    theta, trace = minimise(
        value,
        theta,
        tol=tol,
        max_iter=max_iter,
        quantity="loss of a pair",
        watch=watch,
        memory=memory,
    )
    if not len(trace):
        trace.add(value(theta)[0])
    u, v = theta[: 2 * n * k].reshape(2, n, k)
    return u, v, theta[2 * n * k :] if bias else None, trace


def _negative(seen: np.ndarray, away: np.ndarray, s: np.ndarray) -> tuple[float, np.ndarray]:
    """Logistic losses of pairs that were seen (1) and of noise (0), and their gradient by s."""
    soft = LOGISTIC.value(np.zeros(()), s)
    return float((seen * (soft - s)).sum() + (away * soft).sum()), (seen + away) * LOGISTIC.mean(
        s
    ) - seen


def _softmax(seen: np.ndarray, s: np.ndarray) -> tuple[float, np.ndarray]:
    norm = logsumexp(s, axis=1, keepdims=True)
    return float((seen * (norm - s)).sum()), seen.sum(axis=1, keepdims=True) * np.exp(
        s - norm
    ) - seen
