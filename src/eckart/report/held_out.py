"""A model judged on entries it has not seen, beside the two answers that anybody has without it.

Values: RMSE and MAE of the model, of mean + row bias + column bias, and of the mean. Implicit
feedback: recall@20 and NDCG@20 of the model's lists and of one list for all, the most popular
columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.complete.normalise import normalise
from eckart.complete.split import split
from eckart.engines import engine_named
from eckart.matrix import Observed
from eckart.metrics import mae, ranking, rmse

LISTED = 20
MEASURES = {"recall": f"recall@{LISTED}", "ndcg": f"NDCG@{LISTED}"}


@dataclass(frozen=True, eq=False)
class HeldOut:
    """``scores`` by name of the answer ("model" first) and of the measure; ``predicted`` at the
    entries of ``test`` (None for implicit feedback)."""

    train: Observed
    test: Observed
    scores: dict[str, dict[str, float]]
    predicted: np.ndarray | None = None
    errors: tuple[float, ...] = ()

    @property
    def share(self) -> float:
        """How much of the entries was held out."""
        return self.test.nnz / (self.test.nnz + self.train.nnz)

    @property
    def rows(self) -> np.ndarray:
        """The row of each held-out entry."""
        return np.repeat(np.arange(self.test.shape[0]), self.test.row_counts())

    @property
    def useful(self) -> bool:
        """Whether the model beats every answer that needs no factors."""
        first = next(iter(self.scores["model"]))
        ours, others = (
            self.scores["model"][first],
            [s[first] for n, s in self.scores.items() if n != "model"],
        )
        return ours < min(others) if self.predicted is not None else ours > max(others)

    def lines(self) -> list[str]:
        """The scores as a small table."""
        head = f"{self.test.nnz:,} entries ({self.share:.0%})"
        width = max(len(head), *map(len, self.scores))
        table = [(head, list(self.scores["model"]))]
        largest = max(value for scores in self.scores.values() for value in scores.values())
        digits = (
            ".4f" if not largest or 0.01 <= largest < 1e4 else ".4g"
        )  # errors have the units of the data: cents, or people in millions
        table += [
            (name, [f"{value:{digits}}" for value in scores.values()])
            for name, scores in self.scores.items()
        ]
        return [
            f"{name:<{width}}" + "".join(f"{cell:>11}" for cell in cells) for name, cells in table
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def kept(self) -> dict[str, Any]:
        """What was measured, for a checkpoint; ``judged_before`` is the inverse, with the entries
        split again."""
        return {"scores": self.scores, "predicted": self.predicted, "errors": self.errors}


def judge(
    fit: Callable[[Observed], Any], observed: Observed, share: float | int = 0.1, seed: int = 0
) -> HeldOut:
    """Let ``fit`` (from entries to a fitted model) see what a split by entry leaves, and measure
    its model on what the split hides."""
    parts = split(observed, share, random_state=seed)
    train, test = parts.train, parts.test
    model = fit(train)
    if getattr(model, "feedback", "explicit") == "implicit":
        return HeldOut(train, test, _lists(model, train, test))
    rows = np.repeat(np.arange(test.shape[0]), test.row_counts())
    predicted = np.asarray(
        model.predict(test.row_index.names(rows), test.column_index.names(test.indices))
    )
    biases, _ = normalise(train, "bias")
    flat = biases.invert(np.zeros(test.nnz), rows, test.indices)
    answers = {"model": predicted, "biases only": flat, "mean only": np.full(test.nnz, biases.mean)}
    scores = {
        name: {"RMSE": rmse(test.data, p), "MAE": mae(test.data, p)} for name, p in answers.items()
    }
    return HeldOut(train, test, scores, predicted, tuple(getattr(model, "held_out_errors_", ())))


def judged_before(
    kept: Any, observed: Observed, share: float | int = 0.1, seed: int = 0
) -> HeldOut:
    """What ``judge`` measured with the same entries, share and seed, from its ``kept`` values."""
    parts = split(observed, share, random_state=seed)
    return HeldOut(
        parts.train, parts.test, dict(kept["scores"]), kept["predicted"], tuple(kept["errors"])
    )


def _lists(model: Any, train: Observed, test: Observed) -> dict[str, dict[str, float]]:
    asked = np.flatnonzero(test.row_counts())
    n = min(LISTED, train.n_columns)
    ours = model.recommend(model.row_ids.names(asked), n).positions
    csr = train.to_scipy().sorted_indices()
    popular = train.column_counts().astype(np.float64)
    left, right = np.zeros((len(asked), 1)), np.zeros((train.n_columns, 1))
    hidden = (csr.indptr, csr.indices, asked)
    theirs, _ = engine_named("cpu", model.n_threads).top_columns(left, right, n, popular, hidden)
    relevant = [test.indices[test.indptr[i] : test.indptr[i + 1]] for i in asked]
    scores = {}
    for name, lists in (("model", ours), ("most popular", theirs)):
        measured = ranking(_wide(lists), relevant, LISTED, tuple(MEASURES)).mean
        scores[name] = {MEASURES[m]: value for m, value in measured.items()}
    return scores


def _wide(lists: np.ndarray) -> np.ndarray:
    """Lists of the full length, short ones filled with -1."""
    short = LISTED - lists.shape[1]
    return lists if short <= 0 else np.pad(lists, ((0, 0), (0, short)), constant_values=-1)
