"""Choose rank and ridge on entries that the fit has not seen (2.10).

Folds run side by side. For every fold the candidates are visited in the order of rising rank, and
within a rank of falling ridge. Each fit starts from the one before it: along the ridge from its
neighbour, at a new rank from the smaller rank with dimensions added. Dimensions that a large ridge
has emptied are drawn anew, so that a smaller ridge can use them. The rank stops growing when the
best error of ``patience`` ranks in a row has not fallen.

A choice at the edge of what was tried is no choice yet: where ranks or ridges were not given, the
walk goes on beyond the edge, doubling or halving, while the error falls; where they were,
``stopped`` says that the edge was chosen.

Errors: "rmse" and "mae" of the held-out values, or 1 - NDCG@at and 1 - recall@at of the lists,
held-out columns being the relevant ones and training columns left out. The error of a candidate is
the mean over folds with standard error std / sqrt(folds); with one split its standard error comes
from the entries (rmse: std(e^2) / (2 rmse sqrt(N)); mae: std(|e|) / sqrt(N)) or, for lists, from
the rows. A row without a training entry is cold: it is answered by mean and column biases, is part
of the error, and is counted.

The table of candidates that ``tune`` returns, and its state in a checkpoint.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from eckart.arguments import held
from eckart.complete.candidates import (
    base_of,
    metric_of,
    rank_parameter,
    ranks_of,
    ridges_of,
    seeded,
    weight_parameter,
    weights_of,
    yes_no,
)
from eckart.complete.split import Split, split
from eckart.complete.split import folds as cut
from eckart.errors import invalid
from eckart.factors import LowRank
from eckart.fit import kept_fit, resumed_fit
from eckart.io.models.checkpoint import Checkpoint, Memory, parameters_of, resumed
from eckart.io.tables.triples import observed
from eckart.matrix_blocks import parts_of
from eckart.metrics import mae, ranking, rmse
from eckart.trace import StopReason, progress

LARGEST, FURTHER, LITTLE = 64, 6, 0.999
"""Rank from which doubling ends; ridges beyond the edge, at most (64 times the edge), while the
error falls by more than a thousandth."""
FEWEST = 200
"""Entries from which two losses are compared: a tenth of fewer does not tell them apart."""
DEAD = 1e-2
"""A dimension with less than this share of the largest one's size is drawn anew at a warm start."""


