"""One .safetensors file for a fitted model: arrays, and a JSON header with format version, class,
parameters, labels and certificate.

Reading runs no code from the file: the class is looked up in a fixed table, values are JSON, arrays
are plain numbers. A SHA-256 over header and arrays finds tampering and truncation. Writing goes to
a temporary name and is renamed.

Ids in a model file: integers, dates and durations as arrays, all else in the JSON header, each
so that it comes back as the id that it was.

What JSON has no word for is an object that names its kind: {"bytes": "/w=="}, {"tuple": ["a", 1]},
{"datetime": "2024-05-01T00:00:00+02:00"}.

Large arrays in fewer bytes, where nothing is lost: as single precision, or as one byte for a
number and an exponent for each row.

Grades, counts and draws have fewer digits than double precision has. An array whose numbers are all
of single precision is written so; one whose rows are whole multiples q 2^e of a power of two, -127
<= q <= 127, is written as q and e. Reading gives the very numbers back.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import math
import os
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import is_dataclass
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.errors import EckartError, FileError, InputTypeError
from eckart.factors import (
    Basis,
    Components,
    Embedding,
    Factors,
    ItemWeights,
    LowRank,
    MixedColumns,
    Network,
    Series,
    Topics,
)
from eckart.io.models.header_checks import NEEDED, check_extras, check_header
from eckart.io.models.whole_files import atomic_write, named
from eckart.parameters import check
from eckart.registry import SAVED, class_named
from eckart.rng import generator
from eckart.scheduler import resolve_threads
from eckart.trace import Trace

FORMAT = "eckart-model"
VERSION = 2
"""The newest format that is read; files without shortened arrays are of the first, which earlier
versions read, too."""
MAX_HEADER = 64 * 2**20
"""Bytes of a header that is read: far more than those of models, and a foreign file cannot ask for
more memory."""
ALIGNED = ["U64", "I64", "F64", "F32", "U32", "I32", "F16", "U16", "I16", "I8", "U8", "BOOL"]
"""Types of arrays in the order in which a file holds them: what takes most bytes first."""
SEAL = len(', "checksum": "') + 64 + len('"}')
KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Basis, Embedding, ItemWeights, LowRank, MixedColumns, Network, Series, Topics)
} | {"Mixture": Components}


def save(model: Any, path: Any) -> None:
    """Write a fitted model; an existing file is replaced only when the new one is complete."""
    arrays, header = pack(model)
    text = seal(arrays, json.dumps(header, allow_nan=False))
    atomic_write(path, pieces_of(arrays, {"eckart": text}))


def pieces_of(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> Iterator[Any]:
    """The bytes of a safetensors file, array by array: one that is a map of a file need not be
    held."""
    kinds = {
        name: "BOOL" if a.dtype == bool else f"{a.dtype.kind.upper()}{8 * a.itemsize}"
        for name, a in arrays.items()
    }
    order = sorted(arrays, key=lambda name: (ALIGNED.index(kinds[name]), name))
    described: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        a = arrays[name]
        described[name] = {
            "dtype": kinds[name],
            "shape": list(a.shape),
            "data_offsets": [end, end := end + a.nbytes],
        }
    header = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    yield struct.pack("<Q", len(header)) + header
    for name in order:
        yield from byte_blocks(arrays[name])


def byte_blocks(a: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array, some at a time."""
    flat = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    for start in range(0, len(flat), BLOCK):
        yield flat[start : start + BLOCK].data


def seal(arrays: dict[str, np.ndarray], text: str) -> str:
    """The JSON header with a checksum of its very text and of the arrays as its last member."""
    return f'{text[:-1]}, "checksum": "{_checksum(arrays, text)}"}}'


def load(path: Any) -> Any:
    """The model of a file written by ``model.save``; a truncated, tampered, foreign, newer or
    oversized file is refused.

    >>> import tempfile, os
    >>> from eckart import PCA, load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "m.safetensors")
    ...     PCA(1).fit([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]]).save(file)
    ...     load(file).components_.round(4).tolist()
    [[0.4472, 0.8944]]
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    data, text = _read_header(named(path))
    try:
        arrays = from_bytes(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} is damaged: {error}") from None
    return model_of(arrays, text, path)


def model_of(arrays: dict[str, np.ndarray], text: str, path: Any) -> Any:
    """The model of these arrays under the seal of the header's text."""
    if text != seal(arrays, text[:-SEAL] + "}"):
        raise FileError(
            f"{path} was changed after it was written (its checksum does not match); do not use it"
        )
    try:
        return unpack(arrays, json.loads(text))
    except EckartError as error:
        raise FileError(f"{path} cannot be loaded: {error}") from None
    except Exception as error:
        raise FileError(f"{path} is not a complete model: {type(error).__name__} {error}") from None


