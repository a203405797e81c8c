"""Robust principal components: a low-rank matrix beside a few entries that are wrong by any amount.

    minimise ||L||_* + lambda ||S||_1   subject to   L + S = X - 1 m^T at the observed entries

m holds the medians of the columns. Entries that were not observed cost nothing and are filled in by
L. With lambda = 1 / sqrt(p max(N, n)), p the observed share, the two parts are recovered exactly
where the rank is low and the wrong entries are few and scattered.

Method: alternating directions on the augmented Lagrangian. With the multiplier Y and a step mu,

    L <- shrink_(1/mu)(X - S + Y/mu)      singular values
    S <- soft_(lambda/mu)(X - L + Y/mu)   entries (all of the rest where nothing was observed)
    Y <- Y + mu (X - L - S)

What the certificate proves: every Y with ||Y||_2 <= 1 and |Y_ij| <= lambda, zero where nothing was
observed, bounds the objective of all other splits from below by <Y, X>. The objective is measured
at the returned L, with S the exact rest, so the gap between the two is that of the answer itself.

Reference: Candès, Li, Ma and Wright, "Robust principal component analysis?", J. ACM 58 (2011).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.certify.certificate import Certificate, Check
from eckart.decompositions import eigh, eigvalsh
from eckart.engines.protocol import first_bad
from eckart.engines.protocol.placed import infinite
from eckart.errors import FileError, InputError, invalid
from eckart.explained import explained_share
from eckart.factors import Basis, signs
from eckart.fit import Estimator, Fit, fitted, one_kind_of_names, plan_of, rows_to_fill
from eckart.io.models.checkpoint import NOTHING, Memory, resumed_trace, resuming
from eckart.io.read import read
from eckart.io.tables.missing import numeric
from eckart.matrix import Dense, Matrix, Observed
from eckart.parameters import check, either, file_name, flag, number, one_of, optional, param, whole
from eckart.reduce.basis_attributes import BasisAttributes
from eckart.reduce.charts import ComponentTables
from eckart.trace import StopReason, Trace, Watcher, progress

EVERY = 5
"""Iterations between two measures of the gap, each of which costs as much as an iteration."""
BALANCE = 10.0
"""Primal and dual residual may differ by this factor before the step is changed."""
ZERO = 1e-6
"""Share of the largest singular value of L up to which one is the rounding of the squares from
which it comes; the components left out hold less than a millionth of a millionth of the variance."""
LOOKS = 10
"""Steps of the power method for a gap that only decides when to measure it exactly."""
POWERS, MORE, NARROW = 2, 6, 0.25
"""Singular values from a start: steps, columns beside those of the start, and the share of the
smaller side up to which this is cheaper than all eigenvectors."""
ROW_STEPS, ROW_TOL = 500, 1e-7
"""Iterations for the codes of new rows, and the relative change at which they end."""


class SplitPoint(NamedTuple):
    """L = U diag(s) V^T, the multiplier Y, and what was measured."""

    u: np.ndarray
    s: np.ndarray
    vt: np.ndarray
    y: np.ndarray
    objective: float
    bound: float


def shrink_values(
    a: np.ndarray, tau: float, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s, V^T of the singular values of A above tau, each less tau.

    By the eigenvectors of the smaller of A A^T and A^T A: all that is dropped is below tau, and
    what is kept is far above the rounding of squares. With ``start``, the V of a matrix nearby, by
    ``POWERS`` steps of its span and some columns more, where these are few; the rest of them is
    found in the next iterations, and the certificate measures without them.
    """
    if a.shape[0] < a.shape[1] and start is None:
        v, s, ut = shrink_values(a.T, tau)
        return ut.T, s, v.T
    wide = 0 if start is None else start.shape[1] + MORE
    if start is not None and wide <= min(a.shape) * NARROW:
        rng = np.random.default_rng(wide)
        basis = np.hstack([start, rng.standard_normal((len(start), MORE))])
        for _ in range(POWERS):
            basis = np.linalg.qr(a.T @ (a @ basis))[0]
        image = a @ basis
        values, vectors = eigh(image.T @ image)
        size = np.sqrt(np.maximum(values[::-1], 0.0))
        k = int(np.count_nonzero(size > max(tau, ZERO * size[0])))
        if k < wide - 1:  # else there are more above tau than were looked for
            turn = vectors[:, ::-1][:, :k]
            return (image @ turn) / size[:k], size[:k] - tau, (basis @ turn).T
    if a.shape[0] < a.shape[1]:
        return shrink_values(a, tau)
    values, vectors = eigh(a.T @ a)
    size = np.sqrt(np.maximum(values[::-1], 0.0))
    k = int(np.count_nonzero(size > max(tau, ZERO * size[0])))
    v = vectors[:, ::-1][:, :k]
    return (a @ v) / size[:k], size[:k] - tau, v.T


