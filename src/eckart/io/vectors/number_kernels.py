"""Lines "word number ... number" to numbers, compiled, without Python's lock.

A number of up to 15 or so digits whose power of ten is at most 22 is m 10^e with m and 10^|e| exact
in double precision, so that one product or quotient rounds it right (Clinger). With up to 18 digits
the result is within 1e-15 of the number, which is enough for single precision unless the ends of
that range round apart. All other lines are marked, and read by Python.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE

DONE, HARD, SHORT = 0, 1, 2
"""What became of a line: read, to be read by Python, fewer numbers than wanted."""

POWERS = np.array([10.0**e for e in range(23)])


@njit(nogil=True, cache=True, inline="always")
def is_gap(byte):
    return byte == 32 or byte == 9 or byte == 13


@njit(**INSIDE)
def read_number(data, a, b, powers, single):
    """The number written in data[a:b], and whether it was read."""
    negative = False
    if data[a] == 45 or data[a] == 43:
        negative = data[a] == 45
        a += 1
    m, digits, shift, seen = np.uint64(0), 0, 0, False
    point = False
    while a < b:
        c = data[a]
        if 48 <= c <= 57:
            seen = True
            if digits > 0 or c != 48:
                digits += 1
                if digits > 18:
                    return 0.0, False
            m = m * np.uint64(10) + np.uint64(c - 48)
            if point:
                shift -= 1
        elif c == 46 and not point:
            point = True
        else:
            break
        a += 1
    if not seen:
        return 0.0, False
    if a < b:
        if data[a] != 101 and data[a] != 69:
            return 0.0, False
        a += 1
        down = False
        if a < b and (data[a] == 45 or data[a] == 43):
            down = data[a] == 45
            a += 1
        if a == b or b - a > 4:
            return 0.0, False
        e = 0
        while a < b:
            if not 48 <= data[a] <= 57:
                return 0.0, False
            e = 10 * e + (data[a] - 48)
            a += 1
        shift += -e if down else e
    if m == 0:
        return (-0.0 if negative else 0.0), True
    if (m > np.uint64(2**53) and not single) or shift < -22 or shift > 22:
        return 0.0, False
    value = float(m)
    value = value / powers[-shift] if shift < 0 else value * powers[shift]
    if m > np.uint64(2**53) and np.float32(value * (1 - 1e-15)) != np.float32(value * (1 + 1e-15)):
        return 0.0, False
    return (-value if negative else value), True


@njit(**OUTSIDE)
def parse_lines(data, starts, ends, k, powers, single, out, words, state, found):
    """The last k fields of each line into ``out``; ``words[i]`` is where the word of line i ends,
    ``found[i]`` how many numbers were there.

    ``single`` says that ``out`` is in single precision.
    """
    for i in range(len(starts)):
        first, p = starts[i], ends[i]
        while p > first and is_gap(data[p - 1]):
            p -= 1
        state[i] = DONE
        c = k
        while c > 0:
            end = p
            while p > first and not is_gap(data[p - 1]):
                p -= 1
            if p == first:  # this field is the word
                break
            c -= 1
            if state[i] == DONE:
                value, read = read_number(data, p, end, powers, single)
                out[i, c] = value
                if not read:
                    state[i] = HARD
            while p > first and is_gap(data[p - 1]):
                p -= 1
        found[i] = k - c
        if c > 0:
            state[i] = SHORT
        words[i] = p
