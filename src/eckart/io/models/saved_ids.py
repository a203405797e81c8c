"""Ids in a model file: integers, dates and durations as arrays, all else in the JSON header, each
so that it comes back as the id that it was.

What JSON has no word for is an object that names its kind: {"bytes": "/w=="}, {"tuple": ["a", 1]},
{"datetime": "2024-05-01T00:00:00+02:00"}.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import UUID

import numpy as np

from eckart.errors import FileError


def pack_ids(ids: np.ndarray | None, side: str, arrays: dict[str, np.ndarray]) -> Any:
    """Ids for the header: a list; integers, dates and durations go to ``arrays`` and leave the name
    of their kind."""
    if ids is None:
        return None
    ids = np.asarray(ids)
    timed = ids.dtype.kind in "mM"
    if ids.dtype.kind in "iu" or (timed and ids.dtype not in (np.dtype("M8"), np.dtype("m8"))):
        arrays[f"labels.{side}"] = ids.view(np.int64) if timed else ids
        return {"dtype": ids.dtype.str}
    return [_packed(id) for id in ids]


def unpack_ids(saved: Any, side: str, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """The inverse of ``pack_ids``."""
    if saved is None:
        return None
    if isinstance(saved, list):
        return np.fromiter(map(_unpacked, saved), object, len(saved))
    kind = np.dtype(saved["dtype"])
    if kind.kind not in "iumM":
        raise FileError(f"labels must be integers, dates or durations, got kind {saved['dtype']!r}")
    values = arrays[f"labels.{side}"]
    return values.view(kind) if kind.kind in "mM" else values.astype(kind)


def _packed(id: Any) -> Any:
    """An id as JSON.

    >>> [_unpacked(_packed(x)) for x in (b"a", ("b", 2), 0.5, dt.timedelta(1))]
    [b'a', ('b', 2), 0.5, datetime.timedelta(days=1)]
    """
    if isinstance(id, (np.datetime64, np.timedelta64)):
        return {"time64": [id.dtype.str, int(id.view(np.int64))]}
    id = id.item() if isinstance(id, np.generic) else id
    if (
        id is None
        or isinstance(id, (bool, int, str))
        or (isinstance(id, float) and math.isfinite(id))
    ):
        return id
    # times of pandas may be a thousand times finer than Python's
    if getattr(id, "nanosecond", 0):
        return {"Timestamp": id.isoformat()}
    if getattr(id, "nanoseconds", 0):
        return {"Timedelta": id.value}
    if isinstance(id, float):
        return {"float": str(id)}
    if isinstance(id, bytes):
        return {"bytes": base64.b64encode(id).decode()}
    if isinstance(id, tuple):
        return {"tuple": [_packed(part) for part in id]}
    if isinstance(id, dt.datetime):
        return {"datetime": id.isoformat()}
    if isinstance(id, dt.date):
        return {"date": id.isoformat()}
    if isinstance(id, dt.timedelta):
        return {"timedelta": [id.days, id.seconds, id.microseconds]}
    if isinstance(id, (Decimal, UUID)):
        return {type(id).__name__: str(id)}
    if type(id).__name__ == "Period":
        return {"Period": [str(id), id.freqstr]}
    return str(id)  # names of columns of a frame; ids of other kinds are refused when they come


def _time_kind(text: str) -> np.dtype:
    """The type of a date or duration of NumPy."""
    kind = np.dtype(text)
    if kind.kind not in "mM":
        raise ValueError(f"{text} is neither a date nor a duration")
    return kind


UNPACK: dict[str, Any] = {
    "time64": lambda v: np.array([v[1]], np.int64).view(_time_kind(v[0]))[0],
    "float": float,
    "bytes": lambda v: base64.b64decode(v, validate=True),
    "tuple": lambda v: tuple(_unpacked(part) for part in v),
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "timedelta": lambda v: dt.timedelta(*v),
    "Decimal": Decimal,
    "UUID": UUID,
    "Timestamp": lambda v: import_module("pandas").Timestamp(v),
    "Timedelta": lambda v: import_module("pandas").Timedelta(v, unit="ns"),
    "Period": lambda v: import_module("pandas").Period(v[0], freq=v[1]),
}


def _unpacked(saved: Any) -> Any:
    if not isinstance(saved, dict):
        return saved
    try:
        ((kind, value),) = saved.items()
        return UNPACK[kind](value)
    except (KeyError, ValueError, TypeError, ArithmeticError):
        raise FileError(
            f"an id must be of one of the kinds {', '.join(UNPACK)}, got {str(saved)[:80]}"
        ) from None
