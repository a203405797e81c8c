"""kill -9 at a random moment of a save, a fit or a command: files are the old or the new ones; a
fit that goes on from its checkpoint ends with the same bits.

The processes that are killed are forked from this one, where everything is compiled already, so
that an attempt costs what the work costs. The checkpoint is written at every occasion.
"""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import eckart
from campaign import Broken
from eckart.io.models.checkpoint import Checkpoint
from resumable_fits import FITS, fitted

MOST = 8
"""Kills of one fit; after that it may finish, so that its bits can be compared."""
ROUNDS = 6
"""Times that a fit is killed and brought to its end: the first use of a model costs seconds, its
fits do not."""


def killed(work: Callable[[], object], after: float) -> bool:
    """Fork, run the work there, and kill it after so many seconds; whether it was still running. A
    failure of the work is one of the campaign."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    end = time.monotonic() + after
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if status != 0:
                raise Broken(f"the work failed with status {status}")
            return False
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def attempts(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    kinds = (saves, fits, commands, choices)
    while True:
        yield from kinds[int(rng.integers(len(kinds)))](rng, folder)


def saves(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    """Two models take turns under one name; whenever it ends, one of them is there and at most one
    temporary file, which the next save removes."""
    path = folder / "k.safetensors"
    x = np.random.default_rng(0).standard_normal((200, 40))
    models = [eckart.PCA(k, svd_solver="eigh").fit(x) for k in (2, 3)]
    models[0].save(path)

    def forever() -> None:
        while True:
            for model in models:
                model.save(path)

    for _ in range(20):
        killed(forever, float(rng.uniform(0.0, 0.02)))
        if eckart.load(path).n_components not in (2, 3):
            raise Broken("another model came back")
        left = [f.name for f in folder.iterdir() if f.name.startswith(".k")]
        if len(left) > 1:
            raise Broken(f"several temporary files are left: {left}")
        yield "save killed"


def fits(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    """A fit of any model with a checkpoint, killed again and again and resumed."""
    name = str(rng.choice(list(FITS)))
    make, data = FITS[name]
    state, path = folder / "f.checkpoint", folder / "f.safetensors"
    make().fit(data())  # compiles
    begin = time.monotonic()
    whole = fitted(make().fit(data()))
    span = time.monotonic() - begin

    def work() -> None:
        Checkpoint.due = lambda self: True  # type: ignore[method-assign]
        model = make(checkpoint=state).fit(data())
        if fitted(model) != whole:
            raise Broken(f"{name}: killed and resumed, the fit has other bits")
        model.save(path)

    for _ in range(ROUNDS):
        for _ in range(MOST):
            if not killed(work, float(rng.uniform(0.0, span))):
                break
            yield "fit killed"
        else:
            if killed(work, 60.0):
                raise Broken(f"{name} did not finish in a minute")
        if state.exists():
            raise Broken(f"{name} left its checkpoint behind")
        eckart.load(path)
        path.unlink()
        yield "fit resumed to the same bits"


def commands(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    """A command with several outputs: each is absent, or whole."""
    table, model, codes = folder / "c.csv", folder / "c.safetensors", folder / "codes.csv"
    np.savetxt(
        table,
        np.random.default_rng(1).standard_normal((60, 6)),
        delimiter=",",
        header="a,b,c,d,e,f",
        comments="",
    )

    def work() -> None:
        shell("reduce", table, "-k", 2, "--out", codes, "--model", model)

    model.unlink(missing_ok=True), codes.unlink(missing_ok=True)
    begin = time.monotonic()
    if killed(work, 60.0):
        raise Broken("the command did not end in a minute")
    span, wanted = time.monotonic() - begin, codes.read_bytes()
    for _ in range(10):
        model.unlink(missing_ok=True), codes.unlink(missing_ok=True)
        killed(work, float(rng.uniform(0.0, 1.1 * span)))
        if codes.exists() and codes.read_bytes() != wanted:
            raise Broken("a table is there in part")
        if model.exists():
            eckart.load(model)
        yield "command killed"


def shell(*words: object) -> None:
    """A command of the shell that says nothing."""
    import sys

    from eckart.cli.main import run

    sys.argv = ["eckart", *map(str, words)]
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        run()
    except SystemExit as end:
        if end.code not in (0, 1, None):
            raise


def choices(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    """A command that compares methods, measures and fits, killed again and again and resumed: the
    same method for the same reason, and the same bits."""
    table, model, state = folder / "r.csv", folder / "r.safetensors", folder / "r.checkpoint"
    draw = np.random.default_rng(2)
    a = (
        3
        + draw.standard_normal((24, 1)) @ draw.standard_normal((1, 12))
        + 0.3 * draw.standard_normal((24, 12))
    )
    cells = [
        f"u{i},i{j},{a[i, j]:.3f}" for i in range(24) for j in range(12) if draw.random() < 0.6
    ]
    table.write_text("user,item,value\n" + "\n".join(cells))
    for kind in (eckart.ALS(1), eckart.BayesianMF(1, n_samples=2, burn_in=2)):
        kind.fit(a)  # compiles
    importlib.import_module("eckart.cli.main"), importlib.import_module("eckart.complete.compare")
    words = (
        "complete",
        table,
        "--rows",
        "user",
        "--columns",
        "item",
        "--values",
        "value",
        "-k",
        1,
        "--model",
        model,
    )

    def found() -> tuple[object, ...]:
        fit = eckart.load(model).fit_
        model.unlink()
        return (
            *(fit.plan[name] for name in ("method", "rank", "held_out")),
            fit.factors.left.tobytes(),
            fit.factors.right.tobytes(),
        )

    def work() -> None:
        Checkpoint.due = lambda self: not self.seconds or time.perf_counter() - self._last > 0.02  # type: ignore[method-assign]
        shell(*words, "--checkpoint", state)

    if killed(lambda: shell(*words), 60.0):
        raise Broken("the command did not end in a minute")
    wanted, begin = found(), time.monotonic()
    if killed(work, 60.0):
        raise Broken("the command did not end in a minute")
    span = time.monotonic() - begin
    for _ in range(ROUNDS):
        model.unlink(missing_ok=True)
        for _ in range(MOST):
            if not killed(work, float(rng.uniform(0.0, 0.5 * span))):
                break
            yield "comparison killed"
        else:
            if killed(work, 60.0):
                raise Broken("the command did not end in a minute")
        if found() != wanted:
            raise Broken("killed and resumed, the command chose another method or has other bits")
        if left := list(folder.glob("r.checkpoint*")):
            raise Broken(f"the command left {left[0].name} behind")
        yield "comparison resumed to the same bits"
