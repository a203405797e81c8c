"""Files of word vectors, as word2vec, GloVe, fastText and gensim write and read them.

    text         "count size" on the first line, then one word and its numbers a line    .vec .txt
    word2vec text, fastText
    glove        the same without the first line                                          .txt with
    format="glove"
    binary       "count size", then each word, a space, and its numbers as float32        .bin
    word2vec binary
    safetensors  exact: any type of number, any word, integer ids, counts
    .safetensors

All but the last may be compressed (.gz). In text the last ``size`` fields of a line are the numbers
and what stands before them is the word, so that a word may hold spaces. Numbers are written with
the fewest digits that give the same number back.

Nothing that a file says about itself is believed before it is seen: memory is asked for only where
the bytes are there.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from eckart.arguments import precision
from eckart.errors import FileError, InputTypeError, invalid, written
from eckart.io.vectors.text_format import read_text
from eckart.io.vectors.word_rows import (
    CHUNK,
    LONGEST_WORD,
    FirstLines,
    WordRows,
    WordTable,
    cut,
    opened,
)
from eckart.scheduler import resolve_threads

FORMATS = ("text", "glove", "binary", "safetensors")
ENDINGS = {
    ".vec": "text",
    ".txt": "text",
    ".w2v": "text",
    ".bin": "binary",
    ".safetensors": "safetensors",
}


def read_words(
    path: Any,
    format: str | None = None,
    *,
    limit: int | None = None,
    encoding: str = "utf-8",
    undecodable: str = "error",
    dtype: Any = None,
    n_threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Words, vectors and counts (None where the file has none); see ``eckart.read_vectors``."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputTypeError(f"path must be the name of a file, got {written(path)}")
    if format is not None and format not in FORMATS:
        raise invalid("format", format, f"None or one of {', '.join(FORMATS)}")
    if limit is not None and (
        isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 1
    ):
        raise invalid("limit", limit, "None or an int >= 1")
    if undecodable not in ("error", "replace"):
        raise invalid("undecodable", undecodable, "'error' or 'replace'")
    if dtype is not None:
        precision(dtype)
    try:
        simple = "0 \n".encode(encoding) == b"0 \n"
    except (LookupError, TypeError, ValueError):
        simple = False
    if not simple:
        raise invalid(
            "encoding", encoding, "an encoding that holds ASCII, such as 'utf-8' or 'latin-1'"
        )
    file = Path(path)
    if not os.path.isfile(file):
        raise FileError(f"{file} does not exist or is not a file")
    if format == "safetensors" or (format is None and file.suffix.lower() == ".safetensors"):
        return _read_safetensors(file, limit, dtype)
    dtype = np.dtype(np.float32 if dtype is None else dtype)
    try:
        _refuse_pickle(file)
        with opened(file) as (raw, size):
            start = FirstLines(raw, file, size)
            reader = WordTable(file, encoding, undecodable)
            vectors = (
                _binary(start, reader, limit, dtype)
                if start.format(format, limit) == "binary"
                else read_text(start, reader, limit, dtype, resolve_threads(n_threads))
            )
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{file} cannot be read: {error}") from None
    if not len(vectors):
        raise FileError(f"{file} must hold words and their vectors, got none")
    return (*reader.unique(vectors), None)


def _refuse_pickle(file: Path) -> None:
    """Refuse what gensim's ``save`` writes (.kv, .model): a pickle, which runs code when it is
    loaded."""
    with file.open("rb") as raw:
        first = raw.read(2)
    if first[:1] == b"\x80" and first[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise FileError(
            f"{file} is a pickle, as gensim's save writes it, and is not loaded: a "
            "pickle can run any code. In gensim write the vectors with "
            "KeyedVectors.load(path).save_word2vec_format('vectors.bin', binary=True) "
            "and read that file"
        )


def _binary(start: FirstLines, reader: WordTable, limit: int | None, dtype: Any) -> np.ndarray:
    k, file = start.k or 0, start.file
    wanted = start.rows_to_hold(limit) or 0
    rows, width = WordRows(k, wanted, dtype), 4 * k
    buffer, at = start.rest, 0

    def more(need: int) -> bool:
        nonlocal buffer, at
        parts = [buffer[at:]]
        have = len(parts[0])
        while have < need:
            part = start.raw.read(max(CHUNK, min(need - have, 16 * CHUNK)))
            if not part:
                break
            parts.append(part)
            have += len(part)
        buffer, at = b"".join(parts), 0
        return have >= need

    for number in range(1, wanted + 1):
        end = buffer.find(b" ", at)
        if end < 0 and len(buffer) - at < LONGEST_WORD:
            more(LONGEST_WORD + width)
            end = buffer.find(b" ", at)
        if end < 0 or end - at > LONGEST_WORD:
            if len(buffer) - at < LONGEST_WORD:
                raise FileError(
                    f"{file} is truncated: {start.count} vectors are promised, it ends "
                    f"after {number - 1}; pass limit={number - 1} to read those"
                )
            raise FileError(
                f"{file} must be word2vec binary, got no word in {LONGEST_WORD} bytes at vector "
                f"{number}"
            )
        if end + 1 + width > len(buffer):
            ahead = end - at
            if not more(ahead + 1 + width):
                raise FileError(
                    f"{file} is truncated in vector {number} of {start.count}; pass "
                    f"limit={number - 1} to read those before it"
                    if number > 1
                    else (
                        f"{file} must hold {width} bytes in its first vector, got "
                        f"{len(buffer) - ahead - 1}: the file is truncated"
                    )
                )
            end = ahead
        word = buffer[at:end].lstrip(b"\n")
        if not word:
            raise FileError(f"{file} must be word2vec binary, got no word before vector {number}")
        row = np.frombuffer(buffer, "<f4", k, end + 1)
        if not np.isfinite(row).all():
            raise FileError(
                f"{file}, vector {number}: {cut(word)!r} has a number that is not finite; drop it"
            )
        reader.add(word, lambda number=number: f"vector {number}")
        rows.room(1)[0] = row
        at = end + 1 + width
    if limit is None or limit > wanted:
        more(1)
        if (buffer[at:] + start.raw.read(CHUNK)).strip(b"\r\n\0 "):
            raise FileError(
                f"{file}: {wanted} vectors are promised, but bytes follow them; pass "
                f"limit={wanted} to read those only"
            )
    return rows.done()


def _read_safetensors(
    file: Path, limit: int | None, dtype: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as tensors:
            names = set(tensors.keys())
            held = {
                n: tensors.get_tensor(n)
                for n in ("vectors", "words", "ends", "ids", "counts")
                if n in names
            }
        vectors = held["vectors"]
        if "ids" in held:
            words = held["ids"]
        else:
            ends = held["ends"]
            text = held["words"].tobytes()
            if len(ends) and (ends[0] < 0 or ends[-1] != len(text) or (np.diff(ends) < 0).any()):
                raise ValueError("ends of words are out of order")
            words = np.empty(len(ends), object)
            words[:] = [
                text[a:b].decode("utf-8", "surrogatepass")
                for a, b in zip([0, *ends[:-1].tolist()], ends.tolist())
            ]
        counts = held.get("counts")
        if vectors.ndim != 2 or vectors.dtype.kind != "f" or words.shape != (len(vectors),):
            raise ValueError(f"vectors of shape {vectors.shape} for {len(words)} words")
        if counts is not None and counts.shape != words.shape:
            raise ValueError(f"{len(counts)} counts for {len(words)} words")
        if not np.isfinite(vectors).all():
            raise ValueError(
                "the vector of "
                f"{words[int(np.argwhere(~np.isfinite(vectors))[0][0])]!r} is not finite"
            )
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise FileError(f"{file} does not hold vectors: {type(error).__name__} {error}") from None
    kept = slice(limit)
    return (
        words[kept],
        vectors[kept].astype(vectors.dtype if dtype is None else dtype, copy=False),
        None if counts is None else counts[kept],
    )


def is_model(path: Any) -> bool:
    """Whether a .safetensors file is a model that eckart saved, rather than vectors alone."""
    from safetensors import SafetensorError, safe_open

    if (
        not isinstance(path, (str, os.PathLike))
        or Path(path).suffix.lower() != ".safetensors"
        or not os.path.isfile(path)
    ):
        return False
    try:
        with safe_open(path, "np") as tensors:
            return "eckart" in (tensors.metadata() or {})
    except (SafetensorError, OSError):
        return False
