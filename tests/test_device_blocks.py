"""Blocks of rows on a device: every model has the answer of blocks on the processors. The device is
that of CPU tensors; a GPU differs by its name alone."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import eckart
from eckart.engines.blocks.engine import BlocksEngine
from eckart.engines.blocks.placed import Here
from eckart.engines.cpu.engine import CpuEngine
from eckart.errors import InputError
from eckart.matrix import Dense

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'eckart[torch]'")

from eckart.engines.cuda import blocks, held  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent / "engines"))
from exchange import CASES, data  # noqa: E402

SEQUENTIAL = ("LDA gibbs", "GloVe adagrad", "SkipGram")
"""What walks through all entries in turn and has no blocks."""


def fitted(case, inner):
    name, options, kind, verbs = CASES[case]
    model = getattr(eckart, name)(**options).set_params(
        random_state=0, engine=BlocksEngine(1, Here(inner), cut=3)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations: some do not converge
        model.fit(data()[kind])
    return model, [np.asarray(getattr(model, verb)(data()[kind])) for verb in verbs]


@pytest.mark.parametrize("case", [name for name in CASES if name not in SEQUENTIAL])
def test_every_model_has_the_answer_of_blocks_on_the_processors(case, monkeypatch):
    done = []
    whole = blocks.DeviceBlocks._there
    monkeypatch.setattr(
        blocks.DeviceBlocks,
        "_there",
        lambda self, name, *rest: (done.append(name), whole(self, name, *rest))[1],
    )
    (there, answers), (here, wanted) = (
        fitted(case, blocks.DeviceBlocks(1, "cpu")),
        fitted(case, CpuEngine(1)),
    )
    assert there.certificate_.holds == here.certificate_.holds
    for got, want in zip(answers, wanted):
        # other sums of the same numbers, at an optimum or after few steps of batches
        np.testing.assert_allclose(
            got, want, rtol=0, atol=(1e-4 if case == "MiniBatchNMF" else 1e-5) * np.abs(want).max()
        )
    assert bool(done) == (case not in ALONE)


ALONE = ("MixedTable", "MixedTable huber", "SkipGram exact")
"""What has no primitive that is spread over blocks: columns of a table, and a small matrix of all
pairs."""


def test_a_block_is_moved_once_and_goes_with_its_owner(monkeypatch):
    engine, moves = blocks.DeviceBlocks(1, "cpu"), []
    move = held.DeviceMatrix._look
    monkeypatch.setattr(
        held.DeviceMatrix,
        "_look",
        lambda self, whole: (moves.append(len(whole)), move(self, whole))[1],
    )
    first, second = (
        engine.put(Dense(np.random.default_rng(seed).random((50 + seed, 4)))) for seed in (0, 1)
    )
    for _ in range(3):
        for block in (first, second):
            np.testing.assert_allclose(
                engine.times(block, v=np.eye(4), mean=None), block.matrix.array
            )
    assert moves == [50, 51]
    kept = engine._held[id(first)][1]
    assert kept.resident is not None
    del first, block, kept
    gc.collect()
    assert [each[1].shape[0] for each in engine._held.values()] == [51]


def test_a_place_in_memory_that_is_used_again_is_another_block():
    engine, found = blocks.DeviceBlocks(1, "cpu"), []
    # each is freed before the next is made, most of them where the last one lay
    for seed in range(20):
        x = engine.put(Dense(np.full((30, 2), float(seed))))
        found.append(engine.times(x, v=np.eye(2), mean=None)[0, 0])
        del x
    assert found == list(range(20))
    assert len(engine._held) <= 1


def test_the_row_that_is_refused_is_that_of_the_whole_matrix():
    x = np.random.default_rng(0).random((300, 4))
    x[250, 2] = np.inf
    with pytest.raises(InputError, match="row 250"):
        eckart.PCA(2, engine=BlocksEngine(1, Here(blocks.DeviceBlocks(1, "cpu")), cut=3)).fit(x)


def test_a_device_without_room_says_so_and_the_processors_go_on(monkeypatch, caplog):
    def none(*_, **__):
        raise torch.OutOfMemoryError("no room")

    engine = blocks.DeviceBlocks(1, "cpu")
    monkeypatch.setattr(held.DeviceMatrix, "resident", property(none))
    x = np.random.default_rng(0).random((40, 3))
    with caplog.at_level(logging.WARNING, "eckart"):
        got = engine.times(engine.put(Dense(x)), v=np.eye(3), mean=None)
    np.testing.assert_allclose(got, x)
    assert "times ran on the CPU engine" in caplog.text


def test_arguments_that_blocks_share_are_moved_once():
    engine = blocks.DeviceBlocks(1, "cpu")
    shared = {"right": np.ones((5, 2)), "rule": "any", "mean": np.zeros(5)}
    moved = engine.moved(shared)
    assert isinstance(moved["right"], blocks.DeviceArray)
    assert moved["rule"] == "any"
    assert moved["mean"] is shared["mean"]
