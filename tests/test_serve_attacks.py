"""What a stranger may send to the service: small bodies that stand for gigabytes, foreign pages,
heads without end; and files that change."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pyarrow as pa
import pytest

from eckart import ALS, PCA

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip(
    "starlette", reason="starlette, whose client asks the questions, is not installed"
)
pytest.importorskip("httpx", reason="httpx is not installed")
from starlette.testclient import TestClient

from eckart.serve.app import Limits, application

HERE = "http://127.0.0.1"
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
MIB = 2**20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    ratings = [
        (f"u{i}", f"c{j}", float(rng.integers(1, 6)))
        for i in range(30)
        for j in rng.choice(40, 8, replace=False)
    ]
    ALS(2, random_state=0).fit(ratings, rows=0, columns=1, values=2).save(
        folder / "films.safetensors"
    )
    PCA(2).fit(rng.normal(size=(40, 5))).save(folder / "table.safetensors")
    return folder


@pytest.fixture(scope="module")
def client(files):
    with TestClient(
        application({p.stem: p for p in files.glob("*.safetensors")}),
        HERE,
        raise_server_exceptions=False,
    ) as c:
        yield c


def _stream(table, **options):
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def _no_columns(rows):
    batch = pa.RecordBatch.from_struct_array(
        pa.StructArray.from_arrays([], names=[], mask=pa.array(np.zeros(rows, bool)))
    )
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def _one_name_for_many_columns(columns, length):
    """A schema whose fields are one field, pointed at from everywhere (FlatBuffers by hand)."""
    field = 60 + 4 * columns + 24
    size = -(-(field + 36 + length + 1) // 8) * 8
    head = bytearray(size)
    for at, kind, *values in (
        (0, "I", 32),
        (8, "5H", 10, 16, 4, 6, 8),  # where the fields of the message lie
        (20, "4H", 8, 8, 0, 4),  # those of the schema
        (32, "iHBxI", 24, 4, 1, 8),  # the message: version, a schema, 8 bytes from here
        (48, "iI", 28, 4),  # the schema: its columns, 4 bytes from here
        (56, "I", columns),
        (field - 24, "8H", 16, 20, 4, 0, 8, 12, 0, 16),
        (field - 8, "3H", 6, 8, 4),
        (field, "iIBxxxII", 24, 28, 3, 8, 12),  # the column: its name, a float, no children
        (field + 20, "iH", 28, 2),
        (field + 32, "I", length),
    ):
        struct.pack_into(f"<{kind}", head, at, *values)
    for i in range(columns):
        struct.pack_into("<I", head, 60 + 4 * i, field - (60 + 4 * i))
    head[field + 36 : field + 36 + length] = b"n" * length
    return struct.pack("<iI", -1, size) + bytes(head) + struct.pack("<iI", -1, 0)


def _grown(dictionaries, length):
    """A dictionary that is added to before each batch, and is copied whole each time."""
    words, kind = ["x" * length], pa.dictionary(pa.int32(), pa.string())
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(out, pa.schema([("rows", kind)]), options=options) as writer:
        for i in range(dictionaries):
            words = [*words, str(i)]
            codes = pa.DictionaryArray.from_arrays(pa.array([i], pa.int32()), words)
            writer.write_batch(pa.record_batch([codes], ["rows"]))
    return out.getvalue().to_pybytes()


def _with_metadata():
    out, batch = pa.BufferOutputStream(), pa.record_batch([pa.array([1.0])], ["x0"])
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    return out.getvalue().to_pybytes()


def _long_word(columns):
    codes = pa.array(np.zeros(600, np.int8))
    long = pa.DictionaryArray.from_arrays(codes, ["x" * 10**5])
    return _stream(pa.table({f"x{j}": long for j in range(columns)}))


HOSTILE = {
    "one name for many columns": lambda: _one_name_for_many_columns(10_000, 20_000),
    "dictionaries that grow": lambda: _grown(300, 2 * MIB),
    "long words in many columns": lambda: _long_word(30),
    "compression told in metadata": _with_metadata,
    "many small batches of many columns": lambda: _stream(
        pa.concat_tables([pa.table({f"x{j}": [1.0] for j in range(2000)})] * 60)
    ),
    "nulls": lambda: _stream(pa.table({"rows": pa.nulls(10**8)})),
    "run ends": lambda: _stream(
        pa.table({"x0": pa.RunEndEncodedArray.from_arrays([10**8], [1.0])})
    ),
    "inflating": lambda: _stream(
        pa.table({f"x{j}": np.zeros(2_000_000) for j in range(5)}), compression="zstd"
    ),
    "inflating dictionary": lambda: _stream(
        pa.table({"rows": pa.array(["a" * 10**6]).dictionary_encode()}), compression="lz4"
    ),
    "long words by number": lambda: _stream(
        pa.table({"rows": pa.array(["x" * 10**5]).dictionary_encode().take(pa.array([0] * 9000))})
    ),
    "many rows": lambda: _stream(pa.table({"rows": pa.array(np.zeros(10**6, bool))})),
    "no columns": lambda: _no_columns(10**6),
    "lists": lambda: _stream(pa.table({"X": pa.array([[1.0]] * 3)})),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("place", ["films/recommend", "table/transform"])
def test_a_stream_is_refused_before_it_costs_anything(client, kind, place):
    body = HOSTILE[kind]()
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    response = client.post(f"/v1/models/{place}", content=body, headers=ARROW)
    assert response.status_code in (413, 415, 422), response.text
    assert time.process_time() - begin < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


LENGTHS = """
import struct, sys
import pyarrow as pa
from eckart.serve.arrow import read_table
from eckart.serve.problems import Problem

