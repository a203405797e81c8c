"""Steps on vectors feel ``NUMBA_BOUNDSCHECK=1`` as plain indexing does: ``make test-bounds`` runs
this with kernels compiled anew."""

from __future__ import annotations

import numpy as np
import pytest
from numba import config, njit

from eckart.engines.cpu.parts.kernels import four_dots
from eckart.engines.cpu.registers.tiles import grow_gram, pack_row
from eckart.engines.cpu.registers.vectors import tile_size
from eckart.engines.cpu.registers.windows import sample_scores

pytestmark = pytest.mark.skipif(
    not config.BOUNDSCHECK, reason="kernels check their bounds where NUMBA_BOUNDSCHECK is set"
)
SIZE = tile_size(np.dtype(np.float64))


@njit
def gram(x, count, g, size):
    grow_gram(x, count, g, size)


@njit
def pack(x, j, y, t):
    pack_row(x, j, 2.0, y, t)


@njit
def dots(x, index, t, y, f):
    four_dots(x, index, t, y, f)


@njit
def scores(x, y, samples, t, s, k):
    sample_scores(x, y, samples, t, s, k)


def test_rows_beyond_the_end_of_a_gram_matrix_are_refused():
    x, g = np.ones((3, SIZE)), np.zeros((SIZE, SIZE))
    gram(x, 3, g, SIZE)
    assert np.triu(g == 3.0).sum() == SIZE * (SIZE + 1) // 2
    with pytest.raises(IndexError, match="outside"):
        gram(x, 6, g, SIZE)


@pytest.mark.parametrize(("j", "t"), [(3, 0), (-1, 0), (0, 2), (0, -1)])
def test_a_row_outside_is_neither_read_nor_written(j, t):
    # two rows in the middle of more: what would be written beyond them is seen
    room = np.zeros((4, SIZE))
    with pytest.raises(IndexError, match="outside"):
        pack(np.ones((3, SIZE)), j, room[1:3], t)
    assert not room.any()


def test_an_index_beyond_the_rows_is_refused():
    x, y, f = np.ones((5, SIZE)), np.ones((1, SIZE)), np.zeros((1, 4))
    dots(x, np.array([0, 1, 2, 4]), 0, y, f)
    np.testing.assert_array_equal(f, np.full((1, 4), float(SIZE)))
    for index, t in [([0, 1, 2, 9], 0), ([0, 1, 2, 4], 1)]:
        with pytest.raises(IndexError, match="outside"):
            dots(x, np.array(index), t, y, f)


def test_a_word_beyond_the_table_is_refused():
    size = tile_size(np.dtype(np.float32))
    x, s = np.ones((3, size), np.float32), np.zeros(4, np.float32)
    samples = np.array([[0, 1], [1, -1], [2, 2], [0, 0]], np.int32)
    scores(x, x, samples, 0, s, size)
    np.testing.assert_array_equal(s, np.full(4, size))
    samples[3, 0] = 77
    with pytest.raises(IndexError, match="outside"):
        scores(x, x, samples, 0, s, size)
