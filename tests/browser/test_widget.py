"""The widget of a notebook in a real browser: the page is joined from messages alone, and draws."""

from __future__ import annotations

import base64
import functools
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest

from eckart import PCA

WIDGET = Path(__file__).resolve().parents[2] / "src" / "eckart" / "studio" / "widget.js"
HOST = """async ({files, place, page_style, height}) => {
  const told = {files, place, page_style, height}, hear = new Set();
  const model = {
    get: (name) => told[name], on: (_, f) => hear.add(f), off: (_, f) => hear.delete(f),
    send: async (message) => {
      const answer = await window.askPython(message);
      const buffers = answer.buffers.map((text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer));
      hear.forEach((f) => f(answer.message, buffers));
    },
  };
  window.leave = (await import("/widget.js")).default.render({ model, el: document.body });
}"""
"""What a notebook does for a widget: state by name, messages with buffers."""


@pytest.fixture
def host(tmp_path):
    """A page of another server, as a notebook is."""
    (tmp_path / "index.html").write_text(
        "<!doctype html><title>notebook</title><link rel=icon href=data:,><body></body>"
    )
    (tmp_path / "widget.js").write_text(WIDGET.read_text(encoding="utf-8"))
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(tmp_path))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_a_model_is_shown_in_a_notebook(browser, host, tmp_path_factory):
    from eckart.studio.answers import Studio
    from eckart.studio.folder import Folder
    from eckart.studio.view import MODEL, STYLE, answered, page_files

    folder = tmp_path_factory.mktemp("widget")
    x = np.random.default_rng(0).normal(size=(300, 5))
    PCA(3).fit(x).save(folder / MODEL)
    np.save(folder / "data.npy", x)
    studio = Studio(Folder.of(folder))

    def ask(message):
        answer, buffers = answered(studio, message)
        return {"message": answer, "buffers": [base64.b64encode(b).decode() for b in buffers]}

    page, complaints = browser.new_page(viewport={"width": 1100, "height": 800}), []
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.expose_function("askPython", ask)
    page.goto(host)
    page.evaluate(
        HOST,
        {"files": page_files(), "place": f"#/model/{MODEL}", "page_style": STYLE, "height": 760},
    )
    frame = page.frames[-1]
    frame.wait_for_selector("text=certificate holds", timeout=30_000)
    frame.wait_for_selector("text=300 points in view", timeout=30_000)
    frame.click('a:text-is("Components")')
    frame.wait_for_selector("text=How much each component keeps", timeout=30_000)
    assert complaints == []
    page.evaluate("() => window.leave()")
    assert page.query_selector("iframe") is None
    page.close()
