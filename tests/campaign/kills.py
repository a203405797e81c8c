"""kill -9 at a random moment of a save or a fit: the file is the old or the new one; the fit that goes on from its checkpoint ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import eckart
from campaign import Broken

SAVES = """
import sys, numpy as np, eckart
models = [eckart.PCA(2, random_state=0).fit(np.random.default_rng(i).standard_normal((200, 40)) + i) for i in range(2)]
models[0].save(sys.argv[1])
print("ready", flush=True)
while True:
    for model in models:
        model.save(sys.argv[1])
"""
FIT = """
import sys, numpy as np, eckart
rng = np.random.default_rng(0)
x = rng.standard_normal((300, 5)) @ rng.standard_normal((5, 200)) + 0.1 * rng.standard_normal((300, 200))
x[rng.random(x.shape) < 0.5] = np.nan
import eckart.complete.factors.als as als
als.CHECKPOINT_SECONDS = 0.0
print("ready", flush=True)
model = eckart.ALS(5, tol=0.0, max_iter=40, random_state=0, checkpoint=sys.argv[2]).fit(x)
model.save(sys.argv[1])
"""


def killed(script: str, words: list[str], after: float) -> bool:
    """Start a script, wait until it is ready, then kill it after so many seconds; whether it was still running."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, *words], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        if run.stdout.readline().strip() != "ready":
            raise Broken("the script ended before it began")
        time.sleep(after)
        running = run.poll() is None
        os.kill(run.pid, signal.SIGKILL) if running else None
        run.wait()
    return running


def attempts(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    path, state, whole = (folder / name for name in ("k.safetensors", "k.checkpoint", "whole.safetensors"))
    if not whole.exists():
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FIT, str(whole), str(folder / "w.checkpoint")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    bits = eckart.load(whole).fit_.factors
    while True:
        for _ in range(4):
            killed(SAVES, [str(path)], float(rng.uniform(0.0, 0.3)))
            if eckart.load(path).n_components != 2:
                raise Broken("another model came back")
            left = [f.name for f in folder.iterdir() if f.name.startswith(".k")]
            if len(left) > 1:
                raise Broken(f"several temporary files are left: {left}")
            yield "save killed"
        path.unlink()
        while killed(FIT, [str(path), str(state)], float(rng.uniform(0.05, 1.5))):
            yield "fit killed"
        found = eckart.load(path).fit_.factors
        if not (np.array_equal(found.left, bits.left) and np.array_equal(found.right, bits.right)):
            raise Broken("a fit that was killed and resumed has other bits")
        yield "fit resumed to the same bits"
