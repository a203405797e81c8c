"""A model in a notebook: the same answers by messages, and a clear word where the widget is not
installed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pytest

import eckart
from eckart.errors import InputError, MissingError
from studio_folder import NUMBERS, _table

pytest.importorskip("starlette", reason="the extra studio is not installed")

from eckart.studio.answers import Studio
from eckart.studio.folder import Folder
from eckart.studio.view import DATA, MODEL, answered, page_files, write_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view")
    _table(folder, np.random.default_rng(0))
    (folder / "table.safetensors").rename(folder / MODEL)
    return folder


@pytest.fixture(scope="module")
def studio(folder):
    return Studio(Folder.of(folder))


def ask(studio, place, method="GET", body=None):
    message, (content,) = answered(
        studio,
        {
            "kind": "ask",
            "id": 7,
            "method": method,
            "place": f"/api/{place}",
            "body": None if body is None else json.dumps(body),
        },
    )
    assert message["id"] == 7
    return message, content


def test_questions_of_the_page_are_answered_by_messages(studio, folder):
    message, content = ask(studio, f"model?file={MODEL}")
    assert message["status"] == 200
    assert json.loads(content)["class"] == "PCA"
    message, content = ask(studio, f"model/map?file={MODEL}&data=table.csv")
    codes = eckart.load(folder / MODEL).transform(
        eckart.read(str(folder / "table.csv"), columns=NUMBERS)
    )
    np.testing.assert_allclose(
        np.frombuffer(content, "<f4").reshape(-1, 2), codes[:, :2], rtol=1e-5
    )
    assert "x-eckart" in message["headers"]
    message, content = ask(studio, "model/export", "POST", {"file": MODEL, "at": [0]})
    assert content.startswith(b"id,")


def test_what_is_refused_is_refused_in_words(studio):
    for place, method, status in (
        ("model?file=../x", "GET", 422),
        ("nowhere", "GET", 404),
        ("jobs", "POST", 422),
        ("folder", "DELETE", 405),
    ):
        message, content = ask(studio, place, method, {})
        assert message["status"] == status
        assert json.loads(content)["detail"]
    assert answered(studio, {"kind": "other"}) is None
    assert answered(studio, "text") is None


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (np.arange(6.0).reshape(3, 2), f"{DATA}.npy"),
        (pa.table({"a": [1.0, 2.0], "b": ["x", "y"]}), f"{DATA}.arrow"),
        (["one text", "another\ntext"], f"{DATA}.txt"),
        ([[1, 2], [3, 4]], f"{DATA}.npy"),
    ],
)
def test_data_become_a_file(tmp_path, data, name):
    assert write_data(data, tmp_path) == name
    if name.endswith(".txt"):
        assert (tmp_path / name).read_text() == "one text\nanother text\n"
    else:
        assert eckart.read(
            str(tmp_path / name), columns=["a"] if name.endswith(".arrow") else None
        ).shape[0] == len(data)
    with pytest.raises(InputError, match="data"):
        write_data("no such file.csv", tmp_path)
    with pytest.raises(InputError, match="data"):
        write_data(np.zeros(3), tmp_path)


def test_without_anywidget_the_line_that_installs_it_is_said(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(MissingError, match=re.escape("pip install 'eckart[studio]'")):
        eckart.view(eckart.load(folder / MODEL))


def test_the_widget_holds_the_page_and_answers(folder):
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    shown = eckart.view(folder / MODEL, folder / "table.csv", height=500)
    sent = []
    shown.send = lambda *given: sent.append(given)
    shown._asked(
        shown,
        {
            "kind": "ask",
            "id": 1,
            "method": "GET",
            "place": f"/api/model?file={MODEL}",
            "body": None,
        },
        [],
    )
    card = json.loads(sent[0][1][0])
    assert (card["data"], card["data_sure"]) == ("data.csv", True)
    assert "app.js" in shown.files
    place = Path(shown._held.name)
    shown.close()
    assert not place.exists(), "the folder lasts as long as the widget"
    with pytest.raises(InputError, match="height"):
        eckart.view(folder / MODEL, height=1)
    with pytest.raises(
        TypeError,
        match="model must be a fitted model of eckart, or the name of a model file, got a int",
    ):
        eckart.view(5)


def test_the_page_can_be_joined_by_addresses():
    """What the loader of the widget relies on: imports are relative, of files that are there, and
    run in no circle."""
    files = page_files()
    found = {
        path: re.findall(r'(?:from|import)\s*"(\.{1,2}/[^"]+)"', text)
        for path, text in files.items()
        if path.endswith(".js")
    }
    bare = {
        path: re.findall(r'^import\b[^"\n]*"([^."/][^"]*)"', text, re.MULTILINE)
        for path, text in files.items()
        if path.endswith(".js") and "vendor/" not in path
    }
    assert not any(bare.values()), bare
    done: dict[str, bool] = {}

    def follow(path):
        assert done.get(path) is not False, f"{path} imports itself in a circle"
        if path not in done:
            done[path] = False
            for name in found[path]:
                parts = [*PurePosixPath(path).parent.parts]
                for part in name.split("/"):
                    parts = parts[:-1] if part == ".." else parts if part == "." else [*parts, part]
                follow("/".join(parts))
            done[path] = True

    follow("app.js")
    assert len(done) > 10
