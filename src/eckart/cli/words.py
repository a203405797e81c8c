"""eckart neighbours and eckart analogy: questions to vectors of words or items."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

NEIGHBOURS_HELP = """
The words whose vectors point in the most similar direction, with their cosine.

VECTORS is a file of word2vec (text or binary), GloVe, fastText (.vec) or eckart, compressed (.gz) or not, or a saved embedding model (.safetensors).

Examples:

    eckart neighbours vectors.txt king

    eckart neighbours vectors.bin king queen -n 5

    eckart neighbours glove.txt.gz king --limit 50000

    eckart neighbours model.safetensors 4711 --out alike.csv
"""

ANALOGY_HELP = """
A is to B as C is to which word?

The answers are the words nearest to B - A + C (3CosAdd), or those of the best product of likenesses (--method multiply, 3CosMul); A, B and C are no answers.

Examples:

    eckart analogy vectors.txt man king woman

    eckart analogy vectors.txt paris france rome -n 5 --method multiply
"""

File = Annotated[str, typer.Argument(metavar="VECTORS", help="A file of vectors, or a saved embedding model.")]
Limit = Annotated[int | None, typer.Option(help="Read so many words from the first on (usually the most frequent).")]
Format = Annotated[
    str | None, typer.Option(help="text, glove, binary or safetensors; found out from the file unless said.")
]
Encoding = Annotated[str, typer.Option(help="Of the words in the file.")]
Out = Annotated[Path | None, typer.Option(help="Write the list here (.parquet, .arrow, .csv) instead.")]


def neighbours(
    vectors: File,
    words: Annotated[list[str], typer.Argument(help="One or more words or ids.")],
    n: Annotated[int, typer.Option("-n", help="How many for each.")] = 10,
    without: Annotated[list[str] | None, typer.Option(help="A word to leave out; may be said several times.")] = None,
    limit: Limit = None,
    out: Out = None,
    format: Format = None,
    encoding: Encoding = "utf-8",
    threads: Annotated[int | None, typer.Option(help="Most threads; the result does not depend on it.")] = None,
) -> None:
    _check(n, out, vectors)
    v = _read(vectors, format, limit, encoding)
    left_out = None if not without else _ids(v, without)
    found = v.neighbours(_ids(v, words), n, without=left_out, n_threads=threads)
    table = found.to_table()
    if len(words) == 1:
        del table["word"]
    _tell({"score": "cosine"}, table, out)


def analogy(
    vectors: File,
    a: Annotated[str, typer.Argument(help="A is to")],
    b: Annotated[str, typer.Argument(help="B as")],
    c: Annotated[str, typer.Argument(help="C is to which word?")],
    n: Annotated[int, typer.Option("-n", help="How many answers.")] = 5,
    method: Annotated[str, typer.Option(help="add (3CosAdd) or multiply (3CosMul).")] = "add",
    limit: Limit = None,
    out: Out = None,
    format: Format = None,
    encoding: Encoding = "utf-8",
) -> None:
    from eckart.errors import wrong

    _check(n, out, vectors)
    if method not in ("add", "multiply"):
        raise wrong("--method", method, "add or multiply")
    v = _read(vectors, format, limit, encoding)
    asked = [_ids(v, [word]) for word in (a, b, c)]
    table = v.analogy(*asked, n=n, method=method).to_table()
    del table["word"]
    _tell({"neighbour": "answer", "score": "cosine" if method == "add" else "score"}, table, out)


def _check(n: int, out: Path | None, data: str) -> None:
    """Refuse what cannot be done before anything is read."""
    from eckart.cli.common import check_paths
    from eckart.errors import wrong
    from eckart.io.tables.write import check_target

    if n < 1:
        raise wrong("-n", n, "a number of 1 or more")
    check_paths(out, None, None, data)
    if out is not None:
        check_target(out, long=True)


def _read(file: str, format: str | None, limit: int | None, encoding: str) -> Any:
    """The vectors; what a file makes the reader say stands on standard error."""
    from eckart.embed.reading import read_vectors

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = read_vectors(file, format, limit=limit, encoding=encoding)
    for note in said:
        typer.echo(f"eckart: note: {note.message}", err=True)
    return found


def _ids(vectors: Any, words: list[str]) -> Any:
    """Words of the shell as ids of the kind that the vectors have."""
    from eckart.cli.triples_input import as_kind
    from eckart.index.labels import Labels

    return as_kind(words, Labels(vectors.words, len(vectors), "word"))


def _tell(titles: dict[str, str], table: dict[str, Any], out: Path | None) -> None:
    """The lists on standard output, or in a file."""
    from eckart.cli.common import say
    from eckart.cli.recommend import printed
    from eckart.io.tables.write import write_long

    names = tuple(titles.get(name, name) for name in table)
    columns = tuple(table.values())
    if out is None:
        for line in printed(names, iter([columns])):
            typer.echo(line)
    else:
        say(False, "out", f"{out} ({write_long(out, names, iter([columns])):,} rows)")


neighbours.__doc__ = NEIGHBOURS_HELP
analogy.__doc__ = ANALOGY_HELP
