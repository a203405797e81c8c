"""One .safetensors file for a fitted model: arrays, and a JSON header with format version, class, parameters, labels and certificate.

Reading runs no code from the file: the class is looked up in a fixed table, values are JSON, arrays are plain numbers. A SHA-256 over
header and arrays finds tampering and truncation. Writing goes to a temporary name and is renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.errors import FileError
from eckart.factors import Basis
from eckart.trace import Trace

FORMAT = "eckart-model"
VERSION = 1
MAX_HEADER = 64 * 2**20
CLASSES = {
    "PCA": "eckart.reduce.pca",
    "LinearAutoencoder": "eckart.reduce.linear_autoencoder",
}
"""Every estimator that can be saved, listed once."""


def save(model: Any, path: Any) -> None:
    """Write a fitted model; an existing file is replaced only when the new one is complete."""
    from safetensors.numpy import save as to_bytes

    arrays, header = pack(model)
    header["checksum"] = _checksum(arrays, header)
    data = to_bytes(arrays, metadata={"eckart": json.dumps(header, allow_nan=False)})
    atomic_write(path, data)


def atomic_write(path: Any, data: bytes) -> None:
    """Write bytes to a temporary file beside ``path`` and rename it."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"{target.parent} is not a folder; make it first")
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def load(path: Any) -> Any:
    """The model of a file written by ``model.save``; a truncated, tampered, foreign, newer or oversized file is refused.

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

    data, header = _read_header(Path(path))
    try:
        arrays = from_bytes(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise FileError(f"{path} is damaged: {error}") from None
    checksum = header.pop("checksum", None)
    if checksum != _checksum(arrays, header):
        raise FileError(f"{path} was changed after it was written (its checksum does not match); do not use it")
    try:
        return unpack(arrays, header)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path} is not a complete model: {type(error).__name__} {error}") from None


def _read_header(path: Path) -> tuple[bytes, dict[str, Any]]:
    if not path.is_file():
        raise FileError(f"{path} does not exist or is not a file")
    size = path.stat().st_size
    with path.open("rb") as raw:
        start = raw.read(8)
        if len(start) < 8:
            raise FileError(f"{path} is truncated: {size} bytes")
        (length,) = struct.unpack("<Q", start)
        if length > MAX_HEADER:
            raise FileError(f"{path} claims a header of {length} bytes, allowed {MAX_HEADER}; it is foreign or hostile")
        if 8 + length > size:
            raise FileError(f"{path} is truncated or foreign: its header wants {length} bytes, {size - 8} are there")
        try:
            text = json.loads(raw.read(length))
            header = json.loads(text["__metadata__"]["eckart"])
            if header["format"] != FORMAT:
                raise KeyError("format")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise FileError(f"{path} is not an eckart model") from None
        if not isinstance(header.get("version"), int) or header["version"] > VERSION:
            raise FileError(f"{path} has format version {header.get('version')}, this eckart reads up to {VERSION}; upgrade eckart")
        raw.seek(0)
        return raw.read(), header


def pack(model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and JSON header of a fitted model."""
    fit = model.fit_
    arrays, values = fit.factors.to_state()
    more = model.extra_state() if hasattr(model, "extra_state") else {}
    params, dropped = _json_params(model.get_params(deep=False))
    header = {
        "format": FORMAT,
        "version": VERSION,
        "class": type(model).__name__,
        "params": params,
        "params_not_saved": dropped,
        "factors": _plain(values),
        "columns": _labels(fit.factors.columns),
        "certificate": _plain(fit.certificate.to_dict()),
        "trace": _plain(fit.trace.to_dict()),
        "plan": _plain(fit.plan),
    }
    arrays = {name: np.ascontiguousarray(a) for name, a in (arrays | more).items()}
    return arrays, header


def unpack(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Any:
    """The model described by a verified header."""
    from eckart.fit import Fit

    name = header["class"]
    if name not in CLASSES:
        raise FileError(f"class {name!r} came, wanted one of {', '.join(CLASSES)}")
    model = getattr(import_module(CLASSES[name]), name)(**header["params"])
    columns = header["columns"]
    labels = None if columns is None else np.array(columns, dtype=object)
    basis = Basis.from_state(arrays, header["factors"], labels)
    fit = Fit(basis, Certificate.from_dict(header["certificate"]), Trace.from_dict(header["trace"]), header["plan"])
    model.restore(fit, arrays)
    return model


def _checksum(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        a = arrays[name]
        digest.update(f"{name} {a.dtype} {a.shape}".encode())
        digest.update(np.ascontiguousarray(a).tobytes())
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
    """NumPy scalars as Python numbers, containers recursively, numbers that JSON lacks as strings."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def _labels(labels: np.ndarray | None) -> list[Any] | None:
    if labels is None:
        return None
    return [v if isinstance(v, (str, int, float, bool)) or v is None else str(v) for v in _plain(list(labels))]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
