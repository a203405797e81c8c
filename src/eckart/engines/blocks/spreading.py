"""What each primitive does with blocks of rows: which arguments go along with the rows (or entries)
of a block, and how the answers are joined.

``rows``     one array below the other
``sum``      merged in a fixed tree: eight neighbours at a time, the first with the second, then the
third and so on, until one is left
``max``      the largest

A tuple joins the parts of a result one by one. Arguments that are not named here go to every block
as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.merging import Tree


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
