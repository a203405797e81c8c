"""Nested states of a loop as named arrays and JSON, for a checkpoint."""

from __future__ import annotations

import json
import time
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from eckart.trace import StopReason, Trace


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
