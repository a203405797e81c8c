"""All that only a GPU can show, in one command of less than ten minutes: tests, fits, the rows of
the tables that are missing or old. PyTorch, NumPy, SciPy, scikit-learn and numba on the machine are
enough.

    python benchmarks/card.py --bring out/bring        here, before: what the tests need beside
    them, as wheels for the card's Python (a few megabytes)
    python benchmarks/card.py --out FOLDER             there: every line as it comes, and in
    FOLDER/table.txt; figures in cold.json, sizes.jsonl and cores.jsonl
    python benchmarks/card.py --small --out FOLDER     anywhere: tries the script on tiny data, on a
    pretended card

Steps follow one another in the order of their worth. Each has a limit, and what is left of
``--seconds``; a step that is stopped has printed its rows before. ``--only`` names some of them:
where a new machine compiles for long, a second call with ``--only cores sizes`` does what the first
had no time for.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BROUGHT = ROOT / "out" / "bring"
NEEDED = (
    "pytest",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "pytest-xdist",
    "execnet",
    "hypothesis",
    "sortedcontainers",
    "safetensors",
    "threadpoolctl",
)
"""Packages that the tests need, and ``safetensors`` and ``threadpoolctl``, which eckart needs
itself: all small."""
MISSED = ("bayes-512", "nmf-kl", "pca-mid", "svp", "soft-impute", "top")
"""Works of ``gpu.py`` that have not reached their target, or were not run again when the others
were."""
NEW = (
    "nmf-gaps",
    "als-nonnegative",
    "als-huber",
    "lda-gibbs",
    "pca-gaps",
    "gmm-gaps-diag",
    "gmm-gaps-full",
    "gmm-factor",
    "mixture-bernoulli",
)
"""Works that were written for the GPU without one: none was ever measured there."""
NEVER_COLD = (
    "nmf-kl",
    "als",
    "lda",
    "gmm-full",
    "gmm-diag",
    "svp",
    "als-implicit-256",
    "pca-mid",
    "bayes-512",
    "pca",
    "pca-exact",
)
"""Works whose cold process was not measured, the short ones first."""
OLD_CORES = (
    "lda-cvb0",
    "nmf-kl",
    "top10",
    "cooccurrence",
    "lda-gibbs",
    "skipgram-exact",
    "skipgram",
    "als",
    "als-implicit",
)
"""Works of ``cores.py`` that were not measured again on 17 November 2026, the short ones first."""


CARD_PYTHON = "3.12"
"""Of the machines with a card on which this has run: packages with compiled parts (hypothesis,
safetensors) are brought for it."""


class Step(NamedTuple):
    """A name, seconds at the most, and the words of the command for (folder, small)."""

    name: str
    seconds: float
    words: Callable[[Path, bool], list[str]]


def _only(small: bool, names: tuple[str, ...]) -> list[str]:
    return list(names[:1] if small else names)


STEPS = (
    Step(
        "tests",
        170,
        lambda out, small: [
            str(ROOT / "tests" / "gpu.py"),
            "pretended" if small else "cuda",
            "--no-cpu",
        ],
    ),
    Step(
        "missed rows, and where their seconds go",
        110,
        lambda out, small: [
            str(HERE / "gpu.py"),
            "--profile",
            "--limit",
            "100",
            *(["--small"] if small else []),
            "--only",
            *_only(small, MISSED[1:]),
        ],
    ),
    Step(
        "BayesianMF",
        60,  # its first fit compiles for half a minute, so it has a step of its own
        lambda out, small: [
            str(HERE / "gpu.py"),
            "--profile",
            *(["--small"] if small else []),
            "--only",
            MISSED[0],
        ],
    ),
    Step(
        "never measured",
        150,
        lambda out, small: [
            str(HERE / "gpu.py"),
            "--profile",
            "--limit",
            "140",
            *(["--small"] if small else []),
            "--only",
            *_only(small, NEW),
        ],
    ),
    Step(
        "cold processes",
        130,
        lambda out, small: [
            str(HERE / "gpu.py"),
            "--quick",
            "--no-cpu",
            "--json",
            str(out / "cold.json"),
            *(["--small"] if small else []),
            "--only",
            *_only(small, NEVER_COLD),
        ],
    ),
    Step(
        "networks",
        60,
        lambda out, small: [
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            str(ROOT / "tests" / "test_nn_gpu.py"),
        ],
    ),
    Step(
        "cores",
        200,
        lambda out, small: [
            str(HERE / "cores.py"),
            "--threads",
            "1,2" if small else "1,16",
            "--no-rival",
            "--out",
            str(out / "cores.jsonl"),
            *(["--small"] if small else []),
            "--only",
            ",".join(_only(small, OLD_CORES)),
        ],
    ),
    Step(
        "sizes",
        120,
        lambda out, small: [
            str(HERE / "gpu_sizes.py"),
            "--limit",
            "110",
            "--out",
            str(out / "sizes.jsonl"),
            *(["--small"] if small else []),
        ],
    ),
)


def bring(folder: Path) -> None:
    """The packages in ``NEEDED`` as wheels for the card's Python, in the versions that are
    installed here."""
    shutil.rmtree(folder, ignore_errors=True)
    wanted = [f"{name}=={metadata.version(name)}" for name in NEEDED]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        CARD_PYTHON,
    ]
    subprocess.run([*command, "--target", str(folder), *wanted], check=True)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{len(NEEDED)} packages, {size / 2**20:.1f} MiB in {folder}")


def run(step: Step, out: Path, small: bool, seconds: float, say: Callable[[str], None]) -> None:
    """The step as a process group of its own; its lines as they come, until it ends or its time is
    over."""
    brought = [str(BROUGHT)] if BROUGHT.exists() else []
    paths = os.pathsep.join(
        [str(ROOT / "src"), *brought, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-u", *step.words(out, small)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    waiting, rest = selectors.DefaultSelector(), b""
    waiting.register(process.stdout, selectors.EVENT_READ)
    ended = ""
    while not ended:
        left = seconds - (time.perf_counter() - begun)
        if left <= 0:
            os.killpg(process.pid, signal.SIGKILL)
            ended = f"stopped after {seconds:.0f} s"
        elif waiting.select(left):
            some: Any = process.stdout.read()
            *lines, rest = (rest + (some or b"")).split(b"\n")
            for line in lines:
                say(line.decode(errors="replace"))
            if some == b"":
                ended = f"ended with {process.wait()} after {time.perf_counter() - begun:.0f} s"
    if rest:
        say(rest.decode(errors="replace"))
    process.wait()
    say(f"---- {step.name}: {ended}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bring", type=Path, help="copy what the tests need to this folder, and end"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "card")
    parser.add_argument("--seconds", type=float, default=570.0, help="of all steps together")
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="steps by words of their names: " + ", ".join(step.name for step in STEPS),
    )
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    if asked.bring:
        bring(asked.bring)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    with (asked.out / "table.txt").open("a", buffering=1) as table:

        def say(line: str) -> None:
            print(line, flush=True)
            table.write(line + "\n")

        import torch

        there = torch.cuda.is_available()
        name = torch.cuda.get_device_name() if there else "no CUDA device"
        say(
            f"PyTorch {torch.__version__} on {name}; {os.cpu_count()} cores; Python "
            f"{sys.version.split()[0]}"
        )
        if not there and not asked.small:
            sys.exit("this PyTorch sees no CUDA device; --small tries the script without one")
        for step in STEPS:
            if asked.only and not any(word in step.name for word in asked.only):
                continue
            left = asked.seconds - (time.perf_counter() - begun)
            if left < 10:
                say(f"---- {step.name}: no time left")
                continue
            say(f"---- {step.name}")
            run(step, asked.out, asked.small, min(step.seconds, left), say)


if __name__ == "__main__":
    main()
