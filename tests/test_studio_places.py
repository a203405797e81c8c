"""Every place of the studio, asked about a saved model of every class: what a page offers is
answered, and nothing is a bug."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra studio is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")
from starlette.testclient import TestClient

import eckart
from eckart.studio.answers import PLACES
from eckart.studio.app import application
from eckart.studio.folder import Folder
from saved.answers import NEED_TORCH

SAVED = Path(__file__).parent / "saved"
NAMES = sorted(path.stem for path in SAVED.glob("*.safetensors"))
TOKEN = "p" * 43

OFFERED = {
    "map": "model/map",
    "colour": "model/colour",
    "labels": "model/labels",
    "loadings": "reduce/loadings",
    "outliers": "reduce/outliers",
    "reconstruct": "reduce/row",
    "search": "model/search",
    "recommend": "complete/recommend",
    "predict": "complete/predict",
    "similar": "complete/similar",
    "support": "complete/support",
    "coverage": "complete/coverage",
    "parts": "parts",
    "mixture": "mixture",
    "row": "mixture/row",
    "columns": "table",
    "cells": "table/row",
    "series": "series/row",
    "analogy": "embed/analogy",
    "odd": "embed/odd",
}
"""The place that answers what a card says can be asked."""


def rows_for(model, file):
    """A data file that fits a model: its columns by name, non-negative whole numbers."""
    names = model.fit_.factors.columns
    n = model.fit_.factors.n
    x = np.random.default_rng(0).integers(0, 2, (30, n)).astype(float)
    if names is None:
        np.save(file.with_suffix(".npy"), x)
        return file.with_suffix(".npy").name
    cells = [[f"{v:g}" for v in row] for row in x]
    for part in getattr(model, "parts_", ()):
        j = list(names).index(part.name)
        for i, row in enumerate(cells):
            row[j] = (
                ""
                if i % 3 == 0
                else str(part.levels[i % len(part.levels)])
                if part.levels
                else row[j]
            )
    with open(file.with_suffix(".csv"), "w", newline="") as out:
        csv.writer(out).writerows([[str(name) for name in names], *cells])
    return file.with_suffix(".csv").name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("every")


@pytest.fixture(scope="module")
def client(folder):
    with TestClient(
        application(Folder.of(folder), TOKEN, ["testserver"]),
        headers={"authorization": f"Bearer {TOKEN}"},
        raise_server_exceptions=False,
    ) as c:
        yield c


def fields(model, card, file):
    """A question that has what any place may ask for; ids are those of the model."""
    ids = {}
    if hasattr(model, "row_ids"):
        ids = {
            "id": model.row_ids.names(np.array([0]))[0],
            "column": model.column_ids.names(np.array([0]))[0],
        }
    elif hasattr(model, "vectors_"):
        ids = dict(
            zip(
                "abc",
                model.vectors_.words[:3] if hasattr(model.vectors_, "words") else ["a", "b", "c"],
            )
        )
    names = card["names"] and (
        model.fit_.factors.columns if model.fit_.factors.columns is not None else ["x0"]
    )
    found = {
        "file": file,
        "data": card["data"],
        "other": file,
        "other_data": card["data"],
        "at": 0,
        "number": 1,
        "text": "a",
    }
    by = {
        "by": next(iter(card["colour"].values()), [None])[0],
        "left": -9,
        "right": 9,
        "bottom": -9,
        "top": 9,
    }
    return (
        found
        | by
        | {"column": str(names[0])}
        | {n: v if isinstance(v, int) else str(v) for n, v in ids.items()}
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_place_answers_about_every_class(name, folder, client):
    if name.startswith(NEED_TORCH):
        pytest.importorskip("torch", reason="this class needs torch")
    file = f"{name}.safetensors"
    shutil.copy(SAVED / file, folder / file)
    model = eckart.load(folder / file)
    data = rows_for(model, folder / name)
    answer = client.get("/api/model", params={"file": file, "data": data})
    assert answer.status_code == 200, answer.text
    card = answer.json()
    asked = fields(model, card | {"data": data}, file)
    if card["room"] in ("complete", "embed", "series"):
        asked.pop("data")
    came = {}
    for method, place in PLACES:
        if place == "jobs" or place.startswith("verbs"):
            continue
        if method == "GET":
            like = {"id": asked["column"]} if place == "complete/similar" else {}
            came[place] = client.get(f"/api/{place}", params=asked | like)
        else:
            row = {
                "row": asked.get("id"),
                "rows": [asked.get("id")],
                "columns": [asked.get("column")],
                "column": asked.get("column"),
                "at": [0],
            }
            polygon = {
                "polygon": [[-9, -9], [9, -9], [9, 9]],
                "place": [0, 0],
                "numbers": [1, 2],
                "name": "n",
            }
            came[place] = client.post(f"/api/{place}", json=asked | row | polygon | {"by": None})
    assert {place for place, answer in came.items() if answer.status_code >= 500} == set()
    refused = {
        what: came[OFFERED[what]].text
        for what in card["can"]
        if what in OFFERED and came[OFFERED[what]].status_code != 200
    }
    if card["room"] == "embed":
        refused = {}  # the words asked for are not those of every vocabulary
    assert refused == {}


def test_a_table_of_several_kinds_is_shown_as_the_model_says(folder, client):
    file = "mixed_table.safetensors"
    shutil.copy(SAVED / file, folder / file)
    model = eckart.load(folder / file)
    data = rows_for(model, folder / "mixed_table")
    shown = client.get("/api/table", params={"file": file}).json()
    assert {c["column"]: c["loss"] for c in shown["columns"]} == model.losses_
    filled = model.impute(str(folder / data))
    row = client.get("/api/table/row", params={"file": file, "data": data, "at": 3}).json()
    unsure = model.uncertainty(str(folder / data))
    assert row["gaps"] == 6  # every third row has nothing
    for cell in row["cells"]:
        value = filled.column(cell["column"])[3].as_py()
        assert cell["value"] is None
        assert cell["filled"] == (pytest.approx(value) if isinstance(value, float) else value)
        assert cell["uncertainty"] == pytest.approx(unsure[cell["column"]][1])
    why = client.get(
        "/api/table/why", params={"file": file, "data": data, "at": 4, "column": "a"}
    ).json()
    told = model.explain(str(folder / data), "a", 4)
    assert why["shares"][0]["column"] == told.shares[0][0]
    assert why["shares"][0]["share"] == pytest.approx(told.shares[0][1])


def test_a_series_is_shown_with_what_was_seen_filled_and_expected(folder, client):
    file = "time_factors.safetensors"
    shutil.copy(SAVED / file, folder / file)
    model = eckart.load(folder / file)
    shown = client.get(
        "/api/series/row", params={"file": file, "at": 1, "level": 0.5, "ahead": 3}
    ).json()
    seen = model.observed_.to_scipy()[[1]].tocoo()
    assert sum(v is not None for v in shown["seen"]) == len(seen.col)
    row = np.repeat(model.row_ids.names(np.array([1])), 4)
    times = model.column_ids.names(np.arange(4))
    low, high = model.interval(row, times, 0.5)
    assert shown["expected"][:4] == pytest.approx(model.predict(row, times).tolist())
    assert shown["low"][:4] == pytest.approx(low.tolist())
    assert shown["high"][:4] == pytest.approx(high.tolist())
    assert shown["ahead"]["mean"] == pytest.approx(model.forecast(3).mean[1].tolist())
    assert client.get("/api/series/row", params={"file": file, "at": 10**6}).status_code == 422


def test_what_leads_to_an_answer_of_500_is_told_in_the_shell(tmp_path):
    lines = (
        "from pathlib import Path; from eckart.studio import answers, run\n"
        "answers.PLACES['GET', 'folder'] = lambda studio, ask: 1 // 0\n"
        f"run.run_studio(Path({str(tmp_path)!r}), 0, False, lambda name, words: "
        "print(words, flush=True))"
    )
    shell = subprocess.Popen(
        [sys.executable, "-c", lines],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    try:
        address, token = shell.stdout.readline().strip().split("/#token=")
        question = urllib.request.Request(
            f"{address}/api/folder", headers={"authorization": f"Bearer {token}"}
        )
        with pytest.raises(urllib.error.HTTPError, match="500"):
            urllib.request.urlopen(question, timeout=60)
    finally:
        shell.terminate()
        told = shell.communicate(timeout=60)[1]
    assert "ZeroDivisionError" in told
    assert "Traceback" in told
