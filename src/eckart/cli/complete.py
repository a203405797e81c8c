"""eckart complete."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from eckart.cli import options
from eckart.cli.choosing import Chooser, steps_of
from eckart.cli.cluster import ClusterOptions
from eckart.cli.complete_options import ITEM_METHODS, FitOptions, WantedCells
from eckart.cli.database import DatabaseOptions
from eckart.cli.options import Arithmetic, CellOptions, TableOptions, TripleOptions
from eckart.cli.shell import OutputTargets, Shell
from eckart.errors import InputError, invalid
from eckart.registry import methods

METHODS = {"biases": "ALS"} | methods("complete")
BIASES = ("random_state", "n_threads", "verbose", "engine", "checkpoint", "max_iter")
"""Parameters of the model of biases alone."""


@options.spread(ClusterOptions, DatabaseOptions)
def complete(
    file: Annotated[
        str, typer.Argument(help="The data: triples, or a wide table with empty cells.")
    ],
    *,
    triples: TripleOptions,
    table: TableOptions,
    fit: FitOptions,
    out: options.Out = None,
    model: options.ModelFile = None,
    report: options.Report = None,
    wanted: WantedCells,
    titles: options.Titles = None,
    held_out: options.HeldOut = None,
    written: CellOptions,
    max_iter: options.Steps = None,
    checkpoint: options.Checkpoint = None,
    how: Arithmetic,
    shell: Shell,
) -> None:
    """Fill in a matrix from the entries that are known, and show how good the answer is.

    Reads triples (one observation a line; say which columns hold row ids, column ids and values) or
    a wide table with empty cells, from .csv, .tsv, .parquet, .arrow, .xlsx, .jsonl, .npy, .npz or
    standard input (-); quote a pattern such as 'part-*.parquet' to chain files. Files of triples
    may be larger than memory.

    The method is chosen first (unless --method says it), on unseen entries; -k alone chooses the
    ridge. The error is measured on entries held out of all of that (a tenth, a million at most); the
    model is then fitted to
    everything.

    Examples:

        eckart complete ratings.csv --rows user --columns movie --values rating --model
        m.safetensors --report report.html

        eckart complete ratings.csv --rows user --columns movie --values rating -k 16 --pairs
        wanted.csv --out predicted.parquet

        eckart complete clicks.parquet --rows user --columns page --feedback implicit -k 64 --model
        m.safetensors

        eckart complete u.data --rows 0 --columns 1 --values 2 --delimiter tab --no-header --out
        completed.parquet

        eckart complete answers.csv --rows person --columns question --values yes --loss logistic
        --out chances.csv

        eckart complete sensors.csv --index station --missing -999 --out filled.csv

        eckart complete flows.csv --rows station --columns hour --values people --method series
        --forecast 24 --out next_day.csv

        eckart complete ratings.csv --rows user --columns movie --values rating --row-features
        users.csv:user --column-features movies.csv:movie

        eckart complete patients.csv --out filled.csv
    """
    from eckart.cli.building import held_out_share, measured, whole_or
    from eckart.cli.complete_mixed import complete_mixed, why_mixed
    from eckart.cli.completed_cells import check_cells, check_output, write_cells, write_forecast
    from eckart.cli.id_files import Titles
    from eckart.cli.reading import described, facts, local, reading_of
    from eckart.cli.suspicions import note_amounts, refuse_clicks, refuse_complete, refuse_rank
    from eckart.complete.split import usual_share

    source = reading_of(triples, table, written)
    to = OutputTargets(out, model, report).check(file)
    check_output(source, out, wanted.pairs, wanted.unknown, wanted.cells)
    share, k = held_out_share(held_out), whole_or(fit.components, "auto")
    model_options = {
        "n_components": k,
        "loss": fit.loss,
        "l2": fit.l2,
        "max_iter": max_iter,
        "checkpoint": checkpoint,
        "engine": how.engine_option(),
    }
    always = {"random_state": how.seed, "n_threads": how.threads, "verbose": shell.bars}
    method, because = fit.settled(max_iter, out)
    build: Any = (
        None
        if method == "mixed"
        else _builder(method, fit.feedback, fit.normalise, model_options, always)
    )
    fit.refuse_targets(method, to)
    wanted.refuse_forecast(method, out)
    file = local(file)
    plainly = (
        fit.plain
        and held_out is None
        and wanted.pairs is None
        and wanted.cells is None
        and titles is None
    )
    if method == "mixed" and (not plainly or source.long):
        raise InputError(
            "--method mixed takes a wide table, and -k, --l2, --max-iter, --checkpoint, --out, "
            "--model and --report alone, got options of other methods"
        )
    if method != "mixed":
        refuse_clicks(source, file)
    why = why_mixed(source, file) if method == "auto" and plainly else ""
    if method == "mixed" or why:
        complete_mixed(
            source,
            file,
            to,
            {
                "n_components": k,
                "l2": fit.l2,
                "max_iter": max_iter,
                "checkpoint": checkpoint,
                **always,
            },
            shell,
            how.plan,
            why,
        )
        return
    if source.long and source.values is None and fit.feedback == "explicit":
        raise InputError(
            "--rows and --columns need --values, the column of values, or --feedback implicit"
        )
    with shell.phase(f"reading {file}"):
        x = _load(source, file, shell)
        side_information = _side_information(
            source, file, x, fit.row_features, fit.column_features, fit.time
        )
        called = None if titles is None else Titles(titles, x.column_index, source)
    if held_out is None:
        share = usual_share(x)
    refuse_complete(source, file, x)
    refuse_rank(k, x)
    note_amounts(source, x, fit.feedback, shell)
    if out is not None and source.long and wanted.pairs is None and wanted.forecast is None:
        check_cells(x.shape, wanted.cells, wanted.all_cells)
    shell.say("data", described(file, x))
    if how.plan:
        _plan(build, x, k, method, share, side_information, how, shell)
        return
    if method == "auto" and fit.feedback == "implicit":
        _tell_lists(shell, "the comparison of")
    begin = perf_counter()
    with steps_of(checkpoint, x, build, k, method, how.seed, share, side_information) as steps:
        chooser = Chooser(
            build, k, method, how.seed, how.threads, x.shape, because, side_information, steps
        )
        judged = (
            measured(shell, lambda: chooser.judge(x, share), held_out, "entries") if share else None
        )
        fitted = chooser.final(x, shell.fitting())
    # ids that only a file of attributes has are part of the model
    x = fitted.observed_ if side_information else x
    method_reason = {"method": chooser.because} if chooser.because else {}
    fitted.fit_.plan.update(source.plan(x) | {"rank": chooser.reason} | method_reason)
    shell.answer["data"] = facts(file, x)
    if judged is not None:
        fitted.fit_.plan["held_out"] = shell.answer["held_out"] = judged.scores
    if titles is not None:
        fitted.fit_.plan["titles"] = titles
    if model is not None and fitted.fit_.plan.get("ranking") == "auto":
        demand = fitted.demand()
        fitted.fit_.plan["lists"] = (
            demand.in_words()
            if demand.informative
            else "by prediction: entries are missing at random"
        )
    _summary(fitted, x, judged, chooser, perf_counter() - begin, _command(file, source), shell)

    def page() -> Any:
        from eckart.report.complete import complete_report

        more = {"names": source.names, "tuning": chooser.tuned, "titles": called}
        return complete_report(fitted, x, held_out=judged, name=Path(file).name, **more)

    def write(path: Path) -> int:
        if wanted.forecast is not None:
            return write_forecast(fitted, source, path, wanted.forecast)
        entries = fitted.observed_ if method == "series" else x
        return write_cells(
            fitted, entries, source, path, wanted.pairs, wanted.unknown, wanted.cells
        )

    shell.finish(fitted, to, write, page)
    steps.end(fitted.fit_.trace)


def _tell_lists(shell: Shell, words: str) -> None:
    """The methods for implicit feedback and the budget of their comparison, before it begins."""
    from eckart.complete.compare_lists import BUDGET, METHODS

    shell.say(
        "methods",
        f"{words} {', '.join(METHODS)} on unseen entries takes at most {BUDGET:.0f} s "
        "of processor time",
    )


def _plan(
    build: Callable[..., Any],
    x: Any,
    k: Any,
    method: str,
    share: float,
    side_information: dict[str, Any],
    how: Arithmetic,
    shell: Shell,
) -> None:
    """How long it would take, the choice of the method and the measure on unseen entries
    included."""
    from eckart.cli.estimate import tell_plan

    def unkept(method: str, part: str = "", **more: Any) -> Any:
        # a part of the data is no work to go on with
        return build(method, **more | {"checkpoint": None})

    if method == "auto" and build("als").feedback == "implicit":
        method = "als"
        _tell_lists(shell, "the time of als: the comparison with")
    draws = method in ("auto", "bayes")
    # of a cluster the traffic is counted as well
    if draws and how.engine_option() in (None, "auto", "cpu", "numpy"):
        from eckart.cli.complete_options import expected

        tell_plan(
            shell,
            x,
            unkept,
            lambda x, build: expected(x, build, k, method, share, side_information),
        )
        return

    def work(part: Any) -> None:
        chooser = Chooser(
            unkept, k, method, how.seed, how.threads, part.shape, side_information=side_information
        )
        if share:
            chooser.judge(part, share)
        chooser.final(part)

    tell_plan(shell, x, work)


def _load(source: Any, file: str, shell: Shell) -> Any:
    """The entries; a table that was probably meant as triples is refused, and the error says how to
    ask for them."""
    from eckart.cli.suspicions import refuse_triples

    if not source.long:
        refuse_triples(source, file, by_name=source.index is not None)
    return source.observed(file, shell)


def _side_information(
    source: Any, file: str, x: Any, rows: str | None, columns: str | None, time: str | None
) -> dict[str, Any]:
    """What a fit takes with the entries."""
    from eckart.cli.attribute_files import features_in, times_in

    out: dict[str, Any] = {}
    if rows is not None:
        out["row_features"] = features_in(
            rows,
            "--row-features",
            source.rows if source.long else source.index,
            x.row_index,
            source,
        )
    if columns is not None:
        out["column_features"] = features_in(
            columns, "--column-features", source.columns, x.column_index, source
        )
    if time is not None:
        out["time"] = times_in(source, file, time, x)
    return out


def _builder(
    method: str,
    feedback: str,
    normalise: str | None,
    model_options: dict[str, Any],
    always: dict[str, Any],
) -> Callable[..., Any]:
    """``build(method, "held-out")`` is for other work than the answer, with a checkpoint of its own
    beside it; a method given is checked at once, "auto" has several."""
    from eckart.cli.building import builder
    from eckart.complete.compare import biases_only
    from eckart.complete.normalise import KINDS

    if feedback not in ("explicit", "implicit"):
        raise invalid("--feedback", feedback, "explicit or implicit")
    if normalise is not None and normalise not in KINDS:
        raise invalid("--normalise", normalise, ", ".join(k for k in KINDS if k))
    model_options = model_options | {
        "normalise": normalise,
        "feedback": feedback if feedback == "implicit" else None,
    }
    if normalise is not None:
        always = always | {"biases": False}
    kept = model_options["checkpoint"]
    model_options = model_options | {"n_components": None}  # the rank comes with each call
    names = (
        (("als", *ITEM_METHODS) if feedback == "implicit" else ("als", "bayes"))
        if method == "auto"
        else (method,)
    )
    if feedback == "implicit" and method == "auto":  # some of them have no checkpoint
        always, model_options = always | {"checkpoint": kept}, model_options | {"checkpoint": None}
    make = {
        name: builder(name, METHODS, model_options, **always) for name in names if name != "biases"
    }
    make["biases"] = lambda **more: biases_only(
        **{
            n: v
            for n, v in {**model_options, **always, **more}.items()
            if n in BIASES and v is not None
        }
    )

    def build(method: str, part: str = "", members: Iterable[str] = (), **more: Any) -> Any:
        more |= (
            {"models": {name: make[name](checkpoint=None) for name in members}} if members else {}
        )
        apart = (
            {}
            if kept is None or not part
            else {"checkpoint": kept.with_name(f"{kept.name}.{part}")}
        )
        return make[method](**apart | more)

    return build


def _summary(
    model: Any, x: Any, judged: Any, chooser: Chooser, seconds: float, command: str, shell: Shell
) -> None:
    from eckart.cli.building import limit_reached
    from eckart.report.complete import rank_of, recovered

    if chooser.because:
        shell.say("method", chooser.because)
    if chooser.method in ITEM_METHODS:
        shell.say("model", f"weights between {x.n_columns:,} columns")
        shell.outcome(model, seconds, limit_reached(model))
    else:
        rank = int(model.fit_.factors.k) if chooser.method == "series" else rank_of(model)
        shell.say("rank", f"{rank}: {chooser.reason}")
        shell.outcome(model, seconds, limit_reached(model))
        if chooser.method == "series":
            shell.say("period", model.fit_.plan["period_reason"])
        else:
            shell.say("recovery", recovered(x, rank, model)[1])
        shell.answer |= {
            "components": rank,
            "rank_reason": chooser.reason,
            "method_reason": chooser.because,
        }
    if judged is not None and not judged.useful:
        tried = {row.method for row in chooser.table if row.error is not None}
        lists = judged.predicted is None
        known = ("ease", "als") if lists else ("auto", "bayes")
        others = (
            m
            for m in known
            if m not in tried and m != chooser.method and not (tried and m == "auto")
        )
        other = next(others, None)
        words = "the model predicts no better than the plain answers beside it"
        if lists:
            words, command = (
                "the lists are no better than that of the most popular columns",
                f"{command} --feedback implicit",
            )
        plain = "how popular columns are is" if lists else "mean and biases are"
        more = f"; run: {command} --method {other}" if other else f": {plain} all there is to say"
        shell.say("beware", words + more)
        shell.answer["beware"] = words + more


def _command(file: str, source: Any) -> str:
    """The same command without method and rank, to add others."""
    model_options = {
        name: getattr(source, name) for name in ("rows", "columns", "values", "index", "delimiter")
    }
    words = [
        f"--{name} {shlex.quote(str(value))}"
        for name, value in model_options.items()
        if value is not None
    ]
    words += ["--no-header"] if source.header is False else []
    words += [f"--duplicates {source.duplicates}"] if source.duplicates != "error" else []
    words += [f"--missing {shlex.quote(','.join(source.missing))}"] if source.missing else []
    return " ".join(["eckart complete", shlex.quote(file), *words])
