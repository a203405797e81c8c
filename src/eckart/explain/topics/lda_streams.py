"""LDA of documents that come in batches: a stream, files, blocks that do not fit in memory
(``lda_online``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from eckart.errors import InputError, invalid
from eckart.explain.topics import lda_online
from eckart.explain.topics.documents import as_counts, batches, counted, tokens_of
from eckart.explain.topics.priors import Priors, SolvedPrior
from eckart.explain.topics.topic_em import as_topics
from eckart.explain.topics.topic_model import TopicModel
from eckart.fit import Fit, one_kind_of_names, plan_of, require_room
from eckart.io.models.checkpoint import Checkpoint, Memory, contents, resumed
from eckart.io.read import read
from eckart.io.text.shards import Shards, pieces
from eckart.matrix import Counts
from eckart.parameters import check
from eckart.rng import generator
from eckart.trace import Trace, Watcher

T = TypeVar("T", bound=Any)


class StreamedTopics(TopicModel):
    """partial_fit, and the fits of ``LDA`` that see a batch at a time."""

    max_iter: int | None
    batch_size: int
    checkpoint: Any

    def partial_fit(self: T, X: Any, y: Any = None) -> T:
        """One more batch of documents by stepwise EM; it is not kept. A model that was fitted
        online, or loaded after it was, goes on; else the first call begins."""
        check(self)
        engine, fresh = self._engine(), "_running" not in vars(self)
        if fresh and "fit_" in vars(self) and self.fit_.plan["method"] == "online":
            fresh, self._running = False, self._resumed()
        with engine.at_work():
            x = (
                self._documents(X)
                if not fresh
                else as_counts(one_kind_of_names(read(counted(X))), "LDA")
            )
            r = self._begin(x, generator(self.random_state), engine) if fresh else self._running
            self._running = self._step(x, r, engine)
            trace = lda_online.new_trace()
            trace.add(self._running.value)
            self._keep_running(x, x.columns if fresh else self._topics().columns, trace, 1, engine)
        return self

    def _solve_online(
        self: Any,
        x: Counts,
        priors: Priors,
        *,
        engine: Any,
        rng: Any,
        first: Any,
        watch: Watcher,
        memory: Memory,
    ) -> SolvedPrior:
        passes, rows, total = (
            1 if self.max_iter is None else int(self.max_iter),
            x.shape[0],
            tokens_of(x),
        )

        def shuffled() -> Iterator[Counts]:
            return batches(x, int(self.batch_size), rng.permutation(rows))

        def take(batch: Counts, r: Any) -> lda_online.Running:
            after = self._step(batch, r, engine, total)
            watch("documents", after.documents, passes * rows)
            return after

        start_state = lda_online.begin(x, priors, rng, engine, first)
        few = min(lda_online.FIRST, rows // 4) if first is None else 0
        r, trace, _ = lda_online.run(shuffled, passes, start_state, take, few, rng, memory)
        assert r is not None
        return SolvedPrior(
            r.counts(total), r.priors, trace, {"sweeps": passes, "batches": r.batches}, {}
        )

    def _fit_pieces(self: Any, X: Any, engine: Any, watch: Watcher) -> None:
        """One or more passes over a source that does not fit in memory."""
        passes = 1 if self.max_iter is None else int(self.max_iter)
        if self.checkpoint is not None and not isinstance(X, (list, tuple, Shards)):
            raise invalid(
                "checkpoint",
                self.checkpoint,
                "None for an iterator: a fit that goes on reads its blocks again; use "
                "eckart.write_shards",
            )
        blocks = lambda: (part for x in pieces(X) or () for part in contents(x))  # noqa: E731
        file = Checkpoint.of_parts(self, blocks)

        def take(x: Counts, r: lda_online.Running | None) -> lda_online.Running:
            after = self._step(x, r or self._begin(x, rng, engine), engine)
            watch("documents", after.documents, None)
            return after

        def cut() -> Iterator[Counts]:
            for block in pieces(X) or ():
                x = as_counts(block, "LDA")
                yield from batches(x, int(self.batch_size), np.arange(x.shape[0]))

        with resumed(file, self.random_state) as (memory, rng):
            r, trace, x = lda_online.run(cut, passes, None, take, lda_online.FIRST, rng, memory)
        memory.end(trace)
        if r is None or x is None:
            raise InputError("X must have at least one block of documents, got none")
        self._running = r
        self._keep_running(x, x.columns, trace, passes, engine)

    def _begin(self: Any, x: Counts, rng: np.random.Generator, engine: Any) -> lda_online.Running:
        require_room("n_components", self.n_components, sum(x.shape) * float(self.n_components), 4)
        return lda_online.begin(x, self._priors(x.shape[1], x.columns), rng, engine)

    def _step(
        self: Any, x: Counts, r: lda_online.Running, engine: Any, total: float | None = None
    ) -> lda_online.Running:
        if total is None and self.total_samples is not None and r.documents:
            total = float(self.total_samples) * r.tokens / r.documents
        rates = lda_online.Rates(float(self.learning_decay), float(self.learning_offset))
        return lda_online.step(x, r, rates, total, engine)

    def _resumed(self: Any) -> lda_online.Running:
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

    def _keep_running(
        self: Any, x: Counts, columns: Any, trace: Trace, passes: int, engine: Any
    ) -> None:
        r = self._running
        plan = {
            "method": "online",
            "reason": "batches of a stream",
            **plan_of(engine),
            "sweeps": passes,
        }
        plan |= {"batches": r.batches, "documents": r.documents, "tokens": r.tokens}
        t = as_topics(r.counts(r.tokens), r.priors.words, r.priors.alpha, x.dtype, columns)
        self._eta = r.priors.words
        self.fit_ = Fit(
            t, self._certify(x, None, engine, t, self._eta, "online", trace), trace, plan
        )
