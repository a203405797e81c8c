"""What the shell commands share: arguments into values, files into tables."""

from __future__ import annotations

import glob
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from eckart.errors import FileError, InputError, wrong
from eckart.io.models.save import CLASSES, check_place
from eckart.io.read import read
from eckart.io.tables.write import check_target, write_table
from eckart.matrix import Dense, Matrix, Observed, row_parts
from eckart.trace import StopReason

SAMPLE_ROWS = 5000


@dataclass
class Table:
    """The data and the labels that colour its map."""

    matrix: Matrix
    labels: np.ndarray | None = None

    def sample(self) -> tuple[Any, Any]:
        """Evenly spaced rows for pictures, with their labels (the first rows of a stream); None for sparse data too wide to show."""
        if self.matrix.shape[1] > 20_000:
            return None, None
        if isinstance(self.matrix, Dense) and not self.matrix.in_memory:
            values = np.asarray(next(self.matrix.stream.blocks(SAMPLE_ROWS)))
            return values, None if self.labels is None else self.labels[: len(values)]
        count = int(self.matrix.shape[0] or 0)
        chosen = np.unique(np.linspace(0, count - 1, min(count, SAMPLE_ROWS)).astype(int))
        if isinstance(self.matrix, Dense):
            values = np.asarray(self.matrix.array[chosen])
        else:
            part = self.matrix.to_scipy()[chosen]
            values = part.toarray()
            if isinstance(self.matrix, Observed):
                part.data = np.ones_like(part.data)
                values = np.where(part.toarray() > 0, values, np.nan)
        return values, None if self.labels is None else self.labels[chosen]


def has_names(file: str) -> bool:
    """True for files whose columns have names."""
    return Path(file).suffix.lower() not in (".npy", ".npz")


def load_table(file: str, columns: str | list[str] | None, index: str | None, labels: str | None) -> Table:
    """Read the data; a label column is read beside it and kept out of it."""
    names = [c.strip() for c in columns.split(",")] if isinstance(columns, str) and columns else columns or None
    if labels is None:
        return Table(read(file, columns=names, index=index))
    if index is not None and index != labels:
        raise InputError(f"index={index!r} and labels={labels!r} came, wanted one of them: both name the rows")
    matrix = read(file, columns=names, index=labels)
    if matrix.rows is None:
        raise InputError(f"labels={labels!r} came, wanted a table small enough to hold and with named columns")
    return Table(matrix, matrix.rows)


def parse_components(text: str) -> int | float | str:
    """A count, a share or "auto"."""
    if text in ("auto", "mle"):
        return text
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise wrong("--components", text, "a number, a share such as 0.9, or auto") from None


def parse_image(text: str | None) -> tuple[int, int] | None:
    """HxW."""
    if text is None:
        return None
    try:
        height, width = (int(part) for part in text.lower().split("x"))
        if min(height, width) < 1:
            raise ValueError
    except ValueError:
        raise wrong("--image", text, "height x width, such as 28x28") from None
    return height, width


def check_image(shape: tuple[int, int] | None, columns: int) -> None:
    """Refuse an image shape that does not hold a row, before any work is done."""
    if shape is not None and shape[0] * shape[1] != columns:
        raise wrong("--image", f"{shape[0]}x{shape[1]}", f"height x width = {columns}, the number of columns")


def say(quiet: bool, name: str, words: str) -> None:
    """One line of a summary, with its name in the first column."""
    if not quiet:
        typer.echo(f"{name:<10} {words}")


def lasting(seconds: float) -> str:
    """A time in words."""
    return f"{seconds:.2g} s" if seconds < 60 else f"{seconds / 60:.1f} min"


class Targets(NamedTuple):
    """Files to write. Each takes its place only when it is complete."""

    out: Path | None = None
    model: Path | None = None
    report: Path | None = None

    def check(self, data: str, check: Callable[[Path], Any] = check_target) -> Targets:
        """Refuse targets that cannot be written, or that would replace the data, before any work is done; ``check`` is for ``out``, usually a table."""
        if self.out is not None:
            check(self.out)
        for path, ending in ((self.model, ".safetensors"), (self.report, ".html")):
            if path is not None and path.suffix.lower() != ending:
                raise FileError(f"{path} ends in {path.suffix!r}, wanted {ending}")
            if path is not None:
                check_place(path)
        sources = {os.path.realpath(name) for name in (glob.glob(data) or [data])}
        for path in self:
            if path is not None and os.path.realpath(path) in sources:
                raise FileError(f"{path} is the data itself, wanted another name to write to")
        return self


def finish(
    fitted: Any, to: Targets, quiet: bool, write: Callable[[Path], int], page: Callable[[], Any], what: str = "out", of: str = "rows"
) -> None:
    """The tail of every verb: write what was asked for, and say so. ``write`` gives the number of rows, ``page`` makes the report."""
    if to.out is not None:
        say(quiet, what, f"{to.out} ({write(to.out):,} {of})")
    if to.model is not None:
        fitted.save(to.model)
        say(quiet, "model", f"{to.model}")
    if to.report is not None:
        page().write(to.report)
        say(quiet, "report", f"{to.report}")


