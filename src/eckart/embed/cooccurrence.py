"""Co-occurrence: how often word v stands near word w.

    N_wv = sum over the positions p of w and the distances d <= window of  weight_d [word at p - d
    is v] + weight_d [word at p + d is v]

inside sentences, after words outside of the vocabulary were taken out. Weights: harmonic 1/d (those
of GloVe), flat 1, linear (window - d + 1) / window (what a window of random length up to
``window``, as in word2vec, gives on average).

The engine counts row by row (``engine.cooccur``). A text that is too long for the memory limit is
counted in chunks; each leaves its rows in order, on disk where they are many, and the rows of all
chunks are added up. Weights are whole multiples of 1 / lcm(1, ..., window), and are added up as
whole numbers: chunks and threads change no bit, and the matrix of a two-sided window is symmetric
to the last one. (Harmonic weights beyond window 20 are plain numbers, and chunks may then differ in
the last bits.)
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.embed.collected import collected
from eckart.embed.sequences import Sequences
from eckart.engines import engine_named
from eckart.engines.protocol import CountRows, PairRule
from eckart.errors import InputError, invalid
from eckart.io.dask.known import is_collection
from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.matrix import Counts
from eckart.parameters import whole
from eckart.trace import Watcher, progress, silent

WEIGHTINGS = ("harmonic", "flat", "linear")
SIDES = {"both": (True, True), "left": (True, False), "right": (False, True)}
MOST_WINDOW = 10_000
"""Words on one side: documents are seldom longer, and a window's buffers hold a few numbers for
each of them, on every thread."""
MOST_SCALE = 2**30
"""Weights are whole numbers times 1 / scale up to this scale: sums then stay exact in 53 bits for
2^23 pairs at distance 1 and many more in all."""
TOKEN_BYTES = 12
"""Memory for a word of a chunk while it is counted: its number, its position, and a share of what
is in work."""
MAX_MEMORY = 2**30
"""Bytes for counting, besides the text."""
PIECE = 2**21
"""Entries that are counted or added up at a time, at most; fewer where memory is short."""


@held
def cooccurrence(
    source: Any,
    *,
    window: int = 10,
    weighting: str = "harmonic",
    sides: str = "both",
    max_memory: int = MAX_MEMORY,
    engine: Any = "auto",
    n_threads: int | None = None,
    verbose: bool = False,
    **options: Any,
) -> Counts:
    """Count which words stand near which.

    Parameters
    ----------
    source : Sequences, or anything that ``eckart.sequences`` takes; ``options`` are its options
        (min_count, max_words, tokenizer ...). A Dask bag of texts or of lists is counted by the
        workers, partition by partition.
    window : words to look at on each side.
    weighting : what a word at distance d counts: ``"harmonic"`` 1/d, ``"flat"`` 1, ``"linear"``
        (window - d + 1) / window.
    sides : ``"both"``, or words to the ``"left"`` or ``"right"`` only.
    max_memory : bytes for counting, besides the text; what needs more goes to temporary files, and
        the result is then mapped from one.
    engine, n_threads, verbose : "auto", "cpu", "numpy" or another engine; most threads (the result
        does not depend on them); progress.

    Returns
    -------
    Counts : n x n, float64; rows are the words looked at, columns the words beside them, both in
        the order of the vocabulary.

    >>> n = cooccurrence(["a b c", "b a"], window=2, min_count=1)
    >>> n.columns.tolist(), n.to_scipy().toarray().tolist()
    (['a', 'b', 'c'], [[0.0, 2.0, 0.5], [2.0, 0.0, 1.0], [0.5, 1.0, 0.0]])
    """
    rule = pair_rule(window, weighting, sides)
    if (
        isinstance(max_memory, bool)
        or not isinstance(max_memory, (int, np.integer))
        or max_memory < 2**20
    ):
        raise invalid("max_memory", max_memory, "a number of bytes, at least 2**20")
    if is_collection(source):
        return collected(source, rule, **options)[0]
    s = Sequences.of(source, n_threads=n_threads, verbose=verbose, **options)
    with progress(verbose) as watch:
        return count(s, rule, engine_named(engine, n_threads), int(max_memory), watch)


def pair_rule(window: int, weighting: str = "harmonic", sides: str = "both") -> PairRule:
    """The weights of distances 1 to ``window``, as whole numbers over one scale where that is not
    too large.

    >>> pair_rule(3)
    PairRule(weights=(6.0, 3.0, 2.0), scale=6.0, left=True, right=True)
    """
    if not (rule := whole(1, MOST_WINDOW)).fits(window):
        raise invalid("window", window, rule.wanted)
    if weighting not in WEIGHTINGS:
        raise invalid("weighting", weighting, " or ".join(map(repr, WEIGHTINGS)))
    if sides not in SIDES:
        raise invalid("sides", sides, " or ".join(map(repr, SIDES)))
    distances, scale = range(1, int(window) + 1), 1
    if weighting == "harmonic":
        for d in distances:
            scale = math.lcm(scale, d)
            if scale > MOST_SCALE:
                scale = 1
                break
        weights = [scale / d for d in distances]
    elif weighting == "linear":
        weights, scale = [float(window - d + 1) for d in distances], int(window)
    else:
        weights = [1.0] * int(window)
    return PairRule(tuple(weights), float(scale), *SIDES[sides])


def count(
    s: Sequences,
    rule: PairRule,
    engine: Any,
    max_memory: int,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Counts:
    """The counts of sequences, in chunks that fit into the memory limit; those that a killed run
    had counted are taken from ``memory``."""
    n, total = len(s.words), s.n_tokens
    _check(s)
    spans, piece = chunks(total, max_memory), int(np.clip(max_memory // 256, 2**12, PIECE))
    limit = max_memory // (2 * len(spans))
    runs = [Run.of(limit, *held) for held in memory.last() or []]
    for first, last in spans[len(runs) :]:
        memory.offer(lambda: [run.held(engine) for run in runs])
        run = Run(limit)
        for rows in engine.cooccur(s.ids, s.pointers, n, rule, (first, last), piece):
            run.put(rows)
            watch(
                "words counted",
                first + (last - first) * (rows.first + len(rows.lengths)) / n,
                total,
            )
        runs.append(run)
    if len(runs) > 1:
        merged = Run(max_memory // 2)
        merged.take(engine.merge_counts(_together(runs, n, piece, engine), n, rule))
        runs = [merged]
    indptr, indices, data = runs[0].arrays(engine)
    return Counts(indptr, indices, data, n, s.words, s.words)


def chunks(tokens: int, max_memory: int) -> list[tuple[int, int]]:
    """Ranges of the text that are counted at a time.

    >>> chunks(10, 48)
    [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]
    """
    size = max(1, max_memory // (2 * TOKEN_BYTES))
    parts = max(1, -(-tokens // size))
    cuts = [tokens * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(cuts))


class Run:
    """Rows of counts in their order: in memory up to ``limit`` bytes, then in a temporary file.

    >>> from eckart.engines.choose import engine_named
    >>> run = Run(0)
    >>> run.put(CountRows(0, np.array([1, 1]), np.array([1, 0], np.int32), np.array([2.0, 3.0])))
    >>> [a.tolist() for a in run.arrays(engine_named("numpy"))]
    [[0, 1, 2], [1, 0], [2.0, 3.0]]
    """

    def __init__(self, limit: int):
        self._limit, self._held = limit, 0
        self._lengths: list[np.ndarray] = []
        self._parts: list[CountRows] = []
        self._files: tuple[Any, Any] | None = None

    @classmethod
    def of(cls, limit: int, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray) -> Run:
        """All rows at once: the inverse of ``held``."""
        run = cls(limit)
        run.put(CountRows(0, np.diff(indptr), indices, data))
        return run

    def put(self, rows: CountRows) -> None:
        """The next rows."""
        self._lengths.append(rows.lengths)
        self._parts.append(rows)
        self._held += rows.indices.nbytes + rows.data.nbytes
        if self._files is not None or self._held > self._limit:
            self._spill()

    def take(self, pieces: Iterable[CountRows]) -> None:
        """All rows of some pieces."""
        for rows in pieces:
            self.put(rows)

    def held(self, engine: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """indptr, indices and data; maps of the files where they are there."""
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(self._lengths))]).astype(np.int64)
        if self._files is not None and indptr[-1] > 0:
            indices, data = (
                np.asarray(np.memmap(f, kind, "c"))
                for f, kind in zip(self._files, (np.int32, np.float64))
            )
            return indptr, indices, data
        indices, data = engine.join_counts(self._parts)  # which lets its pieces go
        self._lengths = [np.diff(indptr)]
        self._parts = [CountRows(0, self._lengths[0], indices, data)]
        return indptr, indices, data

    def arrays(self, engine: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same for the last time: what was held in pieces is let go."""
        found = self.held(engine)
        self._parts = []
        for file in self._files or ():
            file.close()
        return found

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        for rows in self._parts:
            self._files[0].write(rows.indices.tobytes())
            self._files[1].write(rows.data.tobytes())
        for file in self._files:
            file.flush()
        self._parts = []


