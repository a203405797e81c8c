"""Seconds of work, wherever it is done: the processor time of this process, and the time for which
it waits for a cluster and does nothing itself.

Processor time alone would call a fit on a cluster free, and what else the machine does has no say
in it; of the workers' time only what was waited for counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_waited, _lock = [0.0], threading.Lock()


def spent() -> float:
    """Such seconds since this process began."""
    return time.process_time() + _waited[0]


@contextmanager
def waiting() -> Iterator[None]:
    """Around work that a cluster does. Workers may be threads of this process: what they work is
    counted by the processor already."""
    begin, own = time.monotonic(), time.process_time()
    try:
        yield
    finally:
        with _lock:
            _waited[0] += max(0.0, time.monotonic() - begin - (time.process_time() - own))
