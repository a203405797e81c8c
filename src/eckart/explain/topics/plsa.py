"""Probabilistic latent semantic analysis: the words of a document are drawn from a mixture of
topics.

    p(w|d) = sum_z p(w|z) p(z|d),      maximise  sum_dw N_dw log p(w|d)

by EM over the counts (``topic_em`` without priors), at a cost of non-zeros x k a step. It is
non-negative factorisation under the KL divergence up to scaling: with N ~ W H, columns of W and
rows of H rescaled, KL(N | W H) = -sum N log p(w|d) + a constant of the data.

The certificate is that of a stationary point: the bound never fell, and one more step would gain
next to nothing.

Reference: Hofmann (1999), Probabilistic latent semantic indexing.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.topics import certify_em
from eckart.engines.protocol.topics import TopicWords
from eckart.explain.em import Ascent, best_of, climb
from eckart.explain.topics.documents import as_counts, common_words, counted
from eckart.explain.topics.topic_em import Sweep, TopicProblem, as_topics, start
from eckart.explain.topics.topic_model import TopicModel, by_size, reordered
from eckart.fit import Fit, one_kind_of_names, plan_of, require_room
from eckart.io.models.checkpoint import NOTHING, Memory, resuming
from eckart.io.read import read
from eckart.parameters import check, file_name, flag, number, param, starts, whole
from eckart.trace import Watcher, progress, silent


def solve(
    docs: Any,
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
    memory: Memory = NOTHING,
) -> Fit:
    """The best of ``n_init`` climbs over placed documents, as topics by size (or in the order of
    ``first``, words x k, where that is given)."""
    nothing = np.zeros(k)

    def one(stream: np.random.Generator, memory: Memory) -> Ascent[TopicWords, Sweep]:
        problem = TopicProblem(docs, engine, nothing, 0.0, steps)
        words = start(docs, k, stream, docs.dtype, engine) if first is None else first
        return climb(
            problem,
            problem.begin(words),
            tol=tol,
            max_iter=max_iter,
            least=15,
            watch=watch,
            memory=memory,
        )

    best, ends = best_of([partial(one, stream) for stream in rng.spawn(n_init)], memory)
    topics = as_topics(best.statistics.counts, 0.0, nothing, docs.dtype, docs.columns)
    topics = topics if first is not None else reordered(topics, by_size(topics))
    problem = TopicProblem(docs, engine, nothing, 0.0)
    certificate = certify_em(problem, topics, trace=best.trace, tol=tol, ends=ends, name="pLSA")
    plan = {
        "method": "EM",
        "reason": "the likelihood of pLSA has no other structure",
        **plan_of(engine),
        "sweeps": len(best.trace) - 1,
        "starts": len(ends),
        "tokens": float(engine.topic_totals(docs).sum()),
    }
    return Fit(topics, certificate, best.trace, plan)


@dataclass(eq=False, repr=False)
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
        Updates of the documents' shares in each step, up to 10000 (compiled code does not hear an
        interrupt); more than one is cheaper than more steps.
    warm_start : bool
        Begin at the topics of the last fit and keep their numbers.
    checkpoint : None or path
        File in which the state is kept every few seconds; the same fit resumes from it after a
        crash, with the same bits.
    random_state, engine, n_threads, verbose
        Seed; what computes ("auto", "cpu", "numpy"); most threads to use (results do not depend on
        it); progress bars.

    Attributes
    ----------
    components_, topic_word_, sizes_
        Expected counts, p(w|z) and the topics' shares of all tokens, the largest topic first.
    n_iter_, fit_, certificate_
        EM steps; all of the fit; its evidence.

    Counts need not be whole numbers. Unlike LDA there is no distribution of new documents:
    ``transform`` fits p(z|d) at fixed topics, and words that were never seen have probability 0
    (1e-12 where they are scored).

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

    n_components: int = param(10, whole(1))
    _: KW_ONLY
    tol: float = param(1e-5, number(0))
    max_iter: int = param(300, whole(1))
    n_init: int = param(1, starts())
    inner: int = param(2, whole(1, 10_000))
    warm_start: bool = param(False, flag())
    checkpoint: Any = param(None, file_name())

    def fit(self, X: Any, y: Any = None) -> PLSA:
        """Fit to documents x words: sparse matrix, array, frame, file; counts or weights >= 0. A
        list of texts is counted first, without the words that stand in more than half of them;
        ``eckart.corpus`` has other rules."""
        self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """p(z|d) of the training documents, folded in at the final topics."""
        return self._fit(X).transform(X)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        engine = self._engine()
        with engine.at_work():
            t = self._topics()
            problem = TopicProblem(
                engine.put(self._documents(X)), engine, t.prior, 0.0, dtype=t.counts.dtype
            )
            return certify_em(problem, t, trace=self.fit_.trace, tol=float(self.tol), name="pLSA")

    def _fit(self, X: Any) -> PLSA:
        check(self)
        X = counted(X)
        x, first, engine = as_counts(one_kind_of_names(read(X)), "PLSA"), None, self._engine()
        require_room(
            "n_components",
            self.n_components,
            sum(x.shape) * float(self.n_components),
            x.dtype.itemsize,
        )
        if self.warm_start and "fit_" in vars(self):
            self._new_rows(X)
            first = np.ascontiguousarray(self._topics().words.T)
        with (
            progress(bool(self.verbose)) as watch,
            engine.at_work(),
            resuming(self, x, y=first) as (memory, rng),
        ):
            fit = solve(
                engine.put(x),
                int(self.n_components),
                steps=int(self.inner),
                tol=float(self.tol),
                max_iter=int(self.max_iter),
                n_init=1 if first is not None else int(self.n_init),
                engine=engine,
                rng=rng,
                first=first,
                watch=watch,
                memory=memory,
            )
        memory.end(fit.trace)
        self.fit_ = fit
        self.fit_.plan.update(common_words(x))
        self._say_if_early(self.fit_)
        return self
