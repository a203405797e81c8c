"""Hide some of what was observed, so that a completion can be judged on it.

by="entry"  m entries drawn at random, m = held_out * nnz. Every entry gets a random key; the m
largest keys are hidden, except that the smallest key
            of each row and of each column stays. So every row and column that had an observation
            keeps one, the draw is uniform where nothing
            had to be protected, and m is reached unless fewer than m entries are free to go.
by="row"    the fold-in protocol: a share of the rows is hidden whole; of each, a share ``fold_in``
of the entries is shown to fold the row in, and the
            rest is the test. Rows with fewer than two entries cannot be both folded in and tested:
            they stay in training.
by="time"   the latest entries, overall (a clean cut: no training entry is later than a test entry)
or of each row.

Every split is linear in the number of entries (by row and by time per row: plus a sort within rows)
and repeats with its seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.errors import InputError, InputTypeError, invalid
from eckart.io.tables.triples import observed as read_observed
from eckart.matrix import Counts, Observed
from eckart.matrix_blocks import fewer, parts_of
from eckart.parameters import whole
from eckart.rng import generator


@dataclass(frozen=True, eq=False)
class Split:
    """``train`` and ``test`` of the same kind, precision and labels as the matrix that was split.

    By entry and by time both have its shape. By row, ``train`` has the rows at positions
    ``train_rows``, and ``fold_in`` and ``test`` have those at ``test_rows``, in the same order.
    """

    train: Any
    test: Any
    fold_in: Any = None
    train_rows: np.ndarray | None = None
    test_rows: np.ndarray | None = None


@held
def split(
    observed: Observed | Counts,
    held_out: float | int = 0.1,
    *,
    by: str = "entry",
    times: Any = None,
    per_row: bool = False,
    fold_in: float = 0.8,
    keep_rows: bool = True,
    random_state: Any = None,
) -> Split:
    """Training and held-out entries, by entry, by row or by time; the module's docstring defines
    the three.

    Parameters
    ----------
    observed : Observed (or Counts)
    held_out : share (a float between 0 and 1) or number (an int) of the entries, of the rows
        (``by="row"``) or of each row's entries (``per_row``)
    by : "entry", "row" or "time"
    times : for ``by="time"``: one time for each entry in the order of ``observed.data`` (numbers or
        datetime64), or an Observed with the same entries; of equal times the entry stored last
        counts as the latest
    per_row : with ``by="time"``: the latest entries of each row; ``held_out=1`` leaves the last one
        out
    fold_in : with ``by="row"``: share of a held-out row's entries that is shown; at least one is
        shown and at least one tested
    keep_rows : by entry: every row and every column keeps an entry in training; by time per row:
        every row does (its earliest)
    random_state : seed, for the draws by entry and by row

    >>> seen = Observed.from_nan(np.arange(200.0).reshape(20, 10))
    >>> parts = split(seen, 0.1, random_state=0)
    >>> parts.train.nnz, parts.test.nnz, parts.train.shape
    (180, 20, (20, 10))
    >>> parts = split(seen, 0.25, by="row", random_state=0)
    >>> parts.train.shape, parts.fold_in.nnz, parts.test.nnz
    ((15, 10), 40, 10)
    >>> split(seen, 1, by="time", per_row=True, times=seen.data).test.indices.tolist() == [9] * 20
    True
    """
    _check_matrix(observed)
    if by not in ("entry", "row", "time"):
        raise invalid("by", by, "'entry', 'row' or 'time'")
    if (times is not None) != (by == "time"):
        came = "None" if times is None else f"times with by={by!r}"
        raise invalid("times", came, "one time for each entry, with by='time'")
    if per_row and by != "time":
        raise invalid("per_row", per_row, "False unless by='time'")
    if parts_of(observed) is not None:
        return _of_parts(observed, held_out, by, generator(random_state))
    if by == "row":
        return _by_row(observed, held_out, fold_in, generator(random_state))
    if by == "entry":
        hidden = _draw(observed, held_out, keep_rows, generator(random_state))
    elif per_row:
        hidden = _latest_of_rows(observed, _ranked(observed, times), held_out, keep_rows)
    else:
        hidden = _latest(_ranked(observed, times), _number(held_out, observed.nnz))
    if not hidden.any():
        raise invalid(
            "held_out",
            held_out,
            "a share that leaves a test entry",
            "raise it, or set keep_rows=False",
        )
    if hidden.all():
        raise invalid("held_out", held_out, "a share that leaves a training entry", "lower it")
    return Split(_take(observed, ~hidden), _take(observed, hidden))


def _of_parts(x: Any, held_out: Any, by: str, rng: np.random.Generator) -> Split:
    """By entry, of a matrix in parts: every part hides its share, and keeps an entry of each of its
    rows and columns."""
    from eckart.io.tables import entry_shards

    if by != "entry" or not isinstance(held_out, float):
        raise invalid("by, held_out", (by, held_out), "by='entry' and a share for data in parts")
    seeds = rng.integers(2**63, size=len(x.parts.lengths)).tolist()
    if isinstance(x.parts, entry_shards.ShardParts):
        train, test = entry_shards.divided(x, lambda part, b: _halves(part, held_out, seeds[b]), 2)
        return Split(train, test)
    train, test = (
        fewer(x, _half, [(held_out, seed, side) for seed in seeds]) for side in (False, True)
    )
    return Split(train, test)


def _halves(part: Any, held_out: float, seed: int) -> tuple[Any, Any]:
    drawn = _draw(part, held_out, True, generator(seed)) if part.nnz else np.zeros(0, bool)
    return _take(part, ~drawn), _take(part, drawn)


def _half(part: Any, held_out: float, seed: int, hidden: bool) -> Any:
    """The hidden entries of a part, or the others."""
    return _halves(part, held_out, seed)[hidden]


@held
def folds(observed: Observed | Counts, n: int = 5, *, random_state: Any = None) -> Iterator[Split]:
    """``n`` splits by entry whose tests partition the entries, for cross-validation.

    Rows in random order, and the entries of each in random order, are dealt to the folds in turn:
    fold sizes differ by at most one, so do a row's entries over the folds, and a row with two
    entries or more is in every training set.

    >>> seen = Observed.from_nan(np.arange(12.0).reshape(4, 3))
    >>> [f.test.nnz for f in folds(seen, 5, random_state=0)]
    [3, 3, 2, 2, 2]
    """
    from eckart.io.tables import entry_shards

    _check_matrix(observed)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 2 <= n <= observed.nnz:
        raise invalid("n", n, f"an int from 2 to the number of entries, {observed.nnz}")
    rng = generator(random_state)
    if parts_of(observed) is not None:  # each part deals its own entries, so no row is torn apart
        seeds = rng.integers(2**63, size=len(parts_of(observed).lengths)).tolist()
        sides = (True, False)
        if isinstance(parts_of(observed), entry_shards.ShardParts):
            return (
                _fold(observed, partial(_fold_sides, n=n, seeds=seeds, fold=i)) for i in range(n)
            )
        return (
            Split(
                *(
                    fewer(observed, _fold_side, [(n, seed, i, train) for seed in seeds])
                    for train in sides
                )
            )
            for i in range(n)
        )
    dealt = _dealt(_rows(observed), observed.row_counts(), n, rng)
    return (Split(_take(observed, dealt != i), _take(observed, dealt == i)) for i in range(n))


class EntryKFold:
    """A splitter for tables of triples, as ``GridSearchCV(cv=...)`` takes one: each line of the
    table is an entry, and each fold hides a share of every row's.

    Rows in random order, and the lines of each in random order, are dealt to the folds in turn, as
    in ``folds``: a row with two lines or more is in every training set. ``rows`` is the name (or
    position) of the column of row ids.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"user": [0, 0, 1, 1], "item": [0, 1, 0, 1], "stars": [1.0, 2.0, 3.0, 5.0]})
    >>> [sorted(table.user.iloc[train]) for train, test in EntryKFold(2, random_state=0).split(table)]
    [[0, 1], [0, 1]]
    """

    def __init__(self, n_splits: int = 5, *, rows: Any = 0, random_state: Any = None) -> None:
        if not whole(2).fits(n_splits):
            raise invalid("n_splits", n_splits, "an int >= 2")
        self.n_splits, self.rows, self.random_state = n_splits, rows, random_state

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions of the lines of each training set and its test."""
        if len(np.shape(X)) != 2:
            raise invalid(
                "X",
                type(X).__name__,
                "a table of triples: a frame or an array of two dimensions, with a line "
                "for each entry",
            )
        column = (
            X[self.rows]
            if isinstance(self.rows, str)
            else X.iloc[:, self.rows]
            if hasattr(X, "iloc")
            else np.asarray(X)[:, self.rows]
        )
        rows = np.unique(np.asarray(column), return_inverse=True)[1]
        if len(rows) < self.n_splits:
            raise invalid("n_splits", self.n_splits, f"at most the {len(rows)} lines of the table")
        dealt = _dealt(rows, np.bincount(rows), self.n_splits, generator(self.random_state))
        return (
            (np.flatnonzero(dealt != i), np.flatnonzero(dealt == i)) for i in range(self.n_splits)
        )

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits


