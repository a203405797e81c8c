"""eckart reduce."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli import options
from eckart.cli.cluster import ClusterOptions
from eckart.cli.database import DatabaseOptions
from eckart.cli.options import Arithmetic, CellOptions, TableOptions, option
from eckart.cli.shell import OutputTargets, Shell, lasting
from eckart.errors import invalid
from eckart.registry import methods

METHODS = methods("reduce")
LINEAR = ("pca", "robust")
"""Methods whose components are directions."""


@options.spread(ClusterOptions, DatabaseOptions)
def reduce(
    file: Annotated[str, typer.Argument(help="The data: one row for each point.")],
    *,
    method: Annotated[
        str | None,
        option(
            help="pca, robust (some entries are wrong), autoencoder or conv_autoencoder.  [default: pca]"
        ),
    ] = None,
    components: Annotated[
        str,
        option(
            "--components",
            "-k",
            help="How many: a number, a share of variance such as 0.9, or auto.",
        ),
    ] = "auto",
    scale: Annotated[
        bool | None,
        option(
            "--scale/--no-scale",
            help="Divide each column by its standard deviation, so that units do not count.",
        ),
    ] = None,
    out: options.Out = None,
    model: options.KindOrFile = None,
    report: options.Report = None,
    table: TableOptions,
    cells: CellOptions,
    image: options.Image = None,
    solver: options.Solver = None,
    whiten: Annotated[bool, option("--whiten", help="Codes of unit variance.")] = False,
    center: Annotated[
        bool,
        option(
            "--center/--no-center", help="Subtract the mean; without it this is a truncated SVD."
        ),
    ] = True,
    rotation: Annotated[str | None, option(help="varimax or promax.")] = None,
    hidden: Annotated[
        str | None, option(help="Of an autoencoder: widths of the hidden layers, such as 512,256.")
    ] = None,
    max_iter: options.Steps = None,
    device: Annotated[
        str | None, option(help="Of an autoencoder: cpu, cuda or one of several, such as cuda:1.")
    ] = None,
    checkpoint: options.Checkpoint = None,
    how: Arithmetic,
    shell: Shell,
) -> None:
    """Reduce a table to a few components (PCA, or an autoencoder) and show how good the answer is.

    Reads .npy, .npz, .csv, .tsv, .parquet, .arrow, .xlsx, .jsonl, a folder of images, or standard
    input (-); quote a pattern such as 'part-*.parquet' to chain files. Columns of text and dates
    are left out. Empty cells are missing entries: the model is then fitted to what is there.
    Columns in different units need --scale. Files larger than memory are read once, in blocks (by
    PCA; an autoencoder holds its rows in memory).

    Examples:

        eckart reduce wine.csv --scale --components 2 --labels kind --report wine.html

        eckart reduce data.parquet -k auto --out codes.parquet --model m.safetensors --report
        report.html

        eckart reduce survey.csv -k 0.9 --index id --missing -9 --rotation varimax --report
        report.html

        eckart reduce digits.npy -k 30 --image 8x8 --report digits.html

        eckart reduce faces/ --method autoencoder -k 30 --image 28x28 --report report.html
    """
    from eckart.cli import building
    from eckart.cli.reading import facts, local, reading_of
    from eckart.cli.suspicions import refuse_rank, refuse_triples

    method, kept = building.kind_and_file(method, model, METHODS, shell)
    method, to = method or "pca", OutputTargets(out, kept, report).check(file)
    k, shape, linear = _components(components), building.parse_image(image), method in LINEAR
    model_options = {
        "svd_solver": solver,
        "whiten": whiten or None,
        "center": None if center else False,
        "rotation": rotation,
        "scale": scale or None,
        "hidden": _widths(hidden),
        "epochs" if method == "pca" else "max_iter": max_iter,
        "device": device,
        "engine": how.engine_option(),
    }
    always: dict[str, Any] = {
        "random_state": how.seed,
        "n_threads": how.threads,
        "checkpoint": None
        if how.plan
        else checkpoint,  # a plan fits parts of the data, which are no work to go on with
        "verbose": shell.bars,
    }
    build = building.builder(method, METHODS, model_options, init="pca", **always)
    k = k if linear else _code_size(k, components)
    reading = reading_of(table, cells, shell=shell)
    with shell.phase(f"reading {file}"):
        file = local(file)
        data = reading.table(file, shell, image=shape)
        refuse_triples(reading, file, by_name=True)
    x, shape = data.matrix, shape or data.image
    building.check_image(shape, x.shape[1])
    refuse_rank(k, x)
    shape = shape or (None if linear else _square(x.shape[1]))
    unfitted = build(n_components=k, image=shape)
    if how.plan:
        from eckart.cli.estimate import tell_plan

        tell_plan(shell, x, unfitted.fit)
        return
    begin = time.perf_counter()
    with shell.fitting():
        fitted = unfitted.fit(x)
    if linear and (few := _few_instead_of_none(fitted.fit_.factors, k, shell)):
        fitted = build(n_components=few, image=shape).fit(x)
    shell.answer["data"] = facts(file, x)
    if scale is None and shape is None:
        _note_units(fitted.fit_.plan.get("units") or {}, shell)
    _summary(fitted, file, time.perf_counter() - begin, shell)

    def page() -> Any:
        from eckart.report.networks import network_report
        from eckart.report.reduce import reduce_report

        sample, marks = data.sample()
        about: dict[str, Any] = {"name": Path(file).name, "labels": marks, "image": shape}
        return (
            reduce_report(fitted, sample, names=data.sample_names(), **about)
            if linear
            else network_report(fitted, sample, **about)
        )

    def write(path: Path) -> int:
        id_columns = None if data.labels is None else (str(reading.labels), data.labels)
        return building.write_codes(
            fitted.transform,
            building.numbered("component", fitted),
            x,
            path,
            reading.index,
            id_columns,
        )

    shell.finish(fitted, to, write, page, "codes")


def _components(text: str) -> int | float | str:
    """A count, a share or "auto"."""
    if text in ("auto", "mle"):
        return text
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise invalid("--components", text, "a number, a share such as 0.9, or auto") from None


def _few_instead_of_none(basis: Any, k: Any, shell: Shell) -> int:
    """How many components to keep where "auto" kept none of data that vary, with a note; 0
    elsewhere."""
    if not _varies(basis, shell) or basis.k or k != "auto":
        return 0
    few = min(2, basis.rows, basis.n)
    shell.note(
        "no component stands out from the others; "
        f"{f'the first {few} are kept, and -k says another number' if few > 1 else 'one is kept'}"
    )
    return few


def _varies(basis: Any, shell: Shell) -> bool:
    """Whether there is more variance than rounding leaves; a note where there is none."""
    import numpy as np

    most = 8 * float(np.finfo(basis.mean.dtype).eps) * float(np.abs(basis.mean).max(initial=0))
    varies = bool(basis.total > basis.weight * basis.n * most**2)
    if not varies:
        shell.note("no column varies, so there is nothing to reduce: what is left is rounding")
    return varies


def _note_units(units: dict[str, Any], shell: Shell) -> None:
    """Columns whose standard deviations are far apart decide the components by their unit."""
    if units.get("differ"):
        shell.note(
            f"the standard deviation of {units['largest']} is {units['ratio']:,.0f} "
            f"times that of {units['smallest']}, so the components are mostly about "
            f"{units['largest']}; say --scale if the columns are in different units, "
            "--no-scale if they are not"
        )


def _code_size(k: Any, components: str) -> int:
    """The size of the code: 2 unless it is said."""
    if components == "auto":
        return 2
    if not isinstance(k, int):
        raise invalid("--components", components, "a number, for an autoencoder")
    return k


def _widths(text: str | None) -> list[int] | None:
    """Widths from a list with commas; an empty text gives no hidden layer."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise invalid("--hidden", text, "widths separated by commas, such as 512,256") from None


