"""The one scheduler: ranges of rows on a thread pool, BLAS on one thread inside, merges in a fixed order.

Work is dealt to a fixed number of lanes (it depends on the data's shape only); a lane does its blocks one after another and keeps its own
partial sums. Threads only decide which lanes run at the same time, so the bits of the result do not depend on their number.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from eckart.errors import wrong

_lock = threading.Lock()
_depth = 0
_controller: Any = None
_limiter: Any = None
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def resolve_threads(n_threads: int | None) -> int:
    """None means every core this process may use."""
    if n_threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(n_threads, bool) or not isinstance(n_threads, int) or n_threads < 1:
        raise wrong("n_threads", n_threads, "None or an int >= 1")
    return n_threads


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """BLAS uses one thread inside; the user's setting comes back when the last caller leaves."""
    global _depth, _controller, _limiter
    with _lock:
        if _depth == 0:
            if _controller is None:
                import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be limited)
                from threadpoolctl import ThreadpoolController

                _controller = ThreadpoolController()
            _limiter = _controller.limit(limits=1, user_api="blas")
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _limiter.restore_original_limits()


def run_lanes(work: Iterable[Any], lanes: list[Any], step: Callable[[Any, Any, dict], None], threads: int) -> None:
    """Deal item i of ``work`` to lane i mod len(lanes) and run ``step(lane, item, scratch)``; each lane keeps its order.

    ``scratch`` belongs to the thread, so that its buffers stay in that core's cache.

    At most one item a lane is in flight, so a stream is read only as fast as it is used. An interrupt or an error ends the
    run after the blocks in flight.
    """
    items = iter(work)
    head = list(itertools.islice(items, 2))
    work = itertools.chain(head, items)
    with single_threaded_blas():
        if threads == 1 or len(head) < 2:
            scratch: dict = {}
            for i, item in enumerate(work):
                step(lanes[i % len(lanes)], item, scratch)
            return
        local = threading.local()

        def run(lane: Any, item: Any) -> None:
            if not hasattr(local, "scratch"):
                local.scratch = {}
            step(lane, item, local.scratch)

        pending: list[Future | None] = [None] * len(lanes)
        pool = _workers(threads)
        try:
            for i, item in enumerate(work):
                at = i % len(lanes)
                if (before := pending[at]) is not None:
                    before.result()
                pending[at] = pool.submit(run, lanes[at], item)
            for future in pending:
                if future is not None:
                    future.result()
        finally:
            running = [future for future in pending if future is not None and not future.cancel()]
            wait(running)


def in_order(items: Iterable[Any], do: Callable[[Any], Any], threads: int) -> Iterator[Any]:
    """``do(item)`` for each item, in the order of the items; at most two items a thread are in flight, so a stream is read only as fast as it is used.

    >>> list(in_order([3, 1, 2], lambda x: 2 * x, threads=2))
    [6, 2, 4]
    """
    if threads == 1:
        yield from map(do, items)
        return
    pool, waiting = _workers(threads), deque[Future]()
    try:
        for item in items:
            waiting.append(pool.submit(do, item))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        wait([future for future in waiting if not future.cancel()])


def _workers(threads: int) -> ThreadPoolExecutor:
    """Worker threads that are kept between calls; a forked process gets its own."""
    key = (os.getpid(), threads)
    with _lock:
        if key not in _pools:
            _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="eckart")
        return _pools[key]
