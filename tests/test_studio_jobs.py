"""Jobs are commands of the shell as children: their results are those of the shell, they can be
stopped, and go on to the same bits."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pytest

from eckart import LDA, load
from studio_folder import make

pytest.importorskip("starlette", reason="the extra studio is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")
from starlette.testclient import TestClient

from eckart.studio import jobs as jobs_module
from eckart.studio.app import application
from eckart.studio.folder import Folder
from eckart.studio.jobs import Job, Jobs

TOKEN = "j" * 43
SLOW = 60.0
"""Seconds that a child may take on a busy machine."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make(tmp_path_factory.mktemp("jobs"))
    for name in ("json", "numpy", "typer", "eckart"):  # what lies beside the data is never imported
        (folder / f"{name}.py").write_text(
            "raise SystemExit('the folder of the data was imported')"
        )
    return folder


@pytest.fixture
def client(folder):
    with TestClient(
        application(Folder.of(folder), TOKEN, ["testserver"]),
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as c:
        yield c


def events_of(client, id):
    """All events of a job; the client of the tests gives them when the job has ended."""
    found, kind = [], ""
    for line in client.get(f"/api/jobs/{id}/events").text.splitlines():
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            found.append((kind, json.loads(line[6:])))
    return found


def until(check):
    end = time.monotonic() + SLOW
    while not check():
        assert time.monotonic() < end
        time.sleep(0.02)


def climbing(client, id):
    job = client.get(f"/api/jobs/{id}").json()
    assert job["state"] == "running", job
    return job["phase"] == "EM" and job["done"] > 20


def test_a_job_ends_with_ordinary_files_and_tells_all_about_them(client, folder):
    begun = client.post(
        "/api/jobs",
        json={
            "verb": "reduce",
            "file": "table.csv",
            "options": {"components": "2", "labels": "group"},
        },
    )
    assert begun.status_code == 201
    events = events_of(client, begun.json()["id"])
    kinds = [kind for kind, _ in events]
    assert kinds[0] == "job"
    assert kinds[-1] == "done", events[-1]
    assert "reading table.csv" in [data["phase"] for kind, data in events if kind == "phase"]
    job = events[-1][1]
    assert (job["model"], job["report"]) == ("table-reduce.safetensors", "table-reduce.html")
    assert job["certificate"]["holds"]
    assert not any("\x1b" in words for _, words in job["summary"]), "colours of a terminal"
    assert (folder / "table-reduce.html").read_text(encoding="utf-8").startswith("<!")
    card = client.get("/api/model", params={"file": job["model"]}).json()
    assert (card["data"], card["data_sure"]) == ("table.csv", True)
    assert (
        card["shell"] == "eckart reduce table.csv --components 2 --labels group --model "
        "table-reduce.safetensors --report table-reduce.html"
    )
    by_hand = _run_python(card["python"], folder)
    np.testing.assert_array_equal(by_hand.components_, load(folder / job["model"]).components_)
    files = {f["file"]: f for f in client.get("/api/folder").json()["files"]}
    assert files[job["model"]]["made_by"] == job["id"]


def test_a_log_of_events_is_completed_as_the_page_offers_it(tmp_path):
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 500), rng.integers(0, 10, 500)
    lines = ["user,item", *(f"u{u},i{2 * i + u % 2}" for u, i in zip(users, items))]
    (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n")
    with TestClient(
        application(Folder.of(tmp_path), TOKEN, ["testserver"]),
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as client:
        best = client.get("/api/data", params={"file": "clicks.csv"}).json()["verbs"][0]
        assert (best["verb"], best["best"]) == ("complete", True)
        assert best["options"] == {
            "rows": "user",
            "columns": "item",
            "feedback": "implicit",
            "duplicates": "sum",
        }
        begun = client.post(
            "/api/jobs",
            json={
                "verb": "complete",
                "file": "clicks.csv",
                "options": best["options"] | {"components": "2"},
            },
        ).json()
        ended = events_of(client, begun["id"])[-1]
        assert ended[0] == "done", ended
        asked = {"file": ended[1]["model"], "row": "u1", "n": 3}
        found = client.post("/api/complete/recommend", json=asked)
        assert found.status_code == 200, found.text


def _run_python(text, folder):
    """What "copy as Python" gives, run where it stands."""
    import os

    before, space = os.getcwd(), {}
    os.chdir(folder)
    try:
        exec(text, space)  # the line that a person would paste
    finally:
        os.chdir(before)
    return space["model"]


@pytest.mark.slow
def test_a_stopped_job_keeps_its_best_state_and_goes_on_to_the_same_bits(client, folder):
    options = {
        "text": "text",
        "index": "id",
        "method": "lda",
        "components": "3",
        "learning": "gibbs",
        "max_iter": 3000,
        "held_out": 0,
        "min_df": "1",
        "stop_words": "none",
    }
    id = client.post(
        "/api/jobs",
        json={"verb": "explain", "file": "texts.csv", "options": options, "name": "long"},
    ).json()["id"]
    until(lambda: climbing(client, id))
    assert client.post(f"/api/jobs/{id}/stop", json={}).json()["state"] == "stopping"
    last = events_of(client, id)[-1]
    assert last[0] == "stopped", last
    assert last[1]["can_resume"]
    assert last[1]["model"] == "long.safetensors"
    early = load(folder / "long.safetensors")
    assert early.fit_.trace.reason.name == "INTERRUPTED"
    kept = list((folder / ".eckart-studio" / "jobs").glob(f"{id}.checkpoint*"))
    assert kept, "the state is kept"
    assert client.post(f"/api/jobs/{id}/resume", json={}).json()["state"] in ("running", "waiting")
    assert client.delete(f"/api/jobs/{id}").status_code == 409
    last = events_of(client, id)[-1]
    assert last[0] == "done", last
    from eckart import corpus

    counts = corpus(
        str(folder / "texts.csv"), text="text", index="id", min_df=1, max_df=0.5, stop_words=None
    )
    whole = LDA(3, learning_method="gibbs", max_iter=3000, random_state=0).fit(counts)
    np.testing.assert_array_equal(
        load(folder / "long.safetensors").fit_.factors.counts, whole.fit_.factors.counts
    )
    assert len(early.fit_.trace) < len(whole.fit_.trace)
    assert not kept[0].exists(), "what is complete needs no checkpoint"
    assert client.delete(f"/api/jobs/{id}").status_code == 204
    assert client.get(f"/api/jobs/{id}").status_code == 404
    assert (folder / "long.safetensors").exists()


@pytest.mark.slow
def test_a_plan_measures_time_and_memory_and_refuses_in_the_words_of_the_shell(client):
    plan = client.post(
        "/api/plan", json={"verb": "reduce", "file": "table.csv", "options": {"components": "2"}}
    ).json()
    assert plan["seconds"] > 0
    assert plan["memory"] > 2**20
    assert plan["shell"] == "eckart reduce table.csv --components 2"
    wrong = client.post(
        "/api/plan", json={"verb": "reduce", "file": "table.csv", "options": {"components": "99"}}
    )
    assert wrong.status_code == 422
    assert "--components" in wrong.json()["detail"]


@pytest.mark.slow
def test_jobs_that_fail_say_why_and_a_closed_studio_leaves_no_child(folder):
    app = application(Folder.of(folder), TOKEN, ["testserver"])
    with TestClient(app, headers={"authorization": f"Bearer {TOKEN}"}) as c:
        bad = c.post(
            "/api/jobs", json={"verb": "reduce", "file": "ratings.csv", "options": {}}
        ).json()
        assert events_of(c, bad["id"])[-1][0] == "failed"
        assert "eckart complete" in c.get(f"/api/jobs/{bad['id']}").json()["error"]
        options = {
            "text": "text",
            "method": "lda",
            "learning": "gibbs",
            "components": "3",
            "max_iter": 20_000,
            "held_out": 0,
        }
        long = c.post(
            "/api/jobs", json={"verb": "explain", "file": "texts.csv", "options": options}
        ).json()
        until(lambda: climbing(c, long["id"]))
        (child,) = app.studio.jobs.children.values()
    assert child.poll() is not None, "the studio waits for its children"
    again = Jobs(Folder.of(folder))
    assert again.named(long["id"]).state == "stopped"
    assert again.named(long["id"]).to_json()["can_resume"]


class _Quick:
    """A child that ends when it is told to, in place of a process."""

    def __init__(self, *args, **named):
        import io
        import threading

        self.stdin, self.end = io.BytesIO(), threading.Event()
        self.stdout = self._lines()

    def _lines(self):
        self.end.wait(10)
        yield json.dumps(
            {"event": "end", "code": 0, "answer": {"written": {"model": "x"}}}
        ).encode()

    def wait(self, timeout=None):
        return 0

    def poll(self):
        return 0 if self.end.is_set() else None

    def kill(self):
        self.end.set()


@pytest.fixture
def quick(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    monkeypatch.setattr(jobs_module.subprocess, "Popen", _Quick)
    return Jobs(Folder.of(tmp_path))


def test_two_jobs_run_and_the_others_wait_their_turn(quick):
    begun = [quick.start("reduce", "a.csv", {}) for _ in range(4)]
    assert [job.state for job in begun] == ["running", "running", "waiting", "waiting"]
    assert len({job.model for job in begun}) == 4, "no two write the same file"
    assert quick.stop(begun[3].id).state == "stopped"
    quick.children[begun[0].id].end.set()
    until(lambda: begun[2].state == "running")
    assert begun[0].state == "done"
    for child in list(quick.children.values()):
        child.end.set()
    until(lambda: not quick.children)
    assert [job.state for job in begun] == ["done", "done", "done", "stopped"]


def test_records_outlive_the_studio_and_foreign_ones_are_passed_over(quick, tmp_path):
    job = quick.start("reduce", "a.csv", {"components": "1"})
    place = tmp_path / ".eckart-studio" / "jobs"
    kept = json.loads((place / f"{job.id}.json").read_text())
    tampered = {
        "0007": {"words": ["reduce", "/etc/passwd"]},
        "0008": {"model": "../x.safetensors"},
        "0009": {"file": "../a.csv"},
        "0010": {"curve": "x"},
        "0012": {"seconds": "long"},
        "0013": {"curve": [[0, "x"]]},
        "0014": {"summary": [1]},
        "0015": {"began": None},
        "0016": {"verb": ["reduce"]},
        "0017": {"state": 3},
    }
    for id, change in tampered.items():
        (place / f"{id}.json").write_text(json.dumps(kept | {"id": id} | change))
    for id, text in {"0011": "{", "0018": "[]", "0019": "[" * 100_000, "0020": "NaN"}.items():
        (place / f"{id}.json").write_text(text)
    again = Jobs(Folder.of(tmp_path))
    assert list(again.jobs) == [job.id]
    assert again.named(job.id).state == "stopped", "it ran when the studio ended"
    assert again.named(job.id).options == {"components": "1"}


def test_long_curves_are_thinned(quick):
    job = Job("0001", "reduce", "a.csv", {}, [], "m.safetensors", None, time.time())
    for step in range(30):
        quick._take(
            job,
            "objective",
            {"fit": 1, "quantity": "q", "points": [[500 * step + i, 1.0, 0.0] for i in range(500)]},
        )
    assert len(job.curve) <= jobs_module.MOST_POINTS + 500
    assert job.curve[-1][0] == 500 * 30 - 1
    quick._take(job, "objective", {"fit": 2, "quantity": "q", "points": [[1, 2.0, 0.0]]})
    assert job.curve == [[1, 2.0, 0.0]]


def test_a_child_is_another_process_that_imports_nothing_of_the_folder(quick):
    job = quick.start("reduce", "a.csv", {})
    command = quick.command(job)
    assert command[:4] == [sys.executable, "-P", "-m", "eckart"]
    assert command[-2:] == ["--events", "--stop-with-input"]
    assert "--checkpoint" in command
    assert jobs_module.keeps_state("complete", {"method": "ease"}) is False
    assert jobs_module.keeps_state("embed", {"method": "pmi"}) is True
    assert jobs_module.keeps_state("embed", {}) is True
    assert jobs_module.reports("complete", {"method": "slim"}) is False


@pytest.mark.slow
def test_the_process_ends_quietly_while_a_page_listens(folder):
    import os
    import signal
    import subprocess
    import threading
    import urllib.request

    child = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "eckart",
            "studio",
            str(folder),
            "--port",
            "0",
            "--no-browser",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"},
    )
    address, token = child.stdout.readline().split()[1].split("#token=")
    asked = urllib.request.Request(
        f"{address}api/events", headers={"authorization": f"Bearer {token}"}
    )
    stream = urllib.request.urlopen(asked, timeout=SLOW)
    assert stream.readline().startswith(b":")
    heard = threading.Thread(target=stream.read)
    heard.start()
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=SLOW)
    heard.join(SLOW)
    assert not heard.is_alive(), "the stream ends"
    assert errors == ""


def test_heads_without_end_are_cut_before_the_token_is_asked_for(tmp_path):
    """300 MB of them were kept."""
    import os
    import socket
    import subprocess

    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "eckart", "studio", tmp_path, "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        port = int(child.stdout.readline().split("#token=")[0].rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=SLOW) as sender:
            sender.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n")
            with pytest.raises(OSError):
                sender.sendall(b"".join(b"x%d: %s\r\n" % (i, b"a" * 10**5) for i in range(300)))
    finally:
        child.terminate()
        child.communicate(timeout=SLOW)
