"""Run the attacks for so many minutes, spread evenly, and print what came of them."""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

PARTS = ("files", "faults", "kills", "differential", "stateful", "threads")


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--minutes", type=float, default=10)
    asked.add_argument("--parts", nargs="*", default=list(PARTS))
    ask = asked.parse_args()
    warnings.simplefilter("ignore")
    broken = 0
    for part in ask.parts:
        counts: Counter[str] = Counter()
        end = time.monotonic() + 60 * ask.minutes / len(ask.parts)
        with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
            seed = ask.seed
            while time.monotonic() < end:
                try:
                    for word in importlib.import_module(f"campaign.{part}").attempts(
                        np.random.default_rng(seed), Path(folder)
                    ):
                        counts[word] += 1
                        if time.monotonic() > end:
                            break
                except Exception:
                    counts["BROKEN"] += 1
                    print(f"{part}, seed {seed}, attempt {counts.total()}:\n{traceback.format_exc()}", flush=True)
                seed += 1000  # go on elsewhere after a failure
        broken += counts["BROKEN"]
        print(
            f"{part:13} {counts.total():>9,} attempts: "
            + ", ".join(f"{n:,} {word}" for word, n in counts.most_common()),
            flush=True,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
