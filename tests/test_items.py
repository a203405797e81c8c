"""Item models: EASE, SLIM and SpectralFilter."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

import eckart
from eckart import ALS, EASE, SLIM, InputError, Observed, SpectralFilter
from eckart.certify import items as evidence
from eckart.io.models.checkpoint import Checkpoint
from eckart.metrics import ranking

MODELS = [EASE(l2=2.0), SLIM(l2=1.0, l1=0.2), SpectralFilter(6, random_state=0)]


@pytest.fixture(params=MODELS, ids=lambda e: type(e).__name__)
def model(request):
    return clone(request.param)


def taken(rows=80, columns=20, seed=0, dtype=np.float64):
    """Two kinds of rows with tastes of their own; ids on both sides."""
    rng = np.random.default_rng(seed)
    half = columns // 2
    chance = np.full((rows, columns), 0.05)
    chance[: rows // 2, :half] = 0.5
    chance[rows // 2 :, half:] = 0.5
    a = sparse.csr_array((rng.random(chance.shape) < chance).astype(dtype))
    ids = (
        np.array([f"u{i}" for i in range(rows)], object),
        np.array([f"c{j}" for j in range(columns)], object),
    )
    return Observed.from_scipy(a, *ids)


def dense(model):
    """W as a matrix."""
    n = model.fit_.factors.n
    return model.fold_in(
        Observed.from_scipy(sparse.csr_array(np.eye(n)))
        if model.fit_.factors.columns is None
        else labelled_eye(model)
    )


def labelled_eye(model):
    f = model.fit_.factors
    return Observed.from_scipy(sparse.csr_array(np.eye(f.n)), None, f.columns)


def objective(x, w, l1, l2):
    a = x.to_scipy().toarray()
    return 0.5 * np.sum((a - a @ w) ** 2) + l1 * np.sum(np.abs(w)) + 0.5 * l2 * np.sum(w**2)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 30), st.integers(1, 12), st.floats(0.1, 50.0), st.integers(0, 2**31))
def test_ease_is_the_ridge_of_every_column_on_the_others(rows, columns, l2, seed):
    rng = np.random.default_rng(seed)
    a = (rng.random((rows, columns)) < 0.4).astype(float)
    a[0, 0] = 1.0
    x = Observed.from_scipy(sparse.csr_array(a))
    model = EASE(l2=l2).fit(x)
    w = model.fit_.factors.weights
    for j in range(columns):
        others = np.delete(np.arange(columns), j)
        b = a[:, others]
        wanted = np.linalg.solve(b.T @ b + l2 * np.eye(len(others)), b.T @ a[:, j])
        np.testing.assert_allclose(w[others, j], wanted, atol=1e-9)
    assert not np.diagonal(w).any()
    assert model.certificate_.holds, model.certificate_
    assert model.certificate_["objective"] == pytest.approx(objective(x, w, 0.0, l2), rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 3.0), st.floats(0.05, 20.0), st.integers(0, 2**31))
def test_slim_cannot_be_improved_and_its_gap_is_a_bound(l1, l2, seed):
    x = taken(40, 8, seed)
    rough, fine = (SLIM(l1=l1, l2=l2, tol=tol, max_iter=1000).fit(x) for tol in (1e-2, 1e-12))
    assert fine.certificate_.holds
    assert rough.certificate_.holds
    best, near = objective(x, dense(fine), l1, l2), objective(x, dense(rough), l1, l2)
    assert fine.certificate_["objective"] == pytest.approx(best, rel=1e-9)
    assert best - 1e-9 <= near <= best + rough.certificate_["gap"] + 1e-9
    rng = np.random.default_rng(seed)
    for _ in range(5):
        other = np.maximum(dense(fine) + 0.05 * rng.standard_normal((8, 8)), 0)
        np.fill_diagonal(other, 0)
        assert objective(x, other, l1, l2) >= best - 1e-9


def test_the_certificate_of_ease_finds_a_changed_weight_whole_and_by_random_vectors(monkeypatch):
    x = taken()
    model = EASE(l2=2.0).fit(x)
    exact = model.certificate_
    monkeypatch.setattr(evidence, "EXACT", 1)
    probed = model.certify(x)
    assert probed.holds
    assert probed["objective"] == pytest.approx(exact["objective"], rel=0.5)
    w = model.fit_.factors.weights.copy()
    w[2, 3] += 0.1
    model.fit_ = replace(model.fit_, factors=replace(model.fit_.factors, weights=w))
    probed = model.certify(x)
    monkeypatch.setattr(evidence, "EXACT", 2048)
    worse = model.certify(x)
    assert not probed.holds
    assert not worse.holds
    gain = objective(x, w, 0.0, 2.0) - exact["objective"]
    assert gain <= worse["gap"] <= probed["gap"]


def test_the_certificate_of_slim_finds_changed_weights():
    x = taken()
    model = SLIM(l2=1.0, l1=0.2).fit(x)
    f = model.fit_.factors
    model.fit_ = replace(model.fit_, factors=replace(f, data=f.data * 1.01))
    assert not model.certify(x).holds
    model.fit_ = replace(model.fit_, factors=replace(f, data=-f.data))
    assert model.certify(x)["constraints"] > 0


def test_the_certificate_of_the_filter_finds_another_subspace():
    x = taken()
    model = SpectralFilter(3, random_state=0).fit(x)
    f = model.fit_.factors
    model.fit_ = replace(model.fit_, factors=replace(f, right=f.right[::-1].copy()))
    assert not model.certify(x).holds


def test_filter_is_the_formula():
    x = taken()
    a = x.to_scipy().toarray()
    d, e = a.sum(axis=1), a.sum(axis=0)
    adjacency = a / np.sqrt(np.outer(np.where(d > 0, d, 1), np.where(e > 0, e, 1)))
    v = np.linalg.svd(adjacency)[2][:4].T
    root = np.sqrt(np.where(e > 0, e, 1))
    wanted = adjacency.T @ adjacency + 0.7 * (v @ v.T) / root[:, None] * root
    model = SpectralFilter(4, alpha=0.7, random_state=0).fit(x)
    # V up to the tolerance of its solver
    np.testing.assert_allclose(model.predict(x), a @ wanted, atol=1e-3)


def test_certificates_are_global_and_can_be_measured_again(model):
    x = taken()
    c = model.fit(x).certificate_
    assert c.holds, c
    assert c.kind == "global"
    again = model.certify(x)
    assert again.holds
    for name, value in c.facts.items():
        if isinstance(value, float):
            assert again[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_change_a_bit_and_dtypes_stay(model, dtype):
    states = set()
    for threads in (1, 2, 5):
        fitted = clone(model).set_params(n_threads=threads).fit(taken(dtype=dtype))
        arrays, _ = fitted.fit_.factors.to_state()
        states.add(b"".join(a.tobytes() for a in arrays.values()))
        assert fitted.predict(["u1"], ["c2"]).dtype == dtype
        assert fitted.transform(taken(dtype=dtype)).dtype == dtype
    assert len(states) == 1


def test_lists_are_the_largest_scores_of_what_was_not_seen(model):
    x = taken()
    model.fit(x)
    scores, seen = model.predict(x), x.to_scipy().toarray() > 0
    lists = model.recommend(n=5)
    hidden = np.where(seen, -np.inf, scores)
    np.testing.assert_allclose(lists.scores, -np.sort(-hidden, axis=1)[:, :5])
    some = model.recommend("u3", n=20, candidates=["c1", "c12", "c17"], exclude_seen=False)
    assert {c for _, _, c, _ in some.entries()} == {"c1", "c12", "c17"}
    assert model.recommend("u3", n=3, exclude=["c0"], min_support=1).by == "prediction"


def test_new_rows_have_the_scores_that_fitted_rows_with_the_same_entries_have(model):
    x = taken()
    model.fit(x)
    new = Observed(x.indptr, x.indices, x.data, x.n_columns, None, x.columns)
    np.testing.assert_array_equal(
        model.recommend(n=4).positions, model.recommend(X=new, n=4).positions
    )
    np.testing.assert_array_equal(
        model.fold_in(new), np.concatenate([b for _, b in model.complete(keep=False)])
    )
    filled = model.transform(new)
    stored = x.to_scipy().tocoo()
    np.testing.assert_array_equal(filled[stored.coords], stored.data)
    with pytest.raises(eckart.InputError, match="new fit"):
        model.fold_in(new, axis="columns")


def test_explanations_add_up_to_the_score(model):
    x = taken()
    model.fit(x)
    for row, column in (("u2", "c4"), ("u50", "c1")):
        why = model.explain(row, column, n=100)
        assert why.prediction == pytest.approx(
            float(model.predict(row, column)[0]), rel=1e-6, abs=1e-12
        )
        assert sum(share for _, _, share in why.shares) == pytest.approx(
            why.prediction, rel=1e-6, abs=1e-12
        )
        i = x.row_of(row)
        assert {name for name, _, _ in why.shares} == {
            x.columns[j] for j in x.indices[x.indptr[i] : x.indptr[i + 1]]
        }


def test_alike_is_what_is_taken_together(model):
    x = taken(400)
    model.fit(x)
    for column, kind in (("c2", range(10)), ("c15", range(10, 20))):
        found = model.similar(columns=column, n=5)
        assert column not in found.columns[0]
        assert sum(int(name[1:]) in kind for name in found.columns[0]) >= 4
    found = model.similar(rows="u7", n=10)
    assert "u7" not in found.columns[0]
    assert np.mean([int(name[1:]) < 200 for name in found.columns[0]]) >= 0.8


def test_files_and_pickles_give_the_same_answers(model, tmp_path):
    x = taken()
    model.fit(x).save(tmp_path / "m.safetensors")
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        assert back.get_params() == model.get_params()
        assert list(back.recommend(n=3).entries()) == list(model.recommend(n=3).entries())
        assert back.certificate_ == model.certificate_
        assert back.certify(x).holds
    if isinstance(model, SpectralFilter):
        assert "data" not in model.fit_.factors.to_state()[0]  # A^T A is not written


def test_rows_are_taken_in_without_a_fit(model):
    x = taken()
    some = replace(
        x,
        indptr=x.indptr[:71],
        indices=x.indices[: x.indptr[70]],
        data=x.data[: x.indptr[70]],
        rows=x.rows[:70],
    )
    model.fit(some)
    start = x.indptr[68]
    model.update(
        replace(
            x,
            indptr=x.indptr[68:] - start,
            indices=x.indices[start:],
            data=x.data[start:],
            rows=x.rows[68:],
        )
    )
    assert model.observed_.shape == (80, 20)
    assert len(model.recommend("u79", n=3).columns[0]) == 3
    with pytest.raises(eckart.InputError, match="new fit"):
        model.update(x, axis="columns")


def test_what_cannot_be_fitted_is_refused_in_words_and_leaves_the_old_state(model):
    x = taken()
    before = model.fit(x).recommend(n=3).positions
    bad = x.data.copy()
    bad[4] = -1.0
    row = int(np.searchsorted(x.indptr, 4, side="right")) - 1  # the row of the fifth entry
    with pytest.raises(
        eckart.InputError, match=rf"Negative values in data: X must hold .*, got -1.0 at row {row}"
    ):
        model.fit(replace(x, data=bad))
    with pytest.raises(
        eckart.InputError,
        match="weights are not taken: the strengths are in X itself, with strengths='raw'",
    ):
        model.fit(x, weights=np.ones(x.nnz))
    np.testing.assert_array_equal(model.recommend(n=3).positions, before)


def test_ease_says_what_it_needs_where_memory_is_short(monkeypatch):
    from eckart.complete.items import item_model

    monkeypatch.setattr(item_model, "available_memory", lambda: 1000.0)
    with pytest.raises(eckart.InputError, match="use SpectralFilter instead of EASE"):
        EASE().fit(taken())


def test_single_precision_beyond_its_limit(monkeypatch):
    from eckart.complete.items import item_model

    monkeypatch.setattr(item_model, "DOUBLE", 10)
    for model in (EASE(l2=2.0), SLIM(l2=1.0, l1=0.2)):
        fine = clone(model).fit(taken(seed=1))
        assert fine.fit_.plan["precision"] == "float32"
        assert fine.certificate_.holds, fine.certificate_


def test_strengths_count_only_where_they_are_asked_for(model):
    x = taken()
    louder = replace(x, data=x.data * np.where(np.arange(x.nnz) % 3, 1.0, 5.0))
    same = [clone(model).fit(y).predict("u1", "c3")[0] for y in (x, louder)]
    assert same[0] == same[1]
    raw = [
        clone(model).set_params(strengths="raw").fit(y).predict("u1", "c3")[0] for y in (x, louder)
    ]
    assert raw[0] == same[0] != raw[1]


def test_they_beat_popularity_on_hidden_entries(model):
    x = taken(400, 60, seed=3)
    parts = eckart.split(x, 0.2, random_state=0)
    relevant = parts.test.to_scipy()
    rows = np.flatnonzero(np.diff(relevant.indptr))
    lists = model.fit(parts.train).recommend(parts.train.rows[rows], n=10).positions
    popular = np.zeros((len(rows), 60)) + parts.train.column_counts()
    popular[parts.train.to_scipy().toarray()[rows] > 0] = -np.inf
    plain = np.argsort(-popular, axis=1, kind="stable")[:, :10]
    assert (
        ranking(lists, relevant[rows], 10).mean["ndcg"]
        > 1.3 * ranking(plain, relevant[rows], 10).mean["ndcg"]
    )


def test_tune_chooses_their_ridge():
    found = eckart.tune(taken(200, 30), model=EASE(), l2=(0.01, 1.0, 100.0), random_state=0)
    assert set(found.best) == {"l2"}
    assert found.metric == "1-ndcg@10"
    assert isinstance(found.model, EASE)
    assert found.model.l2 == found.best["l2"]
    assert len(found.table) == 3
    assert "n_components" not in str(found)
    walked = eckart.tune(taken(200, 30), model=SLIM(l2=1.0), random_state=0)
    assert walked.best["l2"] > 0
    ranks = eckart.tune(
        taken(200, 30), model=SpectralFilter(), n_components=(1, 2, 4), random_state=0
    )
    assert set(ranks.best) == {"n_components"}


def test_compare_puts_all_on_one_split_in_one_table():
    found = eckart.compare(
        taken(200, 30),
        at=5,
        random_state=0,
        models={"ease": EASE(l2=5.0), "als": ALS(2, feedback="implicit")},
    )
    assert [row.model for row in found.table][-1] == "popularity"  # the least, here
    assert {row.model for row in found.table} == {"ease", "als", "popularity"}
    ndcg = [row.ndcg for row in found.table]
    assert ndcg == sorted(ndcg, reverse=True)
    assert found.best in ("ease", "als")
    assert "ndcg@5" in str(found)
    assert len(found.to_table()["model"]) == 3
    every = eckart.compare(taken(100, 30), at=5, random_state=0)
    assert {row.model for row in every.table} == {
        "popularity",
        "als",
        "ease",
        "slim",
        "gf-cf",
        "blend",
    }
    assert all(row.certified for row in every.table if row.model in ("ease", "slim", "gf-cf"))


@pytest.mark.parametrize(("name", "count"), [("c.fit-1", 1), ("c", 4)])
def test_a_killed_comparison_goes_on_to_the_same_lists(name, count, monkeypatch, tmp_path):
    def run(path=None, **more):
        models = {
            "ease": EASE(l2=5.0),
            "als": ALS(2, feedback="implicit"),
            "gf-cf": SpectralFilter(),
        }
        return eckart.compare(
            taken(100, 30), at=5, random_state=0, models=models, checkpoint=path, **more
        )

    whole, save, seen = run(), Checkpoint.save, []

    def killed(self, arrays):
        save(self, arrays)
        seen.append(1) if self.path.name == name else None
        if len(seen) == count:
            raise SystemError("killed")

    with monkeypatch.context() as m:
        m.setattr(Checkpoint, "due", lambda self: True)
        m.setattr(Checkpoint, "save", killed)
        with pytest.raises(SystemError):
            run(tmp_path / "c")
    with pytest.raises(eckart.FileError, match="other work"):
        run(tmp_path / "c", held_out=0.3)
    fits, fit = [], EASE.fit
    monkeypatch.setattr(
        EASE, "fit", lambda self, *a, **more: fits.append(1) or fit(self, *a, **more)
    )
    again = run(tmp_path / "c")
    assert not fits
    assert not list(tmp_path.iterdir())
    assert [row[:7] for row in again.table] == [row[:7] for row in whole.table]
    for model in whole.models:
        ours, theirs = (found.models[model].fit_.factors.to_state()[0] for found in (again, whole))
        assert {key: np.asarray(a).tobytes() for key, a in ours.items()} == {
            key: np.asarray(a).tobytes() for key, a in theirs.items()
        }
    with pytest.raises(eckart.InputError, match="random_state"):
        eckart.compare(taken(100, 30), random_state=None, checkpoint=tmp_path / "c")


def test_compare_takes_a_split_of_ones_own_and_refuses_what_is_none():
    parts = eckart.split(taken(200, 30), 0.2, random_state=1)
    one = eckart.compare(parts.train, test=parts.test, models={"ease": EASE(l2=5.0)}, at=5)
    assert one.rows == int((parts.test.row_counts() > 0).sum())
    with pytest.raises(eckart.InputError, match="shape"):
        eckart.compare(parts.train, test=taken(10, 30), at=5)
    with pytest.raises(eckart.InputError, match="models"):
        eckart.compare(parts.train, models={"kmeans": object()})


@pytest.fixture
def likes(tmp_path):
    x = taken(150, 30, seed=5).to_scipy().tocoo()
    path = tmp_path / "likes.csv"
    path.write_text("user,page\n" + "".join(f"u{i},p{j}\n" for i, j in zip(*x.coords)))
    return path


def shell(*words):
    from typer.testing import CliRunner

    from eckart.cli.main import app

    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("method", ["ease", "slim", "gf-cf", "blend"])
def test_shell_fits_and_recommends(method, likes, tmp_path):
    said = ("--rows", "user", "--columns", "page", "--feedback", "implicit", "--method", method)
    done = shell("complete", likes, *said, "--model", tmp_path / "m.safetensors")
    assert done.exit_code == 0, done.output
    assert f"certificate holds ({'statistical' if method == 'blend' else 'global'})" in done.output
    assert "\nrank " not in done.output
    lists = shell("recommend", tmp_path / "m.safetensors", "--row", "u3", "-n", "3")
    assert lists.exit_code == 0, lists.output
    assert lists.output.count("u3") == 3
    refused = shell("complete", likes, *said, "--out", tmp_path / "o.csv")
    assert "ranks columns" in str(refused.exception)


def test_shell_compares(likes):
    done = shell(
        "compare",
        likes,
        "--rows",
        "user",
        "--columns",
        "page",
        "--methods",
        "ease,gf-cf",
        "--at",
        5,
    )
    assert done.exit_code == 0, done.output
    assert {"ease", "gf-cf", "popularity"} <= {
        line.split()[0] for line in done.output.splitlines() if line
    }
    wrong = shell("compare", likes, "--rows", "user", "--columns", "page", "--methods", "kmeans")
    assert "als, ease, slim, gf-cf, blend" in str(wrong.exception)


def test_lists_by_chance_are_refused_in_words(model):
    """It was an AttributeError, and an answer of 500 of the service."""
    with pytest.raises(InputError, match=r"by must be 'auto' or 'prediction' for .*, got 'chance'"):
        model.fit(taken()).recommend("u0", by="chance")
