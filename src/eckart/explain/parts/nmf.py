"""Non-negative matrix factorization: a table as a sum of parts.

    minimise  D(A, W H) + penalties   over   W, H >= 0,     D = 1/2 ||A - W H||^2   or   sum a log(a
    / s) - a + s,  s = (W H)_ij

Nothing can be taken away again, so components become parts that add up (Lee and Seung 1999). With
the divergence, scaled so that rows of H and of W sum to 1, it is probabilistic latent semantic
analysis. The loop is in ``loop``, the half sweeps in ``sides``, the start in ``start``.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from eckart.arguments import held
from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.certify.certificate import Certificate
from eckart.certify.nonnegative import certify_parts
from eckart.engines.protocol import Placed
from eckart.errors import InputError
from eckart.explain.parts.consensus import Consensus, agree
from eckart.explain.parts.nmf_streams import StreamedParts, placed_and, read_once
from eckart.explain.parts.online import Stream
from eckart.explain.parts.options import NmfOptions, beta_of, options_of
from eckart.explain.parts.sides import sides_of
from eckart.explain.parts.solve import encode, solve
from eckart.explained import explained_share
from eckart.fit import Estimator, fitted, one_kind_of_names, sample_weights
from eckart.io.models.checkpoint import resuming
from eckart.io.read import read
from eckart.io.tables.missing import numeric
from eckart.matrix import Dense, Matrix, Observed, row_parts, squarable
from eckart.parameters import (
    Rule,
    check,
    either,
    file_name,
    flag,
    number,
    one_of,
    optional,
    param,
    starts,
    whole,
)
from eckart.trace import Trace, progress


class NormalForm(NamedTuple):
    """A ~ diag(totals) shares parts: rows of ``parts`` p(column | z) and of ``shares`` p(z | row)
    sum to 1 (to 0 where there is nothing)."""

    shares: np.ndarray
    parts: np.ndarray
    totals: np.ndarray


@dataclass(eq=False, repr=False)
class NMF(StreamedParts, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Non-negative factors W, H of dense, sparse or partly observed data, with a certificate.

    Minimises D(A, W H) + n a_W (r sum W + (1 - r)/2 ||W||^2) + N a_H (r sum H + (1 - r)/2 ||H||^2)
    over W, H >= 0 for N rows and n columns, a_W = ``alpha_W``, a_H = ``alpha_H``, r = ``l1_ratio``.
    NaN entries, and those absent from ``Observed``, are unknown: only observed entries count.
    Entries absent from a sparse matrix are zero.

    Parameters
    ----------
    n_components : int, "auto" or None
        k; "auto" and None take the number of columns.
    init : None, "nndsvd", "nndsvda", "random" or "custom"
        Start; "custom" takes W and H from ``fit_transform(X, W=, H=)``. None: "nndsvda", but
        "random" where k is larger than the rank of the data or entries are unknown.
    solver : "auto", "hals", "cd", "als", "mm" or "mu"
        Least squares: "hals" (coordinate descent with repeated inner sweeps, the first of them on a
        sketch of large data), "cd" (one inner sweep, as scikit-learn's), "als" (projected least
        squares, the plain method). Divergence: "mm" (over-relaxed multiplicative steps, taken back
        where they rise), "mu" (plain ones). "auto": "hals" or "mm".
    beta_loss : "frobenius" or "kullback-leibler" (also "kl")
    tol : float or None
        Residual of the optimality conditions at which the fit stops (its square is about the share
        of the objective that one more sweep could take off); None: 2e-3 for least squares, 1e-2 for
        the divergence.
    max_iter : most sweeps.
    alpha_W, alpha_H, l1_ratio : penalties; ``alpha_H="same"`` is ``alpha_W``. With unknown entries
        a small one keeps predictions from growing where little was seen.
    n_init : fits from several starts (the first from ``init``, others random); the best is kept and
        ``consensus_`` tells how far they agree.
    checkpoint : file in which the state is kept every few seconds; the same fit resumes from it
        after a crash, with the same bits.
    random_state, n_threads, verbose : seed; most threads (the result does not depend on them);
        progress bars.
    engine : "auto", "cpu", "numpy", or an engine of another package; what works on the data.
    shuffle : accepted for compatibility; coordinates are visited in order.

    Attributes
    ----------
    components_ (H), reconstruction_err_, n_iter_, n_components_, n_features_in_,
    feature_names_in_ : as in scikit-learn.
    fit_, certificate_ : all of the fit; the certificate measures how far min(entry, gradient) is
        from 0 in W and in H.
    consensus_ : agreement of the restarts (``Consensus``).

    Examples
    --------
    >>> a = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 1.0, 3.0], [1.0, 3.0, 3.0]])
    >>> model = NMF(2, random_state=0, tol=1e-6).fit(a)
    >>> round(float(model.reconstruction_err_), 4), model.certificate_.holds
    (0.0, True)
    >>> NMF(2, beta_loss="kl", random_state=0).fit(a).normal_form().parts.sum(axis=1).round(6).tolist()
    [1.0, 1.0]

    References
    ----------
    D. Lee and H. S. Seung, Nature 401 (1999); N. Gillis and F. Glineur, "Accelerated multiplicative
    updates and hierarchical ALS" (2012).
    """

    n_components: Any = param(
        "auto", either(whole(1), one_of("auto", None), wanted="an int >= 1, 'auto' or None")
    )
    _: KW_ONLY
    init: Literal[None, "nndsvd", "nndsvda", "nndsvdar", "random", "custom"] = param(None)
    solver: str = param("auto")
    beta_loss: Any = param(
        "frobenius",
        Rule(
            "'frobenius', 'kullback-leibler', 'itakura-saito' or a number (beta)",
            lambda v: beta_of(v) is not None,
        ),
    )
    tol: float | None = param(None, optional(number(0)))
    max_iter: int = param(200, whole(1))
    alpha_W: float = param(0.0, number(0))
    alpha_H: Any = param("same", either(number(0), one_of("same")))
    l1_ratio: float = param(0.0, number(0, 1))
    n_init: int = param(1, starts())
    shuffle: bool = param(False, flag())
    checkpoint: Any = param(None, file_name())

    _stream: Stream = field(init=False)
    _consensus: Consensus = field(init=False)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        W: Any = None,
        H: Any = None,
        weights: Any = None,
    ) -> NMF:
        """Fit to X: array, frame, sparse matrix, file or row blocks; NaN marks a missing entry.

        ``sample_weight`` weighs rows (2 is the row twice). ``weights`` weighs entries: an array of
        X's shape, 0 where an entry is not to count. Of an iterator, whose rows can be read one time
        only, the model keeps the codes of the last block; ``fit_transform`` returns those of all
        rows.
        """
        matrix, entry = self._read_rows(X, weights)
        if read_once(matrix):
            self._fit_blocks(matrix, lambda left: None)
            return self
        engine = self._engine()

        def do(x: Placed) -> Any:
            options = options_of(self, x, None if rows is None else float(rows.sum()), H)
            given = self._given(W, H, x, options)
            start = None if given is None else np.concatenate([part.ravel() for part in given])
            fits = resuming(self, matrix, _all_weights(rows, entry), y=start)
            with progress(bool(self.verbose)) as watch, fits as (memory, rng):
                ends = solve(
                    x, options, engine=engine, rng=rng, given=given, watch=watch, memory=memory
                )
            memory.end(ends.fit.trace)
            return ends

        rows = sample_weights(sample_weight, matrix.shape[0])
        ends = placed_and(engine, matrix, do, rows, entry)
        self.fit_ = ends.fit
        self._consensus = agree(ends)
        self.__dict__.pop("_stream", None)
        self._say_if_early(ends.fit)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, W: Any = None, H: Any = None
    ) -> np.ndarray:
        """W of the fit; with ``init="custom"`` it starts from the given W and H."""
        matrix = read(X)
        if read_once(matrix):  # codes of each block, by the H of that time
            done: list[np.ndarray] = []
            self._fit_blocks(self._read_rows(matrix, None)[0], done.append)
            return np.concatenate(done)
        return self.fit(X, sample_weight=sample_weight, W=W, H=H).fit_.factors.left

    def transform(self, X: Any) -> np.ndarray:
        """W for new rows, H fixed: min over W >= 0, row by row."""
        return self._codes(self._new_rows(X), self.fit_.factors.right)

    def _codes(self, matrix: Matrix, right: np.ndarray) -> np.ndarray:
        """W for rows, given H^T."""
        engine = self._engine()

        def do(x: Placed) -> np.ndarray:
            engine.totals(x)
            options = options_of(self, x)
            return np.ascontiguousarray(
                engine.get(encode(x, engine.take(right, x.dtype), options, engine))
            )

        if matrix.shape[0] is not None:
            return placed_and(engine, matrix, do)
        return np.concatenate([placed_and(engine, part, do) for part in row_parts(matrix)])

    def inverse_transform(self, X: Any) -> np.ndarray:
        """W H for given codes."""
        f = self._fitted("inverse_transform").factors
        codes = numeric(np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X))
        if codes.ndim != 2 or codes.shape[1] != f.k:
            raise InputError(f"codes must have shape (rows, {f.k}), got {codes.shape}")
        return codes @ f.right.T

    def score(self, X: Any, y: Any = None) -> float:
        """The share of the squares of X that W H explains, over its observed entries: 1 - ||X - W
        H||^2 / ||X||^2."""
        return explained_share(
            self._new_rows(X),
            lambda part: self.inverse_transform(self.transform(part)),
            centred=False,
        )

    def normal_form(self) -> NormalForm:
        """The factorization on the simplex: p(z | row), p(column | z), and the mass of every
        row."""
        f = self._fitted("normal_form").factors
        size = f.right.sum(axis=0, dtype=np.float64)
        parts = (f.right / np.where(size > 0, size, 1.0)).T.astype(f.right.dtype)
        mass = f.left * size
        totals = mass.sum(axis=1)
        shares = mass / np.where(totals > 0, totals, 1.0)[:, None]
        return NormalForm(shares.astype(f.left.dtype), parts, totals.astype(f.left.dtype))

    def certify(self, X: Any, sample_weight: Any = None, weights: Any = None) -> Certificate:
        """Measure the certificate again from this model and the data it was fitted to."""
        f = self._fitted("certify").factors
        self._new_rows(X)
        matrix, entry = self._read_rows(X, weights)
        if matrix.shape[0] != len(f.left):
            raise InputError(
                f"X must be the data that the model was fitted to, of {len(f.left)} rows, got "
                f"{matrix.shape[0]}"
            )
        rows = sample_weights(sample_weight, matrix.shape[0])
        engine = self._engine()

        def do(x: Placed) -> Certificate:
            options = options_of(self, x, None if rows is None else float(rows.sum()))
            sides = sides_of(x, options, engine)
            measured = sides.measured(
                *(engine.take(factor, x.dtype) for factor in (f.left, f.right))
            )
            return self._evidence(measured, self.fit_.trace, self.fit_.certificate.notes)

        return placed_and(engine, matrix, do, rows, entry)

    def _evidence(self, measured: Any, trace: Trace, notes: tuple[str, ...]) -> Certificate:
        """What was measured at W and H, as a certificate."""
        return certify_parts(measured, trace, notes)

    @fitted
    def components_(self) -> np.ndarray:
        """H, k x columns."""
        return self._fitted("components_").factors.right.T

    @fitted
    def n_components_(self) -> int:
        return self._fitted("n_components_").factors.k

    @fitted
    def n_iter_(self) -> int:
        """Sweeps over the data."""
        return int(self._fitted("n_iter_").plan["sweeps"])

    @fitted
    def reconstruction_err_(self) -> float:
        """sqrt(2 D): ||A - W H|| for least squares."""
        return float(np.sqrt(2 * self._fitted("reconstruction_err_").certificate["data term"]))

    @fitted
    def consensus_(self) -> Consensus:
        """How far the restarts of the last fit agree."""
        self._fitted("consensus_")
        if "_consensus" not in vars(self):
            raise AttributeError(
                "consensus_ is absent: the model was loaded from a file or fitted in "
                "blocks; call fit"
            )
        return self._consensus

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _read_rows(self, X: Any, weights: Any) -> tuple[Matrix, np.ndarray | None]:
        """The data, and one weight for each stored entry where entries are weighted."""
        matrix = squarable(one_kind_of_names(read(X)))
        if weights is None:
            return matrix, None
        w = numeric(np.asarray(weights))
        if w.shape != matrix.shape or not (np.isfinite(w) & (w >= 0)).all():
            raise InputError(
                f"weights must be a finite number >= 0 for each entry, of shape {matrix.shape}, got "
                f"shape {w.shape}"
            )
        if isinstance(matrix, Dense) and not matrix.in_memory:
            raise InputError("weights need data in memory, got a stream of rows")
        # every cell has a weight of its own, so every cell is stored
        if not isinstance(matrix, Observed):
            values = (
                np.asarray(matrix.array, matrix.dtype)
                if isinstance(matrix, Dense)
                else matrix.to_scipy().toarray()
            )
            matrix = Observed.from_nan(values, matrix.rows, matrix.columns)
        return matrix, w[
            np.repeat(np.arange(matrix.shape[0]), matrix.row_counts()), matrix.indices
        ].astype(np.float64)

    def _given(
        self, W: Any, H: Any, matrix: Placed, options: NmfOptions
    ) -> tuple[np.ndarray, np.ndarray] | None:
        if self.init != "custom":
            return None
        for name, value in (("W", W), ("H", H)):
            if value is None:
                raise InputError(
                    f"init='custom' came without {name}; pass W and H to fit or fit_transform"
                )
        left = nonnegative_start("W", W, (matrix.shape[0] or 0, options.k))
        right = nonnegative_start("H", H, (options.k, matrix.shape[1]))
        return left.astype(matrix.dtype, order="C"), right.T.astype(matrix.dtype, order="C")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@held
