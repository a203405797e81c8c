"""What the readers of files of vectors share: the first bytes of a file, words as they are met,
rows in memory that grows only as rows come."""

from __future__ import annotations

import gzip
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError

CHUNK = 2**22
MOST_NUMBERS = 2**20
"""Numbers in one vector."""
LONGEST_LINE, LONGEST_WORD = 2**26, 2**16
"""Bytes that are read in search of an end: a line of MOST_NUMBERS numbers of 60 letters, and a word
that no language has."""


def ending(file: Path) -> str:
    """The ending that tells the format, that of compression aside."""
    return (file.with_suffix("") if file.suffix.lower() == ".gz" else file).suffix.lower()


class opened:
    """A file, unpacked where it is compressed, and its size (None where that is not known)."""

    def __init__(self, file: Path):
        self.raw: Any = file.open("rb")
        packed = self.raw.read(2) == b"\x1f\x8b"
        self.raw.seek(0)
        self.size = None if packed else os.fstat(self.raw.fileno()).st_size
        self.file = gzip.GzipFile(fileobj=self.raw) if packed else self.raw

    def __enter__(self) -> tuple[Any, int | None]:
        return self.file, self.size

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.raw.close()


class FirstLines:
    """The first bytes of a file: what kind it is, and what its header promises."""

    def __init__(self, raw: Any, file: Path, size: int | None):
        self.raw, self.file, self.size = raw, file, size
        self.head = raw.read(CHUNK)
        if not self.head.strip():
            raise FileError(f"{file} must hold words and their vectors, got an empty file")
        if self.head[:4] == b"\xba\x16\x4f\x2f":
            raise FileError(
                f"{file} must be a file of vectors, got a fastText model. Use the .vec file that "
                "fastText wrote beside it."
            )
        if self.head[:3] == b"\xef\xbb\xbf":
            self.head = self.head[3:]
        line, _, self.rest = self.head.partition(b"\n")
        self.count: int | None = None
        self.k: int | None = None
        fields = line.split() if len(line) < 1000 else []
        if len(fields) == 2:
            try:
                self.count, self.k = int(fields[0]), int(fields[1])
            except ValueError:
                self.count = self.k = None

    def format(self, asked: str | None, limit: int | None) -> str:
        """The format, which must be right where it was asked for; the header is checked."""
        if asked == "glove" or (asked is None and self.count is None):
            if asked is None and (ending(self.file) == ".bin" or b"\0" in self.head[:4096]):
                raise FileError(
                    f'{self.file} must begin with a line of "count size", as a word2vec file does'
                )
            self.count = self.k = None
            self.rest = self.head
            return "glove"
        if self.count is None or self.k is None:
            raise FileError(
                f'{self.file}, line 1 must be "count size", got '
                f"{cut(self.head.partition(bytes([10]))[0])!r}. Without that line the format is "
                "glove."
            )
        if self.count < 0 or self.k < 1 or self.k > MOST_NUMBERS:
            raise FileError(
                f"{self.file}, line 1 must give a count >= 0 and 1 to {MOST_NUMBERS} numbers, got "
                f"{self.count} vectors of {self.k} numbers"
            )
        found = asked if asked is not None else ("text" if self._looks_like_text() else "binary")
        least = (4 * self.k + 2 if found == "binary" else 2 * self.k + 1) * (
            self.rows_to_hold(limit) or 0
        )
        if self.size is not None and least > self.size:
            raise FileError(
                f"{self.file}, line 1: {self.count} vectors of {self.k} numbers are "
                f"promised, which need {least} bytes at least; {self.size} are there; "
                "it was cut short, or pass limit= to read the first ones"
            )
        return found

    def _looks_like_text(self) -> bool:
        """The first vector is a line that ends in k numbers, or at least one of printable
        characters."""
        line = self.rest.partition(b"\n")[0]
        if numbers_at_end(line, self.k or 0) == self.k:
            return True
        if ending(self.file) == ".bin":
            return False
        return (
            not any(byte < 32 and byte not in (9, 13) for byte in line[:4096])
            and b"\n" in self.rest
        )

    def rows_to_hold(self, limit: int | None) -> int | None:
        """Vectors to be read, where a header tells."""
        return (
            limit if self.count is None else min(self.count, self.count if limit is None else limit)
        )


class WordTable:
    """Words as they are met: decoded, distinguished."""

    def __init__(self, file: Path, encoding: str, undecodable: str):
        self.file, self.encoding, self.errors = (
            file,
            encoding,
            "strict" if undecodable == "error" else "replace",
        )
        self.words: list[str] = []

    def add(self, word: bytes, place: Any) -> None:
        try:
            self.words.append(word.decode(self.encoding, self.errors))
        except UnicodeDecodeError:
            raise FileError(
                f"{self.file}, {place()}: the word '{cut(word)}' is not "
                f"{self.encoding}; pass another encoding=, or undecodable='replace'"
            ) from None

    def unique(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Words and vectors, of words that came twice the first."""
        words = np.empty(len(self.words), object)
        words[:] = self.words
        if len(set(self.words)) < len(words):
            seen: dict[str, int] = {}
            first = np.fromiter(
                (seen.setdefault(w, i) == i for i, w in enumerate(self.words)), bool, len(words)
            )
            again = words[~first]
            warnings.warn(
                f"{self.file}: {len(again)} words came again, {again[0]!r} for one; the "
                "first vector of each is kept",
                stacklevel=4,
            )
            words, vectors = words[first], vectors[first]
        return words, vectors


class WordRows:
    """Vectors in one array that grows; what a header promises is taken as a hint within a bound."""

    def __init__(self, k: int, hint: int | None, dtype: Any):
        self.array = np.empty((max(1, min(hint or 0, 2**24 // k)), k), dtype)
        self.used, self.hint = 0, hint

    def room(self, count: int) -> np.ndarray:
        """A view on the next ``count`` rows."""
        wanted = self.used + count
        if wanted > len(self.array):
            size = max(wanted, 2 * len(self.array))
            if self.hint is not None:
                size = max(wanted, min(size, self.hint))
            self.array.resize((size, self.array.shape[1]), refcheck=False)
        self.used = wanted
        return self.array[wanted - count : wanted]

    def done(self) -> np.ndarray:
        self.array.resize((self.used, self.array.shape[1]), refcheck=False)
        return self.array


def numbers_at_end(line: bytes, most: int) -> int:
    """How many of the last fields of a line are numbers, the first field excepted."""
    fields = line.split()[1:]
    count = 0
    for field in reversed(fields[-most:] if most else fields):
        try:
            float(field)
        except ValueError:
            break
        count += 1
    return count


def cut(text: bytes, most: int = 40) -> str:
    """Bytes as an error message shows them."""
    shown = text.strip().decode("utf-8", "backslashreplace")
    return shown if len(shown) <= most else shown[: most - 3] + "..."
