"""Arrays, tables and bags of Dask, one row a row: parts of a Dense, Counts or Observed matrix."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from eckart.clusters.tasks import TIMES_OVER
from eckart.errors import InputError, InputTypeError, NoWordsError
from eckart.index.entries import floating
from eckart.io.dask.known import is_frame
from eckart.io.dask.parts import TaskParts, each, refusing
from eckart.io.text.documents import text_of
from eckart.matrix import Counts, Dense, Matrix, Observed, wrong_ndim
from eckart.matrix_blocks import of_parts
from eckart.matrix_parts import kind_of


def from_collection(
    source: Any, columns: Any = None, absent: str = "zero", max_df: float = 1.0
) -> Matrix:
    """The matrix of a Dask array (dense or sparse chunks), a Dask frame of numbers, a series of
    texts, or a bag of texts or of sparse blocks. Words in more than a share ``max_df`` of the texts
    are left out."""
    kind = (
        type(source).__module__.split(".")[1] if type(source).__module__.startswith("dask.") else ""
    )
    if kind == "array":
        return _from_array(source, absent)
    if is_frame(source):
        return _from_frame(source, columns)
    if kind == "bag" or (is_frame(source, 1) and getattr(source.dtype, "kind", "O") in "OU"):
        return _from_bag(source, absent, max_df)
    raise InputTypeError(
        "X must be an array of two dimensions, a frame with columns, a series of texts, or "
        f"a bag of texts or of sparse blocks, got a {type(source).__name__} of Dask"
    )


def _from_array(x: Any, absent: str) -> Matrix:
    if x.ndim != 2:
        raise wrong_ndim(x.ndim)
    if x.dtype.kind not in "fiub":
        raise InputError(f"X must be a Dask array of numbers, got {x.dtype}")
    if np.isnan(x.shape[1]):
        raise InputError(
            "X must be a Dask array whose number of columns is known. Call "
            "X.compute_chunk_sizes() first."
        )
    if x.numblocks[1] > 1:
        x = x.rechunk({1: -1})
    chunks = list(x.to_delayed().ravel())
    sparse = hasattr(x._meta, "tocsr")
    sizes = list(x.chunks[0])
    return _joined(chunks, x.name, int(x.shape[1]), floating(x.dtype), sizes, sparse, absent, None)


def _from_frame(x: Any, columns: Any) -> Matrix:
    names = list(x.columns)
    if columns is not None:
        absent = [name for name in columns if name not in names]
        if absent:
            raise InputError(
                f"columns must be some of {', '.join(map(repr, names[:12]))}, got {absent[0]!r}"
            )
        x, names = x[list(columns)], list(columns)
    bad = next(
        (name for name, dtype in x.dtypes.items() if getattr(dtype, "kind", "O") not in "fiub"),
        None,
    )
    if bad is not None:
        raise InputError(
            f"column {bad!r} must hold numbers, got {x.dtypes[bad]}. Choose the columns with "
            "X[[...]], or encode it first."
        )
    dtype = floating(np.result_type(*(np.dtype(getattr(d, "numpy_dtype", d)) for d in x.dtypes)))
    from eckart.io.tables.frames import titles

    sizes = [np.nan] * x.npartitions
    return _joined(
        x.to_delayed(), x._name, len(names), dtype, sizes, False, "zero", titles(names), names
    )


def _from_bag(x: Any, absent: str, max_df: float) -> Matrix:
    """A bag of texts is counted by its words; one of sparse matrices is these, one below the
    other."""
    from dask import delayed

    parts = x.to_delayed()
    kinds, token = each(_kind_of_bag, parts), str(parts[0].key)
    seen = {kind for kind, *_ in kinds if kind}
    if not seen:
        raise InputError("X must hold texts or sparse blocks, got a bag without an item")
    if seen == {"text"}:
        from eckart.io.text.vocabulary import vocabulary_of

        often = Counter[str]()
        for found in each(_words, parts):
            often.update(found)
        documents = sum(rows for _, rows, _ in kinds)
        words = sorted(word for word, count in often.items() if count <= max_df * documents)
        if not words:
            raise InputError(
                f"at least one word must be left in at most {max_df:.0%} documents, got none of "
                f"{len(often):,} in {documents:,} documents"
            )
        given = delayed(vocabulary_of(words), pure=True, traverse=False)
        tasks = [
            delayed(refusing, pure=True, traverse=False)(_counted, part, i, given)
            for i, part in enumerate(parts)
        ]
        from eckart.io.tables.frames import titles

        return _of_tasks(
            "counts",
            tasks,
            [rows for _, rows, _ in kinds],
            len(words),
            np.dtype(np.float64),
            token,
            titles(words),
        )
    if seen == {"sparse"}:
        chunks = [delayed(_stack, pure=True, traverse=False)(part) for part in parts]
        width = next(n for _, _, n in kinds if n)
        return _joined(
            chunks, token, width, None, [rows for _, rows, _ in kinds], True, absent, None
        )
    raise InputError(
        "X must be a bag of texts alone or of sparse blocks alone, got "
        f"{' and '.join(sorted(seen))}"
    )


def _kind_of_bag(items: Any) -> tuple[str, int, int]:
    items = list(items)
    if not items:
        return "", 0, 0
    if all(hasattr(item, "tocsr") for item in items):
        return "sparse", sum(item.shape[0] for item in items), items[0].shape[1]
    if not any(isinstance(item, str) or item is None for item in items):
        return type(items[0]).__name__, len(items), 0
    for i, item in enumerate(items):
        text_of(item, i)  # named where it is none
    return "text", len(items), 0


def _words(items: Any) -> dict[str, int]:
    """In how many texts each word stands."""
    from eckart.io.text.vocabulary import corpus

    items = list(items)
    try:
        found = corpus(items, n_threads=1) if items else None
    except NoWordsError:
        found = None
    if found is None or found.columns is None:
        return {}
    return dict(zip(found.columns.tolist(), found.column_counts().tolist()))


def _counted(items: Any, words: Any) -> Counts:
    from eckart.io.text.vocabulary import corpus

    found = corpus(list(items), vocabulary=words, n_threads=1)
    return Counts(found.indptr, found.indices, found.data, found.n_columns)


def _stack(items: Any) -> Any:
    from scipy import sparse

    items = list(items)
    return sparse.vstack(items, format="csr") if items else None


def _joined(
    chunks: Any,
    token: str,
    n: int,
    dtype: Any,
    sizes: list[Any],
    sparse: bool,
    absent: str,
    columns: np.ndarray | None,
    names: list[Any] | None = None,
) -> Matrix:
    """Chunks as parts. Where their sizes are unknown, one pass finds them; where chunks are sparse,
    their kind is looked at too. ``names`` are the columns of frames, in their order."""
    from dask import delayed

    kind = ("observed" if absent == "unknown" else "counts") if sparse else "dense"
    unknown = any(np.isnan(size) for size in sizes)
    first = [i for i in range(len(sizes)) if unknown or sizes[i]]
    if not first:
        raise InputError("X must have at least one row, got none")
    if not sparse and not unknown:  # chunks may be sparse without their array saying so
        largest = TIMES_OVER * sizes[first[0]] * n * (8 if dtype is None else dtype.itemsize)
        kind = each(_kind_of_chunk, [chunks[first[0]]], needs=largest)[0] or kind
        kind = "observed" if kind == "counts" and absent == "unknown" else kind
    made = [
        delayed(refusing, pure=True, traverse=False)(
            _matrix, chunk, i, kind, n, names, None if unknown else int(sizes[i])
        )
        for i, chunk in enumerate(chunks)
    ]
    if unknown or sparse or dtype is None:
        parts_seen = each(_look, made)
        sizes = [rows for rows, *_ in parts_seen]
        dtype = (
            next((d for rows, d, _ in parts_seen if rows), np.dtype(np.float64))
            if dtype is None
            else dtype
        )
        kind = next((k for rows, _, k in parts_seen if rows), kind)
    return _of_tasks(kind, made, [int(size) for size in sizes], n, dtype, token, columns)


def _of_tasks(
    kind: str,
    tasks: list[Any],
    lengths: list[int],
    n: int,
    dtype: np.dtype,
    token: str,
    columns: np.ndarray | None,
) -> Matrix:
    nbytes = float(sum(lengths)) * n * dtype.itemsize if kind == "dense" else None
    return of_parts(TaskParts(kind, lengths, n, dtype, tasks, token, None, nbytes), None, columns)


def _kind_of_chunk(chunk: Any) -> str:
    return "counts" if hasattr(chunk, "tocsr") else "dense"


def _look(matrix: Matrix) -> tuple[int, np.dtype, str]:
    return int(matrix.shape[0] or 0), matrix.dtype, kind_of(matrix)


def _matrix(
    chunk: Any, kind: str, n: int, names: list[Any] | None = None, rows: int | None = None
) -> Matrix:
    """One chunk as a matrix of the kind that all have, the columns of a frame in the order of
    ``names``; ``rows`` where they are known."""
    from eckart.io.tables.frames import from_frame
    from eckart.io.tables.missing import numeric

    if chunk is None and kind == "dense":
        raise InputError("X must be chunks of rows, got a chunk that is None")
    if chunk is None:
        from scipy import sparse

        chunk = sparse.csr_array((0, n))
    if hasattr(chunk, "columns"):
        if len(chunk) == 0:
            return Dense(np.empty((0, n)))
        if names is not None and list(chunk.columns) != names:
            if sorted(map(repr, chunk.columns)) != sorted(map(repr, names)):
                odd = next(
                    name
                    for name in [*names, *chunk.columns]
                    if (name in names) != (name in chunk.columns)
                )
                raise InputError(
                    f"every partition must have the {n} columns that the frame says, got none called "
                    f"{odd!r}"
                )
            chunk = chunk[names]  # partitions may have been written by different programs
        made: Any = from_frame(chunk)
        return Dense(made.array) if isinstance(made, Dense) else made
    if hasattr(chunk, "tocsr"):
        if kind == "dense":
            raise InputError(
                "X must have chunks of one kind, got a sparse chunk among dense ones. Convert them "
                "with map_blocks."
            )
        made = (Observed if kind == "observed" else Counts).from_scipy(chunk)
    else:
        if kind != "dense":
            raise InputError(
                "X must have chunks of one kind, got a dense chunk among sparse ones. Convert them "
                "with map_blocks."
            )
        made = Dense(numeric(np.asarray(chunk)))
    if made.shape[1] != n:
        raise InputError(
            f"X must have chunks of {n} columns as its array says, got {made.shape[1]}"
        )
    if rows is not None and made.shape[0] != rows:
        raise InputError(
            f"X must have chunks of {rows} rows as its array says, got {made.shape[0]}"
        )
    return made
