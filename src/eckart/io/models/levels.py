"""Where a solver stands, kept in a file, so that a killed fit goes on with the same bits as one that was not.

A solver is a loop that calls further loops. Each is a level of a ``Memory``. At the head of an iteration a loop offers its state, and the file gets the
states of all levels from the outermost to this one, with that of the random generator. In a resumed fit every level takes its state back and enters the
next one, until the innermost goes on from the iteration that was kept. What lies between two heads, such as a partial SVD, is done again.

A level keeps what the levels inside it do not. The present point is kept once, by the outermost level that has one, and handed inwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.pack import pack, resumed_trace, unpack

__all__ = ["NOTHING", "Memory", "generator_at", "pack", "resumed_trace", "unpack"]


class Memory:
    """One level: the state in which a killed run left it, and the place to offer the present one. Without a file nothing is kept.

    States are nested lists, tuples and dicts of arrays, numbers, texts and None, in which a function stands for what it returns at the time of writing.
    """

    def __init__(self, file: Checkpoint | None = None, outer: tuple[Any, ...] = (), kept: list[Any] | None = None):
        self._file, self._outer, self._kept = file, outer, kept or []

    @classmethod
    def of(cls, file: Checkpoint | None, rng: np.random.Generator) -> Memory:
        """The outermost level; ``rng`` is put where it was when the file was written."""
        found = None if file is None else file.load()
        if file is None or found is None:
            return cls(file, (lambda: rng.bit_generator.state,))
        try:
            drawn, *kept = unpack(found[1])
            rng.bit_generator.state = drawn
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{file.path} is not a complete checkpoint ({error!r}); delete it to start over") from None
        return cls(file, (lambda: rng.bit_generator.state,), kept)

    def last(self) -> Any:
        """The state of this level in the run that was killed, or None; tuples come back as lists."""
        return self._kept[0] if self._kept else None

    def offer(self, state: Any) -> None:
        """The state at the head of an iteration; it is written where the last writing is long enough ago."""
        if self._file is not None and self._file.due():
            self._file.save(0, pack([*self._outer, state]))

    def inner(self, state: Any) -> Memory:
        """The level of a loop that is called from here, where this level stands at ``state``. Only the first one resumes."""
        if self._file is None:
            return self
        rest, self._kept = self._kept[1:], []
        return Memory(self._file, (*self._outer, state), rest)


NOTHING = Memory()
"""The memory that keeps nothing."""


def generator_at(rng: np.random.Generator, state: Any) -> np.random.Generator:
    """Another generator of the same kind, in a state that ``rng`` once had."""
    other = np.random.Generator(type(rng.bit_generator)())
    other.bit_generator.state = state
    return other
