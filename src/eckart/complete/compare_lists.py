"""compare: all recommenders on one split, in one table, popularity among them.

A share of the entries is hidden (where times are given the last entries of every row); every model
is fitted to the same rest, answers with the ``at`` best columns that a row has not seen, and is
judged by the hidden ones. Means over rows with standard errors; the difference of a model from the
best is judged row by row, since all answer for the same rows.

Which recommender for these clicks: ALS, EASE, SLIM, the spectral filter and a blend, judged by
their lists on the same unseen entries within a budget.

A tenth of the entries is hidden, of large data less; every method is fitted to the same rest and judged by the mean
NDCG of its lists of twenty. The cheapest comes first: where there are many columns, each method is
fitted to the rows and their ``FEW`` most frequent columns, and its time there grows with a power of
the size. A method that would take longer than what is left of the budget is left out and named, and
so is one whose weights do not fit in memory. The blend mixes those judged. A comparison that was
killed goes on as that of ``complete.compare``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from eckart.arguments import held
from eckart.complete.compare import Comparison, Judged, whole
from eckart.complete.factors.als import ALS
from eckart.complete.items.blend import RANK, Blend
from eckart.complete.items.ease import EASE, USUAL
from eckart.complete.items.slim import SLIM
from eckart.complete.items.spectral_filter import SpectralFilter
from eckart.complete.split import split, train_and_hidden, usual_share
from eckart.errors import InputError, invalid
from eckart.io.models.checkpoint import Steps, contents, digest, parameters_of, steps_in
from eckart.io.models.save import load
from eckart.io.tables.triples import observed
from eckart.matrix import Observed
from eckart.metrics import coverage_at_k, ranking
from eckart.trace import StopReason

POPULARITY, RECENT = "popularity", "recent"
LATEST = 0.1
"""Share of the training entries, the latest ones, whose columns count as popular of late."""


class Compared(NamedTuple):
    """One model: ndcg and recall with their standard errors, share of the columns that its lists
    show, seconds to fit and to make all lists; ``behind``: how many standard errors its ndcg is
    below the best one's, row by row (0 for the best); ``certified``: whether its certificate holds
    (None without one)."""

    model: str
    ndcg: float
    ndcg_error: float | None
    recall: float
    recall_error: float | None
    coverage: float
    behind: float
    fit_seconds: float
    list_seconds: float
    certified: bool | None


@dataclass(frozen=True, eq=False)
class ComparedLists:
    """What ``compare`` found: ``table`` (by falling ndcg), ``models`` (fitted to the part that was
    not hidden), ``rows`` judged, ``hidden`` entries, ``at``, and the error of every model that
    could not take the data, by name."""

    table: tuple[Compared, ...]
    models: dict[str, Any]
    rows: int
    hidden: int
    at: int
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The name of the first line."""
        return self.table[0].model

    def to_table(self) -> dict[str, np.ndarray]:
        """The lines as columns."""
        return {
            name: np.array([getattr(row, name) for row in self.table]) for name in Compared._fields
        }

    def __str__(self) -> str:
        ndcg, recall = f"ndcg@{self.at}", f"recall@{self.at}"
        lines = [
            f"{'model':<14} {ndcg:>20} {recall:>20} {'coverage':>9} {'behind':>8} "
            f"{'fit s':>8} {'lists s':>8}  certificate"
        ]
        for row in self.table:
            values = [
                f"{mean:.4f}" + ("" if error is None else f" ± {error:.4f}")
                for mean, error in ((row.ndcg, row.ndcg_error), (row.recall, row.recall_error))
            ]
            word = {None: "none", True: "holds", False: "does not hold"}[row.certified]
            lines.append(
                f"{row.model:<14} {values[0]:>20} {values[1]:>20} {row.coverage:>9.1%} "
                f"{row.behind:>8.1f} "
                f"{row.fit_seconds:>8.2f} {row.list_seconds:>8.2f}  {word}"
            )
        lines += [f"{name} is left out: {why}" for name, why in self.left_out.items()]
        lines.append(
            f"{self.hidden:,} hidden entries of {self.rows:,} rows; behind: standard "
            "errors of the difference from the first, row by row"
        )
        return "\n".join(lines)


