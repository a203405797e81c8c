"""Load on the service: top 10 of 27,000 columns, rank 64, client on the same machine; beside it
NumPy + Starlette as a user would write it.

    python benchmarks/serve.py [--seconds 5]

Both servers run one process, one after the other; the client is one process with keep-alive
connections and knows nothing but sockets. Ready: the best of four starts with byte code, which an
installed package has and the first start writes. Single: as many requests as go through 8
connections. Paced: 200 requests a second, latencies from the moment at which a request was due.
Batch: 1,000 rows in one request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

ROWS, COLUMNS, RANK = 20_000, 27_000, 64

PLAIN = """
import json, sys
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
f = np.load(sys.argv[1])
left, right, bias, indptr, indices = (f[n] for n in ("left", "right", "bias", "indptr", "indices"))
async def recommend(request):
    asked = await request.json()
    out = []
    for i in asked["rows"]:
        scores = right @ left[i] + bias
        scores[indices[indptr[i]:indptr[i + 1]]] = -np.inf
        best = np.argpartition(-scores, asked["n"])[:asked["n"]]
        best = best[np.argsort(-scores[best])]
        out.append({"row": i, "columns": best.tolist(), "scores": scores[best].tolist()})
    return JSONResponse(out)
async def ready(request):
    return JSONResponse({})
app = Starlette(routes=[Route("/v1/models/big/recommend", recommend, methods=["POST"]), Route("/ready", ready)])
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


def model(folder: Path) -> None:
    """A completion of the size asked for; two sweeps give factors, and their quality does not
    enter."""
    import warnings

    from scipy import sparse

    from eckart import ALS

    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, ROWS * COLUMNS, 1_000_000))
    x = sparse.csr_matrix(
        (rng.integers(1, 11, len(cells)) / 2, (cells // COLUMNS, cells % COLUMNS)),
        shape=(ROWS, COLUMNS),
        dtype=np.float32,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = ALS(RANK, max_iter=2, random_state=0).fit(x)
    fitted.save(folder / "big.safetensors")
    f = fitted.fit_.factors
    np.savez(
        folder / "plain.npz",
        left=f.left,
        right=f.right,
        bias=f.column_bias,
        indptr=x.indptr,
        indices=x.indices,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def started(command: list[str], port: int) -> tuple[subprocess.Popen, float]:
    """The server and the seconds until it was ready, interpreter and imports included."""
    begin = time.perf_counter()
    kept = {
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), "eckart-bytecode")),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    process = subprocess.Popen(
        command, env=os.environ | kept | {"ECKART_LOG": "WARNING"}, stdout=subprocess.DEVNULL
    )
    while time.perf_counter() - begin < 120:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1).read()
            return process, time.perf_counter() - begin
        except OSError:
            time.sleep(0.01)
    raise SystemExit(f"{command} did not become ready")


def stopped(process: subprocess.Popen, seconds: float) -> float:
    process.terminate()
    process.wait(30)
    return seconds


class Client:
    """One keep-alive connection."""

    async def open(self, port: int) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self, rows: list[int]) -> bytes:
        body = json.dumps({"rows": rows, "n": 10}).encode()
        head = (
            b"POST /v1/models/big/recommend HTTP/1.1\r\nhost: x\r\ncontent-type: "
            b"application/json\r\ncontent-length: %d\r\n\r\n"
        )
        self.writer.write(head % len(body) + body)
        told = await self.reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in told[:20]:
            raise SystemExit(f"refused: {told!r}")
        size = next(
            int(line.split(b":")[1])
            for line in told.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        return await self.reader.readexactly(size)


async def single(port: int, seconds: float, connections: int = 8) -> float:
    clients = [await Client().open(port) for _ in range(connections)]
    end, done = time.perf_counter() + seconds, 0

    async def run(client: Client, seed: int) -> None:
        nonlocal done
        rng = np.random.default_rng(seed)
        while time.perf_counter() < end:
            await client.ask([int(rng.integers(ROWS))])
            done += 1

    begin = time.perf_counter()
    await asyncio.gather(*(run(c, i) for i, c in enumerate(clients)))
    return done / (time.perf_counter() - begin)


async def paced(port: int, seconds: float, rate: int = 200) -> tuple[float, float]:
    idle: asyncio.Queue[Client] = asyncio.Queue()
    for _ in range(32):
        idle.put_nowait(await Client().open(port))
    begin, took = time.perf_counter(), []

    async def one(i: int) -> None:
        due = begin + i / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        client = await idle.get()
        await client.ask([i % ROWS])
        took.append(time.perf_counter() - due)
        idle.put_nowait(client)

    await asyncio.gather(*(one(i) for i in range(int(seconds * rate))))
    return float(np.quantile(took, 0.5)), float(np.quantile(took, 0.99))


async def batch(port: int, times: int = 7) -> float:
    client = await Client().open(port)
    took = []
    for t in range(times):
        begin = time.perf_counter()
        await client.ask(list(range(t * 1000, (t + 1) * 1000)))
        took.append(time.perf_counter() - begin)
    return float(np.median(took))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model(folder)
        (folder / "plain.py").write_text(PLAIN)
        print(
            f"top 10 of {COLUMNS:,}, k={RANK}; one server process and one client "
            f"process on {os.cpu_count()} cores"
        )
        print(
            f"{'server':<18} {'ready s':>8} {'single/s':>9} {'p50 ms at 200/s':>16} "
            f"{'p99 ms':>7} {'batch of 1,000 ms':>18}"
        )
        for server in ("eckart", "NumPy + Starlette"):
            port = free_port()
            run = "from eckart.cli.main import run; run()"
            command = [
                sys.executable,
                "-c",
                run,
                "serve",
                str(folder / "big.safetensors"),
                "--port",
                str(port),
            ]
            if server != "eckart":
                command = [
                    sys.executable,
                    str(folder / "plain.py"),
                    str(folder / "plain.npz"),
                    str(port),
                ]
            ready = min(stopped(*started(command, port)) for _ in range(4))
            process, _ = started(command, port)
            try:
                asyncio.run(single(port, 1.0))
                rate = asyncio.run(single(port, seconds))
                p50, p99 = asyncio.run(paced(port, seconds))
                many = asyncio.run(batch(port))
            finally:
                stopped(process, ready)
            print(
                f"{server:<18} {ready:8.2f} {rate:9.0f} {1e3 * p50:16.1f} "
                f"{1e3 * p99:7.1f} {1e3 * many:18.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
