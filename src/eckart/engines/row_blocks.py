"""Row blocks of any placed matrix as jobs that a worker thread can run: slicing, reading, or
scattering happens in the worker."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from eckart.engines.host import Host
from eckart.engines.protocol import refuse_bad
from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.trace import Watcher

THIN = 2**22
"""Bytes in a block for products with few columns: it stays in cache between the two halves of X^T
(X V)."""
SQUARE = 2**24
"""Bytes in a block for X^T X: enough rows for the product to run at full speed."""
PRODUCT = 2**23
"""Bytes in a block for X^T (X V): it comes from the cache in the second half, and the sum it is
added to is touched seldom."""
ROOM = 2**25
"""Bytes for the partial sums of all lanes: setting up and adding more of them would cost two cores
what it saves sixteen."""

Job = tuple[int, int, Callable[[dict[str, Any]], np.ndarray]]
"""First row, number of rows, and a function of the thread's scratch space that returns the block in
working precision."""


def block_rows(n_columns: int, itemsize: int, size: int = THIN) -> int:
    """Rows in a block of about ``size`` bytes."""
    return int(np.clip(size // max(1, n_columns * itemsize), 128, 65536))


def partial_sums(count: int, shape: tuple[int, ...], dtype: Any = np.float64) -> list[np.ndarray]:
    """Zeros for the sums of so many lanes, in one piece: NumPy asks for large pages from 4 MB on,
    and touching as many small ones for the first time took ten times as long as adding into them.
    Whoever keeps one of them keeps all: copy it."""
    return list(np.zeros((count, *shape), dtype))


def even_rows(rows: int | None, most: int, least: int, blocks: int = 64) -> int:
    """Rows in a block, at most about ``most``, so that 64 threads get equally many blocks of at
    least ``least`` rows where there are so many; fewer than 64 ``blocks`` are enough where there
    are not so many lanes.

    >>> even_rows(200_000, 4096, 1024), even_rows(20_000, 4096, 1024), even_rows(100, 4096, 1024), even_rows(None, 4096, 1024)
    (3125, 1250, 100, 4096)
    """
    if not rows:
        return most
    count = max(rows / most, min(blocks, rows / least), 1)
    count = 64 * round(count / 64) if count >= 48 else 2 ** int(np.log2(count))
    return -(-rows // count)


def product_rows(x: Host) -> int:
    """Rows in a block of a pass with thin products."""
    return even_rows(x.shape[0], block_rows(x.shape[1], x.dtype.itemsize, PRODUCT), 128)


def block_count(rows: int | None, height: int, unknown: int = 64) -> int:
    """How many blocks of ``height`` rows a pass has; many where that is not known."""
    return unknown if rows is None else -(-rows // height)


def watched_jobs(
    x: Matrix | Host, watch: Watcher, size: int = THIN, rows: int | None = None
) -> Iterator[Job]:
    """The jobs of x, reporting rows as they are handed out."""
    for job in jobs(x, size, rows):
        yield job
        watch("reading rows", job[0] + job[1], x.shape[0])


def jobs(x: Matrix | Host, size: int = THIN, rows: int | None = None) -> Iterable[Job]:
    """The blocks of ``x`` in order, NaN at unknown entries: a list, or an iterator where rows are
    read from a stream. The cut depends on the shape only, never on the number of threads.

    Dense rows of a placed matrix that no pass has seen yet are checked as they are fetched, while
    they come into the cache anyway.
    """
    look = isinstance(x, Host) and not (x.checked or x.inspected)
    x = x.matrix if isinstance(x, Host) else x
    rows = rows or block_rows(x.shape[1], x.dtype.itemsize, size)
    found = (
        (start, count, _checked(start, fetch) if look else fetch)
        for start, count, fetch in _blocks(x, rows)
    )
    return found if isinstance(x, Dense) and not isinstance(x.values, np.ndarray) else list(found)


def _checked(
    start: int, fetch: Callable[[dict[str, Any]], np.ndarray]
) -> Callable[[dict[str, Any]], np.ndarray]:
    def fetch_and_look(scratch: dict[str, Any]) -> np.ndarray:
        block = fetch(scratch)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(block.sum())
        if not finite:
            refuse_bad(block, start)
        return block

    return fetch_and_look


def _blocks(x: Matrix, rows: int) -> Iterator[Job]:
    if isinstance(x, (Counts, Observed)):
        yield from _compressed_jobs(x, rows)
    elif isinstance(x.values, np.ndarray):
        yield from _array_jobs(x.values, x.dtype, rows)
    else:
        seen = 0
        for block in x.values.blocks(rows):
            yield seen, len(block), _give(block, x.dtype)
            seen += len(block)


def _give(block: np.ndarray, dtype: np.dtype) -> Callable[[dict[str, Any]], np.ndarray]:
    return lambda scratch: np.ascontiguousarray(block, dtype=dtype)


def _array_jobs(values: np.ndarray, dtype: np.dtype, rows: int) -> Iterator[Job]:
    handle = _readable(values)
    for start in range(0, len(values), rows):
        stop = min(start + rows, len(values))
        if handle is None:
            yield start, stop - start, _give(values[start:stop], dtype)
        else:
            yield start, stop - start, _pread(handle, values, start, stop, dtype)


class _File:
    """An open descriptor that closes with its last reader."""

    def __init__(self, path: Any):
        self.fd = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.fd)


def _readable(values: np.ndarray) -> _File | None:
    """A descriptor for a memory map that can be read with pread: mapped pages would count as
    resident memory, read ones do not."""
    if (
        not isinstance(values, np.memmap)
        or not hasattr(os, "preadv")
        or not isinstance(values.base, mmap.mmap)
    ):
        return None
    if values.mode not in ("r", "r+") or not values.flags.c_contiguous or values.filename is None:
        return None
    return _File(values.filename)


def _pread(
    file: _File, values: Any, start: int, stop: int, dtype: np.dtype
) -> Callable[[dict[str, Any]], np.ndarray]:
    def fetch(scratch: dict[str, Any]) -> np.ndarray:
        shape = (stop - start, values.shape[1])
        raw = scratch_array(scratch, "read", shape, values.dtype)
        view = memoryview(raw.data).cast("B")
        at = values.offset + start * values.shape[1] * values.itemsize
        done = 0
        while done < len(view):
            got = os.preadv(file.fd, [view[done:]], at + done)
            if got <= 0:
                raise InputError(
                    f"{values.filename} ended inside row "
                    f"{start + done // max(1, raw.strides[0])}; it is truncated"
                )
            done += got
        return np.ascontiguousarray(raw, dtype=dtype)

    return fetch


def _compressed_jobs(x: Counts | Observed, rows: int) -> Iterator[Job]:
    from eckart.engines.cpu.entries.sparse import place_rows, scatter_rows

    for start in range(0, x.shape[0], rows):
        stop = min(start + rows, x.shape[0])

        def fetch(scratch: dict[str, Any], start: int = start, stop: int = stop) -> np.ndarray:
            out = scratch_array(scratch, "read", (stop - start, x.shape[1]), x.dtype)
            (scatter_rows if isinstance(x, Counts) else place_rows)(
                x.indptr, x.indices, x.data, start, stop, out
            )
            return out

        yield start, stop - start, fetch


def scratch_array(
    scratch: dict[str, Any], name: str, shape: tuple[int, ...], dtype: Any
) -> np.ndarray:
    """An uninitialised array from the thread's scratch space, reused between blocks."""
    size = math.prod(shape)
    held = scratch.get(name)
    if held is None or held.size < size or held.dtype != dtype:
        held = scratch[name] = np.empty(size, dtype)
    return held[:size].reshape(shape)
