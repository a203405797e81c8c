"""eckart reduce."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli.options import Columns, Engine, Index, Quiet, Report, Seed
from eckart.errors import wrong

METHODS = {"pca": "PCA", "autoencoder": "Autoencoder", "conv_autoencoder": "ConvAutoencoder"}
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

File = Annotated[str, typer.Argument(help="The data: one row for each point.")]
Components = Annotated[
    str, typer.Option("--components", "-k", help="How many: a number, a share of variance such as 0.9, or auto.")
]
Out = Annotated[Path | None, typer.Option(help="Write the codes here (.parquet, .arrow, .csv, .npy).")]
Model = Annotated[
    list[str] | None,
    typer.Option(
        help="pca, autoencoder or conv_autoencoder; or a file to save the model in (.safetensors). May be given twice."
    ),
]
Labels = Annotated[str | None, typer.Option(help="Column of labels that colours the map; it is not part of the data.")]
Image = Annotated[str | None, typer.Option(help="Rows are images of this height and width, such as 28x28.")]
Solver = Annotated[str, typer.Option(help="auto, eigh, svd, power, randomized, lanczos or gradient.")]
Whiten = Annotated[bool, typer.Option("--whiten", help="Codes of unit variance.")]
Center = Annotated[
    bool, typer.Option("--center/--no-center", help="Subtract the mean; without it this is a truncated SVD.")
]
Rotation = Annotated[str | None, typer.Option(help="varimax or promax.")]
Hidden = Annotated[str | None, typer.Option(help="Of an autoencoder: widths of the hidden layers, such as 512,256.")]
Epochs = Annotated[int | None, typer.Option(help="Of an autoencoder: most passes over the rows.")]
Device = Annotated[str | None, typer.Option(help="Of an autoencoder: cpu or cuda.")]
Threads = Annotated[
    int | None,
    typer.Option(help="Most threads; the result of PCA does not depend on it, the last digits of a network do."),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(help="Keep the state of a long fit here; the same command goes on from it after a crash."),
]


def reduce(
    file: File,
    components: Components = "auto",
    out: Out = None,
    model: Model = None,
    report: Report = None,
    columns: Columns = None,
    index: Index = None,
    labels: Labels = None,
    image: Image = None,
    solver: Solver = "auto",
    whiten: Whiten = False,
    center: Center = True,
    rotation: Rotation = None,
    hidden: Hidden = None,
    epochs: Epochs = None,
    device: Device = None,
    seed: Seed = 0,
    engine: Engine = "auto",
    threads: Threads = None,
    checkpoint: Checkpoint = None,
    quiet: Quiet = False,
) -> None:
    from eckart.cli import common

    given = [m.replace("-", "_") if m.replace("-", "_") in METHODS else m for m in model or []]
    kind, kept = common.kind_and_file(None, given, METHODS)
    kind, to = kind or "pca", common.Targets(out, kept, report).check(file)
    k, shape, pca = common.parse_components(components), common.parse_image(image), kind == "pca"
    told = {
        "svd_solver": None if solver == "auto" else solver, "whiten": whiten or None, "center": None if center else False, "rotation": rotation,
        "hidden": _widths(hidden), "epochs" if pca else "max_iter": epochs, "device": device, "engine": common.engine_option(engine),
    }  # fmt: skip
    always: dict[str, Any] = {
        "random_state": seed,
        "n_threads": threads,
        "checkpoint": checkpoint,
        "verbose": common.progress_bars(quiet),
    }
    build = common.builder(kind, METHODS, told, word="--model", init="pca", **always)
    if not pca:
        k = _code_size(k, components)
    table = common.load_table(file, columns, index, labels)
    common.check_image(shape, table.matrix.shape[1])
    if not pca:
        shape = shape or _square(table.matrix.shape[1])
    begin = time.perf_counter()
    fitted = build(n_components=k, image=shape).fit(table.matrix)
    seconds = time.perf_counter() - begin
    if not quiet:
        _summary(fitted, file, seconds)

    def page() -> Any:
        from eckart.report.networks import network_report
        from eckart.report.reduce import reduce_report

        sample, marks = table.sample()
        make = reduce_report if pca else network_report
        return make(fitted, sample, name=Path(file).name, labels=marks, image=shape)

    names = fitted.get_feature_names_out()
    common.finish(
        fitted,
        to,
        quiet,
        lambda path: common.write_codes(fitted.transform, names, table.matrix, path, index),
        page,
        "codes",
    )


def _code_size(k: Any, components: str) -> int:
    """The size of the code: 2 unless it is said."""
    if components == "auto":
        return 2
    if not isinstance(k, int):
        raise wrong("--components", components, "a number, for an autoencoder")
    return k


def _widths(text: str | None) -> list[int] | None:
    """Widths from a list with commas; an empty text gives no hidden layer."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise wrong("--hidden", text, "widths separated by commas, such as 512,256") from None


def _square(n: int) -> tuple[int, int] | None:
    """Height and width of rows that are square images, as far as one can tell from their length."""
    side = round(n**0.5)
    return (side, side) if side * side == n and side >= 4 else None


def _summary(model: Any, file: str, seconds: float) -> None:
    from eckart.cli.common import lasting, say, verdict

    f, c, plan = model.fit_.factors, model.certificate_, model.fit_.plan
    gaps = f", {plan['gaps']:,} entries missing" if "gaps" in plan else ""
    say(False, "data", f"{file}: {f.rows:,} rows x {f.n:,} columns{gaps}")
    if "layers" in plan:
        from eckart.report.networks import in_one_sentence

        say(False, "reduced", f"to {f.k} numbers by {plan['layers']} ({f.size:,} weights), in {lasting(seconds)}")
        say(False, "risk", in_one_sentence(c, f.k)[0])
        say(False, "trained", f"{plan['solver']}, {plan['epochs']} epochs, {plan['device']}: {c['stopped']}")
        say(False, "evidence", verdict(c))
        return
    ratio = model.explained_variance_ratio_
    say(
        False,
        "reduced",
        f"to {f.k} components that keep {float(ratio.sum()):.2%} of the variance, in {lasting(seconds)}",
    )
    say(False, "solver", f"{plan['solver']}: {plan['reason']}")
    say(False, "evidence", verdict(c))
    for i, top in enumerate(model.top_features(3)[:5]):
        told = ", ".join(f"{name} {value:+.3g}" for name, value in top)
        say(False, "component", f"{i + 1}: {float(ratio[i]):.1%}  {told}")


reduce.__doc__ = REDUCE_HELP
