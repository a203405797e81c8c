"""eckart embed and certify of what it saves: text in, files of vectors, models and reports out; one
line and exit code 2 on bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from eckart import load, read_vectors
from pages import Page

FRUIT = ["apple", "banana", "cherry", "mango", "peach", "plum"]
SPACE = ["comet", "galaxy", "moon", "orbit", "planet", "star"]


def sentences(count=400, seed=0):
    """Texts mostly about fruit, or mostly about space."""
    rng = np.random.default_rng(seed)
    words = [
        rng.choice((FRUIT, SPACE)[(i + (rng.random() < 0.15)) % 2])
        for i in np.repeat(np.arange(count), 7)
    ]
    lines = ["The " + " ".join(part) for part in np.reshape(words, (count, 7))]
    return [line + (" Zebra!" if i < 3 else "") for i, line in enumerate(lines)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the same texts as lines, compressed, JSONL and CSV; with bytes that are no
    text; baskets of items with spaces."""
    folder = tmp_path_factory.mktemp("texts")
    texts = sentences()
    (folder / "t.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (folder / "t.txt.gz").write_bytes(gzip.compress((folder / "t.txt").read_bytes()))
    pd.DataFrame({"id": range(len(texts)), "body": texts}).to_csv(folder / "t.csv", index=False)
    (folder / "t.jsonl").write_text(
        "\n".join(json.dumps({"text": t}) for t in texts), encoding="utf-8"
    )
    (folder / "bad.txt").write_bytes(
        b"\xff apple\n" + (folder / "t.txt").read_bytes() + b"plum \xfe\xfe plum\n"
    )
    (folder / "baskets.txt").write_text("oat milk,rye bread\nrye bread,oat milk,tea\n" * 20)
    (folder / "one.txt").write_text("so\n\nso\n")
    (folder / "empty.txt").write_text("")
    return folder


QUICK = ("--min-count", 5, "-k", 8, "--seed", 1)
METHODS = {
    "skipgram": ("--epochs", 12, "--sample", 0, "--deterministic"),
    "pmi": ("--window", 5),
    "glove": ("--window", 5, "--epochs", 30),
}


@pytest.mark.parametrize("method", METHODS)
def test_text_to_vectors_model_and_report(ran, done, method):
    out = ran(
        "embed",
        "t.txt",
        "--method",
        method,
        "--model",
        "m.safetensors",
        *QUICK,
        *METHODS[method],
        "--out",
        "v.txt",
        "--report",
        "r.html",
    )
    for words in (
        "400 sentences",
        "13 words in the vocabulary",
        "3,200 of 3,203 words",
        "evidence   certificate",
        "v.txt (13 words)",
    ):
        assert words in out
    near = {
        line.split(": ")[0].split()[1]: line.split(": ")[1].split()
        for line in out.splitlines()
        if line.startswith("near ")
    }
    assert len(near) == 8
    assert "the" not in near, "function words say little"
    for word, found in near.items():
        assert len(found) == 6
        group = FRUIT if word in FRUIT else SPACE
        assert len(set(found[:5]) & set(group)) >= 4
    v, model = read_vectors("v.txt"), load("m.safetensors")
    assert type(model).__name__.lower() == method
    assert v.words.tolist() == model.vectors_.words.tolist()
    np.testing.assert_array_equal(v.vectors, model.vectors_.vectors.astype(np.float32))
    assert v.words[0] == "the"
    page = Page(Path("r.html").read_text(encoding="utf-8"))
    for words in (
        "Embed: t.txt",
        "Words and their neighbours",
        "A map of words",
        "certificate",
        "words read",
        "3,203",
    ):
        assert words in page.text
    again = done("certify", "m.safetensors", "t.txt")
    assert again.startswith("Certificate: HOLDS")


@pytest.mark.parametrize(
    "words",
    [
        ("t.txt.gz",),
        ("t.jsonl",),
        ("t.csv", "--text", "body"),
        ("t.csv", "--text", 1),
        ("t.txt", "--lines"),
        ("t.txt", "--threads", 2),
        ("t.txt", "--encoding", "latin-1"),
    ],
)
def test_the_same_vectors_from_every_source(done, words):
    done("embed", "t.txt", "--method", "pmi", *QUICK, "--out", "a.vec", "-q")
    assert done("embed", *words, "--method", "pmi", *QUICK, "--out", "b.vec", "-q") == ""
    assert Path("a.vec").read_bytes() == Path("b.vec").read_bytes()


def test_a_folder_of_files_and_its_lines(done):
    Path("texts").mkdir()
    lines = Path("t.txt").read_text().splitlines()
    for i in range(4):
        Path(f"texts/{i}.txt").write_text("\n".join(lines[100 * i : 100 * (i + 1)]))
    assert "4 sentences" in done("embed", "texts", "--method", "pmi", *QUICK)
    out = done(
        "embed",
        "texts",
        "--method",
        "pmi",
        "--lines",
        *QUICK,
        "--out",
        "b.vec",
        "--model",
        "m.safetensors",
    )
    assert "400 sentences" in out
    done("embed", "t.txt", "--method", "pmi", *QUICK, "--out", "a.vec")
    assert Path("a.vec").read_bytes() == Path("b.vec").read_bytes()
    assert load("m.safetensors").fit_.plan["text"] == {"lines": True}
    assert "HOLDS" in done("certify", "m.safetensors", "texts")


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("v.txt", ()),
        ("v.vec.gz", ()),
        ("v.bin", ()),
        ("v.safetensors", ()),
        ("v.txt", ("--format", "glove")),
    ],
)
def test_every_format_is_read_again(done, out, words):
    done("embed", "t.txt", "--method", "pmi", *QUICK, "--out", out, *words)
    v = read_vectors(out)
    assert v.vectors.shape == (13, 8)
    first = done("neighbours", out, "apple", "-n", 5).split()[4]
    assert first in FRUIT
    if words:
        assert Path(out).read_text().startswith("the ")


