"""Whether something is a collection of Dask, and which, asked without loading Dask."""

from __future__ import annotations

import sys
from typing import Any


def is_collection(x: Any) -> bool:
    """Whether x is a collection of Dask (which nobody has where Dask is not loaded)."""
    if "dask" not in sys.modules:
        return False
    from dask import is_dask_collection

    return is_dask_collection(x)


def is_frame(x: Any, ndim: int = 2) -> bool:
    """Whether a collection is a frame (``ndim`` 1: a series). A ``Delayed`` has whatever it is
    asked for."""
    return (
        type(x).__module__ != "dask.delayed"
        and hasattr(x, "map_partitions")
        and hasattr(x, "divisions")
        and x.ndim == ndim
    )