def _read_header(path: Path) -> tuple[bytes, str]:
    """The bytes of the file and the text of its eckart header."""
    if not os.path.isfile(path):
        raise FileError(f"{path} does not exist or is not a file")
    try:
        with path.open("rb") as raw:
            return _parse_header(raw, path)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from None


def _parse_header(raw: Any, path: Path) -> tuple[bytes, str]:
    text = head_of(raw, path)
    raw.seek(0)
    return raw.read(), text


def head_of(raw: Any, path: Path) -> str:
    """The text of the eckart header of an open file; a foreign, truncated, newer or oversized one
    is refused before its arrays are read."""
    size = os.fstat(raw.fileno()).st_size
    start = raw.read(8)
    if len(start) < 8:
        raise FileError(f"{path} is truncated: {size} bytes")
    (length,) = struct.unpack("<Q", start)
    if length > MAX_HEADER:
        raise FileError(
            f"{path} claims a header of {length} bytes, allowed {MAX_HEADER}; it is "
            "foreign or hostile"
        )
    if 8 + length > size:
        raise FileError(
            f"{path} is truncated or foreign: its header wants {length} bytes, {size - 8} are there"
        )
    try:
        text = json.loads(raw.read(length))["__metadata__"]["eckart"]
        header = json.loads(text)
        if header["format"] != FORMAT:
            raise KeyError("format")
        version = header["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FileError(f"{path} is not an eckart model") from None
    if type(version) is not int or not 1 <= version <= VERSION:
        raise FileError(
            f"{path} has format version {version!r}, this eckart reads 1 to {VERSION}; "
            "upgrade eckart"
        )
    return text


def pack(model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and JSON header of a fitted model."""
    if (
        type(model).__name__ not in SAVED
        or type(model).__module__ != SAVED[type(model).__name__].module
    ):
        raise InputTypeError(
            f"model must be one of {', '.join(SAVED)}: no other class can be loaded, got a "
            f"{type(model).__name__}"
        )
    fit = model.fit_
    arrays, values = fit.factors.to_state()
    more = model.extra_state() if hasattr(model, "extra_state") else {}
    labels = {
        side: pack_ids(getattr(fit.factors, side, None), side, more) for side in ("rows", "columns")
    }
    params, dropped = _json_params(model.get_params(deep=False))
    header = {
        "format": FORMAT,
        "version": 1,
        "class": type(model).__name__,
        "params": params,
        "params_not_saved": dropped,
        "kind": next(name for name, kind in KINDS.items() if type(fit.factors) is kind),
        "factors": _plain(values),
        "rows": labels["rows"] if isinstance(fit.factors, (LowRank, ItemWeights, Series)) else None,
        "columns": labels["columns"],
        "certificate": _plain(fit.certificate.to_dict()),
        "trace": _plain(fit.trace.to_dict()),
        "plan": _plain(fit.plan),
    }
    arrays, short = shorten(
        {
            name: np.array(a, order="C", copy=None, subok=True, ndmin=1)
            for name, a in (arrays | more).items()
        }
    )
    return arrays, header | ({"version": VERSION, "short": short} if short else {})


def unpack(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Any:
    """The model described by a verified header."""
    name = header["class"]
    if not isinstance(name, str) or name not in SAVED:
        raise FileError(f"class must be one of {', '.join(SAVED)}, got {name!r}")
    model = class_named(name)(**header["params"])
    if is_dataclass(model):
        check(model)
    resolve_threads(getattr(model, "n_threads", None))
    if getattr(model, "random_state", None) is not None:
        generator(model.random_state)
    arrays = lengthen(arrays, header.get("short", {}))
    factors = _factors(arrays, header)
    if not isinstance(header["plan"], dict):
        raise FileError(f"plan must be named choices, got {header['plan']!r}")
    check_header(header, factors)
    certificate, trace = (
        Certificate.from_dict(header["certificate"]),
        Trace.from_dict(header["trace"]),
    )
    for part in NEEDED.get(name, ()):
        if part not in arrays:
            raise FileError(f"{part} must be there in a {name}, got none")
    check_extras(factors, arrays)
    model.restore(factors, certificate, trace, header["plan"], arrays)
    return model


def _factors(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Factors:
    """The factors that the header describes, refused where they do not fit together."""
    kind = header.get("kind", "Basis")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    rows, columns = (unpack_ids(header[side], side, arrays) for side in ("rows", "columns"))
    factors = KINDS[kind].from_state(arrays, header["factors"], rows, columns)
    factors.check()
    return factors


def _checksum(arrays: dict[str, np.ndarray], text: str) -> str:
    """SHA-256 over the very text of the header and the names, kinds, shapes and bytes of the
    arrays."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(arrays):
        a = arrays[name]
        digest.update(f"{name} {a.dtype} {a.shape}".encode())
        for block in byte_blocks(a):
            digest.update(block)
    return digest.hexdigest()


def _json_params(params: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Parameters that JSON can hold, and the names of those it cannot (a random generator, say)."""
    kept, dropped = {}, []
    for name, value in params.items():
        plain = _plain(value)
        try:
            json.dumps(plain, allow_nan=False)
            kept[name] = plain
        except (TypeError, ValueError):
            dropped.append(name)
    return kept, dropped


def _plain(value: Any) -> Any:
    """NumPy scalars as Python numbers, containers recursively, numbers that JSON lacks as
    strings."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


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


BLOCK = 2**20
"""Bytes, or numbers, that are looked at at a time."""
LARGE = 2**20
"""Bytes from which an array is looked at."""
EXPONENT = ".exponent"


def steps_of(a: np.ndarray) -> np.ndarray:
    """2^e of every row, so that its largest number is 64 to 127 (128, rounded) of them; rows x
    1."""
    most = np.abs(a).max(axis=1, initial=0.0, keepdims=True)
    return np.ldexp(a.dtype.type(1.0), np.frexp(most)[1] - 7)


def shorten(arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays as they are written, and the precision of those that were shortened, by name."""
    found, precisions = dict(arrays), {}
    for name, a in arrays.items():
        if a.dtype.kind != "f" or a.nbytes <= LARGE or a.ndim == 0:
            continue
        if (short := _bytes(a)) is not None:
            found[name], found[name + EXPONENT] = short
        elif a.dtype == np.float64 and _single(a[:1]) and _single(a):
            found[name] = as_single(a)
        else:
            continue
        precisions[name] = str(a.dtype)
    return found, precisions


def lengthen(arrays: dict[str, np.ndarray], precisions: Any) -> dict[str, np.ndarray]:
    """The inverse of ``shorten``."""
    found = dict(arrays)
    if (
        not isinstance(precisions, dict)
        or not set(precisions.values()) <= {"float32", "float64"}
        or not precisions.keys() <= arrays.keys()
    ):
        raise FileError(f"short must be the precision of arrays by name, got {precisions!r}")
    for name, dtype in precisions.items():
        a = arrays[name].astype(np.dtype(dtype))
        exponent = found.pop(name + EXPONENT, None)
        found[name] = a if exponent is None else np.ldexp(a, exponent)
    return found


def as_single(a: np.ndarray) -> np.ndarray:
    """In single precision; a map of a file stays one."""
    if not isinstance(a, np.memmap):
        return a.astype(np.float32)
    with tempfile.TemporaryFile() as file:
        short = np.memmap(file, np.float32, shape=a.shape)
    for start in range(0, len(a), BLOCK):
        short[start : start + BLOCK] = a[start : start + BLOCK]
    return short


def _bytes(a: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    if a.ndim != 2 or a.shape[1] < 8 or not _whole(a[:1]) or not _whole(a):
        return None
    step = steps_of(a)
    return (a / step).astype(np.int8), (np.frexp(step)[1] - 1).astype(np.int16)


def _whole(a: np.ndarray) -> bool:
    with np.errstate(all="ignore"):
        q = a / steps_of(a)
    return bool((q == np.rint(q)).all() and (np.abs(q) <= 127).all())


def _single(a: np.ndarray) -> bool:
    blocks = (a.reshape(-1)[i : i + BLOCK] for i in range(0, a.size, BLOCK))
    with np.errstate(all="ignore"):  # what is beyond single precision is not the same
        return all(np.array_equal(block, block.astype(np.float32)) for block in blocks)