def test_bytes_that_are_no_text_are_refused_or_replaced_and_counted(done, refused):
    assert "byte 0xff at offset 0" in refused(
        "embed", "bad.txt", "--method", "pmi", *QUICK, "--out", "v.txt"
    )
    out = done(
        "embed",
        "bad.txt",
        "--method",
        "pmi",
        *QUICK,
        "--undecodable",
        "replace",
        "--model",
        "m.safetensors",
        "--report",
        "r.html",
    )
    assert "3 characters for bytes that were no text" in out
    assert "bytes that were no text" in Page(Path("r.html").read_text()).text
    assert load("m.safetensors").fit_.plan["text"] == {"undecodable": "replace"}
    assert "HOLDS" in done("certify", "m.safetensors", "bad.txt"), (
        "a model remembers how its text was read"
    )
    assert "'error' or 'replace'" in refused("embed", "bad.txt", "--undecodable", "ignore")


def test_items_with_spaces(done, refused):
    words = ("embed", "baskets.txt", "--tokenizer", "[^,]+", "--method", "pmi", "-k", 2)
    assert "no white space" in refused(*words, "--out", "items.txt"), "said before the fit"
    done(*words, "--out", "items.safetensors")
    assert sorted(read_vectors("items.safetensors").words) == ["oat milk", "rye bread", "tea"]


def test_baskets_are_understood_without_an_option(done):
    """Thirty-two items of four kinds, of which baskets hold three times as many as chance: passes
    of skip-gram over few words found none of them."""
    rng = np.random.default_rng(0)
    kind = np.arange(32) % 4
    chance = np.where(kind == rng.integers(0, 4, 4000)[:, None], 3.0, 1.0)
    baskets = [rng.choice(32, 3, replace=False, p=row / row.sum()) for row in chance]
    Path("shop.txt").write_text(
        "\n".join(",".join(f"item {i}" for i in basket) for basket in baskets)
    )
    out = done("embed", "shop.txt", "--tokenizer", "[^,]+", "--out", "shop.safetensors")
    assert "pmi" in out
    v = read_vectors("shop.safetensors")
    assert v.vectors.shape == (32, 32)
    near = [
        [kind[int(n.split()[1])] == kind[i] for n, _ in v.neighbours(f"item {i}", 3)]
        for i in range(32)
    ]
    assert np.mean(near) > 0.8


