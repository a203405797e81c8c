"""The options of a verb as a form, and a filled-in form as the words of a command.

Both come from the signatures of the commands, so that the page offers what the shell has. Options
that name files outside of the folder, databases, or places that the studio itself decides are not
taken.
"""

from __future__ import annotations

import inspect
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from eckart.io.text.tokens import LISTS
from eckart.registry import methods
from eckart.serve.problems import Problem
from eckart.studio.folder import Folder

VERBS = ("reduce", "complete", "explain", "embed")
OWN = {
    "file",
    "out",
    "model",
    "report",
    "checkpoint",
    "log",
    "json",
    "quiet",
    "verbose",
    "strict",
    "events",
    "stop_with_input",
    "workers",
    "cluster",
    "from_",
    "sql",
    "to",
    "if_exists",
    "plan",
    "cache",
    "format",
    "pairs",
    "cells",
    "all_cells",
    "unknown",
    "top",
}
"""Parameters that the studio sets itself, or that only make sense where a table is written."""
CHOICES = {
    ("reduce", "rotation"): ["varimax", "promax"],
    ("reduce", "solver"): ["auto", "eigh", "svd", "power", "randomized", "lanczos", "gradient"],
    ("complete", "feedback"): ["explicit", "implicit"],
    ("complete", "normalise"): ["column", "row", "both", "bias", "global"],
    ("explain", "learning"): ["gibbs", "cvb0", "variational", "online"],
    ("explain", "covariance"): ["full", "tied", "diag", "spherical", "unit", "factor"],
    ("explain", "family"): ["bernoulli", "multinomial"],
    ("explain", "loss"): ["frobenius", "kullback-leibler"],
    ("embed", "loss"): ["negative", "softmax"],
    ("embed", "kind"): ["positive", "pmi"],
    ("embed", "solver"): ["stochastic", "exact", "adagrad", "als"],
}
COMMON = {
    "reduce": ("method", "components", "scale", "index", "labels", "image"),
    "complete": ("rows", "columns", "values", "method", "components", "feedback", "titles"),
    "explain": ("text", "method", "components", "index", "labels", "image"),
    "embed": ("text", "method", "components", "window", "min_count"),
}
"""Options that are shown first."""
DUPLICATES = ["last", "mean", "sum"]
ENGINES = ["auto", "cpu", "cuda", "numpy"]


def form(verb: str) -> dict[str, Any]:
    """The options of a verb for the page."""
    parameters, command = _parameters(verb)
    about = " ".join((command.__doc__ or "").strip().split("\n\n")[0].split())
    options = [_field(verb, name, *known) for name, known in parameters.items()]
    order = {name: i for i, name in enumerate(COMMON[verb])}
    options.sort(key=lambda o: order.get(o["name"], len(order)))
    return {"verb": verb, "about": about, "options": options}


def words_of(verb: str, file: str, options: Any, folder: Folder) -> list[str]:
    """The command: verb, file and options, each checked; what is not an option, or leads out of the
    folder, is refused."""
    parameters, _ = _parameters(verb)
    folder.existing(file)
    if not isinstance(options, dict):
        raise Problem(
            422, f"options must be an object such as {{'components': '8'}}, got {options!r}"
        )
    words = [verb, file if not file.startswith("-") else f"./{file}"]
    for name, value in options.items():
        if name not in parameters:
            raise Problem(
                422,
                f"option must be one of {', '.join(parameters)} for {verb}, got {str(name)[:80]!r}",
            )
        if value is None or value == "" or value == []:
            continue
        words += _option_words(name, value, parameters[name], folder)
    return words


def shell_line(words: list[str]) -> str:
    """A command as one types it."""
    return shlex.join(["eckart", *words])


