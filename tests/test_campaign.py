"""A short share of every attack of ``make campaign``, the same one every time."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections import Counter

import numpy as np
import pytest

SHARES = {"files": 400, "faults": 40, "differential": 15, "stateful": 60, "threads": 2}
"""Attempts in the suite; kills start processes of their own and run in the campaign alone."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", SHARES)
def test_a_share_of_the_campaign(part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what breaks is kept in the working directory
    attempts = importlib.import_module(f"campaign.{part}").attempts(
        np.random.default_rng(0), tmp_path
    )
    with np.errstate(all="ignore"):
        counts = Counter(itertools.islice(attempts, SHARES[part]))
    assert counts.total() == SHARES[part]
    assert len(counts) > 1 or part == "threads"


@pytest.mark.skipif(sys.platform == "win32", reason="no kill -9")
@pytest.mark.filterwarnings("ignore")
def test_kills(tmp_path):
    kills = importlib.import_module("campaign.kills")
    assert Counter(itertools.islice(kills.saves(np.random.default_rng(0), tmp_path), 10)) == {
        "save killed": 10
    }
    ended = Counter()
    for word in kills.fits(np.random.default_rng(0), tmp_path):
        ended[word] += 1
        if ended["fit resumed to the same bits"] == 2:
            break
    assert ended["fit killed"] > 0
