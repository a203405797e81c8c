"""Work in named steps, such as a comparison of several models: a run that was killed goes on behind
the last step that it had done.

A step ends in plain values (numbers, texts, arrays, lists and dicts of them). They are kept in one
file until all work is complete, together with the time that was spent. A decision that hangs on
time is a step, too: once taken it is never taken again, so that a resumed run decides as the killed
one did. A long fit inside a step has a checkpoint of its own, in another file; the time that its
kept part took counts, and what was lost does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eckart.clusters.clock import spent
from eckart.io.models.checkpoint import Checkpoint, spent_in
from eckart.io.models.levels import NOTHING, Memory, resumed
from eckart.io.models.pack import pack, unpack
from eckart.matrix import Matrix
from eckart.trace import Trace


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
