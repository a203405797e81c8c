"""Matrices in parts: every model has the same answer as on one piece, and a sum does not depend on
who made its parts."""

from __future__ import annotations

import sys
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import eckart
from eckart.complete.normalise import normalise
from eckart.engines import engine_named
from eckart.engines.blocks.engine import BlocksEngine
from eckart.engines.blocks.spreading import RULES
from eckart.engines.protocol import Moments
from eckart.entry_facts import EntryFacts
from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Observed
from eckart.matrix_blocks import even_cuts, facts_of, of_parts, parts_of
from eckart.matrix_parts import MemoryParts
from eckart.merging import FAN, Tree, folded

sys.path.insert(0, str(Path(__file__).parent / "engines"))
from exchange import CASES, data

SEQUENTIAL = ("LDA gibbs", "GloVe adagrad", "SkipGram")
"""What walks through all entries in turn, and must say so where the entries are not in one
place."""


def in_parts(matrix, rows=17):
    return of_parts(MemoryParts(matrix, rows), matrix.rows, matrix.columns)


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("asked", [[0, 1, 2], [0, 5], [5, 11, 19], range(20), range(40)])
def test_some_rows_of_parts_are_those_rows_and_no_others(rows, asked):
    """Also where the first part is asked for whole and the others in part."""
    a = np.arange(60.0).reshape(20, 3)
    engine = BlocksEngine(1, cut=1)
    asked = np.array(asked)
    np.testing.assert_array_equal(
        engine.rows_at(engine.put(in_parts(Dense(a), rows)), asked), a[asked[asked < 20]]
    )


@pytest.mark.parametrize("case", [name for name in CASES if name not in SEQUENTIAL])
def test_every_model_has_the_same_answer_on_parts(case):
    name, options, kind, verbs = CASES[case]
    x = data()[kind]
    models = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for engine in ("cpu", BlocksEngine(1, cut=3)):
            models.append(
                getattr(eckart, name)(**options).set_params(random_state=0, engine=engine).fit(x)
            )
    one, parts = models
    for field in fields(one.fit_.factors):
        a, b = (getattr(m.fit_.factors, field.name) for m in models)
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            # sums of parts differ in their last bits; a fit that stops by a tolerance may be as far
            # off as that
            np.testing.assert_allclose(
                b, a, rtol=1e-5, atol=1e-5 * np.abs(a).max(initial=0), err_msg=field.name
            )
    assert parts.certificate_.holds == one.certificate_.holds
    for verb in verbs:
        answers = [np.asarray(getattr(m, verb)(x)) for m in models]
        np.testing.assert_allclose(answers[1], answers[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [7, 17, 33])
def test_batches_are_those_of_the_rows_whatever_parts_they_come_in(rows):
    x = Dense(np.abs(data()["dense"]), np.arange(60) * 10)
    model = eckart.MiniBatchNMF(2, batch_size=20, max_iter=5, random_state=0, tol=0)
    one, steps = model.fit(x).components_, model.n_steps_
    model.fit(in_parts(x, rows))
    assert model.n_steps_ == steps
    np.testing.assert_allclose(model.components_, one, rtol=1e-6)


@pytest.mark.parametrize("by", ["column", "both", "bias"])
@pytest.mark.parametrize("engine", ["auto", "cpu", "numpy"])
def test_means_of_parts_are_those_of_the_matrix_on_every_engine(by, engine):
    one, _ = normalise(NUMBERS, by)
    parts, _ = normalise(in_parts(NUMBERS), by, engine=engine_named(engine, 1))
    np.testing.assert_allclose(parts.column_offset, one.column_offset, rtol=1e-6, atol=1e-8)


def test_columns_of_parts_are_not_scaled_in_silence():
    model = eckart.ALS(2, biases=False, normalise="column", scale=True)
    with pytest.raises(
        InputError,
        match=r"scale must be False for data in parts \(shards or a Dask collection\), got True",
    ):
        model.fit(in_parts(NUMBERS))
    model.fit(NUMBERS)


@pytest.mark.parametrize(
    ("model", "words"),
    [(eckart.LDA(2, learning_method="gibbs"), "cvb0"), (eckart.PCA(2, svd_solver="svd"), None)],
)
def test_what_needs_all_entries_says_so_or_fetches_them(model, words):
    x = eckart.read(data()["sparse"])
    model.set_params(random_state=0)
    if words is None:
        np.testing.assert_allclose(model.fit(in_parts(x)).components_, model.fit(x).components_)
    else:
        with pytest.raises(InputError, match=words):
            model.fit(in_parts(x))


def test_auto_takes_parts_without_being_asked():
    x = eckart.read(data()["sparse"])
    model = eckart.LDA(2, random_state=0, max_iter=3)
    fitted = model.fit(in_parts(x))
    assert fitted.fit_.plan["method"] == "cvb0"  # Gibbs sampling would need all tokens in turn
    assert "parts" in fitted.fit_.plan["reason"]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(0, 10**6))
