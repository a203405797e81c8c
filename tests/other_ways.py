"""The same tests in other circumstances: with other seeds (``--seeds 30``), and with matrices cut
into blocks of a few rows (``--block-rows 2``).

With ``--seeds n`` every test that draws numbers runs n times and each seed in it, of its data and
of its models, is another one each time (``--first-seed 11``: others than those of an earlier run).
Which tests draw is not guessed: a test that drew nothing in its first run is not run again. Tests
of hypothesis have seeds of their own and are left out. Fixtures that tests share, and what a file
keeps in caches, are drawn anew with every seed. ``--repeat-below 0.5`` repeats only those whose
first run took less than so many processor seconds, ``--repeat-above`` the others; ``--seconds-each
20`` repeats each until so many of them are spent on it, ``--seconds-all 60`` begins no run after so
many on the clock; ``--seed-notes FILE`` adds one line for each test: its name, its seconds, on how
many seeds it ran, on which it failed, and whether it drew. A later run with the same file goes on
where it ended: a test has the seeds that it has not had, and one that had all of them or draws
nothing is left out. With ``--block-rows n`` the automatic engine cuts every matrix in memory into
blocks of n rows and works on these one after another. ``--margins FILE``: see ``margins.py``.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from _pytest.runner import runtestprotocol

from margins import Margins

STEP = 1_000_003
"""Distance between the seeds of two runs: larger than any seed that a test writes down."""

MOST_BLOCKS = 150
"""Blocks of one matrix with ``--block-rows``: each costs a fraction of a millisecond, and a few
tests bring a million rows."""


def add_options(parser):
    parser.addoption(
        "--seeds", type=int, default=0, help="run every test that draws numbers with so many seeds"
    )
    parser.addoption("--first-seed", type=int, default=1, help="the first of these seeds")
    parser.addoption(
        "--repeat-below",
        type=float,
        default=1e9,
        help="seconds of a test that is run on more than one seed",
    )
    parser.addoption(
        "--repeat-above",
        type=float,
        default=0.0,
        help="seconds from which a test is run on more than one seed",
    )
    parser.addoption(
        "--seconds-each",
        type=float,
        default=1e9,
        help="seconds after which a test is not repeated any more",
    )
    parser.addoption(
        "--seconds-all",
        type=float,
        default=1e9,
        help="seconds after which no run is begun any more",
    )
    parser.addoption(
        "--seed-notes", default=None, help="a file that gets a line of JSON for each test that drew"
    )
    parser.addoption(
        "--margins",
        default=None,
        help="a file that gets a line of JSON for each comparison of numbers: how near it "
        "came to its bound",
    )
    parser.addoption(
        "--block-rows", type=int, default=0, help="cut matrices into blocks of so many rows"
    )


def pytest_configure(config):
    if config.getoption("--margins"):
        config.pluginmanager.register(Margins(config.getoption("--margins")))
    if config.getoption("--seeds"):
        alone()
        words = (
            "--first-seed",
            "--seeds",
            "--repeat-above",
            "--repeat-below",
            "--seconds-each",
            "--seed-notes",
            "--seconds-all",
        )
        config.pluginmanager.register(MovedSeeds(*map(config.getoption, words)))


def alone():
    """Give a test process a core of its own where there are more than two: else each starts as many
    threads as there are cores."""
    worker, cores = (
        os.environ.get("PYTEST_XDIST_WORKER"),
        sorted(getattr(os, "sched_getaffinity", lambda _: ())(0)),
    )
    if worker is not None and len(cores) > 2:
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


class MovedSeeds:
    """Every seed that is a number is moved while a test runs; sequences and generators stay as they
    are."""

    def __init__(
        self,
        first: int,
        count: int,
        above: float,
        below: float,
        each: float,
        notes: str | None,
        whole: float,
    ):
        self.end = time.perf_counter() + whole
        self.shifts, self.repeated, self.each, self.notes = (
            range(first, first + count),
            (above, below),
            each,
            notes,
        )
        self.shift, self.drew = 0, False
        self.shared: set = set()
        """Fixtures of more than one test that drew while they were made."""
        self.had = noted(notes, count)
        self.original = np.random.default_rng
        np.random.default_rng = self.default_rng

    def default_rng(self, seed=None):
        self.drew = True
        return self.original(
            seed + STEP * self.shift if isinstance(seed, (int, np.integer)) else seed
        )

    def pytest_collection_modifyitems(self, config, items):
        drawing = [
            item
            for item in items
            if isinstance(item, pytest.Function)
            and not getattr(item.function, "is_hypothesis_test", False)
            and item.get_closest_marker("one_seed") is None
            and self.had.get(item.nodeid, 0) < len(self.shifts)
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(drawing)])
        items[:] = drawing

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Note which shared fixtures draw, or rest on one that does: they are made anew with every
        seed."""
        before, self.drew = self.drew, False
        try:
            return (yield)
        finally:
            if self.drew and fixturedef.scope != "function":
                self.shared.add(fixturedef)
            self.drew = self.drew or before

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        started, runs, failed = time.process_time(), 0, []
        self.drew = False
        for shift in self.shifts[self.had.get(item.nodeid, 0) :]:
            if time.perf_counter() > self.end:
                break
            self.shift, self.drew, begun = shift, False, time.process_time()
            if self.shared.intersection(
                made for several in item._fixtureinfo.name2fixturedefs.values() for made in several
            ):
                item.session._setupstate.teardown_exact(None)
            item._initrequest()  # fixtures of the test itself are made anew
            forget(item.module)
            for report in runtestprotocol(item, nextitem=nextitem, log=False):
                # the name stays as it is: processes side by side know a test by it
                if report.failed:
                    failed.append(shift)
                    report.longrepr = (
                        f"{report.longreprtext}\n{item.nodeid} fails with --seeds 1 "
                        f"--first-seed {shift}"
                    )
                item.ihook.pytest_runtest_logreport(report=report)
            runs, now = runs + 1, time.process_time()
            started = started if runs > 1 else now  # the first run may have compiled
            rare = (
                shift == self.shifts[0] and not self.repeated[0] <= now - begun < self.repeated[1]
            )
            if not self.drew or rare or now - started >= self.each:
                break
        if self.notes and runs:
            seconds = time.process_time() - (started if runs > 1 else begun)
            # one short write: processes side by side do not mix their lines
            with Path(self.notes).open("a") as file:
                file.write(
                    json.dumps([item.nodeid, round(seconds, 2), runs, failed, self.drew]) + "\n"
                )
        self.shift = 0
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def noted(notes: str | None, count: int) -> dict[str, int]:
    """On how many seeds each test ran by the notes of earlier runs; a test that drew nothing needs
    no other seed."""
    had: dict[str, int] = {}
    if notes and Path(notes).exists():
        for line in Path(notes).read_text().splitlines():
            name, _, runs, _, drew = json.loads(line)
            had[name] = had.get(name, 0) + (runs if drew else count)
    return had