def non_negative_factorization(
    X: Any,
    W: Any = None,
    H: Any = None,
    n_components: Any = "auto",
    *,
    update_H: bool = True,
    **how: Any,
) -> tuple[np.ndarray, np.ndarray, int]:
    """``NMF`` as a function: W, H and the number of sweeps, in the order of scikit-learn's function.

    Parameters
    ----------
    X : the data, as for ``NMF.fit``.
    W, H : where the fit starts from, with ``init="custom"``.
    n_components : k, as in ``NMF``.
    update_H : False keeps H as it is given and finds W alone, as ``NMF.transform``.
    **how : the other parameters of ``NMF``.

    Returns
    -------
    W, H, n_iter : codes, components, sweeps over the data (1 where H is kept).

    Examples
    --------
    >>> W, H, sweeps = non_negative_factorization([[1.0, 2.0], [2.0, 4.0]], n_components=1, tol=1e-6)
    >>> (W @ H).round(3).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    model = NMF(n_components, **how)
    if not update_H:
        if W is not None:
            _warn_ignored("When update_H=False, the provided initial W is not used.")
        check(model)
        matrix = model._read_rows(X, None)[0]
        right = nonnegative_start("H", H, (np.shape(H)[0] if np.ndim(H) else 1, matrix.shape[1]))
        return model._codes(matrix, right.T.astype(matrix.dtype, order="C")), right, 1
    if model.init != "custom" and (W is not None or H is not None):
        _warn_ignored("When init!='custom', provided W or H are ignored.")
    left = model.fit_transform(X, W=W, H=H)
    return left, model.components_, model.n_iter_


def nonnegative_start(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """W or H as it was given, refused unless it is a finite array >= 0 of this shape, not all
    zero."""
    if np.shape(value) != shape:
        which = "first" if np.ndim(value) == 2 and len(value) != shape[0] else "second"
        raise InputError(
            f"Array with wrong {which} dimension passed to NMF (input {name}): {name} must have "
            f"shape {shape}, got {np.shape(value)}",
            code=f"invalid.{name.lower()}",
        )
    array = numeric(np.asarray(value))
    said = ""
    if not np.isfinite(array).all():
        said = f"{name} must hold finite numbers >= 0, got NaN or infinity"
    elif (array < 0).any():
        said = f"Negative values in data passed to NMF (input {name}): give numbers >= 0"
    elif array.size and not array.any():
        said = f"Array passed to NMF (input {name}) is full of zeros: no step leaves zero"
    if said:
        raise InputError(said, code=f"invalid.{name.lower()}")
    return array


def _warn_ignored(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=3)


def _all_weights(rows: np.ndarray | None, entries: np.ndarray | None) -> np.ndarray | None:
    """Weights of rows and of entries, for what a checkpoint says of the data."""
    found = [part for part in (rows, entries) if part is not None]
    return np.concatenate([[len(part) for part in found], *found]) if found else None
