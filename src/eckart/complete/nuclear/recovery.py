"""Can a completion problem be solved at all, and which rows of it cannot? Counted from the places
of the observed entries alone, before any fit.

* degrees of freedom    a rank-k matrix has k (n + m - k); fewer entries than that cannot determine
it
* thin rows, columns    with fewer than k entries their codes are not determined, whatever the
others are
* connectivity          the graph of rows and columns joined by the entries; parts that no entry
joins cannot be related:
                        each is known only up to an invertible k x k matrix
* incoherence           of a given fit B = U diag(s) V^T, with P = U U^T, Q = V V^T, E = U V^T: the
smallest mu with
                        |p_ij| <= mu sqrt(k)/n off the diagonal, |p_ii - k/n| <= mu sqrt(k)/n, the same for Q with m, |e_ij| <= mu sqrt(k)/sqrt(nm)
* sampling bound        C mu^2 N k log^6 N entries suffice for the nuclear norm, N = max(n, m)
(Candes and Tao 2010); C is not known, so C = 1 is shown
                        as an order of magnitude and decides nothing
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.certify.recovery import recovery_certificate
from eckart.decompositions import svd
from eckart.engines import engine_named
from eckart.errors import invalid
from eckart.factors import LowRank
from eckart.io.tables.triples import observed as read_observed
from eckart.matrix import Observed
from eckart.matrix_blocks import of_each_part

__all__ = ["Recovery", "incoherence", "recovery", "recovery_certificate"]

COHERENT = 14.0
"""Incoherence, in units of sqrt(k), from which it is called large: Gaussian factors of 50 to 2,000
rows have 1.4 to 12.4, with a spike beside them 12 to 1,000."""
NAMED = 10
"""How many ids a sentence lists."""


@dataclass(frozen=True, eq=False)
class Recovery:
    """The report; ``str(report)`` is its plain-words form, ``possible`` the short answer.

    ``thin_rows`` and ``thin_columns`` are ids (positions where there are no labels) with fewer than
    k entries; ``parts`` lists the (row ids, column ids) of the connected parts that have entries,
    the largest first; ``oversampling`` is entries / degrees of freedom. ``single_rows`` and
    ``single_columns`` have one entry, which nothing checks.
    """

    k: int
    shape: tuple[int, int]
    entries: int
    degrees: int
    thin_rows: np.ndarray
    thin_columns: np.ndarray
    parts: list[tuple[np.ndarray, np.ndarray]] = field(repr=False)
    mu: float | None = None
    single_rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    single_columns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def oversampling(self) -> float:
        return self.entries / self.degrees if self.degrees else float("inf")

    @property
    def connected(self) -> bool:
        return len(self.parts) == 1

    @property
    def possible(self) -> bool:
        """Nothing that can be counted stands against recovering the whole matrix."""
        return (
            self.entries >= self.degrees
            and not len(self.thin_rows)
            and not len(self.thin_columns)
            and len(self.parts) <= 1
        )

    @property
    def bound(self) -> float | None:
        """mu^2 N k log^6 N, where mu is known."""
        n = max(self.shape)
        return None if self.mu is None else self.mu**2 * n * self.k * float(np.log(n)) ** 6

    @property
    def verdict(self) -> str:
        """Can this matrix be recovered, and which rows cannot."""
        if self.possible:
            ease = (
                "comfortably"
                if self.oversampling >= 3
                else "by careful methods"
                if self.oversampling >= 1.6
                else "barely, if at all"
            )
            counted = (
                f"{self.entries} entries for {self.degrees} degrees of freedom "
                f"({self.oversampling:.2f} times)"
            )
            return "; ".join(
                [f"can be recovered, {ease}: {counted}", *self._single(), self._coherence()]
            )
        reasons = []
        if self.entries < self.degrees:
            reasons.append(
                f"{self.entries} entries are fewer than the {self.degrees} degrees of "
                f"freedom of rank {self.k}"
            )
        for name, ids in (("row", self.thin_rows), ("column", self.thin_columns)):
            if len(ids):
                reasons.append(
                    f"{_count(len(ids), name)} with fewer than {self.k} entries cannot "
                    f"be determined: {_named(ids)}"
                )
        if len(self.parts) > 1:
            rows, columns = self.parts[1]
            reasons.append(
                f"{len(self.parts)} parts share no entry and cannot be related, such as "
                f"rows {_named(rows)} with columns {_named(columns)}"
            )
        return "cannot be recovered as a whole: " + "; ".join([*reasons, *self._single()])

    def _single(self) -> list[str]:
        """Rows and columns with one entry, where they are not among the thin ones."""
        sides = (("row", self.single_rows), ("column", self.single_columns))
        return [
            f"{_count(len(ids), name)} with one entry, which nothing checks: {_named(ids)}"
            for name, ids in sides
            if len(ids) and self.k <= 1
        ]

    def _coherence(self) -> str:
        """What counting does not tell."""
        if self.mu is None:
            return (
                "this counts entries and knows nothing of coherence: what is in one cell alone "
                "(a spike) is lost where that cell was not seen"
            )
        spiked = self.mu >= COHERENT * np.sqrt(max(self.k, 1))
        return f"incoherence {self.mu:.3g} of the fit" + (
            ", which is large: single rows, columns or cells carry much of it, and "
            "others like them in cells that were not seen would be missed"
            if spiked
            else ", as far as it goes: the fit does not show a spike in a cell that was not seen"
        )

    def __str__(self) -> str:
        lines = [
            f"Recovery of a {self.shape[0]} x {self.shape[1]} matrix of rank {self.k}",
            f"  entries             {self.entries}",
            f"  degrees of freedom  {self.degrees}   (oversampling {self.oversampling:.3g})",
            f"  thin rows           {len(self.thin_rows)}   (fewer than {self.k} entries)",
            f"  thin columns        {len(self.thin_columns)}",
            f"  connected parts     {len(self.parts)}",
            f"  rows of one entry   {len(self.single_rows)}, columns {len(self.single_columns)}",
        ]
        if self.mu is not None:
            lines += [
                f"  incoherence mu      {self.mu:.3g}",
                f"  sampling bound      {self.bound:.3g}   (mu^2 N k log^6 N, constant unknown)",
            ]
        return "\n".join([*lines, f"  verdict             {self.verdict}"])


@held
def recovery(observed: Any, k: int, fit: Any = None, **reading: Any) -> Recovery:
    """Report whether the observed entries can determine a matrix of rank k, and which rows and
    columns they cannot.

    Parameters
    ----------
    observed : ``Observed``, or whatever ``fit`` of a completion model takes (``rows=``,
        ``columns=``, ``values=`` for triples)
    k : the rank
    fit : a fitted model or ``LowRank`` factors, for the incoherence mu

    >>> x = Observed.from_nan(np.array([[1.0, 2.0, np.nan], [2.0, 4.0, np.nan], [np.nan, np.nan, 5.0]]))
    >>> report = recovery(x, 1)
    >>> report.possible, len(report.parts)
    (False, 2)
    """
    if not isinstance(observed, Observed):
        observed = read_observed(observed, **reading)
    n, m = observed.shape
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 0 <= k <= min(n, m):
        raise invalid("k", k, f"an int from 0 to {min(n, m)} for {n} rows and {m} columns")
    counts = observed.row_counts(), observed.column_counts()
    factors = getattr(getattr(fit, "fit_", fit), "factors", fit)
    return Recovery(
        int(k),
        (n, m),
        observed.nnz,
        int(k) * (n + m - int(k)),
        _ids(observed.rows, np.flatnonzero(counts[0] < k)),
        _ids(observed.columns, np.flatnonzero(counts[1] < k)),
        _parts(observed),
        incoherence(factors) if isinstance(factors, LowRank) else None,
        _ids(observed.rows, np.flatnonzero(counts[0] == 1)),
        _ids(observed.columns, np.flatnonzero(counts[1] == 1)),
    )


def _ids(labels: np.ndarray | None, at: np.ndarray) -> np.ndarray:
    return at if labels is None else np.asarray(labels)[at]


def _parts(x: Observed) -> list[tuple[np.ndarray, np.ndarray]]:
    """Connected parts of the bipartite graph that hold entries, by falling size."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    n, m = x.shape
    found = of_each_part(x, _linked)
    first = np.concatenate([one[0] for one in found])
    columns = np.concatenate([one[1] for one in found])
    starts = m + np.cumsum([0] + [one[2].max(initial=-1) + 1 for one in found])
    groups = np.concatenate([one[2] + start for one, start in zip(found, starts)])
    size = int(starts[-1])
    graph = sparse.coo_array((np.ones(len(columns), np.int8), (columns, groups)), (size, size))
    of_column = connected_components(graph, directed=False)[1][:m]
    part = np.concatenate([np.where(first < 0, -1, of_column[first]), of_column])
    seen = np.concatenate([x.row_counts() > 0, x.column_counts() > 0])
    names, sizes = np.unique(part[seen], return_counts=True)
    order = np.argsort(part, kind="stable")
    starts = np.searchsorted(part[order], names)
    ends = np.searchsorted(part[order], names, side="right")
    out = []
    for at in np.argsort(-sizes, kind="stable"):
        members = order[starts[at] : ends[at]]
        out.append((_ids(x.rows, members[members < n]), _ids(x.columns, members[members >= n] - n)))
    return out


