"""eckart complete, recommend and certify of a completion: files in, files out, real ids, one line
and exit code 2 on bad input."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eckart.cli.complete as verb
import eckart.cli.completed_cells as cells_of
from eckart import ALS, PCA, BayesianMF, load, observed, read
from eckart.cli import complete_options as complete_plan
from eckart.complete.bayes import gibbs
from eckart.complete.compare import biases_only, choose, sweeps_of

LONG = ("--rows", "user", "--columns", "movie", "--values", "rating")
NAMES = {"rows": "user", "columns": "movie", "values": "rating"}


def table(users, movies, seed=0, share=0.5):
    """Ratings of rank 2 with biases: a frame of the entries seen, and the whole truth."""
    rng = np.random.default_rng(seed)
    n, m = len(users), len(movies)
    truth = (
        3 + rng.standard_normal((n, 1)) + rng.standard_normal((n, 2)) @ rng.standard_normal((2, m))
    )
    seen = rng.random((n, m)) < share
    seen[np.arange(n), np.arange(n) % m] = True
    seen[np.arange(m) % n, np.arange(m)] = True
    i, j = np.nonzero(seen)
    order = rng.permutation(len(i))
    i, j = i[order], j[order]
    return pd.DataFrame({"user": users[i], "movie": movies[j], "rating": truth[i, j]}), truth


USERS = np.arange(100, 140) * 3
MOVIES = np.array([f"film {c}" for c in "abcdefghijklmnopqrst"], object)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the ratings as CSV and Parquet, a wide table, a fitted model and a PCA."""
    folder = tmp_path_factory.mktemp("ratings")
    frame, truth = table(USERS, MOVIES)
    frame.to_csv(folder / "r.csv", index=False)
    frame.to_parquet(folder / "r.parquet", index=False)
    frame.to_csv(folder / "bare.txt", index=False, header=False, sep=";")
    pd.concat([frame, frame[:3]]).to_csv(folder / "twice.csv", index=False)
    frame.head(7)[["movie", "user"]].to_csv(folder / "pairs.csv", index=False)
    wide = frame.pivot(index="user", columns="movie", values="rating").reset_index()
    wide.to_csv(folder / "wide.csv", index=False)
    np.save(folder / "wide.npy", wide.drop(columns="user").to_numpy())
    model = ALS(2, l2=0.05, random_state=0).fit(observed(folder / "r.csv", **NAMES))
    model.fit_.plan["names"] = NAMES
    model.save(folder / "m.safetensors")
    PCA(1).fit(truth).save(folder / "pca.safetensors")
    return folder


# ---- complete


def test_complete_writes_everything(done):
    out = done(
        "complete",
        "r.csv",
        *LONG,
        "-k",
        2,
        "--l2",
        0.05,
        "--out",
        "c.parquet",
        "--model",
        "n.safetensors",
        "--report",
        "r.html",
    )
    x = observed("r.csv", **NAMES)
    want = ALS(2, l2=0.05, random_state=0).fit(x)
    long = pd.read_parquet("c.parquet")
    assert list(long.columns) == ["user", "movie", "rating"]
    assert len(long) == 40 * 20
    grid = long.pivot(index="user", columns="movie", values="rating")
    assert list(grid.index) == USERS.tolist()
    np.testing.assert_array_equal(grid.to_numpy(), np.concatenate([b for _, b in want.complete()]))
    saved = load("n.safetensors")
    assert saved.fit_.plan["names"] == NAMES
    assert set(saved.fit_.plan["held_out"]) == {"model", "biases only", "mean only"}
    np.testing.assert_array_equal(saved.fit_.factors.left, want.fit_.factors.left)
    for words in (
        "40 rows x 20 columns",
        f"{x.nnz:,} observed",
        "RMSE",
        "MAE",
        "biases only",
        "mean only",
        "2: as asked for",
    ):
        assert words in out
    assert "certificate holds" in out
    assert "The certificate holds." in Path("r.html").read_text(encoding="utf-8")
    for name in ("c.parquet", "n.safetensors", "r.html"):
        assert name in out
    assert not [name for name in os.listdir(".") if name.startswith(".")]


def test_held_out_error_is_that_of_a_fit_that_did_not_see_it(done):
    from eckart.report.held_out import judge

    table(USERS, MOVIES, share=0.8)[0].to_csv(
        "most.csv", index=False
    )  # three entries for each number of the model, so that it beats the biases
    out = done("complete", "most.csv", *LONG, "-k", 2, "--l2", 0.05, "--held-out", 0.2, "--seed", 3)
    held = judge(ALS(2, l2=0.05, random_state=3).fit, observed("most.csv", **NAMES), 0.2, 3)
    for line in held.lines():
        assert line in out
    # by the mean absolute error: a cell of a row with few entries may be far off, and biases are a
    # third of the variance alone
    assert held.scores["model"]["MAE"] < held.scores["mean only"]["MAE"]
    out = done("complete", "r.csv", *LONG, "-k", 2, "--l2", 0.05, "--held-out", 0)
    assert "held out" not in out
    assert done("complete", "r.csv", *LONG, "-k", 2, "--l2", 0.05, "-q") == ""


