"""Vectors of columns (items, words) for a search service of another kind: FAISS, usearch, or a table that vector databases read.

For a completion the score of column j for row i is <u_i, v_j> + b_j, plus what is the same for all columns of the row. With

    x_j = (v_j, b_j, sqrt(M^2 - |v_j|^2 - b_j^2)),   M^2 = max_j |v_j|^2 + b_j^2,   and   q_i = (u_i, 1, 0),

<q_i, x_j> is that score, and all x_j have the length M: the order by inner product, by cosine and by distance is one and the same, so that an index built for
any of them finds the best columns (Bachrach et al. 2014). For an embedding both are the unit vectors, and the inner product is the cosine.

An approximate index misses some of the best. How many is measured: recall@10 is the share of the exact 10 best that it finds, over a sample of the rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from eckart.complete.recommend import scoring
from eckart.errors import FileError, InputTypeError, MissingError, wrong
from eckart.factors import LowRank
from eckart.io.tables.write import label_array

ENDINGS = (".usearch", ".faiss", ".parquet")
NEEDS = {".usearch": ("usearch", "usearch"), ".faiss": ("faiss", "faiss-cpu")}
"""By ending: the module that writes it, and the package that brings the module."""
LINKS, WIDTH_BUILD, WIDTH_SEARCH = 32, 200, 128
"""Neighbours of a node of the graph, and candidates kept while it is built and searched: recall@10 of 0.99 and more for the ratings and words we tried, where
the defaults of the libraries (16 links, 16 to 64 candidates) lose up to a tenth."""
BEST = 10
BLOCK = 256
"""Queries of one exact product."""


@dataclass(frozen=True)
class SearchVectors:
    """``vectors`` of the things that are searched, ``queries`` of those that ask, both in single precision; the larger <q, x>, the better."""

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
                f"a {type(model).__name__} came, wanted a fitted completion with factors (such as ALS) or an embedding: only these have vectors to search"
            )
        left, right, offset = scoring(f, np.arange(f.shape[0]), np.arange(f.n))
        lifted = np.column_stack([right, np.zeros(f.n) if offset is None else offset]).astype(np.float64)
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
        """Positions of the n vectors of the largest inner product with these queries, by looking at all of them."""
        found = np.empty((len(at), n), np.int64)
        for start in range(0, len(at), BLOCK):
            scores = self.queries[at[start : start + BLOCK]] @ self.vectors.T
            found[start : start + BLOCK] = np.argpartition(-scores, n - 1, axis=1)[:, :n]
        return found


@dataclass(frozen=True)
class Exported:
    """What was written. ``recall`` is None for a table, which is searched by others."""

    path: Path
    ids_path: Path | None
    count: int
    dimension: int
    asked: int
    recall: float | None

    def __str__(self) -> str:
        what = f"{self.count:,} vectors of {self.dimension} numbers in {self.path}"
        what += "" if self.ids_path is None else f", their ids in {self.ids_path}"
        if self.recall is None:
            return what
        return f"{what}; recall@{BEST} of {self.asked:,} queries against exact search {self.recall:.4f}"


def export_vectors(model: Any, path: Any, *, queries: Any = None, sample: int = 1000, seed: int = 0) -> Exported:
    """Write the column vectors of a model as an index or a table, and measure what the index finds.

    Parameters
    ----------
    model : a fitted completion with factors, an embedding, or ``Vectors``
    path : .usearch or .faiss (an HNSW graph; the ids of its positions go to a .ids.parquet beside it), or .parquet (columns id and vector)
    queries : a .parquet for the vectors of the rows that ask, columns id and vector
    sample : how many queries the recall is measured on
    seed : of the sample

    The best columns for a row are those whose vectors have the largest inner product with the row's query vector. Columns that the row has seen are among them.
    """
    target = _checked(path, ENDINGS)
    asked_file = None if queries is None else _checked(queries, (".parquet",))
    if isinstance(sample, bool) or not isinstance(sample, (int, np.integer)) or sample < 1:
        raise wrong("sample", sample, "an int >= 1")
    kind = target.suffix.lower()
    if kind in NEEDS and find_spec(NEEDS[kind][0]) is None:
        raise MissingError(
            f"writing {target} needs {NEEDS[kind][1]}, which is not installed; pip install {NEEDS[kind][1]}"
        )
    v = SearchVectors.of(model)
    ids_path, recall, asked = None, None, 0
    if kind == ".parquet":
        _write_table(target, v.ids, v.vectors)
    else:
        index = (_Usearch if kind == ".usearch" else _Faiss)(v.vectors)
        asked = min(sample, len(v.queries))
        recall = _recall(index, v, np.random.default_rng(seed).choice(len(v.queries), asked, replace=False))
        ids_path = target.with_name(f"{target.stem}.ids.parquet")
        _write_table(ids_path, v.ids, None)
        _replaced(target, index.save)
    if asked_file is not None:
        _write_table(asked_file, v.query_ids, v.queries)
    return Exported(target, ids_path, *v.vectors.shape, asked, recall)


class _Usearch:
    def __init__(self, vectors: np.ndarray):
        from usearch.index import Index

        self.index = Index(
            ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=LINKS, expansion_add=WIDTH_BUILD, expansion_search=WIDTH_SEARCH
        )  # fmt: skip
        self.index.add(np.arange(len(vectors)), vectors)

    def search(self, queries: np.ndarray, n: int) -> np.ndarray:
        return np.atleast_2d(self.index.search(queries, n).keys).astype(np.int64)

    def save(self, path: str) -> None:
        self.index.save(path)


class _Faiss:
    def __init__(self, vectors: np.ndarray):
        import faiss

        self.index = faiss.IndexHNSWFlat(vectors.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction, self.index.hnsw.efSearch = WIDTH_BUILD, WIDTH_SEARCH
        self.index.add(vectors)

    def search(self, queries: np.ndarray, n: int) -> np.ndarray:
        return self.index.search(queries, n)[1]

    def save(self, path: str) -> None:
        import faiss

        faiss.write_index(self.index, path)


def _recall(index: Any, v: SearchVectors, at: np.ndarray) -> float:
    """The share of the exact best that the index finds."""
    n = min(BEST + v.itself, len(v.vectors))
    hits = wanted = 0
    for own, exact, found in zip(at, v.best(at, n), index.search(v.queries[at], n)):
        right = set(exact.tolist()) - ({int(own)} if v.itself else set())
        hits, wanted = hits + len(right & set(found.tolist())), wanted + len(right)
    return hits / max(wanted, 1)


def _checked(path: Any, endings: tuple[str, ...]) -> Path:
    target = Path(path)
    if target.suffix.lower() not in endings:
        raise FileError(f"{target} ends in {target.suffix!r}, wanted one of {', '.join(endings)}")
    if not target.parent.is_dir():
        raise FileError(f"the folder {target.parent} of {target.name} does not exist")
    return target


def _write_table(target: Path, ids: np.ndarray, vectors: np.ndarray | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": label_array(ids)}
    if vectors is not None:
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
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
