"""Tables out: codes as Parquet, Arrow, CSV or NumPy files, block by block, under a temporary name until complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.io.save import check_place, replacing

ENDINGS = (".parquet", ".arrow", ".csv", ".npy")


def write_table(path: Any, names: list[str], blocks: Iterator[tuple[np.ndarray, Any]], label: str = "row") -> int:
    """Write blocks of (values, row labels or None) with column names; returns the number of rows."""
    target = check_target(path)
    ending = target.suffix.lower()
    with replacing(target) as name:
        return _write_npy(name, blocks) if ending == ".npy" else _write_arrow(name, ending, names, blocks, label)


def check_target(path: Any) -> Path:
    """Refuse an ending or a folder that cannot be written, before any work is done."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        raise FileError(f"{target} ends in {target.suffix!r}, wanted one of {', '.join(ENDINGS)}")
    return check_place(target)


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

    writer, rows, kind = None, 0, None
    try:
        for values, labels in blocks:
            columns = [] if labels is None else [_label_column(labels, None if writer is None else kind, label)]
            kind = columns[0].type if columns else None
            columns += [pa.array(np.ascontiguousarray(values[:, j])) for j in range(values.shape[1])]
            table = pa.table(columns, names=([] if labels is None else [label]) + names)
            if writer is None:
                writer = (
                    pq.ParquetWriter(name, table.schema)
                    if ending == ".parquet"
                    else csv.CSVWriter(name, table.schema)
                    if ending == ".csv"
                    else pa.ipc.new_file(name, table.schema)
                )
            writer.write_table(table)
            rows += len(values)
    finally:
        if writer is not None:
            writer.close()
    return rows


def _label_column(labels: Any, kind: Any, name: str) -> Any:
    """Row labels of one kind: that of the first block, text where they are mixed."""
    import pyarrow as pa

    values = [v.item() if isinstance(v, np.generic) else v for v in labels]
    try:
        return pa.array(values, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        if kind is None or pa.types.is_string(kind):
            return pa.array([None if v is None else str(v) for v in values], pa.string())
        odd = next((v for v in values if not _fits(v, kind)), values[0])
        raise FileError(
            f"label {odd!r} of {name!r} came after labels of type {kind}, wanted labels of one kind"
        ) from None


def _fits(value: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True