MOST_HIDDEN = 1_000_000
"""Entries: the error on so many is known to a thousandth, and what is hidden is held in memory where
the rest may be in parts."""


def usual_share(observed: Any) -> float:
    """The share to hide where none is said: a tenth, of large data less.

    >>> usual_share(Observed.from_nan(np.ones((3, 4))))
    0.1
    """
    return min(0.1, MOST_HIDDEN / max(observed.nnz, 1))


def hidden_of_rows(observed: Any, share: float, seed: int) -> np.ndarray:
    """Which entries a share of every row's is: at least one of a row with two, never all."""
    counts = observed.row_counts()
    hide = np.where(
        counts > 1, np.clip(np.rint(share * counts), 1, np.maximum(counts - 1, 1)), 0
    ).astype(np.int64)
    return _last_of_rows(observed, _rows(observed) + generator(seed).random(observed.nnz), hide)


def _fold(x: Any, do: Any) -> Split:
    from eckart.io.tables import entry_shards

    train, test = entry_shards.divided(x, do, 2)
    return Split(train, test)


def _fold_sides(part: Any, b: int, n: int, seeds: list[int], fold: int) -> tuple[Any, Any]:
    train, test = (_fold_side(part, n, seeds[b], fold, side) for side in (True, False))
    return train, test


