"""The one door: anything tabular becomes Dense, Observed or Counts, with its labels.

What an absent entry means is decided here. NaN in a table and a masked entry are unknown (``Observed``); an entry that a sparse
matrix does not store is zero (``Counts``), unless ``absent="unknown"`` says otherwise.
"""

from __future__ import annotations

import csv
import glob
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError, InputTypeError, wrong
from eckart.io.sources import ArrowBlocks, ChainBlocks, IteratorBlocks, arrow_dtype, arrow_values, npy_array, npz_array
from eckart.matrix import Counts, Dense, Matrix, Observed, wrong_ndim

IN_MEMORY_BYTES = 512 * 2**20
"""CSV and Parquet files up to this size are read whole; larger ones are streamed."""


def read(source: Any, *, columns: list[str] | None = None, index: str | None = None, key: str | None = None,
         absent: str = "zero", delimiter: str | None = None, decimal: str = ".") -> Matrix:
    """Turn a file, frame, array, sparse matrix or iterator of row blocks into a labelled matrix.

    Parameters
    ----------
    source : path (.npy, .npz, .csv, .tsv, .parquet, .arrow, .feather; ``*`` chains files), pandas or polars frame, Arrow table,
        NumPy array or masked array, SciPy sparse matrix, nested list, or iterator of row blocks.
    columns : names to keep, for files and frames; by default all.
    index : name of the column that labels the rows.
    key : name of the array inside an .npz file.
    absent : what an entry means that a sparse matrix does not store: ``"zero"`` or ``"unknown"``.
    delimiter, decimal : of CSV files; the delimiter is found from the first line by default.

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
    if isinstance(source, (Dense, Observed, Counts)):
        return source
    if isinstance(source, (str, Path)):
        matrix = _read_path(str(source), columns, index, key, absent, delimiter, decimal)
    elif hasattr(source, "tocsr"):
        matrix = (Counts if absent == "zero" else Observed).from_scipy(_numeric_sparse(source))
    elif type(source).__module__.startswith("pyarrow"):
        matrix = _from_arrow(_as_table(source), columns, index, "the Arrow table")
    elif hasattr(source, "__dataframe__") or hasattr(source, "iloc"):
        matrix = _from_frame(source, columns, index)
    elif isinstance(source, np.ma.MaskedArray):
        filled = np.ma.filled(source.astype(np.result_type(source.dtype, np.float32)), np.nan)
        matrix = Observed.from_nan(filled) if np.ma.is_masked(source) else Dense(filled)
    elif isinstance(source, np.ndarray):
        matrix = Dense(numeric(source))
    elif isinstance(source, list) and source and isinstance(source[0], np.ndarray) and source[0].ndim == 2:
        matrix = Dense(IteratorBlocks(source))
    elif hasattr(source, "__next__") or (hasattr(source, "__iter__") and not hasattr(source, "__len__")):
        matrix = Dense(IteratorBlocks(source))
    elif hasattr(source, "__array__") or isinstance(source, (list, tuple)):
        matrix = Dense(numeric(np.asarray(source)))
    else:
        raise InputTypeError(f"X is a {type(source).__name__}, wanted an array, a table, a sparse matrix, a file or blocks of rows")
    return _not_empty(matrix)


def numeric(values: np.ndarray) -> np.ndarray:
    """A two-dimensional array of real numbers, or one clear error."""
    if values.dtype.kind == "c":
        raise InputError("Complex data not supported: X holds complex numbers, wanted real ones; pass X.real, or X.real and X.imag side by side")
    if values.ndim != 2:
        raise wrong_ndim(values.ndim)
    if values.dtype.kind in "OUS":
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError) as error:
            for i, row in enumerate(values):
                for j, value in enumerate(row):
                    _entry(value, i, j, error)
    if values.dtype.kind not in "fiub":
        raise InputTypeError(f"X holds {values.dtype}, wanted numbers; convert dates or text to numbers first")
    return values


def _entry(value: Any, i: int, j: int, error: Exception) -> None:
    try:
        float(value)
    except TypeError as reason:
        raise InputTypeError(f"X has {value!r} at row {i}, column {j}, wanted a number ({reason})") from None
    except ValueError:
        raise InputError(f"X has {value!r} at row {i}, column {j}, wanted a number; drop or encode that column") from error


def _numeric_sparse(matrix: Any) -> Any:
    if matrix.dtype.kind == "c":
        raise InputError("Complex data not supported: X holds complex numbers, wanted real ones")
    if len(matrix.shape) != 2:
        raise wrong_ndim(len(matrix.shape))
    return matrix


def _read_path(path: str, columns: list[str] | None, index: str | None, key: str | None, absent: str,
               delimiter: str | None, decimal: str) -> Matrix:
    if glob.has_magic(path):
        found = sorted(glob.glob(path))
        if not found:
            raise FileError(f"{path} matches no file")
        parts = [_read_path(p, columns, index, key, absent, delimiter, decimal) for p in found]
        return Dense(ChainBlocks(parts), columns=parts[0].columns)
    file = Path(path)
    if not file.exists():
        raise FileError(f"{path} does not exist")
    if file.is_dir():
        raise FileError(f"{path} is a folder, wanted a file; write {path}/*.parquet to read all files in it")
    if file.stat().st_size == 0:
        raise FileError(f"{path} is empty (0 bytes)")
    ending = file.suffix.lower()
    if ending == ".npy":
        return Dense(numeric(npy_array(file)))
    if ending == ".npz":
        sparse = _sparse_npz(file) if key is None else None
        if sparse is not None:
            return (Counts if absent == "zero" else Observed).from_scipy(sparse)
        return Dense(numeric(npz_array(file, key)))
    if ending in (".csv", ".tsv", ".txt"):
        return _read_csv(file, columns, index, delimiter, decimal)
    if ending in (".parquet", ".pq", ".arrow", ".feather", ".ipc"):
        return _read_arrow(file, columns, index)
    raise FileError(f"{path} ends in {ending or 'nothing'!r}, wanted .npy, .npz, .csv, .tsv, .parquet, .arrow or .feather")


def _sparse_npz(file: Path) -> Any:
    from scipy import sparse

    try:
        with np.load(file, allow_pickle=False) as archive:
            if "format" not in archive.files:
                return None
        return sparse.load_npz(file)
    except Exception as error:
        raise FileError(f"{file} cannot be read as .npz: {error}") from None


def _read_arrow(file: Path, columns: list[str] | None, index: str | None) -> Matrix:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = file.suffix.lower() in (".parquet", ".pq")
    try:
        if parquet:
            head = pq.ParquetFile(file)
            schema, rows = head.schema_arrow, head.metadata.num_rows
        else:
            with pa.memory_map(str(file)) as raw:
                reader = pa.ipc.open_file(raw)
                schema = reader.schema
                rows = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
    except (pa.ArrowInvalid, OSError) as error:
        raise FileError(f"{file} cannot be read: {error}") from None
    names = _chosen(schema.names, columns, index, file)

    def batches() -> Any:
        if parquet:
            yield from pq.ParquetFile(file).iter_batches(columns=names + ([index] if index else []))
        else:
            reader = pa.ipc.open_file(pa.memory_map(str(file)))
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)

    return _stream_or_hold(file, schema, names, index, rows, batches)


def _read_csv(file: Path, columns: list[str] | None, index: str | None, delimiter: str | None, decimal: str) -> Matrix:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with file.open(encoding="utf-8", errors="replace", newline="") as raw:
        lines = [line for line in (raw.readline() for _ in range(2)) if line.strip()]
    if not lines:
        raise FileError(f"{file} is empty: it has no row")
    delimiter = delimiter or ("\t" if file.suffix.lower() == ".tsv" else _sniff(lines[0]))
    cells = next(csv.reader([lines[0]], delimiter=delimiter))
    headed = any(not _is_number(c, decimal) for c in cells)
    if headed and len(lines) == 1:
        raise FileError(f"{file} is empty: it has a header and no row")
    options = {
        "read_options": arrow_csv.ReadOptions(autogenerate_column_names=not headed, block_size=4 * 2**20),
        "parse_options": arrow_csv.ParseOptions(delimiter=delimiter),
        "convert_options": arrow_csv.ConvertOptions(decimal_point=decimal, null_values=["", "NA", "NaN", "nan", "null", "None", "N/A"]),
    }
    try:
        with arrow_csv.open_csv(file, **options) as reader:
            schema = reader.schema
    except pa.ArrowInvalid as error:
        raise FileError(f"{file} cannot be read as CSV: {error}; every row needs the same number of cells of one kind") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not UTF-8 text ({error}); save it as UTF-8") from None
    names = _chosen(schema.names, columns, index, file)
    arrow_dtype(schema, names, file)
    options["convert_options"].column_types = dict.fromkeys(names, pa.float64())

    def batches() -> Any:
        try:
            with arrow_csv.open_csv(file, **options) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise FileError(f"{file} cannot be read as CSV: {error}; every row needs the same number of cells of one kind") from None

    matrix = _stream_or_hold(file, schema, names, index, None, batches)
    return matrix if headed else Dense(matrix.values, matrix.rows)


def _stream_or_hold(file: Path, schema: Any, names: list[str], index: str | None, rows: int | None, batches: Any) -> Dense:
    """Small files become an array, larger ones stay row blocks; a null stays NaN until the first pass meets it."""
    dtype = arrow_dtype(schema, names, file)
    if file.stat().st_size > IN_MEMORY_BYTES:
        return Dense(ArrowBlocks(file, names, dtype, rows, batches), columns=np.array(names, dtype=object))
    parts, labels = [], []
    for batch in batches():
        parts.append(arrow_values(batch, names, dtype))
        if index is not None:
            labels.extend(batch.column(batch.schema.get_field_index(index)).to_pylist())
    values = np.concatenate(parts) if parts else np.empty((0, len(names)), dtype)
    return Dense(values, np.array(labels, dtype=object) if index else None, np.array(names, dtype=object))


def _as_table(source: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([source]) if isinstance(source, pa.RecordBatch) else source


def _from_arrow(table: Any, columns: list[str] | None, index: str | None, where: str) -> Dense:
    names = _chosen(table.schema.names, columns, index, where)
    values = arrow_values(table, names, arrow_dtype(table.schema, names, where))
    rows = None if index is None else np.array(table.column(index).to_pylist(), dtype=object)
    return Dense(values, rows, np.array(names, dtype=object))


def _from_frame(frame: Any, columns: list[str] | None, index: str | None) -> Matrix:
    """pandas or polars; pandas' own row labels are kept, sparse pandas columns stay sparse."""
    names = _chosen(list(frame.columns), columns, index, "the frame")
    kept = frame[names]
    labels = np.asarray(frame[index]) if index is not None else np.asarray(frame.index) if hasattr(frame, "index") else None
    titles = np.array(names, dtype=object)
    kinds = [str(kind) for kind in kept.dtypes]
    if kinds and all(kind.startswith("Sparse") for kind in kinds):
        return Counts.from_scipy(kept.sparse.to_coo(), labels, titles)
    if hasattr(kept, "iloc"):
        values = kept.to_numpy(dtype=np.float64, na_value=np.nan) if "Float" in "".join(kinds) else kept.to_numpy()
    else:
        values = kept.to_numpy()
    if values.dtype.kind not in "fiub":
        for name in names:
            try:
                np.asarray(frame[name]).astype(np.float64)
            except (TypeError, ValueError) as error:
                if any(isinstance(cell, dict) for cell in frame[name]):
                    raise InputTypeError(f"column {name!r} is not numeric ({error})") from None
                raise InputError(f"column {name!r} is not numeric ({error}); choose columns= or encode it") from None
        values = values.astype(np.float64)
    return Dense(values, labels, titles)


def _chosen(names: list[Any], columns: list[str] | None, index: str | None, where: Any) -> list[Any]:
    for name in [*(columns or []), *([index] if index is not None else [])]:
        if name not in names:
            raise InputError(f"column {name!r} came, wanted one of {', '.join(map(str, names[:12]))} in {where}")
    return [n for n in (columns or names) if n != index]


def _sniff(line: str) -> str:
    return max(",;\t|", key=line.count)


def _is_number(cell: str, decimal: str) -> bool:
    try:
        float(cell.strip().replace(decimal, ".")) if cell.strip() else None
    except ValueError:
        return False
    return True


def _not_empty(matrix: Matrix) -> Matrix:
    rows, columns = matrix.shape
    if rows == 0:
        raise InputError(f"Found array with 0 sample(s) (shape={matrix.shape}) while a minimum of 1 is required: X has no row")
    if columns == 0:
        raise InputError(f"Found array with 0 feature(s) (shape={matrix.shape}) while a minimum of 1 is required: X has no column")
    return matrix