def test_a_loss_gives_chances(ran):
    with open("yes.csv", "w", encoding="utf-8") as file:
        rows = [
            f"p{i},q{j},{(i * 7 + j * 3 + i * j) % 5 > 1:d}"
            for i in range(30)
            for j in range(8)
            if (i + j) % 4
        ]
        file.write("\n".join(["person,question,yes", *rows]))
    ask = (
        "yes.csv",
        "--rows",
        "person",
        "--columns",
        "question",
        "--values",
        "yes",
        "--loss",
        "logistic",
        "-k",
        1,
        "--held-out",
        0,
    )
    out = ran("complete", *ask, "--model", "yes.safetensors")
    assert "als: --loss is an option of it" in out
    model = load("yes.safetensors")
    p = model.predict("p0", ["q0", "q4"])
    assert ((p > 0) & (p < 1)).all()
    assert model.predict_proba("p0", "q0").shape == (1, 2)


def test_auto_says_why(ran):
    out = ran(
        "complete", "r.csv", *LONG, "--l2", 0.01, "--model", "n.safetensors", "--report", "r.html"
    )
    model = load("n.safetensors")
    assert model.l2 == 0.01
    assert f"rank {model.n_components}," in out
    assert "candidates had the least error on unseen entries" in out
    assert "How the rank was chosen" in Path("r.html").read_text(encoding="utf-8")


def test_a_fit_that_was_cut_short_says_so_and_ends_with_1(eckart_):
    code, out, err = eckart_(
        "complete", "r.csv", *LONG, "-k", 6, "--l2", 0.001, "--max-iter", 2, "--held-out", 0
    )
    assert (code, err) == (1, "")
    assert "DOES NOT HOLD: relative gradient" in out
    assert "raise --max-iter above 2" in out


@pytest.mark.parametrize("ending", ["csv", "arrow", "parquet"])
def test_unobserved_cells_in_every_format(done, ending):
    done(
        "complete",
        "r.parquet",
        *LONG,
        "-k",
        2,
        "--l2",
        0.05,
        "--held-out",
        0,
        "--out",
        f"o.{ending}",
        "--cells",
        "unobserved",
        "-q",
    )
    x = observed("r.csv", **NAMES)
    new = read(f"o.{ending}", **NAMES)
    assert new.nnz == 800 - x.nnz
    assert not (set(_cells(x)) & set(_cells(new)))
    model = load("m.safetensors")
    rows = np.repeat(new.rows, new.row_counts())
    np.testing.assert_allclose(new.data, model.predict(rows, new.columns[new.indices]), rtol=1e-6)


def _cells(x):
    return list(zip(np.repeat(x.rows, x.row_counts()).tolist(), x.columns[x.indices].tolist()))


def test_output_larger_than_a_block_is_the_same(done, monkeypatch):
    done(
        "complete",
        "r.csv",
        *LONG,
        "-k",
        2,
        "--l2",
        0.05,
        "--held-out",
        0,
        "--out",
        "one.parquet",
        "-q",
    )
    done("complete", "wide.npy", "-k", 2, "--l2", 0.05, "--held-out", 0, "--out", "one.npy", "-q")
    monkeypatch.setattr(cells_of, "BLOCK_BYTES", 500)  # three rows a block
    for cells in ("all", "unobserved"):
        done(
            "complete",
            "r.csv",
            *LONG,
            "-k",
            2,
            "--l2",
            0.05,
            "--held-out",
            0,
            "--out",
            f"{cells}.parquet",
            "--cells",
            cells,
            "-q",
        )
    one, many, rest = (pd.read_parquet(f"{name}.parquet") for name in ("one", "all", "unobserved"))
    pd.testing.assert_frame_equal(one, many)
    seen = pd.read_csv("r.csv")
    assert len(rest) + len(seen) == len(one)
    done("complete", "wide.npy", "-k", 2, "--l2", 0.05, "--held-out", 0, "--out", "many.npy", "-q")
    # BLAS sums the last block, a single row, in another order
    np.testing.assert_allclose(
        np.load("one.npy"), np.load("many.npy"), rtol=16 * np.finfo(float).eps
    )


def test_pairs_keep_their_order_and_may_repeat(done, refused):
    pairs = pd.DataFrame(
        {"user": [USERS[5], USERS[0], USERS[5]], "movie": [MOVIES[1], MOVIES[19], MOVIES[1]]}
    )
    pairs.to_csv("p.csv", index=False)
    pairs.to_parquet("p.parquet", index=False)
    model = load("m.safetensors")
    for name in ("p.csv", "p.parquet"):
        done(
            "complete",
            "r.csv",
            *LONG,
            "-k",
            2,
            "--l2",
            0.05,
            "--held-out",
            0,
            "--pairs",
            name,
            "--out",
            "o.csv",
            "-q",
        )
        back = pd.read_csv("o.csv")
        pd.testing.assert_frame_equal(back[["user", "movie"]], pairs)
        np.testing.assert_allclose(
            back["rating"], model.predict(pairs["user"], pairs["movie"]), rtol=1e-6
        )
    pairs.loc[1, "movie"] = "film zz"
    pairs.to_csv("p.csv", index=False)
    ask = (
        "complete",
        "r.csv",
        *LONG,
        "-k",
        2,
        "--l2",
        0.05,
        "--held-out",
        0,
        "--pairs",
        "p.csv",
        "--out",
        "o2.csv",
        "-q",
    )
    assert "'film zz'" in refused(*ask)
    done(*ask, "--unknown", "nan")
    assert pd.read_csv("o2.csv")["rating"].isna().tolist() == [False, True, False]
    done(*ask, "--unknown", "mean")
    assert pd.read_csv("o2.csv")["rating"].notna().all()


