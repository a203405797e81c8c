"""Named columns out of pandas, polars and Arrow tables: which are kept, what labels the rows, and
their values as one array.

Rows that lie on a GPU: a CUDA tensor of PyTorch, an array of CuPy or of any library that shares
memory with it. Nothing is copied through the host.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError, InputTypeError, invalid
from eckart.index.alike import unknown_column
from eckart.index.entries import is_number
from eckart.loading import pa, pq
from eckart.matrix import Counts, Dense, floating, wrong_ndim

ARROW_FILES = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
"""Endings of the files that pyarrow reads as tables with types."""


def is_arrow(source: Any) -> bool:
    return type(source).__module__.startswith("pyarrow")


def is_frame(source: Any) -> bool:
    """pandas, polars, or anything that looks like them."""
    return hasattr(source, "to_numpy") and hasattr(source, "columns")


def arrow_pattern(path: str) -> str:
    """The pattern of the files of a folder that holds nothing but Parquet or Arrow files (beside
    marks such as _SUCCESS), the parts of one table; any other path as it is."""
    if path and os.path.isdir(path):
        endings = {
            os.path.splitext(name)[1].lower()
            for name in os.listdir(path)
            if not name.startswith((".", "_"))
        }
        if len(endings) == 1 and endings <= set(ARROW_FILES):
            return os.path.join(glob.escape(path), f"*{endings.pop()}")
    return path


def chosen(
    names: list[Any], columns: Any, index: Any, where: Any, repeats: bool = False
) -> list[int]:
    """Positions of the columns to keep, in the order asked for; the index column is left out."""
    if isinstance(columns, str):
        raise invalid("columns", columns, "a list of names", f"write columns=[{columns!r}]")
    found: dict[Any, list[int]] = {}
    for i, name in enumerate(names):
        found.setdefault(name, []).append(i)
    wanted = list(found) if columns is None else list(columns)
    for name in wanted if index is None else [*wanted, index]:
        if name not in found:
            raise unknown_column(name, names, where)
        if len(found[name]) > 1 and not repeats:
            raise InputError(
                f"columns of {where} must have names that differ, got {name!r} {len(found[name])} "
                "times. Rename it."
            )
    if len(set(wanted)) < len(wanted):
        raise invalid("columns", wanted, "each name once")
    if columns is None:
        kept = [i for i, name in enumerate(names) if index is None or name != index]
    else:
        kept = [i for name in wanted if index is None or name != index for i in found[name]]
    if not kept:
        raise InputError(
            f"{where} must have at least one column beside the index, got none. Check columns= "
            "and index=."
        )
    return kept


def titles(names: list[Any]) -> np.ndarray:
    """Names of any kind (tuples too) as a one-dimensional array."""
    out = np.empty(len(names), dtype=object)
    for i, name in enumerate(names):
        out[i] = name
    return out


def from_frame(frame: Any, columns: Any = None, index: Any = None) -> Dense | Counts:
    """pandas or polars; pandas' own row labels are kept, sparse pandas columns stay sparse."""
    names = list(frame.columns)
    kept = chosen(names, columns, index, "the frame", repeats=True)
    labels = np.asarray(frame.index) if hasattr(frame, "index") else None
    if index is not None:
        labels = np.asarray(frame[index])
    part = frame.iloc[:, kept] if hasattr(frame, "iloc") else frame[:, kept]
    head = titles([names[i] for i in kept])
    if all(
        str(kind).startswith("Sparse") and getattr(kind, "fill_value", None) == 0
        for kind in part.dtypes
    ):
        return Counts.from_scipy(part.sparse.to_coo(), labels, head)
    return Dense(_frame_values(part, head), labels, head)


def _frame_values(part: Any, names: np.ndarray) -> np.ndarray:
    """The whole frame at once where every column is plain numbers, else column by column."""
    if all(_is_plain(kind) for kind in part.dtypes):
        values = part.to_numpy()
        if values.dtype.kind in "fiub":
            return values
    out = np.empty(part.shape)
    for j, name in enumerate(names):
        out[:, j] = _column(part.iloc[:, j] if hasattr(part, "iloc") else part[:, j], name)
    return out


def _is_plain(kind: Any) -> bool:
    if isinstance(kind, np.dtype):
        return kind.kind in "fiub"
    test = getattr(kind, "is_numeric", None)
    return bool(test is not None and test())


