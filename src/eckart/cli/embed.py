"""eckart embed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli import options
from eckart.cli.cluster import ClusterOptions
from eckart.cli.options import Arithmetic, CellOptions, TextOptions, option
from eckart.cli.shell import OutputTargets, Shell
from eckart.errors import invalid
from eckart.registry import methods

LARGE = 1_000_000
"""Words of text from which skip-gram is the usual method: passes over fewer leave the vectors of
rare words near their start. PMI uses every pair."""
METHODS = methods("embed")
WORDS = (
    "min_count",
    "max_words",
    "tokenizer",
    "lowercase",
    "numbers",
    "min_length",
    "n_threads",
    "verbose",
)
"""Parameters of an embedding that choose its words."""


@dataclass
class LearningOptions:
    """Parameters of the models, by their own names; None where the model is to choose."""

    panel = None

    window: Annotated[
        int | None,
        option(
            help="Words to look at on each side.  [default: 5; pmi, glove: 10; of sets of "
            "items the whole list]"
        ),
    ] = None
    min_count: Annotated[
        int | None, option(help="Leave out words that occur less often.  [default: 5]")
    ] = None
    max_words: Annotated[int | None, option(help="Keep the most frequent words only.")] = None
    max_iter: options.Steps = None
    negatives: Annotated[
        int | None, option(help="skipgram: noise words for each pair.  [default: 5]")
    ] = None
    sample: Annotated[
        float | None,
        option(
            help="skipgram: thin out words more frequent than this share; 0: none.  "
            "[default: 0.001, or the mean share]"
        ),
    ] = None
    learning_rate: Annotated[
        float | None, option(help="skipgram, glove: the first learning rate.")
    ] = None
    loss: Annotated[
        str | None, option(help="skipgram: negative or softmax.  [default: negative]")
    ] = None
    solver: options.Solver = None
    kind: Annotated[
        str | None, option(help="pmi: positive, or pmi for all pairs that were seen.")
    ] = None
    shift: Annotated[float | None, option(help="pmi: r of PMI - log r.  [default: 1]")] = None
    add_context: Annotated[
        bool | None,
        option(
            "--add-context/--no-context",
            help="Add the vectors of words as the ones beside others.  [default: glove only]",
        ),
    ] = None
    tokenizer: Annotated[
        str | None, option(help="A regular expression; every match is a word.")
    ] = None


@options.spread(ClusterOptions)
def embed(
    file: Annotated[
        str,
        typer.Argument(
            help="A folder of texts, a file of texts, or a table with a column of text."
        ),
    ],
    *,
    method: Annotated[
        str | None,
        option(
            help="skipgram, pmi or glove.  [default: skipgram; pmi for less than a million words]"
        ),
    ] = None,
    components: Annotated[
        int | None,
        option(
            "--components",
            "-k",
            help="Numbers in a vector.  [default: 100, or fewer for few words]",
        ),
    ] = None,
    out: Annotated[
        Path | None, option(help="Write the vectors here (.txt, .vec, .bin, .safetensors; .gz).")
    ] = None,
    format: Annotated[
        str | None,
        option(help="Of --out: text, glove, binary or safetensors, whatever it ends in."),
    ] = None,
    model: options.KindOrFile = None,
    report: options.Report = None,
    texts: TextOptions,
    written: CellOptions,
    learned: LearningOptions,
    keep_case: Annotated[
        bool, option("--keep-case", help="Words with capitals are words of their own.")
    ] = False,
    cache: Annotated[
        Path | None,
        option(
            help="A folder, or how file names begin, to keep the numbered text for the next time."
        ),
    ] = None,
    checkpoint: options.Checkpoint = None,
    top: Annotated[int, option(help="How many neighbours of some words are printed.")] = 6,
    deterministic: Annotated[
        bool,
        option(
            "--deterministic", help="skipgram: the same bits for any number of threads; slower."
        ),
    ] = False,
    how: Arithmetic,
    shell: Shell,
) -> None:
    """Learn a vector for each word (or item) of a text, from the words that stand beside it.

    Text is a folder (each file is a sentence, each line with --lines), a .txt file (each line),
    .jsonl, a column of a table (--text), or standard input (-). The vectors are written for
    word2vec, GloVe or gensim, by the ending of --out: .txt and .vec are text, .bin is binary,
    .safetensors is exact; .gz after it compresses.

    Examples:

        eckart embed wiki.txt --components 100 --out vectors.txt --report report.html

        eckart embed reviews/ --method pmi -k 300 --window 5 --out vectors.bin

        eckart embed reviews.csv --text review --method glove --model m.safetensors

        eckart embed baskets.txt --tokenizer '[^,]+' --min-count 2 --out items.safetensors
    """
    from eckart.cli.building import builder, kind_and_file
    from eckart.cli.reading import local, reading_of
    from eckart.cli.suspicions import refuse_markup
    from eckart.io.vectors.write import check_names, vectors_target

    method, kept = kind_and_file(method, model, METHODS, shell)
    model_options = {
        "n_components": components,
        **vars(learned),
        "lowercase": False if keep_case else None,
    }
    model_options |= {"checkpoint": checkpoint, "engine": how.engine_option()}
    always: dict[str, Any] = {
        "random_state": how.seed,
        "n_threads": how.threads,
        "verbose": shell.bars,
    }
    # the others give the same bits anyway
    build = builder(
        method or "skipgram", METHODS, model_options, **always, deterministic=deterministic or None
    )
    unfitted = build()
    reading = reading_of(texts, written)
    to = OutputTargets(out, kept, report).check(file, lambda path: vectors_target(path, format))
    if top < 1:
        raise invalid("--top", top, "a number of 1 or more")
    unfitted._check()
    with shell.phase(f"reading {file}"):
        file = local(file, ".txt" if reading.text is None else ".csv")
        refuse_markup(reading, file)
        s = sentences_for(unfitted, file, reading, cache=cache)
    if to.out is not None:
        check_names(s.words, vectors_target(to.out, format)[1])
    shell.say("data", described(file, s))
    few = {"n_components": min(100, len(s.words))} if components is None else {}
    of_skipgram = (
        learned.negatives,
        learned.sample,
        learned.learning_rate,
        learned.loss,
        learned.solver,
        learned.max_iter,
    )
    if (
        method is None
        and s.n_tokens < LARGE
        and not deterministic
        and all(one is None for one in of_skipgram)
    ):
        build = builder("pmi", METHODS, model_options, **always)
        shell.say(
            "method",
            "pmi: skip-gram, the usual method, wants a million words or more; --method "
            "skipgram takes it all the same",
        )
    unfitted = build(**few)
    sizes = {
        "sentences": len(s),
        "vocabulary": len(s.words),
        "words_read": s.words_read,
        "words_kept": s.n_tokens,
    }
    shell.answer["data"] = {"file": file, **sizes}
    if how.plan:
        from eckart.cli.estimate import tell_plan

        tell_plan(
            shell, s, unfitted.set_params(checkpoint=None, **unfitted._settled(s)).fit
        )  # a part of the data is no work to go on with
        return
    begin = time.perf_counter()
    with shell.fitting():
        fitted = unfitted.fit(s)
    fitted.fit_.plan.update(reading.plan(s))
    _summary(fitted, time.perf_counter() - begin, top, shell)

    def write(path: Path) -> int:
        fitted.vectors_.write(path, format)
        return len(s.words)

    def page() -> Any:
        from eckart.report.embed import embed_report

        return embed_report(fitted, s, name=Path(file).name)

    shell.finish(fitted, to, write, page, of="words")


def sentences_for(model: Any, data: str, reading: Any, **how: Any) -> Any:
    """Text with the words that an embedding (fitted or not) asks for."""
    from eckart.embed.sequences import sequences

    params, model_options = model.get_params(deep=False), reading.of_text()
    del model_options["index"]  # sentences have no names
    return sequences(data, **model_options, **{name: params[name] for name in WORDS}, **how)


def described(file: str, s: Any) -> str:
    """The text in a line."""
    words = (
        f"{len(s.words):,} words in the vocabulary, {s.n_tokens:,} of {s.words_read:,} words of "
        "text kept"
    )
    odd = f", {s.replaced:,} characters for bytes that were no text" if s.replaced else ""
    return f"{file}: {len(s):,} sentences, {words}{odd}"


def _summary(model: Any, seconds: float, top: int, shell: Shell) -> None:
    from eckart.report.embed import telling

    v, steps = model.vectors_, len(model.fit_.trace)
    shell.outcome(model, seconds, f"the passes ended first: raise --epochs above {steps}")
    if len(v) > 1:
        near = {str(word): [str(n) for n, _ in v.neighbours(word, top)] for word in telling(v, 8)}
        shell.answer["neighbours"] = near
        for word, words in near.items():
            shell.say("near", f"{word}: {' '.join(words)}")
