"""State of a long pass over rows, kept in a file so that a killed run goes on where it was, with the same bits as one that was not."""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.io.models.save import atomic_write
from eckart.matrix import Dense, Matrix, Observed

LAYOUT = 2
"""Raised when the state that some solver keeps changes: an older file is then refused in words."""


class Checkpoint:
    """One .safetensors file, written at most every ``seconds`` and removed when the pass is complete.

    ``about`` describes data and options; a file about something else, or with another layout of the state, is refused, never used.
    """

    def __init__(self, path: Any, about: dict[str, Any], seconds: float = 30.0):
        self.path, self.about, self.seconds = Path(path), {"layout": LAYOUT, **about}, seconds
        self._last = time.perf_counter()
        if not self.path.parent.is_dir():
            raise FileError(f"{self.path.parent} is not a folder; make it first")

    @classmethod
    def of_fit(
        cls,
        model: Any,
        x: Observed,
        weights: np.ndarray | None = None,
        *,
        ignored: tuple[str, ...] = (),
        seconds: float,
    ) -> Checkpoint | None:
        """The file of an estimator's ``checkpoint`` parameter, about its fit to the entries; None where none was asked for.

        ``ignored``: parameters that may differ in the fit that resumes, besides the file's name, the threads and the progress bars.
        """
        if model.checkpoint is None:
            return None
        others = {"checkpoint", "n_threads", "verbose", *ignored}
        options = {name: value for name, value in model.get_params().items() if name not in others}
        return cls(model.checkpoint, about_entries(type(model).__name__, x, weights, options), seconds)

    def load(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """Blocks done and arrays kept, or None where there is no file yet."""
        from safetensors import SafetensorError, safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, "np") as file:
                header = json.loads((file.metadata() or {})["checkpoint"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
            raise FileError(f"{self.path} is not a complete checkpoint ({error}); delete it to start over") from None
        for name, value in self.about.items():
            if header["about"].get(name) != value:
                raise FileError(
                    f"{self.path} is a checkpoint of other work ({name} is {header['about'].get(name)!r}, wanted {value!r}); delete it to start over"
                )
        return int(header["done"]), arrays

    def due(self) -> bool:
        """Is the last time of writing (or the start) long enough ago?"""
        return time.perf_counter() - self._last >= self.seconds

    def save(self, done: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep the state after ``done`` blocks, if the last time is long enough ago."""
        from safetensors.numpy import save

        if not self.due():
            return
        header = json.dumps({"done": done, "about": self.about})
        kept = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
        atomic_write(self.path, save(kept, metadata={"checkpoint": header}))
        self._last = time.perf_counter()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def checksum(*parts: np.ndarray | None) -> int:
    """CRC-32 of the bytes of arrays, one after another; None is passed over.

    >>> checksum(np.arange(3)) == checksum(None, np.arange(3)) != checksum(np.arange(4))
    True
    """
    found = 0
    for part in parts:
        found = found if part is None else zlib.crc32(np.ascontiguousarray(part).data, found)
    return found


def about_rows(matrix: Matrix, options: dict[str, Any]) -> dict[str, Any]:
    """What identifies the data of a pass: shape, precision and, for a file, its name, size and time of change."""
    about: dict[str, Any] = {"rows": matrix.shape[0], "columns": matrix.shape[1], "dtype": matrix.dtype.name, **options}
    source = matrix.values if isinstance(matrix, Dense) else None
    name = getattr(source, "filename", None) or getattr(source, "path", None)
    if name is not None:
        stat = Path(name).stat()
        about |= {"file": Path(name).name, "bytes": stat.st_size, "changed": stat.st_mtime_ns}
    return about


def about_entries(model: str, x: Observed, weights: np.ndarray | None, options: dict[str, Any]) -> dict[str, Any]:
    """What identifies a fit to observed entries: the model, its options, and a checksum of where the entries are, what they are and what they weigh."""
    data = checksum(x.indptr, x.indices, x.data, weights)
    about = {"model": model, "shape": list(x.shape), "entries": x.nnz, "data": data}
    return about | {name: str(value) for name, value in options.items()}
