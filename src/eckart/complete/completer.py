"""Completer: what every completion model can do once it is fitted.

A model answers with B_ij = mean + c_j + t_j (b_i + s_i u_i^T v_j) (``factors.LowRank``) and keeps
the observed entries. Real ids are used throughout: labels of the data where it has them, positions
where it has none; an unknown id is refused, or answered by the mean when asked.

A subclass provides

    _solve(x: Observed, weights) -> Fit      the fit: LowRank factors of the shape and with the
    labels of x, in the units of x
    _fold_rule() -> RidgeRule                the penalty under which a new row is solved while the
    columns stay
    certify(X) -> Certificate                evidence measured from model and data alone
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from eckart.bases import TransformerMixin
from eckart.certify.certificate import Certificate
from eckart.complete.folding import entry_weights, is_matrix, put_observed
from eckart.complete.kept_entries import KeptEntries
from eckart.complete.new_rows import NewRows
from eckart.complete.normalise import Normaliser
from eckart.complete.plain_answers import Ridges, own_errors
from eckart.complete.recommend import Recommender
from eckart.engines.protocol import RidgeRule
from eckart.errors import FileError, InputError, invalid
from eckart.factors import LowRank
from eckart.fit import Fit, fitted, require_room
from eckart.io.tables.triples import observed
from eckart.matrix import Observed, squarable
from eckart.matrix_blocks import parts_of, some_rows
from eckart.parameters import check
from eckart.terms import Loss, loss_from, loss_or_none


def of_levels(model: Any) -> bool:
    """Whether the model is of yes/no or of grades: other models have no ``predict_proba``."""
    if getattr(loss_or_none(getattr(model, "loss", "squared")), "discrete", False) or getattr(
        model, "likelihood", "gaussian"
    ) in (
        "probit",
        "ordinal",
    ):
        return True
    raise AttributeError(
        f"{type(model).__name__} has no predict_proba: it predicts numbers; ALS and "
        "SoftImpute with loss='logistic' or 'ordered' and BayesianMF with "
        "likelihood='probit' or 'ordinal' have probabilities"
    )


class Completer(NewRows, Recommender, TransformerMixin, KeptEntries, ABC):
    """Shared verbs of ``ALS``, ``BayesianMF``, ``SVP``, ``SVT``, ``SoftImpute``, ``ExactRecovery``
    and the item models; see each of them."""

    normaliser_: Normaliser | None = None
    _solve: Callable[..., Fit]
    _fold_rule: Callable[[], RidgeRule]
    _demand: Any = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sql: str | None = None,
        weights: Any = None,
        rows: Any = None,
        columns: Any = None,
        values: Any = None,
        duplicates: str = "error",
        memory: Any = None,
    ) -> Self:
        """Fit to the observed entries of X.

        X is an ``Observed``, a dense array or frame with NaN where nothing was seen, a sparse
        matrix whose stored entries are the observations, or a table or file of triples with the
        names of its columns in ``rows=``, ``columns=`` and ``values=``. With ``sql=`` X is a
        database (see ``eckart.read``), and the answer of the query is such a table. ``weights`` (>=
        0, one for each entry: an array of the shape of X, or one number for each stored entry in
        row order) say how much each observation counts. ``memory`` (such as ``"4GB"``; None: most
        of what is free) is what the observations of a file may take: more than that is sorted into
        shards on the disk first.
        """
        check(self)
        x = self._entries(
            observed(
                X,
                sql,
                rows=rows,
                columns=columns,
                values=values,
                duplicates=duplicates,
                memory=memory,
            )
        )
        self._name_table(rows, columns, values)
        self._keep(self._solve(squarable(x), entry_weights(weights, x)), x)  # type: ignore[arg-type]
        return self

    def _keep(self, fit: Fit, x: Observed) -> None:
        """A fit that has been made becomes the model."""
        explicit = getattr(self, "feedback", "explicit") == "explicit"
        if explicit:
            fit.plan["ranking"] = "auto"
        self._take(fit, x)
        if explicit and "hidden entries" not in fit.plan and parts_of(x) is None:
            expected = self._ridges_of(x), self._claimed(x)
            # two threads of BLAS wait longer for each other than a small system takes
            with self._engine().at_work():
                errors = own_errors(fit.factors, x, *expected, loss=fit.plan.get("loss"))
            if errors:
                fit.plan["own entries"] = errors
        self._say_if_early(fit)

    def _ridges_of(self, x: Observed) -> Ridges | None:
        """Ridges of the codes of rows and columns, by which its free numbers are counted; None
        where these are unknown."""
        return None

    def _claimed(self, x: Observed) -> float | None:
        """The mean squared error that the model itself expects of other entries."""
        return None

    @abstractmethod
    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""

    def _take(self, fit: Fit, x: Observed) -> None:
        super()._take(fit, x)
        self._demand = None

    @fitted
    def certificate_(self) -> Certificate:
        """Evidence of the fit, with its error beside those of biases and of the mean: on hidden
        entries where the fit hid some, else on its own."""
        fit = self._fitted("certificate_")
        for name, what in (("hidden entries", "hidden"), ("own entries", "fitted")):
            errors = fit.plan.get(name)
            if isinstance(errors, dict):
                return fit.certificate.with_errors(errors, f"{errors['entries']:,} {what} entries")
        return fit.certificate

    def demand(self) -> Any:
        """What rows are likely to take up (``complete.demand.Demand``), learned from the observed
        entries once; ``recommend`` orders by it."""
        if self._demand is None:
            from eckart.complete.demand import Demand

            check_is_fitted(self)
            self._demand = Demand.of(self.observed_, engine=self.engine, n_threads=self.n_threads)
        return self._demand

    @fitted
    def row_biases_(self) -> np.ndarray | None:
        """b, one for each row (posterior means where the model is Bayesian); None without."""
        return self._lowrank().row_bias

    @fitted
    def column_biases_(self) -> np.ndarray | None:
        """c, one for each column; None without."""
        return self._lowrank().column_bias

    @fitted
    def mean_(self) -> float:
        """The mean that every prediction starts from."""
        return self._lowrank().mean

    def _lowrank(self) -> LowRank:
        check_is_fitted(self)
        factors = self.fit_.factors
        assert isinstance(factors, LowRank)
        return factors

    def predict(self, rows: Any, columns: Any = None, *, unknown: str = "raise") -> np.ndarray:
        """The model's values at the cells (rows[p], columns[p]), by id; one id on either side
        stands for all.

        ``unknown`` ids: ``"raise"`` (the default), ``"mean"`` (a new row gets mean + c_j, a new
        column mean + b_i, both new: the mean) or ``"nan"``. With a matrix of new rows instead of
        ids, every cell of these rows (see ``transform``, which keeps what was observed).
        """
        if columns is None:
            if not is_matrix(rows):
                return self._whole_rows(rows)
            f, x = self._folded(rows)
            return self._values(f, np.arange(x.shape[0]))
        return self._clipped(self._natural(rows, columns, unknown))

    def _natural(self, rows: Any, columns: Any, unknown: str) -> np.ndarray:
        """B at the cells, by id: the natural parameter where there is a loss."""
        if unknown not in ("raise", "mean", "nan"):
            raise invalid("unknown", unknown, "'raise', 'mean' or 'nan'")
        f = self._lowrank()
        if unknown == "raise":
            return f.at(*self._cells(rows, columns))
        at, to = self._found(rows, columns)
        known = (at >= 0) & (to >= 0)
        out = np.full(len(at), np.nan, f.dtype)
        out[known] = f.at(at[known], to[known])
        if unknown == "mean":
            out[~known] = f.mean
            if f.column_bias is not None:
                out[~known & (to >= 0)] += f.column_bias[to[~known & (to >= 0)]]
            if f.row_bias is not None:
                out[~known & (at >= 0)] += f.row_bias[at[~known & (at >= 0)]]
        return out

    def _loss(self) -> Loss | None:
        """The loss of the fit with its own parameters; None: squared error."""
        kept = self.fit_.plan.get("loss")
        return None if kept is None else loss_from(kept)

    @available_if(of_levels)
    def predict_proba(self, rows: Any, columns: Any, *, unknown: str = "raise") -> np.ndarray:
        """The probability of every level (``levels_``) at the cells (rows[p], columns[p]), cells x
        levels; for losses of yes/no and of grades."""
        self._lowrank()
        loss = self._loss()
        if loss is None or not loss.discrete:  # set_params after the fit
            raise InputError(
                "predict_proba needs a model of yes/no or of grades, got one that was fitted to "
                "numbers. Fit it again."
            )
        return loss.probabilities(self._natural(rows, columns, unknown).astype(np.float64))

    @fitted
    def levels_(self) -> np.ndarray:
        """What the columns of ``predict_proba`` stand for."""
        self._fitted("levels_")
        loss = self._loss()
        if loss is None or not loss.discrete:
            raise AttributeError("levels_ belong to models of yes/no or of grades")
        return np.asarray(getattr(loss, "levels", (0.0, 1.0)))

    def _clipped(self, block: np.ndarray) -> np.ndarray:
        """Predictions on the scale of the data, inside the range that ``clip`` asked for."""
        loss = self._loss()
        if loss is not None:
            block = loss.mean(block).astype(block.dtype, copy=False)
        low_high = self.fit_.plan.get("clip")
        return block if low_high is None else np.clip(block, *low_high, out=block)

    def _values(self, f: LowRank, rows: np.ndarray) -> np.ndarray:
        """Predictions for whole rows of the factors (those of the model, or new ones)."""
        return self._clipped(f.block(rows))

    def _whole_rows(self, rows: Any) -> np.ndarray:
        f, ids = self._lowrank(), np.atleast_1d(np.asarray(rows))
        try:
            return self._values(f, self.row_ids.indices_of(ids))
        except InputError as error:
            if ids.dtype.kind != "f":
                raise
            raise InputError(
                f"{error}. Reshape your data with X.reshape(1, -1) if it is one new row"
            ) from None

    def complete(
        self, rows: Any = None, *, keep: bool = True, block_bytes: int = 2**25
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The completed matrix as blocks ``(row ids, values)``, so that n x m numbers are never
        held at once.

        ``keep`` puts observed entries in place of the model's values; ``rows`` chooses rows by id.
        """
        f, x = self._lowrank(), self.observed_
        at = np.arange(f.shape[0]) if rows is None else self.row_ids.indices_of(rows)
        step = max(1, block_bytes // max(1, f.n * f.dtype.itemsize))
        for a in range(0, len(at), step):
            part = at[a : a + step]
            block = self._values(f, part)
            if keep:
                put_observed(block, *some_rows(x, part))
            yield self.row_ids.names(part), block

    def impute(self, X: Any = None) -> np.ndarray:
        """The data of the fit with their unknown entries filled in, rows x columns; of new rows X
        the same as ``transform``. ``complete`` gives blocks."""
        if X is not None:
            return np.asarray(self.transform(X))
        n, m = self._lowrank().shape
        require_room(
            "X",
            f"data of {n:,} x {m:,}",
            float(n) * m,
            instead="read complete(), which gives blocks",
        )
        return np.concatenate([block for _, block in self.complete()])

    def transform(self, X: Any) -> np.ndarray:
        """New rows with their unknown entries filled in: each row is solved while the columns stay
        (fold-in); what was observed is kept."""
        folded, x = self._folded(X)
        filled = self._values(folded, np.arange(x.shape[0]))
        put_observed(filled, x, np.arange(x.shape[0]))
        return filled

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The columns of the data: a completed row has all of them."""
        f = self._lowrank()
        if f.columns is not None:
            return np.asarray([str(c) for c in f.columns], object)
        return np.asarray(
            [f"x{j}" for j in range(f.n)] if input_features is None else input_features, object
        )

    def extra_state(self) -> dict[str, np.ndarray]:
        """The observed entries and the normaliser, for the model file."""
        state = super().extra_state()
        if self.normaliser_ is not None:
            arrays, values = self.normaliser_.to_state()
            state |= {f"normaliser.{name}": a for name, a in arrays.items()}
            self.fit_.plan["normaliser"] = values | {"shape": list(values["shape"])}
        self.fit_.plan.pop("demand", None)
        if self._demand is not None:
            arrays, self.fit_.plan["demand"] = self._demand.to_state()
            state |= arrays
        return state

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        f = fit.factors
        assert isinstance(f, LowRank)
        x = self._entries_of(arrays, f, "factors of")
        prefix = "normaliser."
        kept = {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}
        for name, a in kept.items():
            if a.shape != ((f.shape[0] if name.startswith("row") else f.n),) or a.dtype.kind != "f":
                raise FileError(
                    f"a normaliser whose {name} has shape {a.shape} came with factors "
                    f"of shape {f.shape}"
                )
        values = fit.plan.get("normaliser")
        self.normaliser_ = None if values is None else Normaliser.from_state(kept, values)
        self._take(fit, x)
        self._loss()  # refused here where it is none
        if "demand.left" in arrays:
            from eckart.complete.demand import Demand

            how = {"engine": self.engine, "n_threads": self.n_threads}
            self._demand = Demand.from_state(x, arrays, fit.plan["demand"], how)
