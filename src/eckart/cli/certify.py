"""eckart certify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli import options
from eckart.cli.cluster import ClusterOptions
from eckart.cli.options import CellOptions, TableOptions, TextOptions, TripleOptions
from eckart.cli.shell import Shell, echo, verdict
from eckart.errors import InputError


@options.spread(ClusterOptions)
def certify(
    model: Annotated[
        Path, typer.Argument(help="A model saved by eckart reduce, complete, explain or embed.")
    ],
    data: Annotated[str, typer.Argument(help="The data to measure it against.")],
    *,
    table: TableOptions,
    triples: TripleOptions,
    texts: TextOptions,
    written: CellOptions,
    engine: options.Engine = "auto",
    shell: Shell,
) -> None:
    """Measure the certificate of a saved model again, from model and data alone. Exit code 1 when
    it does not hold.

    Completions, topics and embeddings remember how their data was written; --rows, --columns,
    --values and --text are needed only where that has changed.

    Examples:

        eckart certify m.safetensors data.csv

        eckart certify completion.safetensors ratings.csv

        eckart certify topics.safetensors reviews/
    """
    from eckart.io.models.save import load

    on, fitted = options.engine_option(engine), load(model)
    if on is not None:
        fitted.engine = on
    if hasattr(fitted, "predict") and type(fitted).__module__.startswith("eckart.nn"):
        raise InputError(
            f"{model} is a {type(fitted).__name__}, whose certificate needs answers y; "
            "call certify(X, y) in Python"
        )
    with shell.phase(f"measuring {model} against {data}"):
        certificate = fitted.certify(
            _data(fitted, model, data, table, triples, texts, written, shell)
        )
    shell.answer |= {"model": type(fitted).__name__, "certificate": certificate.to_dict()}
    shell.holds = bool(certificate.holds)
    shell.detail(verdict(certificate))
    if not shell.json:
        echo(str(certificate))


def _data(
    fitted: Any,
    model: Path,
    data: str,
    table: Any,
    triples: Any,
    texts: Any,
    written: Any,
    shell: Shell,
) -> Any:
    """The data in the rows and columns of the model."""
    from eckart.cli.id_files import for_model
    from eckart.cli.reading import fitting, local, reading_of
    from eckart.factors import Embedding, LowRank

    factors, explains = fitted.fit_.factors, type(fitted).__module__.startswith("eckart.explain")
    if isinstance(factors, LowRank) and not explains:
        source = reading_of(triples, table, written, plan=fitted.fit_.plan)
        return for_model(source.observed(local(data)), fitted.row_ids, fitted.column_ids)
    for name, value in (
        ("--rows", triples.rows),
        ("--values", triples.values),
        ("--duplicates", triples.duplicates),
    ):
        if value is not None:
            raise InputError(
                f"{name} {value} came for a {type(fitted).__name__}, which is measured "
                "against a table; leave it out"
            )
    reading = reading_of(table, texts, written, plan=fitted.fit_.plan, shell=shell)
    if explains:
        from eckart.cli.counted_texts import counted_for

        return counted_for(fitted, local(data), reading)
    if isinstance(factors, Embedding):
        from eckart.cli.embed import sentences_for

        return sentences_for(fitted, local(data, ".txt"), reading)
    return fitting(fitted, model, local(data), reading)
