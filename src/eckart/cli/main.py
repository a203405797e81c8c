"""Entry point. Bad input ends with one line on standard error and exit code 2, never with a
traceback."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import Any

import typer

from eckart import __version__
from eckart.cli.shell import outcome_of
from eckart.loading import delay

ABOUT = (
    "Low-rank learning from the shell: reduce a table to the few numbers that explain it, "
    "fill in one with gaps, recommend, explain texts and tables by topics, components and parts, "
    "embed words and items as vectors, with evidence."
)

COMMANDS = {
    "reduce": "Reduce a table to a few components, and show how good the answer is.",
    "complete": "Fill in a matrix from the entries that are known.",
    "compare": "Compare recommenders on the same hidden entries.",
    "recommend": "The best columns for rows of a saved completion, what is alike, and why.",
    "explain": "Topics of texts, components of a mixture, parts of a non-negative table.",
    "embed": "Learn a vector for each word (or item) of a text.",
    "neighbours": "The words whose vectors point in the most similar direction.",
    "analogy": "A is to B as C is to which word?",
    "certify": "Measure the certificate of a saved model again.",
    "plan": "Estimate time and memory before running a verb.",
    "doctor": "Say what this installation runs on, and what is missing.",
    "export": "Write the vectors of a saved model for a search service.",
    "serve": "Answer questions to saved models over HTTP.",
    "learn": "The lessons of the course, and notebooks of them.",
    "studio": "Open a page in the browser: data, jobs and models.",
}
"""The commands with what each does; each is imported when it is used."""
MODULES = {"neighbours": "words", "analogy": "words"}
"""Files that are not called as their command is."""
PLANNED = ("complete", "explain", "embed")
"""Verbs that have a plan of their own; that of a reduction is the command ``plan``."""


class Commands(typer.core.TyperGroup):
    """The commands, loaded one by one; ``plan VERB ...`` is the verb with ``--plan``."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        # by name and what each does alone, as lists of commands show them
        self.commands = {
            name: typer.core.TyperCommand(name, help=about) for name, about in COMMANDS.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # two words: a file of this name
        if args[0] == "plan" and len(args) > 2 and args[1] in (*PLANNED, "reduce"):
            plain = args[1] == "reduce"
            args = ["plan", *args[2:]] if plain else [*args[1:], "--plan"]
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and command_named(str(name)), rest


def command_named(name: str) -> Any:
    """One of ``COMMANDS``, with all of its options."""
    verb = getattr(import_module(f"eckart.cli.{MODULES.get(name, name)}"), name)
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(verb)
    return _without_types(typer.main.get_command(alone))


app = typer.Typer(
    name="eckart",
    cls=Commands,
    help=ABOUT,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"eckart {__version__}")
        raise typer.Exit()


def _escape(wanted: bool) -> None:
    from eckart.io.tables.write import escape_formulas

    escape_formulas.set(wanted)


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    escape: bool = typer.Option(
        False,
        "--escape-formulas",
        callback=_escape,
        help="In CSV files that are written, put an apostrophe before texts that a "
        "spreadsheet would calculate (=, +, -, @ first).",
    ),
) -> None:
    pass


main.__doc__ = ABOUT


VALUES = {
    "int": "N",
    "integer": "N",
    "integer range": "N",
    "float": "X",
    "float range": "X",
    "Path": "FILE",
    "path": "FILE",
}
"""What stands for a value in the help, by the names that typer, older and newer, has for its
kind."""


def _without_types(command: Any) -> Any:
    """The command with a help that names the values of options by what they are, and says no type
    of arguments and switches."""
    for parameter in command.get_params(typer.Context(command)):
        if parameter.param_type_name == "argument" or getattr(parameter, "is_flag", False):
            parameter.display_type_rich = lambda ctx: ""
        elif parameter.metavar is None:
            kind = parameter.bare_type() if hasattr(parameter, "bare_type") else parameter.type.name
            parameter.metavar = VALUES.get(kind, "TEXT")
    return command


def run() -> None:
    """The console script."""
    delay()
    warnings.filterwarnings(
        "ignore", message=r"\w+ stopped at "
    )  # the report of a fit says that it ended early, and what to do
    try:
        command = _without_types(typer.main.get_command(app))
        code = command(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (Exception, KeyboardInterrupt) as error:
        code, words_of_error = outcome_of(error)
        print(f"eckart: error: {words_of_error}", file=sys.stderr)
        sys.exit(code)
