"""Parts of a matrix that are tasks of Dask, and what is asked of them before a fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.clusters.client import client_of
from eckart.clusters.tasks import HeldFuture, computed
from eckart.engines.protocol.refused import Place, Refused, first_refused, raise_first, whole_rows
from eckart.entry_facts import EntryFacts
from eckart.errors import InputError, InputTypeError
from eckart.matrix import Matrix
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
