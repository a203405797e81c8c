"""Counts of pairs of words and what follows from them: ranges of rows on threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import numpy as np

from eckart.engines.arrays.words import ArrayWords
from eckart.engines.cpu.small import SMALL, or_arrays_on_factor
from eckart.engines.protocol import CountRows, PairRule
from eckart.loading import lazy
from eckart.scheduler import in_order, lanes_for, run_lanes

pair_counts = lazy("eckart.engines.cpu.words.pair_counts")

TOKENS = 2**17
"""Words of the text whose rows are counted at a time, about."""
LAID = 2**19
"""Words of the text that are laid out at a time: about a millisecond."""
JOINED = 2**20
"""Entries that are worth a thread when pieces are joined: about a millisecond of copying into new
memory."""


class PairCounting(ArrayWords):
    """cooccur, merge_counts and mutual_information on ``threads`` threads; numba is loaded when the
    first of them is called."""

    # cooccur: 21 times as fast as by arrays (200,000 words, a window of 5, one thread of an AMD EPYC)
    threads: int

    @or_arrays_on_factor(ArrayWords, lambda ids, *_, **__: len(ids), SMALL)
    def cooccur(
        self,
        ids: np.ndarray,
        pointers: np.ndarray,
        n: int,
        rule: PairRule,
        span: tuple[int, int] | None = None,
        piece: int = 2**21,
    ) -> Iterator[CountRows]:
        first, last = (0, len(ids)) if span is None else span
        weights, window = np.asarray(rule.weights, np.float64), len(rule.weights)
        sentence = int(np.searchsorted(pointers, first, side="right")) - 1
        sentences = int(np.searchsorted(pointers, last)) - sentence
        text = np.empty(last - first + 2 * window + sentences + 2, np.uint32)
        parts, sizes = _laid_out(
            pointers, sentence, sentence + sentences, max(0, first - window), n
        )
        partial = np.zeros((len(parts), n), np.int64)
        ends = np.full((len(parts), 3), -1, np.int64)

        def lay(at: int, part: tuple[int, int], scratch: dict) -> None:
            ends[at] = pair_counts.lay_out(
                np.asarray(ids), pointers, part, first, last, window, sizes[at], text, partial[at]
            )

        run_lanes(parts, list(range(len(parts))), lay, self.threads)
        counts = partial.sum(axis=0)
        text = text[: ends[-1, 2]]
        size = len(text)
        starts = np.concatenate([[0], np.cumsum(counts)])
        positions = np.empty(starts[-1], np.int32 if size < 2**31 else np.int64)
        # words of earlier parts come first
        behind = np.cumsum(partial, axis=0) - partial + starts[:-1]

        def put(at: int, part: tuple[int, int], scratch: dict) -> None:
            pair_counts.place(text, *part, behind[at], positions)

        run_lanes(
            [(int(a), int(b)) for a, b, _ in ends], list(range(len(parts))), put, self.threads
        )
        sides = int(rule.left) + int(rule.right)
        bounds = np.minimum(counts * window * sides, n)
        parts = list(_parts(bounds, counts, piece))
        longest = max((int(bounds[a:b].sum()) for a, b in parts), default=0)
        local = threading.local()

        def rows(part: tuple[int, int]) -> CountRows:
            a, b = part
            if not hasattr(local, "row"):  # buffers stay with the thread
                local.row, local.met = _row(n), np.empty(n + 1, np.uint32)
                local.indices, local.data = np.empty(longest, np.int32), np.empty(longest)
            indices, data, lengths = local.indices, local.data, np.empty(b - a, np.int64)
            found = (*local.row, local.met), (indices, data, lengths)
            used = pair_counts.count_rows(
                text, starts, positions, weights, rule.left, rule.right, rule.scale, a, b, *found
            )
            return CountRows(a, lengths, indices[:used].copy(), data[:used].copy())

        yield from in_order(parts, rows, self.threads)

    def merge_counts(
        self, runs: Iterator[list[CountRows]], n: int, rule: PairRule
    ) -> Iterator[CountRows]:

        def merged(parts: list[CountRows]) -> CountRows:
            sizes = np.array([len(part.data) for part in parts])
            begins = (np.cumsum(sizes) - sizes)[:, None]
            pointers = np.hstack(
                [begins, begins + np.cumsum([part.lengths for part in parts], axis=1)]
            )
            columns, values = (
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("indices", "data")
            )
            indices, data = np.empty_like(columns), np.empty_like(values)
            lengths = np.empty(len(parts[0].lengths), np.int64)
            used = pair_counts.merge_rows(
                pointers, columns, values, rule.scale, *_row(n), indices, data, lengths
            )
            return CountRows(parts[0].first, lengths, indices[:used].copy(), data[:used].copy())

        yield from in_order(runs, merged, self.threads)

    def join_counts(self, parts: list[CountRows]) -> tuple[np.ndarray, np.ndarray]:
        ends = np.concatenate([[0], np.cumsum([len(part.data) for part in parts])]).astype(np.int64)
        indices, data = np.empty(ends[-1], np.int32), np.empty(ends[-1])
        groups = np.unique(
            np.searchsorted(ends, np.arange(0, ends[-1] + JOINED, JOINED)).clip(0, len(parts))
        ).tolist()

        def step(_: None, group: tuple[int, int], scratch: dict) -> None:
            for i in range(*group):
                indices[ends[i] : ends[i + 1]], data[ends[i] : ends[i + 1]] = (
                    parts[i].indices,
                    parts[i].data,
                )
                # let go as soon as it is copied
                parts[i] = parts[i]._replace(indices=indices[:0], data=data[:0])

        some = list(
            itertools.pairwise([*groups, len(parts)] if groups[-1] < len(parts) else groups)
        )
        run_lanes(some, [None] * max(1, len(some)), step, self.threads)
        return indices, data


def _laid_out(
    pointers: np.ndarray, first: int, last: int, begin: int, n: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """Ranges of the sentences first..last of about LAID words, and where the text of each begins:
    one place a word, one behind each sentence."""
    words = int(pointers[last] - pointers[first])
    count = lanes_for(words // LAID, 8 * n)
    cuts = first + np.searchsorted(
        pointers[first : last + 1], pointers[first] + np.linspace(0, words, count + 1)[1:-1]
    )
    bounds = np.unique([first, *cuts.tolist(), last]).tolist() if last > first else [first, last]
    parts, at, sizes = list(itertools.pairwise(bounds)), 1, []
    for a, b in parts:
        sizes.append(at)
        at += int(pointers[b] - max(pointers[a], begin)) + int(
            np.count_nonzero(np.diff(pointers[a : b + 1]))
        )
    return parts, sizes


def _row(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A dense row of zeros and its two bitmaps."""
    blocks = (n >> 6) + 1
    return np.zeros(n), np.zeros(blocks, np.uint64), np.zeros((blocks >> 6) + 1, np.uint64)


def _parts(bounds: np.ndarray, counts: np.ndarray, piece: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows of at most ``piece`` entries and about TOKENS words, or one row."""
    entries = np.concatenate([[0], np.cumsum(bounds)])
    words = np.concatenate([[0], np.cumsum(counts)])
    a, n = 0, len(bounds)
    while a < n:
        b = int(np.searchsorted(entries, entries[a] + piece, side="right")) - 1
        b = min(b, int(np.searchsorted(words, words[a] + TOKENS, side="right")))
        b = min(max(b, a + 1), n)
        yield a, b
        a = b
