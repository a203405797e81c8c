"""Skip-gram steps in Python, two words of a window after another: the specification and the judge
of the other engines."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from eckart.engines.protocol.words import (
    LISTEN,
    PairEvidence,
    Pieces,
    WindowRule,
    rounds_of,
    turn,
)
from eckart.terms import Logistic

LOGISTIC = Logistic()
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
SIX, TOGETHER = 6, 2


class OracleWindows:
    """window_table and pair_step as part of ``OracleEngine``."""

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
        first, last = (pieces.bounds[p] for p in part)

        def rate(piece: int) -> float:
            return rates[0] + (rates[1] - rates[0]) * (pieces.bounds[piece] - first) / max(
                last - first, 1
            )

        strata, rounds = rounds_of(pieces, part, rule)
        if together or strata == 1:
            return PairEvidence.sum(
                _windows(pieces, p, x, y, rule, rate(p), seed) for p in range(*part)
            )
        return PairEvidence.sum(
            _blocks(pieces, runs, x, y, rule, [rate(a) for a, _ in runs], seed, strata)
            for runs in rounds
        )


def _kept(pieces: Pieces, piece: int, draw: _Stream) -> list[int]:
    """The words of a piece after frequent ones were thinned out; one alone has no neighbour."""
    words = pieces.ids[pieces.bounds[piece] : pieces.bounds[piece + 1]].tolist()
    kept = [w for w in words if draw.next() & 0xFFFFFFFF < int(pieces.keep[w])]
    return kept if len(kept) > 1 else []


def _window(kept: list[int], p: int, draw: _Stream, rule: WindowRule) -> list[int]:
    reach = 1 + draw.below(rule.window)
    return [kept[q] for q in range(max(0, p - reach), min(len(kept), p + reach + 1)) if q != p]


def _windows(
    pieces: Pieces,
    piece: int,
    x: np.ndarray,
    y: np.ndarray,
    rule: WindowRule,
    rate: float,
    seed: int,
) -> PairEvidence:
    """Window after window of a piece."""
    loss, listened, pairs = 0.0, 0, 0
    draw = _Stream(seed, piece)
    kept = _kept(pieces, piece, draw)
    for p in range(len(kept)):
        window = _window(kept, p, draw, rule)
        for i in range(0, len(window), TOGETHER):
            rows, (targets, times) = window[i : i + TOGETHER], _targets(draw, kept[p], pieces, rule)
            scores = x[rows].astype(np.float64) @ y[targets].T.astype(np.float64)
            label = np.zeros(len(targets))
            label[0] = 1.0
            g = rate * (label - times / (1.0 + np.exp(-scores)))
            if (piece + p) % LISTEN == 0:
                listened += len(rows)
                loss += float(
                    (times * LOGISTIC.value(np.zeros(()), scores)).sum() - scores[:, 0].sum()
                )
            for j in range(0, len(targets), SIX):
                _update(x, y, rows, targets[j : j + SIX], g[:, j : j + SIX], rule.bias)
        pairs += len(window)
    return PairEvidence(loss, listened, pairs)


def _blocks(
    pieces: Pieces,
    runs: list,
    x: np.ndarray,
    y: np.ndarray,
    rule: WindowRule,
    rates: list,
    seed: int,
    strata: int,
) -> PairEvidence:
    """A round: the samples of all runs by blocks, then block after block, turn after turn; the
    scores of four samples of a run are taken together."""
    blocks: dict[tuple[int, int], list] = defaultdict(list)
    pairs = [0] * len(runs)
    for r, (first, last) in enumerate(runs):
        for piece in range(first, last):
            draw = _Stream(seed, piece)
            kept = _kept(pieces, piece, draw)
            for p, v in enumerate(kept):
                for w in _window(kept, p, draw, rule):
                    pairs[r] += 1
                    for u, label in [
                        (v, 1.0),
                        *((_noise(draw, pieces), 0.0) for _ in range(rule.drawn)),
                    ]:
                        blocks[w % strata * strata + u % strata, r].append((w, u, label))
    loss = 0.0
    for block in (b for t in range(strata) for b in turn(strata, t)):
        for r in range(len(runs)):
            samples = blocks[block, r]
            for i in range(0, len(samples), 4):
                four = samples[i : i + 4]
                scores = [
                    float(x[w].astype(np.float64) @ y[u].astype(np.float64)) for w, u, _ in four
                ]
                for (w, u, label), s in zip(four, scores):
                    weight = 1.0 if label else rule.weight
                    g = rates[r] * weight * (label - 1.0 / (1.0 + np.exp(-s)))
                    before = x[w].copy()
                    x[w] += (g * y[u]).astype(x.dtype)
                    y[u] += (g * before).astype(y.dtype)
                    if rule.bias >= 0:
                        x[w, rule.bias] = 1.0
                    if r % LISTEN == 0:
                        loss += weight * float(LOGISTIC.value(np.asarray(label), np.asarray(s)))
    return PairEvidence(loss, sum(pairs[::LISTEN]), sum(pairs))


def _update(
    x: np.ndarray, y: np.ndarray, rows: list[int], targets: list[int], g: np.ndarray, bias: int
) -> None:
    """x_i += sum_j g_ij y_j and y_j += sum_i g_ij x_i."""
    before, step = y[targets].copy(), np.zeros((len(targets), y.shape[1]))
    for i, w in enumerate(rows):
        step += np.outer(g[i], x[w])
        x[w] += (g[i] @ before).astype(x.dtype)
    if bias >= 0:
        x[rows, bias] = 1.0
    y[targets] += step.astype(y.dtype)


class _Stream:
    """splitmix64 of a piece."""

    def __init__(self, seed: int, piece: int):
        self.state = _mixed((_mixed(seed) + piece * GOLDEN) & MASK)

    def next(self) -> int:
        self.state = (self.state + GOLDEN) & MASK
        return _mixed(self.state)

    def below(self, n: int) -> int:
        return ((self.next() >> 32) * n) >> 32


def _mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def _noise(draw: _Stream, pieces: Pieces) -> int:
    """A word by the alias method."""
    z = draw.next()
    u = ((z >> 32) * pieces.n) >> 32
    return u if z & 0xFFFFFFFF < int(pieces.chance[u]) else int(pieces.alias[u])


def _targets(
    draw: _Stream, word: int, pieces: Pieces, rule: WindowRule
) -> tuple[list[int], np.ndarray]:
    """The word and its noise, each once, and how much it weighs as noise (the word itself 1
    more)."""
    times = {word: 1.0}
    for _ in range(rule.drawn):
        u = _noise(draw, pieces)
        times[u] = times.get(u, 0.0) + rule.weight
    return list(times), np.array(list(times.values()))
