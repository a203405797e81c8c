"""Skip-gram steps in Python, two words of a window after another: the specification and the judge of the other engines."""

from __future__ import annotations

import numpy as np

from eckart.engines.protocol.windows import PairEvidence, Pieces, WindowRule

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
LISTEN, SIX, TOGETHER = 16, 6, 2


class PlainSkipGram:
    """pair_step as part of ``PlainEngine``."""

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
        loss, heard, pairs = 0.0, 0, 0
        first, last = (pieces.bounds[p] for p in part)
        for piece in range(*part):
            begin, end = pieces.bounds[piece], pieces.bounds[piece + 1]
            rate = rates[0] + (rates[1] - rates[0]) * (begin - first) / max(last - first, 1)
            draw = _Stream(seed, piece)
            kept = [w for w in pieces.ids[begin:end].tolist() if draw.next() & 0xFFFFFFFF < int(pieces.keep[w])]
            if len(kept) < 2:
                continue
            for p in range(len(kept)):
                reach = 1 + draw.below(rule.window)
                window = [kept[q] for q in range(max(0, p - reach), min(len(kept), p + reach + 1)) if q != p]
                for i in range(0, len(window), TOGETHER):
                    rows, (targets, times) = window[i : i + TOGETHER], _targets(draw, kept[p], pieces, rule)
                    scores = x[rows].astype(np.float64) @ y[targets].T.astype(np.float64)
                    label = np.zeros(len(targets))
                    label[0] = 1.0
                    g = rate * (label - times / (1.0 + np.exp(-scores)))
                    if (piece + p) % LISTEN == 0:
                        heard += len(rows)
                        loss += float((times * np.logaddexp(0.0, scores)).sum() - scores[:, 0].sum())
                    for j in range(0, len(targets), SIX):
                        _update(x, y, rows, targets[j : j + SIX], g[:, j : j + SIX], rule.bias)
                pairs += len(window)
        return PairEvidence(loss, heard, pairs)


def _update(x: np.ndarray, y: np.ndarray, rows: list[int], targets: list[int], g: np.ndarray, bias: int) -> None:
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


def _targets(draw: _Stream, word: int, pieces: Pieces, rule: WindowRule) -> tuple[list[int], np.ndarray]:
    """The word and its noise, each once, and how much it weighs as noise (the word itself 1 more)."""
    times = {word: 1.0}
    for _ in range(rule.drawn):
        z = draw.next()
        u = ((z >> 32) * pieces.n) >> 32
        if z & 0xFFFFFFFF >= int(pieces.chance[u]):
            u = int(pieces.alias[u])
        times[u] = times.get(u, 0.0) + rule.weight
    return list(times), np.array(list(times.values()))