def _linked(part: Observed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of some rows: a column of each (-1: it has none), the columns that they have, and numbers
    that are equal where these rows connect them."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    n, m = part.shape
    graph = sparse.csr_array(
        (
            np.ones(part.nnz, np.int8),
            part.indices.astype(np.int64) + n,
            np.concatenate([part.indptr, np.full(m, part.indptr[-1])]),
        ),
        shape=(n + m, n + m),
    )
    label = connected_components(graph, directed=False)[1][n:]
    counts, first = part.row_counts(), np.full(n, -1)
    first[counts > 0] = part.indices[part.indptr[:-1][counts > 0]]
    columns = np.flatnonzero(part.column_counts())
    return first, columns, np.unique(label[columns], return_inverse=True)[1]


def incoherence(fit: Any, block: int = 2**22) -> float:
    """The smallest mu of the module's definition for B = U diag(s) V^T; formed by blocks, n x m is
    never held.

    >>> round(incoherence(LowRank(np.ones((4, 1)), np.ones((4, 1)))), 9)
    1.0
    """
    f = getattr(getattr(fit, "fit_", fit), "factors", fit)
    with engine_named().at_work():
        u, s, v = _triples(f)
        n, m, k = len(u), len(v), len(s)
        if k == 0:
            return 0.0
        size = np.sqrt(k)
        largest = 0.0
        for q in (u, v):
            rows = len(q)
            diagonal = np.einsum("ij,ij->i", q, q)
            largest = max(largest, float(np.abs(diagonal - k / rows).max()) * rows / size)
            largest = max(largest, _largest_product(q, q, block, skip_diagonal=True) * rows / size)
        return float(max(largest, _largest_product(u, v, block) * np.sqrt(n * m) / size))


def _triples(f: LowRank) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ql, rl = np.linalg.qr(f.left.astype(np.float64))
    qr, rr = np.linalg.qr(f.right.astype(np.float64))
    a, s, bt = svd(rl @ rr.T)
    real = s > 1e-12 * max(float(s[0]) if len(s) else 0.0, np.finfo(float).tiny)
    return ql @ a[:, : len(s)][:, real], s[real], qr @ bt[: len(s)][real].T


def _largest_product(
    a: np.ndarray, b: np.ndarray, block: int, skip_diagonal: bool = False
) -> float:
    """max |a_i . b_j| by blocks of rows that cannot be ruled out by |a_i| |b_j|: the rows with the
    longest a first."""
    sizes = np.linalg.norm(a, axis=1)
    reach = float(np.linalg.norm(b, axis=1).max(initial=0.0))
    order = np.argsort(-sizes, kind="stable")
    step = max(1, block // max(1, len(b)))
    best = 0.0
    for first in range(0, len(order), step):
        at = order[first : first + step]
        if sizes[at[0]] * reach <= best:
            break
        product = np.abs(a[at] @ b.T)
        if skip_diagonal:
            product[np.arange(len(at)), at] = 0.0
        best = max(best, float(product.max(initial=0.0)))
    return best


def _named(ids: np.ndarray) -> str:
    shown = ", ".join(str(i) for i in ids[:NAMED])
    return shown + (f" and {len(ids) - NAMED} more" if len(ids) > NAMED else "")


def _count(number: int, name: str) -> str:
    return f"{number} {name}" + ("s" if number != 1 else "")
