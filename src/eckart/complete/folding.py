"""New rows and columns beside a fitted model: ids matched, entries merged, sides exchanged. Pure
functions used by ``Completer``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from eckart.arguments import numbers
from eckart.complete.normalise import Normaliser
from eckart.errors import InputError, invalid
from eckart.factors import LowRank
from eckart.index.labels import Labels, one_or_many
from eckart.matrix import Counts, Dense, Observed
from eckart.matrix_blocks import facts_of, larger, of_each_part, parts_of
from eckart.parameters import number


def entry_weights(weights: Any, x: Observed) -> np.ndarray | None:
    """Weights of the stored entries in row order, checked."""
    if weights is None:
        return None
    if isinstance(weights, Observed):
        same = np.array_equal(weights.indptr, x.indptr) and np.array_equal(
            weights.indices, x.indices
        )
        if weights.shape != x.shape or not same:
            raise invalid(
                "weights",
                f"an Observed of shape {weights.shape}",
                "one that has the same entries as X",
            )
        w = np.asarray(weights.data, np.float64)
    else:
        w = numbers("weights", weights, "numbers, one for each entry of X")
        if w.shape == x.shape:
            rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
            w = w[rows, x.indices]
    if w.shape != (x.nnz,):
        raise invalid(
            "weights",
            f"an array of shape {w.shape}",
            f"{x.shape}, or one number for each of the {x.nnz} entries",
        )
    bad = np.flatnonzero(~(np.isfinite(w) & (w >= 0)))
    if len(bad):
        row = int(np.searchsorted(x.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"weights must hold a finite number >= 0, got {w[bad[0]]} at row {row}, column "
            f"{x.indices[bad[0]]}"
        )
    if not w.any():
        raise InputError("weights must hold at least one positive weight, got zero for every entry")
    return w


def taken_up(x: Observed) -> Observed:
    """What rows took up. A row that stores every column comes from a table of 0 and 1 and says by
    its zeros what was not taken up: they are no entries, neither for the ridge, which counts them,
    nor for lists, which would have nothing left."""
    if parts_of(x) is not None:
        return x
    n, counts = x.n_columns, x.row_counts()
    if not (counts == n).any():
        return x
    kept = (x.data != 0) | np.repeat(counts < n, counts)
    indptr = np.concatenate([[0], np.cumsum(kept)])[x.indptr]
    return Observed(indptr, x.indices[kept], x.data[kept], n, x.rows, x.columns)


def put_rows(old: np.ndarray, new: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Rows of ``new`` in place of those at positions ``at`` >= 0, the others behind."""
    out = np.concatenate([old, new[at < 0]])
    out[at[at >= 0]] = new[at >= 0]
    return out


def merge_rows(old: LowRank, new: LowRank, labels: np.ndarray, ids: Labels) -> LowRank:
    """Rows of ``new`` put in place of those with the same id, the others behind."""
    at = ids.find(labels)
    left = put_rows(old.left, new.left, at)

    def joined(a: np.ndarray | None, b: np.ndarray | None, absent: float) -> np.ndarray | None:
        if a is None and b is None:
            return None
        a = np.full(len(old.left), absent, left.dtype) if a is None else a
        b = np.full(len(new.left), absent, left.dtype) if b is None else b
        return put_rows(a, b, at)

    rows = (
        None
        if old.rows is None
        else np.concatenate([np.asarray(old.rows), np.asarray(labels)[at < 0]])
    )
    bias, scale = joined(old.row_bias, new.row_bias, 0.0), joined(old.row_scale, new.row_scale, 1.0)
    return old.with_rows(left, bias, scale, rows)


def merge_entries(
    old: Observed, new: Observed, labels: np.ndarray, ids: Labels, rows: np.ndarray | None
) -> Observed:
    """The observed entries after the update: the rows of ``new`` replace those with the same id."""
    at = ids.find(labels)
    place = np.where(at >= 0, at, 0)
    place[at < 0] = ids.size + np.arange(int((at < 0).sum()))
    stay = np.ones(old.shape[0], bool)
    stay[at[at >= 0]] = False
    old_rows = np.repeat(np.arange(old.shape[0]), old.row_counts())
    kept = stay[old_rows]
    i = np.concatenate(
        [old_rows[kept], place[np.repeat(np.arange(new.shape[0]), new.row_counts())]]
    )
    j = np.concatenate([old.indices[kept], new.indices])
    values = np.concatenate([old.data[kept], new.data.astype(old.data.dtype, copy=False)])
    size = ids.size + int((at < 0).sum())
    return Observed.from_codes(i, j, values, (size, old.n_columns), rows, old.columns)


def on_columns(x: Observed, ids: Labels) -> Observed:
    """The same rows on the columns of a model, matched by id."""
    if (
        ids.labels is not None
        and len(ids.labels) == x.n_columns
        and bool(np.all(np.asarray(x.columns) == ids.labels))
    ):
        return x
    if (
        parts_of(x) is not None
        and ids.labels is not None
        and np.array_equal(ids.labels[: x.n_columns], np.asarray(x.columns))
    ):
        return larger(x, (x.shape[0], ids.size), x.rows, ids.labels)  # without reading it
    to = ids.indices_of(x.columns)
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    return Observed.from_codes(
        rows, to[x.indices], x.data, (x.shape[0], ids.size), x.rows, ids.labels
    )


def learned_columns(f: LowRank, norm: Normaliser) -> np.ndarray | None:
    """Mean and column biases that the model learned itself (the normaliser does not take them
    away), as an offset of the targets."""
    if norm.by is not None or (f.column_bias is None and f.mean == 0):
        return None
    return np.full(f.n, f.mean) if f.column_bias is None else f.column_bias + f.mean