def test_many_cells_are_refused_with_advice(done, refused, monkeypatch):
    monkeypatch.setattr(cells_of, "UNASKED_CELLS", 700)
    ask = (
        "complete",
        "r.csv",
        *LONG,
        "-k",
        2,
        "--l2",
        0.05,
        "--held-out",
        0,
        "-q",
        "--out",
        "o.parquet",
    )
    line = refused(*ask)
    for words in ("40 x 20 = 800 cells", "--pairs", "--model", "--cells all"):
        assert words in line
    done(*ask, "--cells", "all")
    os.unlink("o.parquet")
    monkeypatch.setattr(cells_of, "MOST_CELLS", 700)
    assert "--all-cells" in refused(*ask, "--cells", "all")
    done(*ask, "--all-cells")
    assert len(pd.read_parquet("o.parquet")) == 800


def test_wide_tables_keep_columns_and_row_labels(done, refused):
    out = done(
        "complete",
        "wide.csv",
        "--index",
        "user",
        "-k",
        2,
        "--l2",
        0.05,
        "--out",
        "o.csv",
        "--model",
        "n.safetensors",
    )
    assert "40 rows x 20 columns" in out
    before, after = pd.read_csv("wide.csv"), pd.read_csv("o.csv")
    assert list(after.columns) == list(before.columns)
    assert after["user"].tolist() == before["user"].tolist()
    assert after.notna().all().all()
    seen = before.notna()
    np.testing.assert_array_equal(
        after.to_numpy()[seen.to_numpy()], before.to_numpy()[seen.to_numpy()]
    )
    assert load("n.safetensors").fit_.plan["names"] == {"index": "user"}
    assert done("certify", "n.safetensors", "wide.csv").startswith("Certificate: HOLDS")
    listed = done("recommend", "n.safetensors", "--row", USERS[0], "-n", 1)
    assert listed.split()[:4] == ["user", "rank", "column", "score"]
    done("complete", "wide.npy", "-k", 2, "--l2", 0.05, "--held-out", 0, "--out", "o.npy", "-q")
    assert np.load("o.npy").shape == (40, 20)
    assert "wide table" in refused(
        "complete", "wide.csv", "--index", "user", "--cells", "all", "--out", "o.csv"
    )


def test_positions_delimiters_and_no_header(done):
    place = ("--rows", 0, "--columns", 1, "--values", 2, "--delimiter", ";", "--no-header")
    done(
        "complete",
        "bare.txt",
        *place,
        "-k",
        2,
        "--l2",
        0.05,
        "--held-out",
        0,
        "--out",
        "o.csv",
        "--model",
        "n.safetensors",
        "-q",
    )
    assert list(pd.read_csv("o.csv").columns) == ["row", "column", "value"]
    np.testing.assert_array_equal(
        load("n.safetensors").fit_.factors.left, load("m.safetensors").fit_.factors.left
    )
    assert "HOLDS" in done("certify", "n.safetensors", "bare.txt")


def test_duplicates(done, refused):
    line = refused("complete", "twice.csv", *LONG, "-k", 2, "--l2", 0.05)
    assert "Say --duplicates last, mean or sum" in line
    done(
        "complete",
        "twice.csv",
        *LONG,
        "-k",
        2,
        "--l2",
        0.05,
        "--duplicates",
        "mean",
        "--model",
        "n.safetensors",
        "-q",
    )
    a, b = load("n.safetensors"), load("m.safetensors")
    np.testing.assert_allclose(a.fit_.factors.left, b.fit_.factors.left)
    assert "HOLDS" in done("certify", "n.safetensors", "twice.csv")


def test_implicit_feedback_is_judged_by_its_lists(done):
    ask = (
        "complete",
        "r.csv",
        "--rows",
        "user",
        "--columns",
        "movie",
        "--feedback",
        "implicit",
        "-k",
        3,
    )
    out = done(*ask, "--model", "n.safetensors", "--report", "r.html", "--out", "o.parquet")
    for words in ("recall@20", "NDCG@20", "most popular"):
        assert words in out
    assert load("n.safetensors").feedback == "implicit"
    assert list(pd.read_parquet("o.parquet").columns) == ["user", "movie", "value"]
    assert "recall@20" in Path("r.html").read_text(encoding="utf-8")


def test_bayes_answers_through_the_same_door(done):
    ask = ("complete", "r.csv", *LONG, "-k", 2, "--method", "bayes", "--held-out", 0, "-q")
    done(*ask, "--model", "n.safetensors", "--out", "o.parquet", "--report", "r.html")
    assert type(load("n.safetensors")).__name__ == "BayesianMF"
    assert len(pd.read_parquet("o.parquet")) == 800
    assert "ALS" not in Path("r.html").read_text(encoding="utf-8").split("</h1>")[1][:300]


@pytest.mark.parametrize("method", ["soft-impute", "svp", "svt", "exact"])
@pytest.mark.parametrize("components", ["2", pytest.param("auto", marks=pytest.mark.slow)])
def test_every_method_answers_through_the_same_door(eckart_, method, components):
    kind = verb.METHODS[method]
    ask = ("complete", "r.csv", *LONG, "--method", method, "-k", components, "--held-out", 0.1)
    code, out, err = eckart_(
        *ask, "--model", "n.safetensors", "--out", "o.parquet", "--report", "r.html"
    )
    if code == 2:
        assert components == "2"
        assert f"--components 2 came with --method {method}" in err, (
            "a method without a rank says so"
        )
        return
    assert (code, err) == (int("DOES NOT HOLD" in out), "")
    assert "RMSE" in out
    assert type(load("n.safetensors")).__name__ == kind
    assert np.isfinite(pd.read_parquet("o.parquet")["rating"]).all()


