"""Do the tests bite? Small faults are put into a module, one at a time, and some test must fail.

    python tests/mutants.py [--seed 0] [--minutes 10] [--workers 2] [--rooms certify solvers loaders] [--files PART ...] [--tests NAME ...]
                            [--quick] [--notes FILE] [--picked] [--compile]

A fault is a sign turned, a term dropped, a limit a hundred times looser, a check or a refusal removed, a comparison turned, a seed ignored. First every test of
a room is run without a fault: one that fails is named and not asked again, and it is written down which functions each test calls. Then, for a fault, the tests
that call its function are run, the quickest first, until one fails. Files are not touched: each fault lives in a process of its own, forked after all was
loaded, in which its module and the layers above it are imported anew. Survivors are printed with their line; KNOWN holds those that no test can find, with the
reason. Modules of compiled kernels are left out: their faults would be hidden by the cache of compiled code (the contracts of the engines judge them).

On a machine without compiled kernels ``--compile`` runs the room's tests once side by side before anything is timed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from code_faults import PICKED, SOURCE, mutated, places

ROOT = Path(__file__).parent.parent
QUICK = ["certificates_bite", "numbers_ridge", "numbers_nuclear", "numbers_spectral", "numbers_counts"]
ROOMS: dict[str, tuple[str, str]] = {
    "certify": (
        "certify/*.py",
        """certificate als als_losses soft_impute soft_impute_losses svt svp recovery exact bayes gaps glove skipgram lda plsa items featured mixed_table nmf em
        mixture solver_promises""",
    ),
    "solvers": (
        """optim/*.py reduce/*.py complete/factors/*.py complete/nuclear/*.py complete/bayes/*.py complete/items/*.py explain/em.py explain/mixtures/*.py
        explain/parts/*.py explain/topics/*.py embed/*.py report/held_out.py""",
        """solver_promises pca stream select standardise autoencoder gaps als als_losses featured soft_impute soft_impute_losses svt svp exact recovery bayes
        bayes_likelihoods items em gaussian_mixture mixture nmf lda plsa judge pmi glove skipgram cooccurrence sequences vectors dropin report_complete tune
        paths saved_models lbfgs refusals_solvers numbers_solvers""",
    ),
    "loaders": (
        "io/read.py io/tables/*.py io/text/*.py io/vectors/*.py io/models/*.py factors/*.py",
        """checkpoint_damage checkpoint matrix_market read triples long_tables text vector_files vectors save hostile_models entry_shards write labels
        mixed_table errors factors loaders_edges featured resume every_door cli""",
    ),
}
"""For every room its modules, and the tests that may be asked (``als`` is ``tests/test_als.py``)."""
SIGN = "a sign is 1 or -1: to divide by it is to multiply by it"
SIGNED = (
    ("reduce/linear_autoencoder.py", "components * signs(components)[:, None]"),
    ("reduce/missing.py", "components * signs(components)[:, None]"),
    ("reduce/solve.py", "s.components * signs(s.components)[:, None]"),
    ("reduce/rotate.py", "a * signs((full @ a).T)"),
    ("complete/nuclear/spectral_completer.py", "np.sqrt(found.s) * signs(found.V.T)"),
)
KEPT_EVERY = (
    ("embed/skipgram.py", "30.0"),
    ("complete/bayes/bayesian_mf.py", "10.0"),
    ("complete/factors/als.py", "10.0"),
    ("complete/nuclear/spectral_completer.py", "10.0"),
)
FALLBACK = "a factor tried only where a smaller one failed by rounding: the bound stays one"
KNOWN: dict[str, str] = {
    **{f"certify/spectral.py limit times 100: {factor}": FALLBACK for factor in ("1.001", "1.01", "1.1", "1.5", "3.0")},
    "certify/spectral.py limit times 100: 1e-13": "when a third pass of orthonormalising is left away: it changes rounding alone",
    "certify/spectral.py sign turned: n - k": "a start with more columns than the complement has: what is too much is dropped as rounding",
    "io/tables/csv_file.py sign turned: len(self._mark) - 1": "a whole mark cannot stand at the end: each was replaced",
    "factors/lowrank.py sign turned: self.k * self.left.itemsize": "the size of a step, which changes memory alone",
    "certify/topics.py limit times 100: 1.0": "the divisor of an empty topic, whose counts are 0",
    "certify/recovery.py comparison turned: found + slack >= 1": "whether a longer search is worth while; the answer is the same",
    **{f"{file} sign turned: {words}": SIGN for file, words in SIGNED},
    **{f"{file} limit times 100: {seconds}": "how often a checkpoint is written" for file, seconds in KEPT_EVERY},
    "complete/items/spectral_filter.py sign turned: RANK[x.dtype] * squares.max(initial=0.0)": "the largest singular value of a normalised adjacency is one",
    "complete/bayes/bayesian_mf.py term dropped: self.n_components + 1": "how many threads a small matrix takes: the draws are the same",
    "explain/topics/documents.py term dropped: ends[p] - x.parts.lengths[p]": "rows counted from the end of a part are the same rows",
    "reduce/solve.py limit times 100: 1.0": "sum(l^2) / sum(l)^2 is at most one",
    "reduce/linear_autoencoder.py limit times 100: 1e-06": "a tolerance that a form in common carries; this solver's certificate has its own",
}
"""Faults that no test can find, as they are printed without the line, and why."""

LONGEST = 30.0
"""Processor seconds of tests that are asked for one fault at the most."""


WATCHED = 3 if hasattr(sys, "monitoring") else 0
"""The number under which Python 3.12 and later tell which functions are called, at no cost after the first call; before, every call is looked at."""


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree and leaves the rest alone."""

    def __init__(self, name: str, path: Path, tree: ast.Module):
        self.name, self.path, self.tree = name, path, tree

    def find_spec(self, name, path, target=None):
        if name == self.name:
            return importlib.machinery.ModuleSpec(name, self, origin=str(self.path))
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__file__ = str(self.path)
        exec(compile(self.tree, str(self.path), "exec"), module.__dict__)


def layers() -> dict[str, int]:
    """The height of each part of the package, from the rule that the linter checks."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(rule["layers"] for rule in rules if rule["type"] == "layers")
    return {part.strip(): -at for at, row in enumerate(rows) for part in row.split("|")}


def forget(name: str) -> None:
    """Take a module, its own layer, the layers above and the tests out of memory; what lies below stays, with its compiled kernels."""
    height = layers()

    def of(module: str) -> int:
        return height.get(".".join(module.split(".")[:2]), 1)

    for module, loaded in list(sys.modules.items()):
        ours = module.partition(".")[0] == "eckart"
        inside = str(getattr(loaded, "__file__", "") or "").startswith(str(ROOT / "tests"))
        if (ours and of(module) >= of(name)) or (inside and module != "__main__"):
            del sys.modules[module]
    package = importlib.import_module("eckart")
    for module in [m for m in sys.modules if m.startswith("eckart.") and m.count(".") == 1]:
        setattr(package, module.partition(".")[2], sys.modules[module])


def run(tests: list[str], *plugins: object) -> int:
    import pytest

    words = ["-q", "-p", "no:cacheprovider", "--no-header", "-o", "addopts=", "-m", "not slow and not cluster"]
    return int(pytest.main([*words, *tests], plugins=list(plugins)))


class Notes:
    """What a run without faults tells: which tests fail, how long each takes, and which functions of the package it calls."""

    def __init__(self):
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, set[tuple[str, str]]] = {}
        self.now: set[tuple[str, str]] = set()
        self.begun = 0.0

    def called(self, code, *_):
        if "/src/eckart/" in code.co_filename:
            self.now.add((code.co_filename.rpartition("/src/eckart/")[2], code.co_qualname))
        return sys.monitoring.DISABLE if WATCHED else None  # once for each test is enough

    def trace(self, frame, event, arg):
        self.called(frame.f_code)

    def watch(self, on: bool) -> None:
        if WATCHED:
            if on and sys.monitoring.get_tool(WATCHED) is None:
                sys.monitoring.use_tool_id(WATCHED, "mutants")
                sys.monitoring.set_events(WATCHED, sys.monitoring.events.PY_START)
            sys.monitoring.register_callback(WATCHED, sys.monitoring.events.PY_START, self.called if on else None)
            sys.monitoring.restart_events()
        else:
            threading.settrace(self.trace if on else None)
            sys.settrace(self.trace if on else None)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logstart(self, nodeid, location):
        self.begun = time.process_time()  # the clock on the wall would tell how busy the machine is
        self.now = self.calls[nodeid] = set()
        self.watch(True)

    def pytest_runtest_logfinish(self, nodeid, location):
        self.seconds[nodeid] = time.process_time() - self.begun
        self.watch(False)

    def pytest_fixture_setup(self, fixturedef, request):
        if fixturedef.scope != "function":  # shared by the tests of its file: it is counted for each of them
            self.now = self.calls.setdefault(f"{fixturedef.baseid}", set())
            self.watch(True)

    def pytest_fixture_post_finalizer(self, fixturedef, request): ...

    def pytest_runtest_call(self, item):
        self.now = self.calls[item.nodeid]
        self.watch(True)


def waits() -> float:
    """How many times longer than alone a job may take on a machine that has other work as well, at the worst priority."""
    return 3.0 * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


class Crew:
    """Jobs in forked processes, one on each core; a job that takes too long is ended with all it started."""

    def __init__(self, workers: int):
        cores = sorted(os.sched_getaffinity(0))
        self.free = [cores[worker % len(cores)] for worker in range(workers)]
        self.busy: dict[int, tuple[Any, int, float]] = {}

    def each(
        self, jobs: Iterable[Any], work: Callable[[Any], int], seconds: Callable[[Any], float]
    ) -> Iterator[tuple[Any, int]]:
        """(job, exit code) as they end; 124 for one that was ended."""
        waiting = iter(jobs)
        more = True
        while more or self.busy:
            while more and self.free:
                job = next(waiting, None)
                if job is None:
                    more = False
                    break
                core = self.free.pop()
                late = time.monotonic() + seconds(job) * waits()
                self.busy[self.start(job, work, core)] = (job, core, late)
            yield from self.ended()
            time.sleep(0.01)

    def start(self, job: Any, work: Callable[[Any], int], core: int) -> int:
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            os.setpgrp()
            os.sched_setaffinity(0, {core})
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            code = work(job)
        finally:
            os._exit(code)

    def ended(self) -> Iterator[tuple[Any, int]]:
        for child, (job, core, late) in list(self.busy.items()):
            found, status = os.waitpid(child, os.WNOHANG)
            hung = not found and time.monotonic() > late
            if hung:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
            if found or hung:
                del self.busy[child]
                self.free.append(core)
                yield job, 124 if hung else os.waitstatus_to_exitcode(status)


def known_notes(path: str | None, files: list[str], crew: Crew) -> Notes:
    """What the tests call, from a file of an earlier run where there is one; tests of files that are not in it are run now, without a fault, and
    written down as they end."""
    kept = json.loads(Path(path).read_text()) if path and Path(path).exists() else {}
    with tempfile.TemporaryDirectory() as folder:

        def work(file: str) -> int:
            told = Notes()
            run([file], told)
            calls = {test: sorted(called) for test, called in told.calls.items()}
            (Path(folder) / Path(file).name).write_text(json.dumps([told.failed, told.seconds, calls]))
            return 0

        fresh = sorted((file for file in files if file not in kept), key=lambda f: -(ROOT / f).stat().st_size)  # the long ones first
        for file, code in crew.each(fresh, work, lambda _: 400.0):
            answer = Path(folder) / Path(file).name
            if code or not answer.exists():
                print("COULD NOT BE RUN", file, code, flush=True)
                continue
            kept[file] = json.loads(answer.read_text())
            if path:
                Path(path).write_text(json.dumps(kept))
    notes = Notes()
    for file in files:
        failed, seconds, calls = kept.get(file, ([], {}, {}))
        notes.failed += failed
        notes.seconds |= seconds
        notes.calls |= {test: {(f, name) for f, name in called} for test, called in calls.items()}
    for test in notes.failed:
        print("FAILS WITHOUT A FAULT", test, flush=True)
    return notes


def asked(notes: Notes, file: str, line: int) -> list[str]:
    """The tests that call the function of a line, the quickest first, as far as the seconds reach; of a line outside all functions those that call any."""
    home = function_of(ast.parse((SOURCE / file).read_text()), line)

    def touches(called: set[tuple[str, str]]) -> bool:
        if home is None and not called:  # a test that calls nothing reads constants
            return True
        return any(f == file and (home is None or name == home) for f, name in called)

    shared = {name for name, called in notes.calls.items() if "::" not in name and called and touches(called)}
    good = [t for t in notes.seconds if t not in set(notes.failed)]
    some = [t for t in good if touches(notes.calls.get(t, set())) or t.partition("::")[0] in shared]
    chosen, total = [], 0.0
    for test in sorted(some, key=lambda t: notes.seconds[t]):
        total += notes.seconds[test]
        if chosen and total > LONGEST:
            break
        chosen.append(test)
    return chosen


def function_of(tree: ast.AST, line: int, outer: str = "") -> str | None:
    """The innermost function around a line by its full name; None outside."""
    for node in ast.iter_child_nodes(tree):
        if not getattr(node, "lineno", line) <= line <= (getattr(node, "end_lineno", None) or line):
            continue
        if isinstance(node, ast.ClassDef):
            return function_of(node, line, f"{outer}{node.name}.")
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if line < node.body[0].lineno:  # its defaults are read where it stands
                return None
            name = outer + node.name
            return function_of(node, line, f"{name}.<locals>.") or name
        found = function_of(node, line, outer)
        if found is not None:
            return found
    return None


def line_of(picked: tuple[str, str, str]) -> int:
    file, old, _ = picked
    return (SOURCE / file).read_text().partition(old)[0].count("\n") + 1


def survives(file: str, number: int, tests: list[str]) -> int:
    """0 where all tests pass with the fault in."""
    name = "eckart." + file[:-3].replace("/", ".")
    sys.meta_path.insert(0, Changed(name, SOURCE / file, mutated(SOURCE / file, number)[0]))
    forget(name)
    return run(["-x", *tests])


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--minutes", type=float, default=10)
    words.add_argument("--rooms", nargs="*", default=list(ROOMS))
    words.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    words.add_argument("--files", nargs="*", default=[])
    words.add_argument("--tests", nargs="*", default=[])
    words.add_argument(
        "--notes", help="a file that keeps what each test calls for the next run; delete it when functions have moved"
    )
    words.add_argument("--quick", action="store_true", help="ask the quick tests of certificates and solvers alone")
    words.add_argument("--picked", action="store_true")
    words.add_argument("--compile", action="store_true")
    ask = words.parse_args()
    end = time.monotonic() + 60 * ask.minutes
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    modules = [
        str(p.relative_to(SOURCE))
        for room in ask.rooms
        for part in ROOMS[room][0].split()
        for p in sorted(SOURCE.glob(part))
    ]
    modules = [m for m in dict.fromkeys(modules) if not ask.files or any(part in m for part in ask.files)]
    modules = [m for m in modules if "njit" not in (SOURCE / m).read_text()]
    named = [
        t
        for room in ask.rooms
        for t in [*QUICK, *([] if ask.quick else ROOMS[room][1].split())]
        if not ask.tests or t in ask.tests
    ]
    files = [f"tests/test_{t}.py" for t in dict.fromkeys(named) if (ROOT / f"tests/test_{t}.py").exists()]
    crew = Crew(ask.workers)
    if ask.compile:
        for file, code in crew.each(files, lambda file: run([file]), lambda _: 240.0):
            print("compiled", file, code, f"{(end - time.monotonic()) / 60:.1f} minutes left", flush=True)
    run([f"tests/test_{t}.py" for t in QUICK])  # what is loaded here need not be loaded again for every fault
    notes = known_notes(ask.notes, files, crew)
    todo = [(file, i, line) for file in modules for i, line in enumerate(places(SOURCE / file))]
    if ask.picked:
        todo = [(PICKED[i][0], i, line_of(PICKED[i])) for i in range(-len(PICKED), 0)]
    random.Random(ask.seed).shuffle(todo)
    killed, hung, excused, survivors = 0, 0, 0, []
    print(
        f"{len(notes.seconds)} tests, {len(todo)} faults, {(end - time.monotonic()) / 60:.1f} minutes left", flush=True
    )

    def jobs() -> Iterator[tuple[str, int, list[str]]]:
        for file, number, line in todo:
            if time.monotonic() > end:
                return
            yield file, number, asked(notes, file, line)

    def seconds(job: tuple[str, int, list[str]]) -> float:
        return 30.0 + 4 * sum(notes.seconds[test] for test in job[2])

    for (file, number, tests), code in crew.each(jobs(), lambda job: survives(*job) if job[2] else 0, seconds):
        if code:
            killed, hung = killed + 1, hung + (code == 124)
            if code == 124:
                print("NEVER ENDED", mutated(SOURCE / file, number)[1], flush=True)
            if killed % 100 == 0:
                print(killed, "killed", f"{(end - time.monotonic()) / 60:.1f} minutes left", flush=True)
            continue
        said = mutated(SOURCE / file, number)[1]
        known = KNOWN.get(f"{said.partition(':')[0]} {said.partition(' ')[2]}")
        excused += known is not None
        survivors.append(said)
        print("KNOWN" if known else "SURVIVED", said, "" if tests else "(no test calls it)", known or "", flush=True)
    tried = killed + len(survivors)
    print(f"{len(todo)} faults possible, {tried} tried with seed {ask.seed}, {killed} killed ({killed / max(tried, 1):.1%}), {hung} of them never ended, "
          f"{len(survivors)} survived, {excused} of them known")  # fmt: skip


if __name__ == "__main__":
    main()
