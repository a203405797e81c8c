"""Who may ask the studio, and what it never does: other hosts and origins, paths out of the folder,
files that are not what they seem, questions too large."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eckart import PCA
from studio_folder import make

pytest.importorskip("starlette", reason="the extra studio is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")
from starlette.testclient import TestClient

from eckart.errors import FileError
from eckart.serve.problems import Problem
from eckart.studio.answers import PLACES
from eckart.studio.app import application
from eckart.studio.folder import Folder
from eckart.studio.forms import words_of

TOKEN = "k" * 43
BEARER = {"authorization": f"Bearer {TOKEN}"}
SECRET = "the secret"


@pytest.fixture(scope="module")
def around(tmp_path_factory):
    """A folder with data beside a file that must never be read."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.csv").write_text(f"a,b\n{SECRET},1\n")
    folder = outside / "inside"
    folder.mkdir()
    make(folder)
    (folder / ".hidden.csv").write_text(f"a,b\n{SECRET},1\n")
    os.symlink(outside / "secret.csv", folder / "link.csv")
    os.symlink(outside, folder / "linked")
    return folder


@pytest.fixture(scope="module")
def app(around):
    return application(Folder.of(around), TOKEN, ["testserver", "127.0.0.1:8877"], "eckart-8877")


@pytest.fixture(scope="module")
def client(app):
    with TestClient(app) as c:
        yield c


@pytest.mark.parametrize(
    "given",
    [
        None,
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer é",
        f"Basic {TOKEN}",
    ],
)
def test_no_question_is_answered_without_the_token(client, given):
    headers = {} if given is None else {"authorization": given.encode("utf-8")}
    for method, place in [
        *PLACES,
        ("GET", "jobs/0001"),
        ("GET", "events"),
        ("POST", "plan"),
        ("POST", "upload"),
        ("GET", "report"),
        ("GET", "download"),
    ]:
        response = client.request(method, f"/api/{place}", headers=headers)
        assert response.status_code == 401, (method, place)
        assert response.headers["content-type"] == "application/problem+json"


def test_the_token_becomes_a_cookie_that_scripts_cannot_read(around):
    app = application(Folder.of(around), TOKEN, ["testserver"], "eckart-1")
    with TestClient(app) as c:
        assert c.post("/api/session", json={"token": "wrong"}).status_code == 401
        assert c.get("/api/folder").status_code == 401
        kept = c.post("/api/session", json={"token": TOKEN}).headers["set-cookie"].lower()
        assert "httponly" in kept
        assert "samesite=strict" in kept
        assert c.get("/api/folder").status_code == 200


def test_a_ticket_is_good_once(around):
    app = application(Folder.of(around), TOKEN, ["testserver"])
    app.keys.tickets.add("once")
    for status in (204, 401):
        with TestClient(app) as c:
            assert c.post("/api/session", json={"token": "once"}).status_code == status
    with TestClient(app) as c:
        assert c.post("/api/session", json={"token": ""}).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8877",
        "127.0.0.1",
        "127.0.0.1:1",
        "testserver.evil.example",
        "",
    ],
)
def test_another_host_is_refused(client, host):
    """A name that another site lets point to this machine reaches nothing, not even the page."""
    for place in ("/", "/web/app.js", "/api/folder"):
        assert client.get(place, headers=BEARER | {"host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://testserver",
        "null",
        "http://testserver:81",
        "http://127.0.0.1:9999",
    ],
)
def test_another_origin_is_refused(client, origin):
    response = client.post("/api/jobs", json={}, headers=BEARER | {"origin": origin})
    assert response.status_code == 403
    assert (
        client.get("/api/folder", headers=BEARER | {"sec-fetch-site": "cross-site"}).status_code
        == 403
    )
    assert (
        client.get("/api/folder", headers=BEARER | {"sec-fetch-site": "same-site"}).status_code
        == 403
    )
    assert (
        client.get(
            "/api/folder",
            headers=BEARER | {"origin": "http://testserver", "sec-fetch-site": "same-origin"},
        ).status_code
        == 200
    )


ESCAPES = [
    "../secret.csv",
    "link.csv",
    "linked/secret.csv",
    ".hidden.csv",
    "./table.csv",
    "a/../table.csv",
    "a/../../secret.csv",
    "//etc/passwd",
    "/etc/passwd",
    "..\\secret.csv",
    "C:\\x",
    "C:/x",
    "table.csv\0.png",
    "a\nb.csv",
    ".eckart-studio/jobs/0001.json",
    "",
    "..",
    ".",
    "linked",
    "x" * 5000,
    "~/.ssh/id_rsa",
    "%2e%2e/secret.csv",
]