@held
def tune(
    X: Any,
    *,
    n_components: int | Sequence[int] | None = None,
    l2: float | Sequence[float] | None = None,
    unobserved_weight: float | Sequence[float] | None = None,
    model: Any = "ALS",
    folds: int | None = None,
    held_out: float | int = 0.1,
    metric: str = "auto",
    at: int = 10,
    strategy: str = "grid",
    patience: int | None = 1,
    one_standard_error: bool = False,
    random_state: Any = None,
    n_threads: int | None = None,
    verbose: bool = False,
    checkpoint: Any = None,
    rows: Any = None,
    columns: Any = None,
    values: Any = None,
    duplicates: str = "error",
) -> Tuning:
    """Cross-validated choice of rank and ridge; the module's docstring defines the walk and the
    errors.

    Parameters
    ----------
    X, rows, columns, values, duplicates : the data, as for ``fit``.
    n_components : ranks to try; with ``strategy="doubling"`` the smallest (and, where there are
        several, the largest) of them. None takes 4, 8, 16, 32, and larger ones while the error
        falls.
    l2 : ridges to try; None takes 4, 2, 1 and 1/2 times that of the model, and goes on while the
        error falls. Left out for a model without ``l2``.
    unobserved_weight : of ``ALS(feedback="implicit")``: weights to try, each with every rank and
        ridge; None takes that of the model.
    model : "ALS" (entries that are 0 and 1 get the loss, squared or logistic, that errs less on a
        hidden tenth), or an estimator with all other choices set (such as
        ``ALS(feedback="implicit", alpha=2)`` or ``EASE()``, whose ridge alone is chosen); it is not
        changed.
    folds : number of folds whose tests partition the entries; None makes one split that holds out
        ``held_out`` (a share or a number of entries).
    metric : "rmse", "mae", "ndcg", "recall" (of lists of ``at`` columns), or "auto": "ndcg" for
        implicit feedback, else "rmse".
    strategy : "grid" (the ranks given) or "doubling" (k, 2k, 4k, ... up to the size of the matrix).
    patience : ranks in a row without a lower error after which the rank stops growing; None tries
        all of them.
    one_standard_error : choose the smallest rank, and then the largest ridge, whose error is within
        one standard error of the least.
    random_state, n_threads, verbose : seed of folds and fits; most threads; progress bars.
    checkpoint : file in which candidates that were judged are kept (the fits at work are kept in
        files beside it); the same call resumes from them after a crash, with the same bits.

    >>> rng = np.random.default_rng(0)
    >>> a = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40)) + 0.1 * rng.standard_normal((60, 40))
    >>> a[rng.random(a.shape) < 0.5] = np.nan
    >>> found = tune(a, n_components=(1, 2), l2=(0.1, 0.01), random_state=0)
    >>> found.best["n_components"], found.best["l2"], len(found.table)
    (2, 0.01, 4)
    >>> found.model.predict(3, 7).shape
    (1,)
    """
    x = observed(X, rows=rows, columns=columns, values=values, duplicates=duplicates)
    base = base_of(model, n_threads)
    error_name = metric_of(metric, at, base)
    loss, losses = _loss(base, x, error_name, at) if isinstance(model, str) else ({}, "")
    base.set_params(**loss)
    ranks = ranks_of(base, n_components, strategy, x.shape)
    weights = weights_of(unobserved_weight, base)
    ridges, shape = ridges_of(l2, base, x)
    if patience is not None and (
        isinstance(patience, bool) or not isinstance(patience, (int, np.integer)) or patience < 1
    ):
        raise invalid("patience", patience, "an int >= 1, or None to try every rank")
    about = parameters_of(base) | {
        "model": type(base).__name__,
        "ranks": ranks,
        "ridges": ridges,
        "weights": weights,
        "folds": folds,
        "held out": held_out,
    }
    about |= {
        "error": error_name,
        "at": at,
        "patience": patience,
        "one_standard_error": one_standard_error,
        "seed": random_state,
    }
    file = Checkpoint.of_call(checkpoint, "tune", x, about)
    best_of_ranks: list[float] = []
    stopped = "every candidate was tried"
    with progress(verbose) as watch, resumed(file, random_state) as (memory, rng):
        seed = int(rng.integers(2**31))
        parts = (
            [split(x, held_out, random_state=seed)]
            if folds is None
            else list(cut(x, folds, random_state=seed))
        )
        runs = [_TuneRun(p, base, seed, error_name, at, shape) for p in parts]
        walk, at_rank = _Walk(runs, memory, checkpoint), 0
        while at_rank < len(ranks):
            k = ranks[at_rank]
            for ridge in ridges:
                for weight in weights:
                    walk.judge(k, ridge, weight)
                    watch("candidates", len(walk.seen), len(ranks) * len(ridges) * len(weights))
            best_of_ranks.append(min(t.error for t in walk.seen if t.n_components == k))
            since = len(best_of_ranks) - 1 - int(np.argmin(best_of_ranks))
            at_rank += 1
            if patience is not None and since >= patience and at_rank < len(ranks):
                stopped = (
                    f"the error has not fallen from rank {ranks[int(np.argmin(best_of_ranks))]} "
                    f"to {k}, larger ranks were left out"
                )
                break
            if n_components is None and at_rank == len(ranks) and since == 0 and len(ranks) > 1:
                ranks += [2 * k] * (2 * k <= min(x.shape) and k < LARGEST)
        if l2 is None and len(ridges) > 1:
            _beyond(walk, ridges)
        table = walk.seen
        chosen = _choose(table, one_standard_error)
        stopped += _edges(table[chosen], table) + losses
        best = (
            rank_parameter(table[chosen].n_components)
            | shape(table[chosen].l2)
            | weight_parameter(table[chosen].unobserved_weight)
            | loss
        )
        walk.offer()
        final = (
            clone(base)
            .set_params(**best, **seeded(base, seed), **kept_in(base, checkpoint, "final"))
            .fit(x)
        )
        final.set_params(**kept_in(base, None))
    memory.end(final.fit_.trace)
    label = (
        error_name if error_name in ("rmse", "mae") else f"1-{error_name}@{min(at, x.n_columns)}"
    )
    tested, cold = tuple(r.tested for r in runs), tuple(r.cold for r in runs)
    return Tuning(tuple(table), chosen, best, final, label, tested, cold, stopped)


