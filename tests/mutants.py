"""Do the tests bite? Small faults are put into a module, one at a time, and some test must fail.

    python tests/mutants.py [--seed 0] [--minutes 10] [--workers 2] [--rooms certify solvers
    loaders] [--files PART ...] [--tests NAME ...]
                            [--quick] [--notes FILE] [--told FILE] [--again FILE] [--longest 30]
                            [--picked] [--compile]

A fault is a sign turned, a term dropped, a limit a hundred times looser, a check or a refusal
removed, a comparison turned, a seed ignored. First every test of a room is run without a fault: one
that fails is named and not asked again, and it is written down which lines each test runs. Then,
for a fault, the tests that run its statement are asked, the quickest first, until one fails. Files
are not touched: each fault lives in a process of its own, forked after all tests were collected, in
which the function gets its changed code; of a fault outside of functions the module and the layers
above it are imported anew. A test that finds a fault is asked once without it, after the same other
tests. Survivors are printed with their line; KNOWN holds those that no test can find, with the
reason. Modules of compiled kernels are left out: their faults would be hidden by the cache of
compiled code (the contracts of the engines judge them).

On a machine without compiled kernels ``--compile`` runs the room's tests once side by side before
anything is timed.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from code_faults import PICKED, SOURCE, mutated, places

ROOT = Path(__file__).parent.parent
QUICK = [
    "certificates_bite",
    "numbers_ridge",
    "numbers_nuclear",
    "numbers_spectral",
    "numbers_counts",
]
ROOMS: dict[str, tuple[str, str]] = {
    "certify": (
        "certify/*.py",
        """certificate als als_losses soft_impute soft_impute_losses svt svp recovery exact bayes gaps glove skipgram lda plsa items featured mixed_table nmf em
        mixture solver_promises certificates_bite_more""",
    ),
    "solvers": (
        """optim/*.py reduce/*.py complete/factors/*.py complete/nuclear/*.py complete/bayes/*.py complete/items/*.py explain/em.py explain/mixtures/*.py
        explain/parts/*.py explain/topics/*.py embed/*.py report/held_out.py""",
        """solver_promises pca stream select standardise autoencoder gaps als als_losses featured soft_impute soft_impute_losses svt svp exact recovery bayes
        bayes_likelihoods items em gaussian_mixture mixture nmf lda plsa judge pmi glove skipgram cooccurrence sequences vectors dropin report_complete tune
        paths saved_models lbfgs refusals_solvers numbers_solvers rules_solvers certificates_bite_more interrupts checkpoint checkpoint_als
        checkpoint_spectral resume arguments parameters hostile_models blend bayes_tails completer normalise decompositions scales series steps trifles
        terms_elsewhere parts certificate word_metrics spec/1_reduce spec/2_complete spec/3_1_mixtures spec/3_2_plsa spec/3_3_lda spec/3_4_nmf
        spec/3_5_embeddings spec/4_gradients spec/5_across spec/6_5_features spec/6_8_items spec/6_losses restated_chains engines_exchange
        engines/opaque_dense engines/opaque_mixtures engines/opaque_parts engines/opaque_ridge engines/opaque_topics""",
    ),
    "loaders": (
        "io/read.py io/tables/*.py io/text/*.py io/vectors/*.py io/models/*.py factors/*.py",
        """checkpoint_damage checkpoint matrix_market read triples long_tables text vector_files vectors save hostile_models entry_shards write labels
        mixed_table errors factors loaders_edges refusals_loaders featured resume every_door cli cli_newcomer sequences
        series items trifles spec/6_7_mixed_tables""",
    ),
}
"""For every room its modules, and the tests that may be asked (see ``file_of``)."""
SIGN = "a sign is 1 or -1: to divide by it is to multiply by it"
SIGNED = (
    ("reduce/linear_autoencoder.py", "components * signs(components)[:, None]"),
    ("reduce/missing.py", "components * signs(components)[:, None]"),
    ("reduce/solve.py", "s.components * turn[:, None].astype(s.components.dtype)"),
    ("reduce/rotate.py", "a * signs((full @ a).T)"),
    ("complete/nuclear/spectral_completer.py", "np.sqrt(found.s) * signs(found.V.T)"),
)
BOTH = ("sign turned", "term dropped")
FALLBACK = "a factor tried only where a smaller one failed by rounding: the bound stays one"
KNOWN: dict[str, str] = {
    **{
        f"certify/spectral.py limit times 100: {factor}": FALLBACK
        for factor in ("1.001", "1.01", "1.1", "1.5", "3.0")
    },
    "certify/spectral.py limit times 100: 1e-13": "when a third pass of orthonormalising is left away: it changes rounding alone",
    **{
        f"certify/spectral.py {what}: product(a) + v @ (turn.T @ a) + turn @ (v.T @ a)": "a is orthogonal to V"
        for what in BOTH
    },
    "certify/spectral.py comparison turned: np.abs(inside).max(initial=0.0) < CLEAR": "the same: the pass before it subtracts twice",
    "certify/recovery.py sign turned: np.diag(diagonal) + np.diag(off[:count - 1], 1) + "
    "np.diag(off[:count -": "signs beside the diagonal change no eigenvalue",
    **{
        f"certify/recovery.py {what}: np.diag(diagonal) + np.diag(off[:count - 1], 1)": "the upper half is not read"
        for what in BOTH
    },
    **{
        f"certify/spectral.py {what}: inside + inside.T": "on the space of V, where the remainder is not sought, it is below zero then"
        for what in BOTH
    },
    "certify/chains.py limit times 100: 1.0": "the divisor of a quantity that never moves, whose size is replaced",
    "certify/pairs.py limit times 100: 1e-30": "keeps a quotient from being 0 / 0",
    **{
        f"certify/spectral.py {what}: n - k": "more columns than the complement has: what is too much is dropped as rounding"
        for what in BOTH
    },
    **{f"io/vectors/files.py {what}: need - have": "how much is read at once" for what in BOTH},
    **{
        f"io/vectors/files.py {what}: len(buffer) - at": "at is 0 where no word was found in what was read"
        for what in BOTH
    },
    **{
        f"io/tables/csv_file.py {what}: len(text) + 1": "how much of a range is parsed at once"
        for what in BOTH
    },
    "io/text/vocabulary.py term dropped: 2 * size + 1": "room for an end more than there can be words: these are fewer than the hashes",
    **{
        f"io/tables/matrix_market.py {what}: len(data) - 1": "an empty line after the last, which is passed over"
        for what in BOTH
    },
    "io/tables/matrix_market.py term dropped: at - 1": "the same place, counted from the end of the part",
    "io/tables/entry_shards.py term dropped: len(cuts) - 1": "a range after the last, which gets nothing",
    "io/tables/mixed.py comparison turned: cells.kind == 'number'": "a short way for the most usual column; the long one gives the same",
    "factors/topics.py limit times 100: 1.0": "the divisor of an empty topic, whose counts are 0",
    "io/tables/csv_file.py sign turned: len(self._mark) - 1": "a whole mark cannot stand at the end: each was replaced",
    "factors/lowrank.py sign turned: self.k * self.left.itemsize": "the size of a step, which changes memory alone",
    "certify/topics.py limit times 100: 1.0": "the divisor of an empty topic, whose counts are 0",
    **{f"{file} sign turned: {words}": SIGN for file, words in SIGNED},
    "complete/items/spectral_filter.py sign turned: RANK[x.dtype] * "
    "squares.max(initial=0.0)": "the largest singular value of a normalised adjacency is one",
    "explain/mixtures/families_discrete.py limit times 100: 1.0": "the divisor of what nobody saw, which is replaced",
    "complete/bayes/evidence.py sign turned: cells.var(axis=2) + 1e-300": "keeps a logarithm from being that of 0",
    "complete/bayes/bayesian_mf.py term dropped: self.n_components + 1": "how many threads a small matrix takes: the draws are the same",
    "complete/bayes/bayesian_mf.py comparison turned: x.nnz * (self.n_components + 1) "
    "** 2 < SMALL": "the same",
    "explain/topics/documents.py term dropped: ends[p] - x.parts.lengths[p]": "rows counted from the end of a part are the same rows",
    "complete/items/blend.py sign turned: self.held * self.n": "how many rows are scored together, which changes memory alone",
    "complete/nuclear/path.py limit times 100: 1e+300": "the largest ratio whose logarithm is taken: no data have one of 1e300",
    "reduce/solve.py limit times 100: 1.0": "sum(l^2) / sum(l)^2 is at most one",
    "reduce/linear_autoencoder.py limit times 100: 1e-06": "a tolerance that a form in common carries; this solver's certificate has its own",
}
"""Faults that no test can find, as they are printed without the line, and why."""

LONGEST = 30.0
"""Processor seconds of tests that are asked for one fault at the most."""


MEMORY = 2**33
"""Bytes that a fault may ask for."""

WATCHED = 3 if hasattr(sys, "monitoring") else 0
"""The number under which Python 3.12 and later tell which functions are called, at no cost after
the first call; before, every call is looked at."""


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
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    rows = next(rule["layers"] for rule in rules if rule["type"] == "layers")
    return {part.strip(): -at for at, row in enumerate(rows) for part in row.split("|")}


def forget(name: str) -> None:
    """Take a module, its own layer, the layers above and the tests out of memory; what lies below
    stays, with its compiled kernels."""
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


def put_in(functions: list[types.FunctionType], path: str, tree: ast.Module, line: int) -> bool:
    """Give the functions of a module that are in memory the code of the changed tree; False for a
    fault outside of functions, and where it changes which names a function has of those around
    it."""
    if not statement_of(tree, line):
        return False
    codes, found = [compile(tree, path, "exec")], {}
    for code in codes:  # grows meanwhile
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        found[code.co_qualname, code.co_firstlineno] = code
    pairs = [(f, found.get((f.__code__.co_qualname, f.__code__.co_firstlineno))) for f in functions]
    pairs = [(function, code) for function, code in pairs if code is not None]
    if not pairs or any(
        code.co_freevars != function.__code__.co_freevars for function, code in pairs
    ):
        return False
    for function, code in pairs:
        function.__code__ = code
    return True


def run(tests: list[str], *plugins: object) -> int:
    import pytest

    words = [
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "-o",
        "addopts=",
        "-m",
        "not slow and not cluster",
    ]
    return int(pytest.main([*words, *tests], plugins=list(plugins)))


def file_of(name: str) -> str:
    """``als`` is ``tests/test_als.py``, ``spec/1_reduce`` is ``tests/spec/test_1_reduce.py``."""
    folder, _, file = name.rpartition("/")
    return f"tests/{folder + '/' if folder else ''}test_{file}.py"


def name_of(file: str) -> str:
    return "eckart." + file.removesuffix(".py").replace("/", ".")


class Notes:
    """What a run without faults tells: which tests fail, how long each takes, and which lines of
    the modules it runs."""

    def __init__(self, modules: Iterable[str] = ()):
        self.files = {str(SOURCE / module): module for module in modules}
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, set[tuple[str, int]]] = {}
        self.now: set[tuple[str, int]] = set()
        self.begun = 0.0

    def ran(self, code, line):
        if code.co_filename in self.files:
            self.now.add((self.files[code.co_filename], line))
        return sys.monitoring.DISABLE if WATCHED else None  # once for each test is enough

    def trace(self, frame, event, arg):
        if frame.f_code.co_filename not in self.files:
            return None
        if event == "line":
            self.now.add((self.files[frame.f_code.co_filename], frame.f_lineno))
        return self.trace

    def watch(self, on: bool) -> None:
        if WATCHED:
            if on and sys.monitoring.get_tool(WATCHED) is None:
                sys.monitoring.use_tool_id(WATCHED, "mutants")
                sys.monitoring.set_events(WATCHED, sys.monitoring.events.LINE)
            sys.monitoring.register_callback(
                WATCHED, sys.monitoring.events.LINE, self.ran if on else None
            )
            sys.monitoring.restart_events()
        else:
            threading.settrace(self.trace if on else None)
            sys.settrace(self.trace if on else None)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logstart(self, nodeid, location):
        self.begun = time.process_time()  # the clock on the wall would tell how busy the machine is
        self.now = self.lines[nodeid] = set()
        self.watch(True)

    def pytest_runtest_logfinish(self, nodeid, location):
        self.seconds[nodeid] = time.process_time() - self.begun
        self.watch(False)

    def pytest_fixture_setup(self, fixturedef, request):
        # shared by the tests of its file: it is counted for each of them
        if fixturedef.scope != "function":
            self.now = self.lines.setdefault(f"{fixturedef.baseid}", set())
            self.watch(True)

    def pytest_fixture_post_finalizer(self, fixturedef, request): ...

    def pytest_runtest_call(self, item):
        self.now = self.lines[item.nodeid]
        self.watch(True)


def waits() -> float:
    """How many times longer than alone a job may take on a machine that has other work as well, at
    the worst priority."""
    return 3.0 * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


class Crew:
    """Jobs in forked processes, one on each core; a job that takes too long is ended with all it
    started."""

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
                core, allowed = self.free.pop(), seconds(job)
                late = time.monotonic() + allowed * waits()
                self.busy[self.start(job, work, core, allowed)] = (job, core, late)
            yield from self.ended()
            time.sleep(0.01)

    def start(self, job: Any, work: Callable[[Any], int], core: int, seconds: float) -> int:
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            os.setpgrp()
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
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


def known_notes(path: str | None, files: list[str], modules: list[str], crew: Crew) -> Notes:
    """What the tests run of the modules, from a file of an earlier run where there is one; tests of
    files that are not in it are run now, without a fault, and written down as they end."""
    kept = json.loads(Path(path).read_text()) if path and Path(path).exists() else {}
    with tempfile.TemporaryDirectory() as folder:

        def work(file: str) -> int:
            told = Notes(modules)
            run([file], told)
            lines = {
                test: {m: sorted(at for f, at in ran if f == m) for m in {f for f, _ in ran}}
                for test, ran in told.lines.items()
            }
            (Path(folder) / Path(file).name).write_text(
                json.dumps([told.failed, told.seconds, lines])
            )
            return 0

        fresh = sorted(
            (file for file in files if file not in kept), key=lambda f: -(ROOT / f).stat().st_size
        )  # the long ones first
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
        failed, seconds, lines = kept.get(file, ([], {}, {}))
        notes.failed += failed
        notes.seconds |= seconds
        notes.lines |= {
            test: {(f, at) for f, ats in ran.items() for at in ats} for test, ran in lines.items()
        }
    for test in notes.failed:
        print("FAILS WITHOUT A FAULT", test, flush=True)
    return notes


def asked(notes: Notes, file: str, line: int, longest: float) -> list[str]:
    """The tests that run the statement of a line, the quickest first, as far as the seconds reach;
    of a line outside all functions those that run any of the file, and those that run nothing: they
    read constants."""
    home = {(file, at) for at in statement_of(ast.parse((SOURCE / file).read_text()), line)}

    def touches(ran: set[tuple[str, int]]) -> bool:
        return bool(ran & home) if home else not ran or any(f == file for f, _ in ran)

    shared = {
        name for name, ran in notes.lines.items() if "::" not in name and ran and touches(ran)
    }
    good = [t for t in notes.seconds if t not in set(notes.failed)]
    some = [t for t in good if touches(notes.lines.get(t, set())) or t.partition("::")[0] in shared]
    chosen, total = [], 0.0
    for test in sorted(
        some, key=lambda t: (round(math.log2(0.01 + notes.seconds[t])), t)
    ):  # those of a file, whose fixtures are shared, one after another
        total += notes.seconds[test]
        if chosen and total > longest:
            break
        chosen.append(test)
    return chosen


def statement_of(tree: ast.AST, line: int) -> range:
    """The lines of the innermost statement around a line of a function, of one that holds others
    those of its head; none outside of functions, where defaults are read, too."""
    found, inside = range(0), False
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= node.end_lineno:
            continue
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        first = (
            (body[0].pattern if isinstance(body[0], ast.match_case) else body[0]).lineno
            if body
            else node.end_lineno + 1
        )
        inside |= isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and line >= first
        if inside and (line < first or body is None or not found):
            found = range(node.lineno, max(first, node.lineno + 1))
    return found


def line_said(words: str) -> int:
    """The line of a fault in words."""
    return int(words.partition(":")[2].partition(" ")[0])


def line_of(picked: tuple[str, str, str]) -> int:
    file, old, _ = picked
    return (SOURCE / file).read_text().partition(old)[0].count("\n") + 1


class Bench:
    """All tests, collected once; ``work`` asks some of them in forked processes."""

    def __init__(self, modules: list[str], work: Callable[[Bench], None]):
        self.modules, self.work = modules, work
        self.items: dict[str, Any] = {}
        self.functions: dict[str, list[types.FunctionType]] = {}

    def pytest_runtestloop(self, session):
        self.items = {item.nodeid: item for item in session.items}
        for file in self.modules:
            importlib.import_module(name_of(file))
        for thing in gc.get_objects():
            if isinstance(thing, types.FunctionType):
                self.functions.setdefault(thing.__code__.co_filename, []).append(thing)
            if isinstance(thing, functools._lru_cache_wrapper) and str(thing.__module__).startswith(
                "eckart"
            ):
                thing.cache_clear()
        gc.freeze()
        self.work(self)
        return True

    def first_failing(self, tests: list[str]) -> str:
        """The name of the first test that fails; none: all pass."""
        from _pytest.runner import runtestprotocol

        chosen = [self.items[test] for test in tests if test in self.items]
        for item, after in zip(chosen, [*chosen[1:], None]):
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=after)):
                return item.nodeid
        return ""

    def answer(self, file: str, number: int, tests: list[str]) -> str:
        """The name of the test that finds a fault; none where all pass with the fault in."""
        tree, said = mutated(SOURCE / file, number)
        if put_in(
            self.functions.get(str(SOURCE / file), []), str(SOURCE / file), tree, line_said(said)
        ):
            return self.first_failing(tests)
        name = name_of(file)
        sys.meta_path.insert(0, Changed(name, SOURCE / file, tree))
        forget(name)
        return "imported anew" if run(["-x", *tests]) else ""


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--minutes", type=float, default=10)
    words.add_argument("--rooms", nargs="*", default=list(ROOMS))
    words.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    words.add_argument("--files", nargs="*", default=[])
    words.add_argument("--tests", nargs="*", default=[])
    words.add_argument(
        "--notes",
        help="a file that keeps what each test runs for the next time; delete it when lines "
        "have moved",
    )
    words.add_argument(
        "--told",
        help="a file that gets a line of JSON for each fault: its words and number, the test "
        "that found it, how many were asked",
    )
    words.add_argument("--again", help="a file that --told wrote: ask the faults again that lived")
    words.add_argument(
        "--longest",
        type=float,
        default=LONGEST,
        help="processor seconds of tests for one fault at the most",
    )
    words.add_argument(
        "--quick", action="store_true", help="ask the quick tests of certificates and solvers alone"
    )
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
    modules = [
        m for m in dict.fromkeys(modules) if not ask.files or any(part in m for part in ask.files)
    ]
    modules = [m for m in modules if "njit" not in (SOURCE / m).read_text()]
    named = [
        t
        for room in ask.rooms
        for t in [*QUICK, *([] if ask.quick else ROOMS[room][1].split())]
        if not ask.tests or t in ask.tests
    ]
    files = [file for file in map(file_of, dict.fromkeys(named)) if (ROOT / file).exists()]
    crew = Crew(ask.workers)
    if ask.compile:
        for file, code in crew.each(files, lambda file: run([file]), lambda _: 240.0):
            print(
                "compiled",
                file,
                code,
                f"{(end - time.monotonic()) / 60:.1f} minutes left",
                flush=True,
            )
    run([file_of(t) for t in QUICK])  # what is loaded here need not be loaded again for every fault
    notes = known_notes(ask.notes, files, modules, crew)
    todo = [(file, i, line) for file in modules for i, line in enumerate(places(SOURCE / file))]
    if ask.picked:
        todo = [(PICKED[i][0], i, line_of(PICKED[i])) for i in range(-len(PICKED), 0)]
    random.Random(ask.seed).shuffle(todo)
    if ask.again:
        lived = [
            (said.partition(":")[0], number)
            for said, number, by, _ in map(json.loads, Path(ask.again).read_text().splitlines())
            if not by
        ]
        todo = [fault for fault in todo if fault[:2] in set(lived)]
    killed, hung, excused, survivors = 0, 0, 0, []
    trusted: set[str] = set()
    print(
        f"{len(notes.seconds)} tests, {len(todo)} faults, "
        f"{(end - time.monotonic()) / 60:.1f} minutes left",
        flush=True,
    )
    todo.reverse()

    def jobs() -> Iterator[tuple[str, int, list[str]]]:
        while todo and time.monotonic() < end:
            file, number, line = todo.pop()
            yield file, number, asked(notes, file, line, ask.longest)

    def seconds(job: tuple[str, int, list[str]]) -> float:
        return 30.0 + 4 * sum(notes.seconds[test] for test in job[2])

    def work(bench: Bench) -> None:
        nonlocal killed, hung, excused
        folder = tempfile.mkdtemp()

        def told(job: tuple[str, int, list[str]]) -> int:
            file, number, tests = job
            found = (
                bench.first_failing(tests)
                if number is None
                else bench.answer(file, number, tests)
                if tests
                else ""
            )
            (Path(folder) / f"{file}{number}".replace("/", " ")).write_text(found)
            return int(bool(found))

        for (file, number, tests), code in crew.each(jobs(), told, seconds):
            said = mutated(SOURCE / file, number)[1]
            answer = Path(folder) / f"{file}{number}".replace("/", " ")
            by = answer.read_text() if answer.exists() else f"ended by {code}"
            if by in tests and by not in trusted:
                before = tests[: tests.index(by) + 1]
                [(_, without)] = Crew(1).each([("", None, before)], told, seconds)
                if without:
                    print("FAILS WITHOUT A FAULT", by, flush=True)
                    notes.failed.append(by)
                    todo.append((file, number, line_said(said)))
                    continue
                trusted.add(by)
            if ask.told:
                with open(ask.told, "a") as out:
                    out.write(json.dumps([said, number, by if code else "", len(tests)]) + "\n")
            if code:
                killed, hung = killed + 1, hung + (by.startswith("ended"))
                if by.startswith("ended"):
                    print("NEVER ENDED", by, said, flush=True)
                if killed % 100 == 0:
                    print(
                        killed,
                        "killed",
                        f"{(end - time.monotonic()) / 60:.1f} minutes left",
                        flush=True,
                    )
                continue
            known = KNOWN.get(f"{said.partition(':')[0]} {said.partition(' ')[2]}")
            excused += known is not None
            survivors.append(said)
            print(
                "KNOWN" if known else "SURVIVED",
                said,
                "" if tests else "(no test runs it)",
                known or "",
                flush=True,
            )

    run(files, Bench(modules, work))
    tried = killed + len(survivors)
    print(
        f"{len(todo)} faults possible, {tried} tried with seed {ask.seed}, {killed} "
        f"killed ({killed / max(tried, 1):.1%}), {hung} of them never ended, "
        f"{len(survivors)} survived, {excused} of them known"
    )


if __name__ == "__main__":
    main()
