"""Every view that the studio offers of a model of every public class is there: what its page asks
for is answered."""

import inspect

import numpy as np
import pytest

import eckart
from eckart.fit import Estimator

pytest.importorskip("starlette", reason="the extra studio is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")
from starlette.testclient import TestClient

from eckart.studio.app import application
from eckart.studio.folder import Folder

TOKEN = "t" * 43
CLASSES = [
    n
    for n in eckart.__all__
    if inspect.isclass(c := getattr(eckart, n)) and issubclass(c, Estimator)
]
NEEDS = {
    "Autoencoder": "torch",
    "ConvAutoencoder": "torch",
    "NetworkClassifier": "torch",
    "NetworkRegressor": "torch",
}
TABS = {
    "loadings": [("reduce/components", {}), ("reduce/loadings", {"number": 1})],
    "reconstruct": [("reduce/row", {"at": 0, "k": 1})],
    "outliers": [("reduce/outliers", {})],
    "neighbours": [("model/neighbours", {"at": 0})],
    "labels": [],
    "rows": [],
    "colour": [],
    "map": [],
    "search": [("model/search", {"q": "1"})],
    "topics": [("topics", {}), ("topics/words", {"number": 1})],
    "documents": [("topics/documents", {"number": 1}), ("topics/document", {"at": 0})],
    "parts": [("parts", {})],
    "mixture": [("mixture", {})],
    "row": [("mixture/row", {"at": 0})],
    "columns": [("table", {})],
    "cells": [("table/row", {"at": 0})],
    "series": [("series", {}), ("series/row", {"at": 0})],
    "support": [("complete/support", {})],
    "coverage": [("complete/coverage", {})],
    "similar": [("complete/similar", {"side": "columns", "id": 0})],
    "intervals": [],
    "predict": [],
    "recommend": [],
    "why": [],
    "whatif": [],
    "analogy": [("embed/analogy", {"a": "w0", "b": "w1", "c": "w2"})],
    "odd": [("embed/odd", {"words": ["w0", "w1", "w2"]})],
}
"""What the page asks for, by the ability that a card says."""


