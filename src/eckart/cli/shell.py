"""The manners of every command: what is said and where, notes, one JSON object, a log, the files at
the end, and the exit code."""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from eckart import __version__
from eckart.cli.events import EventWriter
from eckart.cli.options import option
from eckart.errors import EckartError, FileError, InputError, without_secrets
from eckart.trace import StopReason, has_listener, progress

LOG = logging.getLogger("eckart")
LOG.addHandler(logging.NullHandler())
NOT_PROVEN = 1
"""Exit code of a command whose certificate does not hold."""

TELLING_SECONDS = 0.1
"""Work beside a fit that takes less is not said: nobody waits for it."""

OTHER_NAMES = {
    "n_components": "components",
    "learning_method": "learning",
    "covariance_type": "covariance",
    "beta_loss": "loss",
    "svd_solver": "solver",
    "n_threads": "threads",
    "random_state": "seed",
}
"""Arguments that have another name in the shell."""

COLOUR = re.compile(r"\x1b\[(?:0|31|32)m")
CONTROL = re.compile(
    r"\x1b(?!\[(?:0|31|32)m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
)
"""Characters that move the cursor, clear the screen, hide what follows or turn the order of letters
around; green, red and their end, which the shell writes itself, are left."""


def harmless(words: str) -> str:
    """Text out of data as a terminal may be given it: control characters are written, not carried
    out.

    >>> harmless("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return CONTROL.sub(lambda m: m[0].encode("unicode_escape").decode(), words)


def echo(words: str, err: bool = False) -> None:
    """Print words that may come out of data or of a model."""
    typer.echo(harmless(words), err=err)


class LogFormatter(logging.Formatter):
    """Lines without control characters and without passwords of addresses."""

    def format(self, record: logging.LogRecord) -> str:
        return harmless(without_secrets(super().format(record)))


def in_options(line: str, options: Collection[str]) -> str:
    """A line with arguments of Python as a person says them in the shell, where the command has
    such ``options``.

    >>> in_options("no word is left; lower min_count=5, or n_components='auto'; say columns=", ["min_count", "components", "only"])
    'no word is left; lower --min-count 5, or --components auto; say --only'
    """
    names = {name: name for name in options} | {
        name: said for name, said in OTHER_NAMES.items() if said in options
    }
    # of a table; of triples the option has the same name
    if "only" in options and "rows" not in options:
        names["columns"] = "only"
    if not names:
        return line
    # a name of two words is no word of a sentence
    long = "|".join(name for name in names if "_" in name) or "(?!)"
    every = "|".join(names)
    found = re.compile(
        rf"(?<![\w./-])(?:({every})=('[^']*'|[^\s,;)]*[^\s,;).]|)|({long})\b)|^(?:({every})(?= must ))"
    )

    def said(m: re.Match[str]) -> str:
        value = m[2] or ""
        value = (
            value[1:-1]
            if value[:1] == "'" and value[1:-1].replace("_", "").replace("-", "").isalnum()
            else value
        )
        return f"--{names[m[1] or m[3] or m[4]].replace('_', '-')}" + (f" {value}" if value else "")

    return found.sub(said, line)


def outcome_of(error: BaseException) -> tuple[int, str]:
    """The exit code of an error and the one line that says it.

    >>> outcome_of(InputError("n must be 1 or more, got 0"))
    (2, 'n must be 1 or more, got 0')
    """
    if isinstance(error, EckartError):
        code, words = 2, str(error)
    elif isinstance(error, (KeyboardInterrupt, typer.Abort)):
        code, words = 130, "interrupted"
    elif isinstance(error, (OSError, MemoryError)):
        code, words = 2, f"{type(error).__name__}: {error}"
    elif hasattr(error, "format_message"):  # a wrong option or argument
        code, words = 2, f"{error.format_message()} See: eckart --help"
    else:
        code, words = 70, f"{type(error).__name__}: {error} (a bug in eckart; please report it)"
    return code, harmless(without_secrets(" ".join(words.split())))


@dataclass
class Shell:
    """What is said; ``answer`` becomes the object that --json prints."""

    quiet: Annotated[bool, option("--quiet", "-q", help="No progress bars, no summary.")] = False
    verbose: Annotated[
        bool,
        option(
            "--verbose",
            "-v",
            help="Say more: every choice with its reason, and each step, on standard error.",
        ),
    ] = False
    log: Annotated[
        Path | None, option(help="Append everything that is said, with the time, to this file.")
    ] = None
    json: Annotated[
        bool, option("--json", help="Print one JSON object instead of the summary.")
    ] = False
    strict: Annotated[
        bool,
        option(
            "--strict",
            help="Notes are errors, and nothing is written unless the certificate holds.",
        ),
    ] = False
    events: Annotated[
        bool,
        option(
            "--events",
            help="For programs: progress, notes and the answer as JSON lines on standard output.",
        ),
    ] = False
    stop_with_input: Annotated[
        bool,
        option(
            "--stop-with-input",
            help="With --events: a line 'stop', or the end, of standard input asks to stop with "
            "the best state so far.",
        ),
    ] = False
    answer: dict[str, Any] = field(init=False, default_factory=dict)
    writer: EventWriter | None = field(init=False, default=None)
    names: dict[str, str] = field(init=False, default_factory=dict)
    notes: list[str] = field(init=False, default_factory=list)
    holds: bool = field(init=False, default=True)
    options: Collection[str] = field(init=False, default=())
    times: dict[str, float] = field(init=False, default_factory=dict)

    def renamed(self, words: str) -> str:
        """Words in which files that only stand for something else have its name."""
        for name, shown in self.names.items():
            words = words.replace(name, shown)
        return words

    @property
    def silent(self) -> bool:
        return self.quiet or self.json or self.events

    @property
    def bars(self) -> bool:
        """Whether someone is there to see them."""
        return not self.silent and sys.stderr.isatty()

    def around(self, name: str, verb: Callable[[], None], options: Collection[str] = ()) -> None:
        """Run a command that has these options: the log and the events before it, the object and
        the exit code after it."""
        self.options = options
        self.answer |= {"eckart": __version__, "command": name}
        with self._logging(), self._reporting():
            LOG.info("eckart %s %s", __version__, " ".join(sys.argv[1:]))
            begin = time.perf_counter()
            try:
                verb()
            except (Exception, KeyboardInterrupt) as error:
                self._failed(error)
                raise
            code = 0 if self.holds else NOT_PROVEN
            LOG.info("done in %s, exit code %d", lasting(time.perf_counter() - begin), code)
            if self.writer is not None:
                self.writer.end(code, self._object({"exit": code}))
            elif self.json:
                self._print({"exit": code})
        if code:
            raise typer.Exit(code)

    def _failed(self, error: BaseException) -> None:
        """Report an error in the words of the shell."""
        if isinstance(error, EckartError):
            error.args = (self.renamed(in_options(str(error), self.options)),)
            LOG.error("%s", error)
        code, words = outcome_of(error)
        last = {"error": words, "exit": code}
        if self.writer is not None:
            self.writer.end(code, self._object(last), words)
        elif self.json and isinstance(error, EckartError):
            self._print(last)

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Events for another program, where it asked for them."""
        if not self.events:
            if self.stop_with_input:
                raise InputError("--stop-with-input needs --events")
            yield
            return
        from eckart.trace import use_listener

        self.json, self.writer = True, EventWriter()
        self.writer.tell("phase", phase="getting ready", done=0, total=None)
        if self.stop_with_input:
            self.writer.start_listening()
        try:
            with use_listener(self.writer):
                yield
        finally:
            self.writer.close()

    @contextlib.contextmanager
    def _logging(self) -> Iterator[None]:
        """Handlers for -v and --log while the command runs."""
        handlers: list[logging.Handler] = []
        if self.log is not None:
            try:
                handlers.append(logging.FileHandler(self.log, encoding="utf-8"))
            except OSError as error:
                raise FileError(f"--log {self.log} cannot be written: {error}") from None
            handlers[-1].setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
        if self.verbose:
            handlers.append(logging.StreamHandler(sys.stderr))
            handlers[-1].setFormatter(LogFormatter())
            # the rest is printed anyway
            handlers[-1].addFilter(lambda record: record.levelno == logging.DEBUG)
        before = LOG.level, LOG.propagate
        for handler in handlers:
            LOG.addHandler(handler)
        LOG.setLevel(logging.DEBUG if handlers else logging.WARNING)
        LOG.propagate = False
        try:
            yield
        finally:
            LOG.setLevel(before[0])
            LOG.propagate = before[1]
            for handler in handlers:
                LOG.removeHandler(handler)
                handler.close()

    def say(self, name: str, words: str) -> None:
        """One line of a summary, with its name in the first column."""
        words = self.renamed(words)
        LOG.info("%-10s %s", name, words)
        if self.writer is not None:
            self.writer.tell("say", name=name, words=COLOUR.sub("", words))
        if not self.silent:
            echo(f"{name:<10} {words}")

    def detail(self, words: str) -> None:
        """What only --verbose and the log show."""
        LOG.debug("%s", words)

    def note(self, words: str) -> None:
        """Something that the person should know and did not ask for, on standard error; an error
        with --strict."""
        if self.strict:
            raise InputError(f"{words} (an error because of --strict)")
        self.notes.append(words)
        words = self.renamed(words)
        LOG.warning("%s", words)
        if self.writer is not None:
            self.writer.tell("note", text=words)
        elif not self.json:
            echo(f"eckart: note: {words}", err=True)

    @contextlib.contextmanager
    def phase(self, words: str) -> Iterator[None]:
        """Names what is going on, from the first moment, where someone is there to see or hear
        it."""
        LOG.debug("%s", words)
        if not (self.bars or has_listener()):
            yield
            return
        with progress(self.bars) as watch:
            watch(words, 0, None)
            yield

    @contextlib.contextmanager
    def fitting(self) -> Iterator[None]:
        """Around the fit that is the answer: its own time, and that of the kernels that were
        compiled for it."""
        compiled, begin = _compiling_seconds(), time.perf_counter()
        yield
        took, compiling = time.perf_counter() - begin, _compiling_seconds() - compiled
        self.times = {"fit": took - compiling, "compiling": compiling}

    def outcome(self, model: Any, seconds: float, limit: str | None = None) -> None:
        """How the fit went and what its evidence is; ``seconds`` is all the work since the data
        were read, of which the fit may be a part, and ``limit`` says what to do where the steps
        ended before the method was done."""
        c, trace, times = (
            model.certificate_,
            model.fit_.trace,
            self.times or {"fit": seconds, "compiling": 0.0},
        )
        times = {
            name: round(value, 4)
            for name, value in (
                times | {"choosing": max(0.0, seconds - sum(times.values()))}
            ).items()
        }
        model.fit_.plan["seconds"] = times
        if len(trace):
            steps = f"{len(trace)} steps; stopped: {trace.reason.value}"
            self.say("fitted", f"{type(model).__name__} in {lasting(times['fit'])}, {steps}")
        phases = [
            f"{what} took {lasting(times[name])}"
            for name, what in (
                ("choosing", "choosing and measuring"),
                ("compiling", "compiling, once on this machine,"),
            )
            if times[name] >= max(TELLING_SECONDS, times["fit"] / 10)
        ]
        if phases:
            self.say("", "; ".join(phases))
        self.certified(c)
        if not c.holds and trace.reason is StopReason.MAX_ITER and limit is not None:
            self.say("", limit)
        for name, value in model.fit_.plan.items():
            self.detail(f"  {name}: {value}")
        for note in c.notes:
            if "--scale" not in note:  # that is a note on standard error already
                self.say("", in_options(note, self.options))
        self.answer |= {
            "model": type(model).__name__,
            "parameters": model.get_params(deep=False),
            "seconds": times["fit"],
            "times": times,
            "steps": len(trace),
            "stopped": trace.reason.value,
            "plan": model.fit_.plan,
        }

    def certified(self, c: Any) -> None:
        """The verdict, in colour where the terminal has it, and in the exit code."""
        if self.writer is not None:
            self.writer.fitted = True
        self.say("evidence", verdict(c))
        self.answer["certificate"] = c.to_dict()
        self.holds = bool(c.holds)

    def finish(
        self,
        fitted: Any,
        to: OutputTargets,
        write: Callable[[Path], int],
        page: Callable[[], Any],
        what: str = "out",
        of: str = "rows",
    ) -> None:
        """The tail of every verb that fits: write what was asked for, and say so. ``write`` gives
        the number of rows, ``page`` makes the report."""
        written = self.answer["written"] = {}
        if self.strict and not self.holds:
            if any(to):
                self.say("written", "nothing: the certificate does not hold (--strict)")
            return
        if to.out is not None:
            with self.phase(f"writing {to.out}"):
                count = write(to.out)
            self.say(what, f"{to.out} ({count:,} {of})")
            written["out"] = str(to.out)
        if to.model is not None:
            fitted.save(to.model)
            self.say("model", f"{to.model}")
            written["model"] = str(to.model)
        if to.report is not None:
            with self.phase(f"drawing {to.report}"):
                page().write(to.report)
            self.say("report", f"{to.report}")
            written["report"] = str(to.report)

    def _object(self, last: dict[str, Any]) -> dict[str, Any]:
        notes = {"notes": self.notes} if self.notes else {}
        found = plain(self.answer | notes | last)
        return json.loads(self.renamed(json.dumps(found))) if self.names else found

    def _print(self, last: dict[str, Any]) -> None:
        words = json.dumps(self._object(last), ensure_ascii=False)
        typer.echo(CONTROL.sub(lambda m: f"\\u{ord(m[0]):04x}", words))


