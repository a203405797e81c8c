"""Ids out of a request, a shell or a file as the kind that a model has: integers, text, dates."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.index.labels import Labels


def parse_ids(ids: Any, labels: Labels) -> np.ndarray:
    """Ids out of a shell or a text file as the kind of the labels: integers, text, dates; what
    cannot be one of them is refused by name."""
    ids = np.asarray(ids)
    if labels.kind == "text":
        return _objects(ids, str)
    if labels.kind == "ids":
        return _objects(ids, lambda x: _likely(x, labels))
    texts = ids.dtype.kind in "OU" and any(isinstance(x, str) for x in ids.tolist())
    if not texts:
        return ids
    wanted, convert = ("a date", _date) if labels.kind == "dates" else ("an integer", _integer)
    if labels.kind == "positions":
        wanted = f"a position of 0 to {labels.size - 1}"
    try:
        return np.array([convert(x) for x in ids.tolist()])
    except (ValueError, OverflowError):
        bad = next(x for x in ids.tolist() if not _converts(x, convert))
        advice = (
            "The model has no labels there."
            if labels.kind == "positions"
            else f"The labels are {labels.kind}."
        )
        raise InputError(f"{labels.axis} must be {wanted}, got {bad!r}. {advice}") from None


def _objects(ids: np.ndarray, convert: Any) -> np.ndarray:
    out = np.empty(len(ids), object)
    out[:] = [convert(x) for x in ids.tolist()]
    return out


def _likely(text: Any, labels: Labels) -> Any:
    """Among labels of mixed kinds, the one that is written like the text."""
    for convert in (lambda x: x, int, float):
        try:
            found = convert(text)
            if not labels.unknown(np.array([found], object))[0]:
                return found
        except (ValueError, TypeError, InputError):
            continue
    return text


def _integer(x: Any) -> int:
    return int(x.strip()) if isinstance(x, str) else int(x)


def _date(x: Any) -> np.datetime64:
    moment = np.datetime64(x.strip() if isinstance(x, str) else x)
    if np.isnat(moment):
        raise ValueError(x)
    return moment


def _converts(x: Any, convert: Any) -> bool:
    try:
        convert(x)
    except (ValueError, OverflowError):
        return False
    return True
