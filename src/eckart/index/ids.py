"""Ids of any hashable kind to codes 0, 1, 2 ..., block by block: what is kept is a number of 32
bits an entry, never the text.

Codes follow the order of the labels: ascending where the ids can be compared with each other, in
order of appearance where they cannot (text beside numbers). Integers and dates are kept as they are
until the last block has come, since a table of their span, or one pass of hashing, then gives all
codes at once; other ids are looked up in a dictionary as they come.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.index.compress import index_dtype
from eckart.index.labels import Labels, check_id_types, first_null, shown, tidy
from eckart.loading import pa, pc

WHOLE = re.compile(r"0|-?[1-9][0-9]*")
PIECE = 2**20
"""Ids that are looked at together: copies stay at some MB."""
LEAST_HASHED = 2**16
"""Blocks of text from this size on are hashed by pyarrow."""

Place = Callable[[int], str]
"""Words for the position of an entry: ``"position 7"``, ``"line 8 of ratings.csv"``."""


def position(p: int) -> str:
    """The place of an entry of an array."""
    return f"position {p}"


class Ids:
    """Collects the ids of one axis. ``blanks``, for ids out of a text file, are the words that
    stand for no id among numbers. Spaces around such ids are dropped, and text that is all whole
    numbers becomes integers, unless one has a leading zero ("007" is not 7).

    >>> users = Ids("rows")
    >>> users.take(np.array(["bea", "ann"]))
    >>> users.take(["bea"])
    >>> users.finish()
    (array([1, 0, 1], dtype=int32), array(['ann', 'bea'], dtype=object))
    """

    def __init__(self, name: str, blanks: tuple[str, ...] | None = None):
        self.name, self.blanks = name, blanks
        self._parts: list[np.ndarray] = []
        self._seen: dict[Any, int] = {}
        self._kind = ""

    def take(self, ids: Any, at: Place = position) -> None:
        """Add a block of ids: an array, a list, a column of a table or an Arrow array."""
        if len(ids) == 0:
            return
        ids = _columnar(ids)
        if isinstance(ids, np.ndarray):
            self._take_array(ids, at)
        else:
            self._take_arrow(ids, at)

    def _take_array(self, ids: np.ndarray, at: Place) -> None:
        null = first_null(ids)
        if null is not None:
            raise self._null(shown(ids[null]), at(null))
        kind = ids.dtype.kind
        if kind == "O" or kind in "SV":
            self._check_kind("text or objects", at)
            for a in range(0, len(ids), PIECE):
                self._take_objects(ids[a : a + PIECE], lambda p, a=a: at(a + p))  # type: ignore[misc]
        else:
            self._check_kind("dates" if kind in "Mm" else "numbers", at)
            self._parts.append(_narrow(ids))

    def _take_objects(self, ids: np.ndarray, at: Place) -> None:
        if len(ids) >= LEAST_HASHED and set(map(type, ids)) == {str}:
            with contextlib.suppress(UnicodeError):  # half a surrogate pair
                self._take_arrow(pa.array(ids, pa.large_string()), at)
                return
        self._parts.append(self._look_up(ids.tolist(), at))

    def _look_up(self, ids: list[Any], at: Place) -> np.ndarray:
        seen = self._seen
        try:
            fresh = dict.fromkeys(ids)
            check_id_types(set(map(type, fresh)))
            for x in fresh:
                seen.setdefault(x, len(seen))
            return np.array(list(map(seen.__getitem__, ids)), np.int32)
        except TypeError:
            p, bad = next(
                (i, x) for i, x in enumerate(ids) if type(x).__hash__ is None or not _hashable(x)
            )
            raise InputError(
                f"{self.name} must hold an id that can be hashed: text, a number, a date, a tuple, "
                f"got {bad!r} at {at(p)}"
            ) from None

    def _take_arrow(self, ids: Any, at: Place) -> None:
        if isinstance(ids, pa.ChunkedArray):
            start = 0
            for chunk in ids.chunks:
                self._take_arrow(chunk, lambda p, start=start: at(start + p))  # type: ignore[misc]
                start += len(chunk)
            return
        if ids.null_count or pa.types.is_null(ids.type):
            raise self._null("no value", at(int(np.asarray(ids.is_null()).argmax())))
        t, kind = pa.types, ids.type
        if t.is_string_view(kind):
            ids = ids.cast(pa.large_string())
        if any(test(ids.type) for test in (t.is_string, t.is_large_string)):
            ids = ids.dictionary_encode()
        if not t.is_dictionary(ids.type):
            native = t.is_primitive(kind) and not t.is_time(kind)
            self._take_array(
                ids.to_numpy(zero_copy_only=False)
                if native
                else tidy(ids.to_pylist(), hashed=False),
                at,
            )
        elif any(test(ids.type.value_type) for test in (t.is_string, t.is_large_string)):
            self._take_dictionary(ids.indices.to_numpy(zero_copy_only=False), ids.dictionary, at)
        else:
            self._take_arrow(ids.dictionary_decode(), at)

    def _take_dictionary(self, codes: np.ndarray, words: Any, at: Place) -> None:
        """Text that comes as codes of an Arrow array of words, of which some may not occur."""
        used = np.bincount(codes, minlength=len(words)) > 0
        if not used.all():
            codes, words = (np.cumsum(used) - 1)[codes], words.filter(used)
        if words.null_count:
            raise self._null("no value", at(int(np.asarray(words.is_null())[codes].argmax())))
        if self.blanks is not None:
            words = pc.utf8_trim_whitespace(words)
            empty = np.asarray(pc.equal(words, ""))
            if empty.any():
                raise self._null("no value", at(int(empty[codes].argmax())))
            if self._kind in ("", "numbers"):
                whole = _whole(words)
                if whole is not None:
                    self._kind = "numbers"
                    self._parts.append(_narrow(whole)[codes])
                    return
                self._numbers_to_text()
        self._check_kind("text or objects", at)
        self._parts.append(self._look_up(words.to_pylist(), at)[codes])

    def _numbers_to_text(self) -> None:
        """What was read as whole numbers so far, as it was written."""
        codes, labels = factorise(_joined(self._parts))
        self._seen = {str(label): i for i, label in enumerate(labels.tolist())}
        self._parts, self._kind = [codes] if len(codes) else [], ""

    def _check_kind(self, kind: str, at: Place) -> None:
        if self._kind and self._kind != kind:
            raise InputError(
                f"{self.name} must hold ids of one kind, got {kind} from {at(0)} on and "
                f"{self._kind} before. Convert one of them."
            )
        self._kind = kind

    def _null(self, came: str, where: str) -> InputError:
        return InputError(
            f"{self.name} must hold an id, got {came} at {where}. Drop the entries that have none."
        )

    def finish(self, at: Place = position) -> tuple[np.ndarray, np.ndarray]:
        """Codes of all ids, and the labels in the order of the codes."""
        codes, self._parts = _joined(self._parts), []
        if self._kind != "text or objects":
            return factorise(codes)
        words: list[Any] = list(self._seen)
        self._seen = {}
        blank = [i for i, word in enumerate(words) if word in self.blanks] if self.blanks else []
        if blank and all(WHOLE.fullmatch(word) for i, word in enumerate(words) if i not in blank):
            raise self._null(repr(words[blank[0]]), at(int(np.isin(codes, blank).argmax())))
        try:
            order = sorted(range(len(words)), key=words.__getitem__)
        except TypeError:
            order = list(range(len(words)))
        rank = np.empty(len(words), np.int32)
        rank[order] = np.arange(len(words), dtype=np.int32)
        return rank[codes], np.fromiter((words[i] for i in order), object, len(words))

    def finish_in(self, labels: Labels, at: Place = position) -> np.ndarray:
        """Codes in a fixed order of labels; an id outside them is refused."""
        codes, found = self.finish(at)
        places = labels.find(found)
        if (places < 0).any():
            p = int((places[codes] < 0).argmax())
            raise InputError(
                f"{self.name} has {shown(found[codes[p]])} at {at(p)}, which is not "
                f"among the {labels.size} {labels.axis} labels; "
                "drop it or add it to them"
            )
        return places.astype(index_dtype(labels.size))[codes]

    def finish_positions(self, size: int, at: Place = position) -> np.ndarray:
        """The ids themselves, which must be positions of 0 to size - 1."""
        codes, self._parts = _joined(self._parts), []
        if len(codes) and (self._kind != "numbers" or codes.dtype.kind not in "iu"):
            raise InputError(
                f"{self.name} must hold positions of 0 to {size - 1} because shape= is given, got "
                f"{self._kind if codes.dtype.kind != 'f' else 'fractions'}. Leave shape= out to use "
                "the ids as labels."
            )
        if len(codes) and not (codes.min() >= 0 and codes.max() < size):
            p = int(((codes < 0) | (codes >= size)).argmax())
            raise InputError(
                f"{self.name} must hold positions of 0 to {size - 1}, got {codes[p]} at {at(p)}"
            )
        return codes.astype(index_dtype(size), copy=False)


def factorise(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes and ascending labels of native ids, in linear time; floats that are whole numbers
    become integers.

    >>> factorise(np.array([30, 7, 30]))
    (array([1, 0, 1], dtype=int32), array([ 7, 30]))
    """
    kind = ids.dtype
    if kind.kind == "f":
        ids = ids.astype(np.float64) + 0.0
        if not (ids == np.rint(ids)).all() or (len(ids) and np.abs(ids).max() >= 2.0**53):
            return _hashed(ids)
        ids = ids.astype(np.int64)
    if kind.kind in "Mm":
        codes, labels = factorise(ids.view(np.int64))
        return codes, labels.view(kind)
    if kind.kind == "b":
        codes, labels = factorise(ids.view(np.uint8))
        return codes, labels.astype(bool)
    if not len(ids):
        return np.zeros(0, np.int32), ids.astype(np.int64)
    low, high = int(ids.min()), int(ids.max())
    span = high - low + 1
    if span > 4 * len(ids) + 65536:
        return _hashed(ids)
    seen = np.zeros(span, bool)
    shifted = (ids[a : a + PIECE] - ids.dtype.type(low) for a in range(0, len(ids), PIECE))
    if span > 2 ** (8 * ids.dtype.itemsize - 1) - 1:  # a difference may not fit
        shifted = (ids[a : a + PIECE].astype(np.int64) - low for a in range(0, len(ids), PIECE))
    codes = np.empty(len(ids), index_dtype(span))
    a = 0
    for part in shifted:
        codes[a : a + len(part)] = part
        seen[part] = True
        a += len(part)
    found = np.flatnonzero(seen)
    if len(found) < span:
        rank = np.empty(span, index_dtype(len(found)))
        rank[found] = np.arange(len(found), dtype=rank.dtype)
        for a in range(0, len(codes), PIECE):
            codes[a : a + PIECE] = rank[codes[a : a + PIECE]]
    labels = (found.astype(np.uint64) + np.uint64(low)) if low >= 2**62 else found + low
    return codes, labels.astype(np.uint64 if high >= 2**63 else np.int64, copy=False)


