"""Text as a stream of word numbers, for models that need the order of words and not only their counts.

Nothing is held but a batch: a corpus of any size passes by, as often as it is iterated over (a one-shot iterator once).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eckart.io.text.documents import Documents, documents
from eckart.io.text.tokens import Tokenizer, token_batches
from eckart.io.text.vocabulary import Lexicon, vocabulary_of


class Numbered(NamedTuple):
    """Consecutive documents: document ``first + d`` is ``ids[pointers[d]:pointers[d + 1]]``, positions in the vocabulary, -1 for words outside of it."""

    ids: np.ndarray
    pointers: np.ndarray
    first: int


@dataclass(frozen=True)
class TokenStream:
    """The words of documents, in order, as positions in a vocabulary.

    ``source`` is anything that ``eckart.corpus`` takes, ``vocabulary`` a list of words, a Counts or a fitted model.

    >>> stream = TokenStream(["to be or not to be", "be that"], ["be", "not", "to"])
    >>> [batch.ids.tolist() for batch in stream]
    [[2, 0, -1, 1, 2, 0, 0, -1]]
    """

    source: Any
    vocabulary: Any
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    n_threads: int | None = None
    how: dict[str, Any] = field(default_factory=dict)

    def documents(self) -> Documents:
        return documents(self.source, **self.how)

    def __iter__(self) -> Iterator[Numbered]:
        lexicon = Lexicon(vocabulary_of(self.vocabulary))
        for batch in token_batches(self.documents().texts(), self.tokenizer, self.n_threads):
            yield Numbered(lexicon.find(batch.words)[batch.ids], batch.pointers, batch.first)
