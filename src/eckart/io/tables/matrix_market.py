"""Matrix Market files (.mtx, .mtx.gz): a first line that says what follows, comments, the size,
then one entry on each line.

    %%MatrixMarket matrix coordinate real general
    % rows columns entries
    3 2 2
    1 1 4.5
    3 2 -1

``coordinate`` is a sparse matrix of triples counted from 1, ``array`` a dense one, column after
column. A ``symmetric`` or ``skew-symmetric`` matrix is written as one of its triangles. Every line
is checked for the number of its fields and for its place in the matrix, so a damaged file is
refused with its line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.loading import pa
from eckart.scheduler import in_order, resolve_threads

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
CHUNK = 4 * 2**20
"""Bytes a thread parses at a time: some 20 ms, and little memory for 16 of them."""


@dataclass(frozen=True)
class MarketHead:
    """What the first lines promise: the kind of matrix, its shape, how many entries, and the number
    of the line after them."""

    file: Path
    sparse: bool
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int
    line: int

    def wrong(self, line: int, words: str) -> FileError:
        return FileError(f"{self.file} cannot be read as Matrix Market, line {line}: {words}")


def read_matrix_market(file: Path) -> Any:
    """A SciPy sparse array of a coordinate file, a NumPy array of an array file."""
    opened: Any = gzip.open if file.name.lower().endswith(".gz") else open
    try:
        with opened(file, "rb") as raw:
            head = _head(file, raw)
            parts = list(
                in_order(
                    _chunks(raw, head), lambda chunk: _parse(head, *chunk), resolve_threads(None)
                )
            )
    except (EOFError, zlib.error) as error:
        raise FileError(
            f"{file} cannot be read as Matrix Market: {error}; it is damaged or cut short"
        ) from None
    rows, columns, values = (
        np.concatenate([part[i] for part in parts]) if parts else np.empty(0) for i in range(3)
    )
    if len(values) != head.entries:
        came = np.cumsum([len(part[2]) for part in parts])
        if len(values) > head.entries:
            at = int(np.searchsorted(came, head.entries, side="right"))
            line = parts[at][3][head.entries - (came[at - 1] if at else 0)]
            raise head.wrong(line, f"{head.entries} entries are promised, and here is one more")
        raise FileError(
            f"{file} cannot be read as Matrix Market: {head.entries} entries are "
            f"promised, {len(values)} came; it was cut short"
        )
    if not head.sparse:
        return _dense(head, values)
    return _sparse(head, rows, columns, values, parts)


def _head(file: Path, raw: Any) -> MarketHead:
    first = raw.readline(2**16)
    words = first.decode("latin-1").lower().split()
    if (
        len(words) < 5
        or words[:2] != ["%%matrixmarket", "matrix"]
        or words[2] not in ("coordinate", "array")
    ):
        raise FileError(
            f"{file} cannot be read as Matrix Market: line 1 must be '%%MatrixMarket matrix "
            f"coordinate real general' or the like, got {_shown(first)}"
        )
    kind, field, symmetry = words[2:5]
    if field == "complex":
        raise FileError(
            f"{file} must hold real numbers, got complex ones. Write the real and imaginary "
            "parts side by side."
        )
    if (
        field not in FIELDS
        or symmetry not in SYMMETRIES
        or (field == "pattern" and kind == "array")
    ):
        raise FileError(
            f"{file} cannot be read as Matrix Market: line 1 must have coordinate or array, one "
            f"of {', '.join(FIELDS)} (pattern for coordinate only), one of "
            f"{', '.join(SYMMETRIES)}, got {' '.join(words[2:5])!r}"
        )
    number, line = 1, b"%"
    while line and (line.startswith(b"%") or not line.strip()):
        line = raw.readline(2**16)
        number += 1
    cells, wanted = line.split(), 3 if kind == "coordinate" else 2
    if len(cells) != wanted or not all(cell.isdigit() and len(cell) <= 18 for cell in cells):
        what = "rows, columns and entries" if wanted == 3 else "rows and columns"
        raise FileError(
            f"{file} cannot be read as Matrix Market: line {number} must hold the numbers of "
            f"{what}, got {_shown(line)}"
        )
    n, m, *stored_count = map(int, cells)
    if symmetry != "general" and n != m:
        raise FileError(
            f"{file} cannot be read as Matrix Market: line {number} must give a square size for "
            f"a {symmetry} matrix, got {n} x {m}"
        )
    half = n * (n + 1) // 2 - (n if symmetry == "skew-symmetric" else 0)
    entries = stored_count[0] if stored_count else n * m if symmetry == "general" else half
    return MarketHead(file, kind == "coordinate", field, symmetry, (n, m), entries, number + 1)


def _chunks(raw: Any, head: MarketHead) -> Iterator[tuple[bytes, int]]:
    """Whole lines, a few megabytes at a time, and the number of the first of them."""
    rest, line = b"", head.line
    while more := raw.read(CHUNK):
        whole = rest + more
        end = whole.rfind(b"\n") + 1
        if end == 0 and len(whole) > 2 * CHUNK:
            raise head.wrong(line, f"it must be one entry, got more than {CHUNK} bytes")
        if end:
            yield whole[:end], line
            line += whole.count(b"\n", 0, end)
        rest = whole[end:]
    if rest:
        yield rest, line


def _parse(
    head: MarketHead, text: bytes, line: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns, values and line numbers of the entries in some lines."""
    from eckart.io.tables import market_kernels as kernels
    from eckart.io.vectors.number_kernels import POWERS

    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == 10)
    if not len(ends) or ends[-1] != len(data) - 1:
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lines, count = np.arange(line, line + len(ends)), len(ends)
    kind = np.int32 if max(head.shape) < 2**31 else np.int64
    rows, columns = np.empty((2, count if head.sparse else 0), kind)
    values, state = np.ones(count), np.empty(count, np.uint8)
    first, last = np.empty((2, count), np.int64)
    valued = head.field != "pattern"
    kernels.parse_entries(
        data,
        (starts, ends),
        (head.sparse, valued),
        head.shape,
        POWERS,
        (rows, columns, values),
        (first, last),
        state,
    )
    bad = np.flatnonzero(state > kernels.BLANK)
    if len(bad):
        i = bad[0]
        raise head.wrong(
            lines[i],
            _complaint(
                head, data[starts[i] : ends[i]].tobytes(), state[i] == kernels.PLACE, valued
            ),
        )
    hard = np.flatnonzero(state == kernels.HARD)
    if len(hard):
        texts, offsets = kernels.gather(data, first[hard], last[hard])
        values[hard] = _by_arrow(head, texts, offsets, lines[hard])
    kept = state != kernels.BLANK
    if kept.all():
        return rows, columns, values, lines
    return rows[kept[: len(rows)]], columns[kept[: len(columns)]], values[kept], lines[kept]


