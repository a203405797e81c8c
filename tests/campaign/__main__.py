"""Run the attacks for so many minutes, spread evenly, on all cores, and print what came of them."""

from __future__ import annotations

import argparse
import os

from campaign.crew import attack

PARTS = ("files", "faults", "kills", "differential", "stateful", "threads")


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--minutes", type=float, default=10)
    asked.add_argument("--parts", nargs="*", default=list(PARTS))
    asked.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    ask = asked.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # small problems, and a worker on every core
    broken = 0
    for part in ask.parts:
        counts = attack(part, ask.seed, 60 * ask.minutes / len(ask.parts), ask.workers)
        broken += counts["BROKEN"]
        told = ", ".join(f"{n:,} {word}" for word, n in counts.most_common())
        print(f"{part:13} {counts.total():>9,} attempts: {told}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
