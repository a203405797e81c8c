"""The same tests in other circumstances: with other seeds (``--seeds 30``), and with matrices cut into blocks of a few rows (``--block-rows 2``).

With ``--seeds n`` every test that draws numbers runs n times and each seed in it, of its data and of its models, is another one each time; other tests are left
out. With ``--block-rows n`` the automatic engine cuts every matrix in memory into blocks of n rows and works on these one after another.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

STEP = 1_000_003
"""Distance between the seeds of two runs: larger than any seed that a test writes down."""
DRAWS = ("rng", "default_rng", "random_state", "planted")
"""Words by which a test, or the fixtures that it asks for, shows that it draws."""


def add_options(parser):
    parser.addoption("--seeds", type=int, default=0, help="run every test that draws numbers with so many seeds")
    parser.addoption("--block-rows", type=int, default=0, help="cut matrices into blocks of so many rows")


def pytest_generate_tests(metafunc):
    seeds = metafunc.config.getoption("--seeds")
    if seeds and draws(metafunc):
        metafunc.fixturenames.append("seed_shift")
        metafunc.parametrize("seed_shift", range(1, seeds + 1), indirect=True)


def draws(metafunc) -> bool:
    """Whether a test draws numbers by itself; hypothesis has seeds of its own."""
    if getattr(metafunc.function, "is_hypothesis_test", False):
        return False
    return "rng" in metafunc.fixturenames or any(word in inspect.getsource(metafunc.function) for word in DRAWS)


@pytest.fixture
def seed_shift(request, monkeypatch):
    """Every seed that is a number is moved; sequences and generators stay as they are."""
    original = np.random.default_rng

    def default_rng(seed=None):
        return original(seed + STEP * request.param if isinstance(seed, (int, np.integer)) else seed)

    monkeypatch.setattr(np.random, "default_rng", default_rng)
    return request.param


@pytest.fixture(autouse=True)
def in_blocks(request, monkeypatch):
    rows = request.config.getoption("--block-rows")
    if not rows:
        return
    from eckart.engines.blocks.engine import BlocksEngine
    from eckart.matrix import Dense
    from eckart.matrix_blocks import MemoryParts

    made = BlocksEngine.__init__

    def init(self, n_threads=None, runner=None, cut=0):
        made(self, n_threads, runner, cut or 1)

    def cut(self, matrix):
        if isinstance(matrix, Dense) and not matrix.in_memory:
            return None
        return MemoryParts(matrix, rows) if matrix.shape[0] > rows else None

    monkeypatch.setattr(BlocksEngine, "__init__", init)
    monkeypatch.setattr(BlocksEngine, "_cut", cut)
