"""Defaults on many data sets of a kind, beside the simple baseline and the usual rival: wins, ties
and losses, with standard errors.

    python benchmarks/defaults.py --tables FOLDER [--only SET,SET] [--half choose|judge] KIND [KIND
    ...]

A kind is a file ``benchmarks/kinds/KIND.py`` (``-`` in the name of a kind is ``_`` in that of its
file) with

    BASELINES, RIVALS    names of the answers that ours is compared with: the simple ones, and the
    usual one
    sets(tables)         names of its data sets
    cases(tables, name)  yields a ``Case`` for each comparison on this data set

``tables`` is the module ``tables.py`` of FOLDER (``load(name)``, ``names(kind)``). Sets at even
places of the sorted names are for choosing a default, the others for judging it, and both are
counted apart. Two answers differ where the mean difference of their losses, unit by unit, is more
than one standard error. Lines go to ``benchmarks/results/defaults_KIND.jsonl``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).resolve().parent


class Case(NamedTuple):
    """A data set (with the words for its variant) and the losses of every answer, ours first: one
    loss for each unit (a cell, a row, a fold), the same for all answers; less is better.
    ``rooted``: shown as the root of the mean loss. ``seconds``: of the processor, by answer."""

    name: str
    losses: dict[str, np.ndarray]
    seconds: dict[str, float]
    note: str = ""
    rooted: bool = False

    @property
    def shown(self) -> dict[str, float]:
        means = {name: float(np.mean(a)) for name, a in self.losses.items()}
        return {name: float(np.sqrt(m)) if self.rooted else m for name, m in means.items()}

    def against(self, other: str) -> float:
        """Our mean loss less that of another answer, in standard errors of the difference."""
        away = next(iter(self.losses.values())) - self.losses[other]
        spread = float(np.std(away, ddof=1) / np.sqrt(len(away))) if len(away) > 1 else 0.0
        return (
            float(np.mean(away)) / spread
            if spread > 0
            else float(np.sign(np.mean(away))) * np.inf
            if np.mean(away)
            else 0.0
        )


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and its processor seconds."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def run(kind: str, tables: Any, only: list[str] | None, half: str | None) -> None:
    module = importlib.import_module(f"kinds.{kind.replace('-', '_')}")
    found: list[tuple[str, Case]] = []
    file = HERE / "results" / f"defaults_{kind.replace('-', '_')}.jsonl"
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for place, name in enumerate(sorted(module.sets(tables))):
        part = "judge" if place % 2 else "choose"
        if (only and name not in only) or half not in (None, part):
            continue
        kept = [row for row in kept if row["set"] != name]
        for case in module.cases(tables, name):
            found.append((part, case))
            others = [n for n in case.losses if n != next(iter(case.losses))]
            away = {n: round(case.against(n), 2) for n in others}
            kept.append(
                {
                    "set": name,
                    "half": part,
                    "case": case.name,
                    "units": len(next(iter(case.losses.values()))),
                    "loss": {n: float(f"{v:.5g}") for n, v in case.shown.items()},
                    "standard errors": away,
                    "seconds": {n: round(s, 2) for n, s in case.seconds.items()},
                    "note": case.note,
                }
            )
            told = "  ".join(
                f"{n} {v:.4g}" + (f" ({away[n]:+.1f})" if n in away else "")
                for n, v in case.shown.items()
            )
            print(f"{part:6} {case.name:<28} {told}  {case.note}", flush=True)
        file.write_text(
            "".join(
                json.dumps(row) + "\n"
                for row in sorted(kept, key=lambda row: (row["half"], row["case"]))
            )
        )
    summary(kind, found, module.BASELINES, module.RIVALS)


def summary(
    kind: str, found: list[tuple[str, Case]], baselines: tuple[str, ...], rivals: tuple[str, ...]
) -> None:
    """Wins, ties and losses beyond one standard error, and the median ratio of the errors, against
    each answer and on each half."""
    print(
        f"{kind}: against, half: wins, ties, losses (beyond one standard error), median "
        "of ours over theirs"
    )
    for other in (*baselines, *rivals):
        for part in ("choose", "judge"):
            cases = [case for half, case in found if half == part and other in case.losses]
            if not cases:
                continue
            away = np.array([case.against(other) for case in cases])
            ours = [
                next(iter(case.shown.values())) / max(case.shown[other], 1e-300) for case in cases
            ]
            counts = (away < -1).sum(), (np.abs(away) <= 1).sum(), (away > 1).sum()
            print(
                f"  {other:<16} {part:6} {counts[0]:>3} {counts[1]:>3} {counts[2]:>3}   "
                f"{np.median(ours):.4f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--tables", type=Path, required=True, help="the folder of tables.py")
    parser.add_argument("--only", help="sets, with commas")
    parser.add_argument("--half", choices=("choose", "judge"))
    given = parser.parse_args()
    sys.path.insert(0, str(HERE))
    spec = importlib.util.spec_from_file_location(
        "real_tables", given.tables / "tables.py"
    )  # ``tables`` is a benchmark here
    catalogue = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(catalogue)
    for wanted in given.kinds:
        run(wanted, catalogue, given.only and given.only.split(","), given.half)