@held
def compare(
    X: Any,
    *,
    models: Mapping[str, Any] | None = None,
    test: Any = None,
    held_out: float | int = 0.2,
    times: Any = None,
    at: int = 10,
    random_state: Any = 0,
    n_threads: int | None = None,
    checkpoint: Any = None,
    rows: Any = None,
    columns: Any = None,
    values: Any = None,
    duplicates: str = "error",
) -> ComparedLists:
    """Compare recommenders on the same hidden entries.

    Parameters
    ----------
    X, rows, columns, values, duplicates : the data, as for ``fit``.
    models : estimators by name (they are not changed); None takes ALS for implicit feedback, EASE,
        SLIM, the spectral filter and a blend, with their defaults. Popularity, the columns that
        most rows have, is always among them. A model that cannot take the data is left out and
        named.
    test : entries to judge by, of the same shape and ids as X, where there is a split already; None
        hides ``held_out`` of X.
    held_out : share or number of entries to hide.
    times : a time for each entry of X, as for ``split``: the last entries of every row are hidden
        then (``held_out=1``: the last one), and what has been popular of late, by the latest tenth
        of the training entries, is in the table, too.
    at : length of the lists.
    random_state, n_threads : seed of the split and of models that have none; most threads.
    checkpoint : file in which the lists of fitted models are kept (these models, and the fit at
        work, in files beside it); the same call resumes from them after a crash, with the same
        lists and models. It wants a seed.

    >>> rng = np.random.default_rng(0)
    >>> tastes = np.where(np.arange(200)[:, None] % 2 == np.arange(30) % 2, 0.5, 0.05)
    >>> x = np.where(rng.random(tastes.shape) < tastes, 1.0, np.nan)
    >>> found = compare(x, models={"ease": EASE(l2=10.0)}, at=5)
    >>> found.best, [row.model for row in found.table]
    ('ease', ['ease', 'popularity'])
    """
    x = observed(X, rows=rows, columns=columns, values=values, duplicates=duplicates)
    if isinstance(at, bool) or not isinstance(at, (int, np.integer)) or at < 1:
        raise invalid("at", at, "an int >= 1")
    if checkpoint is not None and (
        isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer))
    ):
        raise invalid(
            "random_state", random_state, "an int with checkpoint: the split is made again by it"
        )
    chosen = _chosen(models, x, random_state, n_threads)
    train, hidden, recent = _parts(x, test, held_out, times, random_state)
    relevant = hidden.to_scipy()
    asked = np.flatnonzero(np.diff(relevant.indptr))
    if not len(asked):
        raise InputError("test must hold at least one row with a hidden entry, got none")
    relevant, k = relevant[asked], min(int(at), x.n_columns)
    lists, fitted, left_out = {POPULARITY: _popular(train, asked, k)}, {}, {}
    if recent is not None:
        lists[RECENT] = _popular(train, asked, k, recent)
    seconds = dict.fromkeys(lists, (0.0, 0.0))
    about: dict[str, Any] = {"at": k, "seed": random_state, "hidden": digest(*contents(hidden))}
    about |= {
        f"model {name}": {"kind": type(model).__name__} | parameters_of(model)
        for name, model in chosen.items()
    }
    with steps_in(checkpoint, "compare", train, about) as steps:
        ones = {
            name: _Candidate(model, checkpoint, i) for i, (name, model) in enumerate(chosen.items())
        }
        for name, one in ones.items():
            try:
                kept = one.judged(train, asked, k, steps)
            except InputError as error:
                left_out[name] = str(error)
                continue
            fitted[name], lists[name], seconds[name] = (
                one.fitted,
                kept["lists"],
                tuple(kept["seconds"]),
            )
    for one in ones.values():
        one.forget()
    steps.end()
    judged = {
        name: ranking(found, relevant, k, ("ndcg", "recall"), per_row=True)
        for name, found in lists.items()
    }
    order = sorted(judged, key=lambda name: -judged[name].mean["ndcg"])
    table = []
    for name in order:
        r = judged[name]
        certificate = getattr(fitted.get(name), "certificate_", None)
        table.append(
            Compared(
                name,
                r.mean["ndcg"],
                r.standard_error["ndcg"],
                r.mean["recall"],
                r.standard_error["recall"],
                coverage_at_k(lists[name], x.n_columns, k),
                _behind(judged[order[0]], r),
                *seconds[name],
                None if certificate is None else certificate.holds,
            )
        )
    return ComparedLists(tuple(table), fitted, len(asked), hidden.nnz, k, left_out)


