"""Bodies in and out: JSON, and Arrow streams."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from eckart.io.tables.write import label_array
from eckart.loading import pa, pc
from eckart.query.requests import VERBS, parse
from eckart.serve.arrow import read_table
from eckart.serve.problems import Problem

JSON = "application/json"
EXAMPLE = 'an object such as {"rows": [42], "n": 10}'
ARROW = "application/vnd.apache.arrow.stream"
MANY = 500
"""Numbers of a column above which Arrow writes them; below, asking it takes longer than writing."""


MOST_VALUES = 2_000_000
"""Values of a JSON body: each number is an object of 32 bytes. Larger tables come as Arrow."""
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Texts of a JSON body, whose brackets open nothing. It matches wherever it begins, so that a text
without an end is looked through once, not once for each quotation mark in it."""


def read_request(
    verb: str, kind: str, body: bytes, query: Mapping[str, str], completes: bool, limits: Any
) -> Any:
    """A checked request out of a body. An Arrow stream carries X or columns of ids; other fields
    stand in the query."""
    if kind == JSON:
        if query:
            raise Problem(
                422,
                f"parameters must be in the JSON body, got {next(iter(query))[:80]!r} in the address",
            )
        _count(body, limits.rows)
        return parse(verb, _object(body))
    if kind != ARROW:
        raise Problem(415, f"content-type must be {JSON} or {ARROW}, got {kind[:80]!r}")
    given = {name: _scalar(text) for name, text in query.items()}
    table = read_table(body, limits.rows, limits.cells)
    if len(set(table.column_names)) < table.num_columns:
        raise Problem(422, "columns of a table must have names that differ, got one twice")
    if table.num_rows == 0:
        raise Problem(422, "a table must have at least one row, got none")
    names = table.column_names
    if set(names) <= {f.name for f in fields(VERBS[verb])} - {"X"}:
        return parse(verb, given | {name: _ids(table, name) for name in names})
    if completes and sorted(names) == ["column", "row", "value"]:
        x = {f"{name}s": _ids(table, name) for name in names}
        return parse(verb, given | {"X": x})
    return parse(verb, given, table)


def written(accept: str, about: dict[str, Any], columns: dict[str, Any]) -> tuple[str, bytes]:
    """The media type and the bytes of an answer, as the caller accepts it."""
    if ARROW in accept:
        return ARROW, _stream(about, columns)
    if accept and not any(word in accept for word in (JSON, "*/*", "application/*")):
        raise Problem(406, f"accept must be {JSON} or {ARROW}, got {accept[:80]!r}")
    if all(len(values) <= MANY for values in columns.values()):
        return JSON, to_json(
            about | {"answer": {name: _listed(values) for name, values in columns.items()}}
        )
    columns_text = ",".join(f"{_quoted(name)}:{_text(values)}" for name, values in columns.items())
    return JSON, b"".join(
        (to_json(about)[:-1], b',"answer":{', columns_text.encode("utf-8", "replace"), b"}}")
    )


def to_json(value: Any) -> bytes:
    return _quoted(value).encode("utf-8", "replace")


def _object(body: bytes) -> dict[str, Any]:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON number")

    try:
        value = json.loads(body.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Problem(
            400,
            f"a body must be JSON such as {EXAMPLE}, got something else "
            f"({' '.join(str(error).split())[:120]})",
        ) from None
    if not isinstance(value, dict):
        raise Problem(400, f"a JSON body must be {EXAMPLE}, got a {type(value).__name__}")
    return value


def _count(body: bytes, rows: int) -> None:
    """Refuse lists, objects and texts in numbers that no request has, before a Python object is
    made of each."""
    texts = 2 * (8 * rows + 64)
    for mark, most, what in (
        (b'"', texts, "quotation marks"),
        (b"[", rows + 16, "lists"),
        (b"{", 8, "objects"),
        (b",", MOST_VALUES, "values"),
    ):
        found = body.count(mark)
        if found > most and mark != b'"':
            found = STRINGS.sub(b"", body).count(mark)
        if found > most and mark == b"{":
            raise Problem(422, f"a request must have at most {most} {what}, got {found:,}")
        if found > most:
            raise Problem(
                413,
                f"a request must have at most {most:,} {what}, got {found:,}. Send it in parts.",
            )


def _scalar(text: str) -> Any:
    """A value in an address: a number or true and false where it reads like one, else text."""
    try:
        value = json.loads(text, parse_constant=lambda word: word)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (int, float, bool, str)) else text


def _ids(table: Any, name: str) -> list[Any]:
    """A column of ids as JSON would hold it; dates are text."""
    try:
        values = table.column(name).to_pylist()
    except (OverflowError, ValueError) as error:
        raise Problem(422, f"{name} holds a date that no calendar has: {error}") from None
    return [
        v.isoformat() if isinstance(v, (datetime.date, datetime.datetime)) else v for v in values
    ]


_quoted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str
).encode


def _text(values: Any) -> str:
    """A column as JSON. Many numbers are written by Arrow, without an object for each: a tenth of
    the time."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and len(values) > MANY):
        return _quoted(_listed(values))
    numbers = values.astype(np.float32) if values.dtype == np.float16 else values
    gaps = ~np.isfinite(numbers) if numbers.dtype.kind == "f" else None
    words = pa.array(numbers, mask=gaps).cast(pa.string()).fill_null("null")
    one = pa.ListArray.from_arrays(pa.array([0, len(words)], pa.int32()), words)
    return f"[{pc.binary_join(one, ',')[0].as_py()}]"


def _listed(values: Any) -> list[Any]:
    """A column as JSON holds it: what is no finite number is null, dates are text."""
    a = np.asarray(values) if isinstance(values, np.ndarray) else np.array(values, object)
    if a.dtype.kind == "f":
        return (
            a.tolist()
            if np.isfinite(a).all()
            else [v if math.isfinite(v) else None for v in a.tolist()]
        )
    if a.dtype.kind in "Mm":
        return a.astype(str).tolist()
    if a.dtype.kind != "O":
        return a.tolist()
    return [_item(v) for v in a.tolist()]


def _item(v: Any) -> Any:
    v = v.item() if isinstance(v, np.generic) else v
    if isinstance(v, float) and not math.isfinite(v):
        return None
    return v if v is None or isinstance(v, (str, int, float, bool)) else str(v)


def _stream(about: dict[str, Any], columns: dict[str, Any]) -> bytes:
    arrays = [
        label_array(v) if isinstance(v, np.ndarray) and v.dtype.kind == "O" else pa.array(v)
        for v in columns.values()
    ]
    table = pa.table(arrays, names=list(columns)).replace_schema_metadata(
        {k: str(v) for k, v in about.items()}
    )
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue().to_pybytes()