def soft(a: np.ndarray, tau: float) -> np.ndarray:
    """sign(a) max(|a| - tau, 0)."""
    return a - np.clip(a, -tau, tau)


def largest_value(a: np.ndarray, exact: bool) -> float:
    """||A||_2; unless it has to be ``exact``, by ``LOOKS`` steps of the power method, from below."""
    if exact:
        gram = a @ a.T if a.shape[0] < a.shape[1] else a.T @ a
        return float(np.sqrt(max(eigvalsh(gram)[-1], 0.0)))
    v = np.random.default_rng(0).standard_normal(a.shape[1])
    for _ in range(LOOKS):
        v = a.T @ (a @ v)
        size = np.linalg.norm(v)
        if size == 0:
            return 0.0
        v /= size
    return float(np.linalg.norm(a @ v))


def measure(
    x: np.ndarray,
    mask: np.ndarray | None,
    lam: float,
    low: np.ndarray,
    s: np.ndarray,
    y: np.ndarray,
    exact: bool = True,
) -> tuple[float, float]:
    """The objective at L with S the exact rest, and the bound from below by the multiplier."""
    rest = x - low
    if mask is not None:
        rest *= mask
    objective = float(s.sum() + lam * np.abs(rest).sum())
    scale = max(1.0, largest_value(y, exact), float(np.abs(y).max(initial=0.0)) / lam)
    return objective, float(np.vdot(y, x)) / scale


def solve(
    x: np.ndarray,
    mask: np.ndarray | None,
    lam: float,
    tol: float,
    max_iter: int,
    watch: Watcher,
    memory: Memory,
) -> tuple[SplitPoint, Trace]:
    """Alternating directions until the relative gap is at most ``tol``; ``x`` holds zeros where
    ``mask`` is 0."""
    kept = memory.last()
    trace = resumed_trace("relative gap", kept and kept["trace"])
    trace.reason = StopReason.MAX_ITER
    total = float(np.abs(x).sum())
    low, sparse, y = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    mu = x.size / (4 * total) if total else 1.0
    best: SplitPoint | None = None
    begin, start = 0, None
    if kept is not None:
        begin, mu, start = kept["step"], kept["mu"], kept["start"]
        sparse, y = kept["sparse"], kept["y"]
        best = SplitPoint(*kept["best"]) if kept["best"] is not None else None
    step = begin
    try:
        for step in range(begin, max_iter):
            memory.offer(
                {
                    "trace": (trace.values, trace.seconds),
                    "step": step,
                    "mu": mu,
                    "start": start,
                    "sparse": sparse,
                    "y": y,
                    "best": None if best is None else list(best),
                }
            )
            u, s, vt = shrink_values(x - sparse + y / mu, 1 / mu, start)
            start = vt.T
            low = (u * s) @ vt
            before = sparse
            rest = x - low + y / mu
            sparse = soft(rest, lam / mu)
            if mask is not None:
                sparse = np.where(mask > 0, sparse, rest)
            away = x - low - sparse
            y = y + mu * away
            if mask is not None:
                y *= mask
            if step % EVERY == EVERY - 1 or step == max_iter - 1:
                last = step == max_iter - 1
                objective, bound = measure(x, mask, lam, low, s, y, exact=last)
                if objective - bound <= tol * objective and not last:
                    objective, bound = measure(x, mask, lam, low, s, y)
                gap = (objective - bound) / objective if objective > 0 else 0.0
                if best is None or objective - bound < best.objective - best.bound:
                    best = SplitPoint(u, s, vt, y, objective, bound)
                trace.add(gap)
                watch("steps", step + 1, max_iter)
                if gap <= tol:
                    trace.reason = StopReason.CONVERGED
                    break
            primal, dual = np.linalg.norm(away), mu * np.linalg.norm(sparse - before)
            # a step that suits both residuals; changed ever more rarely, so that it settles
            if step < max_iter // 2 and step % (1 + step // 10) == 0:
                if primal * mu > BALANCE * dual:
                    mu *= 1.5
                elif dual > BALANCE * primal * mu:
                    mu /= 1.5
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    if best is None:
        best = SplitPoint(*shrink_values(low, 0.0), y, 0.0, 0.0)
    objective, bound = measure(x, mask, lam, (best.u * best.s) @ best.vt, best.s, best.y)
    return best._replace(objective=objective, bound=bound), trace


