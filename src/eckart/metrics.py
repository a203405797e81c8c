"""How good were the predictions and the lists? Each measure in its textbook definition, no two
under one name.

Values:   rmse = sqrt(sum w (t - p)^2 / sum w),   mae = sum w |t - p| / sum w.

Lists: row i was recommended columns r_1, ..., r_k (best first) and has the set R_i of relevant
columns. With h_q = 1 where r_q is in R_i, else 0,

precision@k   sum_q h_q / k                         always over k, also where fewer than k columns
are relevant
recall@k      sum_q h_q / |R_i|                     the plain variant (the LightGCN / Gowalla
protocol)
              sum_q h_q / min(k, |R_i|)             the truncated variant (the MultVAE /
              MovieLens-20M protocol): 1 is always in reach
NDCG@k        sum_q h_q / log2(q + 1)  over its largest possible value, sum_{q <= min(k, |R_i|)} 1 /
log2(q + 1)
MAP@k         mean over rows of  sum_q h_q precision@q / min(k, |R_i|)
MRR@k         mean over rows of  1 / (first q with h_q = 1), 0 without a hit
hit rate@k    share of rows with a hit
coverage@k    share of all columns that were recommended to at least one row

Vectors of words are judged by ``word_similarity`` and ``analogies``, which stand in
``eckart.word_metrics``.

Means are over the rows that have a relevant column; the others are left out and counted. No measure
returns NaN: what cannot be measured is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.errors import InputError, invalid
from eckart.parameters import seed
from eckart.word_metrics import analogies as analogies
from eckart.word_metrics import word_similarity as word_similarity


def rmse(truth: Any, predicted: Any, sample_weight: Any = None) -> float:
    """Root mean squared error, sqrt(sum w (t - p)^2 / sum w), summed in double precision.

    >>> rmse([1.0, 2.0, 3.0], [1.0, 2.0, 6.0])
    1.7320508075688772
    """
    error, top, weight = _errors(truth, predicted, sample_weight)
    return top * float(np.sqrt(np.average(error**2, weights=weight)))


def mae(truth: Any, predicted: Any, sample_weight: Any = None) -> float:
    """Mean absolute error, sum w |t - p| / sum w, summed in double precision.

    >>> mae([1.0, 2.0, 3.0], [1.0, 2.0, 6.0])
    1.0
    >>> mae([1.0, 2.0, 3.0], [1.0, 2.0, 6.0], sample_weight=[1, 1, 2])
    1.5
    """
    error, top, weight = _errors(truth, predicted, sample_weight)
    return top * float(np.average(error, weights=weight))


@held
def precision_at_k(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Mean over rows of hits among the first k, divided by k; never by min(k, number relevant),
    which is not precision.

    Parameters (of all measures of lists)
    ----------
    recommended : integers, rows x at least k: column positions, best first; -1 = no recommendation,
        which is a miss. The first k are read. Or the answer of ``model.recommend``, whose rows are
        found by their ids where ``relevant`` is an Observed.
    relevant : Observed, Counts or SciPy sparse matrix with as many rows, whose stored entries (a
        stored zero included) are the relevant columns; or a sequence of integer arrays, one for
        each row
    k : length of the lists

    >>> precision_at_k([[3, 1, 0, 2]], [[1, 3]], k=2), precision_at_k([[3, 1, 0, 2]], [[1, 3]], k=4)
    (1.0, 0.5)
    """
    return _mean("precision", recommended, relevant, k)


@held
def recall_at_k(recommended: Any, relevant: Any, k: int = 10, *, truncated: bool = False) -> float:
    """Mean over rows of hits among the first k, divided by the number relevant (plain) or by min(k,
    number relevant) (truncated).

    The plain variant never falls with k and can stay below 1 for the best of lists when more than k
    columns are relevant.

    >>> recall_at_k([[3, 1, 0]], [[1, 2, 3, 4]], k=2), recall_at_k([[3, 1, 0]], [[1, 2, 3, 4]], k=2, truncated=True)
    (0.5, 1.0)
    """
    return _mean("recall_truncated" if truncated else "recall", recommended, relevant, k)


