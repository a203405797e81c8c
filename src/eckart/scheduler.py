"""The one scheduler: ranges of rows on a thread pool, BLAS on one thread inside, merges in a fixed
order.

Work is dealt to lanes whose number depends on the data's shape only; a lane does its items one
after another and keeps its own partial sums. Threads only decide which lanes run at the same time,
so the bits of a result do not depend on their number.
"""

from __future__ import annotations

import ctypes
import itertools
import numbers
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, cast

from eckart.errors import invalid

MOST_LANES = 64
"""Lanes at the most: enough for 64 threads, few enough that merging them costs nothing."""
MOST_THREADS = 4096
"""Threads that may be asked for: more than any machine of today has; a slip of the hand beyond it
would only starve the machine."""
CALLING = 1e-4
"""Seconds that one more thread costs a piece of work: it is woken, and waits for the interpreter's
lock before and after each of its products. On 16 cores 5e-5 were measured where a step is one call,
and 2e-4 where it is several."""
REMEMBERED = 2**12
"""Kinds of work whose seconds are remembered; more would mean that work is never repeated, and then
nothing is learned."""

_lock = threading.Lock()
_depth = 0
_controller: Any = None
_limiter: Any = None
_seconds: dict[Any, float] = {}
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_workers_of: dict[tuple[int, int], WorkerPool] = {}


def resolve_threads(n_threads: int | None) -> int:
    """None means every core this process may use."""
    if n_threads is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if (
        isinstance(n_threads, bool)
        or not isinstance(n_threads, numbers.Integral)
        or not 1 <= n_threads <= MOST_THREADS
    ):
        raise invalid("n_threads", n_threads, f"None or an int from 1 to {MOST_THREADS}")
    return int(n_threads)


