"""Latent Dirichlet allocation: documents share topics, and both have Dirichlet priors.

    theta_d ~ Dir(alpha),  phi_z ~ Dir(eta);    z_i ~ theta_d,  w_i ~ phi_{z_i}

so that unseen documents have a likelihood. Four ways to the topics, one file each, over the same
counts:

    gibbs         ``lda_gibbs``        EM, then collapsed Gibbs sweeps whose counts are averaged:
    the best topics of the four (default for whole counts)
    cvb0          ``lda_em``           EM in its MAP form: a few dozen cheap sweeps, weights welcome
    variational   ``lda_variational``  the classical bound, which never falls
    online        ``lda_online``       stepwise EM over batches: streams, files, ``partial_fit``

The certificate: a stationary point (EM, variational), or fresh chains that stay where the topics
are (Gibbs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.special import psi

from eckart.certify.certificate import Certificate, Check
from eckart.certify.topics import certify_em, certify_gibbs, certify_stream, certify_variational
from eckart.engines import engine_named
from eckart.errors import invalid
from eckart.explain.topics import lda_gibbs, lda_variational
from eckart.explain.topics import topic_em as lda_em
from eckart.explain.topics.documents import (
    as_counts,
    common_words,
    counted,
    every,
    every_other,
    require_whole_numbers,
    tokens_of,
    whole_numbers,
)
from eckart.explain.topics.lda_streams import StreamedTopics
from eckart.explain.topics.priors import Priors, SolvedPrior, given_priors
from eckart.explain.topics.topic_em import TopicProblem, as_topics
from eckart.explain.topics.topic_model import by_size, reordered
from eckart.factors import Topics
from eckart.fit import Fit, fitted, one_kind_of_names, plan_of, require_room
from eckart.io.models.checkpoint import resuming
from eckart.io.read import read
from eckart.io.text.shards import pieces
from eckart.matrix import Counts
from eckart.matrix_blocks import parts_of
from eckart.parameters import check, file_name, flag, number, one_of, optional, param, starts, whole
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher, progress

METHODS = ("auto", "gibbs", "cvb0", "variational", "batch", "online")
GIBBS_TOKENS = 2e8
"""More tokens than this are not sampled one by one by default."""


@dataclass(eq=False, repr=False)
class LDA(StreamedTopics):
    """Topics with Dirichlet priors, by Gibbs sampling, EM, variational Bayes or from a stream.

    Parameters
    ----------
    n_components : int
        How many topics.
    doc_topic_prior : "auto", None, number or array
        alpha. "auto" learns one for each topic; None is 1 / n_components; numbers are kept.
    topic_word_prior : "auto", None, number or array
        eta. "auto" learns one number; None is 1 / n_components; a number, one for each word, or
        n_components x words are kept.
    learning_method : "auto", "gibbs", "cvb0", "variational" (or "batch"), "online"
        "auto": "gibbs" for whole counts up to 2e8 tokens, "online" for a stream, else "cvb0";
        ``fit_.plan`` says which and why.
    max_iter : int or None
        Most EM or variational steps, passes of "online"; None is 24 before Gibbs, 100, 100 and 1.
    burn_in, n_samples : None or int, int
        Gibbs sweeps before averaging, and averaged. None: 20 to 200, the more the fewer tokens
        there are.
    tol : float
        "cvb0" and "variational" stop when the objective of a token rises by less.
    n_init : int
        Starts (chains), of which the best is kept; "online" has one, whatever is asked for.
    batch_size, learning_decay, learning_offset, total_samples : int, float, float, None or float
        "online": documents a batch, r_t = (offset + t)^-decay, documents of the whole corpus (None:
        those seen).
    max_doc_update_iter, mean_change_tol : int, float
        "variational": most updates of a document in a step, and the mean change at which they stop.
    evaluate_every, perp_tol : int, float
        "variational": every so many steps (0 or less: never) the perplexity of the training
        documents, exp of minus the bound a token, is looked at; the fit stops when it has fallen by
        less than ``perp_tol``, and ``verbose`` prints it.
    n_jobs : None or int
        Most threads, where ``n_threads`` does not say; negative: all cores.
    seed_words : None or {topic: [words]} Words (names or positions) that lean a topic; topics then
        keep their numbers. ``seed_weight`` is the pseudo-count of each.
    warm_start : bool
        Begin at the topics of the last fit and keep their numbers.
    checkpoint : None or path
        File in which the state is kept every few seconds; the same fit resumes from it after a
        crash, with the same bits.
    random_state, engine, n_threads, verbose
        Seed; what computes ("auto", "cpu", "numpy"); most threads to use (results do not depend on
        it, Gibbs included); progress bars.

    Attributes
    ----------
    components_, topic_word_, sizes_
        Expected counts with eta included, p(w|z), the topics' shares of all tokens; the largest
        topic first.
    doc_topic_prior_, topic_word_prior_
        alpha and eta as fixed or learned.
    n_iter_, n_batch_iter_, bound_, exp_dirichlet_component_, random_state_
        Sweeps; batches (sweeps where there are none); perplexity of the training documents by the
        objective of the method; exp E log p(w|z) under
        the Dirichlet distribution of ``components_``; the generator that the fit began with.
    fit_, certificate_
        All of the fit; its evidence.

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

    n_components: int = param(10, whole(1))
    _: KW_ONLY
    doc_topic_prior: Any = param("auto")
    topic_word_prior: Any = param("auto")
    learning_method: Literal["auto", "gibbs", "cvb0", "variational", "batch", "online"] = param(
        "auto", one_of(*METHODS)
    )
    learning_decay: float = param(0.7, number(0, 1, above=True))
    learning_offset: float = param(10.0, number(0))
    max_iter: int | None = param(None, optional(whole(0)))
    batch_size: int = param(4096, whole(1))
    total_samples: float | None = param(None, optional(number(0)))
    tol: float = param(1e-4, number(0))
    mean_change_tol: float = param(1e-3, number(0))
    max_doc_update_iter: int = param(100, whole(1, 1_000_000))
    burn_in: int | None = param(None, optional(whole(0)))
    n_samples: int = param(30, whole(1))
    n_init: int = param(1, starts())
    seed_words: Any = param(None)
    seed_weight: float = param(100.0, number(0))
    warm_start: bool = param(False, flag())
    checkpoint: Any = param(None, file_name())
    evaluate_every: int = param(-1, whole(-(2**31)))
    perp_tol: float = param(0.1, number(0))
    n_jobs: int | None = param(None, optional(whole(-(2**31))))

    def fit(self, X: Any, y: Any = None) -> LDA:
        """Fit to documents x words: sparse matrix, array, frame, file, or a re-readable source of
        sparse blocks (``eckart.shards``). A list of texts is counted first, without the words that
        stand in more than half of them; ``eckart.corpus`` has other rules."""
        check(self)
        X = counted(X)
        self.__dict__.pop("_running", None)
        engine = self._engine()
        with progress(bool(self.verbose)) as watch, engine.at_work():
            if pieces(X) is not None:
                self._fit_pieces(X, engine, watch)
            else:
                self._fit_matrix(X, engine, watch)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """p(z|d) of the training documents, folded in at the final topics."""
        return self.fit(X).transform(X)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        x, engine, plan = self._documents(X), self._engine(), self.fit_.plan
        with engine.at_work():
            moves = plan.get("priors moved at", ())
            return self._certify(
                x,
                engine.put(x),
                engine,
                self._topics(),
                self._eta,
                plan["method"],
                self.fit_.trace,
                moves=moves,
            )

    @fitted
    def n_batch_iter_(self) -> int:
        """Batches taken in; sweeps where the method has no batches."""
        plan = self._fitted("n_batch_iter_").plan
        return int(plan.get("batches", plan["sweeps"]))

    @fitted
    def bound_(self) -> float:
        """exp of minus the objective of a token at the end of the fit: a perplexity of the training
        documents."""
        values = self._fitted("bound_").trace.values
        return float(np.exp(-values[-1])) if values else float("nan")

    @fitted
    def exp_dirichlet_component_(self) -> np.ndarray:
        """exp E log p(w|z), k x words, under Dir(``components_``)."""
        counts = self._topics().counts.astype(np.float64)
        return np.exp(psi(counts) - psi(counts.sum(axis=1, keepdims=True))).astype(
            self._topics().counts.dtype
        )

    @fitted
    def random_state_(self) -> np.random.Generator:
        """A generator as the fit began with, where ``random_state`` is a number."""
        self._fitted("random_state_")
        return generator(self.random_state)

    @fitted
    def doc_topic_prior_(self) -> np.ndarray:
        """alpha, one for each topic."""
        return self._topics().prior

    @fitted
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

    def _fit_matrix(self, X: Any, engine: Any, watch: Watcher) -> None:
        """Choose the method, solve, order the topics by size unless their numbers are to be kept,
        measure the certificate, and become fitted."""
        x = as_counts(one_kind_of_names(read(X)), "LDA")
        require_room("n_components", self.n_components, sum(x.shape) * float(self.n_components), 4)
        first = self._warm(X)
        docs, priors = engine.put(x), self._priors(x.shape[1], x.columns)
        method, reason = self._method(x)
        with resuming(self, x, y=first) as (memory, rng):
            options = {
                "engine": engine,
                "rng": rng,
                "first": first,
                "watch": watch,
                "memory": memory,
            }
            solved = self._solver(method, x, docs, engine)(priors, **options)
        priors = solved.priors
        t = as_topics(solved.counts, priors.words, priors.alpha, x.dtype, x.columns)
        solved = solved._replace(
            counts=np.empty((0, t.k))
        )  # words x k numbers may be many, and the topics have them now
        numbered = (
            self.seed_words is not None
            or np.ndim(self.topic_word_prior) > 1
            or np.ndim(self.doc_topic_prior) > 0
        )
        if first is None and not numbered:
            order = by_size(t)
            t, priors = reordered(t, order), priors.reordered(order)
        self._eta = priors.words
        moves = solved.plan.get("priors moved at", ())
        certificate = self._certify(
            x, docs, engine, t, self._eta, method, solved.trace, solved.facts, moves
        )
        plan = {"method": method, "reason": reason, **plan_of(engine)} | solved.plan
        eta = float(priors.eta) if priors.boost is None else "by word"
        memory.end(solved.trace)
        self.fit_ = Fit(
            t,
            certificate,
            solved.trace,
            plan | {"eta": eta, "tokens": tokens_of(x)} | common_words(x),
        )
        # sweeps of Gibbs and passes of a stream are as many as were asked for
        if method in ("cvb0", "variational"):
            self._say_if_early(self.fit_)

    def _method(self, x: Counts) -> tuple[str, str]:
        method = {"batch": "variational"}.get(self.learning_method, self.learning_method)
        if method == "gibbs":
            require_whole_numbers(x, "gibbs")
        if method != "auto":
            return method, "asked for"
        if parts_of(x) is not None:
            return "cvb0", (
                "the documents come in parts, and Gibbs sampling walks through all tokens in turn"
            )
        if not whole_numbers(x):
            return "cvb0", "the counts are not all whole numbers, which Gibbs sampling needs"
        if tokens_of(x) > GIBBS_TOKENS:
            return "cvb0", f"{tokens_of(x):.3g} tokens are too many to sample one by one"
        return "gibbs", "whole counts: averaged Gibbs sweeps predict best for their time"

    def _solver(self, method: str, x: Counts, docs: Any, engine: Any) -> Callable[..., SolvedPrior]:
        """The solver of that name with the parameters that it takes, as a function of priors,
        engine, rng, first and watch."""
        starts, tol = int(self.n_init), float(self.tol)
        most = {"gibbs": 24}.get(method, 100) if self.max_iter is None else int(self.max_iter)
        if method == "gibbs":
            burn_in = (
                lda_gibbs.burn_in_for(tokens_of(x)) if self.burn_in is None else int(self.burn_in)
            )
            sweeps: Any = {"burn_in": burn_in, "n_samples": int(self.n_samples)}
            step = lda_gibbs.trial_step(tokens_of(x), int(self.n_components))
            some = None if step == 1 or parts_of(x) is not None else engine.put(every(x, step))
            return partial(lda_gibbs.solve, docs, max_iter=most, n_init=starts, some=some, **sweeps)
        if method == "cvb0":
            drawn = parts_of(x) is None and whole_numbers(
                x
            )  # priors are learned from drawn counts, for which documents must be in one place
            kinds: Any = {"whole": drawn, "dtype": _precision(engine, docs)}
            return partial(lda_em.solve, docs, max_iter=most, n_init=starts, tol=tol, **kinds)
        if method == "variational":
            inner: Any = {
                "inner": int(self.max_doc_update_iter),
                "inner_tol": float(self.mean_change_tol),
            }
            inner["enough"] = self._enough if self.evaluate_every > 0 else None
            return partial(
                lda_variational.solve, docs, max_iter=most, n_init=starts, tol=tol, **inner
            )
        return partial(self._solve_online, x)

    def _certify(
        self,
        x: Counts,
        docs: Any,
        engine: Any,
        t: Topics,
        eta: Any,
        method: str,
        trace: Trace,
        facts: dict[str, Any] | None = None,
        moves: Iterable[int] = (),
    ) -> Certificate:
        """Evidence of the method's kind over the documents x, placed as ``docs``."""
        tol = float(self.tol)
        if method == "online":
            c = certify_stream([engine.put(half) for half in every_other(x)], t, engine=engine)
        elif method == "gibbs" and tokens_of(x) > 0:
            c = certify_gibbs(docs, t, eta, engine=engine)
        elif method == "variational":
            priors = (
                Priors(t.prior, 0.0, eta, False, False)
                if np.ndim(eta)
                else Priors(t.prior, eta, None, False, False)
            )
            problem = lda_variational.VariationalProblem(docs, priors, engine, 1, 0.0)
            c = certify_variational(problem, t, trace=trace, tol=tol)
        else:
            em = TopicProblem(docs, engine, t.prior, eta, dtype=_precision(engine, docs))
            c = certify_em(em, t, trace=trace, tol=tol, name="LDA", moves=moves)
        checks = c.checks
        if trace.reason is StopReason.INTERRUPTED:
            checks = (*checks, Check("interrupted", 1, 0, "the fit was interrupted before its end"))
        return Certificate(c.problem, c.kind, checks, c.facts | (facts or {}), c.notes)

    def _enough(self, trace: Trace) -> tuple[bool, str]:
        """Whether the perplexity, looked at every few steps, has fallen by less than ``perp_tol``;
        and what it is, where it was looked at."""
        every, steps = int(self.evaluate_every), len(trace) - 1
        if steps % every:
            return False, ""
        before, now = (float(np.exp(-trace.values[i])) for i in (-1 - every, -1))
        return steps >= 2 * every and before - now < self.perp_tol, f", perplexity {now:.6g}"

    def _engine(self) -> Any:
        threads = (
            self.n_threads
            if self.n_threads is not None or self.n_jobs is None or self.n_jobs < 1
            else int(self.n_jobs)
        )
        return engine_named(self.engine, threads)

    def _priors(self, n: int, columns: Any) -> Priors:
        seeds = self.seed_words, float(self.seed_weight), columns
        return given_priors(
            self.doc_topic_prior, self.topic_word_prior, seeds, n, int(self.n_components)
        )

    def _warm(self, X: Any) -> np.ndarray | None:
        """phi of the last fit, words x k, where the fit is to begin there."""
        if not self.warm_start or "fit_" not in vars(self):
            return None
        self._new_rows(X)
        t = self.fit_.factors
        if t.k != self.n_components:
            raise invalid(
                "n_components",
                self.n_components,
                f"{t.k}, as in the fit that warm_start goes on from",
            )
        return np.ascontiguousarray(t.words.T)


def _precision(engine: Any, docs: Any) -> type:
    """Double where a word's count may be too large to be added up in single precision."""
    return np.float64 if engine.topic_totals(docs).max(initial=0.0) >= 2**24 else np.float32
