"""Documents on disk in pieces: sparse .npz files with the same columns, read one after another, as often as wanted.

Each file is what ``scipy.sparse.save_npz`` writes. Only one piece is in memory at a time.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from typing import Any

from eckart.arguments import held
from eckart.errors import FileError, InputError, wrong
from eckart.io.dask.known import is_collection
from eckart.io.models.whole_files import check_place, named, replacing
from eckart.io.read import read
from eckart.matrix import Counts, Matrix


class Shards:
    """A re-readable sequence of ``Counts``, one for each file."""

    def __init__(self, files: list[str], columns: Any = None):
        self.files, self.columns = files, columns

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Counts]:
        n = None
        for file in self.files:
            block = read(file)
            if not isinstance(block, Counts):
                raise InputError(
                    f"{file} holds a dense array, wanted a sparse matrix as scipy.sparse.save_npz writes it"
                )
            n = block.n_columns if n is None else n
            if block.n_columns != n:
                raise InputError(
                    f"{file} has {block.n_columns} columns and {self.files[0]} has {n}, wanted the same number in each"
                )
            yield Counts(block.indptr, block.indices, block.data, n, block.rows, self.columns)


def shards(pattern: Any, columns: Any = None) -> Shards:
    """The sparse .npz files of a pattern, in the order of their names, as a source that is read piece by piece.

    ``columns`` are the words. ``LDA.fit`` and ``coherence`` take it in place of a matrix.

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
    """The blocks of documents that a source gives one after another (``shards``, a list of matrices, an iterator), or None where it is one matrix.

    >>> import numpy as np
    >>> len(list(pieces([np.eye(2), np.eye(2)]))), pieces(np.eye(2)), pieces([[1.0, 0.0]])
    (2, None, None)
    """
    if isinstance(source, (str, bytes, dict)) or hasattr(source, "shape") or not hasattr(source, "__iter__"):
        return None
    if is_collection(source):
        return None
    if isinstance(source, (list, tuple)) and not (len(source) and len(getattr(source[0], "shape", ())) == 2):
        return None
    return map(read, source)


@held
def write_shards(blocks: Iterable[Any], folder: Any, name: str = "part") -> Shards:
    """Write sparse blocks of documents to ``folder``/part-00000.npz and so on, each under a temporary name until complete.

    >>> import tempfile
    >>> from scipy import sparse
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(write_shards([sparse.eye(2), sparse.eye(2)], folder))
    2
    """
    from scipy import sparse

    files, place = [], named(folder)
    if not isinstance(blocks, Iterable) or isinstance(blocks, (str, bytes, dict)) or getattr(blocks, "ndim", 1) == 0:
        raise wrong("blocks", blocks, "sparse matrices, one after another")
    for i, block in enumerate(blocks):
        file = check_place(place / f"{name}-{i:05d}.npz")
        try:
            matrix = block.to_scipy() if isinstance(block, Counts) else sparse.csr_array(block)
        except (TypeError, ValueError):
            raise wrong(f"blocks[{i}]", block, "a sparse matrix") from None
        with replacing(file) as part:
            sparse.save_npz(part, matrix, compressed=False)
        files.append(str(file))
    return Shards(files)
