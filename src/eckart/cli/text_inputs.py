"""What eckart explain and embed are given: text, counts, or a table of numbers; and how to read the same again for a saved model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eckart.embed.sequences import Sequences, sequences
from eckart.errors import FileError, InputError, wrong
from eckart.io.read import read
from eckart.io.tables.frames import titles
from eckart.io.text.documents import Documents, holds_text
from eckart.io.text.stop_words import LISTS
from eckart.io.text.tokens import Tokenizer
from eckart.io.text.vocabulary import Corpus, corpus
from eckart.matrix import Counts, Dense, Matrix

WORDS = ("min_count", "max_words", "tokenizer", "lowercase", "numbers", "min_length", "n_threads", "verbose")
"""Parameters of an embedding that choose its words."""


@dataclass(frozen=True)
class Material:
    """How a file is to be read. ``text`` names a column of text; a folder, .txt and .jsonl are text anyway."""

    text: str | int | None = None
    index: str | int | None = None
    columns: list[str] | None = None
    lines: bool | None = None
    encoding: str = "utf-8"
    delimiter: str | None = None
    header: bool | None = None
    quotes: bool = True
    undecodable: str = "error"

    def is_text(self, file: str) -> bool:
        return self.text is not None or holds_text(file)

    def documents(self, file: str) -> Documents:
        return Documents(file, **self._how())

    def count(self, file: str, **choice: Any) -> Counts:
        """Text as counts."""
        if self.columns is not None:
            raise InputError(f"--columns {','.join(self.columns)} came for text, wanted --text for the column of text")
        return corpus(file, **self._how(), **choice)

    def sequences(self, file: str, **choice: Any) -> Sequences:
        """Text as sentences of numbered words."""
        how = self._how()
        del how["index"]  # sentences have no names
        return sequences(file, **how, **choice)

    def table(self, file: str, words: list[str] | None = None) -> Matrix:
        """Counts or numbers as they are; ``words`` name the columns of a file that has no names."""
        matrix = read(
            file,
            columns=self.columns,
            index=self.index,  # type: ignore[arg-type]
            delimiter=self.delimiter,
            header=self.header,
        )
        if words is None:
            return matrix
        if len(words) != matrix.shape[1]:
            raise wrong("--vocabulary", f"{len(words)} words", f"{matrix.shape[1]}, one for each column of {file}")
        return replace(matrix, columns=titles(words))

    def _how(self) -> dict[str, Any]:
        names = ("text", "index", "lines", "encoding", "delimiter", "header", "quotes", "undecodable")
        return {name: getattr(self, name) for name in names}

    def plan(self, x: Matrix | Sequences) -> dict[str, Any]:
        """What a model remembers of its source."""
        default = Material()
        kept = {n: v for n, v in self._how().items() if v != getattr(default, n)}
        if isinstance(x, Corpus):
            kept["rules"] = x.rules
            return {"text": kept}
        if isinstance(x, Sequences):
            return {"text": kept} if kept else {}
        return {"read": kept} if kept else {}


def material_of(
    text: str | None,
    index: str | None,
    columns: str | None,
    lines: bool | None,
    encoding: str | None,
    delimiter: str | None,
    no_header: bool,
    no_quotes: bool,
    plan: dict[str, Any] | None = None,
    undecodable: str | None = None,
) -> Material:
    """The options of a command; what is not said is taken from the plan of a model."""
    kept = dict((plan or {}).get("text") or (plan or {}).get("read") or {})
    kept.pop("rules", None)
    told: dict[str, Any] = {
        "text": _place(text),
        "index": _place(index),
        "columns": [c.strip() for c in columns.split(",")] if columns else None,
        "lines": lines,
        "encoding": encoding,
        "delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
        "header": False if no_header else None,
        "quotes": False if no_quotes else None,
        "undecodable": undecodable,
    }
    return Material(**(kept | {name: value for name, value in told.items() if value is not None}))


def read_for(model: Any, data: str, material: Material) -> Matrix:
    """Data in the columns of a fitted model: text in its vocabulary, a table with its names."""
    plan, names = model.fit_.plan, model.fit_.factors.columns
    if "text" in plan or material.is_text(data):
        rule = Tokenizer.from_dict((plan.get("text") or {}).get("rules") or {})
        return material.count(data, vocabulary=model, **vars(rule))
    named = names is not None and all(isinstance(n, str) for n in names)
    if named and Path(data).suffix.lower() not in (".npy", ".npz", ".mtx", ".gz"):
        material = replace(material, columns=material.columns or list(names))
        named = False
    matrix = material.table(data)
    if matrix.shape[1] != model.n_features_in_:
        raise InputError(
            f"{data} has {matrix.shape[1]} columns, wanted the {model.n_features_in_} of the model; choose them with --columns"
        )
    return replace(matrix, columns=names) if named and matrix.columns is None else matrix


def sentences_for(model: Any, data: str, material: Material, **how: Any) -> Sequences:
    """Text with the words that an embedding (fitted or not) asks for."""
    params = model.get_params(deep=False)
    return material.sequences(data, **{name: params[name] for name in WORDS}, **how)


def words_in(file: str | None) -> list[str] | None:
    """A vocabulary, one word a line."""
    if file is None:
        return None
    words = [text for _, text in Documents(file, lines=True)]
    while words and not words[-1].strip():
        words.pop()
    return [word.strip() for word in words]


def guided(file: str | None) -> dict[int, list[str]] | None:
    """Words that lean topics, the first line for the first topic; a blank line leaves a topic alone."""
    if file is None:
        return None
    found = {z: line.split() for z, (_, line) in enumerate(Documents(file, lines=True)) if line.split()}
    if not found:
        raise FileError(f"{file} holds no word, wanted words of a topic on each line")
    return found


def stop_words_of(text: str) -> Any:
    """``none``, the name of a list, or a file of words."""
    if text == "none":
        return None
    if text in LISTS:
        return text
    if not Path(text).is_file():
        raise FileError(f"--stop-words {text} came, wanted {', '.join(LISTS)}, none, or a file of one word a line")
    return words_in(text)


def frequency(name: str, text: str) -> int | float:
    """A number of documents, or a share of them."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise wrong(name, text, "a number of documents, or a share such as 0.5") from None


def texts_of(documents: Documents, at: np.ndarray) -> dict[int, str]:
    """Some documents by their positions; they are read once more for it."""
    wanted, found = {int(i) for i in at}, {}
    for i, (_, text) in enumerate(documents):
        if i in wanted:
            found[i] = text
            if len(found) == len(wanted):
                break
    return found


def described(file: str, x: Matrix) -> str:
    """The data in a line."""
    n = "unknown" if x.shape[0] is None else f"{x.shape[0]:,}"
    if isinstance(x, Corpus):
        kept = x.words_read - x.words_dropped
        return f"{file}: {n} documents, {x.shape[1]:,} words in the vocabulary, {kept:,} of {x.words_read:,} words of text kept"
    seen = "" if isinstance(x, Dense) else f", {x.nnz:,} {'counts' if isinstance(x, Counts) else 'observed'}"
    return f"{file}: {n} rows x {x.shape[1]:,} columns{seen}"


def _place(text: str | None) -> str | int | None:
    """A column by its name, or by its position where it is written as a number."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text
