"""Pointwise mutual information and its factorization: words as vectors without gradient descent.

    M_wv = log( p(w, v) / (p(w) p_a(v)) ) - log shift,      p_a(v) proportional to (sum_w N_wv)^a

from co-occurrences N. A word stands near another more often than chance where M > 0. ``"positive"``
keeps these entries only, ``"pmi"`` keeps every pair that was seen; pairs that were not are 0 in
both, so that M is sparse. Skip-gram with r negative samples has PMI - log r as its optimum (Levy
and Goldberg 2014): that is ``shift=r``. A smoothed context distribution (a = 0.75) keeps rare words
from being everyone's best neighbour.

The vectors come from the truncated SVD M ~ U S V^T, the best approximation of rank k: zeta = U S^p
and z = V S^(1 - p). M meets products with thin blocks only (``eckart.reduce``), and is never made
dense. The certificate is that of the SVD: no other k directions capture more.

References: Church and Hanks (1990); Levy, Goldberg, Dagan (2015), Improving distributional
similarity with lessons learned from word embeddings.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.embed.cooccurrence import WEIGHTINGS
from eckart.embed.model import WordModel
from eckart.embed.pairs import Pairs, contents_of, pairs_of, pairs_of_fit, source_of
from eckart.embed.sequences import Sequences
from eckart.engines import engine_named
from eckart.engines.protocol import PmiRule
from eckart.errors import invalid
from eckart.factors import Basis, Embedding
from eckart.fit import Fit, fitted, plan_of
from eckart.io.models.checkpoint import NOTHING, Checkpoint, Memory, resumed
from eckart.matrix import Counts
from eckart.parameters import file_name, number, one_of, optional, param, whole
from eckart.reduce.covariance import Covariance
from eckart.reduce.solve import SpectralOptions
from eckart.reduce.solve import certify as measured
from eckart.reduce.solve import solve as solve_svd
from eckart.trace import Watcher, progress, silent

KINDS = ("positive", "pmi")
SHOWN = ("engine", "tokenizer", "add_context")
"""Parameters without a part in the state: what text is cut by is seen in its words, what is handed
out is decided at the end."""


def pmi_matrix(
    x: Counts,
    *,
    kind: str = "positive",
    shift: float = 1.0,
    smoothing: float = 0.75,
    dtype: Any = np.float64,
    engine: Any = "auto",
    n_threads: int | None = None,
) -> Counts:
    """M of co-occurrences, sparse. Entries that are 0 (or, for ``"positive"``, below) are not
    stored.

    >>> from scipy import sparse
    >>> m = pmi_matrix(Counts.from_scipy(sparse.csr_array([[0.0, 3.0], [3.0, 2.0]])), smoothing=1.0)
    >>> m.to_scipy().toarray().round(3).tolist()
    [[0.0, 0.47], [0.47, 0.0]]
    """
    engine = engine_named(engine, n_threads)
    rule = PmiRule(float(smoothing), float(shift), kind == "positive")
    m = engine.mutual_information(engine.put(x), rule, np.dtype(dtype))
    return Counts(
        np.concatenate([[0], np.cumsum(m.lengths)]),
        m.indices,
        m.data,
        x.shape[0],
        x.rows,
        x.columns,
    )


def solve(
    m: Counts,
    k: int,
    exponent: float,
    tol: float,
    *,
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[np.ndarray, np.ndarray, Fit]:
    """U S^p, V S^(1 - p) and the fit of the SVD."""
    options = SpectralOptions(k, False, "auto" if min(m.shape) <= SMALL else "randomized", tol)
    fit = solve_svd(m, options, None, engine=engine, rng=rng, watch=watch, memory=memory)
    basis = fit.factors
    size = np.sqrt(basis.scatter)
    rank = size > size.max(initial=0.0) * 1e-6
    power = np.where(rank, np.where(rank, size, 1.0) ** (exponent - 1.0), 0.0)
    vectors = engine.get(
        engine.times(m, np.ascontiguousarray(basis.components.T * power.astype(m.dtype)), None)
    )
    context = basis.components.T * np.where(rank, size ** (1.0 - exponent), 0.0).astype(m.dtype)
    return vectors.astype(m.dtype, copy=False), np.ascontiguousarray(context, m.dtype), fit


SMALL = 400
"""Up to this many words the decomposition is a full one."""
USUAL = 100
"""Numbers in a vector, where there are as many words."""


@dataclass(eq=False, repr=False)
class PMI(WordModel):
    """Word vectors by the truncated SVD of pointwise mutual information.

    M_wv = log(p(w, v) / (p(w) p_a(v))) - log shift over the pairs that were seen (the positive
    ones, by default), M ~ U S V^T of rank k, vectors U S^p.

    Parameters
    ----------
    n_components : None or int
        k, the length of the vectors; None takes 100, or the number of words where there are fewer.
    kind : "positive" or "pmi"
        Keep positive entries only, or all pairs that were seen.
    shift : float
        r: log r is subtracted, the optimum of skip-gram with r negative samples. 1 subtracts
        nothing.
    smoothing : float
        a, the exponent of the context distribution; 1 is plain PMI.
    exponent : float
        p, of the singular values.
    add_context : bool
        Hand out zeta + V S^p instead of zeta alone.
    window, weighting
        Of the co-occurrences, as for ``eckart.cooccurrence``. None: 10 and "harmonic" for
        sentences; where no list has an item twice (sets: baskets, what a
        person rated) the whole list, "flat".
    min_count, max_words, tokenizer, lowercase, numbers, min_length
        Of the vocabulary, as for ``eckart.sequences``.
    tol : float
        The share of the captured energy that the SVD may miss.
    checkpoint : None or path
        File in which the counted pairs and the state of the SVD are kept; the same fit resumes from
        it after a crash, with the same bits.
    random_state, engine, n_threads, verbose
        Seed of the SVD's start; "auto", "cpu", "numpy" or another engine; most threads (results do
        not depend on them); progress bars.

    Attributes
    ----------
    vectors_, components_ : the words with their vectors; the vectors alone, n x k (float32)
    singular_values_ : of M, the largest first
    fit_, certificate_ : ``Embedding`` with vectors U S^p and context V S^(1 - p), certificate,
        trace, plan

    ``fit`` takes text, lists of items, ``Sequences``, or co-occurrences (``Counts`` or a square
    SciPy matrix). The certificate says that no other k directions capture more of M than these, up
    to a small share.

    Examples
    --------
    >>> texts = ["the cat sat", "the dog sat", "a cat ran", "a dog ran"] * 5
    >>> model = PMI(n_components=2, window=2, random_state=0).fit(texts)
    >>> model.vectors_.neighbours("cat", 1)[0][0], model.certificate_.holds
    ('dog', True)

    References
    ----------
    O. Levy, Y. Goldberg, I. Dagan, "Improving distributional similarity with lessons learned from
    word embeddings", TACL (2015).
    """

    n_components: int | None = param(None, optional(whole(1)))  # type: ignore[assignment]
    _: KW_ONLY
    kind: Literal["positive", "pmi"] = param("positive", one_of(*KINDS))
    shift: float = param(1.0, number(0, above=True))
    smoothing: float = param(0.75, number(0))
    exponent: float = param(0.5, number())
    weighting: Literal["harmonic", "flat", "linear"] | None = param(
        None, optional(one_of(*WEIGHTINGS))
    )
    tol: float = param(1e-6, number(0))
    checkpoint: Any = param(None, file_name())

    @fitted
    def singular_values_(self) -> np.ndarray:
        """The k largest singular values of M."""
        return np.array(self._fitted("singular_values_").plan["singular values"])

    def fit(self, X: Any, y: Any = None) -> PMI:
        """Fit to text, lists of items, ``Sequences`` or co-occurrences."""
        self._check()
        engine, source = self._engine_for(X), source_of(self, X)
        n = source.n_columns if isinstance(source, Counts) else len(source.words)
        k = min(USUAL, n) if self.n_components is None else int(self.n_components)
        if k > n:
            raise invalid(
                "n_components", k, f"1 to {n} for {n} words", "lower it, or lower min_count"
            )
        file = Checkpoint.of_parts(self, lambda: contents_of(source), ignored=SHOWN)
        with resumed(file, self.random_state) as (memory, rng):
            pairs, within = self._counted(source, engine, memory)
            m = self._matrix(pairs, engine)
            with progress(bool(self.verbose)) as watch, engine.at_work():
                how: dict[str, Any] = {
                    "engine": engine,
                    "rng": rng,
                    "watch": watch,
                    "memory": within,
                }
                vectors, context, svd = solve(m, k, float(self.exponent), float(self.tol), **how)
        factors = Embedding(vectors, context, counts=pairs.counts, columns=pairs.words)
        plan = plan_of(engine) | {
            "method": f"truncated SVD ({svd.plan['solver']})",
            "reason": svd.plan["reason"],
            "entries": m.nnz,
            "singular values": np.sqrt(svd.factors.scatter).tolist(),
            "words": pairs.rules,
            **self._window_plan(source),
        }
        self.fit_ = Fit(factors, described(svd.certificate), svd.trace, plan)
        memory.end(svd.trace)
        return self

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and the text (or co-occurrences) alone."""
        f, engine = self._embedding(), self._engine_for(X)
        pairs = pairs_of_fit(self, X, engine, f.columns)
        m, size = self._matrix(pairs, engine), self.singular_values_
        assert f.context is not None
        power = size ** (1.0 - self.exponent)
        components = (f.context / np.where(power > 0, power, 1.0).astype(f.context.dtype)).T
        live = np.linalg.norm(components, axis=1) > 0.5  # beyond the rank there is nothing to say
        c = Covariance.by_products(engine, engine.put(m), False)
        basis = Basis(
            c.mean,
            np.ascontiguousarray(components[live]),
            size[live] ** 2,
            c.total * c.weight,
            0.0,
            c.weight,
            c.rows,
            False,
            None,
            m.columns,
        )
        with engine.at_work():
            return described(measured(c, basis, float(self.tol), np.random.default_rng(0)))

    def _counted(
        self, source: Counts | Sequences | Pairs, engine: Any, memory: Memory
    ) -> tuple[Pairs, Memory]:
        """The pairs of the source, and the level of what follows: pairs that had to be counted are
        kept beside its state."""
        if not isinstance(source, Sequences):
            return pairs_of(self, source), memory.inner(None)
        whole, words = (memory.last() or {}).get("whole"), source.words
        if whole is None:
            pairs = pairs_of(self, source, engine, memory.inner({"whole": None}))
        else:
            indptr, indices, data = whole
            counted = Counts(indptr, indices, data, len(words), words, words)
            pairs = Pairs(counted, words, source.counts, source.rules)
        return pairs, memory.inner({"whole": [pairs.n.indptr, pairs.n.indices, pairs.n.data]})

    def _matrix(self, pairs: Pairs, engine: Any) -> Counts:
        how: dict[str, Any] = {"kind": self.kind, "shift": self.shift, "smoothing": self.smoothing}
        return pmi_matrix(pairs.n, dtype=np.float32, engine=engine, **how)

    def _final(self, f: Embedding) -> np.ndarray:
        if not self.add_context:
            return f.vectors
        assert f.context is not None
        size = self.singular_values_
        turn = np.where(size > 0, np.where(size > 0, size, 1.0) ** (2 * self.exponent - 1.0), 0.0)
        return f.vectors + f.context * turn.astype(f.context.dtype)


def described(c: Certificate) -> Certificate:
    """The certificate of the SVD in the words of this chapter."""
    scatter = c.facts.get("captured variance", 0.0), c.facts.get("total variance", 0.0)
    share = scatter[0] / scatter[1] if scatter[1] > 0 else 1.0
    facts = {**c.facts, "share of the squares captured": share, "share in the tail": 1.0 - share}
    return replace(
        c,
        problem="the best approximation of rank k of the PMI matrix: min ||M - U S V^T||",
        facts=facts,
    )