def _column(column: Any, name: Any) -> np.ndarray:
    """One column as float64; an absent value is NaN; dates, complex numbers and text are refused by
    name."""
    kind = getattr(column.dtype, "kind", "")
    if kind == "c":
        raise InputError(
            f"Complex data not supported: column {name!r} must hold real numbers, got complex ones"
        )
    try:
        if kind in ("M", "m"):
            raise TypeError(f"it holds {column.dtype}")
        if hasattr(column, "iloc"):
            return column.to_numpy(dtype=np.float64, na_value=np.nan)
        values = column.to_numpy()
        if values.dtype.kind not in "fiubOUS":
            raise TypeError(f"it holds {column.dtype}")
        return values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if any(isinstance(cell, dict) for cell in column):
            raise InputTypeError(f"column {name!r} is not numeric ({error})") from None
        odd = next(
            (
                f" at row {p}"
                for p, cell in enumerate(column)
                if isinstance(cell, str) and not is_number(cell)
            ),
            "",
        )
        raise InputError(
            f"column {name!r} is not numeric{odd} ({error}); choose columns= or encode it"
        ) from None


def from_arrow(source: Any, columns: Any = None, index: Any = None) -> Dense:
    """An Arrow table, record batch or reader of record batches."""
    if not isinstance(source, pa.Table):
        schema = getattr(source, "schema", None)
        source = pa.Table.from_batches(record_batches(source), schema)
    names, index = arrow_columns(source.schema, columns, index, "the Arrow table")
    values = arrow_values(source, names, arrow_dtype(source.schema, names, "the Arrow table"))
    rows = None if index is None else titles(source.column(index).to_pylist())
    return Dense(values, rows, titles(names))


def arrow_columns(schema: Any, columns: Any, index: Any, where: Any) -> tuple[list[str], Any]:
    """Names of the columns to keep, and of the one that labels the rows; pandas' own index is one,
    never data."""
    names = schema.names
    if index is None:
        hidden = [name for name in _pandas_index(schema) if name not in (columns or [])]
        index = hidden[0] if len(hidden) == 1 else None
        if len(hidden) > 1 and columns is None:
            columns = [name for name in names if name not in hidden]
    return [names[i] for i in chosen(names, columns, index, where)], index


def _pandas_index(schema: Any) -> list[str]:
    try:
        index_columns = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError):
        return []
    return [name for name in index_columns if isinstance(name, str) and name in schema.names]


def arrow_values(batch: Any, names: list[str], dtype: np.dtype) -> np.ndarray:
    """The named columns of an Arrow batch or table as one row-major array; a null becomes NaN."""
    out = np.empty((batch.num_rows, len(names)), dtype)
    schema = batch.schema
    for j, name in enumerate(names):
        out[:, j] = batch.column(schema.get_field_index(name)).to_numpy(zero_copy_only=False)
    return out


def arrow_dtype(schema: Any, names: list[str], path: Any) -> np.dtype:
    """float32 when every column is at most that, else float64; a column that is not numeric is
    refused by name."""

    def is_number(kind: Any) -> bool:
        t = pa.types
        return any(
            test(kind)
            for test in (t.is_floating, t.is_integer, t.is_boolean, t.is_decimal, t.is_null)
        )

    for name in names:
        kind = schema.field(name).type
        if not is_number(kind):
            good = [f.name for f in schema if is_number(f.type)]
            raise InputError(
                f"column {name!r} of {path} must hold numbers, got {kind}. Choose columns (numeric "
                f"ones here: {', '.join(good[:8]) or 'none'}{' ...' if len(good) > 8 else ''})."
            )
    small = (pa.float32(), pa.float16())
    return np.result_type(
        *(floating(np.float32 if schema.field(n).type in small else np.float64) for n in names)
    )


def hold(
    batches: Any, names: list[str], index: str | None, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray | None]:
    """All batches as one array, with row labels; a null stays NaN until the first pass meets it."""
    parts, labels = [], []
    for batch in batches:
        parts.append(arrow_values(batch, names, dtype))
        if index is not None:
            labels.extend(batch.column(batch.schema.get_field_index(index)).to_pylist())
    values = np.concatenate(parts) if parts else np.empty((0, len(names)), dtype)
    return values, None if index is None else titles(labels)


def record_batches(source: Any) -> Iterator[Any]:
    """The batches of an Arrow table, record batch or reader."""
    if isinstance(source, pa.Table):
        return iter(source.to_batches())
    if isinstance(source, pa.RecordBatch):
        return iter([source])
    if isinstance(source, pa.RecordBatchReader):
        return iter(source)
    raise InputTypeError(
        f"X must be a Table or RecordBatch, rows and columns, got a pyarrow {type(source).__name__}"
    )


