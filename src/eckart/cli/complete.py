"""eckart complete."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

COMPLETE_HELP = """
Fill in a matrix from the entries that are known, and show how good the answer is.

Reads triples (one observation a line; say which columns hold row ids, column ids and values) or a wide table with empty cells, from .csv, .tsv,
.parquet, .arrow, .npy or .npz (quote a pattern such as 'part-*.parquet' to chain files). Files of triples may be larger than memory.

The error is measured first, on entries held out of a fit of their own; the model is then fitted to everything.

Examples:

    eckart complete ratings.csv --rows user --columns movie --values rating --model m.safetensors --report report.html

    eckart complete ratings.csv --rows user --columns movie --values rating -k 16 --pairs wanted.csv --out predicted.parquet

    eckart complete clicks.parquet --rows user --columns page --feedback implicit -k 64 --model m.safetensors

    eckart complete u.data --rows 0 --columns 1 --values 2 --delimiter tab --no-header --out completed.parquet

    eckart complete sensors.csv --index station --out filled.csv
"""

METHODS = {
    "als": "ALS",
    "bayes": "BayesianMF",
    "soft-impute": "SoftImpute",
    "svp": "SVP",
    "svt": "SVT",
    "exact": "ExactRecovery",
}
HELD_OUT = 0.1


def complete(
    file: Annotated[str, typer.Argument(help="The data: triples, or a wide table with empty cells.")],
    rows: Annotated[str | None, typer.Option(help="Column that holds the row ids, by name or position.")] = None,
    columns: Annotated[str | None, typer.Option(help="Column that holds the column ids.")] = None,
    values: Annotated[str | None, typer.Option(help="Column that holds the values; without it each is 1.")] = None,
    index: Annotated[str | None, typer.Option(help="Column that names the rows of a wide table.")] = None,
    components: Annotated[
        str,
        typer.Option(
            "--components", "-k", help="The rank: a number, or auto (several fits, chosen on unseen entries)."
        ),
    ] = "auto",
    method: Annotated[str, typer.Option(help="als, bayes, soft-impute, svp, svt or exact.")] = "als",
    feedback: Annotated[
        str,
        typer.Option(
            help="explicit (values are measurements) or implicit (values are strengths; absent is a weak no)."
        ),
    ] = "explicit",
    l2: Annotated[float | None, typer.Option(help="The ridge of als.")] = None,
    normalise: Annotated[
        str | None,
        typer.Option(
            help="Taken out before the fit and put back after: column, row, both, bias, global (als: instead of learned biases)."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the completed table or the predictions here (.parquet, .arrow, .csv; wide: .npy)."),
    ] = None,
    pairs: Annotated[
        str | None, typer.Option(help="Write only these cells of triples: a file with the same two columns of ids.")
    ] = None,
    unknown: Annotated[
        str, typer.Option(help="An id in --pairs that was not in the data: raise, mean or nan.")
    ] = "raise",
    cells: Annotated[
        str | None, typer.Option(help="Which cells of triples to write: all (observed ones as they are) or unobserved.")
    ] = None,
    all_cells: Annotated[bool, typer.Option("--all-cells", help="Write however many cells there are.")] = False,
    model: Annotated[Path | None, typer.Option(help="Save the model here (.safetensors).")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a self-contained HTML report here.")] = None,
    held_out: Annotated[
        float | None,
        typer.Option(help="Share of the entries on which the error is measured; 0 for none.  [default: 0.1]"),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Between the cells of a text file, such as ';', '::' or tab.")
    ] = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="The first line of a text file is data.")] = False,
    duplicates: Annotated[
        str | None, typer.Option(help="Several values of one cell: last, mean or sum. Without it they are an error.")
    ] = None,
    max_iter: Annotated[int | None, typer.Option(help="Most sweeps or iterations of the method.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Most threads; the result does not depend on it.")] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Keep the state of a long fit here; the same command goes on from it after a crash."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no summary.")] = False,
) -> None:
    from eckart.cli.common import check_paths, held_out_share, lasting, say
    from eckart.cli.completed_cells import check_cells, check_output, write_cells
    from eckart.cli.triples_input import source_of
    from eckart.errors import InputError
    from eckart.report.held_out import judge

    source = source_of(rows, columns, values, index, delimiter, no_header, duplicates)
    check_paths(out, model, report, file)
    check_output(source, out, pairs, unknown, cells)
    share = held_out_share(held_out, HELD_OUT)
    k = _rank(components)
    build = _builder(
        method,
        k,
        feedback,
        l2,
        normalise,
        max_iter,
        seed,
        threads,
        checkpoint,
        verbose=not quiet and sys.stderr.isatty(),
    )
    if source.long and source.values is None and feedback == "explicit":
        raise InputError(
            "--rows and --columns came without --values, wanted the column of values, or --feedback implicit"
        )
    x = _load(source, file)
    if out is not None and source.long and pairs is None:
        check_cells(x.shape, cells, all_cells)
    say(quiet, "data", f"{file}: {_shape(x)}")
    begin = time.perf_counter()
    chooser = Chooser(build, k, method, seed, threads, x.shape)
    judged = None
    if share:
        try:
            judged = judge(chooser.fit, x, share, seed)
            for i, line in enumerate(judged.lines()):
                say(quiet, "" if i else "held out", line)
        except InputError as error:
            if held_out is not None or "held_out" not in str(error):
                raise
            say(quiet, "held out", "nothing: there are too few entries to spare any")
    fitted = chooser.final(x)
    seconds = time.perf_counter() - begin
    fitted.fit_.plan.update(source.plan())
    fitted.fit_.plan["rank"] = chooser.reason
    if judged is not None:
        fitted.fit_.plan["held_out"] = judged.scores
    if not quiet:
        _summary(fitted, x, judged, chooser.reason, lasting(seconds))
    if out is not None:
        written = write_cells(fitted, x, source, out, pairs, unknown, cells)
        say(quiet, "out", f"{out} ({written:,} rows)")
    if model is not None:
        fitted.save(model)
        say(quiet, "model", f"{model}")
    if report is not None:
        from eckart.report.complete import complete_report

        page = complete_report(
            fitted, x, held_out=judged, name=Path(file).name, names=source.names, tuning=chooser.tuned
        )
        page.write(report)
        say(quiet, "report", f"{report}")


def _load(source: Any, file: str) -> Any:
    """The entries; a table with text in it was probably meant as triples, and the error says how to ask for them."""
    from eckart.errors import InputError

    try:
        return source.load(file)
    except InputError as error:
        if source.long or "column" not in str(error):
            raise
        raise InputError(
            f"{error}; say --rows, --columns and --values if {file} holds triples, or --index for the column that names the rows"
        ) from None


class Chooser:
    """The rank: as it was asked for, or chosen once on unseen entries and kept for the fit to everything."""

    def __init__(
        self, build: Callable[..., Any], k: int | None, method: str, seed: int, threads: int | None, shape: Any
    ):
        self.build, self.seed, self.threads = build, seed, threads
        self.best: dict[str, Any] = {}
        self.reason = "as asked for"
        self.tuned: Any = None
        self.search = k is None and method in ("als", "svp", "exact")
        if k is None and method == "bayes":
            self.best = {"n_components": max(1, min(16, *shape))}
            self.reason = "more than needed does little harm: the prior of what is not needed shrinks"
        elif k is None and not self.search:
            self.reason = "found, not given: what the price of the nuclear norm leaves"

    def fit(self, x: Any) -> Any:
        """A model for a part of the entries; chooses the rank where it is not known yet."""
        if not self.search:
            return self.build(part=True, **self.best).fit(x)
        from eckart.complete.tune import tune

        small = min(x.shape)
        ranks = [r for r in (2, 4, 8, 16, 32, 64) if r <= small] or [small]
        base = self.build(part=True, checkpoint=None)
        given = {"l2": base.l2} if getattr(base, "l2", None) is not None else {}
        self.tuned = tune(
            x,
            n_components=ranks,
            model=base,
            random_state=self.seed,
            n_threads=self.threads,
            verbose=base.verbose,
            **given,
        )
        self.best, self.search = dict(self.tuned.best), False
        told = ", ".join(f"{name.replace('n_components', 'rank')} {value:g}" for name, value in self.best.items())
        self.reason = (
            f"{told} of {len(self.tuned.table)} candidates had the least error on unseen entries; {self.tuned.stopped}"
        )
        return self.tuned.model

    def final(self, x: Any) -> Any:
        """The model of all entries."""
        return self.fit(x) if self.search else self.build(**self.best).fit(x)


def _builder(
    method: str,
    k: int | None,
    feedback: str,
    l2: float | None,
    normalise: str | None,
    max_iter: int | None,
    seed: int,
    threads: int | None,
    checkpoint: Path | None,
    verbose: bool,
) -> Callable[..., Any]:
    """A function that makes the unfitted model; options that the method does not have are refused now."""
    from eckart.complete.normalise import KINDS
    from eckart.errors import InputError, wrong
    from eckart.io.models.save import CLASSES

    if method not in METHODS:
        raise wrong("--method", method, ", ".join(METHODS))
    if feedback not in ("explicit", "implicit"):
        raise wrong("--feedback", feedback, "explicit or implicit")
    name = METHODS[method]
    try:
        kind = getattr(import_module(CLASSES[name]), name)
    except (ImportError, AttributeError):
        raise wrong("--method", method, "a method of this version of eckart: als") from None
    known = inspect.signature(kind).parameters
    told: dict[str, Any] = {
        "n_components": k,
        "l2": l2,
        "normalise": normalise,
        "max_iter": max_iter,
        "checkpoint": checkpoint,
    }
    if feedback == "implicit":
        told["feedback"] = feedback
    if normalise is not None and normalise not in KINDS:
        raise wrong("--normalise", normalise, ", ".join(k for k in KINDS if k))
    if normalise is not None and "biases" in known:
        told["biases"] = False
    for option, value in told.items():
        if value is not None and option not in known:
            flag = "--" + option.replace("n_", "").replace("_", "-")
            raise InputError(f"{flag} {value} came with --method {method}, which has no such choice; leave it out")
    always = {"random_state": seed, "n_threads": threads, "verbose": verbose}
    base = {n: v for n, v in (told | always).items() if v is not None and n in known}

    def build(part: bool = False, **more: Any) -> Any:
        """``part``: for a part of the entries, with a checkpoint of its own."""
        options = base | {n: v for n, v in more.items() if n in known}
        if part and options.get("checkpoint") is not None:
            options["checkpoint"] = checkpoint.with_name(checkpoint.name + ".held-out")  # type: ignore[union-attr]
        return kind(**options)

    return build


def _summary(model: Any, x: Any, judged: Any, reason: str, seconds: str) -> None:
    from eckart.cli.common import say
    from eckart.report.complete import rank_of, recovered
    from eckart.trace import StopReason

    c, rank = model.certificate_, rank_of(model)
    say(False, "rank", f"{rank}: {reason}")
    trace = model.fit_.trace
    say(False, "fitted", f"{type(model).__name__} in {seconds}, {len(trace)} steps; stopped: {trace.reason.value}")
    say(False, "evidence", f"certificate {'holds' if c.holds else 'DOES NOT HOLD: ' + c.reason} ({c.kind})")
    if not c.holds and trace.reason is StopReason.MAX_ITER and hasattr(model, "max_iter"):
        say(False, "", f"the iteration limit was reached first: raise --max-iter above {model.max_iter}")
    for note in c.notes:
        say(False, "", note)
    say(False, "recovery", recovered(x, rank)[1])
    if judged is not None and not judged.useful:
        say(
            False,
            "beware",
            "the model predicts no better than the plain answers beside it: try another rank, ridge or method",
        )


def _shape(x: Any) -> str:
    n, m = x.shape
    return f"{n:,} rows x {m:,} columns, {x.nnz:,} observed ({100 * x.nnz / max(1, n * m):.3g}% of all cells)"


def _rank(text: str) -> int | None:
    """A rank, or None for auto."""
    from eckart.errors import wrong

    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise wrong("--components", text, "a whole number of 1 or more, or auto")
    return int(text)


complete.__doc__ = COMPLETE_HELP
