"""Words out of UTF-8 bytes, compiled: where they stand, which number each has, how often each
stands in a document.

A character has a class: 0 ends a word, LETTER and DIGIT make one, MARK extends one, JOINER
(apostrophe, low line) stands inside one, SINGLE is one by itself.

    word = (LETTER | DIGIT) MARK* (JOINER? (LETTER | DIGIT) MARK*)*

A dictionary is packed: word w is ``arena[places[w]:places[w + 1]]``, ``hashes[w]`` its hash, and
``table`` (2^b slots, open addressing) holds w + 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE

LETTER, DIGIT, MARK, JOINER, SINGLE = 1, 2, 3, 4, 5


@njit(**OUTSIDE)
def spans(
    text: Any,
    ends: Any,
    classes: Any,
    least: int,
    numbers: bool,
    starts: Any,
    lengths: Any,
    pointers: Any,
) -> int:
    """Start and length of every word of at least ``least`` characters; document d ends at byte
    ``ends[d]``, its words at ``pointers[d + 1]``.

    Words without a letter are kept where ``numbers`` is true.
    """
    found = 0
    p = 0
    pointers[0] = 0
    for d in range(ends.shape[0]):
        begin, stop, size, joined, lettered = -1, -1, 0, False, False
        while p < ends[d]:
            byte = text[p]
            if byte < 0x80:
                kind, step = classes[byte], 1
            elif byte < 0xE0:
                kind, step = classes[((byte & 0x1F) << 6) | (text[p + 1] & 0x3F)], 2
            elif byte < 0xF0:
                kind, step = (
                    classes[
                        ((byte & 0x0F) << 12) | ((text[p + 1] & 0x3F) << 6) | (text[p + 2] & 0x3F)
                    ],
                    3,
                )
            else:
                high = ((byte & 0x07) << 18) | ((text[p + 1] & 0x3F) << 12)
                kind, step = classes[high | ((text[p + 2] & 0x3F) << 6) | (text[p + 3] & 0x3F)], 4
            if kind in (LETTER, DIGIT):
                if begin < 0:
                    begin, size, lettered = p, 0, False
                size += 2 if joined else 1
                joined = False
                lettered = lettered or kind == LETTER
                stop = p + step
            elif kind == MARK and begin >= 0 and not joined:
                size += 1
                stop = p + step
            elif kind == JOINER and begin >= 0 and not joined:
                joined = True
            else:
                if begin >= 0 and size >= least and (lettered or numbers):
                    starts[found], lengths[found] = begin, stop - begin
                    found += 1
                begin, joined = -1, False
                if kind == SINGLE:
                    starts[found], lengths[found] = p, step
                    found += 1
            p += step
        if begin >= 0 and size >= least and (lettered or numbers):
            starts[found], lengths[found] = begin, stop - begin
            found += 1
        pointers[d + 1] = found
    return found


@njit(**OUTSIDE)
def intern(
    text: Any,
    starts: Any,
    lengths: Any,
    arena: Any,
    places: Any,
    hashes: Any,
    table: Any,
    count: int,
    ids: Any,
) -> int:
    """The number of each word, new words added to the dictionary of ``count`` words, which has room
    for them; returns how many there are now."""
    last = table.shape[0] - 1
    for t in range(starts.shape[0]):
        a, size = starts[t], lengths[t]
        h = np.uint64(14695981039346656037)
        for p in range(a, a + size):
            h = (h ^ np.uint64(text[p])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(29)
        slot = np.int64(h & np.uint64(last))
        while True:
            w = table[slot] - 1
            if w < 0:
                table[slot] = count + 1
                hashes[count] = h
                b = places[count]
                for p in range(size):
                    arena[b + p] = text[a + p]
                places[count + 1] = b + size
                ids[t] = count
                count += 1
                break
            if hashes[w] == h and places[w + 1] - places[w] == size:
                b = places[w]
                same = True
                for p in range(size):
                    if arena[b + p] != text[a + p]:
                        same = False
                        break
                if same:
                    ids[t] = w
                    break
            slot = (slot + 1) & last
    return count


@njit(**OUTSIDE)
def rehash(hashes: Any, count: int, table: Any) -> None:
    """Fill an empty table with the words of a dictionary."""
    last = table.shape[0] - 1
    for w in range(count):
        slot = np.int64(hashes[w] & np.uint64(last))
        while table[slot] != 0:
            slot = (slot + 1) & last
        table[slot] = w + 1


@njit(**OUTSIDE)
def tally(ids: Any, pointers: Any, slots: Any, indices: Any, counts: Any, indptr: Any) -> int:
    """Words of each document with their counts, in the order of first appearance; a negative id is
    passed over. ``slots`` is -1 for each word."""
    found = 0
    indptr[0] = 0
    for d in range(pointers.shape[0] - 1):
        first = found
        for t in range(pointers[d], pointers[d + 1]):
            w = ids[t]
            if w < 0:
                continue
            if slots[w] >= first:
                counts[slots[w]] += 1
            else:
                slots[w] = found
                indices[found] = w
                counts[found] = 1
                found += 1
        indptr[d + 1] = found
    return found
