"""pair_step on every engine against the oracle: the same windows, the same noise, the same vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart.engines import engine_named
from eckart.engines.protocol import words as windows
from eckart.engines.protocol.words import Pieces, WindowRule, alias_table, cut
from oracle import JUDGE


def corpus(seed, n=30, sentences=40, longest=60, keep=0.8):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 12, sentences)
    lengths[3] = 2 * longest + 7
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.choice(n, pointers[-1], p=np.arange(1, n + 1) / (n * (n + 1) / 2)).astype(np.int32)
    return Pieces.of(ids, pointers, np.linspace(keep, 1, n), rng.random(n) + 0.1, longest)


def start(engine, n, k, seed=0, bias=-1):
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal((2, n, k)) * 0.3).astype(np.float32)
    if bias >= 0:
        x[:, bias] = 1.0
    return engine.window_table(x), engine.window_table(y)


def steps(engine, pieces, k, part, rule, seed=9, rates=(0.1, 0.02), **how):
    """The tables after steps, without padding, and the evidence."""
    x, y = start(engine, pieces.n, k, bias=rule.bias)
    told = engine.pair_step(pieces, x, y, part, rule, rates=rates, seed=seed, **how)
    for table in (engine.get(x), engine.get(y)):
        assert not table[-1].any()
        assert not table[:, k:].any()
    return engine.get(x)[:-1, :k], engine.get(y)[:-1, :k], told


@pytest.fixture
def short(monkeypatch):
    """Rounds of blocks for texts of any length, of more than one run and more than one round."""
    for name, value in {"SHORT": 0, "RUN": 40, "SAMPLES": 2000}.items():
        monkeypatch.setattr(windows, name, value)
    monkeypatch.setattr(windows, "lanes_for", lambda n, most: 4)


CASES = [(5, 2, 3, -1), (16, 5, 5, -1), (20, 3, 11, 19), (33, 1, 1, -1), (7, 4, 20, 6)]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("k", "window", "drawn", "bias"), CASES)
def test_the_steps_of_the_oracle(k, window, drawn, bias, together, request):
    if not together:
        request.getfixturevalue("short")
    pieces = corpus(k)
    rule = WindowRule(window, drawn, 5 / drawn, k, bias)
    ends = [
        steps(engine, pieces, k, (2, len(pieces)), rule, together=together)
        # blocks of samples are the CPU engine's
        for engine in (JUDGE, *map(engine_named, ("cpu", "numpy")[: 1 + together]))
    ]
    x1, y1, e1 = ends[0]
    for x2, y2, e2 in ends[1:]:
        assert np.abs(x1 - x2).max() < 1e-4
        assert np.abs(y1 - y2).max() < 1e-4
        assert e1.pairs == e2.pairs > 300
        assert e1.listened == e2.listened > 0
        assert e2.loss == pytest.approx(e1.loss, rel=1e-4)
    assert np.abs(x2 - start(JUDGE, pieces.n, k, bias=bias)[0][:-1]).max() > 0.01


@pytest.mark.parametrize("threads", [2, 3, 5, 16])
@pytest.mark.parametrize("n", [30, 4096])
def test_alone_the_bits_do_not_depend_on_threads(threads, n, monkeypatch):
    monkeypatch.setattr(windows, "SHORT", 2**12)
    pieces = corpus(1, n=n, sentences=4000)
    assert windows.rounds_of(pieces, (0, len(pieces)), WindowRule(3, 5, 1.0, 12))[0] == (
        1 if n == 30 else 16
    )
    one, other = (
        steps(
            engine_named("cpu", t),
            pieces,
            12,
            (0, len(pieces)),
            WindowRule(3, 5, 1.0, 12),
            together=False,
        )
        for t in (1, threads)
    )
    assert one[0].tobytes() == other[0].tobytes()
    assert one[1].tobytes() == other[1].tobytes()
    assert one[2] == other[2]


def test_runs_in_parts_are_one_run():
    pieces = corpus(2)
    rule, engine = WindowRule(3, 5, 1.0, 12), engine_named("cpu", 1)
    x, y = start(engine, pieces.n, 12)
    engine.pair_step(pieces, x, y, (0, len(pieces)), rule, rates=(0.1, 0.1), seed=3)
    u, v = start(engine, pieces.n, 12)
    for a, b in ((0, 7), (7, 7), (7, len(pieces))):
        engine.pair_step(pieces, u, v, (a, b), rule, rates=(0.1, 0.1), seed=3)
    assert (x == u).all()
    assert (y == v).all()


def test_all_ways_learn_as_much(monkeypatch):
    pieces = corpus(4, n=600, sentences=20000)
    rule, engine = WindowRule(3, 5, 1.0, 8), engine_named("cpu", 2)
    heard = []
    for together, short in ((False, 2**30), (True, 0), (False, 0)):
        monkeypatch.setattr(windows, "SHORT", short)
        x, y = start(engine, pieces.n, 8)
        for epoch in range(3):
            told = engine.pair_step(
                pieces,
                x,
                y,
                (0, len(pieces)),
                rule,
                rates=(0.05, 0.05),
                seed=epoch,
                together=together,
            )
        heard.append(told.loss / told.listened)
    assert heard[1:] == pytest.approx([heard[0]] * 2, rel=0.02)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40))
def test_alias_table_has_the_weights(weights):
    w = np.array(weights)
    chance, alias = alias_table(w)
    c = chance / 2.0**32
    share = np.bincount(np.arange(len(w)), c, len(w)) + np.bincount(alias, 1 - c, len(w))
    np.testing.assert_allclose(share / len(w), w / w.sum(), atol=1e-8)


def test_cuts_keep_sentences_and_pieces_short():
    at = cut(np.array([0, 0, 3, 10, 11]), 4)
    assert at.tolist() == [0, 3, 7, 10, 11]
    assert cut(np.array([0, 0]), 4).tolist() == [0]
