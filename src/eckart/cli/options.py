"""Options that several commands have: name, type and help, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Threads = Annotated[int | None, typer.Option(help="Most threads; the result does not depend on it.")]
Engine = Annotated[
    str,
    typer.Option(
        help="What does the arithmetic: auto, cpu, plain (slow, for checking), dask (--workers N starts a cluster of processes here, --cluster ADDRESS "
        "uses a running one), or one of another package."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no summary.")]
Report = Annotated[Path | None, typer.Option(help="Write a self-contained HTML report here.")]
ModelFile = Annotated[Path | None, typer.Option(help="Save the model here (.safetensors).")]
KindOrFile = Annotated[
    list[str] | None,
    typer.Option(help="The kind of model, as --method; or the file to save it in (.safetensors). May come twice."),
]
OutLists = Annotated[Path | None, typer.Option(help="Write the lists here (.parquet, .arrow, .csv) instead.")]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Keep the state of a long fit here; the same command goes on from it after a crash.")
]
HeldOutEntries = Annotated[
    float | None, typer.Option(help="Share of the entries on which the error is measured; 0 for none.  [default: 0.1]")
]
Index = Annotated[str | None, typer.Option(help="Column that names the rows.")]
Columns = Annotated[str | None, typer.Option(help="Use these columns only, separated by commas.")]
Text = Annotated[str | None, typer.Option(help="Column that holds the text, by name or position.")]
Encoding = Annotated[str | None, typer.Option(help="Of text files.  [default: utf-8]")]
Delimiter = Annotated[str | None, typer.Option(help="Between the cells of a text file, such as ';' or tab.")]
NoHeader = Annotated[bool, typer.Option("--no-header", help="The first line of a text file is data.")]
NoQuotes = Annotated[bool, typer.Option("--no-quotes", help="Quotation marks are part of the text.")]
