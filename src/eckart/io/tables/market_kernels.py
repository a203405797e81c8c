"""Lines "row column value" of a Matrix Market file to numbers, compiled, without Python's lock;
nothing outside a line is ever looked at."""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.io.vectors.number_kernels import is_gap, read_number

DONE, HARD, BLANK, FIELDS, PLACE = 0, 1, 2, 3, 4
"""What became of a line: read; its value is beyond the fast reader; nothing on it; a wrong number
of fields; a row or column outside the matrix."""


LONG = 18
"""Characters of a value beyond which it has, with sign and point, more digits than the fast reader
takes; and digits that int64 holds."""


@njit(**OUTSIDE)
def parse_entries(data, lines, form, shape, powers, entries, texts, state):
    """Row and column (where ``placed``) and value (where ``valued``) of each line;
    ``first[i]:last[i]`` is where the value of line i is written.

    Pairs and triples: ``lines`` where lines start and end, ``form`` (placed, valued), ``entries``
    (rows, columns, values), ``texts`` (first, last).
    """
    (starts, ends), (placed, valued), (n, m) = lines, form, shape
    (rows, columns, values), (first, last) = entries, texts
    wanted = (2 if placed else 0) + (1 if valued else 0)
    for i in range(len(starts)):
        p, end, seen = starts[i], ends[i], 0
        state[i] = DONE
        while seen <= wanted:
            while p < end and is_gap(data[p]):
                p += 1
            if p == end:
                break
            a = p
            seen += 1
            if placed and seen <= 2:
                at = np.int64(0)
                while p < end and 48 <= data[p] <= 57 and p - a < LONG:
                    at = 10 * at + np.int64(data[p] - 48)
                    p += 1
                if at < 1 or at > (n if seen == 1 else m) or (p < end and not is_gap(data[p])):
                    state[i] = PLACE
                    while p < end and not is_gap(data[p]):
                        p += 1
                if seen == 1:
                    rows[i] = at - 1
                else:
                    columns[i] = at - 1
            else:
                while p < end and not is_gap(data[p]):
                    p += 1
                first[i], last[i] = a, p
                read = False
                if seen <= wanted and p - a < LONG:
                    values[i], read = read_number(data, a, p, powers, False)
                if not read and state[i] == DONE:
                    state[i] = HARD
        if seen == 0:
            state[i] = BLANK
        elif seen != wanted:
            state[i] = FIELDS


@njit(**OUTSIDE)
def gather(data, first, last):
    """The texts data[first[i]:last[i]] one after another, and where each begins and ends."""
    offsets = np.zeros(len(first) + 1, np.int64)
    for i in range(len(first)):
        offsets[i + 1] = offsets[i] + last[i] - first[i]
    text = np.empty(offsets[-1], np.uint8)
    for i in range(len(first)):
        for p in range(last[i] - first[i]):
            text[offsets[i] + p] = data[first[i] + p]
    return text, offsets