def test_a_tree_of_sums_is_the_same_however_the_parts_come(count, seed):
    numbers = np.random.default_rng(seed).standard_normal(count) * 10.0 ** np.random.default_rng(
        seed + 1
    ).integers(-8, 8, count)
    tree, level = Tree(), list(numbers)
    for number in numbers:
        tree.add(number)
    while len(level) > 1:  # level by level, as tasks of a cluster do it
        level = [folded(level[i : i + FAN]) for i in range(0, len(level), FAN)]
    assert tree.total() == level[0]


def test_merging_leaves_the_parts_as_they_were():
    a, b = (
        Moments(1, 1.0, np.full(2, v), np.zeros((2, 2)), np.ones(2), np.zeros(2))
        for v in (1.0, 3.0)
    )
    first, second = folded([a, b]), folded([a, b])  # a task may run again
    np.testing.assert_array_equal(first.scatter, second.scatter)
    assert (a.rows, a.mean[0], first.rows, first.mean[0]) == (1, 1.0, 2, 2.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 9))
def test_cuts_cover_all_rows_and_are_even(counts, blocks):
    cuts = even_cuts(np.array(counts), blocks)
    assert cuts[0] == 0
    assert cuts[-1] == len(counts)
    assert (np.diff(cuts) > 0).all()
    assert len(cuts) <= blocks + 1
    sums = np.add.reduceat(np.array(counts) + 1, cuts[:-1])
    assert sums.max() <= (sum(counts) + len(counts)) / blocks + max(counts) + 1


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.booleans(), st.integers(0, 10**6)
)
def test_the_columns_of_parts_are_those_of_the_whole(rows, columns, cut, weighted, seed):
    rng = np.random.default_rng(seed)
    a = np.where(rng.random((rows, columns)) < 0.5, rng.standard_normal((rows, columns)), np.nan)
    x = Observed.from_nan(a)
    w = rng.random(x.nnz) if weighted else None
    engine, whole = BlocksEngine(1, cut=cut), BlocksEngine(1)
    right = rng.standard_normal((rows, 3))
    ours, theirs = (e.put(x, entry_weights=w).T for e in (engine, whole))
    np.testing.assert_array_equal(ours.counts, theirs.counts)
    np.testing.assert_array_equal(ours.column_counts, theirs.column_counts)
    rule = eckart.engines.protocol.RidgeRule(0.1)
    np.testing.assert_allclose(
        engine.ridge_rows(ours, right, rule).left,
        whole.ridge_rows(theirs, right, rule).left,
        atol=1e-9,
    )
    np.testing.assert_array_equal(
        engine.by_columns(engine.put(x), x.data), whole.by_columns(whole.put(x), x.data)
    )


