"""eckart explain."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from eckart.cli import options
from eckart.cli.cluster import ClusterOptions
from eckart.cli.database import DatabaseOptions
from eckart.cli.options import Arithmetic, CellOptions, TableOptions, TextOptions, option
from eckart.cli.shell import OutputTargets, Shell
from eckart.errors import invalid
from eckart.registry import methods
from eckart.trace import StopReason, preliminary

METHODS = methods("explain")
DEFAULT, CANDIDATES = 20, (5, 10, 20, 40, 80)
EMPTY = 5e-4
"""Share of the words or rows below which a topic or a component would be shown as 0.0 %."""
LONG = 3e6
"""Rows times squared columns from which the choice of a mixture is announced: 21,699 x 19 (8e6)
with gaps took more than a minute of processor time."""


@dataclass
class WordOptions:
    """Which words of a text are counted."""

    panel = None

    min_df: Annotated[
        str, option(help="Text: keep words of at least so many documents, or a share.")
    ] = "2"
    max_df: Annotated[
        str, option(help="Text: keep words of at most so many documents, or a share.")
    ] = "0.5"
    max_features: Annotated[int | None, option(help="Text: keep the most frequent words only.")] = (
        None
    )
    stop_words: Annotated[
        str,
        option(
            metavar="NAME|FILE",
            help="Text: words to leave out: english, scikit-learn (its list), none, or a "
            "file of one word a line.",
        ),
    ] = "english"
    vocabulary: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="A file of one word a line: count these only, or the names of the columns "
            "of counts.",
        ),
    ] = None
    tokenizer: Annotated[
        str | None, option(help="Text: a regular expression; every match is a word.")
    ] = None


@options.spread(ClusterOptions, DatabaseOptions)
def explain(
    file: Annotated[
        str,
        typer.Argument(help="A folder of texts, a file of texts, counts, or a table of numbers."),
    ],
    *,
    method: Annotated[
        str | None,
        option(
            help="lda, plsa, nmf or mixture.  [default: lda for text and counts, mixture for "
            "tables]"
        ),
    ] = None,
    components: Annotated[
        str | None,
        option(
            "--components",
            "-k",
            help="How many topics, components or parts, or auto (chosen by the perplexity of "
            "unseen words, by BIC).  "
            "[default: 20, fewer for few documents or words; mixture: auto]",
        ),
    ] = None,
    out: options.Out = None,
    model: options.KindOrFile = None,
    report: options.Report = None,
    texts: TextOptions,
    table: TableOptions,
    written: CellOptions,
    words: WordOptions,
    held_out: options.HeldOut = None,
    learning: Annotated[str | None, option(help="lda: gibbs, cvb0, variational or online.")] = None,
    seed_words: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="lda: a file that guides topics: words of the first topic on its first "
            "line, and so on.",
        ),
    ] = None,
    covariance: Annotated[
        str | None,
        option(
            help="mixture: full, tied, diag, spherical, unit or factor.  [default: by BIC, "
            "full for a given k]"
        ),
    ] = None,
    family: Annotated[
        str | None,
        option(
            help="mixture: bernoulli for yes and no, multinomial for counts, instead of Gaussians."
        ),
    ] = None,
    loss: Annotated[str | None, option(help="nmf: frobenius or kullback-leibler.")] = None,
    image: options.Image = None,
    top: Annotated[int, option(help="How many words of each topic are printed.")] = 8,
    max_iter: options.Steps = None,
    checkpoint: options.Checkpoint = None,
    how: Arithmetic,
    shell: Shell,
) -> None:
    """Explain data by a few latent variables: the topics of texts, the components of a mixture, the
    parts of a non-negative table.

    Text is counted first: a folder (each file is a document), a .txt file (each line), .jsonl, a
    column of a table (--text), or standard input (-). Counts are read from .npz and .mtx, numbers
    from .csv, .parquet, .arrow, .xlsx, .npy, grey values from a folder of images. Text and counts
    are explained by topics (lda), tables by a mixture, unless --method says otherwise.

    Examples:

        eckart explain reviews/ --method lda --components 20 --report report.html

        eckart explain news.txt --split-documents '</DOC>' -k 20 --model m.safetensors

        eckart explain reviews.csv --text review --index id -k 30 --out shares.parquet

        eckart explain counts.mtx --vocabulary words.txt --method plsa -k 50

        eckart explain iris.csv --method mixture -k 3 --labels species --report iris.html

        eckart explain faces.npy --method nmf -k 49 --image 19x19 --report faces.html
    """
    from eckart.cli import building
    from eckart.cli.counted_texts import chosen_words, counted, guided, is_text, words_in
    from eckart.cli.reading import Table, described, facts, local, reading_of
    from eckart.cli.suspicions import refuse_markup, refuse_triples

    method, kept = building.kind_and_file(method, model, METHODS, shell)
    to = OutputTargets(out, kept, report).check(file)
    if method is not None and method not in METHODS:
        raise invalid("--method", method, ", ".join(METHODS))
    _count(components, method or "lda", family)
    share, shape = building.held_out_share(held_out), building.parse_image(image)
    model_options = {
        "learning_method": learning,
        "seed_words": guided(seed_words),
        "family": family,
        "covariance_type": covariance,
        "beta_loss": loss,
        "max_iter": max_iter,
        "engine": how.engine_option(),
    }
    reading = reading_of(texts, table, written, shell=shell)
    listed = words_in(words.vocabulary)
    with shell.phase(f"reading {file}"):
        file = local(
            file, ".txt" if method in (None, "lda", "plsa") and reading.text is None else ".csv"
        )
        as_text = is_text(file, reading) and method != "mixture"
        if as_text:
            refuse_markup(reading, file)
            choice = {"vocabulary": listed} if listed else chosen_words(words)
            counts = counted(
                file,
                reading,
                tokenizer=words.tokenizer,
                n_threads=how.threads,
                verbose=shell.bars,
                **choice,
            )
            data = Table(counts, counts.rows if reading.labels else None)
        else:
            data = reading.table(file, shell, listed, shape)
            refuse_triples(reading, file, by_name=True)
    x, shape = data.matrix, shape or data.image
    building.check_image(shape, x.shape[1])
    # a plan fits parts of the data, which are no work to go on with
    kept_in = None if how.plan else checkpoint
    always = {
        "random_state": how.seed,
        "n_threads": how.threads,
        "verbose": shell.bars,
        "checkpoint": kept_in,
    }
    if as_text and not listed and str(words.max_df) not in ("1.0", "1"):
        shell.say(
            "words",
            f"those in more than {words.max_df} of the documents are left out; --max-df "
            "1.0 keeps them",
        )
    method = method or _suited(x)
    build, k = _builder(method, model_options, always), _count(components, method, family, x)
    _check_size(k, x, method)
    shell.say("data", described(file, x))
    shell.answer["data"] = facts(file, x)
    if how.plan:
        _plan(x, build, k, method, share, how.seed, shell)
        return
    if method == "mixture" and k == "auto" and (x.shape[0] or LONG) * x.shape[1] ** 2 > LONG:
        shell.say(
            "choosing",
            "k = 1, 2, ... by BIC, which takes a while for a table of this size: -k 5 "
            "fits one mixture, --plan tells the time",
        )
    _run(
        _ExplainWork(file, data, reading, to, shape, as_text),
        method,
        build,
        k,
        (share, held_out),
        how.seed,
        top,
        shell,
    )


def _plan(
    x: Any,
    build: Callable[..., Any],
    k: int | str,
    method: str,
    share: float,
    seed: int,
    shell: Shell,
) -> None:
    """How long it would take, the choice of the number and the measure on unseen documents
    included."""
    from eckart.cli.estimate import tell_plan
    from eckart.explain.topics.judge import select_topics
    from eckart.report.unseen import judge_topics

    def work(part: Any) -> None:
        size = k
        if k == "auto" and method != "mixture":
            size = int(
                select_topics(build(), part, CANDIDATES, random_state=seed)[0]["n_components"]
            )
        if method in ("lda", "plsa") and share:
            judge_topics(build(n_components=size).fit, part, share, seed)
        build(n_components=size).fit(part)

    tell_plan(shell, x, work)


class _ExplainWork(NamedTuple):
    """The data, where they came from and where the answer goes."""

    file: str
    data: Any
    reading: Any
    to: Any
    image: Any
    as_text: bool

    def page(self, fitted: Any, judged: Any) -> Any:
        from eckart.cli.counted_texts import texts_of
        from eckart.report.explain import explain_report

        texts = (lambda at: texts_of(self.file, self.reading, at)) if self.as_text else None
        more = {"labels": self.data.labels, "image": self.image}
        return explain_report(
            fitted,
            self.data.matrix,
            name=Path(self.file).name,
            held_out=judged,
            excerpts=texts,
            **more,
        )


def _run(
    work: _ExplainWork,
    method: str,
    build: Callable[..., Any],
    k: int | str,
    held: tuple[float, float | None],
    seed: int,
    top: int,
    shell: Shell,
) -> None:
    """Choose, judge, fit, say, write."""
    from eckart.cli.building import measured, numbered, write_codes
    from eckart.report.unseen import Unseen, judge_topics

    x, begin, judged = work.data.matrix, time.perf_counter(), None
    with _steps(build, x, k, method, held[0], seed) as steps:
        if k == "auto" and method != "mixture":
            k = _chosen(build, x, seed, shell, steps)
        build = partial(build, n_components=k)
        if method in ("lda", "plsa") and held[0]:
            part = build(**_apart(build, "held-out"))

            def unseen() -> Unseen:
                return Unseen(
                    **steps.take("held out", lambda: judge_topics(part.fit, x, held[0], seed))
                )

            judged = measured(shell, unseen, held[1], "documents")
            if (
                judged is not None
                and "fit_" in vars(part)
                and part.fit_.trace.reason is StopReason.INTERRUPTED
            ):
                steps.forget("held out")
        steps.keep()
        with shell.fitting():
            fitted = build().fit(x)
    fitted.fit_.plan.update(work.reading.plan(x))
    if judged is not None:
        fitted.fit_.plan["held_out"] = shell.answer["held_out"] = judged.plan()
    _summary(fitted, time.perf_counter() - begin, top, shell)
    soft = fitted.predict_proba if hasattr(fitted, "predict_proba") else fitted.transform
    names = numbered(_word(fitted.fit_.factors), fitted)
    labels = work.data.labels
    id_columns = None if labels is None or work.as_text else (str(work.reading.labels), labels)
    shell.finish(
        fitted,
        work.to,
        lambda path: write_codes(soft, names, x, path, work.reading.index, id_columns),
        lambda: work.page(fitted, judged),
    )
    steps.end(fitted.fit_.trace)


def _steps(
    build: Callable[..., Any], x: Any, k: int | str, method: str, share: float, seed: int
) -> AbstractContextManager[Any]:
    """What is done before the answer is fitted, kept in a file beside its checkpoint until all is
    complete."""
    from eckart.io.models.checkpoint import parameters_of, steps_in

    path = (
        _apart(build, "steps")["checkpoint"] if method in ("lda", "plsa") else None
    )  # the others go straight to their fit
    about = {"method": method, "count": k, "seed": seed, "held out": share} | parameters_of(build())
    return steps_in(path, "eckart explain", x, about)


def _apart(build: Callable[..., Any], word: str) -> dict[str, Any]:
    """A checkpoint of its own for work that comes before the fit, beside the one that was asked
    for."""
    kept = build().checkpoint
    return {"checkpoint": None if kept is None else kept.with_name(f"{kept.name}.{word}")}


def _suited(x: Any) -> str:
    from eckart.matrix import Counts

    return "lda" if isinstance(x, Counts) else "mixture"


def _count(text: str | None, method: str, family: str | None, x: Any = None) -> int | str:
    """How many: as said, or the default, which is no more than there are rows or columns to tell
    them by."""
    from eckart.cli.building import whole_or

    # something to choose by: perplexity, or the BIC of Gaussians
    rule = method != "nmf" and family is None
    most = DEFAULT if x is None else min(DEFAULT, x.shape[1], x.shape[0] or DEFAULT)
    text = text or ("auto" if method == "mixture" else str(max(most, 1)))
    return whole_or(text, *(["auto"] if rule else [])) or "auto"


def _check_size(k: int | str, x: Any, method: str) -> None:
    """Refuse more topics or components than there are rows to tell them by, before room is made for
    them."""
    if isinstance(k, int) and x.shape[0] is not None and k > x.shape[0]:
        what = "documents" if method in ("lda", "plsa") else "rows"
        raise invalid(
            "--components", k, f"at most {x.shape[0]:,}, the number of {what}", "lower it"
        )


def _chosen(build: Any, x: Any, seed: int, shell: Shell, steps: Any) -> int:
    """The number of topics that predicts unseen words best."""
    from eckart.explain.topics.judge import select_topics

    with shell.phase("choosing the number of topics"), preliminary():
        id_columns = _apart(build, "candidates")
        tried = steps.take(
            "tried", lambda: select_topics(build(), x, CANDIDATES, random_state=seed, **id_columns)
        )
    for i, row in enumerate(sorted(tried, key=lambda r: r["n_components"])):
        words = (
            f"{row['n_components']:>3} topics: perplexity {row['perplexity']:,.1f}, coherence "
            f"{row['npmi']:.3f}"
        )
        shell.say("" if i else "tried", words + (" <" if row is tried[0] else ""))
    return int(tried[0]["n_components"])


def _builder(
    method: str, model_options: dict[str, Any], always: dict[str, Any]
) -> Callable[..., Any]:
    from eckart.cli.building import builder

    other = method == "mixture" and model_options["family"] is not None
    return builder(method, METHODS, model_options, name="Mixture" if other else None, **always)


def _summary(model: Any, seconds: float, top: int, shell: Shell) -> None:
    from eckart.cli.building import limit_reached
    from eckart.factors import Components

    f = model.fit_.factors
    shell.outcome(model, seconds, limit_reached(model))
    model_options = _components(model, f, top) if isinstance(f, Components) else _topics(model, top)
    empty = [z for _, z, size, _ in model_options if size < EMPTY]
    for word, z, size, words in model_options:
        if size >= EMPTY:
            shell.say(word, f"{z:>3} {size:>6.1%}  {words}".rstrip())
    if empty:
        shell.say(
            "",
            f"{len(empty)} of {len(model_options)} {model_options[0][0]}s are next to empty: fewer would do (-k)",
        )
    shell.answer["components"] = [
        {"number": z, "share": size, "words": words} for _, z, size, words in model_options
    ]


def _topics(model: Any, top: int) -> list[tuple[str, int, float, str]]:
    from eckart.plots.topics import distributions

    p, sizes, names = distributions(model)
    word = _word(model.fit_.factors)
    best = [names[np.argsort(-row, kind="stable")[:top]] for row in p]
    return [(word, z + 1, sizes[z], " ".join(map(str, best[z]))) for z in range(len(p))]


def _word(factors: Any) -> str:
    """What one of them is called."""
    from eckart.factors import Components, Topics

    return (
        "topic"
        if isinstance(factors, Topics)
        else "component"
        if isinstance(factors, Components)
        else "part"
    )


def _components(model: Any, f: Any, top: int) -> list[tuple[str, int, float, str]]:
    from eckart.report.mixtures import column_names, described, means_of

    means = means_of(model)
    if means is None:
        return [("component", z + 1, w, "") for z, w in enumerate(f.weights)]
    return [
        ("component", *model_options)
        for model_options in described(f.weights, means, column_names(f), top)
    ]
