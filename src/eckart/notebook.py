"""Results as they look in a notebook: small HTML tables in the colours of the page, no script,
nothing from the network."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

GREEN, RED = "#1a7f37", "#c62828"
"""Both are readable on white and on black."""


def shown(value: Any) -> str:
    """A value as a cell shows it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return html.escape(
        f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    )


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
    return (
        f'<td style="text-align:{side}">{value if isinstance(value, Html) else shown(value)}</td>'
    )


class Html(str):
    """Text that is HTML already."""


def verdict(good: bool, words: str) -> Html:
    """Words in green, or in red."""
    return Html(f'<strong style="color:{GREEN if good else RED}">{html.escape(words)}</strong>')


def curve(values: Sequence[float], width: int = 160, height: int = 32) -> Html:
    """A line through numbers, as a picture of one line's height; empty for fewer than two finite
    ones."""
    finite = [v for v in values if v == v and abs(v) != float("inf")]
    if len(finite) < 2:
        return Html("")
    low, high = min(finite), max(finite)
    step, span = (width - 4) / (len(finite) - 1), (high - low) or 1.0
    points = " ".join(
        f"{2 + i * step:.1f},{height - 2 - (height - 4) * (v - low) / span:.1f}"
        for i, v in enumerate(finite)
    )
    return Html(
        f'<svg width="{width}" height="{height}" role="img"><polyline points="{points}" '
        'fill="none" stroke="currentColor"/></svg>'
    )


def folded(summary: str, content: str) -> Html:
    """Content that opens where its summary is clicked."""
    words = summary if isinstance(summary, Html) else html.escape(summary)
    return Html(f"<details><summary>{words}</summary>{content}</details>")


def in_notebook() -> bool:
    """Whether the code runs in a cell of a notebook, not in a shell or a script."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Line:
    """One line of a notebook's cell that is written anew; at most ten times a second, since pages
    that are sent more fall behind."""

    EVERY = 0.1

    def __init__(self) -> None:
        self.handle: Any = None
        self.words, self.at = "", 0.0

    def say(self, words: str, last: bool = False) -> None:
        self.words, now = words, time.monotonic()
        if not last and now - self.at < self.EVERY:
            return
        self.at = now
        content = {"text/plain": words, "text/html": f"<pre>{html.escape(words)}</pre>"}
        if self.handle is None:
            from IPython.display import display

            self.handle = display(content, raw=True, display_id=True)
        else:
            self.handle.update(content, raw=True)


SHOWN_ROWS = 12
"""Lines of an answer: what fits above a certificate without scrolling."""
NAMED = 5
"""Columns that are named for each component."""


def answer_of(model: Any) -> str:
    """What a fitted model found: shares of variance, topics with their words, errors of columns,
    parts, neighbours of words, or the measured facts."""
    f, plan = model.fit_.factors, model.fit_.plan
    if hasattr(f, "_repr_html_"):
        return str(f._repr_html_())
    if hasattr(model, "explained_variance_ratio_"):
        ratio = model.explained_variance_ratio_
        named = model.top_features(NAMED) if hasattr(model, "top_features") else _largest(model)
        rows = [
            (i + 1, f"{float(share):.1%}", ", ".join(f"{name} {value:+.3g}" for name, value in top))
            for i, (share, top) in enumerate(zip(ratio, named))
        ]
        return _cut(
            ("component", "share of the variance", "columns"),
            rows,
            f"{len(ratio)} components keep {float(ratio.sum()):.1%} of the variance",
        )
    if isinstance(errors := plan.get("errors"), dict) and errors:
        rows = [
            (name, model.losses_.get(name, ""), float(of[2]), float(of[0]))
            for name, of in errors.items()
        ]
        return _cut(
            ("column", "loss", "error at cells held out", "of the mean or commonest level"),
            rows,
            f"{len(rows)} columns, rank {f.k}",
        )
    if hasattr(model, "vectors_"):
        return str(model.vectors_._repr_html_())
    if hasattr(f, "family"):
        means = getattr(model, "means_", None)
        named = (
            [""] * f.k
            if means is None
            else [
                ", ".join(f"{n} {v:.3g}" for n, v in zip(_names(model), row[:NAMED]))
                for row in means
            ]
        )
        return _cut(
            ("component", "share", "mean"),
            [(z + 1, f"{float(w):.1%}", named[z]) for z, w in enumerate(f.weights)],
            f"{f.k} components",
        )
    if hasattr(model, "observed_"):
        x = model.observed_
        share = x.nnz / max(1, x.shape[0] * x.shape[1])
        caption = f"{x.shape[0]:,} x {x.shape[1]:,}, {x.nnz:,} entries seen ({share:.2%})"
        held = plan.get("held_out")
        held = (
            {f"{name}, held out": v for name, v in held["model"].items()}
            if isinstance(held, dict) and isinstance(held.get("model"), dict)
            else {}
        )
        return _facts(model, {"factors": int(getattr(f, "k", 0))} | held, caption)
    if hasattr(model, "components_"):
        rows = [
            (z + 1, ", ".join(f"{name} {value:.3g}" for name, value in top))
            for z, top in enumerate(_largest(model))
        ]
        return _cut(("part", "columns with the largest weights"), rows, f"{len(rows)} parts")
    return _facts(model, {}, type(model).__name__)


def _names(model: Any) -> Sequence[Any]:
    f = model.fit_.factors
    return [f"x{j}" for j in range(f.n)] if f.columns is None else list(f.columns)


def _largest(model: Any) -> list[list[tuple[Any, float]]]:
    """For each component the columns of the largest entries."""
    names = _names(model)
    rows = [
        sorted(enumerate(map(float, row)), key=lambda item: -abs(item[1]))[:NAMED]
        for row in model.components_[:SHOWN_ROWS]
    ]
    return [[(names[j], value) for j, value in row] for row in rows]


def _cut(head: Sequence[str], rows: list[Any], caption: str) -> str:
    more = f"; the first {SHOWN_ROWS} are shown" if len(rows) > SHOWN_ROWS else ""
    return table(head, rows[:SHOWN_ROWS], caption + more)


def _facts(model: Any, first: dict[str, Any], caption: str) -> str:
    facts = first | {
        name: value
        for name, value in model.certificate_.facts.items()
        if isinstance(value, (int, float))
    }
    return table(("what", "measured"), list(facts.items())[:SHOWN_ROWS], caption)
