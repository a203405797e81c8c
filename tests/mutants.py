"""Do the tests bite? Small faults are put into a module, one at a time, and the tests that belong to it must fail.

    python tests/mutants.py [--seed 0] [--minutes 10] [--workers 2] [--rooms certify solvers loaders] [--files PART ...]

A fault is a sign turned, a term dropped, a limit a hundred times looser, a check or a refusal removed, a comparison turned, a seed ignored. The module is
changed as it is imported (its file is not touched), in a process of its own that is forked after the libraries were loaded, and only the tests that TESTS names
for it are run, one fault on every core. A test that fails without any fault is named and not asked. Survivors are printed with their line.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import os
import queue
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
BITE = "tests/test_certificates_bite.py"
TESTS: dict[str, dict[str, list[str]]] = {
    "certify": {
        "certify/ascent.py": [f"{BITE}::test_ascent"],
        "certify/certificate.py": [f"{BITE}::test_a_check_passes_up_to_its_limit_and_not_beyond", "tests/test_certificate.py"],
        "certify/chains.py": [f"{BITE}::test_chains", f"{BITE}::test_split_rhat_is_the_textbook_value", "tests/test_bayes.py"],
        "certify/gaps.py": ["tests/test_certificate.py", "tests/test_gaps.py"],
        "certify/glove.py": [f"{BITE}::test_glove", "tests/test_glove.py"],
        "certify/network.py": [f"{BITE}::test_network"],
        "certify/nonnegative.py": [f"{BITE}::test_parts"],
        "certify/nuclear.py": [f"{BITE}::test_gap", f"{BITE}::test_svt", f"{BITE}::test_svp", "tests/test_soft_impute.py"],
        "certify/pairs.py": [f"{BITE}::test_pairs", "tests/test_skipgram.py"],
        "certify/recovery.py": [f"{BITE}::test_recovery", "tests/test_recovery.py"],
        "certify/spectral.py": [f"{BITE}::test_subspace", "tests/test_certificate.py"],
        "certify/stationary.py": [f"{BITE}::test_factors", "tests/test_als.py"],
        "certify/topics.py": [f"{BITE}::test_topics_steps", f"{BITE}::test_topics_of_streams_and_of_chains", "tests/test_lda.py"],
    },
    "solvers": {
        "explain/em.py": ["tests/test_solver_promises.py", "tests/test_em.py"],
        "explain/parts/loop.py": ["tests/test_solver_promises.py", "tests/test_nmf.py"],
        "reduce/rotate.py": ["tests/test_solver_promises.py", "tests/test_pca.py"],
        "complete/factors/alternate.py": [f"{BITE}", "tests/test_als.py"],
        "complete/nuclear/soft_impute.py": ["tests/test_soft_impute.py"],
        "complete/nuclear/exact.py": ["tests/test_solver_promises.py", "tests/test_exact.py"],
        "report/held_out.py": ["tests/test_solver_promises.py", "tests/test_report_complete.py"],
    },
    "loaders": {
        "io/models/save.py": ["tests/test_save.py", "tests/test_hostile_models.py"],
        "io/models/checkpoint.py": ["tests/test_checkpoint_damage.py", "tests/test_checkpoint.py"],
        "io/tables/matrix_market.py": ["tests/test_matrix_market.py"],
        "io/tables/row_blocks.py": ["tests/test_read.py"],
        "factors/checks.py": ["tests/test_hostile_models.py"],
        "factors/components.py": ["tests/test_hostile_models.py"],
    },
}  # fmt: skip
"""For every module the tests that belong to it, the quickest first."""

LONGEST = 300
"""Seconds after which a test counts as hung."""
OPPOSITE = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
TURNED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


def faults(tree: ast.Module) -> list[tuple[str, ast.AST, str, ast.AST]]:
    """(what, parent, field or index, new node) of every fault that can be put into a module, in the order of its lines."""
    found = []
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            children = value if isinstance(value, list) else [value]
            for at, child in enumerate(children):
                where = (name, at) if isinstance(value, list) else (name, None)
                found += [(what, parent, where, new) for what, new in _faults_of(child, parent)]
    return sorted(found, key=lambda f: (getattr(f[3], "lineno", 0), f[0]))


def _faults_of(node: object, parent: ast.AST) -> list[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPPOSITE:
        other = ast.Compare(node.left, [OPPOSITE[type(node.ops[0])]()], node.comparators)
        return [("comparison turned", ast.copy_location(other, node))]
    if isinstance(node, ast.BinOp) and type(node.op) in TURNED and not isinstance(node.left, (ast.Constant, ast.List)):
        other = ast.BinOp(node.left, TURNED[type(node.op)](), node.right)
        out = [("sign turned", ast.copy_location(other, node))]
        if isinstance(node.op, (ast.Add, ast.Sub)):
            out.append(("term dropped", ast.copy_location(node.left, node)))
        return out
    if (
        isinstance(node, ast.Constant)
        and type(node.value) is float
        and node.value
        and isinstance(parent, (ast.Assign, ast.Tuple, ast.Call))
    ):
        return [("limit times 100", ast.copy_location(ast.Constant(node.value * 100), node))]
    if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise) and not node.orelse:
        return [("refusal removed", ast.copy_location(ast.Pass(), node))]
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith("checks.append")
    ):
        return [("check removed", ast.copy_location(ast.Pass(), node))]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng") and node.args:
        zero = ast.Call(node.func, [ast.Constant(12345)], [])
        return [("seed ignored", ast.copy_location(zero, node))]
    return []


def mutated(path: Path, number: int) -> tuple[ast.Module, str]:
    """The module with its fault of this number, and the fault in words."""
    tree = ast.parse(path.read_text())
    what, parent, (name, at), new = faults(tree)[number]
    line = getattr(new, "lineno", 0)
    if at is None:
        old = getattr(parent, name)
        setattr(parent, name, new)
    else:
        old = getattr(parent, name)[at]
        getattr(parent, name)[at] = new
    said = f"{path.relative_to(SOURCE / 'eckart')}:{line} {what}: {' '.join(ast.unparse(old).split())[:70]}"
    return ast.fix_missing_locations(tree), said


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


def one(file: str, number: int, tests: list[str]) -> int:
    """Run the tests with one fault in; the exit code of pytest."""
    import pytest

    path = SOURCE / "eckart" / file
    if number >= 0:
        sys.meta_path.insert(0, Changed("eckart." + file[:-3].replace("/", "."), path, mutated(path, number)[0]))
    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--timeout=300", *tests])


def passes(file: str, number: int, test: str, cores: queue.SimpleQueue[int]) -> bool:
    """Whether a test still passes with a fault in, tried in a child process on a core of its own; a test that hangs does not."""
    core = cores.get()
    try:
        return _passes(file, number, test, core)
    finally:
        cores.put(core)


def _passes(file: str, number: int, test: str, core: int) -> bool:
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {core})
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        code = 1
        try:
            code = int(one(file, number, [test]))
        finally:
            os._exit(code)
    late = time.monotonic() + LONGEST
    while time.monotonic() < late:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--minutes", type=float, default=10)
    asked.add_argument("--rooms", nargs="*", default=list(TESTS))
    asked.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    asked.add_argument("--files", nargs="*", default=[])
    ask = asked.parse_args()
    for library in (
        "numpy",
        "scipy.sparse",
        "scipy.linalg",
        "sklearn.base",
        "numba",
        "pytest",
        "pyarrow",
        "pandas",
        "hypothesis",
    ):
        importlib.import_module(library)
    os.chdir(ROOT)
    tests = {file: t for room in ask.rooms for file, t in TESTS[room].items()}
    tests = {file: t for file, t in tests.items() if not ask.files or any(part in file for part in ask.files)}
    todo = [(file, i) for file in tests for i in range(len(faults(ast.parse((SOURCE / "eckart" / file).read_text()))))]
    random.Random(ask.seed).shuffle(todo)
    end = time.monotonic() + 60 * ask.minutes
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    usable = sorted(os.sched_getaffinity(0))
    for worker in range(ask.workers):
        cores.put(usable[worker % len(usable)])
    survivors: list[str] = []

    def sound(test: str) -> bool:
        passed = passes(next(iter(tests)), -1, test, cores)
        if not passed:
            print("FAILS WITHOUT A FAULT", test, flush=True)
        return passed

    def dead(fault: tuple[str, int]) -> bool | None:
        """Whether some test finds the fault, the quickest first; None where the time was over."""
        file, number = fault
        if time.monotonic() > end:
            return None
        found = any(not passes(file, number, test, cores) for test in tests[file] if good[test])
        if not found:
            survivors.append(mutated(SOURCE / "eckart" / file, number)[1])
            print("SURVIVED", survivors[-1], flush=True)
        return found

    with ThreadPoolExecutor(ask.workers) as pool:
        every = sorted({test for some in tests.values() for test in some})
        good = dict(zip(every, pool.map(sound, every)))
        killed = sum(found is True for found in pool.map(dead, todo))
    tried = killed + len(survivors)
    print(
        f"{len(todo)} faults possible, {tried} tried with seed {ask.seed}, {killed} killed ({killed / max(tried, 1):.0%}), {len(survivors)} survived"
    )


if __name__ == "__main__":
    main()
