"""How near each comparison of numbers came to its bound: ``pytest --margins FILE tests``, then
``python tests/margins.py FILE [FILE of another CPU ...]``.

A tolerance has a margin when the worst error seen is a tenth of it or less; another processor
rounds otherwise. While ``--margins`` is on, the files of the tests are compiled with every ``<``,
``<=``, ``>``, ``>=`` and ``==`` of an ``assert`` replaced by a function that notes both sides and
answers the same (so a failure shows no values then), and ``np.testing.assert_allclose``,
``np.allclose`` and ``np.isclose`` note theirs. The ratio of a comparison:

* ``assert_allclose``, ``allclose``, ``isclose``, ``pytest.approx``: the largest |found - wanted| /
  (atol + rtol |wanted|);
* ``small < large`` of numbers above 0: the largest small / large, elementwise for arrays.

FILE gets a line of JSON for each pair of comparison and test: its place, its source, the test, the
worst ratio and the two numbers of it. The report has a line for each tolerance whose ratio is above
a tenth, with that of each FILE. A bound that is measured itself (an error below that of another
method) has no such margin: it is listed where what is left of it is less than ten times what moved
between the FILEs.
"""

from __future__ import annotations

import ast
import importlib.machinery
import json
import operator
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

ENOUGH = 0.1
"""The largest share of a tolerance that an error may have: a margin of ten over the worst seen."""

SMALL = 0.05
"""The larger side of ``a < b`` is taken for a tolerance up to here: what is measured (errors,
shares, likelihoods) is rarely so small."""

HERE = Path(__file__).resolve().parent
ORDER = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=="}
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
APPROX = type(pytest.approx(1.0)).__mro__[1]
"""The class of everything that ``pytest.approx`` returns; its name is not the same in all
versions."""


class Margins:
    """The worst ratio of every comparison in every test."""

    def __init__(self, file: str):
        self.file, self.test, self.worst = Path(file), "", {}
        self.sources: dict[str, list[str]] = {}
        if "PYTEST_XDIST_WORKER" not in os.environ:  # processes side by side add to one file
            self.file.unlink(missing_ok=True)
        sys.meta_path.insert(0, Finder(self))
        np.testing.assert_allclose = self.noting(np.testing.assert_allclose, 1e-7, 0.0)
        np.allclose = self.noting(np.allclose, 1e-5, 1e-8)
        np.isclose = self.noting(np.isclose, 1e-5, 1e-8)

    def pytest_runtest_setup(self, item):
        self.test = item.nodeid

    def pytest_sessionfinish(self):
        lines = [
            json.dumps([place, source, test, ratio, low, high])
            for (place, test), (ratio, low, high, source) in sorted(self.worst.items())
        ]
        with self.file.open("ab", buffering=0) as file:  # one write
            file.write("".join(line + "\n" for line in lines).encode())

    def note(self, place: str, source: str, found: tuple[float, float, float] | None):
        """Keep the worst: a ratio, and the two numbers that have it. What did not pass is a failure
        of the test, or was meant not to."""
        if found is None or not found[0] <= 1:
            return
        if found[0] > self.worst.get((place, self.test), (-1.0,))[0]:
            self.worst[place, self.test] = (*found, source)

    def noting(self, compare, rtol_default: float, atol_default: float):
        """A function that compares by tolerances, and notes how near it came where a test calls
        it."""

        def compared(actual, desired, rtol=rtol_default, atol=atol_default, *args, **named):
            frame = sys._getframe(1)
            if frame.f_code.co_filename.startswith(str(HERE)):
                place, source = self.line(frame.f_code.co_filename, frame.f_lineno)
                self.note(place, source, near(actual, desired, rtol, atol))
            return compare(actual, desired, rtol, atol, *args, **named)

        return compared

    def line(self, file: str, number: int) -> tuple[str, str]:
        lines = self.sources.setdefault(file, Path(file).read_text().splitlines())
        return f"{Path(file).relative_to(HERE)}:{number}", lines[number - 1].strip()

    def compare(self, place: str, source: str, words: str, *values):
        """What Python would answer to ``values[0] words[0] values[1] words[1] ...``."""
        answer = True
        for word, left, right in zip(words.split(), values, values[1:]):
            answer = COMPARE[word](left, right)
            try:
                pairs = (
                    approximated(left, right)
                    if word == "=="
                    else [ordered(*((right, left) if word[0] == ">" else (left, right)))]
                )
                for found in pairs:
                    self.note(place, source, found)
            except (TypeError, ValueError, AttributeError):
                pass  # no numbers
            if len(values) > 2 and not answer:
                break
        return answer


def near(found, wanted, rtol: float, atol: float) -> tuple[float, float, float] | None:
    """The largest |found - wanted| / (atol + rtol |wanted|), with the entries that have it."""
    try:
        a, b = np.broadcast_arrays(np.asarray(found, dtype=float), np.asarray(wanted, dtype=float))
    except (TypeError, ValueError):
        return None
    rtol, atol = np.asarray(rtol, dtype=float), np.asarray(atol, dtype=float)
    with np.errstate(all="ignore"):
        error, allowed = np.abs(a - b), atol + rtol * np.abs(b)
        ratio = np.where((error == 0) | ~np.isfinite(b), 0.0, error / allowed)
    if ratio.size == 0:
        return None
    at = np.unravel_index(np.argmax(ratio), ratio.shape)
    return float(ratio[at]), float(error[at]), float(np.broadcast_to(allowed, ratio.shape)[at])


