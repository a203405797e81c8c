"""Options that several commands have, written once: single ones as annotated types, and groups of
them as dataclasses that ``spread`` unfolds."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from eckart.errors import invalid

METAVARS = {Path: "FILE", int: "N", float: "X", str: "TEXT"}
"""What stands for a value in the help."""


def option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, **more)


Out = Annotated[
    Path | None, option(help="Write the answer here (.parquet, .arrow, .csv, .xlsx, .npy).")
]
OutLists = Annotated[
    Path | None, option(help="Write the lists here (.parquet, .arrow, .csv, .xlsx) instead.")
]
Report = Annotated[Path | None, option(help="Write a self-contained HTML report here.")]
ModelFile = Annotated[Path | None, option(help="Save the model here (.safetensors).")]
KindOrFile = Annotated[
    list[str] | None, option(metavar="FILE", help="Save the model here (.safetensors).")
]  # a kind is taken too: that was once its other meaning
Threads = Annotated[
    int | None,
    option(
        help="Most threads. The result does not depend on it, except in networks and skip-gram."
    ),
]
Checkpoint = Annotated[
    Path | None,
    option(
        help="Keep the state of a long fit here; the same command goes on from it after a crash."
    ),
]
HeldOut = Annotated[
    float | None,
    option(
        help="Share of the entries or documents on which the error is measured; 0 for none.  "
        "[default: 0.1]"
    ),
]
Steps = Annotated[
    int | None,
    option("--max-iter", "--epochs", help="Most iterations, sweeps or passes of the method."),
]
Image = Annotated[
    str | None,
    option(
        metavar="HxW",
        help="Rows are images of this height and width, such as 28x28; a folder of images is "
        "brought to it.",
    ),
]
Solver = Annotated[
    str | None,
    option(
        help="pca: eigh, svd, power, randomized, lanczos or gradient; skipgram: stochastic "
        "or exact; glove: adagrad or als."
    ),
]
Titles = Annotated[
    str | None,
    option(
        metavar="FILE:ID:TITLE",
        help="A table of titles for the columns, such as movies.csv:movieId:title.",
    ),
]
Count = Annotated[int, option("-n", help="How many for each.")]
Encoding = Annotated[
    str | None, option(help="Of text files, such as cp1252, latin-1 or utf-16.  [default: utf-8]")
]

Engine = Annotated[
    str,
    option(
        help="What does the arithmetic: auto, cpu, cuda, plain (slow, for checking), dask "
        "(--workers N starts a cluster of processes here, --cluster "
        "ADDRESS uses a running one), or one of another package."
    ),
]


def engine_option(name: str) -> str | None:
    """The value of --engine as an option that only some models have: None for auto."""
    from eckart.engines import engine_names

    if name not in ("auto", *engine_names()):
        raise invalid("--engine", name, ", ".join(["auto", *engine_names()]))
    return None if name == "auto" else name


@dataclass
class Arithmetic:
    """How to compute."""

    seed: Annotated[int, option(help="Seed of every random choice.")] = 0
    engine: Engine = "auto"
    threads: Threads = None
    plan: Annotated[
        bool,
        option(
            "--plan", help="Only measure a part of the work, and say how long all of it would take."
        ),
    ] = False

    def engine_option(self) -> str | None:
        return engine_option(self.engine)


@dataclass
class CellOptions:
    """How the file is written"""

    delimiter: Annotated[
        str | None, option(help="Between the cells of a text file, such as ';', '::' or tab.")
    ] = None
    no_header: Annotated[
        bool, option("--no-header", help="The first line of a text file is data.")
    ] = False
    missing: Annotated[
        list[str] | None,
        option(
            help="What stands for a missing entry, such as 0, -999 or '?'; several with "
            "commas, or said again."
        ),
    ] = None
    encoding: Encoding = None


@dataclass
class TableOptions:
    """Which columns"""

    only: Annotated[str | None, option(help="Use these columns only, separated by commas.")] = None
    exclude: Annotated[str | None, option(help="Leave these columns out, separated by commas.")] = (
        None
    )
    index: Annotated[str | None, option(help="Column that names the rows.")] = None
    labels: Annotated[
        str | None,
        option(
            help="Column of labels, shown in the report and written beside the answer; not "
            "part of the data."
        ),
    ] = None
    columns: Annotated[str | None, option(hidden=True, help="The older word for --only.")] = None


@dataclass
class TripleOptions:
    """One observation a line"""

    rows: Annotated[
        str | None, option(help="Column that holds the row ids, by name or position.")
    ] = None
    columns: Annotated[str | None, option(help="Column that holds the column ids.")] = None
    values: Annotated[
        str | None, option(help="Column that holds the values; without it each is 1.")
    ] = None
    duplicates: Annotated[
        str | None,
        option(help="Several values of one cell: last, mean or sum. Without it they are an error."),
    ] = None


@dataclass
class TextOptions:
    """How text is written"""

    text: Annotated[str | None, option(help="Column that holds the text, by name or position.")] = (
        None
    )
    lines: Annotated[
        bool | None,
        option("--lines/--files", help="Each line of a text file is a document, or each file."),
    ] = None
    split_documents: Annotated[
        str | None,
        option(
            help="Documents of a text file end at lines that begin with this, such as "
            "'</DOC>' or '%%'."
        ),
    ] = None
    encoding: Encoding = None
    undecodable: Annotated[
        str | None,
        option(help="Bytes that are no text: error, or replace (and count).  [default: error]"),
    ] = None
    no_quotes: Annotated[
        bool, option("--no-quotes", help="Quotation marks are part of the text.")
    ] = False


def spread(*frames: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command for typer: parameters of the verb that are groups become their options, and come
    back as a group.

    An option that two groups have is one option, given to both. A group with ``around`` runs the
    verb: that is the shell. ``frames`` are groups that the verb does not see: their ``enter`` is a
    context around it, which may set its arguments. A frame may give arguments that it supplies
    itself, so that they may be left out, as ``supplies``.
    """
    return functools.partial(_command, frames)