def _square(n: int) -> tuple[int, int] | None:
    """Height and width of rows that are square images, as far as one can tell from their length."""
    side = round(n**0.5)
    return (side, side) if side * side == n and side >= 4 else None


def _summary(model: Any, file: str, seconds: float, shell: Shell) -> None:
    f, c, plan = model.fit_.factors, model.certificate_, model.fit_.plan
    from eckart.cli.reading import called

    gaps = (
        f", {plan['gaps']:,} entr{'y' if plan['gaps'] == 1 else 'ies'} missing"
        if "gaps" in plan
        else ""
    )
    shell.say("data", f"{called(file)}: {f.rows:,} rows x {f.n:,} columns{gaps}")
    if "layers" in plan:
        from eckart.report.networks import in_one_sentence

        shell.say("reduced", f"to {f.k} numbers by {plan['layers']} ({f.size:,} weights)")
        shell.say("risk", in_one_sentence(c, f.k)[0])
        shell.say(
            "trained",
            f"{plan['solver']}, {plan['epochs']} epochs, {plan['device']}: {c['stopped']}",
        )
        shell.outcome(model, seconds)
        return
    ratio = model.explained_variance_ratio_
    # else the line about the fit says it
    took = "" if len(model.fit_.trace) else f", in {lasting(shell.times['fit'])}"
    shell.say(
        "reduced",
        f"to {f.k} component{' that keeps' if f.k == 1 else 's that keep'} "
        f"{float(ratio.sum()):.2%} of the variance{took}",
    )
    shell.say("solver", f"{plan['solver']}: {plan['reason']}")
    shell.outcome(model, seconds)
    for i, top in enumerate(model.top_features(3)[:5]):
        model_options = ", ".join(f"{name} {value:+.3g}" for name, value in top)
        shell.say("component", f"{i + 1}: {float(ratio[i]):.1%}  {model_options}")
    shell.answer |= {"components": f.k, "explained_variance_ratio": ratio}