@pytest.mark.parametrize("name", ESCAPES)
def test_no_path_leads_out_of_the_folder(client, name):
    for place in (
        "data",
        "data/rows",
        "model",
        "model/map",
        "report",
        "download",
        "topics",
        "embed/analogy",
    ):
        response = client.get(f"/api/{place}", params={"file": name}, headers=BEARER)
        assert response.status_code in (404, 422), (place, response.text)
        assert SECRET not in response.text
    for field in (
        {"file": name},
        {"file": "table.csv", "options": {"index": "a", "labels": "b"}, "name": f"../{name}"},
    ):
        assert client.post(
            "/api/jobs", json={"verb": "reduce", "options": {}} | field, headers=BEARER
        ).status_code in (
            404,
            422,
        )
    assert (
        client.get(
            "/api/model", params={"file": "table.safetensors", "data": name or ".."}, headers=BEARER
        )
        .json()
        .get("axes", {})
        == {}
    )
    assert client.post(
        "/api/upload", params={"name": name}, content=b"x", headers=BEARER
    ).status_code in (404, 422)


@given(st.text(min_size=1, max_size=30))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_name_stays_inside(around, name):
    folder = Folder.of(around)
    try:
        path = folder.inside(name)
    except Problem:
        return
    assert path.resolve().is_relative_to(around.resolve())
    assert ".." not in path.parts


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("complete", {"titles": "../secret.csv:a:b"}),
        ("explain", {"stop_words": "../secret.csv"}),
        ("explain", {"vocabulary": "/etc/passwd"}),
        ("explain", {"seed_words": "linked/secret.csv"}),
        ("reduce", {"out": "x.csv"}),
        ("reduce", {"log": "x"}),
        ("reduce", {"checkpoint": "x"}),
        ("reduce", {"engine": "dask"}),
        ("embed", {"cache": "/tmp"}),
        ("reduce", {"from": "x.duckdb", "sql": "select 1"}),
        ("reduce", {"components": True}),
        ("reduce", {"components": {"a": 1}}),
        ("reduce", {"scale": "yes"}),
        ("serve", {}),
        ("recommend", {}),
        (None, {}),
        ("reduce", []),
        ("complete", {"pairs": "x"}),
    ],
)
def test_options_that_lead_elsewhere_are_refused(around, verb, options):
    with pytest.raises(Problem) as refused:
        words_of(verb, "table.csv", options, Folder.of(around))
    assert refused.value.status in (404, 422)


def test_a_value_never_becomes_an_option(around):
    words = words_of(
        "reduce",
        "table.csv",
        {"index": "--out=/tmp/x", "missing": ["-9", "--json"]},
        Folder.of(around),
    )
    assert words == [
        "reduce",
        "table.csv",
        "--index=--out=/tmp/x",
        "--missing=-9",
        "--missing=--json",
    ]
    shutil.copy(around / "table.csv", around / "-k.csv")
    assert words_of("reduce", "-k.csv", {}, Folder.of(around))[1] == "./-k.csv"


def test_titles_of_a_model_are_read_in_the_folder_only(around, app, client):
    from eckart import load

    model = load(around / "films.safetensors")
    model.fit_.plan["titles"] = "../secret.csv:a:b"
    model.save(around / "spy.safetensors")
    response = client.get(
        "/api/model/search",
        params={"file": "spy.safetensors", "side": "columns", "text": ""},
        headers=BEARER,
    )
    assert response.status_code == 200
    assert all(found["title"] is None for found in response.json()["found"])


def test_a_folder_whose_corner_is_a_link_is_not_opened(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / ".eckart-studio")
    with pytest.raises(
        FileError,
        match=r"data/\.eckart-studio must be a folder of the studio's own, got a link",
    ):
        application(Folder.of(tmp_path / "data"), TOKEN, ["testserver"])
    with pytest.raises(
        FileError,
        match="no such thing must be a model, a data file or a folder that exists",
    ):
        Folder.of(tmp_path / "no such thing")


@pytest.mark.parametrize("damage", ["cut", "bit", "foreign", "empty"])
def test_a_hostile_model_is_refused_in_words(around, client, damage):
    good = (around / "table.safetensors").read_bytes()
    bad = {
        "cut": good[:-7],
        "bit": good[:-3] + bytes([good[-3] ^ 1]) + good[-2:],
        "foreign": b"\xff" * 100,
        "empty": b"",
    }[damage]
    (around / "bad.safetensors").write_bytes(bad)
    for place in ("model", "model/map", "reduce/row"):
        response = client.get(
            f"/api/{place}", params={"file": "bad.safetensors", "at": 0}, headers=BEARER
        )
        assert response.status_code == 422
        assert "bad.safetensors" in response.json()["detail"]


