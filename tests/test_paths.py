"""Every solver goes the way that was written down: its steps, stops, restarts, plans and answers
(see ``recorded_paths``).

Not part of the suite: roundings of another processor may turn a way. ``make test-paths`` compares;
faults that are put into the code (``mutants.py``) meet it, too.
"""

from __future__ import annotations

import importlib.util

import pytest

import eckart
from eckart.registry import SAVED
from recorded_paths import ELSEWHERE, NETWORKS, cases, differences, recorded, run, tolerance_of

RECORDED = recorded()
KINDS = {name: getattr(eckart, name) for name in SAVED}
TORCH = importlib.util.find_spec("torch") is not None


def test_every_case_was_written_down():
    assert set(cases()) == {name for name in RECORDED if TORCH or not name.startswith(NETWORKS)}


def test_parameters_that_nobody_gave_are_those_that_were_written_down():
    """Nothing of the library is called here: the faults of all its modules ask a test that only
    reads what stands there."""
    came = {name: kind().get_params(deep=False) for name, kind in KINDS.items()}
    assert {
        name: {p: str(v) for p, v in given.items() if p not in ELSEWHERE}
        for name, given in came.items()
    } == RECORDED["defaults"]


@pytest.mark.recorded
@pytest.mark.one_seed
@pytest.mark.parametrize("case", cases())
def test_the_way_is_the_one_that_was_written_down(case):
    assert differences(run(case), RECORDED[case], tolerance_of(case)) == []
