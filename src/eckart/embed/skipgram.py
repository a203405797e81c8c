"""Skip-gram: vectors that predict the words beside a word.

    p(v | w) = softmax_v( <zeta_w, z_v> + b_v )

with separate vectors of a word as the one looked at (zeta) and as the one beside it (z). The
softmax is replaced by r noise words for each pair, drawn from q(v) proportional to count(v)^(3/4):

    log sigma(s_wv) + r E_q log sigma(-s_wu)

whose best scores are PMI - log r (where q are the words' shares): skip-gram is matrix factorization
of the shifted pointwise mutual information.

    stochastic    ``skipgram_train``   windows as small matrix products, on threads: corpora of any
    size
    exact         ``skipgram_exact``   the whole loss, negative sampling or softmax, for small
    vocabularies

The certificate (``certify.pairs``): gradient, loss, its distance from the loss of the unfactored
optimum, and whether it is lower than that of chance.

References: Mikolov, Sutskever, Chen, Corrado and Dean (2013); Levy and Goldberg (2014); Ji, Satish,
Li and Dubey (2016) for windows that share their noise.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.pairs import CHANCE, PairWeights, certify_pairs
from eckart.embed import skipgram_train
from eckart.embed import skipgram_train as skipgram_exact
from eckart.embed.cooccurrence import MAX_MEMORY, MOST_WINDOW, count, pair_rule
from eckart.embed.model import WordModel
from eckart.embed.pairs import checked, contents_of
from eckart.embed.sequences import Sequences, keep_probability
from eckart.embed.skipgram_train import FixedPairs
from eckart.engines.protocol.words import Pieces, cut
from eckart.errors import InputError, invalid
from eckart.factors import Embedding
from eckart.fit import Fit, fitted, plan_of, require_room
from eckart.io.models.checkpoint import Checkpoint, resumed
from eckart.io.tables.frames import titles
from eckart.matrix import Counts
from eckart.parameters import either, file_name, flag, number, one_of, optional, param, whole
from eckart.trace import Trace, Watcher, progress, silent

CERTIFIED = 5_000_000
"""Words of the corpus on which the certificate is measured, at most."""
SAMPLE, PASSES, SEEN, MOST_PASSES = 1e-3, (5, 15), 1_000_000, 1000
"""The share beyond which a word of a large vocabulary is frequent; the least and the usual number
of passes. A short text is passed over until so many words were seen (a second or two): vectors
begin near zero and take some hundred steps each to leave it. Beyond the last number the text says
nothing new."""
LONG = 150_000_000
"""Words that are seen in the usual passes, at most: of longer texts fewer passes teach as much."""

SHUFFLED = 2**27
"""Words of a text whose sentences are mixed, which takes a copy of 4 bytes for each. The last steps
count most, and neighbouring texts are alike: of 3 M words of news by topic the gradient ended at
.075 in their order and at .024 mixed, and the loss at 2.27 and 2.15 (limit of the gradient .05)."""
HELD = 20
"""One sentence of so many is held out: enough pairs to compare passes by, and little to miss. It is
also the length of the runs that a few long texts are cut into, and its square the number of
sentences that are many."""
FAR = 10
"""Lists that a window of sets is long: the farthest two items of the longest list are then a pair
in nine windows of ten, and others in more."""


@dataclass(eq=False, repr=False)
class SkipGram(WordModel):
    """Word or item vectors by skip-gram with negative sampling.

    Parameters
    ----------
    n_components : int
        Numbers in a vector.
    window : None or int
        Farthest neighbour; each window is shortened at random, so that near words weigh more. None:
        5 for sentences, the whole list (each pair alike) where no list has an item twice.
    loss : "negative" or "softmax"
        Noise words, or the exact softmax over a small vocabulary.
    negatives, noise_exponent : int, float
        r, and the exponent of the counts in the distribution of the noise.
    drawn : None or int
        Noise words that two words of a window share, each weighing r / drawn; None is r, or a few
        more where they cost nothing.
    solver : "auto", "stochastic" or "exact"
        "auto" is "exact" for the softmax, else "stochastic".
    sample : "auto", None or float
        Thin out words that are more frequent than this share: the word2vec rule
        (``eckart.embed.sequences.keep_probability``). "auto" is 0.001, or the mean share of a word
        where it is larger (less than 1,000 words): where all words are frequent, none is so beside
        the others. None keeps every word.
    bias : bool
        A number b_v for each word beside another.
    add_context : bool
        Hand out zeta + z instead of zeta.
    max_iter : None or int
        Passes over the corpus, or steps of the exact solver (1000). None: 15 passes, more to see a
        million words of a short text (up to 1,000), fewer of a long one (5 from 30 million words
        on).
    learning_rate, last_learning_rate : float
        The rate falls from the one to the other along a line.
    stop : None or "held_out" "held_out" learns from 19 of 20 sentences, measures the loss on pairs
        of the others after each pass (``fit_.plan["held_out"]``), and when that has not fallen in
        two passes lets the rate fall to its end within half as many passes more, from the vectors
        of its least value on.
    tol : float
        The exact solver stops when the loss falls by less, relatively.
    deterministic : bool
        The same bits for any number of threads; else threads share the vectors without locks.
    min_count, max_words, tokenizer, lowercase, numbers, min_length
        Of the words, as for ``eckart.sequences``.
    checkpoint : None or path
        File in which the training is kept; the same fit resumes from it, with the same bits where
        it is deterministic.
    random_state, engine, n_threads, verbose
        Seed; "auto", "cpu", "numpy" or another engine; most threads; progress bars.

    Attributes
    ----------
    vectors_ : Vectors
        Words and vectors, ready for neighbours, analogies and files.
    n_iter_, fit_, certificate_
        Passes or steps; all of the fit (``fit_.trace``: the loss of the same pairs with the same
        noise after each pass); its evidence.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> days, fruit = ["monday", "friday", "sunday"], ["apple", "pear", "plum"]
    >>> text = [rng.permutation(days if i % 2 else fruit).tolist() for i in range(400)]
    >>> model = SkipGram(8, min_count=1, sample=None, max_iter=20, deterministic=True, random_state=0).fit(text)
    >>> sorted(word for word, _ in model.vectors_.neighbours("apple", 2))
    ['pear', 'plum']
    """

    usual_window: ClassVar[int] = 5
    _: KW_ONLY
    loss: Literal["negative", "softmax"] = param("negative")
    negatives: int = param(5, whole(1, 100_000))
    noise_exponent: float = param(0.75, number(0))
    drawn: int | None = param(None, optional(whole(1, 100_000)))
    solver: Literal["auto", "stochastic", "exact"] = param("auto")
    sample: float | str | None = param("auto", either(one_of("auto", None), number(0)))
    bias: bool = param(False, flag())
    max_iter: int | None = param(None, optional(whole(1)))
    learning_rate: float = param(0.025, number(0))
    last_learning_rate: float = param(1e-4, number(0))
    stop: Literal["held_out"] | None = param(None, one_of(None, "held_out"))
    tol: float = param(1e-10, number(0))
    deterministic: bool = param(False, flag())
    checkpoint: Any = param(None, file_name())

    def fit(self, X: Any, y: Any = None) -> SkipGram:
        """Learn from text, lists of items, ``Sequences``, or (``solver="exact"``) from Counts of
        pairs."""
        self._check()
        X = Counts.from_scipy(X) if hasattr(X, "tocsr") else X
        solver = self._solver(X)
        engine = self._engine()
        with progress(bool(self.verbose)) as watch, engine.at_work():
            if isinstance(X, Counts):
                self._fit_exact(checked(X), {}, engine, watch)
                return self
            s = self._sequences(X)
            if s.n_tokens == 0 or np.diff(s.pointers).max(initial=0) < 2:
                raise InputError(
                    "at least one sentence must have two words of the vocabulary, got none. Lower "
                    "min_count."
                )
            require_room(
                "n_components", self.n_components, 2.0 * len(s.words) * self.n_components, 4
            )
            if solver == "exact":
                self._fit_exact(self._pairs(s, s.n_tokens, engine), s.rules, engine, watch)
            else:
                self._fit_stochastic(s, engine, watch)
        return self

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again, from this model and data alone."""
        f, engine = self._embedding(), self._engine()
        counts = (
            checked(X)
            if isinstance(X, Counts)
            else self._pairs(self._parted(self._known(X, f))[0], CERTIFIED, engine)
        )
        if counts.shape[0] != f.n:
            raise InputError(
                f"counts must be those of the model's {f.n} words, got counts of {counts.shape[0]} "
                "words"
            )
        with engine.at_work():
            return self._certify(counts, f, engine, self.fit_.plan["solver"], self.fit_.trace, {})

    @fitted
    def n_iter_(self) -> int:
        return len(self._fitted("n_iter_").trace)

    def _final(self, f: Embedding) -> np.ndarray:
        return f.vectors + f.context if self.add_context and f.context is not None else f.vectors

    def _fit_stochastic(self, s: Sequences, engine: Any, watch: Watcher) -> None:
        keep = keep_probability(s.counts, self._sample(len(s.words)))
        noise = s.counts.astype(np.float64) ** float(self.noise_exponent)
        k = int(self.n_components)
        drawn = (
            skipgram_train.drawn_for(int(self.negatives)) if self.drawn is None else int(self.drawn)
        )
        training = skipgram_train.Training(
            k,
            self._far(s),
            int(self.negatives),
            drawn,
            self._passes(float(keep @ s.counts)),
            float(self.learning_rate),
            float(self.last_learning_rate),
            bool(self.bias),
            not self.deterministic,
        )
        learned, other = self._parted(s)
        pieces = Pieces.of(learned.ids, learned.pointers, keep, noise)
        mixed = learned.n_tokens <= SHUFFLED
        if mixed:
            pieces = pieces.shuffled()
        counts = self._pairs(learned, CERTIFIED, engine)
        shares, r = _shares(s.counts, self.noise_exponent), float(self.negatives)
        judges = (
            FixedPairs.of(counts, shares, r, 0),
            None
            if other is None
            else FixedPairs.of(self._pairs(other, CERTIFIED, engine), shares, r, 1),
        )
        with resumed(self._file(s), self.random_state) as (memory, rng):
            x, y, trace, held = skipgram_train.train(
                pieces, training, engine=engine, rng=rng, judges=judges, watch=watch, memory=memory
            )
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise InputError(
                "the vectors left the range of numbers at "
                f"learning_rate={self.learning_rate}; lower it"
            )
        bias = y[:, k].copy() if self.bias else None
        f = Embedding(x[:, :k].copy(), y[:, :k].copy(), None, bias, s.counts, s.words)
        words_kept = float(keep @ s.counts)
        facts = {"words of the corpus": s.n_tokens, "words kept by sampling": words_kept}
        plan = plan_of(engine) | {
            "solver": "stochastic",
            "words": s.rules,
            "noise of two neighbours": drawn,
            "passes": training.epochs,
            "sample": self._sample(len(s.words)),
            **self._window_plan(s),
            "order": "sentences are mixed"
            if mixed
            else f"as they come, with more than {SHUFFLED:,} words",
            "threads": "change no bit" if self.deterministic else "share the vectors without locks",
        }
        if other is not None:
            plan["held_out"] = held
        self.fit_ = Fit(
            f, self._certify(counts, f, engine, "stochastic", trace, facts), trace, plan
        )
        memory.end(trace)
        self._say_if_chance()

    def _fit_exact(
        self, counts: Counts, rules: dict[str, Any], engine: Any, watch: Watcher
    ) -> None:
        marginal = np.asarray(counts.to_scipy().sum(axis=0)).ravel()
        words = titles(list(range(counts.n_columns))) if counts.columns is None else counts.columns
        file = Checkpoint.of_fit(self, counts, ignored=("engine", "tokenizer"))
        with resumed(file, self.random_state) as (memory, rng):
            u, v, b, trace = skipgram_exact.solve(
                counts,
                _shares(marginal, self.noise_exponent),
                loss=self.loss,
                k=int(self.n_components),
                negatives=float(self.negatives),
                bias=bool(self.bias),
                max_iter=1000 if self.max_iter is None else int(self.max_iter),
                tol=float(self.tol),
                rng=rng,
                watch=watch,
                memory=memory,
            )
        f = Embedding(u.copy(), v.copy(), None, None if b is None else b.copy(), marginal, words)
        plan = plan_of(engine) | {"solver": "exact", "words": rules}
        self.fit_ = Fit(f, self._certify(counts, f, engine, "exact", trace, {}), trace, plan)
        memory.end(trace)
        self._say_if_early(self.fit_)
        self._say_if_chance()

    def _say_if_chance(self) -> None:
        """Warn where the vectors know no more than how often each word comes."""
        if self.certificate_[CHANCE] > 0:
            warnings.warn(
                "SkipGram learned nothing about which words stand together "
                "(certificate_['loss over chance'] is above 0): the text is too short, "
                "or sample= "
                "thins out too much of it; use PMI, which uses every pair, or raise max_iter",
                UserWarning,
                stacklevel=4,
            )

    def _sample(self, words: int) -> float | None:
        """The share beyond which a word is thinned out."""
        return max(SAMPLE, 1.0 / words) if self.sample == "auto" else self.sample  # type: ignore[return-value]

    def _passes(self, kept: float) -> int:
        """Over a corpus of which so many words are kept."""
        if self.max_iter is not None:
            return int(self.max_iter)
        usual = np.clip(np.ceil(LONG / max(kept, 1.0)), *PASSES)
        return int(np.clip(np.ceil(SEEN / max(kept, 1.0)), usual, MOST_PASSES))

    def _far(self, s: Sequences) -> int:
        """The window that is shortened at random: of lists that are sets so long that it seldom
        ends inside of one."""
        window, sets, _ = self._window(s)
        return min(FAR * window, MOST_WINDOW) if sets else window

    def _settled(self, s: Sequences) -> dict[str, Any]:
        sample = self._sample(len(s.words))
        kept = float(keep_probability(s.counts, sample) @ s.counts)
        exact = self._solver(s) == "exact"
        return (
            super()._settled(s)
            | {"sample": sample}
            | ({} if exact else {"max_iter": self._passes(kept)})
        )

    def _certify(
        self,
        counts: Counts,
        f: Embedding,
        engine: Any,
        solver: str,
        trace: Trace,
        facts: dict[str, Any],
    ) -> Certificate:
        noise = _shares(f.counts, self.noise_exponent)
        problem = PairWeights(counts, noise, float(self.negatives), self.loss)
        return certify_pairs(problem, f, engine, solver=solver, trace=trace, facts=facts)

    def _parted(self, s: Sequences) -> tuple[Sequences, Sequences | None]:
        """Sentences to learn from, and those that are held out; few and long ones are cut first."""
        if self.stop is None or self._solver(s) == "exact":
            return s, None
        bounds = cut(s.pointers, MOST_WINDOW if len(s) >= HELD**2 else HELD)
        lengths = np.diff(bounds)
        if len(lengths) < HELD:
            raise invalid(
                "stop",
                self.stop,
                f"None for a text of {s.n_tokens} words, too short to leave a part of it out",
            )
        chosen = np.arange(len(lengths)) % HELD == HELD // 2

        def part(mask: np.ndarray) -> Sequences:
            return replace(
                s,
                ids=s.ids[np.repeat(mask, lengths)],
                pointers=np.concatenate([[0], np.cumsum(lengths[mask])]),
            )

        return part(~chosen), part(chosen)

    def _pairs(self, s: Sequences, most: int, engine: Any = None) -> Counts:
        """Expected pairs of windows of random length, after one thinning of the corpus that is
        always the same; of evenly spaced sentences where it is long."""
        sample = self._sample(len(s.words))
        part = thinned(s, keep_probability(s.counts, sample), most)
        counts = count(
            part, pair_rule(self._far(s), "linear"), engine or self._engine(), MAX_MEMORY, silent
        )
        if counts.nnz == 0:
            raise InputError(
                f"sample={sample} thins out so many of the {s.n_tokens} words that no "
                "two of them are left beside each other; "
                "raise sample, or keep every word with sample=None"
            )
        return counts

    def _known(self, X: Any, f: Embedding) -> Sequences:
        """Sequences with the words of the model."""
        s = self._sequences(X)
        if len(s.words) != f.n or any(a != b for a, b in zip(s.words, f.columns)):
            raise InputError(
                "the text must be the text of the fit, got other words than the model was fitted to"
            )
        return s

    def _file(self, s: Sequences) -> Checkpoint | None:
        return Checkpoint.of_parts(self, lambda: contents_of(s), ignored=("engine", "tokenizer"))

    def _solver(self, X: Any) -> str:
        if self.solver == "auto":
            return "exact" if self.loss == "softmax" or isinstance(X, Counts) else "stochastic"
        if self.solver == "stochastic" and self.loss == "softmax":
            raise invalid("solver", self.solver, "'exact' for loss='softmax', which is not sampled")
        if self.solver == "stochastic" and isinstance(X, Counts):
            raise invalid(
                "solver",
                self.solver,
                "'exact' for Counts of pairs, in which the order of words is lost",
            )
        return self.solver


def thinned(s: Sequences, keep: np.ndarray, most: int) -> Sequences:
    """The sentences after frequent words were thinned out, always alike; every j-th of them where
    there are more words than ``most``."""
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
    kept = np.flatnonzero(np.random.default_rng(0).random(len(ids), np.float32) < keep[ids])
    ends = np.searchsorted(kept, np.concatenate([[0], np.cumsum(lengths)]))
    return Sequences(ids[kept], ends, s.words, s.counts)


def _shares(counts: np.ndarray, exponent: float) -> np.ndarray:
    """q proportional to counts^exponent; a word that never came is no noise."""
    raised = np.where(counts > 0, np.asarray(counts, np.float64) ** float(exponent), 0.0)
    return raised / raised.sum()
