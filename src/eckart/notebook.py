"""Results as they look in a notebook: small HTML tables in the colours of the page, no script, nothing from the network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

GREEN, RED = "#1a7f37", "#c62828"
"""Both are readable on white and on black."""


def shown(value: Any) -> str:
    """A value as a cell shows it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return html.escape(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """A table; numbers to the right.

    >>> table(["cosine"], [(0.51234,)])
    '<table><thead><tr><th>cosine</th></tr></thead><tbody><tr><td style="text-align:right">0.5123</td></tr></tbody></table>'
    """
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    title = f'<caption style="text-align:left">{html.escape(caption)}</caption>' if caption else ""
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    side = "right" if isinstance(value, (int, float)) else "left"
    return f'<td style="text-align:{side}">{value if isinstance(value, Html) else shown(value)}</td>'


class Html(str):
    """Text that is HTML already."""


def verdict(good: bool, words: str) -> Html:
    """Words in green, or in red."""
    return Html(f'<strong style="color:{GREEN if good else RED}">{html.escape(words)}</strong>')


def curve(values: Sequence[float], width: int = 160, height: int = 32) -> Html:
    """A line through numbers, as a picture of one line's height; empty for fewer than two finite ones."""
    finite = [v for v in values if v == v and abs(v) != float("inf")]
    if len(finite) < 2:
        return Html("")
    low, high = min(finite), max(finite)
    step, span = (width - 4) / (len(finite) - 1), (high - low) or 1.0
    points = " ".join(
        f"{2 + i * step:.1f},{height - 2 - (height - 4) * (v - low) / span:.1f}" for i, v in enumerate(finite)
    )
    return Html(
        f'<svg width="{width}" height="{height}" role="img"><polyline points="{points}" fill="none" stroke="currentColor"/></svg>'
    )
