"""Nested states of a loop as named arrays and JSON, for a checkpoint."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from eckart.trace import Trace


def pack(state: Any) -> dict[str, np.ndarray]:
    """Named arrays: those in the state, each with its order in memory (products depend on it in the last bit), and the rest as JSON.

    >>> unpack(pack({"u": np.eye(2), "step": 3, "last": None}))["step"]
    3
    """
    arrays: dict[str, np.ndarray] = {}

    def plain(value: Any, name: str) -> Any:
        value = value() if callable(value) else value
        if isinstance(value, np.ndarray):
            turned = value.ndim == 2 and value.strides[0] < value.strides[1]
            arrays[name] = np.ascontiguousarray(value.T if turned else value)
            return {"@array": name, "@turned": turned}
        if isinstance(value, dict):
            return {key: plain(part, f"{name}.{key}") for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(part, f"{name}.{i}") for i, part in enumerate(value)]
        return value

    text = json.dumps(plain(state, "state"))
    return arrays | {"json": np.frombuffer(text.encode(), np.uint8)}


def unpack(arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of ``pack``, tuples as lists."""

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(part) for part in value]
        if not isinstance(value, dict):
            return value
        if "@array" not in value:
            return {key: whole(part) for key, part in value.items()}
        array = arrays[value["@array"]].copy()
        return array.T if value["@turned"] else array

    return whole(json.loads(arrays["json"].tobytes()))


def resumed_trace(quantity: str, kept: Any = None) -> Trace:
    """A trace with the values and seconds that were kept; its clock goes on from the last of them."""
    values, seconds = kept or ([], [])
    return Trace(quantity, values, seconds, _start=time.perf_counter() - (seconds[-1] if seconds else 0.0))