def certify(found: SplitPoint, tol: float, facts: dict[str, float]) -> Certificate:
    """Evidence that no other split has a lower objective."""
    gap = (found.objective - found.bound) / found.objective if found.objective > 0 else 0.0
    vt = found.vt
    checks = (
        # a hundred roundings: the gap is a difference of two sums over all entries
        Check("gap", max(gap, 0.0), max(tol, 1e-13), "objective above a proven bound, relative"),
        Check(
            "orthonormality",
            float(np.abs(vt @ vt.T - np.eye(len(vt))).max(initial=0.0)),
            1e-8,
            "largest entry of |V^T V - I|",
        ),
    )
    facts = facts | {"objective": found.objective, "bound": found.bound}
    return Certificate(
        "split into low rank and few wrong entries: min ||L||_* + lambda ||S||_1",
        "global",
        checks,
        facts,
    )


@dataclass(eq=False, repr=False)
class RobustPCA(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BasisAttributes, ComponentTables, Estimator
):
    """Principal components of data in which some entries are wrong by any amount: X = mean + L + S,
    L of low rank and S sparse (principal component pursuit).

    Parameters
    ----------
    n_components : "auto", None or int
        How many components of L are kept; "auto" and None keep all of them.
    l1 : None or float
        lambda, the price of a wrong entry; None is 1 / sqrt(p max(N, n)), p the observed share.
        A smaller one calls more entries wrong. It has no unit.
    center : bool
        Whether the median of each column is taken out first.
    tol : float
        Stop when the objective is proven to be within this share of the least.
    max_iter : int
        Most iterations.
    checkpoint : None or path
        File in which the state is kept; the same fit resumes from it after a crash.
    random_state, engine, n_threads, verbose
        As in ``PCA``; nothing here is random.

    Attributes
    ----------
    low_rank_ : array, rows x columns
        mean + L for the rows of the fit, complete also where entries were missing.
    sparse_ : sparse array, rows x columns
        S: what is wrong with each entry.
    components_, mean_, explained_variance_, explained_variance_ratio_, singular_values_
        Of L, about the medians.
    fit_, certificate_
        All of the fit; the certificate is global: no other split has a lower objective.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> clean = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 30))
    >>> X = clean.copy()
    >>> wrong = rng.random(X.shape) < 0.05
    >>> X[wrong] += 20 * rng.choice([-1, 1], wrong.sum())
    >>> model = RobustPCA(center=False).fit(X)
    >>> len(model.components_), bool(np.abs(model.low_rank_ - clean).max() < 0.01)
    (2, True)
    >>> bool(((abs(model.sparse_) > 1).toarray() == wrong).all()), model.certificate_.holds
    (True, True)

    References
    ----------
    E. J. Candès, X. Li, Y. Ma and J. Wright, "Robust principal component analysis?", J. ACM 58
    (2011).
    """

    n_components: Any = param(None, either(one_of("auto", None), whole(1)))
    _: KW_ONLY
    l1: float | None = param(None, optional(number(0, above=True)))
    center: bool = param(True, flag())
    tol: float = param(1e-4, number(0, 1, above=True))
    max_iter: int = param(1000, whole(1))
    checkpoint: Any = param(None, file_name())

    rotation_: ClassVar[None] = None  # type: ignore[misc]
    _split: tuple[tuple[np.ndarray, np.ndarray], sp.csr_array] = field(init=False)
    """Codes of the rows of the fit with all directions of L, and S."""

    def fit(self, X: Any, y: Any = None) -> RobustPCA:
        """Fit to rows of X: array, frame, sparse matrix or file; NaN and what was not observed is
        filled in."""
        check(self)
        matrix = one_kind_of_names(read(X))
        values, mask = whole_matrix(matrix)
        if isinstance(self.n_components, int) and self.n_components > min(values.shape):
            rule = f"an int from 1 to {min(values.shape)}"
            raise invalid("n_components", self.n_components, rule, "lower it")
        mean = medians(values, mask) if self.center else np.zeros(values.shape[1])
        rest, unit = scaled(values, mask, mean)
        share = 1.0 if mask is None else float(mask.mean())
        lam = float(self.l1 or 1 / np.sqrt(max(share * max(values.shape), 1.0)))
        with progress(bool(self.verbose)) as watch, resuming(self, matrix) as (memory, _):
            found, trace = solve(rest, mask, lam, self.tol, self.max_iter, watch, memory)
            self._store(*self._fit_of(found, trace, rest, mask, unit, mean, lam, matrix))
        self._say_if_early(self.fit_)
        memory.end(trace)
        return self

    def _fit_of(
        self,
        found: SplitPoint,
        trace: Trace,
        rest: np.ndarray,
        mask: np.ndarray | None,
        unit: float,
        mean: np.ndarray,
        lam: float,
        matrix: Matrix,
    ) -> tuple[Fit, dict[str, np.ndarray]]:
        """The fit in the unit of the data, and what a model file holds beside its basis."""
        wrong = rest - (found.u * found.s) @ found.vt
        if mask is not None:
            wrong *= mask
        # what is left of right entries is the accuracy of the answer, not an error of the data
        wrong[np.abs(wrong) <= self.tol * float(np.abs(rest).max(initial=0.0))] = 0.0
        k = len(found.s)
        if isinstance(self.n_components, int):
            k = min(self.n_components, k)
        sign = signs(found.vt)
        codes = found.u * (found.s * sign * unit)
        scatter = (found.s * unit) ** 2
        rows = len(rest)
        left = float(scatter[k:].sum()) / max(1, (rest.shape[1] - k) * max(rows - 1, 1))
        dtype = matrix.dtype if matrix.dtype.kind == "f" else np.dtype(np.float64)
        basis = Basis(
            mean.astype(dtype),
            (found.vt * sign[:, None])[:k].astype(dtype),
            scatter[:k],
            float(scatter.sum()),
            left,
            float(rows),
            rows,
            centered=False,  # about medians: means of data with wrong entries are others
            columns=matrix.columns,
        )
        sparse = sp.csr_array(wrong * unit)
        observed = mask.sum() if mask is not None else wrong.size
        plan = (
            plan_of(self._engine())
            | {
                "solver": "alternating directions",
                "reason": "low rank and few wrong entries",
                "l1": lam,
                "rank of L": len(found.s),
            }
            | ({} if mask is None else {"gaps": int(mask.size - mask.sum())})
        )
        facts = {
            "captured variance": float(basis.variances.sum()),
            "total variance": float(basis.total / basis.degrees),
            "share of wrong entries": sparse.nnz / max(1, observed),
        }
        fit = Fit(basis, certify(found, self.tol, facts), trace, plan)
        return fit, {
            "codes": codes,
            "directions": found.vt * sign[:, None],
            "sparse.data": sparse.data,
            "sparse.indices": sparse.indices.astype(np.int64),
            "sparse.indptr": sparse.indptr.astype(np.int64),
        }

    def transform(self, X: Any) -> np.ndarray:
        """Codes of rows: those of the least sum of absolute errors over the observed entries, so
        that wrong entries do not move them."""
        values, mask = whole_matrix(self._new_rows(X))
        b = self.fit_.factors
        codes = codes_of(values - b.mean, mask, b.components.astype(np.float64))
        return codes.astype(b.components.dtype)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """mean + codes V^T."""
        b = self._fitted("inverse_transform").factors
        codes = numeric(np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X))
        if codes.ndim != 2 or codes.shape[1] != b.k:
            raise InputError(f"codes must have shape (rows, {b.k}), got {codes.shape}")
        return b.decode(codes)

    def impute(self, X: Any = None) -> np.ndarray:
        """X with its missing entries filled in by L; observed ones stay as they are."""
        values, mask = whole_matrix(self._new_rows(rows_to_fill(self, X)))
        if mask is None:
            return values
        return np.where(mask > 0, values, self.inverse_transform(self.transform(X)))

    def score(self, X: Any, y: Any = None) -> float:
        """The share of the squares of X about the medians that the reconstruction explains."""
        return explained_share(
            self._new_rows(X),
            lambda part: self.inverse_transform(self.transform(part)),
            centred=self.center,
        )

    def _plain_codes(self, X: Any) -> np.ndarray:
        return self.transform(X)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and the data of its fit: the objective at
        its L, against a bound that is found anew."""
        values, mask = whole_matrix(self._new_rows(X))
        (codes, directions), lam = self._split[0], float(self.fit_.plan["l1"])
        if len(values) != len(codes):
            raise invalid("X", f"{len(values)} rows", f"the {len(codes)} rows of the fit")
        rest, unit = scaled(values, mask, np.asarray(self.fit_.factors.mean, np.float64))
        with progress(bool(self.verbose)) as watch:
            y = solve(rest, mask, lam, self.tol, self.max_iter, watch, NOTHING)[0].y
        size = np.linalg.norm(codes, axis=0) / unit
        u = codes / np.where(size > 0, size * unit, 1.0)
        measured = measure(rest, mask, lam, (u * size) @ directions, size, y)
        facts = {
            name: self.fit_.certificate.facts[name]
            for name in ("captured variance", "total variance", "share of wrong entries")
        }
        return certify(SplitPoint(u, size, directions, y, *measured), self.tol, facts)

    @fitted
    def low_rank_(self) -> np.ndarray:
        """mean + L of the rows of the fit."""
        mean = self._fitted("low_rank_").factors.mean
        codes, directions = self._split[0]
        return mean + codes @ directions

    @fitted
    def sparse_(self) -> Any:
        """S, as a sparse array."""
        self._fitted("sparse_")
        return self._split[1]

    def extra_state(self) -> dict[str, np.ndarray]:
        """What a model file holds beside the basis."""
        (codes, directions), sparse = self._split
        return {
            "codes": codes,
            "directions": directions,
            "sparse.data": sparse.data,
            "sparse.indices": sparse.indices.astype(np.int64),
            "sparse.indptr": sparse.indptr.astype(np.int64),
        }

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        codes, directions = arrays["codes"], arrays["directions"]
        rows, n = fit.factors.rows, fit.factors.n
        indptr, indices, data = (arrays[f"sparse.{part}"] for part in ("indptr", "indices", "data"))
        fits = (
            codes.ndim == directions.ndim == 2
            and codes.shape == (rows, len(directions))
            and directions.shape[1] == n
            and indptr.shape == (rows + 1,)
            and indices.shape == data.shape
            and indptr[0] == 0
            and indptr[-1] == len(data)
            and (np.diff(indptr) >= 0).all()
            and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < n))
        )
        if not fits:
            raise FileError("codes and wrong entries must be of the rows and columns of the model")
        self.fit_ = fit
        self._split = (codes, directions), sp.csr_array((data, indices, indptr), shape=(rows, n))


def whole_matrix(matrix: Matrix) -> tuple[np.ndarray, np.ndarray | None]:
    """The rows as one array of floats with zeros where an entry is missing, and 1 or 0 for observed
    or missing (None where all are observed)."""
    if matrix.shape[0] is None or not getattr(matrix, "in_memory", True):
        raise InputError(
            "X must be in memory for RobustPCA, got data in parts. Use PCA, which reads them block "
            "by block."
        )
    if isinstance(matrix, Dense):
        values = np.array(matrix.array, np.float64)
        bad = first_bad(values)
        if bad is not None and bad[0] == "inf":
            raise infinite(*bad[1:])
        missing = np.isnan(values)
        if not missing.any():
            return values, None
        values[missing] = 0.0
        return values, (~missing).astype(np.float64)
    part = matrix.to_scipy()
    values = part.toarray().astype(np.float64)
    if not isinstance(matrix, Observed):
        return values, None
    seen = part.copy()
    seen.data = np.ones_like(seen.data)
    mask = seen.toarray().astype(np.float64)
    return values, None if mask.all() else mask


def scaled(
    values: np.ndarray, mask: np.ndarray | None, mean: np.ndarray
) -> tuple[np.ndarray, float]:
    """What is left of the mean in units of the largest entry, zero where nothing was observed; and
    that unit."""
    unit = float(np.abs(values).max(initial=0.0)) or 1.0
    rest = (values - mean) / unit
    return (rest if mask is None else rest * mask), unit


def medians(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """The median of the observed entries of each column."""
    if mask is None:
        return np.median(values, axis=0)
    return np.array(
        [
            np.median(column[seen > 0]) if (seen > 0).any() else 0.0
            for column, seen in zip(values.T, mask.T)
        ]
    )


def codes_of(rest: np.ndarray, mask: np.ndarray | None, components: np.ndarray) -> np.ndarray:
    """argmin_c sum |r - V c| for each row r, by alternating directions with every row at a step of
    its own unit."""
    codes = np.zeros((len(rest), len(components)))
    seen = 1.0 if mask is None else mask
    unit = np.abs(rest * seen).mean(axis=1, keepdims=True)
    unit[unit == 0] = 1.0
    r = rest / unit
    sparse, y = np.zeros_like(r), np.zeros_like(r)
    for _ in range(ROW_STEPS):
        # entries that are missing take what the codes say
        target = r - sparse + y
        if mask is not None:
            target = np.where(mask > 0, target, codes @ components)
        before, codes = codes, target @ components.T
        fit = codes @ components
        sparse = soft(r - fit + y, 1.0)
        y = (y + r - fit - sparse) * seen
        change = np.abs(codes - before).max(initial=0.0)
        if change <= ROW_TOL * max(1.0, float(np.abs(codes).max(initial=0.0))):
            break
    return codes * unit