@pytest.mark.parametrize(
    ("place", "asked"),
    [
        ("model/search", {"n": 10**9}),
        ("model/search", {"n": "ten"}),
        ("model/search", {"n": -1}),
        ("model/neighbours", {"n": 1001, "at": 0}),
        ("model/neighbours", {"at": 10**12}),
        ("model/neighbours", {"at": -1}),
        ("model/map", {"x": "99"}),
        ("model/map", {"side": "moon"}),
        ("model/colour", {"by": "nothing"}),
        ("model/labels", {"left": "nan", "right": 1, "bottom": 0, "top": 1}),
        ("model/labels", {}),
        ("reduce/row", {"at": 3, "k": 99}),
        ("reduce/row", {"id": "nobody"}),
        ("reduce/loadings", {"number": 0}),
        ("topics", {}),
        ("mixture", {}),
        ("model/names", {"at": "1;2"}),
        ("data/rows", {"count": 10**6}),
        ("data/rows", {"first": "1e9"}),
        ("data/rows", {"sort": "nothing"}),
    ],
)
def test_questions_that_make_no_sense_are_refused(client, place, asked):
    file = {"file": "table.csv" if place.startswith("data") else "table.safetensors"}
    response = client.get(f"/api/{place}", params=file | asked, headers=BEARER)
    assert response.status_code == 422, response.text
    assert " must " in response.json()["detail"] or "which no row" in response.json()["detail"]


@pytest.mark.parametrize(
    ("place", "body"),
    [
        ("model/select", {"polygon": [[0, 0], [1, 1]]}),
        ("model/select", {"polygon": "all"}),
        ("model/select", {"polygon": [[0, 0], [1, 1], [1e999, 0]]}),
        ("model/select", {}),
        ("model/select", {"file": "\ud800.csv"}),
        ("model/select", {"file": ["table.csv"]}),
        ("model/table", {"at": [10**9]}),
        ("model/table", {"at": [True]}),
        ("model/table", {"at": "all"}),
        ("model/nearest", {"place": [0]}),
        ("complete/recommend", {"file": "films.safetensors"}),
        ("complete/recommend", {"file": "films.safetensors", "row": "nobody"}),
        (
            "complete/recommend",
            {"file": "films.safetensors", "ratings": [{"column": 101, "value": "five"}]},
        ),
        (
            "complete/recommend",
            {"file": "films.safetensors", "ratings": [{"column": 101, "value": 1e300}]},
        ),
        ("complete/recommend", {"file": "films.safetensors", "ratings": [{"film": 101}]}),
        ("complete/recommend", {"file": "films.safetensors", "ratings": []}),
        ("complete/recommend", {"file": "films.safetensors", "row": "u3", "n": 10**6}),
        ("complete/recommend", {"file": "films.safetensors", "row": "u3", "by": "luck"}),
        ("complete/predict", {"file": "films.safetensors", "rows": [], "columns": [101]}),
        (
            "complete/predict",
            {"file": "films.safetensors", "rows": ["u3"] * 2000, "columns": [101]},
        ),
        ("complete/why", {"file": "films.safetensors", "row": "u3", "column": {"a": 1}}),
        ("topics/rename", {"file": "topics.safetensors", "number": 99, "name": "x"}),
        ("topics/rename", {"file": "topics.safetensors", "number": 1, "name": "x" * 1000}),
        ("topics/merge", {"file": "topics.safetensors", "numbers": [1]}),
        ("topics/merge", {"file": "topics.safetensors", "numbers": [1, 1]}),
        ("topics/split", {"file": "topics.safetensors", "number": 1}),
    ],
)
def test_bodies_that_make_no_sense_are_refused(client, place, body):
    response = client.post(
        f"/api/{place}",
        content=_json({"file": "table.safetensors"} | body),
        headers=BEARER | {"content-type": "application/json"},
    )
    assert response.status_code in (400, 422), response.text
    assert response.json()["detail"]


def _json(value):
    import json

    return json.dumps(value).replace("Infinity", "1e999")


def test_bodies_of_other_kinds_are_refused(client):
    for kind, body, status in (
        ("text/plain", b"{}", 415),
        ("application/json", b"{", 400),
        ("application/json", b"[1]", 400),
        ("application/json", b"\xff", 400),
    ):
        assert (
            client.post(
                "/api/jobs", content=body, headers=BEARER | {"content-type": kind}
            ).status_code
            == status
        )
    assert client.get("/api/nowhere", headers=BEARER).status_code == 404
    assert client.post("/api/folder", json={}, headers=BEARER).status_code == 405
    assert client.delete("/api/folder", headers=BEARER).status_code == 405


def test_the_page_is_served_from_the_package_alone(client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert page.status_code == 200
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    tag = page.headers["etag"]
    assert client.get("/", headers={"if-none-match": tag}).status_code == 304
    for name in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "app.py", ""):
        response = client.get(f"/web/{name}")
        assert response.status_code == 404, name


