"""eckart complete."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli import options
from eckart.cli.options import Arithmetic, CellOptions, TableOptions, TripleOptions, option
from eckart.cli.shell import Shell, Targets

COMPLETE_HELP = """
Fill in a matrix from the entries that are known, and show how good the answer is.

Reads triples (one observation a line; say which columns hold row ids, column ids and values) or a wide table with empty cells, from .csv, .tsv,
.parquet, .arrow, .xlsx, .jsonl, .npy, .npz or standard input (-); quote a pattern such as 'part-*.parquet' to chain files. Files of triples may be
larger than memory.

The error is measured first, on entries held out of a fit of their own; the model is then fitted to everything.

Examples:

    eckart complete ratings.csv --rows user --columns movie --values rating --model m.safetensors --report report.html

    eckart complete ratings.csv --rows user --columns movie --values rating -k 16 --pairs wanted.csv --out predicted.parquet

    eckart complete clicks.parquet --rows user --columns page --feedback implicit -k 64 --model m.safetensors

    eckart complete u.data --rows 0 --columns 1 --values 2 --delimiter tab --no-header --out completed.parquet

    eckart complete sensors.csv --index station --missing -999 --out filled.csv
"""

METHODS = {
    "als": "ALS", "bayes": "BayesianMF", "soft-impute": "SoftImpute", "svp": "SVP", "svt": "SVT", "exact": "ExactRecovery",
    "ease": "EASE", "slim": "SLIM", "gf-cf": "SpectralFilter",
}  # fmt: skip
ITEM_METHODS = ("ease", "slim", "gf-cf")
"""Methods whose models hold weights between columns: they rank, they do not predict values."""


@options.spread
def complete(
    file: Annotated[str, typer.Argument(help="The data: triples, or a wide table with empty cells.")],
    *,
    triples: TripleOptions,
    table: TableOptions,
    method: Annotated[str, option(help="als, bayes, soft-impute, svp, svt or exact; ease, slim or gf-cf with --feedback implicit.")] = "als",
    components: Annotated[
        str,
        option("--components", "-k", help="The rank: a number, or auto (several fits, chosen on unseen entries)."),
    ] = "auto",
    feedback: Annotated[
        str, option(help="explicit (values are measurements) or implicit (values are strengths; absent is a weak no).")
    ] = "explicit",
    l2: Annotated[float | None, option(help="The ridge of als.")] = None,
    normalise: Annotated[
        str | None,
        option(
            help="Taken out before the fit and put back after: column, row, both, bias, global (als: instead of learned biases)."
        ),
    ] = None,
    out: options.Out = None,
    model: options.ModelFile = None,
    report: options.Report = None,
    pairs: Annotated[
        str | None,
        option(metavar="FILE", help="Write only these cells of triples: a file with the same two columns of ids."),
    ] = None,
    unknown: Annotated[str, option(help="An id in --pairs that was not in the data: raise, mean or nan.")] = "raise",
    cells: Annotated[
        str | None, option(help="Which cells of triples to write: all (observed ones as they are) or unobserved.")
    ] = None,
    all_cells: Annotated[bool, option("--all-cells", help="Write however many cells there are.")] = False,
    titles: options.Titles = None,
    held_out: options.HeldOut = None,
    written: CellOptions,
    max_iter: options.Steps = None,
    checkpoint: options.Checkpoint = None,
    how: Arithmetic,
    shell: Shell,
) -> None:
    from eckart.cli.building import held_out_share, measured, whole_or
    from eckart.cli.completed_cells import check_cells, check_output, write_cells
    from eckart.cli.reading import described, facts, local, reading_of
    from eckart.cli.suspicions import refuse_complete, refuse_rank
    from eckart.errors import InputError
    from eckart.report.held_out import judge

    source = reading_of(triples, table, written)
    to = Targets(out, model, report).check(file)
    check_output(source, out, pairs, unknown, cells)
    share, k = held_out_share(held_out), whole_or(components, "auto")
    told = {"n_components": k, "l2": l2, "max_iter": max_iter, "checkpoint": checkpoint, "engine": how.engine_option()}
    always = {"random_state": how.seed, "n_threads": how.threads, "verbose": shell.bars}
    build = _builder(method, feedback, normalise, told, always)
    if method in ITEM_METHODS and (feedback != "implicit" or report is not None or out is not None):
        raise InputError(
            f"--method {method} came with --report, --out or --feedback {feedback}, wanted --feedback implicit and --model: it ranks columns and predicts no "
            "values; eckart recommend writes its lists"
        )
    if source.long and source.values is None and feedback == "explicit":
        raise InputError(
            "--rows and --columns came without --values, wanted the column of values, or --feedback implicit"
        )
    with shell.phase(f"reading {file}"):
        file = local(file)
        x = _load(source, file, shell)
    refuse_complete(source, file, x)
    refuse_rank(k, x)
    if out is not None and source.long and pairs is None:
        check_cells(x.shape, cells, all_cells)
    shell.say("data", described(file, x))
    if how.plan:
        from eckart.cli.estimate import tell_plan

        def work(part: Any) -> None:
            chooser = Chooser(build, k, method, how.seed, how.threads, part.shape)
            if share:
                judge(chooser.fit, part, share, how.seed)
            chooser.final(part)

        tell_plan(shell, x, work)
        return
    begin = time.perf_counter()
    chooser = Chooser(build, k, method, how.seed, how.threads, x.shape)
    judged = measured(shell, lambda: judge(chooser.fit, x, share, how.seed), held_out, "entries") if share else None
    fitted = chooser.final(x)
    fitted.fit_.plan.update(source.plan(x) | {"rank": chooser.reason})
    shell.answer["data"] = facts(file, x)
    if judged is not None:
        fitted.fit_.plan["held_out"] = shell.answer["held_out"] = judged.scores
    if titles is not None:
        from eckart.cli.asked_ids import Titles

        Titles(titles, fitted.column_ids)  # refused now where it cannot be read
        fitted.fit_.plan["titles"] = titles
    _summary(fitted, x, judged, chooser.reason, time.perf_counter() - begin, shell, method)

    def page() -> Any:
        from eckart.report.complete import complete_report

        more = {"names": source.names, "tuning": chooser.tuned}
        return complete_report(fitted, x, held_out=judged, name=Path(file).name, **more)

    shell.finish(fitted, to, lambda path: write_cells(fitted, x, source, path, pairs, unknown, cells), page)


def _load(source: Any, file: str, shell: Shell) -> Any:
    """The entries; a table that was probably meant as triples is refused, and the error says how to ask for them."""
    from eckart.cli.suspicions import refuse_triples

    if not source.long:
        refuse_triples(source, file, by_name=source.index is not None)
    return source.observed(file, shell)


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
        base = self.build(part=True)
        kept = getattr(base, "checkpoint", None)
        given = {"l2": base.l2} if getattr(base, "l2", None) is not None else {}
        self.tuned = tune(
            x,
            n_components=ranks,
            model=base,
            random_state=self.seed,
            n_threads=self.threads,
            verbose=base.verbose,
            checkpoint=kept,
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
    method: str, feedback: str, normalise: str | None, told: dict[str, Any], always: dict[str, Any]
) -> Callable[..., Any]:
    """``build(part=True)`` is for a part of the entries, with a checkpoint of its own."""
    from eckart.cli.building import builder
    from eckart.complete.normalise import KINDS
    from eckart.errors import wrong

    if feedback not in ("explicit", "implicit"):
        raise wrong("--feedback", feedback, "explicit or implicit")
    if normalise is not None and normalise not in KINDS:
        raise wrong("--normalise", normalise, ", ".join(k for k in KINDS if k))
    told = told | {"normalise": normalise, "feedback": feedback if feedback == "implicit" else None}
    if normalise is not None:
        always = always | {"biases": False}
    make, kept = builder(method, METHODS, told, **always), told["checkpoint"]

    def build(part: bool = False, **more: Any) -> Any:
        apart = {} if kept is None or not part else {"checkpoint": kept.with_name(kept.name + ".held-out")}
        return make(**apart | more)

    return build


def _summary(model: Any, x: Any, judged: Any, reason: str, seconds: float, shell: Shell, method: str) -> None:
    from eckart.cli.building import limit_reached
    from eckart.report.complete import rank_of, recovered

    if method in ITEM_METHODS:
        shell.say("model", f"weights between {x.n_columns:,} columns")
        shell.outcome(model, seconds, limit_reached(model))
    else:
        rank = rank_of(model)
        shell.say("rank", f"{rank}: {reason}")
        shell.outcome(model, seconds, limit_reached(model))
        shell.say("recovery", recovered(x, rank)[1])
        shell.answer |= {"components": rank, "rank_reason": reason}
    if judged is not None and not judged.useful:
        words = "the model predicts no better than the plain answers beside it: try another rank, ridge or method"
        shell.say("beware", words)
        shell.answer["beware"] = words


complete.__doc__ = COMPLETE_HELP
