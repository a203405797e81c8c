"""Pairs of words: counting, mutual information, evidence of scores, and GloVe by AdaGrad.

Skip-gram steps in NumPy: two words of a window of every lane at a time.

The words that stay, the windows and the noise of a piece are those of every engine, from its stream
of random numbers (splitmix64). Pieces are dealt to lanes that share the tables, as threads do; a
small vocabulary has one lane, whose windows follow one another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol import (
    CountRows,
    GloveTable,
    PairRule,
    PmiRule,
    ScoreEvidence,
    ScoreRule,
)
from eckart.engines.protocol.words import LISTEN, PairEvidence, Pieces, WindowRule

TEXT = 2**18
"""Words of a text whose neighbours are counted at a time, beside the counts of those before."""
CLASSES = 512
"""Classes of words of a GloVe table at the most: the entries of a round, one of each block, are
worked on at once."""


class ArrayWords:
    """The family ``words`` but for windows."""

    lib: Any

    def cooccur(
        self,
        ids: np.ndarray,
        pointers: np.ndarray,
        n: int,
        rule: PairRule,
        span: tuple[int, int] | None = None,
        piece: int = 2**21,
    ) -> Iterator[CountRows]:
        from scipy.sparse import coo_array, csr_array

        first, last = (0, len(ids)) if span is None else span
        begins = np.repeat(pointers[:-1], np.diff(pointers))
        ends = np.repeat(pointers[1:], np.diff(pointers))
        total = csr_array((n, n))
        for a in range(first, last, TEXT):
            at = np.arange(a, min(a + TEXT, last))
            found: list[tuple[np.ndarray, ...]] = []
            for d, weight in enumerate(rule.weights, 1):
                before = at[at - d >= begins[at]] if rule.left else at[:0]
                behind = at[at + d < ends[at]] if rule.right else at[:0]
                rows = ids[np.concatenate([before, behind])]
                columns = ids[np.concatenate([before - d, behind + d])]
                found.append((np.full(len(rows), weight), rows, columns))
            values, rows, columns = (np.concatenate(each) for each in zip(*found))
            total = total + coo_array((values, (rows, columns)), (n, n)).tocsr()
        yield from _in_pieces(total, rule.scale, piece)

    def merge_counts(
        self, runs: Iterator[list[CountRows]], n: int, rule: PairRule
    ) -> Iterator[CountRows]:
        from scipy.sparse import csr_array

        for parts in runs:
            shape, total = (len(parts[0].lengths), n), None
            for part in parts:
                scaled = part.data * rule.scale
                whole = np.rint(scaled) if rule.scale > 1 else scaled
                indptr = np.concatenate([[0], np.cumsum(part.lengths)])
                own = csr_array((whole, part.indices, indptr), shape)
                total = own if total is None else total + own
            for found in _in_pieces(total, rule.scale, max(1, total.nnz)):  # type: ignore[union-attr]
                yield found._replace(first=parts[0].first)

    def join_counts(self, parts: list[CountRows]) -> tuple[np.ndarray, np.ndarray]:
        none = np.empty(0)
        indices = np.concatenate([none.astype(np.int32), *(part.indices for part in parts)])
        return indices, np.concatenate([none, *(part.data for part in parts)])

    def mutual_information(self, x: Any, rule: PmiRule, dtype: Any) -> CountRows:
        m = place(x).matrix
        n, rows = m.data.astype(np.float64), np.repeat(np.arange(m.shape[0]), m.row_counts())
        own = np.bincount(rows, n, m.shape[0])
        columns = np.bincount(m.indices, n, m.shape[1])
        spread = np.where(columns > 0, columns, 0.0) ** rule.smoothing * (columns > 0)
        # words without a neighbour have no entry to use their logarithm
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.log(spread / max(spread.sum(), np.finfo(float).tiny)) + np.log(rule.shift)
            ratio = np.log(n) - np.log(own)[rows] - shares[m.indices]
        kept = (n > 0) & (ratio > 0 if rule.positive else ratio != 0)
        lengths = np.bincount(rows[kept], minlength=m.shape[0])
        return CountRows(0, lengths, m.indices[kept], ratio[kept].astype(dtype))

    def pair_scores(
        self,
        x: Any,
        left: np.ndarray,
        right: np.ndarray,
        offset: np.ndarray | None,
        rule: ScoreRule,
    ) -> ScoreEvidence:
        """Some rows against all words at a time."""
        from scipy.special import xlogy

        x, v, q = place(x), right.astype(np.float64), rule.noise
        r, sums = rule.negatives, np.zeros(len(ScoreEvidence._fields))
        step = max(1, self.lib.scores // max(1, len(v)))
        for a in range(0, len(left), step):
            at = slice(a, min(a + step, len(left)))
            rows, columns, data = self.lib.stored_rows(x, at.start, at.stop)
            seen = np.zeros((at.stop - a, len(v)))
            seen[rows, columns] = data
            w = np.ones(len(seen)) if x.weights is None else x.weights[at]
            s = left[at] @ v.T + (0.0 if offset is None else offset)
            pairs = seen.sum(axis=1)
            if rule.softmax:
                top = s.max(axis=1, keepdims=True)
                norm = top + np.log(np.exp(s - top).sum(axis=1, keepdims=True))
                loss = (seen * (norm - s)).sum(axis=1)
                each = xlogy(seen, seen / np.where(pairs > 0, pairs, 1.0)[:, None])
                bound, start = -each.sum(axis=1), -xlogy(seen, q).sum(axis=1)
                up, down = seen, pairs[:, None] * np.exp(s - norm)
            else:
                away = r * pairs[:, None] * q
                soft = np.logaddexp(0.0, s)
                chance = np.exp(s - soft)
                loss = (seen * (soft - s) + away * soft).sum(axis=1)
                both = seen + away
                cells = xlogy(both, both) - xlogy(seen, seen) - xlogy(away, away)
                bound = np.where(seen > 0, cells, 0.0).sum(axis=1)
                start = pairs * (np.log1p(r) + r * np.log1p(1.0 / r))
                up, down = seen * np.exp(-soft), away * chance
            halves = (w[:, None] * (side @ v) for side in (up, down, up - down))
            sums += [
                *(w @ each for each in (loss, bound, start, pairs)),
                *((half * half).sum() for half in halves),
            ]
        return ScoreEvidence(*sums.tolist())

    def glove_table(self, x: Any, seed: int) -> GloveTable:
        """By as many classes as there are words, up to ``CLASSES``: blocks of few entries."""
        x = place(x)
        m, strata = x.matrix, int(np.clip(x.shape[0] or 0, 1, CLASSES))
        weights = np.ones(m.nnz, np.float32) if x.entry_weights is None else x.entry_weights
        rows = np.repeat(np.arange(m.shape[0], dtype=np.int32), m.row_counts())
        block = rows % strata * strata + m.indices % strata
        order = np.lexsort((np.random.default_rng(seed).random(m.nnz), block))
        ends = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=strata * strata))])
        words = rows[order], m.indices[order].astype(np.int32)
        targets, heavy = (a[order].astype(np.float32) for a in (m.data, weights))
        return GloveTable(*words, targets, heavy, ends, strata)

    def glove_step(
        self, table: GloveTable, own: np.ndarray, other: np.ndarray, rate: float, order: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """An entry of every block of a round at a time: they share no word."""
        w, sides = own.shape[1] // 3, (own.copy(), other.copy())
        sizes, firsts = np.diff(table.ends), table.ends[:-1]
        for turn in order:
            blocks = np.array(table.round(int(turn)))
            for depth in range(int(sizes[blocks].max(initial=0))):
                t = firsts[blocks[sizes[blocks] > depth]] + depth
                at = table.rows[t], table.columns[t]
                u, v = (side[i] for side, i in zip(sides, at))
                d = (u[:, : w - 1] * v[:, : w - 1]).sum(axis=1) + u[:, w - 1] + v[:, w - 1]
                pull = (rate * table.weights[t] * (d - table.targets[t]))[:, None]
                steps = [
                    pull * np.pad(a[:, : w - 1], ((0, 0), (0, 1)), constant_values=1.0)
                    for a in (v, u)
                ]
                for side, i, a, step in zip(sides, at, (u, v), steps):
                    g = np.clip(step, -1.0, 1.0)
                    total = a[:, w : 2 * w] + g * g
                    moved = a[:, :w] - g * a[:, 2 * w :]
                    side[i] = np.concatenate([moved, total, 1.0 / np.sqrt(total)], axis=1)
        return sides

    def glove_loss(self, table: GloveTable, own: np.ndarray, other: np.ndarray) -> float:
        k = own.shape[1] // 3 - 1
        u, v = own[table.rows].astype(np.float64), other[table.columns].astype(np.float64)
        d = np.einsum("tk,tk->t", u[:, :k], v[:, :k]) + u[:, k] + v[:, k] - table.targets
        return float(np.sum(table.weights * d * d))


def _in_pieces(total: Any, scale: float, piece: int) -> Iterator[CountRows]:
    """Ranges of rows of at most so many entries, or one row; all of them where there are none."""
    total.sum_duplicates()
    ends, cuts = total.indptr, [0]
    while cuts[-1] < total.shape[0]:
        a = cuts[-1]
        cuts.append(max(a + 1, int(np.searchsorted(ends, ends[a] + piece, side="right")) - 1))
    for a, b in itertools.pairwise(cuts):
        at = slice(ends[a], ends[b])
        indices, data = total.indices[at].astype(np.int32), total.data[at] / scale
        yield CountRows(a, np.diff(ends[a : b + 1]).astype(np.int64), indices, data)


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
    active: np.ndarray


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
            of_step = _step(x, y, step, rule, pieces.n)
            loss += of_step
            listened += int((step.words[step.active] < pieces.n).sum())
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
    if not step.active.any():
        return 0.0
    each = step.times[:, None] * np.logaddexp(0.0, scores)
    each[:, :, 0] -= scores[:, :, 0]
    return float(each.sum(axis=2)[there & step.active[:, None]].sum())


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