class _TuneRun:
    """One fold: its parts, and the fit that the next one starts from."""

    def __init__(
        self,
        part: Split,
        base: Any,
        seed: int,
        metric: str,
        at: int,
        shape: Callable[..., dict[str, Any]],
    ):
        self.train, self.test, self.metric, self.shape = part.train, part.test, metric, shape
        self.at = min(at, part.train.n_columns)
        self.model = clone(base).set_params(**seeded(base, seed))
        self.first: dict[int, Any] = {}
        counts = part.test.row_counts()
        self.rows = np.flatnonzero(counts)
        self.tested = len(self.rows)
        self.cold = int(np.count_nonzero(part.train.row_counts()[self.rows] == 0))

    def fit(
        self,
        k: int,
        l2: float | None,
        weight: float | None = None,
        path: Any = None,
        name: str = "",
    ) -> tuple[float, float | None, int]:
        """Error, its standard error and the sweeps of this candidate, whose fit is kept in a file
        of that name beside ``path``."""
        chosen = rank_parameter(k) | self.shape(l2) | weight_parameter(weight)
        model = self.model.set_params(**chosen, **kept_in(self.model, path, name))
        warm = "warm_start" in model.get_params(deep=False)
        if warm:
            model.set_params(warm_start="fit_" in vars(model))
            self._restart(model, k)
        model.fit(self.train)
        # no candidate is judged by half a fit
        if model.fit_.trace.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        if warm and k not in self.first:
            self.first = {k: model.fit_}
        return *self.judge(model), int(getattr(model, "n_iter_", len(model.fit_.trace)))

    def state(self) -> dict[str, Any]:
        """The fits that the next one may start from."""
        last = self.model.fit_ if "fit_" in vars(self.model) else None
        first = [[k, kept_fit(fit)] for k, fit in self.first.items()]
        return {"last": None if last is None or not self.first else kept_fit(last), "first": first}

    def restore(self, kept: Any) -> None:
        """The inverse of ``state``."""
        rows, columns = self.train.rows, self.train.columns
        self.first = {k: resumed_fit(fit, LowRank, rows, columns) for k, fit in kept["first"]}
        if kept["last"] is not None:
            self.model.fit_ = resumed_fit(kept["last"], LowRank, rows, columns)

    def _restart(self, model: Any, k: int) -> None:
        """At a new rank go back to the largest ridge of the last one; leave out dimensions that
        carry nothing."""
        if "fit_" not in vars(model):
            return
        fit = model.fit_
        if k not in self.first and self.first:
            fit = next(iter(self.first.values()))
        f: LowRank = fit.factors
        size = np.linalg.norm(f.left, axis=0).astype(np.float64) * np.linalg.norm(f.right, axis=0)
        alive = np.flatnonzero(size > DEAD * size.max(initial=0.0))[:k]
        model.fit_ = replace(
            fit, factors=replace(f, left=f.left[:, alive], right=f.right[:, alive])
        )

    def judge(self, model: Any) -> tuple[float, float | None]:
        if self.metric in ("ndcg", "recall"):
            lists = model.recommend(
                model.row_ids.names(self.rows), n=self.at, by="prediction"
            ).positions
            relevant = self.test.to_scipy()[self.rows]
            found = ranking(lists, relevant, self.at, (self.metric,))
            return 1.0 - found.mean[self.metric], found.standard_error[self.metric]
        test = self.test
        at = np.repeat(np.arange(test.shape[0]), test.row_counts())
        guess = model._clipped(model.fit_.factors.at(at, test.indices))
        value = (rmse if self.metric == "rmse" else mae)(test.data, guess)
        if test.nnz < 2 or value == 0:
            return value, None
        miss = np.abs(test.data.astype(np.float64) - guess)
        spread = (
            np.std(miss**2, ddof=1) / (2 * value) if self.metric == "rmse" else np.std(miss, ddof=1)
        )
        return value, float(spread / np.sqrt(test.nnz))


def _loss(base: Any, x: Any, metric: str, at: int) -> tuple[dict[str, Any], str]:
    """Of entries that are 0 and 1: the parameter ``loss`` where the logistic one errs less on a
    hidden tenth, and words for both errors."""
    if metric not in ("rmse", "mae") or parts_of(x) is not None or x.nnz < FEWEST or not yes_no(x):
        return {}, ""
    run = _TuneRun(split(x, 0.1, random_state=0), base, 0, metric, at, lambda ridge: {})
    errors = {
        loss: run.judge(clone(run.model).set_params(loss=loss).fit(run.train))[0]
        for loss in ("squared", "logistic")
    }
    words = ", ".join(f"{metric} {error:.4g} with loss={loss!r}" for loss, error in errors.items())
    return {"loss": "logistic"} if errors["logistic"] < errors[
        "squared"
    ] else {}, f"; {words} on a hidden tenth"