whole, read = sys.stdin.buffer.read(), 0
for at in range(0, len(whole) - 7, 4):
    for length in (2**39, 2**31 - 8, -1):
        body = bytearray(whole)
        struct.pack_into("<q" if at % 8 == 0 else "<i", body, at, length % 2**31 if at % 8 else length)
        try:
            read_table(bytes(body), 10_000, 10**6)
            read += 1
        except Problem as problem:
            assert problem.status < 500
print(read)
"""


@pytest.mark.parametrize("column", [["u1", "u2"], [1.0, 2.0]], ids=["dictionary", "numbers"])
def test_lengths_that_are_not_there_end_no_process(column):
    """Lengths of a dictionary were believed before they were held against its buffers: 512 bytes
    ended the service by a signal."""
    values = pa.array(column)
    table = pa.table({"rows": values.dictionary_encode() if column[0] == "u1" else values})
    command = [sys.executable, "-c", LENGTHS]
    done = subprocess.run(command, input=_stream(table), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_dictionaries_of_plain_words_are_read(client):
    ids = pa.array(["u1", "u2", "u1"]).dictionary_encode()
    response = client.post(
        "/v1/models/films/recommend?n=2", content=_stream(pa.table({"rows": ids})), headers=ARROW
    )
    assert response.json()["answer"]["row"] == ["u1"] * 2 + ["u2"] * 2 + ["u1"] * 2


@pytest.mark.parametrize("piece", [b"[0],", b"{},", b'"a",', b"[[],", b'["[",'])
def test_json_of_many_objects_is_counted_before_it_is_parsed(client, piece):
    body = b'{"X":[' + piece * (8 * MIB // len(piece)) + b"[0]]}"
    begin = time.process_time()
    response = client.post(
        "/v1/models/table/transform", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code == (422 if piece == b"{}," else 413), response.text
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"X":"' + b'\\"[' * 20_000,
        b'{"X":"' + b"\\\\[" * 4 * MIB,
        b'{"X":[[' + b"1e0," * 3 * MIB + b"1]]}",
        b'{"X":"' + b"a" * 12 * MIB + b'"}',
    ],
    ids=["marks in a text without an end", "slashes", "numbers", "one text"],
)
def test_json_is_looked_through_once(client, body):
    """Marks in a text that does not end were tried as its beginning one by one: 5 s for 60 kB."""
    begin = time.process_time()
    for place in ("table/transform", "films/recommend"):
        sent = body.replace(b"X", b"rows", 1) if place.startswith("films") else body
        response = client.post(
            f"/v1/models/{place}", content=sent, headers={"content-type": "application/json"}
        )
        assert response.status_code in (400, 413, 422), response.text
    assert time.process_time() - begin < 2


def test_answers_and_texts_have_a_limit(files):
    app = application(
        {p.stem: p for p in files.glob("*.safetensors")}, Limits(answer=400, letters=100)
    )
    rows, texts = ["u1"] * 8, ["abc " * 26]
    with TestClient(app, HERE, raise_server_exceptions=False) as c:
        for verb, sent, status in (
            ("films/recommend", {"rows": rows}, 200),
            ("films/recommend", {"rows": rows, "n": 11}, 413),
            ("films/recommend", {"rows": rows, "n": 11, "candidates": ["c1", "c2"]}, 200),
            ("films/recommend", {"rows": rows, "n": 11, "by": "prediction", "exclude": "c3"}, 413),
            ("films/similar", {"rows": rows, "n": 11}, 413),
            ("films/transform", {"X": [[1.0] * 40] * 11}, 413),
            ("table/impute", {"X": [[1.0] * 5] * 81}, 413),
            ("table/transform", {"X": [[1.0] * 5] * 81}, 200),
            ("table/transform", {"texts": texts}, 413),
        ):
            wide = len(sent.get("X", [[]])[0]) == 40
            if wide:
                sent = {"X": [[1.0] * c.get("/v1/models/films").json()["columns"]] * 11}
            assert c.post(f"/v1/models/{verb}", json=sent).status_code == status, (verb, sent)


def test_dates_that_no_calendar_has_are_refused(client):
    for kind, value in ((pa.timestamp("s"), 2**62), (pa.date64(), 2**62)):
        body = _stream(pa.table({"rows": pa.array([value], kind)}))
        response = client.post("/v1/models/films/recommend", content=body, headers=ARROW)
        assert response.status_code in (400, 422), response.text


def test_descriptions_of_usual_writers_are_read(client):
    """Metadata of pandas, of fields, and dates with a zone."""
    frame = pa.table({f"a rather long name {j}": [1.0, 2.0] for j in range(5)})
    fields = [f.with_metadata({"PARQUET:field_id": str(j)}) for j, f in enumerate(frame.schema)]
    for schema in (
        frame.schema.with_metadata({"pandas": "{" + "x" * 5000 + "}"}),
        pa.schema(fields),
    ):
        response = client.post(
            "/v1/models/table/transform", content=_stream(frame.cast(schema)), headers=ARROW
        )
        assert response.status_code == 200, response.text
    zoned = pa.table({"rows": pa.array([0], pa.timestamp("us", tz="Europe/Berlin"))})
    response = client.post("/v1/models/films/recommend", content=_stream(zoned), headers=ARROW)
    assert "1970-01-01" in response.text


def test_brackets_inside_of_ids_are_no_lists(client):
    ids = [f'nobody [{i}] "' + "[" * 20 for i in range(9000)]
    response = client.post("/v1/models/films/recommend", json={"rows": ids})
    assert response.status_code == 422
    assert "nobody" in response.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:8000"}, 421),
        ({"host": ""}, 421),
        ({"host": "[::1]:80"}, 200),
        ({"host": "localhost:9"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
    ],
)
def test_pages_of_other_origins_are_refused(client, headers, status):
    sent = {"content-type": "application/json"} | headers
    assert (
        client.post(
            "/v1/models/films/recommend", content=b'{"rows": ["u1"]}', headers=sent
        ).status_code
        == status
    )


def test_names_that_were_allowed_may_be_used(files):
    app = application({"films": files / "films.safetensors"}, hosts=("models.example",))
    with TestClient(app, "http://models.example") as c:
        assert c.get("/v1/models").status_code == 200
        assert c.get("/v1/models", headers={"host": "other.example"}).status_code == 421


def test_one_odd_file_does_not_end_the_looks_at_the_others(files, tmp_path, monkeypatch):
    for name in ("films", "table"):
        shutil.copy(files / f"{name}.safetensors", tmp_path)
    app = application({p.stem: p for p in tmp_path.glob("*.safetensors")})
    import eckart.serve.models as models

    whole = models.load

    def odd(path):
        if path.name == "films.safetensors":
            raise RuntimeError("a fault nobody thought of")
        return whole(path)

    with TestClient(app, HERE) as c:
        monkeypatch.setattr(models, "load", odd)
        os.utime(tmp_path / "films.safetensors", ns=(1, 1))
        PCA(1).fit(np.random.default_rng(5).normal(size=(30, 5))).save(
            tmp_path / "table.safetensors"
        )
        for _ in range(2):
            app.registry.look()
        cards = {card["name"]: card for card in c.get("/v1/models").json()["models"]}
        assert "nobody thought of" in cards["films"]["refused"]
        assert cards["table"]["components"] == 1
        assert c.get("/ready").json() == {"status": "ready", "refused": 1}
        assert "eckart_models_refused 1" in c.get("/metrics").text
        assert c.post("/v1/models/films/recommend", json={"rows": ["u1"]}).status_code == 200


@pytest.mark.timeout(30)
@pytest.mark.parametrize("shared", [False, True], ids=["read", "a copy that workers share"])
def test_what_is_no_file_is_refused_without_a_path(files, tmp_path, shared):
    """A link to a device was copied until the disc was full."""
    path = tmp_path / "films.safetensors"
    shutil.copy(files / "films.safetensors", path)
    (tmp_path / "copies").mkdir()
    app = application({"films": path}, copies=tmp_path / "copies" if shared else None)
    for make in (
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to(tmp_path),
        lambda: os.mkfifo(path),
        lambda: path.write_bytes(b"\xff" * 99),
    ):
        path.unlink()
        make()
        for _ in range(2):
            app.registry.look()
        reason = app.registry.cards()[0]["refused"]
        assert reason.startswith("films.safetensors ")
        assert str(tmp_path) not in reason


@pytest.mark.parametrize("shared", [False, True], ids=["read", "a copy that workers share"])
def test_a_file_that_is_written_in_place_changes_no_answer(files, tmp_path, shared):
    path = tmp_path / "films.safetensors"
    shutil.copy(files / "films.safetensors", path)
    (tmp_path / "copies").mkdir()
    app = application({"films": path}, copies=tmp_path / "copies" if shared else None)
    with TestClient(app, HERE) as c:
        before = c.post("/v1/models/films/recommend", json={"rows": ["u1"]}).json()
        size = path.stat().st_size
        with path.open("r+b") as file:  # as cp does: the same file, shorter, then other bytes
            file.truncate(100)
            assert c.post("/v1/models/films/recommend", json={"rows": ["u1"]}).json() == before
            file.seek(0)
            file.write(b"\xff" * size)
        assert c.post("/v1/models/films/recommend", json={"rows": ["u1"]}).json() == before
        for _ in range(3):
            app.registry.look()
        assert c.post("/v1/models/films/recommend", json={"rows": ["u1"]}).json() == before
        assert c.get("/v1/models/films").json()["version"] == before["version"]


def test_copies_of_versions_before_are_removed(files, tmp_path):
    """A model that is replaced each day would fill the disc."""
    path, copies = tmp_path / "films.safetensors", tmp_path / "copies"
    copies.mkdir()
    shutil.copy(files / "films.safetensors", path)
    app = application({"films": path}, copies=copies)
    with TestClient(app, HERE) as c:
        for time_of_file in range(1, 4):
            os.utime(path, ns=(time_of_file, time_of_file))
            for _ in range(2):
                app.registry.look()
        assert app.registry.swaps == 3
        assert len(list(copies.iterdir())) == 1
        assert c.post("/v1/models/films/recommend", json={"rows": ["u1"]}).status_code == 200


def test_limits_of_rows_hold_for_streams(files):
    app = application({"films": files / "films.safetensors"}, Limits(rows=5))
    with TestClient(app, HERE) as c:
        body = _stream(pa.table({"rows": ["u1"] * 6}))
        assert c.post("/v1/models/films/recommend", content=body, headers=ARROW).status_code == 413


CHUNKED = (
    b"POST /v1/models/films/recommend HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _answer(port, request):
    """What comes back; nothing where the connection is cut."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.settimeout(5)
        try:
            s.sendall(request)
            return s.recv(100)
        except (BrokenPipeError, ConnectionResetError):
            return b""