def flipped(f: LowRank) -> LowRank:
    """B^T; refused where the offsets of one side are multiplied by the scales of the other."""
    if f.column_scale is not None and f.row_bias is not None:
        raise InputError(
            "axis='columns' needs scale=False, got a model normalised with scale=True and row "
            "offsets"
        )
    return LowRank(
        f.right,
        f.left,
        f.mean,
        f.column_bias,
        f.row_bias,
        f.column_scale,
        f.row_scale,
        f.columns,
        f.rows,
    )


def flipped_normaliser(norm: Normaliser | None) -> Normaliser | None:
    """The normaliser of the transposed matrix."""
    if norm is None:
        return None
    return replace(
        norm,
        by={"row": "column", "column": "row"}.get(norm.by or "", norm.by),
        shape=norm.shape[::-1],
        row_offset=norm.column_offset,
        column_offset=norm.row_offset,
        row_scale=norm.column_scale,
        column_scale=norm.row_scale,
    )


def with_rows_of(norm: Normaliser, f: LowRank) -> Normaliser:
    """The normaliser after rows were added to the factors."""
    offset = None if norm.row_offset is None else f.row_bias
    return replace(norm, shape=f.shape, row_offset=offset, row_scale=f.row_scale)


def put_observed(block: np.ndarray, x: Observed, rows: np.ndarray) -> None:
    """Overwrite the model's values by the observed entries of these rows."""
    counts = np.diff(x.indptr)[rows]
    starts = np.repeat(x.indptr[rows] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    at = starts + np.arange(counts.sum())
    block[np.repeat(np.arange(len(rows)), counts), x.indices[at]] = x.data[at]


def pairs(rows: Any, columns: Any) -> tuple[Any, Any]:
    """Row and column ids of equal number; a single one stands for all."""
    i, j = (_listed(a) for a in (rows, columns))
    if len(i) == 1:
        i = i * len(j) if isinstance(i, list) else np.repeat(i, len(j))
    if len(j) == 1:
        j = j * len(i) if isinstance(j, list) else np.repeat(j, len(i))
    if len(i) != len(j):
        raise invalid("columns", f"{len(j)} ids", f"{len(i)}, one for each row id, or a single one")
    return i, j


def _listed(ids: Any) -> Any:
    ids = one_or_many(ids)
    return ids if hasattr(ids, "dtype") else list(ids)


def is_matrix(rows: Any) -> bool:
    """True for data, False for ids (a list of tuples that hold text is one of ids)."""
    if isinstance(rows, (Observed, Dense, Counts)) or hasattr(rows, "tocsr"):
        return True
    if not isinstance(rows, (list, tuple)):
        return np.ndim(rows) == 2
    try:
        array = np.asarray(rows)
    except ValueError:  # tuples within tuples
        return False
    return array.ndim == 2 and array.dtype.kind not in "US"


def cast(a: np.ndarray | None, like: np.ndarray) -> np.ndarray | None:
    """In the precision of ``like``."""
    return None if a is None else np.asarray(a, like.dtype)


def mean_of(x: Observed, weights: np.ndarray | None) -> float:
    """The (weighted) mean of the observed entries."""
    if weights is None and parts_of(x) is not None:
        facts = facts_of(x)
        return facts.total / facts.entries
    return float(np.average(x.data, weights=weights))


def refuse_negative(x: Observed, where: str) -> None:
    """Strengths are 0 or more; the first that is not is named, in parts where they are."""
    if facts_of(x).least < 0:
        of_each_part(x, partial(_refuse_negative, where))


def _refuse_negative(where: str, x: Observed) -> None:
    if (x.data < 0).any():
        at = int(np.argmax(x.data < 0))
        row = int(np.searchsorted(x.indptr, at, side="right")) - 1
        raise InputError(
            f"Negative values in data: X must hold strengths >= 0 {where}, got {x.data[at]} at "
            f"row {row}, column {x.indices[at]}"
        )


def limits(clip: Any, x: Observed, rates: bool = False) -> list[float] | None:
    """Where predictions are clipped: (low, high), True for the observed range, False for nowhere,
    "auto" for the range of a rating scale.

    A rating scale has few values, each many times: at most 64 among the first 10,000 entries, and
    ten entries for each. ``rates`` are means of counts, exponentials of what was fitted, which a
    cell beside the data can raise tenfold: "auto" lets none exceed the largest count. Of n counts
    and one more, exchangeable with them, the last is the largest with probability 1 / (n + 1), and
    its mean exceeds them all more rarely still.
    """
    if (
        isinstance(clip, (tuple, list))
        and len(clip) == 2
        and all(map(number().fits, clip))
        and clip[0] <= clip[1]
    ):
        return [float(clip[0]), float(clip[1])]
    if clip is False or clip is None:
        return None
    if isinstance(clip, str) and clip == "auto":
        facts = facts_of(x)
        if rates:
            return [0.0, facts.most]
        scale = facts.values is not None and facts.inspected >= 10 * len(facts.values)
        return [facts.least, facts.most] if scale else None
    if clip is True:
        facts = facts_of(x)
        return [facts.least, facts.most]
    raise invalid("clip", clip, "(low, high), True, False or 'auto'")


def on_a_scale(x: Observed) -> list[float] | None:
    """The ends of a rating scale of three values or more, or None."""
    values = facts_of(x).values
    return limits("auto", x) if values is not None and len(values) > 2 else None