def ordered(small, large) -> tuple[float, float, float] | None:
    """The largest small / large of two numbers or arrays that are above 0; counts and exact things
    have none."""
    a, b = np.asarray(small), np.asarray(large)
    if (
        a.dtype.kind not in "fiu"
        or b.dtype.kind not in "fiu"
        or "f" not in a.dtype.kind + b.dtype.kind
    ):
        return None
    a, b = np.broadcast_arrays(a.astype(float), b.astype(float))
    both = np.isfinite(a) & np.isfinite(b) & (a != 0) & (a * b > 0) & (a <= b)
    if not both.any():
        return None
    with np.errstate(all="ignore"):
        ratio = np.where(both, np.where(a > 0, a / b, b / a), 0.0)
    at = np.unravel_index(np.argmax(ratio), ratio.shape)
    return float(ratio[at]), float(a[at]), float(b[at])


def approximated(left, right) -> list[tuple[float, float, float] | None]:
    """Ratios of what is compared with ``pytest.approx``, which may stand inside tuples, lists and
    dicts."""
    if isinstance(left, APPROX):
        left, right = right, left
    if isinstance(right, APPROX):
        wanted, rel, absolute = right.expected, right.rel, right.abs
        if isinstance(wanted, dict):
            left, wanted = [left[key] for key in wanted], list(wanted.values())
        rtol = rel if rel is not None else 1e-6 if absolute is None else 0.0
        atol = 1e-12 if absolute is None else absolute
        a, b = np.asarray(left, dtype=float), np.asarray(wanted, dtype=float)
        allowed = np.maximum(rtol * np.abs(b), atol)  # the larger of the two, not their sum
        return [near(a, b, 0.0, allowed)]
    if isinstance(left, dict) and isinstance(right, dict):
        return [found for key in left for found in approximated(left[key], right[key])]
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return [found for a, b in zip(left, right) for found in approximated(a, b)]
    return []


class Finder:
    """Files of the tests, compiled with their comparisons noted. Nothing is cached."""

    def __init__(self, margins: Margins):
        self.margins = margins

    def find_spec(self, name: str, path: Sequence[str] | None = None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if (
            spec is None
            or not spec.origin
            or not spec.origin.startswith(str(HERE))
            or not spec.origin.endswith(".py")
        ):
            return None
        spec.loader = Loader(name, spec.origin, self.margins)
        return spec


class Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, file: str, margins: Margins):
        super().__init__(name, file)
        self.margins = margins

    def get_code(self, fullname):
        tree = Noted(str(Path(self.path).relative_to(HERE))).visit(
            ast.parse(Path(self.path).read_bytes())
        )
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module):
        module.__dict__["__compared__"] = self.margins.compare
        super().exec_module(module)


class Noted(ast.NodeTransformer):
    """``a < b`` becomes ``__compared__(place, source, "<", a, b)`` inside every ``assert``."""

    def __init__(self, file: str):
        self.file, self.depth = file, 0

    def visit_Assert(self, node):
        self.depth += 1
        node.test = self.visit(node.test)
        self.depth -= 1
        return node

    def visit_Compare(self, node):
        source = ast.unparse(node)
        self.generic_visit(node)
        if not self.depth or not all(type(op) in ORDER for op in node.ops):
            return node
        words = " ".join(ORDER[type(op)] for op in node.ops)
        values = [
            ast.Constant(f"{self.file}:{node.lineno}"),
            ast.Constant(source),
            ast.Constant(words),
            node.left,
            *node.comparators,
        ]
        return ast.copy_location(ast.Call(ast.Name("__compared__", ast.Load()), values, []), node)


def report(files: list[str]) -> None:
    """Tolerances with a margin below ten, the nearest first; then bounds that are measured
    themselves and are within ten times what moved between the files."""
    worst: dict[tuple[str, str], dict[str, list]] = {}
    for which, file in enumerate(files):
        for line in Path(file).read_text().splitlines():
            place, source, test, ratio, low, high = json.loads(line)
            seen = worst.setdefault((place, source), {}).setdefault(test, [[], 0.0, 0.0, 0.0])
            seen[0] += [np.nan] * (which - len(seen[0])) + [ratio]
            if ratio >= seen[1]:
                seen[1:] = ratio, low, high
    tolerances, measured = [], []
    for (place, source), tests in worst.items():
        compared = "close(" in source or "approx(" in source
        test, (ratios, ratio, low, high) = max(tests.items(), key=lambda pair: pair[1][1])
        words = f"{place}  {low:.3g} of {high:.3g}  {source}  [{test.rpartition('::')[2]}]"
        if compared or 0 < high <= SMALL:
            if ratio > ENOUGH:
                tolerances.append(
                    (ratio, f"{ratio:.3f} ({' '.join(f'{r:.3g}' for r in ratios)})  {words}")
                )
            continue
        for test, (ratios, ratio, low, high) in tests.items():
            moved = float(np.nanmax(ratios) - np.nanmin(ratios))
            if moved > ENOUGH * (1 - ratio):
                words = f"{place}  {low:.3g} of {high:.3g}  {source}  [{test.rpartition('::')[2]}]"
                measured.append(
                    ((1 - ratio) / moved, f"{1 - ratio:.2g} left, {moved:.2g} moved  {words}")
                )
    print(
        f"{len(worst)} places\n\n{len(tolerances)} tolerances with a margin below "
        f"{1 / ENOUGH:.0f}: ratio (in each file), error and tolerance"
    )
    print("\n".join(line for _, line in sorted(tolerances, reverse=True)))
    print(
        f"\n{len(measured)} bounds that are measured: what is left of 1 is less than "
        "ten times what moved between the files"
    )
    print("\n".join(line for _, line in sorted(measured)))


if __name__ == "__main__":
    report(sys.argv[1:])
