"""Every solver goes the way that was written down: its steps, stops, restarts, plans and answers (see ``recorded_paths``)."""

from __future__ import annotations

import pytest

from recorded_paths import CLOSE, CLOSE_SINGLE, cases, differences, recorded, run

RECORDED = recorded()
NETWORKS = ("autoencoder", "conv")


def test_every_case_was_written_down():
    assert set(cases()) == set(RECORDED)


@pytest.mark.one_seed
@pytest.mark.parametrize("case", cases())
def test_the_way_is_the_one_that_was_written_down(case):
    close = CLOSE_SINGLE if case.startswith(NETWORKS) else CLOSE
    assert differences(run(case), RECORDED[case], close) == []
