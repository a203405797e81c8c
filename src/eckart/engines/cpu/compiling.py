"""How kernels are compiled."""

from __future__ import annotations

from typing import Any

INSIDE: dict[str, Any] = {"nogil": True, "cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""For what only other kernels call: without the code that would let Python and C call it, it is compiled in less time. Python must not call it."""
