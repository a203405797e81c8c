"""The primitives of embeddings that look at pairs of words, as part of ``CpuEngine``: ranges of rows on threads, handed over in their order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import numpy as np

from eckart.engines.protocol import CountRows, PairRule
from eckart.scheduler import in_order, run_lanes

TOKENS = 2**17
"""Words of the text whose rows are counted at a time, about."""


class PairPrimitives:
    """cooccur and merge_counts on ``threads`` threads; numba is loaded when the first of them is called."""

    threads: int

    def cooccur(
        self,
        ids: np.ndarray,
        pointers: np.ndarray,
        n: int,
        rule: PairRule,
        span: tuple[int, int] | None = None,
        piece: int = 2**21,
    ) -> Iterator[CountRows]:
        from eckart.engines.cpu.words.pair_counts import count_rows, lay_out, place

        first, last = (0, len(ids)) if span is None else span
        weights, window = np.asarray(rule.weights, np.float64), len(rule.weights)
        sentence = int(np.searchsorted(pointers, first, side="right")) - 1
        sentences = int(np.searchsorted(pointers, last)) - sentence
        text = np.empty(last - first + 2 * window + sentences + 2, np.uint32)
        counts = np.zeros(n, np.int64)
        begin, end, size = lay_out(np.asarray(ids), pointers, sentence, first, last, window, text, counts)
        text = text[:size]
        starts = np.concatenate([[0], np.cumsum(counts)])
        positions = np.empty(starts[-1], np.int32 if size < 2**31 else np.int64)
        at = starts[:-1].copy()
        cuts = np.searchsorted(starts, np.linspace(0, starts[-1], self.threads + 1)[1:-1]).tolist()
        words = list(itertools.pairwise([0, *cuts, n]))
        run_lanes(words, words, lambda _, part, scratch: place(text, begin, end, *part, at, positions), self.threads)
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
            used = count_rows(
                text, starts, positions, weights, rule.left, rule.right, rule.scale, a, b, *local.row, local.met, indices, data, lengths
            )  # fmt: skip
            return CountRows(a, lengths, indices[:used].copy(), data[:used].copy())

        yield from in_order(parts, rows, self.threads)

    def merge_counts(self, runs: Iterator[list[CountRows]], n: int, rule: PairRule) -> Iterator[CountRows]:
        from eckart.engines.cpu.words.pair_counts import merge_rows

        def merged(parts: list[CountRows]) -> CountRows:
            sizes = np.array([len(part.data) for part in parts])
            begins = (np.cumsum(sizes) - sizes)[:, None]
            pointers = np.hstack([begins, begins + np.cumsum([part.lengths for part in parts], axis=1)])
            columns, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "data"))
            indices, data = np.empty_like(columns), np.empty_like(values)
            lengths = np.empty(len(parts[0].lengths), np.int64)
            used = merge_rows(pointers, columns, values, rule.scale, *_row(n), indices, data, lengths)
            return CountRows(parts[0].first, lengths, indices[:used].copy(), data[:used].copy())

        yield from in_order(runs, merged, self.threads)


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
