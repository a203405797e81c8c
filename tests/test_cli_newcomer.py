"""The first hour in the shell: input that is not what it seems, files as people have them, one JSON
object, exit codes, a log."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from eckart import load, observed

LONG = ("--rows", "userId", "--columns", "movieId", "--values", "rating")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    taste = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 12))
    user, movie = np.nonzero(rng.random((30, 12)) < 0.6)
    stars = np.clip(np.round(2 * (3 + taste[user, movie])) / 2, 0.5, 5)
    ratings = pd.DataFrame(
        {
            "userId": user + 1,
            "movieId": 10 * movie + 5,
            "rating": stars,
            "timestamp": 964980000 + np.arange(len(user)),
        }
    )
    ratings.to_csv(folder / "ratings.csv", index=False)
    ratings.to_csv(folder / "u.data", index=False, header=False, sep="\t")
    pd.DataFrame(
        {"movieId": 10 * np.arange(12) + 5, "title": [f"Film, the {j}th" for j in range(12)]}
    ).to_csv(folder / "movies.csv", index=False)
    x = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 4)) + 0.1 * rng.standard_normal(
        (40, 4)
    )
    x /= x.std(axis=0)  # columns of another size have a note of their own
    people = pd.DataFrame(x.round(3), columns=["height", "weight", "age", "income"])
    people.insert(0, "name", [f"p{i}" for i in range(40)])
    people["born"] = pd.date_range("1990-01-01", periods=40).strftime("%Y-%m-%d")
    people["town"] = ["Ulm", "Bonn"] * 20
    people.to_csv(folder / "people.csv", index=False)
    people.to_json(folder / "people.jsonl", orient="records", lines=True)
    words = ["apple pear plum fruit tree", "moon star orbit rocket space"]
    records = [
        f"<DOC>\n<DOCNO> A{i} </DOCNO>\n<TEXT>\n{words[i % 2]}\n {words[i % 2]}\n</TEXT>\n</DOC>"
        for i in range(30)
    ]
    (folder / "ap.txt").write_text("\n".join(records))
    return folder


# ---- not what it seems


@pytest.mark.parametrize("verb", ["complete", "reduce", "explain"])
def test_ratings_without_rows_are_refused_with_the_line_to_run(refused, done, verb):
    line = refused(verb, "ratings.csv")
    wanted = "eckart complete ratings.csv --rows userId --columns movieId --values rating"
    assert wanted in line
    if verb == "complete":
        done(*wanted.split()[1:], "-k", 2, "--held-out", 0, "-q")


def test_ratings_without_names_are_recognised_by_their_ids(refused):
    line = refused("complete", "u.data", "--delimiter", "tab", "--no-header")
    assert (
        "eckart complete u.data --rows 0 --columns 1 --values 2 --delimiter tab --no-header" in line
    )


def test_columns_that_were_chosen_are_not_doubted(done):
    assert "to 1 component " in done(
        "reduce", "ratings.csv", "--only", "userId,movieId,rating", "--no-scale", "-k", 1
    )


def test_a_table_without_a_gap_has_nothing_to_complete(refused):
    x = np.random.default_rng(1).integers(0, 4, (20, 8))
    pd.DataFrame(x, columns=list("abcdefgh")).to_csv("full.csv", index=False)
    line = refused("complete", "full.csv")
    assert "nothing to complete" in line
    assert f"{(x == 0).sum()} cells), say --missing 0" in line
    np.save("full.npy", x.astype(float))
    assert "nothing to complete" in refused("complete", "full.npy")


def test_more_components_than_there_are_rows_or_columns(refused):
    assert "--components must be at most 12 for 30 rows x 12 columns, got 5000" in refused(
        "complete", "ratings.csv", *LONG, "-k", 5000
    )
    assert "must be at most 4" in refused(
        "reduce", "people.csv", "--only", "height,weight,age,income", "-k", 50
    )
    assert "must be at most 30, the number of documents" in refused(
        "explain", "ap.txt", "--split-documents", "</DOC>", "-k", 1000
    )


def test_records_with_markup_are_divided_as_asked(refused, ran):
    for verb in ("explain", "embed"):
        assert "say --split-documents '</DOC>' to" in refused(verb, "ap.txt")
    out = ran(
        "explain",
        "ap.txt",
        "--split-documents",
        "</DOC>",
        "-k",
        2,
        "--out",
        "shares.csv",
        "--held-out",
        0,
    )
    assert "30 documents, 10 words in the vocabulary" in out, "tags are no words"
    assert list(pd.read_csv("shares.csv")["row"]) == [f"A{i}" for i in range(30)]
    assert "30 sentences" in ran(
        "embed",
        "ap.txt",
        "--split-documents",
        "</DOC>",
        "--method",
        "pmi",
        "-k",
        2,
        "--min-count",
        1,
    )


def test_a_word_among_numbers_is_asked_about(refused, done):
    text = Path("people.csv").read_text().splitlines()
    cells = text[5].split(",")
    cells[1] = "?"
    text[5] = ",".join(cells)
    Path("odd.csv").write_text("\n".join(text) + "\n")
    assert "column 'height' of odd.csv holds '?' among numbers; say --missing '?'" in refused(
        "reduce", "odd.csv"
    )
    out = done("reduce", "odd.csv", "--missing", "?", "--exclude", "name,born,town", "-k", 1)
    assert "1 entry missing" in out


# ---- files as people have them


def test_text_and_dates_are_left_out_with_a_note(eckart_):
    code, out, err = eckart_("reduce", "people.csv", "-k", 2, "--model", "m.safetensors")
    assert code == 0
    assert "40 rows x 4 columns" in out
    assert err.startswith(
        "eckart: note: left out of people.csv: name (text), born (date), town (text)"
    )
    assert list(load("m.safetensors").feature_names_in_) == ["height", "weight", "age", "income"]
    code, _, err = eckart_("reduce", "people.csv", "-k", 2, "--strict")
    assert (code, err.count("\n")) == (2, 1)
    assert "left out" in err


def test_a_column_that_only_counts_the_rows_is_left_out_with_a_note(eckart_):
    frame = pd.read_csv("people.csv")[["height", "weight", "age"]]
    frame.insert(0, "rownames", np.arange(1, 41))
    frame.to_csv("r.csv", index=False)
    code, out, err = eckart_("reduce", "r.csv", "-k", 1)
    assert code == 0
    assert "40 rows x 3 columns" in out
    assert "left out of r.csv: rownames (row number); --index rownames" in err
    frame["rownames"] = np.arange(40)[::-1]
    frame.to_csv("r.csv", index=False)
    assert "40 rows x 4 columns" in eckart_("reduce", "r.csv", "-k", 1)[1]


def test_the_same_table_from_lines_of_json_and_standard_input(eckart_, done, monkeypatch):
    def codes(*words):
        code, _, err = eckart_(
            "reduce", *words, "-k", 2, "--exclude", "name,born,town", "--out", "o.npy", "-q"
        )
        assert (code, err) == (0, "")
        return np.load("o.npy")

    wanted = codes("people.csv")
    np.testing.assert_allclose(codes("people.jsonl"), wanted, atol=1e-12)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("people.csv").read_bytes())))
    np.testing.assert_allclose(codes("-"), wanted, atol=1e-12)


def test_a_workbook(eckart_, refused):
    openpyxl = pytest.importorskip("openpyxl", reason="reading .xlsx needs openpyxl")
    book = openpyxl.Workbook()
    for row in [["a", "b", "town"], *([i % 7, i * i / 7, "Ulm"] for i in range(20))]:
        book.active.append(row)
    book.save("t.xlsx")
    code, out, err = eckart_("reduce", "t.xlsx", "-k", 1)
    assert code == 0
    assert "20 rows x 2 columns" in out
    assert "town (text)" in err


def test_a_workbook_without_its_library_says_what_to_install(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    Path("t.xlsx").write_bytes(b"PK")
    assert "pip install 'eckart[xlsx]'" in refused("reduce", "t.xlsx")


def test_a_folder_of_images(done, refused):
    from PIL import Image

    rng = np.random.default_rng(0)
    Path("faces").mkdir()
    for i in range(12):
        Image.fromarray(rng.integers(0, 255, (6, 5), dtype=np.uint8)).save(f"faces/f{i:02d}.png")
    out = done("reduce", "faces", "-k", 2, "--out", "codes.csv", "--report", "r.html")
    assert "12 rows x 30 columns" in out
    assert list(pd.read_csv("codes.csv")["row"])[:2] == ["f00.png", "f01.png"]
    Image.fromarray(rng.integers(0, 255, (9, 9), dtype=np.uint8)).save("faces/g.png")
    assert "say --image 6x5 to bring all to one size" in refused("reduce", "faces")
    assert "13 rows x 16 columns" in done("reduce", "faces", "-k", 2, "--image", "4x4")


def test_marks_that_stand_for_missing_entries(done):
    x = np.round(
        np.random.default_rng(2).random((30, 2)) @ np.random.default_rng(3).random((2, 8)) + 1, 3
    )
    holes = np.random.default_rng(4).random(x.shape) < 0.3
    pd.DataFrame(np.where(holes, 0, x), columns=list("abcdefgh")).to_csv("zeros.csv", index=False)
    pd.DataFrame(np.where(holes, np.nan, x), columns=list("abcdefgh")).to_csv(
        "empty.csv", index=False
    )
    ask = ("--method", "biases", "--held-out", 0, "-q", "--out")
    done("complete", "zeros.csv", "--missing", 0, *ask, "a.csv")
    done("complete", "empty.csv", *ask, "b.csv")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_titles_stand_beside_ids(done, ran, refused):
    ran(
        "complete",
        "ratings.csv",
        *LONG,
        "--method",
        "als",
        "-k",
        2,
        "--held-out",
        0,
        "-q",
        "--model",
        "m.safetensors",
        "--titles",
        "movies.csv:movieId:title",
        "--report",
        "page.html",
    )
    assert (
        "Film, the"
        in Path("page.html").read_text().split("A few recommendations")[1].split("</table>")[0]
    )
    ran(
        "complete",
        "ratings.csv",
        *LONG,
        "--method",
        "als",
        "-k",
        2,
        "--held-out",
        0,
        "-q",
        "--model",
        "bare.safetensors",
    )
    for words in (["m.safetensors"], ["bare.safetensors", "--titles", "movies.csv:movieId:title"]):
        lines = done("recommend", *words, "--row", 1, "-n", 2).splitlines()
        assert lines[0].split() == ["userId", "rank", "movieId", "title", "score", "observations"]
        movie = int(lines[1].split()[2])
        assert f"Film, the {(movie - 5) // 10}th" in lines[1]
        assert f"{movie} (Film, the {(movie - 5) // 10}th)" in done(
            "recommend", *words, "--row", 1, "--explain", movie
        )
        assert "Film, the" in done("recommend", *words, "--column", 5, "--similar", "-n", 1)
    assert "title" not in done("recommend", "bare.safetensors", "--row", 1)
    assert "FILE:ID:TITLE" in refused(
        "recommend", "bare.safetensors", "--row", 1, "--titles", "movies.csv"
    )
    assert "'name'" in refused(
        "recommend", "bare.safetensors", "--row", 1, "--titles", "movies.csv:movieId:name"
    )


# ---- answers for programs


def one_object(out):
    assert out.count("\n") == 1
    return json.loads(out)


def test_json_is_one_object_of_every_verb(eckart_, done):
    table = ("--exclude", "name,born,town")
    told = one_object(
        done("reduce", "people.csv", *table, "-k", 2, "--model", "p.safetensors", "--json")
    )
    assert told["command"] == "reduce"
    assert told["data"] == {"file": "people.csv", "rows": 40, "columns": 4, "kind": "Dense"}
    assert told["certificate"]["holds"] is True
    assert told["written"] == {"model": "p.safetensors"}
    assert told["exit"] == 0
    code, out, _ = eckart_(
        "complete", "ratings.csv", *LONG, "-k", 2, "--model", "m.safetensors", "--json"
    )
    told = one_object(out)
    assert (
        code == told["exit"] == int(not told["certificate"]["holds"])
    )  # of few ratings chains may not agree within their budget
    assert set(told["held_out"]) == {"model", "biases only", "mean only"}
    assert told["parameters"]["n_components"] == 2
    told = one_object(done("recommend", "m.safetensors", "--row", 1, "-n", 2, "--json"))
    assert [line["rank"] for line in told["list"]] == [1, 2]
    assert told["ordered_by"] in ("chance", "prediction")
    assert (
        one_object(done("certify", "p.safetensors", "people.csv", "--json"))["certificate"]["holds"]
        is True
    )
    assert one_object(done("plan", "people.csv", *table, "--json"))["command"] == "plan"
    code, out, err = eckart_("reduce", "nope.csv", "--json")
    assert code == 2
    assert one_object(out)["error"] == "nope.csv does not exist"
    assert err.count("\n") == 1


def test_a_certificate_that_does_not_hold_is_the_exit_code(eckart_):
    ask = (
        "complete",
        "ratings.csv",
        *LONG,
        "-k",
        4,
        "--l2",
        0.001,
        "--max-iter",
        1,
        "--held-out",
        0,
    )
    code, out, _ = eckart_(*ask, "--model", "a.safetensors", "--json")
    assert code == 1
    assert one_object(out)["certificate"]["holds"] is False
    assert one_object(out)["exit"] == 1
    assert Path("a.safetensors").exists()
    code, out, _ = eckart_(*ask, "--model", "b.safetensors", "--strict")
    assert code == 1
    assert "nothing: the certificate does not hold" in out
    assert not Path("b.safetensors").exists()


def test_the_log_has_what_was_said_and_more(eckart_):
    code, out, err = eckart_(
        "reduce", "people.csv", "-k", 2, "--only", "age,income", "-v", "--log", "run.log"
    )
    assert code == 0
    log = Path("run.log").read_text()
    for words in ("reduce people.csv", "reading people.csv", "certificate holds", "exit code 0"):
        assert words in log
    assert "solver: " in err, "-v tells the plan"
    assert "certificate holds" in out
    assert "certificate" not in err


def test_the_older_words_are_taken_with_a_note(eckart_):
    code, _, err = eckart_("reduce", "people.csv", "-k", 1, "--columns", "age,income", "-q")
    assert (code, err) == (
        0,
        "eckart: note: --columns age,income is taken as --only age,income, which is its "
        "name here\n",
    )


def test_as_a_module_and_with_completion():
    done = subprocess.run(
        [sys.executable, "-m", "eckart", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "--install-completion" in done.stdout
    of_a_verb = subprocess.run(
        [sys.executable, "-m", "eckart", "complete", "--help"], capture_output=True, text=True
    )
    for said in (done.stdout, of_a_verb.stdout):
        assert "--help" in said
        assert not re.search("<str>|<bool>|<int>|<float>|BOOLEAN", said)


# ---- how long it will take


@pytest.mark.parametrize(("fixed", "each"), [(0.0, 1e-3), (2.0, 1e-5), (0.01, 1e-6), (0.3, 2e-3)])
def test_the_plan_reads_time_off_parts_of_the_work(monkeypatch, fixed, each):
    from eckart.cli import estimate as module
    from eckart.matrix import Dense

    clock = [0.0]
    seen = []

    def work(part):
        seen.append(len(part.array))
        clock[0] += fixed + each * len(part.array)

    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    found = module.estimate(Dense(np.zeros((200_000, 2))), work)
    assert found["seconds"] == pytest.approx(fixed + each * 200_000, rel=1e-6)
    assert found["compiling"] == 0
    whole = fixed + each * 200_000
    assert max(seen) < 200_000 or whole < 1.0, "a part is enough unless all of it takes no time"


@pytest.mark.slow
def test_every_verb_that_fits_has_a_plan_and_fits_nothing(done):
    ask = ("complete", "ratings.csv", *LONG, "-k", 2, "--model", "m.safetensors", "--plan")
    for words in (
        ask,
        ("reduce", "people.csv", "--exclude", "name,born,town", "--plan"),
        ("explain", "ap.txt", "--split-documents", "</DOC>", "-k", 2, "--plan"),
        (
            "embed",
            "ap.txt",
            "--split-documents",
            "</DOC>",
            "--method",
            "pmi",
            "-k",
            2,
            "--min-count",
            1,
            "--plan",
        ),
    ):
        assert "for the fit, measured on all rows" in done(*words)
    assert not Path("m.safetensors").exists()
    told = one_object(done(*ask, "--json"))["plan"]
    assert told["rows"] == told["measured_rows"] == 30
    assert 0 < told["seconds"] < 60


# ---- files as offices write them


def test_decimal_commas_are_found(done):
    """Semicolons and decimal commas, with a mark of byte order: what a spreadsheet writes in much
    of Europe."""
    people = pd.read_csv("people.csv")
    people.to_csv("büro.csv", sep=";", decimal=",", index=False, encoding="utf-8-sig")
    for name in ("people.csv", "büro.csv"):
        done(
            "reduce",
            name,
            "--index",
            "name",
            "--exclude",
            "born,town",
            "-k",
            2,
            "--out",
            f"{name}.codes.csv",
            "-q",
        )
    codes = [pd.read_csv(f"{name}.codes.csv") for name in ("people.csv", "büro.csv")]
    pd.testing.assert_frame_equal(*codes)
    pd.read_csv("ratings.csv").to_csv("noten.csv", sep=";", decimal=",", index=False)
    done("complete", "noten.csv", *LONG, "-k", 2, "--held-out", 0, "--model", "n.safetensors", "-q")
    assert set(np.unique(load("n.safetensors").observed_.data)) == set(
        pd.read_csv("ratings.csv")["rating"]
    )


def test_a_table_without_a_clear_component_has_an_answer_all_the_same(eckart_):
    pd.DataFrame({"a": [1.0, 2, 3], "b": [2.0, 4, 7], "empty": np.nan}).to_csv(
        "tiny.csv", index=False
    )
    code, out, err = eckart_("reduce", "tiny.csv", "--out", "codes.csv")
    assert code == 0, err
    assert "the first 2 are kept" in err
    assert "empty (empty)" in err
    assert pd.read_csv("codes.csv").shape[0] == 3
    assert "component  1: 99.8%" in out
    pd.DataFrame(np.ones((20, 3))).to_csv("flat.csv", index=False)
    code, _, err = eckart_("reduce", "flat.csv")
    assert (code, "no column varies" in err) == (0, True)


def test_columns_of_one_name_are_named(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("twice.csv").write_text("a,b,a\n1,2,3\n4,5,6\n")
    assert (
        "columns of twice.csv must have names that differ: columns 1 and 3 are called 'a'"
        in refused("reduce", "twice.csv")
    )
    Path("title.csv").write_text("Quarterly report,,\nProduct,Sold,Price\nP,1,2\nQ,3,5\n")
    assert "If the first line is a title, take it out" in refused("reduce", "title.csv")


@pytest.mark.parametrize(
    "cells", [("1,200", "13,400", "900"), ("$5", "$1,000.50", "$7"), ("1 200 €", "3 €", "9 €")]
)
def test_numbers_for_the_eye_are_told_from_text(eckart_, refused, tmp_path, monkeypatch, cells):
    """A spreadsheet writes 1,200: the column was left out as text, without a word of why."""
    monkeypatch.chdir(tmp_path)
    Path("eye.csv").write_text(
        "city,people\n" + "".join(f'C{i},"{cell}"\n' for i, cell in enumerate(cells))
    )
    line = refused("reduce", "eye.csv")
    assert f"people (numbers written like '{cells[0]}')" in line
    assert f"{cells[0].strip('$% €').replace(',', '').replace(' ', '')} for '{cells[0]}'" in line
    Path("beside.csv").write_text(
        "a,b,people\n" + "".join(f'{i},{i * i % 5},"{cell}"\n' for i, cell in enumerate(cells))
    )
    code, _, err = eckart_("reduce", "beside.csv")
    assert code == 0
    assert "save the file with plain digits" in err


def test_encodings_and_numbers_for_people_in_the_shell(eckart_, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        f'Ort{i}é,"{1000 + 37 * i % 900:,}",{i * i % 7}.5,{i % 9} %\n' for i in range(30)
    )
    Path("alt.csv").write_bytes(("größe,menge,b,share\n" + rows).encode("cp1252"))
    line = refused("reduce", "alt.csv", "--index", "größe")
    assert "byte 0xf6 at offset 2, line 1" in line
    assert "'cp1252'" in line
    code, out, err = eckart_(
        "reduce",
        "alt.csv",
        "--index",
        "größe",
        "--encoding",
        "cp1252",
        "-k",
        2,
        "--out",
        "codes.csv",
    )
    assert code == 0
    assert "30 rows x 3 columns" in out + err
    assert "Ort0é" in Path("codes.csv").read_text(encoding="utf-8")
    Path("wide.csv").write_bytes(("größe,menge,b,share\n" + rows).encode("utf-16"))
    assert eckart_("reduce", "wide.csv", "--index", "größe", "-k", 2)[0] == 0
    Path("long.csv").write_bytes(
        ("wer,was,wie\n" + "".join(f"ü{i % 9},å{i % 7},{i % 5}\n" for i in range(63))).encode(
            "cp1252"
        )
    )
    long = (
        "--rows",
        "wer",
        "--columns",
        "was",
        "--values",
        "wie",
        "--method",
        "als",
        "-k",
        1,
        "--held-out",
        0,
        "--duplicates",
        "last",
    )
    assert "'cp1252'" in refused("complete", "long.csv", *long)
    assert eckart_("complete", "long.csv", *long, "--encoding", "cp1252")[0] == 0


def test_errors_of_large_and_small_units_stand_apart():
    from eckart.report.held_out import HeldOut

    x = observed([("a", "b", 1.0)], rows=0, columns=1, values=2)
    for unit in (1e9, 1.0, 1e-7):
        lines = HeldOut(
            x,
            x,
            {
                "model": {"RMSE": 1.2345 * unit, "MAE": unit},
                "mean only": {"RMSE": 55.5 * unit, "MAE": 44.4 * unit},
            },
        ).lines()
        assert [float(cell) for cell in lines[1].split()[1:]] == pytest.approx(
            [1.2345 * unit, unit], rel=1e-3
        )
