"""What a fitted completion model can do: real ids, new rows and columns, blocks, files,
scikit-learn's manners."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import eckart
from eckart import ALS, SVP, BayesianMF, InputError, MixedTable, Observed, SoftImpute
from eckart.complete.normalise import normalise
from eckart.complete.split import folds, split
from eckart.metrics import mae, ranking, rmse
from test_als import holes, strengths
from test_save import forge, refused

TIGHT = {"tol": 1e-13, "max_iter": 3000, "random_state": 0}

NORMALISERS = [
    {"biases": True},
    {"biases": False},
    {"biases": False, "normalise": None},
    {"biases": False, "normalise": "global"},
    {"biases": False, "normalise": "row"},
    {"biases": False, "normalise": "both"},
    {"biases": False, "normalise": "bias"},
    {"biases": False, "normalise": "global", "scale": True},
    {"biases": False, "normalise": "column", "scale": True},
    {"biases": False, "normalise": "row", "scale": True},
    {"biases": False, "normalise": "both", "scale": True},
]
every_normaliser = pytest.mark.parametrize("options", NORMALISERS, ids=str)


def ids_of(kind: str, size: int):
    return {
        "text": np.array([f"r{i:02d}" for i in range(size)], object),
        "int": np.arange(size) * 7 + 100,
        "date": np.datetime64("2020-01-01") + np.arange(size) * 3,
        "none": None,
    }[kind]


def labelled(rng, rows="text", columns="int", **more):
    a = holes(rng, **more)
    return Observed.from_nan(a, ids_of(rows, a.shape[0]), ids_of(columns, a.shape[1])), a


# ---- predictions


@every_normaliser
def test_predictions_are_in_the_units_of_the_data(rng, options):
    """mean + c + t (b + s u.v), the normaliser's numbers being those of the data alone."""
    a = holes(rng, mean=20.0) * np.linspace(1, 3, 9)
    model = ALS(3, random_state=0, **options).fit(a)
    f = model.fit_.factors
    score = f.left @ f.right.T
    if model.normaliser_ is None:
        want = score + f.mean
        want += (f.row_bias[:, None] + f.column_bias) if options["biases"] else 0.0
    else:
        norm, _ = normalise(
            Observed.from_nan(a),
            options.get("normalise", "column"),
            scale=options.get("scale", False),
        )
        want = norm.invert(score, np.arange(12)[:, None], np.arange(9))
    np.testing.assert_allclose(f.block(slice(None)), want)
    i, j = np.nonzero(np.ones(a.shape))
    np.testing.assert_allclose(model.predict(i, j), want.ravel())
    assert np.nanmean(np.abs(want - a)) < 0.5 * np.nanstd(a)


@every_normaliser
def test_a_constant_shift_of_the_data_shifts_the_predictions(rng, options):
    if options.get("normalise", "auto") is None:
        pytest.skip("nothing is taken out")
    a = holes(rng)
    one, two = (ALS(2, random_state=0, **options).fit(x) for x in (a, a + 1000.0))
    np.testing.assert_allclose(
        two.fit_.factors.block(slice(None)) - 1000, one.fit_.factors.block(slice(None)), atol=1e-6
    )


@pytest.mark.parametrize("rows", ["text", "int", "date"])
@pytest.mark.parametrize("columns", ["int", "date", "none"])
def test_ids_of_every_kind(rng, rows, columns):
    x, a = labelled(rng, rows, columns)
    model, bare = ALS(2, random_state=0).fit(x), ALS(2, random_state=0).fit(a)
    i = ids_of(rows, 12)
    j = np.arange(9) if columns == "none" else ids_of(columns, 9)
    np.testing.assert_array_equal(model.predict(i[:9], j), bare.predict(np.arange(9), np.arange(9)))
    np.testing.assert_array_equal(model.predict(i[3], j), bare.predict(3, np.arange(9)))
    np.testing.assert_array_equal(model.predict(i, j[2]), bare.predict(np.arange(12), 2))
    np.testing.assert_array_equal(model.predict(i[[4, 2]]), bare.predict([4, 2]))
    if rows == "date":
        assert model.predict(dt.date(2020, 1, 4), j[0]) == bare.predict(1, 0)
    with pytest.raises(InputError, match="row"):
        model.predict(
            {"text": "nobody", "int": 101, "date": np.datetime64("1999-01-01")}[rows], j[0]
        )