def lanes_for(items: int, partial_bytes: int = 0, room: int = 2**26, most: int = MOST_LANES) -> int:
    """How many lanes: a power of two, at most ``items`` and ``most``, whose partial sums stay
    within ``room`` bytes together (but two at the least).

    Only the shape of the work enters, never the number of threads.

    >>> lanes_for(1000), lanes_for(5), lanes_for(1000, 2**23), lanes_for(1000, 2**30), lanes_for(1)
    (64, 4, 8, 2, 1)
    """
    wanted = min(most, max(1, items), max(2, room // partial_bytes) if partial_bytes else most)
    return 2 ** (int(wanted).bit_length() - 1)


def give_back() -> None:
    """Memory that was let go, and that C keeps for later, back to the system: what follows may need
    it for arrays of other sizes."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


class single_threaded_blas:
    """BLAS uses one thread inside; the user's setting comes back when the last caller leaves."""

    def __enter__(self) -> None:
        global _depth, _controller, _limiter
        with _lock:
            if _depth == 0:
                if _controller is None:
                    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be limited)
                    from threadpoolctl import ThreadpoolController

                    _controller = ThreadpoolController()
                _limiter = _controller.limit(limits=1, user_api="blas")
            _depth += 1

    def __exit__(self, *_: Any) -> None:
        global _depth
        with _lock:
            _depth -= 1
            if _depth == 0:
                _limiter.restore_original_limits()


class _Whole:
    """Hands out (lane, item) of work that is known as a whole: a thread takes a lane and does all
    its items, so that dealing costs next to nothing."""

    def __init__(self, work: Any, lanes: int):
        self.work, self.count, self.stopped = work, lanes, False
        self.lanes, self.taken, self.turn, self.own = (
            min(lanes, len(work)),
            0,
            threading.Lock(),
            threading.local(),
        )

    def next(self) -> tuple[int, Any] | None:
        at = getattr(self.own, "at", None)
        if at is None or at >= len(self.work):
            with self.turn:
                at, self.taken = self.taken, self.taken + 1
            if at >= self.lanes:
                return None
        if self.stopped:
            return None
        self.own.at = at + self.count
        return at % self.count, self.work[at]

    def left(self) -> bool:
        """Whether another thread would find something to do."""
        return self.taken < self.lanes and not self.stopped

    def done(self, at: int) -> None:
        """Nobody waits."""

    def stop(self) -> None:
        self.stopped = True


class _Dealer:
    """Hands out (lane, item): item i belongs to lane i mod L, a lane runs one item at a time and in
    order. A stream is read only as fast as it is used: at most ``ahead`` items wait for a busy
    lane."""

    def __init__(self, work: Iterator[Any], lanes: int, ahead: int):
        self.work, self.ahead = enumerate(work), ahead
        self.queues: list[deque] = [deque() for _ in range(lanes)]
        self.busy = [False] * lanes
        self.ready: deque[int] = deque()  # idle lanes whose queue is not empty
        self.waiting, self.ended, self.stopped = 0, False, False
        self.turn = threading.Condition()

    def next(self) -> tuple[int, Any] | None:
        """The next item that may run now, or None when there will be none; waits while all that is
        left belongs to busy lanes."""
        with self.turn:
            while not self.stopped:
                if self.ready:
                    at = self.ready.popleft()
                    self.busy[at] = True
                    self.waiting -= 1
                    return at, self.queues[at].popleft()
                if not self.ended and self.waiting < self.ahead:
                    try:
                        i, item = next(self.work)
                    except StopIteration:
                        self.ended = True
                        self.turn.notify_all()
                        continue
                    at = i % len(self.queues)
                    if not self.busy[at]:
                        self.busy[at] = True
                        return at, item
                    self.queues[at].append(item)
                    self.waiting += 1
                elif self.ended and not self.waiting:
                    self.turn.notify_all()  # nothing is left for the others either
                    return None
                else:
                    self.turn.wait()
            return None

    def left(self) -> bool:
        """Whether another thread would find something to do."""
        return not (self.ended or self.stopped)

    def done(self, at: int) -> None:
        with self.turn:
            self.busy[at] = False
            if self.queues[at]:
                self.ready.append(at)
            self.turn.notify()

    def stop(self) -> None:
        with self.turn:
            self.stopped = True
            self.turn.notify_all()


class WorkerPool:
    """Workers for so many threads, the caller's among them."""

    def __init__(self, threads: int):
        self.lock, self.workers = threading.Lock(), [Worker(self) for _ in range(threads - 1)]
        self.idle = list(self.workers)

    def take(self, run: ParallelRun) -> Worker | None:
        """A worker that now belongs to the run but still sleeps; None where all are at work."""
        with self.lock:
            if not self.idle:
                return None
            worker = self.idle.pop()
            # in one step: an interrupt finds both or neither
            worker.run, run.called = run, run.called + 1
            return worker

    def come_back(self, worker: Worker) -> None:
        with self.lock:
            worker.busy = False
            self.idle.append(worker)

    def mend(self, run: ParallelRun) -> None:
        """After an interrupt: a worker whom it caught between being taken and being woken is woken
        now, one who belongs to nobody is idle again."""
        with self.lock:
            for worker in self.workers:
                if worker.run is run:
                    # awake already; one who finds no run goes back to sleep
                    with suppress(RuntimeError):
                        worker.bell.release()
                elif worker.run is None and not worker.busy and worker not in self.idle:
                    self.idle.append(worker)


class Worker:
    """A thread that sleeps between pieces of work until its bell, a lock, is released: a third of what a
    task of a thread pool costs."""

    def __init__(self, pool: WorkerPool):
        self.bell, self.run, self.busy = threading.Lock(), cast("ParallelRun | None", None), False
        self.bell.acquire()
        threading.Thread(target=self.live, args=(pool,), name="eckart", daemon=True).start()

    def live(self, pool: WorkerPool) -> None:
        while True:
            self.bell.acquire()
            run, self.run, self.busy = self.run, None, self.run is not None
            if run is not None:
                run.help_out()
                pool.come_back(self)
                run.leave()
            run = None  # nothing is kept alive while asleep


class ParallelRun:
    """Threads at one piece of work: the caller and up to ``most`` workers. An object, not closures
    that name each other: those would keep what a step holds until the collector comes by."""

    def __init__(
        self,
        dealer: Any,
        lanes: list[Any],
        step: Callable[[Any, Any, dict], None],
        most: int,
        pool: WorkerPool,
    ):
        self.dealer, self.lanes, self.step, self.most, self.pool = dealer, lanes, step, most, pool
        self.lock, self.end = threading.Lock(), threading.Lock()
        self.called = self.gone = self.own_items = 0
        self.closed, self.error = False, cast("BaseException | None", None)
        self.end.acquire()

    def work(self) -> None:
        """All of it; the caller works too. Returns, or raises, when no worker is at it any more.
        Only the caller can be interrupted, at any place: every step from here on may be done
        twice."""
        try:
            self.own_items = self.help_out()
        except BaseException as error:  # while a worker was being called
            self.failed(error)
        while True:
            try:
                if self.error is not None:
                    self.pool.mend(self)
                self.close()
                self.end.acquire()
                break
            except KeyboardInterrupt as error:
                self.failed(error)
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # the traceback holds this run

    def help_out(self) -> int:
        """Do what is left, item by item; how many of them this thread did."""
        # every thread that wakes calls two others: all are awake soon, and short work is over
        # before many are
        self.call()
        self.call()
        scratch: dict = {}
        count = 0
        try:
            while (found := self.dealer.next()) is not None:
                self.step(self.lanes[found[0]], found[1], scratch)
                self.dealer.done(found[0])
                count += 1
        except BaseException as error:
            self.failed(error)
        return count

    def call(self) -> None:
        """Wake one more worker, if one may be had and there is something left for it."""
        if self.called < self.most and self.dealer.left():
            worker = self.pool.take(self)
            if worker is not None:
                worker.bell.release()

    def leave(self) -> None:
        """Count one worker out; the last of all opens the end."""
        with self.lock:
            self.gone += 1
            last = self.closed and self.gone == self.called
        if last:
            self.open_end()

    def close(self) -> None:
        """Nobody is called any more by the caller; open the end if no worker is left, or wait for
        the last."""
        with self.lock:
            self.closed = True
            last = self.gone == self.called
        if last:
            self.open_end()

    def open_end(self) -> None:
        with suppress(RuntimeError):  # it is open already
            self.end.release()

    def failed(self, error: BaseException) -> None:
        """The first error counts, but an interrupt more than that."""
        self.dealer.stop()
        if self.error is None or isinstance(error, KeyboardInterrupt):
            self.error = error


def pool_of(threads: int) -> WorkerPool:
    """Kept between calls; a forked process gets its own."""
    key = (os.getpid(), threads)
    with _lock:
        if key not in _workers_of:
            _workers_of[key] = WorkerPool(threads)
        return _workers_of[key]


def run_lanes(
    work: Iterable[Any], lanes: list[Any], step: Callable[[Any, Any, dict], None], threads: int
) -> None:
    """Deal item i of ``work`` to lane i mod len(lanes) and run ``step(lane, item, scratch)``; each
    lane keeps its order.

    ``scratch`` belongs to the thread, so that its buffers stay in that core's cache. The caller
    works too, so a call from inside a step cannot wait for itself. An interrupt or an error ends
    the run after the items in flight.
    """
    known = isinstance(work, (list, tuple, range))
    items = iter(work)
    head = list(itertools.islice(items, 2))
    with single_threaded_blas():
        pool_size, threads = threads, min(threads, len(lanes))
        if threads == 1 or len(head) < 2:
            scratch: dict = {}
            for i, item in enumerate(itertools.chain(head, items)):
                step(lanes[i % len(lanes)], item, scratch)
            return
        if not known:
            dealer = _Dealer(itertools.chain(head, items), len(lanes), len(lanes))
            ParallelRun(dealer, lanes, step, threads - 1, pool_of(pool_size)).work()
            return
        count, kind = len(work), _kind_of(work, step)  # type: ignore[arg-type]
        worth = threads_worth(_seconds.get(kind), min(threads, count))
        run = ParallelRun(_Whole(work, len(lanes)), lanes, step, worth - 1, pool_of(pool_size))
        # of the calling thread: what others take beside it does not count
        before = time.thread_time()
        run.work()
        if run.own_items:
            _learn(kind, (time.thread_time() - before) * count / run.own_items)


def threads_worth(seconds: float | None, most: int) -> int:
    """How many of ``most`` threads make work of so many seconds end soonest: seconds / t + CALLING
    t is least at t = sqrt(seconds / CALLING).

    Work that was not seen before is taken to be long.

    >>> threads_worth(None, 16), threads_worth(1e-5, 16), threads_worth(1e-3, 16), threads_worth(1.0, 16)
    (16, 1, 3, 16)
    """
    return most if seconds is None else max(1, min(most, round((seconds / CALLING) ** 0.5)))


def _kind_of(work: Any, step: Any) -> Any:
    """What makes a piece of work the same as an earlier one: the code of the step and of the
    functions it was made from, the number of items, and where the first of them ends. Bits never
    depend on it: it only decides how many threads are called."""
    codes = [getattr(step, "__code__", type(step))]
    for cell in getattr(step, "__closure__", None) or ():
        with suppress(ValueError):  # not filled yet
            codes.append(getattr(cell.cell_contents, "__code__", None))
    first = work[0]
    ends = first[:2] if isinstance(first, tuple) else ()
    return tuple(codes), len(work), tuple(end for end in ends if isinstance(end, numbers.Integral))


def _learn(kind: Any, seconds: float) -> None:
    """Seconds of one thread that this kind of work takes; the mean with what was known, since one
    look may be disturbed."""
    if len(_seconds) >= REMEMBERED:
        _seconds.clear()
    known = _seconds.get(kind)
    _seconds[kind] = seconds if known is None else (known + seconds) / 2


def in_order(items: Iterable[Any], do: Callable[[Any], Any], threads: int) -> Iterator[Any]:
    """``do(item)`` for each item, in the order of the items; at most two items a thread are in
    flight, so a stream is read only as fast as it is used.

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
