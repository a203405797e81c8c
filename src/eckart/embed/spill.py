"""Word numbers put aside while a source is read, in memory or in a temporary file, and changed to
positions in the vocabulary at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

IN_MEMORY = 2**30
"""Bytes of numbers that stay in memory; more go to a temporary file."""


class SpillFile:
    """Sentences in the order in which they came.

    >>> with SpillFile() as spill:
    ...     spill.put(np.array([0, 1, 2], np.int32), np.array([2, 1]))
    ...     spill.put(np.array([1, 0], np.int32), np.array([1, 1]), np.array([False, True]))
    ...     [a.tolist() for a in spill.renumbered(np.array([1, 0, -1]), 4)]
    [[1, 0, 0, 1], [0, 2, 3, 4]]
    """

    def __init__(self, limit: int | None = None):
        self._limit = IN_MEMORY if limit is None else limit
        self._parts: list[np.ndarray] = []
        self._sizes: list[int] = []
        self._lengths: list[np.ndarray] = []
        self._begins: list[np.ndarray] = []
        self._held = 0
        self._file: BinaryIO | None = None
        self.sentences = 0

    def __enter__(self) -> SpillFile:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, ids: np.ndarray, lengths: np.ndarray, begins: np.ndarray | None = None) -> None:
        """Sentences one after another; where ``begins`` is False the words go on with the sentence
        before."""
        begins = np.ones(len(lengths), bool) if begins is None else begins
        self._lengths.append(lengths.astype(np.int64))
        self._begins.append(begins)
        self.sentences += int(begins.sum())
        self._sizes.append(len(ids))
        if self._file is not None:
            self._file.write(ids.tobytes())
            return
        self._parts.append(ids)
        self._held += ids.nbytes
        if self._held > self._limit:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            for part in self._parts:
                self._file.write(part.tobytes())
            self._parts = []

    def renumbered(
        self, table: np.ndarray, total: int, folder: Path | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """ids and pointers with number n changed to ``table[n]`` and taken out where that is
        negative; ``total`` are left.

        What was put aside is used up. In a file it stays there: the result is then a map of another
        temporary file (in ``folder``).
        """
        if self._file is None:
            out: np.ndarray = np.empty(total, np.int32)
        else:
            with tempfile.TemporaryFile(dir=folder) as place:
                out = np.memmap(place, np.int32, "w+", shape=max(total, 1))[:total]
        done, kept = 0, []
        for ids, lengths in zip(self._read(), self._lengths):
            at = table[ids]
            there = at >= 0
            ends = np.concatenate([[0], np.cumsum(there)])
            bounds = np.concatenate([[0], np.cumsum(lengths)])
            kept.append(np.diff(ends[bounds]))
            out[done : done + ends[-1]] = at[there]
            done += int(ends[-1])
        assert done == total
        sizes, begins = np.concatenate(kept), np.concatenate(self._begins)
        pointers = np.concatenate([(np.cumsum(sizes) - sizes)[begins], [total]]).astype(np.int64)
        return np.asarray(out), pointers

    def _read(self) -> Iterator[np.ndarray]:
        if self._file is None:
            self._parts.reverse()
            while self._parts:
                yield self._parts.pop()
            return
        self._file.seek(0)
        for size in self._sizes:
            yield np.frombuffer(self._file.read(4 * size), np.int32)
