"""Skip-gram: vectors that predict the words beside a word.

    p(v | w) = softmax_v( <zeta_w, z_v> + b_v )

with separate vectors of a word as the one looked at (zeta) and as the one beside it (z). The softmax is replaced by r noise words for each pair, drawn from
q(v) proportional to count(v)^(3/4):

    log sigma(s_wv) + r E_q log sigma(-s_wu)

whose best scores are PMI - log r (where q are the words' shares): skip-gram is matrix factorization of the shifted pointwise mutual information.

    stochastic    ``skipgram_train``   windows as small matrix products, on threads: corpora of any size
    exact         ``skipgram_exact``   the whole loss, negative sampling or softmax, for small vocabularies

The certificate (``certify.pairs``): gradient, loss, and its distance from the loss of the unfactored optimum.

References: Mikolov, Sutskever, Chen, Corrado and Dean (2013); Levy and Goldberg (2014); Ji, Satish, Li and Dubey (2016) for windows that share their noise.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.pairs import Pairs, certify_pairs
from eckart.embed import skipgram_exact, skipgram_train
from eckart.embed.cooccurrence import count, pair_rule
from eckart.embed.model import WordModel
from eckart.embed.pairs import checked
from eckart.embed.sequences import Sequences, keep_probability
from eckart.engines import engine_named
from eckart.engines.protocol.windows import Pieces
from eckart.errors import InputError, wrong
from eckart.factors import Embedding
from eckart.fit import Fit
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.levels import Memory
from eckart.io.tables.frames import titles
from eckart.matrix import Counts
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher, progress, silent

CERTIFIED = 5_000_000
"""Words of the corpus on which the certificate is measured, at most."""
SECONDS = 30.0


class SkipGram(WordModel):
    """Word or item vectors by skip-gram with negative sampling.

    Parameters
    ----------
    n_components : int
        Numbers in a vector.
    window : int
        Farthest neighbour; each window is shortened at random, so that near words weigh more.
    loss : "negative" or "softmax"
        Noise words, or the exact softmax over a small vocabulary.
    negatives, noise_exponent : int, float
        r, and the exponent of the counts in the distribution of the noise.
    drawn : None or int
        Noise words that two words of a window share, each weighing r / drawn; None is r, or a few more where they cost nothing.
    solver : "auto", "stochastic" or "exact"
        "auto" is "exact" for the softmax, else "stochastic".
    sample : None or float
        Thin out words that are more frequent than this: the word2vec rule (``eckart.embed.sequences.keep_probability``).
    bias : bool
        A number b_v for each word beside another.
    add_context : bool
        Hand out zeta + z instead of zeta.
    max_iter : None or int
        Passes over the corpus (5), or steps of the exact solver (1000).
    learning_rate, last_learning_rate : float
        The rate falls from the one to the other along a line.
    tol : float
        The exact solver stops when the loss falls by less, relatively.
    deterministic : bool
        The same bits for any number of threads (training then runs on one); else threads share the vectors without locks.
    min_count, max_words, tokenizer, lowercase, numbers, min_length
        Of the words, as for ``eckart.sequences``.
    checkpoint : None or path
        File in which the training is kept; the same fit resumes from it, with the same bits where it is deterministic.
    random_state, n_threads, verbose
        Seed; most threads; progress bars.

    Attributes
    ----------
    vectors_ : Vectors
        Words and vectors, ready for neighbours, analogies and files.
    n_iter_, fit_, certificate_
        Passes or steps; all of the fit; its evidence.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> days, fruit = ["monday", "friday", "sunday"], ["apple", "pear", "plum"]
    >>> text = [rng.permutation(days if i % 2 else fruit).tolist() for i in range(400)]
    >>> model = SkipGram(8, min_count=1, sample=None, max_iter=20, deterministic=True, random_state=0).fit(text)
    >>> sorted(word for word, _ in model.vectors_.neighbours("apple", 2))
    ['pear', 'plum']
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        window: int = 5,
        loss: str = "negative",
        negatives: int = 5,
        noise_exponent: float = 0.75,
        drawn: int | None = None,
        solver: str = "auto",
        sample: float | None = 1e-3,
        bias: bool = False,
        add_context: bool = False,
        max_iter: int | None = None,
        learning_rate: float = 0.05,
        last_learning_rate: float = 1e-4,
        tol: float = 1e-10,
        deterministic: bool = False,
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
        self.window = window
        self.loss = loss
        self.negatives = negatives
        self.noise_exponent = noise_exponent
        self.drawn = drawn
        self.solver = solver
        self.sample = sample
        self.bias = bias
        self.add_context = add_context
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.last_learning_rate = last_learning_rate
        self.tol = tol
        self.deterministic = deterministic
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

    def fit(self, X: Any, y: Any = None) -> SkipGram:
        """Learn from text, lists of items, ``Sequences``, or (``solver="exact"``) from Counts of pairs."""
        self._check()
        X = Counts.from_scipy(X) if hasattr(X, "tocsr") else X
        solver = self._solver(X)
        with progress(bool(self.verbose)) as watch:
            if isinstance(X, Counts):
                self._fit_exact(checked(X), {}, watch)
                return self
            s = self._sequences(X)
            if s.n_tokens == 0 or np.diff(s.pointers).max(initial=0) < 2:
                raise InputError(
                    "no sentence has two words of the vocabulary, wanted words beside words; lower min_count"
                )
            if solver == "exact":
                self._fit_exact(self._pairs(s, s.n_tokens), s.rules, watch)
            else:
                self._fit_stochastic(s, watch)
        return self

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        f, plan = self._embedding(), self.fit_.plan
        counts = checked(X) if isinstance(X, Counts) else self._pairs(self._known(X, f), CERTIFIED)
        if counts.shape[0] != f.n:
            raise InputError(f"counts of {counts.shape[0]} words came, wanted those of the model's {f.n} words")
        return self._certify(counts, f, plan["solver"], self.fit_.trace, {})

    @property
    def n_iter_(self) -> int:
        return len(self._fitted("n_iter_").trace)

    def _final(self, f: Embedding) -> np.ndarray:
        return f.vectors + f.context if self.add_context and f.context is not None else f.vectors

    def _fit_stochastic(self, s: Sequences, watch: Watcher) -> None:
        engine = engine_named("cpu", self.n_threads)
        keep = keep_probability(s.counts, self.sample)
        noise = s.counts.astype(np.float64) ** float(self.noise_exponent)
        k, n = self._k(), len(s.words)
        drawn = skipgram_train.drawn_for(int(self.negatives)) if self.drawn is None else int(self.drawn)
        training = skipgram_train.Training(
            k, int(self.window), int(self.negatives), drawn, 5 if self.max_iter is None else int(self.max_iter),
            float(self.learning_rate), float(self.last_learning_rate), bool(self.bias), not self.deterministic,
        )  # fmt: skip
        rng = generator(self.random_state)
        file = self._file(s)
        x, y, trace = skipgram_train.train(
            Pieces.of(s.ids, s.pointers, keep, noise),
            training,
            engine=engine,
            rng=rng,
            watch=watch,
            memory=Memory.of(file, rng),
        )
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise InputError(f"the vectors left the range of numbers at learning_rate={self.learning_rate}; lower it")
        bias = y[:n, k].copy() if self.bias else None
        f = Embedding(x[:n, :k].copy(), y[:n, :k].copy(), None, bias, s.counts, s.words)
        words_kept = float(keep @ s.counts)
        facts = {"words of the corpus": s.n_tokens, "words kept by sampling": words_kept}
        plan = {
            "solver": "stochastic",
            "words": s.rules,
            "noise of two neighbours": drawn,
            "threads": "one after another" if self.deterministic else "share the vectors without locks",
        }
        self.fit_ = Fit(f, self._certify(self._pairs(s, CERTIFIED), f, "stochastic", trace, facts), trace, plan)
        if file is not None and trace.reason is not StopReason.INTERRUPTED:
            file.remove()

    def _fit_exact(self, counts: Counts, rules: dict[str, Any], watch: Watcher) -> None:
        marginal = np.asarray(counts.to_scipy().sum(axis=0)).ravel()
        words = titles(list(range(counts.n_columns))) if counts.columns is None else counts.columns
        u, v, b, trace = skipgram_exact.solve(
            counts,
            _shares(marginal, self.noise_exponent),
            loss=self.loss,
            k=self._k(),
            negatives=float(self.negatives),
            bias=bool(self.bias),
            max_iter=1000 if self.max_iter is None else int(self.max_iter),
            tol=float(self.tol),
            rng=generator(self.random_state),
            watch=watch,
        )
        f = Embedding(u.copy(), v.copy(), None, None if b is None else b.copy(), marginal, words)
        plan = {"solver": "exact", "words": rules}
        self.fit_ = Fit(f, self._certify(counts, f, "exact", trace, {}), trace, plan)

    def _certify(self, counts: Counts, f: Embedding, solver: str, trace: Trace, facts: dict[str, Any]) -> Certificate:
        noise = _shares(f.counts, self.noise_exponent)
        problem = Pairs(counts, noise, float(self.negatives), self.loss)
        return certify_pairs(problem, f, solver=solver, trace=trace, facts=facts)

    def _pairs(self, s: Sequences, most: int) -> Counts:
        """Expected pairs of windows of random length, after one thinning of the corpus that is always the same; of evenly spaced sentences where it is long."""
        part = thinned(s, keep_probability(s.counts, self.sample), most)
        rule = pair_rule(int(self.window), "linear")
        return count(part, rule, engine_named("cpu", self.n_threads), 2**30, silent)

    def _known(self, X: Any, f: Embedding) -> Sequences:
        """Sequences with the words of the model."""
        s = self._sequences(X)
        if len(s.words) != f.n or any(a != b for a, b in zip(s.words, f.columns)):
            raise InputError("the text has other words than the model was fitted to, wanted the text of the fit")
        return s

    def _file(self, s: Sequences) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        others = ("checkpoint", "n_threads", "verbose", "tokenizer")
        options = {name: str(value) for name, value in self.get_params().items() if name not in others}
        data = zlib.crc32(np.ascontiguousarray(s.pointers).data, zlib.crc32(np.ascontiguousarray(s.ids).data))
        about = {"model": "SkipGram", "tokens": s.n_tokens, "words": len(s.words), "data": data}
        return Checkpoint(self.checkpoint, about | options, SECONDS)

    def _solver(self, X: Any) -> str:
        if self.solver == "auto":
            return "exact" if self.loss == "softmax" or isinstance(X, Counts) else "stochastic"
        if self.solver == "stochastic" and self.loss == "softmax":
            raise wrong("solver", self.solver, "'exact' for loss='softmax', which is not sampled")
        if self.solver == "stochastic" and isinstance(X, Counts):
            raise wrong("solver", self.solver, "'exact' for Counts of pairs, in which the order of words is lost")
        return self.solver

    def _check(self) -> None:
        self._k()
        for name, choices in (("loss", ("negative", "softmax")), ("solver", ("auto", "stochastic", "exact"))):
            if getattr(self, name) not in choices:
                raise wrong(name, getattr(self, name), " or ".join(map(repr, choices)))
        for name in ("window", "negatives", "drawn", "max_iter"):
            value = getattr(self, name)
            if value is None and name in ("drawn", "max_iter"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise wrong(name, value, "an int >= 1")
        for name, least in (("learning_rate", 0.0), ("last_learning_rate", 0.0), ("tol", 0.0), ("noise_exponent", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not least <= value < np.inf:
                raise wrong(name, value, "a finite number >= 0")
        keep_probability(np.ones(1), self.sample)


def thinned(s: Sequences, keep: np.ndarray, most: int) -> Sequences:
    """The sentences after frequent words were thinned out, always alike; every j-th of them where there are more words than ``most``."""
    pointers, ids = np.asarray(s.pointers), s.ids
    stride = -(-s.n_tokens // most)
    if stride > 1 and len(s) >= 64 * stride:
        chosen = np.arange(0, len(s), stride)
    elif stride > 1:
        first = np.searchsorted(pointers, most)
        pointers = np.append(pointers[:first], most)
        chosen = np.arange(len(pointers) - 1)
    else:
        chosen = np.arange(len(s))
    lengths = np.diff(pointers)[chosen]
    if stride > 1:
        ids = np.concatenate([ids[pointers[c] : pointers[c + 1]] for c in chosen])
    of = np.repeat(np.arange(len(chosen)), lengths)
    kept = np.random.default_rng(0).random(len(ids), np.float32) < keep[ids]
    sizes = np.bincount(of[kept], minlength=len(chosen))
    return Sequences(ids[kept], np.concatenate([[0], np.cumsum(sizes)]), s.words, s.counts)


def _shares(counts: np.ndarray, exponent: float) -> np.ndarray:
    """q proportional to counts^exponent; a word that never came is no noise."""
    raised = np.where(counts > 0, np.asarray(counts, np.float64) ** float(exponent), 0.0)
    return raised / raised.sum()
