"""Row blocks from files and iterators: bounded memory, in order, with column names where the source
has them."""

from __future__ import annotations

import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError
from eckart.io.tables.frames import arrow_values, from_arrow, from_frame, is_arrow, is_frame
from eckart.io.tables.missing import masked_values, numeric
from eckart.matrix import wrong_ndim


class IteratorBlocks:
    """Blocks handed over by the caller. A list can be read again; an iterator is read once."""

    def __init__(self, source: Iterable[Any]):
        self.rereadable = not isinstance(source, Iterator)
        self._source = source
        self._rest = iter(source)
        first = next(self._rest, None)
        if first is None:
            raise InputError(
                "X must yield at least one block of rows, got an iterator that yields nothing"
            )
        self._first, self.columns = named_block(first, 0)
        self._used = False

    @property
    def shape(self) -> tuple[int | None, int]:
        return None, self._first.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self._first.dtype

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        if self._used and not self.rereadable:
            raise InputError(
                "X is an iterator and has been read already; pass a list of blocks or a "
                "file to read it twice"
            )
        parts = iter(self._source) if self._used else _chain(self._first, self._rest)
        self._used = True
        seen = 0
        for part in parts:
            block, names = named_block(part, seen)
            if block.shape[1] != self.shape[1]:
                raise InputError(
                    f"X must have {self.shape[1]} columns in every block, got {block.shape[1]} in the "
                    f"block that starts at row {seen}"
                )
            if names is not None and self.columns is not None and list(names) != list(self.columns):
                raise InputError(
                    f"X must have the columns {_few(self.columns)} in this order in every block, got "
                    f"{_few(names)} in the block that starts at row {seen}"
                )
            seen += len(block)
            for start in range(0, len(block), rows):
                yield block[start : start + rows]


def _chain(first: np.ndarray, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _few(names: Any) -> str:
    return ", ".join(map(str, names[:8])) + (" ..." if len(names) > 8 else "")


def named_block(part: Any, row: int) -> tuple[np.ndarray, np.ndarray | None]:
    """One block as a two-dimensional numeric array, with its column names where it is a table."""
    try:
        if hasattr(part, "tocsr"):
            return numeric(np.asarray(part.toarray())), None
        if is_arrow(part) or is_frame(part):
            table = from_arrow(part) if is_arrow(part) else from_frame(part)
            dense = table.to_scipy().toarray() if hasattr(table, "to_scipy") else table.array
            return dense, table.columns
        if isinstance(part, np.ma.MaskedArray):
            return masked_values(part), None
        block = np.asarray(part)
        if block.ndim != 2:
            raise wrong_ndim(block.ndim)
        return numeric(block), None
    except InputError as error:
        raise type(error)(f"the block that starts at row {row} cannot be used: {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the block that starts at row {row} is not numeric ({error})") from None


class ArrowBlocks:
    """Blocks from Parquet, Arrow IPC or CSV through pyarrow; a null becomes NaN (an entry not
    observed)."""

    rereadable = True

    def __init__(
        self,
        names: list[str],
        columns: np.ndarray | None,
        dtype: np.dtype,
        rows: int | None,
        opener: Any,
        files: Any = (),
    ):
        self.names, self.columns, self._rows, self._opener, self.files = (
            names,
            columns,
            rows,
            opener,
            files,
        )
        self._dtype = dtype

    @property
    def shape(self) -> tuple[int | None, int]:
        return self._rows, len(self.names)

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        for batch in self._opener():
            for start in range(0, batch.num_rows, rows):
                yield arrow_values(batch.slice(start, rows), self.names, self._dtype)


class ChainBlocks:
    """Several files of the same columns, one after the other."""

    rereadable = True

    def __init__(self, parts: list[Any], files: list[str]):
        self.parts = parts
        self.columns = parts[0].columns
        for part, file in zip(parts, files):
            if part.shape[1] != parts[0].shape[1]:
                raise InputError(
                    f"files must have the same number of columns, got {part.shape[1]} in {file} and "
                    f"{parts[0].shape[1]} in {files[0]}"
                )
            if _listed(part.columns) != _listed(self.columns):
                raise InputError(
                    f"files must have the same columns in the same order, got {_names_of(part)} in "
                    f"{file} and {_names_of(parts[0])} in {files[0]}. Choose them with columns=[...]."
                )

    @property
    def shape(self) -> tuple[int | None, int]:
        rows = [p.shape[0] for p in self.parts]
        return (None if None in rows else sum(rows)), self.parts[0].shape[1]

    @property
    def dtype(self) -> np.dtype:
        return np.result_type(*(p.dtype for p in self.parts))

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        for part in self.parts:
            values = part.values
            if isinstance(values, np.ndarray):
                for start in range(0, len(values), rows):
                    yield values[start : start + rows]
            else:
                yield from values.blocks(rows)


def _listed(names: np.ndarray | None) -> list[Any] | None:
    return None if names is None else list(names)


def _names_of(part: Any) -> str:
    return "no names" if part.columns is None else _few(part.columns)


UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    OverflowError,
    MemoryError,
    SyntaxError,
    TypeError,
    tokenize.TokenError,
)
"""What zipfile and NumPy raise on damaged archives and headers (the header of an array is parsed as
Python)."""


def npz_names(path: Path) -> list[str]:
    """Names of the arrays of an .npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [n[:-4] for n in archive.namelist() if n.endswith(".npy")]
    except UNREADABLE as error:
        raise FileError(f"{path} cannot be read as .npz: {error}") from None


def npz_array(path: Path, key: str | None) -> np.ndarray:
    """One array of an .npz file, memory-mapped when it is stored uncompressed."""
    names = npz_names(path)
    if key is None and len(names) != 1:
        raise InputError(f"{path} must hold one array, got {names}. Say which with key=.")
    name = names[0] if key is None else key
    if name not in names:
        raise InputError(f"key must be one of {names} in {path}, got {key!r}")
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(name + ".npy")
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                with archive.open(info) as stream:
                    return np.lib.format.read_array(stream, allow_pickle=False)
            with path.open("rb") as raw:
                raw.seek(info.header_offset + 26)
                sizes = np.frombuffer(raw.read(4), "<u2")
                start = info.header_offset + 30 + int(sizes.sum())
                raw.seek(start)
                return _map_npy(raw, path, start + info.file_size)
    except UNREADABLE as error:
        raise FileError(f"{path} cannot be read as .npz: {error}") from None


def npy_array(path: Path) -> np.ndarray:
    """An .npy file as a read-only memory map; pickled contents are refused."""
    try:
        with path.open("rb") as raw:
            return _map_npy(raw, path, os.fstat(raw.fileno()).st_size)
    except UNREADABLE as error:
        raise FileError(f"{path} cannot be read as .npy: {error}") from None


def _map_npy(raw: Any, path: Path, end: int) -> np.ndarray:
    """The array whose header starts where ``raw`` stands and whose entries lie before ``end``."""
    version = np.lib.format.read_magic(raw)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"its format version {version} is not known")
    reader = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = reader(raw)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled; save numbers")
    if min(shape, default=0) < 0:
        raise ValueError(f"its header names the shape {shape}")
    wanted, there = math.prod(shape) * dtype.itemsize, end - raw.tell()
    if wanted > there:
        raise ValueError(f"it is truncated: shape {shape} needs {wanted} bytes, {there} are there")
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", raw.tell(), shape, "F" if fortran else "C")