def test_what_is_taken_out_before_the_fit(done):
    done(
        "complete",
        "r.csv",
        *LONG,
        "-k",
        2,
        "--l2",
        0.2,  # with 0.05 one start of 60 went along a flat valley for more than 50 sweeps
        "--normalise",
        "bias",
        "--held-out",
        0,
        "--model",
        "n.safetensors",
        "-q",
    )
    model = load("n.safetensors")
    assert (model.normalise, model.biases) == ("bias", False)
    assert "HOLDS" in done("certify", "n.safetensors", "r.csv")


@pytest.mark.slow
def test_a_checkpoint_is_gone_when_the_fit_is_done(eckart_):
    before = set(os.listdir("."))
    assert eckart_(
        "complete", "r.csv", *LONG, "-k", 2, "--l2", 0.05, "--checkpoint", "state.ckpt", "-q"
    )[0] in (0, 1)
    assert eckart_("complete", "r.csv", *LONG, "--checkpoint", "state.ckpt", "-q")[0] in (0, 1)
    assert set(os.listdir(".")) == before


@pytest.mark.parametrize(("cells", "held"), [(1, "nothing"), (3, "nothing")])
def test_a_handful_of_entries(done, cells, held):
    pd.DataFrame({"user": range(cells), "movie": range(cells), "rating": 2.5}).to_csv(
        "few.csv", index=False
    )
    out = done(
        "complete",
        "few.csv",
        *LONG,
        "-k",
        1,
        "--l2",
        0.05,
        "--out",
        "o.csv",
        "--report",
        "r.html",
        "--model",
        "n.safetensors",
    )
    assert held in out
    assert pd.read_csv("o.csv")["rating"].notna().all()


# ---- ids


def test_ids_as_text_that_looks_like_numbers(done):
    frame, _ = table(np.array([f"{i:03d}" for i in range(30)], object), np.arange(20))
    frame.to_csv("zeros.csv", index=False)
    done("complete", "zeros.csv", *LONG, "-k", 1, "--l2", 0.05, "--model", "n.safetensors", "-q")
    lines = done("recommend", "n.safetensors", "--row", "007", "-n", 2).splitlines()
    assert lines[1].split()[0] == "007"
    assert len(lines) == 3


def test_ids_as_dates(done, refused):
    days = np.arange("2024-05-01", "2024-05-31", dtype="M8[D]")
    frame, _ = table(days, np.arange(20))
    frame["user"] = frame["user"].astype("datetime64[s]")
    frame.to_parquet("days.parquet", index=False)
    done(
        "complete",
        "days.parquet",
        *LONG,
        "-k",
        1,
        "--l2",
        0.05,
        "--model",
        "n.safetensors",
        "--out",
        "o.parquet",
        "-q",
    )
    lines = done("recommend", "n.safetensors", "--row", "2024-05-03", "-n", 2).splitlines()
    assert lines[1].startswith("2024-05-03")
    assert pd.read_parquet("o.parquet")["user"].nunique() == 30
    assert "2031" in refused("recommend", "n.safetensors", "--row", "2031-01-01")
    assert "must be a date, got '42nd of May'. The labels are dates." in refused(
        "recommend", "n.safetensors", "--row", "42nd of May"
    )
    done("recommend", "n.safetensors", "--all", "--out", "a.parquet")
    assert pd.read_parquet("a.parquet")["user"].min() == pd.Timestamp("2024-05-01")


# ---- recommend


def test_recommend_one_row_by_its_id(done):
    lines = done("recommend", "m.safetensors", "--row", USERS[4], "-n", 3).splitlines()
    assert lines[0].split() == ["user", "rank", "movie", "score", "observations"]
    model = load("m.safetensors")
    want = [
        (int(u), r, c, f"{s:.4f}") for u, r, c, s in model.recommend(int(USERS[4]), 3).entries()
    ]
    got = [
        (int(w[0]), int(w[1]), " ".join(w[2:-2]), w[-2])
        for w in (line.split() for line in lines[1:])
    ]
    assert got == want
    seen = set(pd.read_csv("r.csv").query(f"user == {USERS[4]}")["movie"])
    assert not seen & {c for _, _, c, _ in got}
    both = done(
        "recommend", "m.safetensors", "--row", USERS[4], "--row", USERS[1], "-n", 1
    ).splitlines()
    assert [line.split()[0] for line in both[1:]] == [str(USERS[4]), str(USERS[1])]
    every = done(
        "recommend", "m.safetensors", "--row", USERS[4], "-n", 99, "--include-seen"
    ).splitlines()
    assert len(every) == 21


def test_recommend_everybody_in_blocks(done, monkeypatch):
    import eckart.cli.recommend as module

    done("recommend", "m.safetensors", "--all", "-n", 4, "--out", "one.parquet")
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    # four for each row, or as many as it has not seen
    want = load("m.safetensors").recommend(None, 4).to_table()
    assert f"many.csv ({len(want['row'])} rows)" in done(
        "recommend", "m.safetensors", "--all", "-n", 4, "--out", "many.csv"
    )
    one, many = pd.read_parquet("one.parquet"), pd.read_csv("many.csv")
    assert list(one.columns) == ["user", "rank", "movie", "score", "observations"]
    pd.testing.assert_frame_equal(one, many, check_dtype=False, check_exact=False)
    assert one["movie"].tolist() == want["column"].tolist()
    assert one["user"].tolist() == want["row"].tolist()


