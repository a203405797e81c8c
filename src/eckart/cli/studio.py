"""eckart studio."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def studio(
    place: Annotated[
        Path, typer.Argument(metavar="PLACE", help="A model, a data file or a folder.")
    ] = Path("."),
    port: Annotated[
        int | None, typer.Option(help="The port to listen on; by default 8877, or a free one.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open no browser.")
    ] = False,
) -> None:
    """Open a page in the browser: look at data, run the verbs as jobs, and explore the models.

    Shows one folder: the one that is named, the one of the file that is named, or this one. What
    jobs find are ordinary model files and reports in that folder. The page works without a network,
    and only on this machine: others cannot reach it, nor can pages of other sites.

    Examples:

        eckart studio

        eckart studio ratings.csv

        eckart studio m.safetensors --port 9000 --no-browser
    """
    from eckart.studio.run import run_studio

    run_studio(place, port, not no_browser, lambda name, words: typer.echo(f"{name:<10} {words}"))