def arrow_head(file: Path) -> tuple[Any, int]:
    """Schema and number of rows of a Parquet or Arrow file."""
    try:
        if file.suffix.lower() in (".parquet", ".pq"):
            with pq.ParquetFile(file) as head:
                schema, rows = head.schema_arrow, head.metadata.num_rows
        else:
            with pa.memory_map(str(file)) as raw:
                reader = pa.ipc.open_file(raw)
                schema, rows = (
                    reader.schema,
                    sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches)),
                )
        # decoded here, so that a damaged name is the file's fault and not the caller's
        _ = schema.names
        return schema, rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def arrow_batches(file: Path, columns: list[str], rows: int = 65536) -> Iterator[Any]:
    """Record batches of a Parquet file (of these columns, of at most so many rows) or of an Arrow
    file (as it was written)."""
    try:
        if file.suffix.lower() in (".parquet", ".pq"):
            with pq.ParquetFile(file) as table:
                for batch in table.iter_batches(rows, columns=columns):
                    yield checked(batch)
        else:
            with pa.memory_map(str(file)) as raw:
                table = pa.ipc.open_file(raw)
                for i in range(table.num_record_batches):
                    yield checked(table.get_batch(i).select(columns))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def checked(batch: Any) -> Any:
    """A batch of a file whose offsets lie within its buffers and whose texts are UTF-8; others
    would be followed out of bounds."""
    batch.validate(full=True)
    return batch


def _unreadable(file: Path, error: Exception) -> FileError:
    return FileError(
        f"{file} cannot be read: {' '.join(str(error).split())}; it is damaged or of another format"
    )


CUDA = 2
"""The number of CUDA devices in DLPack."""


def on_device(source: Any) -> bool:
    """Whether an object says that its memory is that of a CUDA device."""
    if hasattr(source, "__cuda_array_interface__"):
        return True
    where = getattr(source, "__dlpack_device__", None)
    try:
        return where is not None and int(where()[0]) == CUDA
    except (RuntimeError, TypeError, ValueError, BufferError):
        return False


class DeviceRows:
    """A dense matrix on a device as row blocks: the CUDA engine takes ``tensor`` as it is, every
    other engine reads blocks of it."""

    columns = None
    rereadable = True
    at_hand = True
    """Passes over the rows cost no reading: solvers are chosen as for rows in memory."""

    def __init__(self, tensor: Any, source: Any = None):
        if tensor.ndim != 2:
            raise wrong_ndim(tensor.ndim)
        if tensor.is_complex():
            raise InputError(
                "Complex data not supported: X must hold real numbers, got complex ones"
            )
        self.tensor, self._source = tensor.detach(), tensor if source is None else source

    @classmethod
    def of(cls, source: Any) -> DeviceRows:
        try:
            import torch
        except ModuleNotFoundError:
            raise InputError(
                "X lies on a GPU, which needs PyTorch; install it with: pip install 'eckart[torch]'"
            ) from None
        if isinstance(source, torch.Tensor):
            return cls(source)
        shared = (
            torch.from_dlpack(source)
            if hasattr(source, "__dlpack__")
            else torch.as_tensor(source, device="cuda")
        )
        return cls(shared, source)

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype:
        """float32 for floating numbers of at most 32 bits, else float64."""
        return np.dtype(
            np.float32
            if self.tensor.is_floating_point() and self.tensor.element_size() <= 4
            else np.float64
        )

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        for a in range(0, len(self.tensor), rows):
            yield self.tensor[a : a + rows].cpu().double().numpy().astype(self.dtype, copy=False)

    def like(self, array: Any) -> Any:
        """An array of the host or of an engine as what came: a tensor on the same device, or an
        array of the library that shares memory with it. One that an engine made on a device does
        not pass through the host."""
        import torch

        tensor = getattr(array, "tensor", None)
        there = (torch.from_numpy(np.ascontiguousarray(array)) if tensor is None else tensor).to(
            self.tensor.device
        )
        made = getattr(
            __import__(type(self._source).__module__.partition(".")[0]), "from_dlpack", None
        )
        return there if isinstance(self._source, torch.Tensor) or made is None else made(there)


def rows_there(source: Any) -> DeviceRows | None:
    """Rows, or a matrix of them, that lie on a device; None for all others."""
    if on_device(source):
        return DeviceRows.of(source)
    rows = getattr(source, "values", None)
    return rows if isinstance(rows, DeviceRows) else None


def same_kind(source: Any, found: Any) -> Any:
    """An answer for each row, where the rows are: on the device that ``source`` (rows, or a matrix
    of them) lies on, else as it is."""
    rows = rows_there(source)
    return found if rows is None else rows.like(found)
