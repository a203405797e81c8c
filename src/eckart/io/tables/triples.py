"""Reading for completion: whatever holds observations becomes ``Observed``, in which an absent
entry is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.errors import InputError
from eckart.index.compress import index_dtype
from eckart.index.labels import shown
from eckart.io.dask.known import is_collection
from eckart.io.read import holds_blocks, read
from eckart.io.tables.frames import is_frame
from eckart.matrix import Counts, Dense, Matrix, Observed, row_parts
from eckart.matrix_blocks import parts_of

BLOCK_ENTRIES = 2**23
"""Entries of a file of dense rows that are looked at at a time."""


@held
def observed(
    source: Any,
    sql: str | None = None,
    *,
    rows: Any = None,
    columns: Any = None,
    values: Any = None,
    duplicates: str = "error",
    index: str | None = None,
    key: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    missing: Any = (),
    memory: Any = None,
    encoding: str | None = None,
) -> Observed:
    """The observed entries of a source, with its row and column labels.

    A table in long form when ``rows=`` and ``columns=`` are given; otherwise NaN and masked entries
    of an array or a frame are unknown, and the stored entries of a sparse matrix are the
    observations, zeros included. Row blocks and files larger than memory are taken block by block.
    A pandas index or column names that only count 0, 1, 2 ... are no labels.

    Parameters
    ----------
    source, sql, rows, columns, values, duplicates, index, key : as in ``eckart.read``.
    delimiter, decimal, header, missing, memory, encoding : as in ``eckart.read``.

    Returns
    -------
    Observed, with at least one entry, all finite.

    >>> x = observed([[1.0, np.nan], [0.0, 3.0]])
    >>> x.shape, x.nnz
    ((2, 2), 3)
    >>> observed([("ann", "Alien", 5.0), ("bob", "Brazil", 3.0)], rows=0, columns=1, values=2).row_of("bob")
    1
    """
    if rows is not None or values is not None or duplicates != "error":
        matrix: Matrix = read(
            source,
            sql,
            rows=rows,
            columns=columns,
            values=values,
            duplicates=duplicates,
            index=index,
            key=key,
            delimiter=delimiter,
            decimal=decimal,
            header=header,
            missing=missing,
            memory=memory,
            encoding=encoding,
        )
        assert isinstance(matrix, Observed)
        return matrix
    names = {"columns": columns, "index": index}
    if sql is None and not is_collection(source) and holds_blocks(source):
        out = _joined(_each(source, names))
    else:
        how = {
            "sql": sql,
            "key": key,
            "delimiter": delimiter,
            "decimal": decimal,
            "header": header,
            "missing": missing,
            "encoding": encoding,
        }
        out = _one(source, {**names, **how})
    _check_finite(out)
    if parts_of(out) is None and out.nnz == 0:
        raise InputError(
            f"X must have at least one observed entry among {out.shape[0]} rows and "
            f"{out.shape[1]} columns, got none"
        )
    return out


def _one(source: Any, ask: dict[str, Any]) -> Observed:
    """One array, table, file or matrix."""
    matrix = read(source, absent="unknown", **ask)
    if isinstance(matrix, Counts):
        raise InputError(
            "X must be a matrix in which an absent entry is unknown, got Counts, in which it "
            "is zero. Pass the sparse matrix itself, or say eckart.read(X, absent='unknown')."
        )
    if is_frame(source) and not is_collection(source):
        matrix = replace(
            matrix,
            rows=None
            if ask.get("index") is None and _counts(getattr(source, "index", None))
            else matrix.rows,
            columns=None
            if _counts(source.columns) and ask.get("columns") is None
            else matrix.columns,
        )
    if isinstance(matrix, Observed):
        return matrix
    if hasattr(matrix.values, "with_gaps"):
        return matrix.values.with_gaps(matrix.rows, matrix.columns)
    if matrix.in_memory and not isinstance(matrix.values, np.memmap):
        return Observed.from_nan(matrix.array, matrix.rows, matrix.columns)
    parts = row_parts(matrix, max(1, BLOCK_ENTRIES // matrix.shape[1]))
    return _joined(
        Observed.from_nan(p.array, p.rows, p.columns) for p in parts if isinstance(p, Dense)
    )


def _each(source: Iterable[Any], ask: dict[str, Any]) -> Iterator[Observed]:
    """Row blocks one by one; an error says with which row its block starts."""
    seen = 0
    for block in source:
        if len(getattr(block, "shape", ())) == 2 and block.shape[0] == 0:
            continue
        try:
            part = _one(block, ask)
        except InputError as error:
            raise type(error)(
                f"the block that starts at row {seen} cannot be used: {error}"
            ) from None
        yield part
        seen += part.shape[0]


def _joined(parts: Iterator[Observed]) -> Observed:
    """Parts of the same columns, one below the other."""
    first: Observed | None = None
    counts, indices, data, labels = [], [], [], []
    seen = 0
    for part in parts:
        first = part if first is None else first
        if part.n_columns != first.n_columns:
            raise InputError(
                f"X must have {first.n_columns} columns in every block, got {part.n_columns} in the "
                f"block that starts at row {seen}"
            )
        if (part.columns is None) != (first.columns is None) or (
            part.columns is not None and list(part.columns) != list(first.columns)  # type: ignore[arg-type]
        ):
            raise InputError(
                "X must have the same column names in the same order in every block, got others in "
                f"the block that starts at row {seen}"
            )
        counts.append(part.row_counts())
        indices.append(part.indices.astype(index_dtype(part.n_columns), copy=False))
        data.append(part.data)
        labels.append(part.rows)
        seen += part.shape[0]
    if first is None:
        raise InputError("X must yield at least one block of rows, got none")
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)])
    rows = (
        np.concatenate([x for x in labels if x is not None])
        if all(x is not None for x in labels)
        else None
    )
    return Observed(
        indptr, np.concatenate(indices), np.concatenate(data), first.n_columns, rows, first.columns
    )


def _check_finite(x: Observed) -> None:
    """Refuse a stored infinity or NaN by its row and column; those of parts are refused where each
    is placed."""
    if parts_of(x) is not None:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if (
            np.isfinite(x.data.sum()) or np.isfinite(x.data).all()
        ):  # a sum is quicker, and finite where nothing is bad, unless it overflows
            return
    p = int((~np.isfinite(x.data)).argmax())
    i = int(np.searchsorted(x.indptr, p, side="right")) - 1
    row, column = (
        shown(labels.names([k])[0])
        for labels, k in ((x.row_index, i), (x.column_index, x.indices[p]))
    )
    raise InputError(
        f"X must hold finite numbers, got {x.data[p]} at row {row}, column {column}. Drop "
        "it or mark it unknown with NaN."
    )


def _counts(labels: Any) -> bool:
    """Whether labels are what pandas gives by default: 0, 1, 2 ..."""
    return type(labels).__name__ == "RangeIndex" and labels.start == 0 and labels.step == 1