def test_capitals_the_vocabulary_and_the_cache(done):
    Path("kept").mkdir()
    words = (
        "embed",
        "t.txt",
        "--method",
        "pmi",
        "-k",
        3,
        "--keep-case",
        "--min-count",
        3,
        "--max-words",
        5,
        "--cache",
        "kept",
    )
    out = done(*words, "--out", "v.txt")
    assert "5 words in the vocabulary" in out
    assert read_vectors("v.txt").words[0] == "The"
    assert any(Path("kept").iterdir())
    again = done(*words, "--out", "w.txt")
    assert Path("v.txt").read_bytes() == Path("w.txt").read_bytes()
    assert out.splitlines()[0] == again.splitlines()[0]


def test_options_of_skipgram_take_it_and_it_repeats_and_says_when_it_ended_too_soon(ran):
    words = ("embed", "t.txt", *QUICK, "--deterministic")
    out = ran(*words, "--epochs", 1, "--learning-rate", 1e-4, "--out", "a.txt")
    assert "SkipGram in" in out
    assert "DOES NOT HOLD" in out
    assert "raise --epochs above 1" in out
    ran(*words, "--epochs", 1, "--learning-rate", 1e-4, "--out", "b.txt", "--threads", 2)
    ran(*words, "--max-iter", 1, "--learning-rate", 1e-4, "--out", "c.txt", "--seed", 2)
    assert Path("a.txt").read_bytes() == Path("b.txt").read_bytes() != Path("c.txt").read_bytes()


def test_a_killed_or_interrupted_command_goes_on_from_its_checkpoint(ran, eckart_, monkeypatch):
    from eckart.embed import skipgram_train
    from eckart.engines.cpu.engine import CpuEngine

    words = ("embed", "t.txt", *QUICK, "--deterministic", "--epochs", 6, "--out")
    ran(*words, "whole.txt")
    monkeypatch.setattr(skipgram_train, "PART_WORDS", 500)
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    ran(*words, "parts.txt")
    step, steps = CpuEngine.pair_step, []

    def stops(how):
        def pair_step(*args, **options):
            steps.append(1)
            if len(steps) == 20:
                raise how("killed")
            return step(*args, **options)

        monkeypatch.setattr(CpuEngine, "pair_step", pair_step)

    stops(RuntimeError)
    assert "killed" in eckart_(*words, "v.txt", "--checkpoint", "c.safetensors")[2]
    assert Path("c.safetensors").exists()
    assert not Path("v.txt").exists(), "nothing half-written"
    steps.clear()
    stops(KeyboardInterrupt)
    out = ran(*words, "v.txt", "--checkpoint", "c.safetensors")
    assert "DOES NOT HOLD" in out
    assert "interrupted" in out, "an interrupt writes what there is and says so"
    monkeypatch.setattr(CpuEngine, "pair_step", step)
    ran(*words, "v.txt", "--checkpoint", "c.safetensors")
    assert Path("v.txt").read_bytes() == Path("parts.txt").read_bytes()
    assert not Path("c.safetensors").exists()


