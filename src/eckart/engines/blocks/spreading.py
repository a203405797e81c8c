"""What each primitive does with blocks of rows: which arguments go along with the rows (or entries)
of a block, and how the answers are joined.

``rows``     one array below the other
``sum``      merged in a fixed tree: eight neighbours at a time, the first with the second, then the
third and so on, until one is left
``max``      the largest

A tuple joins the parts of a result one by one. Arguments that are not named here go to every block
as they are.

What happens at one block: pure functions of the block and its arguments, so that they can run
anywhere and run again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eckart.engines.host import Host
from eckart.engines.protocol import GapsFound, PmiRule, Sketch
from eckart.engines.protocol.placed import Place, Refused, whole_rows
from eckart.errors import InputError
from eckart.index.compress import index_dtype
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.merging import Tree
from eckart.rng import stretch


class SpreadRule(NamedTuple):
    """How a primitive is spread over blocks; ``inside`` names the tall argument that its first
    answer may overwrite, where the engine made it."""

    join: Any
    rows: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    inside: str = ""


RULES: dict[str, SpreadRule] = {
    "moments": SpreadRule("sum"),
    "column_moments": SpreadRule("sum"),
    "seen_columns": SpreadRule("sum"),
    "times": SpreadRule("rows"),
    "times_t": SpreadRule("sum", rows=("y",)),
    "gram_times": SpreadRule("sum", rows=("weights",)),
    "misfit": SpreadRule("rows"),
    "largest": SpreadRule("max"),
    "gap_statistics": SpreadRule("sum"),
    "gap_codes": SpreadRule(("rows", "rows", "rows")),
    "gap_expect": SpreadRule("rows"),
    "sampled": SpreadRule("rows", rows=("left",)),
    "residual": SpreadRule(("rows", "sum"), rows=("left",), entries=("data",)),
    "entry_times": SpreadRule("rows", entries=("data",)),
    "evidence_rows": SpreadRule(
        ("rows", "rows", "sum"), rows=("left", "own"), entries=("weights",)
    ),
    "residual_gram": SpreadRule("sum", rows=("left", "q", "own")),
    "offset_times": SpreadRule("rows", rows=("own", "row_scale")),
    "ridge_rows": SpreadRule(
        ("rows", "rows", "sum"), rows=("own", "prior", "noise", "start"), entries=("weights",)
    ),
    "bias_rows": SpreadRule("rows", entries=("weights",)),
    "misfit_rows": SpreadRule("rows", rows=("left",)),
    "loss_sums": SpreadRule("sum", rows=("left", "own", "row_steep")),
    "threshold_sums": SpreadRule("sum", rows=("left", "own", "row_steep")),
    "shortened_rows": SpreadRule(("rows", "rows", "sum"), rows=("left", "new", "own", "new_own")),
    "slice_rows": SpreadRule("rows", rows=("left", "point", "centre", "drawn", "noise")),
    "filled_moments": SpreadRule(("sum", "rows"), rows=("codes", "weights")),
    "left_out_rows": SpreadRule("rows", rows=("codes",)),
    "gaussian_statistics": SpreadRule("sum"),
    "share_statistics": SpreadRule("sum", rows=("shares",)),
    "gaussian_posteriors": SpreadRule(("rows", "rows", "rows", "rows")),
    "check_family": SpreadRule("none"),
    "family_statistics": SpreadRule(("sum", "sum", "sum", "sum")),
    "family_posteriors": SpreadRule(("rows", "rows", "rows", "rows")),
    "distances": SpreadRule("rows"),
    "group_sums": SpreadRule("sum"),
    "nearest": SpreadRule("rows"),
    "topic_totals": SpreadRule("sum"),
    "topic_fold": SpreadRule("rows", rows=("shares",), inside="shares"),
    "topic_sweep": SpreadRule(("rows", "sum"), rows=("shares",), inside="shares"),
    "topic_bayes": SpreadRule(("rows", "sum"), rows=("gamma",), inside="gamma"),
    "topic_scores": SpreadRule(("sum", "sum"), rows=("shares",)),
    "totals": SpreadRule("sum"),
    "hals_pass": SpreadRule(("rows", "sum"), rows=("left",)),
    "hals_seen": SpreadRule(("rows", "sum", "sum"), rows=("start",)),
    "kl_rows": SpreadRule(("rows", "sum", "sum"), rows=("start",)),
    "kl_sums": SpreadRule("sum", rows=("left",)),
    "square_error": SpreadRule("sum", rows=("left",)),
    "multiplied_pass": SpreadRule(("rows", "sum"), rows=("left",)),
    "beta_size": SpreadRule("sum"),
    "beta_rows": SpreadRule(("rows", "sum", "sum"), rows=("start",)),
    "beta_sums": SpreadRule("sum", rows=("left",)),
    "column_gram": SpreadRule("sum"),
    "sparse_gram": SpreadRule("sum"),
    "pair_scores": SpreadRule("sum", rows=("left",)),
}


class SpreadRows:
    """Arrays that come one after another; where they are as long together as the matrix has rows,
    each goes to its place at once: in ``into``, if that is an array of their kind."""

    def __init__(self, rows: int, into: np.ndarray | None = None):
        self.rows, self.done, self.into = rows, 0, into
        self.whole: np.ndarray | None = None
        self.parts: list[np.ndarray] = []

    def add(self, part: np.ndarray | None, rows: int) -> None:
        if part is None:
            return
        if self.done == 0 and len(part) == rows:
            shape, into = (self.rows, *part.shape[1:]), self.into
            fits = into is not None and into.shape == shape and into.dtype == part.dtype
            self.whole = into if fits else np.empty(shape, part.dtype)
        if self.whole is None:
            self.parts.append(part)
        else:
            self.whole[self.done : self.done + len(part)] = part
        self.done += len(part)

    def total(self) -> np.ndarray | None:
        if self.whole is not None:
            # fewer where the first block gave all of its rows and another did not
            return self.whole[: self.done]
        return np.concatenate(self.parts) if self.parts else None


class Join:
    """Collects the answers of blocks, in their order, by the rule of a primitive; ``rows`` of the
    matrix, the first of them ``into`` an array where given."""

    def __init__(self, how: Any, rows: int, into: np.ndarray | None = None):
        self.how: Any = how
        self.kind: Any = None
        if isinstance(how, tuple):
            self.parts: Any = [Join(each, rows, None if i else into) for i, each in enumerate(how)]
        else:
            self.parts = {"sum": Tree, "rows": lambda: SpreadRows(rows, into)}.get(how, list)()

    def add(self, answer: Any, rows: int) -> None:
        """The answer of the next block, which has so many rows."""
        if isinstance(self.how, tuple):
            self.kind = type(answer)
            for join, part in zip(self.parts, answer):
                join.add(part, rows)
        elif self.how == "sum":
            self.parts.add(answer)
        elif self.how == "rows":
            self.parts.add(answer, rows)
        else:
            self.parts.append(answer)

    def joined(self) -> Any:
        if isinstance(self.how, tuple):
            parts = [join.joined() for join in self.parts]
            return tuple(parts) if self.kind is tuple else self.kind(*parts)
        if self.how in ("sum", "rows"):
            return self.parts.total()
        return max(self.parts) if self.how == "max" else None


def attempt(
    engine: Any, do: Callable[..., Any], host: Any, at: Place, arguments: dict[str, Any]
) -> Any:
    """``do(engine, host, ...)``, or what was refused, with rows counted from the start of the
    matrix."""
    if isinstance(host, Refused):
        return host
    try:
        with engine.at_work():
            return do(engine, host, **arguments)
    except GapsFound as found:
        return Refused(True, "", at.first + found.row, found.column)
    except InputError as error:
        return Refused(False, whole_rows(str(error), at))


def placed(engine: Any, matrix: Matrix, at: Place, weights: Any, entry_weights: Any) -> Any:
    """A part as the inner engine holds it, without labels; what it refuses comes back as data."""
    if isinstance(matrix, Refused):
        return matrix
    try:
        return engine.put(
            matrix, weights, entry_weights(matrix) if callable(entry_weights) else entry_weights
        )
    except InputError as error:
        return Refused(False, whole_rows(str(error), at))


def linearised(engine: Any, host: Host, **arguments: Any) -> Any:
    """A block with targets and weights of a loss in place of its values."""
    return engine.linearised(host, **arguments)[0]


def augmented(engine: Any, host: Host, noise: Any, **arguments: Any) -> Any:
    """A block with latent numbers in place of its values; ``noise`` is its own, or the seed of all
    and where its entries stand among them."""
    return engine.augmented(
        host, noise=stretch(*noise) if isinstance(noise, tuple) else noise, **arguments
    )


@dataclass(frozen=True)
class Primitive:
    """A primitive of the inner engine as a function of the block."""

    name: str

    def __call__(self, engine: Any, host: Host, **arguments: Any) -> Any:
        return getattr(engine, self.name)(host, **arguments)


def row_counts(engine: Any, host: Host) -> np.ndarray:
    return host.counts


def column_counts(engine: Any, host: Host) -> np.ndarray:
    return host.column_counts


def column_indices(engine: Any, host: Host) -> list[np.ndarray]:
    """Of the entries of a block, in a list that is joined to those of the other blocks."""
    return [host.matrix.indices]


def whole(engine: Any, host: Host) -> Matrix:
    return host.matrix


def scaled(engine: Any, host: Host, factor: float) -> Host:
    return engine.scaled(host, factor)


def zero_filled(engine: Any, host: Host) -> Host:
    return engine.zero_filled(host)


def some_rows(engine: Any, host: Host, rows: np.ndarray) -> np.ndarray:
    return engine.rows_at(host, rows) if len(rows) else np.empty((0, host.shape[1]), host.dtype)


def all_rows(engine: Any, host: Host) -> np.ndarray:
    return engine.entries(host)


def patterns(engine: Any, host: Host, first: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(rows + first, mask) for rows, mask in engine.gap_patterns(host)]


def sketched(engine: Any, host: Host, empty: Sketch) -> Sketch:
    return engine.sketch(host, empty)


def information(
    engine: Any, host: Host, columns: np.ndarray, rule: PmiRule, dtype: Any
) -> tuple[Any, Any, Any]:
    """Lengths, indices and data of log(p(w, v) / (p(w) p_a(v))) - log shift, given the sums of all
    columns (see ``protocol.words``)."""
    m = host.matrix
    rows = np.repeat(np.arange(m.shape[0]), m.row_counts())
    n = m.data.astype(np.float64)
    spread = np.where(columns > 0, np.maximum(columns, 1e-300) ** rule.smoothing, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.log(np.bincount(rows, n, m.shape[0]))
        value = (
            np.log(n) - size[rows] - np.log(spread / spread.sum())[m.indices] - np.log(rule.shift)
        )
    kept = (n > 0) & (value > 0 if rule.positive else value != 0)
    return (
        np.bincount(rows[kept], minlength=m.shape[0]),
        m.indices[kept].astype(np.int32),
        value[kept].astype(dtype),
    )


class Piece(NamedTuple):
    """The entries of one block of rows that stand in a range of columns, by columns: pointers, rows
    (counted from the block's start), values, weights."""

    indptr: np.ndarray
    rows: np.ndarray
    data: np.ndarray
    weights: np.ndarray | None


def pieces(engine: Any, host: Host, cuts: np.ndarray) -> list[Piece]:
    """A block by ranges of columns ``cuts[j]`` to ``cuts[j + 1]``."""
    turned = host.T
    m, w = turned.matrix, turned.entry_weights
    host.__dict__.pop("T", None)  # the pieces are what is kept
    out = []
    for a, b in itertools.pairwise(cuts):
        first, last = m.indptr[a], m.indptr[b]
        part = slice(first, last)
        out.append(
            Piece(
                m.indptr[a : b + 1] - first,
                m.indices[part].copy(),
                m.data[part].copy(),
                None if w is None else w[part].copy(),
            )
        )
    return out


def columns_of(
    kind: str, starts: list[int], rows: int, parts: list[Piece]
) -> tuple[Matrix, np.ndarray | None]:
    """A range of columns as rows of the transpose: the pieces of all blocks side by side, those of
    block i from column ``starts[i]`` on."""
    lengths = np.array([np.diff(piece.indptr) for piece in parts])
    indptr = np.concatenate([[0], np.cumsum(lengths.sum(axis=0), dtype=np.int64)])
    indices = np.empty(int(indptr[-1]), index_dtype(rows))
    data = np.empty(len(indices), parts[0].data.dtype)
    weights = None if parts[0].weights is None else np.empty(len(indices), parts[0].weights.dtype)
    base = indptr[:-1].copy()
    for piece, length, start in zip(parts, lengths, starts):
        to = np.repeat(base - piece.indptr[:-1], length) + np.arange(len(piece.data))
        indices[to] = piece.rows + start
        data[to] = piece.data
        if weights is not None:
            weights[to] = piece.weights
        base += length
    return (Observed if kind == "observed" else Counts)(indptr, indices, data, rows), weights


def stacked(parts: list[Any]) -> Matrix:
    """Parts of the same columns, one below the other."""
    if isinstance(parts[0], Dense):
        return Dense(np.concatenate([part.array for part in parts]))
    counts = np.concatenate([part.row_counts() for part in parts])
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    indices, data = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "data")
    )
    return type(parts[0])(indptr, indices, data, parts[0].n_columns)
