"""MixedTable: a low-rank model of a data frame whose columns are of several kinds. Formulas are in ``columns``, ``factor_em`` and ``links``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from eckart.certify.certificate import Certificate
from eckart.complete.tables.columns import Part
from eckart.complete.tables.factor_em import Gaussian
from eckart.complete.tables.fit_table import Placed, Scores, expected, settled
from eckart.complete.tables.solve_table import Solved, measured, scores_of, solve
from eckart.errors import FileError, InputError, InputTypeError, wrong
from eckart.factors import MixedColumns
from eckart.fit import Estimator, Fit, fitted
from eckart.io.dask.known import is_collection
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.levels import resumed
from eckart.io.tables.mixed import MixedFrame, Picked, mixed_frame
from eckart.matrix import SQUARABLE
from eckart.notebook import table as html_table
from eckart.parameters import check, file_name, number, optional, param, whole
from eckart.terms import loss_named
from eckart.trace import progress


class CellExplanation(NamedTuple):
    """Why a cell is expected to be what it is: ``value``, and ``natural`` = ``base`` + the sum of ``shares``, one for each seen column, largest first.

    Shares are in the unit of the column for numbers, in log odds (of ``value`` against the other levels) for levels, in logs of the rate for counts."""

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
    """Fill in a data frame whose columns are numbers, yes/no, categories, grades, counts and dates, with gaps anywhere.

    Every column becomes scores of mean 0 and variance 1; a row has k hidden numbers z ~ N(0, I) and the scores y = mu + W z + noise, each column with
    a noise of its own: min -log p(seen scores) + l2/2 sum_j ||w_j||^2 / psi_j. A gap is the expectation given all seen cells of its row; a loss leads
    from expected scores to probabilities and rates, fitted to what the other columns say of seen cells.

    Parameters
    ----------
    n_components : k; None chooses among 1, 2, 4, 8 and 16 by cells that are hidden for it.
    losses : {"column": "name"} for columns that shall not have the usual loss of their type. Usual: "squared" for numbers and dates, "logistic" for
        booleans and for 0 and 1 alone, "multinomial" for texts and categories, "ordered" for ordered categories, "poisson" for counts and amounts (values
        >= 0 with skewness above 2; their scores are those of log(1 + value / unit), since a squared error would be that of the largest values alone). Others:
        "huber" for numbers of which a few are wild; "ordered", "ordered_probit" and "multinomial" for numbers with few values. Whole numbers that count
        the rows, or are all different in a column named id (or user_id, PassengerId, key), are left aside unless a loss is named for them; plan["aside"] tells.
    l2 : the ridge, in rows; None chooses 1, 10 or 100 by hidden cells.
    tol : stop when a step lowers the objective by at most this for each seen score, and its gradient is small or ten more such steps are done.
    max_iter : most steps.
    checkpoint : file in which the state is kept after steps; the same fit resumes from it after a crash, with the same bits (rank and ridge are chosen again).
    random_state, n_threads, verbose : seed (of hidden cells); most threads (the result does not depend on them); progress bars.
    engine : "auto", "cpu", "plain", the name of another engine, or an engine: what the computation runs on.

    Attributes
    ----------
    fit_ : factors (``MixedColumns``), certificate, trace, plan (the loss of every column and why; candidates of rank and ridge with their errors).
    certificate_, components_ (W^T), levels_ (of the columns that have probabilities), losses_, n_iter_, n_features_in_, feature_names_in_.

    The certificate is stationary: the gradient of the objective vanishes at the returned point, the objective never rose, and the links are minimisers.

    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> size = rng.normal(170, 10, 200)
    >>> frame = pd.DataFrame({"size": size, "weight": size - 100 + rng.normal(0, 5, 200), "tall": size > 175})
    >>> frame = frame.astype({"tall": "boolean"})
    >>> frame.loc[0, "tall"] = pd.NA; frame.loc[0, ["size", "weight"]] = 190.0, 92.0
    >>> model = MixedTable(random_state=0).fit(frame)
    >>> bool(model.impute(frame).loc[0, "tall"]), model.losses_["tall"], model.certificate_.holds
    (True, 'logistic', True)

    References: Rubin and Thayer 1982; Khan, Marlin, Bouchard and Murphy 2010; Udell, Horn, Zadeh and Boyd 2016.
    """

    n_components: int | None = param(None, optional(whole(1)))
    _: KW_ONLY
    losses: Any = param(None)
    l2: float | None = param(None, optional(number(0, above=True)))
    tol: float = param(3e-4, number(0))
    max_iter: int = param(100, whole(1))
    checkpoint: Any = param(None, file_name())
    parts_: tuple[Part, ...] = field(init=False)

    @fitted
    def components_(self) -> np.ndarray:
        """W^T: k x scores."""
        return self._fitted("components_").factors.weights.T

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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a pandas, polars or Arrow table, the name of a file that holds one, or an array of numbers with NaN for gaps."""
        self._fit(_door(X))
        return self

    def _fit(self, frame: MixedFrame) -> Solved:
        check(self)
        engine = self._engine()
        file = Checkpoint.of_parts(self, lambda: _told(frame))
        with engine.at_work(), progress(bool(self.verbose)) as watch, resumed(file, self.random_state) as (memory, rng):
            how = (self.n_components, self.l2, self.tol, self.max_iter)
            found = solve(frame.columns, self._asked(frame), *how, rng=rng, engine=engine, watch=watch, memory=memory)
        memory.end(found.fit.trace)
        self._store(found.fit, {})
        self._say_if_early(self.fit_)
        return found

    def transform(self, X: Any) -> np.ndarray:
        """The expected hidden numbers of rows, k for each, given their seen cells."""
        table, _ = self._scores(X)
        return settled(table, self._gaussian(), self._engine())[0]

    def impute(self, X: Any) -> Any:
        """The same table with its gaps filled: numbers by their expectation, levels by the likeliest one; types, categories, order and index stay."""
        table, frame = self._scores(X)
        return self._filled(frame, settled(table, self._gaussian(), self._engine())[1])

    def fit_impute(self, X: Any, y: Any = None) -> Any:
        """Fit a table and fill its gaps: ``fit(X).impute(X)``, and X is read once."""
        frame = _door(X)
        found = self._fit(frame)
        return self._filled(frame, settled(found.table, self._gaussian(), self._engine(), found.placed)[1])

    def _filled(self, frame: MixedFrame, scores: np.ndarray) -> Any:
        """The table with its gaps filled by expected scores."""
        found: dict[str, np.ndarray | Picked] = {}
        for p in self.parts_:
            if not p.cycle and len(rows := frame.gaps(p.name)):
                y = scores[rows, p.at]
                found[p.name] = Picked(p.levels, p.probabilities(y).argmax(axis=1)) if p.discrete else p.numbers(y)
        for name, told in self.fit_.factors.aside.items():
            if told["fill"] is not None and len(rows := frame.gaps(name)):
                found[name] = np.full(len(rows), told["fill"], object if isinstance(told["fill"], str) else None)
        return frame.filled(found)

    @available_if(_has_levels)
    @_answers_now
    def predict_proba(self, X: Any, column: str | None = None) -> Any:
        """Probabilities of the levels of a column (in the order of ``levels_[column]``) for each row, from its other columns: a seen cell is not used.
        Without a column, {column: probabilities} of all that have levels."""
        check_is_fitted(self)
        if column is None:
            return {name: self.predict_proba(X, name) for name in self.levels_}
        part = self._part(column)
        if not part.discrete:
            raise InputError(f"column={column!r} has no levels, wanted one of {', '.join(self.levels_)}")
        table, _ = self._scores(X)
        return part.probabilities(self._from_others(table, part))

    def expect(self, X: Any, column: str) -> np.ndarray:
        """What the other columns of each row say of a column: expected numbers, or the likeliest level. A cell that is seen is not used."""
        part = self._part(column)
        table, _ = self._scores(X)
        y = self._from_others(table, part)
        return _levels(part)[part.probabilities(y).argmax(axis=1)] if part.discrete else part.numbers(y)

    def explain(self, X: Any, column: str, row: int = 0) -> CellExplanation:
        """Which columns speak for what is expected in a column of one row of X (by position). The natural parameter is linear in the seen scores, so the
        shares add up exactly; the cell itself, where it is seen, has none."""
        part, g = self._part(column), self._gaussian()
        table, frame = self._scores(X)
        if not isinstance(row, (int, np.integer)) or not -frame.rows <= row < frame.rows:
            raise wrong("row", row, f"the position of a row, from 0 to {frame.rows - 1}")
        y = table.y[row : row + 1 or None][:1].copy()
        y[:, part.at] = np.nan
        one = Scores(table.parts, y)
        found = expected(one, g)
        away = one.targets(found.scores)[0][0] - one.gaps.seen[0] * g.mu
        pull = (
            g.w[part.at] @ found.covariance[0] @ (g.w / g.psi[:, None]).T
        ) * away  # of each seen score, for each score of the column
        at = found.scores[:, part.at]
        if part.discrete:
            best = int(part.probabilities(at)[0].argmax())
            slopes = part.link[:, 1:]
            # against the others: their mean for categories, the other one for yes and no; of higher grades for grades
            direction = slopes[best] - np.delete(slopes, best, axis=0).mean(axis=0) if len(slopes) > 1 else slopes[0]
            level = part.link[:, 0]
            base = float(level[best] - np.delete(level, best).mean()) if len(slopes) > 1 else float(level[0])
            value: Any = _levels(part)[best]
        elif part.linked:
            direction, base, value = part.link[0, 1:], float(part.link[0, 0] + np.log(part.unit)), float(part.numbers(at)[0])
        else:
            direction, base, value = np.array([part.scale]), part.offset, float(part.numbers(at)[0])
        base += float(direction @ g.mu[part.at])
        by_score = direction @ pull
        shares: dict[str, float] = {}
        for p in self.parts_:
            if p.name != part.name and one.gaps.seen[0, p.at].any():
                shares[p.name] = shares.get(p.name, 0.0) + float(by_score[p.at].sum())
        ordered = sorted(shares.items(), key=lambda item: -abs(item[1]))
        return CellExplanation(column, value, base + sum(shares.values()), base, ordered)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and a table."""
        frame = self._checked_frame(X)
        table, codes, _ = scores_of(self.parts_, frame.columns)
        size, most = np.nanmax(np.abs(table.y), axis=0, initial=0.0), SQUARABLE[np.dtype(np.float64)][1]
        if not (size <= most).all():
            name = next(part.name for part in self.parts_ if not (size[part.at] <= most).all())
            raise InputError(
                f"column {name!r} has values {size.max():.0e} times as far apart as in the data of the fit, wanted those data: squares of them leave the range"
            )
        engine = self._engine()
        with engine.at_work():
            placed = Placed.of(table, engine)
            return measured(table, placed, self._gaussian(), float(self.fit_.plan["l2"]), codes, None)

    def _asked(self, frame: MixedFrame) -> dict[str, str]:
        """``losses`` as a dict whose names are columns and losses that exist."""
        if self.losses is None:
            return {}
        if not isinstance(self.losses, dict):
            raise wrong("losses", self.losses, "a dict {'column': 'name of a loss'}")
        names = [cells.name for cells in frame.columns]
        for name, loss in self.losses.items():
            if str(name) not in names:
                raise InputError(f"losses names the column {name!r}, wanted one of {', '.join(names[:12])}")
            if not isinstance(loss, str):
                raise wrong(f"losses[{name!r}]", loss, "the name of a loss")
            loss_named(loss)
        return {str(name): loss for name, loss in self.losses.items()}

    def _part(self, column: str) -> Part:
        check_is_fitted(self)
        found = next((p for p in self.parts_ if p.name == column and not p.cycle), None)
        if found is None:
            told = self.fit_.factors.aside.get(column)
            if told is not None:
                raise InputError(f"column={column!r} was left aside: {told['reason']}")
            raise wrong("column", column, f"one of {', '.join(list(self.losses_)[:12])}")
        return found

    def _gaussian(self) -> Gaussian:
        f = self.fit_.factors
        return Gaussian(f.weights, f.mean, f.noise)

    def _checked_frame(self, X: Any) -> MixedFrame:
        """A table with the columns of the fitted one: by name, in any order, where it has names."""
        check_is_fitted(self)
        frame, wanted = _door(X), self.fit_.factors.columns.tolist()
        if isinstance(frame.source, np.ndarray):
            if len(frame.columns) != len(wanted):
                raise InputError(
                    f"X has {len(frame.columns)} features, but {type(self).__name__} is expecting {len(wanted)} features as input"
                )
            return replace(frame, columns=[c._replace(name=name) for c, name in zip(frame.columns, wanted)])
        names = {cells.name for cells in frame.columns}
        absent = [name for name in wanted if name not in names]
        if absent:
            raise InputError(
                f"column {absent[0]!r} of the training data is missing in X, wanted all of {', '.join(wanted[:12])}; a column of gaps will do"
            )
        kinds = {p.name: p for p in self.parts_}
        for at, cells in enumerate(frame.columns):
            part = kinds.get(cells.name)
            texts = any(isinstance(level, str) for level in cells.levels)
            if part is not None and not part.discrete and texts:
                raise InputTypeError(
                    f"column {cells.name!r} holds {cells.told}, wanted numbers as in the training data"
                )
            if part is not None and not cells.levels and np.isnan(cells.values).all():  # a column of gaps is what it was at the fit
                frame.columns[at] = cells._replace(kind=part.kind)
        return frame

    def _scores(self, X: Any) -> tuple[Scores, MixedFrame]:
        """Scores of new rows; levels that the model has not seen are taken for gaps, which is said."""
        frame = self._checked_frame(X)
        table, _, strange = scores_of(self.parts_, frame.columns)
        for name, levels in strange.items():
            some = ", ".join(map(repr, levels[:3])) + (", ..." if len(levels) > 3 else "")
            words = (
                f"column {name!r} holds levels that were not there in fit ({some}): these cells are taken for unknown"
            )
            warnings.warn(words, UserWarning, stacklevel=4)
        return table, frame

    def _from_others(self, table: Scores, part: Part) -> np.ndarray:
        y = table.y.copy()
        for p in self.parts_:
            if p.name == part.name:
                y[:, p.at] = np.nan
        return settled(Scores(table.parts, y), self._gaussian(), self._engine())[1][:, part.at]

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        f = fit.factors
        if not isinstance(f, MixedColumns):
            raise FileError(f"factors of kind {type(f).__name__} came, wanted MixedColumns")
        none = np.zeros((0, 1)), np.zeros((0, 0))
        parts = tuple(
            Part.from_state(
                {name: f.tables.get(f"{name}.{i}", usual) for name, usual in zip(("scores", "link"), none)}, told
            )
            for i, told in enumerate(f.described)
        )
        known = set(f.columns.tolist())  # type: ignore[union-attr]
        sizes = [p.first for p in parts] == np.cumsum([0] + [p.width for p in parts])[:-1].tolist() and sum(
            p.width for p in parts
        ) == len(f.mean)
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
        self.parts_, self.fit_ = parts, fit

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _door(X: Any) -> MixedFrame:
    if is_collection(X):
        raise InputTypeError(
            "X is a Dask collection, wanted a table in memory: a mixed table is fitted whole; pass X.compute()"
        )
    if hasattr(X, "tocsr") or hasattr(X, "tocoo"):
        raise InputTypeError(
            "X is a sparse matrix, wanted a table; Sparse data was passed, use ALS for it, or X.toarray()"
        )
    return mixed_frame(X)


def _told(frame: MixedFrame) -> Iterator[np.ndarray]:
    """A table as arrays, for a checkpoint: a fit resumes only with the same one."""
    for cells in frame.columns:
        yield np.frombuffer(repr((cells.name, cells.kind, cells.levels)).encode(), np.uint8)
        yield cells.values


def _levels(part: Part) -> np.ndarray:
    """The levels of a part as an array to be picked from."""
    out = np.empty(len(part.levels), object)
    out[:] = part.levels
    return out