def fitted(name, folder):
    """A small model of a class, and the file of its data where its pages show rows."""
    rng, kind = np.random.default_rng(0), getattr(eckart, name)
    low = np.abs(rng.normal(size=(40, 2)) @ rng.normal(size=(2, 6))) + 0.1 * rng.random((40, 6))
    few = {"max_iter": 3} if "max_iter" in inspect.signature(kind).parameters else {}
    seed = {"random_state": 0} if "random_state" in inspect.signature(kind).parameters else {}
    if name in ("LDA", "PLSA", "LatentDirichletAllocation", "NMF", "MiniBatchNMF"):
        texts = [" ".join(f"w{j}" for j in rng.integers(0, 9, 20) + 5 * (i % 2)) for i in range(30)]
        (folder / "data.csv").write_text(
            "id,text\n" + "".join(f"d{i},{text}\n" for i, text in enumerate(texts))
        )
        model = kind(2, **few, **seed).fit(
            eckart.corpus(str(folder / "data.csv"), text="text", index="id")
        )
        model.fit_.plan["text"] = {"text": "text", "index": "id", "rules": {}}
        return model
    if name in ("SkipGram", "GloVe", "PMI"):
        return kind(2, min_count=1, **few, **seed).fit(
            [[f"w{j}" for j in rng.integers(0, 12, 12)] for _ in range(40)]
        )
    header = "id," + ",".join(f"x{j}" for j in range(6)) + "\n"
    (folder / "data.csv").write_text(
        header + "".join(f"r{i}," + ",".join(f"{v:.4f}" for v in low[i]) + "\n" for i in range(40))
    )
    if name in ("NetworkClassifier", "NetworkRegressor"):
        return kind(hidden=[4], **few, **seed).fit(low, np.arange(40) % 2)
    if name == "ConvAutoencoder":
        return kind(2, image=(2, 3), channels=(2,), hidden=[], **few, **seed).fit(
            eckart.read(str(folder / "data.csv"), index="id")
        )
    if name in ("MixedTable", "TimeFactors"):
        low[rng.random(low.shape) < 0.1] = np.nan
        return kind(**few, **seed).fit(low)
    holes = {
        "ALS",
        "BayesianMF",
        "SoftImpute",
        "SVT",
        "SVP",
        "ExactRecovery",
        "EASE",
        "SLIM",
        "SpectralFilter",
        "Blend",
    }
    if name in holes:
        low[rng.random(low.shape) < 0.3] = np.nan
        first = {
            "Blend": [{"a": eckart.EASE(), "b": eckart.SLIM()}],
            "SoftImpute": [],
            "EASE": [],
            "SLIM": [],
            "SVT": [],
        }.get(name, [2])
        some = {"n_samples": 4, "burn_in": 4} if name == "BayesianMF" else few
        return kind(*first, **some, **seed).fit(low)
    return kind(2, **few, **seed).fit(eckart.read(str(folder / "data.csv"), index="id"))


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_view_of_every_class_is_answered(name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "eckart"))
    fitted(name, tmp_path).save(tmp_path / "model.safetensors")
    with TestClient(
        application(Folder.of(tmp_path), TOKEN, ["testserver"]),
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as client:
        card = client.get("/api/model", params={"file": "model.safetensors"}).json()
        assert card["room"], card
        data = {"data": card["data"]} if card["data"] else {}
        side = card["sides"][0] if card["sides"] else None
        for ability in card["can"]:
            for where, asked in TABS[ability]:
                asked = {"side": side, **asked} if where.startswith("model/") else asked
                got = client.get(
                    f"/api/{where}", params={"file": "model.safetensors", **data, **asked}
                )
                assert got.status_code == 200, (name, where, got.text)
        for side in card["sides"]:
            axes = [one["key"] for one in card["axes"][side]][:2]
            asked = {"file": "model.safetensors", "side": side, "x": axes[0], "y": axes[-1], **data}
            assert client.get("/api/model/map", params=asked).status_code == 200
            for by in card["colour"][side]:
                assert (
                    client.get("/api/model/colour", params={**asked, "by": by}).status_code == 200
                ), (name, by)
        if "recommend" in card["can"]:
            body = {"file": "model.safetensors", "row": card["first_row"], "n": 3, "by": "auto"}
            assert client.post("/api/complete/recommend", json=body).status_code == 200


def test_rows_come_from_the_file_that_is_like_the_fit(tmp_path):
    """Of files with the same columns, not the one whose name comes nearest."""
    rng = np.random.default_rng(0)
    names, x = ["a", "b", "c"], rng.normal(size=(50, 3)) + 7
    for file, rows in (("lengths.csv", 100 * x), ("measured.csv", x), ("widths.csv", x - 40)):
        np.savetxt(tmp_path / file, rows, delimiter=",", header=",".join(names), comments="")
    eckart.PCA(2).fit(eckart.read(str(tmp_path / "measured.csv"))).save(
        tmp_path / "lengths.safetensors"
    )
    with TestClient(
        application(Folder.of(tmp_path), TOKEN, ["testserver"]),
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as client:
        card = client.get("/api/model", params={"file": "lengths.safetensors"}).json()
    assert (card["data"], card["data_differs"]) == ("measured.csv", None)
    assert card["data_candidates"][1:] == ["lengths.csv", "widths.csv"]


def test_topics_of_texts_find_a_file_of_texts(tmp_path):
    """Also where its first line reads like the name of a column."""
    texts = ["apple plum pear", "wolf bear lynx", "plum pear apple", "lynx wolf bear"] * 5
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    eckart.LDA(2, random_state=0, max_iter=5).fit(eckart.corpus(texts, max_df=1.0)).save(
        tmp_path / "model.safetensors"
    )
    with TestClient(
        application(Folder.of(tmp_path), TOKEN, ["testserver"]),
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as client:
        card = client.get("/api/model", params={"file": "model.safetensors"}).json()
        assert card["data"] == "texts.txt"
        asked = {"file": "model.safetensors", "data": "texts.txt", "number": 1}
        assert client.get("/api/topics/documents", params=asked).json()["documents"]


def test_wrong_entries_do_not_make_data_look_like_others(tmp_path):
    """A robust model keeps medians and the spread of what is right: its own data have others."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 12))
    x[rng.random(x.shape) < 0.04] += 30
    names = [f"c{j}" for j in range(12)]
    np.savetxt(tmp_path / "rows.csv", x, delimiter=",", header=",".join(names), comments="")
    model = eckart.RobustPCA().fit(eckart.read(str(tmp_path / "rows.csv")))
    model.save(tmp_path / "rows.safetensors")
    with TestClient(
        application(Folder.of(tmp_path), TOKEN, ["testserver"]),
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as client:
        card = client.get("/api/model", params={"file": "rows.safetensors"}).json()
    assert (card["data"], card["data_differs"]) == ("rows.csv", None)
