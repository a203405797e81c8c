"""Tables that come in other clothes: spreadsheets, lines of JSON, folders of images."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import FileError, MissingError
from eckart.loading import pa

IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


FAR_CELL = re.compile(rb"""\br\s*=\s*["'](?:[A-Z]{4,}|[A-Z]*\d{8,})""")
"""A cell or row far beyond the 2^20 rows and 2^14 columns that a sheet can have: the empty ones
before it would fill the memory."""
MOST_INFLATED = 4 * 2**30
"""Bytes of a workbook's parts before compression: a full sheet of numbers takes about as much."""

MOST_FOLD, FREE_INFLATED = 200, 64 * 2**20
"""How many times larger than its file a workbook may become, beyond a size that does no harm: sheets
of one long text in all cells reach 74, zeros packed to fill a memory 1,000."""
MOST_ROWS = 2**20
"""Rows that a sheet can have."""

MOST_CELLS = 2**27
"""Cells of a sheet that are looked at, filled or not: three seconds, and more than memory holds as
objects."""


def excel_table(file: Path) -> Any:
    """The first sheet of a workbook as an Arrow table; its first row holds the names."""
    try:
        import openpyxl
    except ImportError:
        raise MissingError(
            f"{file} is a workbook, which needs openpyxl: pip install 'eckart[xlsx]'; "
            "or save the sheet as .csv"
        ) from None
    try:
        _check_workbook(file)
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        rows = _filled_rows(book.worksheets[0])
        book.close()
    except Exception as error:
        raise FileError(f"{file} cannot be read as a workbook: {error}") from None
    if len(rows) < 2:
        raise FileError(
            f"the first sheet of {file} must have a row of names and at least one of data, got "
            f"{len(rows)} rows"
        )
    width = max(map(len, rows))  # a sheet that does not say its width has rows of several
    rows = [row + (None,) * (width - len(row)) for row in rows]
    names = [f"column {j + 1}" if name is None else str(name) for j, name in enumerate(rows[0])]
    columns = [_one_kind([row[j] for row in rows[1:]]) for j in range(len(names))]
    return pa.table(columns, names=names)


def _filled_rows(sheet: Any) -> list[Any]:
    """The rows of a sheet that hold something. Its reader fills up what lies before a cell, so that
    one cell in the last corner stands for 17 billion: the row that it repeats for missing ones is
    looked at once, and all others have a limit."""
    rows, empty, cells = [], None, 0
    for row in sheet.iter_rows(values_only=True):
        if row is empty:
            continue
        cells += len(row)
        if cells > MOST_CELLS:
            raise ValueError(
                f"its rows span more than {MOST_CELLS:,} cells; save the part that is used as .csv"
            )
        if any(cell is not None for cell in row):
            rows.append(row)
        else:
            empty = row
    return rows


def _check_workbook(file: Path) -> None:
    """Refuse a workbook that would not fit into memory before anything of it is made into
    objects."""
    with zipfile.ZipFile(file) as book:
        parts = book.infolist()
        most = min(MOST_INFLATED, max(FREE_INFLATED, MOST_FOLD * file.stat().st_size))
        if sum(part.file_size for part in parts) > most:
            raise ValueError(f"it would take more than {most:,} bytes; save the sheet as .csv")
        for part in parts:
            if not part.filename.startswith("xl/worksheets/"):
                continue
            with book.open(part) as raw:
                tail, rows = b"", 0
                while block := raw.read(2**20):
                    rows += block.count(b"<row")
                    if rows > MOST_ROWS or b"\0" in block or FAR_CELL.search(tail + block):
                        raise ValueError(
                            "it has a cell beyond the rows and columns of a sheet; save "
                            "the sheet anew"
                        )
                    tail = block[-64:]


def _one_kind(cells: list[Any]) -> Any:
    """Cells of a column as an Arrow array; as text where they are of several kinds."""
    if any(isinstance(cell, float) for cell in cells):
        cells = [
            float(cell) if isinstance(cell, int) and not isinstance(cell, bool) else cell
            for cell in cells
        ]
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if cell is None else str(cell) for cell in cells])


def json_table(file: Path) -> Any:
    """Lines of JSON objects as an Arrow table."""
    from pyarrow import json

    try:
        return json.read_json(file)
    except (pa.ArrowException, OSError) as error:
        raise FileError(
            f"{file} must hold one JSON object of numbers and texts a line, got something else: "
            f"{' '.join(str(error).split())}"
        ) from None


OTHER_TABLES = {
    ".xlsx": excel_table,
    ".xlsm": excel_table,
    ".jsonl": json_table,
    ".ndjson": json_table,
}
"""Readers by ending; each gives an Arrow table."""


def images_in(folder: str | Path) -> list[Path]:
    """The images below a folder, in the order of their names."""
    return sorted(f for f in Path(folder).rglob("*") if f.suffix.lower() in IMAGES and f.is_file())


def read_images(
    folder: str | Path,
    size: tuple[int, int] | None = None,
    report: Callable[[str], Any] = warnings.warn,
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Grey values 0 to 255 of all images below a folder, a row each; their paths; and height and
    width.

    With ``size`` (height, width) every image is brought to it, otherwise all must have the same.
    Files that are no images are left out, with a ``report``.
    """
    from PIL import Image

    files = images_in(folder)
    if not files:
        raise FileError(
            f"{folder} must be a folder of images, files that end in {', '.join(IMAGES[:4])} "
            "..., got none"
        )
    values, first, broken = np.empty((0, 0), np.float32), (0, 0), dict[Path, Exception]()
    shown: list[Path] = []
    for file in files:
        try:
            with Image.open(file) as picture:
                grey = picture.convert("L")
                if size is not None and grey.size != size[::-1]:
                    grey = grey.resize(size[::-1], Image.Resampling.BOX)
                pixels = np.asarray(grey, np.float32)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            broken[file] = error
            continue
        if not values.size:
            first = (pixels.shape[0], pixels.shape[1])
            values = np.empty((len(files), pixels.size), np.float32)
        if pixels.shape != first:
            raise FileError(
                f"{file} is {pixels.shape[0]}x{pixels.shape[1]} pixels and {shown[0]} "
                f"is {first[0]}x{first[1]}; say --image "
                f"{first[0]}x{first[1]} to bring all to one size"
            )
        values[len(shown)] = pixels.ravel()
        shown.append(file)
    if broken:
        file, error = next(iter(broken.items()))
        if not shown:
            raise FileError(f"{file} cannot be read as an image: {error}")
        many = "1 file that is" if len(broken) == 1 else f"{len(broken):,} files that are"
        report(f"{many} no image: left out of {folder}: {file} cannot be read ({error})")
    names = np.array([f.relative_to(folder).as_posix() for f in shown], object)
    return values[: len(shown)], names, first
