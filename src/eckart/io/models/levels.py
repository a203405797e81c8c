"""Where a solver stands, kept in a file, so that a killed fit goes on with the same bits as one
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
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import EckartError, FileError
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.pack import kept_trace, like, pack, resumed_trace, unpack
from eckart.matrix import Matrix
from eckart.rng import generator
from eckart.trace import StopReason, Trace

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
