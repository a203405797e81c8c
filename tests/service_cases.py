"""Cases made from the OpenAPI file by schemathesis, and Arrow streams by a fuzzer, against a real
process: no answer is a 5xx, each is as the description says, what it forbids is refused, and none
takes more than 2 seconds or 200 MB.

    python tests/service_cases.py [--cases 20000] [--arrow 1000] [--schemathesis PATH]

Two halves: cases as the generator invents them, valid and invalid ones, and valid ones with ids
that the models know (service_hooks.py); then the streams of arrow_bodies.py. Ends with code 1 where
a check failed or the service did not live through it. ``make test-service`` installs schemathesis
into an environment of its own.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from arrow_bodies import bodies
from eckart import ALS, PCA, PMI

OPERATIONS = 9
"""Places that take a body; the others have few cases."""

MOST_SECONDS, MOST_BYTES = 2.0, 200 * 2**20
"""What any answer may take; the bytes are those by which the process has grown."""
VERBS = {
    "films": ("recommend", "similar", "explain", "predict", "transform", "impute"),
    "table": ("transform", "impute", "certify"),
    "words": ("neighbours", "analogy", "transform"),
}


def models(folder: Path) -> dict[str, Path]:
    """A completion with ids, a reduction, an embedding, as service_hooks.py knows them."""
    rng = np.random.default_rng(0)
    cells = rng.choice(50 * 300, 4000, replace=False)
    ratings = [(f"u{c // 300}", int(c % 300) + 1000, float(rng.integers(1, 11)) / 2) for c in cells]
    texts = [[str(w) for w in rng.integers(0, 12, 8)] for _ in range(60)]
    made = {
        "films": ALS(4, random_state=0).fit(ratings, rows=0, columns=1, values=2),
        "table": PCA(2).fit(rng.normal(size=(40, 5))),
        "words": PMI(3, min_count=1, random_state=0).fit(texts),
    }
    for name, model in made.items():
        model.save(folder / f"{name}.safetensors")
    return {name: folder / f"{name}.safetensors" for name in made}


def started(paths: dict[str, Path], said: Path) -> tuple[subprocess.Popen, int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-c",
        "from eckart.cli.main import run; run()",
        "serve",
        "--port",
        str(port),
    ]
    for name, path in paths.items():
        command += ["--model", f"{name}={path}"]
    with said.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=os.environ | {"ECKART_LOG": "WARNING"}
        )
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).read()
            return process, port
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"the service did not start: {said.read_text()}")


def asked(
    program: str, port: int, folder: Path, each: int, *more: str, hooks: bool
) -> tuple[int, int]:
    """The code of schemathesis and the number of its cases."""
    (folder / "schemathesis.toml").write_text(
        "request-timeout = 60\n[checks]\npositive_data_acceptance.enabled = false\n"
    )  # unknown ids
    around = os.environ | (
        {"SCHEMATHESIS_HOOKS": "service_hooks", "PYTHONPATH": str(Path(__file__).parent)}
        if hooks
        else {}
    )
    command = [
        os.path.abspath(program),  # it runs in another folder
        "run",
        f"http://127.0.0.1:{port}/openapi.json",
        "--max-examples",
        str(each),
        "--max-response-time",
        str(MOST_SECONDS),
        *more,
    ]
    done = subprocess.run(
        [*command, "--continue-on-failure"], cwd=folder, env=around, capture_output=True, text=True
    )
    found = re.search(r"([\d,]+) generated", done.stdout)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:])
    return done.returncode, int(found[1].replace(",", "")) if found else 0


def streams(port: int, count: int) -> int:
    """Send Arrow bodies to all verbs; the number of those that took too long."""
    rng, slow = np.random.default_rng(0), 0
    places = [f"/v1/models/{name}/{verb}" for name, verbs in VERBS.items() for verb in verbs]
    for number, body in enumerate(bodies(count, seed=0)):
        place, begin = places[int(rng.integers(len(places)))], time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(
            "POST", place, body, {"content-type": "application/vnd.apache.arrow.stream"}
        )
        connection.getresponse().read()
        connection.close()
        seconds = time.perf_counter() - begin
        if seconds > MOST_SECONDS:
            slow += 1
            print(f"body {number} ({len(body):,} bytes) to {place} took {seconds:.1f} s")
    return slow


def largest(process: subprocess.Popen) -> int:
    """Most bytes that the process has held."""
    status = Path(f"/proc/{process.pid}/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--arrow", type=int, default=1000)
    parser.add_argument("--schemathesis", default=shutil.which("schemathesis"))
    ask = parser.parse_args()
    if ask.schemathesis is None:
        raise SystemExit(
            "schemathesis is not installed, wanted it on the path; see make test-service"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process, port = started(models(folder), folder / "log")
        try:
            each, total, bad = max(1, ask.cases // 2 // OPERATIONS), 0, 0
            before = largest(process)
            for more, hooks in (
                (("--phases", "coverage,fuzzing"), False),
                (("--phases", "fuzzing", "--mode", "positive"), True),
            ):
                code, cases = asked(ask.schemathesis, port, folder, each, *more, hooks=hooks)
                total, bad = total + cases, bad + (code != 0)
            bad += streams(port, ask.arrow)
            grown = largest(process) - before
            metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            counts: dict[str, int] = {}
            for status, count in re.findall(r'status="(\d+)"\} (\d+)', metrics):
                counts[status] = counts.get(status, 0) + int(count)
            print(
                f"{total:,} cases and {ask.arrow:,} Arrow streams, {grown / 2**20:.0f} MB more, "
                "answers by status: "
                f"{', '.join(f'{s}: {c:,}' for s, c in sorted(counts.items()))}"
            )
            failed = (
                bad
                or grown > MOST_BYTES
                or any(status >= "500" and status != "503" for status in counts)
                or process.poll() is not None
            )
            if failed:
                print((folder / "log").read_text()[-4000:])
            return int(failed)
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    sys.exit(main())
