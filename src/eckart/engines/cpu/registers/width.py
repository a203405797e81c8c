"""How wide the vectors of the kernels are: what numba compiles for decides, and a test may force
another width.

LLVM splits a vector that is wider than the processor's registers, so every width is right on every
processor; one fits best.
"""

from __future__ import annotations

import functools
import os

FORCED = "ECKART_VECTOR_BITS"
"""Environment variable that forces 128, 256 or 512 bits. Compiled kernels are cached by processor,
not by width: give each width its own NUMBA_CACHE_DIR."""


@functools.cache
def features() -> frozenset[str]:
    """Names of what the processor that numba compiles for can do (``NUMBA_CPU_NAME`` and
    ``NUMBA_CPU_FEATURES`` included)."""
    from llvmlite import binding
    from numba.core import config

    asked = getattr(config, "CPU_FEATURES", None)
    if asked is not None:
        return frozenset(name[1:] for name in asked.split(",") if name.startswith("+"))
    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


@functools.cache
def vector_bytes() -> int:
    """64 with AVX-512, 32 with AVX, else 16 (SSE, NEON and whatever else there is)."""
    forced = os.environ.get(FORCED)
    if forced:
        if forced not in ("128", "256", "512"):
            raise ValueError(f"{FORCED} must be 128, 256 or 512, got {forced}")
        return int(forced) // 8
    return 64 if "avx512f" in features() else 32 if "avx" in features() else 16


def lanes_of(itemsize: int) -> int:
    """Numbers in a vector. Never fewer than four: the kernels take rows by fours, and arrays are
    padded to whole vectors."""
    return max(4, vector_bytes() // itemsize)


def multiplies_and_adds_at_once() -> bool:
    """Whether a product and a sum are one instruction (FMA on x86, always on 64-bit ARM)."""
    return bool({"fma", "neon", "sve"} & features())