class OutputTargets(NamedTuple):
    """Files to write. Each takes its place only when it is complete."""

    out: Path | None = None
    model: Path | None = None
    report: Path | None = None

    def check(self, data: str, check: Callable[[Path], Any] | None = None) -> OutputTargets:
        """Refuse targets that cannot be written, or that would replace the data, before any work is
        done; ``check`` is for ``out``, usually a table."""
        from eckart.io.models.whole_files import check_place
        from eckart.io.tables.write import check_target

        if self.out is not None:
            (check or check_target)(self.out)
        for path, ending in ((self.model, ".safetensors"), (self.report, ".html")):
            if path is not None and path.suffix.lower() != ending:
                raise FileError(f"{path} must end in {ending}, got {path.suffix!r}")
            if path is not None:
                check_place(path)
        sources = {os.path.realpath(name) for name in (glob.glob(data) or [data])}
        for path in self:
            if path is not None and os.path.realpath(path) in sources:
                raise FileError(f"{path} is the data itself. Write to another file.")
        return self


def verdict(c: Any) -> str:
    """A certificate in a line."""
    words = f"certificate {'holds' if c.holds else 'DOES NOT HOLD: ' + c.reason} ({c.kind})"
    if os.environ.get("NO_COLOR"):
        return words
    # echo takes the colour out where it is no terminal
    return typer.style(words, fg="green" if c.holds else "red")


def _compiling_seconds() -> float:
    """Of a process that has not met a kernel, 0: it is not made to load the compiler."""
    module = sys.modules.get("eckart.compiling")
    return 0.0 if module is None else float(module.compiling_seconds())


def lasting(seconds: float) -> str:
    """A time in words."""
    return f"{seconds:.2g} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def plain(value: Any) -> Any:
    """A value as JSON has it: NumPy's numbers as numbers, what is not finite as null, all else as
    text."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
