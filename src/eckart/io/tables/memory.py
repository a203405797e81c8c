"""How much memory data may take: as said, or what the machine has free."""

from __future__ import annotations

import re
from typing import Any

from eckart.engines import available_memory
from eckart.errors import invalid

UNITS = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
SHARE = 0.7
"""Of what is free, where nothing was said: the rest is for factors, threads and others."""


def memory_of(said: Any) -> float:
    """Bytes: a number, or a word such as "4GB"; None is most of what this machine has free.

    >>> memory_of("4GB"), memory_of(1000)
    (4294967296.0, 1000.0)
    """
    if said is None:
        return SHARE * available_memory()
    if isinstance(said, (int, float)) and not isinstance(said, bool) and said > 0:
        return float(said)
    found = (
        re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?i?B?)\s*", said, re.IGNORECASE)
        if isinstance(said, str)
        else None
    )
    if found is None or found[1].count(".") > 1:
        raise invalid("memory", said, "a number of bytes, or a word such as '4GB'")
    unit = found[2].upper().replace("I", "")
    return float(found[1]) * UNITS[unit if unit.endswith("B") or not unit else unit + "B"]
