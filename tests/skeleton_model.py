"""The direction of largest variance: a model to copy, complete in one file.

    maximise  u^T C u   over ||u|| = 1,    C = sum_i w_i (x_i - m)(x_i - m)^T,    m the weighted
    mean

Method: power iteration, u <- C u / ||C u||; the part of u outside the leading direction shrinks by
l_2 / l_1 at each step. What the certificate proves: with l = u^T C u and r = C u - l u, some
eigenvalue of C lies within ||r|| of l (Weinstein), so (l, u) is an eigenpair up to ``||r|| / l``.
This is stationary: a start without any part in the leading direction would end at another
eigenvector.

A chapter's file has these rooms in this order: the formula above, the options and the pure solver,
its evidence, the estimator.

Reference: R. von Mises and H. Pollaczek-Geiringer, "Praktische Verfahren der Gleichungsauflösung",
ZAMM 9 (1929).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.errors import InputError
from eckart.factors import Basis, signs
from eckart.fit import Estimator, Fit, one_kind_of_names, sample_weights
from eckart.io.read import read
from eckart.parameters import check, number, param, whole
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher, progress, silent


class Options(NamedTuple):
    """What the solver needs, resolved from the estimator's parameters: the user's own are never
    rewritten."""

    tol: float
    max_iter: int


def solve(
    x: Any, options: Options, *, engine: Any, rng: np.random.Generator, watch: Watcher = silent
) -> Fit:
    """The loop: it decides when to stop and keeps the trace. ``x`` is placed; only the engine
    touches its entries, n and n x 1 numbers come back."""
    trace = Trace("relative residual", reason=StopReason.MAX_ITER)
    with engine.at_work():
        moments = engine.column_moments(x)
        u = rng.standard_normal((x.shape[1], 1)).astype(x.dtype)
        u /= np.linalg.norm(u)
        for step in range(options.max_iter):
            image = engine.gram_times(x, u, moments.mean)
            size = float(np.linalg.norm(image))
            if size == 0:  # constant rows: every direction is as good
                trace.reason = StopReason.DIRECT
                break
            trace.add(float(np.linalg.norm(image - u * (u.T @ image))) / size)
            watch("steps", step, options.max_iter)
            if trace.values[-1] <= options.tol:
                trace.reason = StopReason.CONVERGED
                break
            u = image / size
        u *= signs(u.T)[0]
        certificate, scatter = certify(x, u, moments.mean, options.tol, engine)
    total = float(np.sum(moments.square))
    rest = max(total - scatter, 0.0) / max(1, (len(u) - 1) * moments.weight)
    basis = Basis(
        moments.mean.astype(x.dtype),
        u.T.astype(x.dtype),
        np.array([scatter]),
        total,
        rest,
        moments.weight,
        moments.rows,
        columns=x.columns,
    )
    return Fit(basis, certificate, trace, {"engine": engine.name, "solver": "power iteration"})


def certify(
    x: Any, u: np.ndarray, mean: np.ndarray, tol: float, engine: Any
) -> tuple[Certificate, float]:
    """Measured at the returned point, from placed data and factors alone; what was not measured is
    absent."""
    image = engine.gram_times(x, u, mean).astype(np.float64)
    scatter = float((u.T @ image)[0, 0])
    away = float(np.linalg.norm(image - scatter * u))
    # ten roundings of a sum of n products, where the tolerance asks for less
    limit = max(tol, 10 * len(u) * float(np.finfo(u.dtype).eps))
    checks = (
        Check(
            "residual",
            away / scatter if scatter > 0 else 0.0,
            limit,
            "distance from an eigenpair, relative",
        ),
    )
    return Certificate(
        "direction of largest variance", "stationary", checks, {"scatter": scatter}
    ), scatter


@dataclass(eq=False, repr=False)
class LeadingDirection(Estimator):
    """The direction of largest variance: maximise u^T C u over ||u|| = 1, by power iteration.

    Parameters
    ----------
    tol : float
        Stop when ||C u - l u|| <= tol ||C u||.
    max_iter : int
        Most steps.
    random_state, engine, n_threads, verbose
        Seed of the start; what does the arithmetic; most threads (the result does not depend on
        it); progress bars.

    Attributes
    ----------
    fit_, certificate_
        Basis, certificate (stationary: residual of an eigenpair), trace, plan.
    components_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> X = np.array([[2.0, 1.0], [4.0, 2.1], [6.0, 2.9], [8.0, 4.0]])
    >>> model = LeadingDirection(random_state=0).fit(X)
    >>> model.components_.round(3).tolist(), model.certificate_.holds
    ([[0.898, 0.44]], True)
    """

    tol: float = param(1e-6, number(0, above=True))
    max_iter: int = param(1000, whole(1))

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> LeadingDirection:
        """Door, put, solve, store; nothing is stored before all of it went well."""
        check(self)
        matrix = one_kind_of_names(read(X))
        if matrix.shape[0] is None:
            raise InputError("X is read in blocks of rows, wanted rows in memory")
        engine, weights = self._engine(), sample_weights(sample_weight, matrix.shape[0])
        with progress(bool(self.verbose)) as watch:
            how = {"engine": engine, "rng": generator(self.random_state), "watch": watch}
            fit = solve(engine.put(matrix, weights), Options(self.tol, self.max_iter), **how)
        self._store(fit, {})
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Codes (x - m)^T u of new rows."""
        matrix, engine, f = self._new_rows(X), self._engine(), self.fit_.factors
        return engine.get(engine.times(engine.put(matrix), f.components.T, f.mean))

    def certify(self, X: Any, sample_weight: Any = None) -> Certificate:
        """Measure the certificate again, from this model and data."""
        matrix, engine, f = self._new_rows(X), self._engine(), self.fit_.factors
        placed = engine.put(matrix, sample_weights(sample_weight, matrix.shape[0] or 0))
        return certify(placed, f.components.T, f.mean, self.tol, engine)[0]

    @property
    def components_(self) -> np.ndarray:
        """u as a row."""
        return self._fitted("components_").factors.components
