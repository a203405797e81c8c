"""Tables out: codes as Parquet, Arrow, CSV or NumPy files, block by block, under a temporary name until complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError

ENDINGS = (".parquet", ".arrow", ".csv", ".npy")


def write_table(path: Any, names: list[str], blocks: Iterator[tuple[np.ndarray, Any]], label: str = "row") -> int:
    """Write blocks of (values, row labels or None) with column names; returns the number of rows."""
    target = check_target(path)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    try:
        rows = _write_npy(name, blocks) if target.suffix.lower() == ".npy" else _write_arrow(name, target.suffix.lower(), names, blocks, label)
        os.replace(name, target)
        return rows
    except BaseException:
        os.unlink(name)
        raise


def check_target(path: Any) -> Path:
    """Refuse an ending or a folder that cannot be written, before any work is done."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        raise FileError(f"{target} ends in {target.suffix!r}, wanted one of {', '.join(ENDINGS)}")
    if not target.parent.is_dir():
        raise FileError(f"{target.parent} is not a folder; make it first")
    return target


def _write_npy(name: str, blocks: Iterator[tuple[np.ndarray, Any]]) -> int:
    parts = [values for values, _ in blocks]
    whole = np.concatenate(parts)
    with open(name, "wb") as out:
        np.save(out, whole)
    return len(whole)


def _write_arrow(name: str, ending: str, names: list[str], blocks: Iterator[tuple[np.ndarray, Any]], label: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    writer, rows = None, 0
    try:
        for values, labels in blocks:
            columns = [] if labels is None else [pa.array(list(labels))]
            columns += [pa.array(np.ascontiguousarray(values[:, j])) for j in range(values.shape[1])]
            table = pa.table(columns, names=([] if labels is None else [label]) + names)
            if writer is None:
                writer = (pq.ParquetWriter(name, table.schema) if ending == ".parquet" else csv.CSVWriter(name, table.schema)
                          if ending == ".csv" else pa.ipc.new_file(name, table.schema))
            writer.write_table(table)
            rows += len(values)
    finally:
        if writer is not None:
            writer.close()
    return rows
