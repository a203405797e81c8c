"""Sequences kept on disk, so that a second reading costs only the time to map them.

Three files: ``*.ids.npy`` and ``*.pointers.npy``, and ``*.json``, written last, with the words, the
options, the size and time of change of each file of the source, and checksums. What does not match
is never used: a changed source or other options are read again, a damaged cache is made again, and
both are said.

Word numbers put aside while a source is read, in memory or in a temporary file, and changed to
positions in the vocabulary at the end.
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from eckart.errors import FileError, InputError, written
from eckart.io.models.whole_files import check_place, replacing
from eckart.io.tables.frames import titles
from eckart.io.tables.row_blocks import UNREADABLE
from eckart.io.text.documents import READABLE, _kind
from eckart.io.text.tokens import Tokenizer

FORMAT, VERSION = "eckart-sequences", 1
PIECE = 2**24
"""Numbers whose checksum is taken at once: a file that is mapped is not brought into memory as a
whole."""


@dataclass(frozen=True)
class CorpusCache:
    """The place of one result, and what it must be about."""

    stem: Path
    about: dict[str, Any]

    @classmethod
    def of(cls, place: Any, source: Any, rule: Tokenizer, options: dict[str, Any]) -> CorpusCache:
        """A folder keeps a result for each source and set of options; any other path is the
        beginning of the names of one."""
        if not isinstance(source, (str, os.PathLike)):
            raise InputError(
                f"cache={written(place)} needs a file, a folder or a pattern, where a change can be "
                f"seen, got a {type(source).__name__}"
            )
        header = rule.to_dict()
        if header.get("function"):
            raise InputError(
                f"cache={str(place)!r} needs a regular expression as tokenizer, or none, got "
                f"{header['tokenizer']}: a function may change unseen"
            )
        about = {
            "format": FORMAT,
            "version": VERSION,
            "rules": header,
            "options": options,
            "source": _files(source),
        }
        about = json.loads(json.dumps(about, default=str))
        path = Path(place)
        if path.is_dir():
            named = [file["path"] for file in about["source"]], about["rules"], about["options"]
            path = path / f"sequences-{zlib.crc32(json.dumps(named).encode()):08x}"
        check_place(path.with_name(path.name + ".json"))
        return cls(path, about)

    @property
    def folder(self) -> Path:
        return self.stem.parent

    def file(self, kind: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}.{kind}")

    def load(self) -> dict[str, Any] | None:
        """The fields of the sequences, arrays mapped from disk; None where there is nothing to
        use."""
        if not self.file("json").exists():
            return None
        try:
            header = json.loads(self.file("json").read_text("utf-8"))
            about = dict(header["about"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self._again("is damaged")
            return None
        for name, value in self.about.items():
            if about.get(name) != value:
                reason = (
                    "the source has changed"
                    if name == "source"
                    else f"{name} were {about.get(name)}"
                )
                self._again(f"is of other work ({reason})")
                return None
        try:
            return self._mapped(header)
        except (*UNREADABLE, TypeError) as error:
            self._again(f"is damaged ({error})")
            return None

    def save(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Write the fields of sequences and give them back, mapped."""
        for kind in ("ids", "pointers"):
            with replacing(self.file(f"{kind}.npy")) as part:
                _write(part, fields[kind])
        header = {
            name: fields[name] for name in ("words_read", "words_dropped", "replaced", "rules")
        }
        header |= {"words": fields["words"].tolist(), "counts": fields["counts"].tolist()}
        header |= {
            "checksums": [_checksum(fields["ids"]), _checksum(fields["pointers"])],
            "about": self.about,
        }
        header["seal"] = _seal(header)
        with replacing(self.file("json")) as part:
            Path(part).write_text(json.dumps(header), "utf-8")
        return self._mapped(header)

    def _mapped(self, header: dict[str, Any]) -> dict[str, Any]:
        if header.pop("seal") != _seal(header):
            raise ValueError("its list of words was changed")
        arrays = {}
        for kind, wanted in zip(("ids", "pointers"), header["checksums"]):
            arrays[kind] = _read(self.file(f"{kind}.npy"))
            if _checksum(arrays[kind]) != wanted:
                raise ValueError(f"{kind} do not match their checksum")
        more = {name: header[name] for name in ("words_read", "words_dropped", "replaced", "rules")}
        words, counts = titles(header["words"]), np.array(header["counts"], np.int64)
        return arrays | more | {"words": words, "counts": counts}

    def _again(self, why: str) -> None:
        warnings.warn(
            f"the cache {self.file('json')} {why}; the source is read again", stacklevel=4
        )