def test_unknown_ids(rng):
    x, _ = labelled(rng)
    model = ALS(2, random_state=0).fit(x)
    f = model.fit_.factors
    with pytest.raises(InputError, match="nobody"):
        model.predict("nobody", 100)
    with pytest.raises(InputError, match="5"):
        model.predict("r00", 5)
    with pytest.raises(InputError, match="unknown must be 'raise', 'mean' or 'nan', got 'guess'"):
        model.predict("r00", 100, unknown="guess")
    with pytest.raises(InputError, match="one for each row id"):
        model.predict(["r00", "r01"], [100, 107, 114])
    rows, columns = ["r01", "nobody", "r01", "nobody"], [107, 107, 5, 5]
    got = model.predict(rows, columns, unknown="mean")
    want = [model.predict("r01", 107)[0], f.mean + f.column_bias[1], f.mean + f.row_bias[1], f.mean]
    np.testing.assert_allclose(got, want)
    got = model.predict(rows, columns, unknown="nan")
    assert np.isnan(got).tolist() == [False, True, True, True]


def test_complete_comes_in_blocks_and_keeps_what_was_observed(rng):
    x, a = labelled(rng)
    model = ALS(2, random_state=0).fit(x)
    for size in (1, 3 * 9 * 8, 2**25):
        parts = list(model.complete(block_bytes=size))
        assert np.concatenate([p[0] for p in parts]).tolist() == ids_of("text", 12).tolist()
        whole = np.concatenate([p[1] for p in parts])
        np.testing.assert_array_equal(whole[~np.isnan(a)], a[~np.isnan(a)])
        gaps = np.isnan(a)
        np.testing.assert_allclose(whole[gaps], model.fit_.factors.block(slice(None))[gaps])
    ((names, some),) = model.complete(["r05", "r01"], keep=False)
    assert list(names) == ["r05", "r01"]
    np.testing.assert_allclose(some, model.predict(["r05", "r01"]))
    assert len(parts) == 1


# ---- new rows and columns


@every_normaliser
def test_the_full_history_of_a_fitted_row_folds_in_to_the_fitted_row(rng, options):
    a = holes(rng, mean=3.0)
    model = ALS(2, l2=0.1, **TIGHT, **options).fit(a)
    np.testing.assert_allclose(model.fold_in(a), model.row_factors_, atol=2e-4)
    np.testing.assert_allclose(model.predict(a[3:5]), model.predict([3, 4]), atol=2e-4)
    filled = model.transform(a[:4])
    np.testing.assert_array_equal(filled[~np.isnan(a[:4])], a[:4][~np.isnan(a[:4])])
    np.testing.assert_allclose(
        filled[np.isnan(a[:4])], model.predict(np.arange(4))[np.isnan(a[:4])], atol=2e-4
    )


