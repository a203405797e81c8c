"""Vectors in text: lines of a word and its numbers, parsed by compiled code, some megabytes at a
time on threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.io.vectors.word_rows import (
    CHUNK,
    LONGEST_LINE,
    FirstLines,
    WordRows,
    WordTable,
    cut,
    numbers_at_end,
)
from eckart.scheduler import in_order

LOOKED_AT = 100
"""Lines by which the size of vectors without a header is found."""


def read_text(
    start: FirstLines, reader: WordTable, limit: int | None, dtype: Any, threads: int
) -> np.ndarray:
    from eckart.io.vectors.number_kernels import DONE, POWERS, SHORT, parse_lines

    file = start.file
    header = start.count is not None
    k = start.k if start.k is not None else _size(start.rest)
    if header:
        _check_size(start, k)
    if k < 1:
        raise FileError(
            f"{file}, line 1 must be a word and its numbers, got "
            f"{cut(start.rest.partition(bytes([10]))[0])!r}"
        )
    wanted = start.rows_to_hold(limit)
    rows = WordRows(k, wanted, dtype)

    def parse(chunk: tuple[bytes, int]) -> tuple[Any, ...]:
        text, first = chunk
        data = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(data == 10)
        if not len(ends) or ends[-1] != len(data) - 1:
            ends = np.append(ends, len(data))
        starts = np.concatenate([[0], ends[:-1] + 1])
        numbers = np.arange(first, first + len(ends))
        out = np.empty((len(ends), k), np.float64 if dtype == np.float64 else np.float32)
        words, state, found = (
            np.empty(len(ends), np.int64),
            np.empty(len(ends), np.uint8),
            np.empty(len(ends), np.int64),
        )
        parse_lines(data, starts, ends, k, POWERS, dtype == np.float32, out, words, state, found)
        return text, starts, ends, numbers, out, words, state, found

    for text, starts, ends, numbers, out, words, state, found in in_order(
        _chunks(start, 2 if header else 1), parse, threads
    ):
        if (state == SHORT).any():
            blank = np.array(
                [s and not text[a:b].strip() for s, a, b in zip(state == SHORT, starts, ends)], bool
            )
            starts, ends, numbers, out, words, state, found = (
                a[~blank] for a in (starts, ends, numbers, out, words, state, found)
            )
        if wanted is not None and rows.used + len(starts) > wanted:
            if limit is None or wanted < limit:
                raise FileError(
                    f"{file}, line 1: {wanted} vectors are promised, but line "
                    f"{numbers[wanted - rows.used]} holds one more; "
                    f"pass limit={wanted} to read those only"
                )
            left = wanted - rows.used
            starts, ends, numbers, out, words, state, found = (
                a[:left] for a in (starts, ends, numbers, out, words, state, found)
            )
        for i in np.flatnonzero(state != DONE):
            line, place = text[starts[i] : ends[i]], f"{file}, line {numbers[i]}"
            if state[i] == SHORT:
                raise FileError(
                    f"{place}: {cut(line)!r} must have a word and {k} numbers, got {found[i]} numbers"
                )
            with np.errstate(over="ignore"):
                out[i] = _by_python(line, k, place)
        if not np.isfinite(out).all():
            i, c = np.argwhere(~np.isfinite(out))[0]
            word = cut(text[starts[i] : words[i]])
            raise FileError(
                f"{file}, line {numbers[i]}: number {c + 1} of {word!r} must be finite, got "
                f"{out[i, c]}"
            )
        for a, b, number in zip(starts.tolist(), words.tolist(), numbers):
            word = text[a:b].strip(b" \t\r")
            if not word:
                raise FileError(
                    f"{file}, line {number} must be a word and {k} numbers, got numbers without a word"
                )
            reader.add(word, lambda number=number: f"line {number}")
        rows.room(len(out))[:] = out
        if rows.used == limit:
            break
    if header and rows.used < (wanted or 0):
        raise FileError(
            f"{file}, line 1: {start.count} vectors are promised, {rows.used} came; it "
            f"was cut short, or pass limit={rows.used} to read those"
        )
    return rows.done()


def _by_python(line: bytes, k: int, place: str) -> list[float]:
    """The numbers at the end of a line that are beyond the fast reader: very long, very large, very
    small, or none at all."""
    fields = line.split()[-k:]
    try:
        if not any(b"_" in field for field in fields):  # which Python's own numbers may hold
            return list(map(float, fields))
    except ValueError:
        pass
    i = next(i for i, field in enumerate(fields) if not _is_number(field))
    raise FileError(f"{place}: field {i + 1} of {k} must be a number, got {cut(fields[i])!r}")


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _chunks(start: FirstLines, line: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines, a few megabytes at a time, and the number of the first of them."""
    rest = start.rest
    while True:
        more = start.raw.read(CHUNK)
        whole = rest + more
        end = len(whole) if not more else whole.rfind(b"\n") + 1
        if end == 0 and len(whole) > LONGEST_LINE:
            raise FileError(
                f"{start.file}, line {line} must be a word and its numbers, got more than "
                f"{LONGEST_LINE} bytes"
            )
        if end:
            yield whole[:end], line
            line += whole.count(b"\n", 0, end)
        rest = whole[end:]
        if not more:
            return


def _size(text: bytes) -> int:
    """Numbers in a vector, as most of the first lines have it; 0 where all of them are blank."""
    lines = [line for line in text.split(b"\n", LOOKED_AT)[:LOOKED_AT] if line.strip()]
    counts = np.bincount([numbers_at_end(line, 0) for line in lines], minlength=1)
    return int(len(counts) - 1 - counts[::-1].argmax())


def _check_size(start: FirstLines, k: int) -> None:
    """Refuse a header of fewer numbers than the lines have: the rest of them would be taken for
    parts of words."""
    lines = [line for line in start.rest.split(b"\n", LOOKED_AT)[:LOOKED_AT] if line.strip()]
    seen = [numbers_at_end(line, 0) for line in lines[: max(len(lines) - 1, 1)]]
    if seen and min(seen) > k:
        raise FileError(
            f"{start.file}, line 1: {k} numbers a vector are promised, the lines below "
            f"hold {min(seen)}"
        )
