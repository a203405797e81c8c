"""Word vectors to files that word2vec, GloVe, gensim and ``eckart.read_vectors`` read; a file is
replaced only when the new one is complete."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import InputError, invalid
from eckart.index.labels import tidy
from eckart.io.models.whole_files import check_place, replacing
from eckart.io.vectors.files import ENDINGS, FORMATS
from eckart.loading import pa

BLOCK_NUMBERS = 2**20
"""Numbers that are written together: 4 MB."""
GAPS = re.compile(r"[ \t\n\r\x0b\x0c]")


def write_words(
    path: Any,
    words: np.ndarray,
    vectors: np.ndarray,
    counts: np.ndarray | None = None,
    format: str | None = None,
    *,
    space: str | None = None,
) -> None:
    """Write words and their vectors; see ``Vectors.write``."""
    target, format, packed = vectors_target(path, format)
    if format == "safetensors":
        _write_safetensors(target, words, vectors, counts)
        return
    names = _names(words, format, space)
    header = b"" if format == "glove" else f"{len(names)} {vectors.shape[1]}\n".encode()
    lines = _binary(names, vectors) if format == "binary" else _text(names, vectors)
    with replacing(target) as name, open(name, "wb") as raw:
        out: Any = gzip.GzipFile("", "wb", 6, raw, mtime=0) if packed else raw
        out.write(header)
        for part in lines:
            out.write(part)
        if packed:
            out.close()
        raw.flush()
        os.fsync(raw.fileno())


def vectors_target(path: Any, format: str | None = None) -> tuple[Path, str, bool]:
    """The file, its format by its ending unless said, and whether it is compressed; what cannot be
    written is refused before any work is done."""
    if not isinstance(path, (str, os.PathLike)):
        raise invalid("path", path, "the name of a file")
    target = check_place(Path(path))
    packed = target.suffix.lower() == ".gz"
    ending = (target.with_suffix("") if packed else target).suffix.lower()
    if format is None and ending not in ENDINGS:
        raise InputError(
            f"{target} must end in {', '.join(ENDINGS)}, got {ending!r}. Or say format=."
        )
    format = ENDINGS[ending] if format is None else format
    if format not in FORMATS:
        raise invalid("format", format, f"None or one of {', '.join(FORMATS)}")
    if format == "safetensors" and packed:
        raise InputError(
            f"{target} must end in .safetensors alone, which is read without being unpacked, "
            "got .gz"
        )
    return target, format, packed


def check_names(words: np.ndarray, format: str, space: str | None = None) -> None:
    """Refuse words that the format cannot hold, before the vectors are there."""
    if format != "safetensors":
        _names(words, format, space)


def _names(words: np.ndarray, format: str, space: str | None) -> list[bytes]:
    """Words as bytes; what the format cannot hold is refused by name."""
    if space is not None and (not isinstance(space, str) or not space or GAPS.search(space)):  # noqa: SIM102
        if space != " " or format == "binary":
            raise invalid(
                "space", space, "None, or what to write for a space, such as '_' (in text also ' ')"
            )
    out = []
    for word in words.tolist():
        text = str(word)
        if not text or GAPS.search(text):
            fields = text.split(" ")
            if space is None or not all(fields) or GAPS.search("".join(fields)):
                raise InputError(
                    f"words must have no white space for this format, got {text!r}. Pass space='_' to "
                    "write that for a space, or write .safetensors."
                )
            text = space.join(fields)
        try:
            out.append(text.encode())
        except UnicodeEncodeError:
            raise InputError(
                f"words must be what UTF-8 can hold, got {text!r}. Write .safetensors."
            ) from None
    if len(set(out)) < len(out):
        seen: set[bytes] = set()
        again = next(name for name in out if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(
            "words must be written in different ways, got two that are both written as "
            f"{again.decode()!r}. Rename one."
        )
    return out


def _text(names: list[bytes], vectors: np.ndarray) -> Iterator[bytes]:
    """Lines, some thousand at a time; the digits are Arrow's, the fewest that give the number
    back."""
    from pyarrow import csv

    options = csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    columns = [str(c) for c in range(vectors.shape[1])]
    step = max(1, BLOCK_NUMBERS // vectors.shape[1])
    for first in range(0, len(names), step):
        block = np.asfortranarray(vectors[first : first + step])
        sink = pa.BufferOutputStream()
        csv.write_csv(pa.table(list(block.T), columns), sink, options)
        numbers = sink.getvalue().to_pybytes().split(b"\n")
        yield b"".join(b"%b %b\n" % pair for pair in zip(names[first : first + step], numbers))


def _binary(names: list[bytes], vectors: np.ndarray) -> Iterator[bytes]:
    step = max(1, BLOCK_NUMBERS // vectors.shape[1])
    for first in range(0, len(names), step):
        with np.errstate(over="ignore"):
            block = vectors[first : first + step].astype("<f4")
        if not np.isfinite(block).all():
            row = first + int(np.argwhere(~np.isfinite(block))[0][0])
            raise InputError(
                f"the vector of {names[row].decode()!r} is too large for float32; write "
                ".safetensors"
            )
        yield b"".join(
            b"%b %b\n" % (name, row.tobytes())
            for name, row in zip(names[first : first + step], block)
        )


def _write_safetensors(
    target: Path, words: np.ndarray, vectors: np.ndarray, counts: np.ndarray | None
) -> None:
    from safetensors.numpy import save_file

    held = {"vectors": np.ascontiguousarray(vectors)}
    ids = tidy(words)
    if ids.dtype.kind in "iu":
        held["ids"] = np.ascontiguousarray(ids)
    else:
        other = next((w for w in words.tolist() if not isinstance(w, str)), None)
        if other is not None:
            raise InputError(
                f"words must be text or integers to be written, got {other!r}. Convert the words "
                "first."
            )
        names = [word.encode("utf-8", "surrogatepass") for word in words.tolist()]
        held["words"] = np.frombuffer(b"".join(names), np.uint8)
        held["ends"] = np.cumsum([len(name) for name in names], dtype=np.int64)
    if counts is not None:
        held["counts"] = np.ascontiguousarray(counts)
    with replacing(target) as name:
        save_file(held, name, metadata={"format": "eckart-vectors"})
