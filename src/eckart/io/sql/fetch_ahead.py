"""Batches that are fetched by a thread while the ones before are worked on: a server and its driver
need a core, and so does who indexes the rows."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any

BATCHES = 2
"""Batches that wait: one is enough to keep both sides busy, the second evens them out; more would
only be held."""
LOOK_EVERY = 0.1
"""Seconds after which a thread whose batches nobody takes asks whether anyone still wants them."""
_END = object()


def ahead(batches: Generator[Any, None, None]) -> Iterator[Any]:
    """The same batches in the same order; errors come where they would have come. Who stops early
    leaves no thread behind."""
    waiting: queue.Queue[Any] = queue.Queue(BATCHES)
    unwanted = threading.Event()

    def give(what: Any) -> bool:
        while not unwanted.is_set():
            try:
                waiting.put(what, timeout=LOOK_EVERY)
                return True
            except queue.Full:
                continue
        return False

    def fetch() -> None:
        try:
            if all(map(give, batches)):
                give(_END)
        except BaseException as error:
            give(error)
        finally:
            batches.close()

    thread = threading.Thread(target=fetch, name="eckart-sql", daemon=True)
    thread.start()
    try:
        while (what := waiting.get()) is not _END:
            if isinstance(what, BaseException):
                raise what
            yield what
    finally:
        unwanted.set()
        thread.join()