@pytest.mark.parametrize("form", ["bare", "named", "parquet"])
def test_rows_and_candidates_from_files(done, form):
    rows, movies = [int(USERS[7]), int(USERS[2])], ["film c", "film d", "film e"]
    if form == "bare":
        Path("rows").write_text("\n".join(map(str, rows)))
        Path("movies").write_text("\n".join(movies) + "\n\n")
    elif form == "named":
        pd.DataFrame({"x": [1, 2], "user": rows}).to_csv("rows", index=False)
        pd.DataFrame({"movie": movies, "y": 0}).to_csv("movies", index=False)
    else:
        pd.DataFrame({"x": [1, 2], "user": rows}).to_parquet("rows.parquet")
        pd.DataFrame({"movie": movies}).to_parquet("movies.parquet")
    end = ".parquet" if form == "parquet" else ""
    ask = (
        "recommend",
        "m.safetensors",
        "--rows-file",
        f"rows{end}",
        "--candidates",
        f"movies{end}",
        "--include-seen",
    )
    lines = done(*ask).splitlines()[1:]
    assert [int(line.split()[0]) for line in lines] == [rows[0]] * 3 + [rows[1]] * 3
    assert {" ".join(line.split()[2:4]) for line in lines} == set(movies)


def test_similar_and_why(done):
    model = load("m.safetensors")
    lines = done(
        "recommend", "m.safetensors", "--column", "film c", "--similar", "-n", 2
    ).splitlines()
    assert lines[0].split() == ["movie", "rank", "similar_movie", "cosine"]
    want = [c for _, _, c, _ in model.similar(columns="film c", n=2).entries()]
    assert [" ".join(line.split()[3:5]) for line in lines[1:]] == want
    assert (
        done("recommend", "m.safetensors", "--row", USERS[0], "--similar", "-n", 1).split()[2]
        == "similar_user"
    )
    told = done(
        "recommend", "m.safetensors", "--row", USERS[0], "--explain", "film c", "-n", 3
    ).splitlines()
    why = model.explain(int(USERS[0]), "film c", 3)
    assert told[0].startswith(f"user {USERS[0]}, movie film c: {why.prediction:.4g}")
    assert 4 <= len(told) <= 6
    assert f"{why.shares[0][1]:.4g}" in told[1]


def test_new_rows_are_folded_in(done, refused):
    new = pd.DataFrame(
        {
            "user": [9001, 9001, 9002],
            "movie": ["film a", "film b", "film c"],
            "rating": [5.0, 1.0, 3.0],
        }
    )
    new.to_csv("new.csv", index=False)
    lines = done("recommend", "m.safetensors", "--new", "new.csv", "-n", 2).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["9001", "9001", "9002", "9002"]
    want = load("m.safetensors").recommend(X=observed("new.csv", **NAMES), n=2).to_table()
    assert [" ".join(line.split()[2:4]) for line in lines[1:]] == want["column"].tolist()
    new.columns = ["who", "what", "stars"]
    new.to_csv("other.csv", index=False)
    ask = (
        "--new",
        "other.csv",
        "--rows",
        "who",
        "--columns",
        "what",
        "--values",
        "stars",
        "--out",
        "o.parquet",
    )
    assert "o.parquet (20 rows)" in done("recommend", "m.safetensors", *ask)
    new.loc[0, "what"] = "film zz"
    new.to_csv("other.csv", index=False)
    os.unlink("o.parquet")
    assert "'film zz'" in refused("recommend", "m.safetensors", *ask)


# ---- certify


def test_certify_a_completion(eckart_, done, refused):
    assert done("certify", "m.safetensors", "r.csv") == done(
        "certify", "m.safetensors", "r.parquet"
    )
    frame = pd.read_csv("r.csv")
    frame.rename(columns={"user": "who"}).to_csv("renamed.csv", index=False)
    assert "--rows user" in refused("certify", "m.safetensors", "renamed.csv")
    assert "HOLDS" in done("certify", "m.safetensors", "renamed.csv", "--rows", "who")
    frame["rating"] = np.random.default_rng(5).standard_normal(len(frame)) * 9
    frame.to_csv("noise.csv", index=False)
    code, out, err = eckart_("certify", "m.safetensors", "noise.csv")
    assert (code, err) == (1, "")
    assert "DOES NOT HOLD" in out
    frame.loc[0, "user"] = 5
    frame.to_csv("strange.csv", index=False)
    assert "row must be one of the 40 row labels, got 5" in refused(
        "certify", "m.safetensors", "strange.csv"
    )


def test_certify_finds_rows_by_id_not_by_order(done):
    """One row of the model has no entry in the data: the others still meet their own ids."""
    x = observed("r.csv", **NAMES)
    frame = pd.read_csv("r.csv")
    frame[frame["user"] != USERS[0]].to_csv("less.csv", index=False)
    from eckart.cli.id_files import for_model

    model = load("m.safetensors")
    less = for_model(observed("less.csv", **NAMES), model.row_ids, model.column_ids)
    assert less.shape == x.shape
    assert less.row_counts()[0] == 0
    np.testing.assert_array_equal(less.data, x.data[x.indptr[1] :])


