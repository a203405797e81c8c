"""Bayesian matrix factorization: the posterior of a completed matrix by Gibbs sampling, with an
uncertainty for every cell.

    a_ij = mean + b_i + c_j + u_i.v_j + noise

with learned normal priors on (u_i, b_i) and (v_j, c_j) and learned noise (``chain``), on request
with features of who observed what (``features``). The sampler is in ``gibbs``, what it leaves
behind in ``posterior``. What the certificate says (``evidence``): the chains agree with one another
(split R-hat), and the kept states are worth enough independent ones for the mean to be exact to a
share of the posterior deviation.

References: Salakhutdinov and Mnih 2008 (BPMF); Simm et al. 2017 (Macau); Rendle, Zhang and Koren
2019.
"""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri
from sklearn.utils.metaestimators import available_if

from eckart.certify.certificate import Certificate
from eckart.complete.bayes.evidence import certify
from eckart.complete.bayes.gibbs import solve
from eckart.complete.bayes.likelihood import LIKELIHOODS, loss_of
from eckart.complete.bayes.posterior import Posterior, cells_at_once
from eckart.complete.completer import Completer, of_levels
from eckart.complete.factors.majorise import encoded
from eckart.complete.featured import Featured
from eckart.complete.folding import is_matrix, limits
from eckart.complete.recommend import Explanation
from eckart.complete.side_information import (
    NO_SIDE_INFORMATION,
    SideInformation,
    fingerprint,
    moments,
)
from eckart.engines import engine_named
from eckart.errors import FileError, InputError, invalid
from eckart.factors import LowRank
from eckart.fit import Fit, fitted, plan_of, require_room
from eckart.io.models.checkpoint import resuming
from eckart.matrix import Observed
from eckart.parameters import file_name, one_of, optional, param, whole
from eckart.trace import StopReason, progress

CELLS = 2**14
"""Cells whose draws are held at once."""
SMALL = 10**7
"""Products of a sweep (entries times the square of a row's numbers) that one thread does within
milliseconds: too few to deal out."""


