"""How a fit does beside the answers that need no factors, on entries it was fitted to, and what
that lets one expect elsewhere.

A fit knows its own entries better than others, the more so the more free numbers it has. With e its
mean squared error on N entries and d free numbers, other entries have about

    e / (1 - d / N)^2        (generalised cross-validation; Craven and Wahba 1979),

and d is what a ridge l leaves of them: sum over rows and columns of tr (V_i^T V_i) (V_i^T V_i + l
I)^-1, less the k^2 of a change of axes. A posterior says itself what it expects. ``ALS`` hides
entries where it chooses its ridge, and tells the errors on these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import UNKNOWN
from eckart.complete.biases import BiasSums, balanced, ridged
from eckart.decompositions import eigvalsh
from eckart.factors import LowRank, Series
from eckart.matrix import Observed
from eckart.matrix_blocks import parts_of
from eckart.terms import loss_from

LOOKED_AT = 100_000
"""Entries that are compared, evenly over all."""
BIASES_UP_TO, DAMPING, STEPS = 2_000_000, 3.0, 20
"""Entries up to which biases are computed, their ridge, and steps of conjugate gradients."""
SYSTEMS, FEWEST_SYSTEMS = 300, 30
"""Rows, and columns, by which free numbers are counted: their mean is known to a few per cent; and
by how many where each takes long."""
WORK = 3e9
"""Multiplications that counting may take for each side, a quarter of a second: a fit of rank 300 is
not followed by a minute of it, in which nothing can be interrupted."""
TOO_FREE = 0.75
"""Free numbers for each entry from which the estimate says nothing: a nuclear norm of small price
fits noise to the last digit with 0.9 of them, and was promised a quarter of its true error."""
Ridges = tuple[np.ndarray, np.ndarray]
"""Of the codes of rows and of columns, one number for each."""


def free_numbers(f: LowRank, x: Observed, ridges: Ridges) -> float:
    """d of factors with these ridges."""
    scales = _balance(f)
    k = len(scales[0])
    if not k:
        return 0.0
    found = -float(k**2)
    sides = (
        (x.row_counts(), _entries_of_rows, f.right, scales[1], ridges[0]),
        (x.column_counts(), _entries_of_columns, f.left, scales[0], ridges[1]),
    )
    for per_line, entries_of, codes, scale, l2 in sides:
        lines = np.flatnonzero(per_line)
        counts = per_line[lines].astype(np.float64)
        smaller = np.minimum(counts, k)
        each_takes = float(np.mean(counts * k * smaller + 10 * smaller**3))  # product, eigenvalues
        systems = int(np.clip(WORK / each_takes, FEWEST_SYSTEMS, SYSTEMS))
        some = lines[np.unique(np.linspace(0, len(lines) - 1, systems).astype(np.int64))]
        each = [
            _free(codes[at][:, scales[2]].astype(np.float64) * scale, l2[i])
            for i, at in zip(some, entries_of(x, some))
        ]
        found += len(lines) * float(np.mean(each))
    return max(found, 0.0)


def _entries_of_rows(x: Observed, some: np.ndarray) -> list[np.ndarray]:
    """The columns of the entries of these rows."""
    return [x.indices[x.indptr[i] : x.indptr[i + 1]] for i in some]


def _entries_of_columns(x: Observed, some: np.ndarray) -> list[np.ndarray]:
    """The rows of the entries of these columns, without a transpose of all."""
    number = np.full(x.n_columns, -1, np.int32)
    number[some] = np.arange(len(some))
    hit = np.flatnonzero((number >= 0)[x.indices])
    which = number[x.indices[hit]]
    order = np.argsort(which, kind="stable")
    rows = np.searchsorted(x.indptr, hit[order], side="right") - 1
    return np.split(rows, np.cumsum(np.bincount(which, minlength=len(some)))[:-1])


def elsewhere(error: float, share: float) -> float:
    """What an error on own entries lets one expect on others, with so many free numbers for each
    entry; ``UNKNOWN`` where too little is left to judge by."""
    return error / (1 - share) ** 2 if share < TOO_FREE else UNKNOWN


def _balance(f: LowRank) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales of the directions of both sides that make them as long on one side as on the other,
    where a nuclear norm is half the squares of both, and which directions have a length."""
    a, b = (np.sqrt(np.einsum("ij,ij->j", c, c, dtype=np.float64)) for c in (f.left, f.right))
    kept = a * b > 1e-12 * (a * b).max(initial=0.0)
    size = np.sqrt(b[kept] / a[kept])
    return size, 1 / size, kept


def _free(v: np.ndarray, l2: float) -> float:
    """tr (V^T V) (V^T V + l2 I)^-1, by the smaller of V^T V and V V^T."""
    e = eigvalsh(v @ v.T if len(v) < v.shape[1] else v.T @ v)
    e = e[e > 1e-12 * e.max(initial=0.0)]
    return float((e / (e + l2)).sum())


def own_errors(
    f: Any,
    x: Observed,
    ridges: Ridges | None = None,
    claimed: float | None = None,
    loss: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Mean squared errors of the model, of biases and of the mean; ``expected`` of the model on
    other entries, by its ridges or as it claims itself. Nothing for entries in parts, and where all
    are the same."""
    if not isinstance(f, (LowRank, Series)) or parts_of(x) is not None or not x.nnz:
        return {}
    at = np.unique(np.linspace(0, x.nnz - 1, min(x.nnz, LOOKED_AT)).astype(np.int64))
    rows, columns = np.searchsorted(x.indptr, at, side="right") - 1, x.indices[at]
    values, s = x.data[at].astype(np.float64), f.at(rows, columns).astype(np.float64)
    guess = s if loss is None else loss_from(loss).mean(s)
    mean = float(x.data.mean(dtype=np.float64))
    unit = float(np.abs(values - mean).max(initial=0.0))
    if not unit > 0:
        return {}

    def error(prediction: np.ndarray | float) -> float:
        return float(np.mean(((values - prediction) / unit) ** 2)) * unit**2

    errors = {"entries": len(at), "model": error(guess)}
    counts = x.row_counts(), x.column_counts()
    of_biases = sum(float((n / (n + DAMPING)).sum()) for n in counts)
    if claimed is not None:
        errors["expected"] = claimed
    elif isinstance(f, LowRank) and ridges is not None and loss is None:
        d = free_numbers(f, x, ridges) + (of_biases if f.row_bias is not None else 0.0)
        errors["expected"] = elsewhere(errors["model"], d / x.nnz)
    if x.nnz <= BIASES_UP_TO:
        everywhere = np.repeat(np.arange(x.shape[0]), x.row_counts())
        sums = BiasSums.of(everywhere, x.indices, x.data - mean, x.shape)  # type: ignore[arg-type]
        b, c, _ = balanced(
            sums,
            ridged(x.row_counts(), DAMPING, False),
            ridged(x.column_counts(), DAMPING, False),
            STEPS,
        )
        errors["biases"] = error(mean + b[rows] + c[columns])
        if "expected" in errors:
            errors["expected biases"] = elsewhere(errors["biases"], of_biases / x.nnz)
    return errors | {"mean": error(mean)}
