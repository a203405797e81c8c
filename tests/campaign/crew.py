"""Attacks on all cores.

Every worker is a process with a seed of its own. A worker that dies (a crash below Python), that
says nothing for ``HANG`` seconds or whose memory grows beyond ``GROWTH`` counts as broken, too;
what it was trying lies in its folder and is kept.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from campaign import Broken

HANG = 120.0
"""Seconds: no attempt takes more than a few, compiling on a busy machine included."""
ASKED = 64_000_000_000
"""Bytes of addresses that a worker may ask for: threads reserve some for stacks and heaps, a
damaged header asks for far more."""
GROWTH = 500_000_000
"""Bytes of memory by which a worker may grow: files of the campaign have a few thousand; compiled
code needs some hundred millions."""


def work(part: str, seed: int, end: float, home: str, tell: Any) -> None:
    """One worker: attempts until the end; the counts so far go to ``tell`` every second."""
    warnings.simplefilter("ignore")
    folder = Path(home)
    counts: Counter[str] = Counter()
    told = time.monotonic()
    begun = 0.0
    while time.monotonic() < end:
        try:
            attempts = importlib.import_module(f"campaign.{part}").attempts(
                np.random.default_rng(seed), folder
            )
            with np.errstate(all="ignore"):
                for word in attempts:
                    counts[word] += 1
                    now = time.monotonic()
                    if now - told > 1:
                        tell.send(dict(counts))
                        told = now
                        if part == "files" and begun == 0.0:  # everything is loaded and compiled
                            begun = held()
                            resource.setrlimit(resource.RLIMIT_AS, (ASKED, ASKED))
                        if part == "files" and held() > begun + GROWTH:
                            raise Broken(
                                f"the memory grew from {begun:.3g} to {held():.3g} "
                                f"bytes, last by {word}"
                            )
                    if now > end:
                        break
        except Exception:
            counts["BROKEN"] += 1
            print(
                f"{part}, seed {seed}, attempt {counts.total()}:\n{traceback.format_exc()}",
                flush=True,
            )
        seed += 100_000  # go on elsewhere after a failure
    tell.send(dict(counts))


def held() -> float:
    """Bytes in memory now."""
    return float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def attack(part: str, seed: int, seconds: float, workers: int) -> Counter[str]:
    """All workers of one part, watched."""
    context = multiprocessing.get_context("spawn")
    end = time.monotonic() + seconds
    crew = []
    for w in range(workers):
        folder = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        hear, tell = context.Pipe(False)
        process = context.Process(target=work, args=(part, seed + 1000 * w, end, folder, tell))
        process.start()
        tell.close()
        crew.append([process, hear, folder, time.monotonic(), {}])
    total: Counter[str] = Counter()
    while crew:
        time.sleep(0.1)
        for member in list(crew):
            process, hear, folder, _, _ = member
            try:
                while hear.poll():
                    member[4], member[3] = hear.recv(), time.monotonic()
            except EOFError:
                pass
            silent = time.monotonic() - member[3] > HANG
            if silent:
                process.kill()
                process.join()
            if process.is_alive():
                continue
            total.update(member[4])
            if process.exitcode != 0:
                kept = Path(f"broken-{part}-{process.pid}")
                shutil.copytree(folder, kept)
                total["BROKEN"] += 1
                print(
                    f"{part}: a worker "
                    f"{'hangs' if silent else f'died with {process.exitcode}'}; what it "
                    f"did is in {kept}"
                )
            shutil.rmtree(folder, ignore_errors=True)
            crew.remove(member)
    return total
