"""What the shell commands share: arguments into values, files into tables."""

from __future__ import annotations

import glob
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from eckart.errors import FileError, InputError, wrong
from eckart.io.models.save import check_place
from eckart.io.read import read
from eckart.io.tables.write import check_target
from eckart.matrix import Dense, Matrix, Observed

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


def check_paths(
    out: Path | None,
    model: Path | None,
    report: Path | None,
    data: str,
    check: Callable[[Path], Any] = check_target,
) -> None:
    """Refuse targets that cannot be written, or that would replace the data, before any work is done; ``check`` is for ``out``, usually a table."""
    if out is not None:
        check(out)
    for path, ending in ((model, ".safetensors"), (report, ".html")):
        if path is not None and path.suffix.lower() != ending:
            raise FileError(f"{path} ends in {path.suffix!r}, wanted {ending}")
        if path is not None:
            check_place(path)
    sources = {os.path.realpath(name) for name in (glob.glob(data) or [data])}
    for path in (out, model, report):
        if path is not None and os.path.realpath(path) in sources:
            raise FileError(f"{path} is the data itself, wanted another name to write to")


def held_out_share(given: float | None, usual: float) -> float:
    """The value of --held-out, or the usual share."""
    from eckart.errors import wrong

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


def options_of(kind: type, told: dict[str, Any], flags: dict[str, str], method: str) -> dict[str, Any]:
    """Options that were given (not None) as parameters of an estimator; one that it does not have is refused by the name it has in the shell."""
    given = {name: value for name, value in told.items() if value is not None}
    for name in given.keys() - inspect.signature(kind).parameters.keys():
        flag = flags.get(name, f"--{name.replace('_', '-')}")
        raise InputError(f"{flag} {given[name]} came with --method {method}, which has no such choice; leave it out")
    return given