@pytest.mark.parametrize("zeros", ["all", "unobserved"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_implicit_rows_fold_in_to_the_fitted_rows(rng, zeros, nonnegative):
    r = strengths(rng)
    options = {"stop": "gradient", "tol": 1e-5, "max_iter": 1000, "random_state": 0}
    model = ALS(
        2, feedback="implicit", zeros=zeros, nonnegative=nonnegative, l2=0.05, **options
    ).fit(r)
    np.testing.assert_allclose(model.fold_in(r), model.row_factors_, atol=1e-3)
    np.testing.assert_allclose(model.fold_in(r, axis="columns"), model.column_factors_, atol=1e-3)


@pytest.mark.parametrize(
    "options", [o for o in NORMALISERS if o.get("normalise") not in ("both", "bias")], ids=str
)
def test_columns_fold_in_like_rows(rng, options):
    """(With "both" and "bias" the rows were normalised after, or together with, the columns.)"""
    a = holes(rng, mean=3.0)
    model = ALS(2, l2=0.1, **TIGHT, **options).fit(a)
    scale = model.normaliser_.column_scale if model.normaliser_ is not None else None
    want = model.column_factors_ * (
        scale[:, None] if options.get("normalise") == "global" and scale is not None else 1.0
    )
    np.testing.assert_allclose(model.fold_in(a[:, 2:5], axis="columns"), want[2:5], atol=5e-4)


@every_normaliser
def test_an_update_with_the_complete_history_changes_nothing(rng, options):
    x, a = labelled(rng, "text", "text", mean=3.0)
    model = ALS(2, l2=0.1, **TIGHT, **options).fit(x)
    before = model.fit_.factors.block(slice(None))
    some = Observed.from_nan(a[[7, 2]], x.rows[[7, 2]], x.columns)
    np.testing.assert_allclose(
        model.update(some).fit_.factors.block(slice(None)), before, atol=3e-4
    )
    assert model.observed_.nnz == x.nnz
    np.testing.assert_array_equal(model.observed_.to_scipy().toarray(), x.to_scipy().toarray())
    part = Observed.from_nan(a[:, [1, 4]], x.rows, x.columns[[1, 4]])
    if options.get("normalise") == "both" and options.get("scale"):
        with pytest.raises(InputError, match="scale=True"):
            model.update(part, axis="columns")
        return
    model.update(part, axis="columns")
    after = model.fit_.factors.block(slice(None))
    np.testing.assert_allclose(
        np.delete(after, [1, 4], axis=1), np.delete(before, [1, 4], axis=1), atol=3e-4
    )
    if options.get("normalise") not in ("both", "bias"):
        np.testing.assert_allclose(after, before, atol=1e-3)


@every_normaliser
def test_updates_take_in_new_rows_and_new_columns(rng, options, tmp_path):
    x, a = labelled(rng, "text", "text", n=14, m=11, mean=3.0, share=0.2)
    old = Observed.from_nan(a[:12, :9], x.rows[:12], x.columns[:9])
    model = ALS(3, random_state=0, **options).fit(
        old
    )  # rank 2 and a mean: a third factor where nothing else takes the mean in
    kept = model.predict(list(x.rows[:12]))
    changed = a[[3, 12, 13], :9].copy()
    changed[0] = 5.0
    model.update(Observed.from_nan(changed, x.rows[[3, 12, 13]], x.columns[:9]))
    assert model.fit_.factors.shape == (14, 9)
    np.testing.assert_array_equal(
        np.delete(model.predict(list(x.rows[:12])), 3, axis=0), np.delete(kept, 3, axis=0)
    )
    assert np.abs(model.predict("r03", list(x.columns[:9])) - kept[3]).max() > 0.05
    assert (
        np.abs(model.predict("r13", list(x.columns[:9])) - a[13, :9])[~np.isnan(a[13, :9])].mean()
        < 1.0
    )
    assert model.observed_.shape == (14, 9)
    if not (options.get("normalise") == "both" and options.get("scale")):
        model.update(Observed.from_nan(a[:, 9:], x.rows, x.columns[9:]), axis="columns")
        assert model.fit_.factors.shape == (14, 11)
        assert model.observed_.shape == (14, 11)
        assert np.isfinite(model.predict("r13", "r10")).all()
        assert model.recommend("r13", n=3).positions.shape == (1, 3)
        assert "r09" not in model.recommend("r13", n=11, exclude="r09").columns
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(
        eckart.load(tmp_path / "m.safetensors").predict("r13", "r03"), model.predict("r13", "r03")
    )


def test_rows_without_ids_are_added_behind(rng):
    a = holes(rng)
    model = ALS(2, random_state=0).fit(a[:10]).update(a[10:])
    assert model.fit_.factors.shape == (12, 9)
    np.testing.assert_allclose(model.row_factors_[10:], model.fold_in(a[10:]))
    with pytest.raises(
        InputError,
        match=r"row ids must be positions up to 11, or 12, \.\.\. for new rows: the 12 rows of the model",
    ):
        model.update(Observed.from_nan(a[:2], np.array([3, 25])))
    assert model.update(Observed.from_nan(a[:2], np.array([3, 12]))).fit_.factors.shape == (13, 9)
    x, _ = labelled(rng)
    with pytest.raises(InputError, match="X must have the ids of the rows to update, got none"):
        ALS(2, random_state=0).fit(x).update(a[:2])
    with pytest.raises(InputError, match="axis must be 'rows' or 'columns', got 'both'"):
        model.update(a, axis="both")


def test_new_rows_are_matched_by_column_id(rng):
    x, a = labelled(rng, "text", "text")
    model = ALS(2, random_state=0).fit(x)
    order = rng.permutation(9)
    turned = Observed.from_nan(a[:3][:, order], None, x.columns[order])
    np.testing.assert_allclose(model.fold_in(turned), model.fold_in(a[:3]))
    part = Observed.from_nan(a[:3, :6], None, x.columns[:6])
    padded = np.column_stack([a[:3, :6], np.full((3, 3), np.nan)])
    np.testing.assert_allclose(model.fold_in(part), model.fold_in(padded))
    with pytest.raises(InputError, match="zzz"):
        model.fold_in(Observed.from_nan(a[:1, :1], None, np.array(["zzz"], object)))
    with pytest.raises(ValueError, match="8 features"):
        model.transform(a[:3, :8])


def test_an_empty_new_row_gets_the_documented_answer(rng):
    a = holes(rng, mean=3.0)
    model = ALS(2, random_state=0).fit(a)
    rows = np.full((2, 9), np.nan)
    rows[0, 4] = 5.0
    got = model.transform(rows)
    np.testing.assert_allclose(got[1], model.mean_ + model.column_biases_)
    assert np.isfinite(got).all()
    assert got[0, 4] == 5.0


# ---- files


LABELS = [("text", "int"), ("date", "text"), ("none", "none"), ("int", "date")]


@pytest.mark.parametrize("kinds", LABELS)
@every_normaliser
def test_save_and_load_give_the_same_bits(rng, tmp_path, kinds, options):
    x, a = labelled(rng, *kinds)
    path = tmp_path / "m.safetensors"
    model = ALS(2, random_state=0, max_iter=3, **options).fit(x)
    model.save(path)
    back = eckart.load(path)
    assert back.get_params() == model.get_params()
    for part in ("rows", "columns"):
        one, two = getattr(model.fit_.factors, part), getattr(back.fit_.factors, part)
        assert (one is None) == (two is None)
        assert one is None or (list(one) == list(two) and np.asarray(one).dtype == two.dtype)
    assert (
        back.fit_.factors.block(slice(None)).tobytes()
        == model.fit_.factors.block(slice(None)).tobytes()
    )
    assert back.transform(a).tobytes() == model.transform(a).tobytes()
    assert back.certificate_ == model.certificate_
    assert back.fit_.plan == model.fit_.plan
    assert back.fit_.trace.to_dict() == model.fit_.trace.to_dict()
    back.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    assert list(back.recommend(n=4).entries()) == list(model.recommend(n=4).entries())


@pytest.fixture(scope="module")
def fitted():
    return ALS(2, biases=False, scale=True, normalise="both", random_state=0).fit(
        holes(np.random.default_rng(0))
    )


def test_a_truncated_or_changed_file_is_refused(fitted, tmp_path):
    path = tmp_path / "m.safetensors"
    good = forge(fitted)
    path.write_bytes(good)
    assert eckart.load(path).row_factors_.shape == (12, 2)
    for length in range(0, len(good), 97):
        refused(path, good[:length])
    rng = np.random.default_rng(0)
    for at in rng.choice(len(good), 150, replace=False):
        bad = bytearray(good)
        bad[at] ^= 0x21
        refused(path, bytes(bad))


HOSTILE = {
    "left too short": lambda a: a.update(left=a["left"][:-1].copy()),
    "ranks differ": lambda a: a.update(left=a["left"][:, :1].copy()),
    "precisions differ": lambda a: a.update(left=a["left"].astype(np.float32)),
    "whole numbers": lambda a: a.update(left=a["left"].astype(int), right=a["right"].astype(int)),
    "no right": lambda a: a.pop("right"),
    "flat": lambda a: a.update(left=a["left"][0].copy()),
    "bias": lambda a: a.update(row_bias=a["row_bias"][:3].copy()),
    "scale": lambda a: a.update(column_scale=a["column_scale"][:3].copy()),
    "normaliser": lambda a: a.update(
        {"normaliser.row_offset": a["normaliser.row_offset"][:3].copy()}
    ),
    "no entries": lambda a: a.pop("observed.data"),
    "fewer rows of entries": lambda a: a.update(
        {"observed.indptr": np.append(a["observed.indptr"][:5], a["observed.indptr"][-1:])}
    ),
    "entries out of range": lambda a: a.update({"observed.indices": a["observed.indices"] + 5}),
    "negative entries": lambda a: a.update({"observed.indices": a["observed.indices"] - 5}),
    "float places": lambda a: a.update({"observed.indices": a["observed.indices"].astype(float)}),
    "float starts": lambda a: a.update({"observed.indptr": a["observed.indptr"].astype(float)}),
    "starts fall": lambda a: a["observed.indptr"].__setitem__(2, 10**6),
    "data of text": lambda a: a.update({"observed.data": a["observed.data"].astype(np.int8)}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_arrays_that_do_not_fit_together_are_refused(fitted, tmp_path, name):
    refused(tmp_path / "m.safetensors", forge(fitted, arrays=HOSTILE[name]))


@pytest.mark.parametrize(
    "edit",
    [
        lambda h: h.update({"class": "os.system"}),
        lambda h: h.update({"class": "Completer"}),
        lambda h: h.update(kind="Basis"),
        lambda h: h.update(kind="Nothing"),
        lambda h: h.pop("rows"),
        lambda h: h.update(rows=["a"]),
        lambda h: h.update(rows={"dtype": "<M8[D]"}),
        lambda h: h.update(rows={"dtype": "O"}),
        lambda h: h["factors"].update(mean="nan"),
        lambda h: h["factors"].pop("mean"),
        lambda h: h["params"].update(zzz=1),
        lambda h: h["plan"].update(normaliser=3),
        lambda h: h["plan"].update(normaliser={"by": "row"}),
        lambda h: h["plan"]["normaliser"].update(zzz=1),
    ],
)
def test_headers_that_lie_are_refused(fitted, tmp_path, edit):
    refused(tmp_path / "m.safetensors", forge(fitted, edit))


# ---- scikit-learn's manners


def test_in_a_pipeline_with_the_next_step(rng):
    a = holes(rng, 40, 9)
    out = make_pipeline(ALS(2, random_state=0), StandardScaler()).fit_transform(a)
    assert out.shape == a.shape
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-9)


def test_frames_come_out_as_frames(rng):
    frame = pd.DataFrame(holes(rng), columns=list("abcdefghi"), index=[f"u{i}" for i in range(12)])
    model = ALS(2, random_state=0).set_output(transform="pandas").fit(frame)
    out = model.transform(frame)
    assert list(out.columns) == list(frame.columns)
    assert list(out.index) == list(frame.index)
    assert not out.isna().any().any()
    assert list(model.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(
        model.predict("u3", ["a", "c"]), model.predict(["u3", "u3"], ["a", "c"])
    )
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame[list("bacdefghi")])


def test_clone_search_and_parameters(rng):
    a = holes(rng, 30, 9)
    model = ALS(2, l2=0.3, random_state=0)
    before = model.get_params()
    model.fit(a)
    assert model.get_params() == before
    assert not hasattr(clone(model), "fit_")
    assert clone(model).get_params() == before
    search = GridSearchCV(
        ALS(2, random_state=0),
        {"l2": [0.01, 10.0]},
        cv=3,
        scoring=lambda m, x, y=None: -np.nanmean((m.predict(x) - x) ** 2),
    ).fit(a)
    assert search.best_params_ == {"l2": 0.01}


def test_a_model_that_is_not_fitted_says_so(rng):
    for call in (
        lambda m: m.predict(0, 0),
        lambda m: m.transform(holes(rng)),
        lambda m: m.recommend(0),
        lambda m: m.save("x"),
    ):
        with pytest.raises(ValueError, match="not fitted"):
            call(ALS(2))
    with pytest.raises(AttributeError, match="before fit"):
        ALS(2).certificate_  # noqa: B018


# ---- splits and measures


@pytest.mark.parametrize(
    "options", [{}, {"biases": False}, {"biases": False, "normalise": None}, {"l2": 0.0}]
)
def test_folds_with_rows_that_are_cold_give_finite_errors(rng, options):
    """Rows of one entry are in a test and in no training set: predicted by the mean, counted, never
    NaN."""
    a = holes(rng, 30, 9)
    a[10:] = np.nan
    a[np.arange(10, 30), np.arange(20) % 9] = 1.0
    cold = 0
    for part in folds(Observed.from_nan(a), 5, random_state=0):
        model = ALS(2, random_state=0, **options).fit(part.train)
        i = np.repeat(np.arange(30), part.test.row_counts())
        cold += int((part.train.row_counts()[i] == 0).sum())
        guess = model.predict(i, part.test.indices)
        assert np.isfinite([rmse(part.test.data, guess), mae(part.test.data, guess)]).all()
    assert cold == 20


def test_the_fold_in_protocol_with_unseen_rows(rng):
    r = np.where(rng.random((60, 30)) < 0.3, 1.0, np.nan)
    r[:, :3] = 1.0
    parts = split(Observed.from_nan(r), 0.3, by="row", random_state=0)
    model = ALS(4, feedback="implicit", random_state=0).fit(parts.train)
    lists = model.recommend(X=parts.fold_in, n=5)
    found = ranking(lists.positions, parts.test, 5)
    assert all(np.isfinite(v) for v in found.mean.values())
    seen = parts.fold_in.to_scipy().toarray() > 0
    assert not seen[np.arange(len(lists))[:, None], lists.positions].any()
    ids = np.array([f"u{i}" for i in range(60)], object)
    named = split(Observed.from_nan(r, ids), 0.1, random_state=0)
    model = ALS(4, feedback="implicit", random_state=0).fit(named.train)
    assert np.isfinite(model.predict(["u1", "stranger"], [0, 0], unknown="mean")).all()


def test_sparse_matrices_and_triples_are_the_same_fit(rng):
    x, _ = labelled(rng, "text", "text")
    i = np.repeat(np.arange(12), x.row_counts())
    table = pd.DataFrame({"who": x.rows[i], "what": x.columns[x.indices], "score": x.data}).sample(
        frac=1, random_state=0
    )
    model = ALS(2, random_state=0).fit(table, rows="who", columns="what", values="score")
    assert model.row_factors_.tobytes() == ALS(2, random_state=0).fit(x).row_factors_.tobytes()
    twice = pd.concat([table, table.iloc[:1].assign(score=9.0)])
    with pytest.raises(InputError, match=r"twice|more than once|again|duplicates"):
        ALS(2).fit(twice, rows="who", columns="what", values="score")
    last = ALS(2, random_state=0).fit(
        twice, rows="who", columns="what", values="score", duplicates="last"
    )
    assert last.observed_.data.max() == 9.0
    stored = sparse.csr_array(
        (np.array([0.0, 2.0]), (np.array([0, 1]), np.array([0, 1]))), shape=(2, 2)
    )
    assert ALS(1, random_state=0).fit(stored).observed_.nnz == 2  # a stored zero is an observation


WITHOUT_HIDING = {
    "ALS": lambda: ALS(4, l2=2.0, random_state=0),
    "BayesianMF": lambda: BayesianMF(4, n_samples=60, burn_in=40, random_state=0),
    "SoftImpute": lambda: SoftImpute(tau=0.2),
    "SoftImpute, tau chosen": lambda: SoftImpute(random_state=0),
    "SVP": lambda: SVP(3, random_state=0),
    "MixedTable": lambda: MixedTable(3, trees=False, random_state=0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITHOUT_HIDING)
def test_a_certificate_says_that_noise_is_not_predicted(name):
    """Errors on its own entries are below those of the mean however little a fit knows."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((100, 50))
    signal = 2 * rng.standard_normal((100, 2)) @ rng.standard_normal((2, 50)) + 0.5 * noise
    away = rng.random(noise.shape) > 0.35
    for x, says in ((noise, True), (signal, False)):
        model = WITHOUT_HIDING[name]().fit(np.where(away, np.nan, x))
        words = str(model.certificate_).splitlines()[0]
        if name == "SoftImpute":  # a price so low that it fits every entry
            assert "nothing shows that it predicts better than the mean" in words
            continue
        assert ("no better than" in words) == says, str(model.certificate_)
        facts = model.certificate_.facts
        if not says and name in ("ALS", "BayesianMF"):
            hidden = float(np.mean((model.predict(*np.nonzero(away)) - x[away]) ** 2))
            found = facts["error of model expected on others"]
            assert 0.5 * hidden < found < 1.5 * hidden


def test_free_numbers_of_a_high_rank_are_counted_by_fewer_rows_and_columns(monkeypatch):
    """300 decompositions of 2,000 x 300 took a minute after a fit of some seconds."""
    from eckart.complete import plain_answers
    from eckart.factors import LowRank

    rng = np.random.default_rng(0)
    x = eckart.observed(np.where(rng.random((400, 120)) < 0.5, 1.0, np.nan))
    left, right = rng.normal(size=(400, 80)), rng.normal(size=(120, 80))
    factors = LowRank(left, right)
    ridges = np.full(400, 5.0), np.full(120, 5.0)
    every = plain_answers.free_numbers(factors, x, ridges)
    counted = []
    whole = plain_answers._free
    monkeypatch.setattr(plain_answers, "_free", lambda v, l2: counted.append(1) or whole(v, l2))
    monkeypatch.setattr(plain_answers, "WORK", 1e3)
    assert plain_answers.free_numbers(factors, x, ridges) == pytest.approx(every, rel=0.05)
    assert len(counted) == 2 * plain_answers.FEWEST_SYSTEMS


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_a_posterior_expects_is_of_cells_that_it_has_not_seen(seed):
    """At its own entries it is surer than elsewhere: half of 80 x 40 cells of noise held bare."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((80, 40))
    model = BayesianMF(random_state=0).fit(np.where(rng.random(noise.shape) < 0.5, np.nan, noise))
    assert "predicts no better than the mean" in str(model.certificate_).splitlines()[0]
