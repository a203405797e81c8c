"""GloVe: vectors whose inner products are logarithms of co-occurrence counts.

    min J = sum over N_wv > 0 of f(N_wv) (log N_wv - <zeta_w, z_v> - b_w - c_v)^2,      f(N) = min(1, (N / n_max)^power)

Two ways to the same objective: weighted alternating least squares (``glove_als``: no learning rate, about ten sweeps), and AdaGrad entry by entry
(``glove_adagrad``). Both report the mean of f d^2 over the pairs after every sweep or epoch.

The certificate is that of a stationary point: the gradient against the parts that cancel in it, and for ALS an objective that never rose.

Reference: Pennington, Socher, Manning (2014), GloVe: global vectors for word representation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.glove import GloveProblem, certify_glove
from eckart.embed import glove_adagrad, glove_als
from eckart.embed.model import WordModel
from eckart.embed.pairs import Pairs, pairs_of
from eckart.engines import engine_named
from eckart.engines.protocol import RidgeRule
from eckart.errors import InputError, wrong
from eckart.factors import Embedding
from eckart.fit import Fit
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.levels import resumed_trace
from eckart.matrix import Observed
from eckart.rng import generator
from eckart.scheduler import single_threaded_blas
from eckart.trace import StopReason, Trace, Watcher, progress, silent

CHECKPOINT_SECONDS = 10.0
STEPS = {"als": 10, "adagrad": 15}
BIAS_L2 = 1e-3
"""The ridge of biases: they carry the words' frequencies, and should."""


def descend(
    state: Any,
    step: Callable[[Any], Any],
    *,
    max_iter: int,
    tol: float,
    name: str,
    keeper: Checkpoint | None = None,
    watch: Watcher = silent,
) -> tuple[Any, Trace]:
    """Steps until the loss falls by less than a share ``tol``; an interrupt keeps the last whole one. Returns the state and the loss after each step."""
    trace = resumed_trace("loss", (list(state.losses), [0.0] * len(state.losses)))
    trace.reason = StopReason.MAX_ITER
    try:
        while len(state.losses) < max_iter:
            state = step(state)
            trace.add(state.losses[-1])
            watch(name, len(state.losses), max_iter)
            if len(trace) > 1 and trace.values[-2] - trace.values[-1] <= tol * abs(trace.values[-2]):
                trace.reason = StopReason.CONVERGED
                break
            if keeper and len(state.losses) < max_iter:
                keeper.save(len(state.losses), state.pack())
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
        if not state.losses:
            raise
    return state, trace


