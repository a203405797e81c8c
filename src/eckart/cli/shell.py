"""What the shell commands share: arguments into values, files into tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, InputError, wrong
from eckart.io.read import read
from eckart.io.write import check_target
from eckart.matrix import Matrix, row_parts

SAMPLE_ROWS = 5000


@dataclass
class Table:
    """The data and the labels that colour its map."""

    matrix: Matrix
    labels: np.ndarray | None = None

    def sample(self) -> tuple[Any, Any]:
        """Evenly spaced rows for pictures, with their labels; None for sparse data too wide to show."""
        rows, n = self.matrix.shape
        if n > 20_000:
            return None, None
        part: Any = next(iter(row_parts(self.matrix, SAMPLE_ROWS))) if rows is None or not hasattr(self.matrix, "values") else self.matrix
        count = part.shape[0]
        chosen = np.unique(np.linspace(0, count - 1, min(count, SAMPLE_ROWS)).astype(int))
        values = part.to_scipy()[chosen].toarray() if hasattr(part, "to_scipy") else _rows(part, chosen)
        return values, None if self.labels is None else self.labels[chosen]


def _rows(part: Any, chosen: np.ndarray) -> np.ndarray:
    if isinstance(part.values, np.ndarray):
        return np.asarray(part.values[chosen])
    return np.asarray(next(iter(part.values.blocks(SAMPLE_ROWS))))


def load_table(file: str, columns: str | None, index: str | None, labels: str | None) -> Table:
    """Read the data; a label column is read beside it and kept out of it."""
    names = [c.strip() for c in columns.split(",")] if columns else None
    if labels is None:
        return Table(read(file, columns=names, index=index))
    if index is not None and index != labels:
        raise InputError(f"index={index!r} and labels={labels!r} came, wanted one of them: both name the rows")
    matrix = read(file, columns=None if names is None else [*names, labels], index=labels)
    if matrix.rows is None:
        raise InputError(f"labels={labels!r} came, wanted a table small enough to hold and with named columns")
    return Table(matrix, matrix.rows)


def parse_components(text: str) -> int | float | str:
    """A count, a share or "auto"."""
    if text in ("auto", "mle"):
        return text
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise wrong("--components", text, "a number, a share such as 0.9, or auto") from None


def parse_image(text: str | None) -> tuple[int, int] | None:
    """HxW."""
    if text is None:
        return None
    try:
        height, width = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise wrong("--image", text, "height x width, such as 28x28") from None
    return height, width


def check_paths(out: Path | None, model: Path | None, report: Path | None) -> None:
    """Refuse targets that cannot be written before any work is done."""
    if out is not None:
        check_target(out)
    for path, ending in ((model, ".safetensors"), (report, ".html")):
        if path is None:
            continue
        if path.suffix.lower() != ending:
            raise FileError(f"{path} ends in {path.suffix!r}, wanted {ending}")
        if not path.parent.is_dir():
            raise FileError(f"{path.parent} is not a folder; make it first")