def _command(frames: tuple[Any, ...], verb: Callable[..., None]) -> Callable[..., None]:
    hints = get_type_hints(verb, include_extras=True)
    supplied = {name for frame in frames for name in getattr(frame, "supplies", ())}
    shown: dict[str, inspect.Parameter] = {}
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(verb).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
        elif name in supplied and parameter.default is inspect.Parameter.empty:
            kind, *marks = get_args(hints[name])
            shown[name] = _parameter(name, Annotated[kind | None, *marks], None)
        else:
            shown[name] = _parameter(name, hints[name], parameter.default)
    for group in (*groups.values(), *frames):
        for own, annotation, default in _fields(group):
            shown.setdefault(own, _parameter(own, annotation, default, _panel(group)))

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        def made_of(kind: Any) -> Any:
            return kind(**{own: given[own] for own, _, _ in _fields(kind)})

        made = {name: made_of(kind) for name, kind in groups.items()}
        own = {name: value for name, value in given.items() if name in hints and name not in groups}

        def run() -> None:
            with contextlib.ExitStack() as stack:
                for frame in frames:
                    stack.enter_context(made_of(frame).enter(own, made))
                verb(**own, **made)

        around = next((group.around for group in made.values() if hasattr(group, "around")), None)
        if around is None:
            run()
        else:
            around(verb.__name__, run, tuple(shown))

    required = [p for p in shown.values() if p.default is inspect.Parameter.empty]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*required, *(p for p in shown.values() if p.default is not inspect.Parameter.empty)]
    )
    command.__annotations__ = {name: p.annotation for name, p in shown.items()}
    del command.__wrapped__  # type: ignore[attr-defined]  # typer would look through it
    return command


@functools.cache
def _fields(kind: Any) -> list[tuple[str, Any, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(f.name, hints[f.name], f.default) for f in fields(kind) if f.init]


def _panel(kind: Any) -> str | None:
    """The title of a group in the help: its ``panel``, or the first sentence about it."""
    return vars(kind).get("panel", (kind.__doc__ or "").split(".")[0].split(";")[0].strip())


def _parameter(
    name: str, annotation: Any, default: Any, panel: str | None = None
) -> inspect.Parameter:
    """A parameter whose help names its value by what it is (FILE, N), not by a type; switches have
    none."""
    kind, *marks = get_args(annotation) or (annotation,)
    for mark in marks:
        if isinstance(mark, OptionInfo) and panel:
            mark.rich_help_panel = panel
        if isinstance(mark, OptionInfo) and mark.metavar is None:
            kinds = [k for k in (get_args(kind) or (kind,)) if k is not type(None)]
            kinds = list(get_args(kinds[0])) or kinds
            mark.metavar = "" if bool in kinds else METAVARS.get(kinds[0], "TEXT")
            mark.show_default = default not in (None, False, "")
        elif isinstance(mark, ArgumentInfo) and mark.metavar is None:
            mark.metavar = name.upper()
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