def test_facts_of_parts_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    x = Counts.from_scipy(sparse.random(300, 20, 0.2, random_state=0, format="csr"))
    for data_ in (rng.integers(1, 6, x.nnz).astype(float), rng.random(x.nnz)):
        whole = Counts(x.indptr, x.indices, data_, 20)
        a, b = EntryFacts.of(whole), facts_of(in_parts(whole, 40))
        assert a.entries == b.entries
        assert (a.least, a.most, a.whole, a.inspected) == (b.least, b.most, b.whole, b.inspected)
        assert abs(a.total - b.total) <= 1e-9 * abs(a.total)
        assert (a.values is None) == (b.values is None)


def test_parts_become_one_matrix_for_those_who_ask():
    a = data()["gaps"]
    x = Observed.from_nan(a)
    p = in_parts(x)
    assert isinstance(p, Observed)
    assert p.shape == x.shape
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(p, name), getattr(x, name))
    other = replace(p, data=2 * p.data)
    assert parts_of(other) is None
    np.testing.assert_array_equal(other.data, 2 * x.data)


def test_bad_rows_are_named_by_their_place_in_the_whole_and_in_their_part():
    a = np.ones((40, 3))
    a[29, 1] = np.inf
    with pytest.raises(InputError, match="X must hold finite numbers, got inf at row 29, column 1"):
        eckart.PCA(1).fit(in_parts(Dense(a), 20))
    a[29, 1] = np.nan
    assert (
        eckart.PCA(1).fit(in_parts(Dense(a + np.arange(40)[:, None]), 20)).fit_.plan["solver"]
        == "em"
    )
    a[29, 1], a[25, 0] = 1.0, -1.0
    with pytest.raises(InputError, match=r"-1.0 at row 25, .*\(row 5 of partition 1\)"):
        eckart.NMF(1).fit(in_parts(Dense(a), 20))


def test_every_rule_names_a_primitive_and_its_arguments():
    import inspect

    from eckart.engines.protocol import Engine
    from eckart.engines.protocol.entries import At

    for name, rule in RULES.items():
        told = inspect.signature(getattr(Engine, name)).parameters
        more = At.__annotations__ if any(p.kind is p.VAR_KEYWORD for p in told.values()) else ()
        assert {*rule.rows, *rule.entries} <= {*told, *more}, name


def test_parts_are_named_by_words_that_every_process_says():
    """A checkpoint names its data by them; the address of a function would be another one after a
    crash."""
    from eckart.complete.factors.alternate import LogScaling
    from eckart.matrix_blocks import of_parts
    from eckart.matrix_parts import MemoryParts, ValueParts

    class Named(MemoryParts):
        token = "shards"

    x = of_parts(Named(Observed.from_nan(np.array([[1.0, np.nan], [400.0, 2.0], [3.0, 1.0]])), 2))
    tamed = [LogScaling(2.0, mean).of(x).parts for mean in (1.0, 1.0, 1.5)]
    assert all(isinstance(parts, ValueParts) for parts in tamed)
    assert tamed[0].token == tamed[1].token != tamed[2].token
    assert " at 0x" not in tamed[0].token


def test_a_file_with_gaps_that_memory_would_not_hold_is_read_in_every_pass(tmp_path, monkeypatch):
    """The same answer as in memory, and never all known entries at once."""
    from eckart import fit, matrix_blocks

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal(
        (400, 8)
    )
    rows[rng.random(rows.shape) < 0.2] = np.nan
    np.save(tmp_path / "x.npy", rows)
    whole = eckart.PCA(2, random_state=0).fit(rows)
    monkeypatch.setattr(fit, "available_memory", lambda: 20_000.0)
    monkeypatch.setattr(matrix_blocks, "LEAST_FILE_BLOCK", 2000)

    def refuse(self):
        raise AssertionError("all entries were read into memory")

    monkeypatch.setattr(matrix_blocks._Parted, "_whole", property(refuse))
    parts = eckart.PCA(2, random_state=0).fit(tmp_path / "x.npy")
    np.testing.assert_allclose(parts.components_, whole.components_, atol=1e-4)
    assert parts.certificate_.holds == whole.certificate_.holds


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(0, 30).map(float), st.floats(1e-300, 1e300)), min_size=1, max_size=60
    ),
    st.integers(1, 5),
)
def test_the_median_of_parts_is_that_of_one_piece(values, rows):
    from eckart.complete.factors.alternate import _median

    data = np.array([*values, 1.0])
    x = Observed(np.arange(len(data) + 1), np.zeros(len(data), np.int32), data, 1)
    wanted = np.median(data[data > 0])
    assert _median(x) == wanted
    assert _median(in_parts(x, rows)) == wanted


