"""eckart export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    model: Annotated[
        Path, typer.Argument(help="A saved completion with factors, or a saved embedding.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="Ends in .usearch, .faiss or .parquet.")
    ],
    queries: Annotated[
        Path | None,
        typer.Option(help="A .parquet for the vectors of the rows, columns id and vector."),
    ] = None,
    sample: Annotated[int, typer.Option(help="Rows on which recall@10 is measured.")] = 1000,
) -> None:
    """Write the column vectors of a saved model for a search service: an index of usearch or FAISS,
    or a table (.parquet) for a vector database.

    For a completion the largest inner products with the vector of a row (--queries) are its best
    columns, seen ones among them; for an embedding they are the largest cosines. An index is
    approximate: its recall@10 against exact search is measured and printed. Positions of the index
    are lines of FILE.ids.parquet.

    Examples:

        eckart export m.safetensors items.usearch

        eckart export m.safetensors items.faiss --queries users.parquet

        eckart export words.safetensors words.parquet
    """
    from eckart.io.models.save import load
    from eckart.serve.search_index import export_vectors

    typer.echo(
        f"{'written':<10} {export_vectors(load(model), target, queries=queries, sample=sample)}"
    )