class _Walk:
    """Candidates one after another. Those that a killed run had judged are taken as they were;
    ``seen`` are those that the walk has come to."""

    def __init__(self, runs: list[_TuneRun], memory: Memory, path: Any):
        self._runs, self._memory, self._path = runs, memory, path
        self._table: list[Trial] = []
        self._judged = 0
        if (kept := memory.last()) is not None:
            for run, state in zip(runs, kept["runs"], strict=True):
                run.restore(state)
            self._table = [Trial.resumed(row) for row in kept["table"]]

    @property
    def seen(self) -> list[Trial]:
        return self._table[: self._judged]

    def offer(self) -> None:
        table = [list(t) for t in self._table]
        self._memory.offer({"table": table, "runs": lambda: [run.state() for run in self._runs]})

    def judge(self, k: int, l2: float | None, weight: float | None = None) -> Trial:
        """The next candidate."""
        if self._judged == len(self._table):
            self.offer()
            self._table.append(_trial(self._runs, k, l2, weight, self._path, self._judged))
        self._judged += 1
        return self._table[self._judged - 1]


def kept_in(model: Any, path: Any, name: str = "") -> dict[str, Any]:
    """The parameter ``checkpoint`` of a model that has one: a file beside ``path``, which keeps
    what is judged and not the fit that is at work."""
    if "checkpoint" not in model.get_params(deep=False):
        return {}
    return {"checkpoint": None if path is None else f"{os.fspath(path)}.{name}"}


def _trial(
    runs: list[_TuneRun], k: int, l2: float | None, weight: float | None, path: Any, number: int
) -> Trial:
    """One candidate on every fold."""
    began = time.perf_counter()
    with ThreadPoolExecutor(
        max_workers=len(runs)
        # a fit of small data leaves cores idle; each fold has its own model and seed
    ) as side_by_side:
        fits = [
            side_by_side.submit(run.fit, k, l2, weight, path, f"candidate-{number}.fold-{fold}")
            for fold, run in enumerate(runs)
        ]
        try:
            results = [fit.result() for fit in fits]
        except KeyboardInterrupt:
            try:
                while path is not None and not all(fit.done() for fit in fits):
                    # each fold that is still at work writes its state and ends
                    Checkpoint.ending = True
                    time.sleep(0.05)
            finally:
                Checkpoint.ending = False
            raise
    errors = tuple(float(r[0]) for r in results)
    spread = results[0][1] if len(runs) == 1 else float(np.std(errors, ddof=1) / np.sqrt(len(runs)))
    return Trial(
        k,
        l2,
        float(np.mean(errors)),
        spread,
        errors,
        sum(r[2] for r in results),
        time.perf_counter() - began,
        weight,
    )


def _beyond(walk: _Walk, ridges: list[Any]) -> None:
    """At the best rank, ridges beyond the end of those tried, while the error falls."""
    best = min(walk.seen, key=lambda t: t.error)
    for edge, factor in ((max(ridges), 2.0), (min(ridges), 0.5)):
        if best.l2 != edge:
            continue
        for step in range(1, FURTHER + 1):
            trial = walk.judge(best.n_components, edge * factor**step, best.unobserved_weight)
            if trial.error >= LITTLE * best.error:
                return
            best = trial


def _edges(chosen: Trial, table: list[Trial]) -> str:
    """Words for a choice that stands at the edge of what was tried."""
    words = ""
    for name, value, tried in (
        (
            "unobserved_weight",
            chosen.unobserved_weight,
            {t.unobserved_weight for t in table if t.unobserved_weight is not None},
        ),
        ("n_components", chosen.n_components, {t.n_components for t in table}),
        (
            "l2",
            chosen.l2,
            {t.l2 for t in table if t.n_components == chosen.n_components and t.l2 is not None},
        ),
    ):
        if value is not None and len(tried) > 1 and value in (min(tried), max(tried)):
            end = "smallest" if value == min(tried) else "largest"
            words += (
                f"; {name}={value:g} is the {end} that was tried: {end[:-3]}er ones may be better"
            )
    return words


