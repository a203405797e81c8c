"""Parts of a matrix that are tasks of Dask, and what is asked of them before a fit.

Verbs of a fitted model asked of a Dask collection: the answer is a collection of the same
partitions, computed when it is needed, with names and types.

The model goes to the workers once, without what the verb does not use, and works there on one
thread, as tasks do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.clusters.client import client_of
from eckart.clusters.tasks import HeldFuture, computed
from eckart.engines.protocol.placed import Place, Refused, first_refused, raise_first, whole_rows
from eckart.entry_facts import EntryFacts
from eckart.errors import InputError, InputTypeError
from eckart.io.dask.known import is_collection, is_frame
from eckart.matrix import Matrix, Observed
from eckart.matrix_blocks import as_counts, without_gaps
from eckart.matrix_parts import words_for
from eckart.merging import FAN, folded


@dataclass(frozen=True, eq=False)
class TaskParts:
    """``tasks[i]`` (a ``dask.delayed``) gives part i; ``entries`` and ``nbytes`` where they are
    known; ``held`` keeps what the tasks are made of."""

    kind: str
    lengths: list[int]
    n_columns: int
    dtype: np.dtype
    tasks: list[Any]
    token: str
    entries: list[int] | None = None
    nbytes: float | None = None
    held: HeldFuture | None = None

    def load(self, part: int) -> Matrix:
        return checked(run([self.tasks[part]]))[0]

    def each(
        self,
        do: Callable[..., Any],
        given: list[tuple[Any, ...]] | None = None,
        shared: tuple[Any, ...] = (),
    ) -> list[Any]:
        """``do(part, *given[part], *shared)`` of every part, on the workers."""
        return each(do, self.tasks, given, shared)

    def facts(self) -> EntryFacts:
        """Of all stored entries, in one pass."""
        return folded(self.each(EntryFacts.of))

    def mapped(
        self,
        do: Callable[..., Any],
        kind: str | None = None,
        given: list[tuple[Any, ...]] | None = None,
        **known: Any,
    ) -> TaskParts:
        """Parts that ``do`` makes of these, with arguments of its own for each where they are
        given."""
        from dask import delayed

        more = given or [()] * len(self.tasks)
        later = delayed(_unless_refused, pure=given is None, traverse=False)
        tasks = [later(do, task, *own) for task, own in zip(self.tasks, more)]
        return replace(
            self,
            kind=kind or self.kind,
            tasks=tasks,
            token=f"{self.token} {words_for(do)}",
            **known,
        )

    def with_gaps(self) -> TaskParts:
        """Dense parts, NaN for unknown."""
        return self.mapped(without_gaps, "observed", entries=None)

    def as_counts(self) -> TaskParts:
        """Partly observed parts, absent entries zero."""
        return self.mapped(as_counts, "counts")


def run(tasks: list[Any], needs: float = 0.0) -> list[Any]:
    """The values of tasks, on the cluster that a fit would use; ``needs`` as in ``computed``."""
    return computed(client_of(), lambda _: tasks, str, needs=needs)


def each(
    do: Callable[..., Any],
    tasks: list[Any],
    given: list[tuple[Any, ...]] | None = None,
    shared: tuple[Any, ...] = (),
    needs: float = 0.0,
) -> list[Any]:
    """``do(part, *given[part], *shared)`` of every part; the first part that was refused is
    raised."""
    from dask import delayed

    later = {"pure": False, "traverse": False}
    common = [delayed(value, **later) for value in shared]
    more = given or [()] * len(tasks)
    made = [
        delayed(_at_part, **later)(do, task, i, *own, *common)
        for i, (task, own) in enumerate(zip(tasks, more))
    ]
    return checked(run(made, needs))


def partitions(collection: Any) -> list[Any]:
    """The partitions of a bag (or of a series) as tasks."""
    if not hasattr(collection, "to_delayed") or getattr(collection, "ndim", 1) != 1:
        raise InputTypeError(
            "X must be a bag, or a series, of texts or of lists, got a "
            f"{type(collection).__name__} of Dask"
        )
    return list(collection.to_delayed())


def summed(do: Callable[..., Any], tasks: list[Any], *shared: Any) -> Any:
    """The sum of ``do(part, *shared)`` over all parts, in the tree of ``merging``, on the workers;
    None where every part gives None."""
    from dask import delayed

    given = [delayed(value, pure=False, traverse=False) for value in shared]
    later = {"pure": False, "traverse": False}
    parts = [delayed(refusing, **later)(do, task, i, *given) for i, task in enumerate(tasks)]
    while len(parts) > 1:
        parts = [delayed(_folded, **later)(parts[i : i + FAN]) for i in range(0, len(parts), FAN)]
    return checked(run(parts))[0]


def _folded(parts: list[Any]) -> Any:
    return first_refused(parts) or folded(parts)


def _at_part(do: Callable[..., Any], part: Any, number: int, *more: Any) -> Any:
    return part if isinstance(part, Refused) else refusing(do, part, number, *more)


def _unless_refused(do: Callable[..., Any], part: Any, *own: Any) -> Any:
    return part if isinstance(part, Refused) else do(part, *own)


def checked(values: list[Any]) -> list[Any]:
    """The values, unless one of them is an error."""
    raise_first(values)
    return values


def refusing(do: Callable[..., Any], part: Any, number: int, *args: Any) -> Any:
    """``do`` at a partition; what it refuses comes back as data that names the partition."""
    try:
        return do(part, *args)
    except InputError as error:
        text = (
            whole_rows(str(error), Place(number, 0, 0))
            if " row " in str(error)
            else f"{error} (partition {number})"
        )
        return Refused(False, text)


BY_ROWS = (
    "transform",
    "predict",
    "predict_proba",
    "score_samples",
    "impute",
    "inverse_transform",
    "spe",
    "recommend",
)
"""Verbs whose answer for a row is the same whatever the other rows are."""


def asked(args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether one of the arguments is a collection."""
    return any(is_collection(each) for each in (*args, *named.values()))