@dataclass(eq=False, repr=False)
class BayesianMF(Featured):
    """Fill in a partially observed matrix by the posterior mean of a Bayesian factorization, with
    an uncertainty for every cell.

    a_ij = mean + b_i + c_j + u_i.v_j + N(0, 1/alpha); priors of factors and biases are normal with
    learned mean and precision (Normal-Wishart), alpha is learned: there is no ridge to tune, and
    more components than needed do little harm.

    Parameters
    ----------
    n_components : k. With the bias a row has k + 1 numbers: 15, 31 or 63 fill the registers of a
        CPU, where 16, 32 or 64 cost up to a quarter more.
    n_samples : states kept over all chains (rounded up to a multiple of n_chains). More make the
        mean more exact and the model larger: it holds (rows + columns) k n_samples numbers.
    burn_in : sweeps before the first state is kept. None takes 200, and where the chains then do
        not agree (the certificate fails), they go on: all sweeps so far become the burn-in, and the
        states are drawn anew over as many sweeps again, up to 8 times the sweeps or half a minute
        of work; plan["sampling"] tells. With a number the sweeps are those that were asked for.
    thin : sweeps from one kept state to the next.
    n_chains : independent chains, side by side on threads; two or more let the certificate compare
        them. The mean over more chains predicts better than that over as many draws of one, since
        what is learned moves slowly from draw to draw.
    likelihood : "gaussian" (numbers), "probit" (yes and no as 1 and 0), "ordinal" (grades;
        thresholds are drawn too) or "poisson" (counts). Predictions, deviations and intervals are
        on the scale of the data, ``predict_proba`` gives the probabilities of yes/no and of grades.
        Without weights; counts with noise="common".
    noise : "common" (one variance), "row", "column" or "both": every row and column has a noise
        level of its own, learned with a common prior. Ratings gain by "row" and "both"; where
        errors of the largest entries count most, "common" is safer.
    tails : "normal", or "heavy": the priors of factors are t distributions, one for rows and one
        for columns, whose degrees of freedom are learned (up to 512, which is normal), so that some
        rows may be far from the others. With noise="both" errors were lower on all of four sets of
        ratings and answers, with "common" higher on three. With likelihood="gaussian".
    implicit_features : True lets the factors depend on which columns a row observes and which rows
        observe a column, whatever the values (SVD++ in both directions); "rows" or "columns" does
        so for one side. Attributes by id and the time of entries are given to ``fit``.
    clip : (low, high) for predictions, True (the observed range), False, or "auto": the observed
        range of a rating scale (few values, each many times). A prediction is the mean over the
        draws of values inside of it: near an end of the scale it lies further inside than the mean
        of all draws.
    checkpoint : file in which the state is kept after sweeps; the same fit resumes from it after a
        crash, with the same bits.
    random_state, n_threads, verbose : seed; most threads (the result does not depend on them);
        progress bars.
    engine : "auto", "cpu", "numpy", the name of another engine, or an engine: what the computation
        runs on.

    Attributes
    ----------
    fit_ : factors (``LowRank``: the posterior mean), certificate, trace, plan.
    posterior_ : all draws.
    certificate_, row_biases_, column_biases_, mean_, noise_variance_, n_iter_ : of the fit.

    The certificate (kind "statistical") holds when the chains have mixed (split R-hat <= 1.1) and a
    predicted mean is exact to 0.2 posterior standard deviations.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20)); a[0, 2], truth = np.nan, a[0, 2]
    >>> model = BayesianMF(2, n_samples=40, burn_in=50, thin=2, random_state=0).fit(a)
    >>> low, high = model.interval(0, 2)
    >>> bool(low[0] < truth < high[0]), model.certificate_.kind
    (True, 'statistical')

    References: Salakhutdinov and Mnih 2008; Simm et al. 2017; Rendle, Zhang and Koren 2019.
    """

    n_components: int = param(16, whole(1))
    _: KW_ONLY
    n_samples: int = param(100, whole(1))
    burn_in: int | None = param(None, optional(whole(0)))
    thin: int = param(4, whole(1))
    n_chains: int = param(2, whole(1))
    likelihood: Literal["gaussian", "probit", "ordinal", "poisson"] = param(
        "gaussian", one_of(*LIKELIHOODS)
    )
    noise: Literal["common", "row", "column", "both"] = param("common")
    tails: Literal["normal", "heavy"] = param("normal")
    implicit_features: Literal[True, False, "rows", "columns"] = param(False)
    clip: Any = param("auto")
    checkpoint: Any = param(None, file_name())

    posterior_: Posterior = field(init=False)
    _asked_bin: int | None = field(init=False, default=None)

    @fitted
    def noise_variance_(self) -> float:
        """Posterior mean of the noise variance of a typical cell."""
        self._fitted("noise_variance_")
        return float(self.posterior_.scale**2 * np.exp(self.posterior_.log_noise()).mean())

    @fitted
    def n_iter_(self) -> int:
        """Sweeps done by each chain."""
        return len(self._fitted("n_iter_").trace)

    def _solve(
        self,
        x: Observed,
        weights: np.ndarray | None,
        side_information: SideInformation = NO_SIDE_INFORMATION,
    ) -> Fit:
        features = self._check(x)
        engine = self._engine_for(x)
        fits = resuming(self, x, weights, ignored=("clip",), y=fingerprint(side_information))
        loss, whole = None, x
        if self.likelihood != "gaussian":
            if weights is not None:
                raise InputError(
                    f"weights need likelihood='gaussian', got likelihood={self.likelihood!r}"
                )
            loss = loss_of(self.likelihood, x)
            x = encoded(x, loss)
        with engine.at_work(), progress(self.verbose) as watch, fits as (memory, rng):
            factors, posterior, certificate, trace, sampling = solve(
                x,
                int(self.n_components),
                n_samples=self.n_samples,
                burn_in=self.burn_in,
                thin=self.thin,
                n_chains=self.n_chains,
                noise=self.noise,
                tails=self.tails,
                features=features,
                weights=weights,
                side_information=side_information,
                memory=memory,
                rng=rng,
                engine=engine,
                watch=watch,
                loss=loss,
                certify=partial(certify, x),
            )
        memory.end(trace)
        if trace.reason is not StopReason.INTERRUPTED and certificate.holds:
            trace.reason = StopReason.CONVERGED
        plan: dict[str, Any] = plan_of(engine) | {
            "solver": "gibbs",
            "noise": self.noise,
            "sweeps": len(trace),
            "samples": posterior.size,
        }
        if sampling:
            plan["sampling"] = sampling
        if loss is None and (low_high := limits(self.clip, whole)) is not None:
            plan |= {"clip": low_high, "clipped": "draws"}
        if posterior.loss is not None:
            plan["loss"] = posterior.loss.to_state()
            if posterior.thresholds is not None:
                plan["loss"]["thresholds"] = posterior.thresholds.mean(axis=0).tolist()
        self.posterior_, self.normaliser_ = posterior, None
        return Fit(factors, certificate, trace, plan)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        x = self._as_of_fit(self._with_all_rows(self._judged(X)))
        return certify(self._as_fitted(x), self._lowrank(), self.posterior_)

    def _as_fitted(self, x: Observed) -> Observed:
        return x if self.posterior_.loss is None else encoded(x, self.posterior_.loss)

    @available_if(of_levels)
    def predict_proba(
        self, rows: Any, columns: Any, *, unknown: str = "raise", time: Any = None
    ) -> np.ndarray:
        """The posterior probability of every level (``levels_``) at the cells (rows[p],
        columns[p]), cells x levels; for yes/no and for grades. ``time`` says when, as in
        ``predict``."""
        plain = super().predict_proba(rows, columns, unknown=unknown)
        return self._over_draws(plain, rows, columns, "probabilities", time)

    def _natural(self, rows: Any, columns: Any, unknown: str) -> np.ndarray:
        """What is not known is taken for what is expected of a new row or column."""
        out = super()._natural(rows, columns, unknown)
        if unknown == "mean":
            at, to = self._found(rows, columns)
            new, step = np.flatnonzero((at < 0) | (to < 0)), max(1, CELLS // self.posterior_.size)
            for a in range(0, len(new), step):
                part = new[a : a + step]
                out[part] = self.posterior_.of_new(self._lowrank(), at[part], to[part])
        return out

    def _over_draws(
        self, plain: np.ndarray, rows: Any, columns: Any, of: str, time: Any = None
    ) -> np.ndarray:
        """Means over the draws where row and column are known, ``plain`` elsewhere."""
        at, to = self._found(rows, columns)
        known, bins = np.flatnonzero((at >= 0) & (to >= 0)), self._bins(time, len(at))
        plain[known] = self._at_cells(
            self._lowrank(), at[known], to[known], of, None if bins is None else bins[known]
        )
        return plain

    def _at_cells(
        self,
        f: LowRank,
        i: np.ndarray,
        j: np.ndarray,
        of: str = "mean",
        bins: np.ndarray | None = None,
    ) -> np.ndarray:
        """Means over the draws of what the cells (i, j) of the factors (those of the model, or of
        new rows) are on the scale of the data."""
        new, step, clip = (
            f is not self._lowrank(),
            cells_at_once(f),
            self.fit_.plan.get("clip") or (-np.inf, np.inf),
        )
        out = []
        for a in range(0, max(1, len(i)), step):
            part = slice(a, a + step)
            drawn = self.posterior_.draws(
                f, i[part], j[part], None if bins is None else bins[part], new
            )
            if self.posterior_.loss is None:
                out.append(np.clip(drawn, *clip).mean(axis=1))
            else:
                out.append(self.posterior_.over_draws(drawn, None if new else i[part], j[part], of))
        return np.concatenate(out)

    def _reported_scores(
        self, f: LowRank, at: np.ndarray, best: np.ndarray, scores: np.ndarray, by: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """What ``predict`` says of the cells of the lists; lists by prediction are put in its
        order."""
        if "ranking" not in self.fit_.plan:
            return best, scores
        real = best >= 0
        cells, scores = (np.repeat(at, best.shape[1])[real.ravel()], best[real]), scores.copy()
        scores[real] = (
            self._at_cells(f, *cells) if self._by_draws() else self._clipped(f.at(*cells))
        )
        if by == "prediction":
            order = np.argsort(-scores, axis=1, kind="stable")
            best, scores = (
                np.take_along_axis(best, order, axis=1),
                np.take_along_axis(scores, order, axis=1),
            )
        return best, scores

    def _by_draws(self) -> bool:
        """Whether predictions are means over draws of something that is not linear: of a
        likelihood, or of values inside the range that ``clip`` asked for (models saved earlier clip
        the mean, and answer as they did)."""
        return self.posterior_.loss is not None or self.fit_.plan.get("clipped") == "draws"

    def _values(self, f: LowRank, rows: np.ndarray) -> np.ndarray:
        if not self._by_draws():
            return super()._values(f, rows)
        return self.posterior_.block(
            f, rows, new=f is not self._lowrank(), clip=self.fit_.plan.get("clip")
        )

    def _claimed(self, x: Observed) -> float | None:
        if self.likelihood != "gaussian" or "time" in self.fit_.plan or not x.nnz:
            return None
        at = np.unique(np.linspace(0, x.nnz - 1, min(x.nnz, CELLS)).astype(np.int64))
        rows = np.searchsorted(x.indptr, at, side="right") - 1
        # each row with the column of another entry: of a cell that was seen more is known
        others = np.roll(x.indices[at], len(at) // 2)
        _, of_mean, noise = self.posterior_.moments(self._lowrank(), rows, others, None)
        return float(np.mean(of_mean + noise))

    def predict(
        self,
        rows: Any,
        columns: Any = None,
        *,
        unknown: str = "raise",
        return_std: bool = False,
        row_features: Any = None,
        column_features: Any = None,
        time: Any = None,
    ) -> Any:
        """Posterior mean at the cells (rows[p], columns[p]), by id, of values inside the range that
        ``clip`` asked for; with ``return_std`` also the standard deviation of a new observation
        there.

        That deviation holds both what is not known about the cell and the noise; it is NaN where a
        row or column is unknown, since nothing was learned about it. With a matrix of new rows
        instead of ids, every cell of these rows. Ids that the fit did not know are predicted from
        their attributes where a frame in ``row_features`` or ``column_features`` has them; with
        ``unknown="mean"`` others are what the learned priors expect of a row or column of which
        nothing is known. ``time`` (one, or one for each cell) says when, for a model of ``fit(...,
        time=)``; without it the answer is the mean over the times of the row's own entries.
        """
        if row_features is not None or column_features is not None:
            model = self._extended(row_features, column_features)
            return model.predict(rows, columns, unknown=unknown, return_std=return_std, time=time)
        if (return_std or time is not None) and (columns is None or is_matrix(rows)):
            named = "return_std=True" if return_std else "time="
            raise InputError(f"{named} needs row and column ids: predict(rows, columns, {named})")
        mean = super().predict(rows, columns, unknown=unknown)
        drawn = self._by_draws() and columns is not None
        if drawn:
            mean = self._over_draws(mean, rows, columns, "mean", time)
        if not return_std and (time is None or drawn):
            return mean
        at, to = self._found(rows, columns)
        known, spread = (at >= 0) & (to >= 0), np.full(len(at), np.nan)
        bins = self._bins(time, len(at))
        now, of_mean, noise = self.posterior_.moments(
            self._lowrank(), at[known], to[known], None if bins is None else bins[known]
        )
        if bins is not None and not drawn:
            mean[known] = self._clipped(now)
        spread[known] = np.sqrt(of_mean + noise)
        return (mean, spread) if return_std else mean

    def explain(
        self, row: Any, column: Any, n: int = 10, *, time: Any = None, **features: Any
    ) -> Explanation:
        """The observed entries of the row that contributed most to the value predicted at (row,
        column), and what its other parts are.

        The value is that of ``predict``, the mean over draws inside the range of the values, while
        shares are those of the mean of a row: what lies between is part of ``base``. ``parts`` of
        the answer are history (entries and who-rated-what), attributes, time (for a model of
        ``fit(..., time=)``, at the time that is asked for) and bias: mean, biases, and what lies
        between.
        """
        model = (
            self._extended(features.get("row_features"), features.get("column_features"))
            if any(f is not None for f in features.values())
            else copy(self)
        )
        bins = self._bins(time, 1)
        model._asked_bin = None if bins is None else int(bins[0])
        sampling, loss = Completer.explain(model, row, column, n), model.posterior_.loss
        value = float(model.predict([row], [column], time=time)[0])
        if loss is not None:
            return replace(sampling, on_scale=value)
        more = value - sampling.prediction
        parts = sampling.parts and sampling.parts | {"bias": sampling.parts["bias"] + more}
        return replace(sampling, prediction=value, base=sampling.base + more, parts=parts)

    def _shares(
        self, f: LowRank, i: int, j: int, seen: np.ndarray, values: np.ndarray, weights: Any = None
    ) -> tuple[np.ndarray, float, dict[str, float]]:
        """What each observed entry of a row adds to the posterior mean of a cell, what is left, and
        its parts.

        In every draw the row's conditional mean is linear in its entries, u = A^-1 (L mu + sum_p
        w_p v_p (y_p - c_p)) with A = L + sum_p w_p v_p v_p^T; the shares are averaged over the
        draws.
        """
        side = None if self.features_ is None else self.features_.rows
        numbers = None if side is None else side.numbers[[i]]
        return self.posterior_.shares(f, i, j, seen, values, numbers, self._asked_bin)

    def deviation(
        self, rows: Any, columns: Any, *, noise: bool = True, time: Any = None
    ) -> np.ndarray:
        """Standard deviation at the cells: of a new observation, or (``noise=False``) of what is
        known about its mean."""
        i, j = self._cells(rows, columns)
        _, spread, own = self.posterior_.moments(self._lowrank(), i, j, self._bins(time, len(i)))
        return np.sqrt(spread + own) if noise else np.sqrt(spread)

    def interval(
        self, rows: Any, columns: Any, level: float = 0.9, *, time: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the intervals that hold a new observation at the cells with probability
        ``level``, clipped."""
        if not 0 < level < 1:
            raise invalid("level", level, "a probability between 0 and 1")
        i, j = self._cells(rows, columns)
        if self.posterior_.loss is not None:
            return self.posterior_.interval(self._lowrank(), i, j, level, self._bins(time, len(i)))
        mean, spread, noise = self.posterior_.moments(
            self._lowrank(), i, j, self._bins(time, len(i))
        )
        reach = ndtri(0.5 + 0.5 * level) * np.sqrt(spread + noise)
        low, high = self.fit_.plan.get("clip") or (-np.inf, np.inf)
        return np.clip(mean - reach, low, high), np.clip(mean + reach, low, high)

    def _bins(self, time: Any, cells: int) -> np.ndarray | None:
        """The bins of the times that are asked for; None for means over time."""
        if time is None:
            return None
        if self.posterior_.time is None:
            raise InputError("time= needs a model that was fitted with fit(..., time=)")
        numbers, _ = moments(np.atleast_1d(np.asarray(time)), self.fit_.plan.get("time") == "dates")
        if numbers.shape not in ((1,), (cells,)):
            raise invalid(
                "time", f"{numbers.size} times", f"one, or one for each of the {cells} cells"
            )
        return np.broadcast_to(
            np.searchsorted(self.posterior_.time.ends, numbers, side="right"), cells
        )

    def _folded(self, X: Any) -> tuple[LowRank, Observed]:
        x = self._aligned(X)
        engine = self._engine_for(x)
        with engine.at_work():
            return self.posterior_.fold(
                self._lowrank(), self._as_fitted(x), engine, self._numbers(x)
            )[0], x

    def _take_in(self, model: Completer, x: Observed, turned: bool) -> None:
        assert isinstance(model, BayesianMF)
        engine = self._engine_for(x)
        with engine.at_work():
            _, new = model.posterior_.fold(
                model._lowrank(), model._as_fitted(x), engine, model._numbers(x)
            )
        ids = model.row_ids
        at = ids.find(np.arange(ids.size, ids.size + x.shape[0]) if x.rows is None else x.rows)
        old = model.posterior_.rows
        super()._take_in(model, x, turned)
        after = replace(model.posterior_, rows=old.merged(new, at))
        if after.time is not None and not turned:
            after = replace(after, time=after.time.with_rows(at))
        self.posterior_ = after.flipped() if turned else after

    def _turned(self) -> BayesianMF:
        other = super()._turned()
        assert isinstance(other, BayesianMF)
        other.posterior_ = self.posterior_.flipped()
        return other

    def extra_state(self) -> dict[str, np.ndarray]:
        """The observed entries and the draws, for the model file."""
        arrays, values = self.posterior_.to_state()
        self.fit_.plan["posterior"] = values
        return super().extra_state() | {f"posterior.{name}": a for name, a in arrays.items()}

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        kept = {
            name.removeprefix("posterior."): a
            for name, a in arrays.items()
            if name.startswith("posterior.")
        }
        self.posterior_ = Posterior.from_state(kept, fit.plan["posterior"])
        super()._store(fit, arrays)
        for side, link in zip(
            self.features_ or (), (self.posterior_.rows.link, self.posterior_.columns.link)
        ):
            if side is not None and (link is None or link.shape[1] < side.encoding.width):
                raise FileError(
                    "a posterior came whose links have fewer coefficients than there are attributes"
                )
        time = self.posterior_.time
        if time is not None and (
            fit.plan.get("time") not in ("dates", "numbers")
            or time.own.shape[0] != len(self.observed_.indptr) - 1
        ):
            raise FileError(
                f"time must be {fit.plan.get('time')!r} and give the times of every row"
            )

    def _engine_for(self, x: Observed) -> Any:
        """One thread for a small matrix: dealing its rows out costs more than drawing them."""
        threads = 1 if x.nnz * (self.n_components + 1) ** 2 < SMALL else self.n_threads
        return engine_named(self.engine, threads)

    def _check(self, x: Observed) -> tuple[bool, bool]:
        """Refuse what cannot be done; returns for which sides features are used."""
        # each chain has its factors and the draws that it keeps
        kept = 2.0 * self.n_chains + self.n_samples
        require_room(
            "n_components", self.n_components, sum(x.shape) * float(self.n_components + 1) * kept
        )
        if x.nnz == 0:
            raise InputError("X must have at least one observed entry, got none")
        if self.likelihood == "poisson" and self.noise != "common":
            raise invalid(
                "noise", self.noise, "'common' with likelihood='poisson'", "its variance is its own"
            )
        if self.likelihood != "gaussian" and self.tails != "normal":
            raise invalid(
                "tails",
                self.tails,
                f"'normal' with likelihood={self.likelihood!r}",
                "use likelihood='gaussian' for heavy tails",
            )
        limits(self.clip, x)
        return self.implicit_features in (True, "rows"), self.implicit_features in (True, "columns")
