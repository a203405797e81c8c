"""State of a long pass over rows, kept in a file so that a killed run goes on where it was, with the same bits as one that was not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError
from eckart.io.save import atomic_write
from eckart.matrix import Dense, Matrix


class Checkpoint:
    """One .safetensors file, written at most every ``seconds`` and removed when the pass is complete.

    ``about`` describes data and options; a file about something else is refused, never used.
    """

    def __init__(self, path: Any, about: dict[str, Any], seconds: float = 30.0):
        self.path, self.about, self.seconds = Path(path), about, seconds
        self._last = time.perf_counter()
        if not self.path.parent.is_dir():
            raise FileError(f"{self.path.parent} is not a folder; make it first")

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

    def save(self, done: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep the state after ``done`` blocks, if the last time is long enough ago."""
        from safetensors.numpy import save

        if time.perf_counter() - self._last < self.seconds:
            return
        header = json.dumps({"done": done, "about": self.about})
        kept = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
        atomic_write(self.path, save(kept, metadata={"checkpoint": header}))
        self._last = time.perf_counter()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def about_rows(matrix: Matrix, options: dict[str, Any]) -> dict[str, Any]:
    """What identifies the data of a pass: shape, precision and, for a file, its name, size and time of change."""
    about: dict[str, Any] = {"rows": matrix.shape[0], "columns": matrix.shape[1], "dtype": matrix.dtype.name, **options}
    source = matrix.values if isinstance(matrix, Dense) else None
    name = getattr(source, "filename", None) or getattr(source, "path", None)
    if name is not None:
        stat = Path(name).stat()
        about |= {"file": Path(name).name, "bytes": stat.st_size, "changed": stat.st_mtime_ns}
    return about
