"""Probabilistic latent semantic analysis: the words of a document are drawn from a mixture of topics.

    p(w|d) = sum_z p(w|z) p(z|d),      maximise  sum_dw N_dw log p(w|d)

by EM over the counts (``topic_em`` without priors), at a cost of non-zeros x k a step. It is non-negative factorisation under the KL divergence up to scaling:
with N ~ W H, columns of W and rows of H rescaled, KL(N | W H) = -sum N log p(w|d) + a constant of the data.

The certificate is that of a stationary point: the bound never fell, and one more step would gain next to nothing.

Reference: Hofmann (1999), Probabilistic latent semantic indexing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.topics import certify_em
from eckart.engines import engine_named
from eckart.explain.em import Ascent, best_of, climb
from eckart.explain.topics.documents import as_counts, tokens_of
from eckart.explain.topics.topic_em import State, Sweep, TopicProblem, equal_shares, normalised, start
from eckart.explain.topics.topic_model import TopicModel, by_size, check_common, reordered
from eckart.factors import Topics
from eckart.fit import Fit, one_kind_of_names
from eckart.io.read import read
from eckart.matrix import Counts
from eckart.rng import generator
from eckart.trace import Watcher, progress, silent


def solve(
    x: Counts,
    k: int,
    *,
    steps: int,
    tol: float,
    max_iter: int,
    n_init: int,
    engine: Any,
    rng: np.random.Generator,
    first: np.ndarray | None = None,
    watch: Watcher = silent,
) -> tuple[Fit, np.ndarray]:
    """The best of ``n_init`` climbs, as topics by size (or in the order of ``first``, words x k, where that is given) with the documents' shares."""
    nothing = np.zeros(k)
    problem = TopicProblem(x, engine, nothing, 0.0, steps)

    def one(stream: np.random.Generator) -> Ascent[State, Sweep]:
        words = start(x, k, stream, x.dtype) if first is None else first.astype(x.dtype)
        return climb(
            problem,
            State(words, equal_shares(x.shape[0], nothing, x.dtype)),
            tol=tol,
            max_iter=max_iter,
            least=15,
            watch=watch,
        )

    best, ends = best_of(partial(one, stream) for stream in rng.spawn(n_init))
    state = problem.maximise(best.statistics)
    topics = as_topics(best.statistics.counts, 0.0, nothing, x)
    order = by_size(topics) if first is None else np.arange(k)
    topics = reordered(topics, order)
    certificate = certify_em(x, topics, 0.0, engine=engine, trace=best.trace, tol=tol, ends=ends, name="pLSA")
    plan = {
        "method": "EM",
        "reason": "the likelihood of pLSA has no other structure",
        "sweeps": len(best.trace),
        "starts": len(ends),
    }
    return Fit(topics, certificate, best.trace, plan), np.ascontiguousarray(state.shares[:, order])


def as_topics(counts: np.ndarray, eta: Any, alpha: np.ndarray, x: Counts) -> Topics:
    """Topics of the words' counts (words x k); where a topic has neither counts nor prior it is uniform."""
    sizes = counts.sum(axis=0, dtype=np.float64)
    sizes = sizes / sizes.sum() if sizes.sum() > 0 else np.full(len(sizes), 1.0 / len(sizes))
    whole = counts + np.asarray(eta, counts.dtype)
    empty = ~(whole.sum(axis=0) > 0)
    if empty.any():
        whole[:, empty] = normalised(counts, eta)[:, empty]
    return Topics(np.ascontiguousarray(whole.T, x.dtype), np.asarray(alpha, np.float64), sizes, x.columns)


class PLSA(TopicModel):
    """Topics by maximum likelihood: p(w|d) = sum_z p(w|z) p(z|d), fitted to counts by EM.

    Parameters
    ----------
    n_components : int
        How many topics.
    tol : float
        Stop when the log-likelihood of a token rises by less.
    max_iter : int
        Most EM steps.
    n_init : int
        Starts; the best is kept, and the certificate says how far apart they ended.
    inner : int
        Updates of the documents' shares in each step; more than one is cheaper than more steps.
    warm_start : bool
        Begin at the topics of the last fit and keep their numbers.
    random_state, n_threads, verbose
        Seed; most threads to use (results do not depend on it); progress bars.

    Attributes
    ----------
    components_, topic_word_, sizes_
        Expected counts, p(w|z) and the topics' shares of all tokens, the largest topic first.
    n_iter_, fit_, certificate_
        EM steps; all of the fit; its evidence.

    Counts need not be whole numbers. Unlike LDA there is no distribution of new documents: ``transform`` fits p(z|d) at fixed topics, and words that
    were never seen have probability 0 (1e-12 where they are scored).

    Examples
    --------
    >>> x = [[3, 2, 0, 0], [2, 3, 0, 0], [0, 0, 4, 1], [0, 0, 1, 4], [1, 1, 1, 1]]
    >>> model = PLSA(n_components=2, random_state=0).fit(x)
    >>> model.transform([[0, 0, 5, 5]]).max().round(3), model.certificate_.holds
    (np.float64(1.0), True)

    References
    ----------
    T. Hofmann, "Probabilistic latent semantic indexing", SIGIR (1999).
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        tol: float = 1e-5,
        max_iter: int = 300,
        n_init: int = 1,
        inner: int = 2,
        warm_start: bool = False,
        random_state: Any = None,
        n_threads: int | None = None,
        verbose: bool = False,
    ):
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.inner = inner
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> PLSA:
        """Fit to documents x words: sparse matrix, array, frame, file; counts or weights >= 0."""
        self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """p(z|d) of the training documents, folded in at the final topics."""
        return self._fit(X).transform(X)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        x = self._documents(X)
        engine = engine_named("cpu", self.n_threads)
        return certify_em(x, self._topics(), 0.0, engine=engine, trace=self.fit_.trace, tol=self.tol, name="pLSA")

    def _fit(self, X: Any) -> PLSA:
        check_common(self)
        x = as_counts(one_kind_of_names(read(X)), "PLSA")
        first = None
        if self.warm_start and "fit_" in vars(self):
            self._new_rows(X)
            first = np.ascontiguousarray(self._topics().words.T)
        with progress(bool(self.verbose)) as watch:
            fit, _ = solve(
                x,
                int(self.n_components),
                steps=int(self.inner),
                tol=float(self.tol),
                max_iter=int(self.max_iter),
                n_init=1 if first is not None else int(self.n_init),
                engine=engine_named("cpu", self.n_threads),
                rng=generator(self.random_state),
                first=first,
                watch=watch,
            )
        fit.plan["tokens"] = tokens_of(x)
        self.fit_ = fit
        return self
