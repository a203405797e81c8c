"""eckart reduce, certify and plan."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

MODELS = ("pca", "autoencoder", "conv_autoencoder")
REDUCE_HELP = """
Reduce a table to a few components (PCA, or an autoencoder) and show how good the answer is.

Reads .npy, .npz, .csv, .tsv, .parquet, .arrow (quote a pattern such as 'part-*.parquet' to chain files). Empty cells are missing
entries: the model is then fitted to what is there. Files larger than memory are read once, in blocks (by PCA; an autoencoder holds its rows in memory).

Examples:

    eckart reduce data.csv --components 10

    eckart reduce data.parquet -k auto --out codes.parquet --model m.safetensors --report report.html

    eckart reduce survey.csv -k 0.9 --index id --rotation varimax --report report.html

    eckart reduce digits.npy -k 30 --image 8x8 --report digits.html

    eckart reduce images.npy --model autoencoder -k 30 --image 28x28 --report report.html
"""


def reduce(
    file: Annotated[str, typer.Argument(help="The data: one row for each point.")],
    components: Annotated[
        str, typer.Option("--components", "-k", help="How many: a number, a share of variance such as 0.9, or auto.")
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the codes here (.parquet, .arrow, .csv, .npy).")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="pca, autoencoder or conv_autoencoder; or a file to save the model in (.safetensors). May be given twice."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a self-contained HTML report here.")] = None,
    columns: Annotated[str | None, typer.Option(help="Use these columns only, separated by commas.")] = None,
    index: Annotated[str | None, typer.Option(help="Column that names the rows.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="Column of labels that colours the map; it is not part of the data.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Rows are images of this height and width, such as 28x28.")] = None,
    solver: Annotated[str, typer.Option(help="auto, eigh, svd, power, randomized, lanczos or gradient.")] = "auto",
    whiten: Annotated[bool, typer.Option("--whiten", help="Codes of unit variance.")] = False,
    center: Annotated[
        bool, typer.Option("--center/--no-center", help="Subtract the mean; without it this is a truncated SVD.")
    ] = True,
    rotation: Annotated[str | None, typer.Option(help="varimax or promax.")] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Of an autoencoder: widths of the hidden layers, such as 512,256.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of an autoencoder: most passes over the rows.")] = None,
    device: Annotated[str | None, typer.Option(help="Of an autoencoder: cpu or cuda.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    threads: Annotated[
        int | None,
        typer.Option(help="Most threads; the result of PCA does not depend on it, the last digits of a network do."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Keep the state of a long pass here; the same command goes on from it after a crash."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no summary.")] = False,
) -> None:
    from eckart.cli.common import check_image, check_paths, load_table, parse_components, parse_image
    from eckart.reduce.pca import PCA

    kind, target = which_model(model)
    check_paths(out, target, report, file)
    networks = {"hidden": hidden, "epochs": epochs, "device": device}
    if kind != "pca":
        from eckart.cli.networks import reduce_by_network

        refuse_others(
            kind, {"solver": solver != "auto", "whiten": whiten, "no-center": not center, "rotation": rotation}
        )
        shared = {"seed": seed, "threads": threads, "checkpoint": checkpoint, "quiet": quiet}
        where = {"out": out, "target": target, "report": report, "index": index}
        table = load_table(file, columns, index, labels)
        reduce_by_network(kind, table, file, components, parse_image(image), networks, where, shared)
        return
    refuse_others("pca", networks)
    k, shape = parse_components(components), parse_image(image)
    table = load_table(file, columns, index, labels)
    check_image(shape, table.matrix.shape[1])
    begin = time.perf_counter()
    pca = PCA(
        k,
        svd_solver=solver,
        whiten=whiten,
        center=center,
        rotation=rotation,
        random_state=seed,
        n_threads=threads,
        checkpoint=checkpoint,
        verbose=not quiet and sys.stderr.isatty(),
    )
    pca.fit(table.matrix)
    seconds = time.perf_counter() - begin
    if not quiet:
        _summary(pca, file, seconds)
    if out is not None:
        rows = _write_codes(pca, table.matrix, out, index)
        _say(quiet, f"codes      {out} ({rows:,} rows)")
    if target is not None:
        pca.save(target)
        _say(quiet, f"model      {target}")
    if report is not None:
        from eckart.report.reduce import reduce_report

        sample, marks = table.sample()
        reduce_report(pca, sample, name=Path(file).name, labels=marks, image=shape).write(report)
        _say(quiet, f"report     {report}")


def which_model(given: list[str] | None) -> tuple[str, Path | None]:
    """The kind of model and the file to save it in, from the values of --model."""
    from eckart.errors import wrong

    kinds = [m for m in given or [] if m.replace("-", "_") in MODELS]
    files = [Path(m) for m in given or [] if m.replace("-", "_") not in MODELS]
    if len(kinds) > 1 or len(files) > 1:
        raise wrong("--model", ", ".join(given or []), "at most one kind of model and one file to save it in")
    if files and files[0].suffix.lower() != ".safetensors":
        raise wrong("--model", str(files[0]), f"one of {', '.join(MODELS)}, or a file ending in .safetensors")
    return kinds[0].replace("-", "_") if kinds else "pca", files[0] if files else None


def refuse_others(kind: str, options: dict[str, Any]) -> None:
    """Refuse options that this kind of model does not have."""
    from eckart.errors import InputError

    for name, value in options.items():
        if value not in (None, False):
            raise InputError(f"--{name} came for --model {kind}, which has no such option; leave it out")


def certify(
    model: Annotated[Path, typer.Argument(help="A model saved by eckart reduce, complete or explain.")],
    data: Annotated[str, typer.Argument(help="The data to measure it against.")],
    columns: Annotated[
        str | None,
        typer.Option(
            help="Use these columns only, separated by commas; of a completion: the one that holds column ids."
        ),
    ] = None,
    index: Annotated[str | None, typer.Option(help="Column that names the rows.")] = None,
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
    from eckart.cli.common import has_names, load_table
    from eckart.errors import InputError
    from eckart.factors import Embedding, LowRank
    from eckart.io.models.save import load

    fitted = load(model)
    if hasattr(fitted, "predict") and type(fitted).__module__.startswith("eckart.nn"):
        raise InputError(
            f"{model} is a {type(fitted).__name__}, whose certificate needs answers y; call certify(X, y) in Python"
        )
    explains = type(fitted).__module__.startswith("eckart.explain")
    if isinstance(fitted.fit_.factors, LowRank) and not explains:
        from eckart.cli.triples_input import for_model, source_of

        source = source_of(rows, columns, values, index, delimiter, no_header, duplicates, plan=fitted.fit_.plan)
        _verdict(fitted.certify(for_model(source.load(data), fitted.row_ids, fitted.column_ids)))
        return
    for name, value in (("--rows", rows), ("--values", values), ("--duplicates", duplicates)):
        if value is not None:
            raise InputError(
                f"{name} {value} came for a {type(fitted).__name__}, which is measured against a table; leave it out"
            )
    if isinstance(fitted.fit_.factors, Embedding):
        from eckart.cli.text_inputs import material_of, sentences_for

        material = material_of(text, None, columns, None, None, delimiter, no_header, False, fitted.fit_.plan)
        _verdict(fitted.certify(sentences_for(fitted, data, material)))
        return
    if explains:
        from eckart.cli.text_inputs import material_of, read_for

        material = material_of(text, index, columns, None, None, delimiter, no_header, False, fitted.fit_.plan)
        _verdict(fitted.certify(read_for(fitted, data, material)))
        return
    names = fitted.fit_.factors.columns
    named = names is not None and all(isinstance(n, str) for n in names) and has_names(data)
    matrix = load_table(data, columns or (list(names) if named else None), index, None).matrix
    if matrix.shape[1] != fitted.n_features_in_:
        raise InputError(
            f"{data} has {matrix.shape[1]} columns, wanted the {fitted.n_features_in_} of {model}; choose them with --columns"
        )
    _verdict(fitted.certify(matrix))


def _verdict(certificate: Any) -> None:
    typer.echo(str(certificate))
    if not certificate.holds:
        raise typer.Exit(1)


def plan(
    file: Annotated[str, typer.Argument(help="The data.")],
    components: Annotated[
        str, typer.Option("--components", "-k", help="How many: a number, a share of variance, or auto.")
    ] = "auto",
    columns: Annotated[str | None, typer.Option(help="Use these columns only, separated by commas.")] = None,
    index: Annotated[str | None, typer.Option(help="Column that names the rows.")] = None,
    solver: Annotated[str, typer.Option(help="Plan for this solver instead of the automatic choice.")] = "auto",
) -> None:
    """Estimate passes, time and memory of a reduction before running it, and say what would be chosen and why.

    Example:

        eckart plan data.npy --components 32
    """
    from eckart.cli.common import load_table, parse_components
    from eckart.reduce.plan import available_memory, choose, costs, measured_speed, validate_components

    matrix = load_table(file, columns, index, None).matrix
    k = parse_components(components)
    validate_components(k, matrix.shape[0], matrix.shape[1])
    speed = measured_speed()
    chosen = choose(matrix, k, solver)
    rows = "unknown" if matrix.shape[0] is None else f"{matrix.shape[0]:,}"
    typer.echo(
        f"data       {rows} rows x {matrix.shape[1]:,} columns, {matrix.dtype.name}, {type(matrix).__name__.lower()}"
    )
    typer.echo(f"chosen     {chosen.solver}: {chosen.reason}")
    typer.echo(
        f"estimate   {chosen.passes} passes, {_seconds(chosen.seconds / speed)}, {chosen.memory / 2**20:,.0f} MiB beyond the data "
        f"({available_memory() / 2**30:.1f} GiB available)"
    )
    typer.echo("solver      passes     time        memory")
    for name, (passes, seconds, memory) in costs(matrix, k).items():
        typer.echo(f"{name:<11} {passes:<10} {_seconds(seconds / speed):<11} {memory / 2**20:,.0f} MiB")


def _summary(pca: Any, file: str, seconds: float) -> None:
    b, c = pca.fit_.factors, pca.certificate_
    typer.echo(
        f"data       {file}: {b.rows:,} rows x {b.n:,} columns"
        + (f", {pca.fit_.plan['gaps']:,} entries missing" if "gaps" in pca.fit_.plan else "")
    )
    typer.echo(
        f"reduced    to {b.k} components that keep {float(pca.explained_variance_ratio_.sum()):.2%} of the variance, in {_seconds(seconds)}"
    )
    typer.echo(f"solver     {pca.fit_.plan['solver']}: {pca.fit_.plan['reason']}")
    typer.echo(f"evidence   certificate {'holds' if c.holds else 'DOES NOT HOLD: ' + c.reason} ({c.kind})")
    for i, top in enumerate(pca.top_features(3)[:5]):
        typer.echo(
            f"component  {i + 1}: {float(pca.explained_variance_ratio_[i]):.1%}  "
            + ", ".join(f"{name} {value:+.3g}" for name, value in top)
        )


def _write_codes(pca: Any, matrix: Any, out: Path, index: str | None) -> int:
    from eckart.io.tables.write import write_table
    from eckart.matrix import row_parts

    blocks = ((pca.transform(part), part.rows) for part in row_parts(matrix))
    return write_table(out, [str(n) for n in pca.get_feature_names_out()], blocks, index or "row")


def _say(quiet: bool, words: str) -> None:
    if not quiet:
        typer.echo(words)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 60 else f"{seconds / 60:.1f} min"


reduce.__doc__ = REDUCE_HELP
