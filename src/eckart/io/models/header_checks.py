"""What a header says and what stands beside the factors, checked before a verb calculates with
it.

Nested states of a loop as named arrays and JSON, for a checkpoint.
"""

from __future__ import annotations

import json
import time
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.factors import Embedding, LowRank, Topics
from eckart.factors.checks import covariances, numbers
from eckart.io.text.tokens import Tokenizer
from eckart.trace import StopReason, Trace

NUMBERS = {
    "l2",
    "l2_power",
    "l2_bias",
    "sweeps",
    "tau",
    "fold_l2",
    "weight",
    "tol",
    "tokens",
    "batches",
    "batch_size",
    "seed",
    "objective",
    "data term",
}
"""Choices and facts that verbs calculate with, where they stand in a plan or a certificate."""
MEASURED = {
    "ALS": ("objective",),
    "NMF": ("data term",),
    "MiniBatchNMF": ("data term",),
    "GaussianMixture": ("bound",),
    "Mixture": ("bound",),
    "GloVe": ("loss",),
}
"""Facts of a certificate that attributes of these models read."""


def check_header(header: dict[str, Any], f: Any) -> None:
    """Refuse a plan, a certificate or a trace with other kinds of values than those that verbs
    calculate with."""
    plan, facts, trace = header["plan"], header["certificate"]["facts"], header["trace"]
    wrong = [
        name
        for name in NUMBERS & plan.keys()
        if not _is_number(plan[name]) and not (name == "objective" and _are_numbers(plan[name]))
    ]
    wrong += [
        name
        for name in NUMBERS & facts.keys() | set(MEASURED.get(header["class"], ()))
        if not _is_number(facts.get(name))
    ]
    wrong += [name for name in ("values", "seconds") if not _are_numbers(trace[name])]
    wrong += [name for name in ("quantity", "note") if not isinstance(trace[name], str)]
    wrong += ["dtype"] if plan.get("dtype", "float64") not in ("float32", "float64") else []
    wrong += (
        ["l2_power"] if _is_number(plan.get("l2_power")) and not 0 <= plan["l2_power"] <= 10 else []
    )  # as the parameter
    swept = ("ALS", "SLIM", "NMF", "MiniBatchNMF", "LDA", "LatentDirichletAllocation", "PLSA")
    wrong += ["sweeps"] if header["class"] in swept and "sweeps" not in plan else []
    wrong += ["tau"] if header["class"] in ("SVT", "SoftImpute") and "tau" not in plan else []
    if isinstance(f, Embedding) and (f.columns is None or not _are_rules(plan["words"])):
        wrong.append("words")
    scale, clip, made = plan.get("singular values"), plan.get("clip"), plan.get("normaliser")
    wrong += (
        ["singular values"]
        if (scale is not None or header["class"] == "PMI")
        and not (_are_numbers(scale) and len(scale) == f.k)
        else []
    )
    wrong += ["clip"] if clip is not None and not (_are_numbers(clip) and len(clip) == 2) else []
    if made is not None and not (
        isinstance(made, dict)
        and made["shape"] == list(f.shape)
        and isinstance(made.get("by"), (str, type(None)))
        and all(_is_number(made[name]) for name in ("mean", "l2"))
    ):
        wrong.append("normaliser")
    for name in ("hidden entries", "own entries"):
        errors = plan.get(name)
        if isinstance(errors, dict) and not (
            {"model", "entries"} <= errors.keys() and all(map(_is_number, errors.values()))
        ):
            wrong.append(name)
    wrong += (
        ["l2_bias_power"]
        if _is_number(plan.get("l2_bias_power")) and not 0 <= plan["l2_bias_power"] <= 10
        else []
    )
    # its bound has log Gamma of them
    if header["class"] == "LatentDirichletAllocation" and not (f.prior > 0).all():
        wrong.append("prior")
    draws = plan.get("posterior")
    if draws is not None and not (
        _are_numbers([draws["mean"], draws["scale"]]) and float(draws["scale"]) > 0
    ):
        wrong.append("posterior")
    if draws is not None and draws["chains"] not in range(1, f.k + 1):
        wrong.append("chains")
    if wrong:
        raise FileError(f"{wrong[0]} holds no such value as this kind of model keeps")


def _is_number(value: Any) -> bool:
    """A finite number, or one of the words that stand for those that JSON lacks."""
    return value in ("nan", "inf", "-inf") or (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    )


def _are_rules(words: Any) -> bool:
    """Choices of a tokenizer, each of its kind."""
    kinds = {name: type(usual) for name, usual in vars(Tokenizer()).items()}

    def fits(name: str, came: Any) -> bool:
        return type(came) is kinds.get(name) or (name == "tokenizer" and isinstance(came, str))

    return (
        isinstance(words, dict)
        and all(fits(name, came) for name, came in words.items())
        and 1 <= words.get("min_length", 1) < 2**31
    )


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_number, values))


