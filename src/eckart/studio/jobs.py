"""Jobs: commands of the shell as child processes, their events, and records of them that outlive
the studio.

A job is described by the words of its command; its results are the files that the command writes
into the folder. Records and checkpoints lie in the folder's corner of the studio. A stopped job is
resumed by the same command, which goes on from its checkpoint to the same bits.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from eckart.cli.complete_options import ITEM_METHODS
from eckart.errors import FileError
from eckart.io.models.whole_files import atomic_write
from eckart.registry import class_named, methods
from eckart.serve.problems import Problem
from eckart.studio.folder import Folder
from eckart.studio.forms import shell_line, words_of

TOGETHER = 2
"""Jobs that run at once; each uses all cores, so more would only take one another's time and
memory."""
MOST_POINTS = 5000
"""Points of a curve that are kept: more than a screen has columns."""
ENDED = ("done", "stopped", "failed")
INTERRUPTED = 130
"""The shell's exit code where it was interrupted."""


@dataclass
class Job:
    """What the page sees of a job."""

    id: str
    verb: str
    file: str
    options: dict[str, Any]
    words: list[str]
    model: str
    report: str | None
    began: float
    state: str = "waiting"
    phase: str = ""
    done: float = 0.0
    total: float | None = None
    seconds: float = 0.0
    fit: int = 0
    quantity: str | None = None
    curve: list[list[float]] = field(default_factory=list)
    certificate: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    summary: list[list[str]] = field(default_factory=list)
    error: str | None = None
    written: bool = False
    peak: int | None = None

    def to_json(self, curve: bool = True) -> dict[str, Any]:
        found = asdict(self)
        line = [
            *self.words,
            "--model",
            self.model,
            *(["--report", self.report] if self.report else []),
        ]
        found |= {
            "shell": shell_line(line),
            "can_stop": self.state == "running",
            "can_resume": self.state in ("stopped", "failed"),
            "model": self.model if self.written else None,
            "report": self.report if self.written else None,
        }
        if not curve:
            found |= {"points": len(self.curve)}
            del found["curve"]
        del found["words"], found["written"]
        return found


def _has_type(value: Any, kind: Any) -> bool:
    """Whether a value out of a record is what the annotation of its field says, to the last
    element.

    >>> _has_type([[1, 2.5]], list[list[float]]), _has_type([[1, "x"]], list[list[float]]), _has_type(None, str | None), _has_type(True, float)
    (True, False, True, False)
    """
    if isinstance(kind, UnionType):
        return any(_has_type(value, one) for one in get_args(kind))
    origin = get_origin(kind) or kind
    if origin is float:
        return type(value) in (int, float) and math.isfinite(value)
    if origin is Any:
        return True
    if type(value) is not origin:
        return False
    inner = get_args(kind)
    return origin is not list or not inner or all(_has_type(one, inner[0]) for one in value)


