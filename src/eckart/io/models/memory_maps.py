"""Model files as memory maps: pages are read when they are needed and shared by all processes that
serve the same file.

The map is private (copy on write), so nothing that is done to a model reaches the file. A new
version must take the file's place by a rename, as ``save`` does: a file that is shortened in place
takes the ground from under its readers.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import EckartError, FileError
from eckart.io.models.save import head_of, model_of

KINDS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}


def load_mapped(path: Any) -> Any:
    """As ``load``, with the arrays of the model in a memory map; everything that ``load`` refuses
    is refused."""
    file = Path(path)
    try:
        with file.open("rb") as raw:
            text = head_of(raw, file)
            raw.seek(0)
            held = mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        if isinstance(error, EckartError):
            raise
        raise FileError(f"{file} cannot be read: {error}") from None
    return model_of(_arrays(held, file), text, file)


def _arrays(held: mmap.mmap, file: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, each where its header says, none outside of the file, none
    in another's place."""
    (length,) = struct.unpack("<Q", held[:8])
    start, end = 8 + length, 0
    try:
        listed = {
            name: about
            for name, about in json.loads(held[8:start]).items()
            if name != "__metadata__"
        }
        arrays = {}
        for name, about in sorted(listed.items(), key=lambda item: item[1]["data_offsets"]):
            kind, shape, (a, b) = (
                np.dtype(KINDS[about["dtype"]]),
                about["shape"],
                about["data_offsets"],
            )
            whole = all(type(x) is int and x >= 0 for x in (a, b, *shape))
            if (
                not whole
                or a != end
                or start + b > len(held)
                or b - a != math.prod(shape) * kind.itemsize
            ):
                raise FileError(
                    f"{file} is damaged: array {name!r} does not lie where its header says"
                )
            end = b
            arrays[name] = np.frombuffer(held, kind, math.prod(shape), start + a).reshape(shape)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, EckartError):
            raise
        raise FileError(f"{file} is damaged: {type(error).__name__} {error}") from None
    if start + end != len(held):
        raise FileError(f"{file} is damaged: {len(held) - start - end} bytes belong to no array")
    return arrays
