"""In which encoding a file of text is written: as the caller says, by the mark of its first bytes,
or UTF-8; and where it is not so written."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path
from typing import Any

from eckart.errors import FileError, invalid

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""First bytes of a file that tell its encoding, as spreadsheets write them."""


def opened(file: Path, mode: str = "rb", **how: Any) -> Any:
    """The file, unpacked where its name ends in .gz."""
    return (gzip.open if file.suffix.lower() == ".gz" else open)(file, mode, **how)


PACKED = 5
"""Bytes of a text table for each byte of its .gz file: numbers in columns shrink to a third to a
tenth."""


def ending_of(file: Path) -> str:
    """The ending of a file's name in small letters; of a packed text (.csv.gz) that of the text.

    >>> ending_of(Path("a.CSV.gz")), ending_of(Path("a.parquet")), ending_of(Path("counts.mtx.gz"))
    ('.csv', '.parquet', '.gz')
    """
    ending, inner = file.suffix.lower(), Path(file.stem).suffix.lower()
    return (
        inner
        if ending == ".gz" and inner in (".csv", ".tsv", ".txt", ".dat", ".jsonl", ".ndjson")
        else ending
    )


def text_bytes(file: Path) -> int:
    """About how many bytes of text a file holds, unpacked."""
    return file.stat().st_size * (PACKED if file.suffix.lower() == ".gz" else 1)


def encoding_of(file: Path, asked: str | None) -> str:
    """The encoding that was asked for, by its usual name; else the one that the first bytes tell,
    else UTF-8."""
    if asked is not None:
        try:
            return codecs.lookup(asked).name
        except (LookupError, TypeError, ValueError):
            raise invalid(
                "encoding",
                asked,
                "the name of an encoding, such as 'utf-8', 'cp1252', 'latin-1' or 'utf-16'",
            ) from None
    with opened(file) as raw:
        start = raw.read(3)
    return next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")


def first_undecodable(file: Path, encoding: str) -> tuple[int, int] | None:
    """Offset and value of the first byte of a file that does not decode."""
    decoder = codecs.getincrementaldecoder(encoding)()
    seen = 0
    with opened(file) as raw:
        while block := raw.read(2**20):
            held = len(decoder.getstate()[0])
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                return seen - held + error.start, error.object[error.start]
            seen += len(block)
    return None


def undecodable(file: Path, encoding: str) -> FileError:
    """What to do about a file that is not written in this encoding, with the place of the first
    byte that shows it."""
    found = first_undecodable(file, encoding)
    name = encoding.removesuffix("-sig").upper() if encoding.startswith("utf") else encoding
    where = ""
    if found is not None:
        with opened(file) as raw:
            line = raw.read(found[0]).count(b"\n") + 1
        where = f": byte 0x{found[1]:02x} at offset {found[0]}, line {line}, cannot be decoded"
    own = codecs.lookup(encoding.removesuffix("-sig")).name
    others = [
        repr(other)
        for other in ("cp1252", "latin-1", "utf-16", "utf-8")
        if codecs.lookup(other).name != own
    ]
    return FileError(
        f"{file} is not {name} text{where}; say its encoding ({', '.join(others[:2])} "
        f"or {others[2]} are usual), or save it as UTF-8"
    )
