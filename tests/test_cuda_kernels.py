"""Kernels of the engine in PyTorch: how rows are cut for them and, where Triton is installed, each
under its interpreter. On a GPU: ``make test-gpu``."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the engine needs PyTorch")

from eckart.engines.arrays import mixtures  # noqa: E402
from eckart.engines.cuda import made  # noqa: E402
from eckart.engines.cuda.arrays import Twins  # noqa: E402
from eckart.engines.cuda.kernels.products import ProductPieces  # noqa: E402
from eckart.engines.protocol.mixtures import Gaussians  # noqa: E402
from eckart.entry_facts import EntryFacts  # noqa: E402
from eckart.matrix import Dense, Observed  # noqa: E402
from eckart.matrix_blocks import facts_of  # noqa: E402


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=12), st.integers(1, 5))
def test_pieces_cover_every_entry_once_and_end_in_their_row(counts, limit):
    indptr = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int64)
    p = ProductPieces.of(indptr, limit)
    numbers = torch.arange(int(indptr[-1])).double() ** 2 + 1
    lines = torch.full((p.lines,), torch.nan, dtype=torch.float64)
    covered = torch.zeros_like(numbers)
    for a, z, row, line in zip(p.first, p.last, p.row, p.line):
        assert 0 <= z - a <= limit
        assert z <= a or (indptr[row] <= a and z <= indptr[row + 1])
        covered[a:z] += 1
        lines[line] = numbers[a:z].sum()
    for row, a, z in zip(p.long_rows, p.long_first, p.long_last):
        lines[row] = lines[a:z].sum()
    assert bool((covered == 1).all())
    assert p.rows == len(counts)
    want = [numbers[a:z].sum() for a, z in pairwise(indptr)]
    assert lines[: p.rows].tolist() == [float(w) for w in want]


@pytest.mark.skipif(
    find_spec("triton") is None,
    reason="Triton is not installed; on a GPU `make test-gpu` runs the kernels themselves",
)
def test_every_kernel_gives_what_torch_gives():
    script = Path(__file__).parent / "engines" / "interpreted.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "DIFFERENT" not in done.stdout, done.stdout
    assert done.stdout.count("same") == 40


@pytest.mark.parametrize("kind", ["diag", "full", "tied", "spherical"])
def test_a_mixture_is_the_same_by_features_and_by_deviations(monkeypatch, kind):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((300, 4)) * [1.0, 5.0, 0.2, 1.0] + 3.0, rng.random(300)
    spread = {
        "diag": np.full((3, 4), 0.5),
        "full": np.stack([np.eye(4)] * 3),
        "tied": 2 * np.eye(4),
        "spherical": np.ones(3),
    }[kind]
    theta = Gaussians(kind, np.array([0.2, 0.3, 0.5]), x[:3], spread)
    found = []
    for most in (mixtures.SPREAD, 0.0):
        monkeypatch.setattr(mixtures, "SPREAD", most)
        engine = made(1, "cpu")
        s = engine.gaussian_statistics(engine.put(Dense(x), w), theta)
        found.append(
            [
                s.mean,
                s.scatter,
                s.counts,
                s.bound,
                engine.gaussian_posteriors(engine.put(Dense(x)), theta, shares=True).shares,
            ]
        )
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.abs(b).max())


def test_a_small_component_far_from_the_origin_keeps_its_digits():
    rng = np.random.default_rng(2)
    x = np.concatenate([1e6 + 1e-3 * rng.standard_normal((100, 2)), rng.standard_normal((100, 2))])
    theta = Gaussians(
        "diag",
        np.array([0.5, 0.5]),
        np.array([[1e6, 1e6], [0.0, 0.0]]),
        np.array([[1e-6, 1e-6], [1.0, 1.0]]),
    )
    engine = made(1, "cpu")
    got = engine.gaussian_statistics(engine.put(Dense(x)), theta)
    near = x[:100] - x[:100].mean(0)
    np.testing.assert_allclose(got.scatter[0], (near**2).sum(0), rtol=1e-5)


def test_a_copy_on_the_host_is_known_while_it_lives_and_cannot_be_changed():
    twins, there = Twins(), torch.arange(6.0)
    host = twins.copy(there)
    assert twins.find(host) is there
    assert twins.find(host.copy()) is None
    with pytest.raises(ValueError, match="read-only"):
        host[0] = 1
    del host
    assert not twins._known


def test_facts_that_are_looked_up_are_those_of_the_entries():
    x = Observed(np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([1.0, 4.0, 2.5]), 2)
    known, facts = EntryFacts.of(x), facts_of(x)
    for name in (*EntryFacts._fields, "deviation"):
        np.testing.assert_array_equal(getattr(known, name), getattr(facts, name))
    assert known.deviation == pytest.approx(np.std([1.0, 4.0, 2.5]))
