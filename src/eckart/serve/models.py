"""The models that are served: mapped from their files, swapped when a file is replaced, refused with a reason when it cannot be trusted.

A request keeps the model it began with, so that a swap drops none: the new model is loaded and tried beside the old one, and then takes its name.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eckart.errors import EckartError, FileError
from eckart.io.models.memory_maps import load_mapped
from eckart.serve.lists import Lists
from eckart.serve.problems import Problem
from eckart.serve.schema import VERBS

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
            "name": self.name, "version": self.version, "class": type(self.model).__name__, "verbs": list(self.verbs),
            "components": int(getattr(fit.factors, "k", 0)) or None, "columns": int(fit.factors.n), "rows": None if shape is None else int(shape[0]),
            "certificate": {"holds": c.holds, "kind": c.kind, "problem": c.problem, "reason": c.reason, "notes": list(c.notes)},
            "loaded": round(self.loaded, 3),
        }  # fmt: skip


def _verbs_of(model: Any) -> tuple[str, ...]:
    completes, embeds = hasattr(model, "recommend"), hasattr(model, "vectors_")
    can = {
        "transform": hasattr(model, "transform"), "predict": hasattr(model, "predict"), "recommend": completes, "similar": completes, "explain": completes,
        "neighbours": embeds, "analogy": embeds, "impute": hasattr(model, "impute") or completes, "certify": True,
    }  # fmt: skip
    return tuple(verb for verb in VERBS if can[verb])


def opened(name: str, path: Path) -> Served:
    """A model of a file, tried with one question of the kind that it will be asked, so that the first caller does not wait for it."""
    now = path.stat()
    model = load_mapped(path)
    model.verbose = False
    lists = Lists.of(model)
    if lists is not None and lists.rows:
        lists.best([0], 1, True)
    return Served(name, model, f"{now.st_mtime_ns:x}-{now.st_size:x}", time.time(), lists, _verbs_of(model))


@dataclass
class Shelf:
    """All served models by name."""

    paths: dict[str, Path]
    served: dict[str, Served] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    swaps: int = 0
    _seen: dict[str, Any] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def load(self) -> None:
        """Load every model; the first start is refused where one cannot be."""
        for name, path in self.paths.items():
            try:
                self._seen[name] = _mark(path)
                self.served[name] = opened(name, path)
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
        """Take in what was replaced; what cannot be trusted is refused, and the model of before stays."""
        for name, path in self.paths.items():
            mark = _mark(path)
            if mark is None or mark == self._seen.get(name):
                continue
            self._seen[name] = mark
            try:
                self.served[name] = opened(name, path)
                self.refused.pop(name, None)
                self.swaps += 1
            except (EckartError, OSError, MemoryError) as error:
                self.refused[name] = str(error)

    def named(self, name: str) -> Served:
        found = self.served.get(name)
        if found is None:
            raise Problem(
                404,
                f"model {name[:80]!r} came, wanted one of {', '.join(sorted(self.served)) or 'none'}; see /v1/models",
            )
        return found

    def cards(self) -> list[dict[str, Any]]:
        return [served.card() | {"refused": self.refused.get(name)} for name, served in sorted(self.served.items())]


def _mark(path: Path) -> Any:
    try:
        now = os.stat(path)
    except OSError:
        return None
    return now.st_ino, now.st_mtime_ns, now.st_size
