"""Workers that die at random moments."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter


class Killer:
    """Ends workers by SIGKILL while it is entered: each lives ``mean`` seconds on average, counted
    from when it can work, whatever its age."""

    TICK = 0.05

    def __init__(self, client, mean: float, seed: int = 0):
        self.client, self.mean, self.rng = client, mean, random.Random(seed)
        self.stop, self.killed = threading.Event(), 0
        self.during: Counter[str] = Counter()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def alive(self) -> list[int]:
        """Workers that are at work: one that is still starting does not live yet, and its nanny
        would give up on it for good."""
        known = set(self.client.scheduler_info(n_workers=-1)["workers"])
        nannies = [
            w
            for w in self.client.cluster.workers.values()
            if w.process is not None and w.process.status.name == "running"
        ]
        return [w.pid for w in nannies if w.pid and w.worker_address in known]

    def one(self) -> None:
        if alive := self.alive():
            self.kill(self.rng.choice(alive))

    def kill(self, pid: int) -> None:
        doing = self.work()
        os.kill(pid, signal.SIGKILL)
        self.killed += 1
        self.during[doing] += 1

    def work(self) -> str:
        """What the client waits for: the primitive of a call, or the first word of a key of
        Dask."""
        keys = [
            str(key)
            for key, future in list(self.client.futures.items())
            if future.status == "pending"
        ]
        words = {
            key.split("-")[3]
            if key.startswith("eckart-") and key.count("-") > 2
            else key.split("-")[0].strip("('")
            for key in keys
        }
        return " ".join(sorted(words)) or "between calls"

    def _run(self) -> None:
        while not self.stop.wait(self.TICK):
            for pid in self.alive():
                if self.rng.random() < self.TICK / self.mean:
                    # its nanny is starting another one
                    with contextlib.suppress(ProcessLookupError):
                        self.kill(pid)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
