"""Skip-gram steps in NumPy: two words of a window of every lane at a time.

The words that stay, the windows and the noise of a piece are those of every engine, from its stream
of random numbers (splitmix64). Pieces are dealt to lanes that share the tables, as threads do; a
small vocabulary has one lane, whose windows follow one another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.engines.protocol.windows import LISTEN, PairEvidence, Pieces, WindowRule

APART = 64
"""Words for each lane: a step changes about six rows, so with fewer words most steps would meet
another's."""
LANES = 256
"""Lanes at the most: so many steps take as long for each as a step costs beside its arithmetic."""
SIX, TOGETHER = 6, 2
"""Targets, and words of a window, that are worked on at once: of the next ones those before are
seen."""
GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


class Tasks(NamedTuple):
    """Steps of some pieces one after another: up to two words of a window (n: none), the word in
    its middle and its noise, each once (n: none), how much each weighs as noise, the rate, and
    whether the loss is listened to."""

    words: np.ndarray
    targets: np.ndarray
    times: np.ndarray
    rates: np.ndarray
    heard: np.ndarray


class ArrayWindows:
    """window_table and pair_step."""

    def window_table(self, rows: np.ndarray) -> np.ndarray:
        return np.vstack([rows, np.zeros((1, rows.shape[1]), rows.dtype)])

    def pair_step(
        self,
        pieces: Pieces,
        x: np.ndarray,
        y: np.ndarray,
        part: tuple[int, int],
        rule: WindowRule,
        *,
        rates: tuple[float, float],
        seed: int,
        together: bool = True,
    ) -> PairEvidence:
        lanes = int(np.clip(pieces.n // APART, 1, LANES))
        dealt: list[list[Tasks]] = [[] for _ in range(lanes)]
        first, last = (pieces.bounds[p] for p in part)
        for piece in range(*part):
            passed = (pieces.bounds[piece] - first) / max(last - first, 1)
            tasks = _tasks(pieces, piece, rule, rates[0] + (rates[1] - rates[0]) * passed, seed)
            if tasks is not None:
                dealt[piece % lanes].append(tasks)
        joined = [Tasks(*(np.concatenate(each) for each in zip(*own))) for own in dealt if own]
        joined.sort(key=lambda tasks: -len(tasks.rates))  # a step is of the first lanes
        lengths = np.array([len(tasks.rates) for tasks in joined], np.int64)
        loss, listened = 0.0, 0
        for t in range(lengths.max(initial=0)):
            some = joined[: int(np.count_nonzero(lengths > t))]
            step = Tasks(*(np.stack([a[t] for a in each]) for each in zip(*some)))
            heard = _step(x, y, step, rule, pieces.n)
            loss += heard
            listened += int((step.words[step.heard] < pieces.n).sum())
        return PairEvidence(loss, listened, sum(int((t.words < pieces.n).sum()) for t in joined))


def _step(x: np.ndarray, y: np.ndarray, step: Tasks, rule: WindowRule, none: int) -> float:
    """One step of every lane; the loss of those that are listened to."""
    k = rule.columns
    scores = np.matmul(x[step.words, :k], y[step.targets, :k].swapaxes(1, 2), dtype=np.float64)
    g = -step.times[:, None] / (1.0 + np.exp(-scores))
    g[:, :, 0] += 1.0
    there = step.words < none
    g *= (step.rates[:, None] * there)[:, :, None]
    for j in range(0, step.targets.shape[1], SIX):
        targets, six = step.targets[:, j : j + SIX], g[:, :, j : j + SIX]
        before = y[targets, :k]
        moved = np.zeros(before.shape)
        for i in range(TOGETHER):
            at = step.words[:, i]
            moved += six[:, i, :, None] * x[at, None, :k]
            np.add.at(x[:, :k], at, np.matmul(six[:, i, None], before)[:, 0].astype(x.dtype))
        if rule.bias >= 0:
            x[step.words[there], rule.bias] = 1.0
        np.add.at(y[:, :k], targets, moved.astype(y.dtype))
    if not step.heard.any():
        return 0.0
    each = step.times[:, None] * np.logaddexp(0.0, scores)
    each[:, :, 0] -= scores[:, :, 0]
    return float(each.sum(axis=2)[there & step.heard[:, None]].sum())


def _tasks(pieces: Pieces, piece: int, rule: WindowRule, rate: float, seed: int) -> Tasks | None:
    """The steps of a piece; one word alone has no neighbour."""
    words = pieces.ids[pieces.bounds[piece] : pieces.bounds[piece + 1]]
    groups = -(-2 * rule.window // TOGETHER)
    draws = _stream(seed, piece, len(words) * (2 + groups * rule.drawn))
    kept = words[(draws[: len(words)] & LOW) < pieces.keep[words]]
    if len(kept) < 2:
        return None
    reaches = 1 + (((draws >> HALF) * np.uint64(rule.window)) >> HALF).astype(np.int64)
    at, pairs, middles, noise = len(words), [], [], []
    for p in range(len(kept)):
        reach = int(reaches[at])
        window = [*range(max(0, p - reach), p), *range(p + 1, min(len(kept), p + reach + 1))]
        pairs += window if len(window) % 2 == 0 else [*window, -1]
        count = -(-len(window) // TOGETHER)
        middles += [p] * count
        noise.append(draws[at + 1 : at + 1 + count * rule.drawn])
        at += 1 + count * rule.drawn
    among = np.array(pairs).reshape(-1, TOGETHER)
    middle, drawn = np.array(middles), _noise(np.concatenate(noise), pieces)
    targets = np.hstack([kept[middle][:, None], drawn.reshape(len(middle), rule.drawn)])
    weights = np.full(targets.shape[1], rule.weight)
    weights[0] = 1.0
    first = (targets[:, :, None] == targets[:, None, :]).argmax(axis=2)
    numbers = np.arange(targets.shape[1])
    times = ((first[:, :, None] == numbers) * weights[:, None]).sum(axis=1)
    again = first != numbers
    order = np.argsort(again, axis=1, kind="stable")  # those met before come last
    targets = np.where(again, pieces.n, targets)
    targets, times = (np.take_along_axis(a, order, axis=1) for a in (targets, times))
    return Tasks(
        np.where(among < 0, pieces.n, kept[among]),
        targets,
        times,
        np.full(len(middle), rate),
        (piece + middle) % LISTEN == 0,
    )


def _noise(draws: np.ndarray, pieces: Pieces) -> np.ndarray:
    """Words by the alias method."""
    u = (((draws >> HALF) * np.uint64(pieces.n)) >> HALF).astype(np.int64)
    return np.where((draws & LOW) < pieces.chance[u], u, pieces.alias[u])


def _stream(seed: int, piece: int, count: int) -> np.ndarray:
    """So many numbers of the stream of a piece."""
    with np.errstate(over="ignore"):
        own = _mixed(np.array([seed & MASK], np.uint64)) + np.uint64(piece * GOLDEN & MASK)
        return _mixed(_mixed(own) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN))


def _mixed(z: Any) -> Any:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
