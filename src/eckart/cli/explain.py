"""eckart explain."""

from __future__ import annotations

import inspect
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

EXPLAIN_HELP = """
Explain data by a few latent variables: the topics of texts, the components of a mixture, the parts of a non-negative table.

Text is counted first: a folder (each file is a document), a .txt file (each line), .jsonl, or a column of a table (--text). Counts are read from
.npz and .mtx, numbers from .csv, .parquet, .arrow, .npy. Text and counts are explained by topics (lda), tables by a mixture, unless --method says otherwise.

Examples:

    eckart explain reviews/ --model lda --components 20 --report report.html

    eckart explain reviews/ -k 20 --model m.safetensors

    eckart explain reviews.csv --text review --index id -k 30 --out shares.parquet

    eckart explain counts.mtx --vocabulary words.txt --method plsa -k 50

    eckart explain iris.csv --method mixture -k 3 --labels species --report iris.html

    eckart explain faces.npy --method nmf -k 49 --image 19x19 --report faces.html
"""

METHODS = {"lda": "LDA", "plsa": "PLSA", "nmf": "NMF", "mixture": "GaussianMixture"}
OPTIONS = {
    "learning_method": "--learning",
    "seed_words": "--seed-words",
    "family": "--family",
    "covariance_type": "--covariance",
    "beta_loss": "--loss",
    "max_iter": "--max-iter",
}
HELD_OUT, DEFAULT, CANDIDATES = 0.1, 20, (5, 10, 20, 40, 80)


