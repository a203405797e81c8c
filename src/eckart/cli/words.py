"""eckart neighbours and eckart analogy: questions to vectors of words or items."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from eckart.cli import options
from eckart.cli.options import option
from eckart.cli.shell import OutputTargets, Shell
from eckart.errors import invalid

File = Annotated[
    str, typer.Argument(metavar="VECTORS", help="A file of vectors, or a saved embedding model.")
]
Limit = Annotated[
    int | None, option(help="Read so many words from the first on (usually the most frequent).")
]
Format = Annotated[
    str | None,
    option(help="text, glove, binary or safetensors; found out from the file unless said."),
]


@options.spread()
def neighbours(
    vectors: File,
    words: Annotated[list[str], typer.Argument(help="One or more words or ids.")],
    *,
    n: options.Count = 10,
    without: Annotated[
        list[str] | None, option(help="A word to leave out; may be said several times.")
    ] = None,
    limit: Limit = None,
    out: options.OutLists = None,
    format: Format = None,
    encoding: options.Encoding = "utf-8",
    threads: options.Threads = None,
    shell: Shell,
) -> None:
    """The words whose vectors point in the most similar direction, with their cosine.

    VECTORS is a file of word2vec (text or binary), GloVe, fastText (.vec) or eckart, compressed
    (.gz) or not, or a saved embedding model (.safetensors).

    Examples:

        eckart neighbours vectors.txt king

        eckart neighbours vectors.bin king queen -n 5

        eckart neighbours glove.txt.gz king --limit 50000

        eckart neighbours model.safetensors 4711 --out alike.csv
    """
    _check(n, out, vectors)
    v = _read(vectors, format, limit, encoding, shell)
    left_out = None if not without else _ids(v, without)
    table = v.neighbours(_ids(v, words), n, without=left_out, n_threads=threads).to_table()
    if len(words) == 1:
        del table["word"]
    _tell({"score": "cosine"}, table, out, shell)


@options.spread()
def analogy(
    vectors: File,
    a: Annotated[str, typer.Argument(help="A is to")],
    b: Annotated[str, typer.Argument(help="B as")],
    c: Annotated[str, typer.Argument(help="C is to which word?")],
    *,
    n: options.Count = 5,
    method: Annotated[str, option(help="add (3CosAdd) or multiply (3CosMul).")] = "add",
    limit: Limit = None,
    out: options.OutLists = None,
    format: Format = None,
    encoding: options.Encoding = "utf-8",
    shell: Shell,
) -> None:
    """A is to B as C is to which word?

    The answers are the words nearest to B - A + C (3CosAdd), or those of the best product of
    likenesses (--method multiply, 3CosMul); A, B and C are no answers.

    Examples:

        eckart analogy vectors.txt man king woman

        eckart analogy vectors.txt paris france rome -n 5 --method multiply
    """
    _check(n, out, vectors)
    if method not in ("add", "multiply"):
        raise invalid("--method", method, "add or multiply")
    v = _read(vectors, format, limit, encoding, shell)
    asked = [_ids(v, [word]) for word in (a, b, c)]
    table = v.analogy(*asked, n=n, method=method).to_table()
    del table["word"]
    _tell(
        {"neighbour": "answer", "score": "cosine" if method == "add" else "score"},
        table,
        out,
        shell,
    )


def _check(n: int, out: Path | None, data: str) -> None:
    """Refuse what cannot be done before anything is read."""
    from eckart.io.tables.write import check_target

    if n < 1:
        raise invalid("-n", n, "a number of 1 or more")
    OutputTargets(out).check(data, lambda path: check_target(path, long=True))


def _read(
    file: str, format: str | None, limit: int | None, encoding: str | None, shell: Shell
) -> Any:
    """The vectors; what a file makes the reader say stands on standard error."""
    from eckart.embed.sequences import read_vectors

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = read_vectors(file, format, limit=limit, encoding=encoding or "utf-8")
    for note in said:
        shell.note(str(note.message))
    return found


def _ids(vectors: Any, words: list[str]) -> Any:
    """Words of the shell as ids of the kind that the vectors have."""
    from eckart.index.labels import Labels
    from eckart.query.ids import parse_ids

    return parse_ids(words, Labels(vectors.words, len(vectors), "word"))


def _tell(titles: dict[str, str], table: dict[str, Any], out: Path | None, shell: Shell) -> None:
    """The lists on standard output, or in a file."""
    from eckart.cli.recommend import tell

    tell(tuple(titles.get(name, name) for name in table), iter([tuple(table.values())]), out, shell)
