"""Whether something is a collection of Dask, asked without loading Dask."""

from __future__ import annotations

import sys
from typing import Any


def is_collection(x: Any) -> bool:
    """Whether x is a collection of Dask (which nobody has where Dask is not loaded)."""
    if "dask" not in sys.modules:
        return False
    from dask import is_dask_collection

    return is_dask_collection(x)