def test_reports_and_downloads_cannot_run_in_the_studio(around, client):
    (around / "r.html").write_text("<script>alert(1)</script>")
    report = client.get("/api/report", params={"file": "r.html"}, headers=BEARER)
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts;")
    assert "allow-same-origin" not in report.headers["content-security-policy"]
    got = client.get("/api/download", params={"file": "r.html"}, headers=BEARER)
    assert got.headers["content-disposition"].startswith("attachment")
    assert got.headers["content-type"] == "application/octet-stream"
    assert (
        client.get("/api/report", params={"file": "table.csv"}, headers=BEARER).status_code == 422
    )


def test_a_dropped_file_comes_into_the_folder_once(around, client):
    new = client.post(
        "/api/upload", params={"name": "dropped.csv"}, content=b"a,b\n1,2\n", headers=BEARER
    )
    assert new.status_code == 201
    assert (around / "dropped.csv").read_bytes() == b"a,b\n1,2\n"
    assert (
        client.post(
            "/api/upload", params={"name": "dropped.csv"}, content=b"x", headers=BEARER
        ).status_code
        == 409
    )
    assert (around / "dropped.csv").read_bytes() == b"a,b\n1,2\n"
    for name in ("x.py", "x.html", "x", "sub/x.csv", ".x.csv"):
        assert (
            client.post(
                "/api/upload", params={"name": name}, content=b"x", headers=BEARER
            ).status_code
            == 422
        )
    assert (
        client.post(
            "/api/upload", params={"name": "empty.csv"}, content=b"", headers=BEARER
        ).status_code
        == 422
    )
    assert not (around / "empty.csv").exists()


def test_a_model_that_is_replaced_is_read_again(around, client):
    rng = np.random.default_rng(1)
    for k in (1, 2):
        PCA(k).fit(rng.normal(size=(20, 4))).save(around / "changing.safetensors")
        assert (
            client.get(
                "/api/model", params={"file": "changing.safetensors"}, headers=BEARER
            ).json()["components"]
            == k
        )
    (around / "changing.safetensors").unlink()
    assert (
        client.get(
            "/api/model", params={"file": "changing.safetensors"}, headers=BEARER
        ).status_code
        == 404
    )


def test_answers_are_sent_at_once():
    """asyncio does so for sockets that it knows for TCP; others keep the second packet of an answer
    back for 40 ms."""
    import socket

    from eckart.studio.run import listening

    with listening(None) as held:
        assert held.proto == socket.IPPROTO_TCP


def test_every_option_that_names_a_file_names_one_of_the_folder(around, tmp_path):
    """All options of all verbs: one whose help speaks of a file to be read refuses every way out of
    the folder."""
    from eckart.studio.forms import VERBS, form, words_of

    outside = tmp_path.parent / "outside.csv"
    outside.write_text("a,b\n1,2\n")
    folder = Folder.of(around)
    data = next(f["file"] for f in folder.listing()[0] if f["kind"] == "data")
    about_the_file = {
        "delimiter",
        "no_header",
        "encoding",
        "image",
        "lines",
        "split_documents",
    }  # how the data's own file is written
    refused = set()
    for verb in VERBS:
        for option in form(verb)["options"]:
            name = option["name"]
            speaks_of_files = any(word in option["help"].lower() for word in ("file", ".csv"))
            if (
                name in about_the_file
                or option["kind"] in ("switch", "whole", "number")
                or not speaks_of_files
            ):
                continue
            for way in (
                str(outside),
                f"{outside}:a",
                f"{outside}:a:b",
                "../outside.csv",
                "../outside.csv:a",
                ".hidden:a",
                "x:/../../outside.csv",
            ):
                with pytest.raises(Problem):
                    words_of(verb, data, {name: way}, folder)
            refused.add(name)
    assert {
        "titles",
        "row_features",
        "column_features",
        "vocabulary",
        "seed_words",
        "stop_words",
    } <= refused


def test_a_name_with_a_null_byte_is_no_file(client):
    assert client.get("/web/%00").status_code == 404
    assert client.get("/web/app.js%00.txt").status_code == 404


def test_what_comes_before_the_token_is_short(around):
    with TestClient(application(Folder.of(around), TOKEN, ["testserver"], "eckart")) as c:
        sent = b'{"token":[' + b"[0]," * 20_000 + b"0]}"
        response = c.post(
            "/api/session", content=sent, headers={"content-type": "application/json"}
        )
        assert response.status_code == 413


@pytest.mark.timeout(20)
def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path):
    """An archive may hold one under the name of a model."""
    os.mkfifo(tmp_path / "model.safetensors")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with TestClient(application(Folder.of(tmp_path), TOKEN, ["testserver"], "eckart")) as c:
        files = c.get("/api/folder", headers=BEARER).json()["files"]
    assert [file["name"] for file in files] == ["a.csv"]
