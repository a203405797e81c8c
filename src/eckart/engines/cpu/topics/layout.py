"""How documents and arrays of k topics lie in memory: word by word beside document by document,
rows of k padded to whole vectors.

A sum over documents for every word (counts of words by topic) is not added up in partial sums of
words x k, which no cache could hold once for each lane. Each lane owns a range of words and reads
what it needs of all documents, so the sums do not depend on how the words are cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eckart.engines.cpu.buffers import aligned_zeros, padded
from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.topics.kernels import count_entries, place_entries
from eckart.engines.host import Host, place
from eckart.scheduler import lanes_for, run_lanes

WORK = 2**19
"""Numbers that a range must touch to be worth handing to a thread: about 0.2 ms."""


class LayoutRows(NamedTuple):
    """Documents x words, row by row."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class Columns(NamedTuple):
    """The same word by word: the entries of word j are at ``ends[j]`` to ``ends[j + 1]``, each with
    its document and its count."""

    ends: np.ndarray
    documents: np.ndarray
    values: np.ndarray


class DocumentLayout:
    """Layouts of one placed matrix, made when they are first wanted and kept with it."""

    def __init__(self, matrix: Any, threads: int):
        self.matrix, self.threads, self.casts = matrix, threads, dict[Any, LayoutRows]()
        self.by_word: Columns | None = None
        # the dots of a row are taken four at a time
        self.longest = int(np.diff(matrix.indptr).max(initial=1)) + 3

    def rows(self, dtype: Any) -> LayoutRows:
        """Counts in the precision of the topics."""
        m, dtype = self.matrix, np.dtype(dtype)
        if dtype not in self.casts:
            self.casts[dtype] = LayoutRows(m.indptr, m.indices, m.data.astype(dtype, copy=False))
        return self.casts[dtype]

    def parts(self, numbers: int) -> list[tuple[int, int]]:
        """Ranges of documents for a pass that touches so many numbers of each entry."""
        return balanced(self.matrix.indptr, lanes_for(self.matrix.nnz * numbers // WORK))

    def lanes(self) -> list[tuple[int, int]]:
        """Ranges of documents for a pass that keeps a number for each word."""
        return balanced(
            self.matrix.indptr, lanes_for(self.matrix.nnz * 8 // WORK, 8 * self.matrix.shape[1])
        )

    def word_parts(self, numbers: int, dtype: Any = None) -> list[tuple[int, int]]:
        """Ranges of words, likewise."""
        ends = self.columns(dtype).ends
        return balanced(ends, lanes_for(self.matrix.nnz * numbers // WORK))

    def columns(self, dtype: Any = None) -> Columns:
        """The entries by word, counts in that precision (None: in any).

        By counting: how often each range of documents holds each word says where its entries go.
        """
        if self.by_word is None or dtype not in (None, self.by_word.values.dtype):
            dtype = self.matrix.dtype if dtype is None else np.dtype(dtype)
            rows, n = self.rows(dtype), self.matrix.shape[1]
            work = [(i, *part) for i, part in enumerate(self.lanes())]
            places = np.zeros((len(work), n), np.int64)
            each(
                work,
                lambda i, a, b: count_entries(rows.indptr, rows.indices, a, b, places[i]),
                self.threads,
            )
            ends = np.concatenate([[0], np.cumsum(places.sum(axis=0))])
            at = ends[:-1].copy()
            for lane in places:  # from counts to the place of the first entry
                held = lane.copy()
                lane[:] = at
                at += held
            documents = np.empty(
                self.matrix.nnz, np.int32 if self.matrix.shape[0] < 2**31 else np.int64
            )
            values = np.empty(self.matrix.nnz, dtype)
            each(
                work,
                lambda i, a, b: place_entries(rows, a, b, places[i], documents, values),
                self.threads,
            )
            self.by_word = Columns(ends, documents, values)
        return self.by_word

    @cached_property
    def starts(self) -> np.ndarray:
        """Where the tokens of each entry begin, for counts that are whole numbers."""
        return np.concatenate([[0], np.cumsum(self.matrix.data, dtype=np.int64)])


def documents_of(x: Any, threads: int) -> DocumentLayout:
    """The layouts of a placed matrix."""
    host: Host = place(x)
    if "topics" not in host.kept:
        host.kept["topics"] = DocumentLayout(host.matrix, threads)
    found = host.kept["topics"]
    found.threads = threads
    return found


def wide_of(a: np.ndarray, dtype: Any) -> np.ndarray:
    """The padded form: what the array remembers, or a copy."""
    return padded(a, width(a.shape[1]), np.dtype(dtype), own=True)


def tall_of(start: np.ndarray, rows: int, dtype: Any) -> np.ndarray:
    """The padded form of a tall array; one row of k numbers stands for all rows."""
    if start.ndim == 2:
        return wide_of(start, dtype)
    out = aligned_zeros((rows, width(len(start))), np.dtype(dtype))
    out[:, : len(start)] = start
    return out


def row_of(a: np.ndarray, dtype: Any) -> np.ndarray:
    """k numbers, padded."""
    return wide_of(np.asarray(a)[None], dtype)[0]


def prior_of(prior: Any, k: int, dtype: Any) -> np.ndarray:
    """Pseudo-counts of the words, padded: one row where they are one number, else a row for each
    word."""
    b = np.asarray(prior, dtype)
    return wide_of(b, dtype) if b.ndim == 2 else wide_of(np.broadcast_to(b, (1, k)), dtype)


def width(k: int) -> int:
    """k rounded up to whole vectors."""
    return -(-k // 16) * 16


def each(
    work: Iterable[tuple],
    do: Callable[..., Any],
    threads: int,
    buffer: Callable[[], Any] | None = None,
) -> list[Any]:
    """``do(*item)`` for all items side by side; what it returned, in their order. With a ``buffer``
    each thread makes one, and ``do`` gets it last."""
    items = list(enumerate(work))
    out: list[Any] = [None] * len(items)

    def step(lane: int, item: tuple[int, tuple], scratch: dict) -> None:
        if buffer is None:
            out[item[0]] = do(*item[1])
        else:
            if "buffer" not in scratch:
                scratch["buffer"] = buffer()
            out[item[0]] = do(*item[1], scratch["buffer"])

    run_lanes(items, list(range(max(1, len(items)))), step, threads)
    return out


def word_ranges(n: int, numbers: int) -> list[tuple[int, int]]:
    """Equal ranges of n words for a pass that touches so many numbers of each."""
    cuts = np.linspace(0, n, lanes_for(n * numbers // WORK) + 1).astype(int).tolist()
    return list(itertools.pairwise(cuts))
