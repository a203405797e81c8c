"""pair_step on every engine against plain: the same windows, the same noise, the same vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart.engines import engine_named
from eckart.engines.protocol.windows import Pieces, WindowRule, alias_table, cut, tables


def corpus(seed, n=30, sentences=40, longest=60, keep=0.8):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 12, sentences)
    lengths[3] = 2 * longest + 7
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.choice(n, pointers[-1], p=np.arange(1, n + 1) / (n * (n + 1) / 2)).astype(np.int32)
    return Pieces.of(ids, pointers, np.linspace(keep, 1, n), rng.random(n) + 0.1, longest)


def start(n, k, seed=0, bias=-1):
    rng = np.random.default_rng(seed)
    x, y = tables(n, k), tables(n, k)
    x[:n, :k], y[:n, :k] = rng.standard_normal((2, n, k)) * 0.3
    if bias >= 0:
        x[:n, bias] = 1.0
    return x, y


@pytest.mark.parametrize(
    ("k", "window", "drawn", "bias"), [(5, 2, 3, -1), (16, 5, 5, -1), (20, 3, 11, 19), (33, 1, 1, -1), (7, 4, 20, 6)]
)
def test_cpu_takes_the_steps_of_plain(k, window, drawn, bias):
    pieces = corpus(k)
    rule = WindowRule(window, drawn, 5 / drawn, bias)
    ends = []
    for name in ("plain", "cpu"):
        x, y = start(pieces.n, k, bias=bias)
        told = engine_named(name, 1).pair_step(pieces, x, y, (2, len(pieces)), rule, rates=(0.1, 0.02), seed=9)
        ends.append((x, y, told))
    (x1, y1, e1), (x2, y2, e2) = ends
    assert np.abs(x1 - x2).max() < 1e-4
    assert np.abs(y1 - y2).max() < 1e-4
    assert e1.pairs == e2.pairs > 300
    assert e1.heard == e2.heard > 0
    assert e2.loss == pytest.approx(e1.loss, rel=1e-4)
    assert np.abs(x2 - start(pieces.n, k, bias=bias)[0]).max() > 0.01
    assert not x2[-1].any()
    assert not y2[-1].any()
    assert not x2[:, k:].any()
    assert not y2[:, k:].any()


@pytest.mark.parametrize("threads", [2, 3])
def test_alone_the_bits_do_not_depend_on_threads(threads):
    pieces = corpus(1, sentences=4000)
    rule = WindowRule(3, 5, 1.0)
    ends = []
    for count in (1, threads):
        x, y = start(pieces.n, 12)
        engine_named("cpu", count).pair_step(
            pieces, x, y, (0, len(pieces)), rule, rates=(0.1, 0.02), seed=3, together=False
        )
        ends.append((x, y))
    assert (ends[0][0] == ends[1][0]).all()
    assert (ends[0][1] == ends[1][1]).all()


def test_runs_in_parts_are_one_run():
    pieces = corpus(2)
    rule, engine = WindowRule(3, 5, 1.0), engine_named("cpu", 1)
    x, y = start(pieces.n, 12)
    engine.pair_step(pieces, x, y, (0, len(pieces)), rule, rates=(0.1, 0.1), seed=3)
    u, v = start(pieces.n, 12)
    for a, b in ((0, 7), (7, 7), (7, len(pieces))):
        engine.pair_step(pieces, u, v, (a, b), rule, rates=(0.1, 0.1), seed=3)
    assert (x == u).all()
    assert (y == v).all()


def test_threads_that_share_the_tables_learn_as_much():
    pieces = corpus(4, n=200, sentences=20000)
    rule = WindowRule(3, 5, 1.0)
    heard = []
    for together in (False, True):
        x, y = start(pieces.n, 8)
        for epoch in range(3):
            told = engine_named("cpu", 2).pair_step(
                pieces, x, y, (0, len(pieces)), rule, rates=(0.05, 0.05), seed=epoch, together=together
            )
        heard.append(told.loss / told.heard)
    assert heard[1] == pytest.approx(heard[0], rel=0.02)


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
