"""The tool that measures margins: its ratios are those of their definitions, and a comparison that
is noted answers as before."""

from __future__ import annotations

import ast

import numpy as np
import pytest

import margins


def test_ratios_are_those_of_their_definitions():
    assert margins.near([1.0, 2.0], [1.0, 2.5], 0.1, 0.25)[0] == pytest.approx(
        0.5 / (0.25 + 0.1 * 2.5)
    )
    assert margins.near([0.0, np.nan], [0.0, np.nan], 0.0, 0.0)[0] == 0
    assert margins.near("a", "b", 0.0, 0.0) is None
    assert margins.ordered(2.0, 8) == (0.25, 2.0, 8.0)
    assert margins.ordered(-8.0, -2.0)[0] == 0.25
    assert margins.ordered(3, 4) is None  # counts are exact
    assert margins.ordered(-1.0, 1.0) is None
    assert margins.ordered(np.array([1.0, 3.0]), 4.0)[0] == 0.75


def test_what_is_compared_by_approx_is_found_wherever_it_stands():
    ratio = pytest.approx(0.5)
    found = margins.approximated(
        (1, [2.05, {"a": 1.0}]), (1, [pytest.approx(2.0, abs=0.1), {"a": 1.0}])
    )
    assert [one[0] for one in found] == [ratio]
    assert margins.approximated({"a": 2.05}, pytest.approx({"a": 2.0}, rel=0.05))[0][0] == ratio
    assert (
        margins.approximated(np.array([1.0, 2.05]), pytest.approx(np.array([1.0, 2.0]), abs=0.1))[
            0
        ][0]
        == ratio
    )


@pytest.mark.parametrize(
    ("code", "passes", "noted"),
    [
        ("assert 1.0 < 2.0 <= 4.0", True, 0.5),
        ("assert 2.0 > 4.0", False, None),
        ("assert (np.array([1.0, 3.0]) < 4.0).all()", True, 0.75),
        ("assert all(a <= 4.0 for a in (1.0, 2.0))", True, 0.5),
        ("assert 2.05 == pytest.approx(2.0, abs=0.1)", True, 0.5),
        ("assert 'a' < 'b' == 'b'", True, None),
        ("assert 5.0 < 4.0 < undefined()", None, None),
    ],
)
def test_a_comparison_that_is_noted_answers_as_before(code, passes, noted):
    """All sides of a chain are evaluated, where Python ends at the first that is false: the one
    thing that differs."""
    tool = object.__new__(margins.Margins)
    tool.test, tool.worst = "here", {}
    tree = ast.fix_missing_locations(margins.Noted("file.py").visit(ast.parse(code)))
    names = {"__compared__": tool.compare, "np": np, "pytest": pytest}
    if passes:
        exec(compile(tree, "file.py", "exec"), names)
    else:
        with pytest.raises(AssertionError if passes is False else NameError):
            exec(compile(tree, "file.py", "exec"), names)
    ratios = [ratio for ratio, *_ in tool.worst.values()]
    assert (ratios == []) if noted is None else (max(ratios) == pytest.approx(noted))
