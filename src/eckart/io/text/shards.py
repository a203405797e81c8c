"""Documents on disk in pieces: sparse .npz files with the same columns, read one after another, as
often as wanted.

Each file is what ``scipy.sparse.save_npz`` writes. Only one piece is in memory at a time.

Several documents in one text file, divided by a line: ``</DOC>``, ``%%``, ``-----``; and how to
notice that a file is written so.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
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


TAG = re.compile(r"</?[A-Za-z][^<>]*>")
NAMED = re.compile(r"\s*<(\w*(?:no|id|name))>\s*(\S+)\s*</\1>\s*", re.IGNORECASE)
"""A line that holds nothing but the name of a document, such as ``<DOCNO> AP880212-0006
</DOCNO>``."""
SAMPLE_LINES = 5000
"""Lines that are looked at for markup: some hundred records, in a few milliseconds."""
MARKED_SHARE = 0.05
"""Share of lines with nothing but a tag from which a file is taken for records: prose and lines of
HTML have none or hardly any."""


def records(lines: Iterable[str], mark: str) -> Iterator[tuple[str | None, str]]:
    """Documents between lines that begin with ``mark``; where the mark is a tag, tags are no text
    and a tagged number names its document.

    >>> list(records(["<D>", "<NO> a1 </NO>", "one", "</D>", "<D>", "two", "</D>"], "</D>"))
    [('a1', 'one'), (None, 'two')]
    >>> list(records(["one", "more", "%%", "two"], "%%"))
    [(None, 'one\\nmore'), (None, 'two')]
    """
    tagged = TAG.fullmatch(mark.strip()) is not None
    name: str | None = None
    held: list[str] = []
    for line in lines:
        line = line.rstrip("\r\n")
        if line.strip().startswith(mark.strip()):
            if name is not None or any(part.strip() for part in held):
                yield name, "\n".join(held)
            name, held = None, []
        elif tagged and (found := NAMED.fullmatch(line)):
            name = found[2]
        elif tagged:
            text = TAG.sub(" ", line)
            if text.strip():
                held.append(text if text != line else line)
        else:
            held.append(line)
    if name is not None or any(part.strip() for part in held):
        yield name, "\n".join(held)


def record_mark(lines: Iterable[str]) -> str | None:
    """The closing tag that divides a file of records, or None for ordinary lines.

    >>> record_mark(["<DOC>", "some words", "</DOC>"] * 5), record_mark(["a <b>bold</b> line"] * 9)
    ('</DOC>', None)
    """
    seen, tags, last = 0, Counter(), None  # type: tuple[int, Counter[str], str | None]
    for line in islice(lines, SAMPLE_LINES):
        text = line.strip()
        seen += bool(text)
        if TAG.fullmatch(text):
            tags[text] += 1
            last = text if text.startswith("</") else last
    closing = {tag: n for tag, n in tags.items() if tag.startswith("</")}
    if not closing or sum(tags.values()) < max(2, MARKED_SHARE * seen):
        return None
    # the outermost tag closes last; a tag that closes as often but earlier lies inside it
    most = max(closing.values())
    return (
        last
        if last is not None and closing[last] >= most - 1
        else max(closing, key=lambda tag: closing[tag])
    )
