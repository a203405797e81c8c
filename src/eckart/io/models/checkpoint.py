"""State of a long fit, kept in a file so that a killed run goes on where it was, with the same bits
as one that was not.

A file names the data by their content and the fit by all parameters that change its result, and
ends in a checksum of header and arrays: one of other data, of another fit, cut short or with a
changed bit is refused in words. Both checksums are read at about 1 GB/s a core, on all cores.

Where a solver stands, kept in a file, so that a killed fit goes on with the same bits as one
that was not.

A solver is a loop that calls further loops. Each is a level of a ``Memory``. At the head of an
iteration a loop offers its state, and the file gets the states of all levels from the outermost to
this one, with that of the random generator. In a resumed fit every level takes its state back and
enters the next one, until the innermost goes on from the iteration that was kept. What lies between
two heads, such as a partial SVD, is done again.

A level keeps what the levels inside it do not. The present point is kept once, by the outermost
level that has one, and handed inwards. What a solver prepares before its loops is prepared again,
with the same draws: the generator starts as in the killed run, and is put where it was when the
innermost level takes its state.

Work in named steps, such as a comparison of several models: a run that was killed goes on behind
the last step that it had done.

A step ends in plain values (numbers, texts, arrays, lists and dicts of them). They are kept in one
file until all work is complete, together with the time that was spent. A decision that hangs on
time is a step, too: once taken it is never taken again, so that a resumed run decides as the killed
one did. A long fit inside a step has a checkpoint of its own, in another file; the time that its
kept part took counts, and what was lost does not.
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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eckart.clusters.client import spent
from eckart.errors import EckartError, FileError, invalid
from eckart.io.models.header_checks import kept_trace, like, pack, resumed_trace, unpack
from eckart.io.models.save import SEAL
from eckart.io.models.whole_files import atomic_write
from eckart.matrix import Dense, Matrix
from eckart.matrix_blocks import parts_of
from eckart.parameters import is_file_name
from eckart.rng import generator
from eckart.trace import StopReason, Trace

LONG_SEED = 10_000
"""Bits of an int that Python writes without complaint (it refuses 4,300 digits, some 14,000 bits);
longer seeds are named in sixteens."""
LAYOUT = 8
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
                got, rule = about.get(name), self.about.get(name)
                why = (
                    "its data have another content"
                    if name == "data"
                    else f"{name} must be {rule!r}, got {got!r}"
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


__all__ = [
    "NOTHING",
    "Memory",
    "PassKeeper",
    "generator_at",
    "kept_trace",
    "like",
    "pack",
    "resumed_trace",
    "resuming",
    "unpack",
]


@dataclass
class _Draws:
    """The generator of a fit, the entropy that it was made of where the user gave no seed, and
    where it was in the killed run."""

    rng: np.random.Generator
    entropy: int | None = None
    killed: Any = None
    offered: bool = False

    def state(self) -> dict[str, Any]:
        return {
            "entropy": None if self.entropy is None else str(self.entropy),
            "state": self.rng.bit_generator.state,
        }

    def resume(self) -> None:
        """Once: the innermost level goes on from here."""
        if self.killed is not None:
            self.rng.bit_generator.state, self.killed = self.killed, None


class Memory:
    """One level: the state in which a killed run left it, and the place to offer the present one.
    Without a file nothing is kept.

    States are nested lists, tuples, dicts and records of arrays, numbers, texts and None, in which
    a function stands for what it returns at the time of writing.
    """

    def __init__(
        self,
        file: Checkpoint | None = None,
        outer: tuple[Any, ...] = (),
        kept: list[Any] | None = None,
        draws: _Draws | None = None,
    ):
        self._file, self._outer, self._kept, self._draws = file, outer, kept or [], draws

    @classmethod
    def of(
        cls, file: Checkpoint | None, rng: np.random.Generator, entropy: int | None = None
    ) -> Memory:
        """The outermost level; ``rng`` is put where it was when the file was written as soon as the
        innermost level takes its state."""
        draws = _Draws(rng, entropy)
        found = None if file is None else file.load()
        if file is None or found is None:
            return cls(file, (draws.state,), None, draws)
        with refused(file):
            unpacked, *kept = unpack(found)
            draws.killed = unpacked["state"]
            generator_at(rng, draws.killed)
        return cls(file, (draws.state,), kept, draws)

    def last(self) -> Any:
        """The state of this level in the run that was killed, or None; tuples come back as lists,
        records as dicts (see ``like``)."""
        if len(self._kept) == 1 and self._draws is not None:
            self._draws.resume()
        return self._kept[0] if self._kept else None

    def offer(self, state: Any) -> None:
        """The state at the head of an iteration; it is written where the last writing is long
        enough ago."""
        if self._file is None:
            return
        if self._draws is not None:
            self._draws.offered = True
        if self._file.due():
            self._file.save(pack([*self._outer, state]))

    def inner(self, state: Any) -> Memory:
        """The level of a loop that is called from here, where this level stands at ``state``. Only
        the first one resumes."""
        if self._file is None:
            return self
        rest, self._kept = self._kept[1:], []
        return Memory(self._file, (*self._outer, state), rest, self._draws)

    def keeper(self) -> PassKeeper | None:
        """For a pass over blocks of rows; None where nothing is kept, so that engines need not stop
        for it."""
        return None if self._file is None else PassKeeper(self)

    def end(self, trace: Trace | None = None) -> None:
        """The fit is complete: its file is removed, unless it was interrupted and can go on."""
        if self._file is not None and (trace is None or trace.reason is not StopReason.INTERRUPTED):
            self._file.remove()


NOTHING = Memory()
"""The memory that keeps nothing."""


@dataclass(frozen=True)
class PassKeeper:
    """A level as what one pass over blocks of rows asks for (``engines.protocol.Keeper``): blocks
    done and arrays."""

    memory: Memory

    def load(self) -> tuple[int, dict[str, np.ndarray]] | None:
        kept = self.memory.last()
        return None if kept is None else (int(kept["done"]), dict(kept["arrays"]))

    def save(self, done: int, arrays: dict[str, np.ndarray]) -> None:
        self.memory.offer({"done": done, "arrays": arrays})


@contextmanager
def resuming(
    model: Any, x: Matrix, weights: Any = None, *, ignored: tuple[str, ...] = (), y: Any = None
) -> Iterator[tuple[Memory, np.random.Generator]]:
    """The memory of an estimator's fit to these data and its generator; a state of another shape
    than the solver's is refused in words.

    A fit without a seed goes on with the entropy of the one that was killed, so that what is
    prepared again is the same.
    """
    file = Checkpoint.of_fit(model, x, weights, ignored=ignored, y=y)
    with resumed(file, model.random_state) as both:
        yield both


@contextmanager
def resumed(
    file: Checkpoint | None, random_state: Any
) -> Iterator[tuple[Memory, np.random.Generator]]:
    """The memory in a file, and the generator of a seed."""
    if file is None:
        yield NOTHING, generator(random_state)
        return
    entropy = None
    if random_state is None:
        found = file.load()
        with refused(file):
            kept = None if found is None else unpack(found)[0]["entropy"]
            entropy = (
                int(kept)
                if kept is not None
                else int(np.random.SeedSequence().generate_state(2, np.uint64)[0])
            )
    memory = Memory.of(
        file, rng := generator(random_state if entropy is None else entropy), entropy
    )
    with refused(file, memory):
        yield memory, rng


@contextmanager
def refused(file: Checkpoint, memory: Memory | None = None) -> Iterator[None]:
    """Errors of a state that is not of the shape that was looked for, in words: those until a
    resumed loop has come to its first head."""
    draws = None if memory is None else memory._draws
    knows = memory is None or bool(memory._kept)
    try:
        yield
    except EckartError:
        raise
    except (
        AttributeError,
        IndexError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
        ArithmeticError,
    ) as error:
        if not knows or (draws is not None and draws.offered):
            raise
        raise FileError(
            f"{file.path} is not a complete checkpoint ({type(error).__name__}: "
            f"{error}); delete it to start over"
        ) from error


def generator_at(rng: np.random.Generator, state: Any) -> np.random.Generator:
    """Another generator of the same kind, in a state that ``rng`` once had."""
    other = np.random.Generator(type(rng.bit_generator)())
    other.bit_generator.state = state
    return other


class Steps:
    """What each step has found. Without a file nothing is kept.

    >>> steps = Steps()
    >>> steps.take("sum", lambda: (1 + 1, "one and one")), steps.take("sum", lambda: None)
    ([2, 'one and one'], [2, 'one and one'])
    """

    def __init__(self, memory: Memory = NOTHING):
        self._memory, kept = memory, memory.last()
        self._done: dict[str, Any] = {} if kept is None else dict(kept["done"])
        self._before = 0.0 if kept is None else float(kept["spent"])
        self._began = spent()

    @property
    def spent(self) -> float:
        """Seconds of work (see ``clusters.clock``) since the first run began; those that a killed
        run spent on what it did not keep are left out."""
        return self._before + spent() - self._began

    def take(self, name: str, work: Callable[[], Any], fit: Any = None) -> Any:
        """What ``work`` returns, from this run or a killed one; lists and dicts in both cases,
        whatever records it returned. ``fit`` is the checkpoint of a fit inside the step, which may
        be there already."""
        if name not in self._done:
            self.keep()
            self._before += spent_in(fit)
            self._done[name] = unpack(pack(work()))
            self.keep()
        return self._done[name]

    def forget(self, name: str) -> None:
        """A step that is to be done again, since an interrupt cut its work short."""
        self._done.pop(name, None)
        self.keep()

    def keep(self) -> None:
        """Write what is done. From here on the values of a killed run are in use: errors are those
        of the work, not of its file."""
        self._memory.offer({"done": self._done, "spent": self.spent})

    def end(self, trace: Trace | None = None) -> None:
        """All work is complete: the file is removed, unless the last fit was interrupted and can go
        on."""
        self._memory.end(trace)


@contextmanager
def steps_in(
    path: Any, name: str, x: Matrix, options: dict[str, Any], weights: Any = None
) -> Iterator[Steps]:
    """The steps of the work of this name on these data with these options, kept in the file; None
    keeps nothing. A file of other work, or one that is damaged, is refused in words."""
    # written at every step: they are few
    file = Checkpoint.of_call(path, name, x, options, weights, seconds=0.0)
    with resumed(file, 0) as (memory, _):
        yield Steps(memory)
