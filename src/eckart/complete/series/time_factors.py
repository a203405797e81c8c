"""TimeFactors: tables of time series with gaps, completed and continued, with an uncertainty for
every cell (6.4).

    y_it = p_i(t mod P) + w_i.x_t + r_it + noise

x_t are factors that all rows share and that move as a vector autoregression, r_it is what a row has
for itself, an autoregression too, and p_i is its profile over a period (a day, a week), which is
learned where it is not given. The chain is in ``chain``, the sampler in ``gibbs``, the period in
``period``. What the certificate says: the chains agree with one another (split R-hat), and the kept
states are worth enough independent ones for the mean to be exact to a share of the posterior
deviation.

References: Yu, Rao and Dhillon 2016 (TRMF); Chen and Sun 2021 (BTMF); Durbin and Koopman 2012
(state space methods).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from eckart.certify.certificate import Certificate
from eckart.certify.chains import certify_chains
from eckart.complete.folding import limits, put_observed
from eckart.complete.kept_entries import KeptEntries
from eckart.complete.plain_answers import TOO_FREE, elsewhere, own_errors
from eckart.complete.series.gibbs import PROBES, solve, standardised
from eckart.complete.series.timeline import in_time, later, learned_period
from eckart.complete.tables.columns import SKEWED
from eckart.errors import FileError, InputError, invalid
from eckart.factors import Series
from eckart.fit import Fit, fitted, plan_of, require_room
from eckart.io.models.checkpoint import resuming
from eckart.io.tables.triples import observed
from eckart.matrix import Observed, squarable
from eckart.matrix_blocks import parts_of
from eckart.parameters import check, either, file_name, one_of, optional, param, whole
from eckart.trace import StopReason, progress

USUAL = 15
"""Shared factors, unless said: 5, 10 and 20 were within 2 % of one another on held-out entries of
the metro of Hangzhou, and 15 better than 7 by a quarter on those of the car parks of Birmingham."""
LIGHT = 1.4e8
"""Cells times squared numbers of a row that can be swept some 400 times in a minute; smaller tables
take more sweeps for each state."""
SHARING = 2
"""Rows for each of them: what fewer rows have in common, their own parts hold as well."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Observations that are expected in the next columns: mean, standard deviation, and the ends of
    their intervals, rows x steps each.

    ``columns`` go on from the labels of the table: positions, or numbers and times by their usual
    distance.
    """

    rows: np.ndarray
    columns: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float

    def to_table(self) -> dict[str, np.ndarray]:
        """Columns row, column, mean, std, low, high, one line for each cell."""
        n, steps = self.mean.shape
        cells = {name: getattr(self, name).ravel() for name in ("mean", "std", "low", "high")}
        return {"row": np.repeat(self.rows, steps), "column": np.tile(self.columns, n)} | cells


@dataclass(eq=False, repr=False)
class TimeFactors(KeptEntries):
    """Fill in and continue a table whose rows are time series: stations, sensors, shops, one column
    for each time.

    y_it = p_i(t mod P) + w_i.x_t + r_it + e_it. Factors x_t = A x_t-1 + noise are shared by all
    rows; r_it = phi_i r_i,t-1 + noise is what a row has for itself; p_i is its smooth profile over
    the period P; every row has its noise level. All of it is learned by Gibbs sampling, and
    whatever moves in time is drawn exactly as a chain. A hole at random is filled by what lies
    around it, a long gap of one row by the other rows and its profile.

    Parameters
    ----------
    n_components : the number of shared factors, at most one less than there are rows; 0: none. More
        than needed do little harm. "auto": 15, or half as many as there are rows where that is
        less.
    period : "auto" (learned from the entries), the number of columns after which a profile repeats,
        or None for no profile.
    n_samples : states kept over all chains (rounded up to a multiple of n_chains).
    burn_in : sweeps of each chain before the first state is kept. None takes 100, and where the
        predictions of the chains then do not agree (the certificate fails), they go on and keep
        more states, up to 4 times the sweeps or half a minute of work, if that may be enough;
        plan["sampling"] tells. With a number the sweeps are those that were asked for.
    thin : sweeps from one kept state to the next ("auto": 1, and up to 6 for small tables, which
        are swept quickly and mix slowly).
    n_chains : independent chains; two or more let the certificate compare them.
    clip : (low, high) for predictions and intervals, True (the observed range), False, "auto" (the
        observed range of a rating scale), or "bounds": what the values cannot leave. That is 0 from
        below where none is negative and some are 0, or their skewness is above 2 (rates, counts,
        amounts); and 1 or 100 from above where some are 0 and that is the largest (shares,
        percentages). Else there is no bound.
    checkpoint : file in which the state is kept after sweeps; the same fit resumes from it after a
        crash, with the same bits.
    random_state, engine, n_threads, verbose : seed; the engine; most threads (the result does not
        depend on them); progress bars.

    Attributes
    ----------
    fit_ : factors (``Series``), certificate, trace, plan.
    memory_ : phi of every row.
    certificate_, period_, noise_, n_iter_ : what the fit found.

    The certificate (kind "statistical") holds when the chains have mixed (split R-hat <= 1.1) and a
    mean is exact to 0.2 posterior standard deviations.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> day = np.sin(2 * np.pi * np.arange(120) / 12)
    >>> a = np.outer(rng.random(8) + 1, day) + 0.1 * rng.standard_normal((8, 120)); a[0, 40:60] = np.nan
    >>> model = TimeFactors(2, n_samples=10, burn_in=20, thin=1, n_chains=1, random_state=0).fit(a)
    >>> model.period_, bool(np.abs(model.predict(0, 45) - a[1:, 45].mean()) < 0.5), model.forecast(6).mean.shape
    (12, True, (8, 6))

    References: Yu, Rao and Dhillon 2016; Chen and Sun 2021.
    """

    n_components: Any = param("auto", either(one_of("auto"), whole(0)))
    _: KW_ONLY
    period: Any = param(
        "auto", either(one_of("auto", None), whole(1), wanted="'auto', None or an int >= 1")
    )
    n_samples: int = param(200, whole(1))
    burn_in: int | None = param(None, optional(whole(0)))
    thin: Any = param("auto", either(one_of("auto"), whole(1)))
    n_chains: int = param(2, whole(1))
    clip: Any = param("bounds")
    checkpoint: Any = param(None, file_name())

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sql: str | None = None,
        rows: Any = None,
        columns: Any = None,
        values: Any = None,
        duplicates: str = "error",
    ) -> Self:
        """Fit to the observed entries of X, whose columns are times.

        X is an ``Observed``, a dense array or frame with NaN where nothing was seen, or a table or
        file of triples with the names of its columns in ``rows=``, ``columns=`` (the time) and
        ``values=``; with ``sql=`` X is a database. Columns whose labels are numbers or times are
        put in order, and a column is added for each regular time that nobody observed; columns with
        other labels, or none, are taken in the order in which they come.
        """
        x = observed(X, sql, rows=rows, columns=columns, values=values, duplicates=duplicates)
        if parts_of(x) is not None:
            raise InputError(
                "X must be a table in memory, got parts (shards or a Dask collection): chains go "
                "through all times at once. Use BayesianMF or ALS."
            )
        self._name_table(rows, columns, values)
        self._take(*self._solve(squarable(x)))  # type: ignore[arg-type]
        self._say_if_early(self.fit_)
        return self

    def _solve(self, x: Observed) -> tuple[Fit, Observed]:
        x, time_order = in_time(x)
        k = self._check(x)
        engine = self._engine()
        period, why = self._period(x)
        thin = (
            int(np.clip(LIGHT // (x.shape[0] * x.shape[1] * (k + 8) ** 2), 1, 6))
            if self.thin == "auto"
            else self.thin
        )
        plan: dict[str, Any] = {
            **plan_of(engine),
            "solver": "gibbs",
            "period": period,
            "period_reason": why,
            "order": time_order,
            "components": k,
            "thin": thin,
        }
        with (
            engine.at_work(),
            progress(self.verbose) as watch,
            resuming(self, x, ignored=("clip",)) as (memory, rng),
        ):
            factors, certificate, trace, sampling = solve(
                x,
                k,
                period,
                n_samples=self.n_samples,
                burn_in=self.burn_in,
                thin=thin,
                n_chains=self.n_chains,
                engine=engine,
                rng=rng,
                certify=partial(certify, x),
                watch=watch,
                memory=memory,
            )
        if trace.reason is not StopReason.INTERRUPTED and certificate.holds:
            trace.reason = StopReason.CONVERGED
        memory.end(trace)
        plan |= {"sweeps": len(trace), "samples": len(factors.left)}
        if sampling:
            plan["sampling"] = sampling
        if (low_high := self._limits(x)) is not None:
            plan["clip"] = low_high
        return Fit(factors, certificate, trace, plan), x

    def _period(self, x: Observed) -> tuple[int, str]:
        if self.period != "auto":
            return (
                (1, "no period, as asked for")
                if self.period is None
                else (int(self.period), "as asked for")
            )
        return learned_period(standardised(x)[0])

    def _check(self, x: Observed) -> int:
        """Refuse what cannot be done; returns the number of factors."""
        check(self)
        n, columns = x.shape
        self._limits(x)
        if columns < 3:
            raise InputError(
                f"X must have at least 3 times, got n_features={columns} columns: nothing moves in "
                "fewer"
            )
        if self.period not in ("auto", None) and self.period >= columns:
            raise invalid("period", self.period, f"less than the {columns} columns of X, or 'auto'")
        if self.n_components != "auto":
            require_room(
                "n_components",
                self.n_components,
                float(self.n_components) * (n + columns) * self.n_samples,
                8,
            )
        k = (
            min(USUAL, n // SHARING)
            if self.n_components == "auto"
            else min(int(self.n_components), n - 1)
        )
        require_room(
            "n_samples",
            self.n_samples,
            (10.0 + 3 * self.n_chains) * n * columns + float(self.n_samples) * n * (k + 4),
            8,
        )
        return k

    def _limits(self, x: Observed) -> list[float] | None:
        """What predictions and intervals stay inside; None: nothing."""
        if isinstance(self.clip, str) and self.clip not in ("auto", "bounds"):
            raise invalid("clip", self.clip, "(low, high), True, False, 'auto' or 'bounds'")
        return (
            bounds_of(x.data)
            if isinstance(self.clip, str) and self.clip == "bounds"
            else limits(self.clip, x)
        )

    def _series(self) -> Series:
        check_is_fitted(self)
        factors = self.fit_.factors
        assert isinstance(factors, Series)
        return factors

    @fitted
    def period_(self) -> int:
        """The period in columns; 1: none."""
        self._fitted("period_")
        return self._series().period

    @fitted
    def memory_(self) -> np.ndarray:
        """Posterior mean of phi for every row: how much of its own deviation is left one column
        later."""
        self._fitted("memory_")
        return self._series().own[:, :, 0].mean(axis=0)

    @fitted
    def noise_(self) -> np.ndarray:
        """The standard deviation of an observation of every row around its mean."""
        self._fitted("noise_")
        return self._series().sigma

    @fitted
    def n_iter_(self) -> int:
        """Sweeps done, of all chains together."""
        return len(self._fitted("n_iter_").trace)

    def predict(
        self, rows: Any, columns: Any = None, *, unknown: str = "raise", return_std: bool = False
    ) -> Any:
        """Posterior mean at the cells (rows[p], columns[p]), by id, clipped; with ``return_std``
        also the standard deviation of a new observation there.

        ``unknown`` ids: ``"raise"`` (the default), ``"mean"`` (the mean of the observed entries) or
        ``"nan"``; the deviation is NaN there. Later times are answered by ``forecast``.
        """
        if unknown not in ("raise", "mean", "nan"):
            raise invalid("unknown", unknown, "'raise', 'mean' or 'nan'")
        f = self._series()
        if columns is None:
            raise InputError(
                "columns must be the times of the cells, one for each row, got None. The whole "
                "table is impute()."
            )
        i, j = self._cells(rows, columns) if unknown == "raise" else self._found(rows, columns)
        known = (i >= 0) & (j >= 0)
        absent = float(self.observed_.data.mean(dtype=np.float64)) if unknown == "mean" else np.nan
        mean, spread = np.full(len(i), absent, f.dtype), np.full(len(i), np.nan, f.dtype)
        mean[known] = f.at(i[known], j[known])
        if not return_std:
            return self._clipped(mean)
        spread[known] = f.deviation(i[known], j[known])
        return self._clipped(mean), spread

    def deviation(self, rows: Any, columns: Any, *, noise: bool = True) -> np.ndarray:
        """Standard deviation at the cells: of a new observation, or (``noise=False``) of what is
        known about its mean."""
        return self._series().deviation(*self._cells(rows, columns), noise)

    def interval(
        self, rows: Any, columns: Any, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the intervals that hold a new observation at the cells with probability
        ``level``, clipped."""
        reach = _reach(level)
        cells = self._cells(rows, columns)
        mean, spread = self._series().at(*cells), self._series().deviation(*cells)
        return self._clipped(mean - reach * spread), self._clipped(mean + reach * spread)

    def complete(
        self, rows: Any = None, *, keep: bool = True, block_bytes: int = 2**25
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The completed table as blocks ``(row ids, values)``; ``keep`` puts observed entries in
        place of the model's, ``rows`` chooses rows by id."""
        f = self._series()
        at = np.arange(f.shape[0]) if rows is None else self.row_ids.indices_of(rows)
        step = max(1, block_bytes // max(1, f.n * f.dtype.itemsize))
        for a in range(0, len(at), step):
            part = at[a : a + step]
            block = self._clipped(f.block(part))
            if keep:
                put_observed(block, self.observed_, part)
            yield self.row_ids.names(part), block

    def impute(self, X: Any = None) -> np.ndarray:
        """The table of the fit with its gaps filled in, rows x times."""
        self._series()
        if X is not None:
            raise InputError(
                "impute() fills in the table of the fit and takes no X. Fit another model to "
                "another table."
            )
        return np.concatenate([block for _, block in self.complete()])

    def forecast(self, steps: int, *, level: float = 0.9) -> Forecast:
        """The next ``steps`` columns: mean, standard deviation and the interval that holds an
        observation with probability ``level``."""
        f, reach = self._series(), _reach(level)
        if not whole(1).fits(steps):
            raise invalid("steps", steps, "an int >= 1")
        require_room("steps", steps, 8.0 * steps * f.shape[0])
        mean, std = f.ahead(int(steps))
        reach = f.dtype.type(reach)
        low, high = self._clipped(mean - reach * std), self._clipped(mean + reach * std)
        labels = later(f.columns, f.n, int(steps))
        return Forecast(
            self.row_ids.names(np.arange(f.shape[0])),
            labels,
            self._clipped(mean),
            std,
            low,
            high,
            float(level),
        )

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        f = self._series()
        x, _ = in_time(squarable(observed(X)))  # type: ignore[arg-type]
        return certify(self._as_of_fit(x), f)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The columns of the completed table, in the order of time."""
        f = self._series()
        return np.asarray(
            [f"x{j}" for j in range(f.n)] if f.columns is None else [str(c) for c in f.columns],
            object,
        )

    def _clipped(self, values: np.ndarray) -> np.ndarray:
        low_high = self.fit_.plan.get("clip")
        if low_high is None:
            return values
        low, high = map(float, low_high)  # a file has "inf" as a word
        return np.clip(values, low, high)

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        f = fit.factors
        if not isinstance(f, Series):
            raise FileError(f"factors must be a Series, got kind {type(f).__name__}")
        self._take(fit, self._entries_of(arrays, f, "a series of"))


def bounds_of(values: np.ndarray) -> list[float] | None:
    """What values cannot leave, as far as they show it: see ``TimeFactors.clip``. A bound that is
    far from all values changes nothing, one that may not be there (0 degrees, say) would hide what
    is possible; so it counts only where values lie on it, or crowd above it.

    >>> bounds_of(np.array([0.0, 3.0, 7.0])), bounds_of(np.array([0.0, 0.4, 1.0])), bounds_of(np.array([0.5, 7.0]))
    ([0.0, inf], [0.0, 1.0], None)
    """
    low, high = (float(end(values)) for end in (np.min, np.max)) if values.size else (0.0, 0.0)
    if low < 0 or low == high:
        return None
    if low == 0:
        return [0.0, high if high in (1.0, 100.0) else np.inf]
    away = (values.astype(np.float64) - values.mean(dtype=np.float64)) / values.std(
        dtype=np.float64
    )
    return [0.0, np.inf] if float((away**3).mean()) > SKEWED else None


def certify(x: Observed, f: Series) -> Certificate:
    """Mixing at random cells and of the noise, how the posterior mean fits the observed entries,
    and how it does beside biases and the mean."""
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    residual = x.data.astype(np.float64) - f.at(rows, x.indices)
    spread = f.deviation(rows, x.indices).astype(np.float64)
    facts = {
        "observed entries": x.nnz,
        "cells judged": PROBES,
        "RMSE on observed entries": float(np.sqrt(np.mean(residual**2))),
        "noise standard deviation": float(np.sqrt(np.mean(np.square(f.sigma, dtype=np.float64)))),
        "observed entries in their 90 % interval": float(
            np.mean(np.abs(residual) <= ndtri(0.95) * spread)
        ),
    }
    problem = "posterior mean of a table of time series"
    certificate = certify_chains(
        f.probes.astype(np.float64), f.levels.astype(np.float64), problem=problem, facts=facts
    )
    errors = own_errors(f, x, claimed=expected_elsewhere(x, f))
    return (
        certificate.with_errors(errors, f"{errors['entries']:,} fitted entries")
        if errors
        else certificate
    )


def expected_elsewhere(x: Observed, f: Series) -> float:
    """The mean squared error to expect of other entries. The free numbers of a posterior: for each
    entry the variance of its mean in units of the noise. Rows that follow their own entries so
    closely that these say nothing are judged by what is expected of the next column."""
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    with np.errstate(divide="ignore", invalid="ignore"):  # rows without noise
        free = np.square(
            f.deviation(rows, x.indices, noise=False) / f.sigma[rows], dtype=np.float64
        )
    share = float(free.mean())
    if share < TOO_FREE:
        residual = x.data.astype(np.float64) - f.at(rows, x.indices)
        return elsewhere(float(np.mean(residual**2)), share)
    return float(np.mean(np.square(f.ahead(1)[1][rows], dtype=np.float64)))


def _reach(level: float) -> float:
    """How many standard deviations an interval reaches to each side."""
    if (
        isinstance(level, bool)
        or not isinstance(level, (int, float, np.number))
        or not 0 < level < 1
    ):
        raise invalid("level", level, "a probability between 0 and 1")
    return float(ndtri(0.5 + 0.5 * float(level)))
