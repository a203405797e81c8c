"""Models and data that are open: read once, kept while their files stay as they are, and brought
together (the rows of a file in the columns of a model).

A model file does not hold the rows that it was fitted to. The studio knows them for its own jobs;
for other models it looks for files of the folder whose columns fit, and says that it guessed.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.counted_texts import counted_for
from eckart.cli.options import CellOptions, TableOptions, TextOptions
from eckart.cli.reading import Reading, fitting, reading_of
from eckart.errors import EckartError, InputError
from eckart.io.models.save import load
from eckart.io.tables.columns import head_of
from eckart.io.tables.missing import Marks
from eckart.io.tables.mixed import mixed_frame
from eckart.io.tables.row_blocks import npy_array
from eckart.io.text.documents import holds_text
from eckart.matrix import Observed
from eckart.serve.problems import Problem
from eckart.studio.fitted_to import COMPARED, unlike
from eckart.studio.folder import TEXTS, Folder, kind_of
from eckart.studio.jobs import Jobs
from eckart.studio.opened import Opened, OpenedRows, RecentCache, run_verb
from eckart.studio.tables import Sheet, naming, open_sheet

MODELS_OPEN, SHEETS_OPEN, ROWS_OPEN = 6, 4, 3
"""How many of each stay open: models are maps of files and cost little, tables and rows are
held."""


MOST_COMPARED, MOST_BYTES_COMPARED = 8, 2**26
"""Files with the columns of a model that are held against its fit, and how large they may be: each
is read for it."""


class Library:
    """All that is open of a folder."""

    def __init__(self, folder: Folder, jobs: Jobs):
        self.folder, self.jobs = folder, jobs
        self.models, self.sheets, self.rows_open = (
            RecentCache(MODELS_OPEN),
            RecentCache(SHEETS_OPEN),
            RecentCache(ROWS_OPEN),
        )
        self.writing = threading.Lock()
        self.given: dict[str, str | None] = {}
        """Data of models, where somebody said so."""

    def model(self, file: Any) -> Opened:
        """The model of a file; damaged and hostile ones are refused with the reason."""
        path = self.folder.existing(file)
        mark = mark_of(path)
        if kind_of(path) == "vectors":
            raise Problem(
                422,
                f"{file} holds vectors without the model that made them; the studio "
                "shows models ('eckart embed ... --model'), "
                f"and 'eckart neighbours {file} WORD' asks the vectors",
            )

        def make() -> Opened:
            model = run_verb(load, path)
            model.verbose = False
            opened = Opened(file, path, model, mark)
            if opened.room == "complete":
                threading.Thread(target=_ready, args=(opened,), daemon=True).start()
            return opened

        return self.models.get((file, mark), make)

    def sheet(self, file: Any, reading: Reading | None = None) -> Sheet:
        path = self.folder.existing(file)
        how = reading or self.reading_for(file)
        return self.sheets.get(
            (file, mark_of(path), how.delimiter, how.header), lambda: open_sheet(path, how)
        )

    def reading_for(self, file: str) -> Reading:
        """How a data file is written, as the last job that read it had it."""
        with self.jobs.lock:
            used = [
                job for job in self.jobs.jobs.values() if job.file == file and job.state == "done"
            ]
        return reading_as({}, max(used, key=lambda j: j.began).options) if used else Reading()

    def data_of(self, opened: Opened) -> tuple[str | None, bool, list[str]]:
        """The data of a model: the file, whether that is known, and files whose columns fit."""
        if opened.file in self.given:
            said = self.given[opened.file]
            return said, said is not None, [] if said is None else [said]
        job = self.jobs.of_model(opened.file)
        if job is not None:
            with contextlib.suppress(Problem):
                self.folder.existing(job.file)
                return job.file, True, [job.file]
        fitting_files = self.models.get(
            (opened.file, opened.mark, "data", self._marks()),
            lambda: self._like_the_fit_first(opened, self._candidates(opened)),
        )
        return (fitting_files[0] if fitting_files else None), False, fitting_files

    def rows(self, opened: Opened, data: str | None) -> OpenedRows:
        """The rows of a data file for a model."""
        if not opened.needs_data:
            raise Problem(422, f"{opened.file} has its rows in itself; leave data= out")
        job = self.jobs.of_model(opened.file)
        if not data:
            data = self.data_of(opened)[0]
        if not data:
            raise Problem(
                422,
                f"the rows of {opened.file} are not in the model, and no file of the "
                "folder has its columns; put the data into the folder",
            )
        path = self.folder.existing(data, "data")
        options = job.options if job is not None and job.file == data else {}

        def make() -> OpenedRows:
            reading = reading_as(opened.plan, options)
            matrix = run_verb(self._matrix, opened, path, reading)
            if not isinstance(matrix.shape[0], int):
                raise Problem(
                    422,
                    f"data must be a file that can be read again, got {data!r}, whose number of rows is "
                    "unknown",
                )
            sheet = (
                self.sheet(data, reading)
                if "text" not in opened.plan or reading.text is not None
                else None
            )
            if sheet is not None and (sheet.rows is None or sheet.rows.num_rows != matrix.shape[0]):
                sheet = None
            names = None
            if (
                sheet is not None
                and getattr(matrix, "rows", None) is None
                and (index := naming(sheet)["index"]) is not None
            ):
                names = sheet.rows.column(index).to_pylist()
            return OpenedRows(data, matrix, reading, sheet, names)

        return self.rows_open.get((opened.file, opened.mark, data, mark_of(path)), make)

    def _matrix(self, opened: Opened, path: Path, reading: Reading) -> Any:
        if opened.room in ("topics", "parts"):
            return counted_for(opened.model, str(path), reading)
        if opened.room == "table":
            marks = Marks.of(reading.missing)
            table = mixed_frame(
                str(path),
                reading.delimiter,
                reading.header,
                marks.words,
                marks.numbers,
                reading.of_tables,
            ).source
            absent = [name for name in opened.column_names() if name not in table.column_names]
            if absent:
                raise InputError(
                    f"{path.name} must have the columns of {opened.file}, got none called {absent[0]!r}"
                )
            return table.select(opened.column_names())
        return fitting(opened.model, opened.file, str(path), reading)

    def _marks(self) -> Any:
        return tuple(
            (f["file"], f["changed"]) for f in self.folder.listing()[0] if _is_data(f["kind"])
        )

    def _candidates(self, opened: Opened) -> list[str]:
        """Files whose columns are those of the model, the nearest in name first."""
        names = opened.factors.columns
        wanted = (
            {str(name) for name in names} if names is not None and opened.room != "topics" else None
        )
        if opened.verb == "complete":
            names_kept = opened.plan.get("names")
            wanted = (
                {str(v) for v in names_kept.values() if v is not None}
                if isinstance(names_kept, dict)
                else wanted
            )
        found = []
        for f in self.folder.listing()[0]:
            if _is_data(f["kind"]) and self._fits(f, opened, wanted):
                found.append(f["file"])
        stem = Path(opened.file).stem.lower()
        alike = SequenceMatcher(b=stem)

        def other_name(name: str) -> float:
            alike.set_seq1(Path(name).stem.lower())
            return -alike.ratio()

        return sorted(found, key=other_name)[:20]

    def _like_the_fit_first(self, opened: Opened, files: list[str]) -> list[str]:
        """Of several files with the same columns, those whose means and variances are those of the
        fit before the others."""
        if len(files) < 2 or opened.room not in COMPARED:
            return files
        differ = []
        for file in files[:MOST_COMPARED]:
            small = (self.folder.root / file).stat().st_size <= MOST_BYTES_COMPARED
            with contextlib.suppress(Problem, EckartError, OSError):
                if small and unlike(opened, self.rows(opened, file)) is not None:
                    differ.append(file)
        return sorted(files, key=lambda file: file in differ)

    def _fits(self, f: dict[str, Any], opened: Opened, wanted: set[str] | None) -> bool:
        path = self.folder.root / f["file"]
        try:
            if opened.room == "topics" or opened.verb == "embed":
                text = (
                    (opened.plan.get("text") or {}).get("text")
                    if isinstance(opened.plan.get("text"), dict)
                    else None
                )
                head = head_of(str(path))
                return (
                    ((head is None or path.suffix.lower() in TEXTS) and holds_text(str(path)))
                    if text is None
                    else head is not None and text in [c.name for c in head.columns]
                )
            if path.suffix.lower() == ".npy":
                return opened.verb != "complete" and npy_array(path).shape[1:] == (
                    opened.factors.n,
                )
            head = head_of(str(path)) if path.is_file() else None
            if head is None:
                return False
            own = [c.name for c in head.columns]
            return wanted <= set(own) if wanted else len(own) == opened.factors.n
        except (EckartError, OSError, ValueError):
            return False


def _ready(opened: Opened) -> None:
    """Fold one row in, so that its kernels are there (compiled, on a new machine) when the first
    rating is changed."""
    with contextlib.suppress(Exception):  # what cannot be done is said when it is asked for
        one = Observed(
            np.array([0, 1]),
            np.array([0]),
            np.ones(1, opened.model.observed_.dtype),
            opened.factors.n,
        )
        opened.model.recommend(X=one, n=1, by="prediction")


def mark_of(path: Path) -> Any:
    now = path.stat()
    return now.st_ino, now.st_mtime_ns, now.st_size


def _is_data(kind: str) -> bool:
    return kind in ("data", "folder-of-images", "folder-of-texts")


def reading_as(plan: dict[str, Any], options: dict[str, Any]) -> Reading:
    """How data is written: as a model remembers it, and as a job had it."""

    def group(kind: Any) -> Any:
        return kind(
            **{
                name: options[name]
                for name in kind.__dataclass_fields__
                if options.get(name) not in (None, "", [])
            }
        )

    options = {
        name: str(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else value
        for name, value in options.items()
    }
    reading = reading_of(
        group(TextOptions),
        replace(group(TableOptions), columns=None),
        group(CellOptions),
        plan=plan,
    )
    return replace(reading, rows=None, columns=None, values=None)
