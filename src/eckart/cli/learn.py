"""eckart learn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eckart.cli import options
from eckart.cli.options import option
from eckart.cli.shell import Shell


@options.spread()
def learn(
    lesson: Annotated[
        list[int] | None, typer.Argument(metavar="[N]...", help="Numbers of lessons.")
    ] = None,
    *,
    to: Annotated[
        Path | None, option(metavar="FOLDER", help="Write them as notebooks into this folder.")
    ] = None,
    shell: Shell,
) -> None:
    """The lessons of the course, and notebooks of them.

    Each lesson is one idea of the mathematics behind the verbs: a statement, code that shows it on
    real data, a picture, what breaks, and exercises that are checked.

    Examples:

        eckart learn

        eckart learn 4 7 --to notebooks

        eckart learn --to notebooks
    """
    from eckart.errors import invalid
    from eckart.learn import lessons, write_notebooks

    known = {one.number: one for one in lessons()}
    for number in lesson or ():
        if number not in known:
            raise invalid("lesson", number, f"a number of {min(known)} to {max(known)}")
    shown = [known[number] for number in lesson or known]
    shell.answer["lessons"] = [{"number": one.number, "title": one.title} for one in shown]
    if to is None:
        for one in shown:
            shell.say(f"{one.number:2d}", one.title)
        shell.say("", "eckart learn N --to FOLDER writes a lesson as a notebook")
        return
    written = write_notebooks(to, lesson or None)
    shell.answer["written"] = [str(path) for path in written]
    for path in written:
        shell.say("notebook", str(path))
    if len(written) < len(shown):
        shell.say("", f"{len(shown) - len(written)} were there already and are left as they are")
