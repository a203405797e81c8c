"""eckart certify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli.options import Index

ColumnsOrIds = Annotated[
    str | None,
    typer.Option(help="Use these columns only, separated by commas; of a completion: the one that holds column ids."),
]


def certify(
    model: Annotated[Path, typer.Argument(help="A model saved by eckart reduce, complete or explain.")],
    data: Annotated[str, typer.Argument(help="The data to measure it against.")],
    columns: ColumnsOrIds = None,
    index: Index = None,
    rows: Annotated[str | None, typer.Option(help="Of a completion: the column that holds the row ids.")] = None,
    values: Annotated[str | None, typer.Option(help="Of a completion: the column that holds the values.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of a completion: between the cells of a text file.")] = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="Of a completion: the first line is data.")] = False,
    duplicates: Annotated[str | None, typer.Option(help="Of a completion: last, mean or sum.")] = None,
    text: Annotated[str | None, typer.Option(help="Of topics and words: the column that holds the text.")] = None,
) -> None:
    """Measure the certificate of a saved model again, from model and data alone. Exit code 1 when it does not hold.

    Completions, topics and embeddings remember how their data was written; --rows, --columns, --values and --text are needed only where that has changed.

    Examples:

        eckart certify m.safetensors data.csv

        eckart certify completion.safetensors ratings.csv

        eckart certify topics.safetensors reviews/
    """
    from eckart.errors import InputError
    from eckart.factors import Embedding, LowRank
    from eckart.io.models.save import load

    fitted = load(model)
    if hasattr(fitted, "predict") and type(fitted).__module__.startswith("eckart.nn"):
        raise InputError(
            f"{model} is a {type(fitted).__name__}, whose certificate needs answers y; call certify(X, y) in Python"
        )
    factors, explains = fitted.fit_.factors, type(fitted).__module__.startswith("eckart.explain")
    if isinstance(factors, LowRank) and not explains:
        from eckart.cli.triples_input import for_model, source_of

        source = source_of(rows, columns, values, index, delimiter, no_header, duplicates, plan=fitted.fit_.plan)
        x = for_model(source.load(data), fitted.row_ids, fitted.column_ids)
    else:
        for name, value in (("--rows", rows), ("--values", values), ("--duplicates", duplicates)):
            if value is not None:
                raise InputError(
                    f"{name} {value} came for a {type(fitted).__name__}, which is measured against a table; leave it out"
                )
        if explains or isinstance(factors, Embedding):
            from eckart.cli.text_inputs import material_of, read_for, sentences_for

            names = index if explains else None  # sentences have no names
            material = material_of(text, names, columns, None, None, delimiter, no_header, False, fitted.fit_.plan)
            x = read_for(fitted, data, material) if explains else sentences_for(fitted, data, material)
        else:
            x = _table(fitted, model, data, columns, index)
    certificate = fitted.certify(x)
    typer.echo(str(certificate))
    if not certificate.holds:
        raise typer.Exit(1)


def _table(fitted: Any, model: Path, data: str, columns: str | None, index: str | None) -> Any:
    """The columns of the model, by their names where the file has names."""
    from eckart.cli.common import has_names, load_table
    from eckart.errors import InputError

    names = fitted.fit_.factors.columns
    named = names is not None and all(isinstance(n, str) for n in names) and has_names(data)
    matrix = load_table(data, columns or (list(names) if named else None), index, None).matrix
    if matrix.shape[1] != fitted.n_features_in_:
        raise InputError(
            f"{data} has {matrix.shape[1]} columns, wanted the {fitted.n_features_in_} of {model}; choose them with --columns"
        )
    return matrix
