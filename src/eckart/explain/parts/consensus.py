"""Do restarts agree? Components of several factorizations matched to each other, and the choice of
rank.

Rows of H, scaled to length 1, are assigned one-to-one to k centres (the components of the best
restart at first, then the means of what was assigned to them). The stability of a component is the
mean cosine between pairs of its copies: 1 when every restart finds it. The cophenetic score (Brunet
et al. 2004) looks at the rows of A: C_ij is the share of restarts in which rows i and j have the
same largest component; the score is the correlation of 1 - C with the distances in the tree that
average linkage makes of it, 1 when every pair is always or never together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.arguments import held
from eckart.errors import invalid
from eckart.explain.parts.options import beta_of
from eckart.explain.parts.solve import Ends
from eckart.io.models.checkpoint import Checkpoint, resumed
from eckart.io.read import read
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.parameters import whole

if TYPE_CHECKING:
    from eckart.reduce.select import Selection

MOST_CELLS = 2**22
"""Cells of the table on which ranks are compared: a fit of it takes about a second."""


@dataclass(frozen=True, eq=False)
class Consensus:
    """What the restarts agree on.

    ``components`` are the mean directions (k x columns, rows of length 1), ``stability`` their mean
    cosines between restarts, ``score`` the mean of those, ``cophenetic`` the score of the rows,
    ``objectives`` where each restart ended.
    """

    components: np.ndarray
    stability: np.ndarray
    cophenetic: float
    objectives: tuple[float, ...]

    @property
    def score(self) -> float:
        """Mean stability of the components."""
        return float(self.stability.mean()) if len(self.stability) else 1.0


def agree(ends: Ends) -> Consensus:
    """The consensus of the restarts of one fit."""
    from scipy.optimize import linear_sum_assignment

    stacks = [_unit(right.T.astype(np.float64)) for right in ends.rights]
    centres, runs = stacks[ends.best], len(stacks)
    if runs == 1:  # one agrees with itself
        return Consensus(centres, np.ones(len(centres)), 1.0, tuple(ends.values))
    matched = np.array(stacks)
    for _ in range(20):
        before = matched
        matched = np.array(
            [stack[linear_sum_assignment(-(centres @ stack.T))[1]] for stack in stacks]
        )
        centres = _unit(matched.mean(axis=0))
        if np.array_equal(before, matched):
            break
    total = matched.sum(axis=0)
    pairs = np.einsum("ij,ij->i", total, total) - np.einsum("rij,rij->i", matched, matched)
    return Consensus(
        centres,
        np.clip(pairs / (runs * (runs - 1)), 0.0, 1.0),
        _cophenetic(ends.largest),
        tuple(ends.values),
    )


@held
def select_rank(
    X: Any,
    ks: Iterable[int] = range(2, 11),
    *,
    held_out: float = 0.1,
    n_init: int = 5,
    random_state: Any = None,
    checkpoint: Any = None,
    **params: Any,
) -> Selection:
    """A table of ranks for NMF: error on held-out entries, stability of the components, cophenetic
    score; and the ranks that these would choose.

    A share ``held_out`` of the entries is hidden at random, NMF is fitted ``n_init`` times to the
    others, and the hidden ones are predicted by the best fit. Hiding whole rows would be invalid: a
    row's code has seen the row. ``params`` go to ``NMF``. "held_out" chooses the smallest k within
    one standard error of the least error, "stability" the largest k whose components all restarts
    find (mean stability of at least 0.9, or else the most stable). With ``checkpoint``, the name of
    a file, ranks that were tried are kept there; the same call resumes from it after a crash, with
    the same bits.

    >>> rng = np.random.default_rng(0)
    >>> a = rng.gamma(0.3, 1.0, (80, 3)) @ rng.gamma(0.3, 1.0, (3, 20)) + 0.02 * rng.standard_normal((80, 20))
    >>> select_rank(np.abs(a), [1, 2, 3, 4], random_state=0).choices["held_out"]
    3
    """
    from eckart.explain.parts.nmf import NMF
    from eckart.reduce.select import Selection

    if not isinstance(ks, Iterable) or isinstance(ks, (str, bytes)) or getattr(ks, "ndim", 1) != 1:
        raise invalid("ks", ks, "ranks of at least 1, such as range(2, 11)")
    given = list(ks)
    if not given or not all(whole(1).fits(k) for k in given):
        raise invalid("ks", given, "ranks of at least 1")
    tried = sorted({int(k) for k in given})
    if not 0 < held_out < 1:
        raise invalid("held_out", held_out, "a share between 0 and 1")
    notes: list[str] = []
    matrix = read(X)
    about = {
        "ks": tried,
        "held_out": held_out,
        "n_init": n_init,
        "random_state": random_state,
        **params,
    }
    file = Checkpoint.of_call(checkpoint, "select_rank", matrix, about)
    with resumed(file, random_state) as (memory, rng):
        table = _table(matrix, rng, notes)
        seen = ~np.isnan(table)
        hidden = seen & (rng.random(table.shape) < held_out)
        hidden[:, (seen & ~hidden).sum(axis=0) == 0] = False
        if not hidden.any():
            raise invalid(
                "held_out",
                held_out,
                f"a share that hides some of the {int(seen.sum())} entries of X",
                "raise it, or give more rows",
            )
        train = Observed.from_nan(np.where(hidden, np.nan, table))
        i, j = np.nonzero(hidden)
        judged: list[list[float]] = memory.last() or []
        for k in tried[len(judged) :]:
            memory.offer(judged)
            model = NMF(k, n_init=n_init, random_state=int(rng.integers(2**31)), **params).fit(
                train
            )
            predicted = np.maximum(model.fit_.factors.at(i, j).astype(np.float64), 0.0)
            each = _losses(table[hidden], predicted, float(beta_of(model.beta_loss)))  # type: ignore[arg-type]
            found = model.consensus_
            judged.append(
                [
                    float(each.mean()),
                    float(each.std() / np.sqrt(max(1, len(each)))),
                    found.score,
                    found.cophenetic,
                ]
            )
    memory.end()
    errors, spreads, stabilities, cophenetics = ([*column] for column in zip(*judged))
    best = int(np.argmin(errors))
    chosen = next(k for k, e in zip(tried, errors) if e <= errors[best] + spreads[best])
    firm = [k for k, s in zip(tried, stabilities) if s >= 0.9]
    choices = {
        "held_out": chosen,
        "stability": max(firm) if firm else tried[int(np.argmax(stabilities))],
    }
    columns: dict[str, list[float]] = {
        "k": [float(k) for k in tried],
        "held-out loss": errors,
        "standard error": spreads,
        "stability": stabilities,
        "cophenetic": cophenetics,
    }
    return Selection(columns, choices, tuple(notes))


def _losses(a: np.ndarray, s: np.ndarray, beta: float) -> np.ndarray:
    """The divergence of each held-out entry."""
    if beta == 2:
        return 0.5 * (a - s) ** 2
    s = np.maximum(s, 1e-10 * max(float(a.mean()), 1e-300))
    some = np.where(a > 0, a, 1.0)
    if beta == 1:
        return np.where(a > 0, a * np.log(some / s), 0.0) - a + s
    if beta == 0:
        return a / s - np.log(some / s) - 1
    return (some**beta * (a > 0) + (beta - 1) * s**beta - beta * a * s ** (beta - 1)) / (
        beta * (beta - 1)
    )


def _table(matrix: Matrix, rng: np.random.Generator, notes: list[str]) -> np.ndarray:
    """The data as an array with NaN for what is unknown; rows are drawn where it would be too
    large."""
    rows, n = matrix.shape
    if isinstance(matrix, Dense) and not matrix.in_memory:
        notes.append(f"the first {MOST_CELLS // n} rows of the stream are used")
        return np.asarray(next(iter(matrix.stream.blocks(max(1, MOST_CELLS // n)))))
    assert rows is not None
    keep = np.arange(rows)
    if rows * n > MOST_CELLS:
        keep = np.sort(rng.choice(rows, max(1, min(rows, MOST_CELLS // n)), replace=False))
        notes.append(f"{len(keep)} rows drawn from {rows} are used")
    if isinstance(matrix, Dense):
        return np.asarray(matrix.array[keep], matrix.dtype)
    part = matrix.to_scipy()[keep]
    if isinstance(matrix, Counts):
        return part.toarray()
    out = np.full(part.shape, np.nan, matrix.dtype)
    out[np.repeat(np.arange(len(keep)), np.diff(part.indptr)), part.indices] = part.data
    return out


def _cophenetic(runs: list[np.ndarray]) -> float:
    """The cophenetic correlation of some rows from their largest components; 1 where nothing
    varies."""
    from scipy.cluster.hierarchy import average, cophenet
    from scipy.spatial.distance import squareform

    together = np.mean([largest[:, None] == largest[None] for largest in runs], axis=0)
    distance = squareform(1 - together, checks=False)
    if len(distance) == 0 or np.ptp(distance) == 0:
        return 1.0
    tree = cophenet(average(distance))
    return float(np.corrcoef(tree, distance)[0, 1]) if np.ptp(tree) > 0 else 0.0


def _unit(rows: np.ndarray) -> np.ndarray:
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(size > 0, size, 1.0)
