"""Loaded by schemathesis (see service_cases.py): invented ids are replaced by ids that the served
models know, so that cases reach the models."""

from __future__ import annotations

import random

import schemathesis

KNOWN = {
    "rows": [f"u{i}" for i in range(50)],
    "columns": list(range(1000, 1300)),
    "words": [str(i) for i in range(12)],
}
KINDS = {
    "rows": "rows",
    "row": "rows",
    "columns": "columns",
    "column": "columns",
    "candidates": "columns",
    "exclude": "columns",
    "words": "words",
    "a": "words",
    "b": "words",
    "c": "words",
}


@schemathesis.hook
def map_body(context, body):
    """Ids of the models in nine of ten fields; tables as wide as the model in one of two."""
    if not isinstance(body, dict):
        return body
    rng = random.Random(repr(body))
    return {name: _known(name, value, rng) for name, value in body.items()}


def _known(name, value, rng):
    if name == "X" and isinstance(value, dict):
        return {
            part: _known(part, inner, rng) if part != "rows" else inner
            for part, inner in value.items()
        }
    if name == "X" and isinstance(value, list) and rng.random() < 0.5:
        wide = rng.choice([5, 300])
        return [[*row, *[None] * wide][:wide] if isinstance(row, list) else row for row in value]
    if name not in KINDS or rng.random() < 0.1:
        return value
    if isinstance(value, list):
        return [rng.choice(KNOWN[KINDS[name]]) for _ in value]
    return (
        rng.choice(KNOWN[KINDS[name]])
        if isinstance(value, (str, int)) and not isinstance(value, bool)
        else value
    )
