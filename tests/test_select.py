"""Choosing k."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

import eckart
from conftest import planted
from eckart import select_components
from eckart.reduce import select
from eckart.reduce.rank import by_share, gavish_donoho, marchenko_pastur_median, threshold_factor
from eckart.trace import silent


def test_all_methods_find_a_clear_planted_rank(rng):
    x = planted(rng, rows=400, n=25, rank=4, noise=0.3)
    s = select_components(x, random_state=0)
    for method in ("held_out", "gavish_donoho", "parallel"):
        assert s.choices[method] == 4, s
    errors = s.table["held-out error"]
    assert int(np.argmin(errors)) >= 4
    assert errors[4] < 0.5 * errors[2]
    assert s.table["k"] == list(range(21))
    shares = s.table["share of variance"]
    assert shares[0] == 0
    assert all(b >= a for a, b in itertools.pairwise(shares))
    assert "chosen: held_out 4" in str(s)


def test_noise_has_no_components(rng):
    s = select_components(rng.standard_normal((300, 15)), random_state=0)
    assert s.choices["gavish_donoho"] == 0
    assert s.choices["held_out"] == 0
    # a quantile of 95 %: noise lies above it in one table of twenty, in more than five of twenty
    # with a chance of 3e-4
    tables = [rng.standard_normal((100, 8)) for _ in range(20)]
    assert (
        sum(
            select_components(x, methods=("parallel",), random_state=0).choices["parallel"] > 0
            for x in tables
        )
        <= 5
    )


def test_noise_lies_above_the_quantile_of_shuffles_in_one_of_twenty(rng, monkeypatch):
    monkeypatch.setattr(select, "_largest", lambda x: (float(rng.random()), np.zeros(2)))
    above = sum(select._parallel(np.eye(3, 2), 1, 20, rng, silent)[1] for _ in range(3000))
    # five deviations of 12; the interpolated quantile gave two of 21, 286
    assert abs(above - 150) < 60


def test_gaps_sparse_wide_and_streams(rng):
    x = planted(rng, rows=300, n=12, rank=2, noise=0.2)
    holes = x.copy()
    holes[rng.random(x.shape) < 0.2] = np.nan
    assert select_components(holes, random_state=0).choices["held_out"] == 2
    assert select_components(sparse.csr_array(x), random_state=0).choices["parallel"] == 2
    wide = select_components(
        sparse.random(300, 4000, 0.01, random_state=0, format="csr"), random_state=0
    )
    assert "held_out" not in wide.choices
    assert any("4000 columns" in note for note in wide.notes)
    many = select_components(planted(rng, rows=3000, n=8, rank=2), random_state=0, max_components=4)
    assert any("2000 rows drawn from 3000" in note for note in many.notes)


def test_arguments_are_checked(rng):
    x = rng.standard_normal((20, 4))
    for kwargs in ({"methods": ("guess",)}, {"share": 1.5}, {"held_out": 0.0}):
        with pytest.raises(eckart.InputError, match=next(iter(kwargs))):
            select_components(x, **kwargs)


def test_threshold_constants_of_the_paper():
    assert threshold_factor(1.0) == pytest.approx(4 / np.sqrt(3))
    assert threshold_factor(1.0) / np.sqrt(marchenko_pastur_median(1.0)) == pytest.approx(
        2.858, abs=2e-3
    )
    assert threshold_factor(0.5) / np.sqrt(marchenko_pastur_median(0.5)) == pytest.approx(
        2.1711, abs=5e-3
    )


def test_threshold_from_part_of_the_spectrum_agrees_with_all_of_it(rng):
    x = planted(rng, rows=1000, n=200, rank=6, noise=0.2)
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    assert (
        gavish_donoho(values, 1000, 200) == gavish_donoho(values[:20], 1000, 200, values.sum()) == 6
    )


def test_share_is_strict():
    assert by_share(np.array([0.5, 0.3, 0.2]), 1.0, 0.5) == 2
    assert by_share(np.array([0.5, 0.3, 0.2]), 1.0, 0.49) == 1