@pytest.mark.parametrize("strengths", ["auto", "log", "raw"])
def test_strengths_are_brought_together_on_parts_as_in_memory(strengths):
    x = Observed.from_nan(np.where(np.random.default_rng(0).random((60, 12)) < 0.4, np.nan, 1.0))
    plays = np.random.default_rng(1).lognormal(2.0, 2.0, x.nnz).round() + 1
    x = replace(x, data=plays)
    one, parts = (
        eckart.ALS(
            2, feedback="implicit", strengths=strengths, random_state=0, max_iter=4, tol=0.0
        ).fit(y)
        for y in (x, in_parts(x))
    )
    assert ("strengths" in one.fit_.plan) == (strengths != "raw")
    assert parts.fit_.plan.get("strengths") == pytest.approx(one.fit_.plan.get("strengths"))
    np.testing.assert_allclose(parts.column_factors_, one.column_factors_, rtol=1e-5, atol=1e-6)


def graded(value):
    rng = np.random.default_rng(3)
    s = rng.standard_normal((70, 2)) @ rng.standard_normal((2, 14))
    a = value(s, rng).astype(float)
    return Observed.from_nan(np.where(rng.random(a.shape) < 0.5, np.nan, a))


NUMBERS = graded(lambda s, rng: s + 0.1 * rng.standard_normal(s.shape))
GRADES = graded(lambda s, rng: np.clip(np.round(3 + s), 1, 5))
ANSWERS = graded(lambda s, rng: s > 0)
COUNTS = graded(lambda s, rng: rng.poisson(np.exp(np.clip(s, -2, 2))))
FEW = {"n_samples": 3, "burn_in": 2, "thin": 1, "n_chains": 1}


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (eckart.SVP(2), NUMBERS),
        (eckart.SVP(2, normalise="both"), NUMBERS),
        (eckart.SVP(2, normalise="column"), GRADES),
        (eckart.SoftImpute(tau=2.0, tol=1e-7), GRADES),  # biases are taken out
        (eckart.SoftImpute(tau=2.0, tol=1e-7, debias=True), NUMBERS),
        (eckart.ALS(2, loss="ordered", max_iter=5), GRADES),
        (eckart.ALS(2, biases=False, max_iter=5), NUMBERS),
        (eckart.ALS(2, biases=False, normalise="bias", solver="cg", max_iter=5), GRADES),
        pytest.param(
            eckart.BayesianMF(2, likelihood="probit", **FEW), ANSWERS, marks=pytest.mark.slow
        ),
        (eckart.BayesianMF(2, likelihood="ordinal", noise="row", **FEW), GRADES),
        (eckart.BayesianMF(2, likelihood="poisson", **FEW), COUNTS),
        (eckart.EASE(l2=2.0), GRADES),
        (eckart.SLIM(l2=2.0), GRADES),
        (eckart.SpectralFilter(3), GRADES),
    ],
    ids=lambda each: type(each).__name__ if hasattr(each, "fit") else "",
)
def test_completers_have_the_same_answer_and_the_same_lists_on_parts_without_reading_them_all(
    model, x, monkeypatch
):
    """A matrix that comes in parts, as shards and Dask collections do: checks, codes of grades,
    biases, noise at the entries, lists."""
    from eckart.matrix_blocks import _Parted

    monkeypatch.setattr(
        _Parted, "_whole", property(lambda self: pytest.fail("all entries were read into memory"))
    )
    model.set_params(random_state=0)
    models = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for y in (x, in_parts(x)):
            models.append(type(model)(**model.get_params()).fit(y))
    # it stops by its gap, some steps earlier or later as sums round: 1e-4 apart at the default tol,
    # 4e-9 at this one
    close = 1e-5 if isinstance(model, eckart.SoftImpute) else 1e-6
    for field in fields(models[0].fit_.factors):
        a, b = (getattr(m.fit_.factors, field.name) for m in models)
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            np.testing.assert_allclose(
                b, a, rtol=close, atol=close * np.abs(a).max(initial=0), err_msg=field.name
            )
    assert models[0].certificate_.holds == models[1].certificate_.holds
    whole, parts = (m.recommend(n=3, by="prediction") for m in models)
    np.testing.assert_allclose(parts.scores, whole.scores, rtol=1e-5, atol=1e-5)
    # columns of equal score may change places
    assert (parts.positions == whole.positions).mean() > 0.95
    some = models[1].recommend(
        [5, 40, 2], n=2, by="prediction", exclude_seen=False, candidates=[1, 3, 8]
    )
    np.testing.assert_array_equal(
        some.positions,
        models[0]
        .recommend([5, 40, 2], n=2, by="prediction", exclude_seen=False, candidates=[1, 3, 8])
        .positions,
    )


