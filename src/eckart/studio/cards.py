"""What a model is, for its page: class, sizes, certificate, trace, plan, what can be asked, and how
to make it again in Python and in the shell."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from eckart.cli.building import parse_image
from eckart.cli.shell import plain
from eckart.errors import EckartError
from eckart.studio.forms import shell_line
from eckart.studio.jobs import Job
from eckart.studio.library import Library, reading_as
from eckart.studio.opened import Opened
from eckart.studio.suggest import image_of

NOT_SHOWN = (
    "normaliser",
    "posterior",
    "demand",
    "path",
    "table",
    "text",
    "names",
    "read",
    "words",
    "topics",
    "singular values",
    "vocabulary",
)
"""Parts of a plan that are state, not choices."""


def card(library: Library, opened: Opened) -> dict[str, Any]:
    """All that the page shows beside the pictures."""
    model, f = opened.model, opened.factors
    data, sure, candidates = library.data_of(opened)
    job = library.jobs.of_model(opened.file)
    rows = getattr(f, "shape", (getattr(f, "rows", None),))[0]
    rows = int(rows) if isinstance(rows, int) and rows else None
    k, draws = sizes_of(opened)
    return {
        "file": opened.file,
        "class": type(model).__name__,
        "verb": opened.verb,
        "room": opened.room,
        "rows": rows,
        "columns": int(f.n),
        "components": k,
        "title": _title(opened, rows, k, draws),
        "data": data,
        "data_sure": sure,
        "data_candidates": candidates,
        "certificate": _certificate(model.certificate_),
        "trace": _trace(model.fit_.trace),
        "plan": choices_of(opened.plan),
        "parameters": plain(model.get_params(deep=False)),
        "facts": _facts(opened, rows, k),
        "python": as_python(opened, data, job),
        "shell": as_shell(opened, data, job),
        "can": can(opened, data),
        "sides": sides(opened, data),
        "names": names_of(opened),
        "images": image_size(opened, job),
        "first_row": plain(opened.model.row_ids.names(np.array([0]))[0])
        if opened.room == "complete"
        else None,
        "components_found": k,
        "job": None if job is None else job.id,
    }


def sides(opened: Opened, data: str | None) -> list[str]:
    """What a map can show."""
    if opened.room == "complete":
        return (
            ["columns", "rows"]
            if getattr(opened.factors, "left", None) is not None
            and hasattr(opened.factors, "mean")
            and opened.factors.k
            else []
        )
    if opened.room == "embed":
        return ["words"]
    if opened.room in ("network", "series"):
        return []
    return ["rows"] if data else []


def can(opened: Opened, data: str | None) -> list[str]:
    """What may be asked."""
    model, room = opened.model, opened.room
    ranks_only = room == "complete" and not sides(opened, data)
    found = ["map", "colour", "rows", "labels"] if sides(opened, data) else []
    found += {
        "reduce": [
            *(["loadings"] if hasattr(opened.factors, "components") else []),
            *(["outliers"] if data and hasattr(model, "outliers") else []),
        ],
        "topics": ["topics"],
        "complete": ["search", "recommend", "why", "whatif", "similar", "coverage"],
        "parts": ["parts", "topics"],
        "mixture": ["mixture"],
        "embed": ["search", "neighbours", "analogy", "odd"],
        "network": [],
        "table": ["columns"],
        "series": ["search", "series"],
    }[room]
    if room == "complete" and not ranks_only:
        found += [
            "predict",
            *([] if getattr(model, "feedback", "explicit") == "implicit" else ["support"]),
            "neighbours",
        ]
        found += ["intervals"] if hasattr(model, "interval") else []
    if room in ("reduce", "topics", "parts", "mixture", "table") and data:
        found += [
            "search",
            {"reduce": "reconstruct", "mixture": "row", "table": "cells"}.get(room, "documents"),
        ]
        found += ["neighbours"] if room in ("table", "reduce", "topics") else []
    return found


def names_of(opened: Opened) -> dict[str, str]:
    """What rows, columns and values are called in the data."""
    plan_names = opened.plan.get("names")
    kept = plan_names if isinstance(plan_names, dict) else {}
    usual = {"rows": kept.get("index", "row"), "columns": "column", "values": "value"}
    return {n: str(kept[n]) if isinstance(kept.get(n), str) else str(usual[n]) for n in usual}


def image_size(opened: Opened, job: Job | None) -> dict[str, int] | None:
    """Height and width of rows that are images: as the job or the network says, or as their
    number of columns suggests."""
    said = (job.options.get("image") if job else None) or getattr(opened.model, "image", None)
    size: Any = None
    if isinstance(said, str):
        try:
            size = parse_image(said)
        except EckartError:
            size = None
    elif isinstance(said, (list, tuple)) and len(said) == 2:
        size = tuple(said)
    size = size or (
        image_of(opened.factors.n, opened.factors.columns)
        if opened.room in ("reduce", "parts")
        else None
    )
    return (
        {"height": int(size[0]), "width": int(size[1])}
        if size and size[0] * size[1] == opened.factors.n
        else None
    )


def choices_of(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan as plain values, without what is state and no choice."""
    return {str(name): plain(value) for name, value in plan.items() if name not in NOT_SHOWN}


def _certificate(c: Any) -> dict[str, Any]:
    checks = [
        {
            "name": k.name,
            "value": k.value,
            "limit": k.limit,
            "passed": k.passed,
            "meaning": k.meaning,
        }
        for k in c.checks
    ]
    return plain(
        {
            "holds": c.holds,
            "kind": c.kind,
            "problem": c.problem,
            "reason": c.reason,
            "notes": list(c.notes),
            "checks": checks,
            "facts": c.facts,
        }
    )


