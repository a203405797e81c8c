"""eckart embed."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

EMBED_HELP = """
Learn a vector for each word (or item) of a text, from the words that stand beside it.

Text is a folder (each file is a sentence, each line with --lines), a .txt file (each line), .jsonl, or a column of a table (--text). The vectors are
written for word2vec, GloVe or gensim, by the ending of --out: .txt and .vec are text, .bin is binary, .safetensors is exact; .gz after it compresses.

Examples:

    eckart embed wiki.txt --model skipgram --components 100 --out vectors.txt --report report.html

    eckart embed reviews/ --model pmi -k 300 --window 5 --out vectors.bin

    eckart embed reviews.csv --text review --model glove --model m.safetensors

    eckart embed baskets.txt --tokenizer '[^,]+' --min-count 2 --out items.safetensors
"""

METHODS = {"skipgram": "SkipGram", "pmi": "PMI", "glove": "GloVe"}
FLAGS = {"n_components": "--components"}

File = Annotated[str, typer.Argument(help="A folder of texts, a file of texts, or a table with a column of text.")]
Method = Annotated[str | None, typer.Option(help="skipgram, pmi or glove.  [default: skipgram]")]
Model = Annotated[
    list[str] | None,
    typer.Option(help="The kind of model, as --method; or the file to save it in (.safetensors). May come twice."),
]
Components = Annotated[int, typer.Option("--components", "-k", help="Numbers in a vector.")]
Out = Annotated[Path | None, typer.Option(help="Write the vectors here (.txt, .vec, .bin, .safetensors; .gz).")]
Format = Annotated[str | None, typer.Option(help="Of --out: text, glove, binary or safetensors, whatever it ends in.")]
Page = Annotated[Path | None, typer.Option("--report", help="Write a self-contained HTML report here.")]
Window = Annotated[int | None, typer.Option(help="Words to look at on each side.  [default: 5; pmi, glove: 10]")]
MinCount = Annotated[int | None, typer.Option(help="Leave out words that occur less often.  [default: 5]")]
MaxWords = Annotated[int | None, typer.Option(help="Keep the most frequent words only.")]
Passes = Annotated[
    int | None, typer.Option("--max-iter", "--epochs", help="skipgram, glove: most passes over the text or the counts.")
]
Negatives = Annotated[int | None, typer.Option(help="skipgram: noise words for each pair.  [default: 5]")]
Sample = Annotated[float | None, typer.Option(help="skipgram: thin out words more frequent than this share; 0: none.")]
Rate = Annotated[float | None, typer.Option(help="skipgram, glove: the first learning rate.")]
Loss = Annotated[str | None, typer.Option(help="skipgram: negative or softmax.  [default: negative]")]
Solver = Annotated[str | None, typer.Option(help="skipgram: stochastic or exact; glove: adagrad or als.")]
Kind = Annotated[str | None, typer.Option(help="pmi: positive, or pmi for all pairs that were seen.")]
Shift = Annotated[float | None, typer.Option(help="pmi: r of PMI - log r.  [default: 1]")]
AddContext = Annotated[
    bool | None,
    typer.Option(
        "--add-context/--no-context", help="Add the vectors of words as the ones beside others.  [default: glove only]"
    ),
]
Text = Annotated[str | None, typer.Option(help="Column that holds the text, by name or position.")]
Lines = Annotated[bool | None, typer.Option("--lines/--files", help="Each line is a sentence, or each file.")]
Tokens = Annotated[str | None, typer.Option(help="A regular expression; every match is a word.")]
Case = Annotated[bool, typer.Option("--keep-case", help="Words with capitals are words of their own.")]
Encoding = Annotated[str | None, typer.Option(help="Of text files.  [default: utf-8]")]
Undecodable = Annotated[
    str | None, typer.Option(help="Bytes that are no text: error, or replace (and count).  [default: error]")
]
Delimiter = Annotated[str | None, typer.Option(help="Between the cells of a text file, such as ';' or tab.")]
NoHeader = Annotated[bool, typer.Option("--no-header", help="The first line of a table is data.")]
NoQuotes = Annotated[bool, typer.Option("--no-quotes", help="Quotation marks are part of the text.")]
Cache = Annotated[
    Path | None, typer.Option(help="A folder, or how file names begin, to keep the numbered text for the next time.")
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="A file that keeps the training; the same command goes on from it.")
]
Top = Annotated[int, typer.Option(help="How many neighbours of some words are printed.")]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Threads = Annotated[int | None, typer.Option(help="Most threads; see --deterministic.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="skipgram: the same bits for any number of threads; slower.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no summary.")]


def embed(
    file: File,
    method: Method = None,
    components: Components = 100,
    out: Out = None,
    model: Model = None,
    report: Page = None,
    window: Window = None,
    min_count: MinCount = None,
    max_words: MaxWords = None,
    max_iter: Passes = None,
    negatives: Negatives = None,
    sample: Sample = None,
    learning_rate: Rate = None,
    loss: Loss = None,
    solver: Solver = None,
    kind: Kind = None,
    shift: Shift = None,
    add_context: AddContext = None,
    text: Text = None,
    lines: Lines = None,
    tokenizer: Tokens = None,
    keep_case: Case = False,
    encoding: Encoding = None,
    undecodable: Undecodable = None,
    delimiter: Delimiter = None,
    no_header: NoHeader = False,
    no_quotes: NoQuotes = False,
    cache: Cache = None,
    checkpoint: Checkpoint = None,
    format: Format = None,
    top: Top = 6,
    seed: Seed = 0,
    threads: Threads = None,
    deterministic: Deterministic = False,
    quiet: Quiet = False,
) -> None:
    from eckart.cli.common import kind_and_file
    from eckart.cli.text_inputs import material_of

    method, kept = kind_and_file(method, model or [], METHODS)
    told = {
        "n_components": components, "window": window, "min_count": min_count, "max_words": max_words, "max_iter": max_iter, "negatives": negatives,
        "sample": sample, "learning_rate": learning_rate, "loss": loss, "solver": solver, "kind": kind, "shift": shift, "add_context": add_context,
        "tokenizer": tokenizer, "lowercase": False if keep_case else None, "checkpoint": checkpoint, "deterministic": deterministic or None,
        "random_state": seed, "n_threads": threads, "verbose": not quiet and sys.stderr.isatty(),
    }  # fmt: skip
    material = material_of(text, None, None, lines, encoding, delimiter, no_header, no_quotes, undecodable=undecodable)
    _run(file, _unfitted(method or "skipgram", told), material, cache, Targets(out, format, kept, report), top, quiet)


class Targets(NamedTuple):
    """Files to write. Each takes its place only when it is complete."""

    out: Path | None
    format: str | None
    model: Path | None
    report: Path | None

    def check(self, file: str, words: Any = None) -> None:
        """Refuse what could not be written, before the work; with ``words``, also words that the format cannot hold."""
        from eckart.cli.common import check_paths
        from eckart.io.vectors.write import check_names, vectors_target

        if words is None:
            check_paths(self.out, self.model, self.report, file, lambda path: vectors_target(path, self.format))
        elif self.out is not None:
            check_names(words, vectors_target(self.out, self.format)[1])

    def write(self, fitted: Any, s: Any, file: str, quiet: bool) -> None:
        from eckart.cli.common import say

        if self.out is not None:
            fitted.vectors_.write(self.out, self.format)
            say(quiet, "out", f"{self.out} ({len(s.words):,} words)")
        if self.model is not None:
            fitted.save(self.model)
            say(quiet, "model", f"{self.model}")
        if self.report is not None:
            from eckart.report.embed import embed_report

            embed_report(fitted, s, name=Path(file).name).write(self.report)
            say(quiet, "report", f"{self.report}")


def _unfitted(method: str, told: dict[str, Any]) -> Any:
    """The model that was asked for."""
    from eckart.cli.common import options_of
    from eckart.errors import wrong
    from eckart.io.models.save import CLASSES

    if method not in METHODS:
        raise wrong("--method", method, ", ".join(METHODS))
    kind = getattr(import_module(CLASSES[METHODS[method]]), METHODS[method])
    if method != "skipgram":
        told = told | {"deterministic": None}  # the others are so anyway
    return kind(**options_of(kind, told, FLAGS, method))


def _run(file: str, model: Any, material: Any, cache: Path | None, to: Targets, top: int, quiet: bool) -> None:
    """Read, fit, say, write."""
    from eckart.cli.common import lasting, say
    from eckart.cli.text_inputs import sentences_for
    from eckart.errors import wrong

    to.check(file)
    if top < 1:
        raise wrong("--top", top, "a number of 1 or more")
    model._check()
    s = sentences_for(model, file, material, cache=cache)
    to.check(file, s.words)
    say(quiet, "data", described(file, s))
    begin = time.perf_counter()
    fitted = model.fit(s)
    fitted.fit_.plan.update(material.plan(s))
    if not quiet:
        _summary(fitted, lasting(time.perf_counter() - begin), top)
    to.write(fitted, s, file, quiet)


def described(file: str, s: Any) -> str:
    """The text in a line."""
    words = f"{len(s.words):,} words in the vocabulary, {s.n_tokens:,} of {s.words_read:,} words of text kept"
    odd = f", {s.replaced:,} characters for bytes that were no text" if s.replaced else ""
    return f"{file}: {len(s):,} sentences, {words}{odd}"


def _summary(model: Any, seconds: str, top: int) -> None:
    from eckart.cli.common import say
    from eckart.report.embed import telling
    from eckart.trace import StopReason

    c, trace, v = model.certificate_, model.fit_.trace, model.vectors_
    say(False, "fitted", f"{type(model).__name__} in {seconds}, {len(trace)} steps; stopped: {trace.reason.value}")
    say(False, "evidence", f"certificate {'holds' if c.holds else 'DOES NOT HOLD: ' + c.reason} ({c.kind})")
    if not c.holds and trace.reason is StopReason.MAX_ITER:
        say(False, "", f"the passes ended first: raise --epochs above {len(trace)}")
    for note in c.notes:
        say(False, "", note)
    if len(v) > 1:
        for word in telling(v, 8):
            say(False, "near", f"{word}: {' '.join(str(near) for near, _ in v.neighbours(word, top))}")


embed.__doc__ = EMBED_HELP