def answer(model: Any, verb: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The verb of every partition, later."""
    from dask import delayed

    lean = sent(model, verb)
    there = delayed(lean, pure=False, traverse=False)
    if verb == "recommend":
        return _recommended(lean, there, args, named)
    x = args[0] if args else next(iter(named.values()))
    others = (args[1:], {key: value for key, value in named.items() if value is not x})
    if is_frame(x) or (is_frame(x, 1) and verb != "transform"):
        return _of_frame(lean, there, verb, x, *others)
    if type(x).__module__.startswith("dask.array"):
        return _of_array(lean, there, verb, x, *others)
    if type(x).__module__.startswith("dask.bag") or is_frame(x, 1):  # texts
        return _of_bag(lean, there, verb, x)
    raise InputError(f"X must be an array, a frame or a bag, got a {type(x).__name__} of Dask")


def sent(model: Any, verb: str) -> Any:
    """A copy of the model that works on one thread of a worker; a completer leaves its entries
    behind unless it must not recommend what was seen."""
    lean = copy.copy(model)
    lean.n_threads, lean.engine, lean.verbose = 1, "cpu", False
    seen = vars(model).get("observed_")
    if seen is not None:
        if verb == "recommend":
            lean.observed_ = Observed(
                seen.indptr, seen.indices, seen.data, seen.n_columns, seen.rows, seen.columns
            )
        else:
            lean.observed_ = None
    return lean


def _of_array(
    lean: Any, there: Any, verb: str, x: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    import dask.array as da

    if x.ndim == 1:
        dtype = _dtype(lean)
        return da.map_blocks(
            _called, x, *args, there, verb, named, dtype=dtype, meta=np.empty(0, dtype)
        )
    if x.numblocks[1] > 1:
        x = x.rechunk({1: -1})
    like = _example(lean, verb, int(x.shape[1]), args, named)
    how: dict[str, Any] = {"dtype": like.dtype, "meta": np.empty((0,) * like.ndim, like.dtype)}
    how |= {"chunks": (x.chunks[0], (like.shape[1],))} if like.ndim == 2 else {"drop_axis": 1}
    return da.map_blocks(_called_alone, x, there, verb, args, named, **how)


def _of_frame(
    lean: Any, there: Any, verb: str, x: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    import pandas as pd

    if is_frame(x, 1):  # ids of rows, ids of columns
        meta: Any = pd.Series([], dtype=_dtype(lean), name=verb)
        return x.map_partitions(
            _called_on_ids, *args, model=there, verb=verb, named=named, meta=meta
        )
    like = _example(lean, verb, len(x.columns), args, named)
    if like.ndim == 1:
        meta = pd.Series([], dtype=like.dtype, name=verb)
    else:
        meta = pd.DataFrame(
            np.empty((0, like.shape[1]), like.dtype),
            columns=_names(lean, verb, like.shape[1], list(x.columns)),
        )
    return x.map_partitions(
        _called_on_frame, model=there, verb=verb, more=(args, named), empty=meta, meta=meta
    )


def _of_bag(lean: Any, there: Any, verb: str, x: Any) -> Any:
    """Texts, counted by the words of the model (word models do that themselves), or sparse
    blocks."""
    import dask.array as da
    from dask import delayed

    like = (
        np.asarray(lean.transform([""]))
        if _of_words(lean)
        else _example(lean, verb, lean.n_features_in_, (), {})
    )
    parts = [
        delayed(_called_on_bag, pure=False, traverse=False)(there, verb, part)
        for part in x.to_delayed()
    ]
    shape = (np.nan, like.shape[1]) if like.ndim == 2 else (np.nan,)
    return da.concatenate([da.from_delayed(part, shape, like.dtype) for part in parts])


def _recommended(lean: Any, there: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A frame with the columns row, rank, column, score and observations."""
    import pandas as pd

    ids = args[0] if args else named.pop("rows", None)
    if not is_frame(ids, 1):
        raise InputError(
            "recommend takes a Series of row ids of Dask, got a collection that is no Series"
        )
    f = lean.fit_.factors
    rows, columns = (
        np.arange(0) if labels is None else np.asarray(labels)[:0] for labels in (f.rows, f.columns)
    )
    numbers = {"rank": np.empty(0, np.int64), "column": columns, "score": np.empty(0, f.left.dtype)}
    meta = pd.DataFrame({"row": rows, **numbers, "observations": np.empty(0, np.int64)})
    return ids.map_partitions(
        _recommended_part, *args[1:], model=there, named=named, empty=meta, meta=meta
    )


def _recommended_part(ids: Any, *args: Any, model: Any, named: dict[str, Any], empty: Any) -> Any:
    import pandas as pd

    return (
        pd.DataFrame(model.recommend(ids.to_numpy(), *args, **named).to_table())
        if len(ids)
        else empty
    )


def _called(*parts: Any) -> np.ndarray:
    *ids, model, verb, named = parts
    return getattr(model, verb)(*ids, **named) if len(ids[0]) else np.empty(0, _dtype(model))


def _called_alone(
    chunk: Any, model: Any, verb: str, args: tuple[Any, ...], named: dict[str, Any]
) -> np.ndarray:
    return np.asarray(getattr(model, verb)(chunk, *args, **named))


def _called_on_ids(*ids: Any, model: Any, verb: str, named: dict[str, Any]) -> Any:
    import pandas as pd

    found = getattr(model, verb)(
        *(each.to_numpy() if hasattr(each, "to_numpy") else each for each in ids), **named
    )
    return pd.Series(found, index=ids[0].index, name=verb)


def _called_on_frame(frame: Any, *, model: Any, verb: str, more: Any, empty: Any) -> Any:
    if len(frame) == 0:
        return empty
    found = np.asarray(getattr(model, verb)(frame, *more[0], **more[1]))
    if found.ndim == 1:
        return type(empty)(found, index=frame.index, name=verb)
    return type(empty)(found, index=frame.index, columns=empty.columns)


def _called_on_bag(model: Any, verb: str, items: Any) -> np.ndarray:
    from scipy import sparse

    from eckart.io.text.vocabulary import corpus

    items = list(items)
    if _of_words(model):
        return np.asarray(getattr(model, verb)(items))
    if items and hasattr(items[0], "tocsr"):
        block: Any = sparse.vstack(items, format="csr")
    else:
        block = corpus(items, vocabulary=model.fit_.factors.columns.tolist(), n_threads=1)
    return np.asarray(getattr(model, verb)(block))


def _of_words(model: Any) -> bool:
    """Whether a model has a vector for each word, and takes texts and lists as they are."""
    return hasattr(model.fit_.factors, "vectors")


def _example(
    lean: Any, verb: str, n: int, args: tuple[Any, ...], named: dict[str, Any]
) -> np.ndarray:
    """What the verb answers for one row of ones: its width and type."""
    return np.asarray(getattr(_unnamed(lean), verb)(np.ones((1, n)), *args, **named))


def _unnamed(lean: Any) -> Any:
    """The model without the names of its columns, so that it takes a row of numbers without a
    warning."""
    from dataclasses import replace

    f = lean.fit_.factors
    if getattr(f, "columns", None) is None:
        return lean
    other = copy.copy(lean)
    other.fit_ = replace(lean.fit_, factors=replace(f, columns=None))
    other.__dict__.pop("_column_ids", None)
    return other


def _dtype(lean: Any) -> np.dtype:
    f = lean.fit_.factors
    return f.left.dtype if hasattr(f, "left") else np.dtype(np.float64)


def _names(lean: Any, verb: str, width: int, columns: list[Any]) -> list[Any]:
    if verb == "transform" and hasattr(lean, "get_feature_names_out"):
        names = list(lean.get_feature_names_out())
        if len(names) == width:
            return names
    return columns if len(columns) == width else [f"{verb}{j}" for j in range(width)]