def _trace(trace: Any) -> dict[str, Any]:
    return plain(trace.to_dict() | {"reason": trace.reason.value})


def sizes_of(opened: Opened) -> tuple[int | None, int]:
    """How many components, and how many draws of them a posterior holds side by side (1
    elsewhere)."""
    k = int(getattr(opened.factors, "k", 0))
    draws = int(getattr(getattr(opened.model, "posterior_", None), "size", 1)) or 1
    return k // draws or None, draws


def _title(opened: Opened, rows: int | None, k: int | None, draws: int) -> str:
    what = {
        "reduce": "components",
        "complete": "factors",
        "topics": "topics",
        "parts": "parts",
        "mixture": "components",
        "embed": "numbers a word",
        "table": "hidden numbers a row",
        "series": "shared factors",
    }
    size = (
        f"{rows:,} x {opened.factors.n:,}"
        if rows
        else f"{opened.factors.n:,} {'words' if opened.room in ('embed', 'topics') else 'columns'}"
    )
    drawn = f", {draws} draws" if draws > 1 else ""
    return (
        f"{type(opened.model).__name__} of {size}"
        + (f", {k} {what.get(opened.room, 'outputs')}" if k else "")
        + drawn
    )


def _facts(opened: Opened, rows: int | None, k: int | None) -> list[list[str]]:
    found = [["class", type(opened.model).__name__], ["columns", f"{opened.factors.n:,}"]]
    found += [["rows", f"{rows:,}"]] if rows else []
    found += [["components", str(k)]] if k else []
    if hasattr(opened.model, "observed_"):
        x = opened.model.observed_
        found.append(
            ["observed", f"{x.nnz:,} ({x.nnz / max(1, x.shape[0] * x.shape[1]):.2%} of all cells)"]
        )
    if hasattr(opened.model, "explained_variance_ratio_"):
        found.append(
            ["variance kept", f"{float(opened.model.explained_variance_ratio_.sum()):.2%}"]
        )
    held = opened.plan.get("held_out")
    if isinstance(held, dict):
        for who, scores in held.items():
            words = (
                ", ".join(
                    f"{name} {value:.4g}"
                    for name, value in scores.items()
                    if isinstance(value, float)
                )
                if isinstance(scores, dict)
                else str(plain(scores))
            )
            found.append([f"held out: {who}", words])
    return found


def as_shell(opened: Opened, data: str | None, job: Job | None) -> str:
    """The command that made the model, where studio knows it; else one that looks at it."""
    if job is not None:
        return str(job.to_json(curve=False)["shell"])
    return shell_line(["certify", opened.file, *([data] if data else [])])


def as_python(opened: Opened, data: str | None, job: Job | None) -> str:
    """Lines that open the model; where the data are known, also those that fit it again."""
    name = type(opened.model).__name__
    lines = [
        "import eckart",
        "",
        f"model = eckart.load({opened.file!r})",
        "print(model.certificate_)",
    ]
    if job is None or data is None:
        return "\n".join(lines)
    given = ", ".join(f"{n}={v!r}" for n, v in changed(opened.model).items())
    source = _source(opened, data, job)
    return "\n".join(
        [
            *lines,
            "",
            "# the same fit again",
            f"data = {source}",
            f"model = eckart.{name}({given}).fit(data)",
        ]
    )


def changed(model: Any) -> dict[str, Any]:
    """Parameters that are not the usual ones."""
    usual = {n: p.default for n, p in inspect.signature(type(model)).parameters.items()}
    aside = ("checkpoint", "verbose")
    return {
        n: v
        for n, v in model.get_params(deep=False).items()
        if n not in aside and repr(v) != repr(usual.get(n))
    }


def _source(opened: Opened, data: str, job: Job) -> str:
    """The call that reads the data as the job did."""
    o = {n: v for n, v in job.options.items() if v not in (None, "", [])}
    if opened.room == "table":
        return repr(data)
    reading = reading_as(opened.plan, job.options)
    said: dict[str, Any] = {}
    if opened.verb == "complete" and "rows" in o:
        said = {n: _place(o[n]) for n in ("rows", "columns", "values", "duplicates") if n in o}
        call = "observed"
    elif opened.verb == "embed":
        params = opened.model.get_params(deep=False)
        said = {
            n: params[n]
            for n in ("min_count", "max_words", "tokenizer", "lowercase")
            if n in params
        }
        said |= {
            n: v
            for n, v in reading.of_text().items()
            if n != "index" and v != getattr(type(reading)(), n)
        }
        return _call("sequences", data, {n: v for n, v in said.items() if v is not None})
    elif opened.room == "topics" or "text" in opened.plan:
        said = {n: v for n, v in reading.of_text().items() if v != getattr(type(reading)(), n)}
        return _call("corpus", data, said | {"vocabulary": "model"}).replace("'model'", "model")
    else:
        call = "observed" if opened.verb == "complete" else "read"
        names = opened.factors.columns
        said = (
            {"columns": [str(n) for n in names]}
            if names is not None and opened.verb != "complete"
            else {}
        )
        said |= {"index": reading.index} if reading.index is not None else {}
    said |= {
        n: v
        for n, v in (("delimiter", reading.delimiter), ("header", reading.header))
        if v is not None
    }
    said |= {"missing": list(reading.missing)} if reading.missing else {}
    return _call(call, data, said)


def _call(name: str, data: str, said: dict[str, Any]) -> str:
    return f"eckart.{name}({', '.join([repr(data), *(f'{n}={v!r}' for n, v in said.items())])})"


def _place(text: Any) -> Any:
    return int(text) if str(text).isdigit() else text
