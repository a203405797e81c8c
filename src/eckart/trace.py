"""The history of a fit: what fell, how fast, why it stopped; and the one way to watch it run."""

from __future__ import annotations

import enum
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


class StopReason(enum.Enum):
    """Why a loop ended."""

    DIRECT = "solved directly, no iteration"
    CONVERGED = "the stopping rule was met"
    STALLED = "no further progress is possible at this precision"
    MAX_ITER = "the iteration limit was reached first"
    DIVERGED = "the loss was no longer finite; the last good weights were kept"
    INTERRUPTED = "interrupted by the user; the best state so far was kept"


@dataclass
class Trace:
    """Rows of ``(iteration, value, seconds)`` for one named quantity, and the reason to stop.

    >>> t = Trace("objective")
    >>> t.add(3.0); t.add(1.0)
    >>> t.values, len(t)
    ([3.0, 1.0], 2)
    """

    quantity: str
    values: list[float] = field(default_factory=list, repr=False)
    seconds: list[float] = field(default_factory=list, repr=False)
    reason: StopReason = StopReason.DIRECT
    note: str = ""
    _start: float = field(default_factory=time.perf_counter, repr=False)

    def add(self, value: float) -> None:
        self.values.append(float(value))
        self.seconds.append(time.perf_counter() - self._start)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def converged(self) -> bool:
        return self.reason in (StopReason.DIRECT, StopReason.CONVERGED)

    def to_dict(self) -> dict[str, Any]:
        return {
            "quantity": self.quantity,
            "values": self.values,
            "seconds": [round(s, 6) for s in self.seconds],
            "reason": self.reason.name,
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Trace:
        return cls(d["quantity"], list(d["values"]), list(d["seconds"]), StopReason[d["reason"]], d.get("note", ""))


Watcher = Callable[[str, float, float | None], None]
"""``watcher(stage, done, total)``: called between blocks or iterations; total is None when unknown."""


def silent(stage: str, done: float, total: float | None) -> None:
    """The watcher that does nothing."""


def say(stage: str, done: float, total: float | None) -> None:
    """The watcher that prints.

    >>> say("EM", 3, 100)
    EM: 3 of 100
    """
    print(f"{stage}: {done:,.0f}" + ("" if total is None else f" of {total:,.0f}"), flush=True)


@contextmanager
def progress(show: bool) -> Iterator[Watcher]:
    """A watcher for ``verbose=``: bars on standard error where that is a terminal, else one line a step on standard output, where the lines of
    scikit-learn and of ``print`` go (notebooks, logs, pipes). Silent unless ``show``."""
    if not show:
        yield silent
        return
    if not sys.stderr.isatty():
        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def watch(stage: str, done: float, total: float | None) -> None:
            name = stage.split(",", 1)[0]  # what follows a comma changes from step to step
            if name not in tasks:
                tasks[name] = bars.add_task(stage, total=total)
            bars.update(tasks[name], completed=done, total=total, description=stage)

        yield watch
