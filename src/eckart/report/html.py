"""A report as one self-contained HTML file: pictures inside, nothing from outside, readable without
its script, on a phone and printed."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import warnings
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from eckart.io.models.whole_files import atomic_write

DRAWN = 4000
"""Points of a picture that is drawn as lines and shapes; more would make a large file and a slow
page, so it becomes an image."""
POINTED = 5000
"""Points that can be pointed at in a picture."""
LONG = 12
"""Rows from which a table gets a field to search it."""


class Report:
    """Pieces of a page in order; ``write`` puts them into one file."""

    def __init__(self, title: str, lead: str = ""):
        self.title, self.lead = title, lead
        self.parts: list[str] = []

    def section(self, title: str) -> Report:
        self.parts.append(f'<h2 id="{_anchor(title)}">{html.escape(title)}</h2>')
        return self

    def text(self, words: str) -> Report:
        self.parts.append(f"<p>{html.escape(words)}</p>")
        return self

    def verdict(self, words: str, good: bool = True) -> Report:
        """A sentence in a box: green where it is good news, red where it is not."""
        self.parts.append(f'<p class="verdict{"" if good else " no"}">{html.escape(words)}</p>')
        return self

    def table(self, header: list[str], rows: list[list[Any]]) -> Report:
        head = "".join(f'<th scope="col">{html.escape(str(h))}</th>' for h in header)
        body = "".join("<tr>" + "".join(_cell(c) for c in row) + "</tr>" for row in rows)
        kind = "wide search" if len(rows) > LONG else "wide"
        self.parts.append(
            "<div "
            f'class="{kind}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )
        return self

    def pictures(self, *axes: tuple[Any, str]) -> Report:
        """Each picture is (axes, caption)."""
        self.parts.append(
            f'<div class="grid">{"".join(_figure(ax, words) for ax, words in axes)}</div>'
        )
        return self

    def holds(self, certificate: Any) -> Report:
        """One line for the top of a page: whether the evidence below holds."""
        good = certificate.holds
        words = (
            "The certificate holds"
            if good
            else f"The certificate does not hold: {certificate.reason}"
        )
        self.parts.append(
            f'<p class="badge{"" if good else " no"}">{html.escape(words)}. <a '
            'href="#evidence">See the evidence</a></p>'
        )
        return self

    def certificate(self, certificate: Any) -> Report:
        words = (
            "The certificate holds."
            if certificate.holds
            else f"The certificate does not hold: {certificate.reason}."
        )
        self.parts.append(
            "<p "
            f'class="verdict{"" if certificate.holds else " no"}"><b>{html.escape(words)}</b> '
            f"Kind: {html.escape(certificate.kind)}. "
            f"Problem: {html.escape(certificate.problem)}.</p>"
        )
        rows = [
            ["ok" if c.passed else "fails", c.name, c.value, c.limit, c.meaning]
            for c in certificate.checks
        ]
        self.table(["", "check", "measured", "allowed", "meaning"], rows)
        facts = [[name, value] for name, value in certificate.facts.items()] + [
            ["note", note] for note in certificate.notes
        ]
        return self.table(["fact", "value"], facts)

    def computed(self, fit: Any, hidden: tuple[str, ...] = (), steps: str = "steps") -> Report:
        """The end of a page: the choices that were made, and why the solver stopped."""
        self.section("How it was computed")
        self.table(
            ["choice", "value"],
            [[key, in_words(v)] for key, v in fit.plan.items() if key not in hidden],
        )
        return self.text(
            f"Stopped: {fit.trace.reason.value} ({len(fit.trace)} {steps}). {fit.trace.note}"
        )

    def render(self) -> str:
        style, script = (
            files("eckart.report").joinpath(name).read_text("utf-8")
            for name in ("page.css", "page.js")
        )
        # this script and no other
        allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = (
            "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
            f"'sha256-{allowed}'"
        )
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta '
            'name="viewport" content="width=device-width,initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            f"<title>{html.escape(self.title)}</title><style>{style}</style></head><body><h1>{html.escape(self.title)}</h1>"
            "<p "
            f'class="lead">{html.escape(self.lead)}</p>{"".join(self.parts)}<script>{script}</script></body></html>'
        )

    def write(self, path: Any) -> Path:
        """Write the page, replacing the file only when it is complete."""
        atomic_write(path, self.render().encode())
        return Path(path)


def in_words(value: Any) -> str:
    """A value of a plan as text; long lists are cut."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {in_words(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        value = [*value[:8], "..."] if len(value) > 8 else value
        return ", ".join(in_words(v) for v in value)
    return str(value)


