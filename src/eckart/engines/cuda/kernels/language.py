"""Triton where it is installed; elsewhere names that let the files with kernels be imported and
read."""

from __future__ import annotations

import os
from typing import Any

try:
    import triton
    import triton.language as tl

    jit: Any = triton.jit
    PRESENT = True
except ImportError:
    tl: Any = None  # type: ignore[no-redef]
    jit, PRESENT = (lambda function: function), False


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def power_of_two(n: int, least: int = 16) -> int:
    """The least power of two that is not below n: sizes of blocks."""
    return max(least, 1 << max(0, n - 1).bit_length())
