"""Text for eckart explain and certify: files into counts, vocabularies, stop words; and the same
counts again for a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.reading import Reading, fitting
from eckart.errors import FileError, InputError, invalid
from eckart.io.tables.other_files import images_in
from eckart.io.text.documents import Documents, holds_text
from eckart.io.text.tokens import LISTS, Tokenizer
from eckart.io.text.vocabulary import Corpus, corpus
from eckart.matrix import Matrix


def is_text(file: str, reading: Reading) -> bool:
    """Whether a source is text: a column was named, or it is a folder or a file of texts."""
    return reading.text is not None or (
        holds_text(file) and not (Path(file).is_dir() and images_in(file))
    )


def counted(file: str, reading: Reading, **choice: Any) -> Corpus:
    """Text as counts; the column of labels names the documents where there is no index."""
    if reading.only is not None:
        raise InputError(
            f"--only {','.join(reading.only)} is for numbers. Use --text for the column of text."
        )
    text_options = reading.of_text()
    if reading.labels is not None and text_options["index"] not in (None, reading.labels):
        raise InputError(
            f"give --index or --labels, not both: both name the documents, got {reading.index} "
            f"and {reading.labels}"
        )
    return corpus(
        file,
        **text_options
        | {"index": text_options["index"] if text_options["index"] is not None else reading.labels},
        **choice,
    )


def counted_for(model: Any, data: str, reading: Reading) -> Matrix:
    """Data in the columns of a fitted model: text in its vocabulary, a table with its names."""
    plan = model.fit_.plan
    if "text" not in plan and not is_text(data, reading):
        return fitting(model, "the model", data, reading)
    rule = Tokenizer.from_dict((plan.get("text") or {}).get("rules") or {})
    return counted(data, reading, vocabulary=model, **vars(rule))


def chosen_words(words: Any) -> dict[str, Any]:
    """The options of ``eckart explain`` that choose words, as ``corpus`` takes them."""
    least, most = frequency("--min-df", words.min_df), frequency("--max-df", words.max_df)
    return {
        "min_df": least,
        "max_df": most,
        "max_features": words.max_features,
        "stop_words": stop_words_of(words.stop_words),
    }


def words_in(file: str | None) -> list[str] | None:
    """A vocabulary, one word a line."""
    if file is None:
        return None
    words = [text for _, text in Documents(file, lines=True)]
    while words and not words[-1].strip():
        words.pop()
    return [word.strip() for word in words]


def guided(file: str | None) -> dict[int, list[str]] | None:
    """Words that lean topics, the first line for the first topic; a blank line leaves a topic
    alone."""
    if file is None:
        return None
    found = {
        z: line.split() for z, (_, line) in enumerate(Documents(file, lines=True)) if line.split()
    }
    if not found:
        raise FileError(f"{file} must hold words of a topic on each line, got no word")
    return found


def stop_words_of(text: str) -> Any:
    """``none``, the name of a list, or a file of words."""
    if text == "none":
        return None
    if text in LISTS:
        return text
    if not Path(text).is_file():
        raise FileError(
            f"--stop-words must be {', '.join(LISTS)}, none, or a file of one word a line, got "
            f"{text}"
        )
    return words_in(text)


def frequency(name: str, text: str) -> int | float:
    """A number of documents, or a share of them."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise invalid(name, text, "a number of documents, or a share such as 0.5") from None


def texts_of(file: str, reading: Reading, at: np.ndarray) -> dict[int, str]:
    """Some documents by their positions; they are read once more for it."""
    wanted, found = {int(i) for i in at}, {}
    for i, (_, text) in enumerate(Documents(file, **reading.of_text())):
        if i in wanted:
            found[i] = text
            if len(found) == len(wanted):
                break
    return found
