"""Vectors of words or items: what every embedding returns, and what files of vectors hold.

The likeness of two words is the cosine of their vectors, cos(v, w) = <v, w> / (|v| |w|), so
questions are asked of ``unit``, the vectors scaled to length 1; ``vectors`` stay as they were
learnt. An item may be any id: text, an integer, a date.

A word without a vector meets the rule ``missing`` of the call: "error" names it and those near to
it, "skip" leaves it out, "zeros" takes a vector of zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eckart.arguments import hold
from eckart.embed.neighbours import Neighbours, answers, nearest
from eckart.embed.table import VectorTable, unit_rows
from eckart.errors import InputError, invalid
from eckart.index.labels import tidy
from eckart.io.text.tokens import Tokenizer
from eckart.io.vectors.write import write_words
from eckart.notebook import table

SMOOTH = 1e-3
"""a in the weights a / (a + p(w)) of "sif" (Arora et al. 2017)."""


class Map(NamedTuple):
    """Words in the plane: ``xy`` (words x 2), and the share of the variance of their unit vectors
    that the plane keeps."""

    words: np.ndarray
    xy: np.ndarray
    kept: float


@hold
class Vectors(VectorTable):
    """Words (or items) and their vectors.

    Parameters
    ----------
    words : n ids, each once; models leave the most frequent first
    vectors : n x k finite numbers; float32 stays float32
    counts : how often each word was seen, where that is known

    >>> v = Vectors(["man", "woman", "king", "queen", "tea"], [[3, 0, 1], [0, 3, 1], [3, 0, 4], [0, 3, 4], [0.5, 1, -4]], counts=[9, 8, 3, 2, 5])
    >>> v["king"], "queen" in v, len(v)
    (array([3., 0., 4.]), True, 5)
    >>> [(word, round(cosine, 3)) for word, cosine in v.analogy("man", "king", "woman")]
    [('queen', 0.938)]
    >>> [(word, round(cosine, 3)) for word, cosine in v.neighbours("king", 2)]
    [('man', 0.822), ('queen', 0.64)]
    >>> v.odd_one_out(["man", "woman", "king", "tea"])
    'tea'
    """

    def _repr_html_(self) -> str:
        """Some words, with their nearest ones."""
        rows = []
        for word in self.words[: 8 if len(self) > 1 else 0]:
            rows.append((str(word), ", ".join(str(near) for near, _ in self.neighbours(word, 6))))
        return table(("word", "nearest"), rows, f"{len(self):,} words, vectors of {self.k} numbers")

    def neighbours(
        self,
        of: Any,
        n: int = 10,
        *,
        among: Any = None,
        without: Any = None,
        min_count: float | None = None,
        missing: str = "error",
        n_threads: int | None = None,
    ) -> Any:
        """The ``n`` words of the largest cosines with a word, or with a vector: [(word, cosine),
        ...]; with several of them, ``Neighbours``.

        Exact: every word is looked at. A word is not its own neighbour.

        Parameters
        ----------
        of : a word or a list of words; a NumPy array of floats is a vector, or a matrix of vectors
        among, without : words that alone may be found, words that may not; also a mask of
            booleans, or a function from a word to True or False
        min_count : only words that were seen so often; the vectors must have counts
        missing : "skip" leaves an unknown word out of the answer, "zeros" gives it an empty list

        >>> v = Vectors(["a", "b", "c"], [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        >>> v.neighbours("a", 1, without=["b"]), v.neighbours(["a", "c"], 1).words.tolist()
        ([('c', 0.0)], [['b'], ['b']])
        """
        _check_number(n)
        kept = self._kept(among, without, min_count)
        vector = isinstance(of, np.ndarray) and of.dtype.kind == "f"
        if vector:
            one, given = of.ndim == 1, np.atleast_2d(of)
            if given.ndim != 2 or given.shape[1] != self.k or not np.isfinite(given).all():
                raise invalid(
                    "of",
                    f"an array of shape {of.shape}",
                    f"finite vectors of {self.k} numbers, or words",
                )
            queries, own, names = (
                unit_rows(given.astype(self.vectors.dtype, copy=False)),
                None,
                np.arange(len(given)),
            )
        else:
            one, names = self._asked(of)
            own = self._find(names, missing)
            if missing == "skip":
                names, own = names[own >= 0], own[own >= 0]
            queries = self._rows(self.unit, own)
        best, scores = nearest(self.unit, queries, n, own, kept, n_threads)
        return self._answer(one, names, best, scores)

    def analogy(
        self,
        a: Any,
        b: Any,
        c: Any,
        n: int = 1,
        method: str = "add",
        *,
        among: Any = None,
        without: Any = None,
        min_count: float | None = None,
        missing: str = "error",
    ) -> Any:
        """a is to b as c is to which words? The ``n`` best [(word, score), ...]; with lists a, b, c
        of one length, ``Neighbours`` in their order.

        ``method`` is "add" (3CosAdd, the score is a cosine) or "multiply" (3CosMul). The words of
        the question are no answers. With ``missing="skip"`` or "zeros" a question with an unknown
        word has no answer.
        """
        _check_number(n)
        if method not in ("add", "multiply"):
            raise invalid("method", method, "'add' or 'multiply'")
        asked = [self._asked(words) for words in (a, b, c)]
        one = all(single for single, _ in asked)
        if len({len(ids) for _, ids in asked}) > 1 or any(single for single, _ in asked) != one:
            sizes = ", ".join(str(len(ids)) for _, ids in asked)
            raise InputError(
                f"a, b and c must hold one word each, or lists of one length, got {sizes} words"
            )
        at = np.column_stack([self._find(ids, missing) for _, ids in asked])
        known = (at >= 0).all(axis=1)
        width = min(n, len(self))
        best, scores = (
            np.full((len(at), width), -1),
            np.full((len(at), width), -np.inf, self.unit.dtype),
        )
        if known.any():
            kept = self._kept(among, without, min_count)
            best[known], scores[known] = answers(self.unit, at[known], n, method, kept)
        return self._answer(one, asked[2][1], best, scores)

    def most_similar(
        self, positive: Any = (), topn: int = 10, negative: Any = ()
    ) -> list[tuple[Any, float]]:
        """The ``topn`` words of the largest cosines with the mean of the unit vectors of some
        words, less those of others, as gensim names it.

        ``positive`` and ``negative`` are a word or a list of words, none of which is an answer.
        ``neighbours`` and ``analogy`` answer many at once.

        >>> v = Vectors(["man", "woman", "king", "queen"], [[3, 0, 1], [0, 3, 1], [3, 0, 4], [0, 3, 4]])
        >>> v.most_similar("king", 1)[0][0], v.most_similar(positive=["king", "woman"], negative=["man"], topn=1)[0][0]
        ('man', 'queen')
        """
        at = [self._find(self._asked(side)[1], "error") for side in (positive, negative)]
        asked = np.concatenate(at)
        if not len(asked):
            raise InputError(
                "positive must be a word or a list of words, got none. Name a word of "
                "the vocabulary."
            )
        signs = np.repeat([1.0, -1.0], [len(side) for side in at])
        goal = signs @ self.unit[asked].astype(np.float64) / len(asked)
        return self.neighbours(goal, topn, without=np.isin(np.arange(len(self)), asked))

    def similarity(self, first: Any, second: Any = None, *, missing: str = "error") -> Any:
        """The cosine of two words, or of each of a list of pairs (or of two lists); a pair of an
        unknown word has NaN where "skip", 0 where "zeros".

        >>> v = Vectors(["a", "b", "c"], [[1.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
        >>> v.similarity("a", "b"), v.similarity([("a", "c"), ("b", "c")]).tolist()
        (0.6, [0.0, 0.8])
        """
        if second is None:
            pairs = list(first)
            for i, pair in enumerate(pairs):
                if (
                    isinstance(pair, (str, bytes))
                    or not isinstance(pair, Iterable)
                    or len(list(pair)) != 2
                ):
                    raise InputError(
                        f"pairs[{i}] must be two words, got {pair!r}. For one pair write similarity(a, b)."
                    )
            one, left, right = False, [p[0] for p in pairs], [p[1] for p in pairs]
        else:
            (one, left), (other, right) = self._asked(first), self._asked(second)
            if one != other or len(left) != len(right):
                raise InputError(
                    f"words must be one each, or lists of one length, got {len(left)} and {len(right)}"
                )
        a, b = (self._find(tidy(ids), missing) for ids in (left, right))
        cosines = np.einsum(
            "ij,ij->i", self._rows(self.unit, a), self._rows(self.unit, b), dtype=np.float64
        )
        cosines = np.clip(cosines, -1, 1)
        if missing == "skip":
            cosines[(a < 0) | (b < 0)] = np.nan
        return float(cosines[0]) if one else cosines

    def odd_one_out(self, words: Any, *, missing: str = "error") -> Any:
        """The word whose vector points furthest away from the mean of the unit vectors of all of
        them."""
        ids = self._asked(words)[1]
        at = self._find(ids, missing)
        if missing == "skip":
            ids, at = ids[at >= 0], at[at >= 0]
        if len(at) < 2:
            raise InputError(f"at least 2 words with vectors are needed to compare, got {len(at)}")
        rows = self._rows(self.unit, at).astype(np.float64)
        name = ids[int(np.argmin(rows @ rows.mean(axis=0)))]
        return name.item() if isinstance(name, np.generic) and name.dtype.kind != "M" else name

    def mean(
        self,
        text: Any,
        weights: Any = None,
        *,
        missing: str = "skip",
        tokenizer: Any = None,
        unit: bool = False,
    ) -> np.ndarray:
        """The mean vector sum_w weight_w v_w / sum_w weight_w over the words of a text (a word as
        often as it comes), or of a list of words.

        Parameters
        ----------
        text : a text, or a list of words
        weights : None (all alike), {word: weight} (1 for words that are not in it), one number for
            each word of the vocabulary, or "sif", that is a / (a + p(w)) with a = 0.001 and p(w)
            from the counts, so that frequent words say less
        missing : a text without a known word has the zero vector when unknown words are skipped
        tokenizer : a function from a text to its words or a ``Tokenizer``; usually words are runs
            of letters and digits, in lower case unless the vocabulary has capitals
        unit : take every vector with length one, as gensim's ``get_mean_vector`` does, so that long
            vectors say no more than short ones

        >>> v = Vectors(["new", "york"], [[1.0, 0.0], [0.0, 2.0]])
        >>> v.mean("New York, NEW!").round(3).tolist(), v.mean(["new", "york"], {"york": 3.0}).tolist()
        ([0.667, 0.667], [0.25, 1.5])
        """
        ids = tidy(self._tokens(text, tokenizer) if isinstance(text, str) else text)
        at = self._find(ids, missing) if len(ids) else np.zeros(0, np.int64)
        if missing != "zeros":
            at = at[at >= 0]
        each = (
            np.where(at >= 0, self._weights(weights)[at], 1.0)
            if weights is not None
            else np.ones(len(at))
        )
        total = each.sum()
        if total == 0:
            return np.zeros(self.k, self.vectors.dtype)
        rows = self._rows(self.unit if unit else self.vectors, at)
        return (each @ rows.astype(np.float64) / total).astype(self.vectors.dtype)

    def map(self, words: Any = None, *, n: int = 500, missing: str = "error") -> Map:
        """Words in the plane: the two principal components of the unit vectors of these words, or
        of the ``n`` most frequent (the first, without counts).

        >>> Vectors(["a", "b", "c"], [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).map().xy.shape
        (3, 2)
        """
        from eckart.reduce.pca import PCA

        _check_number(n)
        if words is None:
            order = (
                np.arange(len(self))
                if self.counts is None
                else np.argsort(-self.counts, kind="stable")
            )
            at = np.sort(order[:n])
        else:
            at = self._find(self._asked(words)[1], missing)
            at = at[at >= 0]
        if len(at) < 2:
            raise InputError(f"at least 2 words with vectors are needed for a map, got {len(at)}")
        rows = self.unit[at].astype(np.float64)
        if not (rows != rows[0]).any():
            return Map(self.words[at], np.zeros((len(at), 2)), 1.0)
        model = PCA(n_components=min(2, len(at) - 1, self.k)).fit(rows)
        xy = np.zeros((len(at), 2))
        xy[:, : model.n_components_] = model.transform(rows)
        return Map(self.words[at], xy, float(np.sum(model.explained_variance_ratio_)))

    def write(self, path: Any, format: str | None = None, *, space: str | None = None) -> None:
        """Write a file that ``read_vectors``, gensim and others read; it takes the place of an
        older one only when it is complete.

        ``format`` is "text" (.vec, .txt: word2vec text), "glove" (the same without a first line),
        "binary" (.bin: word2vec binary, in float32) or "safetensors" (exact, with counts and
        integer ids), by the ending of the name unless said; .gz after it compresses. ``space`` is
        written for the spaces in words, which other readers of text and binary do not understand.
        """
        write_words(path, self.words, self.vectors, self.counts, format, space=space)

    def _answer(self, one: bool, names: np.ndarray, best: np.ndarray, scores: np.ndarray) -> Any:
        words = self.words[np.maximum(best, 0)].astype(object)
        words[best < 0] = None
        found = Neighbours(names, words, scores, best)
        return found if not one else found[0] if len(found) else []

    def _tokens(self, text: str, tokenizer: Any) -> list[Any]:
        if tokenizer is None:
            tokenizer = Tokenizer(lowercase=not self._capitals, numbers=True, min_length=1)
        return tokenizer.words(text) if isinstance(tokenizer, Tokenizer) else list(tokenizer(text))

    @cached_property
    def _capitals(self) -> bool:
        return any(isinstance(w, str) and w != w.lower() for w in self.words)

    def _weights(self, weights: Any) -> np.ndarray:
        """One weight for each word of the vocabulary."""
        if isinstance(weights, str) and weights == "sif":
            if self.counts is None:
                raise InputError(
                    "weights='sif' came, but these vectors have no counts; pass counts= to Vectors"
                )
            return SMOOTH / (SMOOTH + self.counts / max(float(self.counts.sum()), 1.0))
        if isinstance(weights, Mapping):
            values = np.array([weights.get(word, 1.0) for word in self.words.tolist()], np.float64)
        elif isinstance(weights, str) or np.shape(weights) != (len(self),):
            raise invalid(
                "weights", weights, f"None, 'sif', {{word: weight}} or {len(self)} numbers"
            )
        else:
            values = np.asarray(weights, np.float64)
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise InputError("weights must be numbers >= 0, got one that is negative or not finite")
        return values


def _check_number(n: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise invalid("n", n, "an int >= 1")