def _fold_side(part: Any, n: int, seed: int, fold: int, train: bool) -> Any:
    """The entries of a part that are in one fold's training set, or in its test."""
    dealt = _dealt(_rows(part), part.row_counts(), n, generator(seed))
    return _take(part, dealt != fold if train else dealt == fold)


def _dealt(rows: np.ndarray, counts: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """The fold of each entry, by its row: rows in random order, the entries of each in random
    order, dealt in turn."""
    order = rng.permutation(len(counts))
    first = np.empty(len(counts), dtype=np.int64)
    first[order] = np.cumsum(counts[order]) - counts[order]
    dealt = np.empty(len(rows), dtype=np.int64)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    dealt[np.argsort(rows + rng.random(len(rows)))] = place % n
    return dealt


def train_and_hidden(
    x: Observed, given: Any, held_out: float | int, seed: Any, name: str = "test"
) -> tuple[Observed, Observed]:
    """X and the entries to judge by where these are ``given`` (with the rows and columns of X),
    else a random split of X."""
    if given is None:
        parts = split(x, held_out, random_state=seed)
        return parts.train, parts.test
    other = read_observed(given)
    same = all(_equal(a, b) for a, b in ((x.rows, other.rows), (x.columns, other.columns)))
    if other.shape != x.shape or not same:
        raise InputError(
            f"{name} must have the rows and columns of X, shape {x.shape}, with the same ids, "
            f"got shape {other.shape}"
        )
    return x, other


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """The same labels, or none on either side."""
    return a is b if a is None or b is None else bool(np.array_equal(a, b))


def hidden_entries(observed: Any, share: float, seed: int) -> np.ndarray:
    """Which entries a split by entry hides; every row and every column keeps one."""
    return _draw(observed, share, True, generator(seed))


def _draw(
    observed: Any, held_out: float | int, keep_rows: bool, rng: np.random.Generator
) -> np.ndarray:
    """The largest of random keys, after the smallest of each row and of each column was set
    aside."""
    nnz = observed.nnz
    number = _number(held_out, nnz)
    keys = rng.random(nnz)
    if keep_rows and nnz:
        filled = np.flatnonzero(observed.row_counts())
        least = np.repeat(
            np.minimum.reduceat(keys, observed.indptr[filled]), observed.row_counts()[filled]
        )
        least_of_column = np.full(observed.n_columns, 2.0)
        np.minimum.at(least_of_column, observed.indices, keys)
        stays = (keys == least) | (keys == least_of_column[observed.indices])
        keys[stays] = -1.0
        number = min(number, nnz - int(np.count_nonzero(stays)))
    hidden = np.zeros(nnz, dtype=bool)
    if number:
        hidden[np.argpartition(keys, nnz - number)[nnz - number :]] = True
    return hidden


def _by_row(observed: Any, held_out: float | int, share: float, rng: np.random.Generator) -> Split:
    counts = observed.row_counts()
    able = np.flatnonzero(counts >= 2)
    number = min(_number(held_out, len(counts)), len(able))
    if not 0 < share < 1:
        raise invalid("fold_in", share, "a share between 0 and 1")
    if number == 0 or number == len(counts):
        raise invalid(
            "held_out",
            held_out,
            "a share that leaves rows in both parts; only rows of 2 entries or more can go",
        )
    chosen = np.zeros(len(counts), dtype=bool)
    chosen[rng.choice(able, number, replace=False, shuffle=False)] = True
    away = np.repeat(chosen, counts)
    train, rest = _take(observed, ~away, ~chosen), _take(observed, away, chosen)
    size = rest.row_counts()
    shown = np.clip(np.rint(share * size).astype(np.int64), 1, size - 1)
    tested = _last_of_rows(rest, _rows(rest) + rng.random(rest.nnz), size - shown)
    return Split(
        train,
        _take(rest, tested),
        _take(rest, ~tested),
        np.flatnonzero(~chosen),
        np.flatnonzero(chosen),
    )


def _latest(times: np.ndarray, number: int) -> np.ndarray:
    """The ``number`` largest times; of those equal to the smallest of them, the ones stored
    last."""
    if number == 0:
        return np.zeros(len(times), dtype=bool)
    cut = np.partition(times, len(times) - number)[len(times) - number]
    hidden = times > cut
    equal = np.flatnonzero(times == cut)
    hidden[equal[len(equal) - (number - int(np.count_nonzero(hidden))) :]] = True
    return hidden


def _latest_of_rows(
    observed: Any, times: np.ndarray, held_out: float | int, keep_rows: bool
) -> np.ndarray:
    counts = observed.row_counts()
    if isinstance(held_out, (float, np.floating)):
        _number(held_out, observed.nnz)
        take = np.rint(held_out * counts).astype(np.int64)
    else:
        take = np.minimum(_number(held_out, int(counts.max(initial=0))), counts)
    if keep_rows:
        take = np.minimum(take, np.maximum(counts - 1, 0))
    span = int(times.max(initial=0)) + 1
    if span * len(counts) >= 2**63:
        times = np.unique(times, return_inverse=True)[1]
        span = len(times)
    return _last_of_rows(observed, _rows(observed) * span + times, take)


def _last_of_rows(observed: Any, keys: np.ndarray, take: np.ndarray) -> np.ndarray:
    """Of each row the ``take`` entries of largest key; keys of a later row are larger than those of
    an earlier one."""
    counts = observed.row_counts()
    order = np.argsort(keys, kind="stable")
    last = np.arange(observed.nnz) >= np.repeat(observed.indptr[1:] - take, counts)
    hidden = np.zeros(observed.nnz, dtype=bool)
    hidden[order[last]] = True
    return hidden


def _ranked(observed: Any, times: Any) -> np.ndarray:
    """Times as integers >= 0 in the same order, checked."""
    if isinstance(times, (Observed, Counts)):
        same = np.array_equal(times.indptr, observed.indptr) and np.array_equal(
            times.indices, observed.indices
        )
        if times.shape != observed.shape or not same:
            raise invalid(
                "times",
                f"a matrix of {times.nnz} other entries",
                "the entries of the matrix to split",
            )
        times = times.data
    times = np.asarray(times)
    if times.shape != (observed.nnz,):
        raise invalid(
            "times",
            f"an array of shape {times.shape}",
            f"one time for each of the {observed.nnz} entries",
        )
    if times.dtype.kind not in "iufM":
        raise invalid("times", f"an array of {times.dtype}", "numbers or datetime64")
    unknown = np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times)
    if unknown.any():
        raise invalid(
            "times",
            times[unknown][0],
            "a time for every entry",
            f"fill entry {int(np.argmax(unknown))}",
        )
    if times.dtype.kind == "M":
        times = times.astype(np.int64)
    whole = times.dtype.kind in "iu" or bool((times == np.trunc(times)).all())
    if (
        whole
        and times.size
        and float(times.max()) - float(times.min()) < 2**62
        and abs(float(times.min())) < 2**62
    ):
        first = int(times.min())
        return times.astype(np.int64) - first
    return np.unique(times, return_inverse=True)[1]