def write_codes(codes: Callable[[Any], Any], names: Iterable[Any], matrix: Matrix, out: Path, label: str | None) -> int:
    """A row of numbers for each row of the data, block by block; returns the number of rows."""
    blocks = ((codes(part), part.rows) for part in row_parts(matrix))
    return write_table(out, [str(name) for name in names], blocks, label or "row")


def say_outcome(model: Any, seconds: float, limit: str | None = None) -> None:
    """How the fit went and what its evidence is; ``limit`` says what to do where the steps ended before the method was done."""
    c, trace = model.certificate_, model.fit_.trace
    say(False, "fitted", f"{type(model).__name__} in {lasting(seconds)}, {len(trace)} steps; stopped: {trace.reason.value}")
    say(False, "evidence", verdict(c))
    if not c.holds and trace.reason is StopReason.MAX_ITER and limit is not None:
        say(False, "", limit)
    for note in c.notes:
        say(False, "", note)


def verdict(c: Any) -> str:
    """A certificate in a line."""
    return f"certificate {'holds' if c.holds else 'DOES NOT HOLD: ' + c.reason} ({c.kind})"


def limit_reached(model: Any) -> str | None:
    """What to do where ``max_iter`` ended a fit."""
    most = getattr(model, "max_iter", None)
    return None if most is None else f"the iteration limit was reached first: raise --max-iter above {most}"


def measured(judge: Callable[[], Any], asked: float | None, what: str, quiet: bool) -> Any:
    """The error on what was held out of a fit of its own, printed; None where there is too little to spare any and nobody asked."""
    try:
        judged = judge()
    except InputError as error:
        if asked is not None or "held_out" not in str(error):
            raise
        say(quiet, "held out", f"nothing: there are too few {what} to spare any")
        return None
    for i, line in enumerate(judged.lines()):
        say(quiet, "" if i else "held out", line)
    return judged


def held_out_share(given: float | None, usual: float) -> float:
    """The value of --held-out, or the usual share."""
    share = usual if given is None else given
    if not 0 <= share < 1:
        raise wrong("--held-out", share, "a share of 0 (none) to below 1, such as 0.1")
    return share


def kind_and_file(method: str | None, given: list[str], kinds: Iterable[str]) -> tuple[str | None, Path | None]:
    """The kind of model and the file for it that --method and --model name together."""
    known = tuple(kinds)
    names = [*([method] if method else []), *(value for value in given if value in known)]
    files = [value for value in given if value not in known]
    for found, wanted in ((names, "one kind of model"), (files, "one file for the model")):
        if len(found) > 1:
            raise InputError(f"{' and '.join(found)} came, wanted {wanted}")
    if files and not files[0].endswith(".safetensors"):
        raise InputError(f"--model {files[0]} came, wanted {', '.join(known)}, or a file that ends in .safetensors")
    return (names[0] if names else None), (Path(files[0]) if files else None)


FLAGS = {
    "n_components": "--components", "learning_method": "--learning", "covariance_type": "--covariance", "beta_loss": "--loss",
    "svd_solver": "--solver", "center": "--no-center",
}  # fmt: skip
"""Parameters that have another name in the shell."""


def builder(
    method: str, methods: dict[str, str], told: dict[str, Any], *, name: str | None = None, word: str = "--method", **always: Any
) -> Callable[..., Any]:
    """A function that makes the unfitted model. Of the options ``told`` (not None), those that the method lacks are refused now, by the name they have
    in the shell; ``always`` is passed where it is known."""
    if method not in methods:
        raise wrong(word, method, ", ".join(methods))
    name = name or methods[method]
    kind = getattr(import_module(CLASSES[name]), name)
    known = inspect.signature(kind).parameters
    given = {option: value for option, value in told.items() if value is not None}
    for option, value in given.items():
        if option not in known:
            flag = FLAGS.get(option, f"--{option.replace('_', '-')}")
            said = flag if isinstance(value, bool) else f"{flag} {value}"
            raise InputError(f"{said} came with {word} {method}, which has no such choice; leave it out")
    base = {option: value for option, value in always.items() if value is not None and option in known} | given
    return lambda **more: kind(**base | {option: value for option, value in more.items() if option in known})


def engine_option(name: str) -> str | None:
    """The value of --engine as an option that only some models have: None for auto."""
    from eckart.engines import engine_names

    if name not in ("auto", *engine_names()):
        raise wrong("--engine", name, ", ".join(["auto", *engine_names()]))
    return None if name == "auto" else name


def progress_bars(quiet: bool) -> bool:
    """Whether someone is there to see them."""
    return not quiet and sys.stderr.isatty()
