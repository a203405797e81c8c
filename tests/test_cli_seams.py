"""Where the shell meets its users: how files are written, words of messages, names of rows, times
of a fit, reasons that add up."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eckart
from eckart.errors import FileError, InputError

TRIPLES = ("--rows", "user", "--columns", "movie", "--values", "rating")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files that every test starts with: none."""
    return tmp_path_factory.mktemp("none")


@pytest.fixture
def ratings(eckart_):
    """Ratings of 30 by 20, written in every way; the names of the files."""
    rng = np.random.default_rng(0)
    lines = [
        (u, m, int(1 + (u * m + rng.integers(2)) % 5))
        for u in range(30)
        for m in range(20)
        if rng.random() < 0.5
    ]
    text = "user,movie,rating\n" + "".join(f"{u},{m},{r}\n" for u, m, r in lines)
    Path("a.csv").write_text(text)
    Path("a.csv.gz").write_bytes(gzip.compress(text.encode()))
    Path("a.tsv.gz").write_bytes(gzip.compress(text.replace(",", "\t").encode()))
    Path("a.dat").write_text("".join(f"{u}::{m}::{r}::97830{u:02d}{m:02d}\n" for u, m, r in lines))
    Path("movies.dat").write_text(
        "".join(f"{m}::Film {m} é::Drama|Comedy\n" for m in range(20)), "latin-1"
    )
    Path("films.csv").write_text("movie;title\n" + "".join(f"{m};Film {m}\n" for m in range(20)))
    Path("users.csv").write_text("user;age\n" + "".join(f"{u};{20 + u}\n" for u in range(30)))
    table = pa.table(
        {name: [line[i] for line in lines] for i, name in enumerate(("user", "movie", "rating"))}
    )
    Path("parts").mkdir()
    pq.write_table(table.slice(0, 100), "parts/a.parquet")
    pq.write_table(table.slice(100), "parts/b.parquet")
    Path("parts/_SUCCESS").touch()
    return lines


@pytest.mark.parametrize("file", ["a.csv.gz", "a.tsv.gz", "parts"])
def test_packed_tables_and_folders_of_parquet_are_read(ratings, file):
    named = {"rows": "user", "columns": "movie", "values": "rating"}
    plain, other = eckart.read("a.csv", **named), eckart.read(file, **named)
    assert other.shape == plain.shape
    np.testing.assert_array_equal(other.data, plain.data)
    assert eckart.read(file).shape == (len(ratings), 3)


def test_tables_as_movielens_writes_them_are_read(ratings):
    plain, other = (
        eckart.read("a.csv", rows=0, columns=1, values=2),
        eckart.read("a.dat", rows=0, columns=1, values=2),
    )
    np.testing.assert_array_equal(other.data, plain.data)


def test_a_large_packed_table_is_read_in_blocks(ratings, monkeypatch):
    whole = eckart.read("a.csv").array
    monkeypatch.setattr("eckart.io.read.IN_MEMORY_BYTES", 100)
    x = eckart.read("a.csv.gz")
    assert not x.in_memory
    np.testing.assert_array_equal(np.concatenate(list(x.stream.blocks(64))), whole)


def test_a_folder_with_other_files_is_no_table(ratings):
    Path("parts/readme.txt").write_text("about these files")
    with pytest.raises(
        FileError, match="parts must be a file, or a folder of images, got another folder"
    ):
        eckart.read("parts")


def test_files_beside_the_data_are_read_before_a_fit_and_written_like_the_data(
    ratings, eckart_, refused
):
    assert "nothere.csv does not exist" in refused(
        "complete", "a.csv", *TRIPLES, "--titles", "nothere.csv:movie:title"
    )
    line = refused("complete", "a.csv", *TRIPLES, "--titles", "films.csv:film:title")
    assert (
        "the column must be one of the columns of films.csv ('movie', 'title'), got --titles films.csv:film:title: column 'film'"
        in line
    )
    line = refused("complete", "a.csv", *TRIPLES, "--row-features", "users.csv:usr")
    assert "Did you mean 'user'?" in line
    code, out, err = eckart_(
        "complete",
        "a.dat",
        "--rows",
        "0",
        "--columns",
        "1",
        "--values",
        "2",
        "--delimiter",
        "::",
        "--no-header",
        "--method",
        "biases",
        "--encoding",
        "latin-1",
        "--titles",
        "movies.dat:0:1",
        "--model",
        "m.safetensors",
        "--held-out",
        "0",
    )
    assert code == 0, err
    code, out, err = eckart_(
        "recommend", "m.safetensors", "--row", "3", "--titles", "movies.dat:0:1", "-n", "2"
    )
    assert "Film" in out, err