def _hashed(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By hashing, for ids that lie far apart."""
    coded = pa.array(ids).dictionary_encode()
    words = coded.dictionary.to_numpy()
    order = np.argsort(words)
    rank = np.empty(len(words), np.int32)
    rank[order] = np.arange(len(words), dtype=np.int32)
    labels = words[order]
    if labels.dtype.kind in "iu":
        labels = labels.astype(np.uint64 if int(labels[-1]) >= 2**63 else np.int64)
    return rank[coded.indices.to_numpy()], labels


def _columnar(ids: Any) -> Any:
    """An Arrow array where a table holds its column as one (polars, pandas' text and categories), a
    tidy array otherwise."""
    if type(ids).__module__.startswith("pyarrow"):
        return ids
    if hasattr(ids, "to_arrow"):
        return ids.to_arrow()
    if hasattr(ids, "dtype") and not isinstance(ids.dtype, np.dtype):
        with contextlib.suppress(pa.ArrowException, TypeError):
            array = pa.array(ids)
            if not isinstance(array.type, pa.BaseExtensionType):
                return array
    return tidy(ids, hashed=False)


def _whole(words: Any) -> np.ndarray | None:
    """An Arrow array of text as integers, where each is written as an integer is."""
    try:
        numbers = words.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return numbers.to_numpy() if numbers.cast(words.type).equals(words) else None


def _narrow(ids: np.ndarray) -> np.ndarray:
    """Integers in 32 bits where they fit."""
    if ids.dtype == np.int64 and ids.min() >= -(2**31) and ids.max() < 2**31:
        return ids.astype(np.int32)
    return ids


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    if not parts:
        return np.zeros(0, np.int32)
    kind = np.result_type(*parts)
    if kind.kind == "f" and any(p.dtype.kind in "iu" and int(p.max()) >= 2**53 for p in parts):
        raise InputError(
            "ids must be of one type, got 64-bit integers and other numbers. Convert one of them."
        )
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True
