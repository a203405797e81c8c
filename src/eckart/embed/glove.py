"""GloVe: vectors whose inner products are logarithms of co-occurrence counts.

    min J = sum over N_wv > 0 of f(N_wv) (log N_wv - <zeta_w, z_v> - b_w - c_v)^2,      f(N) =
    min(1, (N / n_max)^power)

Two ways to the same objective: weighted alternating least squares (``glove_als``: no learning rate,
about ten sweeps), and AdaGrad entry by entry (``glove_adagrad``). Both report the mean of f d^2
over the pairs after every sweep or epoch.

The certificate is that of a stationary point: the gradient against the parts that cancel in it, and
for ALS an objective that never rose.

Reference: Pennington, Socher, Manning (2014), GloVe: global vectors for word representation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.pairs import GloveProblem, certify_glove
from eckart.embed import glove_adagrad, glove_als
from eckart.embed.cooccurrence import WEIGHTINGS
from eckart.embed.model import WordModel
from eckart.embed.pairs import Pairs, pairs_of, pairs_of_fit, source_of
from eckart.engines.protocol import RidgeRule
from eckart.errors import InputError
from eckart.factors import Embedding
from eckart.fit import Fit, fitted, plan_of, require_room
from eckart.io.dask.known import is_collection
from eckart.io.models.checkpoint import NOTHING, Memory, resumed_trace, resuming
from eckart.matrix import Observed
from eckart.parameters import file_name, flag, number, one_of, optional, param, whole
from eckart.trace import StopReason, Trace, Watcher, progress, silent

STEPS = {"als": 10, "adagrad": 15}
"""Sweeps and passes where ``max_iter`` is None."""
BIAS_L2 = 1e-3
"""The ridge of biases: they carry the words' frequencies, and should."""


def descend(
    state: Any,
    step: Callable[[Any], Any],
    *,
    max_iter: int,
    tol: float,
    patience: int,
    name: str,
    pack: Callable[[Any], dict[str, np.ndarray]],
    memory: Memory = NOTHING,
    watch: Watcher = silent,
) -> tuple[Any, Trace]:
    """Steps until the objective falls by less than a share ``tol``, so many times in a row as
    ``patience`` says; an interrupt keeps the last whole one. Returns the state and the loss after
    each step. Sweeps lower the loss with its ridge (two values each): the loss alone may rise on
    the way."""
    trace = resumed_trace("loss", (list(state.losses), [0.0] * len(state.losses)))
    trace.reason = StopReason.MAX_ITER
    try:
        while len(state.losses) < max_iter:
            state = step(state)
            trace.add(state.losses[-1])
            watch(name, len(state.losses), max_iter)
            lowered = getattr(state, "objective", [])[1::2] or trace.values
            last = np.array(lowered[-1 - patience :])
            if len(last) > patience and np.all(last[:-1] - last[1:] <= tol * np.abs(last[:-1])):
                trace.reason = StopReason.CONVERGED
                break
            if len(state.losses) < max_iter:
                memory.offer(partial(pack, state))
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
        if not state.losses:
            raise
    return state, trace


