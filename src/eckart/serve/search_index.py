"""Vectors of columns (items, words) for a search service of another kind: FAISS, usearch, or a
table that vector databases read.

For a completion the score of column j for row i is <u_i, v_j> + b_j, plus what is the same for all
columns of the row. With

    x_j = (v_j, b_j, sqrt(M^2 - |v_j|^2 - b_j^2)),   M^2 = max_j |v_j|^2 + b_j^2,   and   q_i =
    (u_i, 1, 0),

<q_i, x_j> is that score, and all x_j have the length M: the order by inner product, by cosine and
by distance is one and the same, so that an index built for any of them finds the best columns
(Bachrach et al. 2014). For an embedding both are the unit vectors, and the inner product is the
cosine.

An approximate index misses some of the best. How many is measured: recall@10 is the share of the
exact 10 best that it finds, over a sample of the rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.complete.recommend import scoring
from eckart.errors import FileError, InputTypeError, MissingError, invalid
from eckart.factors import LowRank
from eckart.io.models.whole_files import named
from eckart.io.tables.write import label_array
from eckart.loading import pa, pq

ENDINGS = (".usearch", ".faiss", ".parquet")
NEEDS = {".usearch": ("usearch", "usearch"), ".faiss": ("faiss", "faiss-cpu")}
"""By ending: the module that writes it, and the package that brings the module."""
LINKS, BUILD_WIDTH = 32, 128
"""Neighbours of a node of the graph, and candidates that are kept while it is built."""
WIDTHS = (64, 128, 256, 512, 1024)
"""Candidates kept while it is searched: the first of these that reaches ENOUGH. How many are needed
depends on the vectors, so it is measured."""
ENOUGH, BEST = 0.99, 10
"""Share of the exact 10 best that is enough: one list of ten misses one of them."""
BLOCK = 256
"""Queries of one exact product."""


@dataclass(frozen=True)
class SearchVectors:
    """``vectors`` of the things that are searched, ``queries`` of those that ask, both in single
    precision; the larger <q, x>, the better."""

    ids: np.ndarray
    vectors: np.ndarray
    query_ids: np.ndarray
    queries: np.ndarray
    itself: bool
    """Whether queries and vectors are the same things, which are not answers to themselves."""

    @classmethod
    def of(cls, model: Any) -> SearchVectors:
        """Of a fitted completion with factors, of an embedding, or of ``Vectors``."""
        held = getattr(model, "vectors_", model)
        if hasattr(held, "unit") and hasattr(held, "words"):
            unit = np.ascontiguousarray(held.unit, np.float32)
            return cls(held.words, unit, held.words, unit, True)
        f = getattr(getattr(model, "fit_", None), "factors", None)
        if not isinstance(f, LowRank):
            raise InputTypeError(
                "the model must be a fitted completion with factors (such as ALS) or an embedding, "
                f"got a {type(model).__name__}: only these have vectors to search"
            )
        left, right, offset = scoring(f, np.arange(f.shape[0]), np.arange(f.n))
        lifted = np.column_stack([right, np.zeros(f.n) if offset is None else offset]).astype(
            np.float64
        )
        square = np.einsum("jk,jk->j", lifted, lifted)
        rest = np.sqrt(np.maximum(square.max() - square, 0.0))
        queries = np.column_stack([left, np.ones(len(left)), np.zeros(len(left))])
        return cls(
            model.column_ids.names(np.arange(f.n)),
            np.column_stack([lifted, rest]).astype(np.float32),
            model.row_ids.names(np.arange(len(left))),
            queries.astype(np.float32),
            False,
        )

    def best(self, at: np.ndarray, n: int) -> np.ndarray:
        """Positions of the n vectors of the largest inner product with these queries, by looking at
        all of them."""
        found = np.empty((len(at), n), np.int64)
        for start in range(0, len(at), BLOCK):
            scores = self.queries[at[start : start + BLOCK]] @ self.vectors.T
            found[start : start + BLOCK] = np.argpartition(-scores, n - 1, axis=1)[:, :n]
        return found


@dataclass(frozen=True)
class Exported:
    """What was written. ``recall`` is None for a table, which is searched by others.

    ``width`` is the number of candidates with which it was measured. A file of FAISS keeps it;
    usearch wants it again (``index.expansion_search = width``).
    """

    path: Path
    ids_path: Path | None
    count: int
    dimension: int
    asked: int
    recall: float | None
    width: int | None = None

    def __str__(self) -> str:
        what = f"{self.count:,} vectors of {self.dimension} numbers in {self.path}"
        what += "" if self.ids_path is None else f", their ids in {self.ids_path}"
        if self.recall is None:
            return what
        return (
            f"{what}; searched with {self.width} candidates, recall@{BEST} of {self.asked:,} "
            f"queries against exact search is {self.recall:.4f}"
        )


@held
def export_vectors(
    model: Any, path: Any, *, queries: Any = None, sample: int = 1000, seed: int = 0
) -> Exported:
    """Write the column vectors of a model as an index or a table, and measure what the index finds.

    The best columns for a row are those whose vectors have the largest inner product with the row's
    query vector. Columns that the row has seen are among them.

    Parameters
    ----------
    model : a fitted completion with factors, an embedding, or ``Vectors``
    path : .usearch or .faiss (an HNSW graph; the ids of its positions go to a .ids.parquet beside
        it), or .parquet (columns id and vector)
    queries : a .parquet for the vectors of the rows that ask, columns id and vector
    sample : how many queries the recall is measured on
    seed : of the sample

    >>> import os, tempfile
    >>> from eckart import ALS, export_vectors
    >>> model = ALS(2, random_state=0).fit(np.array([[5, 4, np.nan], [1, np.nan, 2], [np.nan, 5, 4.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = export_vectors(model, os.path.join(folder, "items.parquet"))
    >>> found.path.name, found.count
    ('items.parquet', 3)
    """
    target = _checked(path, ENDINGS)
    asked_file = None if queries is None else _checked(queries, (".parquet",))
    if isinstance(sample, bool) or not isinstance(sample, (int, np.integer)) or sample < 1:
        raise invalid("sample", sample, "an int >= 1")
    kind = target.suffix.lower()
    if kind in NEEDS and find_spec(NEEDS[kind][0]) is None:
        raise MissingError(
            f"writing {target} needs {NEEDS[kind][1]}, which is not installed; pip "
            f"install {NEEDS[kind][1]}"
        )
    v = SearchVectors.of(model)
    ids_path, recall, width, asked = None, None, None, 0
    if kind == ".parquet":
        _write_table(target, v.ids, v.vectors)
    else:
        index = (_Usearch if kind == ".usearch" else _Faiss)(v.vectors)
        asked = min(sample, len(v.queries))
        width, recall = _width(
            index, v, np.random.default_rng(seed).choice(len(v.queries), asked, replace=False)
        )
        ids_path = target.with_name(f"{target.stem}.ids.parquet")
        _write_table(ids_path, v.ids, None)
        _replaced(target, index.save)
    if asked_file is not None:
        _write_table(asked_file, v.query_ids, v.queries)
    count, dimension = v.vectors.shape
    return Exported(target, ids_path, count, dimension, asked, recall, width)


class _Usearch:
    def __init__(self, vectors: np.ndarray):
        from usearch.index import Index

        self.index = Index(
            ndim=vectors.shape[1],
            metric="ip",
            dtype="f32",
            connectivity=LINKS,
            expansion_add=BUILD_WIDTH,
            expansion_search=WIDTHS[0],
        )
        self.index.add(np.arange(len(vectors)), vectors)

    def widen(self, width: int) -> None:
        self.index.expansion_search = width

    def search(self, queries: np.ndarray, n: int) -> np.ndarray:
        return np.atleast_2d(self.index.search(queries, n).keys).astype(np.int64)

    def save(self, path: str) -> None:
        self.index.save(path)


class _Faiss:
    def __init__(self, vectors: np.ndarray):
        import faiss

        self.index = faiss.IndexHNSWFlat(vectors.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = BUILD_WIDTH
        self.index.add(vectors)

    def widen(self, width: int) -> None:
        self.index.hnsw.efSearch = width

    def search(self, queries: np.ndarray, n: int) -> np.ndarray:
        return self.index.search(queries, n)[1]

    def save(self, path: str) -> None:
        import faiss

        faiss.write_index(self.index, path)


def _width(index: Any, v: SearchVectors, at: np.ndarray) -> tuple[int, float]:
    """The smallest width whose recall is enough (the largest, where none is), and its recall: the
    share of the exact best that the index finds."""
    n = min(BEST + v.itself, len(v.vectors))
    own = [{int(i)} if v.itself else set() for i in at]
    exact = [set(best.tolist()) - i for best, i in zip(v.best(at, n), own)]
    for width in WIDTHS:
        index.widen(width)
        hits = sum(
            len(best & set(found.tolist()))
            for best, found in zip(exact, index.search(v.queries[at], n))
        )
        recall = hits / max(1, sum(map(len, exact)))
        if recall >= ENOUGH:
            break
    return width, recall


def _checked(path: Any, endings: tuple[str, ...]) -> Path:
    target = named(path)
    if target.suffix.lower() not in endings:
        raise FileError(f"{target} must end in one of {', '.join(endings)}, got {target.suffix!r}")
    if not target.parent.is_dir():
        raise FileError(f"the folder {target.parent} of {target.name} does not exist")
    return target


def _write_table(target: Path, ids: np.ndarray, vectors: np.ndarray | None) -> None:
    columns = {"id": label_array(ids)}
    if vectors is not None:
        columns["vector"] = pa.FixedSizeListArray.from_arrays(
            pa.array(vectors.ravel()), vectors.shape[1]
        )
    _replaced(target, lambda name: pq.write_table(pa.table(columns), name))


def _replaced(target: Path, write: Any) -> None:
    """The file appears whole or not at all."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        write(str(part))
        os.replace(part, target)
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error}") from None
    finally:
        part.unlink(missing_ok=True)