class Jobs:
    """All jobs of a folder. Events are handed to the queues of those who listen, in their event
    loop."""

    def __init__(self, folder: Folder):
        if folder.corner.is_symlink():
            raise FileError(
                f"{folder.corner} must be a folder of the studio's own, got a link. Remove it."
            )
        self.folder, self.lock = folder, threading.RLock()
        self.jobs: dict[str, Job] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.listeners: set[tuple[Any, asyncio.Queue[Any]]] = set()
        self._load()

    # records

    @property
    def place(self) -> Path:
        return self.folder.corner / "jobs"

    def _load(self) -> None:
        known = set(Job.__dataclass_fields__)
        for file in sorted(self.place.glob("*.json")) if self.place.is_dir() else ():
            with contextlib.suppress(OSError, ValueError, TypeError, RecursionError, Problem):
                record = json.loads(file.read_text(encoding="utf-8"))
                job = Job(**{name: record[name] for name in known if name in record})
                self._refuse_foreign(job, file)
                if job.state not in ENDED:
                    job.state, job.error = "stopped", "the studio was closed while it ran"
                self.jobs[job.id] = job

    def _refuse_foreign(self, job: Job, file: Path) -> None:
        """A record is a file like any other: what it names must be what a page could have asked
        for."""
        if (
            job.id != file.stem
            or not all(
                _has_type(getattr(job, name), kind) for name, kind in get_type_hints(Job).items()
            )
            or job.words != words_of(job.verb, job.file, job.options, self.folder)
        ):
            raise ValueError("a record that no studio wrote")
        for name in (job.model, *([job.report] if job.report else [])):
            self.folder.inside(name)

    def _keep(self, job: Job) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        atomic_write(self.place / f"{job.id}.json", json.dumps(asdict(job)).encode())

    def of_model(self, file: str) -> Job | None:
        """The last job that wrote this model."""
        with self.lock:
            made = [job for job in self.jobs.values() if job.model == file and job.written]
        return max(made, key=lambda job: job.began, default=None)

    def named(self, id: str) -> Job:
        with self.lock:
            job = self.jobs.get(id)
        if job is None:
            raise Problem(404, f"job {id[:40]!r} came, which is not there; see GET /api/jobs")
        return job

    def listed(self) -> list[dict[str, Any]]:
        with self.lock:
            return [
                job.to_json(curve=False)
                for job in sorted(self.jobs.values(), key=lambda j: -j.began)
            ]

    # what a page asks

    def start(self, verb: Any, file: Any, options: Any, name: Any = None) -> Job:
        words = words_of(verb, file, options, self.folder)
        if name is not None and (not isinstance(name, str) or "/" in name or len(name) > 80):
            raise Problem(422, f"name must be a short name without /, got {str(name)[:80]!r}")
        with self.lock:
            taken = {job.model for job in self.jobs.values() if job.state not in ENDED}
            stem = self.folder.new_name(
                name or f"{Path(file).stem}-{verb}", (".safetensors", ".html")
            )
            while f"{stem}.safetensors" in taken:
                stem += "-next"
            number = max((int(id) for id in self.jobs if id.isdigit()), default=0) + 1
            report = f"{stem}.html" if reports(verb, options) else None
            job = Job(
                f"{number:04d}",
                verb,
                file,
                options,
                words,
                f"{stem}.safetensors",
                report,
                time.time(),
            )
            self.jobs[job.id] = job
            self._keep(job)
            self._next()
        return job

    def stop(self, id: str) -> Job:
        job = self.named(id)
        with self.lock:
            child = self.children.get(id)
            if job.state == "waiting":
                self._end(job, "stopped")
            elif child is None or job.state not in ("running", "stopping"):
                raise Problem(409, f"job {id} must be one that runs, got one that is {job.state}")
            elif job.state == "running":
                job.state = "stopping"
                self._ask_to_stop(child)
                self._tell(
                    job,
                    "phase",
                    {
                        "phase": "stopping",
                        "done": job.done,
                        "total": job.total,
                        "seconds": job.seconds,
                    },
                )
        return job

    def resume(self, id: str) -> Job:
        job = self.named(id)
        with self.lock:
            if job.state not in ("stopped", "failed"):
                raise Problem(
                    409, f"job {id} must be one that was stopped, got one that is {job.state}"
                )
            self.folder.existing(job.file)
            job.state, job.error, job.phase, job.done, job.total = "waiting", None, "", 0.0, None
            job.curve, job.fit, job.summary, job.notes = [], 0, [], []
            self._next()
        return job

    def forget(self, id: str) -> None:
        job = self.named(id)
        with self.lock:
            if job.state not in ENDED:
                raise Problem(409, f"job {id} is {job.state}; stop it first")
            del self.jobs[id]
            for file in self.place.glob(f"{id}.*"):
                file.unlink(missing_ok=True)

    def close(self) -> None:
        """Ask every child to stop, and wait until all have kept their state."""
        with self.lock:
            children = list(self.children.values())
        for child in children:
            self._ask_to_stop(child)
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            if child.poll() is None:  # its checkpoint is there; only what follows the fit is lost
                child.kill()
                child.wait()

    # children

    def command(self, job: Job) -> list[str]:
        more = ["--log", f"{self._file_of(job, 'log')}", "--model", job.model]
        more += ["--report", job.report] if job.report else []
        more += (
            ["--checkpoint", f"{self._file_of(job, 'checkpoint')}"]
            if keeps_state(job.verb, job.options)
            else []
        )
        return child_of([*job.words, *more])

    def _file_of(self, job: Job, ending: str) -> Path:
        return self.place / f"{job.id}.{ending}"

    def _next(self) -> None:
        """Start jobs that wait, the oldest first, while there is room."""
        waiting = sorted(
            (j for j in self.jobs.values() if j.state == "waiting"), key=lambda j: j.began
        )
        for job in waiting[: max(0, TOGETHER - len(self.children))]:
            try:
                with open(self._file_of(job, "errors"), "wb") as errors:
                    child = subprocess.Popen(
                        self.command(job),
                        cwd=self.folder.root,
                        env=child_environment(),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        start_new_session=True,
                    )
            except OSError as error:
                self._end(job, "failed", f"no process could be started: {error}")
                continue
            job.state, job.began = "running", time.time()
            self.children[job.id] = child
            self._keep(job)
            threading.Thread(target=self._follow, args=(job, child), daemon=True).start()

    def _follow(self, job: Job, child: subprocess.Popen[bytes]) -> None:
        last: dict[str, Any] | None = None
        assert child.stdout is not None
        for line in child.stdout:
            try:
                event = json.loads(line)
                kind = event.pop("event")
            except (ValueError, KeyError, AttributeError):
                continue
            if kind == "end":
                last = event
            else:
                with self.lock:
                    self._take(job, kind, event)
        child.wait()
        with self.lock:
            self.children.pop(job.id, None)
            self._finish(job, last)
            self._next()

    def _take(self, job: Job, kind: str, event: dict[str, Any]) -> None:
        job.seconds = round(time.time() - job.began, 2)
        if kind == "phase":
            job.phase, job.done, job.total = event["phase"], event["done"], event["total"]
            event["seconds"] = job.seconds
        elif kind == "objective":
            if event["fit"] != job.fit:
                job.fit, job.quantity, job.curve = event["fit"], event["quantity"], []
            job.curve += event["points"]
            if len(job.curve) > MOST_POINTS:
                job.curve = job.curve[::2] + job.curve[-1:]
        elif kind == "note":
            job.notes.append(event["text"])
        elif kind == "say":
            job.summary.append([event["name"], event["words"]])
            job.written |= event["name"] == "model" and event["words"] == job.model
        self._tell(job, kind, event)

    def _finish(self, job: Job, last: dict[str, Any] | None) -> None:
        answer = (last or {}).get("answer") or {}
        job.peak = (last or {}).get("peak")
        job.written = job.written or bool((answer.get("written") or {}).get("model"))
        if "certificate" in answer:
            job.certificate = {
                name: answer["certificate"].get(name) for name in ("holds", "kind", "reason")
            }
        interrupted = str(answer.get("stopped", "")).startswith("interrupted")
        if last is None:
            lines = (
                self._file_of(job, "errors")
                .read_text(encoding="utf-8", errors="replace")
                .strip()
                .splitlines()
            )
            state, error = (
                "failed",
                (
                    lines[-1].removeprefix("eckart: error: ")
                    if lines
                    else "the process ended without a word; was it killed for memory?"
                ),
            )
        elif last["code"] in (0, 1):
            state, error = ("stopped" if interrupted else "done"), None
        elif last["code"] == INTERRUPTED:
            state, error = "stopped", None
        else:
            state, error = "failed", last.get("error") or f"exit code {last['code']}"
        self._end(job, state, error)

    def _end(self, job: Job, state: str, error: str | None = None) -> None:
        job.state, job.error = state, error
        job.seconds = round(time.time() - job.began, 2) if state != "waiting" else 0.0
        self._keep(job)
        self._tell(job, state, job.to_json())

    def _ask_to_stop(self, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            assert child.stdin is not None
            child.stdin.write(b"stop\n")
            child.stdin.flush()

    # those who listen

    def listen(self) -> tuple[Any, asyncio.Queue[Any]]:
        me: tuple[Any, asyncio.Queue[Any]] = (asyncio.get_running_loop(), asyncio.Queue())
        with self.lock:
            self.listeners.add(me)
        return me

    def leave(self, me: tuple[Any, asyncio.Queue[Any]]) -> None:
        with self.lock:
            self.listeners.discard(me)

    def _tell(self, job: Job, kind: str, event: dict[str, Any]) -> None:
        for loop, queue in list(self.listeners):
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(queue.put_nowait, (job.id, kind, event))


def child_of(words: list[str]) -> list[str]:
    """A command of the shell as a child. -P: what lies in the folder of the data is never
    imported."""
    return [sys.executable, "-P", "-m", "eckart", *words, "--events", "--stop-with-input"]


def child_environment() -> dict[str, str]:
    """The environment of a child: its words are shown on a page, which has colours of its own."""
    return os.environ | {"NO_COLOR": "1"}


def keeps_state(verb: str, options: dict[str, Any]) -> bool:
    """Whether the method has a checkpoint."""
    known = methods(verb)
    method = options.get("method") or {"embed": "skipgram"}.get(verb, "auto")
    if verb in ("reduce", "explain") or method not in known:
        return True  # given where the method knows it; all that "auto" compares do
    return "checkpoint" in inspect.signature(class_named(known[method])).parameters


def reports(verb: str, options: Any) -> bool:
    """Whether the verb draws a report: methods that only rank have none."""
    return not (
        verb == "complete" and isinstance(options, dict) and options.get("method") in ITEM_METHODS
    )