@dataclass(eq=False, repr=False)
class GloVe(WordModel):
    """Word vectors from logarithms of co-occurrence counts, by alternating least squares or
    AdaGrad.

    min sum over N > 0 of f(N) (log N - <zeta_w, z_v> - b_w - c_v)^2, f(N) = min(1, (N /
    n_max)^power); the vectors are zeta + z.

    Parameters
    ----------
    n_components : int
        k, the length of the vectors.
    solver : "als" or "adagrad"
        Alternating least squares (no learning rate, about ten sweeps), or steps entry by entry.
    n_max, power : float
        Of the weights f; pairs that occur n_max times or more weigh 1.
    l2 : float
        The ridge of ALS, times the root of the number of a word's pairs: small, for uniqueness and
        for rare words. AdaGrad has none. Of 0.03, 0.1 and 0.3, 0.1 had the best scores of word
        similarity on three texts of 2 to 3 M words.
    max_iter : int or None
        Most sweeps (None: 10) or epochs (None: 15).
    tol : float
        Stop when the loss (of ALS: with its ridge) falls by less than this share in a sweep, or in
        three epochs in a row.
    learning_rate : float
        Of AdaGrad.
    add_context : bool
        Hand out zeta + z (as GloVe does), or zeta alone.
    window, weighting
        Of the co-occurrences, as for ``eckart.cooccurrence``. None: 10 and "harmonic" for
        sentences; where no list has an item twice (sets: baskets, what a
        person rated) the whole list, "flat".
    min_count, max_words, tokenizer, lowercase, numbers, min_length
        Of the vocabulary, as for ``eckart.sequences``.
    checkpoint : path
        File in which the state is kept after sweeps or epochs; the same fit resumes from it after a
        crash, with the same bits.
    random_state, engine, n_threads, verbose
        Seed; "auto", "cpu", "numpy" or another engine; most threads (results do not depend on them,
        for both solvers); progress bars.

    Attributes
    ----------
    vectors_, components_ : the words with their vectors; the vectors alone, n x k (float32)
    n_iter_, loss_ : sweeps or epochs; the mean of f d^2 over the pairs
    fit_, certificate_ : ``Embedding`` with vectors zeta, context z and biases; certificate, trace
        of the loss, plan

    ``fit`` takes text, lists of items, ``Sequences``, or co-occurrences (``Counts`` or a square
    SciPy matrix).

    Examples
    --------
    >>> texts = ["the cat sat", "the dog sat", "a cat ran", "a dog ran"] * 5
    >>> model = GloVe(n_components=2, window=2, random_state=0).fit(texts)
    >>> model.vectors_["cat"].shape, model.loss_ < 0.1, model.certificate_.holds
    ((2,), True, True)

    References
    ----------
    J. Pennington, R. Socher, C. D. Manning, "GloVe: global vectors for word representation", EMNLP
    (2014).
    """

    _: KW_ONLY
    solver: Literal["als", "adagrad"] = param("als", one_of(*STEPS))
    n_max: float = param(10.0, number(0, above=True))
    power: float = param(0.75, number(0))
    l2: float = param(0.1, number(0))
    max_iter: int | None = param(None, optional(whole(1)))
    tol: float = param(1e-4, number(0))
    learning_rate: float = param(0.05, number(0, above=True))
    add_context: bool = param(True, flag())
    weighting: Literal["harmonic", "flat", "linear"] | None = param(
        None, optional(one_of(*WEIGHTINGS))
    )
    checkpoint: Any = param(None, file_name())

    @fitted
    def n_iter_(self) -> int:
        """Sweeps or epochs."""
        return len(self._fitted("n_iter_").trace)

    @fitted
    def loss_(self) -> float:
        """The mean of f(N) (log N - <zeta, z> - b - c)^2 over the pairs that were seen."""
        return float(self.certificate_["loss"])

    def fit(self, X: Any, y: Any = None) -> GloVe:
        """Fit to text, lists of items, ``Sequences`` or co-occurrences."""
        self._check()
        if is_collection(X) and self.solver == "adagrad":
            raise InputError(
                "solver='adagrad' came with a Dask collection and walks through all "
                "pairs in turn, in one place; use solver='als'"
            )
        engine, k, source = self._engine_for(X), int(self.n_components), source_of(self, X)
        pairs = pairs_of(self, source, engine)
        require_room("n_components", k, 2.0 * len(pairs.words) * k, 4)
        x, weights = self._entries(pairs)
        problem = self._problem(x, weights, engine)
        limit = STEPS[self.solver] if self.max_iter is None else int(self.max_iter)
        way: Any = glove_als if self.solver == "als" else glove_adagrad
        resumes = resuming(self, x, weights, ignored=("max_iter", "add_context", "engine"))
        with resumes as (memory, rng), engine.at_work(), progress(bool(self.verbose)) as watch:
            kept = memory.last()
            state = way.start(problem, k, engine, rng) if kept is None else way.unpack(kept, engine)
            how: dict[str, Any] = {
                "max_iter": limit,
                "tol": float(self.tol),
                "memory": memory,
                "watch": watch,
            }
            step = way.stepper(problem, state, engine, float(self.learning_rate))
            state, trace = descend(
                state,
                step,
                patience=way.PATIENCE,
                name=way.NAME,
                pack=lambda s: way.pack(s, engine),
                **how,
            )
            u, v, b, c = way.parts(state, engine)
            factors = Embedding(u, v, b, c, pairs.counts, pairs.words)
            objective = list(getattr(state, "objective", []))
            certificate = certify_glove(problem, factors, engine, trace, objective)
        memory.end(trace)
        plan = plan_of(engine) | {
            "method": way.METHOD,
            "reason": "asked for by name",
            "steps": len(trace),
            "pairs": x.nnz,
            "objective": objective,
            "words": pairs.rules,
            **self._window_plan(source),
        }
        self.fit_ = Fit(factors, certificate, trace, plan)
        self._say_if_early(self.fit_)
        return self

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and the text (or co-occurrences) alone."""
        f, engine = self._embedding(), self._engine_for(X)
        pairs = pairs_of_fit(self, X, engine, f.columns)
        with engine.at_work():
            problem = self._problem(*self._entries(pairs), engine)
            return certify_glove(problem, f, engine, self.fit_.trace, self.fit_.plan["objective"])

    def _entries(self, pairs: Pairs) -> tuple[Observed, np.ndarray]:
        """log N at the pairs that were seen, and their weights f."""
        n = pairs.n
        if not (n.data > 0).all():
            csr = n.to_scipy().copy()
            csr.eliminate_zeros()
            n = replace(n, indptr=csr.indptr, indices=csr.indices, data=csr.data)
        data = n.data.astype(np.float64)
        weights = np.minimum(1.0, (data / self.n_max) ** self.power).astype(np.float32)
        return Observed(n.indptr, n.indices, np.log(data).astype(np.float32), n.n_columns), weights

    def _problem(self, x: Observed, weights: np.ndarray, engine: Any) -> GloveProblem:
        l2 = float(self.l2) if self.solver == "als" else 0.0
        rule = RidgeRule(l2, 0.5, bias=True, bias_l2=BIAS_L2 if l2 else 0.0)
        return GloveProblem.of(x, weights, rule, engine)

    def _final(self, f: Embedding) -> np.ndarray:
        return f.vectors + f.context if self.add_context else f.vectors