NEEDED = {
    "GloVe": ("context", "bias", "context_bias", "counts"),
    "PMI": ("context", "counts"),
    "SkipGram": ("context", "counts"),
}
"""Arrays that an embedding may lack, but not one of these models."""
EXTRAS = {
    "encoder": "kn",
    "decoder": "nk",
    "posterior.alpha": "S",
    "posterior.rows.bias": "NS",
    "posterior.columns.bias": "nS",
    "posterior.rows.precisions": "NS",
    "posterior.columns.precisions": "nS",
    "mu": "Sd",
    "noise": "S2",
    "precision": "Sdd",
    "link": "S?d",
    "time": "STd",
    "column_mean": "n",
    "column_variance": "1",
}
"""Shapes of arrays that models keep beside their factors: N rows, n columns, k components; S draws
of d numbers each. The last four are of both sides."""


def check_extras(factors: Any, arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays beside the factors that are not finite or do not fit them: no kernel sees
    bounds that were not checked."""
    sizes: dict[str, int] = {"n": factors.n, "k": factors.k, "1": 1, "2": 2}
    if isinstance(factors, LowRank):
        sizes["N"] = factors.shape[0]
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise FileError(f"{name} does not hold finite numbers")
        rule = EXTRAS.get(name) or (
            EXTRAS.get(name.rpartition(".")[2]) if name.startswith("posterior.") else None
        )
        if rule is not None:
            wanted = tuple(
                sizes.get(letter, size) if letter == "?" else sizes.setdefault(letter, size)
                for letter, size in zip(rule, (*array.shape, *[-1] * len(rule)))
            )
            # noise and precisions
            positive = rule in ("S", "NS", "nS", "S2") and not name.endswith("bias")
            numbers(name, array, wanted, 1e-300 if positive else None)
        if name.startswith("posterior.") and name.endswith(".precision"):
            covariances(name, array)
    if "posterior.alpha" in arrays and factors.k != sizes["S"] * (sizes.get("d", 1) - 1):
        raise FileError(
            f"factors of {factors.k} columns came for {sizes['S']} draws of "
            f"{sizes.get('d', 1) - 1} numbers"
        )
    eta = arrays.get("eta")
    if eta is not None and isinstance(factors, Topics):
        numbers("eta", eta, (1,) if eta.ndim == 1 else (factors.n, factors.k), 0.0)


def pack(state: Any) -> dict[str, np.ndarray]:
    """Named arrays: those in the state, each with its order in memory (products depend on it in the
    last bit), and the rest as JSON.

    >>> unpack(pack({"u": np.eye(2), "step": 3, "last": None}))["step"]
    3
    """
    arrays: dict[str, np.ndarray] = {}

    def plain(value: Any, name: str) -> Any:
        value = value() if callable(value) else value
        if hasattr(value, "__array__") and not isinstance(value, np.generic):
            value = np.asarray(value)  # of an engine
        if isinstance(value, np.ndarray):
            order = np.argsort([-abs(step) for step in value.strides], kind="stable").tolist()
            arrays[name] = np.ascontiguousarray(np.asarray(value).transpose(order)).reshape(
                [value.shape[i] for i in order]
            )
            return {"@array": name, "@order": order}
        if is_dataclass(value):
            value = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        if isinstance(value, dict):
            return {key: plain(part, f"{name}.{key}") for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(part, f"{name}.{i}") for i, part in enumerate(value)]
        return value.item() if isinstance(value, np.generic) else value

    text = json.dumps(plain(state, "state"))
    return arrays | {"json": np.frombuffer(text.encode(), np.uint8)}


def unpack(arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of ``pack``, tuples as lists and records as dicts (``like`` makes them records
    again)."""

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(part) for part in value]
        if not isinstance(value, dict):
            return value
        if "@array" not in value:
            return {key: whole(part) for key, part in value.items()}
        return arrays[value["@array"]].copy().transpose(np.argsort(value["@order"]))

    return whole(json.loads(arrays["json"].tobytes()))


def like(example: Any, kept: Any) -> Any:
    """What was kept, in the shape of an example: its dataclasses and named tuples again instead of
    dicts and lists.

    >>> like((1, 2), [3, 4]), like(None, [3])
    ((3, 4), [3])
    """
    if isinstance(kept, dict) and is_dataclass(example):
        kind: Any = type(example)
        return kind(**{name: like(getattr(example, name), part) for name, part in kept.items()})
    if isinstance(kept, list) and isinstance(example, tuple):
        parts = [like(part, came) for part, came in zip(example, kept, strict=True)]
        return type(example)(*parts) if hasattr(example, "_fields") else tuple(parts)
    if isinstance(kept, dict) and isinstance(example, dict):
        return {name: like(example.get(name), part) for name, part in kept.items()}
    return kept


def kept_trace(trace: Trace) -> dict[str, Any]:
    """A trace for a state; ``resumed_trace`` is its inverse."""
    return {
        "values": trace.values,
        "seconds": trace.seconds,
        "reason": trace.reason.name,
        "note": trace.note,
    }


def resumed_trace(quantity: str, kept: Any = None) -> Trace:
    """A trace with what was kept of it (or its values and seconds alone); its clock goes on from
    the last of them."""
    if isinstance(kept, dict):
        trace = resumed_trace(quantity, (kept["values"], kept["seconds"]))
        trace.reason, trace.note = StopReason[kept["reason"]], kept["note"]
        return trace
    values, seconds = kept or ([], [])
    return Trace(
        quantity, values, seconds, _start=time.perf_counter() - (seconds[-1] if seconds else 0.0)
    )
