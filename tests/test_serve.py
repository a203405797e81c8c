"""The service: the same answers as the models, every error a problem in words, limits, swaps, and a
real process that drains."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eckart import ALS, PCA, PMI, load
from eckart.errors import FileError
from eckart.io.models.memory_maps import load_mapped

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip(
    "starlette", reason="starlette, whose client asks the questions, is not installed"
)
pytest.importorskip("httpx", reason="httpx is not installed")
from starlette.testclient import TestClient

from eckart.query.requests import VERBS
from eckart.serve.app import Limits, application
from eckart.serve.bodies import MANY, written
from eckart.serve.lists import Lists, _least
from eckart.serve.openapi import openapi

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
TOKEN = "t" * 32


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three saved models: a completion with ids, a reduction, an embedding."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    cells = rng.choice(50 * 300, 4000, replace=False)
    ratings = [(f"u{c // 300}", int(c % 300) + 1000, float(rng.integers(1, 11)) / 2) for c in cells]
    ALS(4, random_state=0).fit(ratings, rows=0, columns=1, values=2).save(
        folder / "films.safetensors"
    )
    PCA(2).fit(rng.normal(size=(40, 5))).save(folder / "table.safetensors")
    texts = [[str(w) for w in rng.integers(0, 12, 8)] for _ in range(60)]
    PMI(3, min_count=1, random_state=0).fit(texts).save(folder / "words.safetensors")
    return folder


@pytest.fixture(scope="module")
def client(files):
    app = application({p.stem: p for p in files.glob("*.safetensors")})
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as c:
        yield c


@pytest.fixture(scope="module")
def films(files):
    return load(files / "films.safetensors")


def _post(client, place, **body):
    return client.post(f"/v1/models/{place}", json=body)


def _answer(client, place, **body):
    response = _post(client, place, **body)
    assert response.status_code == 200, response.text
    return response.json()["answer"]


def _stream(table):
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("rows", ["u3", ["u3", "u49", "u3"], [f"u{i}" for i in range(50)]])
def test_lists_are_those_of_the_model(client, films, rows, exclude_seen):
    for n in (1, 7, 300):
        found = _answer(client, "films/recommend", rows=rows, n=n, exclude_seen=exclude_seen)
        wanted = films.recommend(rows, n, exclude_seen=exclude_seen, by="prediction").to_table()
        assert found["row"] == wanted["row"].tolist()
        np.testing.assert_allclose(found["score"], wanted["score"], rtol=1e-5)
        if n < 300:  # far down the list scores that differ in the last digit may change places
            assert found["column"] == wanted["column"].tolist()
            assert found["observations"] == wanted["observations"].tolist()


def test_every_verb_of_a_completion(client, films):
    np.testing.assert_allclose(
        _answer(client, "films/predict", rows=["u1", "u2"], columns=[1003, 1004])["prediction"],
        films.predict(["u1", "u2"], [1003, 1004]),
    )
    np.testing.assert_allclose(
        _answer(client, "films/predict", rows=["new"], columns=[1003], unknown="mean")[
            "prediction"
        ],
        films.predict("new", 1003, unknown="mean"),
    )
    assert (
        _answer(client, "films/similar", columns=1003, n=3)["column"]
        == films.similar(columns=1003, n=3).columns.ravel().tolist()
    )
    why = _answer(client, "films/explain", row="u1", column=1003)
    told = films.explain("u1", 1003)
    assert why["column"] == [*(c for c, _, _ in told.shares), None]
    np.testing.assert_allclose(why["share"], [*(s for _, _, s in told.shares), told.base])
    new = {"rows": ["me"] * 3, "columns": [1001, 1002, 1250], "values": [5, 1.5, 4]}
    from eckart import observed

    x = observed(list(zip(*new.values())), rows=0, columns=1, values=2)
    assert (
        _answer(client, "films/recommend", X=new, n=5)["column"]
        == films.recommend(X=x, n=5, by="prediction").columns.ravel().tolist()
    )
    filled = _answer(client, "films/transform", X=new)
    assert filled["1250"] == [4.0]
    np.testing.assert_allclose([v[0] for v in filled.values()], films.transform(x)[0], rtol=1e-6)
    limited = _answer(
        client, "films/recommend", rows="u3", candidates=[1003, 1004], exclude_seen=False, n=5
    )
    assert sorted(limited["column"]) == [1003, 1004]
    assert _answer(client, "films/certify")["check"]


def test_reductions_and_embeddings(client, files):
    pca, words = load(files / "table.safetensors"), load(files / "words.safetensors").vectors_
    x = [[1.0, 2.0, None, 0.5, -1.0], [0.0] * 5]
    given = np.array(x, float)
    np.testing.assert_allclose(
        np.column_stack(list(_answer(client, "table/transform", X=x).values())),
        pca.transform(given),
    )
    np.testing.assert_allclose(
        np.column_stack(list(_answer(client, "table/impute", X=x).values())), pca.impute(given)
    )
    near = _answer(client, "words/neighbours", words=["1", "2"], n=2)
    assert near["neighbour"] == words.neighbours(["1", "2"], 2).words.ravel().tolist()
    assert _answer(client, "words/analogy", a="1", b="2", c="3", n=1)["neighbour"] == [
        words.analogy("1", "2", "3")[0][0]
    ]


def test_arrow_streams_both_ways(client, films, files):
    head = ARROW | {"accept": ARROW["content-type"]}
    body = _stream(pa.table({"rows": ["u1", "u2"]}))
    response = client.post("/v1/models/films/recommend?n=3", content=body, headers=head)
    table = pa.ipc.open_stream(response.content).read_all()
    assert (
        table.column("column").to_pylist()
        == films.recommend(["u1", "u2"], 3, by="prediction").columns.ravel().tolist()
    )
    entries = pa.table({"row": ["me", "me"], "column": [1001, 1002], "value": [5.0, 1.0]})
    response = client.post("/v1/models/films/recommend", content=_stream(entries), headers=head)
    assert pa.ipc.open_stream(response.content).read_all().num_rows == 10
    wide = pa.table({f"x{j}": np.ones(3) for j in range(5)})
    response = client.post("/v1/models/table/transform", content=_stream(wide), headers=head)
    np.testing.assert_allclose(
        pa.ipc.open_stream(response.content).read_all().column(0),
        load(files / "table.safetensors").transform(np.ones((3, 5)))[:, 0],
    )
    assert client.post(
        "/v1/models/films/recommend", content=body[:-20], headers=head
    ).status_code in (200, 400)
    assert (
        client.post(
            "/v1/models/films/recommend", content=b"ARROW1garbage", headers=head
        ).status_code
        == 400
    )


@pytest.mark.parametrize(
    ("place", "body", "status", "words"),
    [
        (
            "films/recommend",
            {"rows": ["nobody"]},
            422,
            "row must be one of the 50 row labels, got 'nobody'",
        ),
        ("films/recommend", {"rows": [1]}, 422, "row must be one of the 50 row labels, got '1'"),
        ("films/recommend", {}, 422, "rows .*or X"),
        ("films/recommend", {"rows": ["u1"], "n": 0}, 422, "n must be 1 to 1000, got 0"),
        ("films/recommend", {"rows": ["u1"], "n": True}, 422, "n must be a whole number, got True"),
        ("films/recommend", {"rows": ["u1"], "by": "magic"}, 422, "auto or chance or prediction"),
        ("films/recommend", {"rows": ["u1"], "colour": 1}, 422, "got 'colour'"),
        ("films/recommend", {"rows": []}, 422, "at least one"),
        ("films/recommend", {"rows": [2**70]}, 422, "must be -9223372036854775808 to"),
        (
            "films/predict",
            {"rows": ["u1", "u2"], "columns": [1, 2, 3]},
            422,
            "columns must be 2, one for each row id",
        ),
        (
            "films/transform",
            {"X": {"rows": ["a"], "columns": [1001], "values": [1, 2]}},
            422,
            "as many of each",
        ),
        (
            "films/transform",
            {"X": {"rows": ["a"], "columns": [5], "values": [1]}},
            422,
            "column must be one of the 300 column labels, got 5",
        ),
        ("films/neighbours", {"words": "x"}, 422, "for model 'films' \\(ALS\\), got 'neighbours'"),
        ("table/transform", {"X": [[1, 2]]}, 422, "2 features"),
        ("table/transform", {"X": [[1, 2], [1]]}, 422, "the same number of numbers, got 1 and 2"),
        (
            "table/transform",
            {"X": [[1, "a", 3, 4, 5]]},
            422,
            r"X\[0\]\[1\] must be a number or null, got 'a'",
        ),
        ("table/transform", {}, 422, "X is missing"),
        ("nothing/transform", {}, 404, "model must be one of films, table, words"),
        ("films/dance", {}, 404, "got 'dance'"),
    ],
)
def test_errors_say_what_is_wrong_and_what_is_right(client, place, body, status, words):
    response = _post(client, place, **body)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    import re

    assert re.search(words, response.json()["detail"]), response.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"{",
        b'{"rows": NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"rows": ' + b"1" * 6000 + b"}",
        b'"' + b"\\ud800" + b'"',
    ],
)
def test_bodies_that_are_no_json(client, body):
    response = client.post(
        "/v1/models/films/recommend", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code in (400, 413, 422)
    assert response.json()["detail"]


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["u1", 1003, "1"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["rows", "columns", "values", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)
numbers = st.none() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False)
matrices = st.sampled_from([1, 2, 5, 300]).flatmap(
    lambda wide: st.lists(st.lists(numbers, min_size=wide, max_size=wide), min_size=1, max_size=3)
)
fields_ = [
    "X",
    "rows",
    "columns",
    "row",
    "column",
    "words",
    "a",
    "b",
    "c",
    "n",
    "by",
    "candidates",
    "exclude",
    "exclude_seen",
    "min_support",
    "unknown",
    "method",
    "z",
]


@settings(
    max_examples=int(os.environ.get("ECKART_FUZZ", "80")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    model=st.sampled_from(["films", "table", "words"]),
    verb=st.sampled_from([*VERBS, "x"]),
    body=st.dictionaries(st.sampled_from(fields_), anything, max_size=5),
    query=st.dictionaries(st.sampled_from(["n", "by", "rows"]), st.text(max_size=5), max_size=1),
    x=st.none() | matrices,
)
def test_no_body_makes_the_service_fail(client, model, verb, body, query, x):
    if x is not None:  # rows of numbers, as wide as a model or not, with huge ones among them
        body, query = body | {"X": x} if len(body) % 2 else {"X": x}, {}
    response = client.post(
        f"/v1/models/{model}/{verb}",
        content=json.dumps(body).encode("utf-8", "surrogatepass"),
        params=query,
        headers={"content-type": "application/json"},
    )
    assert response.status_code < 500, (verb, body, response.text)
    if response.status_code != 200:
        assert set(response.json()) == {"type", "title", "status", "detail"}


@settings(
    max_examples=int(os.environ.get("ECKART_FUZZ", "60")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(verb=st.sampled_from(list(VERBS)), data=st.data())
def test_no_damaged_stream_makes_the_service_fail(client, verb, data):
    whole = bytearray(
        _stream(pa.table({"row": ["me", "me"], "column": [1001, 1002], "value": [5.0, 1.0]}))
    )
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    response = client.post(
        f"/v1/models/films/{verb}",
        content=bytes(whole[: data.draw(st.integers(0, len(whole)))]),
        headers=ARROW,
    )
    assert response.status_code < 500, response.text


def test_limits_and_tokens(files):
    app = application({"films": files / "films.safetensors"}, Limits(body=2000, rows=20), TOKEN)
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as c:
        assert c.get("/health").status_code == c.get("/ready").status_code == 200
        for head in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
            assert c.get("/v1/models", headers=head).status_code == 401
        c.headers["authorization"] = f"Bearer {TOKEN}"
        assert c.get("/v1/models").json()["models"][0]["class"] == "ALS"
        assert c.post("/v1/models/films/recommend", content=b" " * 3000).status_code == 413
        assert (
            c.post("/v1/models/films/recommend", content=iter([b" " * 1000] * 3)).status_code == 413
        )
        assert (
            c.post(
                "/v1/models/films/recommend", json={"rows": [f"u{i % 50}" for i in range(100)]}
            ).status_code
            == 413
        )
        assert (
            "at most 20 rows, got 21"
            in c.post(
                "/v1/models/films/predict", json={"rows": ["u1"] * 21, "columns": [1001] * 21}
            ).json()["detail"]
        )
        app.meter.busy = 64
        busy = c.get("/v1/models")
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
        app.meter.busy = 0
        assert c.get("/nowhere").status_code == 404
        assert c.get("/v1/models/films/recommend").status_code == 405
        assert 'status="413"' in c.get("/metrics").text


def test_logs_hold_no_data(client, caplog):
    with caplog.at_level("INFO", "eckart.serve"):
        _post(client, "films/recommend", rows=["u1", "secret-person"])
    lines = [json.loads(r.message) for r in caplog.records if r.name == "eckart.serve"]
    assert lines[-1]["status"] == 422
    assert "secret" not in caplog.text


def test_the_description_covers_the_verbs(client):
    told = client.get("/openapi.json").json()
    names = told["paths"]["/v1/models/{name}"]["get"]["parameters"][0]["schema"]["enum"]
    assert sorted(names) == ["films", "table", "words"]
    assert told == json.loads(json.dumps(openapi(told["info"]["version"], tuple(names))))
    assert {place.rpartition("/")[2] for place in told["paths"]} >= set(VERBS)
    page = client.get("/docs")
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_replaced_file_is_taken_in_and_a_hostile_one_refused(files, tmp_path):
    path = tmp_path / "m.safetensors"
    shutil.copy(files / "table.safetensors", path)
    app = application({"m": path})
    with TestClient(app, "http://127.0.0.1") as c:
        before = c.get("/v1/models/m").json()["version"]
        new = PCA(1).fit(np.random.default_rng(5).normal(size=(30, 5)))
        new.save(path)
        app.registry.look()
        app.registry.look()
        card = c.get("/v1/models/m").json()
        assert card["version"] != before
        assert card["components"] == 1
        damaged = bytearray(path.read_bytes())
        damaged[-3] ^= 1
        (tmp_path / "x").write_bytes(damaged)
        os.replace(tmp_path / "x", path)
        app.registry.look()
        app.registry.look()
        told = c.get("/v1/models").json()["models"][0]
        assert "checksum" in told["refused"]
        assert c.post("/v1/models/m/transform", json={"X": [[0.0] * 5]}).status_code == 200
    with pytest.raises(FileError, match="checksum"):
        application({"m": path})


def test_mapped_models_are_those_of_load_and_damage_is_found(files, tmp_path):
    rng = np.random.default_rng(1)
    for path in files.glob("*.safetensors"):
        whole, mapped = load(path), load_mapped(path)
        a, b = whole.fit_.factors.to_state()[0], mapped.fit_.factors.to_state()[0]
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
        raw = path.read_bytes()
        for at in rng.integers(0, len(raw), 60):
            bad = bytearray(raw)
            bad[at] ^= 1 << int(rng.integers(8))
            (tmp_path / "bad.safetensors").write_bytes(bad)
            with pytest.raises(FileError):
                load_mapped(tmp_path / "bad.safetensors")
        (tmp_path / "bad.safetensors").write_bytes(raw[:-9])
        with pytest.raises(FileError):
            load_mapped(tmp_path / "bad.safetensors")


@given(st.integers(1, 60), st.integers(60, 700), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_at_least_n_scores_reach_the_bound(n, m, seed):
    scores = np.random.default_rng(seed).integers(0, 50, (3, m)).astype(np.float32)
    scores[scores < 5] = -np.inf
    for row, least in zip(scores, _least(scores, n)):
        assert (row >= least).sum() >= n
        assert np.sort(row)[m - n] >= least


@given(
    dtype=st.sampled_from(["f2", "f4", "f8", "i8", "u8", "i4"]),
    count=st.sampled_from([3, MANY, MANY + 1, 3 * MANY]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30, deadline=None)
def test_numbers_are_written_exactly_by_both_writers(dtype, count, seed):
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, count * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
    columns = {'a "name"': raw, "text": np.array(["é", None, "x"] * count, object)[:count]}
    told = json.loads(written("", {"model": "m"}, columns)[1])
    assert told["model"] == "m"
    assert told["answer"]["text"] == columns["text"].tolist()
    back = np.array([np.nan if v is None else v for v in told["answer"]['a "name"']], dtype)
    finite = np.isfinite(raw) if raw.dtype.kind == "f" else np.ones(count, bool)
    np.testing.assert_array_equal(back[finite], raw[finite])
    if raw.dtype.kind == "f":
        assert [v is None for v in told["answer"]['a "name"']] == (~finite).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lists_are_the_best_whatever_the_block(dtype):
    """Against a full sort, for one row, a few, and blocks shared by threads; equal scores in the
    order of the columns."""
    rng = np.random.default_rng(3)
    cells = rng.choice(400 * 1100, 20_000, replace=False)
    x = [(int(c // 1100), int(c % 1100), float(rng.integers(1, 6))) for c in cells]
    model = ALS(3, max_iter=2, random_state=0).fit(x, rows=0, columns=1, values=2)
    f = model.fit_.factors
    f = replace(f, left=f.left.astype(dtype), right=f.right.astype(dtype))
    lists = Lists(model, f)
    whole = f.left.astype(np.float64) @ f.right.astype(np.float64).T + np.asarray(
        f.column_bias, np.float64
    )
    seen = [set(np.flatnonzero(line)) for line in model.observed_.to_scipy().toarray()]
    for rows in ([7], [1, 2], list(range(40)), list(range(f.shape[0]))):
        found = lists.best(rows, 9, True)
        for line, row in enumerate(rows):
            exact = whole[row].copy()
            exact[list(seen[row])] = -np.inf
            assert not set(found.positions[line]) & seen[row]
            np.testing.assert_allclose(
                exact[found.positions[line]], np.sort(exact)[::-1][:9], rtol=3e-6, atol=3e-6
            )
            if dtype == np.float64:
                assert (
                    found.positions[line].tolist() == np.argsort(-exact, kind="stable")[:9].tolist()
                )


def test_lists_of_models_with_scales_go_the_general_way(films):
    assert Lists.of(films) is not None
    assert Lists.of(PCA(1).fit(np.eye(3))) is None


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _ask(port, rows):
    body = json.dumps({"rows": rows}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/models/films/recommend",
        body,
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def test_a_real_process_swaps_cuts_slow_clients_and_drains(files, tmp_path):
    path, port = tmp_path / "films.safetensors", _free_port()
    shutil.copy(files / "films.safetensors", path)
    command = [
        sys.executable,
        "-c",
        "from eckart.cli.main import run; run()",
        "serve",
        str(path),
        "--port",
        str(port),
        "--slow",
        "1",
        "--workers",
        "2",
    ]
    # a pipe that nobody reads would fill up and stop the process
    said = (tmp_path / "log").open("w")
    process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).read()
                break
            except OSError:
                time.sleep(0.05)
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(b"GET /health HT")
        body = socket.create_connection(("127.0.0.1", port))
        body.sendall(
            b"POST /v1/models/films/recommend HTTP/1.1\r\nhost: "
            b"127.0.0.1\r\ncontent-length: 50\r\n\r\n{"
        )
        versions, failed, stop = [], [], threading.Event()

        def load_on():
            while not stop.is_set():
                try:
                    versions.append(_ask(port, ["u1"])["version"])
                except Exception as error:
                    failed.append(repr(error))

        threads = [threading.Thread(target=load_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        model = load(path)
        for _ in range(3):
            time.sleep(1.2)  # two looks: a file is taken in when it has come to rest
            model.save(path)
        time.sleep(1.2)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed
        assert len(set(versions)) >= 3
        slow.settimeout(10)
        assert slow.recv(100) == b""
        body.settimeout(10)
        assert b" 408 " in body.recv(200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        said.close()


def test_answers_of_worker_processes_are_sent_at_once(monkeypatch):
    """Head and body are two packets; a socket without this option keeps the second back for 40
    ms."""
    import socket

    from eckart.serve import slow

    monkeypatch.setattr(slow.HttpToolsProtocol, "connection_made", lambda *_: None)
    monkeypatch.setattr(slow.Prompt, "_begin", lambda *_: None)
    with socket.socket() as held:
        transport = type("Transport", (), {"get_extra_info": lambda self, name: held})()
        slow.Prompt.connection_made(object.__new__(slow.Prompt), transport)
        assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("kind", ["LDA", "PLSA", "NMF"])
def test_models_that_were_fitted_on_texts_take_texts(kind, tmp_path, monkeypatch):
    """The answer is that of the shell's own reading of the same texts: cut by the rules of the
    fit."""
    import sys

    from eckart.cli import main as entry

    words = [["boat", "sea", "wind", "sail"], ["bread", "oven", "flour", "salt"]]
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(words[d % 2], 12)) for d in range(40)]
    (tmp_path / "t.txt").write_text("\n".join(documents) + "\n")
    steps = [] if kind == "NMF" else ["--max-iter", "20"]
    words = [
        "explain",
        str(tmp_path / "t.txt"),
        "--lines",
        "--method",
        kind.lower(),
        "-k",
        "2",
        "--held-out",
        "0",
        "--max-df",
        "1.0",
        "-q",
        *steps,
    ]
    monkeypatch.setattr(sys, "argv", ["eckart", *words, "--model", str(tmp_path / "m.safetensors")])
    with pytest.raises(SystemExit):
        entry.run()
    model = load(tmp_path / "m.safetensors")
    with TestClient(application({"m": tmp_path / "m.safetensors"}), "http://127.0.0.1") as client:
        found = np.column_stack(
            list(
                _answer(client, "m/transform", texts=["Boat, sea and SAIL!", "oven bread"]).values()
            )
        )
        from eckart import corpus

        np.testing.assert_allclose(
            found,
            model.transform(corpus(["boat sea sail", "oven bread"], vocabulary=model)),
            rtol=1e-6,
        )
        assert found[0].argmax() != found[1].argmax()
        assert "X and texts came" in _post(client, "m/transform", texts=["a"], X=[[1, 2]]).text


def test_a_model_of_numbers_refuses_texts(client):
    assert "was not fitted on texts" in _post(client, "table/transform", texts=["a text"]).text


SAVED = sorted((Path(__file__).parent / "saved").glob("*.safetensors"))


@pytest.mark.filterwarnings("ignore:column|X does not have")
@pytest.mark.parametrize("path", SAVED, ids=[path.stem for path in SAVED])
def test_rows_with_gaps_are_answered_or_refused_by_every_model(path):
    """A table of mixed kinds whose levels are words, and two answers for each row, were a 500."""
    pytest.importorskip("torch", reason="networks need torch")
    rng = np.random.default_rng(0)
    with TestClient(application({"it": path}), "http://127.0.0.1") as c:
        card = c.get("/v1/models/it").json()
        for verb in {"transform", "predict", "impute"} & set(card["verbs"]):
            for rows in (2, MANY + 1):
                x = rng.integers(0, 3, (rows, card["columns"])).astype(object)
                x[rng.random(x.shape) < 0.3] = None
                for accept in ("application/json", ARROW["content-type"]):
                    response = c.post(
                        f"/v1/models/it/{verb}", json={"X": x.tolist()}, headers={"accept": accept}
                    )
                    assert response.status_code < 500, (verb, response.text)


def test_two_answers_for_each_row_are_two_columns():
    pytest.importorskip("torch", reason="networks need torch")
    path = Path(__file__).parent / "saved" / "network_regressor_two_targets.safetensors"
    x = np.random.default_rng(0).normal(size=(MANY + 1, 6))
    with TestClient(application({"it": path}), "http://127.0.0.1") as c:
        answer = _answer(c, "it/predict", X=x.tolist())
    wanted = load(path).predict(x)
    np.testing.assert_allclose(np.column_stack([answer["label0"], answer["label1"]]), wanted)


def test_a_series_answers_for_its_cells():
    path = Path(__file__).parent / "saved" / "time_factors.safetensors"
    model = load(path)
    rows, columns = model.row_ids.names([0, 3]), model.column_ids.names([5, 1])
    with TestClient(application({"it": path}), "http://127.0.0.1") as c:
        assert c.get("/v1/models/it").json()["verbs"] == ["predict", "certify"]
        asked = {"rows": [str(v) for v in rows], "columns": [str(v) for v in columns]}
        answer = _answer(c, "it/predict", **asked)
    np.testing.assert_allclose(answer["prediction"], model.predict(rows, columns))
