"""One .safetensors file for a fitted model: arrays, and a JSON header with format version, class, parameters, labels and certificate.

Reading runs no code from the file: the class is looked up in a fixed table, values are JSON, arrays are plain numbers. A SHA-256 over
header and arrays finds tampering and truncation. Writing goes to a temporary name and is renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
from eckart.factors.checks import covariances, numbers
from eckart.parameters import check
from eckart.rng import generator
from eckart.scheduler import resolve_threads
from eckart.trace import Trace

FORMAT = "eckart-model"
VERSION = 1
MAX_HEADER = 64 * 2**20
SEAL = len(', "checksum": "') + 64 + len('"}')
CLASSES = {
    "PCA": "eckart.reduce.pca",
    "LatentDirichletAllocation": "eckart.explain.topics.latent_dirichlet",
    "IncrementalPCA": "eckart.reduce.incremental",
    "TruncatedSVD": "eckart.reduce.truncated",
    "LinearAutoencoder": "eckart.reduce.linear_autoencoder",
    "ALS": "eckart.complete.factors.als",
    "BayesianMF": "eckart.complete.bayes.bayesian_mf",
    "SVP": "eckart.complete.nuclear.svp",
    "SVT": "eckart.complete.nuclear.svt",
    "SoftImpute": "eckart.complete.nuclear.soft_impute",
    "ExactRecovery": "eckart.complete.nuclear.exact",
    "EASE": "eckart.complete.items.ease",
    "SLIM": "eckart.complete.items.slim",
    "SpectralFilter": "eckart.complete.items.spectral_filter",
    "TimeFactors": "eckart.complete.series.time_factors",
    "MixedTable": "eckart.complete.tables.mixed_table",
    "GaussianMixture": "eckart.explain.mixtures.gaussian",
    "Mixture": "eckart.explain.mixtures.mixture",
    "PLSA": "eckart.explain.topics.plsa",
    "LDA": "eckart.explain.topics.lda",
    "MiniBatchNMF": "eckart.explain.parts.mini_batch",
    "NMF": "eckart.explain.parts.nmf",
    "GloVe": "eckart.embed.glove",
    "SkipGram": "eckart.embed.skipgram",
    "PMI": "eckart.embed.pmi",
    "Autoencoder": "eckart.reduce.autoencoder",
    "ConvAutoencoder": "eckart.reduce.conv_autoencoder",
    "NetworkClassifier": "eckart.nn.classifier",
    "NetworkRegressor": "eckart.nn.regressor",
}
"""Every estimator that can be saved, listed once."""
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Basis, Embedding, ItemWeights, LowRank, MixedColumns, Network, Series, Topics)} | {
    "Mixture": Components
}


def save(model: Any, path: Any) -> None:
    """Write a fitted model; an existing file is replaced only when the new one is complete."""
    from safetensors.numpy import save as to_bytes

    arrays, header = pack(model)
    data = to_bytes(arrays, metadata={"eckart": seal(arrays, json.dumps(header, allow_nan=False))})
    atomic_write(path, data)


def seal(arrays: dict[str, np.ndarray], text: str) -> str:
    """The JSON header with a checksum of its very text and of the arrays as its last member."""
    return f'{text[:-1]}, "checksum": "{_checksum(arrays, text)}"}}'


def atomic_write(path: Any, data: bytes) -> None:
    """Write bytes to a temporary file beside ``path`` and rename it."""
    target = check_place(Path(_path(path)))
    with replacing(target) as name, open(name, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def replacing(target: Path) -> Iterator[str]:
    """The name of a temporary file that takes the place of ``target`` when the block ends well, and is removed when it does not."""
    handle, name = beside(target)
    os.close(handle)
    try:
        yield name
        os.replace(name, target)
    except OSError as error:
        os.unlink(name)
        raise FileError(f"{target} cannot be written: {error}") from None
    except BaseException:
        os.unlink(name)
        raise


def check_place(target: Path) -> Path:
    """Refuse a place where no file can be written, before any work is done."""
    if not target.parent.is_dir():
        raise FileError(f"{target.parent} is not a folder; make it first")
    if target.is_dir():
        raise FileError(f"{target} is a folder, wanted the name of a file")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"{target.parent} cannot be written to; choose another folder")
    return target


def beside(target: Path) -> tuple[int, str]:
    """A temporary file in the folder of ``target``, open, and its name. What a killed save of this target left there is removed.

    The name tells machine and process, so that a save of a process that still runs is left alone; the file has the permissions of an ordinary new one.
    """
    start, machine = f".{target.name[:100]}.", f"{zlib.crc32(platform.node().encode()):08x}"
    left = re.compile(re.escape(start) + machine + r"-(\d+)-[0-9a-f]{16}" + re.escape(target.suffix))
    try:
        for name in os.listdir(target.parent):
            found = left.fullmatch(name)
            if found is not None and not _runs(int(found[1])):
                with suppress(OSError):
                    os.unlink(target.parent / name)
        name = str(target.parent / f"{start}{machine}-{os.getpid()}-{secrets.token_hex(8)}{target.suffix}")
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), name
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror}") from None


def _runs(process: int) -> bool:
    """Whether a process of this machine is still there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's, or not to be known
    return True


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

    data, text = _read_header(Path(_path(path)))
    try:
        arrays = from_bytes(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} is damaged: {error}") from None
    if text != seal(arrays, text[:-SEAL] + "}"):
        raise FileError(f"{path} was changed after it was written (its checksum does not match); do not use it")
    try:
        return unpack(arrays, json.loads(text))
    except EckartError as error:
        raise FileError(f"{path} cannot be loaded: {error}") from None
    except Exception as error:
        raise FileError(f"{path} is not a complete model: {type(error).__name__} {error}") from None