def _choose(table: list[Trial], one_standard_error: bool) -> int:
    """The least error (or the simplest within one standard error of it); of equals the smaller
    rank, then the larger ridge."""
    best = min(
        range(len(table)),
        key=lambda i: (table[i].error, table[i].n_components, -(table[i].l2 or 0.0)),
    )
    if not one_standard_error:
        return best
    limit = table[best].error + (table[best].standard_error or 0.0)
    within = [i for i, t in enumerate(table) if t.error <= limit]
    return min(within, key=lambda i: (table[i].n_components, -(table[i].l2 or 0.0), table[i].error))


class Trial(NamedTuple):
    """One candidate (``n_components`` is 0 for a model without a rank): its mean error, standard
    error (None where it cannot be known), the error of each fold, sweeps and seconds of all its
    fits; the weight of what was not observed, where several were tried."""

    n_components: int
    l2: float | None
    error: float
    standard_error: float | None
    errors: tuple[float, ...]
    sweeps: int
    seconds: float
    unobserved_weight: float | None = None

    @classmethod
    def resumed(cls, kept: Any) -> Trial:
        """From a list, as checkpoints keep it."""
        return cls._make([*kept[:4], tuple(kept[4]), *kept[5:]])


@dataclass(frozen=True, eq=False)
class Tuning:
    """What ``tune`` found: ``table`` (a Trial for each candidate), ``best`` (the chosen
    parameters), ``model`` (fitted to all entries with them).

    ``chosen`` is the chosen line of the table; ``metric`` names the error; ``tested`` and ``cold``
    count, for each fold, the rows with held-out entries and those of them without a training entry;
    ``stopped`` says why no more candidates were tried.
    """

    table: tuple[Trial, ...]
    chosen: int
    best: dict[str, Any]
    model: Any
    metric: str
    tested: tuple[int, ...]
    cold: tuple[int, ...]
    stopped: str

    def to_table(self) -> dict[str, np.ndarray]:
        """Columns n_components, l2, error, standard_error, sweeps, seconds, unobserved_weight where
        it was tried, and fold_1 ... with the error of each."""
        names = [
            "n_components",
            "l2",
            "error",
            "standard_error",
            "sweeps",
            "seconds",
            *(["unobserved_weight"] if self._weighed else []),
        ]
        table = {
            n: np.array([np.nan if getattr(t, n) is None else getattr(t, n) for t in self.table])
            for n in names
        }
        return table | {
            f"fold_{f + 1}": np.array([t.errors[f] for t in self.table])
            for f in range(len(self.cold))
        }

    @property
    def _weighed(self) -> bool:
        return any(t.unobserved_weight is not None for t in self.table)

    def kept(self) -> dict[str, Any]:
        """All but the model, for a checkpoint; ``resumed`` is its inverse, with None as the
        model."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "model"}

    @classmethod
    def resumed(cls, kept: Any) -> Tuning:
        kept_fields = dict(kept) | {name: tuple(kept[name]) for name in ("tested", "cold")}
        return cls(
            **kept_fields | {"table": tuple(map(Trial.resumed, kept["table"])), "model": None}
        )

    def __str__(self) -> str:
        ranked = any(t.n_components for t in self.table)
        weight = "unobserved " if self._weighed else ""
        lines = [
            f"  {'n_components' if ranked else '':>12} {'l2':>9} "
            f"{weight}{self.metric:>12} {'std. error':>11} {'sweeps':>7} {'seconds':>8}"
        ]
        for i, t in enumerate(self.table):
            ridge = "" if t.l2 is None else f"{t.l2:.4g}"
            ridge = f"{ridge:>9}" + (f" {t.unobserved_weight:>10.4g}" if self._weighed else "")
            spread = "" if t.standard_error is None else f"{t.standard_error:.5f}"
            lines.append(
                f"{'>' if i == self.chosen else ' '} {t.n_components or '':>12} {ridge} "
                f"{t.error:>12.5f} {spread:>11} {t.sweeps:>7} {t.seconds:>8.2f}"
            )
        count = f"{len(self.cold)} folds" if len(self.cold) > 1 else "one split"
        lines.append(
            f"{count}; {sum(self.cold)} of {sum(self.tested)} tested rows were cold; {self.stopped}"
        )
        return "\n".join(lines)
