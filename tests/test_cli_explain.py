"""eckart explain and certify of what it saves: text, counts and tables in, shares, models and
reports out; one line and exit code 2 on bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import io, sparse

from eckart import corpus, load

FRUIT = ["apple", "banana", "cherry", "mango", "peach", "plum"]
SPACE = ["comet", "galaxy", "moon", "orbit", "planet", "star"]


def sentences(count=120, seed=0):
    """Texts about fruit, about space, or both, with words of no meaning between; and their
    labels."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for i in range(count):
        share = (1.0, 0.0, 0.5)[i % 3]
        # with five words each is in a third of the texts: in half of them, it would be left out
        words = [str(rng.choice(FRUIT if rng.random() < share else SPACE)) for _ in range(5)]
        texts.append("The " + " and the ".join(words) + ".")
        labels.append(("fruit", "space", "both")[i % 3])
    return texts, labels


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with texts as lines, JSONL, CSV and Parquet, counts with their words, and tables."""
    folder = tmp_path_factory.mktemp("texts")
    texts, labels = sentences()
    (folder / "t.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    frame = pd.DataFrame(
        {"id": [f"d{i}" for i in range(len(texts))], "body": texts, "about": labels}
    )
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet", index=False)
    rows = [json.dumps({"name": n, "text": t}) for n, t in zip(frame["id"], texts)]
    (folder / "t.jsonl").write_text("\n".join(rows), encoding="utf-8")
    c = corpus(texts, stop_words="english")
    io.mmwrite(folder / "c.mtx", c.to_scipy())
    sparse.save_npz(folder / "c.npz", sparse.csr_matrix(c.to_scipy()))
    (folder / "words.txt").write_text("\n".join(c.columns) + "\n", encoding="utf-8")
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0, 5.0], [6.0, 6.0, 0.0]])
    kind = np.arange(80) % 2
    values = centres[kind] + rng.standard_normal((80, 3))
    table = pd.DataFrame(values, columns=["height", "width", "depth"]).assign(
        kind=np.array(["a", "b"])[kind]
    )
    table.to_csv(folder / "x.csv", index=False)
    np.save(
        folder / "parts.npy",
        rng.random((40, 2)) @ rng.random((2, 12)) + 0.01 * rng.random((40, 12)),
    )
    return folder


def topics_of(out):
    """The printed topics as lists of words."""
    return [line.split("%", 1)[1].split() for line in out.splitlines() if line.startswith("topic")]


def test_text_to_topics_model_shares_and_report(done):
    out = done(
        "explain",
        "t.csv",
        "--text",
        "body",
        "--index",
        "id",
        "-k",
        2,
        "--out",
        "s.parquet",
        "--model",
        "m.safetensors",
        "--report",
        "r.html",
        "--max-iter",
        100,
    )
    found = topics_of(out)
    assert len(found) == 2
    for words in found:
        assert len(words) == 8
        assert max(len(set(words[:6]) & set(kind)) for kind in (FRUIT, SPACE)) == 6
    for words in (
        "120 documents",
        "12 words in the vocabulary",
        "held out",
        "word frequencies",
        "LDA in",
        "certificate",
    ):
        assert words in out
    shares = pd.read_parquet("s.parquet")
    assert shares["id"].tolist() == [f"d{i}" for i in range(120)]
    p = shares[["topic 1", "topic 2"]].to_numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    assert (p[0::3].argmax(axis=1) != p[1::3].argmax(axis=1)).all(), (
        "fruit is one topic and space the other"
    )
    model = load("m.safetensors")
    assert model.fit_.plan["text"] == {"text": "body", "index": "id", "rules": {}}
    assert set(model.fit_.plan["held_out"]["perplexity"]) == {"model", "word frequencies"}
    page = Path("r.html").read_text(encoding="utf-8")
    for words in ("Perplexity", "Documents that show", "apple", "The certificate"):
        assert words in page
    assert re.search(r">d\d+<", page), "documents are called by their ids"
    assert "certificate" in done("certify", "m.safetensors", "t.csv").lower()


@pytest.mark.parametrize(
    "words",
    [
        ("t.txt",),
        ("t.jsonl", "--index", "name"),
        ("t.parquet", "--text", "body"),
        ("t.csv", "--text", 1),
        ("c.mtx", "--vocabulary", "words.txt"),
        ("c.npz", "--vocabulary", "words.txt"),
    ],
)
def test_the_same_topics_from_every_source(ran, words):
    out = ran("explain", *words, "-k", 2, "--method", "plsa", "--held-out", 0, "--top", 6)
    assert {frozenset(words) for words in topics_of(out)} == {frozenset(FRUIT), frozenset(SPACE)}
    assert "held out" not in out


def test_a_folder_of_files(ran):
    texts, _ = sentences(90)
    (Path("docs") / "sub").mkdir(parents=True)
    for i, text in enumerate(texts):
        (Path("docs") / ("sub" if i % 2 else ".") / f"{i:02d}.txt").write_text(text)
    out = ran(
        "explain", "docs", "-k", 2, "--held-out", 0, "--out", "s.csv", "--model", "m.safetensors"
    )
    assert "90 documents" in out
    assert pd.read_csv("s.csv")["row"].tolist()[0] == "00.txt"
    ran("certify", "m.safetensors", "docs")


def test_words_are_chosen_as_asked(done):
    Path("stop.txt").write_text("apple\nmoon\n")
    few = done(
        "explain",
        "t.txt",
        "-k",
        1,
        "--stop-words",
        "stop.txt",
        "--held-out",
        0,
        "--top",
        30,
        "--max-df",
        1.0,
    )
    assert {"the", "and", "plum"} <= set(topics_of(few)[0])
    assert not {"apple", "moon"} & set(topics_of(few)[0])
    none = done(
        "explain",
        "t.txt",
        "-k",
        1,
        "--stop-words",
        "none",
        "--held-out",
        0,
        "--max-df",
        1.0,
        "--max-features",
        3,
    )
    assert "3 words in the vocabulary" in none
    rule = done(
        "explain",
        "t.txt",
        "-k",
        1,
        "--tokenizer",
        "p[a-z]+",
        "--held-out",
        0,
        "--top",
        30,
        "--model",
        "m.safetensors",
    )
    assert {"peach", "plum", "planet", "pple"} <= set(topics_of(rule)[0])
    assert load("m.safetensors").fit_.plan["text"]["rules"] == {"tokenizer": "p[a-z]+"}
    done("certify", "m.safetensors", "t.txt")
    one = done("explain", "t.txt", "-k", 1, "--vocabulary", "words.txt", "--files", "--held-out", 0)
    assert "1 documents" in one


def test_a_mixture_of_a_table(done):
    out = done(
        "explain",
        "x.csv",
        "-k",
        2,
        "--labels",
        "kind",
        "--out",
        "q.csv",
        "--model",
        "m.safetensors",
        "--report",
        "r.html",
    )
    assert "GaussianMixture in" in out
    assert out.count("component ") == 2
    assert "height" in out
    q = pd.read_csv("q.csv")
    p = q.iloc[:, -2:].to_numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    assert len(set(p[0::2].argmax(axis=1))) == len(set(p[1::2].argmax(axis=1))) == 1
    page = Path("r.html").read_text(encoding="utf-8")
    assert "Who belongs where" in page
    assert page.count("<img") >= 2
    assert "HOLDS" in done("certify", "m.safetensors", "x.csv")
    diag = done(
        "explain",
        "x.csv",
        "--method",
        "mixture",
        "-k",
        2,
        "--only",
        "height,width",
        "--covariance",
        "diag",
        "-q",
    )
    assert diag == ""


def test_other_families_and_a_number_of_components_by_bic(done, refused):
    out = done("explain", "x.csv", "--labels", "kind", "--method", "mixture")
    assert out.count("component ") == 2, "BIC finds the two groups"
    out = done(
        "explain",
        "c.npz",
        "--method",
        "mixture",
        "--family",
        "multinomial",
        "-k",
        2,
        "--model",
        "m.safetensors",
        "--report",
        "r.html",
    )
    assert "Mixture in" in out
    done("certify", "m.safetensors", "c.npz")
    assert "--components" in refused(
        "explain", "c.npz", "--method", "mixture", "--family", "multinomial"
    )
    assert "--family" in refused("explain", "t.txt", "--family", "bernoulli", "-k", 2)


def test_topics_are_guided_chosen_and_learned_as_asked(done, refused):
    Path("guide.txt").write_text("\nmoon star\n")
    out = done(
        "explain",
        "t.txt",
        "-k",
        2,
        "--seed-words",
        "guide.txt",
        "--learning",
        "cvb0",
        "--held-out",
        0,
        "--top",
        6,
        "--model",
        "m.safetensors",
    )
    assert {"moon", "star"} <= set(topics_of(out)[1]), "the second line guides the second topic"
    assert load("m.safetensors").fit_.plan["method"] == "cvb0"
    done("certify", "m.safetensors", "t.txt")
    Path("guide.txt").write_text("zebra\n")
    assert "zebra" in refused(
        "explain", "t.txt", "-k", 2, "--seed-words", "guide.txt", "--held-out", 0
    )
    Path("guide.txt").write_text("\n\n")
    assert "guide.txt must hold words of a topic on each line" in refused(
        "explain", "t.txt", "-k", 2, "--seed-words", "guide.txt"
    )
    out = done("explain", "t.txt", "-k", "auto", "--held-out", 0, "--learning", "cvb0")
    assert out.count("topics: perplexity") == 5
    assert len(topics_of(out)) in (5, 10, 20, 40, 80) or "topics are next to empty" in out


def test_parts_of_a_non_negative_table(done):
    out = done(
        "explain",
        "parts.npy",
        "--method",
        "nmf",
        "-k",
        2,
        "--image",
        "3x4",
        "--out",
        "w.npy",
        "--report",
        "r.html",
        "--model",
        "m.safetensors",
    )
    assert "NMF in" in out
    assert np.load("w.npy").shape == (40, 2)
    assert "Parts" in Path("r.html").read_text(encoding="utf-8")
    done("certify", "m.safetensors", "parts.npy")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("none.csv",), "none.csv does not exist"),
        (("t.csv",), "--text"),
        (("t.csv", "--text", "boby"), "Did you mean 'body'?"),
        (("t.csv", "--text", "body", "--method", "lsa"), "lda, plsa, nmf, mixture"),
        (("t.csv", "--text", "body", "--only", "id"), "--text for the column of text"),
        (("t.txt", "--min-df", "many"), "--min-df"),
        (
            ("t.txt", "--min-df", "119", "--max-df", "120"),
            "at least one word must be left, got none",
        ),
        (("t.txt", "--stop-words", "nowhere.txt"), "--stop-words"),
        (("t.txt", "--held-out", "1"), "--held-out"),
        (("t.txt", "--covariance", "full"), "--covariance full came with --method lda"),
        (("t.txt", "--encoding", "morse"), "encoding"),
        (("t.txt", "--tokenizer", "("), "regular expression"),
        (("t.txt", "-k", "0"), "--components"),
        (("parts.npy", "--method", "nmf", "-k", "auto"), "--components"),
        (("c.mtx", "--vocabulary", "t.txt"), "120 words"),
        (
            ("t.csv", "--text", "body", "--labels", "kind", "--index", "id"),
            "give --index or --labels, not both",
        ),
        (("parts.npy", "--method", "nmf", "--image", "5x5"), "--image"),
        (("t.txt", "--report", "r.pdf"), "must end in .html, got '.pdf'"),
        (("t.txt", "--out", "t.txt"), "t.txt"),
    ],
)
def test_bad_input_is_refused_in_one_line(refused, words, error):
    assert error in refused("explain", *words)


def test_few_documents_have_none_to_spare(done, refused):
    Path("few.txt").write_text("apple pear apple\npear plum pear\n")
    assert "too few documents" in done(
        "explain", "few.txt", "-k", 1, "--min-df", 1, "--max-df", 1.0
    )
    assert "--held-out" in refused(
        "explain", "few.txt", "-k", 1, "--min-df", 1, "--max-df", 1.0, "--held-out", 0.3
    )


def test_the_kind_of_model_may_be_called_model(eckart_, refused):
    code, out, err = eckart_(
        "explain",
        "t.csv",
        "--text",
        "body",
        "--model",
        "plsa",
        "--model",
        "m.safetensors",
        "-k",
        2,
        "--held-out",
        0,
    )
    assert code == ("DOES NOT HOLD" in out)
    assert err == (
        "eckart: note: --model plsa is taken as --method plsa; --model is the file to "
        "save the model in\n"
    )
    assert "PLSA" in out
    assert type(load("m.safetensors")).__name__ == "PLSA"
    assert "give one kind of model" in refused(
        "explain", "t.csv", "--text", "body", "--model", "lda", "--method", "nmf"
    )
    assert "ends in .safetensors" in refused(
        "explain", "t.csv", "--text", "body", "--model", "ldaa"
    )


def test_few_documents_have_few_topics(eckart_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["great film music", "bad soup awful"] * 30
    Path("few.txt").write_text("\n".join(lines) + "\n")
    code, out, err = eckart_("explain", "few.txt", "--lines", "--min-df", "1", "--max-df", "1.0")
    assert code == ("DOES NOT HOLD" in out), err
    assert 1 <= len(re.findall(r"^topic ", out, re.M)) <= 6, "no more topics than words"
    code, out, err = eckart_("explain", "few.txt", "--lines", "-k", "12", "--max-df", "1.0")
    shown = len(re.findall(r"^topic ", out, re.M))
    assert "  0.0%" not in out
    if shown < 12:
        assert f"{12 - shown} of 12 topics are next to empty" in out


def test_what_to_say_where_no_word_is_left(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("three.txt").write_text("I love pasta\nThe cat sat on the mat\nPasta with cats\n")
    line = refused("explain", "three.txt", "--lines")
    assert "With --min-df 1 and --max-df 1.0 all words are kept" in line
    assert "Lower --min-count 5" in refused("embed", "three.txt")


def test_a_long_choice_is_announced(eckart_, tmp_path, monkeypatch):
    import eckart.cli.explain as verb

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.standard_normal((60, 3)), columns=list("abc")).to_csv("t.csv", index=False)
    assert "by BIC, which takes a while" not in eckart_("explain", "t.csv")[1]
    monkeypatch.setattr(verb, "LONG", 100)
    code, out, _ = eckart_("explain", "t.csv")
    assert code == 0
    assert "by BIC, which takes a while" in out
    assert "takes a while" not in eckart_("explain", "t.csv", "-k", "2")[1]