def _anchor(title: str) -> str:
    """The name by which a section can be linked to.

    >>> _anchor("How good are the predictions?")
    'how-good-are-the-predictions'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="n">{value:.6g}</td>'
    mark = {"ok": "ok", "fails": "bad"}.get(str(value))
    return f'<td class="{mark}">{value}</td>' if mark else f"<td>{html.escape(str(value))}</td>"


def _figure(ax: Any, words: str) -> str:
    """A picture with its caption and, for those who point at it, the values of its points."""
    kind, picture = _picture(ax.figure)
    photo = any(axes.images for axes in ax.figure.axes)
    # charts side by side are drawn wide: on a phone their words would be too small to read, so the
    # picture keeps its width there and is moved
    many = ' class="many"' if ax.figure.get_size_inches()[0] > 9 and not photo else ""
    escaped = html.escape(words)
    image = (
        f'<img alt="{escaped}" class="{"photo" if photo else "drawn"}" '
        f'src="data:image/{kind};base64,{picture}">'
    )
    return (
        f'<figure{many} data-marks="{html.escape(json.dumps(_marks(ax.figure)))}"><div '
        f'class="frame"><div class="pane">{image}</div></div>'
        f"<figcaption>{escaped}</figcaption></figure>"
    )


def _picture(figure: Any) -> tuple[str, str]:
    """The type and the bytes of a picture: lines and shapes, which stay sharp, unless they are very
    many."""
    from matplotlib import rc_context

    points = sum(len(c.get_offsets()) for axes in figure.axes for c in axes.collections)
    lines = sum(len(line.get_xdata()) for axes in figure.axes for line in axes.lines)
    many = points + lines // 10 > DRAWN or any(axes.images for axes in figure.axes)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from font"
        )  # labels of any script: the tables beside the pictures have them
        if many:
            figure.savefig(buffer, format="png", dpi=160, facecolor="white")
            return "png", base64.b64encode(buffer.getvalue()).decode()
        # the same report has the same bytes
        with rc_context({"svg.hashsalt": "eckart", "svg.fonttype": "path"}):
            figure.savefig(
                buffer, format="svg", facecolor="white", metadata={"Date": None, "Creator": None}
            )
    return "svg+xml", base64.b64encode(buffer.getvalue()).decode()


def _marks(figure: Any) -> list[list[Any]]:
    """What can be pointed at: [across, down, words], places as shares of the picture. Read after
    the picture was drawn."""
    found: list[list[Any]] = []
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        for points in axes.collections:
            offsets: np.ndarray = np.ma.filled(np.ma.asarray(points.get_offsets(), float), np.nan)
            names = getattr(points, "eckart_names", None)
            if len(offsets) > 1 or names is not None:
                found += _placed(axes, offsets, names)
        for line in axes.lines:
            xy = np.column_stack(
                [np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)]
            )
            label = str(line.get_label())
            if 2 < len(xy) <= POINTED and line.get_transform() == axes.transData:
                found += _placed(axes, xy, None if label.startswith("_") else [label] * len(xy))
        for bars in axes.containers:
            for bar in getattr(bars, "patches", ()):
                lies = (
                    bar.get_width()
                    if getattr(bars, "orientation", "vertical") == "horizontal"
                    else bar.get_height()
                )
                middle = np.array(
                    [[bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2]]
                )
                found += [[*mark[:2], f"{lies:.4g}"] for mark in _placed(axes, middle, None)]
    return found[:POINTED]


def _placed(axes: Any, xy: np.ndarray, names: Any) -> list[list[Any]]:
    """Points of axes as marks; those outside of the picture are left out."""
    seen = np.flatnonzero(np.isfinite(xy).all(axis=1))[:POINTED]
    with np.errstate(all="ignore"):
        at = axes.transData.transform(xy[seen]) / [axes.figure.bbox.width, axes.figure.bbox.height]
    marks = []
    for i, (across, up) in zip(seen, at):
        if 0 <= across <= 1 and 0 <= up <= 1:
            name = "" if names is None else f"{names[i]}: "
            marks.append(
                [
                    round(float(across), 4),
                    round(1 - float(up), 4),
                    f"{name}{xy[i, 0]:.4g}, {xy[i, 1]:.4g}",
                ]
            )
    return marks