# ---- bad input


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["complete", "nope.csv", *LONG], "nope.csv does not exist"),
        (
            ["complete", "r.csv", "--rows", "zz", "--columns", "movie", "--values", "rating"],
            "--rows zz",
        ),
        (
            ["complete", "r.csv", "--rows", "user", "--columns", "movie", "--values", "zz"],
            "--values zz",
        ),
        (["complete", "r.csv", "--rows", "user"], "--columns"),
        (["complete", "r.csv", "--values", "rating"], "--rows"),
        (["complete", "r.csv", "--rows", "user", "--columns", "movie"], "--values"),
        (
            ["complete", "r.csv", "--rows", "user", "--columns", "user", "--values", "rating"],
            "different columns",
        ),
        (
            ["complete", "r.csv", "--rows", "user", "--columns", "rating", "--values", "movie"],
            "movie",
        ),
        (["complete", "r.csv", *LONG, "--index", "user"], "--index"),
        (["complete", "r.csv", *LONG, "-k", "0"], "--components"),
        (["complete", "r.csv", *LONG, "-k", "half"], "'half'"),
        (["complete", "r.csv", *LONG, "--method", "magic"], "magic"),
        (["complete", "r.csv", *LONG, "--feedback", "loud"], "loud"),
        (["complete", "r.csv", *LONG, "--normalise", "all"], "--normalise"),
        (["complete", "r.csv", *LONG, "-k", "2", "--l2", "-1"], "l2"),
        (
            ["complete", "r.csv", *LONG, "--method", "bayes", "--l2", "1"],
            "--l2 1.0 came with --method bayes",
        ),
        (["complete", "r.csv", *LONG, "--held-out", "1.5"], "--held-out"),
        (["complete", "r.csv", *LONG, "--held-out", "nan"], "--held-out"),
        (["complete", "r.csv", *LONG, "--duplicates", "first"], "--duplicates"),
        (["complete", "wide.csv", "--duplicates", "last"], "--duplicates"),
        (["complete", "r.csv"], "--rows"),
        (["complete", "r.csv", *LONG, "-k", "2", "--max-iter", "0"], "--max-iter"),
        (["complete", "r.csv", *LONG, "--out", "o.xls"], ".xls"),
        (["complete", "r.csv", *LONG, "--out", "o.npy"], "o.npy"),
        (["complete", "r.csv", *LONG, "--out", "no/o.csv"], "not a folder"),
        (["complete", "r.csv", *LONG, "--out", "r.csv"], "the data itself"),
        (
            ["complete", "r.csv", *LONG, "--pairs", "pairs.csv", "--out", "pairs.csv"],
            "the data itself",
        ),
        (["complete", "r.csv", *LONG, "--pairs", "nope.csv", "--out", "o.csv"], "nope.csv"),
        (["complete", "r.csv", *LONG, "--pairs", "pairs.csv"], "--out"),
        (["complete", "r.csv", *LONG, "--cells", "some", "--out", "o.csv"], "--cells"),
        (["complete", "r.csv", *LONG, "--cells", "all"], "--out"),
        (["complete", "r.csv", *LONG, "--unknown", "guess"], "--unknown"),
        (["complete", "r.csv", *LONG, "--model", "m.pkl"], ".safetensors"),
        (["complete", "r.csv", *LONG, "--report", "r.pdf"], ".html"),
        (["complete", "r.csv", *LONG, "-k", "2", "--threads", "0"], "--threads"),
        (["complete", "r.csv", *LONG, "-k", "2", "--checkpoint", "no/c"], "not a folder"),
        (["recommend", "nope.safetensors", "--row", "1"], "nope.safetensors"),
        (["recommend", "r.csv", "--row", "1"], "r.csv"),
        (["recommend", "pca.safetensors", "--row", "1"], "PCA"),
        (["recommend", "m.safetensors"], "--row"),
        (
            ["recommend", "m.safetensors", "--row", "1"],
            "--row must be one of the 40 row labels, got 1",
        ),
        (
            ["recommend", "m.safetensors", "--row", "ann"],
            "--row must be an integer, got 'ann'. The labels are integers.",
        ),
        (["recommend", "m.safetensors", "--row", "300", "--all"], "one of"),
        (["recommend", "m.safetensors", "--row", "300", "-n", "0"], "-n"),
        (["recommend", "m.safetensors", "--all"], "--out"),
        (["recommend", "m.safetensors", "--all", "--out", "o.npy"], "o.npy"),
        (["recommend", "m.safetensors", "--all", "--out", "m.safetensors"], "m.safetensors"),
        (["recommend", "m.safetensors", "--column", "film a"], "--similar"),
        (["recommend", "m.safetensors", "--column", "film z", "--similar"], "'film z'"),
        (["recommend", "m.safetensors", "--all", "--similar", "--out", "o.csv"], "--similar"),
        (
            ["recommend", "m.safetensors", "--explain", "film a", "--all", "--out", "o.csv"],
            "--explain",
        ),
        (["recommend", "m.safetensors", "--row", "300", "--explain", "film z"], "'film z'"),
        (["recommend", "m.safetensors", "--rows-file", "nope"], "nope"),
        (["recommend", "m.safetensors", "--row", "300", "--candidates", "nope"], "nope"),
        (["recommend", "m.safetensors", "--new", "nope.csv"], "nope.csv"),
        (["certify", "m.safetensors", "nope.csv"], "nope.csv"),
        (["certify", "pca.safetensors", "wide.npy", "--rows", "user"], "--rows"),
    ],
)
def test_bad_input_is_one_line_and_code_2(refused, words, said):
    assert said in refused(*words)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"user,movie,rating\n",
        b"user,movie,rating\n1,2\n",
        b"\x00\xff",
        b"user,movie,rating\n1,2,x\n",
    ],
)
def test_bad_files_are_one_line_and_code_2(refused, content):
    Path("bad.csv").write_bytes(content)
    assert "bad.csv" in refused("complete", "bad.csv", *LONG, "-k", "1")


