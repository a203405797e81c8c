"""State of a long fit, kept in a file so that a killed run goes on where it was, with the same bits
as one that was not.

A file names the data by their content and the fit by all parameters that change its result, and
ends in a checksum of header and arrays: one of other data, of another fit, cut short or with a
changed bit is refused in words. Both checksums are read at about 1 GB/s a core, on all cores.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from eckart.clusters.clock import spent
from eckart.errors import FileError, invalid
from eckart.io.models.save import SEAL
from eckart.io.models.whole_files import atomic_write
from eckart.matrix import Dense, Matrix
from eckart.matrix_blocks import parts_of
from eckart.parameters import is_file_name
from eckart.trace import StopReason

LONG_SEED = 10_000
"""Bits of an int that Python writes without complaint (it refuses 4,300 digits, some 14,000 bits);
longer seeds are named in sixteens."""
LAYOUT = 7
"""Raised when the state that some solver keeps changes: an older file is then refused in words."""
UNRELATED = ("checkpoint", "n_threads", "verbose")
"""Parameters that do not change the result of a fit."""
SECONDS = 10.0
"""Between two writings of a state: little is lost, and even a large one costs a small share of the
time."""
SPARED = 20.0
"""Times as long as the last writing took until the next one: a large state costs a twentieth of the
fit, not more."""
BLOCK = 2**22
"""Bytes that one CRC-32 stands for: enough that a task is worth its dispatch, few enough for all
cores."""


class Checkpoint:
    """One .safetensors file, written at most every ``seconds`` (None: ``SECONDS``; 0: whenever a
    state is offered) and removed when the pass is complete.

    ``about`` describes data and options; a file about something else, or with another layout of the
    state, is refused, never used.
    """

    ending = False
    """Whether this process was asked to stop: the next state that is offered is then written
    whatever the time, and the fit interrupted."""

    def __init__(self, path: Any, about: dict[str, Any], seconds: float | None = None):
        if not is_file_name(path):
            raise invalid("checkpoint", path, "None or the name of a file")
        # another version may take other steps: no promise of the same bits
        version = vars(sys.modules["eckart"])["__version__"]
        about = {"layout": LAYOUT, "eckart": version, **about}
        self.path, self.about, self.seconds = (
            Path(path),
            json.loads(json.dumps(about)),
            SECONDS if seconds is None else seconds,
        )
        self._last, self._took = time.perf_counter(), 0.0
        self._began, self._before = spent(), 0.0
        if not self.path.parent.is_dir():
            raise FileError(f"{self.path.parent} is not a folder; make it first")

    @classmethod
    def of_fit(
        cls,
        model: Any,
        x: Matrix,
        weights: Any = None,
        *,
        ignored: tuple[str, ...] = (),
        y: Any = None,
    ) -> Checkpoint | None:
        """The file of an estimator's ``checkpoint`` parameter, about its fit to these data; None
        where none was asked for.

        ``ignored``: parameters that may differ in the fit that resumes, besides the file's name,
        the threads and the progress bars.
        """
        if model.checkpoint is None:
            return None
        about = {"model": type(model).__name__} | parameters_of(model, ignored)
        earlier = vars(model).get("fit_") if getattr(model, "warm_start", False) else None
        if earlier is not None and earlier.trace.reason is not StopReason.INTERRUPTED:
            # one that was interrupted is what the file is about
            about["start"] = digest(*earlier.factors.to_state()[0].values())
        return cls(model.checkpoint, about_rows(x, about, weights, y))

    @classmethod
    def of_parts(
        cls, model: Any, parts: Callable[[], Iterable[Any]], *, ignored: tuple[str, ...] = ()
    ) -> Checkpoint | None:
        """The same for data that are no matrix: ``parts()`` gives the arrays that they consist
        of."""
        if model.checkpoint is None:
            return None
        about = {"model": type(model).__name__} | parameters_of(model, ignored)
        return cls(model.checkpoint, about | {"data": digest(*parts())})

    @classmethod
    def of_call(
        cls,
        path: Any,
        name: str,
        x: Matrix,
        options: dict[str, Any],
        weights: Any = None,
        *,
        seconds: float | None = None,
    ) -> Checkpoint | None:
        """The file of a function's ``checkpoint`` argument, about its call with these data and
        options."""
        if path is None:
            return None
        option_words = {option: _in_words(value) for option, value in options.items()}
        return cls(path, about_rows(x, {"function": name, **option_words}, weights), seconds)

    def load(self) -> dict[str, np.ndarray] | None:
        """The arrays that were kept, or None where there is no file yet."""
        from safetensors import safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, "np") as file:
                text = (file.metadata() or {})["checkpoint"]
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if text != _sealed(arrays, text[:-SEAL] + "}"):
                raise ValueError("its checksum does not match its content")
            header = json.loads(text)
            about = dict(header["about"])
            # an older layout is refused below, by name
            self._before = float(header.get("spent", 0.0))
        except Exception as error:  # whatever damage does to a file: it is not what was written
            raise FileError(
                f"{self.path} is not a complete checkpoint ({error}); delete it to start over"
            ) from None
        for name in self.about | about:
            if about.get(name) != self.about.get(name):
                came, wanted = about.get(name), self.about.get(name)
                why = (
                    "its data have another content"
                    if name == "data"
                    else f"{name} must be {wanted!r}, got {came!r}"
                )
                raise FileError(
                    f"{self.path} is a checkpoint of other work ({why}); delete it to start over"
                )
        return arrays

    def due(self) -> bool:
        """Is the last time of writing (or the start) long enough ago?"""
        wait = max(self.seconds, SPARED * self._took) if self.seconds else 0.0
        return Checkpoint.ending or time.perf_counter() - self._last >= wait

    def save(self, arrays: dict[str, np.ndarray]) -> None:
        """Keep a state, if the last time is long enough ago."""
        from safetensors.numpy import save

        if not self.due():
            return
        began = time.perf_counter()
        kept = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
        text = _sealed(
            kept, json.dumps({"about": self.about, "spent": self._before + spent() - self._began})
        )
        atomic_write(self.path, save(kept, metadata={"checkpoint": text}))
        self._last = time.perf_counter()
        self._took = self._last - began
        if Checkpoint.ending:
            Checkpoint.ending = False
            raise KeyboardInterrupt

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def spent_in(path: Any) -> float:
    """Seconds (see ``clusters.clock``) that the work kept in a checkpoint took; 0 where there is
    none. A damaged file is left to the fit that it belongs to, which refuses it in words."""
    from safetensors import safe_open

    if path is None or not os.path.exists(path):
        return 0.0
    try:
        with safe_open(path, "np") as file:
            return float(json.loads(file.metadata()["checkpoint"])["spent"])
    except Exception:  # whatever damage does to a file
        return 0.0


def _sealed(arrays: dict[str, np.ndarray], text: str) -> str:
    """The JSON header with a checksum of its own text and of the arrays as its last member."""
    names = sorted(arrays)
    found = hashlib.sha256(
        f"{text} {names} {digest(*(arrays[name] for name in names))}".encode(
            "utf-8", "surrogatepass"
        )
    )
    return f'{text[:-1]}, "checksum": "{found.hexdigest()}"}}'


def digest(*parts: Any) -> str:
    """SHA-256 of the kinds, shapes and contents of arrays (each 4 MiB by their CRC-32, on all
    cores); None is distinguished from an array.

    >>> digest(np.arange(3.0)) == digest(np.arange(3.0)) != digest(np.arange(3.0), None)
    True
    """
    found = hashlib.sha256()
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for part in parts:
            if part is None:
                found.update(b"None")
                continue
            a = np.atleast_1d(np.asarray(part))
            found.update(f"{a.dtype.str} {np.shape(part)}".encode())
            if a.dtype.hasobject:
                found.update(repr(a.tolist()).encode("utf-8", "surrogatepass"))
            elif a.size:
                found.update(np.fromiter(pool.map(_crc, _pieces(a)), np.uint32).tobytes())
    return found.hexdigest()


def _pieces(a: np.ndarray) -> list[np.ndarray]:
    step = max(1, BLOCK // max(1, a.nbytes // len(a)))
    return [a[i : i + step] for i in range(0, len(a), step)]


def _crc(a: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)


def checksum(*parts: np.ndarray | None) -> int:
    """CRC-32 of the bytes of arrays, one after another; None is passed over.

    >>> checksum(np.arange(3)) == checksum(None, np.arange(3)) != checksum(np.arange(4))
    True
    """
    found = 0
    for part in parts:
        found = found if part is None else zlib.crc32(np.ascontiguousarray(part).data, found)
    return found


def about_rows(
    matrix: Matrix, options: dict[str, Any], weights: Any = None, y: Any = None
) -> dict[str, Any]:
    """What identifies a fit: shape, precision, options, and the content of the data, weights and
    answers included."""
    about = {
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
        "dtype": matrix.dtype.name,
        **options,
    }
    return about | {"data": digest(*contents(matrix), weights, y)}


def contents(matrix: Matrix) -> Iterator[np.ndarray]:
    """The arrays that a matrix consists of; the bytes of the files that it is read from; blocks in
    memory. Of an iterator that can be read once only its first block is known before the pass."""
    token = getattr(parts_of(matrix), "token", None)
    if token is not None:
        yield np.frombuffer(token.encode(), np.uint8)
        return
    if not isinstance(matrix, Dense):
        yield from (matrix.indptr, matrix.indices, matrix.data)
        return
    stream: Any = matrix.values
    parts = [part.values for part in getattr(stream, "parts", ())] or [stream]
    for part in parts:
        if isinstance(part, np.ndarray):
            yield part
        elif getattr(part, "files", None):
            yield np.asarray(part.names)
            yield from (np.memmap(file, np.uint8, "r") for file in part.files)
        elif part.rereadable:
            yield from part.blocks(2**16)
        elif hasattr(part, "_first"):
            yield part._first


def parameters_of(model: Any, ignored: tuple[str, ...] = ()) -> dict[str, str]:
    """Parameters that change the result of a fit, in words: arrays and generators by their content,
    engines and functions by their names."""
    others = {*UNRELATED, *ignored}
    return {
        name: _in_words(value) for name, value in model.get_params().items() if name not in others
    }


def _in_words(value: Any) -> str:
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return digest(*(np.asarray(part) for part in value.get_state(legacy=True)))
    if hasattr(value, "to_numpy") or isinstance(value, np.ndarray):
        return digest(value.to_numpy() if hasattr(value, "to_numpy") else value)
    if hasattr(value, "tocsr"):
        rows = value.tocsr()
        return digest(rows.indptr, rows.indices, rows.data)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_in_words, value))}]"
    if isinstance(value, dict):
        return str({str(key): _in_words(part) for key, part in value.items()})
    name = getattr(value, "__qualname__", None) or (
        getattr(value, "name", None) if hasattr(value, "put") else None
    )
    if isinstance(value, int) and value.bit_length() > LONG_SEED:
        return hex(value)
    return str(value if name is None else name)
