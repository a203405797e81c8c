"""The history of a fit: what fell, how fast, why it stopped; and the one way to watch it run."""

from __future__ import annotations

import enum
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from eckart.notebook import Line, curve, in_notebook, table


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
    interrupt_reported: bool = field(default=False, repr=False, compare=False)
    _start: float = field(default_factory=time.perf_counter, repr=False)

    def add(self, value: float) -> None:
        self.values.append(float(value))
        self.seconds.append(time.perf_counter() - self._start)
        if _Listening.listener is not None:
            _Listening.listener.value(self)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def converged(self) -> bool:
        return self.reason in (StopReason.DIRECT, StopReason.CONVERGED)

    def _repr_html_(self) -> str:
        first, last = (self.values[0], self.values[-1]) if self.values else ("", "")
        row = (self.quantity, len(self), first, last, curve(self.values), self.reason.value)
        return table(
            ("quantity", "steps", "first", "last", "", "stopped because"), [row], self.note
        )

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
        return cls(
            d["quantity"],
            list(d["values"]),
            list(d["seconds"]),
            StopReason[d["reason"]],
            d.get("note", ""),
        )


Watcher = Callable[[str, float, float | None], None]
"""``watcher(stage, done, total)``: called between blocks or iterations; total is None when
unknown."""


class Listener(Protocol):
    """Another process that shows a fit: it receives every stage and every value of a trace, and may
    ask to stop."""

    def stage(self, stage: str, done: float, total: float | None) -> None: ...

    def value(self, trace: Trace) -> None: ...

    def stopping(self) -> bool: ...


class _Listening:
    """Who listens, and whether the work that goes on is a step towards the answer, not the answer
    itself."""

    listener: Listener | None = None
    preliminary = False


@contextmanager
def use_listener(listener: Listener) -> Iterator[None]:
    """All fits of this process report to ``listener`` meanwhile."""
    count = 0

    def compiling(name: str) -> None:
        nonlocal count
        count += 1
        listener.stage("compiling, once on this machine", count, None)

    with report_compiling(compiling):
        _Listening.listener = listener
        try:
            yield
        finally:
            _Listening.listener = None


def has_listener() -> bool:
    """Whether someone listens."""
    return _Listening.listener is not None


@contextmanager
def preliminary() -> Iterator[None]:
    """Fits whose models are not the answer: candidates, measurements on held-out entries. An
    interrupt ends one of them with its best state; a listener that asked to stop wants no other to
    begin, so where it did the interrupt is raised again."""
    before, _Listening.preliminary = _Listening.preliminary, True
    try:
        yield
        _end_if_stopping()
    finally:
        _Listening.preliminary = before


def _end_if_stopping() -> None:
    if (
        _Listening.preliminary
        and _Listening.listener is not None
        and _Listening.listener.stopping()
    ):
        raise KeyboardInterrupt


def is_preliminary() -> bool:
    """Whether the work that goes on is a step towards the answer."""
    return _Listening.preliminary


def silent(stage: str, done: float, total: float | None) -> None:
    """The watcher that does nothing."""


def say(stage: str, done: float, total: float | None) -> None:
    """The watcher that prints.

    >>> say("EM", 3, 100)
    EM: 3 of 100
    """
    print(f"{stage}: {done:,.0f}" + ("" if total is None else f" of {total:,.0f}"), flush=True)


LOG = logging.getLogger("eckart")


@contextmanager
def _one_line() -> Iterator[Watcher]:
    """A watcher for notebooks: one line that says where the fit is, and in the end where it was
    last."""
    line = Line()

    def watch(stage: str, done: float, total: float | None) -> None:
        line.say(f"{stage}: {done:,.0f}" + ("" if total is None else f" of {total:,.0f}"))

    try:
        yield watch
    finally:
        if line.words:
            line.say(line.words, last=True)


def _logged() -> Watcher:
    """A watcher that tells the log when a stage begins."""
    started: set[str] = set()

    def watch(stage: str, done: float, total: float | None) -> None:
        if stage not in started:
            started.add(stage)
            LOG.debug("%s begins", stage)

    return watch


class _Display:
    """Progress bars on standard error: from the first moment a line says what is going on, also
    while kernels are compiled."""

    open: _Display | None = None

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.bars = Progress(*columns, console=Console(stderr=True), transient=True)
        self.tasks: dict[str, Any] = {}
        self.logged = _logged()
        self.compiled = 0

    def watch(self, stage: str, done: float, total: float | None) -> None:
        name = stage.split(",", 1)[0]  # what follows a comma may change from step to step
        self.logged(name, done, total)
        if name not in self.tasks:
            if (waiting := self.tasks.pop("", None)) is not None:
                self.bars.remove_task(waiting)
            self.tasks[name] = self.bars.add_task(stage, total=total)
        self.bars.update(self.tasks[name], completed=done, total=total, description=stage)

    def compiling(self, name: str) -> None:
        """A kernel is being compiled: said by name, and counted."""
        self.compiled += 1
        LOG.debug("compiling %s, once on this machine", name)
        self.watch("compiling, once on this machine", self.compiled, None)

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self.bars, report_compiling(self.compiling):
            self.tasks[""] = self.bars.add_task("getting ready", total=None)
            _Display.open = self
            try:
                yield
            finally:
                _Display.open = None


@contextmanager
def report_compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """Call ``tell`` with the name of every kernel that numba compiles meanwhile; what its cache has
    is not compiled."""
    from numba.core import event

    class CompilerListener(event.Listener):
        def on_start(self, event: Any) -> None:
            tell(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event: Any) -> None:
            pass

    listener = CompilerListener()
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)


@contextmanager
def progress(show: bool) -> Iterator[Watcher]:
    """A watcher for ``verbose=``: bars on standard error where that is a terminal, one line that is
    written anew in a notebook, else one line a step on standard output, where the lines of
    scikit-learn and of ``print`` go (logs, pipes). Unless ``show``, only the log is written. Inside a
    display that is open already, its bars are joined to it. A listener receives all of it
    instead."""
    _end_if_stopping()
    if _Listening.listener is not None:
        yield _Listening.listener.stage
    elif not show:
        yield _logged() if LOG.isEnabledFor(logging.DEBUG) else silent
    elif _Display.open is not None:
        yield _Display.open.watch
    elif in_notebook():
        with _one_line() as watch:
            yield watch
    elif not sys.stderr.isatty():
        yield say
    else:
        display = _Display()
        with display.shown():
            yield display.watch
