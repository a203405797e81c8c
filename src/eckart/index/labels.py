"""Labels of one side of a matrix: from an id to its position and back, whatever Python or NumPy
type the id comes in.

Ids of one kind are held as one native array (integers, dates), all else as objects. ``42``,
``np.int64(42)`` and ``42.0`` are one id, ``"42"`` is another: text where the labels are integers,
or the reverse, is refused and never guessed.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np

from eckart.errors import InputError, written
from eckart.index.alike import alike


def tidy(ids: Any, hashed: bool = True) -> np.ndarray:
    """Ids as one array: native where all are integers, dates or numbers of one kind, objects
    otherwise. ``hashed=False``: who reads a table looks for ids that cannot be hashed itself, and
    names their row.

    >>> tidy([np.int64(3), 4]).dtype, tidy(np.array(["a", "b"])).dtype, tidy([1, "a"]).tolist()
    (dtype('int64'), dtype('O'), [1, 'a'])
    """
    if isinstance(ids, (str, bytes)):
        raise InputError(f"ids must be a list of ids, got {ids!r}. Write [{ids!r}].")
    if not hasattr(ids, "dtype") and not hasattr(ids, "__array__"):
        if not hasattr(ids, "__iter__"):
            raise InputError(f"ids must be a list, got {written(ids)}")
        ids = list(ids)
        ids = np.fromiter(ids, dtype=object, count=len(ids))
    array = np.asarray(ids)
    if array.ndim != 1:
        raise InputError(f"ids must be a list, got {array.ndim} dimensions")
    if array.dtype.kind == "U":
        return array.astype(object)
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    types = set(map(type, array))
    if hashed:
        check_id_types(types)
    return _native(array, types)


ID_TYPES = (str, bool, int, float, bytes, tuple, dt.date, dt.timedelta, Decimal, UUID, np.generic)
"""Ids that a model file gives back as they were; an id of None is refused elsewhere, with its
place."""


def check_id_types(types: set[type]) -> None:
    """Refuse ids that could not be saved with a model, before it is fitted."""
    absent = ("NoneType", "NAType", "NaTType")
    strange = sorted(
        t.__name__
        for t in types
        if not issubclass(t, ID_TYPES) and t.__name__ not in (*absent, "Period")
    )
    if strange:
        raise InputError(
            "ids must be texts, numbers, dates, bytes or tuples of them, got type "
            f"{', '.join(strange)}. Write them as text."
        )


def _native(array: np.ndarray, types: set[type]) -> np.ndarray:
    """An array of objects as a native one, where all have one meaning."""

    def are(*kinds: type) -> bool:
        return bool(types) and all(issubclass(t, kinds) for t in types)

    try:
        if are(int, np.integer) and bool not in types:
            return np.array(array, np.int64)
        if are(np.datetime64):
            return np.array(array.tolist())
        if are(dt.datetime) and all(x.tzinfo is None for x in array):
            return np.array(array, "M8[us]" if types == {dt.datetime} else "M8[ns]")
        if are(dt.date) and not any(issubclass(t, dt.datetime) for t in types):
            return np.array(array, "M8[D]")
    except (
        OverflowError,
        TypeError,
        ValueError,
    ):  # an integer beyond 64 bits, a date beyond nanoseconds, NaT among dates
        pass
    return array


def one_or_many(ids: Any) -> Any:
    """One id as a list of one; a list or tuple is several, whatever they are."""
    return [ids] if is_one(ids) else ids


def is_one(ids: Any) -> bool:
    """Whether this is one id; a list or tuple is several, whatever they are."""
    several = isinstance(ids, (list, tuple)) or (
        not isinstance(ids, (str, bytes)) and np.ndim(ids) > 0
    )
    return not several


def first_null(array: np.ndarray) -> int | None:
    """Position of the first id that is None, NaN or NaT."""
    if array.dtype.kind in "fMm":
        bad = np.isnan(array)
        return int(bad.argmax()) if bad.any() else None
    if array.dtype.kind == "O" and set(map(type, array)) - {str, int, bytes, tuple, bool}:
        return next((i for i, x in enumerate(array) if _is_null(x)), None)
    return None


def _is_null(x: Any) -> bool:
    try:
        return x is None or bool(x != x)
    except (TypeError, ValueError):
        return type(x).__name__ == "NAType"


def shown(label: Any) -> str:
    """A label as an error message writes it."""
    if isinstance(label, (np.datetime64, dt.date)):
        return str(label)
    return written(label.item() if isinstance(label, np.generic) else label)


class Labels:
    """The labels of one axis ("row" or "column"), or None where positions 0 to size - 1 are the
    ids.

    >>> users = Labels(np.array([30, 42, 7]), 3, "row")
    >>> users.index_of(42), users.indices_of([7, 30]), users.unknown([7, 8]), users.names([0])
    (1, array([2, 0]), array([False,  True]), array([30]))
    >>> users.index_of("42")
    Traceback (most recent call last):
    ...
    eckart.errors.InputError: row must be an integer, got '42': the labels are integers. Write 42.
    """

    def __init__(self, labels: Any, size: int, axis: str = "row"):
        self.labels = None if labels is None else tidy(labels)
        self.size, self.axis = size, axis

    def index_of(self, label: Any) -> int:
        """Position of one id; an unknown id is refused, with the ids near to it."""
        return int(self.indices_of([label])[0])

    def indices_of(self, ids: Any) -> np.ndarray:
        """Positions of many ids (int64); an unknown id is refused."""
        ids = tidy(ids)
        found = self.find(ids)
        if (found < 0).any():
            raise self._refused(ids, found)
        return found

    def unknown(self, ids: Any) -> np.ndarray:
        """Which of the ids are not among the labels."""
        return self.find(ids) < 0

    def names(self, indices: Any) -> np.ndarray:
        """The labels at these positions; the positions themselves where there are no labels."""
        indices = np.asarray(indices)
        return indices if self.labels is None else self.labels[indices]

    def find(self, ids: Any) -> np.ndarray:
        """Positions of many ids (int64), -1 for one that is unknown; text for integers, or the
        reverse, is refused."""
        ids = tidy(ids)
        null = first_null(ids)
        if null is not None:
            raise InputError(
                f"{self.axis} must be an id, got {shown(ids[null])} at position {null}. Drop what "
                "has none."
            )
        self._check_kind(ids)
        if self.kind == "positions" or self.kind == "integers":
            found = self._find_integer(ids)
        elif self.kind == "dates":
            found = self._find_date(ids)
        else:
            found = np.fromiter((self._dict.get(x, -1) for x in ids.tolist()), np.int64, len(ids))
        if self.repeats is not None:
            again = found[self.repeats[found] & (found >= 0)]
            if len(again):
                raise InputError(
                    f"{self.axis} must be the label of one {self.axis}, got {self._shown_at(again[0])}, "
                    "which several have. Make the labels unique."
                )
        return found

    @cached_property
    def kind(self) -> str:
        """What the labels are: "positions", "integers", "dates", "text" or "ids" of mixed or other
        kinds."""
        if self.labels is None:
            return "positions"
        kind = self.labels.dtype.kind
        if kind in "iu" and not (kind == "u" and self.size and int(self.labels.max()) >= 2**63):
            return "integers"
        if kind in "Mm":
            return "dates"
        return "text" if kind == "O" and all(isinstance(x, str) for x in self.labels) else "ids"

    @cached_property
    def repeats(self) -> np.ndarray | None:
        """Which labels stand more than once; None where each stands once."""
        if self.labels is None:
            return None
        if self.kind in ("integers", "dates"):
            keys, order = self._sorted
            same = keys[1:] == keys[:-1]
            if not same.any():
                return None
            out = np.zeros(self.size, bool)
            out[order[1:][same]] = out[order[:-1][same]] = True
            return out
        if len(self._dict) == self.size:
            return None
        out = np.fromiter(
            (self._dict[x] != i for i, x in enumerate(self.labels.tolist())), bool, self.size
        )
        out[[self._dict[x] for x in self.labels[out].tolist()]] = True
        return out

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels of a native kind as ascending integers, and where each stands."""
        assert self.labels is not None
        keys = (
            self.labels.view(np.int64)
            if self.kind == "dates"
            else self.labels.astype(np.int64, copy=False)
        )
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    @cached_property
    def _table(self) -> np.ndarray | None:
        """Positions by label minus the smallest label, where integer labels lie close together."""
        keys, order = self._sorted
        if not len(keys) or int(keys[-1]) - int(keys[0]) > 4 * self.size + 65536:
            return None
        table = np.full(int(keys[-1]) - int(keys[0]) + 1, -1, np.int64)
        table[keys - keys[0]] = order
        return table

    @cached_property
    def _dict(self) -> dict[Any, int]:
        assert self.labels is not None
        out: dict[Any, int] = {}
        for i, label in enumerate(self.labels.tolist()):
            out.setdefault(label, i)
        return out

    def _find_integer(self, ids: np.ndarray) -> np.ndarray:
        if ids.dtype.kind == "O":  # whole numbers of mixed types
            return np.array([self._find_one(x) for x in ids], np.int64)
        if ids.dtype.kind in "SU":  # texts are no whole numbers
            return np.full(len(ids), -1, np.int64)
        if ids.dtype.kind == "f":
            whole = (ids == np.rint(ids)) & (np.abs(ids) < 2.0**63)
            return np.where(whole, self._find_integer(np.where(whole, ids, 0).astype(np.int64)), -1)
        if ids.dtype == np.uint64:
            small = ids < 2**63
            return np.where(small, self._find_integer(np.where(small, ids, 0).astype(np.int64)), -1)
        asked = ids.astype(np.int64, copy=False)
        if self.labels is None:
            return np.where((asked >= 0) & (asked < self.size), asked, -1)
        keys, order = self._sorted
        if not len(keys):
            return np.full(len(asked), -1, np.int64)
        if self._table is not None:
            inside = (asked >= keys[0]) & (asked <= keys[-1])
            return np.where(inside, self._table[np.where(inside, asked, keys[0]) - keys[0]], -1)
        return _searched(keys, order, asked)

    def _find_one(self, x: Any) -> int:
        exact = isinstance(x, (int, np.integer)) or (
            isinstance(x, (float, np.floating)) and bool(np.isfinite(x)) and int(x) == x
        )
        whole = exact and abs(int(x)) < 2**63
        return int(self._find_integer(np.array([int(x)], np.int64))[0]) if whole else -1

    def _find_date(self, ids: np.ndarray) -> np.ndarray:
        assert self.labels is not None
        if not len(self.labels) or not len(ids):
            return np.full(len(ids), -1, np.int64)
        asked = ids.astype(self.labels.dtype)
        found = _searched(*self._sorted, asked.view(np.int64))
        return np.where(asked == ids, found, -1)  # a time of day is not a day

    def _check_kind(self, ids: np.ndarray) -> None:
        """Refuse ids that cannot be equal to any label because they are of another kind."""
        texts = ids.dtype.kind == "O"
        if self.kind in ("positions", "integers"):
            bad = next((x for x in ids if isinstance(x, str)), None) if texts else None
            if bad is None and ids.dtype.kind in "Mm" and len(ids):
                bad = ids[0]
            if bad is not None and self.kind == "positions":
                raise InputError(
                    f"{self.axis} must be a position of 0 to {self.size - 1}, got {shown(bad)}: the "
                    f"matrix has no {self.axis} labels"
                )
            if bad is not None:
                digits = isinstance(bad, str) and bad.strip().lstrip("-").isdigit()
                raise self._other_kind(
                    bad,
                    "an integer",
                    "integers",
                    f"write {int(bad)}" if digits else "convert the ids",
                )
        elif self.kind == "dates" and ids.dtype.kind not in "Mm" and len(ids):
            raise self._other_kind(
                ids[0], "a date", "dates", f"write np.datetime64({str(ids[0])!r})"
            )
        elif self.kind == "text":
            other = next((x for x in ids if not isinstance(x, str)), None)
            if other is not None:
                raise self._other_kind(other, "text", "text", f"write {str(other)!r}")

    def _other_kind(self, came: Any, wanted: str, labels: str, do: str) -> InputError:
        return InputError(
            f"{self.axis} must be {wanted}, got {shown(came)}: the labels are {labels}. "
            f"{do[0].upper()}{do[1:]}."
        )

    def _refused(self, ids: np.ndarray, found: np.ndarray) -> InputError:
        bad = np.flatnonzero(found < 0)
        at = f" at position {bad[0]}" if len(ids) > 1 else ""
        more = f" ({len(bad) - 1} more are unknown)" if len(bad) > 1 else ""
        if self.labels is None:
            return InputError(
                f"{self.axis} must be a position of 0 to {self.size - 1}, got "
                f"{shown(ids[bad[0]])}{at}{more}"
            )
        near, first = (
            ", ".join(shown(x) for x in some) for some in (self._near(ids[bad[0]]), self.labels[:3])
        )
        return InputError(
            f"{self.axis} must be one of the {self.size} {self.axis} labels, got "
            f"{shown(ids[bad[0]])}{at}{more}. "
            + (f"Near ones are {near}." if near else f"None is like it, the first are {first}.")
        )

    def _near(self, label: Any) -> list[Any]:
        """Up to three labels that the caller may have meant: texts that are alike, numbers and
        dates that are near."""
        assert self.labels is not None
        if self.kind == "text" or isinstance(label, str):
            return alike(str(label), self.labels)
        try:
            ordered = np.sort(self.labels)
            i = int(np.searchsorted(ordered, np.array([label], ordered.dtype))[0])
        except (TypeError, ValueError, OverflowError):
            return list(self.labels[:3])
        return list(ordered[max(0, min(i - 1, self.size - 3)) :][:3])

    def _shown_at(self, i: int) -> str:
        return shown(self.names([i])[0])


def _searched(keys: np.ndarray, order: np.ndarray, asked: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, order[at], -1)