def _parameters(verb: Any) -> tuple[dict[str, tuple[Any, Any, Any]], Any]:
    """Kind, default and typer's option of each parameter that a page may set."""
    if verb not in VERBS:
        raise Problem(422, f"verb must be one of {', '.join(VERBS)}, got {verb!r}")
    command = getattr(import_module(f"eckart.cli.{verb}"), verb)
    found = {}
    for name, p in inspect.signature(command).parameters.items():
        kind, *marks = get_args(p.annotation) or (p.annotation,)
        mark = marks[0] if marks else None
        if name not in OWN and mark is not None and not getattr(mark, "hidden", False):
            found[name] = (kind, p.default, mark)
    return found, command


def _field(verb: str, name: str, kind: Any, default: Any, mark: Any) -> dict[str, Any]:
    choices = CHOICES.get((verb, name)) or {"duplicates": DUPLICATES, "engine": ENGINES}.get(name)
    if name == "method":
        choices = [*({"complete": ["auto", "biases"]}.get(verb, [])), *methods(verb)]
    words = (mark.help or "").partition("[default:")
    default_words = words[2].strip(" ]") or (
        None if default is None or default is False or default == "" else str(default)
    )
    return {
        "name": name,
        "flag": _flag(name, mark)[0],
        "kind": _kind(kind),
        "default": default,
        "default_in_words": default_words,
        "help": words[0].strip(),
        "choices": choices,
        "group": mark.rich_help_panel,
        "common": name in COMMON[verb],
    }


def _kind(kind: Any) -> str:
    kinds = [k for k in (get_args(kind) or (kind,)) if k is not type(None)]
    first = kinds[0]
    if get_args(first) or first is list:
        return "list"
    return {bool: "switch", int: "whole", float: "number", Path: "file"}.get(first, "text")


def _flag(name: str, mark: Any) -> tuple[str, str | None]:
    """The words that turn an option on and off."""
    long = [
        part
        for part in (getattr(mark, "default", None), *(mark.param_decls or ()))
        if isinstance(part, str) and part.startswith("--")
    ]
    on, _, off = (long[0] if long else f"--{name.replace('_', '-')}").partition("/")
    return on, off or None


def _option_words(name: str, value: Any, known: tuple[Any, Any, Any], folder: Folder) -> list[str]:
    kind, default, mark = known
    flag, off = _flag(name, mark)
    sort = _kind(kind)
    if sort == "switch":
        if not isinstance(value, bool):
            raise Problem(422, f"{name} must be true or false, got {value!r}")
        return [] if value == default else [flag] if value else [off] if off else []
    values = value if isinstance(value, list) else [value]
    if len(values) > 1 and sort != "list":
        raise Problem(422, f"{name} must be one value, got {value!r}")
    for one in values:
        if (
            isinstance(one, bool)
            or not isinstance(one, (str, int, float))
            or len(str(one)) > 10_000
            or "\0" in str(one)
        ):
            raise Problem(422, f"{name} must be text or a number, got {str(one)[:80]!r}")
        _refuse_outside(name, str(one), mark.metavar, folder)
    if value == default:
        return []
    # written with = so that a value that begins with - is no option
    return [
        word
        for one in values
        for word in ([f"{flag}={one}"] if str(one).startswith("-") else [flag, str(one)])
    ]


def _refuse_outside(name: str, value: str, metavar: str | None, folder: Folder) -> None:
    """An option whose value names a file, as its placeholder in the help says, names a file of the
    folder."""
    if name == "engine" and value not in ENGINES:
        raise Problem(422, f"engine must be one of {', '.join(ENGINES)}, got {value[:80]!r}")
    if "FILE" not in (metavar or "") or (name == "stop_words" and value in ("none", *LISTS)):
        return
    # FILE:ID:TITLE: a name may hold colons itself, so whatever stands before one of them may be
    # what is opened
    names = [
        value.rsplit(":", count)[0]
        for count in range(value.count(":") + 1 if ":" in str(metavar) else 1)
    ]
    if not any(folder.inside(one, name).exists() for one in names):
        folder.existing(names[-1], name)
