"""Tables of ``benchmarks/README.md`` from ``benchmarks/results``.

    python benchmarks/report.py            # writes them between their marks
    python benchmarks/report.py --check    # exit code 1 where they differ

Of each case the latest run is shown. A ratio is the rival's time over ours.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
SPEED = {
    # file: the measures of quality that its rows may have
    "reduce": ("quality",),
    "complete": ("rmse", "objective", "quality"),
    "mixtures": ("quality",),
    "topics": ("perplexity",),
    "embed": ("MEN-TR-3k", "rare", "energy"),
    "embed_neighbours": ("same",),
}
NO_RIVALS = {"X'X alone", "read and multiply", "oracle"}
"""Floors that no method can pass: measured beside the rivals, but none of them."""
KINDS = {
    "grades": "`ALS()` on grades",
    "ratings_thinned": "`ALS()` on ratings thinned to 2 to 32 a row",
    "clicks": '`ALS(feedback="implicit")` on clicks, baskets, counts',
    "mixtures": '`GaussianMixture("auto")`',
    "classes": "`NetworkClassifier()`",
    "panels": "`TimeFactors()`",
}


def records(name: str) -> list[dict[str, Any]]:
    file = HERE / "results" / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(head: str, rows: Iterable[tuple[Any, ...]]) -> str:
    names = head.split("|")
    lines = [names, ["---"] * len(names), *(map(str, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def speed_rows() -> Iterator[tuple[Any, ...]]:
    """Our row of each case and that of the fastest rival, each with its quality."""
    for name, measures in SPEED.items():
        latest: dict[str, dict[str, dict[str, Any]]] = {}
        for record in records(name):
            for row in record["rows"]:
                if "seconds" in row:
                    row = row | {"date": record["where"]["date"]}
                    latest.setdefault(row["task"], {})[row["contender"]] = row
        for task, rows in latest.items():
            ours = [row for who, row in rows.items() if who.startswith("eckart")]
            others = [
                row
                for who, row in rows.items()
                if not (who.startswith("eckart") or who in NO_RIVALS)
            ]
            if ours and others:
                # streams of other lengths are compared by the time of a token
                us, them = ours[0], min(others, key=lambda r: r["seconds"] / r.get("tokens", 1))
                ratio = them["seconds"] / us["seconds"]
                if "tokens" in us:
                    ratio *= us["tokens"] / them["tokens"]
                measure = next((m for m in measures if m in us and m in them), None)
                yield (
                    f"{name}: {task}",
                    f"{us['seconds']:.3g}",
                    f"{them['contender']} {them['seconds']:.3g}",
                    f"{ratio:.1f}",
                    f"{measure} {us[measure]:.5g} / {them[measure]:.5g}" if measure else "",
                    us["date"],
                )


def count(cases: list[dict[str, Any]], other: str) -> str:
    """Wins, ties and losses beyond one standard error."""
    away = [case["standard errors"][other] for case in cases if other in case["standard errors"]]
    wins, losses = sum(a < -1 for a in away), sum(a > 1 for a in away)
    return f"{wins}, {len(away) - wins - losses}, {losses}"


def default_rows() -> Iterator[tuple[Any, ...]]:
    for kind, title in KINDS.items():
        cases = records(f"defaults_{kind}")
        halves = [[case for case in cases if case["half"] == half] for half in ("choose", "judge")]
        for other in dict.fromkeys(name for case in cases for name in case["standard errors"]):
            yield (title, other, *(count(half, other) for half in halves))


def imputation_rows() -> Iterator[tuple[Any, ...]]:
    """Of every method: mean rank of its error, error over the best method's, processor seconds."""
    masks: dict[tuple[str, float, int], dict[str, dict[str, Any]]] = {}
    for row in records("imputation"):
        masks.setdefault((row["table"], row["hidden"], row["mask"]), {})[row["method"]] = row
    every = max(len(rows) for rows in masks.values())
    cases_of: dict[tuple[str, float], list[dict[str, dict[str, Any]]]] = {}
    for (name, share, _), rows in masks.items():
        if len(rows) == every:  # at a few masks some method has no answer
            cases_of.setdefault((name, share), []).append(rows)
    found = {
        key: {
            method: {
                field: statistics.mean(rows[method][field] for rows in cases)
                for field in ("error", "seconds")
            }
            for method in cases[0]
        }
        for key, cases in cases_of.items()
    }
    names = sorted({table for table, _ in found})
    judged = {name for at, name in enumerate(names) if at % 2}
    methods = sorted({method for rows in found.values() for method in rows})
    for method in methods:
        cells = []
        for half in (set(names) - judged, judged):
            cases = [rows for (name, _), rows in found.items() if name in half and method in rows]
            errors = [{m: row["error"] for m, row in rows.items()} for rows in cases]
            ranks = [1 + sum(e < all_[method] for e in all_.values()) for all_ in errors]
            over = [all_[method] / min(all_.values()) for all_ in errors if min(all_.values()) > 0]
            cells += [f"{statistics.mean(ranks):.2f}", f"{statistics.geometric_mean(over):.3f}"]
        seconds = [rows[method]["seconds"] for rows in found.values() if method in rows]
        yield (method, *cells, f"{statistics.median(seconds):.2f}")


def core_rows() -> Iterator[tuple[Any, ...]]:
    latest = {row["work"]: (row, r["where"]) for r in records("cores") for row in r["rows"]}
    for row, where in latest.values():
        runs = row["runs"]
        if {"1", "16"} <= set(runs):
            one, many = runs["1"]["seconds"], runs["16"]["seconds"]
            yield (row["title"], f"{one:.3g}", f"{many:.3g}", f"{one / many:.1f}", where["date"])


def network_rows() -> Iterator[tuple[Any, ...]]:
    """The default network for classes, a plain loop of equal layers, scikit-learn's."""
    tasks = (row for r in records("networks") for row in r["rows"])
    latest = {row["contender"]: row for row in tasks if "plain loop" in row}
    for name, row in latest.items():
        pairs = [("accuracy", "seconds"), ("plain loop", "its seconds")]
        pairs += [("scikit-learn", "scikit-learn seconds")]
        yield (name, *(f"{row[a]:.4f} in {row[b]:.1f} s" for a, b in pairs), row["epochs"])


TABLES = {
    "speed": ("work|eckart, s|fastest rival, s|ratio|quality, ours / theirs|measured", speed_rows),
    "defaults": ("default|against|choosing: wins, ties, losses|judging", default_rows),
    "imputation": (
        "method|choosing: mean rank|error over the best|judging: mean rank|error over the best"
        "|median s",
        imputation_rows,
    ),
    "networks": ("set|eckart|plain loop|scikit-learn|epochs", network_rows),
    "cores": ("work|1 thread, s|16 threads, s|gain|measured", core_rows),
}


def written(page: str) -> str:
    """The page with its tables made anew."""
    for name, (head, rows) in TABLES.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        made = table(head, rows())
        page = marks.sub(lambda m, made=made: f"{m[1]}{made}\n{m[2]}", page)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    page = PAGE.read_text()
    if parser.parse_args().check:
        sys.exit(int(written(page) != page))
    PAGE.write_text(written(page))


if __name__ == "__main__":
    main()
