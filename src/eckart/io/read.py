"""The one door: anything tabular becomes Dense, Observed or Counts, with its labels.

What an absent entry means is decided here. NaN in a table and a masked entry are unknown
(``Observed``); an entry that a sparse matrix does not store is zero (``Counts``), unless
``absent="unknown"`` says otherwise.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.errors import FileError, InputError, InputTypeError, invalid, written
from eckart.io.dask.known import is_collection
from eckart.io.sql.answers import QueryAnswer
from eckart.io.sql.databases import is_address, is_database, shown
from eckart.io.tables.csv_file import read_csv
from eckart.io.tables.encodings import ending_of
from eckart.io.tables.frames import (
    ARROW_FILES,
    DeviceRows,
    arrow_batches,
    arrow_columns,
    arrow_dtype,
    arrow_head,
    arrow_pattern,
    from_arrow,
    from_frame,
    hold,
    is_arrow,
    is_frame,
    on_device,
    titles,
)
from eckart.io.tables.long_tables import TEXT_FILES, Long
from eckart.io.tables.matrix_market import read_matrix_market
from eckart.io.tables.missing import Marks, from_masked, from_nested, numeric, unmark
from eckart.io.tables.other_files import OTHER_TABLES, images_in, read_images
from eckart.io.tables.row_blocks import (
    ArrowBlocks,
    ChainBlocks,
    IteratorBlocks,
    npy_array,
    npz_array,
    npz_names,
)
from eckart.matrix import Counts, Dense, Matrix, Observed, wrong_ndim
from eckart.matrix_blocks import as_counts

IN_MEMORY_BYTES = 512 * 2**20
"""CSV and Parquet files up to this size are read whole; larger ones are streamed."""
EMPTY_ROWS = 2**24
"""Rows and columns that a sparse file may have whatever its entries; a damaged size of nineteen
digits would fill the memory."""


@dataclass(frozen=True)
class _Ask:
    """What the caller of ``read`` asked of a file."""

    columns: list[str] | None = None
    index: str | None = None
    key: str | None = None
    absent: str = "zero"
    delimiter: str | None = None
    decimal: str | None = None
    header: bool | None = None
    held: int = 0
    words: tuple[str, ...] = ()
    encoding: str | None = None


@held
def read(
    source: Any,
    sql: str | None = None,
    *,
    columns: Any = None,
    index: str | None = None,
    key: str | None = None,
    absent: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    rows: Any = None,
    values: Any = None,
    duplicates: str = "error",
    missing: Any = (),
    memory: Any = None,
    encoding: str | None = None,
) -> Matrix:
    """Turn a file, frame, array, sparse matrix, iterator of row blocks or answer of a database into
    a labelled matrix.

    With ``rows=``, ``columns=`` and ``values=`` the source is a table in long form: each of its
    rows is one observation, and the three columns of these names (or positions) hold its row id,
    its column id and its value. It becomes an ``Observed`` matrix with the ids as labels. Files are
    read in blocks and may be larger than memory.

    Columns of CSV files with marks between thousands (``1,234.5``, ``1 234``) or per cent signs
    (``12 %``, read as 12) are numbers where all their cells are so written and can mean one thing
    only; a comma or a point stands between thousands where two of them in a number, both marks in
    one, decimals elsewhere in the file, or ``decimal=`` say so.

    Parameters
    ----------
    source : path, frame, array, sparse matrix, nested list or iterator of row blocks. Files:
        .npy, .npz, .mtx, .csv, .tsv and .dat (also packed, .csv.gz), .parquet, .arrow, .feather, .xlsx,
        .jsonl, a folder of images or of Parquet or Arrow files, which are the parts of one table;
        ``*`` chains files. Frames are those of pandas and polars, and Arrow tables; rows may lie on
        a GPU (a CUDA tensor, a CuPy array). With ``sql``: a connection (DuckDB, ADBC, SQLAlchemy,
        or any other of Python's DB-API), a DuckDB or SQLite file, or an address such as
        ``postgresql://host/shop``.
    sql : a query of the source, which is only read (extra ``sql``). Its answer comes in batches;
        NULL is missing. A .parquet, .csv or .arrow file is the table ``data`` of the query.
    columns : names to keep, for files and frames; by default all. With ``rows=``, the name of the
        one column that holds the column ids.
    index : name of the column that labels the rows; by default the index that pandas wrote, or a
        first column without a name.
    key : name of the array inside an .npz file.
    absent : what an entry means that is not there: ``"zero"`` (None in a sparse matrix) or
        ``"unknown"`` (None in a table in long form, which with ``"zero"`` is read as counts:
        documents, words and how often).
    delimiter, decimal : of CSV files. The delimiter (one character, or several such as ``::``) is
        found from the first line by default, and decimal commas from the first 200 lines of a file
        in which no cell has a decimal point. A file of any other ending is read as text when the
        delimiter is said.
    header : whether the first line of a CSV file holds names; by default it does when it is not all
        numbers (or counts 0, 1, 2 ... as pandas names columns).
    rows, values : names or positions of the columns that hold row ids and values, for a table in
        long form: a file, a frame, an Arrow table, a dictionary of arrays, a list of tuples.
        Without ``values`` every observation is 1. In a CSV file, ids that are all whole numbers are
        integers, other ids are text (also numbers with leading zeros), and an empty cell is
        refused.
    duplicates : several values at one place of a table in long form: ``"error"``, ``"last"``,
        ``"mean"`` or ``"sum"``.
    missing : what else stands for a missing entry: numbers such as 0 or -999, and words in the
        cells of a CSV file, such as ``"?"``. A table in long form leaves out the observations whose
        id or value is one of the words, of any source; ``""`` are those without a value.
    memory : what a file in long form may take of it, such as ``"4GB"``; by default most of what is
        free. A larger one is sorted into shards on the disk (in the folder for temporary files),
        which a fit reads in every sweep.
    encoding : of text files, such as ``"cp1252"``, ``"latin-1"`` or ``"utf-16"``; by default UTF-8,
        or what the first bytes of the file tell (UTF-16 as spreadsheets write it).

    Returns
    -------
    Dense, Observed or Counts

    >>> read([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    >>> type(read(np.ma.masked_equal([[1.0, -9.0], [3.0, 4.0]], -9.0))).__name__
    'Observed'
    >>> seen = read({"user": ["ann", "bob", "ann"], "film": [7, 7, 3], "stars": [4, 5, 1]}, rows="user", columns="film", values="stars")
    >>> seen.shape, seen.rows, seen.columns, seen.nnz
    ((2, 2), array(['ann', 'bob'], dtype=object), array([3, 7]), 3)
    """
    marks = Marks.of(missing)
    if sql is not None:
        source = QueryAnswer(source, sql)
    if rows is not None or values is not None:
        _check_long(
            rows,
            columns,
            values,
            {"index": index, "key": key, "absent": None if absent == "zero" else absent},
        )
        long = Long(
            rows,
            columns,
            values,
            duplicates,
            delimiter,
            decimal,
            header,
            memory,
            marks.words,
            encoding=encoding,
        )
        seen = unmark(long.read(source), marks.numbers)
        return as_counts(seen) if absent == "zero" and isinstance(seen, Observed) else seen
    if duplicates != "error":
        raise invalid(
            "duplicates",
            duplicates,
            "rows=, columns= and values= beside it: only a table in long form has them",
        )
    absent = absent or "zero"
    if absent not in ("zero", "unknown"):
        raise invalid("absent", absent, "'zero' or 'unknown'")
    if is_collection(source):
        from eckart.io.dask.wide import from_collection

        return _not_empty(from_collection(source, columns, absent))
    if isinstance(source, QueryAnswer):
        return _not_empty(_read_answer(source, _Ask(columns, index, held=IN_MEMORY_BYTES)))
    ask = _Ask(
        columns,
        index,
        key,
        absent,
        delimiter,
        decimal,
        header,
        IN_MEMORY_BYTES,
        marks.words,
        encoding,
    )
    return unmark(_read_source(source, ask), marks.numbers)


def _read_source(source: Any, ask: _Ask) -> Matrix:
    if isinstance(source, (str, os.PathLike)):
        return _not_empty(_read_path(os.fspath(source), ask))
    if is_arrow(source):
        return _not_empty(from_arrow(source, ask.columns, ask.index))
    if is_frame(source):
        return _not_empty(from_frame(source, ask.columns, ask.index))
    _refuse_names(ask.columns, ask.index, "X")
    if isinstance(source, (Dense, Observed, Counts)):
        return source
    if hasattr(source, "matrix") and hasattr(source, "files"):  # eckart.shards
        return _not_empty(source.matrix())
    return _not_empty(_from_object(source, ask.absent))


def _check_long(rows: Any, columns: Any, values: Any, others: dict[str, Any]) -> None:
    """Refuse half a question."""
    named = {"rows": rows, "columns": columns}
    for name, value in named.items():
        if value is None:
            came = ", ".join(
                f"{n}={written(v)}" for n, v in {**named, "values": values}.items() if v is not None
            )
            raise InputError(
                "rows= and columns= (and values=) must all be given, the columns that hold row "
                f"ids, column ids and values, got {came} without {name}="
            )
    for name, value in others.items():
        if value is not None:
            raise InputError(
                f"{name}={value!r} came beside rows=, which reads a table in long form; "
                "leave it out"
            )


def _from_object(source: Any, absent: str) -> Matrix:
    if on_device(source):
        return Dense(DeviceRows.of(source))
    if hasattr(source, "tocsr"):
        return (Counts if absent == "zero" else Observed).from_scipy(_numeric_sparse(source))
    if isinstance(source, np.ma.MaskedArray):
        return from_masked(source)
    if isinstance(source, np.ndarray):
        # np.matrix: its rows are matrices again, and so are its sums
        return Dense(numeric(np.asarray(source)))
    if holds_blocks(source):
        return _from_blocks(source)
    if isinstance(source, (list, tuple)) or hasattr(source, "__array__"):
        return Dense(from_nested(source))
    raise InputTypeError(
        "X must be an array, a table, a sparse matrix, a file or blocks of rows, got a "
        f"{type(source).__name__}"
    )


def holds_blocks(source: Any) -> bool:
    """Whether a source is a list or an iterator of row blocks, and no table itself."""
    if isinstance(source, (list, tuple)):
        shape = getattr(source[0], "shape", ()) if source else ()
        return isinstance(shape, tuple) and len(shape) == 2
    plain = not (is_arrow(source) or hasattr(source, "__len__") or hasattr(source, "__array__"))
    return (hasattr(source, "__next__") and not is_arrow(source)) or (
        plain and hasattr(source, "__iter__")
    )


def _from_blocks(source: Any) -> Dense:
    blocks = IteratorBlocks(source)
    return Dense(blocks, columns=blocks.columns)


def _refuse_names(columns: Any, index: Any, where: str) -> None:
    for name, value in (("columns", columns), ("index", index)):
        if value is not None:
            raise InputError(
                f"{name}={written(value)} came, but {where} has no column names; leave "
                "it out, or pass a table"
            )


def _numeric_sparse(matrix: Any) -> Any:
    if matrix.dtype.kind == "c":
        raise InputError("Complex data not supported: X must hold real numbers, got complex ones")
    if len(matrix.shape) != 2:
        raise wrong_ndim(len(matrix.shape))
    return matrix


def _read_path(path: str, ask: _Ask) -> Matrix:
    path = path if os.path.isdir(path) and images_in(path) else arrow_pattern(path)
    file = Path(path)
    if is_address(path) or is_database(file):
        raise InputError(
            f"{shown(path)} is a database and needs a query. Say sql='select ... from ...'."
        )
    if not path or not os.path.exists(file):  # a name that no file can have included
        if glob.has_magic(path):
            return _read_many(path, ask)
        raise FileError(f"{path or 'an empty path'} does not exist")
    if file.is_dir() and images_in(file):
        _refuse_names(ask.columns, ask.index, path)
        return Dense(*read_images(file)[:2])
    if file.is_dir():
        raise FileError(
            f"{path} must be a file, or a folder of images, got another folder. Write "
            f"{path}/*.parquet to read all files in it."
        )
    if file.stat().st_size == 0:
        raise FileError(f"{path} is empty (0 bytes)")
    ending = ending_of(file)
    try:
        if ending in (".npy", ".npz"):
            _refuse_names(ask.columns, ask.index, path)
            return Dense(numeric(npy_array(file))) if ending == ".npy" else _read_npz(file, ask)
        if ending == ".mtx" or file.name.lower().endswith(".mtx.gz"):
            _refuse_names(ask.columns, ask.index, path)
            return _read_mtx(file, ask)
        if ending in ARROW_FILES:
            return _read_arrow(file, ask)
        if ending in TEXT_FILES or ask.delimiter is not None:
            return read_csv(
                file,
                ask.columns,
                ask.index,
                ask.delimiter,
                ask.decimal,
                ask.header,
                ask.held,
                ask.words,
                ask.encoding,
            )
        if ending in OTHER_TABLES:
            return from_arrow(OTHER_TABLES[ending](file), ask.columns, ask.index)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    raise FileError(
        f"{path} must end in .npy, .npz, .mtx, .csv, .tsv, .dat, .parquet, .arrow, "
        f".feather, .xlsx or .jsonl, got {ending or 'nothing'!r}. Say delimiter= if it is "
        "text."
    )


def _read_many(pattern: str, ask: _Ask) -> Matrix:
    """All files of a pattern, in the order of their names; held in memory only when all of them
    together are small."""
    files = sorted(glob.glob(pattern))
    if not files:
        raise FileError(f"{pattern} matches no file")
    if sum(os.path.getsize(file) for file in files) > ask.held:
        ask = replace(ask, held=-1)
    parts = [_read_path(file, ask) for file in files]
    if len({type(part) for part in parts}) > 1:
        raise InputError(f"{pattern} must match files of one kind, got dense and sparse ones")
    if isinstance(parts[0], Dense):
        labels = [part.rows for part in parts if part.rows is not None]
        return Dense(
            ChainBlocks(parts, files),
            np.concatenate(labels) if len(labels) == len(parts) else None,
            parts[0].columns,
        )
    return _stack(parts, files)


def _stack(parts: list[Any], files: list[str]) -> Matrix:
    from scipy import sparse

    for part, file in zip(parts, files):
        if part.n_columns != parts[0].n_columns:
            raise InputError(
                f"files must have the same number of columns, got {part.n_columns} in {file} and "
                f"{parts[0].n_columns} in {files[0]}"
            )
    return type(parts[0]).from_scipy(
        sparse.vstack([part.to_scipy() for part in parts], format="csr")
    )


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
    return _stored_sparse(file, matrix, ask)


def _read_mtx(file: Path, ask: _Ask) -> Matrix:
    """Coordinates are a sparse matrix, an array is dense."""
    matrix = read_matrix_market(file)
    if not hasattr(matrix, "tocsr"):
        return Dense(numeric(np.asarray(matrix)))
    return _stored_sparse(file, matrix, ask)


def _stored_sparse(file: Path, matrix: Any, ask: _Ask) -> Matrix:
    """A sparse matrix of a file, whose shape is a claim of its header until it is compared with
    what is stored."""
    n, m = _numeric_sparse(matrix).shape
    if max(n, m) > EMPTY_ROWS + 1000 * matrix.nnz:
        raise FileError(
            f"{file} must have at most 1000 rows for each entry beyond {EMPTY_ROWS}, got {n} "
            f"rows and {m} columns for {matrix.nnz} entries: nearly all would be empty, and the "
            "matrix would not fit in memory"
        )
    return (Counts if ask.absent == "zero" else Observed).from_scipy(matrix)


def _read_arrow(file: Path, ask: _Ask) -> Matrix:
    schema, rows = arrow_head(file)
    names, index = arrow_columns(schema, ask.columns, ask.index, file)
    dtype = arrow_dtype(schema, names, file)
    wanted = names + ([index] if index is not None else [])
    if rows * len(names) * dtype.itemsize > ask.held:
        blocks = ArrowBlocks(
            names, titles(names), dtype, rows, lambda: arrow_batches(file, wanted), [file]
        )
        return Dense(blocks, columns=titles(names))
    values, labels = hold(arrow_batches(file, wanted), names, index, dtype)
    return Dense(values, labels, titles(names))


def _read_answer(answer: QueryAnswer, ask: _Ask) -> Matrix:
    """The answer of a query: held, or streamed from a temporary file, since a fit passes over its
    rows more than once and they could change between."""
    found = answer.table(ask.held)
    if not isinstance(found, Path):
        return from_arrow(found, ask.columns, ask.index)
    return _read_arrow(found, replace(ask, held=-1))


def _not_empty(matrix: Matrix) -> Matrix:
    rows, columns = matrix.shape
    if rows == 0:
        raise InputError(
            f"Found array with 0 sample(s) (shape={matrix.shape}) while a minimum of 1 "
            "is required: X has no row"
        )
    if columns == 0:
        raise InputError(
            f"Found array with 0 feature(s) (shape={matrix.shape}) while a minimum of 1 "
            "is required: X has no column"
        )
    return matrix
