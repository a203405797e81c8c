"""Attributes of rows or columns, keyed by id: a frame with an id and any other columns becomes one
row of numbers for each id.

The kind of a column decides how it is written, and a vector of zeros always means "nothing is
known":

    numbers, dates       (x - mean) / standard deviation; a gap is 0, the mean
    flags                booleans, and numbers that are only 0 and 1: x - share of ones; a gap is 0
    categories, text     1 at the level; a level that was not met when the encoding was made, or
    only once, has no place and is 0 everywhere
    lists of texts       1 at every level that is listed, as for categories

``groups`` say which of these numbers belong together: all numbers, all flags, and every category or
list by itself.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eckart.errors import FileError, InputError, InputTypeError, invalid
from eckart.index.labels import Labels, first_null, shown, tidy
from eckart.io.tables.columns import head_of
from eckart.io.tables.frames import is_arrow, is_frame
from eckart.loading import pa

MOST_LEVELS = 1000
"""Levels of one column that are distinguished, the most frequent ones: products with the square of
their number are solved in every sweep."""
LEAST_ROWS = 2
"""Rows from which a level is distinguished: what one row alone has says nothing that the row's own
entries do not say better."""
KINDS = ("number", "flag", "category", "several")


class Attributes(NamedTuple):
    """Ids and their table (Arrow, without the column of ids)."""

    ids: np.ndarray
    table: Any


@dataclass(frozen=True)
class AttributeColumn:
    """How one column is written: ``kind`` is one of KINDS; mean and deviation of numbers (share of
    ones of flags), levels of categories and lists."""

    name: str
    kind: str
    mean: float = 0.0
    deviation: float = 1.0
    levels: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return len(self.levels) if self.kind in ("category", "several") else 1

    def encode(self, cells: Any, where: str) -> np.ndarray:
        """rows x width."""
        if self.kind in ("number", "flag"):
            x = (_numbers(cells, self.name, where) - self.mean) / self.deviation
            return np.where(np.isnan(x), 0.0, x)[:, None]
        out = np.zeros((len(cells), self.width))
        at = {level: c for c, level in enumerate(self.levels)}
        for i, listed in enumerate(_levels(cells, self.kind)):
            for level in listed:
                if level in at:
                    out[i, at[level]] = 1.0
        return out

    def names(self) -> list[str]:
        """A name for each number."""
        return [f"{self.name}={level}" for level in self.levels] if self.levels else [self.name]


@dataclass(frozen=True)
class Encoding:
    """How the attributes of one side are written; ``key`` is the name of the column of ids (None:
    the frame's index).

    >>> table = {"id": [1, 2, 3, 4], "age": [20, 30, None, 40], "job": ["nurse", "clerk", "clerk", "nurse"]}
    >>> encoding, attributes = Encoding.of(table, "id", "row_features")
    >>> encoding.names(), encoding.encode(attributes, "row_features").round(2).tolist()[:2]
    (['age', 'job=clerk', 'job=nurse'], [[-1.22, 0.0, 1.0], [0.0, 1.0, 0.0]])
    """

    key: str | None
    columns: tuple[AttributeColumn, ...]

    @classmethod
    def of(cls, source: Any, key: Any, where: str) -> tuple[Encoding, Attributes]:
        """The encoding that a frame asks for, and the frame as ids and a table; ``where`` is the
        name of the argument."""
        found, key = attributes(source, key, where)
        columns = tuple(
            _column(found.table.column(j), str(name), where)
            for j, name in enumerate(found.table.column_names)
        )
        columns = tuple(c for c in columns if c.width and c.deviation > 0)
        if not columns:
            raise InputError(
                f"{where} must have a column, beside the ids, that differs between ids, got none"
            )
        return cls(key, columns), found

    def encode(self, found: Attributes, where: str) -> np.ndarray:
        """ids x width; a frame that lacks a column of the encoding is refused."""
        names = found.table.column_names
        absent = [c.name for c in self.columns if c.name not in names]
        if absent:
            raise InputError(
                f"{where} must have the columns of the fit ({self._said()}), got none called "
                f"{absent[0]!r}"
            )
        return np.hstack(
            [c.encode(found.table.column(names.index(c.name)), where) for c in self.columns]
        )

    def read(self, source: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids and numbers of another frame of the same kind."""
        found, _ = attributes(source, self.key, where)
        return found.ids, self.encode(found, where)

    @cached_property
    def groups(self) -> np.ndarray:
        """To which group each number belongs."""
        of, seen = [], dict[str, int]()
        for c in self.columns:
            label = c.kind if c.kind in ("number", "flag") else f"{c.kind} {c.name}"
            of += [seen.setdefault(label, len(seen))] * c.width
        return np.array(of, np.intp)

    @property
    def width(self) -> int:
        """Numbers for an id."""
        return sum(c.width for c in self.columns)

    def names(self) -> list[str]:
        """A name for each number."""
        return [name for c in self.columns for name in c.names()]

    def _said(self) -> str:
        return ", ".join(c.name for c in self.columns[:8]) + (
            " ..." if len(self.columns) > 8 else ""
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a model file."""
        return {
            "key": self.key,
            "columns": [asdict(c) | {"levels": list(c.levels)} for c in self.columns],
        }

    @classmethod
    def from_dict(cls, values: Any) -> Encoding:
        """The inverse; a file may hold anything, and what is no encoding is refused."""
        try:
            key, columns = (
                values["key"],
                [
                    AttributeColumn(**(c | {"levels": tuple(c["levels"])}))
                    for c in values["columns"]
                ],
            )
        except (TypeError, KeyError, AttributeError):
            raise FileError(
                f"an encoding must have a key and columns, got {str(values)[:60]!r}"
            ) from None
        good = isinstance(key, (str, type(None))) and bool(columns)
        for c in columns:
            texts = (
                isinstance(c.name, str)
                and c.kind in KINDS
                and all(isinstance(level, str) for level in c.levels)
            )
            numbers = all(
                isinstance(v, (int, float)) and not isinstance(v, bool) and np.isfinite(v)
                for v in (c.mean, c.deviation)
            )
            distinct = len(set(c.levels)) == len(c.levels) <= MOST_LEVELS
            good &= (
                texts
                and numbers
                and distinct
                and c.deviation > 0
                and bool(c.levels) == (c.kind in KINDS[2:])
            )
        if not good:
            raise FileError(
                "an encoding must have columns with kinds, levels and numbers "
                "as one has that was fitted"
            )
        return cls(key, tuple(columns))


def attributes(source: Any, key: Any, where: str) -> tuple[Attributes, str | None]:
    """A frame (pandas, polars, Arrow, a mapping of columns, a file, or any of them with the name of
    its column of ids as a pair) as ids and table.

    Ids are the column ``key`` where the frame has it, else the index of a pandas frame.
    """
    asked = False
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], str):
        (source, key), asked = source, True
    table, index = table_of(source, where)
    key = None if key is None else str(key)
    if key is not None and key in table.column_names:
        ids = _ids(table.column(key))
        table = table.drop_columns([key])
    elif index is not None and not asked:
        key, ids = None, index
    else:
        wanted = "a column of ids" if key is None else f"the column of ids {key!r}"
        raise InputError(
            f"{where} must have {wanted}, got the columns "
            f"{', '.join(map(str, table.column_names[:8]))}. Write {where}=(frame, 'name of its "
            "column of ids')."
        )
    ids = tidy(ids)
    if (null := first_null(ids)) is not None:
        raise InputError(
            f"{where} must have an id in every row, got none in row {null}. Drop what has none."
        )
    if (repeats := Labels(ids, len(ids)).repeats) is not None:
        raise InputError(
            f"{where} must have one row for each id, got {shown(ids[int(repeats.argmax())])} "
            "more than once"
        )
    if not len(ids) or not table.num_columns:
        raise InputError(
            f"{where} must have at least one row and one column beside the ids, got {len(ids)} "
            f"and {table.num_columns}"
        )
    return Attributes(ids, table), key


def table_of(source: Any, where: str) -> tuple[Any, np.ndarray | None]:
    """An Arrow table and the index of a pandas frame."""
    try:
        if isinstance(source, (str, os.PathLike)):
            head = head_of(os.fspath(source), whole=True)
            if head is None:
                raise InputError(
                    f"{where} must be a table: a CSV, Parquet, Arrow, JSON lines or Excel file that "
                    f"exists, got {os.fspath(source)!r}"
                )
            return head.rows, None
        if is_arrow(source):
            return source if isinstance(source, pa.Table) else pa.Table.from_batches([source]), None
        if is_frame(source) and hasattr(source, "iloc"):
            names = [str(name) for name in source.columns]
            return pa.table(
                [pa.array(source.iloc[:, j], from_pandas=True) for j in range(len(names))], names
            ), np.asarray(source.index)
        if hasattr(source, "to_arrow"):
            return source.to_arrow(), None
        if isinstance(source, dict):
            return pa.table(
                {str(name): pa.array(list(cells)) for name, cells in source.items()}
            ), None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{where} has a column of several kinds ({' '.join(str(error).split())}); "
            "make it numbers or text"
        ) from None
    raise InputTypeError(
        f"{where} must be a frame (pandas, polars, Arrow), a mapping of columns or a file, "
        f"got a {type(source).__name__}"
    )


def _ids(cells: Any) -> np.ndarray:
    """Ids as an array; integers stay integers, also with dictionary types."""
    kind = cells.type
    if pa.types.is_integer(kind) and not cells.null_count:
        return np.asarray(cells.to_numpy())
    out = np.empty(len(cells), object)
    out[:] = cells.to_pylist()
    return out


def _column(cells: Any, name: str, where: str) -> AttributeColumn:
    """How a column of the frame of the fit is written."""
    t, kind = pa.types, cells.type
    numeric = any(
        test(kind) for test in (t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_null)
    ) or (t.is_temporal(kind) and not t.is_interval(kind))
    if numeric:
        x = _numbers(cells, name, where)
        seen = x[~np.isnan(x)]
        if not len(seen):
            return AttributeColumn(name, "number", deviation=0.0)
        mean, deviation = float(seen.mean()), float(seen.std())
        flag = t.is_boolean(kind) or bool(np.isin(seen, (0.0, 1.0)).all())
        if deviation <= 1e-12 * max(1.0, abs(mean)):
            return AttributeColumn(name, "number", mean, 0.0)
        return (
            AttributeColumn(name, "flag", mean)
            if flag
            else AttributeColumn(name, "number", mean, deviation)
        )
    listed = "several" if t.is_list(kind) or t.is_large_list(kind) else "category"
    inner = kind.value_type if listed == "several" or t.is_dictionary(kind) else kind
    if t.is_nested(inner) or t.is_binary(inner):
        raise InputError(
            f"column {name!r} of {where} must hold numbers, booleans, dates, text, categories "
            f"or lists of texts, got {kind}"
        )
    counts: dict[str, int] = {}
    for levels in _levels(cells, listed):
        for level in levels:
            counts[level] = counts.get(level, 0) + 1
    often = sorted(
        (level for level, n in counts.items() if n >= LEAST_ROWS),
        key=lambda level: (-counts[level], level),
    )
    return AttributeColumn(name, listed, levels=tuple(sorted(often[:MOST_LEVELS])))


def _numbers(cells: Any, name: str, where: str) -> np.ndarray:
    """A column of numbers, flags or times as float64; a gap is NaN. Times are seconds."""
    t, kind = pa.types, cells.type
    try:
        if t.is_dictionary(kind):
            cells, kind = cells.cast(kind.value_type), kind.value_type
        if t.is_date(kind) or t.is_timestamp(kind):
            cells = cells.cast(pa.timestamp("us", tz=getattr(kind, "tz", None))).cast(pa.int64())
        elif t.is_temporal(kind):
            cells = cells.cast(
                pa.int64() if t.is_duration(kind) or t.is_time64(kind) else pa.int32()
            )
        x = np.asarray(cells.cast(pa.float64(), safe=False).to_numpy())
    except (pa.ArrowException, ValueError):
        raise InputError(
            f"column {name!r} of {where} must hold numbers as at the fit, got {kind}"
        ) from None
    if np.isinf(x).any():
        raise InputError(
            f"column {name!r} of {where} must hold finite numbers, got {x[np.isinf(x)][0]} in "
            f"row {int(np.isinf(x).argmax())}"
        )
    return x


def _levels(cells: Any, kind: str) -> list[list[str]]:
    """The levels of every row, as texts; none at a gap."""
    if kind == "several":
        return [
            [_text(level) for level in (listed or []) if level is not None]
            for listed in cells.to_pylist()
        ]
    return [[] if level is None else [_text(level)] for level in cells.to_pylist()]


def _text(level: Any) -> str:
    """A level as text: 3 and 3.0 are one."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def joined(
    ids: np.ndarray, numbers: np.ndarray, labels: Labels, where: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers for every label (zeros where the frame lacks it), which labels it lacks, and the
    positions in the frame of ids beyond the labels."""
    at = labels.find(ids)
    out = np.zeros((labels.size, numbers.shape[1]))
    out[at[at >= 0]] = numbers[at >= 0]
    lacking = np.ones(labels.size, bool)
    lacking[at[at >= 0]] = False
    if lacking.all() and labels.size:
        some = ", ".join(shown(name) for name in labels.names(np.arange(min(3, labels.size))))
        raise invalid(
            where,
            f"ids such as {shown(ids[0])}",
            f"those of the data, such as {some}",
            "name the column of ids: (frame, 'name')",
        )
    return out, lacking, np.flatnonzero(at < 0)
