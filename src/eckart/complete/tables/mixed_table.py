"""MixedTable: a low-rank model of a data frame whose columns are of several kinds. Formulas are in
``columns``, ``factor_em`` and ``links``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.certify.certificate import Certificate
from eckart.complete.tables.columns import Part
from eckart.complete.tables.factor_em import Gaps, GaussianFactors
from eckart.complete.tables.fit_table import PlacedTable, Scores, expected, filled, settled
from eckart.complete.tables.forests import Forest, answers, features_of, inputs
from eckart.complete.tables.linear import expected_scores
from eckart.complete.tables.simple import simple_errors
from eckart.complete.tables.solve_table import (
    SolvedTable,
    TableSettings,
    measured,
    scores_of,
    solve,
)
from eckart.errors import FileError, InputError, InputTypeError, invalid
from eckart.factors import MixedColumns
from eckart.fit import Estimator, Fit, fitted, rows_to_fill, sample_weights
from eckart.io.dask.known import is_collection
from eckart.io.models.checkpoint import Checkpoint, resumed
from eckart.io.tables.mixed import MixedFrame, Picked, mixed_frame
from eckart.matrix import SQUARABLE
from eckart.notebook import table as html_table
from eckart.parameters import check, file_name, number, optional, param, whole
from eckart.terms import Ordered, loss_named
from eckart.trace import progress

TREES, LINEAR, MEAN = "(trees)", "(linear)", "(mean)"
"""Names of what forests and linear regression add to the shares of an explanation, and what
trusting the factor model in part takes away."""


class CellExplanation(NamedTuple):
    """Why a cell is expected to be what it is: ``value``, and ``natural`` = ``base`` + the sum of
    ``shares``, one for each seen column, largest first.

    Shares are in the unit of the column for numbers, in log odds (of ``value`` against the other
    levels) for levels, in logs of the rate (above the least value of the column) for counts; what
    forests add to the factor model is the share "(trees)", what linear regression adds "(linear)", what a column that follows it in part
    alone takes away the share "(mean)" (grades have no natural parameter of either)."""

    column: str
    value: Any
    natural: float
    base: float
    shares: list[tuple[str, float]]

    def _repr_html_(self) -> str:
        rows: list[tuple[Any, ...]] = [("(base)", self.base), *self.shares]
        return html_table(("column", f"share in {self.column} = {self.value}"), rows)


def _has_levels(model: Any) -> bool:
    """A table of numbers alone has no probabilities."""
    return "fit_" not in vars(model) or bool(model.levels_)


def _answers_now(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb that no Dask collection is answered by later: a mixed table is held in memory."""
    verb.answers_later = True  # type: ignore[attr-defined]
    return verb


