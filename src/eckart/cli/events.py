"""What a running command reports to another program: JSON lines on standard output (``--events``).

    {"event": "phase", "phase": "sweeps", "done": 3, "total": 50}
    {"event": "objective", "fit": 1, "quantity": "objective", "points": [[step, value, seconds], ...]}
    {"event": "say", "name": "rank", "words": "8: ..."}        a line of the summary
    {"event": "note", "text": "..."}                           what the person should know
    {"event": "end", "code": 0, "answer": {...}, "error": null, "peak": 181993472}

``answer`` is the object of ``--json``, ``peak`` the most memory in bytes. With ``--stop-with-input``
a line "stop" on standard input, or its end because the other program is gone, asks to stop. The
state that the fit offers next is then kept in its checkpoint and the fit interrupted; one that
offers none within ``PATIENCE`` seconds is interrupted where it is. Methods that have a best state so
far end with it and their files are written; else the command ends with the exit code of an
interrupt.
"""

from __future__ import annotations

import contextlib
import json
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
    """The listener of the fits of this process. Events have standard output for themselves: what
    else is printed there, by kernels too, goes to standard error."""

    def __init__(self) -> None:
        self.out, self.lock = os.fdopen(os.dup(1), "w", encoding="utf-8"), threading.Lock()
        os.dup2(2, 1)
        self.stop = threading.Event()
        self.trace: Any = None
        self.fit = 0
        self.points: list[list[float]] = []
        self.sent: dict[str, float] = {}
        self.name = ""
        self.fitted = False

    def tell(self, event: str, **more: Any) -> None:
        with self.lock, contextlib.suppress(OSError, ValueError):  # nobody may read any more
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
        if now - self.sent.get(kind, 0.0) < EVERY:
            return False
        self.sent[kind] = now
        return True

    def end(self, code: int, answer: dict[str, Any], error: str | None = None) -> None:
        """The last event."""
        self.flush()
        self.tell("end", code=code, answer=answer, error=error, peak=_peak())

    def close(self) -> None:
        """Standard output is what it was."""
        os.dup2(self.out.fileno(), 1)

    def start_listening(self) -> None:
        """Wait for the word "stop" in a thread of its own."""
        threading.Thread(target=self.listen_for_stop, args=(sys.stdin.buffer,), daemon=True).start()

    def listen_for_stop(self, given: Any) -> None:
        """Wait for the word, or the end, of what comes in."""
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


def _peak() -> int | None:
    """The most memory that this process held, in bytes."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (
        1 if sys.platform == "darwin" else 1024
    )
