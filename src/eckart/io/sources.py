"""Row blocks from files and iterators: bounded memory, in order, with column names where the file has them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError
from eckart.matrix import floating, wrong_ndim


class IteratorBlocks:
    """Blocks handed over by the caller. A list can be read again; an iterator is read once."""

    def __init__(self, source: Iterable[Any]):
        self.rereadable = not isinstance(source, Iterator)
        self.columns = None
        self._source = source
        self._rest = iter(source)
        self._first = next(self._rest, None)
        if self._first is None:
            raise InputError("X is an iterator that yields nothing, wanted at least one block of rows")
        self._first = as_block(self._first, 0)
        self._used = False

    @property
    def shape(self) -> tuple[int | None, int]:
        return None, self._first.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self._first.dtype

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        if self._used and not self.rereadable:
            raise InputError("X is an iterator and has been read already; pass a list of blocks or a file to read it twice")
        parts = iter(self._source) if self._used else _chain(self._first, self._rest)
        self._used = True
        seen = 0
        for part in parts:
            block = as_block(part, seen)
            if block.shape[1] != self.shape[1]:
                raise InputError(f"the block that starts at row {seen} has {block.shape[1]} columns, wanted {self.shape[1]}")
            seen += len(block)
            for start in range(0, len(block), rows):
                yield block[start : start + rows]


def _chain(first: np.ndarray, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def as_block(part: Any, row: int) -> np.ndarray:
    """One block as a two-dimensional numeric array; frames are taken by their values."""
    block = np.asarray(part.to_numpy() if hasattr(part, "to_numpy") else part)
    if block.ndim != 2:
        raise wrong_ndim(block.ndim)
    if block.dtype.kind not in "fiub":
        try:
            block = block.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"the block that starts at row {row} is not numeric ({error})") from None
    return block


class ArrowBlocks:
    """Blocks from Parquet, Arrow IPC or CSV through pyarrow; a null becomes NaN (an entry not observed)."""

    rereadable = True

    def __init__(self, path: Path, names: list[str], dtype: np.dtype, rows: int | None, opener: Any):
        self.path, self.names, self._rows, self._opener = path, names, rows, opener
        self.columns = np.array(names, dtype=object)
        self._dtype = dtype

    @property
    def shape(self) -> tuple[int | None, int]:
        return self._rows, len(self.names)

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        seen = 0
        for batch in self._opener():
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                yield arrow_values(part, self.names, self._dtype, seen + start)
            seen += batch.num_rows


def arrow_values(batch: Any, names: list[str], dtype: np.dtype, first_row: int = 0) -> np.ndarray:
    """The named columns of an Arrow batch or table as one row-major array."""
    out = np.empty((batch.num_rows, len(names)), dtype)
    for j, name in enumerate(names):
        column = batch.column(batch.schema.get_field_index(name))
        out[:, j] = column.to_numpy(zero_copy_only=False)
    return out


def arrow_dtype(schema: Any, names: list[str], path: Any) -> np.dtype:
    """float32 when every column is at most that, else float64; a column that is not numeric is refused by name."""
    import pyarrow as pa

    for name in names:
        kind = schema.field(name).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            numeric = [f.name for f in schema if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)]
            raise InputError(
                f"column {name!r} of {path} holds {kind}, wanted numbers; choose columns (numeric ones here: "
                f"{', '.join(numeric[:8]) or 'none'}{' ...' if len(numeric) > 8 else ''})"
            )
    return np.result_type(*(floating(_numpy_kind(schema.field(n).type)) for n in names))


def _numpy_kind(kind: Any) -> Any:
    import pyarrow as pa

    return np.float32 if kind in (pa.float32(), pa.float16()) else np.float64


class ChainBlocks:
    """Several files of the same columns, one after the other."""

    def __init__(self, parts: list[Any]):
        self.parts = parts
        self.columns = parts[0].columns
        self.rereadable = all(getattr(p, "rereadable", True) for p in parts)
        widths = {p.shape[1] for p in parts}
        if len(widths) > 1:
            raise InputError(f"the files have {sorted(widths)} columns, wanted the same number in each")

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


def npz_array(path: Path, key: str | None) -> np.ndarray:
    """One array of an .npz file, memory-mapped when it is stored uncompressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n[:-4] for n in archive.namelist() if n.endswith(".npy")]
            if key is None and len(names) != 1:
                raise InputError(f"{path} holds the arrays {names}, wanted one; say which with key=")
            name = key or names[0]
            if name not in names:
                raise InputError(f"key={key!r} came, wanted one of {names} in {path}")
            info = archive.getinfo(name + ".npy")
            if info.compress_type != zipfile.ZIP_STORED:
                with archive.open(info) as stream:
                    return np.lib.format.read_array(stream, allow_pickle=False)
            with path.open("rb") as raw:
                raw.seek(info.header_offset + 26)
                sizes = np.frombuffer(raw.read(4), "<u2")
                raw.seek(info.header_offset + 30 + int(sizes.sum()))
                return _map_npy(raw, path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise FileError(f"{path} cannot be read as .npz: {error}") from None


def npy_array(path: Path) -> np.ndarray:
    """An .npy file as a read-only memory map; pickled contents are refused."""
    try:
        with path.open("rb") as raw:
            return _map_npy(raw, path)
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as .npy: {error}") from None


def _map_npy(raw: Any, path: Path) -> np.ndarray:
    version = np.lib.format.read_magic(raw)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(raw)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled; save numbers")
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", raw.tell(), shape, "F" if fortran else "C")
