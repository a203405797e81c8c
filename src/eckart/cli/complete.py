"""eckart complete."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli.options import Checkpoint, Engine, HeldOutEntries, ModelFile, NoHeader, Quiet, Report, Seed, Threads

COMPLETE_HELP = """
Fill in a matrix from the entries that are known, and show how good the answer is.

Reads triples (one observation a line; say which columns hold row ids, column ids and values) or a wide table with empty cells, from .csv, .tsv,
.parquet, .arrow, .npy or .npz (quote a pattern such as 'part-*.parquet' to chain files). Files of triples may be larger than memory.

The method is chosen first (unless --method says it), on unseen entries; -k alone chooses the ridge. The error is measured on entries held out of all
of that; the model is then fitted to everything.

Examples:

    eckart complete ratings.csv --rows user --columns movie --values rating --model m.safetensors --report report.html

    eckart complete ratings.csv --rows user --columns movie --values rating -k 16 --pairs wanted.csv --out predicted.parquet

    eckart complete clicks.parquet --rows user --columns page --feedback implicit -k 64 --model m.safetensors

    eckart complete u.data --rows 0 --columns 1 --values 2 --delimiter tab --no-header --out completed.parquet

    eckart complete sensors.csv --index station --out filled.csv
"""

METHODS = {
    "biases": "ALS", "als": "ALS", "bayes": "BayesianMF", "soft-impute": "SoftImpute", "svp": "SVP", "svt": "SVT", "exact": "ExactRecovery",
}  # fmt: skip
HELD_OUT = 0.1
BIASES = ("random_state", "n_threads", "verbose", "engine", "checkpoint", "max_iter")
"""Parameters of the model of biases alone."""

File = Annotated[str, typer.Argument(help="The data: triples, or a wide table with empty cells.")]
RowIds = Annotated[str | None, typer.Option(help="Column that holds the row ids, by name or position.")]
ColumnIds = Annotated[str | None, typer.Option(help="Column that holds the column ids.")]
Values = Annotated[str | None, typer.Option(help="Column that holds the values; without it each is 1.")]
WideIndex = Annotated[str | None, typer.Option(help="Column that names the rows of a wide table.")]
Rank = Annotated[
    str,
    typer.Option("--components", "-k", help="The rank: a number, or auto (several fits, chosen on unseen entries)."),
]
Method = Annotated[
    str,
    typer.Option(
        help="auto (biases, als and bayes compared on unseen entries, within a minute), als, bayes, biases, soft-impute, svp, svt or exact."
    ),
]
Feedback = Annotated[
    str,
    typer.Option(help="explicit (values are measurements) or implicit (values are strengths; absent is a weak no)."),
]
Ridge = Annotated[float | None, typer.Option(help="The ridge of als.")]
Normalise = Annotated[
    str | None,
    typer.Option(
        help="Taken out before the fit and put back after: column, row, both, bias, global (als: instead of learned biases)."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Write the completed table or the predictions here (.parquet, .arrow, .csv; wide: .npy)."),
]
Pairs = Annotated[
    str | None, typer.Option(help="Write only these cells of triples: a file with the same two columns of ids.")
]
Unknown = Annotated[str, typer.Option(help="An id in --pairs that was not in the data: raise, mean or nan.")]
Cells = Annotated[
    str | None, typer.Option(help="Which cells of triples to write: all (observed ones as they are) or unobserved.")
]
AllCells = Annotated[bool, typer.Option("--all-cells", help="Write however many cells there are.")]
CellDelimiter = Annotated[str | None, typer.Option(help="Between the cells of a text file, such as ';', '::' or tab.")]
Duplicates = Annotated[
    str | None, typer.Option(help="Several values of one cell: last, mean or sum. Without it they are an error.")
]
Steps = Annotated[int | None, typer.Option(help="Most sweeps or iterations of the method.")]


def complete(
    file: File,
    rows: RowIds = None,
    columns: ColumnIds = None,
    values: Values = None,
    index: WideIndex = None,
    components: Rank = "auto",
    method: Method = "auto",
    feedback: Feedback = "explicit",
    l2: Ridge = None,
    normalise: Normalise = None,
    out: Out = None,
    pairs: Pairs = None,
    unknown: Unknown = "raise",
    cells: Cells = None,
    all_cells: AllCells = False,
    model: ModelFile = None,
    report: Report = None,
    held_out: HeldOutEntries = None,
    delimiter: CellDelimiter = None,
    no_header: NoHeader = False,
    duplicates: Duplicates = None,
    max_iter: Steps = None,
    seed: Seed = 0,
    engine: Engine = "auto",
    threads: Threads = None,
    checkpoint: Checkpoint = None,
    quiet: Quiet = False,
) -> None:
    from eckart.cli.common import Targets, engine_option, finish, held_out_share, measured, progress_bars, say
    from eckart.cli.completed_cells import check_cells, check_output, write_cells
    from eckart.cli.triples_input import source_of
    from eckart.errors import InputError
    from eckart.report.held_out import judge

    source = source_of(rows, columns, values, index, delimiter, no_header, duplicates)
    to = Targets(out, model, report).check(file)
    check_output(source, out, pairs, unknown, cells)
    share, k = held_out_share(held_out, HELD_OUT), _rank(components)
    told = {
        "n_components": k,
        "l2": l2,
        "max_iter": max_iter,
        "checkpoint": checkpoint,
        "engine": engine_option(engine),
    }
    always = {"random_state": seed, "n_threads": threads, "verbose": progress_bars(quiet)}
    method, because = _settled(method, feedback, {"--l2": l2, "--normalise": normalise, "--max-iter": max_iter})
    build = _builder(method, feedback, normalise, told, always)
    if source.long and source.values is None and feedback == "explicit":
        raise InputError(
            "--rows and --columns came without --values, wanted the column of values, or --feedback implicit"
        )
    x = _load(source, file)
    if out is not None and source.long and pairs is None:
        check_cells(x.shape, cells, all_cells)
    say(quiet, "data", f"{file}: {_shape(x)}")
    begin = time.perf_counter()
    chooser = Chooser(build, k, method, seed, threads, x.shape, because)
    judged = measured(lambda: judge(chooser.fit, x, share, seed), held_out, "entries", quiet) if share else None
    fitted = chooser.final(x)
    seconds = time.perf_counter() - begin
    fitted.fit_.plan.update(
        source.plan() | {"rank": chooser.reason} | ({"method": chooser.because} if chooser.because else {})
    )
    if judged is not None:
        fitted.fit_.plan["held_out"] = judged.scores
    if model is not None and fitted.fit_.plan.get("ranking") == "auto":
        fitted.fit_.plan["lists"] = (
            fitted.demand().in_words()
            if fitted.demand().informative
            else "by prediction: entries are missing at random"
        )
    if not quiet:
        _summary(fitted, x, judged, chooser, seconds, _command(file, source))

    def page() -> Any:
        from eckart.report.complete import complete_report

        more = {"names": source.names, "tuning": chooser.tuned}
        return complete_report(fitted, x, held_out=judged, name=Path(file).name, **more)

    finish(fitted, to, quiet, lambda path: write_cells(fitted, x, source, path, pairs, unknown, cells), page)


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


def _settled(method: str, feedback: str, told: dict[str, Any]) -> tuple[str, str]:
    """The method, where "auto" leaves no choice, and why."""
    if method != "auto":
        return method, ""
    if feedback == "implicit":
        return "als", "als: the method for implicit feedback"
    named = [name for name, value in told.items() if value is not None]
    return ("als", f"als: {named[0]} is an option of it") if named else ("auto", "")


class Chooser:
    """Method, rank and ridge: as they were asked for, or chosen once on unseen entries and kept for the fit to everything."""

    def __init__(
        self,
        build: Callable[..., Any],
        k: int | None,
        method: str,
        seed: int,
        threads: int | None,
        shape: Any,
        because: str = "",
    ):
        self.build, self.k, self.method, self.seed, self.threads = build, k, method, seed, threads
        self.best: dict[str, Any] = {} if k is None else {"n_components": k}
        self.reason = "as asked for"
        self.because = because
        self.tuned: Any = None
        self.table: list[Any] = []
        tunable = method in ("als", "svp", "exact")
        base = build(method) if method == "als" else None
        ridge = base is not None and base.l2 is None and base.feedback == "explicit"
        self.search = method == "auto" or (tunable and (k is None or ridge))
        if k is None and method == "bayes":
            self.best = {"n_components": max(1, min(16, *shape))}
            self.reason = "more than needed does little harm: the prior of what is not needed shrinks"
        elif method == "biases":
            self.best, self.reason = {}, "biases alone: no factors"
        elif k is None and not self.search:
            self.reason = "found, not given: what the price of the nuclear norm leaves"

    def fit(self, x: Any) -> Any:
        """A model for a part of the entries; chooses what is not known yet."""
        if not self.search:
            return self.build(self.method, part=True, **self.best).fit(x)
        from eckart.errors import InputError

        self.search = False
        try:
            return self._compared(x) if self.method == "auto" else self._tuned(x)
        except InputError as error:
            if "held_out" not in str(error):
                raise
            self.method = "als" if self.method == "auto" else self.method
            self.reason = "there are too few entries to choose by"
            return self.build(self.method, part=True, **self.best).fit(x)

    def _compared(self, x: Any) -> Any:
        from eckart.complete.compare import compare

        found = compare(
            x, lambda method, **more: self.build(method, part=True, checkpoint=None, **more), self.k, seed=self.seed
        )
        self.method, self.best, self.table, self.because = found.method, found.parameters, found.table, found.reason
        if found.method == "als":
            self.tuned = found.tuning
            self.reason = "the usual one" if found.tuning is None else _chosen_words(found.tuning)
        else:
            self.reason = "more than needed does little harm" if found.method == "bayes" else "biases alone: no factors"
        return self.build(self.method, part=True, **self.best).fit(x)

    def _tuned(self, x: Any) -> Any:
        from eckart.complete.tune import tune

        small = min(x.shape)
        ranks = [self.k] if self.k is not None else [r for r in (2, 4, 8, 16, 32, 64) if r <= small] or [small]
        base = self.build(self.method, part=True, checkpoint=None)
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
        self.best, self.reason = dict(self.tuned.best), _chosen_words(self.tuned)
        return self.tuned.model

    def final(self, x: Any) -> Any:
        """The model of all entries."""
        if self.search:
            self.fit(x)
        return self.build(self.method, **self.best).fit(x)


def _chosen_words(tuned: Any) -> str:
    names = {"n_components": "rank", "l2": "ridge"}
    told = ", ".join(f"{names[name]} {value:.4g}" for name, value in tuned.best.items() if name in names)
    return f"{told} of {len(tuned.table)} candidates had the least error on unseen entries; {tuned.stopped}"


def _builder(
    method: str, feedback: str, normalise: str | None, told: dict[str, Any], always: dict[str, Any]
) -> Callable[..., Any]:
    """``build(method, part=True)`` is for a part of the entries, with a checkpoint of its own; a method given is checked at once, "auto" has several."""
    from eckart.cli.common import builder
    from eckart.complete.compare import biases_only
    from eckart.complete.normalise import KINDS
    from eckart.errors import wrong

    if feedback not in ("explicit", "implicit"):
        raise wrong("--feedback", feedback, "explicit or implicit")
    if normalise is not None and normalise not in KINDS:
        raise wrong("--normalise", normalise, ", ".join(k for k in KINDS if k))
    told = told | {"normalise": normalise, "feedback": feedback if feedback == "implicit" else None}
    if normalise is not None:
        always = always | {"biases": False}
    kept = told["checkpoint"]
    told = told | {"n_components": None}  # the rank comes with each call
    names = ("als", "bayes") if method == "auto" else (method,)
    make = {name: builder(name, METHODS, told, **always) for name in names if name != "biases"}
    make["biases"] = lambda **more: biases_only(
        **{n: v for n, v in {**told, **always, **more}.items() if n in BIASES and v is not None}
    )

    def build(method: str, part: bool = False, **more: Any) -> Any:
        apart = {} if kept is None or not part else {"checkpoint": kept.with_name(kept.name + ".held-out")}
        return make[method](**apart | more)

    return build


def _summary(model: Any, x: Any, judged: Any, chooser: Chooser, seconds: float, command: str) -> None:
    from eckart.cli.common import limit_reached, say, say_outcome
    from eckart.report.complete import rank_of, recovered

    rank = rank_of(model)
    if chooser.because:
        say(False, "method", chooser.because)
    say(False, "rank", f"{rank}: {chooser.reason}")
    say_outcome(model, seconds, limit_reached(model))
    say(False, "recovery", recovered(x, rank)[1])
    if judged is not None and not judged.useful:
        tried = {row.method for row in chooser.table if row.error is not None}
        other = next(
            (m for m in ("auto", "bayes") if m not in tried and m != chooser.method and not (tried and m == "auto")),
            None,
        )
        words = "the model predicts no better than the plain answers beside it"
        say(
            False,
            "beware",
            f"{words}; run: {command} --method {other}"
            if other
            else f"{words}: mean and biases are all there is to say",
        )


def _command(file: str, source: Any) -> str:
    """The same command without method and rank, to add others."""
    told = {name: getattr(source, name) for name in ("rows", "columns", "values", "index", "delimiter")}
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in told.items() if value is not None]
    words += ["--no-header"] if source.header is False else []
    return " ".join(["eckart complete", shlex.quote(file), *words])


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
