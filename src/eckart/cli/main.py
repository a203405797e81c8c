"""Entry point. Bad input ends with one line on standard error and exit code 2, never with a traceback."""

from __future__ import annotations

import sys

import typer

from eckart.cli.reduce import certify, plan, reduce
from eckart.errors import EckartError

app = typer.Typer(
    name="eckart",
    help="Low-rank learning from the shell: reduce a table to the few numbers that explain it, with evidence.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command()(reduce)
app.command()(certify)
app.command()(plan)


def _version(show: bool) -> None:
    if show:
        from eckart import __version__

        typer.echo(f"eckart {__version__}")
        raise typer.Exit()


@app.callback()
def main(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version and exit.")) -> None:
    """Low-rank learning from the shell: reduce a table to the few numbers that explain it, with evidence."""


def run() -> None:
    """The console script."""
    try:
        app()
    except EckartError as error:
        _fail(str(error), 2)
    except (OSError, MemoryError) as error:
        _fail(f"{type(error).__name__}: {error}", 2)
    except KeyboardInterrupt:
        _fail("interrupted", 130)


def _fail(words: str, code: int) -> None:
    print(f"eckart: error: {' '.join(words.split())}", file=sys.stderr)
    sys.exit(code)
