"""Vectors out of files."""

from __future__ import annotations

from typing import Any

from eckart.arguments import held
from eckart.embed.vectors import Vectors
from eckart.errors import InputTypeError
from eckart.io.models.save import load
from eckart.io.vectors.files import is_model, read_words


@held
def read_vectors(
    path: Any,
    format: str | None = None,
    *,
    limit: int | None = None,
    encoding: str = "utf-8",
    undecodable: str = "error",
    dtype: Any = None,
    n_threads: int | None = None,
) -> Vectors:
    """Vectors out of a file that word2vec, GloVe, fastText (.vec), gensim or ``Vectors.write``
    wrote, or of a saved embedding model.

    A word that comes twice keeps its first vector, and a warning says so. A file that is not what
    its first line promises, a line of too few numbers and a number that is not finite are refused,
    with the line.

    Parameters
    ----------
    path : the file, compressed (gzip) or not
    format : "text", "glove", "binary" or "safetensors"; found out from the file unless said
    limit : read so many words from the first on (usually the most frequent)
    encoding, undecodable : of the words; what cannot be decoded is refused, or replaced by U+FFFD
        with undecodable="replace"
    dtype : float32 or float64; float32 unless said, and as it is held in .safetensors

    >>> import tempfile, os
    >>> from eckart import Vectors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "v.vec")
    ...     Vectors(["new", "york"], [[1.0, 0.5], [0.1, 2.0]]).write(file)
    ...     open(file).read(), read_vectors(file)["york"].tolist()
    ('2 2\\nnew 1 0.5\\nyork 0.1 2\\n', [0.10000000149011612, 2.0])
    """
    if format is None and is_model(path):
        model = load(path)
        if not hasattr(model, "vectors_"):
            raise InputTypeError(
                f"{path} must hold a model of embeddings or be a file of vectors, got a "
                f"{type(model).__name__}"
            )
        found = model.vectors_
        counts = None if found.counts is None else found.counts[:limit]
        return Vectors(
            found.words[:limit],
            found.vectors[:limit].astype(dtype or found.vectors.dtype, copy=False),
            counts,
        )
    return Vectors(
        *read_words(
            path,
            format,
            limit=limit,
            encoding=encoding,
            undecodable=undecodable,
            dtype=dtype,
            n_threads=n_threads,
        )
    )