def _read(path: Path) -> np.ndarray:
    """Mapped so that a caller may write to its copy and never to the file."""
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    return np.asarray(array)


def _write(path: str, array: np.ndarray) -> None:
    with open(path, "wb") as out:
        np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
        out.flush()
        os.fsync(out.fileno())


def _checksum(array: np.ndarray) -> str:
    """Kind, size and CRC-32 of the bytes, read piece by piece."""
    code = 0
    for a in range(0, len(array), PIECE):
        code = zlib.crc32(np.ascontiguousarray(array[a : a + PIECE]).data, code)
    return f"{array.dtype.str} {array.shape} {code:08x}"


def _seal(header: dict[str, Any]) -> str:
    text = json.dumps(
        {name: value for name, value in header.items() if name != "seal"}, sort_keys=True
    )
    return f"{zlib.crc32(text.encode()):08x}"


def _files(source: Any) -> list[dict[str, Any]]:
    """Path, size and time of change of each file that would be read."""
    path = os.fspath(source)
    if os.path.isdir(path):
        found = sorted(
            str(f) for f in Path(path).rglob("*") if f.is_file() and _kind(f) in READABLE
        )
    elif os.path.exists(path) or not glob.has_magic(path):
        found = [path]
    else:
        found = sorted(f for f in glob.glob(path, recursive=True) if os.path.isfile(f))
    try:
        stats = [os.stat(file) for file in found]
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    return [
        {"path": os.path.abspath(file), "bytes": stat.st_size, "changed": stat.st_mtime_ns}
        for file, stat in zip(found, stats)
    ]


IN_MEMORY = 2**30
"""Bytes of numbers that stay in memory; more go to a temporary file."""


class SpillFile:
    """Sentences in the order in which they came.

    >>> with SpillFile() as spill:
    ...     spill.put(np.array([0, 1, 2], np.int32), np.array([2, 1]))
    ...     spill.put(np.array([1, 0], np.int32), np.array([1, 1]), np.array([False, True]))
    ...     [a.tolist() for a in spill.renumbered(np.array([1, 0, -1]), 4)]
    [[1, 0, 0, 1], [0, 2, 3, 4]]
    """

    def __init__(self, limit: int | None = None):
        self._limit = IN_MEMORY if limit is None else limit
        self._parts: list[np.ndarray] = []
        self._sizes: list[int] = []
        self._lengths: list[np.ndarray] = []
        self._begins: list[np.ndarray] = []
        self._held = 0
        self._file: BinaryIO | None = None
        self.sentences = 0

    def __enter__(self) -> SpillFile:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, ids: np.ndarray, lengths: np.ndarray, begins: np.ndarray | None = None) -> None:
        """Sentences one after another; where ``begins`` is False the words go on with the sentence
        before."""
        begins = np.ones(len(lengths), bool) if begins is None else begins
        self._lengths.append(lengths.astype(np.int64))
        self._begins.append(begins)
        self.sentences += int(begins.sum())
        self._sizes.append(len(ids))
        if self._file is not None:
            self._file.write(ids.tobytes())
            return
        self._parts.append(ids)
        self._held += ids.nbytes
        if self._held > self._limit:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            for part in self._parts:
                self._file.write(part.tobytes())
            self._parts = []

    def renumbered(
        self, table: np.ndarray, total: int, folder: Path | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """ids and pointers with number n changed to ``table[n]`` and taken out where that is
        negative; ``total`` are left.

        What was put aside is used up. In a file it stays there: the result is then a map of another
        temporary file (in ``folder``).
        """
        if self._file is None:
            out: np.ndarray = np.empty(total, np.int32)
        else:
            with tempfile.TemporaryFile(dir=folder) as place:
                out = np.memmap(place, np.int32, "w+", shape=max(total, 1))[:total]
        done, kept = 0, []
        for ids, lengths in zip(self._read(), self._lengths):
            at = table[ids]
            there = at >= 0
            ends = np.concatenate([[0], np.cumsum(there)])
            bounds = np.concatenate([[0], np.cumsum(lengths)])
            kept.append(np.diff(ends[bounds]))
            out[done : done + ends[-1]] = at[there]
            done += int(ends[-1])
        assert done == total
        sizes, begins = np.concatenate(kept), np.concatenate(self._begins)
        pointers = np.concatenate([(np.cumsum(sizes) - sizes)[begins], [total]]).astype(np.int64)
        return np.asarray(out), pointers

    def _read(self) -> Iterator[np.ndarray]:
        if self._file is None:
            self._parts.reverse()
            while self._parts:
                yield self._parts.pop()
            return
        self._file.seek(0)
        for size in self._sizes:
            yield np.frombuffer(self._file.read(4 * size), np.int32)
