"""Which recommender for these clicks: ALS, EASE, SLIM, the spectral filter and a blend, judged by
their lists on the same unseen entries within a budget.

A tenth of the entries is hidden, of large data less; every method is fitted to the same rest and judged by the mean
NDCG of its lists of twenty. The cheapest comes first: where there are many columns, each method is
fitted to the rows and their ``FEW`` most frequent columns, and its time there grows with a power of
the size. A method that would take longer than what is left of the budget is left out and named, and
so is one whose weights do not fit in memory. The blend mixes those judged. A comparison that was
killed goes on as that of ``complete.compare``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.complete.compare import Comparison, Judged, whole
from eckart.complete.compare_lists import _popular
from eckart.complete.items.hidden_ridge import USUAL
from eckart.complete.split import split, usual_share
from eckart.errors import InputError
from eckart.io.models.named_steps import Steps
from eckart.matrix import Observed
from eckart.metrics import ranking

BUDGET = 60.0
"""Seconds of processor time for the comparison, as that of predictions."""
POWERS = {"ease": 3.0, "gf-cf": None, "als": None, "slim": 2.5}
"""How the time of a fit grows with the number of columns: an inverse, a descent for each column.
None: it grows with the entries."""
METHODS = (*POWERS, "blend")
FEW, SOME = 1000, 100_000
"""Columns of the fits that tell the time, and about their entries; of fewer columns nothing takes
long."""
AT, ROWS = 20, 5000
"""Length of the lists, and the most rows that are asked."""
AGAIN = 2.5
"""So many times that of its members a blend takes: it fits them to a part and to all."""


def choose(
    x: Observed,
    build: Callable[..., Any],
    *,
    seed: int = 0,
    budget: float = BUDGET,
    steps: Steps | None = None,
) -> Comparison:
    """The method of the best lists, its error being 1 - NDCG. ``build(method, part, **parameters)``
    makes an estimator, as for ``complete.compare``, of a blend with its ``members`` by name; every
    candidate, and every decision about time, is one of the ``steps``."""
    steps = steps or Steps()
    parts = split(x, usual_share(x), random_state=seed)
    train = parts.train
    rows = np.flatnonzero(parts.test.row_counts())
    if len(rows) > ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, ROWS, replace=False))
    relevant, at, ids = (
        parts.test.to_scipy()[rows],
        min(AT, x.n_columns),
        train.row_index.names(rows),
    )

    def measured(method: str, lists: np.ndarray, seconds: float) -> Judged:
        found = ranking(lists, relevant, at, ("ndcg",))
        return Judged(method, 1.0 - found.mean["ndcg"], found.standard_error["ndcg"], seconds, "")

    def judged(method: str, guess: float, **more: Any) -> Judged:
        model = build(method, method, **more)

        def work() -> Judged:
            if guess > budget - (steps.spent - began):
                return Judged(
                    method, None, None, 0.0, f"left out: it would take about {guess:.0f} s"
                )
            start = steps.spent
            try:
                whole(model.fit(train))
            except InputError as error:  # weights between so many columns do not fit in memory
                return Judged(method, None, None, 0.0, f"left out: {error}")
            return measured(method, model.recommend(ids, n=at).positions, steps.spent - start)

        return Judged.resumed(steps.take(method, work, getattr(model, "checkpoint", None)))

    guesses = steps.take("guesses", lambda: _guesses(train, build, steps))
    began = float(steps.take("began", lambda: steps.spent))  # kernels are compiled by now
    table = [
        judged(method, guesses[method])
        for method in sorted(guesses, key=lambda name: guesses[name])
    ]
    members = [row for row in table if row.error is not None]
    names = [row.method for row in members]
    if len(members) > 1:
        table.append(judged("blend", AGAIN * sum(row.seconds for row in members), members=names))
    able = [row for row in table if row.error is not None]
    best = (
        min(able, key=lambda row: row.error or 0.0).method if able else "als"
    )  # where nothing fits in the budget: the method whose time grows least
    table.append(measured("popularity", _popular(train, rows, at), 0.0))
    return Comparison(
        best,
        {"members": names} if best == "blend" else {},
        table,
        None,
        _sentence(best, table, parts.test.nnz, budget, at),
    )


def _guesses(train: Observed, build: Callable[..., Any], steps: Steps) -> dict[str, float]:
    """Seconds that every method will take; 0 where there are few columns."""
    if train.n_columns <= FEW:
        return dict.fromkeys(POWERS, 0.0)
    top = np.sort(np.argsort(-train.column_counts(), kind="stable")[:FEW])
    part = train.to_scipy()[:, top].tocsr()
    part = part[np.diff(part.indptr) > 0]
    few = Observed.from_scipy(part[: max(1, part.shape[0] * SOME // max(part.nnz, SOME))])
    found = {}
    for method, power in POWERS.items():
        # what the choice of its ridge takes does not grow
        given = {"l2": USUAL} if method == "ease" else {}
        whole(build(method, "", **given).fit(few))  # the first fit compiles
        start = steps.spent
        whole(build(method, "", **given).fit(few))
        grown = train.nnz / max(few.nnz, 1) if power is None else (train.n_columns / FEW) ** power
        found[method] = (steps.spent - start) * grown
    return found


def _sentence(method: str, table: list[Judged], hidden: int, budget: float, at: int) -> str:
    scores_in_words = {
        row.method: f"{1 - row.error:.3g}" if row.error is not None else row.words for row in table
    }
    others = ", ".join(
        f"{name} {words}" for name, words in scores_in_words.items() if name != method
    )
    if method not in scores_in_words or scores_in_words[method].startswith("left out"):
        return f"als: every comparison would take longer than {budget:.0f} s of processor time"
    first = f"{method} had the best lists on {hidden:,} unseen entries, NDCG@{at} {scores_in_words[method]}"
    return f"{first}; {others}; compared within a budget of {budget:.0f} s of processor time"
