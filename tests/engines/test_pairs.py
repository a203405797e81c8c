"""Counting neighbours: the CPU engine against its plain twin, on sentences where each argument
matters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from registry import ENGINES
from scipy import sparse

from eckart.embed.cooccurrence import pair_rule
from eckart.engines.cpu.words import counting as pairs
from eckart.engines.protocol import PairRule, PmiRule, ScoreRule
from eckart.matrix import Counts, Observed
from oracle import JUDGE

PLAIN = JUDGE
N = 5000
"""Words: more than one block of 64 x 64 bits."""


@pytest.fixture
def text():
    rng = np.random.default_rng(5)
    lengths = np.concatenate([rng.integers(0, 30, 60), [0, 1, 1, 0, 400]])
    pointers = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.minimum(rng.zipf(1.3, pointers[-1]) - 1, N - 1).astype(np.int32)
    ids[ids == 7] = 8  # a word that never occurs
    return ids, pointers


def rows_of(pieces):
    """All rows as compressed ones, after a look at the manners of the pieces."""
    rows = list(pieces)
    assert [r.first for r in rows] == np.concatenate(
        [[0], np.cumsum([len(r.lengths) for r in rows])]
    )[:-1].tolist()
    lengths, indices, data = (np.concatenate(part) for part in list(zip(*rows))[1:])
    assert len(lengths) == N
    assert data.min(initial=1.0) > 0
    for part in np.split(indices, np.cumsum(lengths)[:-1]):
        assert (np.diff(part) > 0).all()  # ascending, each column once
    return lengths, indices, data


def equal(a, b):
    for one, two in zip(rows_of(a), rows_of(b)):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("sides", ["both", "left", "right"])
@pytest.mark.parametrize("weighting", ["harmonic", "flat", "linear"])
@pytest.mark.parametrize("window", [1, 10])
def test_cooccur(engine, text, window, weighting, sides):
    rule = pair_rule(window, weighting, sides)
    equal(engine.cooccur(*text, N, rule), PLAIN.cooccur(*text, N, rule))


def test_weights_that_are_no_whole_numbers(engine, text):
    rule = PairRule((0.3, 0.7, 0.123), 1.0)
    for a, b in zip(*(rows_of(e.cooccur(*text, N, rule)) for e in (engine, PLAIN))):
        np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("cuts", [[0.5], [0.1, 0.11, 0.9]])
def test_spans_add_up_to_the_whole(engine, text, cuts):
    ids, pointers = text
    rule = pair_rule(10)
    at = [0, *(int(c * len(ids)) for c in cuts), len(ids)]
    runs = [list(engine.cooccur(ids, pointers, N, rule, span)) for span in itertools.pairwise(at)]
    for run, span in zip(runs, itertools.pairwise(at)):
        equal(run, PLAIN.cooccur(ids, pointers, N, rule, span))
    joined = [whole(run) for run in runs]
    merged = list(engine.merge_counts(iter([joined]), N, rule))
    equal(merged, PLAIN.merge_counts(iter([joined]), N, rule))
    equal(merged, engine.cooccur(ids, pointers, N, rule))


def test_pieces_are_joined_in_their_order(engine, text, monkeypatch):
    pieces = [
        *PLAIN.cooccur(*text, N, pair_rule(3), piece=50),
        *PLAIN.cooccur(*text, N, pair_rule(1)),
    ]
    wanted = whole(pieces)
    for joined in (2, 40, 2**20):
        monkeypatch.setattr(pairs, "JOINED", joined)
        indices, data = engine.join_counts(list(pieces))
        np.testing.assert_array_equal(indices, wanted.indices)
        np.testing.assert_array_equal(data, wanted.data)
    assert [len(part) for part in engine.join_counts([])] == [0, 0]


def test_text_laid_out_in_small_parts_is_the_same(text, monkeypatch):
    rule = pair_rule(5)
    monkeypatch.setattr(pairs, "LAID", 3)
    for span in (None, (0, 7), (5, len(text[0]) - 3)):
        equal(
            ENGINES["cpu, 3 threads"].cooccur(*text, N, rule, span),
            PLAIN.cooccur(*text, N, rule, span),
        )


def whole(run):
    first, *others = zip(*run)
    return type(run[0])(first[0], *(np.concatenate(part) for part in others))


def test_small_pieces_change_nothing(text, monkeypatch):
    rule = pair_rule(5)
    monkeypatch.setattr(pairs, "TOKENS", 20)
    pieces = list(ENGINES["cpu, 3 threads"].cooccur(*text, N, rule, piece=100))
    assert len(pieces) > 10
    equal(pieces, PLAIN.cooccur(*text, N, rule))


def test_nothing_to_count(engine):
    empty = np.empty(0, np.int32)
    assert rows_of(engine.cooccur(empty, np.array([0, 0]), N, pair_rule(3)))[0].sum() == 0
    assert (
        rows_of(engine.cooccur(np.zeros(1, np.int32), np.array([0, 1]), N, pair_rule(3)))[0].sum()
        == 0
    )


# ---- GloVe


@pytest.fixture
def entries():
    rng = np.random.default_rng(1)
    a = sparse.random_array(
        (600, 600), density=0.02, random_state=1, data_sampler=lambda size: rng.normal(0, 2, size)
    )
    x = Observed.from_triples(
        *a.tocoo().coords, a.tocoo().data.astype(np.float32), shape=(600, 600)
    )
    return x, rng.random(x.nnz).astype(np.float32)


def on_host(table):
    """A table whose arrays lie on a device, for NumPy."""
    return type(table)(*(part.cpu().numpy() if hasattr(part, "cpu") else part for part in table))


def test_glove_tables_hold_every_entry_once_in_its_block(engine, entries):
    x, weights = entries
    for e in (engine, PLAIN):
        t = on_host(e.glove_table(e.put(x, entry_weights=weights), 7))
        s = t.strata
        assert s >= 2 if e is engine else s == 2  # an engine may deal words to more classes
        for b in range(s * s):
            part = slice(t.ends[b], t.ends[b + 1])
            assert (t.rows[part] % s * s + t.columns[part] % s == b).all()
        order = np.lexsort((t.columns, t.rows))
        np.testing.assert_array_equal(t.rows[order], np.repeat(np.arange(600), x.row_counts()))
        np.testing.assert_array_equal(t.columns[order], x.indices)
        np.testing.assert_array_equal(t.targets[order], x.data)
        np.testing.assert_array_equal(t.weights[order], weights)
        assert not np.array_equal(order, np.sort(order))
        assert sorted(b for turn in range(s) for b in t.round(turn)) == list(range(s * s))


def test_glove_step(engine, entries):
    x, weights = entries
    table = engine.glove_table(engine.put(x, entry_weights=weights), 3)
    rng, k = np.random.default_rng(0), 5
    own, other = (np.ones((600, 3 * (k + 1)), np.float32) for _ in range(2))
    for side in (own, other):
        side[:, : k + 1] = rng.normal(0, 0.5, (600, k + 1))
    a, b, before = (own, other), (own.astype(float), other.astype(float)), own.copy()
    same = on_host(table)
    for order in (np.arange(table.strata)[::-1].copy(), np.arange(table.strata)):
        a, b = engine.glove_step(table, *a, 0.05, order), PLAIN.glove_step(same, *b, 0.05, order)
    np.testing.assert_array_equal(own, before)  # what came stays as it was
    # kernels follow 1 / sqrt(G) by one Newton step: off by 3/8 (g^2 / G)^2 at most, and no square
    # is larger than their sum G - 1
    for mine, theirs in zip(a, b):
        newton = np.tile(3 / 8 * (theirs[:, k + 1 : 2 * k + 2] - 1) ** 2, 3)
        np.testing.assert_array_less(
            np.abs(engine.get(mine) - theirs), 1e-3 + newton
        )  # what a neighbour passes on: 4e-4 at most on 30 seeds
    assert engine.glove_loss(table, *a) == pytest.approx(PLAIN.glove_loss(same, *b), rel=1e-3)
    assert engine.glove_loss(table, *a) < engine.glove_loss(table, own, other)


def test_glove_steps_stay_finite_where_residuals_are_large(engine, entries):
    x, weights = entries
    large = engine.put(Observed(x.indptr, x.indices, 1e4 * x.data, 600), entry_weights=weights)
    table = engine.glove_table(large, 3)
    own, other = np.ones((600, 18), np.float32), np.ones((600, 18), np.float32)
    for _ in range(20):
        own, other = engine.glove_step(table, own, other, 1.0, np.arange(table.strata))
    own = engine.get(own)
    assert np.isfinite(own).all()
    assert (own[:, 6:] > 0).all()  # G and 1 / sqrt(G)


# ---- mutual information and scores


@pytest.fixture
def square():
    """Counts with an empty row, an empty column, a stored zero and rows of very different sizes."""
    rng = np.random.default_rng(2)
    a = rng.poisson(0.4, (70, 70)) * rng.lognormal(0, 2, (70, 70))
    a[7], a[:, 9], a[3] = 0.0, 0.0, rng.integers(1, 50, 70)
    a[3, 9] = 0.0
    x = sparse.csr_array(a)
    x.data[5] = 0.0
    return Counts(x.indptr, x.indices, x.data, 70)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "rule", [PmiRule(), PmiRule(1.0, 5.0, False), PmiRule(0.5, 0.2, True), PmiRule(0.0, 1.0, False)]
)
def test_mutual_information(engine, square, rule, dtype):
    got, want = (e.mutual_information(e.put(square), rule, dtype) for e in (engine, PLAIN))
    np.testing.assert_array_equal(got.lengths, want.lengths)
    np.testing.assert_array_equal(got.indices, want.indices)
    assert got.data.dtype == dtype
    np.testing.assert_allclose(
        got.data, want.data, rtol=1e-6 if dtype == np.float32 else 1e-10, atol=1e-12
    )
    assert 0 < len(got.data) < square.nnz


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize(("k", "bias"), [(3, True), (90, False)])
def test_pair_scores(engine, square, softmax, k, bias, dtype):
    rng = np.random.default_rng(4)
    # the empty row, the full one, more than two blocks
    rows = np.array([7, 3, *rng.permutation(70)[:21]])
    part = square.to_scipy()[rows]
    x = Counts(part.indptr, part.indices, part.data, 70)
    left, right = (rng.normal(0, 0.5, (m, k)).astype(dtype) for m in (len(rows), 70))
    offset = rng.standard_normal(70).astype(dtype) if bias else None
    rule = ScoreRule(rng.dirichlet(np.ones(70)), 3.0, softmax)
    weights = rng.random(len(rows)) * 5
    got, want = (
        e.pair_scores(e.put(x, weights), left, right, offset, rule) for e in (engine, PLAIN)
    )
    np.testing.assert_allclose(got, want, rtol=1e-4 if dtype == np.float32 else 1e-10)
    halves = [
        e.pair_scores(e.put(_rows(x, a, b), weights[a:b]), left[a:b], right, offset, rule)
        for e in (engine,)
        for a, b in ((0, 9), (9, 23))
    ]
    np.testing.assert_allclose(
        halves[0].merge(halves[1]), got, rtol=1e-5 if dtype == np.float32 else 1e-12
    )


def _rows(x, a, b):
    p, q = x.indptr[a], x.indptr[b]
    return Counts(x.indptr[a : b + 1] - p, x.indices[p:q], x.data[p:q], x.n_columns)