def explain(
    file: Annotated[str, typer.Argument(help="A folder of texts, a file of texts, counts, or a table of numbers.")],
    method: Annotated[
        str | None,
        typer.Option(help="lda, plsa, nmf or mixture.  [default: lda for text and counts, mixture for tables]"),
    ] = None,
    components: Annotated[
        str | None,
        typer.Option(
            "--components",
            "-k",
            help="How many topics, components or parts, or auto (chosen by the perplexity of unseen words, by BIC).  [default: 20; mixture: auto]",
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Column that holds the text, by name or position.")] = None,
    index: Annotated[str | None, typer.Option(help="Column that names the rows.")] = None,
    columns: Annotated[str | None, typer.Option(help="Use these columns only, separated by commas.")] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Column of labels, set beside the components in the report; not part of the data."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write shares, posteriors or weights of each row (.parquet, .arrow, .csv, .npy)."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="The kind of model, as --method; or the file to save it in (.safetensors). May come twice."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a self-contained HTML report here.")] = None,
    min_df: Annotated[str, typer.Option(help="Text: keep words of at least so many documents, or a share.")] = "2",
    max_df: Annotated[str, typer.Option(help="Text: keep words of at most so many documents, or a share.")] = "0.5",
    max_features: Annotated[int | None, typer.Option(help="Text: keep the most frequent words only.")] = None,
    stop_words: Annotated[
        str, typer.Option(help="Text: words to leave out: english, none, or a file of one word a line.")
    ] = "english",
    vocabulary: Annotated[
        str | None,
        typer.Option(help="A file of one word a line: count these only, or the names of the columns of counts."),
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Text: a regular expression; every match is a word.")] = None,
    lines: Annotated[
        bool | None, typer.Option("--lines/--files", help="Text: each line is a document, or each file.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Of text files.  [default: utf-8]")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between the cells of a text file, such as ';' or tab.")] = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="The first line of a text file is data.")] = False,
    no_quotes: Annotated[bool, typer.Option("--no-quotes", help="Quotation marks are part of the text.")] = False,
    held_out: Annotated[
        float | None,
        typer.Option(
            help="Topics: share of the documents on which the perplexity is measured; 0 for none.  [default: 0.1]"
        ),
    ] = None,
    learning: Annotated[str | None, typer.Option(help="lda: gibbs, cvb0, variational or online.")] = None,
    seed_words: Annotated[
        str | None,
        typer.Option(help="lda: a file that guides topics: words of the first topic on its first line, and so on."),
    ] = None,
    covariance: Annotated[
        str | None, typer.Option(help="mixture: full, tied, diag, spherical, unit or factor.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help="mixture: bernoulli for yes and no, multinomial for counts, instead of Gaussians."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="nmf: frobenius or kullback-leibler.")] = None,
    image: Annotated[
        str | None, typer.Option(help="nmf: rows are images of this height and width, such as 19x19.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many words of each topic are printed.")] = 8,
    max_iter: Annotated[int | None, typer.Option(help="Most iterations of the method.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Most threads; the result does not depend on it.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no summary.")] = False,
) -> None:
    from eckart.cli.common import check_image, check_paths, held_out_share, kind_and_file, lasting, parse_image, say
    from eckart.cli.text_inputs import described, frequency, guided, material_of, stop_words_of, texts_of, words_in
    from eckart.errors import InputError, wrong

    method, kept = kind_and_file(method, model or [], METHODS)
    check_paths(out, kept, report, file)
    if method is not None and method not in METHODS:
        raise wrong("--method", method, ", ".join(METHODS))
    _count(components, method or "lda", family)
    share = held_out_share(held_out, HELD_OUT)
    shape = parse_image(image)
    show = not quiet and sys.stderr.isatty()
    material = material_of(text, labels or index, columns, lines, encoding, delimiter, no_header, no_quotes)
    if labels is not None and index is not None and labels != index:
        raise InputError(f"--index {index} and --labels {labels} came, wanted one of them: both name the rows")
    words = words_in(vocabulary)
    as_text = material.is_text(file) and method != "mixture"
    if as_text:
        choice: dict[str, Any] = {"vocabulary": words} if words else {
            "min_df": frequency("--min-df", min_df),
            "max_df": frequency("--max-df", max_df),
            "max_features": max_features,
            "stop_words": stop_words_of(stop_words),
        }  # fmt: skip
        x: Any = material.count(file, tokenizer=tokenizer, n_threads=threads, verbose=show, **choice)
    else:
        x = _table(material, file, words)
    method = method or _suited(x)
    check_image(shape, x.shape[1])
    told = {
        "learning_method": learning,
        "seed_words": guided(seed_words),
        "family": family,
        "covariance_type": covariance,
        "beta_loss": loss,
        "max_iter": max_iter,
    }
    build = _builder(method, told, seed, threads, show)
    k = _count(components, method, family)
    say(quiet, "data", described(file, x))
    begin = time.perf_counter()
    if k == "auto" and method != "mixture":
        k = _chosen(build, x, seed, quiet)
    build = partial(build, n_components=k)
    judged = _judged(build, x, share, held_out, seed, quiet) if method in ("lda", "plsa") and share else None
    fitted = build().fit(x)
    fitted.fit_.plan.update(material.plan(x))
    if judged is not None:
        fitted.fit_.plan["held_out"] = judged.plan()
    if not quiet:
        _summary(fitted, x, lasting(time.perf_counter() - begin), top)
    if out is not None:
        say(quiet, "out", f"{out} ({_write(fitted, x, out, index or 'row'):,} rows)")
    if kept is not None:
        fitted.save(kept)
        say(quiet, "model", f"{kept}")
    if report is not None:
        from eckart.report.explain import explain_report

        texts = (lambda at: texts_of(material.documents(file), at)) if as_text else None
        page = explain_report(
            fitted,
            x,
            name=Path(file).name,
            held_out=judged,
            excerpts=texts,
            labels=x.rows if labels else None,
            image=shape,
        )
        page.write(report)
        say(quiet, "report", f"{report}")


def _table(material: Any, file: str, words: list[str] | None) -> Any:
    """Counts or numbers; a table with text in it was probably meant as text, and the error says how to ask for it."""
    from eckart.errors import InputError

    try:
        return material.table(file, words)
    except InputError as error:
        if "column" not in str(error) or "--" in str(error):
            raise
        raise InputError(
            f"{error}; say --text if a column of {file} holds text, --index or --labels for the one that names the rows"
        ) from None


def _suited(x: Any) -> str:
    from eckart.matrix import Counts

    return "lda" if isinstance(x, Counts) else "mixture"


def _count(text: str | None, method: str, family: str | None) -> int | str:
    from eckart.errors import wrong

    if text is None:
        text = "auto" if method == "mixture" else str(DEFAULT)
    rule = method != "nmf" and family is None  # something to choose by: perplexity, or the BIC of Gaussians
    if text == "auto" and rule:
        return text
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise wrong("--components", text, "a whole number of 1 or more" + (", or auto" if rule else ""))
    return int(text)


def _chosen(build: Any, x: Any, seed: int, quiet: bool) -> int:
    """The number of topics that predicts unseen words best."""
    from eckart.cli.common import say
    from eckart.explain.topics.judge import select_topics

    tried = select_topics(build(), x, CANDIDATES, random_state=seed)
    for i, row in enumerate(sorted(tried, key=lambda r: r["n_components"])):
        words = f"{row['n_components']:>3} topics: perplexity {row['perplexity']:,.1f}, coherence {row['npmi']:.3f}"
        say(quiet, "" if i else "tried", words + (" <" if row is tried[0] else ""))
    return int(tried[0]["n_components"])


def _builder(method: str, told: dict[str, Any], seed: int, threads: int | None, verbose: bool) -> Any:
    """What makes the unfitted model; options that the method does not have are refused now."""
    from eckart.cli.common import options_of
    from eckart.io.models.save import CLASSES

    name = "Mixture" if method == "mixture" and told["family"] is not None else METHODS[method]
    kind = getattr(import_module(CLASSES[name]), name)
    base = options_of(kind, told, OPTIONS, method)
    always = {"random_state": seed, "n_threads": threads, "verbose": verbose}
    known = inspect.signature(kind).parameters
    return partial(kind, **base, **{n: v for n, v in always.items() if v is not None and n in known})


def _judged(build: Any, x: Any, share: float, asked: float | None, seed: int, quiet: bool) -> Any:
    """Perplexity of a fit of its own on documents that it has not seen; None where there are too few."""
    from eckart.cli.common import say
    from eckart.errors import InputError
    from eckart.report.unseen import judge_topics

    try:
        judged = judge_topics(build().fit, x, share, seed)
    except InputError as error:
        if asked is not None or "held_out" not in str(error):
            raise
        say(quiet, "held out", "nothing: there are too few documents to spare any")
        return None
    for i, line in enumerate(judged.lines()):
        say(quiet, "" if i else "held out", line)
    return judged


def _summary(model: Any, x: Any, seconds: str, top: int) -> None:
    from eckart.cli.common import say
    from eckart.factors import Mixture
    from eckart.trace import StopReason

    f, c, trace = model.fit_.factors, model.certificate_, model.fit_.trace
    say(False, "fitted", f"{type(model).__name__} in {seconds}, {len(trace)} steps; stopped: {trace.reason.value}")
    say(False, "evidence", f"certificate {'holds' if c.holds else 'DOES NOT HOLD: ' + c.reason} ({c.kind})")
    if not c.holds and trace.reason is StopReason.MAX_ITER and hasattr(model, "max_iter"):
        say(False, "", f"the iteration limit was reached first: raise --max-iter above {model.max_iter}")
    for note in c.notes:
        say(False, "", note)
    for line in _components(model, f, top) if isinstance(f, Mixture) else _topics(model, x, top):
        say(False, *line)


def _topics(model: Any, x: Any, top: int) -> list[tuple[str, str]]:
    import numpy as np

    from eckart.factors import Topics
    from eckart.plots.topics import distributions

    p, sizes, names = distributions(model)
    word = "topic" if isinstance(model.fit_.factors, Topics) else "part"
    best = [names[np.argsort(-row, kind="stable")[:top]] for row in p]
    return [(word, f"{z + 1:>3} {sizes[z]:>6.1%}  {' '.join(map(str, best[z]))}") for z in range(len(p))]


def _components(model: Any, f: Any, top: int) -> list[tuple[str, str]]:
    from eckart.report.mixtures import column_names, described, means_of

    means = means_of(model)
    if means is None:
        return [("component", f"{z + 1:>3} {w:>6.1%}") for z, w in enumerate(f.weights)]
    told = described(f.weights, means, column_names(f), top)
    return [("component", f"{z:>3} {weight:>6.1%}  {words}") for z, weight, words in told]


def _write(model: Any, x: Any, out: Path, label: str) -> int:
    """Shares of topics, posteriors or weights of parts, one row for each row of the data."""
    from eckart.io.tables.write import write_table
    from eckart.matrix import row_parts

    soft = model.predict_proba if hasattr(model, "predict_proba") else model.transform
    names = [f"{type(model).__name__.lower()}{z}" for z in range(model.fit_.factors.k)]
    blocks = ((soft(part), part.rows) for part in row_parts(x))
    return write_table(out, names, blocks, label)


explain.__doc__ = EXPLAIN_HELP
