"""Interrupts at random moments of short runs, for ``test_scheduler``: prints how many runs there were, how many were interrupted, and the idle workers."""

import os
import random
import signal
import sys
import threading
import time

import numpy as np

from eckart import scheduler


def kick(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(random.random() * 0.003)
        os.kill(os.getpid(), signal.SIGINT)


def main(seconds: float) -> None:
    runs = interrupted = 0
    kicker = threading.Thread(target=kick, args=(seconds,), daemon=True)
    kicker.start()
    while True:
        try:
            while kicker.is_alive():
                runs += 1
                scheduler.run_lanes(list(range(40)), [None] * 16, lambda lane, item, scratch: np.ones(2000).sum(), 8)
            break
        except KeyboardInterrupt:
            interrupted += 1
    scheduler.run_lanes(list(range(40)), [None] * 16, lambda lane, item, scratch: time.sleep(0.01), 8)
    time.sleep(0.2)
    print(runs, interrupted, len(scheduler._crews[(os.getpid(), 8)].idle))


if __name__ == "__main__":
    main(float(sys.argv[1]))
