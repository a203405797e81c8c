"""The n-th write, flush, rename or opening of a file fails, for every n: the old file or the new
one is there and loads, and nothing else is left."""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import eckart
from campaign import Broken
from eckart.errors import EckartError


class Failing:
    """A file whose writes are counted."""

    def __init__(self, file: Any, tick: Any):
        self._file, self._tick = file, tick

    def write(self, data: bytes) -> int:
        try:
            self._tick()
        except OSError:
            self._file.write(data[: len(data) // 2])  # a disc that fills up takes a part
            raise
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Failing:
        return self

    def __exit__(self, *reason: Any) -> None:
        self._file.close()


@contextmanager
def failing(at: int, code: int) -> Iterator[list[int]]:
    """Calls that touch the disc are counted in the list; the one of number ``at`` fails with this
    error."""
    count = [0]

    def tick() -> None:
        count[0] += 1
        if count[0] == at:
            raise OSError(code, os.strerror(code))

    real = {name: getattr(os, name) for name in ("fsync", "replace", "open")}
    plain = builtins.open

    def counted(name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            tick()
            return real[name](*args, **more)

        return call

    def opened(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        made = plain(file, mode, *args, **more)
        return Failing(made, tick) if "w" in mode and "b" in mode else made

    try:
        for name in real:
            setattr(os, name, counted(name))
        builtins.open = opened
        yield count
    finally:
        builtins.open = plain
        for name, call in real.items():
            setattr(os, name, call)


def attempts(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    place = folder / "disc"
    place.mkdir(exist_ok=True)
    path = place / "m.safetensors"
    old, new = (
        eckart.PCA(2, random_state=0).fit(rng.standard_normal((20, 4)) + i) for i in range(2)
    )
    vectors = eckart.Vectors(["a", "b"], np.eye(2))
    while True:
        for what, first, second, load in (
            ("model", old.save, new.save, lambda: eckart.load(path).mean_),
            (
                "vectors",
                vectors.write,
                eckart.Vectors(["c", "d"], np.eye(2)).write,
                lambda: list(eckart.read_vectors(path).words),
            ),
        ):
            for code in (errno.ENOSPC, errno.EIO, errno.EACCES):
                for at in range(1, 50):
                    first(path)
                    before = load()
                    with failing(at, code) as count:
                        try:
                            second(path)
                            failed = False
                        except EckartError:
                            failed = True
                    after = load()
                    if failed and not np.array_equal(before, after):
                        raise Broken(
                            f"call {at} of saving a {what} failed with "
                            f"{errno.errorcode[code]}, and the old file is gone"
                        )
                    if list(place.iterdir()) != [path]:
                        raise Broken(
                            f"call {at} of saving a {what} left "
                            f"{sorted(f.name for f in place.iterdir())}"
                        )
                    if count[0] < at:  # no such call: every one has failed once
                        break
                    yield f"{what}: {'old' if failed else 'new'} file"
