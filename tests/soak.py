"""A long run of the service: load, model swaps, killed workers, slow and garbage clients, and
memory that must stay flat.

    python tests/soak.py [--seconds 3600] [--rate 100] [--swaps 100] [--kill-every 60]

Three workers serve. One of the two younger ones is killed each time, so that the oldest lives
through the whole run and sees every swap: what a worker leaks shows in it. Ends with code 1 where
an answer was wrong, where a request failed for another reason than a killed worker, where a tenth
of the questions was not asked in time, or where the memory of all processes or of the oldest worker
grew by more than 1 MB an hour (measured from the end of the first fifth on, when caches are full;
in runs under ten minutes the growth is printed and not judged).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from eckart import ALS, load


def pages(pid: int, kind: str) -> float:
    """Megabytes of a process: Pss counts a page that n processes share as 1/n of it, Rss counts it
    whole."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return (
            next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{kind}:"))
            / 1024
        )
    except (OSError, StopIteration):  # it has just been killed
        return 0.0


def growth(times: np.ndarray, held: np.ndarray) -> float:
    """Megabytes an hour, from the median of the first third to that of the last."""
    third = max(1, len(held) // 3)
    return float(
        (np.median(held[-third:]) - np.median(held[:third]))
        / max(1e-9, (times[-1] - times[0]) * 2 / 3)
        * 3600
    )


def children(parent: int) -> list[int]:
    """The workers, oldest first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and b"spawn_main" in (folder / "cmdline").read_bytes():
            found.append((int(fields[19]), int(folder.name)))
    return [pid for _, pid in sorted(found)]


class Load(threading.Thread):
    """Paced questions, each answer compared with the model's own; a new connection every 200
    questions, so that young workers are asked, too."""

    def __init__(self, port: int, rate: float, wanted: dict[str, list[int]], end: float):
        super().__init__(daemon=True)
        self.port, self.rate, self.wanted, self.end = port, rate, wanted, end
        self.done = self.cut = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        link, due, names = None, time.monotonic(), list(self.wanted)
        while time.monotonic() < self.end:
            due += 1 / self.rate
            time.sleep(max(0.0, due - time.monotonic()))
            row = random.choice(names)
            if link is not None and (self.done + self.cut) % 200 == 0:
                link.close()
                link = None
            try:
                link = link or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                link.request(
                    "POST",
                    "/v1/models/m/recommend",
                    json.dumps({"rows": row, "n": 5}),
                    {"content-type": "application/json"},
                )
                response = link.getresponse()
                body = response.read()
            except (OSError, http.client.HTTPException):  # the worker was killed while it answered
                self.cut += 1
                link = None
                continue
            if response.status != 200 or json.loads(body)["answer"]["column"] != self.wanted[row]:
                self.wrong.append(f"{row}: {response.status} {body[:200]!r}")
            self.done += 1


def pester(port: int, end: float) -> None:
    """Slow heads, bodies that never come, bytes that are no HTTP."""
    held: list[socket.socket] = []
    while time.monotonic() < end:
        try:
            link = socket.create_connection(("127.0.0.1", port), timeout=5)
            link.sendall(
                random.choice(
                    [
                        b"GET / HT",
                        b"POST /v1/models/m/recommend HTTP/1.1\r\ncontent-length: 9999\r\n\r\n{",
                        os.urandom(200),
                    ]
                )
            )
            held.append(link)
        except OSError:
            pass
        if len(held) > 20:
            held.pop(0).close()
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--kill-every", type=float, default=60)
    ask = parser.parse_args()
    rng = np.random.default_rng(0)
    cells = rng.choice(200 * 500, 8000, replace=False)
    ratings = [(f"u{c // 500}", int(c % 500), float(rng.integers(1, 11)) / 2) for c in cells]
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket() as probe,
        Path(folder, "log").open("w") as said,
    ):
        path = Path(folder, "m.safetensors")
        ALS(8, random_state=0).fit(ratings, rows=0, columns=1, values=2).save(path)
        model = load(path)
        best = model.recommend(n=5, by="prediction")
        wanted = {str(row): best.columns[i].tolist() for i, row in enumerate(best.rows)}
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [
            sys.executable,
            "-c",
            "from eckart.cli.main import run; run()",
            "serve",
            str(path),
            "--port",
            str(port),
            "--workers",
            "3",
            "--slow",
            "3",
        ]
        server = subprocess.Popen(
            command, stdout=said, stderr=said, env=os.environ | {"ECKART_LOG": "WARNING"}
        )
        try:
            return _soak(ask, server, port, model, path, wanted)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def _soak(
    ask: argparse.Namespace,
    server: subprocess.Popen,
    port: int,
    model: object,
    path: Path,
    wanted: dict[str, list[int]],
) -> int:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            if server.poll() is not None:
                print("the server ended before it was ready")
                return 1
            time.sleep(0.1)
    begin = time.monotonic()
    end = begin + ask.seconds
    load_threads = [Load(port, ask.rate / 4, wanted, end) for _ in range(4)]
    others = [threading.Thread(target=pester, args=(port, end), daemon=True)]
    for thread in (*load_threads, *others):
        thread.start()
    swaps = kills = 0
    seen: list[tuple[float, float, float]] = []
    oldest = None
    while time.monotonic() < end:
        now = time.monotonic() - begin
        if now > (swaps + 1) * ask.seconds / (ask.swaps + 1):
            model.save(path)  # type: ignore[attr-defined]
            swaps += 1
        alive = children(server.pid)
        oldest = oldest or (alive[0] if alive else None)
        if now > (kills + 1) * ask.kill_every and len(alive) > 1:
            os.kill(random.choice(alive[1:]), signal.SIGKILL)
            kills += 1
        if now > ask.seconds / 5 and len(alive) == 3:
            seen.append(
                (
                    now,
                    sum(pages(pid, "Pss") for pid in (server.pid, *alive)),
                    pages(alive[0], "Rss"),
                )
            )
        time.sleep(min(1.0, ask.seconds / 50))
    for thread in load_threads:
        thread.join(60)
    done, cut = sum(t.done for t in load_threads), sum(t.cut for t in load_threads)
    wrong = [w for t in load_threads for w in t.wrong]
    times, total, old = np.array(seen).T
    grown = [growth(times, held) for held in (total, old)]
    lived = children(server.pid)[0] == oldest
    print(
        f"{done:,} answers, {len(wrong)} wrong, {cut} cut by {kills} killed workers, {swaps} swaps"
    )
    print(f"all processes {total[-1]:.0f} MB, growing by {grown[0]:+.1f} MB an hour")
    print(
        f"the oldest worker {old[-1]:.0f} MB, growing by {grown[1]:+.1f} MB an "
        f"hour{'' if lived else ', BUT IT DIED ON THE WAY'}"
    )
    for line in wrong[:5]:
        print(line)
    short = done + cut < 0.9 * ask.rate * ask.seconds
    return int(
        bool(wrong)
        or not lived
        or short
        or cut > 8 * kills
        or (ask.seconds >= 600 and max(grown) > 1.0)
    )


if __name__ == "__main__":
    sys.exit(main())
