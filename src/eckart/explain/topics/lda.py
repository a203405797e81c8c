"""Latent Dirichlet allocation: documents share topics, and both have Dirichlet priors.

    theta_d ~ Dir(alpha),  phi_z ~ Dir(eta);    z_i ~ theta_d,  w_i ~ phi_{z_i}

so that unseen documents have a likelihood. Four ways to the topics, one file each, over the same counts:

    gibbs         ``lda_gibbs``        EM, then collapsed Gibbs sweeps whose counts are averaged: the best topics of the four (default for whole counts)
    cvb0          ``lda_em``           EM in its MAP form: a few dozen cheap sweeps, weights welcome
    variational   ``lda_variational``  the classical bound, which never falls
    online        ``lda_online``       stepwise EM over batches: streams, files, ``partial_fit``

The certificate: a stationary point (EM, variational), or fresh chains that stay where the topics are (Gibbs).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.certify.topics import certify_em, certify_gibbs, certify_stream, certify_variational
from eckart.engines import engine_named
from eckart.explain.topics import lda_em, lda_gibbs, lda_variational
from eckart.explain.topics.documents import as_counts, require_whole_numbers, tokens_of, whole_numbers
from eckart.explain.topics.judge import align_topics
from eckart.explain.topics.lda_options import LDAOptions, count_blocks
from eckart.explain.topics.lda_streams import LDAStreams, Solved, topics_of
from eckart.explain.topics.priors import Priors
from eckart.explain.topics.topic_model import TopicModel, by_size, reordered
from eckart.factors import Topics
from eckart.fit import Fit, one_kind_of_names
from eckart.io.read import read
from eckart.matrix import Counts
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher, progress

GIBBS_TOKENS = 2e8
"""More tokens than this are not sampled one by one by default."""
BURN_TOKENS = 2.5e8


class LDA(LDAStreams, LDAOptions, TopicModel):
    """Topics with Dirichlet priors, by Gibbs sampling, EM, variational Bayes or from a stream.

    Parameters
    ----------
    n_components : int
        How many topics.
    doc_topic_prior : "auto", None, number or array
        alpha. "auto" learns one for each topic; None is 1 / n_components; numbers are kept.
    topic_word_prior : "auto", None, number or array
        eta. "auto" learns one number; None is 1 / n_components; a number, one for each word, or n_components x words are kept.
    learning_method : "auto", "gibbs", "cvb0", "variational" (or "batch"), "online"
        "auto": "gibbs" for whole counts up to 2e8 tokens, "online" for a stream, else "cvb0"; ``fit_.plan`` says which and why.
    max_iter : int or None
        Most EM or variational steps, passes of "online"; None is 24 before Gibbs, 100, 100 and 1.
    burn_in, n_samples : None or int, int
        Gibbs sweeps before averaging, and averaged. None: 20 to 200, the more the fewer tokens there are.
    tol : float
        "cvb0" and "variational" stop when the objective of a token rises by less.
    n_init : int
        Starts (chains); the best is kept.
    batch_size, learning_decay, learning_offset, total_samples : int, float, float, None or float
        "online": documents a batch, r_t = (offset + t)^-decay, documents of the whole corpus (None: those seen).
    max_doc_update_iter, mean_change_tol : int, float
        "variational": most updates of a document in a step, and the mean change at which they stop.
    seed_words : None or {topic: [words]}
        Words (names or positions) that lean a topic; topics then keep their numbers. ``seed_weight`` is the pseudo-count of each.
    warm_start : bool
        Begin at the topics of the last fit and keep their numbers.
    random_state, n_threads, verbose
        Seed; most threads to use (results do not depend on it, Gibbs included); progress bars.

    Attributes
    ----------
    components_, topic_word_, sizes_
        Expected counts with eta included, p(w|z), the topics' shares of all tokens; the largest topic first.
    doc_topic_prior_, topic_word_prior_
        alpha and eta as fixed or learned.
    n_iter_, fit_, certificate_
        Sweeps; all of the fit; its evidence.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = np.vstack([rng.multinomial(40, p, 50) for p in ([0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4])])
    >>> model = LDA(n_components=2, random_state=0).fit(x)
    >>> sorted(sorted(words) for words in model.top_words(2)), model.certificate_.holds
    ([[0, 1], [2, 3]], True)

    References
    ----------
    D. Blei, A. Ng and M. Jordan, "Latent Dirichlet allocation", JMLR 3 (2003).
    """

    def fit(self, X: Any, y: Any = None) -> LDA:
        """Fit to documents x words: sparse matrix, array, frame, file, or a re-readable source of sparse blocks (``eckart.shards``)."""
        self._check()
        self.__dict__.pop("_running", None)
        blocks = count_blocks(X)
        with progress(bool(self.verbose)) as watch:
            if blocks is not None:
                self._fit_blocks(blocks, watch)
            else:
                x = as_counts(one_kind_of_names(read(X)), "LDA")
                first = self._warm(X)
                method, reason = self._method(x)
                solved = getattr(self, f"_solve_{method}")(x, self._priors(x.shape[1], x.columns), first, watch)
                self._keep(x, solved, {"method": method, "reason": reason}, first is not None)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """p(z|d) of the training documents, folded in at the final topics."""
        return self.fit(X).transform(X)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        x = self._documents(X)
        plan = self.fit_.plan
        moves = plan.get("priors moved at", ())
        return self._certify(x, self._topics(), self._eta, plan["method"], self.fit_.trace, moves=moves)

    @property
    def doc_topic_prior_(self) -> np.ndarray:
        """alpha, one for each topic."""
        return self._topics().prior

    @property
    def topic_word_prior_(self) -> Any:
        """eta: a number, or n_components x words."""
        self._fitted("topic_word_prior_")
        return float(self._eta) if np.ndim(self._eta) == 0 else self._eta.T

    def extra_state(self) -> dict[str, np.ndarray]:
        """What a model file holds besides the topics."""
        return {"eta": np.atleast_1d(np.asarray(self._eta, np.float64))}

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        self.fit_ = fit
        eta = arrays["eta"]
        self._eta: Any = eta if eta.ndim == 2 else float(eta[0])

    def _method(self, x: Counts) -> tuple[str, str]:
        method = {"batch": "variational"}.get(self.learning_method, self.learning_method)
        if method == "gibbs":
            require_whole_numbers(x, "gibbs")
        if method != "auto":
            return method, "asked for"
        if not whole_numbers(x):
            return "cvb0", "the counts are not all whole numbers, which Gibbs sampling needs"
        if tokens_of(x) > GIBBS_TOKENS:
            return "cvb0", f"{tokens_of(x):.3g} tokens are too many to sample one by one"
        return "gibbs", "whole counts: averaged Gibbs sweeps predict best for their time"

    def _solve_gibbs(self, x: Counts, priors: Priors, first: Any, watch: Watcher) -> Solved:
        best, chains = lda_gibbs.solve(
            x,
            priors,
            max_iter=24 if self.max_iter is None else int(self.max_iter),
            burn_in=burn_in_for(tokens_of(x)) if self.burn_in is None else int(self.burn_in),
            n_samples=int(self.n_samples),
            n_init=int(self.n_init),
            engine=engine_named("cpu", self.n_threads),
            rng=generator(self.random_state),
            first=first,
            watch=watch,
        )
        facts: dict[str, Any] = {}
        if len(chains) > 1:
            others = [c for c in chains if c is not best]
            overlap = [align_topics((best.counts + 1e-9).T, (c.counts + 1e-9).T)[1].mean() for c in others]
            facts = {"starts": len(chains), "overlap between starts": float(np.mean(overlap))}
        plan = {"sweeps": best.ascent + len(best.trace), "EM sweeps": best.ascent}
        return Solved(best.counts, best.priors, best.trace, plan, facts)

    def _solve_cvb0(self, x: Counts, priors: Priors, first: Any, watch: Watcher) -> Solved:
        best, ends = lda_em.best_start(
            x,
            priors,
            int(self.n_init),
            tol=float(self.tol),
            max_iter=100 if self.max_iter is None else int(self.max_iter),
            engine=engine_named("cpu", self.n_threads),
            rng=generator(self.random_state),
            dtype=np.float64 if _large(x) else np.float32,
            first=first,
            watch=watch,
        )
        plan = {"sweeps": len(best.ascent.trace), "priors moved at": list(best.moves)}
        return Solved(best.counts, best.priors, best.ascent.trace, plan, _spread(ends))

    def _solve_variational(self, x: Counts, priors: Priors, first: Any, watch: Watcher) -> Solved:
        best, ends = lda_variational.solve(
            x,
            priors,
            tol=float(self.tol),
            max_iter=100 if self.max_iter is None else int(self.max_iter),
            n_init=int(self.n_init),
            inner=int(self.max_doc_update_iter),
            inner_tol=float(self.mean_change_tol),
            engine=engine_named("cpu", self.n_threads),
            rng=generator(self.random_state),
            first=first,
            watch=watch,
        )
        found = best.statistics
        return Solved(found.counts, found.priors, best.trace, {"sweeps": len(best.trace)}, _spread(ends))

    def _keep(self, x: Counts, solved: Solved, chosen: dict[str, Any], keep: bool) -> None:
        """Order the topics by size, unless their numbers are to be kept, measure the certificate, and become fitted."""
        priors, trace = solved.priors, solved.trace
        t = topics_of(solved.counts, priors, x.dtype, x.columns)
        numbered = (
            self.seed_words is not None or np.ndim(self.topic_word_prior) > 1 or np.ndim(self.doc_topic_prior) > 0
        )
        if not keep and not numbered:
            order = by_size(t)
            t, priors = reordered(t, order), priors.reordered(order)
        moves = solved.plan.get("priors moved at", ())
        certificate = self._certify(x, t, priors.words, chosen["method"], trace, solved.facts, moves)
        eta = float(priors.eta) if priors.boost is None else "by word"
        self._eta = priors.words
        self.fit_ = Fit(t, certificate, trace, chosen | solved.plan | {"eta": eta, "tokens": tokens_of(x)})

    def _certify(
        self, x: Counts, t: Topics, eta: Any, method: str, trace: Trace, facts: dict | None = None, moves: Any = ()
    ) -> Certificate:
        engine = engine_named("cpu", self.n_threads)
        if method == "gibbs" and tokens_of(x) > 0:
            c = certify_gibbs(x, t, eta, engine=engine, facts=facts)
        elif method == "online":
            c = certify_stream(x, t, engine=engine)
        elif method == "variational":
            c = certify_variational(x, t, eta, engine=engine, trace=trace, tol=float(self.tol))
        else:
            single = None if _large(x) else np.float32
            options = {"tol": float(self.tol), "name": "LDA", "moves": moves, "dtype": single}
            c = certify_em(x, t, eta, engine=engine, trace=trace, **options)
        if trace.reason is StopReason.INTERRUPTED:
            stopped = Check("interrupted", 1, 0, "the fit was interrupted before its end")
            c = Certificate(c.problem, c.kind, (*c.checks, stopped), c.facts, c.notes)
        return Certificate(c.problem, c.kind, c.checks, c.facts | (facts or {}), c.notes)


def burn_in_for(tokens: float) -> int:
    """Sweeps before averaging: those that sample BURN_TOKENS in all, 20 to 200.

    >>> [burn_in_for(tokens) for tokens in (1e4, 2.5e6, 1e9)]
    [200, 100, 20]
    """
    return int(np.clip(BURN_TOKENS / max(tokens, 1.0), 20, 200))


def _spread(ends: list[float]) -> dict[str, Any]:
    """What is said of several starts."""
    return {} if len(ends) < 2 else {"starts": len(ends), "spread over starts": max(ends) - min(ends)}


def _large(x: Counts) -> bool:
    """Whether a word's count may be too large to be added up in single precision."""
    return bool(np.bincount(x.indices, x.data.astype(np.float64)).max(initial=0.0) >= 2**24)
