"""LDA over batches: ``learning_method="online"``, sources that do not fit in memory, ``partial_fit``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.engines import engine_named
from eckart.errors import InputError
from eckart.explain.topics import lda_online
from eckart.explain.topics.documents import as_counts, tokens_of
from eckart.explain.topics.priors import Priors
from eckart.explain.topics.topic_em import batches
from eckart.factors import Topics
from eckart.fit import Fit, one_kind_of_names
from eckart.io.read import read
from eckart.matrix import Counts
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher


class Solved(NamedTuple):
    """What a method found: expected counts of words by topic, the priors, the trace, and what plan and certificate say about it."""

    counts: np.ndarray
    priors: Priors
    trace: Trace
    plan: dict[str, Any]
    facts: dict[str, Any]


def topics_of(counts: np.ndarray, priors: Priors, dtype: np.dtype, columns: Any) -> Topics:
    sizes = counts.sum(axis=0, dtype=np.float64)
    sizes = sizes / sizes.sum() if sizes.sum() > 0 else np.full(len(sizes), 1.0 / len(sizes))
    whole = np.maximum(counts + priors.words, 0.0)
    return Topics(np.ascontiguousarray(whole.T, dtype), np.asarray(priors.alpha, np.float64), sizes, columns)


class LDAStreams:
    """The online part of ``LDA``."""

    fit_: Fit
    n_threads: int | None
    random_state: Any
    max_iter: int | None
    batch_size: int
    learning_decay: float
    learning_offset: float
    total_samples: float | None
    _eta: Any
    _running: lda_online.Running

    def partial_fit(self, X: Any, y: Any = None) -> Any:
        """One more batch of documents by stepwise EM; it is not kept. A model that was fitted online, or loaded after it was, goes on; else the first
        call begins."""
        self._check()
        engine, fresh = engine_named("cpu", self.n_threads), "_running" not in vars(self)
        if fresh and "fit_" in vars(self) and self.fit_.plan["method"] == "online":
            fresh, self._running = False, self._resumed()
        x = self._documents(X) if not fresh else as_counts(one_kind_of_names(read(X)), "LDA")
        running = (
            lda_online.begin(x, self._priors(x.shape[1], x.columns), generator(self.random_state))
            if fresh
            else self._running
        )
        self._running = self._online_step(x, running, engine)
        self._keep_running(x, x.columns if fresh else self._topics().columns)
        return self

    def _resumed(self) -> lda_online.Running:
        """The running statistic of topics that were loaded from a file."""
        t, plan = self._topics(), self.fit_.plan
        priors = self._priors(t.n, t.columns)
        eta = priors.eta if priors.boost is not None else float(self._eta)
        priors = replace(priors, alpha=t.prior, eta=eta)
        counts = np.maximum(t.counts.T - np.asarray(priors.words), 0.0)
        share = np.ascontiguousarray(counts / max(counts.sum(), 1e-300), np.float32)
        words = np.ascontiguousarray(t.words.T, np.float32)
        value = self.fit_.trace.values[-1] if len(self.fit_.trace) else -np.inf
        seen = float(plan["tokens"]), int(plan.get("documents", 0))
        return lda_online.Running(share, words, priors, int(plan["batches"]), *seen, value)

    def _solve_online(self, x: Counts, priors: Priors, first: Any, watch: Watcher) -> Solved:
        passes = 1 if self.max_iter is None else int(self.max_iter)
        rng, engine = generator(self.random_state), engine_named("cpu", self.n_threads)
        trace = Trace("log-likelihood of a token in each batch", reason=StopReason.CONVERGED)
        r, done = lda_online.begin(x, priors, rng, first), 0
        first_few = min(lda_online.FIRST, x.shape[0] // 4) if first is None else 0
        try:
            for _ in range(passes):
                order = rng.permutation(x.shape[0])
                for batch in lda_online.ahead(batches(x, int(self.batch_size), order), 0 if r.batches else first_few):
                    r = self._online_step(batch, r, engine, tokens_of(x))
                    done += batch.shape[0]
                    trace.add(r.value)
                    watch("documents", done, passes * x.shape[0])
        except KeyboardInterrupt:
            trace.reason = StopReason.INTERRUPTED
        return Solved(r.counts(tokens_of(x)), r.priors, trace, {"sweeps": passes, "batches": r.batches}, {})

    def _fit_blocks(self, blocks: Any, watch: Watcher) -> None:
        """One or more passes over a source that does not fit in memory."""
        engine, rng = engine_named("cpu", self.n_threads), generator(self.random_state)
        passes, r, x = 1 if self.max_iter is None else int(self.max_iter), None, None
        trace = Trace("log-likelihood of a token in each batch", reason=StopReason.CONVERGED)
        columns = None
        try:
            for _ in range(passes):
                for x in lda_online.ahead(self._batches_of(blocks), 0 if r is not None else lda_online.FIRST):
                    columns = x.columns if columns is None else columns
                    if r is None:
                        r = lda_online.begin(x, self._priors(x.shape[1], columns), rng)
                    r = self._online_step(x, r, engine)
                    trace.add(r.value)
                    watch("documents", r.documents, None)
        except KeyboardInterrupt:
            trace.reason = StopReason.INTERRUPTED
        if r is None or x is None:
            raise InputError("X gave no block of documents, wanted at least one")
        self._running = r
        self._keep_running(x, columns, trace, passes)

    def _batches_of(self, blocks: Any) -> Iterator[Counts]:
        for block in blocks:
            x = as_counts(block if isinstance(block, Counts) else read(block), "LDA")
            for batch in batches(x, int(self.batch_size), np.arange(x.shape[0])):
                yield replace(batch, columns=x.columns)

    def _online_step(
        self, x: Counts, r: lda_online.Running, engine: Any, total: float | None = None
    ) -> lda_online.Running:
        if total is None and self.total_samples is not None and r.documents:
            total = float(self.total_samples) * r.tokens / r.documents
        passes = lda_online.PASSES if r.batches == 0 else 1
        return lda_online.step(
            x,
            r,
            decay=float(self.learning_decay),
            offset=float(self.learning_offset),
            total=total,
            engine=engine,
            passes=passes,
        )

    def _keep_running(self, x: Counts, columns: Any, trace: Trace | None = None, passes: int = 1) -> None:
        r = self._running
        if trace is None:
            trace = Trace("log-likelihood of a token in each batch", reason=StopReason.CONVERGED)
            trace.add(r.value)
        plan = {"method": "online", "reason": "batches of a stream", "sweeps": passes, "batches": r.batches}
        plan |= {"documents": r.documents, "tokens": r.tokens}
        t = topics_of(r.counts(r.tokens), r.priors, x.dtype, columns)
        self._eta = r.priors.words
        self.fit_ = Fit(t, self._certify(x, t, self._eta, "online", trace), trace, plan)

    if TYPE_CHECKING:  # from the other parts of LDA

        def _check(self) -> None: ...

        def _priors(self, n: int, columns: Any) -> Priors: ...

        def _documents(self, X: Any) -> Counts: ...

        def _topics(self) -> Topics: ...

        def _certify(self, x: Counts, t: Topics, eta: Any, method: str, trace: Trace) -> Certificate: ...
