"""The models that are served: mapped from copies of their files, swapped when a file changes,
refused with a reason when it cannot be trusted.

A request keeps the model it began with, so that a swap drops none: the new model is loaded and
tried beside the old one, and then takes its name. A file that others may write into is never
mapped: its bytes would change under a model that was checked, or vanish. It is copied first, once
for all worker processes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import EckartError, FileError
from eckart.io.models.memory_maps import load_mapped
from eckart.io.models.save import load
from eckart.query.answers import verbs_of
from eckart.serve.lists import Lists
from eckart.serve.problems import Problem

log = logging.getLogger("eckart.serve")
LOOK_EVERY = 0.5
"""Seconds between looks at the files; one look is one stat."""


@dataclass(frozen=True, eq=False)
class Served:
    """One version of a model, ready to answer."""

    name: str
    model: Any
    version: str
    loaded: float
    lists: Lists | None
    verbs: tuple[str, ...]

    def card(self) -> dict[str, Any]:
        """What the model is, for people and programs. No data, no path."""
        fit, c = self.model.fit_, self.model.certificate_
        shape = getattr(fit.factors, "shape", None)
        return {
            "name": self.name,
            "version": self.version,
            "class": type(self.model).__name__,
            "verbs": list(self.verbs),
            "components": int(getattr(fit.factors, "k", 0)) or None,
            "columns": int(fit.factors.n),
            "rows": None if shape is None else int(shape[0]),
            "certificate": {
                "holds": c.holds,
                "kind": c.kind,
                "problem": c.problem,
                "reason": c.reason,
                "notes": list(c.notes),
            },
            "loaded": round(self.loaded, 3),
        }


def open_model(name: str, path: Path, copies: Path | None = None) -> Served:
    """A model of a file, tried with one question of the kind that it will be asked, so that the
    first caller does not wait for it.

    It is read into memory; or mapped from a copy in the folder ``copies``, which worker processes
    share.
    """
    now = path.stat()
    model = load(path) if copies is None else _load_copy(path, copies)
    model.verbose = False
    lists = Lists.of(model)
    _try(model, lists)
    return Served(
        name, model, f"{now.st_mtime_ns:x}-{now.st_size:x}", time.time(), lists, verbs_of(model)
    )


def _try(model: Any, lists: Lists | None) -> None:
    """Ask one small question of each kind, so that packages are loaded and kernels compiled."""
    if lists is not None and lists.rows:
        lists.best([0], 1, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(model, "vectors_"):
            model.vectors_.neighbours(model.vectors_.vectors[:2].astype(float), 1)
        for verb in ("transform", "predict", "impute"):
            if not hasattr(model, "recommend") and hasattr(model, verb):
                with suppress(Exception):  # a row of ones is no data of some models
                    getattr(model, verb)(np.ones((1, model.n_features_in_)))


def _load_copy(path: Path, copies: Path) -> Any:
    """The model of a copy; what is wrong with it is said of the file."""
    copy = _sealed_copy(path, copies)
    try:
        return load_mapped(copy)
    except FileError as error:
        raise FileError(str(error).replace(str(copy), str(path))) from None


def _sealed_copy(path: Path, copies: Path) -> Path:
    """A copy that nobody writes into, named by the file's place, time and size; made by the first
    worker process that asks for it."""
    if not path.is_file():  # a device would be copied without end
        raise FileError(f"{path} does not exist or is not a file")
    mark = _mark(path)
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    copy = copies / f"{place}-{'-'.join(f'{n:x}' for n in mark or ())}.safetensors"
    if not copy.exists():
        part = copy.with_name(f"{copy.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            shutil.copyfile(path, part)
            if _mark(path) != mark:
                raise FileError(f"{path} changed while it was read; it is tried again")
            part.replace(copy)
        finally:
            part.unlink(missing_ok=True)
        for before in set(copies.glob(f"{place}-*.safetensors")) - {copy}:
            with suppress(OSError):  # maps of it live on; Windows keeps a file that is mapped
                before.unlink(missing_ok=True)
    return copy


@dataclass
class ModelRegistry:
    """All served models by name."""

    paths: dict[str, Path]
    copies: Path | None = None
    served: dict[str, Served] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    swaps: int = 0
    _seen: dict[str, Any] = field(default_factory=dict)
    _moving: dict[str, Any] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def load(self) -> None:
        """Load every model; the first start is refused where one cannot be."""
        for name, path in self.paths.items():
            try:
                self._seen[name] = _mark(path)
                self.served[name] = open_model(name, path, self.copies)
            except OSError as error:
                raise FileError(f"model {name}: {path} cannot be read: {error.strerror}") from None

    def watch(self) -> threading.Thread:
        """Look at the files from now on, in a thread."""
        thread = threading.Thread(target=self._watch, name="eckart-models", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            self.look()

    def look(self) -> None:
        """Take in what was replaced and has come to rest; what cannot be trusted is refused, and
        the model of before stays."""
        for name, path in self.paths.items():
            mark = _mark(path)
            if mark is None or mark == self._seen.get(name):
                continue
            # a copy in progress: its time or size changes until the next look
            if self._moving.get(name) != mark:
                self._moving[name] = mark
                continue
            try:
                self.served[name] = open_model(name, path, self.copies)
                self.refused.pop(name, None)
                self.swaps += 1
            except Exception as error:  # one odd file must not end the looks at all the others
                # callers see the reason, not where files lie
                reason = str(error) or type(error).__name__
                self.refused[name] = reason.replace(str(path), path.name)
                known = isinstance(error, (EckartError, OSError, MemoryError))
                log.warning("model %s is refused: %s", name, self.refused[name], exc_info=not known)
            self._seen[name] = mark

    def named(self, name: str) -> Served:
        found = self.served.get(name)
        if found is None:
            raise Problem(
                404,
                f"model must be one of {', '.join(sorted(self.served)) or 'none'}, got "
                f"{name[:80]!r}. See /v1/models.",
            )
        return found

    def cards(self) -> list[dict[str, Any]]:
        return [
            served.card() | {"refused": self.refused.get(name)}
            for name, served in sorted(self.served.items())
        ]


def _mark(path: Path) -> Any:
    try:
        now = os.stat(path)
    except OSError:
        return None
    return now.st_ino, now.st_mtime_ns, now.st_size