def _parts(
    x: Observed, test: Any, held_out: Any, times: Any, seed: Any
) -> tuple[Observed, Observed, np.ndarray | None]:
    """Training and hidden entries, and, where times are given, how often each column stands among
    the latest training entries."""
    if times is None:
        return *train_and_hidden(x, test, held_out, seed), None
    if test is not None:
        raise InputError("give times= or test=, not both: times say which entries are hidden")
    parts = split(x, held_out, by="time", per_row=True, times=times)
    when = times.data if isinstance(times, Observed) else np.asarray(times)
    order = np.empty(x.nnz)
    order[np.argsort(when, kind="stable")] = np.arange(x.nnz)
    known = split(replace(x, data=order), held_out, by="time", per_row=True, times=times).train.data
    latest = known >= np.quantile(known, 1 - LATEST)
    return parts.train, parts.test, np.bincount(parts.train.indices[latest], minlength=x.n_columns)


class _Candidate:
    """One model: its fit, with a checkpoint of its own, and the fitted model in a file beside that
    of the comparison until all is complete."""

    def __init__(self, model: Any, path: Any, number: int):
        keeps = path is not None and hasattr(model, "save")
        self._model, self._name = clone(model), f"model {number}"
        self.fitted: Any = None
        self._file = Path(f"{os.fspath(path)}.model-{number}.safetensors") if keeps else None
        self._own = (
            {"checkpoint": f"{os.fspath(path)}.fit-{number}"}
            if keeps and hasattr(model, "checkpoint")
            else {}
        )

    def judged(self, train: Observed, asked: np.ndarray, k: int, steps: Steps) -> Any:
        """The lists and the seconds of the fit and of the lists."""

        def work() -> dict[str, Any]:
            begin = time.perf_counter()
            self.fitted = self._model.set_params(**self._own).fit(train)
            fit = getattr(self.fitted, "fit_", None)
            # no model is judged by half a fit
            if fit is not None and fit.trace.reason is StopReason.INTERRUPTED:
                raise KeyboardInterrupt
            self.fitted.set_params(**dict.fromkeys(self._own))
            middle = time.perf_counter()
            lists = self.fitted.recommend(self.fitted.row_ids.names(asked), n=k).positions
            if self._file is not None:
                self.fitted.save(self._file)
            return {"lists": lists, "seconds": (middle - begin, time.perf_counter() - middle)}

        if self._file is None:
            return work()
        kept = steps.take(self._name, work)
        if self.fitted is None:
            self.fitted = load(self._file)
        return kept

    def forget(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _chosen(
    models: Mapping[str, Any] | None, x: Observed, seed: Any, threads: int | None
) -> dict[str, Any]:
    """Fresh estimators by name."""
    if models is None:
        k = max(1, min(RANK, *x.shape))
        models = {
            "als": ALS(k, feedback="implicit"),
            "ease": EASE(),
            "slim": SLIM(),
            "gf-cf": SpectralFilter(),
            "blend": Blend(),
        }
    if not isinstance(models, Mapping):
        raise invalid("models", models, "estimators by name, such as {'ease': EASE()}")
    found = {}
    for name, model in models.items():
        if not hasattr(model, "recommend") or not hasattr(model, "get_params"):
            raise invalid(
                "models",
                f"{name}: {type(model).__name__}",
                "estimators that recommend, such as EASE() or ALS()",
            )
        if name in (POPULARITY, RECENT):
            raise invalid("models", name, "another name: popularity is always among them")
        found[name] = clone(model)
        params = found[name].get_params(deep=False)
        if params.get("random_state", 0) is None:
            found[name].set_params(random_state=seed)
        if threads is not None and "n_threads" in params:
            found[name].set_params(n_threads=threads)
    return found


def _popular(
    train: Observed, asked: np.ndarray, n: int, recent: np.ndarray | None = None
) -> np.ndarray:
    """For each row the columns that most rows have and it has not; by ``recent`` counts first,
    where there are some."""
    counts = -train.column_counts()
    order = np.lexsort((counts,) if recent is None else (counts, -recent))
    longest = int(train.row_counts().max(initial=0))
    first = order[: n + longest]  # of so many, n are left whatever a row has seen
    lists = np.full((len(asked), n), -1)
    for q, i in enumerate(asked):
        left = first[~np.isin(first, train.indices[train.indptr[i] : train.indptr[i + 1]])][:n]
        lists[q, : len(left)] = left
    return lists


def _behind(best: Any, other: Any) -> float:
    """Mean difference of ndcg, row by row, in its standard errors."""
    gap = best.per_row["ndcg"] - other.per_row["ndcg"]
    spread = float(gap.std(ddof=1)) / np.sqrt(len(gap)) if len(gap) > 1 else 0.0
    return float(gap.mean()) / spread if spread > 0 else 0.0


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