def _complaint(head: MarketHead, text: bytes, place: bool, valued: bool) -> str:
    if place:
        return (
            f"the entry must have a row of 1 to {head.shape[0]} and a column of 1 to "
            f"{head.shape[1]}, got {_shown(text)}"
        )
    wanted = " and ".join(
        (["a row, a column"] if head.sparse else []) + (["a value"] if valued else [])
    )
    return f"{wanted} expected, no more and no less, got {_shown(text)}"


def _by_arrow(
    head: MarketHead, text: np.ndarray, offsets: np.ndarray, lines: np.ndarray
) -> np.ndarray:
    """Numbers of more digits than the fast reader takes, or of another form."""
    cells = pa.Array.from_buffers(
        pa.large_binary(), len(lines), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    try:
        return cells.cast(pa.large_string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        return np.array([_by_python(head, cell.as_py(), line) for cell, line in zip(cells, lines)])


def _by_python(head: MarketHead, cell: bytes, line: int) -> float:
    """One number as Python reads it: with a leading plus, say, or beyond the range of float64."""
    try:
        if b"_" not in cell:
            return float(cell)
    except ValueError:
        pass
    raise head.wrong(line, f"the entry must be a number, got {_shown(cell)}") from None


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace").strip())


def _sparse(
    head: MarketHead, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, parts: list[Any]
) -> Any:
    from scipy import sparse

    if head.symmetry != "general":
        above, below = columns > rows, columns < rows
        if above.any() and below.any():
            at = int(np.flatnonzero(above)[0] if below[0] else np.flatnonzero(below)[0])
            line = int(np.concatenate([part[3] for part in parts])[at])
            raise head.wrong(
                line,
                f"it must be in one triangle of a {head.symmetry} matrix, got an entry of the other",
            )
        off, sign = above | below, -1.0 if head.symmetry == "skew-symmetric" else 1.0
        rows, columns, values = (
            np.concatenate([rows, columns[off]]),
            np.concatenate([columns, rows[off]]),
            np.concatenate([values, sign * values[off]]),
        )
    return sparse.coo_array((values, (rows, columns)), shape=head.shape)


def _dense(head: MarketHead, values: np.ndarray) -> np.ndarray:
    n, m = head.shape
    if head.symmetry == "general":
        return values.reshape(m, n).T
    skew = head.symmetry == "skew-symmetric"
    out = np.zeros(head.shape)
    columns, rows = np.triu_indices(n, 1 if skew else 0)  # the lower triangle, column after column
    out[columns, rows] = -values if skew else values
    out[rows, columns] = values
    return out
