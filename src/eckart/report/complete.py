"""The report of a completion: how good its predictions are, whether it can be trusted and for whom,
and what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eckart import plots
from eckart.complete.nuclear.recovery import recovery
from eckart.factors import ItemWeights
from eckart.matrix import Observed
from eckart.report.held_out import HeldOut
from eckart.report.html import Report

Titles = Callable[[np.ndarray], Sequence[str]]
"""What ids are called where people read them."""
POPULAR, NEIGHBOURS, SHOWN_ROWS, LISTED, NAMED = 6, 5, 4, 5, 20


def complete_report(
    model: Any,
    observed: Observed,
    *,
    held_out: HeldOut | None = None,
    name: str = "",
    names: tuple[str, str, str] = ("row", "column", "value"),
    tuning: Any = None,
    titles: Titles | None = None,
) -> Report:
    """A page for a fitted completion.

    ``held_out`` (from ``eckart.report.held_out.judge``) adds the measured error and whom it hits,
    ``names`` are what rows, columns and values are called, ``tuning`` (from
    ``eckart.complete.tune.tune``) adds the candidates among which the rank was chosen; ``titles``
    turns ids of columns into titles.
    """
    x, fit = observed, model.fit_
    n, m = x.shape
    weights = isinstance(fit.factors, ItemWeights)
    k = 1 if weights else rank_of(model)
    kind = (
        f"{type(model).__name__}, weights between columns"
        if weights
        else f"{type(model).__name__} of rank {k}"
    )
    page = Report(
        f"Complete: {name}" if name else "Complete",
        f"{n:,} rows and {m:,} columns, {x.nnz:,} entries observed ({x.nnz / (n * m):.2%}); {kind}",
    )
    page.holds(fit.certificate)
    titles = titles or _texts
    _recommendations(page, model, x, names, titles)
    if held_out is not None:
        _errors(page, held_out, names)
    known = [_known(counts, k) for counts in (x.row_counts(), x.column_counts())]
    _neighbours(page, model, x, known[1], names, titles)
    if not weights:
        _factors(page, model, known, names, titles)
    if tuning is not None:
        _tuning(page, tuning)
    if isinstance(fit.plan.get("path"), dict) and len(fit.plan["path"]["taus"]) > 1:
        _path(page, fit.plan)
    if not weights:
        _recovery(page, model, x, k, names, titles)
    page.section("Evidence").certificate(fit.certificate)
    if len(fit.trace):
        page.pictures(
            (
                plots.objective(fit.trace),
                f"{fit.trace.quantity.capitalize()}: {len(fit.trace)} values",
            )
        )
    return page.computed(fit, ("path",))


def _recovery(
    page: Report, model: Any, x: Observed, k: int, names: tuple[str, str, str], titles: Titles
) -> None:
    page.section("Can it be recovered?")
    found, words = recovered(x, k, model)
    page.verdict(words, found.possible or _leans(model) is not None)
    counted: list[list[Any]] = [
        ["observed entries", f"{found.entries:,}"],
        ["degrees of freedom", f"{found.degrees:,}"],
    ]
    counted += [["entries for each", found.oversampling], ["connected parts", len(found.parts)]]
    page.table(["counted", "value"], counted)
    _unidentified(page, model, x, k, names, titles)


def rank_of(model: Any) -> int:
    """The rank that was found; where it is not found but given, the one that was asked for."""
    k = getattr(model, "rank_", None)
    k = getattr(model, "n_components", None) if k is None else k
    return int(k) if isinstance(k, (int, np.integer)) else int(model.fit_.factors.k)


def recovered(x: Observed, k: int, model: Any = None) -> tuple[Any, str]:
    """What can be counted about recovering a matrix of rank k from these entries, and the verdict
    as a sentence; a model that leans on more than the entries has an answer where they leave one
    open."""
    k = min(k, *x.shape)
    found = recovery(x, k)
    more = None if found.possible else _leans(model)
    if more is None:
        return found, f"A matrix of rank {k} {found.verdict}."
    because = found.verdict.partition(": ")[2]
    words = f"What they leave open {more} decides; the error on unseen entries tells how well."
    return found, f"The entries alone do not determine a matrix of rank {k}: {because}. {words}"


def _leans(model: Any) -> str | None:
    """What a model has beside the entries."""
    return {
        "BayesianMF": "the prior",
        "ALS": "the ridge",
        "SoftImpute": "the price of the nuclear norm",
    }.get(type(model).__name__)


def _errors(page: Report, held: HeldOut, names: tuple[str, str, str]) -> None:
    page.section("How good are the predictions?")
    measures = list(held.scores["model"])
    first = measures[0]
    others = [(s[first], who) for who, s in held.scores.items() if who != "model"]
    value, rival = (min if held.predicted is not None else max)(others)
    ours = held.scores["model"][first]
    change = abs(ours - value) / (abs(value) or 1.0)
    page.verdict(
        f"{first} {ours:.4g} on {held.test.nnz:,} entries that the fit did not see, {change:.1%} "
        f"{'better' if held.useful else 'worse'} than {rival} ({value:.4g})."
        + (
            ""
            if held.useful
            else " The factors add nothing here: try another rank, ridge or method."
        ),
        held.useful,
    )
    page.table(
        ["answer", *measures], [[who, *scores.values()] for who, scores in held.scores.items()]
    )
    if held.predicted is None:
        return
    error = held.predicted.astype(float) - held.test.data
    rows, columns = (
        held.train.row_counts()[held.rows],
        held.train.column_counts()[held.test.indices],
    )
    page.pictures(
        (
            plots.error_by_popularity(rows, error, what=names[0]),
            f"For whom: by the training entries of the {names[0]}; in each bar, how "
            "many entries it was measured on",
        ),
        (
            plots.error_by_popularity(columns, error, what=names[1]),
            f"For what: by the training entries of the {names[1]}",
        ),
        (
            plots.observed_predicted(held.test.data, held.predicted),
            "Predictions are means, so they spread less than the values do",
        ),
    )
    if len(held.errors) > 1:
        page.pictures(
            (
                plots.held_out_curve(held.errors),
                "Error on entries held out of the fit after each sweep",
            )
        )


def _unidentified(
    page: Report, model: Any, x: Observed, k: int, names: tuple[str, str, str], titles: Titles
) -> None:
    """Rows and columns with fewer observations than a code has numbers."""
    lines = []
    for side, ids, counts, called in (
        (names[0], model.row_ids, x.row_counts(), _texts),
        (names[1], model.column_ids, x.column_counts(), titles),
    ):
        few = np.flatnonzero(counts < k)
        few = few[np.argsort(counts[few], kind="stable")]
        counts_named = "; ".join(
            f"{name} ({counts[i]})" for i, name in zip(few, called(ids.names(few[:NAMED])))
        )
        more = f" and {len(few) - NAMED:,} more" if len(few) > NAMED else ""
        lines.append([side, f"{len(few):,} of {len(counts):,}", (counts_named + more) or "none"])
    page.text(
        f"A code of rank {k} has {k} numbers. With fewer observations than that the "
        "data alone does not determine it: "
        "the penalty and the biases decide, and the prediction leans on the mean."
    )
    page.table(["side", f"fewer than {k} observations", "which (how many they have)"], lines)


def _tuning(page: Report, tuning: Any) -> None:
    page.section("How the rank was chosen")
    best: dict[int, float] = {}
    for trial in tuning.table:
        best[trial.n_components] = min(best.get(trial.n_components, np.inf), trial.error)
    ranks = sorted(best)
    if len(ranks) > 1:
        _tuning_picture(page, tuning, best, ranks)
    rows = [
        [
            ">" if i == tuning.chosen else "",
            t.n_components,
            "" if t.l2 is None else t.l2,
            t.error,
            t.sweeps,
        ]
        for i, t in enumerate(tuning.table)
    ]
    page.table(["", "rank", "ridge", tuning.metric, "sweeps"], rows).text(
        str(tuning.stopped).capitalize() + "."
    )


def _tuning_picture(page: Report, tuning: Any, best: dict[int, float], ranks: list[int]) -> None:
    ax = plots.held_out_curve([best[r] for r in ranks], ranks, what="rank")
    ax.set_ylabel(tuning.metric.upper() if tuning.metric in ("rmse", "mae") else tuning.metric)
    page.pictures(
        (
            ax,
            "Least error over the ridges tried, for each rank, on entries kept from the "
            "choice's own fits",
        )
    )


def _path(page: Report, plan: dict[str, Any]) -> None:
    page.section("Along the path")
    path = plan["path"]
    ax = plots.shrinkage_path(path["taus"], path["values"], chosen=plan.get("tau"))
    page.pictures(
        (
            ax,
            "Singular values of the answer as the price of the nuclear norm falls to "
            "the one that was chosen",
        )
    )


def _known(counts: np.ndarray, k: int) -> np.ndarray:
    """Positions observed often enough for their code to mean something: at least k times, and at
    least as often as half of the others."""
    enough = np.flatnonzero(counts >= max(k, 1, float(np.median(counts))))
    return enough if len(enough) >= 3 else np.flatnonzero(counts)


def _factors(
    page: Report, model: Any, known: list[np.ndarray], names: tuple[str, str, str], titles: Titles
) -> None:
    f = model.fit_.factors
    if min(f.k, *f.shape) < 2 or not (f.left.any() and f.right.any()):
        return
    page.section("What the factors are")
    page.pictures(
        (
            plots.factor_map(model, among=known[1], titles=titles),
            f"Each {names[1]} that was observed often, on the two strongest directions: "
            "near ones are treated alike",
        ),
        (
            plots.factor_map(model, side="rows", among=known[0]),
            f"Each {names[0]} that was observed often, on the same directions",
        ),
    )
    count = min(3, f.k, *f.shape)
    _, right = plots.complete.principal(f, count)
    rows = []
    for d in range(right.shape[1]):
        order = known[1][np.argsort(right[known[1], d], kind="stable")]
        ends = [
            "; ".join(titles(model.column_ids.names(part))) for part in (order[:5], order[::-1][:5])
        ]
        rows.append([d + 1, *ends])
    page.table(["direction", f"{names[1]}s at one end", "at the other"], rows)


def _neighbours(
    page: Report,
    model: Any,
    x: Observed,
    known: np.ndarray,
    names: tuple[str, str, str],
    titles: Titles,
) -> None:
    if x.n_columns < 3 or (
        not isinstance(model.fit_.factors, ItemWeights) and model.fit_.factors.k == 0
    ):
        return
    page.section("Neighbours")
    popular = np.argsort(-x.column_counts(), kind="stable")[:POPULAR]
    found = model.similar(
        columns=model.column_ids.names(popular), n=min(20 * NEIGHBOURS, x.n_columns - 1)
    )
    rows = []
    for i, j in enumerate(popular):
        among = np.flatnonzero(np.isin(found.positions[i], known))[:NEIGHBOURS]
        near = [
            f"{name} ({found.scores[i, t]:.2f})"
            for t, name in zip(among, titles(found.columns[i, among]))
        ]
        rows.append(
            [
                titles(model.column_ids.names(np.array([j])))[0],
                f"{x.column_counts()[j]:,}",
                "; ".join(near) or "none",
            ]
        )
    page.table(
        [
            names[1],
            "observations",
            f"most similar {names[1]}s among those observed often ({found.by})",
        ],
        rows,
    )


def _recommendations(
    page: Report, model: Any, x: Observed, names: tuple[str, str, str], titles: Titles
) -> None:
    order = np.argsort(-x.row_counts(), kind="stable")
    chosen = np.unique(np.linspace(0, len(order) - 1, SHOWN_ROWS).astype(int))
    at = order[chosen]
    found = model.recommend(model.row_ids.names(at), n=min(LISTED, x.n_columns))
    rows = []
    for i, row in enumerate(at):
        there = np.flatnonzero(found.positions[i] >= 0)
        best = [
            f"{name} ({found.scores[i, t]:.3g})"
            for t, name in zip(there, titles(found.columns[i, there]))
        ]
        rows.append(
            [
                _texts(model.row_ids.names(np.array([row])))[0],
                f"{x.row_counts()[row]:,}",
                "; ".join(best) or "everything is observed",
            ]
        )
    page.section("A few recommendations")
    page.table([names[0], "observations", f"best {names[1]}s not observed (score)"], rows)


def _texts(ids: np.ndarray) -> list[str]:
    return [
        str(label.item() if isinstance(label, np.generic) and label.dtype.kind != "M" else label)
        for label in ids
    ]
