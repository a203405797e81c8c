"""From the options of a verb to an unfitted model, and what the verbs that fit have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.shell import OTHER_NAMES, Shell
from eckart.errors import InputError, invalid
from eckart.io.tables.write import write_long, write_table
from eckart.matrix import Matrix, row_parts
from eckart.registry import class_named
from eckart.trace import preliminary


def builder(
    method: str,
    methods: dict[str, str],
    options: dict[str, Any],
    *,
    name: str | None = None,
    **always: Any,
) -> Callable[..., Any]:
    """A function that makes the unfitted model. Of the ``options`` (not None), those that the
    method lacks are refused now, by the name they have in the shell; ``always`` is passed where it
    is known."""
    if method not in methods:
        raise invalid("--method", method, ", ".join(methods))
    name = name or methods[method]
    kind = class_named(name)
    known = inspect.signature(kind).parameters
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if option not in known:
            flag = f"--{OTHER_NAMES.get(option, 'no-center' if option == 'center' else option).replace('_', '-')}"
            said = flag if isinstance(value, bool) else f"{flag} {value}"
            raise InputError(
                f"{said} came with --method {method}, which has no such choice; leave it out"
            )
    base = {
        option: value for option, value in always.items() if value is not None and option in known
    } | given
    return lambda **more: kind(
        **base | {option: value for option, value in more.items() if option in known}
    )


def kind_and_file(
    method: str | None, given: list[str] | None, kinds: Iterable[str], shell: Shell
) -> tuple[str | None, Path | None]:
    """The kind of model and the file for it; a kind after --model, as was once written, is taken
    with a note."""
    known = tuple(kinds)
    names = [
        *([_kind(method)] if method else []),
        *(_kind(value) for value in given or [] if _kind(value) in known),
    ]
    files = [value for value in given or [] if _kind(value) not in known]
    for found, one in ((names, "one kind of model"), (files, "one file for the model")):
        if len(found) > 1:
            raise InputError(f"give {one}, got {' and '.join(found)}")
    if files and not files[0].endswith(".safetensors"):
        raise InputError(
            f"--model must be a file that ends in .safetensors, got {files[0]}. The kind of "
            f"model is --method {', '.join(known)}."
        )
    if names and not method:
        shell.note(
            f"--model {names[0]} is taken as --method {names[0]}; --model is the file "
            "to save the model in"
        )
    return (names[0] if names else None), (Path(files[0]) if files else None)


def _kind(text: str) -> str:
    return text.replace("-", "_") if text.replace("-", "_") in ("conv_autoencoder",) else text


def parse_image(text: str | None) -> tuple[int, int] | None:
    """HxW."""
    if text is None:
        return None
    try:
        height, width = (int(part) for part in text.lower().split("x"))
        if min(height, width) < 1:
            raise ValueError
    except ValueError:
        raise invalid("--image", text, "height x width, such as 28x28") from None
    return height, width


def check_image(shape: tuple[int, int] | None, columns: int) -> None:
    """Refuse an image shape that does not hold a row, before any work is done."""
    if shape is not None and shape[0] * shape[1] != columns:
        raise invalid(
            "--image",
            f"{shape[0]}x{shape[1]}",
            f"height x width = {columns}, the number of columns",
        )


def whole_or(text: str, *others: str) -> int | None:
    """A whole number of 1 or more, or None for one of the words."""
    if text in others:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise invalid(
            "--components",
            text,
            "a whole number of 1 or more" + "".join(f", or {word}" for word in others),
        )
    return int(text)


def held_out_share(given: float | None, usual: float = 0.1) -> float:
    """The value of --held-out, or the usual share."""
    share = usual if given is None else given
    if not 0 <= share < 1:
        raise invalid("--held-out", share, "a share of 0 (none) to below 1, such as 0.1")
    return share


def measured(shell: Shell, judge: Callable[[], Any], asked: float | None, what: str) -> Any:
    """The error on what was held out of a fit of its own, printed; None where there is too little
    to spare any and nobody asked."""
    try:
        with shell.phase(f"measuring the error on {what} held out"), preliminary():
            judged = judge()
    except InputError as error:
        if asked is not None or error.code != "invalid.held_out":
            raise
        shell.say("held out", f"nothing: there are too few {what} to spare any")
        return None
    for i, line in enumerate(judged.lines()):
        shell.say("" if i else "held out", line)
    return judged


def limit_reached(model: Any) -> str | None:
    """What to do where ``max_iter`` ended a fit."""
    most = getattr(model, "max_iter", None)
    return (
        None
        if most is None
        else f"the iteration limit was reached first: raise --max-iter above {most}"
    )


def numbered(word: str, model: Any) -> list[str]:
    """Names of the columns of a file of codes: those under which the shell, the report and the
    studio speak of them."""
    return [f"{word} {z + 1}" for z in range(int(model.fit_.factors.k))]


def write_codes(
    codes: Callable[[Any], Any],
    names: Iterable[Any],
    matrix: Matrix,
    out: Path,
    label: Any,
    labels: tuple[str, Any] | None = None,
) -> int:
    """A row of numbers for each row of the data, block by block; returns the number of rows.

    With ``labels`` (their name and values) each row also has its id, or its position where rows
    have no ids, so that it can be joined to the data.
    """
    titles, label = [str(name) for name in names], label if isinstance(label, str) else "row"
    if labels is None or out.suffix.lower() == ".npy":
        return write_table(
            out, titles, ((codes(part), part.rows) for part in row_parts(matrix)), label
        )

    def blocks() -> Any:
        seen = 0
        for part in row_parts(matrix):
            numbers = np.asarray(codes(part))
            at = slice(seen, seen := seen + len(numbers))
            ids = np.arange(at.start, at.stop) if part.rows is None else part.rows
            yield ids, labels[1][at], *numbers.T

    return write_long(out, [label, labels[0], *titles], blocks())
