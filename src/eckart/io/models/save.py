"""One .safetensors file for a fitted model: arrays, and a JSON header with format version, class,
parameters, labels and certificate.

Reading runs no code from the file: the class is looked up in a fixed table, values are JSON, arrays
are plain numbers. A SHA-256 over header and arrays finds tampering and truncation. Writing goes to
a temporary name and is renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

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
from eckart.io.models.saved_ids import pack_ids, unpack_ids
from eckart.io.models.short import lengthen, shorten
from eckart.io.models.whole_files import atomic_write, named
from eckart.parameters import check
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
SEAL = len(', "checksum": "') + 64 + len('"}')
SAVED = """
    PCA LatentDirichletAllocation IncrementalPCA TruncatedSVD LinearAutoencoder ALS BayesianMF SVP SVT SoftImpute ExactRecovery EASE SLIM
    SpectralFilter Blend TimeFactors MixedTable GaussianMixture Mixture PLSA LDA MiniBatchNMF NMF GloVe SkipGram PMI Autoencoder ConvAutoencoder
    NetworkClassifier NetworkRegressor
"""
"""Every estimator that can be saved, listed once."""
CLASSES: dict[str, str] = {name: sys.modules["eckart"]._PUBLIC[name] for name in SAVED.split()}
"""Their modules."""
KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Basis, Embedding, ItemWeights, LowRank, MixedColumns, Network, Series, Topics)
} | {"Mixture": Components}


def save(model: Any, path: Any) -> None:
    """Write a fitted model; an existing file is replaced only when the new one is complete."""
    from safetensors.numpy import save as to_bytes

    arrays, header = pack(model)
    data = to_bytes(arrays, metadata={"eckart": seal(arrays, json.dumps(header, allow_nan=False))})
    atomic_write(path, data)


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


def class_named(name: str) -> Any:
    """One of ``CLASSES``."""
    return getattr(import_module(CLASSES[name]), name)


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
        type(model).__name__ not in CLASSES
        or type(model).__module__ != CLASSES[type(model).__name__]
    ):
        raise InputTypeError(
            f"model must be one of {', '.join(CLASSES)}: no other class can be loaded, got a "
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
    arrays, short = shorten({name: np.ascontiguousarray(a) for name, a in (arrays | more).items()})
    return arrays, header | ({"version": VERSION, "short": short} if short else {})


def unpack(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Any:
    """The model described by a verified header."""
    name = header["class"]
    if not isinstance(name, str) or name not in CLASSES:
        raise FileError(f"class must be one of {', '.join(CLASSES)}, got {name!r}")
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