def _path(path: Any) -> Any:
    if not isinstance(path, (str, os.PathLike)):
        raise InputTypeError(f"path={path!r} came, wanted the name of a file")
    return path


def _read_header(path: Path) -> tuple[bytes, str]:
    """The bytes of the file and the text of its eckart header."""
    if not path.is_file():
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
    """The text of the eckart header of an open file; a foreign, truncated, newer or oversized one is refused before its arrays are read."""
    size = os.fstat(raw.fileno()).st_size
    start = raw.read(8)
    if len(start) < 8:
        raise FileError(f"{path} is truncated: {size} bytes")
    (length,) = struct.unpack("<Q", start)
    if length > MAX_HEADER:
        raise FileError(f"{path} claims a header of {length} bytes, allowed {MAX_HEADER}; it is foreign or hostile")
    if 8 + length > size:
        raise FileError(f"{path} is truncated or foreign: its header wants {length} bytes, {size - 8} are there")
    try:
        text = json.loads(raw.read(length))["__metadata__"]["eckart"]
        header = json.loads(text)
        if header["format"] != FORMAT:
            raise KeyError("format")
        version = header["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FileError(f"{path} is not an eckart model") from None
    if type(version) is not int or not 1 <= version <= VERSION:
        raise FileError(f"{path} has format version {version!r}, this eckart reads 1 to {VERSION}; upgrade eckart")
    return text


def pack(model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and JSON header of a fitted model."""
    if type(model).__name__ not in CLASSES or type(model).__module__ != CLASSES[type(model).__name__]:
        raise InputTypeError(
            f"model is a {type(model).__name__}, wanted one of {', '.join(CLASSES)}: no other class can be loaded"
        )
    fit = model.fit_
    arrays, values = fit.factors.to_state()
    more = model.extra_state() if hasattr(model, "extra_state") else {}
    labels = {side: pack_labels(getattr(fit.factors, side, None), side, more) for side in ("rows", "columns")}
    params, dropped = _json_params(model.get_params(deep=False))
    header = {
        "format": FORMAT,
        "version": VERSION,
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
    arrays = {name: np.ascontiguousarray(a) for name, a in (arrays | more).items()}
    return arrays, header


def unpack(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Any:
    """The model described by a verified header."""
    name = header["class"]
    if not isinstance(name, str) or name not in CLASSES:
        raise FileError(f"class {name!r} came, wanted one of {', '.join(CLASSES)}")
    model = getattr(import_module(CLASSES[name]), name)(**header["params"])
    if is_dataclass(model):
        check(model)
    resolve_threads(getattr(model, "n_threads", None))
    if getattr(model, "random_state", None) is not None:
        generator(model.random_state)
    factors = _factors(arrays, header)
    if not isinstance(header["plan"], dict):
        raise FileError(f"plan={header['plan']!r} came, wanted named choices")
    _check_header(header, factors)
    certificate, trace = Certificate.from_dict(header["certificate"]), Trace.from_dict(header["trace"])
    for part in NEEDED.get(name, ()):
        if part not in arrays:
            raise FileError(f"{part} is missing, wanted it in a {name}")
    _check_extras(factors, arrays)
    model.restore(factors, certificate, trace, header["plan"], arrays)
    return model


NUMBERS = {
    "l2", "l2_power", "l2_bias", "sweeps", "tau", "fold_l2", "weight", "tol", "tokens", "batches", "batch_size", "seed", "objective",
    "data term",
}  # fmt: skip
"""Choices and facts that verbs calculate with, where they stand in a plan or a certificate."""
MEASURED = {
    "ALS": ("objective",), "NMF": ("data term",), "MiniBatchNMF": ("data term",), "GaussianMixture": ("bound",), "Mixture": ("bound",), "GloVe": ("loss",),
}  # fmt: skip
"""Facts of a certificate that attributes of these models read."""


def _check_header(header: dict[str, Any], f: Any) -> None:
    """Refuse a plan, a certificate or a trace with other kinds of values than those that verbs calculate with."""
    plan, facts, trace = header["plan"], header["certificate"]["facts"], header["trace"]
    wrong = [name for name in NUMBERS & plan.keys() if not _is_number(plan[name]) and not (name == "objective" and _are_numbers(plan[name]))]
    wrong += [name for name in NUMBERS & facts.keys() | set(MEASURED.get(header["class"], ())) if not _is_number(facts.get(name))]
    wrong += [name for name in ("values", "seconds") if not _are_numbers(trace[name])]
    wrong += [name for name in ("quantity", "note") if not isinstance(trace[name], str)]
    wrong += ["dtype"] if plan.get("dtype", "float64") not in ("float32", "float64") else []
    wrong += ["l2_power"] if _is_number(plan.get("l2_power")) and not 0 <= plan["l2_power"] <= 10 else []  # as the parameter
    swept = ("ALS", "SLIM", "NMF", "MiniBatchNMF", "LDA", "LatentDirichletAllocation", "PLSA")
    wrong += ["sweeps"] if header["class"] in swept and "sweeps" not in plan else []
    wrong += ["tau"] if header["class"] in ("SVT", "SoftImpute") and "tau" not in plan else []
    if isinstance(f, Embedding) and (f.columns is None or not _are_rules(plan["words"])):
        wrong.append("words")
    scale, clip, made = plan.get("singular values"), plan.get("clip"), plan.get("normaliser")
    wrong += ["singular values"] if scale is not None and not (_are_numbers(scale) and len(scale) == f.k) else []
    wrong += ["clip"] if clip is not None and not (_are_numbers(clip) and len(clip) == 2) else []
    if made is not None and not (
        isinstance(made, dict) and made["shape"] == list(f.shape) and isinstance(made.get("by"), (str, type(None)))
        and all(_is_number(made[name]) for name in ("mean", "l2"))
    ):  # fmt: skip
        wrong.append("normaliser")
    draws = plan.get("posterior")
    if draws is not None and not (_are_numbers([draws["mean"], draws["scale"]]) and float(draws["scale"]) > 0):
        wrong.append("posterior")
    if draws is not None and draws["chains"] not in range(1, f.k + 1):
        wrong.append("chains")
    if wrong:
        raise FileError(f"{wrong[0]} holds no such value as this kind of model keeps")


def _is_number(value: Any) -> bool:
    """A finite number, or one of the words that stand for those that JSON lacks."""
    return value in ("nan", "inf", "-inf") or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _are_rules(words: Any) -> bool:
    """Choices of a tokenizer, each of its kind."""
    from eckart.io.text.tokens import Tokenizer

    kinds = {name: type(usual) for name, usual in vars(Tokenizer()).items()}
    fits = lambda name, came: type(came) is kinds.get(name) or (name == "tokenizer" and isinstance(came, str))  # noqa: E731
    return isinstance(words, dict) and all(fits(name, came) for name, came in words.items())


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_number, values))


NEEDED = {
    "GloVe": ("context", "bias", "context_bias", "counts"),
    "PMI": ("context", "counts"),
    "SkipGram": ("context", "counts"),
}
"""Arrays that an embedding may lack, but not one of these models."""
EXTRAS = {
    "encoder": "kn", "decoder": "nk", "posterior.alpha": "S", "posterior.rows.bias": "NS", "posterior.columns.bias": "nS",
    "posterior.rows.precisions": "NS", "posterior.columns.precisions": "nS", "mu": "Sd", "noise": "S2", "precision": "Sdd", "link": "S?d", "time": "STd",
}  # fmt: skip
"""Shapes of arrays that models keep beside their factors: N rows, n columns, k components; S draws of d numbers each. The last four are of both sides."""


def _check_extras(factors: Any, arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays beside the factors that are not finite or do not fit them: no kernel sees bounds that were not checked."""
    sizes: dict[str, int] = {"n": factors.n, "k": factors.k, "2": 2}
    if isinstance(factors, LowRank):
        sizes["N"] = factors.shape[0]
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise FileError(f"{name} does not hold finite numbers")
        rule = EXTRAS.get(name) or (EXTRAS.get(name.rpartition(".")[2]) if name.startswith("posterior.") else None)
        if rule is not None:
            wanted = tuple(
                sizes.get(letter, size) if letter == "?" else sizes.setdefault(letter, size)
                for letter, size in zip(rule, (*array.shape, *[-1] * len(rule)))
            )
            positive = rule in ("S", "NS", "nS", "S2") and not name.endswith("bias")  # noise and precisions
            numbers(name, array, wanted, 1e-300 if positive else None)
        if name.startswith("posterior.") and name.endswith(".precision"):
            covariances(name, array)
    if "posterior.alpha" in arrays and factors.k != sizes["S"] * (sizes.get("d", 1) - 1):
        raise FileError(
            f"factors of {factors.k} columns came for {sizes['S']} draws of {sizes.get('d', 1) - 1} numbers"
        )
    eta = arrays.get("eta")
    if eta is not None and isinstance(factors, Topics):
        numbers("eta", eta, (1,) if eta.ndim == 1 else (factors.n, factors.k), 0.0)


def _factors(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Factors:
    """The factors that the header describes, refused where they do not fit together."""
    kind = header.get("kind", "Basis")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileError(f"kind {kind!r} came, wanted one of {', '.join(KINDS)}")
    rows, columns = (unpack_labels(header[side], side, arrays) for side in ("rows", "columns"))
    factors = KINDS[kind].from_state(arrays, header["factors"], rows, columns)
    factors.check()
    return factors


def _checksum(arrays: dict[str, np.ndarray], text: str) -> str:
    """SHA-256 over the very text of the header and the names, kinds, shapes and bytes of the arrays."""
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


def pack_labels(labels: np.ndarray | None, side: str, arrays: dict[str, np.ndarray]) -> Any:
    """Labels for the header: a list of plain values; integers and dates go to ``arrays`` and leave the name of their kind."""
    if labels is None:
        return None
    labels = np.asarray(labels)
    if labels.dtype.kind in "iu" or (labels.dtype.kind == "M" and labels.dtype != np.dtype("M8")):
        arrays[f"labels.{side}"] = labels.view(np.int64) if labels.dtype.kind == "M" else labels
        return {"dtype": labels.dtype.str}
    plain = [_plain(v) for v in labels]
    return [p if isinstance(p, (str, int, float, bool)) or p is None else str(v) for p, v in zip(plain, labels)]


def unpack_labels(kept: Any, side: str, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """The inverse of ``pack_labels``."""
    if kept is None:
        return None
    if isinstance(kept, list):
        return np.array(kept, dtype=object)
    kind = np.dtype(kept["dtype"])
    if kind.kind not in "iuM":
        raise FileError(f"labels of kind {kept['dtype']!r} came, wanted integers or dates")
    values = arrays[f"labels.{side}"]
    return values.view(kind) if kind.kind == "M" else values.astype(kind)
