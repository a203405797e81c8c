"""Interrupts at random moments of short runs, for ``test_scheduler``: prints how many runs there
were, how many were interrupted, and the idle workers."""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import numpy as np

from eckart import scheduler


class Interrupted:
    """Calls ``work`` again and again for some seconds and sends this process an interrupt every 1.5
    ms on average; counts calls that ended and interrupts.

    The first call is left alone, since what it imports and compiles would never come to an end.
    Only ``work`` is interrupted: a signal that arrives while the last one is being counted, or
    after the end, is let go, for nothing there could catch it.
    """

    def __init__(self, work: Callable[[], None], seconds: float):
        self.runs = self.count = 0
        self._inside = False
        work()
        signal.signal(signal.SIGINT, self._interrupt)
        kicker = threading.Thread(target=self._kick, args=(seconds,), daemon=True)
        kicker.start()
        while kicker.is_alive():
            try:
                self._inside = True
                work()
                self._inside = False
                self.runs += 1
            except KeyboardInterrupt:
                self.count += 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._inside:
            self._inside = False
            raise KeyboardInterrupt

    def _kick(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(random.random() * 0.003)
            os.kill(os.getpid(), signal.SIGINT)


def main(seconds: float) -> None:
    def work() -> None:
        scheduler.run_lanes(
            list(range(40)), [None] * 16, lambda lane, item, scratch: np.ones(2000).sum(), 8
        )

    done = Interrupted(work, seconds)
    scheduler.run_lanes(
        list(range(40)), [None] * 16, lambda lane, item, scratch: time.sleep(0.01), 8
    )
    time.sleep(0.2)
    print(done.runs, done.count, len(scheduler.pool_of(8).idle))


if __name__ == "__main__":
    main(float(sys.argv[1]))
