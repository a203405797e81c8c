"""A Dask frame in long form, one observation a row, to parts of an Observed matrix.

Three passes over the partitions, all of them tasks that can run again: the ids of either side and
how often each occurs (merged on the way), the triples as positions, cut by ranges of rows, and the
ranges put together. Labels are those that the same table in memory would have, in the same order.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from eckart.clusters.client import client_of
from eckart.clusters.tasks import HeldFuture, computed
from eckart.engines.protocol.placed import Refused, first_refused
from eckart.errors import InputError
from eckart.index.entries import as_numbers, floating
from eckart.index.ids import WHOLE
from eckart.index.labels import Labels
from eckart.index.sides import Side, Sides
from eckart.io.dask.known import is_frame
from eckart.io.dask.parts import TaskParts, _at_part, checked, refusing, run
from eckart.matrix import Observed
from eckart.matrix_blocks import ObservedParts, even_cuts, of_parts
from eckart.merging import FAN, folded

ENTRY_BYTES = 12
"""An entry takes a column of 4 bytes and a value of 4 or 8."""
LEAST_BLOCK, MOST_BLOCK = 2**22, 2**26
"""Bytes of a block of rows: the partitions are followed in between, so that tasks are neither tiny
nor too large for a worker."""


def observed_frame(source: Any, long: Any) -> Observed:
    """``long`` (see ``io.tables.long_tables.Long``) names the columns."""
    from dask import delayed

    if not is_frame(source):
        raise InputError(
            f"rows={long.rows!r} needs a Dask frame with columns of these names, got a Dask "
            f"{type(source).__name__} (a bag of dicts has to_dataframe())"
        )
    names = list(source.columns)
    picked = [names[j] for j in long.picked(names, "the Dask frame")]
    parts = source[picked].to_delayed()
    later = {"pure": True, "traverse": False}
    sides: list[Any] = [
        delayed(refusing, **later)(_met, part, i, picked, i) for i, part in enumerate(parts)
    ]
    while len(sides) > 1:
        sides = [delayed(_fold, **later)(sides[i : i + FAN]) for i in range(0, len(sides), FAN)]
    met = checked(run(sides))[0]
    if met is None:
        raise InputError("the Dask frame must have at least one row, got none")
    found = met.sides
    total = int(found.rows.counts.sum())
    blocks = int(
        np.clip(
            len(parts),
            -(-total * ENTRY_BYTES // MOST_BLOCK),
            max(1, total * ENTRY_BYTES // LEAST_BLOCK),
        )
    )
    cuts = even_cuts(found.rows.counts, max(blocks, 1))

    labels = delayed((found.rows.labels, found.columns.labels), **later)
    split = [
        delayed(refusing, **later)(_split, part, i, picked, labels, cuts, i, found.dtype)
        for i, part in enumerate(parts)
    ]
    made = []
    for b in range(len(cuts) - 1):
        pieces = [delayed(_piece, **later)(each_, b) for each_ in split]
        made.append(
            delayed(_block, **later)(
                pieces, labels, int(cuts[b]), int(cuts[b + 1]), long.duplicates, long.values
            )
        )
    held = HeldFuture(client_of(), made)

    def check_all(_: str) -> list[Any]:
        return [
            delayed(_at_part, pure=False, traverse=False)(_entries, block, i)
            for i, block in enumerate(held.values)
        ]

    entries = checked(computed(client_of(), check_all, str))  # what was refused is said now
    lengths, nbytes = np.diff(cuts).tolist(), float(sum(entries)) * ENTRY_BYTES
    task_parts = TaskParts(
        "observed",
        lengths,
        len(found.columns.labels),
        found.dtype,
        held.values,
        made[0].key,
        entries,
        nbytes,
        held,
    )
    x = of_parts(task_parts, found.rows.labels, found.columns.labels)
    assert isinstance(x, ObservedParts)
    return x


class Met(NamedTuple):
    """The ids of some partitions, and of what kind those of either side are, with the place where
    that was first seen."""

    sides: Sides
    kinds: tuple[tuple[str, str, str], ...]


def _met(frame: Any, names: list[Any], number: int) -> Met | None:
    if not hasattr(frame, "columns"):
        raise InputError(
            f"the partition must be a frame with columns, got a {type(frame).__name__}"
        )
    if len(frame) == 0:
        return None
    absent = next((name for name in names if name not in frame.columns), None)
    if absent is not None:
        raise InputError(
            f"every partition must have the same columns, got none called {absent!r} in this one"
        )
    rows, columns = (Side.of(f"column {name!r}", frame[name], _place) for name in names[:2])
    kinds = tuple((f"column {name!r}", *_kind(_array(frame[name]), number)) for name in names[:2])
    own: Any = frame[names[2]].dtype if len(names) > 2 else None
    # what is not a number is named with its row when the values are taken
    return Met(
        Sides(
            rows,
            columns,
            floating(np.dtype(own.type if getattr(own, "kind", "O") in "fiub" else np.float64)),
        ),
        kinds,
    )


def _kind(ids: np.ndarray, number: int) -> tuple[str, str]:
    """What ids are, and where one can see it: a text among numbers makes texts of them."""
    if ids.dtype.kind != "O":
        return {"M": "dates", "m": "dates", "U": "text", "T": "text"}.get(
            ids.dtype.kind, "numbers"
        ), f"partition {number}"
    texts = [p for p, value in enumerate(ids) if isinstance(value, str)]
    if not texts:
        return "numbers" if all(
            isinstance(value, (int, np.integer)) for value in ids
        ) else "objects", f"partition {number}"
    telling = next(
        (p for p in texts if not WHOLE.fullmatch(ids[p])), texts[0]
    )  # Dask makes texts of all ids of a partition that has one
    return "text", f"{ids[telling]!r} at row {telling} of partition {number}"


def _fold(parts: list[Any]) -> Any:
    bad = first_refused(parts)
    known = [part for part in parts if part is not None]
    if bad or not known:
        return bad
    for side, (name, kind, where) in enumerate(known[0].kinds):
        other = next((part.kinds[side] for part in known if part.kinds[side][1] != kind), None)
        if other is not None:  # the text is named first: it is the one that was not meant
            both = sorted(((kind, where), other[1:]), key=lambda one: one[0] != "text")
            kinds_named = " and ".join(f"{kind} ({where})" for kind, where in both)
            return Refused(
                False, f"{name} must hold ids of one kind, got {kinds_named}. Convert one of them."
            )
    return Met(folded([part.sides for part in known]), known[0].kinds)


def _place(p: int) -> str:
    return f"row {p}"


def _split(
    frame: Any, names: list[Any], labels: Any, cuts: np.ndarray, number: int, dtype: np.dtype
) -> list[Any]:
    """Triples by ranges of rows: positions, values, and where each came from."""
    rows, columns = labels
    i = Labels(rows, len(rows), "row").find(_array(frame[names[0]]))
    j = Labels(columns, len(columns), "column").find(_array(frame[names[1]]))
    v = None
    if len(names) > 2:
        v = as_numbers(_array(frame[names[2]]), None, f"column {names[2]!r}", _place).astype(dtype)
        bad = np.flatnonzero(~np.isfinite(v))
        if len(bad):
            p = int(bad[0])
            raise InputError(
                f"column {names[2]!r} must hold finite numbers, got {v[p]} at row {p} (row id "
                f"{rows[i[p]]}, column id {columns[j[p]]}). Drop the observations that have none."
            )
    else:
        v = np.ones(len(i), dtype)
    to = np.searchsorted(cuts, i, side="right") - 1
    order = np.argsort(to, kind="stable")
    ends = np.searchsorted(to[order], np.arange(len(cuts)))
    return [
        (
            i[at].astype(np.int64),
            j[at].astype(np.int32 if len(columns) < 2**31 else np.int64),
            v[at],
            number,
            at,
        )
        for at in (order[a:b] for a, b in itertools.pairwise(ends))
    ]


def _array(column: Any) -> np.ndarray:
    return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def _piece(split: Any, block: int) -> Any:
    return split if isinstance(split, Refused) else split[block]


def _block(
    pieces: list[Any], labels: Any, first: int, last: int, duplicates: str, name: Any
) -> Any:
    bad = first_refused(pieces)
    if bad is not None:
        return bad
    starts = np.cumsum([0] + [len(piece[0]) for piece in pieces])

    def place(p: int) -> str:
        k = int(np.searchsorted(starts, p, side="right")) - 1
        return f"row {int(pieces[k][4][p - starts[k]])} of partition {pieces[k][3]}"

    i, j, v = (np.concatenate([piece[k] for piece in pieces]) for k in range(3))
    rows, columns = labels
    try:
        x = Observed.from_codes(
            i - first,
            j,
            v,
            (last - first, len(columns)),
            rows[first:last],
            columns,
            duplicates,
            None,
            place,
            f"column {name!r}",
        )
    except InputError as error:
        return Refused(False, str(error))
    return Observed(x.indptr, x.indices, x.data, x.n_columns)


def _entries(matrix: Observed) -> int:
    return matrix.nnz
