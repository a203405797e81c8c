"""A report as one self-contained HTML file: no script, no link outside, pictures inside."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import Any

from eckart.io.models.save import atomic_write

STYLE = """
:root{color-scheme:light}body{font:16px/1.5 system-ui,sans-serif;color:#1f2933;background:#fff;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .2rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem;border-bottom:1px solid #e4e7eb;padding-bottom:.2rem}
p.lead{color:#52606d;margin:.1rem 0 1rem}table{border-collapse:collapse;font-size:.9rem;width:100%}td,th{text-align:left;padding:.25rem .6rem .25rem 0;
border-bottom:1px solid #f0f2f4;vertical-align:top}th{color:#7b8794;font-weight:600}td.n{font-variant-numeric:tabular-nums;white-space:nowrap}
.ok{color:#2f855a;font-weight:600}.bad{color:#c53030;font-weight:600}
.verdict{padding:.6rem .9rem;border-radius:.4rem;background:#f0fff4;border:1px solid #c6f6d5}
.verdict.no{background:#fff5f5;border-color:#fed7d7}
img{max-width:min(100%,40rem);height:auto;display:block}figure{margin:1rem 0}figcaption{color:#52606d;font-size:.9rem}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:1rem;align-items:start}
"""


class Report:
    """Pieces of a page in order; ``write`` puts them into one file."""

    def __init__(self, title: str, lead: str = ""):
        self.title, self.lead = title, lead
        self.parts: list[str] = []

    def section(self, title: str) -> Report:
        self.parts.append(f"<h2>{html.escape(title)}</h2>")
        return self

    def text(self, words: str) -> Report:
        self.parts.append(f"<p>{html.escape(words)}</p>")
        return self

    def verdict(self, words: str, good: bool = True) -> Report:
        """A sentence in a box: green where it is good news, red where it is not."""
        self.parts.append(f'<p class="verdict{"" if good else " no"}">{html.escape(words)}</p>')
        return self

    def table(self, header: list[str], rows: list[list[Any]]) -> Report:
        head = "".join(f"<th>{html.escape(str(h))}</th>" for h in header)
        body = "".join("<tr>" + "".join(_cell(c) for c in row) + "</tr>" for row in rows)
        self.parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        return self

    def pictures(self, *axes: tuple[Any, str]) -> Report:
        """Each picture is (axes, caption)."""
        figures = [
            f'<figure><img alt="{html.escape(words)}" src="data:image/png;base64,{_png(ax)}"><figcaption>{html.escape(words)}</figcaption></figure>'
            for ax, words in axes
        ]
        self.parts.append(f'<div class="grid">{"".join(figures)}</div>')
        return self

    def certificate(self, certificate: Any) -> Report:
        words = (
            "The certificate holds." if certificate.holds else f"The certificate does not hold: {certificate.reason}."
        )
        self.parts.append(
            f'<p class="verdict{"" if certificate.holds else " no"}"><b>{html.escape(words)}</b> Kind: {html.escape(certificate.kind)}. '
            f"Problem: {html.escape(certificate.problem)}.</p>"
        )
        rows = [["ok" if c.passed else "fails", c.name, c.value, c.limit, c.meaning] for c in certificate.checks]
        self.table(["", "check", "measured", "allowed", "meaning"], rows)
        facts = [[name, value] for name, value in certificate.facts.items()] + [
            ["note", note] for note in certificate.notes
        ]
        return self.table(["fact", "value"], facts)

    def render(self) -> str:
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{STYLE}</style></head><body><h1>{html.escape(self.title)}</h1>"
            f'<p class="lead">{html.escape(self.lead)}</p>{"".join(self.parts)}</body></html>'
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


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="n">{value:.6g}</td>'
    mark = {"ok": "ok", "fails": "bad"}.get(str(value))
    return f'<td class="{mark}">{value}</td>' if mark else f"<td>{html.escape(str(value))}</td>"


def _png(ax: Any) -> str:
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png", dpi=130, facecolor="white")
    return base64.b64encode(buffer.getvalue()).decode()