def test_columns_that_are_not_there_are_met_with_those_that_are(ratings, refused):
    line = refused("complete", "a.csv", "--rows", "usr", "--columns", "movie", "--values", "rating")
    assert (
        "the column must be one of the columns of a.csv ('user', 'movie', "
        "'rating'), got --rows usr. Did you mean 'user'?" in line
    )
    with pytest.raises(InputError, match=r"'c0', .*'c15'.*Did you mean 'c1'"):
        eckart.read(_wide(), columns=["c01"])


def _wide():
    names = [f"c{j}" for j in range(16)]
    lines = [f"r{i % 11}," + ",".join(f"{(i * j) % 7}.{i}" for j in range(16)) for i in range(12)]
    Path("wide.csv").write_text("\n".join([",".join(["id", *names]), *lines]) + "\n")
    return "wide.csv"


def test_ids_that_come_twice_are_said_and_name_the_rows_of_charts(ratings, eckart_):
    code, _out, err = eckart_("reduce", _wide(), "--index", "id", "-k", "2", "--report", "r.html")
    assert code in (0, 1), err
    assert "--index id names several rows alike: r0 stands 2 times" in err
    assert "r10" in Path("r.html").read_text()


def test_prose_among_numbers_is_offered_to_explain(eckart_, refused):
    prose = "the old river flows past green hills and quiet houses near town"
    Path("r.csv").write_text(
        "stars,review\n" + "".join(f"{i % 5}.5,{prose} {i}\n" for i in range(30))
    )
    for verb in ("reduce", "explain"):
        assert "review holds texts: eckart explain r.csv --text review" in eckart_(verb, "r.csv")[2]
    Path("only.csv").write_text("review\n" + f"{prose}\n" * 5)
    assert "eckart explain only.csv --text review" in refused("reduce", "only.csv")


def test_the_times_of_a_fit_are_told_apart_and_the_same_everywhere(ratings, eckart_):
    code, out, err = eckart_(
        "complete",
        "a.csv",
        *TRIPLES,
        "--method",
        "als",
        "-k",
        "2",
        "--model",
        "m.safetensors",
        "--json",
    )
    assert code in (0, 1), err
    told = json.loads(out)
    assert set(told["times"]) == {"fit", "choosing", "compiling"}
    assert told["seconds"] == told["times"]["fit"]
    # ridges are tried, each with a fit of its own
    assert told["times"]["choosing"] > told["times"]["fit"]
    assert eckart.load("m.safetensors").fit_.plan["seconds"] == told["times"]


def test_reasons_add_up_to_the_score(ratings, eckart_):
    model = eckart.ALS(2, random_state=0).fit(
        eckart.observed("a.csv", rows="user", columns="movie", values="rating")
    )
    model.save("m.safetensors")
    _code, out, _err = eckart_(
        "recommend", "m.safetensors", "--row", "3", "--explain", "7", "-n", "2", "--json"
    )
    e = json.loads(out)["explanation"]
    assert len(e["shares"]) == 2
    assert sum(s for _, _, s in e["shares"]) + sum(g["share"] for g in e["others"]) + e[
        "base"
    ] == pytest.approx(e["prediction"])
    assert (
        "because of"
        in eckart_("recommend", "m.safetensors", "--row", "3", "--explain", "7", "-n", "2")[1]
    )


def test_one_broken_picture_does_not_stop_a_folder_of_them(eckart_):
    image = pytest.importorskip("PIL.Image")
    Path("faces").mkdir()
    for i in range(6):
        image.fromarray(np.random.default_rng(i).integers(0, 255, (4, 5), np.uint8)).save(
            f"faces/{i}.png"
        )
    Path("faces/00.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="1 file that is no image: left out of faces"):
        x = eckart.read("faces")
    assert x.shape == (6, 20)
    assert x.rows[0] == "0.png"
    code, _out, err = eckart_("reduce", "faces", "-k", "2", "--out", "codes.xlsx")
    assert "1 file that is no image: left out of faces" in err
    assert code in (0, 1)


def test_components_have_one_name_in_the_shell_and_in_files(eckart_):
    _wide()
    for verb, method, word in (
        ("reduce", "pca", "component"),
        ("explain", "mixture", "component"),
        ("explain", "nmf", "part"),
    ):
        _code, out, err = eckart_(
            verb, "wide.csv", "--exclude", "id", "--method", method, "-k", "2", "--out", "codes.csv"
        )
        assert word in out, err
        assert Path("codes.csv").read_text().splitlines()[0] == f'"{word} 1","{word} 2"'