def forget(module):
    """Empty the caches (``functools.cache``) of a test file and of the helpers it took in: what
    they keep was drawn from other seeds."""
    for value in vars(module).values():
        if hasattr(value, "cache_clear") and not value.__module__.startswith("eckart"):
            value.cache_clear()


@pytest.fixture(autouse=True)
def in_blocks(request, monkeypatch):
    rows = request.config.getoption("--block-rows")
    if not rows:
        return
    if request.node.get_closest_marker("in_one_piece"):
        pytest.skip("it counts the calls of an engine, and blocks make more of them")
    least = request.node.get_closest_marker("blocks_of")
    if least is not None and rows < least.args[0]:
        pytest.skip(f"blocks of fewer than {least.args[0]} rows: {least.args[1]}")
    from eckart.engines.blocks.engine import BlocksEngine
    from eckart.matrix import Dense
    from eckart.matrix_parts import MemoryParts

    made = BlocksEngine.__init__

    def init(self, n_threads=None, runner=None, cut=0):
        made(self, n_threads, runner, cut or 1)

    def cut(self, matrix):
        if isinstance(matrix, Dense) and not matrix.in_memory:
            return None
        height = max(rows, -(-matrix.shape[0] // MOST_BLOCKS))
        return MemoryParts(matrix, height) if matrix.shape[0] > height else None

    monkeypatch.setattr(BlocksEngine, "__init__", init)
    monkeypatch.setattr(BlocksEngine, "_cut", cut)
