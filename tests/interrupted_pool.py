"""Interrupts at random moments of work on the thread pool, in a process of its own: prints how many runs
ended, how many were interrupted, how many had a wrong answer, and how many threads were still at
work afterwards."""

from __future__ import annotations

import sys
import time

import numpy as np
from numba import njit

from eckart.engines.cpu.native import pool
from interrupted_lanes import Interrupted


@njit(nogil=True, cache=True)
def long_sum(part, who, a, out):
    total = 0.0
    for _ in range(20):
        for x in a:
            total += x * (part + 1)
    out[part] = total


def main(seconds: float) -> None:
    a, out, wanted = np.ones(500), np.empty(64), 20 * 500.0 * np.arange(1, 65)
    wrong = 0

    def work() -> None:
        nonlocal wrong
        out[:] = -1
        pool.run_parts(long_sum, 64, (a, out), 4)
        wrong += int((out != wanted).any())

    done = Interrupted(work, seconds)
    time.sleep(0.05)
    team = pool.pool()
    assert team is not None
    states = [
        pool.load_word(team.board + pool.OWN + who * pool.LINE) for who in range(1, team.size + 1)
    ]
    print(done.runs, done.count, wrong, sum(state != pool.IDLE for state in states))


if __name__ == "__main__":
    main(float(sys.argv[1]))
