"""Documents on disk in pieces: sparse .npz files with the same columns, read one after another, as
often as wanted.

Each file is what ``scipy.sparse.save_npz`` writes. Only one piece is in memory at a time.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.errors import FileError, InputError, invalid
from eckart.io.dask.known import is_collection
from eckart.io.models.whole_files import check_place, named, replacing
from eckart.io.read import read
from eckart.matrix import Counts, Matrix
from eckart.matrix_blocks import CountsParts


@dataclass(frozen=True, eq=False)
class FileParts:
    """The files as parts of one matrix (see ``matrix_parts.Parts``): sizes are read from their
    heads, entries when a part is asked for."""

    shards: Shards

    kind = "counts"

    @cached_property
    def _shapes(self) -> list[tuple[int, int]]:
        found = []
        for file in self.shards.files:
            try:
                with np.load(file) as arrays:
                    rows, width = arrays["shape"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise FileError(
                    f"{file} is no sparse matrix as scipy.sparse.save_npz writes it: {error}"
                ) from None
            found.append((int(rows), int(width)))
        return found

    @property
    def lengths(self) -> list[int]:
        return [rows for rows, _ in self._shapes]

    @property
    def n_columns(self) -> int:
        return self._shapes[0][1]

    @cached_property
    def dtype(self) -> np.dtype:
        return self.load(0).dtype

    @cached_property
    def token(self) -> str:
        stats = [(file, os.stat(file)) for file in self.shards.files]
        return " ".join(f"{file} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats)

    def load(self, part: int) -> Counts:
        block = self.shards.block(part, self.n_columns)
        return Counts(block.indptr, block.indices, block.data, block.n_columns)


class Shards:
    """A re-readable sequence of ``Counts``, one for each file; ``matrix`` is all of them as one
    matrix in parts."""

    def __init__(self, files: list[str], columns: Any = None):
        self.files, self.columns = files, columns

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Counts]:
        width = None
        for number in range(len(self.files)):
            block = self.block(number, width)
            width = block.n_columns
            yield block

    def block(self, number: int, width: int | None = None) -> Counts:
        """The matrix of one file, refused where it has not ``width`` columns."""
        file = self.files[number]
        block = read(file)
        if not isinstance(block, Counts):
            raise InputError(
                f"{file} must hold a sparse matrix as scipy.sparse.save_npz writes it, got a dense "
                "array"
            )
        if width is not None and block.n_columns != width:
            raise InputError(
                f"files must have the same number of columns, got {block.n_columns} in {file} and "
                f"{width} in {self.files[0]}"
            )
        return Counts(
            block.indptr, block.indices, block.data, block.n_columns, block.rows, self.columns
        )

    def matrix(self) -> CountsParts:
        """All files as one matrix, read part by part."""
        return CountsParts(
            FileParts(self),
            None,
            None if self.columns is None else np.asarray(self.columns, object),
        )


def shards(pattern: Any, columns: Any = None) -> Shards:
    """The sparse .npz files of a pattern, in the order of their names, as a source that is read
    piece by piece.

    ``columns`` are the words. ``fit`` and ``coherence`` take it in place of a matrix.

    >>> import tempfile
    >>> from scipy import sparse
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = write_shards([sparse.eye(3), 2 * sparse.eye(3)], folder)
    ...     [float(block.data.sum()) for block in shards(f"{folder}/*.npz")]
    [3.0, 6.0]
    """
    files = sorted(glob.glob(str(named(pattern))))
    if not files:
        raise FileError(f"{pattern} matches no file")
    return Shards(files, columns)


def pieces(source: Any) -> Iterator[Matrix] | None:
    """The blocks of documents that a source gives one after another (``shards``, a list of
    matrices, an iterator), or None where it is one matrix.

    >>> import numpy as np
    >>> len(list(pieces([np.eye(2), np.eye(2)]))), pieces(np.eye(2)), pieces([[1.0, 0.0]])
    (2, None, None)
    """
    if (
        isinstance(source, (str, bytes, dict))
        or hasattr(source, "shape")
        or not hasattr(source, "__iter__")
    ):
        return None
    if is_collection(source):
        return None
    if isinstance(source, (list, tuple)) and not (
        len(source) and len(getattr(source[0], "shape", ())) == 2
    ):
        return None
    return map(read, source)


@held
def write_shards(blocks: Iterable[Any], folder: Any, name: str = "part") -> Shards:
    """Write sparse blocks of documents to ``folder``/part-00000.npz and so on, each under a
    temporary name until complete.

    >>> import tempfile
    >>> from scipy import sparse
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(write_shards([sparse.eye(2), sparse.eye(2)], folder))
    2
    """
    from scipy import sparse

    files, place = [], named(folder)
    if (
        not isinstance(blocks, Iterable)
        or isinstance(blocks, (str, bytes, dict))
        or getattr(blocks, "ndim", 1) == 0
    ):
        raise invalid("blocks", blocks, "sparse matrices, one after another")
    for i, block in enumerate(blocks):
        file = check_place(place / f"{name}-{i:05d}.npz")
        try:
            matrix = block.to_scipy() if isinstance(block, Counts) else sparse.csr_array(block)
        except (TypeError, ValueError):
            raise invalid(f"blocks[{i}]", block, "a sparse matrix") from None
        with replacing(file) as part:
            sparse.save_npz(part, matrix, compressed=False)
        files.append(str(file))
    return Shards(files)
