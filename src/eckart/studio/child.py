"""A job: one command of the shell in a process of its own, which tells what it does and can be
asked to stop.

Events are lines of JSON on standard output. Standard input ends it: a line "stop", or its end
because the studio is gone, asks to stop. The state that the fit offers next is then kept in its
checkpoint and the fit interrupted; one that offers none within ``PATIENCE`` seconds is interrupted
where it is. Methods that have a best state so far end with it and their files are written; else the
command ends with the exit code of an interrupt.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import threading
import time
from typing import Any

PATIENCE = 2.0
"""Seconds until a fit that offers no state is interrupted: long enough for most iterations, short
enough for one who waits."""
EVERY = 0.1
"""Seconds between two events of one kind: more would not be seen."""


class EventWriter:
    """The listener of the fits of this process."""

    def __init__(self, out: Any):
        self.out, self.lock = out, threading.Lock()
        self.stop = threading.Event()
        self.trace: Any = None
        self.fit = 0
        self.points: list[list[float]] = []
        self.said: dict[str, float] = {}
        self.name = ""
        self.fitted = False

    def tell(self, event: str, **more: Any) -> None:
        with self.lock, contextlib.suppress(OSError, ValueError):  # the studio may be gone
            self.out.write(json.dumps({"event": event} | more) + "\n")
            self.out.flush()

    def stage(self, stage: str, done: float, total: float | None) -> None:
        name, new = stage.split(",", 1)[0], False
        if name != self.name:
            self.name, new = name, True
        if new or done == total or self._due("stage"):
            self.tell("phase", phase=stage, done=done, total=total)

    def value(self, trace: Any) -> None:
        if trace is not self.trace:
            self.flush()
            self.trace, self.fit = trace, self.fit + 1
            earlier = range(len(trace) - 1)  # of a fit that goes on where it was stopped
            self.points = [[i + 1, trace.values[i], trace.seconds[i]] for i in earlier]
        self.points.append([len(trace), trace.values[-1], round(trace.seconds[-1], 4)])
        if self._due("value"):
            self.flush()

    def flush(self) -> None:
        if self.points:
            finite = [p for p in self.points if abs(p[1]) < float("inf")]
            self.tell("objective", fit=self.fit, quantity=self.trace.quantity, points=finite)
            self.points = []

    def stopping(self) -> bool:
        return self.stop.is_set()

    def _due(self, kind: str) -> bool:
        now = time.monotonic()
        if now - self.said.get(kind, 0.0) < EVERY:
            return False
        self.said[kind] = now
        return True

    def listen_for_stop(self, given: Any) -> None:
        """Wait for the word (in a thread of its own)."""
        import _thread

        from eckart.io.models.checkpoint import Checkpoint

        with contextlib.suppress(OSError, ValueError):
            for line in given:
                if line.strip() == b"stop":
                    break
        self.stop.set()
        Checkpoint.ending = True
        time.sleep(PATIENCE)
        # no state was offered; what is found already is written to its end
        if Checkpoint.ending and not self.fitted:
            Checkpoint.ending = False
            _thread.interrupt_main()


class _Said(logging.Handler):
    """Lines of the summary and notes, as events."""

    def __init__(self, events: EventWriter):
        super().__init__(logging.INFO)
        self.events = events

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self.events.tell("note", text=record.getMessage())
        elif record.msg == "%-10s %s" and isinstance(record.args, tuple):
            self.events.fitted |= record.args[0] == "evidence"
            self.events.tell("say", name=str(record.args[0]), words=str(record.args[1]))


def main(words: list[str]) -> int:
    """Run a command of the shell; the last event tells how it ended."""
    events = EventWriter(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # what kernels print is no event
    answer, problems = io.StringIO(), io.StringIO()
    sys.stdout, sys.stderr = answer, problems
    events.tell("phase", phase="getting ready", done=0, total=None)
    from eckart.cli import main as shell
    from eckart.trace import use_listener

    threading.Thread(target=events.listen_for_stop, args=(sys.stdin.buffer,), daemon=True).start()
    logging.getLogger("eckart").addHandler(_Said(events))
    sys.argv = ["eckart", *words]
    code = 1
    try:
        with use_listener(events):
            shell.run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        code = 130
    events.flush()
    events.tell(
        "end",
        code=code,
        answer=_object(answer.getvalue()),
        error=_error(problems.getvalue()),
        peak=_peak(),
    )
    return code


def _object(text: str) -> Any:
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None


def _error(text: str) -> str | None:
    lines = [line for line in text.splitlines() if line.startswith("eckart: error: ")]
    return lines[-1].removeprefix("eckart: error: ") if lines else None


def _peak() -> int | None:
    """The most memory that this process held, in bytes."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (
        1 if sys.platform == "darwin" else 1024
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