@pytest.mark.parametrize("value", ["inf", "-inf"])
def test_values_that_are_no_numbers_are_named(refused, value):
    Path("bad.csv").write_text(f"user,movie,rating\n1,2,3\n4,5,{value}\n")
    line = refused("complete", "bad.csv", *LONG, "-k", "1")
    assert "line 3" in line or "row" in line


@pytest.mark.parametrize("cut", [1, 5, 8, 200, -1])
def test_hostile_models_are_refused(refused, cut):
    whole = Path("m.safetensors").read_bytes()
    Path("cut.safetensors").write_bytes(whole[:cut])
    assert "cut.safetensors" in refused("recommend", "cut.safetensors", "--row", "300")
    changed = bytearray(whole)
    changed[-3] ^= 1
    Path("changed.safetensors").write_bytes(changed)
    assert "changed" in refused("recommend", "changed.safetensors", "--row", "300")
    Path("huge.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    assert "hostile" in refused("certify", "huge.safetensors", "r.csv")


def test_names_of_a_hostile_plan_do_no_harm(done):
    model = load("m.safetensors")
    for names in ("rows", 3, {"rows": None}, {"index": None}, None):
        model.fit_.plan["names"] = names
        model.save("odd.safetensors")
        assert done("recommend", "odd.safetensors", "--row", USERS[0], "-n", 1).split()[0] == "row"


def test_help_has_examples(done):
    for word in ("complete", "recommend", "certify"):
        text = done(word, "--help")
        assert "Example" in text
        assert f"eckart {word} " in text
        assert word in done("--help")


@pytest.mark.slow
def test_as_a_program(data, tmp_path):
    """Nothing but errors goes to standard error."""
    command = [sys.executable, "-c", "from eckart.cli.main import run; run()"]
    told = [
        *command,
        "complete",
        data / "r.csv",
        *LONG,
        "-k",
        "2",
        "--out",
        tmp_path / "o.csv",
        "--report",
        tmp_path / "r.html",
    ]
    finished = subprocess.run([str(w) for w in told], capture_output=True, text=True)
    assert (finished.returncode, finished.stderr) == (0, "")
    finished = subprocess.run(
        [*command, "recommend", str(data / "m.safetensors"), "--row", "1"],
        capture_output=True,
        text=True,
    )
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith(
        "eckart: error: --row must be one of the 40 row labels, got 1"
    )


# ---- the method


def test_the_method_is_chosen_on_unseen_entries_and_the_plan_says_so(ran):
    out = ran("complete", "r.csv", *LONG, "--model", "n.safetensors")
    plan = load("n.safetensors").fit_.plan
    for name in ("biases", "als", "bayes", "unseen entries", "budget of 60 s"):
        assert name in plan["method"]
    assert plan["method"] in out
    assert plan["method"].split()[0] in ("als", "bayes")  # the ratings are of rank 2


def test_yes_and_no_try_the_logistic_loss(ran):
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.standard_normal((40, 2)) @ rng.standard_normal((2, 10))
    i, j = np.nonzero(rng.random(logits.shape) < 0.5)
    yes = (rng.random(len(i)) < 1 / (1 + np.exp(-logits[i, j]))).astype(int)
    lines = [f"{a},{b},{c}" for a, b, c in zip(i, j, yes, strict=True)]
    Path("yes.csv").write_text("\n".join(["u,m,rating", *lines]) + "\n")
    out = ran(
        "complete",
        "yes.csv",
        "--rows",
        "u",
        "--columns",
        "m",
        "--values",
        "rating",
        "--model",
        "y.safetensors",
    )
    assert "logistic" in load("y.safetensors").fit_.plan["method"]
    assert "logistic" in out


@given(st.integers(0, 10**6), st.floats(-0.5, 0.5), st.integers(20, 400))
def test_gains_within_a_standard_error_are_not_taken(seed, gain, entries):
    rng = np.random.default_rng(seed)
    squares = {"biases": rng.chisquare(1, entries), "als": np.zeros(0)}
    squares["bayes"] = squares["biases"] - gain + rng.standard_normal(entries)
    away = squares["biases"] - squares["bayes"]
    error = away.std(ddof=1) / np.sqrt(entries)
    assert choose(squares) == ("bayes" if away.mean() > error else "biases")
    assert choose({"biases": squares["biases"]}) == "biases"
    better = {
        "biases": squares["biases"],
        "als": squares["biases"] - 1.0,
        "bayes": squares["biases"] - 1.0 - 1e-9,
    }
    assert choose(better) == "bayes"  # als and bayes have one form: the better of them


def test_a_plan_takes_few_sweeps(ran, monkeypatch):
    """The comparison, its tuning and the chains would take thousands."""
    sweeps, sweep = [], gibbs.FactorChain.sweep
    monkeypatch.setattr(gibbs.FactorChain, "sweep", lambda self: sweeps.append(1) or sweep(self))
    monkeypatch.setattr("eckart.complete.compare.tune", None)
    assert "estimate" in ran("complete", "r.csv", *LONG, "--plan")
    assert (
        0 < len(sweeps) <= 2 * 3 * (sum((complete_plan.FEW, complete_plan.MORE)) + 2)
    )  # both fits, to load, to time, and to time again


@pytest.mark.parametrize(
    ("method", "sweep", "wanted"),
    [
        # the fit that is measured and the fit to everything, 800 sweeps each
        ("bayes", 0.001, 2 * (0.1 + 0.8)),
        (
            "auto",
            0.001,
            2 * (0.1 + 0.8) + 4 * (0.5 + (0.1 + 0.2) + 13 * 0.04),
        ),  # four rounds: biases, 200 sweeps, and the fits of tuning
        ("auto", 1.0, 2 * 0.04 + 4 * (0.5 + 13 * 0.04)),  # draws beyond the budget are left out
    ],
)
def test_a_plan_adds_up_what_will_be_done(method, sweep, wanted, monkeypatch, data):
    x = observed(data / "r.csv", **NAMES)

    def timed(x, work):
        model = inspect.getclosurevars(work).nonlocals["model"]
        draws = isinstance(model, BayesianMF)
        of_als = {complete_plan.FIRST: 0.002, complete_plan.SWEPT: 0.01}
        own = 0.1 + sweep * sweeps_of(model) if draws else of_als.get(model.max_iter, 0.5)
        return {
            "seconds": own + 0.25,
            "loading": 0.25,
            "compiling": 0.0,
            "measured_rows": 4,
            "rows": 40,
        }

    monkeypatch.setattr(complete_plan, "estimate", timed)

    def build(method, part="", **more):
        return {"biases": biases_only, "als": ALS, "bayes": BayesianMF}[method](**more)

    found = complete_plan.expected(x, build, None, method, 0.1, {})
    pieces = 2 if method == "bayes" else 5
    assert found["seconds"] == pytest.approx(wanted + 0.25 * pieces)


def test_a_rank_alone_chooses_the_ridge(ran):
    out = ran(
        "complete",
        "r.csv",
        *LONG,
        "-k",
        2,
        "--method",
        "als",
        "--held-out",
        0,
        "--model",
        "n.safetensors",
    )
    assert "ridge" in out
    assert load("n.safetensors").n_components == 2
    assert load("n.safetensors").l2 is not None


def test_beware_names_the_command(ran):
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(
        [(i, j, rng.normal()) for i in range(30) for j in range(12)], columns=list(LONG[1::2])
    )
    noise.to_csv("noise.csv", index=False)
    out = ran("complete", "noise.csv", *LONG, "-k", 8, "--l2", 1e-6)
    assert "beware" in out
    assert f"eckart complete noise.csv {' '.join(LONG)} --method auto" in out


def test_beware_of_lists_names_a_command_that_runs(ran):
    """It had named --method auto without --feedback implicit, which is refused."""
    Path("clicks.csv").write_text(
        "user,item\n" + "".join(f"u{i},x\nu{i},y\nu{i},x\n" for i in range(6))
    )
    clicks = ("--rows", "user", "--columns", "item")
    out = ran(
        "complete",
        "clicks.csv",
        *clicks,
        "--feedback",
        "implicit",
        "--duplicates",
        "sum",
        "--method",
        "als",
    )
    line = next(line for line in out.splitlines() if line.startswith("beware"))
    assert "the lists are no better than that of the most popular columns" in line
    words = line.split("run: eckart ")[1].split()
    assert words == [
        "complete",
        "clicks.csv",
        *clicks,
        "--duplicates",
        "sum",
        "--feedback",
        "implicit",
        "--method",
        "ease",
    ]
    assert "certificate holds" in ran(*words)


def test_biases_alone(done):
    done(
        "complete",
        "r.csv",
        *LONG,
        "--method",
        "biases",
        "--held-out",
        0,
        "--model",
        "n.safetensors",
        "-q",
    )
    model = load("n.safetensors")
    assert np.abs(model.row_factors_ @ model.column_factors_.T).max() < 1e-6
    assert model.certificate_.holds


def test_every_verb_that_computes_does_so_on_the_engine_that_is_asked_for(
    ran, refused, monkeypatch
):
    from eckart.engines.numpy import NumpyEngine

    used = []
    for name in ("put", "top_columns"):
        original = getattr(NumpyEngine, name)
        monkeypatch.setattr(
            NumpyEngine,
            name,
            lambda self, *a, original=original, **more: (
                used.append(1),
                original(self, *a, **more),
            )[1],
        )
    for command in (
        ("certify", "m.safetensors", "r.csv"),
        ("recommend", "m.safetensors", "--row", USERS[0]),
        ("compare", "r.csv", "--rows", "user", "--columns", "movie", "--methods", "ease"),
    ):
        ran(*command)
        assert not used, command
        ran(*command, "--engine", "numpy")
        assert used, command
        used.clear()
        assert "--engine" in refused(*command, "--engine", "abacus")


def test_lines_without_a_value_are_left_out_and_counted(data, eckart_):
    frame = pd.read_csv("r.csv")
    frame["user"] = "u" + frame["user"].astype(str)
    frame.loc[frame.index[::9], "rating"] = np.nan
    frame.loc[5, "user"] = "NA"
    frame.to_csv("gaps.csv", index=False, na_rep="")
    code, out, err = eckart_("complete", "gaps.csv", *LONG, "-k", 1, "--l2", 0.1)
    assert code == 0
    assert f"{frame.rating.notna().sum():,} observed" in out
    assert f"{frame.rating.isna().sum()} observations are left out" in err
    assert "the row 'NA' is taken for an id of user; say --missing NA" in err
    code, out, err = eckart_("complete", "gaps.csv", *LONG, "-k", 1, "--l2", 0.1, "--missing", "NA")
    assert f"{frame.rating.notna().sum() - 1:,} observed" in out
    assert "taken for an id" not in err


def test_a_word_among_numbered_ids_is_refused_with_what_to_say(data, refused, done):
    text = Path("r.csv").read_text().splitlines()
    Path("word.csv").write_text("\n".join([*text, "NA,film a,3"]) + "\n")
    line = refused("complete", "word.csv", *LONG, "-k", 1)
    assert "got 'NA' at line" in line
    assert "Say --missing NA" in line