def test_a_real_process_cuts_heads_without_end_and_hears_sigterm(files, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path / "log").open("w")
    command = [
        sys.executable,
        "-c",
        "from eckart.cli.main import run; run()",
        "serve",
        str(files / "films.safetensors"),
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).read()
                break
            except OSError:
                time.sleep(0.05)
        for head in (
            b"x: " + b"a" * 300_000,
            b"".join(b"x%d: %s\r\n" % (i, b"b" * 1000) for i in range(300)),
            b"x: " + b"a" * 70_000 + b"\r\n\r\n",
        ):
            answer = _answer(port, b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n" + head)
            assert answer == b"" or b" 431 " in answer
        for rest in (
            b"0\r\nx: " + b"a" * 300_000,
            b"0\r\n" + b"x: y\r\n" * 50_000,
            b"5;" * 150_000,
        ):
            assert _answer(port, CHUNKED + rest) == b""
        body = b'{"rows":[' + b"0," * (7 * MIB) + b"0]}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/models/films/recommend",
            body,
            {"content-type": "application/json"},
        )

        def send():
            with contextlib.suppress(OSError):
                urllib.request.urlopen(request, timeout=30)

        sender = threading.Thread(target=send)
        sender.start()
        begin = time.perf_counter()
        while sender.is_alive():
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).read()
        assert time.perf_counter() - begin < 10
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        log.close()
