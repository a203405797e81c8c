"""The one folder that the studio sees: paths that stay inside of it, what lies in it, and studio's
own corner for jobs.

A path comes from a web page, so it is hostile until proven otherwise: relative, of plain parts,
and, after every symbolic link is followed, still below the folder. Hidden files and studio's own
are not there for the page.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from eckart.errors import FileError
from eckart.io.models.save import head_of
from eckart.io.tables.frames import ARROW_FILES
from eckart.io.tables.long_tables import TEXT_FILES
from eckart.io.tables.other_files import IMAGES, OTHER_TABLES
from eckart.registry import SAVED
from eckart.serve.problems import Problem

CORNER = ".eckart-studio"
"""Where jobs keep their records and checkpoints."""
MOST_LISTED = 2000
"""Files that are listed; a folder of more is better opened below."""
DEPTH = 3
"""Folders in folders that are looked into."""
TABLES = tuple(dict.fromkeys([*TEXT_FILES, *ARROW_FILES, *OTHER_TABLES]))
ARRAYS = (".npy", ".npz", ".mtx")
TEXTS = (".txt",)
VECTORS = (".vec", ".bin")
LONGEST, LONGEST_PART = 1000, 255
"""Characters of a name, and bytes of one part of it, that file systems take."""
UPLOADS = (*TABLES, *ARRAYS, *TEXTS, *VECTORS, ".gz", ".safetensors")
"""Endings of files that may be dropped onto the page."""


@dataclass(frozen=True)
class Folder:
    """``root`` is the folder with every symbolic link followed; ``opened`` the file that was named
    on the command line, relative to it."""

    root: Path
    opened: str | None = None

    @classmethod
    def of(cls, place: Path) -> Folder:
        """The folder of a file, or a folder itself."""
        real = place.resolve()
        if real.is_dir():
            return cls(real)
        if not real.is_file():
            raise FileError(f"{place} must be a model, a data file or a folder that exists")
        if place.is_symlink():
            raise FileError(f"{place} must be the file itself, got a link to {real}. Open {real}.")
        return cls(real.parent, real.name)

    @property
    def corner(self) -> Path:
        return self.root / CORNER

    def inside(self, name: Any, what: str = "file") -> Path:
        """The path of a name that a page sent, refused where it leads out of the folder."""
        if not isinstance(name, str) or not name:
            raise Problem(422, f"{what} must be the name of a file in the folder, got {name!r}")
        shown = name if len(name) < 200 else name[:197] + "..."
        parts = name.split("/")
        plain = (
            "\\" not in name
            and name.isprintable()
            and not os.path.isabs(name)
            and ":" not in parts[0][:2]
        )
        plain = (
            plain
            and len(name) <= LONGEST
            and all(len(part.encode("utf-8", "replace")) <= LONGEST_PART for part in parts)
        )
        if not plain or any(part in ("", ".", "..") or part.startswith(".") for part in parts):
            raise Problem(
                422,
                f"{what} must be a name below the folder, without .. and hidden parts, got {shown!r}",
            )
        path = self.root.joinpath(*parts)
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):
            raise Problem(
                422, f"{what} must be a plain file, got {shown!r}, which cannot be followed"
            ) from None
        if not real.is_relative_to(self.root) or CORNER in real.relative_to(self.root).parts:
            raise Problem(
                422,
                f"{what}={shown!r} leads out of the folder; copy the file into it, or "
                "open the studio elsewhere",
            )
        return path

    def existing(self, name: Any, what: str = "file") -> Path:
        """The same for what must be there."""
        path = self.inside(name, what)
        if not path.exists():
            raise Problem(
                404, f"{what}={name[:200]!r} came, which is not in the folder; see GET /api/folder"
            )
        return path

    def new_name(self, stem: str, endings: tuple[str, ...]) -> str:
        """A stem that no file of these endings has: a number is added where one does."""
        clean = (
            "".join(c if c.isalnum() or c in "-_ ." else "-" for c in stem).strip(" .-")[:80]
            or "model"
        )
        name, count = clean, 1
        while any((self.root / f"{name}{ending}").exists() for ending in endings):
            count += 1
            name = f"{clean}-{count}"
        return name

    def listing(self) -> tuple[list[dict[str, Any]], int]:
        """Files and folders that the page may use, by name, and how many were left out."""
        found: list[dict[str, Any]] = []
        more = 0
        for path, kind in self._walk(self.root, 0):
            if len(found) == MOST_LISTED:
                more += 1
                continue
            try:
                now = path.stat()
            except OSError:
                continue
            name = path.relative_to(self.root).as_posix()
            about = {
                "file": name,
                "name": path.name,
                "kind": kind,
                "bytes": now.st_size,
                "changed": now.st_mtime,
            }
            found.append(
                about
                | (
                    {}
                    if kind != "model"
                    else {"class": model_class(path, now.st_mtime_ns, now.st_size)}
                )
            )
        return sorted(found, key=lambda f: (f["file"].count("/"), f["file"].lower())), more

    def mark(self) -> Any:
        """Something that changes when the listing does."""
        return [(f["file"], f["bytes"], f["changed"]) for f in self.listing()[0]]

    def _walk(self, folder: Path, depth: int) -> Any:
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError:
            return
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "__pycache__" or not self._stays(entry):
                continue
            path = Path(entry.path)
            if not entry.is_dir():
                if entry.is_file():  # a pipe would be waited for
                    yield path, kind_of(path)
                continue
            kind = _folder_kind(path)
            if kind is not None:
                yield path, kind
            elif depth < DEPTH:
                yield from self._walk(path, depth + 1)

    def _stays(self, entry: Any) -> bool:
        try:
            return not entry.is_symlink() or Path(entry.path).resolve().is_relative_to(self.root)
        except (OSError, RuntimeError):
            return False


def kind_of(path: Path) -> str:
    """What a file is for, by its ending; a .safetensors file by its header."""
    name = path.name.lower().removesuffix(".gz")
    ending = Path(name).suffix
    if ending == ".safetensors":
        try:
            now = path.stat()
        except OSError:
            return "other"
        return "other" if model_class(path, now.st_mtime_ns, now.st_size) is None else "model"
    if ending in (".html", ".htm"):
        return "report"
    if ending in (*TABLES, *ARRAYS, *TEXTS):
        return "data"
    return "vectors" if ending in VECTORS else "other"


@lru_cache(maxsize=4096)
def model_class(path: Path, changed: int, size: int) -> str | None:
    """The class that the header of a model file names, None for other files; asked again only when
    it changed, since the header of a large one is long."""
    try:
        with path.open("rb") as raw:
            name = json.loads(head_of(raw, path)).get("class")
    except (FileError, OSError, ValueError):
        return None
    return name if isinstance(name, str) and name in SAVED else None


def _folder_kind(path: Path) -> str | None:
    """A folder of nothing but images, or of texts, is one source of data."""
    endings = set()
    for count, entry in enumerate(os.scandir(path)):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            return None
        endings.add(Path(entry.name).suffix.lower())
        if count > 200:  # enough to tell
            break
    if endings and endings <= set(IMAGES):
        return "folder-of-images"
    return "folder-of-texts" if endings == {".txt"} else None
