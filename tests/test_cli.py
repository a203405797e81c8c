"""The command line: files in, files out, one line and exit code 2 on bad input, never a
traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import eckart
from eckart import PCA, load, read

COLUMNS = list("abcdef")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with one table as CSV, Parquet and .npy."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    x = (
        rng.standard_normal((60, 6)) * [9, 5, 1, 1, 1, 1] @ rng.standard_normal((6, 6))
    )  # not so flat that no component stands out
    frame = pd.DataFrame(x, columns=COLUMNS)
    frame.insert(0, "id", [f"r{i}" for i in range(60)])
    frame["kind"] = list("uvw") * 20
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_parquet(folder / "x.parquet", index=False)
    np.save(folder / "x.npy", x)
    return folder


def test_reduce_writes_everything(eckart_):
    code, out, err = eckart_(
        "reduce",
        "x.csv",
        "-k",
        2,
        "--only",
        "a,b, c",
        "--index",
        "id",
        "--out",
        "codes.parquet",
        "--model",
        "m.safetensors",
        "--report",
        "r.html",
    )
    assert (code, err) == (0, "")
    x = read("x.csv", columns=list("abc"), index="id")
    want = PCA(2).fit(x)
    codes = read("codes.parquet", index="id")
    np.testing.assert_array_equal(codes.values, want.transform(x))
    assert list(codes.columns) == ["component 1", "component 2"]
    assert list(codes.rows) == [f"r{i}" for i in range(60)]
    model = load("m.safetensors")
    np.testing.assert_array_equal(model.components_, want.components_)
    assert list(model.feature_names_in_) == list("abc")
    assert "60 rows x 3 columns" in out
    assert "certificate holds" in out
    for name in ("codes.parquet", "m.safetensors", "r.html"):
        assert name in out
    page = Path("r.html").read_text(encoding="utf-8")
    assert page.count("<img") >= 3
    assert "The certificate holds." in page
    assert page.count("<script") == 1
    assert not re.search(r"(?:src|href)=.?https?://", page)
    assert not [name for name in os.listdir(".") if name.startswith(".")]


@pytest.mark.parametrize("ending", ["csv", "arrow", "npy", "parquet"])
def test_codes_in_every_format(eckart_, ending):
    assert eckart_("reduce", "x.npy", "-k", 3, "--out", f"o.{ending}", "-q") == (0, "", "")
    np.testing.assert_array_equal(
        read(f"o.{ending}").values, PCA(3).fit_transform(np.load("x.npy"))
    )


@pytest.mark.parametrize(
    ("k", "given"),
    [("2", 2), ("+2", 2), ("0", 0), ("6", 6), ("0.9", 0.9), ("auto", "auto"), ("mle", "mle")],
)
def test_components(eckart_, k, given):
    components = PCA(given).fit(np.load("x.npy")).n_components_
    code, out, _ = eckart_("reduce", "x.npy", "-k", k, "--model", "m.safetensors")
    assert code == 0
    assert f"to {components} component{'s' if components != 1 else ''} " in out
    assert load("m.safetensors").n_components_ == components


@pytest.mark.parametrize("k", ["bad", "", "-1", "7", "1.5", "nan", "inf", "0.0", "1e0"])
def test_bad_components(refused, k):
    for verb in ("reduce", "plan"):
        line = refused(verb, "x.npy", "-k", k)
        assert "components" in line
        assert k in line or k == "1e0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reduce", "nope.csv"], "nope.csv does not exist"),
        (["reduce", "."], "folder"),
        (["reduce", "x.csv", "--only", "a,zz"], "'zz'"),
        (["reduce", "x.csv", "--only", "a", "--index", "zz"], "'zz'"),
        (["reduce", "x.csv", "--only", "a,b", "--labels", "zz"], "'zz'"),
        (["reduce", "x.csv", "--only", ","], "got ''"),
        (["reduce", "x.csv", "--only", "a,kind"], "'kind'"),
        (["reduce", "x.npy", "--index", "id"], "no column names"),
        (["reduce", "x.npy", "--only", "a"], "no column names"),
        (["reduce", "x.npy", "--image", "3x3"], "6, the number of columns"),
        (["reduce", "x.npy", "--image", "-2x-3"], "height x width"),
        (["reduce", "x.npy", "--image", "six"], "height x width"),
        (["reduce", "x.npy", "--solver", "magic"], "magic"),
        (["reduce", "x.npy", "--rotation", "spin"], "spin"),
        (["reduce", "x.npy", "--seed", "-1"], "-1"),
        (["reduce", "x.npy", "--seed", "x"], "--seed"),
        (["reduce", "x.npy", "--threads", "0"], "--threads"),
        (["reduce", "x.npy", "--out", "o.xls"], ".xls"),
        (["reduce", "x.npy", "--out", "no/o.csv"], "not a folder"),
        (["reduce", "x.npy", "--out", "x.npy"], "the data itself"),
        (["reduce", "x.npy", "--out", "./x.npy"], "the data itself"),
        (["reduce", "*.npy", "--out", "x.npy"], "the data itself"),
        (["reduce", "x.npy", "--model", "m.pkl"], ".safetensors"),
        (["reduce", "x.npy", "--report", "r.pdf"], ".html"),
        (["reduce", "x.npy", "--report", "no/r.html"], "not a folder"),
        (["reduce", "x.npy", "--nonsense"], "--nonsense"),
        (["reduce"], "argument"),
        (["nonsense"], "nonsense"),
        (["certify", "x.npy"], "argument"),
        (["certify", "nope", "x.npy"], "nope"),
        (["certify", "x.csv", "x.csv"], "x.csv"),
        (["plan", "nope"], "nope"),
        (["plan", "x.npy", "--solver", "magic"], "magic"),
    ],
)
def test_bad_input_is_one_line_and_code_2(refused, words, said):
    before = {name: Path(name).read_bytes() for name in os.listdir(".")}
    assert said in refused(*words)
    assert {name: Path(name).read_bytes() for name in os.listdir(".")} == before, (
        "a refused command changed a file"
    )


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n", b"a,b\n1,2\n3\n", b"\x00\x01", b"\xff\xfe", b"a,a\n1,2\n"]
)
def test_bad_files_are_one_line_and_code_2(refused, content):
    with open("bad.csv", "wb") as out:
        out.write(content)
    assert "bad.csv" in refused("reduce", "bad.csv", "-k", "1")


def test_labels_colour_the_map_and_are_not_data(eckart_):
    code, out, err = eckart_(
        "reduce",
        "x.csv",
        "-k",
        2,
        "--only",
        "a,b,c",
        "--labels",
        "kind",
        "--report",
        "r.html",
        "--out",
        "o.csv",
    )
    assert (code, err) == (0, "")
    assert "60 rows x 3 columns" in out
    written = pd.read_csv("o.csv")
    assert list(written.columns) == ["row", "kind", "component 1", "component 2"]
    assert list(written["kind"]) == list("uvw") * 20
    assert list(written["row"]) == list(range(60))
    code, _, err = eckart_(
        "reduce",
        "x.csv",
        "-k",
        2,
        "--only",
        "a,b,c",
        "--labels",
        "kind",
        "--index",
        "id",
        "--out",
        "o.parquet",
    )
    assert (code, err) == (0, "")
    joined = pd.read_parquet("o.parquet").merge(pd.read_csv("x.csv"), on="id")
    assert (joined["kind_x"] == joined["kind_y"]).all()
    assert len(joined) == 60


def test_images_gaps_and_options(eckart_):
    x = np.load("x.npy")
    x[3, 2] = np.nan
    np.save("gaps.npy", x)
    code, out, err = eckart_(
        "reduce",
        "gaps.npy",
        "-k",
        2,
        "--image",
        "2x3",
        "--report",
        "r.html",
        "--model",
        "m.safetensors",
        "--rotation",
        "varimax",
    )
    assert (code, err) == (0, "")
    assert "1 entry missing" in out
    assert load("m.safetensors").rotation == "varimax"
    assert eckart_("certify", "m.safetensors", "gaps.npy")[0] == 0
    code, out, _ = eckart_(
        "reduce",
        "x.npy",
        "-k",
        2,
        "--no-center",
        "--whiten",
        "--solver",
        "lanczos",
        "--seed",
        3,
        "--threads",
        1,
        "--model",
        "m.safetensors",
    )
    assert code == 0
    model = load("m.safetensors")
    assert (model.center, model.whiten, model.svd_solver, model.random_state, model.n_threads) == (
        False,
        True,
        "lanczos",
        3,
        1,
    )


def test_certify_holds_fails_and_refuses(eckart_, refused):
    assert (
        eckart_("reduce", "x.csv", "-k", 2, "--only", "a,b,c", "--model", "m.safetensors", "-q")[0]
        == 0
    )
    code, out, err = eckart_("certify", "m.safetensors", "x.csv")
    assert (code, err) == (0, "")
    assert "HOLDS" in out
    frame = pd.read_csv("x.csv")
    frame[["f", "c", "b", "a"]].to_csv("turned.csv", index=False)
    assert eckart_("certify", "m.safetensors", "turned.csv")[0] == 0, "columns are found by name"
    np.save("three.npy", frame[["a", "b", "c"]])
    assert eckart_("certify", "m.safetensors", "three.npy")[0] == 0
    frame["a"] = np.random.default_rng(9).standard_normal(60) * 9
    frame.to_csv("other.csv", index=False)
    code, out, err = eckart_("certify", "m.safetensors", "other.csv")
    assert (code, err) == (1, "")
    assert "DOES NOT HOLD" in out
    assert "reason" in out
    frame[["a", "b"]].to_csv("two.csv", index=False)
    assert "'c'" in refused("certify", "m.safetensors", "two.csv")
    assert "must have the 3 columns of m.safetensors, got 6" in refused(
        "certify", "m.safetensors", "x.npy"
    )


def test_certify_of_names_with_commas_and_spaces(eckart_):
    x = np.load("x.npy")[:, :2]
    pd.DataFrame(x, columns=["a,b", " c "]).to_parquet("odd.parquet")
    assert eckart_("reduce", "odd.parquet", "-k", 1, "--model", "m.safetensors", "-q")[0] == 0
    assert eckart_("certify", "m.safetensors", "odd.parquet")[0] == 0


def test_plan_estimates_before_running(eckart_):
    code, out, err = eckart_("plan", "x.npy", "-k", 2)
    assert (code, err) == (0, "")
    for word in (
        "60 rows x 6 columns",
        "chosen",
        "estimate",
        "passes",
        "MiB",
        "eigh",
        "randomized",
        "lanczos",
    ):
        assert word in out


def test_a_plan_is_of_what_would_be_done(eckart_):
    x = np.load("x.npy")
    x[3, 2] = np.nan
    np.save("one-gap.npy", x)
    told = json.loads(eckart_("plan", "one-gap.npy", "-k", 2, "--json")[1])
    assert told["solver"] == "em"
    assert eckart_("reduce", "one-gap.npy", "-k", 2, "--model", "m.safetensors")[0] == 0
    assert load("m.safetensors").fit_.plan["solver"] == "em"
    assert (
        "lanczos was asked for, which takes complete rows"
        in eckart_("plan", "one-gap.npy", "-k", 2, "--solver", "lanczos")[1]
    )
    assert (
        "lanczos was asked for, which takes complete rows"
        in eckart_("reduce", "one-gap.npy", "-k", 2, "--solver", "lanczos")[1]
    )
    pd.DataFrame({"user": [1, 1, 2] * 9, "movie": range(27), "rating": [1.0, 2.0, 3.0] * 9}).to_csv(
        "triples.csv", index=False
    )
    code, _, err = eckart_("plan", "triples.csv")
    assert code != 0
    assert "eckart plan complete triples.csv --rows user --columns movie --values rating" in err
    others = json.loads(eckart_("plan", "x.npy", "-k", 2, "--json")[1])["solvers"]
    assert max(each["seconds"] for each in others.values()) < 5, (
        "60 rows are no work for any solver"
    )
    told = json.loads(eckart_("plan", "x.npy", "-k", 2, "--json")[1])
    asked = told["plan"]["seconds"] - told["plan"]["loading"]
    assert told["solvers"][told["solver"]]["seconds"] == pytest.approx(asked, rel=0.01), (
        "one fit has one time"
    )
    np.save("long.npy", np.random.default_rng(0).normal(size=(4000, 40)))
    others = json.loads(eckart_("plan", "long.npy", "-k", 5, "--json")[1])["solvers"]
    assert others["power"]["passes"] == 1, "its steps are products with the 40 x 40 covariance"
    assert max(each["seconds"] for each in others.values()) < 5


def test_patterns(eckart_):
    frame = pd.read_csv("x.csv")[COLUMNS]
    for i in range(3):
        frame[i * 20 : i * 20 + 20].to_csv(f"part-{i}.csv", index=False)
    code, out, _ = eckart_("reduce", "part-*.csv", "-k", 2, "--out", "o.npy", "--report", "r.html")
    assert code == 0
    assert "60 rows x 6 columns" in out
    np.testing.assert_allclose(np.load("o.npy"), PCA(2).fit_transform(frame.to_numpy()), atol=1e-10)


def test_streamed_files_give_the_same_codes_and_a_report(eckart_, monkeypatch):
    import eckart.io.read as door

    assert (
        eckart_(
            "reduce", "x.parquet", "-k", 2, "--only", ",".join(COLUMNS), "--out", "a.npy", "-q"
        )[0]
        == 0
    )
    monkeypatch.setattr(door, "IN_MEMORY_BYTES", 0)
    code, _, err = eckart_(
        "reduce",
        "x.parquet",
        "-k",
        2,
        "--only",
        ",".join(COLUMNS),
        "--out",
        "b.npy",
        "--report",
        "r.html",
        "-q",
    )
    assert (code, err) == (0, "")
    np.testing.assert_allclose(np.load("a.npy"), np.load("b.npy"), atol=1e-10)


def test_help_has_examples_and_version_is_ours(eckart_):
    for words in ([], ["--help"]):
        code, out, _ = eckart_(*words)
        assert code == 0
        for verb in ("reduce", "certify", "plan"):
            assert verb in out
    for verb in ("reduce", "certify", "plan"):
        code, out, _ = eckart_(verb, "--help")
        assert code == 0
        assert "Example" in out
        assert f"eckart {verb} " in out
    assert eckart_("--version") == (0, f"eckart {eckart.__version__}\n", "")


def test_a_bug_is_one_line_too(eckart_, monkeypatch):
    monkeypatch.setattr(PCA, "fit", lambda *a, **k: 1 / 0)
    code, _, err = eckart_("reduce", "x.npy", "-k", "1")
    assert code == 70
    assert err.startswith("eckart: error: ZeroDivisionError")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError("too much"), 2),
        (PermissionError(13, "Permission denied"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_system_says_no(eckart_, monkeypatch, error, code):
    def fail(*a, **k):
        raise error

    monkeypatch.setattr(PCA, "fit", fail)
    got, _, err = eckart_("reduce", "x.npy", "-k", "1")
    assert got == code
    assert "Traceback" not in err
    assert err.count("\n") <= 1


# ---- as a program


def program(*words, **more):
    return [sys.executable, "-c", "from eckart.cli.main import run; run()", *map(str, words)]


def test_as_a_program(data, tmp_path):
    done = subprocess.run(
        program("reduce", data / "x.npy", "-k", 2, "--out", tmp_path / "o.csv"),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert read(tmp_path / "o.csv").shape == (60, 2)
    done = subprocess.run(program("reduce", data / "nope.npy"), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"eckart: error: .*nope\.npy does not exist\n", done.stderr)


def test_interrupt_ends_with_130_and_leaves_no_file(tmp_path):
    """A pass over 40 GB (of a hole in a file, which takes no room), stopped on its way."""
    rows = 10 * 2**24
    with open(tmp_path / "big.npy", "wb") as out:
        np.lib.format.write_array_header_1_0(
            out, {"descr": "<f4", "fortran_order": False, "shape": (rows, 64)}
        )
        out.truncate(out.tell() + rows * 256)
    out = ("--out", tmp_path / "o.csv", "--events")
    command = program("reduce", tmp_path / "big.npy", "-k", 1, *out)
    usual = signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a job in the background of a shell ignores interrupts, and so would its child
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, usual)
    try:
        assert any('"phase": "reading' in line for line in job.stdout)
        time.sleep(1)
        assert job.poll() is None, job.communicate()
        job.send_signal(signal.SIGINT)
        last, err = job.communicate(timeout=30)
    finally:
        job.kill()
    assert job.returncode == 130
    assert '"code": 130' in last
    assert "Traceback" not in err
    assert err.count("\n") <= 1
    assert os.listdir(tmp_path) == ["big.npy"]


def test_help_and_a_wrong_option_load_nothing_heavy():
    heavy = [
        "numba",
        "scipy",
        "sklearn",
        "pandas",
        "pyarrow",
        "matplotlib",
        "torch",
        "dask",
        "duckdb",
    ]
    code = (
        "import sys\nfrom eckart.cli.main import run\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        f"print('loaded', [m for m in {heavy} if m in sys.modules])"
    )
    for words in (
        ["--help"],
        ["--nope"],
        ["complete", "--nope"],
        ["complet"],
        ["reduce", "--help"],
    ):
        job = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60
        )
        assert "loaded []" in job.stdout, (words, job.stdout[-300:], job.stderr[-300:])
        if words == ["complet"]:
            assert "Did you mean" in job.stderr
            assert "complete" in job.stderr


def test_every_command_that_is_listed_is_there():
    from eckart.cli.main import COMMANDS, command_named

    for name, about in COMMANDS.items():
        assert command_named(name).help
        assert about.endswith((".", "?"))


def test_events_are_json_lines_and_the_last_one_says_how_it_ended(data, tmp_path):
    def events(*words):
        job = subprocess.run(
            program(*words, "--events"), capture_output=True, text=True, timeout=120
        )
        return job, [json.loads(line) for line in job.stdout.splitlines()]

    job, lines = events("reduce", data / "x.csv", "-k", 1)
    assert {line["event"] for line in lines} >= {"phase", "say", "end"}
    assert lines[-1]["event"] == "end"
    assert lines[-1]["code"] == job.returncode == 0
    assert lines[-1]["answer"]["certificate"]["holds"] is True
    assert lines[-1]["peak"] > 10**7
    assert "\\u001b" not in job.stdout
    job, lines = events("reduce", tmp_path / "nowhere.csv")
    assert (lines[-1]["code"], job.returncode) == (2, 2)
    assert "nowhere.csv" in lines[-1]["error"]
    job = subprocess.run(
        program("reduce", data / "x.csv", "--stop-with-input"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert job.returncode == 2
    assert "--events" in job.stderr


def test_nothing_but_errors_goes_to_standard_error(data, tmp_path):
    """No warning of our own making reaches the user, named columns, labels and a report
    included."""
    words = [
        "--only",
        "a,b,c",
        "--labels",
        "kind",
        "--report",
        tmp_path / "r.html",
        "--model",
        tmp_path / "m.safetensors",
    ]
    done = subprocess.run(
        program("reduce", data / "x.csv", "-k", 2, *words), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_engine_is_chosen_by_name(refused):
    assert "--engine must be auto, cpu, numpy" in refused(
        "reduce", "data.csv", "--engine", "abacus"
    ).replace("=", " ").replace("'", "")
    for verb in ("complete", "explain", "embed"):
        assert "abacus" in refused(
            verb,
            "data.csv",
            "--engine",
            "abacus",
            *(("--index", "id") if verb == "complete" else ()),
        )
