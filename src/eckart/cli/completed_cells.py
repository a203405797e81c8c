"""What eckart complete writes: which cells, how many at most, and how, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.id_files import pairs_in
from eckart.cli.reading import Reading
from eckart.cli.shell import OutputTargets
from eckart.errors import FileError, InputError, invalid
from eckart.io.tables.write import check_target, label_array, write_long, write_table
from eckart.loading import pa
from eckart.query.ids import parse_ids

UNASKED_CELLS = 50_000_000
"""Cells of triples that are written without being asked for by --cells."""
MOST_CELLS = 2_000_000_000
"""Cells that are written without --all-cells."""
BLOCK_BYTES = 2**23
"""Bytes of a block of predictions: memory stays small however large the table is."""


def check_output(
    source: Reading, out: Path | None, pairs: str | None, unknown: str, cells: str | None
) -> None:
    """Refuse what cannot be written before anything is read."""
    if unknown not in ("raise", "mean", "nan"):
        raise invalid("--unknown", unknown, "raise, mean or nan")
    if cells not in (None, "all", "unobserved"):
        raise invalid(
            "--cells", cells, "all or unobserved; cells of a file are asked for with --pairs"
        )
    for name, value in (("--pairs", pairs), ("--cells", cells)):
        if value is not None and out is None:
            raise InputError(f"{name} {value} needs --out, a file to write to")
        if value is not None and not source.long:
            raise InputError(
                f"{name} {value} needs --rows and --columns: a wide table is written whole"
            )
    if pairs is not None and cells is not None:
        raise InputError("give --pairs or --cells, not both")
    if pairs is not None:
        OutputTargets(out).check(pairs)
        if not Path(pairs).is_file():
            raise FileError(f"{pairs} does not exist or is not a file")
    if out is not None and source.long:
        check_target(out, long=True)


def check_cells(shape: tuple[int, int], cells: str | None, all_cells: bool) -> None:
    """Refuse to write a number of cells that nobody meant to ask for."""
    count = shape[0] * shape[1]
    if all_cells or count <= UNASKED_CELLS or (cells is not None and count <= MOST_CELLS):
        return
    ask = "--cells all" if count <= MOST_CELLS and cells is None else "--all-cells"
    raise InputError(
        f"--out would write {shape[0]:,} x {shape[1]:,} = {count:,} cells. Name the cells "
        "with --pairs FILE, keep the model with --model and use eckart recommend, or say "
        f"{ask} to write every one."
    )


def write_cells(
    model: Any,
    x: Any,
    source: Reading,
    out: Path,
    pairs: str | None,
    unknown: str,
    cells: str | None,
) -> int:
    if pairs is not None:
        return write_long(out, source.names, _asked(model, source, pairs, unknown))
    keep = getattr(model, "feedback", "explicit") == "explicit"
    if source.long:
        return write_long(out, source.names, _cells(model, x, keep, cells == "unobserved"))
    labelled = model.row_ids.labels is not None
    blocks = (
        (block, ids if labelled else None)
        for ids, block in model.complete(keep=keep, block_bytes=BLOCK_BYTES)
    )
    return write_table(
        out, [str(c) for c in model.get_feature_names_out()], blocks, source.names[0]
    )


def write_forecast(model: Any, source: Reading, out: Path, steps: int) -> int:
    """One line for each row and each of the next times: what is expected, its standard deviation,
    and the ends of the 90 % interval."""
    found = model.forecast(steps).to_table()
    names = [
        *(source.names[:2] if source.long else ("row", "column")),
        "mean",
        "std",
        "low",
        "high",
    ]
    labels = (label_array(found[side]) for side in ("row", "column"))
    return write_long(out, names, iter([(*labels, *(found[name] for name in names[2:]))]))


def _cells(model: Any, x: Any, keep: bool, unobserved: bool) -> Iterator[tuple[Any, ...]]:
    """Every cell (or every unobserved one) as blocks of row ids, column ids and values."""
    n, m = x.shape
    rows, columns = (
        label_array(model.row_ids.names(np.arange(n))),
        label_array(model.column_ids.names(np.arange(m))),
    )
    first = 0
    for _, block in model.complete(keep=keep, block_bytes=BLOCK_BYTES):
        count = len(block)
        wanted = np.ones(block.shape, bool)
        if unobserved:
            part = slice(x.indptr[first], x.indptr[first + count])
            wanted[
                np.repeat(np.arange(count), np.diff(x.indptr[first : first + count + 1])),
                x.indices[part],
            ] = False
        i, j = np.nonzero(wanted)
        yield rows.take(_positions(first + i)), columns.take(_positions(j)), block[wanted]
        first += count


def _asked(model: Any, source: Reading, pairs: str, unknown: str) -> Iterator[tuple[Any, ...]]:
    """The cells of a file of pairs, in its order."""
    for rows, columns in pairs_in(pairs, source):
        i, j = parse_ids(rows, model.row_ids), parse_ids(columns, model.column_ids)
        yield i, j, np.asarray(model.predict(i, j, unknown=unknown))


def _positions(at: np.ndarray) -> Any:
    return pa.array(at)
