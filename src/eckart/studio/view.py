"""A model in a notebook: the rooms of the studio as a widget, asked by messages instead of HTTP, so
that it works wherever the notebook does.

The model (and the data, where they are given) are written to a folder of their own that lasts as
long as the widget; the page is the one of the studio.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import numpy as np

from eckart.arguments import held
from eckart.errors import InputTypeError, MissingError, invalid
from eckart.loading import pa
from eckart.serve.bodies import JSON
from eckart.serve.problems import Problem

MODEL, DATA = "model.safetensors", "data"
STYLE = (
    '.bar, .side, a[href^="/api/"] { display: none !important; } .shell { display: block '
    "!important; } body { margin: 0; }"
)
"""In a notebook there is one model: no bar, no folder, nothing to download from."""
MOST_BYTES = 64 * 2**20
"""Bytes of one answer: messages of a notebook are held in memory at both ends."""


@held
def view(model: Any, data: Any = None, *, height: int = 720) -> Any:
    """Look at a fitted model in a notebook: map, components, predictions, topics, neighbours, with
    its certificate, as in ``eckart studio``.

    Needs anywidget (``pip install 'eckart[studio]'``).

    Parameters
    ----------
    model : a fitted model, or the name of a model file
    data : the rows that it was fitted to, where the model does not hold them (reductions, topics,
        mixtures, parts): an array, a frame, an Arrow table, a list of texts, or the name of a file.
        Columns beside those of the model colour the map.
    height : of the view, in pixels

    >>> from eckart import PCA, view
    >>> model = PCA(2).fit([[0.0, 1.0, 2.0], [1.0, 3.0, 0.0], [2.0, 5.0, 1.0]])
    >>> view(model, height=5)
    Traceback (most recent call last):
    ...
    eckart.errors.InputError: height must be pixels, 100 to 10000, got 5
    """
    if isinstance(height, bool) or not isinstance(height, int) or not 100 <= height <= 10_000:
        raise invalid("height", height, "pixels, 100 to 10000")
    widget = _widget_class()
    from eckart.io.models.save import load
    from eckart.studio.answers import Studio
    from eckart.studio.folder import Folder

    name = MODEL
    if isinstance(model, (str, os.PathLike)):
        # the page's heading; a hidden file would not be shown
        name = f"{Path(model).stem.lstrip('.')}.safetensors"
        model = load(model)
    if not hasattr(model, "save"):
        raise InputTypeError(
            "model must be a fitted model of eckart, or the name of a model file, got a "
            f"{type(model).__name__}"
        )
    held = tempfile.TemporaryDirectory(prefix="eckart-view-")
    place = Path(held.name)
    model.save(place / name)
    file = None if data is None else write_data(data, place)
    studio = Studio(Folder.of(place))
    studio.library.given[name] = file
    return widget(studio, held, name, height)


def write_data(data: Any, place: Path) -> str:
    """Data as a file of the folder; its name."""
    from eckart.io.tables.frames import is_arrow, is_frame

    if isinstance(data, (str, os.PathLike)):
        source = Path(data)
        if not source.is_file():
            raise invalid("data", data, "the name of a file, or the data themselves")
        return str(Path(shutil.copy(source, place / f"{DATA}{source.suffix}")).name)
    if is_arrow(data) or is_frame(data):
        table = (
            data.to_arrow()
            if hasattr(data, "to_arrow")
            else data
            if isinstance(data, pa.Table)
            else pa.Table.from_pandas(data, preserve_index=False)
        )
        with (
            pa.OSFile(str(place / f"{DATA}.arrow"), "wb") as out,
            pa.ipc.new_file(out, table.schema) as file,
        ):
            file.write_table(table)
        return f"{DATA}.arrow"
    if isinstance(data, (list, tuple)) and data and all(isinstance(text, str) for text in data):
        lines = (" ".join(text.split()) for text in data)
        (place / f"{DATA}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return f"{DATA}.txt"
    array = np.asarray(data)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise invalid(
            "data",
            f"a {type(data).__name__} of {array.ndim} dimensions",
            "rows of numbers, a table, a list of texts, or the name of a file",
        )
    np.save(place / f"{DATA}.npy", array)
    return f"{DATA}.npy"


def page_files() -> dict[str, str]:
    """Scripts and styles of the page, by their path."""
    web = Path(__file__).parent / "web"
    icon = f"data:image/svg+xml;base64,{base64.b64encode((web / 'icon.svg').read_bytes()).decode()}"
    found = {
        p.relative_to(web).as_posix(): p.read_text(encoding="utf-8")
        for p in sorted(web.rglob("*"))
        if p.suffix in (".js", ".css")
    }
    return {path: text.replace("/web/icon.svg", icon) for path, text in found.items()}


def answered(studio: Any, message: Any) -> tuple[dict[str, Any], list[bytes]] | None:
    """The answer to a message of the page; None where it is no question."""
    from eckart.studio.asks import Ask

    if not isinstance(message, dict) or message.get("kind") != "ask":
        return None
    place, method = urlsplit(str(message.get("place"))), str(message.get("method"))
    try:
        path = place.path.removeprefix("/api/")
        body = str(message.get("body") or "{}").encode("utf-8", "replace")
        ask = (
            Ask.of_query(parse_qsl(place.query, keep_blank_values=True))
            if method == "GET"
            else Ask.of_body(JSON, body)
        )
        if path == "jobs" and method == "POST":
            raise Problem(
                422,
                "a notebook runs no jobs: fit the model in a cell, or open the folder "
                "with eckart studio",
            )
        found = studio.answer(method, path, ask)
        content = found.content if isinstance(found.content, bytes) else b"".join(found.content)
        if len(content) > MOST_BYTES:
            raise Problem(
                413,
                f"the answer has {len(content):,} bytes, which is much for a notebook; "
                "open it with eckart studio",
            )
        status, headers = found.status, {"content-type": found.kind} | found.headers
    except Problem as problem:
        status, headers, content = (
            problem.status,
            {"content-type": "application/problem+json"},
            problem.body(),
        )
    return {"kind": "answer", "id": message.get("id"), "status": status, "headers": headers}, [
        content
    ]


def _widget_class() -> Any:
    """The widget, made when it is first asked for: anywidget is an extra."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise MissingError(
            "eckart.view needs anywidget, which is not installed; pip install 'eckart[studio]'"
        ) from None

    class View(anywidget.AnyWidget):
        """A model in a notebook."""

        _esm = Path(__file__).parent / "widget.js"
        files = traitlets.Dict().tag(sync=True)
        place = traitlets.Unicode().tag(sync=True)
        page_style = traitlets.Unicode(STYLE).tag(
            sync=True
        )  # "style" belongs to the notebook: it looks for a widget there
        height = traitlets.Int(720).tag(sync=True)

        def __init__(self, studio: Any, held: Any, name: str, height: int):
            super().__init__(files=page_files(), place=f"#/model/{quote(name)}", height=height)
            self._studio, self._held = studio, held
            self.on_msg(self._asked)

        def _asked(self, _: Any, message: Any, buffers: Any) -> None:
            found = answered(self._studio, message)
            if found is not None:
                self.send(*found)

        def close(self) -> None:
            super().close()
            self._held.cleanup()

    return View