@pytest.mark.parametrize(
    "how",
    [("--method", "pmi"), ("--solver", "exact"), ("--method", "glove", "--solver", "adagrad")],
)
def test_every_method_goes_on_from_its_checkpoint(how, eckart_, monkeypatch):
    from eckart.io.models.checkpoint import Checkpoint

    words = ("embed", "t.txt", *QUICK, *how, "--out")
    eckart_(*words, "whole.txt")
    save, written = Checkpoint.save, []

    def killed(self, arrays):
        save(self, arrays)
        written.append(1)
        if len(written) == 2 or "pmi" in how:
            raise RuntimeError("killed")

    with monkeypatch.context() as m:
        m.setattr(Checkpoint, "due", lambda self: True)
        m.setattr(Checkpoint, "save", killed)
        assert "killed" in eckart_(*words, "v.txt", "--checkpoint", "c.safetensors")[2]
    assert Path("c.safetensors").exists()
    eckart_(*words, "v.txt", "--checkpoint", "c.safetensors")
    assert Path("v.txt").read_bytes() == Path("whole.txt").read_bytes()
    assert not Path("c.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("none.txt",), "none.txt does not exist"),
        (("t.txt", "--method", "cbow"), "skipgram, pmi, glove"),
        (
            ("t.txt", "--model", "word2vec"),
            "must be a file that ends in .safetensors, got word2vec. The kind of model is --method "
            "skipgram, pmi, glove",
        ),
        (("t.txt", "--model", "pmi", "--method", "skipgram"), "one kind of model"),
        (
            ("t.txt", "--out", "v.csv"),
            "v.csv must end in .vec, .txt, .w2v, .bin, .safetensors, got '.csv'. Or say --format.",
        ),
        (("t.txt", "--out", "t.txt"), "the data itself"),
        (("t.txt", "--out", "no/v.txt"), "not a folder"),
        (("t.txt", "--out", "v.txt", "--format", "xml"), "format"),
        (("t.txt", "--report", "r.pdf"), "must end in .html, got '.pdf'"),
        (("t.txt", "-k", 0), "--components must be an int >= 1, got 0"),
        (("t.txt", "-k", "auto"), "-k"),
        (
            ("t.txt", "--method", "pmi", "-k", 14),
            "--components must be 1 to 13 for 13 words, got 14",
        ),
        (("t.txt", "--window", 0), "--window must be None or an int from 1 to 10000, got 0"),
        (("t.txt", "--min-count", 0), "--min-count must be an int >= 1, got 0"),
        (("t.txt", "--min-count", 9999), "at least one word must be left, got none"),
        (("t.txt", "--method", "pmi", "--negatives", 5), "--negatives 5 came with --method pmi"),
        (("t.txt", "--method", "pmi", "--epochs", 5), "--max-iter 5 came with --method pmi"),
        (("t.txt", "--method", "glove", "--kind", "pmi"), "--kind pmi came with --method glove"),
        (
            ("t.txt", "--method", "glove", "--solver", "exact"),
            "--solver must be 'als' or 'adagrad', got 'exact'",
        ),
        (("t.txt", "--shift", 5), "--shift 5.0 came with --method skipgram"),
        (("t.txt", "--loss", "hinge"), "--loss must be 'negative' or 'softmax', got 'hinge'"),
        (("t.txt", "--top", 0), "--top must be a number of 1 or more, got 0"),
        (("t.csv", "--text", "boby"), "Did you mean 'body'?"),
        (("empty.txt",), "empty"),
        (
            ("one.txt", "--min-count", 1),
            "at least one pair of words must stand near each other, got none",
        ),
        (("t.txt", "--tokenizer", "("), "regular expression"),
        (("t.txt", "--threads", 0), "--threads must be None or an int from 1 to 4096, got 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(refused, words, error):
    assert error in refused("embed", *words)


def test_a_model_and_another_text_do_not_agree(done, eckart_):
    done("embed", "t.txt", "--method", "pmi", *QUICK, "--model", "m.safetensors")
    code, _, err = eckart_("certify", "m.safetensors", "baskets.txt")
    assert code == 2
    assert "other words" in err


def test_help_shows_the_call(done):
    out = done("embed", "--help")
    assert "vectors.txt" in out
    assert "embed" in done("--help")
