"""Every solver goes the way that was written down: its steps, stops, restarts, plans and answers (see ``recorded_paths``).

Not part of the suite: roundings of another processor may turn a way. ``make test-paths`` compares; faults that are put into the code (``mutants.py``) meet it too.
"""

from __future__ import annotations

import importlib.util

import pytest

from recorded_paths import NETWORKS, cases, differences, recorded, run, tolerance_of

RECORDED = recorded()
TORCH = importlib.util.find_spec("torch") is not None


def test_every_case_was_written_down():
    assert set(cases()) == {name for name in RECORDED if TORCH or not name.startswith(NETWORKS)}


@pytest.mark.recorded
@pytest.mark.one_seed
@pytest.mark.parametrize("case", cases())
def test_the_way_is_the_one_that_was_written_down(case):
    assert differences(run(case), RECORDED[case], tolerance_of(case)) == []
