"""Counting neighbours, compiled: one row of the co-occurrence matrix after another.

The text is a line of word numbers in which n separates sentences. A counting sort gives the
positions of each word. Row w is then

    N_wv = sum over positions p of w, distances d of  weight_d [text[p - d] = v] + weight_d [text[p
    + d] = v],

added up in a dense row of n numbers. The words that were met are marked in a bitmap of two levels,
from which they are read in ascending order, so that nothing is sorted. Weights are whole numbers
where they can be (times ``scale``): sums are then exact, in whatever order they are taken.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.registers.windows import prefetch

AHEAD = 12


@intrinsic
def trailing_zeros(typingctx, word):
    """How many zero bits stand below the lowest one of a 64-bit word that is not 0."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@njit(**OUTSIDE)
def lay_out(ids, pointers, sentences, first, last, window, size, text, counts):
    """Write the tokens of ``sentences`` among first..last with up to ``window`` neighbours on both
    sides to ``text`` from ``size`` on, sentences apart, and count their words. Returns where those
    tokens begin and end in the text (-1: there is none), and the size then."""
    text[size - 1] = stop = np.uint32(counts.shape[0])
    begin, end = -1, -1
    for s in range(sentences[0], sentences[1]):
        for t in range(max(pointers[s], first - window), min(pointers[s + 1], last + window)):
            w = ids[t]
            if first <= t < last:
                if begin < 0:
                    begin = size
                end = size + 1
                counts[w] += 1
            text[size] = w
            size += 1
        if text[size - 1] != stop:
            text[size] = stop
            size += 1
    return begin, end, size


@njit(**OUTSIDE)
def place(text, begin, end, at, positions):
    """Positions of the words of text[begin:end], ascending for each word; ``at[w]`` is where those
    of word w go, and is moved to their end."""
    for p in range(begin, end):
        w = text[p]
        if w < at.shape[0]:  # not the end of a sentence
            positions[at[w]] = p
            at[w] += 1


@njit(**INSIDE)
def _emit(acc, bits, tops, scale, indices, data, used):
    """Write the row that was added up, columns ascending, and leave acc and bitmaps empty."""
    one = np.uint64(1)
    for t in range(tops.shape[0]):
        top = tops[t]
        if top == 0:
            continue
        tops[t] = 0
        while top != 0:
            b = (t << 6) + np.int64(trailing_zeros(top))
            top &= top - one
            word = bits[b]
            bits[b] = 0
            while word != 0:
                v = (b << 6) + np.int64(trailing_zeros(word))
                word &= word - one
                indices[used] = v
                data[used] = acc[v] / scale
                acc[v] = 0.0
                used += 1
    return used


@njit(**OUTSIDE)
def count_rows(text, starts, positions, weights, left, right, scale, first, last, row, out):
    """Rows first..last to ``out`` (indices, data, lengths); returns how many entries there are.
    ``row`` is (acc, bits, tops, met), all but met 0.

    ``met`` (n + 1 places) takes the words of the row. Every word is written there, and the place
    moves on when it was new: no branch to guess.
    """
    acc, bits, tops, met = row
    indices, data, lengths = out
    window = weights.shape[0]
    one, stop = np.uint64(1), np.uint32(acc.shape[0])
    # a plain 0 would compile ``_emit`` twice: for the constant, then for integers
    used = np.int64(0)
    end = positions.shape[0] - 1
    flat = text.reshape(1, -1)
    for w in range(first, last):
        before, new = used, 0
        for t in range(starts[w], starts[w + 1]):
            p = np.uint64(positions[t])
            soon = np.int64(positions[min(t + AHEAD, end)])
            prefetch(flat, 0, soon - (window if left else 0))
            prefetch(flat, 0, soon + (window if right else 0))
            if left:
                for d in range(window):
                    v = text[p - np.uint64(d + 1)]
                    if v == stop:
                        break
                    old = acc[v]
                    met[new] = v
                    new += old == 0.0
                    acc[v] = old + weights[d]
            if right:
                for d in range(window):
                    v = text[p + np.uint64(d + 1)]
                    if v == stop:
                        break
                    old = acc[v]
                    met[new] = v
                    new += old == 0.0
                    acc[v] = old + weights[d]
        for t in range(new):
            v = np.int64(met[t])
            bits[v >> 6] |= one << np.uint64(v & 63)
            tops[v >> 12] |= one << np.uint64((v >> 6) & 63)
        used = _emit(acc, bits, tops, scale, indices, data, used)
        lengths[w - first] = used - before
    return used


@njit(**INSIDE)
def add_row(columns, values, scale, acc, bits, tops):
    """Add a row (times ``scale``) to the one that is being added up."""
    one = np.uint64(1)
    for p in range(columns.shape[0]):
        v = np.int64(columns[p])
        bits[v >> 6] |= one << np.uint64(v & 63)
        tops[v >> 12] |= one << np.uint64((v >> 6) & 63)
        acc[v] += np.rint(values[p] * scale) if scale > 1.0 else values[p]


@njit(**OUTSIDE)
def merge_rows(pointers, columns, values, scale, acc, bits, tops, indices, data, lengths):
    """Add up runs row by row: ``pointers[r]`` are those of run r in ``columns`` and ``values``, in
    which the runs stand one after another."""
    used = np.int64(0)
    for i in range(pointers.shape[1] - 1):
        before = used
        for r in range(pointers.shape[0]):
            a, b = pointers[r, i], pointers[r, i + 1]
            add_row(columns[a:b], values[a:b], scale, acc, bits, tops)
        used = _emit(acc, bits, tops, scale, indices, data, used)
        lengths[i] = used - before
    return used