@pytest.mark.parametrize(
    "model",
    [
        eckart.ALS(2, max_iter=3),
        eckart.ALS(2, feedback="implicit", max_iter=3),
        eckart.ALS(2, loss="ordered", max_iter=3),
        eckart.BayesianMF(2, **FEW),
    ],
    ids=["ALS", "implicit", "ordered", "BayesianMF"],
)
def test_attributes_of_rows_and_columns_are_used_on_parts_without_reading_them_all(
    model, monkeypatch
):
    """Ids that only a frame has become rows and columns there, too, and the entries stay where they
    are."""
    from eckart.matrix_blocks import _Parted

    monkeypatch.setattr(
        _Parted, "_whole", property(lambda self: pytest.fail("all entries were read into memory"))
    )
    x = replace(GRADES, rows=np.arange(70), columns=np.arange(14))
    parts = of_parts(MemoryParts(x, 20), x.rows, x.columns)
    rng = np.random.default_rng(0)
    users = {"user": np.arange(73), "age": rng.standard_normal(73)}
    films = {"film": np.arange(16), "kind": rng.choice(["a", "b", "c"], 16)}
    beside = {"row_features": (users, "user"), "column_features": (films, "film")}
    model.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, some = (type(model)(**model.get_params()).fit(y, **beside) for y in (x, parts))
    assert some.observed_.shape == some.fit_.factors.shape == (73, 16)
    for name in ("left", "right"):
        np.testing.assert_allclose(
            getattr(some.fit_.factors, name), getattr(one.fit_.factors, name), rtol=1e-6, atol=1e-9
        )
    np.testing.assert_allclose(
        some.predict([3, 72, 72], [15, 4, 15]), one.predict([3, 72, 72], [15, 4, 15]), rtol=1e-6
    )
    later = {"row_features": ({"user": [99], "age": [0.5]}, "user")}
    np.testing.assert_allclose(some.predict(99, 3, **later), one.predict(99, 3, **later), rtol=1e-6)
    whole, by_parts = (m.recommend([3, 69, 72], n=3, by="prediction") for m in (one, some))
    np.testing.assert_array_equal(
        by_parts.positions, whole.positions
    )  # the seen ones of the last part are left out as well
    if model.__class__ is eckart.ALS:
        again = some.certify(parts)
        assert again["objective"] == pytest.approx(one.certify(x)["objective"], rel=1e-9)
    kept = some.observed_.parts
    assert [kept.load(p).shape for p in range(4)] == [(20, 16), (20, 16), (20, 16), (13, 16)]