def _together(runs: list[Run], n: int, piece: int, engine: Any) -> Iterator[list[CountRows]]:
    """The same ranges of rows of all runs."""
    held = [run.arrays(engine) for run in runs]
    sizes = np.sum([pointers for pointers, _, _ in held], axis=0)
    a = 0
    while a < n:
        b = int(np.searchsorted(sizes, sizes[a] + piece, side="right")) - 1
        b = min(max(b, a + 1), n)
        parts = []
        for pointers, indices, data in held:
            p, q = pointers[a], pointers[b]
            parts.append(CountRows(a, np.diff(pointers[a : b + 1]), indices[p:q], data[p:q]))
        yield parts
        a = b


def _check(s: Sequences) -> None:
    """Refuse numbers that a kernel would follow out of bounds."""
    if len(s.ids) and not (int(s.ids.min()) >= 0 and int(s.ids.max()) < len(s.words)):
        raise InputError(
            f"ids must be positions in {len(s.words)} words, got {int(s.ids.min())} to "
            f"{int(s.ids.max())}. Make them with eckart.sequences."
        )
    p = s.pointers
    if len(p) < 1 or p[0] != 0 or p[-1] != len(s.ids) or (np.diff(p) < 0).any():
        raise InputError("pointers do not cut ids into sentences; make them with eckart.sequences")
