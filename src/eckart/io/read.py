"""The one door: anything tabular becomes Dense, Observed or Counts, with its labels.

What an absent entry means is decided here. NaN in a table and a masked entry are unknown (``Observed``); an entry that a sparse
matrix does not store is zero (``Counts``), unless ``absent="unknown"`` says otherwise.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError, InputTypeError, wrong
from eckart.io.csv_file import read_csv
from eckart.io.frames import (
    arrow_columns,
    arrow_dtype,
    from_arrow,
    from_frame,
    hold,
    is_arrow,
    is_frame,
    titles,
)
from eckart.io.numbers import from_masked, from_nested, numeric
from eckart.io.sources import ArrowBlocks, ChainBlocks, IteratorBlocks, npy_array, npz_array, npz_names
from eckart.matrix import Counts, Dense, Matrix, Observed, wrong_ndim

IN_MEMORY_BYTES = 512 * 2**20
"""CSV and Parquet files up to this size are read whole; larger ones are streamed."""


@dataclass(frozen=True)
class _Ask:
    """What the caller of ``read`` asked of a file."""

    columns: list[str] | None = None
    index: str | None = None
    key: str | None = None
    absent: str = "zero"
    delimiter: str | None = None
    decimal: str = "."
    header: bool | None = None
    held: int = 0


def read(
    source: Any,
    *,
    columns: list[str] | None = None,
    index: str | None = None,
    key: str | None = None,
    absent: str = "zero",
    delimiter: str | None = None,
    decimal: str = ".",
    header: bool | None = None,
) -> Matrix:
    """Turn a file, frame, array, sparse matrix or iterator of row blocks into a labelled matrix.

    Parameters
    ----------
    source : path (.npy, .npz, .csv, .tsv, .parquet, .arrow, .feather; ``*`` chains files), pandas or polars frame, Arrow table,
        NumPy array or masked array, SciPy sparse matrix, nested list, or iterator of row blocks.
    columns : names to keep, for files and frames; by default all.
    index : name of the column that labels the rows; by default the index that pandas wrote, or a first column without a name.
    key : name of the array inside an .npz file.
    absent : what an entry means that a sparse matrix does not store: ``"zero"`` or ``"unknown"``.
    delimiter, decimal : of CSV files; the delimiter is found from the first line by default.
    header : whether the first line of a CSV file holds names; by default it does when it is not all numbers (or counts 0, 1, 2 ...
        as pandas names columns).

    Returns
    -------
    Dense, Observed or Counts

    >>> read([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    >>> type(read(np.ma.masked_equal([[1.0, -9.0], [3.0, 4.0]], -9.0))).__name__
    'Observed'
    """
    if absent not in ("zero", "unknown"):
        raise wrong("absent", absent, "'zero' or 'unknown'")
    if isinstance(source, (str, os.PathLike)):
        return _not_empty(
            _read_path(
                os.fspath(source), _Ask(columns, index, key, absent, delimiter, decimal, header, IN_MEMORY_BYTES)
            )
        )
    if is_arrow(source):
        return _not_empty(from_arrow(source, columns, index))
    if is_frame(source):
        return _not_empty(from_frame(source, columns, index))
    _refuse_names(columns, index, "X")
    if isinstance(source, (Dense, Observed, Counts)):
        return source
    return _not_empty(_from_object(source, absent))


def _from_object(source: Any, absent: str) -> Matrix:
    if hasattr(source, "tocsr"):
        return (Counts if absent == "zero" else Observed).from_scipy(_numeric_sparse(source))
    if isinstance(source, np.ma.MaskedArray):
        return from_masked(source)
    if isinstance(source, np.ndarray):
        return Dense(numeric(source))
    listed = isinstance(source, (list, tuple))
    if (listed and source and len(getattr(source[0], "shape", ())) == 2) or hasattr(source, "__next__"):
        return _from_blocks(source)
    if listed or hasattr(source, "__array__"):
        return Dense(from_nested(source))
    if hasattr(source, "__iter__") and not hasattr(source, "__len__"):
        return _from_blocks(source)
    raise InputTypeError(
        f"X is a {type(source).__name__}, wanted an array, a table, a sparse matrix, a file or blocks of rows"
    )


def _from_blocks(source: Any) -> Dense:
    blocks = IteratorBlocks(source)
    return Dense(blocks, columns=blocks.columns)


def _refuse_names(columns: Any, index: Any, where: str) -> None:
    for name, value in (("columns", columns), ("index", index)):
        if value is not None:
            raise InputError(f"{name}={value!r} came, but {where} has no column names; leave it out, or pass a table")


def _numeric_sparse(matrix: Any) -> Any:
    if matrix.dtype.kind == "c":
        raise InputError("Complex data not supported: X holds complex numbers, wanted real ones")
    if len(matrix.shape) != 2:
        raise wrong_ndim(len(matrix.shape))
    return matrix


def _read_path(path: str, ask: _Ask) -> Matrix:
    file = Path(path)
    if not path or not file.exists():
        if glob.has_magic(path):
            return _read_many(path, ask)
        raise FileError(f"{path or 'an empty path'} does not exist")
    if file.is_dir():
        raise FileError(f"{path} is a folder, wanted a file; write {path}/*.parquet to read all files in it")
    if file.stat().st_size == 0:
        raise FileError(f"{path} is empty (0 bytes)")
    ending = file.suffix.lower()
    try:
        if ending in (".npy", ".npz"):
            _refuse_names(ask.columns, ask.index, path)
            return Dense(numeric(npy_array(file))) if ending == ".npy" else _read_npz(file, ask)
        if ending in (".csv", ".tsv", ".txt"):
            return read_csv(file, ask.columns, ask.index, ask.delimiter, ask.decimal, ask.header, ask.held)
        if ending in (".parquet", ".pq", ".arrow", ".feather", ".ipc"):
            return _read_arrow(file, ask)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    raise FileError(
        f"{path} ends in {ending or 'nothing'!r}, wanted .npy, .npz, .csv, .tsv, .parquet, .arrow or .feather"
    )


def _read_many(pattern: str, ask: _Ask) -> Matrix:
    """All files of a pattern, in the order of their names; held in memory only when all of them together are small."""
    files = sorted(glob.glob(pattern))
    if not files:
        raise FileError(f"{pattern} matches no file")
    if sum(os.path.getsize(file) for file in files) > ask.held:
        ask = replace(ask, held=-1)
    parts = [_read_path(file, ask) for file in files]
    if len({type(part) for part in parts}) > 1:
        raise InputError(f"{pattern} matches dense and sparse files, wanted one kind")
    if isinstance(parts[0], Dense):
        labels = [part.rows for part in parts if part.rows is not None]
        return Dense(
            ChainBlocks(parts, files), np.concatenate(labels) if len(labels) == len(parts) else None, parts[0].columns
        )
    return _stack(parts, files)


def _stack(parts: list[Any], files: list[str]) -> Matrix:
    from scipy import sparse

    for part, file in zip(parts, files):
        if part.n_columns != parts[0].n_columns:
            raise InputError(
                f"{file} has {part.n_columns} columns and {files[0]} has {parts[0].n_columns}, wanted the same number in each"
            )
    return type(parts[0]).from_scipy(sparse.vstack([part.to_scipy() for part in parts], format="csr"))


def _read_npz(file: Path, ask: _Ask) -> Matrix:
    if ask.key is not None or not {"format", "shape", "data"} <= set(npz_names(file)):
        return Dense(numeric(npz_array(file, ask.key)))
    from scipy import sparse

    try:
        matrix = sparse.load_npz(file)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except Exception as error:
        raise FileError(f"{file} cannot be read as a sparse .npz: {error}") from None
    return (Counts if ask.absent == "zero" else Observed).from_scipy(_numeric_sparse(matrix))


def _read_arrow(file: Path, ask: _Ask) -> Matrix:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = file.suffix.lower() in (".parquet", ".pq")
    try:
        if parquet:
            with pq.ParquetFile(file) as head:
                schema, rows = head.schema_arrow, head.metadata.num_rows
        else:
            with pa.memory_map(str(file)) as raw:
                reader = pa.ipc.open_file(raw)
                schema = reader.schema
                rows = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(file, error) from None
    names, index = arrow_columns(schema, ask.columns, ask.index, file)
    dtype = arrow_dtype(schema, names, file)

    def batches() -> Any:
        try:
            if parquet:
                with pq.ParquetFile(file) as table:
                    yield from table.iter_batches(columns=names + ([index] if index is not None else []))
            else:
                with pa.memory_map(str(file)) as raw:
                    table = pa.ipc.open_file(raw)
                    for i in range(table.num_record_batches):
                        yield table.get_batch(i)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(file, error) from None

    if rows * len(names) * dtype.itemsize > ask.held:
        return Dense(ArrowBlocks(names, titles(names), dtype, rows, batches), columns=titles(names))
    values, labels = hold(batches(), names, index, dtype)
    return Dense(values, labels, titles(names))


def _unreadable(file: Path, error: Exception) -> FileError:
    return FileError(f"{file} cannot be read: {' '.join(str(error).split())}; it is damaged or of another format")


def _not_empty(matrix: Matrix) -> Matrix:
    rows, columns = matrix.shape
    if rows == 0:
        raise InputError(
            f"Found array with 0 sample(s) (shape={matrix.shape}) while a minimum of 1 is required: X has no row"
        )
    if columns == 0:
        raise InputError(
            f"Found array with 0 feature(s) (shape={matrix.shape}) while a minimum of 1 is required: X has no column"
        )
    return matrix
