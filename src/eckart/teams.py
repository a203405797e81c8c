"""Threads that sleep between pieces of work and are called to the next one: crews of workers, and
the team at one piece of work (``scheduler``)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

_lock = threading.Lock()
_pools: dict[tuple[int, int], WorkerPool] = {}


class WorkerPool:
    """Workers for so many threads, the caller's among them."""

    def __init__(self, threads: int):
        self.lock, self.workers = threading.Lock(), [Worker(self) for _ in range(threads - 1)]
        self.idle = list(self.workers)

    def take(self, team: Team) -> Worker | None:
        """A worker that now belongs to the team but still sleeps; None where all are at work."""
        with self.lock:
            if not self.idle:
                return None
            worker = self.idle.pop()
            # in one step: an interrupt finds both or neither
            worker.team, team.called = team, team.called + 1
            return worker

    def come_back(self, worker: Worker) -> None:
        with self.lock:
            worker.busy = False
            self.idle.append(worker)

    def mend(self, team: Team) -> None:
        """After an interrupt: a worker whom it caught between being taken and being woken is woken
        now, one who belongs to nobody is idle again."""
        with self.lock:
            for worker in self.workers:
                if worker.team is team:
                    # awake already; one who finds no team goes back to sleep
                    with suppress(RuntimeError):
                        worker.gate.release()
                elif worker.team is None and not worker.busy and worker not in self.idle:
                    self.idle.append(worker)


class Worker:
    """A thread that sleeps at its gate between pieces of work. Opening a gate costs a third of what
    a task of a thread pool does."""

    def __init__(self, pool: WorkerPool):
        self.gate, self.team, self.busy = threading.Lock(), cast("Team | None", None), False
        self.gate.acquire()
        threading.Thread(target=self.live, args=(pool,), name="eckart", daemon=True).start()

    def live(self, pool: WorkerPool) -> None:
        while True:
            self.gate.acquire()
            team, self.team, self.busy = self.team, None, self.team is not None
            if team is not None:
                team.help_out()
                pool.come_back(self)
                team.leave()
            team = None  # nothing is kept alive while asleep


class Team:
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

    def run(self) -> None:
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
                self.error = None  # the traceback holds this team

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
                worker.gate.release()

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
        if key not in _pools:
            _pools[key] = WorkerPool(threads)
        return _pools[key]
