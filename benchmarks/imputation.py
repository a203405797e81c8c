"""Cells hidden at random in real tables: MixedTable beside means, neighbours, chained ridge and
chained trees.

    python benchmarks/imputation.py TOOLS [--only TABLE ...] [--methods METHOD ...] [--again METHOD
    ...] [--share 0.1 ...]

TOOLS is the folder of ``tables.py``, a catalogue of real tables out of packages; its tables of
numbers (a) and of several kinds (b) are taken, evenly spread ROWS rows and COLUMNS columns of each
at most. Of the known cells 10 and 30 % are hidden, MASKS times of tables of fewer than FEW rows, where a few
cells decide: their errors and seconds are means. The error of a column of numbers is the root
mean squared error at them in standard deviations of the column, that of a column of levels (0 and 1
alone among them) the share of wrong ones; the error of a table is the mean over its columns. Rivals
get standardised numbers and one column of 0 and 1 for each level; their answers, clipped to 0.001
.. 0.999 and scaled to sum 1, are taken for probabilities. Seconds are those of the processor, on
one thread, for fit and answer together, compiled code being there.

Figures are kept in ``results/imputation.jsonl`` and taken from there, but those of eckart (and of
``--again``), which are measured anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor  # noqa: E402
from sklearn.experimental import enable_iterative_imputer  # noqa: E402, F401
from sklearn.impute import IterativeImputer, KNNImputer  # noqa: E402
from tables import by_imputer, by_model, hide, one_hot  # noqa: E402

from eckart import MixedTable  # noqa: E402
from eckart.io.tables.mixed import mixed_frame  # noqa: E402

ROWS, COLUMNS, LEVELS = 700, 24, 12
"""Chained trees of more take hours; rarer levels of a category are one more level, so that tables
of one column for each level stay narrow."""
SHARES = (0.1, 0.3)
FEW, MASKS = 350, 5
TIE = 0.02
RESULTS = Path(__file__).parent / "results" / "imputation.jsonl"
OURS = "eckart"


class Means:
    """The mean of each column; the share of each level."""

    def fit_transform(self, z: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(z), 0.0, z)


RIVALS: dict[str, Any] = {
    "mean, mode": Means,
    "neighbours": lambda: KNNImputer(n_neighbors=5),
    "chained ridge": lambda: IterativeImputer(random_state=0),
    "chained boosting": lambda: IterativeImputer(
        HistGradientBoostingRegressor(max_iter=40, random_state=0), max_iter=3, random_state=0
    ),
    "chained forests": lambda: IterativeImputer(
        ExtraTreesRegressor(50, min_samples_leaf=2, max_features=0.5, random_state=0, n_jobs=1),
        max_iter=3,
        random_state=0,
    ),
}


def tables(folder: str) -> dict[str, tuple[str, pd.DataFrame]]:
    sys.path.append(folder)
    catalogue = {name: module for name, module in sys.modules.items() if name == "tables"}
    sys.modules.pop("tables")  # benchmarks/tables.py has the same name
    sys.path.insert(0, folder)
    import tables as found  # type: ignore[import-not-found]

    sys.path.pop(0)
    sys.modules.update(catalogue)
    return {name: (kind, found) for kind in "ab" for name in found.names(kind)}


def cut(frame: pd.DataFrame) -> pd.DataFrame:
    """Some rows and columns; 0 and 1 alone as yes and no, texts with few levels, and columns of
    which enough is known."""
    rows = np.unique(np.linspace(0, len(frame) - 1, min(len(frame), ROWS)).astype(int))
    frame, out = frame.iloc[rows].reset_index(drop=True), {}
    for name, column in frame.items():
        known = column.dropna()
        if (
            known.nunique() < 2
            or len(known) < 40
            or (known.value_counts().iloc[0] > 0.98 * len(known))
        ):
            continue
        if column.dtype.kind in "biuf":
            numbers = column.astype(float)
            whole = set(known.astype(float).unique()) <= {0.0, 1.0}
            out[str(name)] = (
                pd.array([None if v != v else bool(v) for v in numbers], dtype="boolean")
                if whole
                else numbers.to_numpy()
            )
        elif known.nunique() <= len(known) / 4:
            text = known.astype(str)
            common = text.value_counts().index[:LEVELS]
            out[str(name)] = (
                text.where(text.isin(common), "other")
                .astype(object)
                .reindex(frame.index)
                .where(column.notna(), None)
            )
    names = list(out)
    keep = np.unique(np.linspace(0, len(names) - 1, min(len(names), COLUMNS)).astype(int))
    return pd.DataFrame({names[j]: out[names[j]] for j in keep})


def judged(
    columns: list[Any], mask: np.ndarray, answer: Any
) -> tuple[list[float | None], list[float]]:
    """The error of each column, None where nothing was hidden; log losses of those that have
    levels."""
    errors: list[float | None] = []
    losses = []
    for j, cells in enumerate(columns):
        rows = np.flatnonzero(mask[:, j])
        if not len(rows):
            errors.append(None)
            continue
        truth = cells.values[rows]
        if cells.kind in ("category", "ordered", "boolean"):
            levels, p = answer(j, rows)
            errors.append(float((levels[p.argmax(axis=1)] != truth).mean()))
            losses.append(
                float(-np.log(np.where(truth[:, None] == levels, p, 0).sum(axis=1) + 1e-3).mean())
            )
        else:
            errors.append(
                float(np.sqrt(((answer(j, rows) - truth) ** 2).mean()) / np.nanstd(cells.values))
            )
    return errors, losses


def run(
    method: str,
    frame: pd.DataFrame,
    gaps: pd.DataFrame,
    mask: np.ndarray,
    parameters: dict[str, Any],
) -> dict[str, Any]:
    columns = mixed_frame(frame).columns
    more = {}
    if method.startswith(OURS):
        model = MixedTable(random_state=0, n_threads=1, **parameters)
        begin = time.process_time()
        model.fit_impute(gaps)
        seconds = time.process_time() - begin
        answer = by_model(model, gaps, columns)
        more = {
            "plan": {
                name: model.fit_.plan.get(name)
                for name in ("rank", "l2", "trees", "form")
                if name in model.fit_.plan
            }
        }
    else:
        x, owners = one_hot(columns, mask)
        mean, scale = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
        scale[scale == 0] = 1
        begin = time.process_time()
        filled = RIVALS[method]().fit_transform((x - mean) / scale) * scale + mean
        seconds = time.process_time() - begin
        answer = by_imputer(columns, filled, owners)
    errors, losses = judged(columns, mask, answer)
    known = [e for e in errors if e is not None]
    return {
        "error": round(float(np.mean(known)), 5),
        "log loss": round(float(np.mean(losses)), 4) if losses else None,
        "seconds": round(seconds, 3),
        "columns": [None if e is None else round(e, 4) for e in errors],
        **more,
    }


def averaged(
    found: dict[tuple[str, float, int, str], dict[str, Any]],
) -> dict[tuple[str, float, str], dict[str, Any]]:
    """Means over the masks of a table, those that every method has been measured at."""
    methods: dict[tuple[str, float, int], set[str]] = {}
    for name, share, mask, method in found:
        methods.setdefault((name, share, mask), set()).add(method)
    every = set().union(*methods.values()) if methods else set()
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for (name, share, mask, method), one in found.items():
        if methods[name, share, mask] == every or mask == 0:
            groups.setdefault((name, share, method), []).append(one)
    return {
        key: ones[0]
        | {field: float(np.mean([o[field] for o in ones])) for field in ("error", "seconds")}
        | {"no trees": all(o.get("plan", {}).get("trees", "").startswith("none") for o in ones)}
        for key, ones in groups.items()
    }


def told(
    found: dict[tuple[str, float, str], dict[str, Any]],
    halves_of: dict[str, str],
    shares: list[float],
    methods: list[str],
    ours: str,
) -> None:
    """A row for each table, and how often ours is no worse than the best of the rivals, within TIE,
    and beyond: of each half."""
    rivals = [m for m in methods if not m.startswith(OURS)]
    print(
        f"{'table':22} {'hidden':>6} "
        + " ".join(f"{m:>16}" for m in methods)
        + "   ours / best   seconds / trees"
    )
    halves: dict[str, list[float]] = {"choosing": [], "judging": []}
    cost: dict[str, list[float]] = {"choosing": [], "judging": []}
    without: dict[str, list[float]] = {"choosing": [], "judging": []}
    for name, half in halves_of.items():
        for share in shares:
            row = {m: found.get((name, share, m)) for m in methods}
            if row.get(ours) is None:
                continue
            best = min(r["error"] for m in rivals if (r := row[m]) is not None)
            ratio = row[ours]["error"] / best
            trees = [
                row[m]["seconds"]
                for m in rivals
                if m in ("chained boosting", "chained forests") and row[m] is not None
            ]
            halves[half].append(ratio)
            if trees:
                cost[half].append(row[ours]["seconds"] / min(trees))
                if row[ours]["no trees"]:
                    without[half].append(cost[half][-1])
            cells = " ".join(
                f"{r['error']:8.4f} {r['seconds']:6.1f}s" if (r := row[m]) else " " * 16
                for m in methods
            )
            print(
                f"{name:22} {share:6.0%} {cells}   {ratio:6.3f}   "
                f"{cost[half][-1] if trees else float('nan'):6.3f}  "
                f"{row[ours].get('plan', '')}"
            )
    for half, ratios in halves.items():
        r = np.array(ratios)
        if len(r):
            print(
                f"{half}: {(r <= 1).sum()} no worse than the best rival, "
                f"{((r > 1) & (r <= 1 + TIE)).sum()} within {TIE:.0%}, "
                f"{(r > 1 + TIE).sum()} beyond, of "
                f"{len(r)}; geometric mean {np.exp(np.log(r).mean()):.3f}; seconds / "
                f"chained trees: median {np.median(cost[half] or [np.nan]):.3f}, where the low "
                f"rank suffices ({len(without[half])}) {np.median(without[half] or [np.nan]):.3f}"
            )
    for rival in rivals:
        for half in halves:
            pairs = [
                (found[n, s, ours]["error"], found[n, s, rival]["error"])
                for n, of in halves_of.items()
                for s in shares
                if of == half and (n, s, ours) in found and (n, s, rival) in found
            ]
            if pairs:
                a, b = np.array(pairs).T
                wins, ties = (a < b * (1 - TIE)).sum(), (np.abs(a / b - 1) <= TIE).sum()
                print(
                    f"  against {rival}, {half}: {wins} wins, {ties} ties, "
                    f"{len(a) - wins - ties} losses; ratio "
                    f"{np.exp(np.log(a / b).mean()):.3f}"
                )


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("tools")
    ask.add_argument("--only", nargs="*", help="tables")
    ask.add_argument("--half", choices=["choosing", "judging"])
    ask.add_argument("--methods", nargs="*", help="of: " + ", ".join([*RIVALS, OURS]))
    ask.add_argument("--again", nargs="*", default=[], help="rivals to measure anew")
    ask.add_argument("--share", nargs="*", type=float, default=list(SHARES))
    ask.add_argument("--set", default="{}", help="parameters of MixedTable as JSON")
    ask.add_argument("--name", default=OURS, help="under which ours is kept: eckart...")
    ask.add_argument("--told", action="store_true", help="print what was measured, measure nothing")
    asked = ask.parse_args()
    warnings.filterwarnings("ignore")
    catalogue = tables(asked.tools)
    names = sorted(catalogue)
    methods = asked.methods or [*RIVALS, asked.name]
    found = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            one = json.loads(line)
            found[one["table"], one["hidden"], one.get("mask", 0), one["method"]] = one
    halves = {name: "judging" if at % 2 else "choosing" for at, name in enumerate(names)}
    halves = {
        name: half
        for name, half in halves.items()
        if (not asked.only or name in asked.only) and asked.half in (None, half)
    }
    for name in [] if asked.told else halves:
        kind, source = catalogue[name]
        frame = cut(source.load(name)["data"])
        for share, seed in product(asked.share, range(MASKS if len(frame) < FEW else 1)):
            todo = [
                m
                for m in methods
                if m.startswith(OURS) or m in asked.again or (name, share, seed, m) not in found
            ]
            mask = hide(frame, share, "cells", seed)
            gaps = frame.mask(pd.DataFrame(mask, columns=frame.columns, index=frame.index))
            if any(m.startswith(OURS) for m in todo):
                MixedTable(random_state=0, n_threads=1).fit(gaps.head(60))  # kernels are loaded
            for method in todo:
                try:
                    one = run(method, frame, gaps, mask, json.loads(asked.set))
                except IndexError:  # of a column of yes and no one level is left
                    continue
                head = {
                    "table": name,
                    "kind": kind,
                    "rows": len(frame),
                    "width": frame.shape[1],
                    "hidden": share,
                    "mask": seed,
                    "method": method,
                }
                found[name, share, seed, method] = head | one
                print(
                    f"{name:22} {share:.0%} {seed} {method:18} {one['error']:.4f} "
                    f"{one['log loss'] or 0:7.4f} {one['seconds']:8.2f} s",
                    flush=True,
                )
                with RESULTS.open("a") as out:
                    out.write(json.dumps(found[name, share, seed, method]) + "\n")
    if not asked.told and len(methods) == len(RIVALS) + 1:  # one line for each
        RESULTS.write_text("".join(json.dumps(found[key]) + "\n" for key in sorted(found)))
    told(averaged(found), halves, asked.share, [*RIVALS, asked.name], asked.name)


if __name__ == "__main__":
    main()