@dataclass(eq=False, repr=False)
class MixedTable(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Fill in a data frame whose columns are numbers, yes/no, categories, grades, counts and dates,
    with gaps anywhere.

    Every column becomes scores of mean 0 and variance 1; a row has k hidden numbers z ~ N(0, I) and
    the scores y = mu + W z + noise, each column with a noise of its own: min -log p(seen scores) +
    l2/2 sum_j ||w_j||^2 / psi_j. A gap is the expectation given all seen cells of its row; a loss
    leads from expected scores to probabilities and rates, fitted to what the other columns say of
    seen cells.

    Parameters
    ----------
    n_components : k; None chooses among 1, 2, 4, ..., 128 by cells that are hidden for it: higher
        ones as long as the error falls.
    losses : {"column": "name"} for columns that shall not have the usual loss of their type. Usual:
        "squared" for numbers and dates, "logistic" for booleans and for 0 and 1 alone,
        "multinomial" for texts and categories, "ordered" for ordered categories, "poisson" for
        counts and amounts (skewness above 2; their scores are those of log(1 + (value - least) /
        unit), since a squared error would be that of the largest values alone), unless plain
        squares for all numbers together have smaller errors at rows held out. Others: "huber" for
        numbers of which a few are wild; "ordered", "ordered_probit" and "multinomial" for numbers
        with few values. Whole numbers that count the rows, or are all different in a column named
        id (or user_id, PassengerId, key), are left aside unless a loss is named for them;
        plan["aside"] tells.
    l2 : the ridge, in rows; None chooses 1, 10 or 100 by hidden cells, or less where columns tell
        each other nearly exactly.
    tol : stop when a step lowers the objective by at most this for each seen score, and its
        gradient is small or ten more such steps are done.
    max_iter : most steps.
    trees : forests beside the factor model, for what no linear combination of columns says: "auto",
        where small ones gain at cells held out; True, for every column that gains; False. A cell is
        then the answer of both, weighted by what each is worth at cells that neither has seen.
    checkpoint : file in which the state is kept after steps; the same fit resumes from it after a
        crash, with the same bits (rank and ridge are chosen again).
    random_state, n_threads, verbose : seed (of hidden cells); most threads (the result does not
        depend on them); progress bars.
    engine : "auto", "cpu", "numpy", the name of another engine, or an engine: what the computation
        runs on.

    Attributes
    ----------
    fit_ : factors (``MixedColumns``), certificate, trace, plan (the loss of every column and why;
        candidates of rank and ridge with their errors; ``errors``: of each column those of one
        answer for all, of the factor model, and of the whole, at cells held out; ``trees``).
    components_ : W^T.
    levels_ : of the columns that have probabilities.
    certificate_, losses_, n_iter_, n_features_in_, feature_names_in_ : of the fit.

    The certificate is stationary: the gradient of the objective vanishes at the returned point, the
    objective never rose, and the links are minimisers.

    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> size = rng.normal(170, 10, 200)
    >>> frame = pd.DataFrame({"size": size, "weight": size - 100 + rng.normal(0, 5, 200), "tall": size > 175})
    >>> frame = frame.astype({"tall": "boolean"})
    >>> frame.loc[0, "tall"] = pd.NA; frame.loc[0, ["size", "weight"]] = 190.0, 92.0
    >>> model = MixedTable(random_state=0).fit(frame)
    >>> bool(model.impute(frame).loc[0, "tall"]), model.losses_["tall"], model.certificate_.holds
    (True, 'logistic', True)

    References: Rubin and Thayer 1982; Khan, Marlin, Bouchard and Murphy 2010; Udell, Horn, Zadeh
    and Boyd 2016.
    """

    n_components: int | None = param(None, optional(whole(1)))
    _: KW_ONLY
    losses: Any = param(None)
    l2: float | None = param(None, optional(number(0, above=True)))
    tol: float = param(3e-4, number(0))
    max_iter: int = param(100, whole(1))
    trees: Literal["auto", True, False] = param("auto")
    checkpoint: Any = param(None, file_name())
    parts_: tuple[Part, ...] = field(init=False)
    forests_: dict[str, Forest] = field(init=False)

    @fitted
    def components_(self) -> np.ndarray:
        """W^T: k x scores."""
        return self._fitted("components_").factors.weights.T

    @fitted
    def certificate_(self) -> Certificate:
        """Evidence of the fit, with its error beside that of the mean (or the commonest level) at
        cells held out, where there are rows enough to hold some out."""
        fit = self._fitted("certificate_")
        found = np.array(list(fit.plan.get("errors", {}).values()), float).reshape(-1, 3)
        found = found[found[:, 0] > 0]
        if not len(found):
            return fit.certificate
        plain, both = found[:, 0], found[:, 2]  # columns have units of their own
        errors = {"model": float(np.mean((both / plain) ** 2)), "mean": 1.0}
        return fit.certificate.with_errors(errors, f"held-out cells of {len(found)} columns")

    @fitted
    def n_iter_(self) -> int:
        """Steps done."""
        return max(len(self._fitted("n_iter_").trace) - 1, 1)

    @fitted
    def levels_(self) -> dict[str, tuple[Any, ...]]:
        """The levels of each column that has probabilities, in their order."""
        self._fitted("levels_")
        return {p.name: p.levels for p in self.parts_ if p.discrete}

    @fitted
    def losses_(self) -> dict[str, str]:
        """The loss of each column."""
        self._fitted("losses_")
        return {p.name: p.loss.name for p in self.parts_ if not p.cycle}

    @property
    def _n_features_out(self) -> int:
        return self._fitted("_n_features_out").factors.k

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Fit a pandas, polars or Arrow table, the name of a file that holds one, or an array of
        numbers with NaN for gaps.

        ``sample_weight``: how often each row counts, one number >= 0 for each. Rows of weight 0 are
        left out.
        """
        frame = _read_frame(X)
        weights = sample_weights(sample_weight, frame.rows)
        if weights is not None and not weights.all():
            frame = replace(
                frame,
                columns=[
                    cells._replace(values=cells.values[weights > 0]) for cells in frame.columns
                ],
            )
            weights = weights[weights > 0]
        self._fit(frame, weights)
        return self

    def _fit(self, frame: MixedFrame, weights: np.ndarray | None = None) -> SolvedTable:
        check(self)
        engine = self._engine()
        file = Checkpoint.of_parts(
            self, lambda: [*_arrays_of(frame), *([] if weights is None else [weights])]
        )
        with (
            engine.at_work(),
            progress(bool(self.verbose)) as watch,
            resumed(file, self.random_state) as (memory, rng),
        ):
            how = TableSettings(
                self._asked(frame),
                self.n_components,
                self.l2,
                self.tol,
                self.max_iter,
                self.trees,
                weights,
            )
            found = solve(frame.columns, how, rng=rng, engine=engine, watch=watch, memory=memory)
        memory.end(found.fit.trace)
        self._store(found.fit, {})
        self._say_if_early(self.fit_)
        return found

    def transform(self, X: Any) -> np.ndarray:
        """The expected hidden numbers of rows, k for each, given their seen cells."""
        table, _ = self._scores(X)
        return settled(table, self._gaussian(), self._engine())[0]

    def impute(self, X: Any = None) -> Any:
        """The same table with its gaps filled: numbers by their expectation, levels by the
        likeliest one; types, categories, order and index stay."""
        table, frame = self._scores(rows_to_fill(self, X))
        return self._filled(frame, table, self._expected(table))

    def fit_impute(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Any:
        """Fit a table and fill its gaps: ``fit(X).impute(X)``; without weights of rows X is read
        once."""
        if sample_weight is not None:
            return self.fit(X, sample_weight=sample_weight).impute(X)
        frame = _read_frame(X)
        found = self._fit(frame)
        return self._filled(frame, found.table, self._expected(found.table))

    def _filled(self, frame: MixedFrame, table: Scores, scores: np.ndarray) -> Any:
        """The table with its gaps filled by expected scores and forests."""
        found: dict[str, np.ndarray | Picked] = {}
        for p in self.parts_:
            if not p.cycle and len(rows := frame.gaps(p.name)):
                y = self._answered(p, filled(table.y[rows], scores[rows]))
                found[p.name] = Picked(p.levels, y.argmax(axis=1)) if p.discrete else y
        for name, aside_column in self.fit_.factors.aside.items():
            if aside_column["fill"] is not None and len(rows := frame.gaps(name)):
                found[name] = np.full(
                    len(rows),
                    aside_column["fill"],
                    object if isinstance(aside_column["fill"], str) else None,
                )
        return frame.filled(found)

    def _answered(self, part: Part, scores: np.ndarray) -> np.ndarray:
        """Probabilities of levels (rows x levels), or numbers; ``scores`` of rows are seen ones,
        and expected ones for gaps and the part itself."""
        forest = self.forests_.get(part.name)
        if forest is None:
            return (
                part.probabilities(scores[:, part.at])
                if part.discrete
                else part.numbers(scores[:, part.at])
            )
        base = answers(part, scores[:, part.at])
        both = base + forest.share * (forest.answer(inputs(self.parts_, part, scores)) - base)
        return both if part.discrete else part.middle + part.spread * both[:, 0]

    def uncertainty(self, X: Any) -> dict[str, np.ndarray]:
        """How sure the gaps of each column are filled, in the order of their rows. Numbers: the
        standard deviation of the error, that of the factor model given the seen cells of the row,
        brought to the size that errors at held-out cells had. Levels: the probability that the
        level is another one."""
        table, frame = self._scores(X)
        g, out = self._gaussian(), dict[str, np.ndarray]()
        for p in self.parts_:
            if p.cycle or not len(rows := frame.gaps(p.name)):
                continue
            found = expected(Scores(table.parts, table.y[rows]), g)
            if p.discrete:
                own = self._expected(Scores(table.parts, table.y[rows]))
                out[p.name] = 1.0 - self._answered(p, filled(table.y[rows], own)).max(axis=1)
                continue
            w = g.w[p.first]
            deviation = np.sqrt(np.einsum("k,rkl,l->r", w, found.covariance, w) + g.psi[p.first])[
                Gaps.of_mask(~np.isnan(table.y[rows])).of
            ]
            errors = self.fit_.plan.get("errors", {}).get(p.name)
            size = deviation / np.sqrt(np.mean(deviation**2)) * errors[2] if errors else deviation
            out[p.name] = size * p.spread if errors or p.linked else deviation * p.scale
        return out

    def simple_errors(self, X: Any) -> dict[str, dict[str, float]]:
        """Of each column the errors of simple answers at known cells of X, each from the other
        cells of its row: the "mean" (or the commonest level), the mean of near rows ("neighbours"),
        and "linear" regression. Units are those of ``fit_.plan["errors"]``: standard deviations of
        numbers, the share of wrong levels. At most 1,000 rows are looked at."""
        frame = self._checked_frame(X)
        table, codes, _ = scores_of(self.parts_, frame.columns)
        engine = self._engine()
        with engine.at_work():
            return simple_errors(table, codes, np.random.default_rng(0), engine)

    def at_the_ends(self, X: Any) -> dict[str, int]:
        """Of each column of numbers, how many gaps are filled with the least or largest value that
        answers may have: what was expected lies beyond it."""
        table, frame = self._scores(X)
        scores = self._expected(table)
        out: dict[str, int] = {}
        for p in self.parts_:
            if not p.cycle and not p.discrete and len(rows := frame.gaps(p.name)):
                answer = self._answered(p, filled(table.y[rows], scores[rows]))
                if count := int(np.count_nonzero((answer <= p.low) | (answer >= p.high))):
                    out[p.name] = count
        return out

    @available_if(_has_levels)
    @_answers_now
    def predict_proba(self, X: Any, column: str | None = None) -> Any:
        """Probabilities of the levels of a column (in the order of ``levels_[column]``) for each
        row, from its other columns: a seen cell is not used. Without a column, {column:
        probabilities} of all that have levels."""
        check_is_fitted(self)
        if column is None:
            return {name: self.predict_proba(X, name) for name in self.levels_}
        part = self._part(column)
        if not part.discrete:
            raise InputError(
                f"column must be one of {', '.join(self.levels_)}, which have levels, got {column!r}"
            )
        table, _ = self._scores(X)
        return self._answered(part, self._from_others(table, part))

    def expect(self, X: Any, column: str) -> np.ndarray:
        """What the other columns of each row say of a column: expected numbers, or the likeliest
        level. A cell that is seen is not used."""
        part = self._part(column)
        table, _ = self._scores(X)
        found = self._answered(part, self._from_others(table, part))
        return _levels(part)[found.argmax(axis=1)] if part.discrete else found

    def score(self, X: Any, y: Any = None) -> float:
        """How well each seen cell follows from the others of its row: the mean over columns of
        ``1 - sum |x - p|^2 / sum |x - m|^2``, m the mean of the column in X. 1 is exact, 0 as good as m; a level counts as the vector of
        its indicators, p as that of probabilities. Columns of one value are left out.
        """
        table, frame = self._scores(X)
        cells, found = {c.name: c for c in frame.columns}, []
        for part in self.parts_:
            if part.cycle:
                continue
            seen = np.flatnonzero(~np.isnan(cells[part.name].values))
            aside_column = self._answered(part, self._from_others(table, part))[seen]
            truth = cells[part.name].values[seen]
            if part.discrete:
                if levels := cells[part.name].levels:
                    truth = np.array(levels, object)[truth.astype(int)]
                truth = (truth[:, None] == _levels(part)[None]).astype(np.float64)
            away = float(np.sum((truth - truth.mean(axis=0)) ** 2)) if len(seen) else 0.0
            if away > 0:
                found.append(1.0 - float(np.sum((truth - aside_column) ** 2)) / away)
        if not found:
            raise InputError(
                "X must have a column of several values to be scored, got none; pass more rows"
            )
        return float(np.mean(found))

    def explain(self, X: Any, column: str, row: int = 0) -> CellExplanation:
        """Which columns speak for what is expected in a column of one row of X (by position). The
        natural parameter is linear in the seen scores, so the shares add up exactly; the cell
        itself, where it is seen, has none."""
        part, g = self._part(column), self._gaussian()
        table, frame = self._scores(X)
        if not isinstance(row, (int, np.integer)) or not -frame.rows <= row < frame.rows:
            raise invalid("row", row, f"the position of a row, from 0 to {frame.rows - 1}")
        y = table.y[row : row + 1 or None][:1].copy()
        y[:, part.at] = np.nan
        one = Scores(table.parts, y)
        found = expected(one, g)
        away = one.targets(found.scores)[0][0] - one.gaps.seen[0] * g.mu
        pull = (
            g.w[part.at] @ found.covariance[0] @ (g.w / g.psi[:, None]).T
        ) * away  # of each seen score, for each score of the column
        at = found.scores[:, part.at]
        blended = self._expected(one)
        whole = self._answered(part, filled(y, blended))
        if part.discrete:
            best = int(whole[0].argmax())
            slopes = part.link[:, 1:]
            # against the others: their mean for categories, the other one for yes and no; of higher
            # grades for grades
            direction = (
                slopes[best] - np.delete(slopes, best, axis=0).mean(axis=0)
                if len(slopes) > 1
                else slopes[0]
            )
            level = part.link[:, 0]
            base = (
                float(level[best] - np.delete(level, best).mean())
                if len(slopes) > 1
                else float(level[0])
            )
            value: Any = _levels(part)[best]
        elif part.linked:
            direction, base, value = (
                part.link[0, 1:],
                float(part.link[0, 0] + np.log(part.unit)),
                float(whole[0]),
            )
        else:
            direction, base, value = np.array([part.scale]), part.offset, float(whole[0])
        base += float(direction @ g.mu[part.at])
        by_score = direction @ pull
        shares: dict[str, float] = {}
        for p in self.parts_:
            if p.name != part.name and one.gaps.seen[0, p.at].any():
                shares[p.name] = shares.get(p.name, 0.0) + float(by_score[p.at].sum())
        if not isinstance(part.loss, Ordered):
            level_at = best if part.discrete and part.loss.width > 1 else 1
            alone, in_part = (
                _natural(part, (p.probabilities(at) if p.discrete else p.numbers(at))[0], level_at)
                for p in (replace(part, trust=1.0), part)
            )
            if part.linear:
                shares[LINEAR] = part.scale * float(blended[0, part.first] - at[0, 0])
                alone, in_part = (
                    float(p.numbers(blended[:, part.at])[0])
                    for p in (replace(part, trust=1.0), part)
                )
            if part.trust < 1:
                shares[MEAN] = in_part - alone
            if part.name in self.forests_:
                shares[TREES] = _natural(part, whole[0], level_at) - in_part
        ordered = sorted(shares.items(), key=lambda item: -abs(item[1]))
        return CellExplanation(column, value, base + sum(shares.values()), base, ordered)

    def certify(self, X: Any, *, sample_weight: Any = None) -> Certificate:
        """Measure the certificate again, from this model, a table, and the weights of its rows."""
        frame = self._checked_frame(X)
        table, codes, _ = scores_of(
            self.parts_, frame.columns, sample_weights(sample_weight, frame.rows)
        )
        size, most = (
            np.nanmax(np.abs(table.y), axis=0, initial=0.0),
            SQUARABLE[np.dtype(np.float64)][1],
        )
        if not (size <= most).all():
            name = next(part.name for part in self.parts_ if not (size[part.at] <= most).all())
            raise InputError(
                f"column {name!r} must hold values as in the data of the fit, got values "
                f"{size.max():.0e} times as far apart: squares of them leave the range"
            )
        engine = self._engine()
        with engine.at_work():
            placed = PlacedTable.of(table, engine)
            return measured(
                table, placed, self._gaussian(), float(self.fit_.plan["l2"]), codes, None
            )

    def _asked(self, frame: MixedFrame) -> dict[str, str]:
        """``losses`` as a dict whose names are columns and losses that exist."""
        if self.losses is None:
            return {}
        if not isinstance(self.losses, dict):
            raise invalid("losses", self.losses, "a dict {'column': 'name of a loss'}")
        names = [cells.name for cells in frame.columns]
        for name, loss in self.losses.items():
            if str(name) not in names:
                raise InputError(
                    f"losses must name columns among {', '.join(names[:12])}, got {name!r}"
                )
            if not isinstance(loss, str):
                raise invalid(f"losses[{name!r}]", loss, "the name of a loss")
            loss_named(loss)
        return {str(name): loss for name, loss in self.losses.items()}

    def _part(self, column: str) -> Part:
        check_is_fitted(self)
        found = next((p for p in self.parts_ if p.name == column and not p.cycle), None)
        if found is None:
            aside_column = self.fit_.factors.aside.get(column)
            if aside_column is not None:
                raise InputError(f"column={column!r} was left aside: {aside_column['reason']}")
            raise invalid("column", column, f"one of {', '.join(list(self.losses_)[:12])}")
        return found

    def _expected(self, table: Scores) -> np.ndarray:
        """Expected scores of rows, by factors and regressions."""
        tables = self.fit_.factors.tables
        linear = None
        if "linear.weights" in tables:
            linear = GaussianFactors(tables["linear.weights"], *tables["linear.numbers"])
        return expected_scores(table, self._gaussian(), linear, self._engine())

    def _gaussian(self) -> GaussianFactors:
        f = self.fit_.factors
        return GaussianFactors(f.weights, f.mean, f.noise)

    def _checked_frame(self, X: Any) -> MixedFrame:
        """A table with the columns of the fitted one: by name, in any order, where it has names."""
        check_is_fitted(self)
        frame, wanted = _read_frame(X), self.fit_.factors.columns.tolist()
        if isinstance(frame.source, np.ndarray):
            if len(frame.columns) != len(wanted):
                raise InputError(
                    f"X has {len(frame.columns)} features, but {type(self).__name__} is "
                    f"expecting {len(wanted)} features as input"
                )
            return replace(
                frame, columns=[c._replace(name=name) for c, name in zip(frame.columns, wanted)]
            )
        names = {cells.name for cells in frame.columns}
        absent = [name for name in wanted if name not in names]
        if absent:
            raise InputError(
                f"X must have all columns of the training data ({', '.join(wanted[:12])}), got none "
                f"called {absent[0]!r}. A column of missing values will do."
            )
        kinds = {p.name: p for p in self.parts_}
        for at, cells in enumerate(frame.columns):
            part = kinds.get(cells.name)
            texts = any(isinstance(level, str) for level in cells.levels)
            if part is not None and not part.discrete and texts:
                raise InputTypeError(
                    f"column {cells.name!r} must hold numbers as in the training data, got {cells.type_name}"
                )
            if (
                part is not None and not cells.levels and np.isnan(cells.values).all()
            ):  # a column of gaps is what it was at the fit
                frame.columns[at] = cells._replace(kind=part.kind)
        return frame

    def _scores(self, X: Any) -> tuple[Scores, MixedFrame]:
        """Scores of new rows; levels that the model has not seen are taken for gaps, which is
        said."""
        frame = self._checked_frame(X)
        table, _, strange = scores_of(self.parts_, frame.columns)
        for name, levels in strange.items():
            some = ", ".join(map(repr, levels[:3])) + (", ..." if len(levels) > 3 else "")
            words = (
                f"column {name!r} holds levels that were not there in fit ({some}): these cells "
                "are taken for unknown"
            )
            warnings.warn(words, UserWarning, stacklevel=4)
        return table, frame

    def _from_others(self, table: Scores, part: Part) -> np.ndarray:
        """Scores of rows, those of gaps and of a column as the other cells make them expected."""
        y = table.y.copy()
        for p in self.parts_:
            if p.name == part.name:
                y[:, p.at] = np.nan
        return filled(y, self._expected(Scores(table.parts, y)))

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        f = fit.factors
        if not isinstance(f, MixedColumns):
            raise FileError(f"factors must be MixedColumns, got kind {type(f).__name__}")
        none = np.zeros((0, 1)), np.zeros((0, 0)), np.zeros((0, 0))
        parts = tuple(
            Part.from_state(
                {
                    name: f.tables.get(f"{name}.{i}", usual)
                    for name, usual in zip(("scores", "link", "plain"), none)
                },
                aside_column,
            )
            for i, aside_column in enumerate(f.described)
        )
        n, wanted = len(f.mean), any(p.linear for p in parts)
        linear = [f.tables.get(f"linear.{name}", none[0]) for name in ("weights", "numbers")]
        sizes_there = [a.shape for a in linear]
        if (
            sizes_there != ([(n, n), (2, n)] if wanted else [(0, 1)] * 2)
            or not (linear[1][1:] > 0).all()
        ):
            raise FileError("the regressions of a table do not fit its scores")
        known = set(f.columns.tolist())  # type: ignore[union-attr]
        sizes = [p.first for p in parts] == np.cumsum([0] + [p.width for p in parts])[
            :-1
        ].tolist() and sum(p.width for p in parts) == len(f.mean)
        asides = all(
            isinstance(a, dict)
            and {"reason", "fill"} <= a.keys()
            and isinstance(a["fill"], (str, int, float, type(None)))
            for a in f.aside.values()
        )
        l2 = fit.plan.get("l2")
        if (
            not parts
            or not sizes
            or not asides
            or {*(p.name for p in parts), *f.aside} - known
            or isinstance(l2, bool)
            or not isinstance(l2, (int, float))
        ):
            raise FileError("the columns of a table do not fit its scores")
        forests: dict[str, Forest] = {}
        for at in {name.rpartition(".")[2] for name in f.trees}:
            part = parts[int(at)] if at.isdigit() and int(at) < len(parts) else None
            if part is None or part.cycle:
                raise FileError(f"a forest of a table belongs to its part {at}, which there is not")
            arrays = {
                name.rpartition(".")[0]: a
                for name, a in f.trees.items()
                if name.rpartition(".")[2] == at
            }
            features = len(features_of(parts, part))
            forests[part.name] = Forest.from_state(
                arrays, features, len(part.levels) if part.discrete else 1
            )
        self.parts_, self.fit_, self.forests_ = parts, fit, forests

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _read_frame(X: Any) -> MixedFrame:
    if is_collection(X):
        raise InputTypeError(
            "X must be a table in memory, got a Dask collection: a mixed table is fitted "
            "whole. Pass X.compute()."
        )
    if hasattr(X, "tocsr") or hasattr(X, "tocoo"):
        raise InputTypeError(
            "X must be a table, got a sparse matrix. Sparse data was passed, use ALS for it, "
            "or X.toarray()."
        )
    return mixed_frame(X)


def _arrays_of(frame: MixedFrame) -> Iterator[np.ndarray]:
    """A table as arrays, for a checkpoint: a fit resumes only with the same one."""
    for cells in frame.columns:
        yield np.frombuffer(repr((cells.name, cells.kind, cells.levels)).encode(), np.uint8)
        yield cells.values


def _natural(part: Part, answer: Any, level: int) -> float:
    """The natural parameter that an answer has: the number, the logarithm of a rate, log odds of a
    level against the mean of the others."""
    if not part.discrete:
        return (
            float(np.log(max(answer - part.zero, 1e-12 * part.unit)))
            if part.linked
            else float(answer)
        )
    logs = np.log(np.maximum(answer, 1e-12))
    return float(logs[level] - np.delete(logs, level).mean())


def _levels(part: Part) -> np.ndarray:
    """The levels of a part as an array to be picked from."""
    out = np.empty(len(part.levels), object)
    out[:] = part.levels
    return out