def _number(held_out: float | int, whole: int) -> int:
    """A share of ``whole``, rounded, but at least one; or a number below it."""
    if isinstance(held_out, (float, np.floating)) and 0 < held_out < 1:
        return min(max(1, round(float(held_out) * whole)), whole)
    if isinstance(held_out, (int, np.integer)) and not isinstance(held_out, bool) and held_out >= 1:
        return min(int(held_out), whole)
    raise invalid("held_out", held_out, "a share between 0 and 1, or a number of at least 1")


def _rows(observed: Any) -> np.ndarray:
    """The row of each entry."""
    return np.repeat(np.arange(len(observed.indptr) - 1), observed.row_counts())


def _take(observed: Any, entries: np.ndarray, rows: np.ndarray | None = None) -> Any:
    """The marked entries, in all rows or in the marked rows, which hold all of them."""
    before = np.zeros(len(entries) + 1, dtype=np.int32 if len(entries) < 2**31 else np.int64)
    np.cumsum(entries, out=before[1:])
    indptr = before[observed.indptr].astype(observed.indptr.dtype)
    labels = observed.rows
    if rows is not None:
        indptr = np.concatenate([indptr[:1], indptr[1:][rows]])
        labels = None if labels is None else labels[rows]
    data, indices = observed.data[entries], observed.indices[entries]
    return type(observed)(indptr, indices, data, observed.n_columns, labels, observed.columns)


def _check_matrix(observed: Any) -> None:
    if not isinstance(observed, (Observed, Counts)):
        came = type(observed).__name__
        raise InputTypeError(
            f"observed must be Observed or Counts, got {came!r}. Make one with eckart.read(..., "
            "absent='unknown')."
        )