def test_lists_by_chance_are_those_of_one_piece():
    one, parts = (
        eckart.ALS(2, random_state=0, max_iter=5).fit(y).recommend(n=3, by="chance")
        for y in (GRADES, in_parts(GRADES))
    )
    assert (one.positions == parts.positions).mean() > 0.9
    assert one.by == parts.by == "chance"


def test_a_blend_of_parts_lists_for_every_row_what_its_own_entries_say():
    tastes = np.where(np.arange(60)[:, None] % 2 == np.arange(30) % 2, 0.5, 0.05)
    x = Observed.from_nan(
        np.where(np.random.default_rng(0).random(tastes.shape) < tastes, 1.0, np.nan)
    )
    members = {"gf-cf": eckart.SpectralFilter(2), "als": eckart.ALS(2, feedback="implicit")}
    model = eckart.Blend(members, random_state=0).fit(in_parts(x))
    scores = model._lowrank().block(np.arange(60))
    scores[x.to_scipy().nonzero()] = -np.inf
    lists = model.recommend(n=3)
    np.testing.assert_allclose(lists.scores, np.sort(scores, axis=1)[:, :-4:-1], rtol=1e-10)
    np.testing.assert_array_equal(model.recommend([45, 3], n=3).positions, lists.positions[[45, 3]])


@pytest.mark.slow
def test_a_price_is_chosen_on_hidden_entries_of_every_part():
    model = eckart.SoftImpute(random_state=0).fit(in_parts(NUMBERS))
    taus = [row[0] for row in model.fit_.plan["tau chosen on hidden entries"]]
    assert model.tau_ in taus
    known = NUMBERS.to_scipy().toarray()
    error = model.fit_.factors.left @ model.fit_.factors.right.T - known
    assert np.sqrt(np.mean(error[known != 0] ** 2)) < 0.5 * np.std(known[known != 0])


def test_online_topics_of_parts_meet_every_document(monkeypatch):
    from eckart.explain.topics import documents
    from eckart.matrix_blocks import _Parted

    x = eckart.read(data()["sparse"])
    parts = in_parts(x)
    monkeypatch.setattr(
        _Parted, "_whole", property(lambda self: pytest.fail("all entries were read into memory"))
    )
    order = np.random.default_rng(0).permutation(x.shape[0])
    met = [part.to_scipy().toarray() for part in documents.batches(parts, 7, order)]
    rows = np.concatenate(met)
    np.testing.assert_array_equal(
        rows[np.lexsort(rows.T)], (d := x.to_scipy().toarray())[np.lexsort(d.T)]
    )
    for one, half in zip(documents.every_other(x), documents.every_other(parts)):
        assert half.shape == one.shape
        rows = [half.parts.load(p).to_scipy().toarray() for p in range(len(half.parts.lengths))]
        np.testing.assert_array_equal(np.concatenate(rows), one.to_scipy().toarray())


def test_rows_that_came_unaligned_have_the_same_bits():
    """What comes through a socket may begin anywhere; products of it have the bits of products at
    home."""
    import pickle

    from eckart.engines.choose import engine_named
    from eckart.engines.host import Host
    from eckart.matrix import Dense

    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((500, 12)), rng.standard_normal((12, 3))
    engine = engine_named("cpu", 1)
    raw = np.zeros(x.nbytes + 64, np.uint8)
    begin = -raw.ctypes.data % 64 + 1
    away = raw[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    away[...] = x
    assert not away.flags.aligned
    wanted = engine.gram_times(engine.put(Dense(x)), v, None)
    assert engine.gram_times(engine.put(Dense(away)), v, None).tobytes() == wanted.tobytes()
    sent = Host(Dense(away))
    buffers: list = []
    data = pickle.dumps(sent, protocol=5, buffer_callback=buffers.append)
    came = pickle.loads(data, buffers=buffers)
    assert came.matrix.values.flags.aligned
    assert engine.gram_times(came, v, None).tobytes() == wanted.tobytes()
