"""Tables with columns of several kinds: from pandas, polars, Arrow, files and arrays to plain
cells, and back with gaps filled, in the types they came with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eckart.errors import InputError, InputTypeError
from eckart.io.tables.columns import head_of
from eckart.io.tables.csv_file import NULLS_IN_TEXT
from eckart.io.tables.frames import ARROW_FILES, arrow_pattern, is_arrow, is_frame
from eckart.io.tables.other_files import OTHER_TABLES
from eckart.loading import pa, pc


class Cells(NamedTuple):
    """A column as it came. ``kind`` is "number", "integer", "boolean", "category", "ordered" or
    "date"; ``values`` are numbers (dates in seconds, levels as codes), NaN where there is a gap;
    ``levels`` belong to codes; ``type_name`` is how the table calls its type, for messages."""

    name: str
    kind: str
    values: np.ndarray
    levels: tuple[Any, ...] = ()
    type_name: str = ""


class Picked(NamedTuple):
    """Values of a column of levels: which of ``levels`` each is."""

    levels: tuple[Any, ...]
    at: np.ndarray

    def among(self, levels: tuple[Any, ...]) -> np.ndarray:
        """The same as codes of a longer list of levels."""
        place = {level: code for code, level in enumerate(levels)}
        return np.array([place[level] for level in self.levels], np.int64)[self.at]

    def whole(self) -> np.ndarray:
        out = np.empty(len(self.levels), object)
        out[:] = self.levels
        return out[self.at]


@dataclass(frozen=True)
class MixedFrame:
    """A table and its columns as cells."""

    source: Any
    columns: list[Cells]

    @property
    def rows(self) -> int:
        return len(self.columns[0].values) if self.columns else 0

    @property
    def index(self) -> Any:
        return getattr(self.source, "index", None) if hasattr(self.source, "iloc") else None

    def gaps(self, name: str) -> np.ndarray:
        """The rows in which a column has a gap."""
        return np.flatnonzero(np.isnan(next(c.values for c in self.columns if c.name == name)))

    def filled(self, found: dict[str, np.ndarray | Picked]) -> Any:
        """The table with the gaps of these columns filled, in the order of their rows: numbers,
        dates in seconds, levels."""
        if isinstance(self.source, np.ndarray):
            whole = {
                name: values.whole() if isinstance(values, Picked) else values
                for name, values in found.items()
            }
            try:
                numbers = {name: np.asarray(values, np.float64) for name, values in whole.items()}
                kind: Any = self.source.dtype if self.source.dtype.kind == "f" else np.float64
            except ValueError:  # levels of a fit on a frame may be words
                numbers, kind = whole, object
            out = np.array(self.source, kind)
            for j, cells in enumerate(self.columns):
                if cells.name in numbers:
                    out[np.isnan(cells.values), j] = numbers[cells.name]
            return out
        fill = _into_pandas if hasattr(self.source, "iloc") else _into_arrow
        named = {c.name: c for c in self.columns}
        return fill(self.source, {name: (named[name], values) for name, values in found.items()})


def mixed_frame(
    source: Any,
    delimiter: str | None = None,
    header: bool | None = None,
    missing: tuple[str, ...] = (),
    marks: tuple[float, ...] = (),
    encoding: str | None = None,
) -> MixedFrame:
    """Read a table: a pandas, polars or Arrow table, a file that holds one, or a 2-D array of numbers.
    The words ``missing`` and the numbers ``marks`` of a file stand for gaps, empty cells always,
    and in a text file the words for them that other programs write (``NULLS_IN_TEXT``)."""
    if isinstance(source, (str, os.PathLike)):
        head = head_of(str(source), delimiter, header, missing, whole=True, encoding=encoding)
        if head is None:
            raise InputError(
                f"{source} must be a .csv, .tsv, .parquet, .arrow, .jsonl or .xlsx file that "
                "exists, got no table with columns"
            )
        typed = Path(arrow_pattern(os.fspath(source))).suffix.lower() in (
            *ARROW_FILES,
            *OTHER_TABLES,
        )  # there a gap is no word
        source = _blanks(head.rows, (*missing, *([""] if typed else NULLS_IN_TEXT)), marks)
    if is_arrow(source):
        table = source if isinstance(source, pa.Table) else pa.table(source)
        return _checked(
            MixedFrame(
                table,
                [_from_arrow(table.column(j), name) for j, name in enumerate(table.column_names)],
            )
        )
    if is_frame(source) and hasattr(source, "iloc"):
        return _checked(
            MixedFrame(source, [_from_pandas(column, name) for name, column in source.items()])
        )
    if is_frame(source) and hasattr(source, "to_arrow"):
        table = source.to_arrow()
        return _checked(
            MixedFrame(
                source,
                [_from_arrow(table.column(j), name) for j, name in enumerate(table.column_names)],
            )
        )
    try:
        array = np.asarray(source)
        if array.dtype.kind == "c":
            raise InputError(
                "Complex data not supported: X must hold real numbers, got complex ones"
            )
        array = array if array.dtype.kind == "f" else array.astype(np.float64)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(
            "X must be a data frame, an Arrow table, a file or numbers, got a "
            f"{type(source).__name__} that is not numeric ({error})"
        ) from None
    if array.ndim != 2:
        raise InputError(
            f"X must be a table, rows and columns, got {array.ndim} dimensions. Reshape your data."
        )
    return _checked(
        MixedFrame(
            array,
            [
                Cells(f"x{j}", "number", np.asarray(column, np.float64), (), str(array.dtype))
                for j, column in enumerate(array.T)
            ],
        )
    )


def _blanks(table: Any, missing: tuple[str, ...], marks: tuple[float, ...]) -> Any:
    """A table of a file with its marks as nulls."""
    for j, column in enumerate(table.columns):
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            hidden = pc.is_in(column, pa.array(missing, kind))
        elif marks and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            hidden = pc.is_in(column.cast(pa.float64(), safe=False), pa.array(marks, pa.float64()))
        else:
            continue
        table = table.set_column(
            j, table.schema.field(j), pc.if_else(hidden, pa.scalar(None, kind), column)
        )
    return table


def _checked(frame: MixedFrame) -> MixedFrame:
    """A table with something in it, whose columns have names that differ."""
    if not frame.columns or not frame.rows:
        n, m = frame.rows, len(frame.columns)
        raise InputError(
            f"X has {n} sample(s) and {m} feature(s) (shape=({n}, {m})) while a minimum "
            "of 1 is required."
        )
    names = [c.name for c in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"columns of X must have names that differ, got {twice!r} {names.count(twice)} "
            "times. Rename it."
        )
    for cells in frame.columns:
        if np.isinf(cells.values).any():
            raise InputError(
                f"column {cells.name!r} must hold finite numbers or gaps, got infinity at row "
                f"{int(np.argmax(np.isinf(cells.values)))}"
            )
    return frame


def _levels(name: str, found: list[Any], type_name: str) -> Cells:
    """A column of Python values: texts are categories, True and False are yes and no, numbers are
    numbers; None and NaN are gaps."""
    gap = np.array([v is None or v != v for v in found], bool)
    kinds = {
        bool
        if isinstance(v, (bool, np.bool_))
        else str
        if isinstance(v, str)
        else float
        if isinstance(v, (int, float, np.number))
        else type(v)
        for v, g in zip(found, gap)
        if not g
    }
    if kinds <= {bool} or kinds <= {float}:
        values = np.array([np.nan if g else float(v) for v, g in zip(found, gap)], np.float64)
        return Cells(name, "boolean" if kinds == {bool} else "number", values, (), type_name)
    if kinds != {str}:
        came = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputTypeError(
            f"column {name!r} must hold numbers, yes/no, texts, categories or dates, got values "
            f"of type {came}. Convert it."
        )
    levels = sorted({v for v, g in zip(found, gap) if not g})
    code = {level: float(i) for i, level in enumerate(levels)}
    return Cells(
        name,
        "category",
        np.array([np.nan if g else code[v] for v, g in zip(found, gap)]),
        tuple(levels),
        type_name,
    )


def _plain(level: Any) -> Any:
    return level.item() if isinstance(level, np.generic) else level


def _from_pandas(column: Any, name: Any) -> Cells:
    kind, name, type_name = column.dtype, str(name), str(column.dtype)
    if hasattr(kind, "categories"):
        codes = column.array.codes
        values = np.where(codes < 0, np.nan, codes)
        levels = [
            level if isinstance(level, (str, int, float)) else str(level)
            for level in map(_plain, kind.categories)
        ]  # intervals, say: of pd.cut
        return Cells(
            name, "ordered" if kind.ordered else "category", values, tuple(levels), type_name
        )
    letter = getattr(kind, "kind", "O")
    if letter == "c":
        raise InputError(
            f"Complex data not supported: column {name!r} must hold real numbers, got complex ones"
        )
    if letter in "Mm":
        plain = (
            column.dt.tz_convert("UTC").dt.tz_localize(None)
            if getattr(kind, "tz", None) is not None
            else column
        )
        return Cells(
            name, "date" if letter == "M" else "number", _seconds(plain.to_numpy()), (), type_name
        )
    if letter in "biuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return Cells(
            name, {"b": "boolean", "f": "number"}.get(letter, "integer"), values, (), type_name
        )
    import pandas as pd

    if (
        pd.api.types.infer_dtype(column, skipna=True) == "string"
    ):  # texts alone, the most usual column: without a loop over its cells
        codes, levels = pd.factorize(column, sort=True)
        return Cells(
            name,
            "category",
            np.where(codes < 0, np.nan, codes.astype(np.float64)),
            tuple(map(str, levels)),
            type_name,
        )
    return _levels(
        name, [None if gap else v for v, gap in zip(column.tolist(), column.isna())], type_name
    )


def _seconds(moments: np.ndarray) -> np.ndarray:
    unit = "M8[us]" if moments.dtype.kind == "M" else "m8[us]"
    whole = moments.astype(unit)
    return np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e6)


def _from_arrow(column: Any, name: str) -> Cells:
    t, kind = pa.types, column.type
    type_name = str(kind)
    if t.is_dictionary(kind):
        whole = (
            column.unify_dictionaries().combine_chunks()
            if hasattr(column, "unify_dictionaries")
            else column
        )
        whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
        codes = whole.indices.to_numpy(zero_copy_only=False).astype(np.float64)
        return Cells(
            name,
            "ordered" if kind.ordered else "category",
            codes,
            tuple(whole.dictionary.to_pylist()),
            type_name,
        )
    if t.is_boolean(kind):
        return Cells(
            name, "boolean", column.cast(pa.float64()).to_numpy().astype(np.float64), (), type_name
        )
    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        return Cells(name, "integer" if t.is_integer(kind) else "number", values, (), type_name)
    if t.is_timestamp(kind) or t.is_date(kind):
        return Cells(
            name,
            "date",
            _seconds(column.cast(pa.timestamp("us"), safe=False).to_numpy().astype("M8[us]")),
            (),
            type_name,
        )
    if t.is_null(kind):
        return Cells(name, "number", np.full(len(column), np.nan), (), type_name)
    if t.is_string(kind) or t.is_large_string(kind) or kind == pa.string_view():
        coded = column.cast(pa.string()).dictionary_encode().combine_chunks()
        coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
        levels = coded.dictionary.to_pylist()
        order = np.argsort(np.array(levels, object)) if levels else np.array([], int)
        place = np.append(np.argsort(order).astype(np.float64), np.nan)
        at = coded.indices.to_numpy(zero_copy_only=False).astype(np.float64)
        return Cells(
            name,
            "category",
            place[np.where(np.isnan(at), -1, at).astype(int)],
            tuple(levels[i] for i in order),
            type_name,
        )
    raise InputTypeError(
        f"column {name!r} must hold numbers, yes/no, texts, categories or dates, got "
        f"{kind}. Convert it."
    )


def _answers(cells: Cells, found: np.ndarray | Picked) -> list[Any]:
    """Values for the gaps of a column as Python values."""
    chosen = found.whole() if isinstance(found, Picked) else found
    if cells.kind == "boolean":
        return [bool(v) for v in chosen]
    if isinstance(found, Picked):
        return [_plain(v) for v in chosen]
    if cells.kind == "integer":
        return [round(float(v)) for v in chosen]
    return [float(v) for v in chosen] if cells.kind == "number" else [_plain(v) for v in chosen]


def _into_pandas(frame: Any, found: dict[str, tuple[Cells, np.ndarray | Picked]]) -> Any:
    import pandas as pd

    out = frame.copy()
    for j, (name, column) in enumerate(frame.items()):
        cells, values = found.get(str(name), (None, None))
        if cells is None or values is None:
            continue
        gap, kind = np.isnan(cells.values), column.dtype
        # a column of gaps has no type of its own
        if gap.all() and kind in (np.dtype(object), np.dtype(np.float64)):
            micro = cells.kind == "date" and np.round(np.asarray(values, np.float64) * 1e6).astype(
                "M8[us]"
            )
            out.isetitem(
                j, pd.Series(micro if cells.kind == "date" else _answers(cells, values)).array
            )
            continue
        if hasattr(kind, "categories") and isinstance(values, Picked):
            codes = np.where(gap, 0, cells.values).astype(np.int64)
            codes[gap] = values.among(cells.levels)
            out.isetitem(j, pd.Categorical.from_codes(codes, dtype=kind))
            continue
        if cells.kind == "number" and kind == np.float64:  # the most usual column, whole
            whole = cells.values.copy()
            whole[gap] = values.whole() if isinstance(values, Picked) else values
            out.isetitem(j, whole)
            continue
        new: Any = column.array.copy()
        if cells.kind == "date" or getattr(kind, "kind", "O") == "m":
            micro = np.round(np.asarray(values, np.float64) * 1e6).astype(np.int64)
            answers = pd.Series(micro.astype("M8[us]" if cells.kind == "date" else "m8[us]"))
            if getattr(kind, "tz", None) is not None:
                answers = answers.dt.tz_localize("UTC").dt.tz_convert(kind.tz)
            new[gap] = answers.astype(kind).array
        elif cells.kind == "boolean" and isinstance(values, Picked) and kind == "boolean":
            new[gap] = values.at == 1
        elif isinstance(values, Picked) and cells.kind not in ("number", "integer"):
            new[gap] = np.array(_answers(cells, values), object)
        elif isinstance(kind, np.dtype):
            new[gap] = np.array(_answers(cells, values), kind)
        else:
            new[gap] = pd.array(_answers(cells, values), dtype=kind)
        out.isetitem(j, new)
    return out


def _into_arrow(source: Any, found: dict[str, tuple[Cells, np.ndarray | Picked]]) -> Any:
    polars = hasattr(source, "to_arrow")
    table = source.to_arrow() if polars else source
    for j, name in enumerate(table.column_names):
        cells, values = found.get(name, (None, None))
        if cells is None or values is None:
            continue
        kind = table.column(j).type
        gap = np.isnan(cells.values)
        if pa.types.is_null(kind):  # a column of gaps has no type of its own
            micro = cells.kind == "date" and np.round(np.asarray(values, np.float64) * 1e6).astype(
                "M8[us]"
            )
            table = table.set_column(
                j, name, pa.array(micro if cells.kind == "date" else _answers(cells, values))
            )
            continue
        if cells.kind == "date":
            micro = np.zeros(len(gap), np.int64)
            micro[gap] = np.round(np.asarray(values, np.float64) * 1e6)
            whole = pa.array(micro.astype("M8[us]"), pa.timestamp("us"))
            whole = whole.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(
                kind, safe=False
            )
        elif pa.types.is_dictionary(kind):
            code = {level: i for i, level in enumerate(cells.levels)}
            old = table.column(j).unify_dictionaries().combine_chunks()
            old = old.chunk(0) if isinstance(old, pa.ChunkedArray) else old
            codes = np.where(gap, -1, np.nan_to_num(cells.values)).astype(np.int64)
            codes[gap] = [code[v] for v in _answers(cells, values)]
            new = pa.DictionaryArray.from_arrays(
                pa.array(codes).cast(old.indices.type), old.dictionary, ordered=kind.ordered
            )
            table = table.set_column(j, table.schema.field(j), new)
            continue
        else:
            whole = np.empty(len(gap), object)
            whole[gap] = _answers(cells, values)
            whole = pa.array(whole.tolist()).cast(kind, safe=False)
        new = pc.if_else(pa.array(gap), whole, table.column(j))
        table = table.set_column(j, table.schema.field(j), new)
    if not polars:
        return table
    import polars as pl

    kinds = {name: kind for name, kind in source.schema.items() if kind != pl.Null}
    return pl.from_arrow(table).cast(kinds)  # type: ignore[union-attr, arg-type]