@held
def ndcg_at_k(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Mean over rows of the discounted gain sum h_q / log2(q + 1), divided by that of a list with
    min(k, number relevant) hits in front.

    >>> round(ndcg_at_k([[0, 3, 1]], [[1, 3]], k=3), 6)
    0.693426
    """
    return _mean("ndcg", recommended, relevant, k)


@held
def map_at_k(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Mean over rows of the average precision: precision@q summed over the ranks q <= k of hits,
    divided by min(k, number relevant).

    >>> round(map_at_k([[0, 3, 1]], [[1, 3]], k=3), 6)
    0.583333
    """
    return _mean("map", recommended, relevant, k)


@held
def mrr_at_k(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Mean over rows of 1 / rank of the first hit, 0 where the first k have none.

    >>> mrr_at_k([[0, 3, 1], [5, 6, 7]], [[1, 3], [2]], k=3)
    0.25
    """
    return _mean("mrr", recommended, relevant, k)


@held
def hit_rate_at_k(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Share of rows with at least one hit among the first k.

    >>> hit_rate_at_k([[0, 3, 1], [5, 6, 7]], [[1, 3], [2]], k=3)
    0.5
    """
    return _mean("hit_rate", recommended, relevant, k)


@held
def coverage_at_k(recommended: Any, n_columns: int, k: int = 10) -> float:
    """Share of the ``n_columns`` columns that stand among the first k of at least one row; every
    row counts.

    >>> coverage_at_k([[0, 3], [3, 0]], n_columns=8, k=2)
    0.25
    """
    return _coverage(_lists(recommended, k, n_columns), n_columns)


@dataclass(frozen=True, eq=False)
class Ranking:
    """What ``ranking`` measured.

    ``mean`` and ``standard_error`` by name of the measure (None where there is no error to state:
    coverage, or a single row); ``rows`` had a relevant column and were counted, ``left_out`` had
    none; ``per_row`` holds the values of the counted rows, whose positions are ``counted``, when
    they were asked for.
    """

    k: int
    mean: dict[str, float]
    standard_error: dict[str, float | None]
    rows: int
    left_out: int
    per_row: dict[str, np.ndarray] | None = None
    counted: np.ndarray | None = None

    def __str__(self) -> str:
        lines = []
        for name, mean in self.mean.items():
            error = self.standard_error[name]
            lines.append(
                f"{name}@{self.k}".ljust(20)
                + f"{mean:.5f}"
                + ("" if error is None else f" ± {error:.5f}")
            )
        return "\n".join(
            [*lines, f"over {self.rows} rows; {self.left_out} without a relevant column left out"]
        )


@held
def ranking(
    recommended: Any,
    relevant: Any,
    k: int = 10,
    metrics: str | Sequence[str] = ("precision", "recall", "ndcg", "map", "mrr", "hit_rate"),
    per_row: bool = False,
) -> Ranking:
    """Several measures of the same lists, each with its standard error std / sqrt(rows), rows being
    the sampled unit.

    ``metrics``: of "precision", "recall", "recall_truncated", "ndcg", "map", "mrr", "hit_rate", and
    "coverage" where ``relevant`` has a number of columns.

    >>> print(ranking([[3, 1], [0, 2], [1, 0]], [[1, 3], [2], []], k=2, metrics=("precision", "recall")))
    precision@2         0.75000 ± 0.25000
    recall@2            1.00000 ± 0.00000
    over 2 rows; 1 without a relevant column left out
    """
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        if name not in _MEASURES and name != "coverage":
            raise invalid("metrics", name, f"names among {', '.join([*_MEASURES, 'coverage'])}")
    if hasattr(recommended, "positions"):
        recommended, relevant = _matched(recommended, relevant)
    counts, columns, n_columns = _relevant(relevant)
    if "coverage" in names and n_columns is None:
        raise invalid(
            "metrics",
            "coverage",
            "relevant as a matrix",
            "call coverage_at_k, which takes n_columns",
        )
    lists = _lists(recommended, k, n_columns)
    hits, counts = _hits(lists, counts, columns, n_columns)
    counted = np.flatnonzero(counts)
    if len(counted) < len(lists):
        hits, counts = hits[counted], counts[counted]
    mean: dict[str, float] = {}
    error: dict[str, float | None] = {}
    values: dict[str, np.ndarray] = {}
    for name in names:
        if name == "coverage":
            assert n_columns is not None
            mean[name], error[name] = _coverage(lists, n_columns), None
            continue
        row = values[name] = _MEASURES[name](hits, counts)
        mean[name] = float(row.mean())
        error[name] = float(row.std(ddof=1) / np.sqrt(len(row))) if len(row) > 1 else None
    kept = (values, counted) if per_row else (None, None)
    return Ranking(int(k), mean, error, len(counted), len(lists) - len(counted), *kept)


MOST_RESAMPLES = 1_000_000
"""Resamples at the most: the ends of an interval do not move any more long before."""


@held
def bootstrap_interval(
    values: Any, level: float = 0.95, *, resamples: int = 1000, random_state: Any = None
) -> tuple[float, float]:
    """Percentile interval of the mean of ``values`` (one for each row) when rows are drawn again
    with replacement.

    >>> low, high = bootstrap_interval([0.0, 1.0] * 200, random_state=0)
    >>> 0.44 < low < 0.5 < high < 0.56
    True
    """
    values = _finite("values", values)
    if values.ndim != 1 or len(values) == 0:
        raise invalid(
            "values", f"an array of shape {values.shape}", "one number for each row, at least one"
        )
    if not 0 < level < 1:
        raise invalid("level", level, "a number between 0 and 1")
    if not 1 <= resamples <= MOST_RESAMPLES:
        raise invalid("resamples", resamples, f"an int from 1 to {MOST_RESAMPLES}")
    if not seed().fits(random_state):
        raise invalid("random_state", random_state, seed().wanted)
    rng = np.random.default_rng(random_state)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(resamples)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _ranks(hits: np.ndarray) -> np.ndarray:
    return np.arange(1, hits.shape[1] + 1)


def _within(hits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """min(k, |R_i|): the most hits that a list of length k can have."""
    return np.minimum(counts, hits.shape[1])


def _ndcg(hits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    discount = 1 / np.log2(_ranks(hits) + 1)
    return hits @ discount / np.cumsum(discount)[_within(hits, counts) - 1]


def _map(hits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return (hits * np.cumsum(hits, axis=1)) @ (1 / _ranks(hits)) / _within(hits, counts)


def _mrr(hits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.where(hits.any(axis=1), 1 / (hits.argmax(axis=1) + 1), 0.0)


_MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "precision": lambda hits, counts: hits.sum(axis=1) / hits.shape[1],
    "recall": lambda hits, counts: hits.sum(axis=1) / counts,
    "recall_truncated": lambda hits, counts: hits.sum(axis=1) / _within(hits, counts),
    "ndcg": _ndcg,
    "map": _map,
    "mrr": _mrr,
    "hit_rate": lambda hits, counts: np.where(hits.any(axis=1), 1.0, 0.0),
}


def _mean(name: str, recommended: Any, relevant: Any, k: int) -> float:
    return ranking(recommended, relevant, k, (name,)).mean[name]


def _coverage(lists: np.ndarray, n_columns: int) -> float:
    return float(np.count_nonzero(np.bincount(lists[lists >= 0], minlength=n_columns)) / n_columns)


def _hits(
    lists: np.ndarray, counts: np.ndarray, columns: np.ndarray, n_columns: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Where each list hits (rows x k) and |R_i|, by looking up row * width + column among the
    sorted keys of what is relevant."""
    n = len(lists)
    if len(counts) != n:
        raise invalid("recommended", f"{n} rows", f"{len(counts)}, one for each row of relevant")
    if len(columns) == 0:
        raise invalid(
            "relevant",
            "no column in any row",
            "at least one row with a relevant column",
            "hold out entries",
        )
    width = n_columns or max(int(columns.max()), int(lists.max())) + 1
    keys = np.repeat(np.arange(n) * width, counts) + columns
    if not (keys[1:] > keys[:-1]).all():
        keys = np.sort(keys)
        again = np.flatnonzero(keys[1:] == keys[:-1])
        if len(again) and n_columns is None:
            row, column = divmod(int(keys[again[0]]), width)
            raise InputError(
                f"relevant must hold each column once in a row, got column {column} twice in row "
                f"{row}. Use numpy.unique."
            )
        keys = np.delete(keys, again)
        counts = np.bincount(keys // width, minlength=n)
    wanted = lists + np.arange(n)[:, None] * width
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return (keys[place] == wanted) & (lists >= 0), counts


def _matched(recommended: Any, relevant: Any) -> tuple[np.ndarray, Any]:
    """Recommendations as positions in the matrix of relevant columns, row by row: ids decide where
    that has ids. A column that it does not know is relevant to nobody and gets a position behind
    all of its own; a row that it does not know has nothing relevant."""
    lists = recommended.positions
    if not hasattr(relevant, "row_index"):
        return lists, relevant
    matrix = relevant.to_scipy().tocsr()
    if relevant.columns is not None:
        listed = lists >= 0
        _, first, place = np.unique(lists[listed], return_index=True, return_inverse=True)
        at = relevant.column_index.find(np.asarray(recommended.columns)[listed][first])
        more = at < 0
        at[more] = matrix.shape[1] + np.arange(np.count_nonzero(more))
        lists = np.full(lists.shape, -1)
        lists[listed] = at[place]
        matrix.resize(matrix.shape[0], matrix.shape[1] + np.count_nonzero(more))
    rows = relevant.row_index.find(recommended.rows)
    matrix.resize(matrix.shape[0] + 1, matrix.shape[1])
    return lists, matrix[rows]  # -1, a row that is not known, is the last, which is empty


def _relevant(relevant: Any) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Relevant columns per row, all of them row after row, and the number of columns where it is
    known."""
    if hasattr(relevant, "tocsr"):
        relevant = relevant.tocsr()
    if hasattr(relevant, "indptr"):
        return np.diff(relevant.indptr), relevant.indices, int(relevant.shape[1])
    if (
        not isinstance(relevant, (Sequence, np.ndarray))
        or isinstance(relevant, (str, bytes))
        or getattr(relevant, "ndim", 1) == 0
    ):
        raise invalid(
            "relevant",
            type(relevant).__name__,
            "Observed, a SciPy sparse matrix or one integer array per row",
        )
    parts = [np.asarray(part) for part in relevant]
    for row, part in enumerate(parts):
        if part.ndim != 1 or (part.size and (part.dtype.kind not in "iu" or part.min() < 0)):
            raise invalid(f"relevant[{row}]", relevant[row], "a 1-d array of column positions >= 0")
    columns = np.concatenate([np.zeros(0, np.int64), *(part.astype(np.int64) for part in parts)])
    return np.array([len(part) for part in parts], dtype=np.int64), columns, None


def _lists(recommended: Any, k: int, n_columns: int | None) -> np.ndarray:
    """The first k of each row as int64, checked: positions in range, no column twice."""
    lists = np.asarray(recommended)
    if lists.ndim != 2 or lists.dtype.kind not in "iu":
        came = f"a {lists.ndim}-d array of {lists.dtype}"
        raise invalid(
            "recommended",
            came,
            "a 2-d array of integers, rows x at least k",
            "pad short lists with -1",
        )
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise invalid("k", k, "an int >= 1")
    if k > lists.shape[1]:
        raise invalid(
            "k",
            k,
            f"at most {lists.shape[1]}, the length of the lists",
            "recommend more, or pad with -1",
        )
    if n_columns is not None and n_columns < 1:
        raise invalid("n_columns", n_columns, "at least 1")
    lists = lists[:, :k].astype(np.int64)
    off = (lists < -1) | (lists >= (n_columns or np.iinfo(np.int64).max))
    if off.any():
        row, rank = np.argwhere(off)[0]
        wanted = "-1 (none) or a column position" + (
            "" if n_columns is None else f" below {n_columns}"
        )
        raise invalid(f"recommended[{row}, {rank}]", int(lists[row, rank]), wanted)
    ordered = np.sort(lists, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row, rank = np.argwhere(twice)[0]
        column = ordered[row, rank]
        raise InputError(
            f"recommended must hold each column once in a row, got column {column} twice in row "
            f"{row}. Drop the repeats."
        )
    return lists


def _errors(
    truth: Any, predicted: Any, sample_weight: Any
) -> tuple[np.ndarray, float, np.ndarray | None]:
    """|t - p| / top, top = max |t - p| (so that no square overflows), and the weights: flat,
    checked."""
    t, p = _finite("truth", truth), _finite("predicted", predicted)
    if t.shape != p.shape:
        raise invalid(
            "predicted", f"an array of shape {p.shape}", f"shape {t.shape}, that of truth"
        )
    if t.size == 0:
        raise invalid("truth", "no value", "at least one", "hold out entries")
    with np.errstate(over="ignore"):
        error = np.abs(t - p).ravel()
    top = float(error.max())
    error = error / top if 0 < top < np.inf else np.ones_like(error)
    if sample_weight is None:
        return error, top, None
    weight = _finite("sample_weight", sample_weight)
    if weight.shape != t.shape:
        raise invalid(
            "sample_weight", f"an array of shape {weight.shape}", f"shape {t.shape}, that of truth"
        )
    if weight.min() < 0 or weight.max() == 0:
        raise invalid("sample_weight", float(weight.min()), "weights >= 0, not all of them 0")
    return error, top, weight.ravel() / weight.max()


def _finite(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise invalid(name, type(values).__name__, "an array of numbers") from None
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = ", ".join(map(str, where))
        raise invalid(
            f"{name}[{place}]",
            float(array[where]),
            "a finite number",
            "fill it or leave the entry out",
        )
    return array
