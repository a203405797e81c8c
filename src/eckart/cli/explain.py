"""eckart explain."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from eckart.cli import options

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
HELD_OUT, DEFAULT, CANDIDATES = 0.1, 20, (5, 10, 20, 40, 80)

File = Annotated[str, typer.Argument(help="A folder of texts, a file of texts, counts, or a table of numbers.")]
Method = Annotated[
    str | None, typer.Option(help="lda, plsa, nmf or mixture.  [default: lda for text and counts, mixture for tables]")
]
Components = Annotated[
    str | None,
    typer.Option(
        "--components",
        "-k",
        help="How many topics, components or parts, or auto (chosen by the perplexity of unseen words, by BIC).  [default: 20; mixture: auto]",
    ),
]
Labels = Annotated[
    str | None, typer.Option(help="Column of labels, set beside the components in the report; not part of the data.")
]
Out = Annotated[
    Path | None, typer.Option(help="Write shares, posteriors or weights of each row (.parquet, .arrow, .csv, .npy).")
]
MinDf = Annotated[str, typer.Option(help="Text: keep words of at least so many documents, or a share.")]
MaxDf = Annotated[str, typer.Option(help="Text: keep words of at most so many documents, or a share.")]
MaxFeatures = Annotated[int | None, typer.Option(help="Text: keep the most frequent words only.")]
StopWords = Annotated[str, typer.Option(help="Text: words to leave out: english, none, or a file of one word a line.")]
Vocabulary = Annotated[
    str | None,
    typer.Option(help="A file of one word a line: count these only, or the names of the columns of counts."),
]
Tokens = Annotated[str | None, typer.Option(help="Text: a regular expression; every match is a word.")]
Lines = Annotated[bool | None, typer.Option("--lines/--files", help="Text: each line is a document, or each file.")]
HeldOut = Annotated[
    float | None,
    typer.Option(help="Topics: share of the documents on which the perplexity is measured; 0 for none.  [default: 0.1]"),
]
Learning = Annotated[str | None, typer.Option(help="lda: gibbs, cvb0, variational or online.")]
SeedWords = Annotated[
    str | None,
    typer.Option(help="lda: a file that guides topics: words of the first topic on its first line, and so on."),
]
Covariance = Annotated[str | None, typer.Option(help="mixture: full, tied, diag, spherical, unit or factor.")]
Family = Annotated[
    str | None, typer.Option(help="mixture: bernoulli for yes and no, multinomial for counts, instead of Gaussians.")
]
Loss = Annotated[str | None, typer.Option(help="nmf: frobenius or kullback-leibler.")]
Image = Annotated[str | None, typer.Option(help="nmf: rows are images of this height and width, such as 19x19.")]
Top = Annotated[int, typer.Option(help="How many words of each topic are printed.")]
Steps = Annotated[int | None, typer.Option(help="Most iterations of the method.")]


def explain(
    file: File,
    method: Method = None,
    components: Components = None,
    text: options.Text = None,
    index: options.Index = None,
    columns: options.Columns = None,
    labels: Labels = None,
    out: Out = None,
    model: options.KindOrFile = None,
    report: options.Report = None,
    min_df: MinDf = "2",
    max_df: MaxDf = "0.5",
    max_features: MaxFeatures = None,
    stop_words: StopWords = "english",
    vocabulary: Vocabulary = None,
    tokenizer: Tokens = None,
    lines: Lines = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    no_header: options.NoHeader = False,
    no_quotes: options.NoQuotes = False,
    held_out: HeldOut = None,
    learning: Learning = None,
    seed_words: SeedWords = None,
    covariance: Covariance = None,
    family: Family = None,
    loss: Loss = None,
    image: Image = None,
    top: Top = 8,
    max_iter: Steps = None,
    seed: options.Seed = 0,
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    from eckart.cli import common
    from eckart.cli.text_inputs import described, frequency, guided, material_of, stop_words_of, words_in
    from eckart.errors import InputError, wrong

    method, kept = common.kind_and_file(method, model or [], METHODS)
    to = common.Targets(out, kept, report).check(file)
    if method is not None and method not in METHODS:
        raise wrong("--method", method, ", ".join(METHODS))
    _count(components, method or "lda", family)
    share, shape, show = common.held_out_share(held_out, HELD_OUT), common.parse_image(image), common.progress_bars(quiet)
    told = {
        "learning_method": learning, "seed_words": guided(seed_words), "family": family, "covariance_type": covariance, "beta_loss": loss,
        "max_iter": max_iter, "engine": common.engine_option(engine),
    }  # fmt: skip
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
    common.check_image(shape, x.shape[1])
    if as_text and not words and str(max_df) not in ("1.0", "1"):
        common.say(quiet, "words", f"those in more than {max_df} of the documents are left out; --max-df 1.0 keeps them")
    work = _Work(file, x, material, to, labels=x.rows if labels else None, image=shape, as_text=as_text)
    always = {"random_state": seed, "n_threads": threads, "verbose": show}
    method = method or _suited(x)
    build, k = _builder(method, told, always), _count(components, method, family)
    common.say(quiet, "data", described(file, x))
    _run(work, method, build, k, share, held_out, seed, index or "row", top, quiet)


class _Work(NamedTuple):
    """The data, where they came from and where the answer goes."""

    file: str
    x: Any
    material: Any
    to: Any
    labels: Any
    image: Any
    as_text: bool

    def page(self, fitted: Any, judged: Any) -> Any:
        from eckart.cli.text_inputs import texts_of
        from eckart.report.explain import explain_report

        texts = (lambda at: texts_of(self.material.documents(self.file), at)) if self.as_text else None
        more = {"labels": self.labels, "image": self.image}
        return explain_report(fitted, self.x, name=Path(self.file).name, held_out=judged, excerpts=texts, **more)


def _run(
    work: _Work, method: str, build: Callable[..., Any], k: int | str, share: float, asked: float | None, seed: int, label: str, top: int, quiet: bool
) -> None:
    """Choose, judge, fit, say, write."""
    from eckart.cli.common import finish, measured, write_codes
    from eckart.report.unseen import judge_topics

    x, begin, judged = work.x, time.perf_counter(), None
    if k == "auto" and method != "mixture":
        k = _chosen(build, x, seed, quiet)
    build = partial(build, n_components=k)
    if method in ("lda", "plsa") and share:
        judged = measured(lambda: judge_topics(build().fit, x, share, seed), asked, "documents", quiet)
    fitted = build().fit(x)
    fitted.fit_.plan.update(work.material.plan(x))
    if judged is not None:
        fitted.fit_.plan["held_out"] = judged.plan()
    if not quiet:
        _summary(fitted, x, time.perf_counter() - begin, top)
    soft = fitted.predict_proba if hasattr(fitted, "predict_proba") else fitted.transform
    names = [f"{type(fitted).__name__.lower()}{z}" for z in range(fitted.fit_.factors.k)]
    write = partial(write_codes, soft, names, x, label=label)
    finish(fitted, work.to, quiet, write, lambda: work.page(fitted, judged))


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


def _builder(method: str, told: dict[str, Any], always: dict[str, Any]) -> Callable[..., Any]:
    from eckart.cli.common import builder

    other = method == "mixture" and told["family"] is not None
    return builder(method, METHODS, told, name="Mixture" if other else None, **always)


def _summary(model: Any, x: Any, seconds: float, top: int) -> None:
    from eckart.cli.common import limit_reached, say, say_outcome
    from eckart.factors import Components

    f = model.fit_.factors
    say_outcome(model, seconds, limit_reached(model))
    for line in _components(model, f, top) if isinstance(f, Components) else _topics(model, x, top):
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


explain.__doc__ = EXPLAIN_HELP
