"""eckart embed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli.options import Delimiter, Encoding, Engine, KindOrFile, NoQuotes, Quiet, Report, Seed, Text

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

File = Annotated[str, typer.Argument(help="A folder of texts, a file of texts, or a table with a column of text.")]
Method = Annotated[str | None, typer.Option(help="skipgram, pmi or glove.  [default: skipgram]")]
Components = Annotated[int, typer.Option("--components", "-k", help="Numbers in a vector.")]
Out = Annotated[Path | None, typer.Option(help="Write the vectors here (.txt, .vec, .bin, .safetensors; .gz).")]
Format = Annotated[str | None, typer.Option(help="Of --out: text, glove, binary or safetensors, whatever it ends in.")]
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
Lines = Annotated[bool | None, typer.Option("--lines/--files", help="Each line is a sentence, or each file.")]
Tokens = Annotated[str | None, typer.Option(help="A regular expression; every match is a word.")]
Case = Annotated[bool, typer.Option("--keep-case", help="Words with capitals are words of their own.")]
Undecodable = Annotated[
    str | None, typer.Option(help="Bytes that are no text: error, or replace (and count).  [default: error]")
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="The first line of a table is data.")]
Cache = Annotated[
    Path | None, typer.Option(help="A folder, or how file names begin, to keep the numbered text for the next time.")
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="A file that keeps the training; the same command goes on from it.")
]
Top = Annotated[int, typer.Option(help="How many neighbours of some words are printed.")]
Threads = Annotated[int | None, typer.Option(help="Most threads; see --deterministic.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="skipgram: the same bits for any number of threads; slower.")
]


def embed(
    file: File,
    method: Method = None,
    components: Components = 100,
    out: Out = None,
    model: KindOrFile = None,
    report: Report = None,
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
    engine: Engine = "auto",
    threads: Threads = None,
    deterministic: Deterministic = False,
    quiet: Quiet = False,
) -> None:
    from eckart.cli.common import Targets, builder, engine_option, kind_and_file, progress_bars
    from eckart.cli.text_inputs import material_of
    from eckart.errors import wrong
    from eckart.io.vectors.write import vectors_target

    method, kept = kind_and_file(method, model or [], METHODS)
    method = method or "skipgram"
    told = {
        "n_components": components, "window": window, "min_count": min_count, "max_words": max_words, "max_iter": max_iter, "negatives": negatives,
        "sample": sample, "learning_rate": learning_rate, "loss": loss, "solver": solver, "kind": kind, "shift": shift, "add_context": add_context,
        "tokenizer": tokenizer, "lowercase": False if keep_case else None, "checkpoint": checkpoint, "engine": engine_option(engine),
    }  # fmt: skip
    always: dict[str, Any] = {"random_state": seed, "n_threads": threads, "verbose": progress_bars(quiet)}
    make = builder(method, METHODS, told, **always, deterministic=deterministic or None)  # the others are so anyway
    material = material_of(text, None, None, lines, encoding, delimiter, no_header, no_quotes, undecodable=undecodable)
    unfitted, to = make(), Targets(out, kept, report).check(file, lambda path: vectors_target(path, format))
    if top < 1:
        raise wrong("--top", top, "a number of 1 or more")
    _run(file, unfitted, material, cache, to, format, top, quiet)


def _run(
    file: str, model: Any, material: Any, cache: Path | None, to: Any, format: str | None, top: int, quiet: bool
) -> None:
    """Read, fit, say, write."""
    from eckart.cli.common import finish, say
    from eckart.cli.text_inputs import sentences_for
    from eckart.io.vectors.write import check_names, vectors_target

    model._check()
    s = sentences_for(model, file, material, cache=cache)
    if to.out is not None:
        check_names(s.words, vectors_target(to.out, format)[1])
    say(quiet, "data", described(file, s))
    begin = time.perf_counter()
    fitted = model.fit(s)
    fitted.fit_.plan.update(material.plan(s))
    if not quiet:
        _summary(fitted, time.perf_counter() - begin, top)

    def write(path: Path) -> int:
        fitted.vectors_.write(path, format)
        return len(s.words)

    def page() -> Any:
        from eckart.report.embed import embed_report

        return embed_report(fitted, s, name=Path(file).name)

    finish(fitted, to, quiet, write, page, of="words")


def described(file: str, s: Any) -> str:
    """The text in a line."""
    words = f"{len(s.words):,} words in the vocabulary, {s.n_tokens:,} of {s.words_read:,} words of text kept"
    odd = f", {s.replaced:,} characters for bytes that were no text" if s.replaced else ""
    return f"{file}: {len(s):,} sentences, {words}{odd}"


def _summary(model: Any, seconds: float, top: int) -> None:
    from eckart.cli.common import say, say_outcome
    from eckart.report.embed import telling

    v, steps = model.vectors_, len(model.fit_.trace)
    say_outcome(model, seconds, f"the passes ended first: raise --epochs above {steps}")
    if len(v) > 1:
        for word in telling(v, 8):
            say(False, "near", f"{word}: {' '.join(str(near) for near, _ in v.neighbours(word, top))}")


embed.__doc__ = EMBED_HELP
