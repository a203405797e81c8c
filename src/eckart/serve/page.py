"""The OpenAPI description as a page for people: no script, no network."""

from __future__ import annotations

import json
from html import escape
from typing import Any


def page(description: dict[str, Any]) -> str:
    """One HTML page of all places, with the schema of what they take."""
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 "
        "1em;color-scheme:light dark}"
    )
    style += "pre{overflow:auto;padding:1em;border:1px solid}"
    parts = [
        "<h1>eckart "
        f"{escape(description['info']['version'])}</h1><p>{escape(description['info']['description'])}</p>"
    ]
    for place, methods in description["paths"].items():
        for method, about in methods.items():
            parts.append(
                f"<h2><code>{method.upper()} "
                f"{escape(place)}</code></h2><p>{escape(str(about['summary']))}</p>"
            )
            body = (
                about.get("requestBody", {})
                .get("content", {})
                .get("application/json", {})
                .get("schema")
            )
            if body:
                parts.append(
                    f"<details><summary>Body</summary><pre>{escape(json.dumps(body, indent=1))}</pre></details>"
                )
    return (
        "<!doctype html><html lang=en><meta "
        f"charset=utf-8><title>eckart</title><style>{style}</style><main>{''.join(parts)}</main></html>"
    )