class GloVe(WordModel):
    """Word vectors from logarithms of co-occurrence counts, by alternating least squares or AdaGrad.

    min sum over N > 0 of f(N) (log N - <zeta_w, z_v> - b_w - c_v)^2, f(N) = min(1, (N / n_max)^power); the vectors are zeta + z.

    Parameters
    ----------
    n_components : int
        k, the length of the vectors.
    solver : "als" or "adagrad"
        Alternating least squares (no learning rate, about ten sweeps), or steps entry by entry.
    n_max, power : float
        Of the weights f; pairs that occur n_max times or more weigh 1.
    l2 : float
        The ridge of ALS, times the root of the number of a word's pairs: small, for uniqueness and for rare words. AdaGrad has none.
    max_iter : int or None
        Most sweeps (None: 10) or epochs (None: 15).
    tol : float
        Stop when the loss falls by less than this share in a sweep or epoch.
    learning_rate : float
        Of AdaGrad.
    add_context : bool
        Hand out zeta + z (as GloVe does), or zeta alone.
    window, weighting
        Of the co-occurrences, as for ``eckart.cooccurrence``.
    min_count, max_words, tokenizer, lowercase, numbers, min_length
        Of the vocabulary, as for ``eckart.sequences``.
    checkpoint : path
        File in which the state is kept after sweeps or epochs; the same fit resumes from it after a crash, with the same bits.
    random_state, n_threads, verbose
        Seed; most threads (results do not depend on them, for both solvers); progress bars.

    Attributes
    ----------
    vectors_, components_ : the words with their vectors; the vectors alone, n x k (float32)
    n_iter_, loss_ : sweeps or epochs; the mean of f d^2 over the pairs
    fit_, certificate_ : ``Embedding`` with vectors zeta, context z and biases; certificate, trace of the loss, plan

    ``fit`` takes text, lists of items, ``Sequences``, or co-occurrences (``Counts`` or a square SciPy matrix).

    Examples
    --------
    >>> texts = ["the cat sat", "the dog sat", "a cat ran", "a dog ran"] * 5
    >>> model = GloVe(n_components=2, window=2, random_state=0).fit(texts)
    >>> model.vectors_["cat"].shape, model.loss_ < 0.1, model.certificate_.holds
    ((2,), True, True)

    References
    ----------
    J. Pennington, R. Socher, C. D. Manning, "GloVe: global vectors for word representation", EMNLP (2014).
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        solver: str = "als",
        n_max: float = 10.0,
        power: float = 0.75,
        l2: float = 0.03,
        max_iter: int | None = None,
        tol: float = 1e-4,
        learning_rate: float = 0.05,
        add_context: bool = True,
        window: int = 10,
        weighting: str = "harmonic",
        min_count: int = 5,
        max_words: int | None = None,
        tokenizer: Any = None,
        lowercase: bool = True,
        numbers: bool = True,
        min_length: int = 1,
        checkpoint: Any = None,
        random_state: Any = None,
        n_threads: int | None = None,
        verbose: bool = False,
    ):
        self.n_components = n_components
        self.solver = solver
        self.n_max = n_max
        self.power = power
        self.l2 = l2
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.add_context = add_context
        self.window = window
        self.weighting = weighting
        self.min_count = min_count
        self.max_words = max_words
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.numbers = numbers
        self.min_length = min_length
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    @property
    def n_iter_(self) -> int:
        """Sweeps or epochs."""
        return len(self._fitted("n_iter_").trace)

    @property
    def loss_(self) -> float:
        """The mean of f(N) (log N - <zeta, z> - b - c)^2 over the pairs that were seen."""
        return float(self.certificate_["loss"])

    def fit(self, X: Any, y: Any = None) -> GloVe:
        """Fit to text, lists of items, ``Sequences`` or co-occurrences."""
        self._check()
        pairs = pairs_of(self, X)
        engine, rng, k = engine_named("cpu", self.n_threads), generator(self.random_state), self._k()
        problem = self._problem(pairs)
        keeper = Checkpoint.of_fit(
            self, problem.x, problem.weights, ignored=("max_iter", "add_context"), seconds=CHECKPOINT_SECONDS
        )
        limit = STEPS[self.solver] if self.max_iter is None else int(self.max_iter)
        kept = keeper.load() if keeper else None
        state: Any
        with single_threaded_blas(), progress(bool(self.verbose)) as watch:
            how: dict[str, Any] = {"max_iter": limit, "tol": float(self.tol), "keeper": keeper, "watch": watch}
            objective: list[float] = []
            if self.solver == "als":
                state = glove_als.AlsState.unpack(kept[1]) if kept else glove_als.start(problem, k, engine, rng)
                state, trace = descend(state, lambda s: glove_als.sweep(problem, s, engine), name="ALS sweeps", **how)
                u, v, b, c = state[:4]
                objective = state.objective
            else:
                state = (
                    glove_adagrad.AdaState.unpack(kept[1]) if kept else glove_adagrad.start(len(pairs.words), k, rng)
                )
                table = engine.glove_table(problem.x, problem.weights, state.seed)
                rate = float(self.learning_rate)
                step = lambda s: glove_adagrad.epoch(table, s, rate, engine)  # noqa: E731
                state, trace = descend(state, step, name="AdaGrad epochs", **how)
                u, v, b, c = state.parts()
            u, v = np.ascontiguousarray(u), np.ascontiguousarray(v)
            factors = Embedding(u, v, b, c, pairs.counts, pairs.words)
            certificate = certify_glove(problem, factors, engine, trace, objective)
        if keeper and trace.reason is not StopReason.INTERRUPTED:
            keeper.remove()
        plan = {
            "method": "alternating least squares"
            if self.solver == "als"
            else "AdaGrad, blocks without a common word in parallel",
            "reason": "asked for by name",
            "steps": len(trace),
            "pairs": problem.x.nnz,
            "objective": objective,
            "words": pairs.rules,
        }
        self.fit_ = Fit(factors, certificate, trace, plan)
        return self

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and the text (or co-occurrences) alone."""
        f, pairs = self._embedding(), pairs_of(self, X)
        if list(pairs.words) != list(f.columns):
            raise InputError("X has other words than the model, wanted the data that the model was fitted to")
        engine, objective = engine_named("cpu", self.n_threads), self.fit_.plan["objective"]
        with single_threaded_blas():
            return certify_glove(self._problem(pairs), f, engine, self.fit_.trace, objective)

    def _problem(self, pairs: Pairs) -> GloveProblem:
        n = pairs.n
        if not (n.data > 0).all():
            csr = n.to_scipy().copy()
            csr.eliminate_zeros()
            n = replace(n, indptr=csr.indptr, indices=csr.indices, data=csr.data)
        data = n.data.astype(np.float64)
        x = Observed(n.indptr, n.indices, np.log(data).astype(np.float32), n.n_columns)
        weights = np.minimum(1.0, (data / self.n_max) ** self.power).astype(np.float32)
        turned = replace(x, data=weights).transposed().data
        l2 = float(self.l2) if self.solver == "als" else 0.0
        rule = RidgeRule(l2, 0.5, bias=True, bias_l2=BIAS_L2 if l2 else 0.0)
        return GloveProblem(x, x.transposed(), weights, turned, rule)

    def _final(self, f: Embedding) -> np.ndarray:
        return f.vectors + f.context if self.add_context else f.vectors

    def _check(self) -> None:
        self._k()
        if self.solver not in STEPS:
            raise wrong("solver", self.solver, " or ".join(map(repr, STEPS)))
        for name in ("n_max", "power", "l2", "tol", "learning_rate"):
            value = getattr(self, name)
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and np.isfinite(value)
            positive = name in ("n_max", "learning_rate")
            if not number or value < 0 or (positive and value == 0):
                raise wrong(name, value, "a positive number" if positive else "a finite number >= 0")
        value = self.max_iter
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
            raise wrong("max_iter", value, "None or an int >= 1")
